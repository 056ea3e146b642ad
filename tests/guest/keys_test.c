// SPDX-License-Identifier: MIT
/*
 * Protection keys in translated code (SDM 3A 4.6.2): rights that a write of PKRU takes away are
 * gone at the next instruction, whatever the soft TLB and a block's shared checks had; rights that
 * it gives are there. The processor has them whatever the host's has.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define PAGE 0x150000 /* with key 5 */
#define KEY  5

/* EBX: PKRU while the page is accessed. RSI: the page. R8 counts loads, R9 stores that
 * were done. */
#define ACCESSES                                      \
	"	xor ecx, ecx\n"                             \
	"	xor edx, edx\n"                             \
	"	mov rax, [rsi]\n" /* fills the TLB */ \
	"	mov [rsi], rax\n"                           \
	"	mov eax, ebx\n"                             \
	"	wrpkru\n"                                   \
	"	mov rax, [rsi + 8]\n"                       \
	"	inc r8\n"                                   \
	"	mov [rsi + 8], rax\n"                       \
	"	inc r9\n"

GUEST_CODE(kernel, ".intel_syntax noprefix\n" ACCESSES "	hlt\n"
		   ".att_syntax\n");
/* XRSTOR of PKRU from the area at RDI takes the place of WRPKRU. */
GUEST_CODE(restores, ".intel_syntax noprefix\n"
		     "	mov rax, [rsi]\n"
		     "	mov [rsi], rax\n"
		     "	mov eax, 0x200\n"
		     "	xor edx, edx\n"
		     "	xrstor [rdi]\n"
		     "	mov rax, [rsi + 8]\n"
		     "	inc r8\n"
		     "	mov [rsi + 8], rax\n"
		     "	inc r9\n"
		     "	hlt\n"
		     ".att_syntax\n");

#define AREA 0x151000

static void start(struct machine *m, const u8 *code, const u8 *end, u32 pkru)
{
	struct cpu *cpu;

	machine_load(m, code, end - code);
	cpu = m->cpu;
	*image_pte(m->ram, PAGE) |= (u64)KEY << 59 | PTE_U;
	cpu->features[FEAT_PKU / 64] |= BIT(FEAT_PKU % 64);
	cpu->cr4_allowed |= CR4_PKE;
	cpu->xcr0_allowed |= XCR0_PKRU;
	cpu->xcr0 |= XCR0_PKRU;
	cpu->cr4 |= CR4_PKE;
	cpu->regs[RBX] = pkru;
	cpu->regs[RSI] = PAGE;
	cpu->regs[RDI] = AREA;
	*(u64 *)(m->ram + AREA + 512) = XCR0_PKRU; /* XSTATE_BV */
	*(u64 *)(m->ram + AREA + 2688) = pkru;
	cpu_state_changed(cpu);
}

/* Runs to HLT: the code's own, or that of the stub for #PF. */
static void assert_done(struct machine *m, u64 loads, u64 stores, u64 error)
{
	const struct cpu *cpu = m->cpu;
	u64 rsp;

	assert_int_equal(machine_run(m, 1000), EXIT_HLT);
	assert_int_equal(cpu->regs[R8], loads);
	assert_int_equal(cpu->regs[R9], stores);
	if (!error)
		return;
	rsp = cpu->regs[RSP];
	assert_int_equal(*(u64 *)(m->ram + rsp), error);
	assert_int_equal(cpu->cr2, PAGE + 8);
}

static const struct row {
	u32 pkru;
	u64 loads, stores, error;
} rows[] = {
	{ 0, 1, 1, 0 },
	{ (u32) ~(PKRU_AD(KEY) | PKRU_WD(KEY)), 1, 1, 0 },
	{ PKRU_WD(KEY), 1, 0, 0x23 },
	{ PKRU_AD(KEY), 0, 0, 0x21 },
	{ PKRU_AD(KEY) | PKRU_WD(KEY), 0, 0, 0x21 },
};

static void rights_end_with_wrpkru(void **state)
{
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		start(*state, kernel_start, kernel_end, rows[i].pkru);
		assert_done(*state, rows[i].loads, rows[i].stores, rows[i].error);
	}
}

static void rights_end_with_xrstor(void **state)
{
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		start(*state, restores_start, restores_end, rows[i].pkru);
		assert_done(*state, rows[i].loads, rows[i].stores, rows[i].error);
	}
}

/* Enough rounds for the block to become hot; the last one is refused. */
GUEST_CODE(rounds, ".intel_syntax noprefix\n"
		   "1:\n" ACCESSES "	xor eax, eax\n"
		   "	wrpkru\n"
		   "	dec r10\n"
		   "	jnz 1b\n"
		   "	mov ebx, r11d\n"
		   "	mov r10d, 1\n"
		   "	jmp 1b\n"
		   ".att_syntax\n");

static void rights_come_and_go_in_hot_code(void **state)
{
	struct machine *m = *state;

	start(m, rounds_start, rounds_end, 0);
	m->cpu->regs[R10] = 100;
	m->cpu->regs[R11] = PKRU_WD(KEY);
	m->cpu->regs[R8] = m->cpu->regs[R9] = 0;
	assert_int_equal(machine_run(m, 100000), EXIT_HLT);
	assert_int_equal(m->cpu->regs[R8], 101);
	assert_int_equal(m->cpu->regs[R9], 100);
	assert_int_equal(m->cpu->cr2, PAGE + 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rights_end_with_wrpkru),
		cmocka_unit_test(rights_end_with_xrstor),
		cmocka_unit_test(rights_come_and_go_in_hot_code),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
