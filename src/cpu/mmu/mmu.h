/* SPDX-License-Identifier: MIT */
/*
 * Linear to physical to host: the page walk (SDM 3A 4), the soft TLB and guest memory accesses by C
 * code.
 *
 * The soft TLB is direct-mapped: entry (address >> 12) & (TLB_SIZE - 1) of the set for the
 * privilege. Translated code XORs the address with the tag and compares the result with 4096 -
 * size: one compare finds another page, a missing right and a page-crossing access alike. A tag
 * that serves no address has the wrong index bits: tlb_none(i). An entry is usable without a call
 * when the page is RAM, the right is granted, and no one watches: a write tag is absent while the
 * page is not yet dirty (PTE or dirty log), holds translated code (cpu/mmu/code_pages.h), is
 * read-only, or carries a data breakpoint.
 *
 * Everything here runs on the vCPU thread while guest vector state is live: general registers only,
 * no libc.
 */
#ifndef CPU_MMU_MMU_H
#define CPU_MMU_MMU_H

#include "base/bytes.h"
#include "cpu/cpu.h"
#include "timing/port.h"

enum access_flags {
	ACCESS_READ = 0,
	ACCESS_WRITE = BIT(0),
	ACCESS_FETCH = BIT(1),
	/* Implicit supervisor access: descriptor tables, TSS, event delivery. */
	ACCESS_SYSTEM = BIT(2),
	/* With ACCESS_WRITE: the same instruction reads it first (locked and not). */
	ACCESS_RMW = BIT(3),
	ACCESS_UNALIGNED = BIT(4), /* not subject to alignment checks, or already checked */
	/* The timing model is not shown it: it is the first part of an access that will be. */
	ACCESS_UNSHOWN = BIT(5),
};

void tlb_flush(struct cpu *cpu);       /* everything, including what is cached of code addresses */
void tlb_flush_data(struct cpu *cpu);  /* all tags for data accesses */
void tlb_flush_local(struct cpu *cpu); /* entries of pages that are not global */
void tlb_flush_page(struct cpu *cpu, gva_t gva); /* INVLPG */
void tlb_change_slots(struct cpu *cpu); /* everything that knows host addresses, as tlb_flush() */
/* CR3 was written: user code is now that of another address space. keep: a generation kept for it
 * may be used again (CR3's bit 63). */
void tlb_switch(struct cpu *cpu, u64 old_cr3, bool keep);
/* INVPCID for PCIDs other than the current one. */
void tlb_forget_others(struct cpu *cpu);
void tlb_protect(struct cpu *cpu, gpa_t page); /* removes the write tags of a physical page */
/* Of all pages that any processor has claimed: cpu/mmu/shared_code.h */
void tlb_protect_claimed(struct cpu *cpu);

/* Which entries of page tables a walk of gva reads now: for the timing model of the owner, a struct
 * cpu (timing/port.h). Checks no rights, sets nothing, raises nothing. */
u32 mmu_tables(void *owner, gva_t gva, struct timing_table *out);

struct translation {
	gpa_t gpa;
	const struct mem_slot *slot; /* NULL: MMIO; so is a write to a MEM_READONLY slot */
	hva_t host;		     /* of gpa; NULL when slot is */
	u8 shift;		     /* log2 of the page's size */
	bool global;		     /* the translation is valid in every address space */
};

/*
 * Translates one address for one access with all checks of paging; sets accessed and dirty bits,
 * marks the dirty log on a write. Raises #PF; canonical checks are the caller's (cpu_linear()).
 * Does not fill the TLB.
 */
enum guest_fault mmu_translate(struct cpu *cpu, gva_t gva, u32 access, struct translation *out);

/* A write that only misses the TLB because its page holds translated code: where it goes. */
bool tlb_writes_code(struct cpu *cpu, gva_t gva, u32 access, gpa_t *gpa, hva_t *host);

/* mmu_translate(), and fills the TLB entry when the page allows direct access. */
enum guest_fault mmu_fill(struct cpu *cpu, gva_t gva, u32 access, struct translation *out);

/* Code was fetched from this page: flushing it must invalidate code addresses, too. */
void tlb_fetched(struct cpu *cpu, gva_t gva, const struct translation *t);

/*
 * Reads and writes guest linear memory for C code, any size up to 4096, page-crossing allowed, MMIO
 * by the protocol of struct cpu_mmio, RAM with single-copy atomicity for naturally aligned 1, 2, 4,
 * 8 bytes. A write checks all pages before it changes a byte. Writes to translated code are noted
 * (code_written). Data breakpoints are matched into pending_db unless ACCESS_SYSTEM.
 */
enum guest_fault cpu_read(struct cpu *cpu, gva_t gva, void *buf, u32 size, u32 access);
enum guest_fault cpu_write(struct cpu *cpu, gva_t gva, const void *buf, u32 size, u32 access);

/* An access whose page, or two of them, have been translated. */
struct span {
	gva_t gva;
	u32 size;
	u32 first;		 /* bytes on the first page */
	struct translation t[2]; /* of gva; and of the second page's begin, if there is one */
};

/*
 * cpu_read() and cpu_write() of some bytes of it, from `offset` on, which walk no page tables: what
 * has become of the translations since, these do not raise #PF. They were made for an access that
 * writes, if it does. `access` is as there.
 */
enum guest_fault cpu_read_at(struct cpu *cpu, const struct span *span, u32 offset, void *buf,
			     u32 size, u32 access);
