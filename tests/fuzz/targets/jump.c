// SPDX-License-Identifier: MIT
/*
 * Indirect control flow with hostile targets, between flush storms. An input is a program of
 * transfers: near and far JMP, CALL, RET, IRET and SYSRET, at CPL 0 and 3, to canonical addresses,
 * to aliases of them and to addresses that differ from those in any bits, while code is rewritten,
 * address spaces change and the mode word does. A guest kernel and a guest program (the same code
 * at two addresses) execute it from a table; every place where a transfer may land appends its own
 * number to a log, every fault its vector. The model below says what the log must hold: where each
 * transfer lands follows from the target alone. Another log, or none, is a finding.
 *
 * Input: flags (enum flag), then steps: a code of enum step and what step_…() reads.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/must.h"
#include "cpu/control.h"
#include "cpu/event.h"
#include "cpu/mode.h"
#include "engine/engine.h"
#include "fuzz/fuzz.h"
#include "guest/machine.h"
#include "x86/paging.h"

enum flag {
	FLAG_LA57 = 1,
	FLAG_SMEP = 2,
	FLAG_PCID = 4,
	FLAG_COLD = 8,
	FLAG_COUNT = 16, /* branches by kind, and cycles */
	FLAG_OBSERVE = 32,
};

/* --- the guest's memory --- */

#define KERNEL	    IMAGE_CODE
#define KERNEL_NEXT (KERNEL + 0x400) /* the kernel's copy of the dispatcher */
#define USER_NEXT   0x20000	     /* the program's */
#define PML5	    0x9000
#define SITES	    0x30000 /* user pages with landing places, then supervisor ones */
#define USER_PAGES  18
#define PAGES	    (USER_PAGES + 4)
#define COMPAT	    0x48000 /* a landing place of 32-bit code */
#define WILD	    0x50000 /* user pages, each byte of which is a RET */
#define WILD_PAGES  17
#define OPS	    0x200000
#define LOG	    0x380000
#define TEMPLATE(v) (0x300000u + (v) * 0x20000u) /* contents of site pages, two versions */
#define PER_PAGE    16
#define NSITES	    (PAGES * PER_PAGE)

#define MAX_OPS	   16384
#define MAX_STORMS 48
#define BUDGET	   8000000ull

struct op {
	u64 handler, target, a, b;
};

/*
 * The dispatcher. R8: the next operation, R10: the end of the log, R13: top of the stack, R15: the
 * dispatcher itself. Each handler leaves a return address on the stack: landing places end with a
 * RET or with JMP R15.
 */
GUEST_CODE(
	next,
	"mov %r13, %rsp\n"
	"mov (%r8), %rax\n mov 8(%r8), %rdx\n mov 16(%r8), %rcx\n mov 24(%r8), %rdi\n"
	"add $32, %r8\n"
	"jmp *%rax\n"
	"h_jmp: push %r15\n jmp *%rdx\n"
	"h_jmp_memory: push %r15\n jmp *-24(%r8)\n"
	"h_call: call *%rdx\n jmp *%r15\n"
	"h_call_memory: call *-24(%r8)\n jmp *%r15\n"
	"h_ret: push %r15\n push %rdx\n ret\n"
	"h_ret_pop: push %r15\n push %r15\n push %rdx\n ret $8\n"
	"h_lret: push %r15\n push %rcx\n push %rdx\n lretq\n"
	"h_iret: push %r15\n mov %rsp, %rax\n push %rdi\n push %rax\n pushfq\n push %rcx\n"
	"push %rdx\n iretq\n"
	"h_ljmp: push %r15\n ljmp *-24(%r8)\n"
	"h_enter: int $0x80\n"
	"h_copy: mov %rdx, %rsi\n rep movsb\n jmp *%r15\n"
	"h_patch: mov %ecx, (%rdi)\n jmp *%r15\n"
	"h_fill: mov $0xc3, %eax\n rep stosb\n jmp *%r15\n"
	"h_wild: call *%rdx\n movq $0x7fff, (%r10)\n add $8, %r10\n jmp *%r15\n"
	"h_compat: push $0x1b\n push %rdx\n lretq\n"
	/* of the kernel only */
	"h_iret_user: mov $0x20000, %r15d\n mov $0xa0000, %r13d\n mov %r15, -8(%r13)\n"
	"lea -8(%r13), %rax\n push $0x23\n push %rax\n push $2\n push $0x2b\n push %rdx\n iretq\n"
	"h_sysret: mov $0x20000, %r15d\n mov $0xa0000, %r13d\n mov %r15, -8(%r13)\n"
	"lea -8(%r13), %rsp\n mov %rdx, %rcx\n mov $2, %r11d\n sysretq\n"
	"h_cr3: mov %rdx, %cr3\n jmp *%r15\n"
	"h_invlpg: invlpg (%rdx)\n jmp *%r15\n"
	"h_cr4: mov %cr4, %rax\n xor %rdx, %rax\n mov %rax, %cr4\n jmp *%r15\n"
	"h_cr0: mov %cr0, %rax\n xor %rdx, %rax\n mov %rax, %cr0\n jmp *%r15\n"
	"h_done: out %al, $0xf4\n");

