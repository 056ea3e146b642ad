// SPDX-License-Identifier: MIT
/*
 * Control registers, EFER, XCR0 and PKRU (SDM 3A 2.5, 4.1, 4.10.4; MOV to CR in SDM 2B; APM2 3.1):
 * checks first, then the change with its effects on long mode, the PDPTEs, the TLB, the timing
 * model and the mode word. Privilege is checked by the caller. Registers that were written from
 * outside have only TLB, breakpoints and mode word brought up to date: cpu_state_changed(). vCPU
 * thread; general registers only.
 *
 * The TLB holds one address space besides what is global: a write to CR3 drops the rest, which the
 * architecture allows at any time. What is known of code is kept for PCIDs, as CR3's bit 63 allows.
 */
#include "cpu/control.h"

#include "base/guarded.h"
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/observe.h"
#include "cpu/mode.h"
#include "x86/paging.h"

#define CR0_DEFINED                                                                                \
	(CR0_PE | CR0_MP | CR0_EM | CR0_TS | CR0_ET | CR0_NE | CR0_WP | CR0_AM | CR0_NW | CR0_CD | \
	 CR0_PG)
#define CR3_PCID    MASK(11, 0)
#define CR3_NOFLUSH BIT(63)

/* Changes of these bits invalidate what the TLB says of addresses or rights (SDM 3A 4.10.4.1). */
#define CR0_PAGING (CR0_PG | CR0_WP)
#define CR4_PAGING \
	(CR4_PSE | CR4_PAE | CR4_PGE | CR4_LA57 | CR4_PCIDE | CR4_SMEP | CR4_SMAP | CR4_PKE)
/* Changes of these bits load the PDPTEs (SDM 3A 4.4.1). */
#define CR0_LOADS_PDPTES (CR0_CD | CR0_NW | CR0_PG)
#define CR4_LOADS_PDPTES (CR4_PSE | CR4_PAE | CR4_PGE | CR4_SMEP)

static enum guest_fault refuse(struct cpu *cpu)
{
	return cpu_raise_error(cpu, VEC_GP, 0);
}

/* PAE paging that is not long mode, for which the processor holds four PDPTEs. */
static bool pae_paging(u64 cr0, u64 cr4, u64 efer)
{
	return (cr0 & CR0_PG) && (cr4 & CR4_PAE) && !(efer & EFER_LME);
}

static u64 beyond_physical(const struct cpu *cpu)
{
	return cpu->phys_bits < 64 ? ~0ull << cpu->phys_bits : 0;
}

/* False: a reserved bit is set, or there is no memory; then nothing changed. */
static bool load_pdptes(struct cpu *cpu, u64 cr3)
{
	gpa_t gpa = cr3 & MASK(31, 5);
	const struct mem_slot *slot = mem_find(cpu->port.mem, gpa);
	u64 pdpte[4];

	if (!slot || !guarded_read(pdpte, mem_hva(slot, gpa), sizeof(pdpte)))
		return false;
	for (u32 i = 0; i < 4; i++)
		if ((pdpte[i] & PTE_P) && (pdpte[i] & (PDPTE_RSVD_LOW | beyond_physical(cpu))))
			return false;
	for (u32 i = 0; i < 4; i++)
		cpu->pdptr[i] = pdpte[i];
	return true;
}

static bool cr0_valid(u64 cr0)
{
	if (cr0 >> 32)
		return false;
	if ((cr0 & CR0_NW) && !(cr0 & CR0_CD))
		return false;
	return !(cr0 & CR0_PG) || (cr0 & CR0_PE);
}

/* Turning paging on with EFER.LME turns on long mode: SDM 3A 9.8.5. KVM: also with a 16-bit TSS in
 * TR, which the manual refuses. */
static bool may_enable_paging(const struct cpu *cpu)
{
	if (!(cpu->efer & EFER_LME))
		return true;
	return (cpu->cr4 & CR4_PAE) && !(cpu->seg[CS].attr & SEG_L);
}

static bool may_disable_paging(const struct cpu *cpu)
{
	return !cpu_code64(cpu) && !(cpu->cr4 & CR4_PCIDE);
}

enum guest_fault cpu_write_cr0(struct cpu *cpu, u64 value)
{
	u64 changed;

	if (!cr0_valid(value))
		return refuse(cpu);
	value = (value & CR0_DEFINED) | CR0_ET;
	changed = cpu->cr0 ^ value;
	if ((changed & CR0_PG) &&
	    !(value & CR0_PG ? may_enable_paging(cpu) : may_disable_paging(cpu)))
		return refuse(cpu);
	if ((changed & CR0_LOADS_PDPTES) && pae_paging(value, cpu->cr4, cpu->efer) &&
	    !load_pdptes(cpu, cpu->cr3))
		return refuse(cpu);
	cpu->cr0 = value;
	if ((value & CR0_PG) && (cpu->efer & EFER_LME))
		cpu->efer |= EFER_LMA;
	else
		cpu->efer &= ~EFER_LMA;
	if (changed & CR0_PAGING) {
		tlb_flush(cpu);
		cpu_observe_flush(cpu);
	}
	cpu_update_mode(cpu);
	return FAULT_NONE;
}

