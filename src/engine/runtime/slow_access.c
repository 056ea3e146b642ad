// SPDX-License-Identifier: MIT
/*
 * The slow path of a guest memory access: called from translated code when the soft TLB does not
 * answer.
 *
 * Most calls fill the TLB and let the access go on in line. An access to MMIO, to a read-only slot,
 * or across two pages that are not neighbours on the host is executed on a bounce buffer: fetched
 * here, executed out of line by the very same instruction, stored by slow_commit(). A write to a
 * page that holds translated code is executed in place, so that it stays atomic, and noted
 * afterwards. A locked instruction on RAM is bounced only while all other processors stand still
 * (cpu/mmu/exclusive.h): if they do not, the block is left, and the instruction is executed again
 * while they do.
 *
 * slow_share() is the slow path of a check that several accesses share (emit_share.c);
 * slow_beyond() and slow_try_push() are for branches whose target is bad.
 *
 * vCPU thread, guest vector state live: general registers only.
 */
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mmu/shared_code.h"
#include "cpu/observe.h"
#include "cpu/transfer/stack.h"
#include "engine/priv.h"
#include "engine/runtime/count.h"
#include "engine/slow.h"

/*
 * Operands of 80 bits are accessed as 64 and 16: the first part may miss its page before the second
 * is found to be outside of the segment.
 */
static enum guest_fault long_double(struct cpu *cpu, u64 offset, enum seg seg, u32 access)
{
	struct translation t;
	gva_t gva, last;
	enum guest_fault fault = cpu_linear(cpu, seg, offset, 8, access, &gva);

	if (fault == FAULT_NONE && cpu_misaligned(cpu, gva, 8))
		fault = cpu_raise_error(cpu, VEC_AC, 0);
	if (fault == FAULT_NONE)
		fault = mmu_translate(cpu, gva, access, &t);
	if (fault != FAULT_NONE)
		return fault;
	last = cpu_wrap(cpu, gva + 7);
	return (gva ^ last) < PAGE_SIZE ? FAULT_NONE
					: mmu_translate(cpu, last & PAGE_MASK, access, &t);
}

enum guest_fault slow_linear(struct cpu *cpu, u64 address, u32 desc, u32 access, gva_t *out)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	enum seg seg = desc >> DESC_SEG_SHIFT & 7;
	u32 size = desc & DESC_SIZE;
	enum guest_fault fault = FAULT_NONE;

	*out = address;
	if ((desc & DESC_OFFSET) || (!(priv->mode & MODE_CODE64) && address + size > BIT(32))) {
		if ((desc & DESC_X87) && size == 10)
			fault = long_double(cpu, address, seg, access);
		return fault == FAULT_NONE ? cpu_linear(cpu, seg, address, size, access, out)
					   : fault;
	}
	return priv->mode & MODE_CODE64 ? cpu_check64(cpu, seg, address, size) : FAULT_NONE;
}

static bool is_mmio(const struct translation *t, u32 access)
{
	return !t->slot || ((access & ACCESS_WRITE) && (t->slot->flags & MEM_READONLY));
}

static u32 nparts(const struct span *span)
{
	return span->first < span->size ? 2 : 1;
}

static u32 part_size(const struct span *span, u32 i)
{
	return i ? span->size - span->first : span->first;
}

/* What the instruction reads, into the bounce buffer. */
static enum guest_fault fetch(struct cpu *cpu, u32 access)
{
	const struct slow_state *pending = &cpu->engine->pending;

	if (pending->element)
		return slow_masked_read(cpu, access);
	return cpu_read_at(cpu, &pending->span, 0, pending->data, pending->span.size, access);
}

/* Is all of it memory, and not a device or a read-only slot that is one for writes? */
static bool is_memory(const struct span *span)
{
	return span->t[0].host && (nparts(span) == 1 || span->t[1].host);
}

