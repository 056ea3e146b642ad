// SPDX-License-Identifier: MIT
/*
 * Code that shows the timing model what the guest does, in blocks of a mode that asks for it. In
 * line is only what changes no more than the path or the return stack: accesses to settled lines
 * (timing/first.h), sure branches that went their way (timing/predict.h), returns to
 * the address on the return stack, direct jumps and calls. The rest calls observe.c, from stubs
 * after the block. The path is always up to date: C may leave the block anywhere.
 */
#include "engine/translate/kept_fixup.h"
#include "engine/translate/trans.h"

#define TIMING(field)  (PRIV(timing) + (s32)offsetof(struct timing, field))
#define PREDICT(field) TIMING(predict.field)

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
		.entry = entry, .desc = desc, .from = from, .index = t->index
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

/* The buffers of lines that need no look-up. */
static s32 buffers(const struct trans *t, u32 desc)
{
	return (desc & DESC_WRITE) && cpu_priv(t->cpu)->timing.shared ? TIMING(store_line)
								      : TIMING(data_line);
}

/* The lower half of a register, shifted to the right; its upper bits are undefined. */
static void emit_shifted(struct trans *t, u8 to, u8 from, u8 by)
{
	if (t->eng->has_rorx) {
		emit_insn(&t->e, &(struct enc){ .vex = true,
						.vex_pp = 3,
						.map = MAP_0F3A,
						.opcode = 0xf0, /* RORX */
						.reg = to,
						.rm = from,
						.imm = by,
						.imm_len = 1 });
		return;
	}
	emit_rr(&t->e, false, OP_MOV_LOAD, to, from);
	emit_shift(&t->e, false, SHIFT_SHR, to, by);
}

/* Emits a jump that is taken unless the whole access at the host address in S0 lies on a line that
 * needs no look-up. */
static u8 *other_line(struct trans *t, u32 desc)
{
	u32 size = desc & DESC_SIZE;

	emit_shifted(t, S1, S0, LINE_SHIFT - 3);
	emit_group1(&t->e, false, GROUP_AND, S1, (TIMING_PLACES - 1) << 3);
	emit_rm(&t->e, true, OP_MOV_LOAD, S1, element(S1, 1, buffers(t, desc)));
	emit_rr(&t->e, true, OP_XOR, S1, S0);
	emit_group1(&t->e, true, GROUP_CMP, S1, LINE_SIZE + 1 - size);
	return emit_jcc(&t->e, CC_AE);
}

void emit_observe_entry(struct trans *t)
{
	if (t->mode & MODE_OBSERVE_MEMORY)
		emit_rm(&t->e, false, OP_MOV_STORE, S1, at(PRIV(observed_tlb)));
}

void emit_observe_data(struct trans *t, u32 desc)
{
	u32 size = desc & DESC_SIZE;
	u8 *from;

	if (!(t->mode & MODE_OBSERVE_MEMORY))
		return;
	if ((t->mode & MODE_STEP) || size > LINE_SIZE)
		from = emit_jmp(&t->e);
	else
		from = other_line(t, desc);
	desc |= (u32)cpu_tlb_set(t->mode) << DESC_SET_SHIFT;
	new_stub(t, t->eng->observe_access, desc, from)->back = t->e.p;
}

/* --- instructions --- */

