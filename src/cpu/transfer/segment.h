/* SPDX-License-Identifier: MIT */
/*
 * Segment registers (segment.c) and control transfers between code segments (far.c, iret.c,
 * syscall.c; SDM 3A 3.4, 5; APM2 4), for the instructions that ask for them. Cold code; vCPU
 * thread; general registers only. Operations leave the state untouched unless they return
 * FAULT_NONE, but for accessed bits of descriptors, for IRET, which ends the blocking of NMIs, and
 * for transfers that switch tasks: cpu/transfer/task_switch.h.
 */
#ifndef CPU_TRANSFER_SEGMENT_H
#define CPU_TRANSFER_SEGMENT_H

#include "cpu/cpu.h"

enum guest_fault cpu_load_seg(struct cpu *cpu, enum seg seg, u16 selector); /* not CS */
enum guest_fault cpu_load_ldtr(struct cpu *cpu, u16 selector);
enum guest_fault cpu_load_tr(struct cpu *cpu, u16 selector);

/* LAR, LSL, VERR, VERW. Sets *ok (ZF); only memory faults are raised. */
enum guest_fault cpu_lar(struct cpu *cpu, u16 selector, bool *ok, u32 *rights);
enum guest_fault cpu_lsl(struct cpu *cpu, u16 selector, bool *ok, u32 *limit);
enum guest_fault cpu_verify(struct cpu *cpu, u16 selector, bool write, bool *ok);

/* Each sets RIP on success. next_rip: address of the next instruction; opsize: 2, 4, 8. */
enum guest_fault cpu_far_jump(struct cpu *cpu, u16 selector, u64 offset, u8 opsize, u64 next_rip);
enum guest_fault cpu_far_call(struct cpu *cpu, u16 selector, u64 offset, u8 opsize, u64 next_rip);
enum guest_fault cpu_far_return(struct cpu *cpu, u8 opsize, u16 pop);
enum guest_fault cpu_iret(struct cpu *cpu, u8 opsize, u64 next_rip);
enum guest_fault cpu_syscall(struct cpu *cpu, u64 next_rip);
enum guest_fault cpu_sysret(struct cpu *cpu, u8 opsize);
enum guest_fault cpu_sysenter(struct cpu *cpu);
enum guest_fault cpu_sysexit(struct cpu *cpu, u8 opsize);

#endif
