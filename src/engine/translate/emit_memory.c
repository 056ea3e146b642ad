// SPDX-License-Identifier: MIT
/*
 * Guest memory operands: effective address, soft TLB check, and the stub of the slow path, after
 * the block's code. With cpu->port.harden an address that fails the check is also replaced, for a
 * host that speculates past the check.
 */
#include "engine/translate/trans.h"

/* A register of the address: resident, or fetched into a scratch register. */
static u8 address_reg(struct trans *t, u8 guest, u8 scratch)
{
	u8 host = host_reg(guest);

	if (host != IN_MEMORY)
		return host;
	emit_rm(&t->e, true, OP_MOV_LOAD, scratch, ea_base(RSP, CPU(regs) + 8 * guest));
	return scratch;
}

static bool fits_s32(s64 v)
{
	return v == (s32)v;
}

void emit_address(struct trans *t, const struct operand *op, u8 dest)
{
	emit_address_sized(t, op, dest, t->insn.addrsize == 8);
}

/* With 32-bit addressing a 32-bit LEA wraps as the guest's does; 16-bit addresses are cut. */
void emit_address_sized(struct trans *t, const struct operand *op, u8 dest, bool wide)
{
	struct ea ea = { .base = NO_BASE, .index = NO_BASE, .scale = op->scale };
	u64 imm = wide ? (u64)op->imm : (u32)op->imm;

	if (op->base == NO_REG && op->index == NO_REG) {
		emit_mov_imm(&t->e, dest, t->insn.addrsize == 2 ? (u16)imm : imm);
		return;
	}
	if (op->base != NO_REG)
		ea.base = address_reg(t, op->base, dest);
	if (op->index != NO_REG)
		ea.index = address_reg(t, op->index, S1);
	ea.disp = fits_s32(op->imm) ? (s32)op->imm : (s32)(u32)imm;
	if (op->base == RSP)
		ea.disp += t->rsp_pending;
	if (t->insn.addrsize == 8 && ea.index == NO_BASE && ea.disp == 0)
		emit_rr(&t->e, wide, OP_MOV_LOAD, dest, ea.base);
	else
		emit_rm(&t->e, wide, OP_LEA, dest, ea);
	if (t->insn.addrsize == 2)
		emit_insn(&t->e,
			  &(struct enc){ .map = MAP_0F, .opcode = 0xb7, .reg = dest, .rm = dest });
}

static s32 tag_column(const struct trans *t, bool write)
{
	s32 set = PRIV(tlb) + cpu_tlb_set(t->mode) * (s32)sizeof(cpu_priv(t->cpu)->tlb[0]);

	return set + (write ? offsetof(struct tlb_entry, write) : offsetof(struct tlb_entry, read));
}

static s32 host_column(const struct trans *t)
{
	return PRIV(tlb) + cpu_tlb_set(t->mode) * (s32)sizeof(cpu_priv(t->cpu)->tlb[0]) +
	       (s32)offsetof(struct tlb_entry, host);
}

static struct ea tlb_ea(s32 column)
{
	return (struct ea){ .base = RSP, .index = S1, .scale = 1, .disp = column };
}

static struct stub *new_stub(struct trans *t, u32 desc, s32 tag, const struct native *n)
{
	struct stub *stub = &t->stubs[t->nstubs++];

	/* One by one: zeroing all of it first would take longer than the rest. */
	stub->op = *n;
	stub->from = NULL;
	stub->inline_op = stub->done = stub->retry = NULL;
	stub->desc = desc;
	stub->tag = tag;
	stub->index = t->index;
	stub->recipe = trans_recipe(t);
	stub->flags = t->flags;
	stub->rsp_lazy = t->rsp_lazy;
	stub->rsp_pending = t->rsp_pending;
	return stub;
}

#define TLB_ENTRY_SHIFT 5 /* log2 of sizeof(struct tlb_entry) */
_Static_assert(sizeof(struct tlb_entry) == 1 << TLB_ENTRY_SHIFT, "see the check below");

/*
 * The host may speculate past a miss (Spectre, variant 1) with an address that the guest chose. So
 * the compare decides once more, without a prediction: an access that did not pass it, for whatever
 * reason, goes to the start of the page that the entry leads to. That page is the guest's own, or
 * page 0, which is not mapped, and all bytes of an access or of a group lie on it. Neither MOV nor
 * LEA changes the compare's flags; S1 is lost.
 */