/* The kernel: its start, and the handlers of #GP, #PF, INT 80h (to CPL 0) and INT 81h (32-bit code
 * was reached). After a fault the program goes on at CPL 3. */
#define VECTOR_GP     0x100
#define VECTOR_PF     0x120
#define VECTOR_ENTER  0x140
#define VECTOR_COMPAT 0x160

GUEST_CODE(kernel,
	   "mov $0x200000, %r8d\n mov $0x380000, %r10d\n"
	   "enter: mov $0x10400, %r15d\n mov $0x80000, %r13d\n jmp *%r15\n"
	   "to_user: mov %rax, (%r10)\n add $8, %r10\n mov $0x20000, %r15d\n mov $0xa0000, %r13d\n"
	   "push $0x23\n push %r13\n push $2\n push $0x2b\n push %r15\n iretq\n"
	   ".org kernel_start + 0x100\n movabs $13 << 56, %rax\n jmp to_user\n"
	   ".org kernel_start + 0x120\n mov %cr2, %rax\n shl $8, %rax\n shr $8, %rax\n"
	   "mov $14, %ecx\n shl $56, %rcx\n or %rcx, %rax\n jmp to_user\n"
	   ".org kernel_start + 0x140\n jmp enter\n"
	   ".org kernel_start + 0x160\n mov $0x7ffe, %eax\n jmp to_user\n"
	   ".org kernel_start + 0x400\n");

#define WILD_LANDED   0x7fff
#define COMPAT_LANDED 0x7ffe

#define HANDLER(name) extern const u8 name[] __attribute__((visibility("hidden")))
HANDLER(h_jmp);
HANDLER(h_jmp_memory);
HANDLER(h_call);
HANDLER(h_call_memory);
HANDLER(h_ret);
HANDLER(h_ret_pop);
HANDLER(h_lret);
HANDLER(h_iret);
HANDLER(h_ljmp);
HANDLER(h_enter);
HANDLER(h_copy);
HANDLER(h_patch);
HANDLER(h_fill);
HANDLER(h_wild);
HANDLER(h_compat);
HANDLER(h_iret_user);
HANDLER(h_sysret);
HANDLER(h_cr3);
HANDLER(h_invlpg);
HANDLER(h_cr4);
HANDLER(h_cr0);
HANDLER(h_done);

/* --- landing places --- */

/* The last one of a page continues in the next page. */
static u64 site_address(u32 site)
{
	u32 page = site / PER_PAGE, slot = site % PER_PAGE;

	return SITES + page * PAGE_SIZE + (slot == PER_PAGE - 1 ? 0xffa : slot * 0x100 + 0x20);
}

static bool site_exists(u32 site)
{
	u32 page = site / PER_PAGE;

	return site % PER_PAGE != PER_PAGE - 1 || (page != USER_PAGES - 1 && page != PAGES - 1);
}

static u32 site_number(u32 site, u32 version)
{
	return site | version << 12;
}

