// SPDX-License-Identifier: MIT
/*
 * Control transfers within a segment, and the ways out of a block. A known target is linked
 * directly once its block exists. In the block's own page that holds as long as both do; elsewhere
 * a guard compares mappings, so that a change of them needs to drop no links. Other targets
 * go through the jump cache.
 */
#include "cpu/mmu/mmu.h"
#include "cpu/mmu/tlb.h"
#include "engine/jump_cache.h"
#include "engine/translate/trans.h"

static void set_rip(struct trans *t, u64 rip)
{
	emit_mov_imm(&t->e, S0, rip);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, ea_base(RSP, CPU(rip)));
}

static void leave_with(struct trans *t, enum leave why)
{
	emit_mov_imm(&t->e, RAX, why);
	emit_patch(&t->e, emit_jmp(&t->e), t->eng->leave);
}

static void set_arg(struct trans *t, u64 arg)
{
	emit_mov_imm(&t->e, S0, arg);
	trans_note_pointer(t, arg);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, ea_base(RSP, SPILL(SPILL_ARG)));
}

static void leave_from_block(struct trans *t, enum leave why)
{
	set_arg(t, (u64)(uintptr_t)t->block);
	leave_with(t, why);
}

void emit_block_leave(struct trans *t, enum leave why, u64 arg, u64 rip)
{
	set_rip(t, rip);
	set_arg(t, arg);
	leave_with(t, why);
}

void emit_block_leave_with(struct trans *t, const u8 *thunk)
{
	emit_mov_imm(&t->e, RAX, meta_offset(t, t->block));
	emit_fixup(&t->e, t->e.p - 4, FIXUP_BLOCK32, 0);
	emit_patch(&t->e, emit_jmp(&t->e), thunk);
}

/* In non-flat code several RIPs have one linear address: only the dispatcher can tell
 * them apart. */
static bool jump_cache_usable(const struct trans *t)
{
	return jump_usable(t->mode) && (t->mode & (MODE_CODE64 | MODE_FLAT));
}

/* The target is in S0. */
static void leave_to_target(struct trans *t, enum leave why)
{
	emit_rm(&t->e, true, OP_MOV_STORE, S0, ea_base(RSP, CPU(rip)));
	leave_from_block(t, why);
}

void emit_block_end_indirect(struct trans *t)
{
	if (t->mode & MODE_STEP) {
		leave_to_target(t, LEAVE_STEP);
		return;
	}
	if (!jump_cache_usable(t) || t->mode != t->block->mode) {
		leave_to_target(t, LEAVE_LOOKUP);
		return;
	}
	t->jump_lookups[t->njump_lookups++] = emit_jump_lookup(&t->e, t->eng);
}

/* The misses of all jump-cache look-ups of the block. */
void emit_misses(struct trans *t)
{
	if (!t->njump_lookups)
		return;
	emit_jump_lookup_missed(&t->e, t->jump_lookups, t->njump_lookups);
	emit_block_leave_with(t, t->eng->jump_missed);
}

/* May an instruction that starts here cross into the next page? */
static bool may_cross(u64 linear)
{
	return (linear & ~PAGE_MASK) > PAGE_SIZE - INSN_MAX;
}

static bool linkable(const struct trans *t, u64 target)
{
	u64 from = t->linear_base + t->block->rip, to = t->linear_base + target;

	return !(t->mode & MODE_STEP) && t->mode == t->block->mode &&
	       !trans_branch_beyond(t, target) && (from & PAGE_MASK) == (to & PAGE_MASK) &&
	       !may_cross(to);
}

static bool linkable_guarded(const struct trans *t)
{
	return (t->mode & MODE_CODE64) && jump_usable(t->mode) && t->mode == t->block->mode;
}

void emit_block_link(struct trans *t, u64 target, u8 *site, bool apart)
{
	struct link *link = trans_new_link(&t->links[t->nlinks++], target);

	link->site = site;
	link->unshared = apart;
}

static struct ea mapped(const struct trans *t, u64 target)
{
	s32 space = mode_space(t->mode) * sizeof(struct mapped_pages);