static void reach_hardened(struct trans *t)
{
	emit_observe_entry(t);
	emit_rm(&t->e, true, OP_MOV_LOAD, S1, tlb_ea(host_column(t)));
	emit_rm(&t->e, true, OP_LEA, S0, (struct ea){ .base = S1, .index = S0, .scale = 1 });
	emit_insn(&t->e, &(struct enc){ .w = true,
					.map = MAP_0F,
					.opcode = 0x40 | CC_AE, /* CMOVAE */
					.reg = S0,
					.rm = S1 });
}

/*
 * The check of cpu/mmu/mmu.h for the address in S0: index, XOR with the tag, one compare for page,
 * right and crossing. Returns the jump to be patched for a miss.
 */
static u8 *check(struct trans *t, s32 tag, u32 size)
{
	u8 *miss;

	if (t->eng->has_rorx) {
		emit_insn(&t->e, &(struct enc){ .vex = true,
						.vex_pp = 3,
						.map = MAP_0F3A,
						.opcode = 0xf0, /* RORX */
						.reg = S1,
						.rm = S0,
						.imm = PAGE_SHIFT - TLB_ENTRY_SHIFT,
						.imm_len = 1 });
	} else {
		emit_rr(&t->e, false, OP_MOV_LOAD, S1, S0);
		emit_shift(&t->e, false, SHIFT_SHR, S1, PAGE_SHIFT - TLB_ENTRY_SHIFT);
	}
	emit_group1(&t->e, false, GROUP_AND, S1, (TLB_SIZE - 1) << TLB_ENTRY_SHIFT);
	emit_rm(&t->e, true, OP_XOR, S0, tlb_ea(tag));
	emit_group1(&t->e, true, GROUP_CMP, S0, PAGE_SIZE + 1 - size);
	miss = emit_jcc(&t->e, CC_AE);
	if (t->cpu->port.harden) {
		reach_hardened(t);
	} else {
		emit_rm(&t->e, true, OP_ADD, S0, tlb_ea(host_column(t)));
		emit_observe_entry(t);
	}
	return miss;
}

static void inline_check(struct trans *t, u32 desc, const struct native *n)
{
	struct stub *stub = new_stub(t, desc, tag_column(t, desc & DESC_WRITE), n);

	stub->from = check(t, stub->tag, desc & DESC_SIZE);
	emit_observe_data(t, desc);
	stub->inline_op = t->e.p;
}

/* For the leader of a group; S0 has the address of its first byte. */
static void group_check(struct trans *t, u32 desc, struct native *n)
{
	bool write = t->groups[t->scan[t->at].group].write;
	struct stub *stub =
		new_stub(t, desc | (write ? DESC_GROUP_WRITE : 0), tag_column(t, write), n);

	stub->retry = t->e.p;
	stub->from = check(t, stub->tag, trans_share_span(t));
	emit_share_keep(t, n);
}

static void always_slow(struct trans *t, u32 desc, const struct native *n)
{
	struct stub *stub = new_stub(t, desc, 0, n);

	stub->from = emit_jmp(&t->e);
	stub->inline_op = t->e.p;
}

/* Flat segments need no check; but code segments are never writable. */
static bool needs_segment(const struct trans *t, enum seg seg, u32 rw)
{
	if (t->mode & MODE_CODE64)
		return false;
	return !(t->mode & MODE_FLAT) || seg == FS || seg == GS || (seg == CS && (rw & DESC_WRITE));
}

/* Must code check that the offset is canonical? Constants are, and the slow path always checks. */
static bool asks_for_offset(const struct trans *t)
{
	const struct operand *op = trans_memory_operand(t);

	return cpu_follows(t->cpu, RULE_OFFSETS_CANONICAL) && !(t->mode & MODE_ALIGN) &&
	       (op->base != NO_REG || op->index != NO_REG || !fits_s32(op->imm));
}

/*
 * FS and GS in 64-bit code: to the offset in S0 their base is added. The offset may have to be
 * canonical by itself (cpu_check64()). It is if the sum lies in the same half of the address space
 * as the base; if not, the returned stub checks on the slow path.
 */
