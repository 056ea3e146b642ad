// SPDX-License-Identifier: MIT
/*
 * Code that shows the timing model what the guest does, in blocks of a mode that asks for it. In
 * line is only what changes no more than a line buffer, the history or the return stack: accesses
 * to the line used last of its set, branches that went the way the model predicted. The rest calls
 * observe.c, from stubs after the block.
 *
 * Conditional branches are modelled completely in line, without a host branch unless mispredictions
 * are counted: what the model cannot predict the host could not either. The outcomes of branches in
 * the middle of a block are known when it is translated, so the history is written where the block
 * is left; C that leaves it elsewhere calls observe_partial_block().
 */
#include "engine/translate/trans.h"

#define TIMING(field) (PRIV(timing) + (s32)offsetof(struct timing, field))

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

/* Emits a jump that is taken unless the whole access at the host address in S0 lies on the line
 * last used in its set. */
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

void emit_observe_data(struct trans *t, u32 desc)
{
	u32 size = desc & DESC_SIZE;
	u8 *from;

	if (!(t->mode & MODE_OBSERVE_MEMORY))
		return;
	emit_rm(&t->e, false, OP_MOV_STORE, S1, at(PRIV(observed_tlb)));
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

	emit_flags_save(t);
	t->flags = FLAGS_IN_CPU;
	emit_mov_imm(&t->e, S1, key);
	emit_rm(&t->e, true, OP_CMP, S1, at(buffer));
	stub = new_stub(t, t->eng->observe_fetch, step_bit(t), emit_jcc(&t->e, CC_NE));
	stub->back = t->e.p;
	stub->arg_in_rax = true;
	stub->load_s0 = true;
	stub->s0 = linear;
}

/* The offset is negative after a backward branch. */
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

/* Shows the lines of the instruction at hand, except one that the previous instruction was on. */
void emit_observe_insn(struct trans *t)
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

/* In blocks of one instruction the model's own note is kept up to date, for samples that describe
 * the instruction. */
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

/* The pattern whose index is in S1. */
static void on_pattern(struct trans *t, u8 opcode, u8 reg, u8 imm)
{
	emit_insn(&t->e, &(struct enc){ .opcode = opcode,
					.reg = reg,
					.is_mem = true,
					.ea = element(S1, 1, TIMING(pattern)),
					.imm = imm,
					.imm_len = 1 });
}

/* Outcomes of branches of this block that are not in the history yet: how many, and their bits. */
struct outcomes {
	u32 n, bits;
};

static void add_outcome(struct outcomes *o, bool taken)
{
	o->bits = timing_history(o->bits, taken);
	o->n++;
}

/* Outcomes of the branches in the middle of the block, up to an instruction. */
static struct outcomes outcomes_before(const struct trans *t, u32 index)
{
	struct outcomes o = { 0 };

	for (u32 i = 0; i < index; i++)
		if (t->places[i].outcome)
			add_outcome(&o, t->places[i].outcome == OUTCOME_TAKEN);
	return o;
}

/* Loads the history into S1: that of the block's head, shifted, plus these outcomes. */
static void load_history(struct trans *t, const struct outcomes *o)
{
	emit_rm(&t->e, false, OP_MOV_LOAD, S1, at(TIMING(history)));
	if (o->n)
		emit_shift(&t->e, false, SHIFT_SHR, S1, o->n);
}

static void write_history(struct trans *t, const struct outcomes *o)
{
	if (!o->n)
		return;
	load_history(t, o);
	if (o->bits)
		emit_group1(&t->e, false, GROUP_OR, S1, (s32)o->bits);
	emit_rm(&t->e, false, OP_MOV_STORE, S1, at(TIMING(history)));
}

/* The index of the instruction's pattern, into S1. */
static void find_pattern(struct trans *t, const struct outcomes *o)
{
	const u32 mask = (u32)MASK(PATTERN_BITS - 1, 0);

	load_history(t, o);
	emit_group1(&t->e, false, GROUP_XOR, S1, (s32)((timing_hash(t->rip) ^ o->bits) & mask));
}

/* Blocks of one instruction: calls C if the model mispredicted. */
static void conditional_alone(struct trans *t, bool taken)
{
	struct outcomes o = { 0 };
	struct observe_stub *stub;

	find_pattern(t, &o);
	on_pattern(t, 0xf6, 0, PATTERN_OTHER); /* TEST */
	stub = branch_stub(t, taken ? OBSERVE_TAKEN : OBSERVE_NOT_TAKEN,
			   emit_jcc(&t->e, taken ? CC_NE : CC_E));
	on_pattern(t, 0xc6, 0, taken ? 0 : PATTERN_MAX); /* predicted: the counter saturates */
	add_outcome(&o, taken);
	write_history(t, &o);
	predicted(t);
	stub->back = t->e.p;
}

/*
 * The index of the pattern is in S1. Decrements or increments it unless it is saturated, which the
 * compare tells in CF. One that becomes 0 predicted the branch to be taken, one that becomes
 * PATTERN_MAX predicted it not to be: ZF, or PF.
 */
static void count_outcome(struct trans *t, bool taken)
{
	on_pattern(t, 0x80, GROUP_CMP, taken ? 1 : PATTERN_MAX);
	on_pattern(t, 0x80, GROUP_ADC, taken ? 0xff : 0);
	if (taken)
		emit_lbr_outcome(t);
}

