// SPDX-License-Identifier: MIT
/*
 * Random indirect transfers to good and to hostile addresses, while code is written, the cache is
 * flushed, and modes, address spaces and the pages that code lies on change. Each good target is a
 * pad that knows its number and compares it with the one that the dispatcher expects; each hostile
 * one must fault on the transfer (non-canonical) or at the target (not mapped). A landing anywhere
 * else ends the run. With the checking build (make CHECK=1) the engine also verifies every code
 * pointer that it follows.
 *
 * usage: transfers_test [--count N] [--seed N]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/control.h"
#include "cpu/mode.h"
#include "engine/engine.h"
#include "engine/priv.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define PADS		0x20000 /* pages of them */
#define PAD_PAGES	40
#define PADS_PAGE	24
#define NPADS		(PAD_PAGES * PADS_PAGE)
#define PAD_ROOM	(PAGE_SIZE / PADS_PAGE)
#define OTHER		0x180000 /* differs in the address of a page that pads may lie on instead */
#define OTHER_PAD	0x10000	 /* in their numbers there */
#define STORM_AT	0x60000	 /* 19 pages of RET */
#define STORM_SIZE	(19 * PAGE_SIZE)
#define TABLE		0x200000
#define NRECORDS	65536
#define PML5		0x9000
#define SLICE_MAX_INSNS 3000000

/* What a record's target must come to, besides the number of a pad. */
#define EXPECT_GP 0xffffffffu
#define EXPECT_PF 0xfffffffeu

enum kind {
	JMP_REG,
	JMP_MEM,
	CALL_REG,
	CALL_MEM,
	RET,
	IRET,
	FAR_RET,
	NTRANSFERS,
	TOUCH = NTRANSFERS, /* store to the pad, then jump to it */
	STORM,		    /* store to more pages of code than the engine keeps notes of */
	SWITCH,		    /* to the other privilege */
	NEW_SPACE,	    /* write CR3; only at CPL 0 */
	REMAP,		    /* the same, after the pad's page was exchanged */
};

struct record {
	u64 target;
	u32 expect;
	u32 kind;
};

/*
 * R8: the next record. R9, R10: end and start of the table. R11: transfers. R12: those left. R13:
 * the stack. EBX: what is expected.
 */
