/* SPDX-License-Identifier: MIT */
/*
 * Accesses of MSRs and counters that need not leave the processor, for run.c: of instructions that
 * sys_execute() has checked. Translated code has a shorter way, passthrough_insn() (engine/priv.h).
 * vCPU thread; general registers only.
 */
#ifndef ENGINE_SYS_PASSTHROUGH_H
#define ENGINE_SYS_PASSTHROUGH_H

#include "engine/priv.h"

enum pass_result {
	PASS_EXIT,  /* intercepted: cpu->port.exit stands */
	PASS_DONE,  /* done and retired */
	PASS_FAULT, /* #GP is raised */
};

/* After an instruction that ended in EXIT_RDMSR, EXIT_WRMSR or EXIT_RDPMC and has not been
 * counted. */
enum pass_result passthrough_access(struct cpu *cpu);

#endif