enum guest_fault cpu_write_cr3(struct cpu *cpu, u64 value)
{
	bool keep = (cpu->cr4 & CR4_PCIDE) && (value & CR3_NOFLUSH);
	u64 old = cpu->cr3;

	if (cpu->cr4 & CR4_PCIDE)
		value &= ~CR3_NOFLUSH;
	if (cpu_long_mode(cpu) && (value & beyond_physical(cpu)))
		return refuse(cpu);
	if (!cpu_long_mode(cpu))
		value = (u32)value;
	if (pae_paging(cpu->cr0, cpu->cr4, cpu->efer) && !load_pdptes(cpu, value))
		return refuse(cpu);
	cpu->cr3 = value;
	tlb_switch(cpu, old, keep);
	cpu_observe_cr3(cpu, !keep);
	return FAULT_NONE;
}

static bool may_change_cr4(const struct cpu *cpu, u64 value)
{
	u64 changed = cpu->cr4 ^ value;

	if (cpu_long_mode(cpu) && (!(value & CR4_PAE) || (changed & CR4_LA57)))
		return false;
	if ((changed & CR4_PCIDE) && (value & CR4_PCIDE))
		return cpu_long_mode(cpu) && !(cpu->cr3 & CR3_PCID);
	return true;
}

enum guest_fault cpu_write_cr4(struct cpu *cpu, u64 value)
{
	u64 changed = cpu->cr4 ^ value;

	if ((value & ~cpu->cr4_allowed) || !may_change_cr4(cpu, value))
		return refuse(cpu);
	if ((changed & CR4_LOADS_PDPTES) && pae_paging(cpu->cr0, value, cpu->efer) &&
	    !load_pdptes(cpu, cpu->cr3))
		return refuse(cpu);
	cpu->cr4 = value;
	if (changed & CR4_PAGING) {
		tlb_flush(cpu);
		cpu_observe_flush(cpu);
	}
	cpu_update_mode(cpu);
	return FAULT_NONE;
}

/* LMA is the processor's own: what is written there is ignored. */
enum guest_fault cpu_write_efer(struct cpu *cpu, u64 value)
{
	u64 changed;

	value = (value & ~EFER_LMA) | (cpu->efer & EFER_LMA);
	changed = cpu->efer ^ value;
	if (value & ~(cpu->efer_allowed | EFER_LMA))
		return refuse(cpu);
	if ((changed & EFER_LME) && (cpu->cr0 & CR0_PG))
		return refuse(cpu);
	cpu->efer = value;
	if (changed & EFER_NX)
		tlb_flush(cpu);
	cpu_update_mode(cpu);
	return FAULT_NONE;
}

/* SDM 1 13.3: x87 always, AVX only with SSE, AVX-512 only as a whole and with AVX. */
bool cpu_xcr0_valid(const struct cpu *cpu, u64 value)
{
	if ((value & ~cpu->xcr0_allowed) || !(value & XCR0_X87))
		return false;
	if ((value & XCR0_AVX) && !(value & XCR0_SSE))
		return false;
	return !(value & XCR0_AVX512) || (~value & (XCR0_AVX | XCR0_AVX512)) == 0;
}

enum guest_fault cpu_write_xcr(struct cpu *cpu, u32 n, u64 value)
{
	if (n != 0 || !cpu_xcr0_valid(cpu, value))
		return refuse(cpu);
	cpu->xcr0 = value;
	cpu_update_mode(cpu);
	return FAULT_NONE;
}

/* Rights to data that the TLB has were granted with the old value; code is not subject to keys. */
void cpu_write_pkru(struct cpu *cpu, u32 value)
{
	if (cpu->pkru == value)
		return;
	cpu->pkru = value;
	if (cpu->cr4 & CR4_PKE)
		tlb_flush_data(cpu);
}

/* KVM: EFER's reserved bits are not looked at when a program sets the registers. */
bool cpu_cr_valid(const struct cpu *cpu, u64 cr0, u64 cr3, u64 cr4, u64 efer)
{
	bool long_mode = (efer & EFER_LME) && (cr0 & CR0_PG);

	if (long_mode != !!(efer & EFER_LMA))
		return false;
	if (long_mode && (!(cr4 & CR4_PAE) || (cr3 & beyond_physical(cpu))))
		return false;
	return cr0_valid(cr0) && !(cr4 & ~cpu->cr4_allowed);
}

void cpu_state_changed(struct cpu *cpu)
{
	cpu_priv(cpu)->begun = 0;
	tlb_flush(cpu);
	cpu_watch_update(cpu);
	cpu_update_mode(cpu);
}