static u64 bounce(struct cpu *cpu, const struct span *span, u32 desc, u32 access,
		  const u8 *return_pc)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct slow_state *pending = &cpu->engine->pending;
	enum guest_fault fault;

	/* The same alignment as the guest's address: the instruction may check it. But within a
	 * line if it is locked, and aligned if only the host checks: it may not allow others. */
	*pending = (struct slow_state){
		.bounced = true,
		.data = priv->bounce + 64 +
			(desc & (DESC_LOCK | DESC_REALIGN) ? 0 : span->gva & 63),
		.modifies = access & ACCESS_RMW,
	};
	pending->span = *span;
	if (desc & DESC_MASKED)
		slow_masked_select(cpu, pending);
	/* An x87 store that meets an unmasked exception stores nothing: memory keeps
	 * its contents. To the timing model what is read and written is a store: store(). */
	if (desc & (DESC_READ | DESC_X87)) {
		bool stores = (access & ACCESS_WRITE) && is_memory(span);

		fault = fetch(cpu, ACCESS_UNALIGNED | (stores ? ACCESS_UNSHOWN : 0));
		if (fault != FAULT_NONE)
			return place_leave(cpu, return_pc, fault, false);
	}
	priv->spill[SPILL_HOST] = (u64)(uintptr_t)pending->data;
	return observe_end(cpu, desc, return_pc, SLOW_COMMIT);
}

/* Leaves before the instruction, which is executed again while other processors are stopped. */
static u64 leave_for_alone(struct cpu *cpu, const u8 *return_pc)
{
	u64 result = place_leave(cpu, return_pc, FAULT_NONE, false);

	cpu->engine->reexecute = cpu->engine->run_exclusive = true;
	return result;
}

/* While other processors are stopped, a locked access across lines is always bounced: the host
 * forbids it, or its pages need a bounce. */
static bool bounced_alone(const struct cpu *cpu, gva_t gva, u32 desc)
{
	return unlikely(cpu_priv(cpu)->others_stopped) && (desc & DESC_LOCK) &&
	       (gva & 63) + (desc & DESC_SIZE) > 64;
}

static bool must_bounce(const struct cpu *cpu, gva_t gva, u32 desc)
{
	return bounced_alone(cpu, gva, desc) ||
	       ((desc & DESC_REALIGN) && (gva & ((desc & DESC_SIZE) - 1)));
}

static u64 unemulated(struct cpu *cpu, gpa_t gpa, const u8 *return_pc)
{
	cpu->port.exit.reason = EXIT_UNEMULATED;
	cpu->port.exit.gpa = gpa;
	return place_leave(cpu, return_pc, FAULT_EXIT, false);
}

/* RAM, in place. If the page holds translated code, notes the write for slow_commit(). */
static u64 direct(struct cpu *cpu, const struct span *span, u32 access)
{
	struct slow_state *pending = &cpu->engine->pending;
	bool code = false;
	gva_t gva = span->gva;

	cpu_priv(cpu)->spill[SPILL_HOST] = (u64)(uintptr_t)span->t[0].host;
	for (u32 i = 0; cpu_observes(cpu) && i < nparts(span); i++) {
		cpu_observe_at(cpu, gva, &span->t[i], part_size(span, i), access);
		gva = cpu_wrap(cpu, gva + span->first);
	}
	if (!(access & ACCESS_WRITE))
		return SLOW_DIRECT;
	*pending = (struct slow_state){ .span.size = span->size, .span.first = span->first };
	for (u32 i = 0; i < nparts(span); i++) {
		pending->span.t[i].gpa = span->t[i].gpa;
		code |= shared_watched(cpu, span->t[i].gpa, part_size(span, i));
	}
	return code ? SLOW_COMMIT : SLOW_DIRECT;
}

static void watch(struct cpu *cpu, gva_t gva, u32 desc, u32 access)
{
	if (likely(!cpu_priv(cpu)->watch_active))
		return;
	if (desc & DESC_MASKED)
		slow_masked_watch(cpu, gva, access);
	else
		cpu_watch(cpu, gva, desc & DESC_SIZE, access);
}

static u64 one_page(struct cpu *cpu, gva_t gva, u32 desc, u32 access, const u8 *return_pc)
{
	struct span span = { .gva = gva, .size = desc & DESC_SIZE, .first = desc & DESC_SIZE };
	struct translation *t = &span.t[0];
	enum guest_fault fault;

	if ((access & ACCESS_WRITE) && !cpu_observes(cpu) && !cpu_priv(cpu)->others_stopped &&
	    tlb_writes_code(cpu, gva, access, &t->gpa, &t->host))
		return direct(cpu, &span, access);
	fault = mmu_fill(cpu, gva, access, t);
	if (fault != FAULT_NONE)
		return slow_fault_access(cpu, fault, gva, desc & ~DESC_OFFSET, return_pc);
	if (is_mmio(t, access) && (desc & DESC_X87))
		return unemulated(cpu, t->gpa, return_pc);
	if (is_mmio(t, access) || must_bounce(cpu, gva, desc))
		return bounce(cpu, &span, desc, access, return_pc);
	watch(cpu, gva, desc, access);
	return observe_end(cpu, desc, return_pc, direct(cpu, &span, access));
}

