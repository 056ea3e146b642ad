// SPDX-License-Identifier: MIT
/*
 * Decoding a block: from its first instruction to the one that ends it, which of a hot block need
 * not be its first branch: here is chosen which way it goes on, and how often a loop is unrolled.
 * What can be known of an instruction by itself is found here; what depends on later ones is found
 * by trans_flags_analyse() and trans_share_analyse() before anything is emitted. Saves the guest's
 * vector state if it needs Zydis.
 */
#include "cpu/fpu.h"
#include "engine/translate/trans.h"

void scan_select(struct trans *t, u32 i)
{
	const struct scan *s = &t->scan[i];

	t->at = i;
	t->rip = s->rip;
	t->offset = s->offset;
	insn_copy(&t->insn, &s->insn);
	t->decoded = s->decoded;
}

/* Hidden operands included, and those that Zydis does not know of: emit_insn_pause(). */
static u16 registers_written(const struct trans *t)
{
	u16 bits = 0;

	if (t->zi->mnemonic == ZYDIS_MNEMONIC_PAUSE && t->zi->raw.rex.B)
		bits = BIT(RAX) | BIT(R8);
	for (u32 i = 0; i < t->zi->operand_count; i++)
		if (t->zops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    (t->zops[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			bits |= decode_register_bit(t->zops[i].reg.value);
	return bits;
}

static bool touches_memory(const struct trans *t, ZydisOperandActions how)
{
	for (u32 i = 0; i < t->zi->operand_count; i++)
		if (t->zops[i].type == ZYDIS_OPERAND_TYPE_MEMORY &&
		    t->zops[i].mem.type != ZYDIS_MEMOP_TYPE_AGEN && (t->zops[i].actions & how))
			return true;
	return false;
}

#define ANY_ACCESS (ZYDIS_OPERAND_ACTION_MASK_READ | ZYDIS_OPERAND_ACTION_MASK_WRITE)

/* Integer instructions on registers cannot fault, but for divisions. */
static bool cannot_fault(const struct trans *t)
{
	if (insn_facts(&t->insn)->divides || touches_memory(t, ANY_ACCESS))
		return false;
	switch (t->zi->meta.category) {
	case ZYDIS_CATEGORY_BINARY:
	case ZYDIS_CATEGORY_BITBYTE:
	case ZYDIS_CATEGORY_BMI1:
	case ZYDIS_CATEGORY_BMI2:
	case ZYDIS_CATEGORY_CMOV:
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_FLAGOP:
	case ZYDIS_CATEGORY_LOGICAL:
	case ZYDIS_CATEGORY_LZCNT:
	case ZYDIS_CATEGORY_MISC: /* LEA */
	case ZYDIS_CATEGORY_NOP:
	case ZYDIS_CATEGORY_ROTATE:
	case ZYDIS_CATEGORY_SETCC:
	case ZYDIS_CATEGORY_SHIFT:
	case ZYDIS_CATEGORY_WIDENOP:
		return t->zi->meta.isa_ext == ZYDIS_ISA_EXT_BASE || t->insn.ops[0].cls == REG_GPR;
	case ZYDIS_CATEGORY_CONVERT: /* of floating point: #XM */
		return t->zi->meta.isa_ext == ZYDIS_ISA_EXT_BASE;
	case ZYDIS_CATEGORY_DATAXFER:
		return t->insn.ops[0].cls == REG_GPR && t->insn.ops[1].kind != OPERAND_NONE;
	default:
		return false;
	}
}

/* The addresses at which the branch at hand can continue. */
static void branch_ways(const struct trans *t, struct scan *s)
{
	s->next = trans_branch_target(t);
	s->side_target = trans_branch_conditional(t) ? trans_next_rip(t) : s->next;
}

/* Fills in what holds for every instruction with this entry. */
static void learn(struct trans *t, struct decoded *d)
{
	trans_count_weigh(t);
	d->classes = t->insn.weight.classes;
	d->quiet = trans_does_nothing(t);
	d->may_fault = !cannot_fault(t);
	d->stores = touches_memory(t, ZYDIS_OPERAND_ACTION_MASK_WRITE);
	d->regs_written = registers_written(t);
	d->system = trans_system_learn(&t->insn);
	d->unit = trans_gate_unit(t);
	d->always_there = trans_gate_never(t);
	d->lazy = trans_stack_learn(t);
	trans_share_learn(t, d);
	trans_native_learn(t, d);
	d->plain = trans_translatable(t);
	trans_flags_learn(t, d);
	if (t->mode & MODE_COUNT_CYCLES)
		trans_price_learn(t, d);
	d->known = true;
}

/* Of most instructions all is known, and they are not made those at hand. */
static void look_closer(struct trans *t, struct scan *s, struct decoded *d)
{
	insn_copy(&t->insn, &s->insn);
	if (!d->known)
		learn(t, d);
	s->vector = d->always_there ? -1 : trans_gate_vector(t);
	if (t->insn.is_branch && t->insn.ops[0].kind == OPERAND_IMM)
		branch_ways(t, s);
}

/* An instruction that was decoded. */
static inline void classify(struct trans *t, struct scan *s)
{
	struct decoded *d = t->decoded;

	s->vector = -1;
	if (!d->known || !d->always_there || s->insn.is_branch)
		look_closer(t, s, d);
	s->insn.weight = (struct weight){ .classes = d->classes };
	s->continues = s->inverted = false;
	s->ends =
		s->vector >= 0 || s->insn.is_branch || !(d->plain || trans_system_candidate(t, d));
	s->quiet = d->quiet;
	s->may_fault = d->may_fault;
	s->stores = d->stores;
	s->regs_written = d->regs_written;
	trans_flags_classify(t, s, d);
	s->decoded = d;
}

static void raise_here(struct trans *t, struct scan *s, int vector)
{
	*s = (struct scan){ .vector = vector, .ends = true, .may_fault = true };
	s->decoded = t->decoded;
	s->rip = t->rip;
	s->offset = t->offset;
}

enum step { STEP_TAKEN, STEP_AGAIN, STEP_END_HERE, STEP_FAULT, STEP_FULL };

/* The second page of an instruction that crosses. */
static enum step open_tail(struct trans *t, enum guest_fault *fault)
{
	u64 tail = (t->linear_base + t->rip + PAGE_SIZE) & PAGE_MASK;
	const u8 *host;
	gpa_t gpa;

	if (t->nscan)
		return STEP_END_HERE; /* not the block's first: it becomes a block of its own */
	*fault = fetch_page(t->cpu, t->mode & MODE_CODE64 ? tail : (u32)tail, &gpa, &host);
	if (*fault != FAULT_NONE)
		return STEP_FAULT;
	t->block->gpa2 = gpa;
	t->block->host2 = host;
	return source_open(t, 1, gpa, host) ? STEP_TAKEN : STEP_FULL;
}

static enum step host_fault(struct trans *t, enum guest_fault *fault)
{
	if (t->nscan)
		return STEP_END_HERE;
	t->cpu->port.exit.reason = EXIT_HOST_FAULT;
	t->cpu->port.exit.gpa = t->block->gpa;
	*fault = FAULT_EXIT;
	return STEP_FAULT;
}

u32 trans_decode_mode(const struct trans *t)
{
	u32 mode = t->mode & DECODE_STATE;

	if (!cpu_has(t->cpu, FEAT_BMI1))
		mode |= DECODE_NO_TZCNT;
	if (!cpu_has(t->cpu, FEAT_LZCNT))
		mode |= DECODE_NO_LZCNT;
	return mode;
}

#define LINE 64

/* Prefetches the entries of the instructions that follow each other from here on, in this line and
 * the next, to where the block seems to end. */
static void look_ahead(struct trans *t, u32 at)
{
	struct decoder *decoder = t->eng->decoder;
	u32 end = (at | (LINE - 1)) + 1, next;

	t->ahead_from = at;
	decoder_expect_none(decoder);
	next = decoder_prefetch(decoder, source_at(t, at), end - at, at, t->decode_mode);
	if (next && end < PAGE_SIZE && source_load(t, end, end + LINE)) {
		end += LINE;
		decoder_prefetch(decoder, source_at(t, next), end - next, next, t->decode_mode);
	}
	t->ahead_to = end;
}

static inline void expect(struct trans *t, u32 at)
{
	if (at < t->ahead_from || at >= t->ahead_to)
		look_ahead(t, at);
}

void scan_expect(struct trans *t)
{
	u32 at = t->block->gpa & ~PAGE_MASK;

	if (source_load(t, at, at + 1))
		expect(t, at);
}

static enum decode_result decode(struct trans *t, struct scan *s, const u8 *bytes, u32 n, u32 at)
{
	u32 mode = t->decode_mode;

	t->decoded = decoder_recall_ahead(t->eng->decoder, bytes, n, at, mode);
	if (t->decoded) {
		decoder_fill_in(t->decoded, bytes, n, t->rip, &s->insn);
		return DECODE_OK;
	}
	fpu_save(t->cpu);
	t->zi = &t->eng->decoder->zi;
	t->zops = t->eng->decoder->zops;
	return decoder_decode(t->eng->decoder, bytes, n, t->rip, mode, &s->insn, &t->decoded);
}

u32 trans_room_in_segment(const struct trans *t, u64 rip)
{
	u64 left = t->block->limit + 1ull - rip;

	return !(t->mode & MODE_CODE64) && left < INSN_MAX ? (u32)left : INSN_MAX;
}

/* STEP_AGAIN: now that its second page is open. */
static inline enum step scan_one(struct trans *t, struct scan *s, enum guest_fault *fault)
{
	u32 at = (t->block->gpa & ~PAGE_MASK) + t->offset;
	u8 copy[INSN_MAX];
	u32 n, room = trans_room_in_segment(t, t->rip);
	const u8 *bytes = source_view(t, at, copy, &n);
	enum step step;

	if (!n)
		return host_fault(t, fault);
	expect(t, at);
	s->rip = t->rip;
	s->offset = t->offset;
	switch (decode(t, s, bytes, n < room ? n : room, at)) {
	case DECODE_OK:
		classify(t, s);
		return STEP_TAKEN;
	case DECODE_INVALID:
		raise_here(t, s, VEC_UD);
		return STEP_TAKEN;
	case DECODE_TOO_LONG:
		raise_here(t, s, VEC_GP);
		return STEP_TAKEN;
	case DECODE_SHORT:
		break;
	}
	if (n >= room) {
		raise_here(t, s, VEC_GP);
		return STEP_TAKEN;
	}
	if (source_spans(t))
		return host_fault(t, fault);
	step = open_tail(t, fault);
	return step == STEP_TAKEN ? STEP_AGAIN : step;
}

static bool page_left(const struct trans *t)
{
	return (t->block->gpa & ~PAGE_MASK) + t->offset >= PAGE_SIZE;
}

/* A page of 64-bit code is canonical as a whole, or not at all. */
static bool segment_left(const struct trans *t)
{
	return !(t->nscan && (t->mode & MODE_CODE64)) && trans_branch_beyond(t, t->rip);
}

/* --- hot blocks: over branches --- */

#define NOT_BEHIND_BRANCHES (MODE_STEP | MODE_SINGLE | MODE_UNSHARED)

/* Not if mispredictions trip while branches are recorded: the block would be left before the branch
 * is recorded. */
static bool may_go_on_after_branches(u32 mode)
{
	return (mode & MODE_CODE64) && !(mode & NOT_BEHIND_BRANCHES) &&
	       !((mode & MODE_COUNT_MISSES) && (mode & MODE_LBR));
}

/* A direct branch that a hot block could continue after. */
static bool followable(const struct trans *t, const struct scan *s)
{
	if (!may_go_on_after_branches(t->mode) || s->vector >= 0 || !s->insn.is_branch ||
	    s->insn.far || s->insn.ops[0].kind != OPERAND_IMM)
		return false;
	return insn_facts(&s->insn)->followable;
}

static bool same_page(const struct trans *t, u64 rip)
{
	return !((rip ^ t->block->rip) & PAGE_MASK);
}

/* Does the block, or this iteration of its loop, contain the address? */
static bool contains(const struct trans *t, u64 rip)
{
	for (u32 i = t->iteration; i <= t->nscan; i++)
		if (t->scan[i].rip == rip)
			return true;
	return false;
}

/* Executions of the block at an address since it was translated, if it counts them. */
static s32 warmth(const struct trans *t, u64 rip)
{
	const struct block *b;

	if (!same_page(t, rip))
		return 0;
	b = cache_find(t->cpu, rip, t->block->gpa + (rip - t->block->rip), t->mode);
	if (!b)
		return 0;
	if (!b->heats) /* it is hot, or cannot be */
		return t->eng->hot_after + b->hot;
	return t->eng->hot_after - t->eng->until_hot[b->number];
}

bool scan_could_continue(const struct trans *t)
{
	const struct scan *s = &t->scan[t->nscan - 1];

	return s->ends && followable(t, s) &&
	       (same_page(t, s->next) || same_page(t, s->side_target));
}

/*
 * The branch at hand goes back to the block's start: a loop. The usual number of iterations is
 * estimated from how often its exit was taken until the block became hot.
 */
static void begin_loop(struct trans *t, const struct scan *s, bool conditional)
{
	u32 left = conditional ? warmth(t, s->side_target) : 0;

	t->iterations = left ? t->eng->hot_after / left : BLOCK_INSNS;
	t->iteration_insns = t->nscan + 1;
	t->iteration_side_exits = t->nside_exits;
}

static bool room_for_turn(const struct trans *t, bool conditional)
{
	return t->nscan + 1 + t->iteration_insns <= BLOCK_INSNS &&
	       t->nside_exits + conditional + t->iteration_side_exits <= MAX_SIDE_EXITS;
}

/* After that branch: continues with another iteration, or, after the usual number, at the loop's
 * exit. */
static bool go_on_in_loop(struct trans *t, struct scan *s, bool conditional)
{
	if (!t->iteration)
		begin_loop(t, s, conditional);
	if (s->insn.id == INSN_CALL || t->iterations < 2)
		return false;
	if (t->iteration + t->iteration_insns < t->iterations * t->iteration_insns) {
		s->inverted = conditional;
		t->iteration = t->nscan + 1;
		return room_for_turn(t, conditional);
	}
	s->next = s->side_target;
	s->side_target = t->block->rip;
	return same_page(t, s->next) && !contains(t, s->next);
}

static bool go_on_ahead(const struct trans *t, struct scan *s, bool conditional)
{
	u64 taken = s->next, other = s->side_target;

	s->inverted = conditional && warmth(t, taken) > warmth(t, other);
	s->next = !conditional || s->inverted ? taken : other;
	s->side_target = s->inverted ? other : taken;
	return same_page(t, s->next) && !contains(t, taken) && !contains(t, s->next);
}

/* Continues the block where a branch usually goes, if it may. A branch back to its start is a loop,
 * some iterations of which are unrolled; one back into its middle ends the block. */
static bool go_on(struct trans *t, struct scan *s)
{
	bool conditional = trans_branch_conditional(t);

	if (!t->block->hot || t->special || !followable(t, s) || t->nside_exits == MAX_SIDE_EXITS ||
	    t->nscan + 1 == BLOCK_INSNS)
		return false;
	if (!(s->next == t->block->rip ? go_on_in_loop(t, s, conditional)
				       : go_on_ahead(t, s, conditional)))
		return false;
	t->nside_exits += conditional || s->insn.id == INSN_CALL;
	if (conditional)
		s->insn.weight.classes |= trans_count_direction(s->inverted);
	s->continues = true;
	s->ends = false;
	s->reads = conditional ? FL_ARITH : 0;
	s->may_fault = s->insn.id == INSN_CALL;
	t->rip = s->next;
	t->offset = s->next - t->block->rip;
	return true;
}

/* STI opens the interrupt window after the instruction at hand: the block ends there, since windows
 * are checked between blocks. */
static bool window_opens(const struct trans *t)
{
	return t->nscan && t->scan[t->nscan - 1].insn.id == INSN_STI;
}

static u32 most_insns(u32 mode)
{
	return mode & (MODE_STEP | MODE_SINGLE) ? 1 : BLOCK_INSNS;
}

enum scan_result scan_block(struct trans *t, enum guest_fault *fault)
{
	u32 limit = most_insns(t->mode);

	decoder_make_room(t->eng->decoder, BLOCK_INSNS);
	t->special = false;
	t->iteration = 0;
	for (t->nscan = 0; t->nscan < limit && !page_left(t) && !segment_left(t); t->nscan++) {
		struct scan *s = &t->scan[t->nscan];
		enum step step;

		do
			step = scan_one(t, s, fault);
		while (step == STEP_AGAIN);
		if (step == STEP_FULL)
			return SCAN_FULL;
		if (step == STEP_FAULT)
			return SCAN_FAULT;
		if (step == STEP_END_HERE)
			break;
		if (s->insn.is_branch && s->vector < 0 && go_on(t, s))
			continue;
		t->special |= trans_system_candidate(t, s->decoded);
		if (s->ends || window_opens(t)) {
			t->nscan++;
			break;
		}
		t->offset += s->insn.len;
		t->rip += s->insn.len;
		if (!(t->mode & MODE_CODE64))
			t->rip = (u32)t->rip;
	}
	t->nside_exits = 0;
	return SCAN_OK;
}