	return ea_base(RSP, PRIV(mapped) + space + 4 * (s32)mapped_place(target));
}

/* Where a link leads while it has no target: this, and a jump. The link's address is filled in when
 * it is allocated. */
static u8 *begin_link_stub(struct trans *t)
{
	u8 *stub = t->e.p;

	emit_u8(&t->e, 0xb8); /* MOV EAX, imm32 */
	emit_u32(&t->e, 0);
	return stub;
}

/* Guards of new processes fail, and the link is not in the host's caches: the target is in the
 * code. */
static void end_guarded(struct trans *t, u64 target)
{
	struct link *link = trans_new_link(&t->links[t->nlinks++], target);

	emit_insn(&t->e, &(struct enc){ .opcode = 0x81,
					.reg = GROUP_CMP,
					.is_mem = true,
					.ea = mapped(t, target),
					.imm_len = 4 });
	link->guard = t->e.p - 4;
	link->site = emit_jcc(&t->e, CC_E);
	link->stub = begin_link_stub(t);
	emit_mov_imm(&t->e, S0, target);
	emit_patch(&t->e, emit_jmp(&t->e), t->eng->guard_failed);
}

void emit_block_end_direct(struct trans *t, u64 target)
{
	if (linkable(t, target)) {
		emit_block_link(t, target, emit_jmp(&t->e), false);
		return;
	}
	if (linkable_guarded(t)) {
		end_guarded(t, target);
		return;
	}
	emit_mov_imm(&t->e, S0, target);
	emit_block_end_indirect(t);
}

/* The links live as long as the block; stubs of links that need none in line follow its code. */
bool emit_links(struct trans *t)
{
	struct block *b = t->block;

	b->nlinks = t->nlinks;
	b->link = cache_alloc(t->eng, t->nlinks * sizeof(*b->link));
	for (u32 i = 0; b->link && i < b->nlinks; i++) {
		struct link *link = &b->link[i];

		*link = t->links[i];
		*link_misses(t->eng, link) = 0;
		if (!link->guard) {
			link->stub = begin_link_stub(t);
			emit_patch(&t->e, emit_jmp(&t->e), t->eng->leave_with[LEAVE_LINK]);
		}
		emit_patch(&t->e, link->site, link->stub);
		if (!t->e.full)
			*(u32_unaligned *)(link->stub + 1) = meta_offset(t, link);
		emit_fixup(&t->e, link->stub + 1, FIXUP_LINK32, i);
	}
	return b->link;
}

static u64 wrap_target(const struct trans *t, u64 target)
{
	if (t->mode & MODE_CODE64)
		return target;
	return t->insn.opsize == 2 ? (u16)target : (u32)target;
}

u64 trans_branch_target(const struct trans *t)
{
	return wrap_target(t, trans_next_rip(t) + t->insn.ops[0].imm);
}

/* --- the segment's limit, and canonical addresses --- */

bool trans_branch_beyond(const struct trans *t, u64 target)
{
	if (t->mode & MODE_CODE64)
		return !cpu_canonical(t->cpu, target);
	return target > t->block->limit;
}

/* RCX, ECX or CX, of LOOP. May destroy the flags. */
static void move_counter(struct trans *t, s32 step)
{
	if (t->insn.addrsize == 2)
		emit_insn(&t->e,
			  &(struct enc){ .p66 = true, .opcode = 0xff, .reg = step < 0, .rm = RCX });
	else
		emit_rm(&t->e, t->insn.addrsize == 8, OP_LEA, RCX, ea_base(RCX, step));
}

/* The branch at hand faults; the flags were saved. */
static void refuse(struct trans *t)
{
	bool call = t->insn.id == INSN_CALL;

	if (insn_facts(&t->insn)->counts_down)
		move_counter(t, 1);
	emit_mov_imm(&t->e, RAX, call ? t->insn.opsize : 0);
	emit_patch(&t->e, emit_call(&t->e), t->eng->beyond_limit);
}

