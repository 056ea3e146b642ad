// SPDX-License-Identifier: MIT
/*
 * Linear addresses have 32 bits outside 64-bit code (SDM 3A 3.3.7, 5.3; APM2 4.5): an access that
 * begins below 4 GB through a segment with a base goes on at 0. Each row is executed twice, with
 * its operand in the middle of a page and with its operand across 4 GB: both must end the same.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "cpu/mmu/mmu.h"
#include "engine/engine.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define ALL    (~0ull >> 1)
#define FULL   (PTE_P | PTE_W | PTE_U)
#define WINDOW 1024u /* bytes before and after the place that an operand crosses */

/* Guest physical pages: tables, and what is mapped at the last page below 4 GB and at 0. */
#define TABLE_PDS 0x1c0000
#define TABLE_PTS 0x1c1000
#define TABLE_PD  0x1c2000
#define TABLE_PT  0x1c3000
#define HIGH	  0x180000
#define LOW_NEXT  (HIGH + PAGE_SIZE)
#define LOW_APART 0x188000
#define PLAIN	  0x190800 /* the same place where nothing is crossed */

#define OFFSET 0x8000u /* of the crossing in every segment */

enum kind { DATA, STACK, CODE };

/* clang-format off */
static const struct row {
	const char *name;
	enum kind kind;
	u16 before; /* bytes of the operand, or of the instruction, that lie before the crossing */
	u8 code[16], size;
} rows[] = {
	{ "mov eax, [ecx]", DATA, 3, { 0x8b, 0x01 }, 2 },
	{ "mov [ecx], eax", DATA, 1, { 0x89, 0x01 }, 2 },
	{ "mov [ecx], ax", DATA, 1, { 0x66, 0x89, 0x01 }, 3 },
	{ "add [ecx], eax", DATA, 2, { 0x01, 0x01 }, 2 },
	{ "lock add [ecx], eax", DATA, 2, { 0xf0, 0x01, 0x01 }, 3 },
	{ "xchg [ecx], eax", DATA, 2, { 0x87, 0x01 }, 2 },
	{ "lock bts [ecx], 5", DATA, 2, { 0xf0, 0x0f, 0xba, 0x29, 5 }, 5 },
	{ "lock cmpxchg [ecx], ebx", DATA, 2, { 0xf0, 0x0f, 0xb1, 0x19 }, 4 },
	{ "lock cmpxchg8b [ecx]", DATA, 5, { 0xf0, 0x0f, 0xc7, 0x09 }, 4 },
	{ "movups xmm0, [ecx]; movups [ecx], xmm0", DATA, 9, { 0x0f, 0x10, 0x01, 0x0f, 0x11, 0x01 }, 6 },
	{ "fld tbyte [ecx]; fstp tbyte [ecx]", DATA, 7, { 0xdb, 0x29, 0xdb, 0x39 }, 4 },
	{ "fbstp [ecx]", DATA, 9, { 0xd9, 0xe8, 0xdf, 0x31 }, 4 },
	{ "fnsave [ecx]", DATA, 50, { 0x9b, 0xdd, 0x31 }, 3 },
	{ "fxsave [ecx]; fxrstor [ecx]", DATA, 256, { 0x0f, 0xae, 0x01, 0x0f, 0xae, 0x09 }, 6 },
	{ "xsave [ecx]; xrstor [ecx]", DATA, 256, { 0x0f, 0xae, 0x21, 0x0f, 0xae, 0x29 }, 6 },
	{ "bound ebx, [ecx]", DATA, 4, { 0x31, 0xdb, 0x62, 0x19 }, 4 },
	{ "maskmovdqu xmm0, xmm0", DATA, 9, { 0x89, 0xcf, 0x0f, 0x10, 0x01, 0x66, 0x0f, 0xf7, 0xc0 }, 9 },
	{ "lodsd", DATA, 1, { 0xad }, 1 },
	{ "stosd", DATA, 1, { 0xab }, 1 },
	{ "rep stosd", DATA, 13, { 0xb9, 9, 0, 0, 0, 0xf3, 0xab }, 7 },
	{ "rep movsb", DATA, 13, { 0xb9, 29, 0, 0, 0, 0x83, 0xc7, 0x40, 0xf3, 0xa4 }, 10 },
	{ "std; rep movsw", DATA, 13, { 0x83, 0xc7, 0x10, 0xb9, 20, 0, 0, 0, 0xfd, 0xf3, 0x66, 0xa5 }, 12 },
	{ "repe cmpsb", DATA, 13, { 0xb9, 29, 0, 0, 0, 0xf3, 0xa6 }, 7 },
	{ "push eax", STACK, 3, { 0x50 }, 1 },
	{ "pop eax", STACK, 3, { 0x58 }, 1 },
	{ "push [esp]; pop [esp + 8]", STACK, 3, { 0xff, 0x34, 0x24, 0x8f, 0x44, 0x24, 0x08 }, 7 },
	{ "pusha; popa", STACK, 14, { 0x60, 0x61 }, 2 },
	{ "pushf; popf", STACK, 2, { 0x9c, 0x9d }, 2 },
	{ "call", STACK, 2, { 0xe8, 0, 0, 0, 0 }, 5 },
	{ "enter 16, 0; leave", STACK, 2, { 0xc8, 16, 0, 0, 0xc9 }, 5 },
	{ "mov eax, imm", CODE, 2, { 0xb8, 1, 2, 3, 4 }, 5 },
	{ "mov eax, imm; mov ebx, imm", CODE, 5, { 0xb8, 1, 2, 3, 4, 0xbb, 5, 6, 7, 8 }, 10 },
	{ "jmp $ + 2", CODE, 1, { 0xeb, 0 }, 2 },
	{ "1: mov eax, imm; flush the TLB; shr edx, 1; jnz 1b", CODE, 2,
	  { 0xb8, 1, 2, 3, 4, 0x0f, 0x20, 0xd8, 0x0f, 0x22, 0xd8, 0xd1, 0xea, 0x75, 0xf1 }, 15 },
};
/* clang-format on */

