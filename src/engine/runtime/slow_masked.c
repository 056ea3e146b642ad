// SPDX-License-Identifier: MIT
/*
 * The slow path of a memory operand under an opmask: elements that the mask leaves out are not
 * accessed and do not fault (SDM 2A 2.7.6). What is accessed is the span from the first selected
 * element to the last one, an access as slow_access.c knows it. Around it the host suppresses
 * faults itself: the instruction is given the address at which its whole operand would be. In the
 * bounce buffer and from there only the selected elements are moved.
 *
 * vCPU thread, guest vector state live: general registers only.
 */
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "engine/priv.h"
#include "engine/slow.h"

struct selection {
	u64 selected; /* a bit for each element from the first of the span */
	u32 element;  /* of one, in bytes */
	u32 offset;   /* of the span in the operand */
	u32 size;     /* of the span; 0: nothing is accessed */
	bool whole;   /* the span is all of the operand, whatever is selected */
};

static u64 low_bits(u32 n)
{
	return n < 64 ? BIT(n) - 1 : ~0ull;
}

/* As many bits from the lowest as the mask has anywhere. */
static u64 packed_bits(u64 mask)
{
	u64 packed = 0;

	for (; mask; mask &= mask - 1)
		packed = packed << 1 | 1;
	return packed;
}

static u64 selected_elements(u64 mask, u32 shape)
{
	u32 bits = shape >> SHAPE_BITS_SHIFT & 0xff,
	    elements = shape >> SHAPE_ELEMENTS_SHIFT & 0xff;
	u64 selected = 0;

	mask &= low_bits(bits);
	if (shape & SHAPE_PACKED)
		return packed_bits(mask);
	for (u32 i = 0; i < bits; i += elements)
		selected |= mask >> i & low_bits(elements);
	return selected;
}

static struct selection selection_of(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	u32 shape = priv->spill[SPILL_SHAPE];
	u64 selected = selected_elements(priv->spill[SPILL_MASK], shape);
	struct selection s = { .selected = selected,
			       .element = shape & SHAPE_SIZE,
			       .whole = shape & SHAPE_WHOLE };
	u32 first, last;

	if (s.whole) {
		s.size = (shape >> SHAPE_ELEMENTS_SHIFT & 0xff) * s.element;
	} else if (selected) {
		first = __builtin_ctzll(selected);
		last = 63 - __builtin_clzll(selected);
		s.selected >>= first;
		s.offset = first * s.element;
		s.size = (last + 1 - first) * s.element;
	}
	return s;
}

/* Where in the span the first selected byte on its second page is; `part` bytes are on
 * the first. */
static u32 first_on_second_page(const struct selection *s, u32 part)
{
	u32 i = part / s->element;

	while (!(s->selected >> i & 1))
		i++;
	return i * s->element > part ? i * s->element : part;
}

/*
 * Which address a fault of the second page reports. With RULE_VMASKMOV_AS_ONE it is the last byte
 * if it is a store.
 */
static enum guest_fault probe(struct cpu *cpu, const struct selection *s, gva_t gva, u32 access)
{
	u32 part = PAGE_SIZE - (gva & ~PAGE_MASK), second;
	struct translation t;
	enum guest_fault fault = mmu_translate(cpu, gva, access, &t);

	if (fault != FAULT_NONE || s->size <= part)
		return fault;
	second = (access & ACCESS_WRITE) && cpu_follows(cpu, RULE_VMASKMOV_AS_ONE)
			 ? s->size - 1
			 : first_on_second_page(s, part);
	return mmu_translate(cpu, cpu_wrap(cpu, gva + second), access, &t);
}

/* The bounce buffer stands for memory that is not touched. */
static u64 access_nothing(struct cpu *cpu, u64 address)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	priv->spill[SPILL_HOST] = (u64)(uintptr_t)(priv->bounce + 64 + (address & 63));
	return SLOW_DIRECT;
}

static enum guest_fault check(struct cpu *cpu, const struct selection *s, u64 address, u32 desc,
			      u32 access, gva_t *gva)
{
	u32 span = (desc & ~DESC_SIZE) | s->size;
	enum guest_fault fault;

	if (slow_vector_misaligned(address, desc))
		return cpu_raise_error(cpu, VEC_GP, 0);
	fault = slow_linear(cpu, address + s->offset, span, access, gva);
	if (fault == FAULT_NONE && !(desc & DESC_UNALIGNED) &&
	    cpu_misaligned(cpu, *gva - s->offset, desc & DESC_SIZE))
		fault = cpu_raise_error(cpu, VEC_AC, 0);
	return fault == FAULT_NONE && !s->whole ? probe(cpu, s, *gva, access) : fault;
}

u64 slow_masked_access(struct cpu *cpu, u64 address, u32 desc, const u8 *return_pc)
{
	u32 access = desc & DESC_WRITE ? ACCESS_WRITE : 0;
	struct selection s = selection_of(cpu);
	enum guest_fault fault;
	gva_t gva;
	u64 result;

	if (!s.size)
		return access_nothing(cpu, address);
	fault = check(cpu, &s, address, desc, access, &gva);
	if (fault != FAULT_NONE)
		return slow_fault_access(cpu, fault, address, desc, return_pc);
	result = slow_span(cpu, gva, (desc & ~DESC_SIZE) | s.size, access, return_pc);
	cpu_priv(cpu)->spill[SPILL_HOST] -= s.offset;
	return result;
}

void slow_masked_select(const struct cpu *cpu, struct slow_state *pending)
{
	struct selection s = selection_of(cpu);

	pending->selected = s.selected;
	pending->element = s.element;
}

/* The next contiguous run of selected elements from *i on: its length in bytes, 0 at the end. */
static u32 next_run(const struct slow_state *pending, u32 *i)
{
	u32 n = 0;

	while (*i < 64 && !(pending->selected >> *i & 1))
		++*i;
	while (*i + n < 64 && (pending->selected >> (*i + n) & 1))
		n++;
	return n * pending->element;
}

/* Between guest memory and the bounce buffer. */
static enum guest_fault move_selected(struct cpu *cpu, bool store, u32 access)
{
	const struct slow_state *pending = &cpu->engine->pending;
	enum guest_fault fault = FAULT_NONE;
	u32 size;

	for (u32 i = 0; !fault && (size = next_run(pending, &i)) != 0;
	     i += size / pending->element) {
		u32 at = i * pending->element;
		u8 *data = pending->data + at;

		fault = store ? cpu_write_at(cpu, &pending->span, at, data, size, access)
			      : cpu_read_at(cpu, &pending->span, at, data, size, access);
	}
	return fault;
}

enum guest_fault slow_masked_read(struct cpu *cpu, u32 access)
{
	return move_selected(cpu, false, access);
}

enum guest_fault slow_masked_write(struct cpu *cpu)
{
	return move_selected(cpu, true, ACCESS_UNALIGNED);
}

void slow_masked_watch(struct cpu *cpu, gva_t gva, u32 access)
{
	struct slow_state state = { 0 };
	u32 size;

	slow_masked_select(cpu, &state);
	for (u32 i = 0; (size = next_run(&state, &i)) != 0; i += size / state.element)
		cpu_watch(cpu, cpu_wrap(cpu, gva + i * state.element), size, access);
}