static void fetch_line(struct trans *t, u64 linear, gpa_t physical)
{
	u64 key = timing_code_key(physical);
	s32 buffer = kept_fixup_line_buffer(physical);
	struct observe_stub *stub;

	emit_flags_save(t);
	t->flags = FLAGS_IN_CPU;
	if ((s64)key == (s32)key) {
		emit_insn(&t->e, &(struct enc){ .w = true,
						.opcode = 0x81,
						.reg = GROUP_CMP,
						.is_mem = true,
						.ea = at(buffer),
						.imm = key,
						.imm_len = 4 });
		emit_fixup(&t->e, t->e.p - 8, FIXUP_LINE, kept_fixup_line(physical));
	} else {
		emit_mov_imm(&t->e, S1, key);
		emit_rm(&t->e, true, OP_CMP, S1, at(buffer));
	}
	stub = new_stub(t, t->eng->observe_fetch, step_bit(t), emit_jcc(&t->e, CC_NE));
	stub->back = t->e.p;
	stub->load_arg = true;
	stub->arg = key;
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

static struct observe_stub *branch_stub(struct trans *t, const u8 *entry, u32 desc, u8 *from)
{
	struct observe_stub *stub = new_stub(t, entry, desc, from);

	stub->load_arg = true;
	stub->arg = t->rip;
	return stub;
}

/* An operation of a byte in memory and an immediate one. */
static void on_byte(struct trans *t, u8 ext, s32 offset, u8 imm)
{
	emit_insn(&t->e, &(struct enc){ .opcode = 0x80,
					.reg = ext,
					.is_mem = true,
					.ea = at(offset),
					.imm = imm,
					.imm_len = 1 });
}

/* --- the path --- */

/* path * PATH_FACTOR, into S1. */
static void load_path(struct trans *t)
{
	emit_insn(&t->e, &(struct enc){ .w = true,
					.opcode = 0x69, /* IMUL */
					.reg = S1,
					.is_mem = true,
					.ea = at(PREDICT(path)),
					.imm = PATH_FACTOR,
					.imm_len = 4 });
}

/* From S1. Destroys S0. */
static void store_path(struct trans *t)
{
	emit_rm(&t->e, true, OP_MOV_STORE, S1, at(PREDICT(path)));
	on_byte(t, GROUP_ADD, PREDICT(path_at), 1);
	emit_load_byte(&t->e, S0, at(PREDICT(path_at)));
	emit_rm(&t->e, true, OP_MOV_STORE, S1, element(S0, 8, PREDICT(ring)));
}

static const struct predict_params *predict_params(const struct trans *t)
{
	return cpu_priv(t->cpu)->timing.predict.params;
}

/* The branch at hand goes to a known target, or is of a model that does not ask where. Destroys S0.
 */
static void add_to_path(struct trans *t, u64 target, bool other)
{
	load_path(t);
	emit_group1(&t->e, true, GROUP_ADD, S1,
		    predict_foot(predict_params(t), t->rip, target, other));
	store_path(t);
	if (predict_params(t)->outcomes)
		emit_mov_mem_imm(&t->e, false, at(PREDICT(last)), (s32)t->rip);
}

/* It goes to the target in S0, which stays there. */
static void add_target_to_path(struct trans *t)
{
	emit_rm(&t->e, true, OP_MOV_STORE, S0, at(SPILL(SPILL_TARGET)));
	if (predict_params(t)->outcomes) {
		add_to_path(t, 0, true);
	} else {
		emit_group1(&t->e, false, GROUP_XOR, S0, (s32)predict_hash(t->rip));
		emit_rr(&t->e, true, 0x63, S0, S0); /* MOVSXD */
		load_path(t);
		emit_rr(&t->e, true, OP_ADD, S1, S0);
		store_path(t);
	}
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, at(SPILL(SPILL_TARGET)));
}

/* --- kinds of branches --- */

static void conditional(struct trans *t, bool taken, bool middle)
{
	const u8 *entry = taken ? t->eng->observe_taken : t->eng->observe_not_taken;
	u32 desc = trans_lbr_outcome(t, taken) << OBSERVE_OUTCOME_SHIFT;
	s32 sure = (s32)(predict_place(t->rip) * sizeof(struct sure) + offsetof(struct sure, sure));
	struct observe_stub *stub;

	if (middle && (t->mode & MODE_COUNT_MISSES))
		desc |= OBSERVE_MIDDLE;
	on_byte(t, GROUP_CMP, PREDICT(sure) + sure, taken ? SURE_TAKEN : SURE_NOT_TAKEN);
	stub = branch_stub(t, entry, desc, emit_jcc(&t->e, CC_NE));
	stub->load_s0 = true;
	stub->s0 = trans_branch_target(t);
	if (taken) {
		stub->counted_back = t->e.p;
		stub->left = PREDICT(sure) + (s32)(predict_place(t->rip) * sizeof(struct sure) +
						   offsetof(struct sure, left));
		emit_lbr_outcome(t);
		add_to_path(t, stub->s0, false);
	}
	predicted(t);
	stub->back = t->e.p;
}

bool trans_observe_in_line(const struct trans *t)
{
	return observes_branches(t) && !(t->mode & MODE_STEP);
}

void emit_observe_conditional(struct trans *t, bool taken)
{
	if (observes_branches(t))
		conditional(t, taken, false);
}

void emit_observe_continued(struct trans *t, bool taken)
{
	if (observes_branches(t))
		conditional(t, taken, true);
}

/* The target is in S0, and stays there. */
void emit_observe_indirect(struct trans *t)
{
	s32 sure = (s32)(predict_target_place(t->rip) * sizeof(struct sure_target) +
			 offsetof(struct sure_target, sure));
	struct observe_stub *stub;

	if (!observes_branches(t))
		return;
	emit_rm(&t->e, true, OP_CMP, S0, at(PREDICT(sure_target) + sure));
	stub = branch_stub(t, t->eng->observe_indirect, BRANCH_UNNOTED << OBSERVE_OUTCOME_SHIFT,
			   emit_jcc(&t->e, CC_NE));
	add_target_to_path(t);
	predicted(t);
	stub->back = t->e.p;
}

/* The entry of the return stack whose offset is in S1. */
static struct ea return_at(void)
{
	return element(S1, 1, PREDICT(rsb));
}