GUEST_CODE(dispatcher,
	   "next:\n"
	   "mov %r13, %rsp\n"
	   "mov (%r8), %rax\n"
	   "mov 8(%r8), %ebx\n"
	   "mov 12(%r8), %ecx\n"
	   "add $16, %r8\n"
	   "cmp %r9, %r8\n"
	   "cmovae %r10, %r8\n"
	   "inc %r11\n"
	   "dec %r12\n"
	   "jz done\n"
	   "lea ways(%rip), %rdx\n"
	   "movslq (%rdx, %rcx, 4), %rcx\n"
	   "add %rdx, %rcx\n"
	   "mov %rax, -256(%r13)\n"
	   "jmp *%rcx\n"
	   "way_jmp_reg: jmp *%rax\n"
	   "way_jmp_mem: jmp *-256(%r13)\n"
	   "way_call_reg: call *%rax\n"
	   "jmp wrong\n"
	   "way_call_mem: call *-256(%r13)\n"
	   "jmp wrong\n"
	   "way_ret: push %rax\n"
	   "ret\n"
	   "way_iret: mov %ss, %ecx\n"
	   "push %rcx\n"
	   "push %r13\n"
	   "pushf\n"
	   "mov %cs, %ecx\n"
	   "push %rcx\n"
	   "push %rax\n"
	   "iretq\n"
	   "way_far_ret: mov %cs, %ecx\n"
	   "push %rcx\n"
	   "push %rax\n"
	   "lretq\n"
	   "way_touch: movb (%rax), %dl\n"
	   "movb %dl, (%rax)\n"
	   "jmp *%rax\n"
	   "way_storm: lea 0xfff(%rax), %rdx\n"
	   "mov $18, %ebp\n"
	   "1: call *%rdx\n" /* a RET at the end of the first page, and on 17 more */
	   "add $0x1000, %rdx\n"
	   "dec %ebp\n"
	   "jnz 1b\n"
	   "lea 0xfff(%rax), %rdi\n"
	   "mov $0xc3, %eax\n"
	   "mov $0x11001, %ecx\n"
	   "rep stosb\n"
	   "jmp next\n"
	   "way_switch: int $0x80\n"
	   "jmp wrong\n"
	   "way_remap: mov %eax, %edx\n"
	   "shr $12, %edx\n"
	   "and $0x1ff, %edx\n"
	   "xorl $0x180000, 0x7000(, %rdx, 8)\n"
	   "way_new_space: mov %cr3, %rdx\n"
	   "mov %rdx, %cr3\n"
	   "jmp *%rax\n"
	   "wrong: mov $1, %al\n"
	   "out %al, $0xf4\n"
	   "done: mov $0, %al\n"
	   "out %al, $0xf4\n"
	   ".balign 4\n"
	   "ways: .long way_jmp_reg - ways, way_jmp_mem - ways, way_call_reg - ways\n"
	   ".long way_call_mem - ways, way_ret - ways, way_iret - ways, way_far_ret - ways\n"
	   ".long way_touch - ways, way_storm - ways, way_switch - ways, way_new_space - ways\n"
	   ".long way_remap - ways\n"
	   ".org dispatcher_start + 0x800\n" /* #GP */
	   "cmp $-1, %ebx\n"
	   "jne wrong\n"
	   "lea 8(%rsp), %rsp\n"
	   "jmp to_next\n"
	   ".org dispatcher_start + 0x840\n" /* #PF */
	   "cmp $-2, %ebx\n"
	   "jne wrong\n"
	   "lea 8(%rsp), %rsp\n"
	   "jmp to_next\n"
	   ".org dispatcher_start + 0x880\n" /* INT 0x80 */
	   "xorl $0x23, 8(%rsp)\n" /* IMAGE_CS, IMAGE_UCS */
	   "xorl $0x33, 32(%rsp)\n" /* IMAGE_DS, IMAGE_UDS */
	   "to_next: lea next(%rip), %rax\n"
	   "mov %rax, (%rsp)\n"
	   "iretq\n");

_Static_assert((IMAGE_CS ^ IMAGE_UCS) == 0x23 && (IMAGE_DS ^ IMAGE_UDS) == 0x33, "INT 0x80");

static u64 rng_state;

static u64 rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state * 0x2545f4914f6cdd1dull;
}

static u64 below(u64 n)
{
	return rng() % n;
}

static u64 pad_address(u32 pad)
{
	return PADS + (u64)pad / PADS_PAGE * PAGE_SIZE + (u64)pad % PADS_PAGE * PAD_ROOM +
	       pad * 7 % 64;
}

static u8 *put_offset(u8 *at, u64 next, u64 target)
{
	s32 offset = (s32)(target - next);

	memcpy(at, &offset, sizeof(offset));
	return at + sizeof(offset);
}

/* CMP EBX, number; JNE to put_wrong(); JMP to the dispatcher, which begins with `next`. */
static void put_pad(u8 *ram, u32 pad, bool other)
{
	u64 linear = pad_address(pad);
	u8 *at = ram + (other ? linear ^ OTHER : linear);
	u32 number = other ? pad + OTHER_PAD : pad;

	*at++ = 0x81;
	*at++ = 0xfb;
	memcpy(at, &number, sizeof(number));
	at += sizeof(number);
	*at++ = 0x0f;
	*at++ = 0x85;
	at = put_offset(at, linear + 12, IMAGE_CODE + 0x900);
	*at++ = 0xe9;
	put_offset(at, linear + 17, IMAGE_CODE);
}

/* MOV AL, 1; OUT. */
static void put_wrong(u8 *ram)
{
	static const u8 code[] = { 0xb0, 0x01, 0xe6, IMAGE_DONE_PORT };

	memcpy(ram + IMAGE_CODE + 0x900, code, sizeof(code));
}