/* movq $number, (%r10); add $8, %r10; then ret, or jmp *%r15. The number's upper byte is 0. */
static void put_site(u8 *to, u32 site, u32 version)
{
	static const u8 code[] = { 0x49, 0xc7, 0x02, 0, 0, 0, 0, 0x49, 0x83, 0xc2, 0x08 };
	static const u8 back[] = { 0x41, 0xff, 0xe7 }, ret[] = { 0xc3 };
	u32 number = site_number(site, version);

	memcpy(to, code, sizeof(code));
	memcpy(to + 3, &number, sizeof(number));
	if (site & 1)
		memcpy(to + sizeof(code), ret, sizeof(ret));
	else
		memcpy(to + sizeof(code), back, sizeof(back));
}

/* --- the model, and the program that is made of it --- */

struct world {
	struct machine *m;
	u8 flags;
	bool user; /* where the dispatcher runs */
	struct op *op;
	u32 nops, nlog, storms;
	u64 log[MAX_OPS];
	u32 number[NSITES]; /* what the landing places append now */
};

static u64 transfers; /* of all inputs */

static void put_op(struct world *w, const u8 *handler, u64 target, u64 a, u64 b)
{
	u64 base = w->user ? USER_NEXT : KERNEL_NEXT;

	if (w->nops < MAX_OPS)
		w->op[w->nops++] = (struct op){ base + (u64)(handler - next_start), target, a, b };
}

static void put_log(struct world *w, u64 value)
{
	if (w->nlog < MAX_OPS)
		w->log[w->nlog++] = value;
}

static bool is_full(const struct world *w)
{
	return w->nops + 4 >= MAX_OPS;
}

static void run_as(struct world *w, bool user)
{
	if (w->user == user)
		return;
	if (user)
		put_op(w, h_iret_user, USER_NEXT, 0, 0);
	else
		put_op(w, h_enter, 0, 0, 0);
	w->user = user;
}

static bool is_canonical(const struct world *w, u64 address)
{
	u32 unused = w->flags & FLAG_LA57 ? 7 : 16;

	return (u64)((s64)(address << unused) >> unused) == address;
}

/* Entries 0 to 3 and the last four of the upper tables lead to the same memory. */
static bool has_alias(u64 index)
{
	return index < 4 || index >= 508;
}

static bool is_mapped(const struct world *w, u64 address)
{
	return (!(w->flags & FLAG_LA57) || has_alias(address >> 48 & 511)) &&
	       has_alias(address >> 39 & 511) && !(address >> 21 & MASK(17, 0));
}

/* What a transfer to this address appends to the log. */
static u64 landing(const struct world *w, u64 address, u32 site, bool user)
{
	bool user_page = site / PER_PAGE < USER_PAGES;

	if (!is_canonical(w, address))
		return (u64)VEC_GP << 56;
	if (!is_mapped(w, address) || (user && !user_page) ||
	    (!user && user_page && w->flags & FLAG_SMEP))
		return (u64)VEC_PF << 56 | (address & MASK(55, 0));
	return w->number[site];
}

/* --- transfers --- */

enum via { VIA_KERNEL_ONLY = 1, VIA_32 = 2 };

static const struct kind {
	const u8 *handler;
	enum via via;
} kinds[] = {
	{ h_jmp, 0 },
	{ h_jmp_memory, 0 },
	{ h_call, 0 },
	{ h_ret, 0 },
	{ h_call_memory, 0 },
	{ h_ret_pop, 0 },
	{ h_lret, 0 },
	{ h_iret, 0 },
	{ h_ljmp, VIA_32 },
	{ h_iret_user, VIA_KERNEL_ONLY },
	{ h_sysret, VIA_KERNEL_ONLY },
};

static void transfer(struct world *w, const struct kind *kind, bool user, u32 site, u64 address)
{
	u64 cs, ss, result;

	run_as(w, user && !(kind->via & VIA_KERNEL_ONLY));
	cs = w->user ? IMAGE_UCS : IMAGE_CS;
	ss = w->user ? IMAGE_UDS : IMAGE_DS;
	if (kind->via & VIA_32)
		address = site_address(site);
	put_op(w, kind->handler, kind->via & VIA_32 ? address | cs << 32 : address, cs, ss);
	if (kind->via & VIA_KERNEL_ONLY)
		w->user = true; /* a fault leads there, too */
	result = landing(w, address, site, w->user);
	if (result >> 56)
		w->user = true;
	put_log(w, result);
	transfers++;
}

