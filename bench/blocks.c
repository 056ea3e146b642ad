// SPDX-License-Identifier: MIT
/*
 * The steady-state throughput of basic blocks on the processor that this runs on, in core cycles,
 *without a PMU:
 *
 *	blocks [-c CPU] [-n SAMPLES] [-s] <IN >OUT
 *
 * IN has a block in hexadecimal digits as the first column of each line, OUT has hex,cycles,spread.
 *bench/truth runs it.
 *
 * A block is laid out until there are 400 instructions, and 1000; the difference of the two times
 *is that of the copies between. Every pass over them begins with LFENCE and the same registers
 *(tests/blocks/README.md). Memory is one physical page, mapped wherever a block touches it; with -s
 *each page is one of its own, which AMD's first-level cache needs. Ticks of the TSC become cycles
 *by a chain of dependent ADDs that is timed beside each sample. A sample counts only if a loop that
 * needs the full width of the core ran at full speed right before and after: on a shared core the
 *other thread takes half. Each block runs in a process of its own, because it may write anywhere.
 */
#include <Zydis/Zydis.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/types.h"

#define CONTROL	  0x10000000u
#define REGISTERS 0x12340000u
#define CODE	  0x30000000u
#define RIP_DATA  0x40000000u
#define FILL	  0x0000000012340040ull
#define VECTOR	  0x3ff000003f800000ull
#define MXCSR	  0x9fc0u
#define CODE_SIZE (1u << 20)
#define PAGES_MAX 4096u
#define BYTES_MAX 512u
#define INSNS_MAX 64u
#define LIMIT_US  3000000
#define STABLE	  0.04
#define QUIET	  1.12 /* of the best time of the wide loop */

enum outcome { MEASURED, FAULTED, DIVIDED, ILLEGAL, SLOW, WALKED, UNSETTLED, NOISY, CRASHED };

/* At CONTROL, where generated code reaches it by a 32-bit address. */
struct control {
	u64 rsp, begin, end;
	u32 passes, mxcsr;
	u8 pad[32];
	u64 vector[8];
};

struct block {
	char *hex;
	u8 bytes[BYTES_MAX];
	u32 size, count;
	u32 rip[INSNS_MAX], rip_next[INSNS_MAX],
		rips; /* offsets of displacements, and of what they add to */
	bool wide, evex, dropped; /* has registers of 256 bits; has anything of AVX-512 */
	double first, second;
};

struct ticks {
	u64 few, many; /* best times of 64 and 192 turns of the chain */
};

static struct control *const control = (void *)(uintptr_t)CONTROL;
static int samples = 30, page_file;
static bool separate;
static u8 *pages_view;
static volatile u32 pages;
static double *result, best_wide;

/* --- time --- */

static u64 now(void)
{
	u32 low, high;

	__asm__ volatile("lfence\nrdtsc\nlfence" : "=a"(low), "=d"(high) : : "memory");
	return (u64)high << 32 | low;
}

static __attribute__((noinline)) u64 time_chain(u64 turns)
{
	u64 begin = now();

	__asm__ volatile(".p2align 6\n1:\n.rept 64\nadd %%rcx, %%rax\n.endr\ndec %0\njnz 1b"
			 : "+r"(turns)
			 :
			 : "rax", "rcx", "cc");
	return now() - begin;
}

static __attribute__((noinline)) u64 time_wide(void)
{
	u64 turns = 40, begin = now();

	__asm__ volatile(".p2align 6\n1:\n.rept 98\nnopl 0(%%rax)\n.endr\ndec %0\njnz 1b"
			 : "+r"(turns)
			 :
			 : "cc");
	return now() - begin;
}

static void keep_least(u64 *least, u64 value)
{
	if (!*least || value < *least)
		*least = value;
}

static void calibrate(struct ticks *t)
{
	keep_least(&t->few, time_chain(64));
	keep_least(&t->many, time_chain(192));
}

static double cycles_per_tick(const struct ticks *t)
{
	return 64.0 * (192 - 64) / (double)(t->many - t->few);
}

static bool is_quiet(const struct ticks *t)
{
	double limit = QUIET * best_wide / cycles_per_tick(t);

	return (double)time_wide() <= limit || (double)time_wide() <= limit;
}

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return (x > y) - (x < y);
}

