// SPDX-License-Identifier: MIT
/*
 * Any bytes as guest code: decoded, translated and run in 64-bit, 32-bit and 16-bit code, at CPL 0
 * and 3, with and without counting. Each life must end in an exit that a processor can come to,
 * within its budget; nothing may be touched but guest memory, which has no neighbours.
 *
 * Input: 4 bytes (enum flag; what is counted; what the tables are; RFLAGS), 8 bytes of registers,
 * then the code.
 */
#include "base/must.h"
#include "cpu/control.h"
#include "cpu/event.h"
#include "cpu/mode.h"
#include "engine/engine.h"
#include "fuzz/fuzz.h"
#include "guest/machine.h"

enum flag {
	FLAG_MODE = 3, /* 64-bit, 32-bit, 16-bit protected, real */
	FLAG_USER = 4,
	FLAG_STEP = 8,
	FLAG_SMAP = 16,
	FLAG_TS = 32,
	FLAG_COLD = 64,
	FLAG_AMD = 128,
};

#define BUDGET	   3000 /* instructions of one input */
#define MAX_EXITS  100	/* that the machine answers in a row */
#define MAX_SERVED 50	/* those that it does not know */
#define MAX_CODE   4096

static const char *const models[] = { "icelake", "milan" };
static struct machine machines[ARRAY_SIZE(models)];

void fuzz_set_up(void)
{
	for (u32 i = 0; i < ARRAY_SIZE(models); i++) {
		machine_create_model(&machines[i], models[i]);
		machines[i].exit_limit = MAX_EXITS; /* a REP may have many */
	}
}

static void make_code32(struct cpu *cpu, bool wide)
{
	cpu->seg[CS].attr &= (u32)~SEG_L;
	cpu->seg[CS].attr |= wide ? SEG_DB : 0;
	if (!wide)
		cpu->seg[SS].attr &= (u32)~SEG_DB;
}

/* Without paging: the code runs at the same addresses, by its segments. */
static void make_real(struct cpu *cpu)
{
	cpu->cr0 &= ~(u64)(CR0_PE | CR0_PG);
	cpu->efer &= ~(u64)(EFER_LMA | EFER_LME);
	cpu->cr4 = 0;
	cpu->idtr = (struct descriptor_table){ 0, 0x3ff };
	for (u32 i = 0; i < NSEGS; i++) {
		cpu->seg[i].limit = 0xffff;
		cpu->seg[i].attr &= (u32) ~(SEG_L | SEG_DB | SEG_G);
		cpu->seg[i].base = (u64)cpu->seg[i].sel << 4;
	}
	cpu->seg[CS].sel = IMAGE_CODE >> 4;
	cpu->seg[CS].base = IMAGE_CODE;
	cpu->rip = 0;
}

static void make_user(struct cpu *cpu)
{
	for (u32 i = 0; i < NSEGS; i++) {
		cpu->seg[i].sel |= 3;
		cpu->seg[i].attr |= SEG_DPL;
	}
	cpu->cpl = 3;
}

static void set_mode(struct cpu *cpu, u8 flags)
{
	switch (flags & FLAG_MODE) {
	case 0:
		break;
	case 1:
		make_code32(cpu, true);
		break;
	case 2:
		make_code32(cpu, false);
		break;
	case 3:
		make_real(cpu);
		return;
	}
	if (flags & FLAG_USER)
		make_user(cpu);
	if (flags & FLAG_SMAP && cpu_has(cpu, FEAT_SMAP) && cpu_has(cpu, FEAT_SMEP))
		cpu->cr4 |= CR4_SMAP | CR4_SMEP;
}

/* Addresses that mean something, by the bits of a byte. */
static u64 register_value(u8 byte)
{
	static const u64 bases[] = { IMAGE_DATA,  IMAGE_CODE, IMAGE_MMIO, IMAGE_GDT,
				     IMAGE_STACK, 0,	      ~0ull,	  0x7fffffffffff };

	return bases[byte >> 5] + (byte & 31) * 8;
}

static void set_registers(struct cpu *cpu, const u8 *bytes)
{
	for (u32 i = 0; i < 16; i++)
		cpu->regs[i] = register_value((u8)(bytes[i % 8] + (i >= 8 ? 33 * i : 0)));
	cpu->regs[RSP] = cpu->cr0 & CR0_PE ? IMAGE_STACK - 64 : 0xfff0;
}

/* Part of the program's own tables in its reach: code changes page tables and descriptors. */
static void set_tables(u8 *ram, u8 what, const u8 *code, size_t size)
{
	static const u32 tables[] = { IMAGE_PT + 0x800, IMAGE_GDT, IMAGE_IDT, IMAGE_TSS };

	if (what & 0x80)
		memcpy(ram + tables[what & 3], code, size < 128 ? size : 128);
}

static void set_counting(struct cpu *cpu, u8 counted)
{
	static const retire_wanted groups[] = {
		COUNT_BRANCHES,		  COUNT_MEMORY,		COUNT_CYCLES,
		OBSERVED_IN_MEMORY,	  OBSERVED_IN_BRANCHES, RETIRE_BIT(RETIRE_BRANCHES),
		RETIRE_BIT(RETIRE_LOADS),
	};

	cpu->port.wanted = 0;
	for (u32 i = 0; i < ARRAY_SIZE(groups); i++)
		if (counted & 1u << i)
			cpu->port.wanted |= groups[i];
	cpu->port.precise = counted >> 7;
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
	switch (reason) {
	case EXIT_BUDGET:
	case EXIT_HLT:
	case EXIT_TRIPLE_FAULT:
	case EXIT_UNEMULATED:
	case EXIT_IO: /* these after MAX_EXITS */
	case EXIT_MMIO:
	case EXIT_CPUID:
	case EXIT_RDMSR:
	case EXIT_WRMSR:
		return true;
	default:
		return false;
	}
}

static void live(struct machine *m)
{
	for (u32 i = 0; i < MAX_SERVED && machine_retired(m) < BUDGET; i++) {
		enum exit_reason reason = machine_run(m, BUDGET - machine_retired(m));

		if (serve(m->cpu, reason))
			continue;
		if (!is_right_end(reason))
			fuzz_fail("exit %d at %#llx", reason, (unsigned long long)m->cpu->rip);
		break;
	}
	if (machine_retired(m) > BUDGET)
		fuzz_fail("more instructions than the budget");
}

void fuzz_one(struct fuzz_input *in)
{
	u8 flags = fuzz_u8(in), counted = fuzz_u8(in), tables = fuzz_u8(in), rflags = fuzz_u8(in);
	struct machine *m = &machines[flags & FLAG_AMD ? 1 : 0];
	struct cpu *cpu = m->cpu;
	u8 registers[8] = { 0 }, code[MAX_CODE];
	size_t size;

	fuzz_take(in, registers, sizeof(registers));
	size = fuzz_take(in, code, sizeof(code));
	machine_load(m, code, size);
	set_tables(m->ram, tables, code, size);
	engine_set_hot_after(cpu, flags & FLAG_COLD ? ENGINE_HOT_AFTER : 4);
	set_counting(cpu, counted);
	set_mode(cpu, flags);
	set_registers(cpu, registers);
	cpu->rflags = FL_FIX1 | (rflags & FL_ARITH) | (rflags & 2 ? FL_DF : 0) |
		      (flags & FLAG_STEP ? FL_TF : 0);
	if (flags & FLAG_TS)
		cpu->cr0 |= CR0_TS;
	cpu_state_changed(cpu);
	live(m);
}