struct aim {
	const struct kind *kind;
	bool user;
	u32 site;
};

static struct aim read_aim(struct fuzz_input *in)
{
	u8 how = fuzz_u8(in);
	struct aim aim = { .kind = &kinds[(how >> 1) % ARRAY_SIZE(kinds)], .user = how & 1 };

	aim.site = fuzz_number(in, 2) % NSITES;
	if (!site_exists(aim.site))
		aim.site--;
	return aim;
}

/* An address of the site with other bits above, or, if it is one where nothing lands, below. */
static u64 change_bits(const struct world *w, u32 site, u64 high, u64 low)
{
	u64 address = site_address(site) ^ high;

	return is_canonical(w, address) ? address : address ^ low;
}

static void step_jump(struct world *w, struct fuzz_input *in)
{
	struct aim aim = read_aim(in);
	u64 high = fuzz_number(in, 4) << 32, low = fuzz_number(in, 2) << 1;

	transfer(w, aim.kind, aim.user, aim.site, change_bits(w, aim.site, high, low));
}

/* To a site by its aliases: bits 47:39 and, with 57-bit addresses, 56:48. */
static void step_alias(struct world *w, struct fuzz_input *in)
{
	struct aim aim = read_aim(in);
	u64 alias = fuzz_u8(in), address = site_address(aim.site) | (alias & 3) << 39;

	if (alias & 4)
		address |= MASK(63, 41);
	if (w->flags & FLAG_LA57)
		address ^= (alias >> 3 & 3) << 48;
	transfer(w, aim.kind, aim.user, aim.site, address);
}

/* Many in a row, again and again: blocks are linked and become hot. */
static void step_visit(struct world *w, struct fuzz_input *in)
{
	struct aim aim = read_aim(in);
	u32 count = fuzz_u8(in) + 1, stride = fuzz_u8(in), rounds = fuzz_u8(in) % 16 + 1;

	for (u32 i = 0; i < count * rounds && !is_full(w); i++) {
		u32 site = (aim.site + i % count * stride) % NSITES;

		if (site_exists(site))
			transfer(w, aim.kind, aim.user, site, site_address(site));
	}
}