/* Cycles of the wide loop on a quiet core: the hundredth best of some thousands, a second apart. */
static void find_best_wide(void)
{
	static u64 times[4000];
	struct ticks t = { 0, 0 };

	for (u32 i = 0; i < ARRAY_SIZE(times); i++) {
		calibrate(&t);
		times[i] = time_wide();
		if (i % 100 == 99)
			usleep(20000);
	}
	qsort(times, ARRAY_SIZE(times), sizeof(times[0]), compare);
	best_wide = (double)times[ARRAY_SIZE(times) / 100] * cycles_per_tick(&t);
	fprintf(stderr, "a quiet core: %.2f long NOPs a cycle\n", 40 * 99 / best_wide);
}

/* --- memory where a block wants it --- */

static void fill(volatile u64 *at, size_t bytes)
{
	for (size_t i = 0; i < bytes / 8; i++)
		at[i] = FILL;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	void *want = (void *)((uintptr_t)info->si_addr & PAGE_MASK);
	off_t from = separate ? (off_t)(pages * PAGE_SIZE) : 0;

	(void)context;
	if (sig == SIGFPE || sig == SIGILL || sig == SIGALRM)
		_exit(sig == SIGFPE ? DIVIDED : sig == SIGILL ? ILLEGAL : SLOW);
	if (sig != SIGSEGV || info->si_code != SEGV_MAPERR)
		_exit(FAULTED);
	if (pages == PAGES_MAX)
		_exit(WALKED);
	if (mmap(want, PAGE_SIZE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_POPULATE | MAP_FIXED_NOREPLACE, page_file, from) != want)
		_exit(FAULTED);
	if (separate)
		fill(want, PAGE_SIZE);
	pages++;
}

static void catch_faults(void)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGALRM };
	static u8 stack[65536];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigaltstack(&alternate, NULL);
	for (u32 i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &action, NULL);
}

/* --- code --- */

static u8 *out;

static void put(const void *bytes, size_t size)
{
	memcpy(out, bytes, size);
	out += size;
}

#define PUT(...) put((const u8[]){ __VA_ARGS__ }, sizeof((const u8[]){ __VA_ARGS__ }))

static void put_u32(u32 value)
{
	put(&value, sizeof(value));
}

static void put_clock(size_t field)
{
	PUT(0x0f, 0xae, 0xe8, 0x0f, 0x31);		     /* LFENCE; RDTSC */
	PUT(0x89, 0x04, 0x25), put_u32(CONTROL + field);     /* MOV [field], EAX */
	PUT(0x89, 0x14, 0x25), put_u32(CONTROL + field + 4); /* MOV [field + 4], EDX */
}

/* All of ZMM0 to ZMM31 by VMOVDQA64, and masks that choose every element, by KXNORQ. */
static void put_evex_registers(void)
{
	for (u32 r = 0; r < 32; r++) {
		PUT(0x62, 0x61 | (r & 8 ? 0 : 0x80) | (r & 16 ? 0 : 0x10), 0xfd, 0x48, 0x6f,
		    0x04 | (r & 7) << 3, 0x25);
		put_u32(CONTROL + offsetof(struct control, vector));
	}
	for (u32 k = 0; k < 8; k++)
		PUT(0xc4, 0xe1, 0x84 | (~k & 15) << 3, 0x46, 0xc0 | k << 3 | k);
}

static void put_registers(const struct block *block)
{
	PUT(0xc5, 0xf8, 0x77); /* VZEROUPPER */
	if (block->evex)
		put_evex_registers();
	for (u32 r = 0; r < 16 && !block->evex; r++) {
		u8 modrm = 0x04 | (r & 7) << 3;

		if (block->wide) /* VMOVDQA YMM, [vector] */
			PUT(0xc5, r < 8 ? 0xfd : 0x7d, 0x6f, modrm, 0x25);
		else /* MOVAPS XMM, [vector] */
			PUT(r < 8 ? 0x40 : 0x44, 0x0f, 0x28, modrm, 0x25);
		put_u32(CONTROL + offsetof(struct control, vector));
	}
	PUT(0x31, 0xc0); /* XOR EAX, EAX: the flags */
	for (u32 r = 0; r < 16; r++) {
		PUT(r < 8 ? 0x40 : 0x41, 0xb8 | (r & 7)); /* MOV r32, imm32 */
		put_u32(REGISTERS + 0x100 * r);
	}
	while ((uintptr_t)out & 63)
		PUT(0x90);
}

/* RIP-relative operands of every copy are at one place. */
static void put_copy(const struct block *block)
{
	u8 *at = out;

	put(block->bytes, block->size);
	for (u32 i = 0; i < block->rips; i++) {
		u32 disp;

		memcpy(&disp, at + block->rip[i], sizeof(disp));
		disp = RIP_DATA + (disp & 0xfff) - (u32)(uintptr_t)(at + block->rip_next[i]);
		memcpy(at + block->rip[i], &disp, sizeof(disp));
	}
}

