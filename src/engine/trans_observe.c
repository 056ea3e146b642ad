// SPDX-License-Identifier: MIT
/*
 * Code that shows the timing model what the guest does, in blocks of a mode that asks for it. In
 * line is only what changes nothing but a line buffer's, a history's or a stack's idea of what came
 * last: accesses to the line used last of its set, branches that went the way the model said. The
 * rest calls observe.c from behind the block, but for conditional branches.
 */
#include "engine/trans.h"

#define TIMING(field) (CPU(timing) + (s32)offsetof(struct timing, field))

static struct ea at(s32 offset)
{
	return ea_base(RSP, offset);
}

/* An element of an array in struct timing, by an index register. */
static struct ea element(u8 index, u8 scale, s32 array)
{
	return (struct ea){ .base = RSP, .index = index, .scale = scale, .disp = array };
}

static struct observe_stub *new_stub(struct trans *t, const u8 *entry, u32 desc, u8 *from)
{
	struct observe_stub *stub = &t->observe_stubs[t->nobserve_stubs++];

	*stub = (struct observe_stub){
		.entry = entry, .desc = desc, .from = from, .arg_in_rax = false, .index = t->index
	};
	return stub;
}

/* What follows is code of the stub's instruction. */
static void stub_place(struct trans *t, const struct observe_stub *stub)
{
	const struct place *place = &t->places[stub->index];

	t->places[t->nplaces++] = (struct place){ .host = t->e.p - t->block->code,
						  .guest = place->guest,
						  .next = place->next,
						  .len = place->len,
						  .index = stub->index };
}

static u32 step_bit(const struct trans *t)
{
	return t->mode & MODE_STEP ? DESC_STEP : 0;
}

/* --- data --- */

/* Is the host address in S0, with the whole access, on the line that its set used last? */
static u8 *other_line(struct trans *t, u32 size)
{
	emit_rr(&t->e, false, OP_MOV_LOAD, S1, S0);
	emit_shift(&t->e, false, SHIFT_SHR, S1, LINE_SHIFT - 3);
	emit_group1(&t->e, false, GROUP_AND, S1, (TIMING_LINES - 1) << 3);
	emit_rm(&t->e, true, OP_MOV_LOAD, S1, element(S1, 1, TIMING(data_line)));
	emit_rr(&t->e, true, OP_XOR, S1, S0);
	emit_group1(&t->e, true, GROUP_CMP, S1, LINE_SIZE + 1 - size);
	return emit_jcc(&t->e, CC_AE);
}

void observe_data(struct trans *t, u32 desc)
{
	u32 size = desc & DESC_SIZE;
	u8 *from;

	if (!(t->mode & MODE_OBSERVE_MEMORY))
		return;
	emit_rm(&t->e, false, OP_MOV_STORE, S1, at(CPU(observed_tlb)));
	if ((t->mode & MODE_STEP) || size > LINE_SIZE)
		from = emit_jmp(&t->e);
	else
		from = other_line(t, size);
	desc |= (u32)cpu_tlb_set(t->mode) << DESC_SET_SHIFT;
	new_stub(t, t->eng->observe_access, desc, from)->back = t->e.p;
}

/* --- instructions --- */

static void fetch_line(struct trans *t, u64 linear, gpa_t physical)
{
	u64 key = timing_code_key(physical);
	s32 buffer = TIMING(code_line) + 8 * (s32)timing_set(physical);
	struct observe_stub *stub;

	flags_save(t);
	t->flags = FLAGS_IN_CPU;
	emit_mov_imm(&t->e, S1, key);
	emit_rm(&t->e, true, OP_CMP, S1, at(buffer));
	stub = new_stub(t, t->eng->observe_fetch, step_bit(t), emit_jcc(&t->e, CC_NE));
	stub->back = t->e.p;
	stub->arg_in_rax = true;
	stub->load_s0 = true;
	stub->s0 = linear;
}

/* The offset is negative behind a branch back. */
static gpa_t physical_of(const struct trans *t, s32 offset)
{
	u32 at = (t->block->gpa & ~PAGE_MASK) + offset;

	return at < PAGE_SIZE ? (t->block->gpa & PAGE_MASK) + at
			      : t->block->gpa2 + (at - PAGE_SIZE);
}

