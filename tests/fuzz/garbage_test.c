// SPDX-License-Identifier: MIT
/*
 * Guests of random bytes on the bare engine: 10,000 of them, in 64-bit and compatibility mode, at
 * CPL 0 and 3, some with broken descriptor and page tables. Each must end in an exit that a
 * processor can come to, within its budget, and none may take the process down.
 */
#include <stdio.h>
#include <string.h>

#include "cpu/control.h"
#include "cpu/event.h"
#include "fuzz/garbage.h"
#include "fuzz/isolate.h"
#include "guest/machine.h"

#define CASES	  10000
#define SEED	  0x5eed0001
#define BUDGET	  2000 /* instructions of one life */
#define LIVES	  4    /* an exception ends a life: the next one starts elsewhere in the garbage */
#define MAX_EXITS 10000

static struct machine machine;

static void set_up(void)
{
	machine_create(&machine);
}

static void make_compatible(struct cpu *cpu)
{
	cpu->seg[CS].attr &= (u32)~SEG_L;
	cpu->seg[CS].attr |= SEG_DB;
}

static void make_user(struct cpu *cpu)
{
	for (u32 i = 0; i < NSEGS; i++) {
		cpu->seg[i].sel |= 3;
		cpu->seg[i].attr |= SEG_DPL;
	}
	cpu->cpl = 3;
}

static void break_tables(u8 *ram, struct rng *r)
{
	switch (rng_below(r, 6)) {
	case 1:
		rng_fill(r, ram + IMAGE_PT + 0x100 * 8, 0x100 * 8);
		break;
	case 2:
		rng_fill(r, ram + IMAGE_IDT, 16 * 256);
		break;
	case 3:
		rng_fill(r, ram + IMAGE_GDT, IMAGE_NGDT * 8);
		break;
	case 4:
		rng_fill(r, ram + IMAGE_TSS, 0x68);
		break;
	case 5:
		rng_fill(r, ram + IMAGE_PD + 8, 64);
		break;
	}
}

/* Somewhere in the garbage, with random registers. */
static void begin_life(struct machine *m, struct rng *r, bool user, bool compatible)
{
	struct cpu *cpu = m->cpu;

	machine_start(m);
	if (rng_one_in(r, 16))
		cpu->idtr.limit = (u16)rng_below(r, 300);
	for (u32 i = 0; i < 16; i++)
		cpu->regs[i] = garbage_register(r);
	if (!rng_one_in(r, 4))
		cpu->regs[RSP] = IMAGE_STACK - 64;
	cpu->rip = IMAGE_CODE + rng_below(r, GARBAGE_SIZE - 64);
	cpu->rflags = FL_FIX1 | (rng_next(r) & (FL_ARITH | FL_DF | FL_AC | FL_IOPL));
	if (rng_one_in(r, 16))
		cpu->rflags |= FL_TF;
	if (compatible)
		make_compatible(cpu);
	if (user)
		make_user(cpu);
	cpu_state_changed(cpu);
}

/* What a hypervisor would do about exits that machine_run() does not answer. True: go on. */
static bool serve(struct cpu *cpu, enum exit_reason reason)
{
	switch (reason) {
	case EXIT_RDPMC:
		cpu_raise_error(cpu, VEC_GP, 0);
		return true;
	case EXIT_HYPERCALL:
	case EXIT_MONITOR:
	case EXIT_MWAIT:
	case EXIT_CR8_WRITE:
		cpu_complete(cpu);
		return true;
	case EXIT_XSETBV:
		if (cpu_write_xcr(cpu, (u32)cpu->regs[RCX],
				  (u32)cpu->regs[RAX] | cpu->regs[RDX] << 32) == FAULT_NONE)
			cpu_complete(cpu);
		return true;
	default:
		return false;
	}
}

static bool is_right_end(enum exit_reason reason)
{
	return reason == EXIT_BUDGET || reason == EXIT_IO || reason == EXIT_HLT ||
	       reason == EXIT_TRIPLE_FAULT || reason == EXIT_UNEMULATED;
}

static bool live(struct machine *m, u32 number)
{
	u64 end = machine_retired(m) + BUDGET;
	enum exit_reason reason;
	u32 exits = 0;

	do {
		u64 left = end - machine_retired(m);

		if (left == 0)
			return true;
		reason = machine_run(m, left);
	} while (serve(m->cpu, reason) && ++exits < MAX_EXITS);

	if (exits == MAX_EXITS || !is_right_end(reason)) {
		fprintf(stderr, "case %u: exit %d at %#llx after %u exits\n", number, reason,
			(unsigned long long)m->cpu->rip, exits);
		return false;
	}
	if (machine_retired(m) > end) {
		fprintf(stderr, "case %u: more instructions than its budget\n", number);
		return false;
	}
	return true;
}

static bool run(u64 seed, u32 number)
{
	struct rng r = rng_for(seed, number);
	struct machine *m = &machine;
	u8 code[GARBAGE_SIZE];
	bool user = rng_one_in(&r, 3), compatible = rng_one_in(&r, 3);

	garbage_fill(&r, code);
	machine_load(m, code, sizeof(code));
	if (rng_one_in(&r, 3))
		break_tables(m->ram, &r);
	for (u32 i = 0; i < LIVES; i++) {
		begin_life(m, &r, user, compatible);
		if (!live(m, number))
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct isolate isolate = { .set_up = set_up, .run = run };

	return isolate_main(&isolate, argc, argv, SEED, CASES, "random guests");
}