typedef void code_function(void);

static code_function *generate(const struct block *block, u32 copies)
{
	u8 *entry, *pass;

	out = (u8 *)(((uintptr_t)out + PAGE_SIZE - 1) & PAGE_MASK);
	entry = out;
	PUT(0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57); /* PUSH RBX ... R15 */
	PUT(0x48, 0x89, 0x24, 0x25),
		put_u32(CONTROL + offsetof(struct control, rsp)); /* MOV [rsp], RSP */
	PUT(0x0f, 0xae, 0x14, 0x25),
		put_u32(CONTROL + offsetof(struct control, mxcsr)); /* LDMXCSR */
	put_clock(offsetof(struct control, begin));
	pass = out;
	PUT(0x0f, 0xae, 0xe8); /* LFENCE */
	put_registers(block);
	for (u32 i = 0; i < copies; i++)
		put_copy(block);
	PUT(0xff, 0x0c, 0x25),
		put_u32(CONTROL + offsetof(struct control, passes)); /* DEC [passes] */
	PUT(0x0f, 0x85), put_u32((u32)(pass - (out + 4)));	     /* JNZ pass */
	put_clock(offsetof(struct control, end));
	PUT(0x48, 0x8b, 0x24, 0x25), put_u32(CONTROL + offsetof(struct control, rsp));
	PUT(0xc5, 0xf8, 0x77);						       /* VZEROUPPER */
	PUT(0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3); /* POP ...; RET */
	return (code_function *)(void *)entry;
}

/* --- one measurement --- */

static u64 run(code_function *code, u32 passes)
{
	fill((u64 *)(void *)pages_view, (separate && pages ? pages : 1) * PAGE_SIZE);
	control->passes = passes;
	code();
	return control->end - control->begin;
}

/* Until no page is new. */
static void settle(code_function *code, u32 passes)
{
	for (u32 turn = 0; turn < 20; turn++) {
		u32 before = pages;

		run(code, passes);
		if (pages == before)
			return;
	}
	_exit(UNSETTLED);
}

/* The least time between two proofs that the core is quiet. */
static u64 sample(code_function *code, u32 passes, struct ticks *t)
{
	u64 least = 0;
	int good = 0;

	for (int tries = 0; good < samples; tries++) {
		bool quiet;
		u64 ticks;

		if (tries > 100 * samples)
			_exit(NOISY);
		if (tries % (4 * samples) == 4 * samples - 1)
			usleep(3000);
		calibrate(t);
		run(code, passes);
		quiet = is_quiet(t);
		ticks = run(code, passes);
		if (!quiet || !is_quiet(t))
			continue;
		keep_least(&least, ticks);
		good++;
	}
	return least;
}

static _Noreturn void measure(const struct block *block)
{
	u32 few = (400 + block->count - 1) / block->count,
	    many = (1000 + block->count - 1) / block->count;
	const struct itimerval limit = { .it_value.tv_sec = LIMIT_US / 1000000 };
	code_function *short_code, *long_code;
	struct ticks t = { 0, 0 };
	u64 one, short_ticks, long_ticks;
	u32 passes;

	out = (u8 *)(uintptr_t)CODE;
	short_code = generate(block, few);
	long_code = generate(block, many);
	mprotect((void *)(uintptr_t)CODE, CODE_SIZE, PROT_READ | PROT_EXEC);
	catch_faults();
	setitimer(ITIMER_REAL, &limit, NULL);
	settle(long_code, 4);
	one = run(long_code, 4) / 4 + 1;
	passes = 30000 / one < 4 ? 4 : 30000 / one > 32 ? 32 : (u32)(30000 / one);
	settle(long_code, passes);
	settle(short_code, passes);
	short_ticks = sample(short_code, passes, &t);
	long_ticks = sample(long_code, passes, &t);
	*result = ((double)long_ticks - (double)short_ticks) * cycles_per_tick(&t) / passes /
		  (many - few);
	_exit(MEASURED);
}

static double measure_in_child(struct block *block)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		measure(block);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		exit(1);
	block->dropped |= !WIFEXITED(status) || WEXITSTATUS(status) != MEASURED;
	return *result;
}

/* --- the list --- */