enum guest_fault cpu_write_at(struct cpu *cpu, const struct span *span, u32 offset, const void *buf,
			      u32 size, u32 access);

/*
 * Sets and clears bits of a byte of a system structure that other processors may be changing: in
 * memory by a locked operation (SDM 3A 8.1.2.1). *byte: as the caller has read it, which a device
 * gets; then as it was.
 */
enum guest_fault cpu_change_bits(struct cpu *cpu, gva_t gva, u8 *byte, u8 set, u8 clear);

/*
 * Reads or writes for the processor itself (the debug store), at supervisor privilege and without
 * an instruction that could fault. False: not all of it is memory with that right, and nothing was
 * accessed (unless the program's memory is gone on the host). As implicit accesses these do not
 * reach user pages while CR4.SMAP is set. ACCESS_READ or ACCESS_WRITE.
 */
bool cpu_access_quietly(struct cpu *cpu, gva_t gva, void *buf, u32 size, u32 access);
/* Reads code as the processor fetches it, at the current privilege. False: not all of it is memory
 * that may be executed. */
bool cpu_fetch_quietly(struct cpu *cpu, gva_t gva, void *buf, u32 size);

/*
 * Device accesses by physical address, for callers that translated the address themselves. A read
 * is answered from the answers held or ends in FAULT_EXIT with EXIT_MMIO; the last of mmio.reads[]
 * is then the one wanted. A write is queued. More than MMIO_FRAGMENTS in one instruction:
 * EXIT_UNEMULATED.
 */
enum guest_fault mmio_read(struct cpu *cpu, gpa_t gpa, void *buf, u32 size);
enum guest_fault mmio_write(struct cpu *cpu, gpa_t gpa, const void *buf, u32 size);

/* To be called when an instruction, or one iteration of a REP, has completed: the answers to its
 * reads are used up. */
static inline void mmio_completed(struct cpu *cpu)
{
	cpu->port.mmio.nreads = cpu->port.mmio.read_pos = 0;
}

/*
 * Is an answer of the hypervisor waiting for the instruction that asked? Until it has been executed
 * no event may come between: the device would be asked again.
 */
static inline bool cpu_holds_answer(const struct cpu *cpu)
{
	return cpu->port.io.state == IO_DONE || cpu->port.mmio.nreads;
}

/* To be called when it faulted instead: what it queued never happened. */
static inline void mmio_abandoned(struct cpu *cpu)
{
	cpu->port.mmio.nreads = cpu->port.mmio.read_pos = 0;
	cpu->port.mmio.nwrites = cpu->port.mmio.write_pos = 0;
}

/*
 * Segmentation: segment:offset to linear with canonical (64-bit) or limit and type checks (SDM
 * 3A 5.3, 5.5); raises #GP(0) or #SS(0). `access` has ACCESS_WRITE for stores.
 */
enum guest_fault cpu_linear(struct cpu *cpu, enum seg seg, u64 offset, u32 size, u32 access,
			    gva_t *out);

/* Checks the segment's limit alone (SDM 3A 5.3); not in 64-bit code. */
bool cpu_limit_allows(const struct cpu *cpu, const struct segment *s, u32 offset, u32 size);

/* Width of linear addresses in 64-bit code (SDM 3A 4.5). */
static inline u8 cpu_linear_bits(const struct cpu *cpu)
{
	return cpu->cr4 & CR4_LA57 ? 57 : 48;
}

bool cpu_canonical(const struct cpu *cpu, gva_t gva);

/*
 * Width of addresses that LGDT, LIDT, LLDT, LTR and WRMSR load and INVPCID invalidates: what the
 * processor supports, whether CR4.LA57 is set or not (KVM: is_noncanonical_base_address()).
 */
static inline u8 cpu_linear_bits_max(const struct cpu *cpu)
{
	return cpu_has(cpu, FEAT_LA57) ? 57 : cpu_linear_bits(cpu);
}

bool cpu_canonical_base(const struct cpu *cpu, gva_t gva);

/*
 * A linear address that lies some bytes after another one: outside 64-bit code it has 32 bits, and
 * goes on at 0 (SDM 3A 3.3.7, 5.3). Not for system structures, whose addresses have 64 bits in
 * compatibility mode too.
 */
static inline gva_t cpu_wrap(const struct cpu *cpu, gva_t gva)
{
	return cpu_code64(cpu) ? gva : (u32)gva;
}

/* What cpu_linear() asks of a linear address in 64-bit code. */
enum guest_fault cpu_check64(struct cpu *cpu, enum seg seg, gva_t gva, u32 size);

/* Matches an access against the armed data breakpoints, noting DR6 bits in pending_db. */
void cpu_watch(struct cpu *cpu, gva_t gva, u32 size, u32 access);
/* Matches a port access, if CR4.DE enables I/O breakpoints. */
void cpu_watch_io(struct cpu *cpu, u16 port, u32 size);
/* Recomputes watch_active and the mode after any change of DR0-7 or guest debugging; flushes the
 * TLB if it is set. */
void cpu_watch_update(struct cpu *cpu);
/* Is an instruction breakpoint armed at this linear address? Returns DR6 bits, 0 if none. */
u32 cpu_watch_fetch(const struct cpu *cpu, gva_t rip);
bool cpu_watch_any_fetch(const struct cpu *cpu);

#endif
