/* SPDX-License-Identifier: MIT */
/*
 * Instructions executed by C code on struct cpu: system instructions, far transfers, strings, I/O,
 * XSAVE and whatever the translator does not rewrite. All registers are in struct cpu; flags in
 * cpu->rflags. vCPU thread; general registers only, unless fpu_save() is called first.
 */
#ifndef ENGINE_SYS_SYS_H
#define ENGINE_SYS_SYS_H

#include "cpu/cpu.h"
#include "engine/insn.h"

enum sys_result {
	SYS_NEXT, /* retired; the engine moves RIP to the next instruction */
	SYS_JUMP, /* retired; RIP is set */
	/* Not finished (REP after some iterations): execute again, nothing retired. A trap between
	   iterations is in cpu->port.event. */
	SYS_AGAIN,
	SYS_ALONE, /* execute again, while all other processors are stopped */
	SYS_FAULT, /* cpu->port.event holds the exception; RIP still points at the instruction */
	/* port.exit.reason is set; not retired; the engine fills its insn_len, insn_bytes. */
	SYS_EXIT,
	SYS_UNKNOWN, /* no such instruction here: the engine raises #UD */
};

enum sys_result sys_execute(struct cpu *cpu, const struct insn *insn);

/* A REP MOVS or REP STOS that needs none of sys_execute()'s rules (string_fast.c). False: it does,
 * or is no such instruction, and nothing has happened. Does not touch cpu->rflags. */
bool sys_quick(struct cpu *cpu, const struct insn *insn);

#endif
