// SPDX-License-Identifier: MIT
/*
 * Branches at the edge of the canonical addresses: a target beyond it is #GP on the branch itself
 * (SDM 2A CALL, JMP; 2B RET), with 48-bit and with 57-bit addresses. Code that runs over the edge
 * faults where it is next fetched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define ALL  1000000
#define PAGE 0x20000 /* what the last page before the edge is mapped to */
#define PDPT 0x21000
#define PD   0x22000
#define PT   0x23000
#define PML4 0x24000
#define PML5 0x25000

/* IMAGE_CODE jumps to RAX; #GP gives RIP in RBX, RSP in RDX. */
GUEST_CODE(enter, "mov $0x11111111, %ecx\n"
		  "jmp *%rax\n"
		  ".org enter_start + 0x800\n"
		  "mov 8(%rsp), %rbx\n"
		  "mov 32(%rsp), %rdx\n"
		  "out %al, $0xf4\n");

struct edge {
	const char *name;
	u8 at; /* of the code, before the edge */
	u8 len;
	u8 code[16];
	s8 faults; /* the same, of the instruction that faults; 0: at the edge */
};

static const struct edge edges[] = {
	{ "JMP rel8", 2, 2, { 0xeb, 0x10 }, 2 },
	{ "JMP rel32", 5, 5, { 0xe9, 0, 0x10, 0, 0 }, 5 },
	{ "JMP rel8 from before", 16, 2, { 0xeb, 0x7f }, 16 },
	{ "JE taken", 8, 8, { 0x39, 0xc0, 0x74, 0x10, 0x90, 0x90, 0x90, 0x90 }, 6 },
	{ "JNE not taken", 4, 4, { 0x39, 0xc0, 0x75, 0x10 }, 0 },
	{ "LOOP", 2, 2, { 0xe2, 0x10 }, 2 },
	{ "JRCXZ not taken", 2, 2, { 0xe3, 0x10 }, 0 },
	{ "CALL rel32", 5, 5, { 0xe8, 0, 0x10, 0, 0 }, 5 },
	{ "falls off", 2, 2, { 0x90, 0x90 }, 0 },
	/* CALL to 11 bytes before the edge, where a RET is: its return address is the edge. */
	{ "RET to a call's end",
	  11,
	  11,
	  { 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0xe8, 0xf5, 0xff, 0xff, 0xff },
	  11 },
};

static void map_edge(struct machine *m, bool la57)
{
	u64 *pml4 = (u64 *)(m->ram + IMAGE_PML4);

	((u64 *)(m->ram + PDPT))[511] = PD | 7;
	((u64 *)(m->ram + PD))[511] = PT | 7;
	((u64 *)(m->ram + PT))[511] = PAGE | 7;
	if (!la57) {
		pml4[255] = PDPT | 7;
		return;
	}
	((u64 *)(m->ram + PML5))[0] = IMAGE_PML4 | 7;
	((u64 *)(m->ram + PML5))[255] = PML4 | 7;
	((u64 *)(m->ram + PML4))[511] = PDPT | 7;
	m->cpu->cr4_allowed |= CR4_LA57;
	m->cpu->cr4 |= CR4_LA57;
	m->cpu->cr3 = PML5;
}

