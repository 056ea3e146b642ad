// SPDX-License-Identifier: MIT
/*
 * Debug registers (SDM 3B 17.2; MOV to DR in SDM 2B). DR7.GD and privilege are checked by the
 * caller. vCPU thread; general registers only.
 */
#include "cpu/control.h"

#include "cpu/event.h"
#include "cpu/mmu/mmu.h"

/* KVM: the bits that keep what is written; the others read as fixed. */
#define DR6_WRITABLE 0x0000e00full
#define DR7_WRITABLE 0xffff2bffull

/* DR4 and DR5 are names for DR6 and DR7 until CR4.DE takes them away. */
static enum guest_fault resolve(struct cpu *cpu, u32 *n)
{
	if (*n != 4 && *n != 5)
		return FAULT_NONE;
	if (cpu->cr4 & CR4_DE)
		return cpu_raise(cpu, VEC_UD);
	*n += 2;
	return FAULT_NONE;
}

enum guest_fault cpu_write_dr(struct cpu *cpu, u32 n, u64 value)
{
	enum guest_fault fault = resolve(cpu, &n);

	if (fault)
		return fault;
	if (n >= 6 && value >> 32)
		return cpu_raise_error(cpu, VEC_GP, 0);
	if (n < 4)
		cpu->dr[n] = value;
	else if (n == 6)
		cpu->dr6 = (value & DR6_WRITABLE) | DR6_FIXED1;
	else
		cpu->dr7 = (value & DR7_WRITABLE) | DR7_FIXED1;
	cpu_watch_update(cpu);
	return FAULT_NONE;
}

enum guest_fault cpu_read_dr(struct cpu *cpu, u32 n, u64 *value)
{
	enum guest_fault fault = resolve(cpu, &n);

	if (fault)
		return fault;
	*value = n < 4 ? cpu->dr[n] : n == 6 ? cpu->dr6 : cpu->dr7;
	return FAULT_NONE;
}