/* All of memory is at these addresses, too. */
static u64 alias(bool la57)
{
	static const u64 aliases[] = { 0, 0xffffff8000000000ull, 0x8000000000ull,
				       0x0001000000000000ull, 0xff00000000000000ull };

	return aliases[below(la57 ? 5 : 3)];
}

static void map_aliases(struct machine *m, bool la57)
{
	u64 *pml4 = (u64 *)(m->ram + IMAGE_PML4), *pml5 = (u64 *)(m->ram + PML5);

	pml4[511] = pml4[1] = pml4[0];
	if (!la57)
		return;
	for (u32 i = 0; i < 512; i++)
		pml5[i] = i == 0 || i == 1 || i == 256 || i == 511 ? IMAGE_PML4 | 7 : 0;
	m->cpu->cr4_allowed |= CR4_LA57;
	m->cpu->cr4 |= CR4_LA57;
	m->cpu->cr3 = PML5;
}

static bool canonical(u64 address, bool la57)
{
	u32 unused = la57 ? 7 : 16;

	return (u64)((s64)(address << unused) >> unused) == address;
}

/* How the jump cache's tags were once made, which let such addresses match. */
static u64 old_key(u64 generation, u64 mode)
{
	u64 key = generation << 4 | mode;
	u32 spread = (u32)key * 0x9e3779b1u;

	return key << 48 | (spread >> 15 & (JUMP_SIZE - 1) << 1);
}

/* Changes bits that are not compared where an entry is looked up by some of them only. */
static struct record hostile(u64 good, bool la57)
{
	u64 target = good, generation = below(64);

	switch (below(4)) {
	case 0:
		target ^= (1 + below(0xffff)) << 48;
		break;
	case 2:
		target ^= old_key(generation, below(8)) ^ old_key(generation + below(16), below(8));
		break;
	case 1:
		target ^= BIT(47 + below(17));
		break;
	default: /* not mapped; the same entry of the jump cache */
		target = (good & MASK(29, 0)) + 0x400000000ull +
			 below(1u << 10) * JUMP_SPAN * JUMP_SIZE;
		break;
	}
	if (!canonical(target, la57))
		return (struct record){ target, EXPECT_GP, 0 };
	/* What else is mapped is an alias, which pads do not care about: go there rather than
	 * guess. */
	if (target >> 30 != 0x10)
		return (struct record){ good, 0, 0 };
	return (struct record){ target, EXPECT_PF, 0 };
}

/* What the table comes to as it is executed; in the end as in the beginning. */
struct course {
	bool user;
	bool other[PAD_PAGES]; /* which page the pads lie on */
};

static struct record transfer(const struct course *c, u32 pad, bool la57)
{
	return (struct record){ pad_address(pad) + alias(la57),
				c->other[pad / PADS_PAGE] ? pad + OTHER_PAD : pad,
				below(NTRANSFERS) };
}

static struct record remap(struct course *c, u32 pad, bool la57)
{
	struct record r;

	c->other[pad / PADS_PAGE] ^= true;
	r = transfer(c, pad, la57);
	r.kind = REMAP;
	return r;
}

static struct record any(struct course *c, bool la57)
{
	u32 pad = below(8) ? below(64) : below(NPADS);
	struct record r = transfer(c, pad, la57), h;
	u64 dice = below(20000);

	if (dice < 2)
		return (struct record){ STORM_AT + alias(la57), 0, STORM };
	if (dice < 40) {
		r.kind = TOUCH;
	} else if (dice < 80) {
		r.kind = SWITCH;
		c->user = !c->user;
	} else if (dice < 120 && !c->user) {
		r.kind = NEW_SPACE;
	} else if (dice < 160 && !c->user) {
		return remap(c, pad, la57);
	} else if (dice < 8000) {
		h = hostile(r.target, la57);
		if (h.expect)
			return (struct record){ h.target, h.expect, r.kind };
	}
	return r;
}