static struct stub *add_base(struct trans *t, enum seg seg, u32 desc, const struct native *n)
{
	struct ea base = ea_base(RSP, CPU(seg) + seg * (s32)sizeof(struct segment) +
					      (s32)offsetof(struct segment, base));
	struct stub *stub;

	if (!asks_for_offset(t)) {
		emit_rm(&t->e, true, OP_ADD, S0, base);
		return NULL;
	}
	emit_rm(&t->e, true, OP_MOV_LOAD, S1, base);
	emit_rr(&t->e, true, OP_ADD, S0, S1);
	emit_rr(&t->e, true, OP_XOR, S1, S0);
	stub = new_stub(t, desc, 0, n);
	stub->from = emit_jcc(&t->e, CC_S);
	return stub;
}

/*
 * Whether operands of SHA must be aligned depends on the vendor. The host decides by its own rule,
 * so that it gets none that is not.
 */
static struct stub *check_sha_alignment(struct trans *t, u32 desc, const struct native *n)
{
	struct stub *stub;

	if (t->decoded->category != ZYDIS_CATEGORY_SHA)
		return NULL;
	emit_insn(&t->e, &(struct enc){ .opcode = 0xf7, /* TEST */
					.rm = S0,
					.imm = (desc & DESC_SIZE) - 1,
					.imm_len = 4 });
	stub = new_stub(t, desc, 0, n);
	stub->from = emit_jcc(&t->e, CC_NE);
	return stub;
}

/* An earlier stub of an access returns to the instruction to which the access's own one does. */
static void join_stub(struct stub *stub, const struct stub *access)
{
	if (!stub)
		return;
	stub->inline_op = access->inline_op;
	stub->done = access->done;
}

void emit_access_begin(struct trans *t, u32 size, enum seg seg, u32 rw, const struct native *op)
{
	struct native n = *op;
	u32 desc = size | rw | (u32)seg << DESC_SEG_SHIFT | (t->last ? DESC_LAST : 0) |
		   (t->mode & MODE_STEP ? DESC_STEP : 0);
	struct stub *astray = NULL, *misaligned = NULL, *stub;

	emit_flags_keep(t); /* a no-op if the caller has saved them before it used S1 */
	if ((t->mode & MODE_CODE64) && (seg == FS || seg == GS))
		astray = add_base(t, seg, desc, &n);
	if (needs_segment(t, seg, rw))
		always_slow(t, desc | DESC_OFFSET, &n);
	else if ((t->mode & MODE_ALIGN) || ((t->mode & MODE_STEP) && (rw & DESC_LOCK)))
		always_slow(t, desc, &n); /* a leader may be bounced: see slow_access.c */
	else if (trans_share_leads(t))
		group_check(t, desc, &n);
	else {
		misaligned = check_sha_alignment(t, desc, &n);
		inline_check(t, desc, &n);
	}
	emit_native(t, &n);
	stub = &t->stubs[t->nstubs - 1];
	stub->done = t->e.p;
	join_stub(astray, stub);
	join_stub(misaligned, stub);
	if (trans_share_leads(t))
		trans_share_reached(t, &n);
}

/* An access whose group's leader has made the check. */
static bool shared(struct trans *t, const struct native *op)
{
	struct native n = *op;

	if (!trans_share_follows(t))
		return false;
	trans_share_reach(t, &n);
	emit_native(t, &n);
	trans_share_reached(t, &n);
	return true;
}

void emit_access_stack(struct trans *t, s32 delta, u32 size, u32 rw, const struct native *n)
{
	if (shared(t, n))
		return;
	emit_flags_keep(t);
	emit_stack_pointer(t, S0, HOST_GUEST_RSP,
			   t->rsp_pending + delta +
				   (trans_share_leads(t) ? trans_share_shift(t) : 0));
	emit_access_begin(t, size, SS, rw, n);
}

void emit_access_operand(struct trans *t, const struct operand *op, u32 size, u32 rw,
			 const struct native *n)
{
	struct operand at = *op;

	if (shared(t, n))
		return;
	emit_flags_keep(t);
	if (trans_share_leads(t))
		at.imm = (s64)((u64)at.imm + (u64)trans_share_shift(t));
	emit_address(t, &at, S0);
	emit_access_begin(t, size, op->seg, rw, n);
}

static void patch_to(struct trans *t, u8 *site, const u8 *target)
{
	emit_patch(&t->e, site, target);
}