/* Leaves the block if the target in S0 is beyond the code segment's limit; not in 64-bit code. */
static void refuse_beyond(struct trans *t)
{
	u8 *good;

	if (t->block->limit == ~0u)
		return;
	emit_group1(&t->e, false, GROUP_CMP, S0, (s32)t->block->limit);
	good = emit_jcc(&t->e, CC_BE);
	refuse(t);
	emit_patch(&t->e, good, t->e.p);
}

static void taken_path(struct trans *t, u64 target)
{
	if (trans_branch_beyond(t, target)) {
		refuse(t);
		return;
	}
	emit_count_fix_direction(t, true);
	emit_observe_conditional(t, true);
	emit_lbr_record_direct(t, BRANCH_JCC, target);
	emit_block_end_direct(t, target);
}

static void not_taken_path(struct trans *t)
{
	emit_count_fix_direction(t, false);
	emit_observe_conditional(t, false);
	emit_lbr_leave(t, t->index);
	emit_block_end_direct(t, trans_next_rip(t));
}

/* The condition holds: jump to the target; else to the next instruction. */
static void end_conditional(struct trans *t, u8 cc, u64 target)
{
	u8 *taken = emit_jcc(&t->e, cc);

	if (linkable(t, target) && !(t->mode & (MODE_OBSERVE_BRANCHES | MODE_LBR)) &&
	    !trans_count_needs_fix(t, true)) {
		emit_block_link(t, target, taken, false);
		emit_count_fix_direction(t, false);
		emit_block_end_direct(t, trans_next_rip(t));
		return;
	}
	not_taken_path(t);
	emit_patch(&t->e, taken, t->e.p);
	taken_path(t, target);
}

/* A branch in the middle of a block that the timing model or the branch records observe: the flags
 * are kept, all of them if the block may end there, else those that the next instruction needs. */
static bool looked_at(struct trans *t, enum branch_kind kind)
{
	if (!(t->mode & MODE_OBSERVE_BRANCHES) && !trans_lbr_looks(t))
		return false;
	if (kind == BRANCH_JCC && (t->mode & MODE_COUNT_MISSES))
		emit_flags_save(t);
	t->at += t->at + 1 < t->nscan;
	emit_flags_keep(t);
	t->at = t->index;
	t->s0_group = NO_GROUP; /* S0 was */
	return true;
}

static void follow_conditional(struct trans *t, bool taken)
{
	if (!looked_at(t, BRANCH_JCC))
		return;
	emit_observe_continued(t, taken);
	if (taken)
		emit_lbr_record_continued(t, BRANCH_JCC);
}

static void follow_direct(struct trans *t, enum branch_kind kind)
{
	if (!looked_at(t, kind))
		return;
	if (kind == BRANCH_REL_CALL)
		emit_observe_call(t);
	emit_observe_jump(t);
	emit_lbr_record_continued(t, kind);
}

/* A conditional branch in the middle of a block: a side exit if it goes the other way. */
static void jcc_through(struct trans *t, const struct scan *s)
{
	emit_flags_restore(t);
	t->side_exits[t->nside_exits++] =
		(struct side_exit){ .site = emit_jcc(&t->e,
						     (t->decoded->opcode & 0xf) ^ s->inverted),
				    .target = s->side_target,
				    .flags = t->flags,
				    .rsp_pending = t->rsp_pending,
				    .index = t->index };
	follow_conditional(t, s->inverted);
}

static void end_side(struct trans *t, bool taken)
{
	emit_observe_conditional(t, taken);
	if (taken)
		emit_lbr_record_direct(t, BRANCH_JCC, trans_branch_target(t));
	else
		emit_lbr_leave(t, t->index);
}

/* The side exit's code counts as the branch's, for samples. */
static void side_place(struct trans *t, const struct side_exit *side)
{
	struct place *place = &t->places[t->nplaces++];

	*place = t->places[side->index];
	place->host = t->e.p - t->block->code;
	place->rsp_pending = side->rsp_pending / 8;
}