/* The oldest entry, if the stack is full, is lost. The new one's offset is in S1. */
static void lose_return(struct trans *t)
{
	u32 entries = predict_params(t)->returns;

	if (entries == RSB_MAX)
		return;
	emit_insn(&t->e, &(struct enc){ .opcode = 0x80, /* SUB AL */
					.reg = GROUP_SUB,
					.rm = S1,
					.imm = entries * sizeof(u64),
					.imm_len = 1 });
	emit_mov_mem_imm(&t->e, true, return_at(), 0);
}

/* The return address has been pushed. Destroys S0. */
void emit_observe_call(struct trans *t)
{
	u64 next = trans_next_rip(t);

	if (!observes_branches(t))
		return;
	on_byte(t, GROUP_ADD, PREDICT(rsb_top), sizeof(u64));
	emit_load_byte(&t->e, S1, at(PREDICT(rsb_top)));
	if ((s64)next == (s32)next) {
		emit_mov_mem_imm(&t->e, true, return_at(), (s32)next);
	} else {
		emit_mov_imm(&t->e, S0, next);
		emit_rm(&t->e, true, OP_MOV_STORE, S0, return_at());
	}
	lose_return(t);
}

void emit_observe_return(struct trans *t)
{
	struct observe_stub *stub;

	if (!observes_branches(t))
		return;
	emit_load_byte(&t->e, S1, at(PREDICT(rsb_top)));
	emit_rm(&t->e, true, OP_CMP, S0, return_at());
	stub = branch_stub(t, t->eng->observe_return, BRANCH_UNNOTED << OBSERVE_OUTCOME_SHIFT,
			   emit_jcc(&t->e, CC_NE));
	emit_mov_mem_imm(&t->e, true, return_at(), 0);
	on_byte(t, GROUP_SUB, PREDICT(rsb_top), sizeof(u64));
	add_target_to_path(t);
	predicted(t);
	stub->back = t->e.p;
}

void emit_observe_jump(struct trans *t)
{
	if (!observes_branches(t))
		return;
	add_to_path(t, trans_branch_target(t), true);
	predicted(t);
}

/* The log of branches is full. */
void emit_observe_log(struct trans *t, u8 *from)
{
	new_stub(t, t->eng->log_full, 0, from)->back = t->e.p;
}

/* --- stubs, after the block's code --- */

/* Full timing: where the instruction is in its block. */
static void emit_ahead(struct trans *t, u32 index)
{
	u32 ticks = 0;

	if (!t->cpu->port.full_timing)
		return;
	for (u32 i = index + 1; i < t->block->ninsns; i++)
		ticks += t->weights[i].ticks;
	emit_mov_mem_imm(&t->e, false, at(PRIV(observed_ahead)),
			 (s32)OBSERVE_AHEAD(ticks, t->block->ninsns - index - 1));
}

/* Of a line in a block that is kept the key has 32 bits: kept_mode(). */
static void emit_arg(struct trans *t, const struct observe_stub *stub)
{
	emit_mov_imm(&t->e, S1, stub->arg);
	if (stub->entry == t->eng->observe_fetch)
		emit_fixup(&t->e, t->e.p - 4, FIXUP_KEY, (stub->arg - 1) % PAGE_LINES);
	emit_rm(&t->e, true, OP_MOV_STORE, S1, at(PRIV(observed_arg)));
}

/* A counted branch goes on, with ZF set, as one that is sure. */
static void emit_counted(struct trans *t, const struct observe_stub *stub)
{
	u8 *none_left;

	on_byte(t, GROUP_CMP, stub->left, 0);
	none_left = emit_jcc(&t->e, CC_E);
	on_byte(t, GROUP_SUB, stub->left, 1);
	emit_rr(&t->e, false, OP_CMP, S1, S1);
	emit_patch(&t->e, emit_jmp(&t->e), stub->counted_back);
	emit_patch(&t->e, none_left, t->e.p);
}

static void emit_stub(struct trans *t, const struct observe_stub *stub)
{
	emit_patch(&t->e, stub->from, t->e.p);
	stub_place(t, stub);
	if (stub->counted_back)
		emit_counted(t, stub);
	emit_ahead(t, stub->index);
	if (stub->load_arg)
		emit_arg(t, stub);
	if (stub->load_s0)
		emit_mov_imm(&t->e, S0, stub->s0);
	emit_mov_imm(&t->e, RAX, stub->desc);
	emit_patch(&t->e, emit_call(&t->e), stub->entry);
	emit_patch(&t->e, emit_jmp(&t->e), stub->back);
}

void emit_observe_stubs(struct trans *t)
{
	for (u32 i = 0; i < t->nobserve_stubs; i++)
		emit_stub(t, &t->observe_stubs[i]);
}