enum paging { COMPATIBILITY, PROTECTED };

static u64 *entry64(struct machine *m, u64 table, u32 i)
{
	return (u64 *)(m->ram + table) + i;
}

static u32 *entry32(struct machine *m, u64 table, u32 i)
{
	return (u32 *)(m->ram + table) + i;
}

static void map_long(struct machine *m, u64 low)
{
	*entry64(m, IMAGE_PDPT, 3) = TABLE_PDS | FULL;
	*entry64(m, TABLE_PDS, 511) = TABLE_PTS | FULL;
	*entry64(m, TABLE_PTS, 511) = HIGH | FULL;
	*image_pte(m->ram, 0) = low | FULL;
}

/* Two levels: the first 4 MB as they are, but for page 0, and the last page. */
static void map_protected(struct machine *m, u64 low)
{
	*entry32(m, TABLE_PD, 0) = TABLE_PT | FULL;
	*entry32(m, TABLE_PD, 1023) = TABLE_PTS | FULL;
	*entry32(m, TABLE_PTS, 1023) = HIGH | FULL;
	for (u32 i = 0; i < 1024; i++)
		*entry32(m, TABLE_PT, i) = i << PAGE_SHIFT | FULL;
	*entry32(m, TABLE_PT, 0) = low | FULL;
}

static void set_mode(struct cpu *cpu, enum paging paging)
{
	cpu->seg[CS].attr = (cpu->seg[CS].attr & ~(u32)SEG_L) | SEG_DB;
	if (paging == COMPATIBILITY)
		return;
	cpu->efer &= ~(u64)(EFER_LMA | EFER_LME);
	cpu->cr4 &= ~(u64)CR4_PAE;
	cpu->cr3 = TABLE_PD;
}

/* Where the crossing is, in linear addresses, and the bytes on its two sides. */
struct place {
	u32 linear;
	u8 *before, *after;
};

static void set_segments(struct cpu *cpu, enum kind kind, u32 base)
{
	for (u32 i = 0; i < NSEGS; i++)
		if ((i == CS) == (kind == CODE))
			cpu->seg[i].base = base;
}

static void set_registers(struct cpu *cpu, const struct row *row)
{
	u64 at = OFFSET - row->before;
	bool pops = row->kind == STACK && row->code[0] != 0x58 && row->code[0] != 0xff;

	for (u32 i = 0; i < 8; i++)
		cpu->regs[i] = 0x01010101 * (i + 1);
	cpu->regs[RCX] = cpu->regs[RSI] = cpu->regs[RDI] = at;
	if (row->kind == STACK)
		cpu->regs[RSP] = at + (pops ? 4 : 0);
	cpu->rip = row->kind == CODE ? at : IMAGE_CODE;
}

static void put_bytes(const struct place *p, const struct row *row)
{
	u8 code[sizeof(row->code) + 1];

	for (u32 i = 0; i < WINDOW; i++) {
		p->before[-1 - (s32)i] = 3 * i + 1;
		p->after[i] = 5 * i + 2;
	}
	/* MXCSR, the lower bound, a selector: all 0 will do. */
	memset(p->before - row->before, 0, 4);
	memset(p->after, 0, 512);
	memcpy(code, row->code, row->size);
	code[row->size] = 0xf4; /* HLT */
	for (u32 i = 0; row->kind == CODE && i < row->size + 1u; i++)
		*(i < row->before ? p->before - row->before + i : p->after + i - row->before) =
			code[i];
}

struct outcome {
	enum exit_reason reason;
	u64 regs[16], rip, rflags;
	u8 bytes[2 * WINDOW];
};

static void run_row(struct machine *m, const struct row *row, enum paging paging, u64 low,
		    const struct place *p, struct outcome *out)
{
	u8 code[sizeof(row->code) + 1];

	memcpy(code, row->code, row->size);
	code[row->size] = 0xf4;
	machine_load(m, code, row->size + 1);
	paging == COMPATIBILITY ? map_long(m, low) : map_protected(m, low);
	put_bytes(p, row);
	set_mode(m->cpu, paging);
	set_segments(m->cpu, row->kind, p->linear - OFFSET);
	set_registers(m->cpu, row);
	cpu_state_changed(m->cpu);
	out->reason = machine_run(m, ALL);
	memcpy(out->regs, m->cpu->regs, sizeof(out->regs));
	out->rip = m->cpu->rip;
	out->rflags = m->cpu->rflags;
	memcpy(out->bytes, p->before - WINDOW, WINDOW);
	memcpy(out->bytes + WINDOW, p->after, WINDOW);
}