/* Both pages are checked before anything is touched; neighbours on the host need no bounce. */
static u64 two_pages(struct cpu *cpu, gva_t gva, u32 desc, u32 access, const u8 *return_pc)
{
	u32 first = PAGE_SIZE - (gva & ~PAGE_MASK);
	struct span span = { .gva = gva, .size = desc & DESC_SIZE, .first = first };
	struct translation *t = span.t;
	enum guest_fault fault;
	bool mmio, apart;

	fault = mmu_translate(cpu, gva, access, &t[0]);
	if (fault == FAULT_NONE)
		fault = mmu_translate(cpu, cpu_wrap(cpu, gva + first), access, &t[1]);
	if (fault != FAULT_NONE)
		return slow_fault_access(cpu, fault, gva, desc & ~DESC_OFFSET, return_pc);
	mmio = is_mmio(&t[0], access) || is_mmio(&t[1], access);
	if (mmio && (desc & DESC_X87))
		return unemulated(cpu, t[0].gpa, return_pc);
	apart = t[0].host + first != t[1].host;
	if (!mmio && apart && (desc & DESC_LOCK) && !cpu_priv(cpu)->others_stopped)
		return leave_for_alone(cpu, return_pc);
	if (mmio || apart || must_bounce(cpu, gva, desc))
		return bounce(cpu, &span, desc, access, return_pc);
	watch(cpu, gva, desc, access);
	return observe_end(cpu, desc, return_pc, direct(cpu, &span, access));
}

/* Vector operands that must be aligned: checked before all else. Segment bases are assumed to be
 * aligned. */
bool slow_vector_misaligned(u64 address, u32 desc)
{
	return (desc & DESC_ALIGN) && (address & ((desc & DESC_SIZE) - 1));
}

u64 slow_span(struct cpu *cpu, gva_t gva, u32 desc, u32 access, const u8 *return_pc)
{
	if ((desc & DESC_SIZE) <= PAGE_SIZE - (gva & ~PAGE_MASK))
		return one_page(cpu, gva, desc, access, return_pc);
	return two_pages(cpu, gva, desc, access, return_pc);
}

u64 slow_access(struct cpu *cpu, u64 address, u32 desc, const u8 *return_pc)
{
	u32 access = desc & DESC_WRITE ? ACCESS_WRITE | (desc & DESC_READ ? ACCESS_RMW : 0) : 0;
	u32 size = desc & DESC_SIZE;
	enum guest_fault fault;
	gva_t gva;

	cpu_effort(cpu, EFFORT_ACCESS);
	count_look(cpu);
	observe_at(cpu, return_pc);
	if (desc & DESC_MASKED)
		return slow_masked_access(cpu, address, desc, return_pc);
	if (slow_vector_misaligned(address, desc))
		fault = cpu_raise_error(cpu, VEC_GP, 0);
	else
		fault = slow_linear(cpu, address, desc, access, &gva);
	if (fault == FAULT_NONE && !(desc & DESC_UNALIGNED) && cpu_misaligned(cpu, gva, size))
		fault = cpu_raise_error(cpu, VEC_AC, 0);
	if (fault != FAULT_NONE)
		return slow_fault_access(cpu, fault, address, desc, return_pc);
	return slow_span(cpu, gva, desc, access, return_pc);
}

/* Does the TLB let code of this mode access the page, for writing or only for reading? */
static bool tlb_grants(const struct cpu *cpu, gva_t gva, bool write)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	const struct tlb_entry *entry =
		&priv->tlb[cpu_tlb_set(priv->mode)][(gva >> PAGE_SHIFT) % TLB_SIZE];

	return ((write ? entry->write : entry->read) ^ gva) < PAGE_SIZE;
}

/*
 * The leader of a group of accesses did not find the rights of all members in the TLB. Walks for
 * its own access; if the entry then has the rights of all, the check is repeated (with the same
 * address), else the members are checked one by one.
 */