/* Side exits, after the block's code. */
void emit_side_exits(struct trans *t)
{
	for (u32 i = 0; i < t->nside_exits; i++) {
		const struct side_exit *side = &t->side_exits[i];
		bool taken = !t->scan[side->index].inverted;

		t->mode = t->block->mode; /* unchanged since: nothing precedes the branch */
		scan_select(t, side->index);
		t->index = side->index;
		emit_patch(&t->e, side->site, t->e.p);
		side_place(t, side);
		t->flags = side->flags;
		emit_flags_save(t);
		t->rsp_pending = side->rsp_pending;
		emit_stack_settle(t);
		end_side(t, taken);
		emit_count_leave(t, side->index, taken);
		emit_block_end_direct(t, side->target);
	}
}

bool emit_insn_jcc(struct trans *t)
{
	if (t->scan[t->at].continues) {
		jcc_through(t, &t->scan[t->at]);
		return true;
	}
	emit_flags_restore(t);
	emit_flags_save(t);
	end_conditional(t, t->decoded->opcode & 0xf, trans_branch_target(t));
	return true;
}

/* LOOP, LOOPE, LOOPNE, JrCXZ leave the guest's flags unchanged: they are saved before the host's
 * are used. */
static void test_counter(struct trans *t)
{
	bool wide = t->insn.addrsize == 8;

	if (t->insn.addrsize == 2)
		emit_insn(&t->e,
			  &(struct enc){ .p66 = true, .opcode = 0x85, .reg = RCX, .rm = RCX });
	else
		emit_rr(&t->e, wide, 0x85, RCX, RCX);
}

/* Tests ZF in hot->aflags, where LAHF put it in bit 6 of the second byte. */
static void test_saved_zf(struct trans *t)
{
	emit_insn(&t->e, &(struct enc){ .opcode = 0xf6,
					.is_mem = true,
					.ea = ea_base(RSP, HOT(aflags) + 1),
					.imm = 0x40,
					.imm_len = 1 });
}

static void count_down(struct trans *t)
{
	emit_flags_keep(t);
	move_counter(t, -1);
	test_counter(t);
}

bool emit_insn_loop(struct trans *t)
{
	count_down(t);
	end_conditional(t, CC_NE, trans_branch_target(t));
	return true;
}

/* LOOPE and LOOPNE: the condition of ZF as well. */
static bool loop_while(struct trans *t, u8 condition)
{
	u8 *empty, *unequal;

	count_down(t);
	empty = emit_jcc(&t->e, CC_E);
	test_saved_zf(t);
	unequal = emit_jcc(&t->e, condition);
	taken_path(t, trans_branch_target(t));
	emit_patch(&t->e, empty, t->e.p);
	emit_patch(&t->e, unequal, t->e.p);
	not_taken_path(t);
	return true;
}

bool emit_insn_loope(struct trans *t)
{
	return loop_while(t, CC_E);
}

bool emit_insn_loopne(struct trans *t)
{
	return loop_while(t, CC_NE);
}

bool emit_insn_jcxz(struct trans *t)
{
	emit_flags_keep(t);
	test_counter(t);
	end_conditional(t, CC_E, trans_branch_target(t));
	return true;
}

/* Loads the target of an indirect JMP or CALL into S0. */
static void load_target(struct trans *t)
{
	const struct operand *op = &t->insn.ops[0];
	u8 size = t->insn.opsize;
	struct native n = trans_native_move(OP_MOV_LOAD, S0, size);

	emit_flags_keep(t);
	if (op->kind == OPERAND_MEM)
		emit_access_operand(t, op, size, DESC_READ, &n);
	else
		emit_guest_get(t, op->reg, S0);
}

/* Outside 64-bit code near targets are truncated to the operand size. */
static void cut_target(struct trans *t)
{
	u8 size = t->insn.opsize;

	if (size == 2)
		emit_insn(&t->e,
			  &(struct enc){ .map = MAP_0F, .opcode = 0xb7, .reg = S0, .rm = S0 });
	else if (size == 4)
		emit_rr(&t->e, false, OP_MOV_LOAD, S0, S0);
}

