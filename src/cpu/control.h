/* SPDX-License-Identifier: MIT */
/*
 * Control, debug (debugreg.c) and extended control registers, EFER and PKRU: writes with the
 * architectural checks and their side effects on the TLB and the mode (SDM 3A 2.5, 17.2; 3A
 * 4.10.4). Not CR2, which has neither, nor CR8, which is the local APIC's. vCPU thread; general
 * registers only.
 */
#ifndef CPU_CONTROL_H
#define CPU_CONTROL_H

#include "cpu/cpu.h"

/* As MOV to CR would: raises #GP(0), or loads (PDPTEs included). */
enum guest_fault cpu_write_cr0(struct cpu *cpu, u64 value);
enum guest_fault cpu_write_cr3(struct cpu *cpu, u64 value);
enum guest_fault cpu_write_cr4(struct cpu *cpu, u64 value);
/* 4, 5 alias 6, 7 unless CR4.DE. */
enum guest_fault cpu_write_dr(struct cpu *cpu, u32 n, u64 value);
enum guest_fault cpu_read_dr(struct cpu *cpu, u32 n, u64 *value);
/* The DR7 in force: a debugger may have put its own in the guest's place. */
static inline u64 cpu_dr7(const struct cpu *cpu)
{
	return cpu->port.debug.hardware_bp ? cpu->port.debug.dr7 : cpu->dr7;
}

bool cpu_xcr0_valid(const struct cpu *cpu, u64 value);
enum guest_fault cpu_write_xcr(struct cpu *cpu, u32 n, u64 value);
void cpu_write_pkru(struct cpu *cpu, u32 value);
enum guest_fault cpu_write_efer(struct cpu *cpu, u64 value);

/* For the state ioctls: is this combination one that a processor can be in? */
bool cpu_cr_valid(const struct cpu *cpu, u64 cr0, u64 cr3, u64 cr4, u64 efer);
/* After registers were set from outside: mode, TLB, jump cache, watchpoints are made consistent. */
void cpu_state_changed(struct cpu *cpu);

#endif
