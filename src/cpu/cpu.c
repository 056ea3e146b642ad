// SPDX-License-Identifier: MIT
/*
 * Creating and destroying a struct cpu, and its state after reset (SDM 3A 9.1.1, table 9-1). One
 * mapping holds, from low to high addresses, a guard page, the stack for translated code and the
 * struct itself, which is where that stack begins. All of it is zero pages until used: what a vCPU
 * that never runs costs is two mappings and a few pages. Owner's thread, between two runs.
 */
#include "cpu/cpu.h"

#include <sys/mman.h>

#include "base/bytes.h"
#include "cpu/fpu.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"

#define BELOW	  (PAGE_SIZE + CPU_STACK_SIZE)
#define MAP_BYTES (BELOW + ((sizeof(struct cpu_whole) + PAGE_SIZE - 1) & PAGE_MASK))

#define PAT_RESET 0x0007040600070406ull
#define RDX_RESET 0x600 /* KVM: family 6 where CPUID does not say better */
#define PHYS_BITS 36	/* KVM: until CPUID says */

_Static_assert(BELOW % 64 == 0 && PAGE_SIZE % 64 == 0, "struct cpu is 64-byte aligned");

struct cpu *cpu_create(void)
{
	u8 *map = mmap(NULL, MAP_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		       0);
	struct cpu *cpu = (struct cpu *)(map + BELOW);

	if (map == MAP_FAILED)
		return NULL;
	if (mprotect(map + PAGE_SIZE, MAP_BYTES - PAGE_SIZE, PROT_READ | PROT_WRITE)) {
		munmap(map, MAP_BYTES);
		return NULL;
	}
	cpu->phys_bits = PHYS_BITS;
	xstate_standard(&cpu->xstate, false, ~0ull);
	cpu_priv(cpu)->issue_slots = 1;
	cpu->port.tsc_scale = TSC_SCALE_ONE;
	fpu_probe(cpu);
	cpu_reset(cpu);
	return cpu;
}

void cpu_destroy(struct cpu *cpu)
{
	if (cpu)
		munmap((u8 *)cpu - BELOW, MAP_BYTES);
}

static void reset_segment(struct segment *s, u16 sel, u64 base, u32 attr)
{
	s->sel = sel;
	s->base = base;
	s->limit = 0xffff;
	s->attr = attr;
}

static void reset_segments(struct cpu *cpu)
{
	const u32 code = 0xb | SEG_S | SEG_P, data = 0x3 | SEG_S | SEG_P;

	for (u32 seg = 0; seg < NSEGS; seg++)
		reset_segment(&cpu->seg[seg], 0, 0, data);
	reset_segment(&cpu->seg[CS], 0xf000, 0xffff0000, code);
	reset_segment(&cpu->ldtr, 0, 0, 0x2 | SEG_P);
	reset_segment(&cpu->tr, 0, 0, 0xb | SEG_P);
	cpu->gdtr.base = cpu->idtr.base = 0;
	cpu->gdtr.limit = cpu->idtr.limit = 0xffff;
}

static void reset_control(struct cpu *cpu)
{
	cpu->cr0 = CR0_CD | CR0_NW | CR0_ET;
	cpu->cr2 = cpu->cr3 = cpu->cr4 = cpu->cr8 = cpu->efer = 0;
	bytes_fill(cpu->dr, 0, sizeof(cpu->dr));
	cpu->dr6 = DR6_FIXED1;
	cpu->dr7 = DR7_FIXED1;
	cpu->xcr0 = XCR0_X87;
	cpu->xss = 0;
	cpu->pkru = 0;
	bytes_fill(cpu->pdptr, 0, sizeof(cpu->pdptr));
}

static void reset_msrs(struct cpu *cpu)
{
	cpu->star = cpu->lstar = cpu->cstar = cpu->sfmask = cpu->kernel_gs_base = 0;
	cpu->sysenter_cs = cpu->sysenter_esp = cpu->sysenter_eip = 0;
	cpu->pat = PAT_RESET;
	cpu->tsc_aux = cpu->debugctl = 0;
}

static void reset_in_flight(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	cpu->port.event.kind = EVENT_NONE;
	cpu->port.exit.reason = EXIT_NONE;
	cpu->port.io.state = IO_IDLE;
	mmio_abandoned(cpu);
	cpu->pending_db = 0;
	cpu->nmi_masked = false;
	cpu->shadow = priv->begun = 0;
	priv->code_classes = 0;
}

void cpu_reset(struct cpu *cpu)
{
	bytes_fill(cpu->regs, 0, sizeof(cpu->regs));
	cpu->regs[RDX] = RDX_RESET;
	cpu->rip = 0xfff0;
	cpu->rflags = FL_FIX1;
	cpu->cpl = 0;
	reset_segments(cpu);
	reset_control(cpu);
	reset_msrs(cpu);
	reset_in_flight(cpu);
	fpu_reset(cpu);
	tlb_flush(cpu);
	cpu_watch_update(cpu);
}