bool emit_insn_jmp(struct trans *t)
{
	if (t->insn.far)
		return false;
	if (t->scan[t->at].continues) {
		follow_direct(t, BRANCH_REL_JMP);
		return true;
	}
	if (t->insn.ops[0].kind == OPERAND_IMM) {
		emit_flags_save(t);
		if (trans_branch_beyond(t, trans_branch_target(t))) {
			refuse(t);
			return true;
		}
		emit_observe_jump(t);
		emit_lbr_record_direct(t, BRANCH_REL_JMP, trans_branch_target(t));
		emit_block_end_direct(t, trans_branch_target(t));
		return true;
	}
	load_target(t);
	cut_target(t);
	refuse_beyond(t);
	emit_observe_indirect(t);
	emit_lbr_record_indirect(t, BRANCH_IND_JMP);
	emit_block_end_indirect(t);
	return true;
}

/* A call must not change RSP before its target is known to be canonical; jumps and returns are
 * checked later. */
static void check_target(struct trans *t)
{
	u8 *good;

	if (!(t->mode & MODE_CODE64))
		return;
	emit_rr(&t->e, true, OP_MOV_LOAD, S1, S0);
	emit_shift(&t->e, true, SHIFT_SHL, S1, 64 - cpu_linear_bits(t->cpu));
	emit_shift(&t->e, true, SHIFT_SAR, S1, 64 - cpu_linear_bits(t->cpu));
	emit_rr(&t->e, true, OP_CMP, S1, S0);
	good = emit_jcc(&t->e, CC_E);
	emit_lbr_leave(t, t->index);
	leave_from_block(t, LEAVE_BAD_TARGET);
	emit_patch(&t->e, good, t->e.p);
}

bool emit_insn_call(struct trans *t)
{
	struct temp next = { .kind = TEMP_IMM, .host = S1, .load = true, .imm = trans_next_rip(t) };
	struct ea target = ea_base(RSP, SPILL(SPILL_TARGET));
	bool direct = t->insn.ops[0].kind == OPERAND_IMM;

	if (t->insn.far)
		return false;
	if (direct && trans_branch_beyond(t, trans_branch_target(t))) {
		emit_flags_save(t);
		refuse(t);
		return true;
	}
	if (!direct) {
		load_target(t);
		cut_target(t);
		refuse_beyond(t);
		check_target(t);
		emit_rm(&t->e, true, OP_MOV_STORE, S0, target);
		t->s0_group = NO_GROUP; /* S0 was */
	}
	emit_push_value(t, next, t->insn.opsize);
	if (t->scan[t->at].continues) {
		follow_direct(t, BRANCH_REL_CALL);
		emit_return_note(t);
		return true;
	}
	emit_flags_save(t);
	emit_observe_call(t);
	emit_return_note(t);
	if (direct) {
		emit_observe_jump(t);
		emit_lbr_record_direct(t, BRANCH_REL_CALL, trans_branch_target(t));
		emit_block_end_direct(t, trans_branch_target(t));
		return true;
	}
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, target);
	emit_observe_indirect(t);
	emit_lbr_record_indirect(t, BRANCH_IND_CALL);
	emit_block_end_indirect(t);
	return true;
}

bool emit_insn_ret(struct trans *t)
{
	u8 size = t->insn.opsize;
	u32 pop = t->insn.nops ? (u16)t->insn.ops[0].imm : 0;
	struct native n = trans_native_move(OP_MOV_LOAD, S0, size);

	if (t->insn.far)
		return false;
	emit_access_stack(t, 0, size, DESC_READ, &n);
	emit_flags_keep(t);
	cut_target(t);
	refuse_beyond(t);
	emit_stack_move(t, size + pop);
	emit_stack_settle(t);
	t->block->rsp_moved = size + pop;
	emit_observe_return(t);
	emit_lbr_record_indirect(t, BRANCH_RET);
	if (!emit_return_jump(t, size + pop))
		emit_block_end_indirect(t);
	return true;
}

bool trans_branch_conditional(const struct trans *t)
{
	return insn_facts(&t->insn)->conditional;
}
