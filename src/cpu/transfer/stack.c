// SPDX-License-Identifier: MIT
/*
 * Frames on stacks (SDM 1 6.2; SDM 3A 5.8.5): address size, limits of expand-up and expand-down
 * segments, 16-bit stack pointers that wrap. vCPU thread; general registers only.
 */
#include "cpu/transfer/stack.h"

#include "base/must.h"
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "x86/descriptor.h"

u64 stack_mask(bool code64, const struct segment *ss)
{
	if (code64)
		return STACK_MASK64;
	return ss->attr & SEG_DB ? 0xffffffff : 0xffff;
}

struct stack stack_current(const struct cpu *cpu)
{
	return (struct stack){
		.seg = cpu->seg[SS],
		.sp = cpu->regs[RSP],
		.mask = stack_mask(cpu_code64(cpu), &cpu->seg[SS]),
	};
}

struct stack stack_switch64(u64 rsp, u32 error)
{
	return (struct stack){
		.sp = rsp,
		.mask = STACK_MASK64,
		.access = ACCESS_SYSTEM,
		.error = error,
	};
}

struct stack stack_switch(const struct segment *seg, u64 sp, u32 error)
{
	return (struct stack){
		.seg = *seg,
		.sp = sp,
		.mask = stack_mask(false, seg),
		.access = ACCESS_SYSTEM,
		.error = error,
	};
}

static enum guest_fault linear(struct cpu *cpu, const struct stack *s, u64 off, u32 size,
			       gva_t *gva)
{
	bool ok;

	if (s->mask == STACK_MASK64)
		ok = cpu_canonical(cpu, off) && cpu_canonical(cpu, off + size - 1);
	else
		ok = !(s->seg.attr & SEG_UNUSABLE) && cpu_limit_allows(cpu, &s->seg, off, size);
	*gva = s->mask == STACK_MASK64 ? off : (u32)(s->seg.base + off);
	return ok ? FAULT_NONE : cpu_raise_error(cpu, VEC_SS, s->error);
}

/* Reads elements that lie together; their alignment is that of one. */
static enum guest_fault read_run(struct cpu *cpu, const struct stack *s, u64 off, u8 *buf, u32 size,
				 u32 width)
{
	enum guest_fault fault;
	gva_t gva;

	fault = linear(cpu, s, off, size, &gva);
	if (fault)
		return fault;
	if (!(s->access & ACCESS_SYSTEM) && cpu_misaligned(cpu, gva, width))
		return cpu_raise_error(cpu, VEC_AC, 0);
	return cpu_read(cpu, gva, buf, size, s->access | ACCESS_UNALIGNED);
}

/* One access, unless the stack pointer wraps within the frame. */
static enum guest_fault read_frame(struct cpu *cpu, const struct stack *s, u8 *buf, u32 size,
				   u32 width)
{
	u64 off = s->sp & s->mask;
	enum guest_fault fault = FAULT_NONE;

	if (off <= off + size - 1 && off + size - 1 <= s->mask)
		return read_run(cpu, s, off, buf, size, width);
	for (u32 i = 0; i < size && !fault; i += width)
		fault = read_run(cpu, s, (off + i) & s->mask, buf + i, width, width);
	return fault;
}

enum guest_fault stack_room(struct cpu *cpu, const struct stack *s, u32 size)
{
	u64 off = (s->sp - size) & s->mask;
	gva_t gva;

	/* A frame that wraps is checked piece by piece when it is pushed. */
	if (off > off + size - 1 || off + size - 1 > s->mask)
		return FAULT_NONE;
	return linear(cpu, s, off, size, &gva);
}

enum guest_fault stack_push(struct cpu *cpu, struct stack *s, const u64 *values, u32 n, u32 width)
{
	u64 sp = s->sp;

	for (u32 i = 0; i < n; i++) {
		enum guest_fault fault;
		gva_t gva;

		sp -= width;
		fault = linear(cpu, s, sp & s->mask, width, &gva);
		if (!fault)
			fault = cpu_write(cpu, gva, &values[i], width, s->access | ACCESS_WRITE);
		if (fault)
			return fault;
	}
	s->sp = sp;
	return FAULT_NONE;
}

enum guest_fault stack_pop(struct cpu *cpu, struct stack *s, u64 *values, u32 n, u32 width)
{
	u8 frame[FRAME_MAX * 8];
	u32 size = n * width;
	enum guest_fault fault;

	must(n <= FRAME_MAX);
	if (width == 8) {
		fault = read_frame(cpu, s, (u8 *)values, size, width);
		s->sp += fault ? 0 : size;
		return fault;
	}
	fault = read_frame(cpu, s, frame, size, width);
	if (fault)
		return fault;
	for (u32 i = 0; i < n; i++)
		values[i] = 0;
	for (u32 i = 0; i < size; i++)
		values[i / width] |= (u64)frame[i] << i % width * 8;
	s->sp += size;
	return FAULT_NONE;
}

void stack_skip(struct stack *s, u32 size)
{
	s->sp += size;
}

void stack_store(struct cpu *cpu, const struct stack *s)
{
	/* Writing ESP clears the upper half of RSP; writing SP keeps the rest. */
	if (s->mask == 0xffff)
		cpu->regs[RSP] = (cpu->regs[RSP] & ~0xffffull) | (s->sp & 0xffff);
	else
		cpu->regs[RSP] = s->sp & s->mask;
}
