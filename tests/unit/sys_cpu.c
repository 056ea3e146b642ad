// SPDX-License-Identifier: MIT
/*
 * The processor of sys_cpu.h.
 */
#include "unit/sys_cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/fpu.h"
#include "cpu/mode.h"
#include "engine/decode.h"

#define FULL (PTE_P | PTE_W | PTE_U)

static struct paged_cpu machine;
struct cpu *cpu;

u8 *ram(u32 page, u32 offset)
{
	return machine.ram + GPA + page * PAGE_SIZE + offset;
}

int sys_cpu_setup(void **state)
{
	(void)state;
	paged_cpu_init(&machine, FORMAT_4LEVEL);
	for (u32 i = 0; i < NPAGES; i++)
		paged_cpu_map(&machine, AT(i, 0), GPA + i * PAGE_SIZE, 1, FULL, FULL);
	paged_cpu_map(&machine, AT(DEVICE, 0), MMIO_BASE, 1, FULL, FULL);
	cpu = machine.cpu;
	cpu->rip = RIP;
	cpu->xcr0 = XCR0_X87 | XCR0_SSE | XCR0_AVX;
	cpu->cr4 |= CR4_OSXSAVE | CR4_OSFXSR;
	cpu_update_mode(cpu);
	return 0;
}

int sys_cpu_teardown(void **state)
{
	(void)state;
	paged_cpu_free(&machine);
	return 0;
}

enum sys_result execute(const u8 *bytes, u32 n)
{
	ZydisDecodedOperand zops[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction zi;
	enum sys_result result;
	struct insn insn;

	cpu->port.event.kind = EVENT_NONE;
	assert_int_equal(decode_insn(bytes, n, cpu->rip, cpu_priv(cpu)->mode & DECODE_STATE, &insn,
				     &zi, zops),
			 DECODE_OK);
	assert_int_equal(insn.len, n);
	result = sys_execute(cpu, &insn);
	fpu_save(cpu); /* restoring instructions leave the guest's state live */
	return result;
}

void assert_raised(enum sys_result result, enum vector vector)
{
	assert_int_equal(result, SYS_FAULT);
	assert_int_equal(cpu->port.event.kind, EVENT_EXCEPTION);
	assert_int_equal(cpu->port.event.vector, vector);
	assert_int_equal(cpu->rip, RIP);
}

void set_string(u64 rsi, u64 rdi, u64 rcx)
{
	cpu->regs[RSI] = rsi;
	cpu->regs[RDI] = rdi;
	cpu->regs[RCX] = rcx;
}

void set_ymm(u32 reg, u64 low, u64 high)
{
	*(u64 *)(cpu->xsave + XSAVE_XSTATE_BV) |= XCR0_SSE | XCR0_AVX;
	*(u64 *)(cpu->xsave + XSAVE_XMM0 + 16 * reg) = low;
	*(u64 *)(cpu->xsave + XSAVE_YMM0_HIGH + 16 * reg) = high;
}

void to_user_mode(void)
{
	cpu->cpl = 3;
	cpu_update_mode(cpu);
}