static void call_runtime(struct trans *t, u32 desc, const u8 *entry)
{
	emit_mov_imm(&t->e, RAX, desc);
	patch_to(t, emit_call(&t->e), entry);
}

static void stub_place(struct trans *t, const struct stub *stub, u8 recipe)
{
	bool pushes = stub->rsp_lazy && stub->op.rsp_delta < 0;

	t->places[t->nplaces++] =
		(struct place){ .host = t->e.p - t->block->code,
				.guest = t->places[stub->index].guest,
				.next = t->places[stub->index].next,
				.len = t->places[stub->index].len,
				.index = stub->index,
				.flags = (stub->op.spill_countdown ? PLACE_SPILLED : 0) |
					 (pushes ? PLACE_PUSHES : 0),
				.rsp_pending = stub->rsp_pending / 8,
				.recipe = recipe };
}

/* The instruction has been executed; slow_commit() may leave the block after it. */
static void emit_commit(struct trans *t, const struct stub *stub)
{
	bool in_host = t->flags == FLAGS_IN_HOST || t->flags == FLAGS_IN_BOTH;

	if (t->flags == FLAGS_IN_HOST) {
		stub_place(t, stub, 0);
		emit_flags_save(t);
	}
	call_runtime(t, stub->desc, t->eng->commit);
	t->flags = FLAGS_IN_CPU;
	if (in_host)
		emit_flags_restore(t);
}

/*
 * A group's check missed. If the group crosses a page, a page walk cannot help; if not, the
 * leader's walk may fill an entry with the rights of all. Otherwise the instructions are executed
 * by the unshared block, with a check each.
 */
static void emit_group_stub(struct trans *t, const struct stub *stub)
{
	s32 ahead = -(s32)trans_share_shift(t);
	u8 *crosses;

	emit_rm(&t->e, true, OP_XOR, S0, tlb_ea(stub->tag));
	emit_rr(&t->e, false, OP_MOV_LOAD, S1, S0);
	emit_group1(&t->e, false, GROUP_AND, S1, PAGE_SIZE - 1);
	emit_group1(&t->e, false, GROUP_CMP, S1, PAGE_SIZE + 1 - trans_share_span(t));
	crosses = emit_jcc(&t->e, CC_AE);
	emit_rm(&t->e, true, OP_LEA, S0, ea_base(S0, ahead));
	call_runtime(t, stub->desc, t->eng->share);
	emit_rm(&t->e, true, OP_LEA, S0, ea_base(S0, -ahead));
	patch_to(t, emit_jcc(&t->e, CC_E), stub->retry);
	patch_to(t, crosses, t->e.p);
	t->flags = stub->flags;
	t->recipe_id = stub->recipe;
	emit_stack_settle(t);
	emit_flags_materialize(t);
	emit_lbr_leave(t, stub->index);
	emit_count_give_back(t, stub->index);
	emit_block_link(t, t->block->rip + t->places[stub->index].guest, emit_jmp(&t->e), true);
}

static void emit_stub(struct trans *t, const struct stub *stub)
{
	t->index = t->at = stub->index;
	t->rsp_lazy = stub->rsp_lazy;
	t->rsp_pending = stub->rsp_pending;
	patch_to(t, stub->from, t->e.p);
	stub_place(t, stub, stub->recipe);
	if (stub->retry) {
		emit_group_stub(t, stub);
		return;
	}
	if (stub->tag)
		emit_rm(&t->e, true, OP_XOR, S0, tlb_ea(stub->tag));
	emit_mask(t, &stub->op);
	call_runtime(t, stub->desc, t->eng->slow);
	if (!(stub->desc & DESC_WRITE)) { /* nothing to commit: continue in line */
		patch_to(t, emit_jmp(&t->e), stub->inline_op);
		return;
	}
	patch_to(t, emit_jcc(&t->e, CC_E), stub->inline_op);
	t->flags = stub->flags;
	t->recipe_id = stub->recipe;
	emit_native(t, &stub->op);
	emit_commit(t, stub);
	patch_to(t, emit_jmp(&t->e), stub->done);
}

void emit_stubs(struct trans *t)
{
	for (u32 i = 0; i < t->nstubs; i++)
		emit_stub(t, &t->stubs[i]);
	emit_observe_stubs(t);
}