/* The table begins at CPL 0, with the first pages. */
static void fill_table(struct machine *m, bool la57)
{
	struct record *table = (struct record *)(m->ram + TABLE);
	struct course c = { 0 };
	u32 i;

	for (i = 0; i < NRECORDS - PAD_PAGES - 1; i++)
		table[i] = any(&c, la57);
	table[i++] = c.user ? (struct record){ 0, 0, SWITCH } : transfer(&c, 0, la57);
	for (u32 page = 0; page < PAD_PAGES; page++)
		table[i++] = c.other[page] ? remap(&c, page * PADS_PAGE, la57)
					   : transfer(&c, page * PADS_PAGE, la57);
}

static void load(struct machine *m, u64 count, bool la57)
{
	machine_load(m, dispatcher_start, dispatcher_end - dispatcher_start);
	put_wrong(m->ram);
	memset(m->ram + STORM_AT, 0xc3, STORM_SIZE);
	for (u32 pad = 0; pad < NPADS; pad++) {
		put_pad(m->ram, pad, false);
		put_pad(m->ram, pad, true);
	}
	image_gate(m->ram, VEC_GP, IMAGE_CODE + 0x800, 0);
	image_gate(m->ram, VEC_PF, IMAGE_CODE + 0x840, 0);
	image_gate(m->ram, 0x80, IMAGE_CODE + 0x880, 3);
	map_aliases(m, la57);
	fill_table(m, la57);
	m->cpu->rflags |= FL_IOPL;
	m->cpu->regs[R8] = m->cpu->regs[R10] = TABLE;
	m->cpu->regs[R9] = TABLE + NRECORDS * sizeof(struct record);
	m->cpu->regs[R12] = count;
	m->cpu->regs[R13] = IMAGE_STACK;
	cpu_state_changed(m->cpu);
}

/* In slices, each of which may count something else: code of many modes. */
static bool run(struct machine *m, u64 count)
{
	enum exit_reason reason = EXIT_BUDGET;

	while (reason == EXIT_BUDGET) {
		m->cpu->port.wanted = below(2) ? below(64) : 0;
		cpu_update_counting(m->cpu);
		reason = machine_run(m, 1 + below(SLICE_MAX_INSNS));
	}
	if (reason == EXIT_IO && !m->cpu->port.io.data[0] && m->cpu->regs[R11] == count)
		return true;
	printf("WRONG LANDING: exit %d, RIP %#llx, RAX %#llx, expected %#llx, after %llu transfers\n",
	       reason, (unsigned long long)m->cpu->rip, (unsigned long long)m->cpu->regs[RAX],
	       (unsigned long long)m->cpu->regs[RBX], (unsigned long long)m->cpu->regs[R11]);
	return false;
}

int main(int argc, char **argv)
{
	static struct machine m;
	u64 count = 1000000, seed = 1, done = 0;
	const u64 part = 5000000;

	for (int i = 1; i < argc; i += 2) {
		u64 number = i + 1 < argc ? strtoull(argv[i + 1], NULL, 0) : 0;

		if (!strcmp(argv[i], "--count") && number)
			count = number;
		else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			seed = number;
		else
			return fprintf(stderr, "usage: %s [--count N] [--seed N]\n", argv[0]), 2;
	}
	rng_state = seed * 0x9e3779b97f4a7c15ull | 1;
	machine_create(&m);
	for (u32 round = 0; done < count; round++) {
		u64 n = count - done < part ? count - done : part;

		if (count <= part) /* a short run has both widths of addresses, too */
			n = (count + 1) / 2 < count - done ? (count + 1) / 2 : count - done;
		load(&m, n, round % 2);
		if (!run(&m, n)) {
			printf("repeat: %s --count %llu --seed %llu\n", argv[0],
			       (unsigned long long)count, (unsigned long long)seed);
			return 1;
		}
		done += n;
	}
	printf("%llu transfers, %llu flushes, 0 wrong landings\n", (unsigned long long)done,
	       (unsigned long long)m.cpu->engine->flushes);
	machine_destroy(&m);
	return 0;
}