static u64 linear_at(const struct trans *t, s32 offset)
{
	u64 linear = t->linear_base + t->block->rip + offset;

	return t->mode & MODE_CODE64 ? linear : (u32)linear;
}

/* The lines of the instruction at hand, but for the one that the instruction before it was on. */
void observe_insn(struct trans *t)
{
	s32 end = t->offset + t->insn.len;

	if (!(t->mode & MODE_OBSERVE_MEMORY))
		return;
	for (s32 offset = t->offset; offset < end;) {
		gpa_t physical = physical_of(t, offset), line = physical & ~(u64)(LINE_SIZE - 1);

		if (line != t->observed_line)
			fetch_line(t, linear_at(t, offset), physical);
		t->observed_line = line;
		offset += LINE_SIZE - (s32)(physical & (LINE_SIZE - 1));
	}
}

/* --- branches --- */

static bool observes_branches(const struct trans *t)
{
	return t->mode & MODE_OBSERVE_BRANCHES;
}

/* One at a time the model's own note is kept up, for whoever describes the instruction. */
static void predicted(struct trans *t)
{
	if (t->mode & MODE_STEP)
		emit_insn(&t->e, &(struct enc){ .opcode = 0xc6,
						.is_mem = true,
						.ea = at(TIMING(seen.mispredicted)),
						.imm_len = 1 });
}

static struct observe_stub *branch_stub(struct trans *t, enum observe_kind kind, u8 *from)
{
	struct observe_stub *stub = new_stub(t, t->eng->observe_branch, kind, from);

	stub->load_arg = true;
	stub->arg = t->rip;
	return stub;
}

/* The counter of the pattern whose index is in S0. */
static void on_pattern(struct trans *t, u8 opcode, u8 reg, u8 imm_len, s8 imm)
{
	emit_insn(&t->e, &(struct enc){ .opcode = opcode,
					.reg = reg,
					.is_mem = true,
					.ea = element(S0, 1, TIMING(pattern)),
					.imm = (u8)imm,
					.imm_len = imm_len });
}

/* It is in S1. */
static void add_to_history(struct trans *t, bool taken)
{
	emit_rm(&t->e, false, OP_LEA, S1,
		(struct ea){ .base = S1, .index = S1, .scale = 1, .disp = taken });
	emit_rm(&t->e, false, OP_MOV_STORE, S1, at(TIMING(history)));
}

/* On one way out of a conditional branch. */
void observe_conditional(struct trans *t, bool taken)
{
	struct observe_stub *stub;

	if (!observes_branches(t))
		return;
	emit_rm(&t->e, false, OP_MOV_LOAD, S1, at(TIMING(history)));
	emit_rr(&t->e, false, OP_MOV_LOAD, S0, S1);
	emit_group1(&t->e, false, GROUP_XOR, S0, (s32)timing_hash(t->rip));
	emit_group1(&t->e, false, GROUP_AND, S0, (s32)MASK(PATTERN_BITS - 1, 0));
	on_pattern(t, 0x80, GROUP_CMP, 1, 0);
	stub = branch_stub(t, taken ? OBSERVE_TAKEN : OBSERVE_NOT_TAKEN,
			   emit_jcc(&t->e, taken ? CC_S : CC_NS));
	stub->alone = !(t->mode & MODE_STEP);
	stub->middle = t->scan[t->at].through && taken == t->scan[t->at].inverted;
	on_pattern(t, 0xc6, 0, 1, taken ? 1 : -2); /* right: sure of it now */
	add_to_history(t, taken);
	predicted(t);
	stub->back = t->e.p;
}

/* That has reached a trip. */
static void missed_at_trip(struct trans *t, const struct observe_stub *stub)
{
	if (!stub->middle) {
		count_reached(t, stub->arg);
		emit_patch(&t->e, emit_jmp(&t->e), stub->back);
		return;
	}
	stub_place(t, stub);
	emit_patch(&t->e, emit_call(&t->e), t->eng->observe_trip);
}