/* If it was mispredicted, and mispredictions are counted. */
static void if_missed(struct trans *t, bool taken, bool middle)
{
	struct observe_stub *stub;

	if (!(t->mode & MODE_COUNT_MISSES))
		return;
	stub = branch_stub(t, taken ? OBSERVE_TAKEN : OBSERVE_NOT_TAKEN,
			   emit_jcc(&t->e, taken ? CC_NE : CC_NP));
	stub->missed = true;
	stub->middle = middle;
	stub->back = t->e.p;
}

/* The misprediction reached a trip. */
static void missed_at_trip(struct trans *t, const struct observe_stub *stub)
{
	if (!stub->middle) {
		emit_count_trip_reached_at(t, stub->arg);
		emit_patch(&t->e, emit_jmp(&t->e), stub->back);
		return;
	}
	stub_place(t, stub);
	emit_patch(&t->e, emit_call(&t->e), t->eng->observe_trip);
}

static void conditional_missed(struct trans *t, const struct observe_stub *stub)
{
	u8 *trip;

	emit_patch(&t->e, stub->from, t->e.p);
	trip = emit_count_mispredicted(t, stub->desc == OBSERVE_TAKEN);
	emit_patch(&t->e, emit_jmp(&t->e), stub->back);
	if (!trip)
		return;
	emit_patch(&t->e, trip, t->e.p);
	missed_at_trip(t, stub);
}

bool trans_observe_in_line(const struct trans *t)
{
	return observes_branches(t) && !(t->mode & MODE_STEP);
}

void emit_observe_conditional(struct trans *t, bool taken)
{
	struct outcomes o = outcomes_before(t, t->index);

	if (!observes_branches(t))
		return;
	if (!trans_observe_in_line(t)) {
		conditional_alone(t, taken);
		return;
	}
	find_pattern(t, &o);
	count_outcome(t, taken);
	if_missed(t, taken, false);
	add_outcome(&o, taken);
	write_history(t, &o);
}

void emit_observe_continued(struct trans *t, bool taken)
{
	struct outcomes o = outcomes_before(t, t->index);

	if (!observes_branches(t))
		return;
	find_pattern(t, &o);
	count_outcome(t, taken);
	if_missed(t, taken, true);
}

void emit_observe_leave(struct trans *t, u32 index)
{
	struct outcomes o = outcomes_before(t, index);

	write_history(t, &o);
}

/* The target is in S0, and stays there. */
void emit_observe_indirect(struct trans *t)
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

static void move_top(struct trans *t, s32 step)
{
	emit_group1_mem(&t->e, false, GROUP_ADD, at(TIMING(rsb_top)), step);
}

/* The entry of the return stack at the top, which is in S1. */
static struct ea return_at(void)
{
	return element(S1, 1, TIMING(rsb));
}

/* The return address has been pushed. Destroys S0. */
void emit_observe_call(struct trans *t)
{
	u64 next = trans_next_rip(t);

	if (!observes_branches(t))
		return;
	move_top(t, (s32)cpu_priv(t->cpu)->timing.rsb_step);
	emit_load_byte(&t->e, S1, at(TIMING(rsb_top)));
	if ((s64)next == (s32)next) {
		emit_mov_mem_imm(&t->e, true, return_at(), (s32)next);
	} else {
		emit_mov_imm(&t->e, S0, next);
		emit_rm(&t->e, true, OP_MOV_STORE, S0, return_at());
	}
	predicted(t);
}

void emit_observe_return(struct trans *t)
{
	struct observe_stub *stub;

	if (!observes_branches(t))
		return;
	emit_load_byte(&t->e, S1, at(TIMING(rsb_top)));
	emit_rm(&t->e, true, OP_CMP, S0, return_at());
	stub = branch_stub(t, OBSERVE_RETURN, emit_jcc(&t->e, CC_NE));
	move_top(t, -(s32)cpu_priv(t->cpu)->timing.rsb_step);
	predicted(t);
	stub->back = t->e.p;
}

void emit_observe_jump(struct trans *t)
{
	if (observes_branches(t))
		predicted(t);
}

/* The log of branches is full. */
void emit_observe_log(struct trans *t, u8 *from)
{
	new_stub(t, t->eng->log_full, 0, from)->back = t->e.p;
}

/* --- stubs, after the block's code --- */

static void emit_stub(struct trans *t, const struct observe_stub *stub)
{
	emit_patch(&t->e, stub->from, t->e.p);
	stub_place(t, stub);
	if (stub->load_arg)
		emit_mov_imm(&t->e, S1, stub->arg);
	if (stub->load_arg || stub->arg_in_rax)
		emit_rm(&t->e, true, OP_MOV_STORE, S1, at(PRIV(observed_arg)));
	if (stub->load_s0)
		emit_mov_imm(&t->e, S0, stub->s0);
	emit_mov_imm(&t->e, RAX, stub->desc);
	emit_patch(&t->e, emit_call(&t->e), stub->entry);
	emit_patch(&t->e, emit_jmp(&t->e), stub->back);
}

void emit_observe_stubs(struct trans *t)
{
	for (u32 i = 0; i < t->nobserve_stubs; i++) {
		const struct observe_stub *stub = &t->observe_stubs[i];

		if (stub->missed)
			conditional_missed(t, stub);
		else
			emit_stub(t, stub);
	}
}