u64 slow_share(struct cpu *cpu, u64 address, u32 desc, const u8 *return_pc)
{
	u32 access = desc & DESC_WRITE ? ACCESS_WRITE | (desc & DESC_READ ? ACCESS_RMW : 0) : 0;
	enum guest_fault fault;
	struct translation t;
	gva_t gva;

	cpu_effort(cpu, EFFORT_ACCESS);
	count_look(cpu);
	cpu_priv(cpu)->spill[SPILL_HOST] = address;
	if (desc & DESC_MASKED) /* the check was for the group's range; its own access may fault */
		return SLOW_COMMIT;
	if (slow_vector_misaligned(address, desc))
		fault = cpu_raise_error(cpu, VEC_GP, 0);
	else
		fault = slow_linear(cpu, address, desc, access, &gva);
	if (fault == FAULT_NONE)
		fault = mmu_fill(cpu, gva, access, &t);
	if (fault == FAULT_RAISED && (desc & (DESC_COMPUTES | DESC_CLEARS_TOP))) {
		/* Checked by itself in the unshared block, it faults again. */
		cpu->port.event.kind = EVENT_NONE;
		return SLOW_COMMIT;
	}
	if (fault != FAULT_NONE)
		return place_leave(cpu, return_pc, fault, false);
	return tlb_grants(cpu, gva, desc & DESC_GROUP_WRITE) ? SLOW_DIRECT : SLOW_COMMIT;
}

/* Raises nothing but what the access itself did: the instruction's registers have changed. */
static enum guest_fault store(struct cpu *cpu)
{
	const struct slow_state *pending = &cpu->engine->pending;
	const struct span *span = &pending->span;

	if (pending->faulted)
		return slow_fault_computed(cpu);
	if (pending->bounced && pending->element)
		return slow_masked_write(cpu);
	if (pending->bounced)
		return cpu_write_at(cpu, span, 0, pending->data, span->size,
				    ACCESS_UNALIGNED | (pending->modifies ? ACCESS_RMW : 0));
	for (u32 i = 0; i < nparts(span); i++)
		shared_written(cpu, span->t[i].gpa, part_size(span, i));
	return FAULT_NONE;
}

/*
 * The instruction has been executed: commits its store. What follows in the block may be what
 * was written, and a device may be waiting: then it is left after this instruction, or, when that
 * ends the block anyway, at the head of the next.
 */
u64 slow_commit(struct cpu *cpu, u64 unused, u32 desc, const u8 *return_pc)
{
	enum guest_fault fault = store(cpu);

	(void)unused;
	if (fault != FAULT_NONE)
		return place_leave(cpu, return_pc, fault, false);
	if (!cpu_priv(cpu)->code->nwritten && cpu->port.mmio.nwrites == cpu->port.mmio.write_pos &&
	    !(cpu_observes(cpu) && count_at_trip(cpu)))
		return SLOW_DIRECT;
	if (!(desc & DESC_LAST))
		return place_leave(cpu, return_pc, FAULT_NONE, true);
	cpu_call_attention(cpu, ATTENTION_ENGINE);
	return SLOW_DIRECT;
}

/* A call checks its push before its target. */
enum guest_fault slow_try_push(struct cpu *cpu, u32 size, u64 value)
{
	u64 offset = (cpu->regs[RSP] - size) & stack_current(cpu).mask;
	struct translation stack;
	gva_t gva, last;
	enum guest_fault fault = cpu_linear(cpu, SS, offset, size, ACCESS_WRITE, &gva);

	if (fault == FAULT_NONE && cpu_misaligned(cpu, gva, size))
		fault = cpu_raise_error(cpu, VEC_AC, 0);
	if (fault == FAULT_NONE)
		fault = mmu_translate(cpu, gva, ACCESS_WRITE, &stack);
	last = cpu_wrap(cpu, gva + size - 1) & PAGE_MASK;
	if (fault == FAULT_NONE && last != (gva & PAGE_MASK))
		fault = mmu_translate(cpu, last, ACCESS_WRITE, &stack);
	if (fault == FAULT_NONE && cpu_follows(cpu, RULE_CALL_PUSHES_FIRST))
		fault = cpu_write(cpu, gva, &value, size, ACCESS_WRITE);
	return fault;
}

/* A near branch goes beyond its segment's limit: #GP(0) on the branch itself (SDM 2A JMP, CALL; 2B
 * RET). pushes: what a call would have pushed. */
u64 slow_beyond(struct cpu *cpu, u64 unused, u32 pushes, const u8 *return_pc)
{
	enum guest_fault fault = FAULT_NONE;
	u64 result = place_leave(cpu, return_pc, FAULT_RAISED, false);

	(void)unused;
	if (pushes)
		fault = slow_try_push(cpu, pushes, cpu->rip + cpu->port.exit.insn_len);
	cpu->engine->leave_fault = fault ? fault : cpu_raise_error(cpu, VEC_GP, 0);
	return result;
}