static void run_edge(struct machine *m, const struct edge *e, bool la57)
{
	u64 edge = la57 ? BIT(56) : BIT(47);
	u64 entry = e->code[0] == 0xc3 ? 5 : e->at; /* the CALL comes first */

	machine_load(m, enter_start, (size_t)(enter_end - enter_start));
	image_gate(m->ram, VEC_GP, IMAGE_CODE + 0x800, 0);
	map_edge(m, la57);
	memcpy(m->ram + PAGE + PAGE_SIZE - e->at, e->code, e->len);
	m->cpu->regs[RAX] = edge - entry;
	cpu_state_changed(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	if (m->cpu->regs[RBX] != edge - (u64)e->faults)
		print_error("%s, %u bits\n", e->name, la57 ? 57 : 48);
	assert_int_equal(m->cpu->regs[RBX], edge - (u64)e->faults);
	if (e->code[0] == 0xe2)
		assert_int_equal(m->cpu->regs[RCX], 0x11111111);
	if (e->code[0] == 0xc3)
		assert_int_equal(m->cpu->regs[RDX], IMAGE_STACK - 8);
}

static void a_branch_over_the_edge_faults_itself(void **state)
{
	for (u32 i = 0; i < ARRAY_SIZE(edges); i++) {
		run_edge(*state, &edges[i], false);
		run_edge(*state, &edges[i], true);
	}
}

/* Indirect calls and jumps beyond 48 bits: good with 57-bit addresses, and only then. */
GUEST_CODE(far_calls, "mov $100, %ecx\n"
		      "1: movabs $0x1000000010800, %rax\n"
		      "call *%rax\n"
		      "lea 2f(%rip), %rdx\n"
		      "push %rdx\n"
		      "add $0x10, %rax\n"
		      "jmp *%rax\n"
		      "2: dec %ecx\n"
		      "jnz 1b\n"
		      "out %al, $0xf4\n"
		      ".org far_calls_start + 0x800\n"
		      "inc %rbx\n"
		      "ret\n"
		      ".org far_calls_start + 0x810\n"
		      "inc %rbp\n"
		      "ret\n");

static void load_far_calls(struct machine *m)
{
	machine_load(m, far_calls_start, (size_t)(far_calls_end - far_calls_start));
	((u64 *)(m->ram + PML5))[0] = ((u64 *)(m->ram + PML5))[1] = IMAGE_PML4 | 7;
}

static void indirect_branches_know_57_bits(void **state)
{
	struct machine *m = *state;

	load_far_calls(m);
	m->cpu->cr4_allowed |= CR4_LA57;
	m->cpu->cr4 |= CR4_LA57;
	m->cpu->cr3 = PML5;
	cpu_state_changed(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	assert_int_equal(m->cpu->regs[RBX], 100);
	assert_int_equal(m->cpu->regs[RBP], 100);

	/* The same code where addresses have 48 bits: what was translated before no
	 * longer holds. */
	m->cpu->cr4 &= ~(u64)CR4_LA57;
	m->cpu->cr3 = IMAGE_PML4;
	m->cpu->rip = IMAGE_CODE;
	m->cpu->port.io.state = IO_IDLE;
	cpu_state_changed(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->cpu->rip, IMAGE_STUBS + VEC_GP * IMAGE_STUB_SIZE + 1);
	assert_int_equal(m->cpu->regs[RBX], 100);
}

/* RIP as a hypervisor may set it: a fetch that faults, whatever was executed at similar
 * addresses. */
static void no_entry_matches_a_bad_rip_from_outside(void **state)
{
	struct machine *m = *state;

	machine_load(m, enter_start, (size_t)(enter_end - enter_start));
	image_gate(m->ram, VEC_GP, IMAGE_CODE + 0x800, 0);
	for (u32 bit = 47; bit < 64; bit++) {
		u64 bad = IMAGE_CODE ^ BIT(bit);

		machine_start(m);
		m->cpu->regs[RAX] = bad;
		assert_int_equal(machine_run(m, ALL), EXIT_IO);
		machine_start(m);
		m->cpu->rip = bad;
		cpu_state_changed(m->cpu);
		assert_int_equal(machine_run(m, ALL), EXIT_IO);
		assert_int_equal(m->cpu->regs[RBX], bad);
	}
}

/* Bases of tables, an address to invalidate, and the base of GS: RAX. */
GUEST_CODE(bases, "movw $0x7fff, -16(%rsp)\n"
		  "mov %rax, -14(%rsp)\n"
		  "lgdt -16(%rsp)\n"
		  "inc %ebx\n"
		  "lidt -16(%rsp)\n"
		  "inc %ebx\n"
		  "movq $0, -16(%rsp)\n"
		  "mov %rax, -8(%rsp)\n"
		  "xor %ecx, %ecx\n"
		  "invpcid -16(%rsp), %rcx\n"
		  "inc %ebx\n"
		  "wrgsbase %rax\n"
		  "inc %ebx\n"
		  "out %al, $0xf4\n");

static u64 bases_loaded(struct machine *m, u64 base, bool la57)
{
	u64 features[] = { FEAT_FSGSBASE, FEAT_INVPCID, la57 ? FEAT_LA57 : FEAT_INVPCID };

	machine_load(m, bases_start, (size_t)(bases_end - bases_start));
	for (u32 i = 0; i < ARRAY_SIZE(features); i++)
		m->cpu->features[features[i] / 64] |= BIT(features[i] % 64);
	m->cpu->cr4 |= CR4_FSGSBASE;
	m->cpu->regs[RAX] = base;
	cpu_state_changed(m->cpu);
	machine_run(m, ALL);
	return m->cpu->regs[RBX];
}

/* KVM: what registers may hold follows CPUID, not CR4.LA57, which decides what may be accessed; but
 * WRGSBASE, which comes last, follows CR4.LA57 (measured). */
static void registers_hold_57_bits_where_they_exist(void **state)
{
	assert_int_equal(bases_loaded(*state, 0x7f0000000000, false), 4);
	assert_int_equal(bases_loaded(*state, 0xff000000000000, false), 0);
	assert_int_equal(bases_loaded(*state, 0xff000000000000, true), 3);
	assert_int_equal(bases_loaded(*state, BIT(56), true), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_branch_over_the_edge_faults_itself),
		cmocka_unit_test(indirect_branches_know_57_bits),
		cmocka_unit_test(no_entry_matches_a_bad_rip_from_outside),
		cmocka_unit_test(registers_hold_57_bits_where_they_exist),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