static bool is_block(const ZydisDecodedInstruction *in)
{
	return in->meta.category != ZYDIS_CATEGORY_COND_BR &&
	       in->meta.category != ZYDIS_CATEGORY_UNCOND_BR &&
	       in->meta.category != ZYDIS_CATEGORY_CALL &&
	       in->meta.category != ZYDIS_CATEGORY_RET &&
	       in->meta.category != ZYDIS_CATEGORY_SYSCALL;
}

static bool decode(struct block *block)
{
	ZydisDecoder decoder;
	ZydisDecodedInstruction in;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (u32 at = 0; at < block->size; at += in.length, block->count++) {
		if (block->count == INSNS_MAX ||
		    !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, block->bytes + at,
							 block->size - at, &in, ops)) ||
		    !is_block(&in))
			return false;
		block->evex |= in.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX;
		for (u32 i = 0; i < in.operand_count; i++) {
			block->evex |= ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
				       ops[i].reg.value >= ZYDIS_REGISTER_K0 &&
				       ops[i].reg.value <= ZYDIS_REGISTER_K7;
			block->wide |=
				ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER && ops[i].size == 256;
			if (ops[i].type != ZYDIS_OPERAND_TYPE_MEMORY ||
			    ops[i].mem.base != ZYDIS_REGISTER_RIP)
				continue;
			block->rip[block->rips] = at + in.raw.disp.offset;
			block->rip_next[block->rips++] = at + in.length;
		}
	}
	return block->count;
}

static bool parse(struct block *block, const char *line)
{
	u32 digits = strspn(line, "0123456789abcdefABCDEF"), value;

	if (!digits || digits % 2 || digits / 2 > BYTES_MAX)
		return false;
	block->hex = strndup(line, digits);
	for (; 2 * block->size < digits && sscanf(line + 2 * block->size, "%2x", &value) == 1;
	     block->size++)
		block->bytes[block->size] = (u8)value;
	return block->hex && decode(block);
}

static struct block *read_list(size_t *count)
{
	struct block *list = NULL, *larger;
	size_t capacity = 0;
	char *line = NULL;

	*count = 0;
	while (getline(&line, &capacity, stdin) > 0) {
		struct block block = { .hex = NULL };

		if (!parse(&block, line)) {
			free(block.hex);
			continue;
		}
		larger = realloc(list, (*count + 1) * sizeof(*list));
		if (!larger)
			exit(1);
		list = larger;
		list[(*count)++] = block;
	}
	free(line);
	return list;
}

static void map_at(u32 at, size_t size)
{
	void *want = (void *)(uintptr_t)at;

	if (mmap(want, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != want) {
		perror("mmap");
		exit(1);
	}
}

static void set_up(int cpu)
{
	size_t size = separate ? PAGES_MAX * PAGE_SIZE : PAGE_SIZE;
	cpu_set_t set;

	map_at(CONTROL, PAGE_SIZE);
	map_at(CODE, CODE_SIZE);
	control->mxcsr = MXCSR;
	for (u32 i = 0; i < ARRAY_SIZE(control->vector); i++)
		control->vector[i] = VECTOR;
	page_file = memfd_create("pages", MFD_CLOEXEC);
	if (page_file < 0 || ftruncate(page_file, (off_t)size)) {
		perror("memfd");
		exit(1);
	}
	pages_view = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, page_file, 0);
	result = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (pages_view == MAP_FAILED || result == MAP_FAILED ||
	    (cpu >= 0 && sched_setaffinity(0, sizeof(set), &set))) {
		perror("set up");
		exit(1);
	}
}

static void print(const struct block *block)
{
	double mean = (block->first + block->second) / 2, apart = block->first - block->second;

	apart = apart < 0 ? -apart : apart;
	if (!block->dropped && mean > 0.05 && apart <= STABLE * mean)
		printf("%s,%.2f,%.2f\n", block->hex, mean, 100 * apart / mean);
}

int main(int argc, char **argv)
{
	struct block *list;
	size_t count;
	int cpu = 0;

	for (int c; (c = getopt(argc, argv, "c:n:s")) != -1;) {
		if (c == '?')
			return 2;
		if (c == 'c')
			cpu = atoi(optarg);
		else if (c == 'n')
			samples = atoi(optarg);
		else
			separate = true;
	}
	set_up(cpu);
	list = read_list(&count);
	find_best_wide();
	for (size_t i = 0; i < count; i++)
		list[i].first = measure_in_child(&list[i]);
	/* Backwards, so that a bad moment does not hit both. */
	for (size_t i = count; i-- > 0;)
		list[i].second = measure_in_child(&list[i]);
	puts("hex,cycles,spread");
	for (size_t i = 0; i < count; i++)
		print(&list[i]);
	return 0;
}