/* It went the other way. */
static void conditional_missed(struct trans *t, const struct observe_stub *stub)
{
	bool taken = stub->desc == OBSERVE_TAKEN;
	u8 *trip;

	emit_patch(&t->e, stub->from, t->e.p);
	on_pattern(t, 0xfe, taken ? 0 : 1, 0, 0); /* INC, DEC */
	add_to_history(t, taken);
	if (taken && (t->mode & MODE_LBR))
		lbr_note_miss(t, stub->arg);
	trip = count_missed(t, taken);
	emit_patch(&t->e, emit_jmp(&t->e), stub->back);
	if (!trip)
		return;
	emit_patch(&t->e, trip, t->e.p);
	missed_at_trip(t, stub);
}

/* The target is in S0, and stays there. */
void observe_indirect(struct trans *t)
{
	struct observe_stub *stub;

	if (!observes_branches(t))
		return;
	emit_rm(&t->e, false, OP_MOV_LOAD, S1, at(TIMING(path)));
	emit_group1(&t->e, false, GROUP_XOR, S1, (s32)timing_hash(t->rip));
	emit_group1(&t->e, false, GROUP_AND, S1, (s32)MASK(TARGET_BITS - 1, 0));
	emit_rm(&t->e, true, OP_CMP, S0, element(S1, 8, TIMING(target)));
	stub = branch_stub(t, OBSERVE_INDIRECT, emit_jcc(&t->e, CC_NE));
	emit_rm(&t->e, false, OP_MOV_LOAD, S1, at(TIMING(path)));
	emit_shift(&t->e, false, SHIFT_SHL, S1, 2);
	emit_rr(&t->e, false, OP_XOR, S1, S0);
	emit_rm(&t->e, false, OP_MOV_STORE, S1, at(TIMING(path)));
	predicted(t);
	stub->back = t->e.p;
}

static void move_top(struct trans *t, s32 delta)
{
	emit_group1(&t->e, false, GROUP_ADD, S1, delta);
	emit_group1(&t->e, false, GROUP_AND, S1, (s32)t->cpu->timing.rsb_mask);
	emit_rm(&t->e, false, OP_MOV_STORE, S1, at(TIMING(rsb_top)));
}

/* The return address has been pushed. Destroys S0. */
void observe_call(struct trans *t)
{
	if (!observes_branches(t))
		return;
	emit_rm(&t->e, false, OP_MOV_LOAD, S1, at(TIMING(rsb_top)));
	move_top(t, 1);
	emit_mov_imm(&t->e, S0, trans_next_rip(t));
	emit_rm(&t->e, true, OP_MOV_STORE, S0, element(S1, 8, TIMING(rsb)));
	predicted(t);
}

void observe_return(struct trans *t)
{
	struct observe_stub *stub;

	if (!observes_branches(t))
		return;
	emit_rm(&t->e, false, OP_MOV_LOAD, S1, at(TIMING(rsb_top)));
	emit_rm(&t->e, true, OP_CMP, S0, element(S1, 8, TIMING(rsb)));
	stub = branch_stub(t, OBSERVE_RETURN, emit_jcc(&t->e, CC_NE));
	move_top(t, -1);
	predicted(t);
	stub->back = t->e.p;
}

void observe_jump(struct trans *t)
{
	if (observes_branches(t))
		predicted(t);
}

/* The log of branches is full. */
void observe_log(struct trans *t, u8 *from)
{
	new_stub(t, t->eng->log_full, 0, from)->back = t->e.p;
}

/* --- behind the block --- */

static void emit_stub(struct trans *t, const struct observe_stub *stub)
{
	emit_patch(&t->e, stub->from, t->e.p);
	stub_place(t, stub);
	if (stub->load_arg)
		emit_mov_imm(&t->e, S1, stub->arg);
	if (stub->load_arg || stub->arg_in_rax)
		emit_rm(&t->e, true, OP_MOV_STORE, S1, at(CPU(observed_arg)));
	if (stub->load_s0)
		emit_mov_imm(&t->e, S0, stub->s0);
	emit_mov_imm(&t->e, RAX, stub->desc);
	emit_patch(&t->e, emit_call(&t->e), stub->entry);
	emit_patch(&t->e, emit_jmp(&t->e), stub->back);
}

void observe_emit_stubs(struct trans *t)
{
	for (u32 i = 0; i < t->nobserve_stubs; i++) {
		const struct observe_stub *stub = &t->observe_stubs[i];

		if (stub->alone)
			conditional_missed(t, stub);
		else
			emit_stub(t, stub);
	}
}