static u64 next_random(u64 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Guesses: the site's address with random bits of two masks changed. */
static void step_spray(struct world *w, struct fuzz_input *in)
{
	struct aim aim = read_aim(in);
	u32 count = 16 * fuzz_u8(in);
	u64 state = fuzz_number(in, 2) + 1, high = fuzz_number(in, 2), low = fuzz_number(in, 2);
	u32 sites = fuzz_u8(in) % 64 + 1;

	for (u32 i = 0; i < count && !is_full(w); i++) {
		u32 site = (aim.site + i % sites) % NSITES;
		u64 bits = next_random(&state);

		if (site_exists(site))
			transfer(
				w, aim.kind, aim.user, site,
				change_bits(w, site, (bits & high) << 48, (bits >> 16 & low) << 1));
	}
}

static void step_compat(struct world *w, struct fuzz_input *in)
{
	(void)in;
	run_as(w, true);
	put_op(w, h_compat, COMPAT, 0, 0);
	put_log(w, COMPAT_LANDED);
}

/* --- code that changes --- */

static bool may_storm(struct world *w)
{
	return ++w->storms <= MAX_STORMS;
}

/* The program may write the pages that it may execute. */
static void step_copy(struct world *w, struct fuzz_input *in)
{
	u8 what = fuzz_u8(in), first = fuzz_u8(in) % PAGES, count = fuzz_u8(in) % PAGES + 1;
	bool user = what & 1;
	u32 version = what >> 1 & 1, pages = user ? USER_PAGES : PAGES;

	if (!may_storm(w) || first >= pages)
		return;
	if (count > pages - first)
		count = pages - first;
	run_as(w, user);
	put_op(w, h_copy, TEMPLATE(version) + first * PAGE_SIZE, count * PAGE_SIZE,
	       SITES + first * PAGE_SIZE);
	for (u32 site = first * PER_PAGE; site < (u32)(first + count) * PER_PAGE; site++)
		w->number[site] = site_number(site, version);
}

static void step_patch(struct world *w, struct fuzz_input *in)
{
	struct aim aim = read_aim(in);
	u32 number = fuzz_number(in, 2) % WILD_LANDED;

	run_as(w, aim.user && aim.site / PER_PAGE < USER_PAGES);
	put_op(w, h_patch, 0, number, site_address(aim.site) + 3);
	w->number[aim.site] = number;
}

static void step_fill(struct world *w, struct fuzz_input *in)
{
	u32 first = fuzz_number(in, 2) % PAGE_SIZE, count = fuzz_u8(in) % WILD_PAGES;

	if (!may_storm(w))
		return;
	run_as(w, true);
	put_op(w, h_fill, 0, count * PAGE_SIZE + 1, WILD + first);
}

static void step_wild(struct world *w, struct fuzz_input *in)
{
	u32 first = fuzz_number(in, 2), count = fuzz_u8(in), stride = fuzz_number(in, 2);

	for (u32 i = 0; i < count && !is_full(w); i++) {
		run_as(w, true);
		put_op(w, h_wild, WILD + (first + i * stride) % (WILD_PAGES * PAGE_SIZE), 0, 0);
		put_log(w, WILD_LANDED);
		transfers++;
	}
}

/* --- what the kernel changes --- */

static void step_cr3(struct world *w, struct fuzz_input *in)
{
	u64 value = w->flags & FLAG_LA57 ? PML5 : IMAGE_PML4;
	u8 what = fuzz_u8(in);

	if (w->flags & FLAG_PCID)
		value |= (what & 7) | (what & 0x80 ? BIT(63) : 0);
	run_as(w, false);
	put_op(w, h_cr3, value, 0, 0);
}

static void step_invlpg(struct world *w, struct fuzz_input *in)
{
	struct aim aim = read_aim(in);

	run_as(w, false);
	put_op(w, h_invlpg, site_address(aim.site), 0, 0);
}

static void step_cr4(struct world *w, struct fuzz_input *in)
{
	static const u32 bits[] = { CR4_PGE, CR4_TSD, CR4_OSFXSR, CR4_DE, CR4_PCE, CR4_OSXSAVE };

	run_as(w, false);
	put_op(w, h_cr4, bits[fuzz_u8(in) % ARRAY_SIZE(bits)], 0, 0);
}

static void step_cr0(struct world *w, struct fuzz_input *in)
{
	static const u32 bits[] = { CR0_TS, CR0_MP, CR0_EM, CR0_AM };

	run_as(w, false);
	put_op(w, h_cr0, bits[fuzz_u8(in) % ARRAY_SIZE(bits)], 0, 0);
}

static void (*const steps[])(struct world *, struct fuzz_input *) = {
	step_jump, step_alias, step_visit, step_spray,	step_compat, step_copy, step_patch,
	step_fill, step_wild,  step_cr3,   step_invlpg, step_cr4,    step_cr0,
};

/* --- a run --- */

static void put_tables(struct world *w)
{
	u8 *ram = w->m->ram;
	u64 *pml4 = (u64 *)(ram + IMAGE_PML4), *pml5 = (u64 *)(ram + PML5);

	for (u32 i = 0; i < 512; i++) {
		if (!has_alias(i))
			continue;
		pml4[i] = pml4[0];
		pml5[i] = IMAGE_PML4 | 7;
	}
	for (u32 i = 0; i < PAGES; i++)
		if (i >= USER_PAGES)
			*image_pte(ram, SITES + i * PAGE_SIZE) &= ~PTE_U;
	*image_pte(ram, KERNEL) &= ~PTE_U;
}

static void put_code(struct world *w)
{
	u8 *ram = w->m->ram;

	memcpy(ram + KERNEL_NEXT, next_start, (size_t)(next_end - next_start));
	memcpy(ram + USER_NEXT, next_start, (size_t)(next_end - next_start));
	image_gate(ram, VEC_GP, KERNEL + VECTOR_GP, 0);
	image_gate(ram, VEC_PF, KERNEL + VECTOR_PF, 0);
	image_gate(ram, 0x80, KERNEL + VECTOR_ENTER, 3);
	image_gate(ram, 0x81, KERNEL + VECTOR_COMPAT, 3);
	memcpy(ram + COMPAT, (const u8[]){ 0xcd, 0x81 }, 2);
	memset(ram + WILD, 0xc3, WILD_PAGES * PAGE_SIZE + PAGE_SIZE);
	for (u32 site = 0; site < NSITES; site++) {
		if (!site_exists(site))
			continue;
		for (u32 version = 0; version < 2; version++)
			put_site(ram + TEMPLATE(version) + site_address(site) - SITES, site,
				 version);
		w->number[site] = site_number(site, 0);
	}
	memcpy(ram + SITES, ram + TEMPLATE(0), PAGES * PAGE_SIZE);
}

static void start(struct world *w)
{
	struct cpu *cpu = w->m->cpu;

	if (!cpu_has(cpu, FEAT_PCID))
		w->flags &= ~FLAG_PCID;
	if (!cpu_has(cpu, FEAT_SMEP))
		w->flags &= ~FLAG_SMEP;
	if (w->flags & FLAG_LA57) { /* the page walk is ours: the host needs none of it */
		cpu->features[FEAT_LA57 / 64] |= BIT(FEAT_LA57 % 64);
		cpu->cr4_allowed |= CR4_LA57;
		cpu->cr4 |= CR4_LA57;
		cpu->cr3 = PML5;
	}
	if (w->flags & FLAG_SMEP)
		cpu->cr4 |= CR4_SMEP;
	if (w->flags & FLAG_PCID)
		cpu->cr4 |= CR4_PCIDE;
	if (w->flags & FLAG_COUNT)
		cpu->port.wanted |= COUNT_BRANCHES | COUNT_CYCLES;
	if (w->flags & FLAG_OBSERVE)
		cpu->port.wanted |= OBSERVED_IN_MEMORY | OBSERVED_IN_BRANCHES;
	cpu_state_changed(cpu);
}

static void check(const struct world *w, enum exit_reason reason)
{
	const u64 *log = (const u64 *)(w->m->ram + LOG);
	u64 n = (w->m->cpu->regs[R10] - LOG) / 8;

	for (u32 i = 0; i < w->nlog && i < n; i++)
		if (log[i] != w->log[i])
			fuzz_fail("transfer %u landed at %#llx instead of %#llx", i,
				  (unsigned long long)log[i], (unsigned long long)w->log[i]);
	if (reason != EXIT_IO || n != w->nlog)
		fuzz_fail("the program ended by exit %d at %#llx after %llu of %u transfers",
			  reason, (unsigned long long)w->m->cpu->rip, (unsigned long long)n,
			  w->nlog);
}

static void say_transfers(void)
{
	fprintf(stderr, "%llu transfers\n", (unsigned long long)transfers);
}

void fuzz_set_up(void)
{
	atexit(say_transfers);
}

void fuzz_one(struct fuzz_input *in)
{
	static struct machine machine;
	static struct world world;
	struct world *w = &world;

	memset(w, 0, sizeof(*w));
	w->m = &machine;
	w->flags = fuzz_u8(in);
	machine_create(w->m);
	machine_load(w->m, kernel_start, (size_t)(kernel_end - kernel_start));
	if (w->flags & FLAG_COLD)
		engine_set_hot_after(w->m->cpu, ENGINE_HOT_AFTER);
	w->op = (struct op *)(w->m->ram + OPS);
	put_tables(w);
	put_code(w);
	start(w);
	while (fuzz_left(in) && !is_full(w))
		steps[fuzz_u8(in) % ARRAY_SIZE(steps)](w, in);
	run_as(w, false);
	put_op(w, h_done, 0, 0, 0);
	check(w, machine_run(w->m, BUDGET));
	machine_destroy(w->m);
}
