// SPDX-License-Identifier: MIT
/*
 * The native CPU as the oracle. The sandbox is mapped at its addresses in this process; a sequence
 * is entered through native_entry.S with all registers loaded, and ends in a signal whose frame
 * holds all registers, the exception, its error code and CR2.
 */
#include "diff.h"

#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/ucontext.h>
#include <unistd.h>

#include "base/must.h"

#define FPSTATE_MAX	(16 * 1024)
#define FPSTATE_SIZE	468 /* extended_size of struct _fpx_sw_bytes in the frame */
#define SIGNAL_STACK	(64 * 1024)
#define HWCAP2_FSGSBASE BIT(1)
#define KERNEL_HALF	0x7ffffffff000ull
#define ENDLESS_SECONDS 10 /* of processor time: a case takes less than a millisecond */

extern void native_enter(void *frame, u64 fs_base, u64 gs_base, const u16 sel[NSEGS]);
extern void program_cpuid_signal(int sig, siginfo_t *info, void *ucontext);
void native_capture(int sig, siginfo_t *info, void *ucontext);
void native_foreign_signal(int sig, siginfo_t *info, void *ucontext);

extern u64 native_fs_base, native_gs_base;
extern u16 native_sel[NSEGS];

/* Where ucontext keeps what the processor numbers. */
static const u8 greg_of[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
				REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
				REG_R12, REG_R13, REG_R14, REG_R15 };

static const int fault_signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGPROF };

/* The components of AVX-512 in a frame: XCR0 bit, where it is in struct state. */
static const struct component {
	u8 bit;
	u32 at, size;
} avx512[] = {
	{ 5, offsetof(struct state, mask), sizeof(((struct state *)0)->mask) },
	{ 6, offsetof(struct state, zmm_high), sizeof(((struct state *)0)->zmm_high) },
	{ 7, offsetof(struct state, zmm16), sizeof(((struct state *)0)->zmm16) },
};

static struct {
	u8 *code, *data;		   /* writable aliases of the sandbox */
	u32 avx512_at[ARRAY_SIZE(avx512)]; /* in the frame */
	bool has_ldt;
	ucontext_t frame;
	u8 fpstate[FPSTATE_MAX] __attribute__((aligned(64)));
	struct outcome *out;
} native;

/* A frame as this kernel makes them, to be filled in for every entry. */
static void learn_frame(int sig, siginfo_t *info, void *ucontext)
{
	ucontext_t *uc = ucontext;
	u8 *fp = (u8 *)uc->uc_mcontext.fpregs;
	u32 size;

	(void)sig, (void)info;
	memcpy(&size, fp + FPSTATE_SIZE, sizeof(size));
	must(size >= STATE_XSAVE && size <= FPSTATE_MAX);
	memcpy(native.fpstate, fp, size);
	/* The kernel's frame ends with the signal mask; glibc's structure is larger. */
	memcpy(&native.frame, uc, offsetof(ucontext_t, uc_sigmask) + sizeof(u64));
	native.frame.uc_mcontext.fpregs = (fpregset_t)native.fpstate;
}

static void map_at(int fd, u64 base, u64 size, int prot)
{
	void *there = mmap((void *)base, size, prot,
			   MAP_SHARED | MAP_POPULATE | MAP_FIXED_NOREPLACE, fd, 0);

	must(there == (void *)base);
}

static u8 *map_sandbox(const char *name, u64 base, u64 size, int prot)
{
	int fd = memfd_create(name, 0);
	void *alias;

	must(fd >= 0 && ftruncate(fd, size) == 0);
	map_at(fd, base, size, prot);
	map_at(fd, base + HIGH_ALIAS, size, prot);
	alias = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	must(alias != MAP_FAILED);
	close(fd);
	return alias;
}

static void protect_readonly(u64 alias)
{
	void *page = (void *)(DATA_BASE + alias + DATA_READONLY * PAGE_SIZE);

	must(mprotect(page, PAGE_SIZE, PROT_READ) == 0);
}

static void catch (int sig, void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction sa = { .sa_sigaction = handler,
				.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };

	must(sigaction(sig, &sa, NULL) == 0);
}

bool native_has_avx512(void)
{
	static int known = -1; /* CPUID is slow under a hypervisor */
	u32 low, high;

	if (known < 0 && host_has(FEAT_AVX512F)) {
		__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
		known = (low & XCR0_AVX512) == XCR0_AVX512;
	}
	return known > 0;
}

/* SDM 1 13.5.6: their offsets are the processor's. */
static void find_avx512(void)
{
	u32 size, ecx, edx;

	for (u32 i = 0; native_has_avx512() && i < ARRAY_SIZE(avx512); i++) {
		__cpuid_count(0xd, avx512[i].bit, size, native.avx512_at[i], ecx, edx);
		must(size == avx512[i].size);
		(void)ecx, (void)edx;
	}
}

bool native_supported(void)
{
	return getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE;
}

void native_init(void)
{
	stack_t stack = { .ss_sp = malloc(SIGNAL_STACK), .ss_size = SIGNAL_STACK };

	must(stack.ss_sp && sigaltstack(&stack, NULL) == 0);
	native.code = map_sandbox("code", CODE_BASE, CODE_PAGES * PAGE_SIZE, PROT_READ | PROT_EXEC);
	native.data = map_sandbox("data", DATA_BASE, DATA_SIZE, PROT_READ | PROT_WRITE);
	protect_readonly(0);
	protect_readonly(HIGH_ALIAS);
	native.has_ldt = ldt_install();
	find_avx512();
	catch (SIGUSR1, learn_frame);
	raise(SIGUSR1);
	for (size_t i = 0; i < ARRAY_SIZE(fault_signals); i++)
		catch (fault_signals[i], program_cpuid_signal);
}