/* At its own HLT, and not at that of an exception. */
static bool ends_well(const struct row *row, const struct outcome *out)
{
	u64 start = row->kind == CODE ? OFFSET - row->before : IMAGE_CODE;

	return out->reason == EXIT_HLT && out->rip == start + row->size + 1;
}

static void rows_end_the_same(struct machine *m, enum paging paging, u64 low)
{
	const struct place plain = { PLAIN, m->ram + PLAIN, m->ram + PLAIN };
	const struct place wrapped = { 0, m->ram + HIGH + PAGE_SIZE, m->ram + low };
	static struct outcome expected, got;
	u32 failed = 0;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		run_row(m, &rows[i], paging, low, &plain, &expected);
		run_row(m, &rows[i], paging, low, &wrapped, &got);
		if (ends_well(&rows[i], &expected) && !memcmp(&expected, &got, sizeof(got)))
			continue;
		print_error("%s: exit %d at %#lx, want %d at %#lx\n", rows[i].name, got.reason,
			    got.rip, expected.reason, expected.rip);
		failed++;
	}
	assert_int_equal(failed, 0);
}

static void compatibility_mode_wraps(void **state)
{
	rows_end_the_same(*state, COMPATIBILITY, LOW_APART);
}

static void compatibility_mode_wraps_onto_a_neighbour_on_the_host(void **state)
{
	rows_end_the_same(*state, COMPATIBILITY, LOW_NEXT);
}

static void protected_mode_wraps(void **state)
{
	rows_end_the_same(*state, PROTECTED, LOW_APART);
}

/* With the timing model looking on, accesses go other ways. */
static void observed_accesses_wrap(void **state)
{
	struct machine *m = *state;

	m->cpu->port.wanted = RETIRE_BIT(RETIRE_L1D_MISSES);
	rows_end_the_same(m, COMPATIBILITY, LOW_APART);
	m->cpu->port.wanted = 0;
}

/* MOV [ECX], EAX with its last bytes at 0, where a breakpoint is. */
static void a_breakpoint_behind_the_wrap_is_met(void **state)
{
	static const struct row row = { "", DATA, 1, { 0x89, 0x01, 0x90 }, 3 };
	struct machine *m = *state;
	const struct place wrapped = { 0, m->ram + HIGH + PAGE_SIZE, m->ram + LOW_APART };

	machine_load(m, row.code, row.size);
	map_long(m, LOW_APART);
	put_bytes(&wrapped, &row);
	set_mode(m->cpu, COMPATIBILITY);
	set_segments(m->cpu, DATA, -OFFSET);
	set_registers(m->cpu, &row);
	m->cpu->seg[SS].base = 0;
	m->cpu->regs[RSP] = IMAGE_STACK;
	m->cpu->dr[0] = 2;
	m->cpu->dr7 = 1 | 1 << 16; /* a byte that is written */
	cpu_watch_update(m->cpu);
	cpu_state_changed(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal((m->cpu->rip - IMAGE_STUBS) / IMAGE_STUB_SIZE, VEC_DB);
	assert_int_equal(m->cpu->dr6 & 0xf, 1);
	m->cpu->dr7 = 0;
	cpu_watch_update(m->cpu);
}

/* CALL beyond the limit of its segment: it is the target that is wrong, not the stack. */
static void a_call_beyond_its_segment_tries_the_wrapped_stack(void **state)
{
	static const struct row row = { "", STACK, 2, { 0xe8, 0, 0, 0, 0x10 }, 5 };
	struct machine *m = *state;
	const struct place wrapped = { 0, m->ram + HIGH + PAGE_SIZE, m->ram + LOW_APART };

	machine_load(m, row.code, row.size);
	map_long(m, LOW_APART);
	put_bytes(&wrapped, &row);
	set_mode(m->cpu, COMPATIBILITY);
	for (u32 i = 0; i < NSEGS; i++)
		m->cpu->seg[i].attr |= SEG_DPL;
	m->cpu->cpl = 3;
	m->cpu->seg[CS].limit = 0xffffff;
	set_segments(m->cpu, STACK, -OFFSET);
	set_registers(m->cpu, &row);
	cpu_state_changed(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal((m->cpu->rip - IMAGE_STUBS) / IMAGE_STUB_SIZE, VEC_GP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(compatibility_mode_wraps),
		cmocka_unit_test(compatibility_mode_wraps_onto_a_neighbour_on_the_host),
		cmocka_unit_test(protected_mode_wraps),
		cmocka_unit_test(observed_accesses_wrap),
		cmocka_unit_test(a_breakpoint_behind_the_wrap_is_met),
		cmocka_unit_test(a_call_beyond_its_segment_tries_the_wrapped_stack),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