bool native_has_ldt(void)
{
	return native.has_ldt;
}

u8 *native_data(void)
{
	return native.data;
}

const u8 *native_code(void)
{
	return native.code;
}

void native_code_writable(bool writable)
{
	int prot = PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0);

	must(mprotect((void *)CODE_BASE, CODE_PAGES * PAGE_SIZE, prot) == 0);
	must(mprotect((void *)(CODE_BASE + HIGH_ALIAS), CODE_PAGES * PAGE_SIZE, prot) == 0);
}

void native_load(const u8 *code, u32 size, u64 address)
{
	u64 offset = (u32)address - CODE_BASE;

	if (size > CODE_PAGES * PAGE_SIZE - offset)
		size = CODE_PAGES * PAGE_SIZE - offset;
	memset(native.code, CODE_FILL, CODE_PAGES * PAGE_SIZE);
	memcpy(native.code + offset, code, size);
}

/* A signal while the engine runs, or an unexpected one. */
void native_foreign_signal(int sig, siginfo_t *info, void *ucontext)
{
	bool fault = sig != SIGPROF;

	if (fault && guest_signal(sig, info, ucontext))
		return;
	signal(sig, SIG_DFL);
	if (!fault) /* that comes again by itself */
		raise(sig);
}

static void capture_xsave(struct state *s, const u8 *fp)
{
	memcpy(s->xsave, fp, STATE_XSAVE);
	if (!(s->xsave[XSAVE_HEADER] & 4))
		memset(s->xsave + XSAVE_YMM, 0, 256);
	for (u32 i = 0; native_has_avx512() && i < ARRAY_SIZE(avx512); i++)
		if (fp[XSAVE_HEADER] & BIT(avx512[i].bit))
			memcpy((u8 *)s + avx512[i].at, fp + native.avx512_at[i], avx512[i].size);
}

void native_capture(int sig, siginfo_t *info, void *ucontext)
{
	ucontext_t *uc = ucontext;
	const greg_t *g = uc->uc_mcontext.gregs;
	struct outcome *out = native.out;

	(void)info;
	for (u32 i = 0; i < 16; i++)
		out->state.gpr[i] = g[greg_of[i]];
	out->state.rip = g[REG_RIP];
	out->state.rflags = g[REG_EFL];
	out->state.fs_base = native_fs_base;
	out->state.gs_base = native_gs_base;
	memcpy(out->state.sel, native_sel, sizeof(out->state.sel));
	out->state.sel[CS] = g[REG_CSGSFS];
	out->state.sel[SS] = (u64)g[REG_CSGSFS] >> 48;
	capture_xsave(&out->state, (const u8 *)uc->uc_mcontext.fpregs);
	out->vector = sig == SIGPROF ? NATIVE_TIMEOUT : g[REG_TRAPNO];
	out->error = g[REG_ERR];
	out->cr2 = g[REG_CR2];
}

static void fill_frame(const struct state *in)
{
	greg_t *g = native.frame.uc_mcontext.gregs;

	for (u32 i = 0; i < 16; i++)
		g[greg_of[i]] = in->gpr[i];
	g[REG_RIP] = in->rip;
	g[REG_EFL] = in->rflags;
	g[REG_CSGSFS] = in->sel[CS] | (u64)in->sel[SS] << 48;
	/* Not the software bytes and not the features beyond AVX-512. */
	memcpy(native.fpstate, in->xsave, 28);
	memcpy(native.fpstate + 32, in->xsave + 32, 16 * 8 + 16 * 16);
	memcpy(native.fpstate + XSAVE_YMM, in->xsave + XSAVE_YMM, 256);
	native.fpstate[XSAVE_HEADER] |= 7;
	for (u32 i = 0; native_has_avx512() && i < ARRAY_SIZE(avx512); i++) {
		memcpy(native.fpstate + native.avx512_at[i], (const u8 *)in + avx512[i].at,
		       avx512[i].size);
		native.fpstate[XSAVE_HEADER] |= BIT(avx512[i].bit);
	}
}

/* From now on, for what runs on either side. */
static void limit_time(void)
{
	const struct itimerval limit = { .it_value.tv_sec = ENDLESS_SECONDS };

	must(setitimer(ITIMER_PROF, &limit, NULL) == 0);
}

static bool in_range(u64 address, u64 base, u64 size)
{
	return (address & ~HIGH_ALIAS) - base < size;
}

bool native_maps(u64 address)
{
	u8 resident;

	if (in_range(address, CODE_BASE, CODE_PAGES * PAGE_SIZE) ||
	    in_range(address, DATA_BASE, DATA_SIZE))
		return false;
	return mincore((void *)(address & PAGE_MASK), PAGE_SIZE, &resident) == 0;
}

void native_run(const struct state *in, struct outcome *out)
{
	limit_time();
	memset(out, 0, sizeof(*out));
	native.out = out;
	fill_frame(in);
	native_enter(&native.frame, in->fs_base, in->gs_base, in->sel);
	/* Linux hides from programs what is mapped in its half. */
	if (out->vector == VEC_PF && out->cr2 >= KERNEL_HALF)
		out->error |= PF_PRESENT;
}
