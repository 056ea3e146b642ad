// SPDX-License-Identifier: MIT
/*
 * The price of an instruction: what it adds to the time of straight-line code.
 *
 * The problem. Cycles are counted per instruction, exactly and in whatever slices code is executed,
 * so a price may depend on the instruction's address and on code bytes, and on nothing else: not on
 * where a translation block begins. But what instructions cost together is not the sum of what
 * each costs alone: they share issue slots and ports.
 *
 * The idea. Code is cut into segments that its addresses define: a segment ends with a branch, with
 * an instruction that is not priced by its uops, and with the last instruction that begins in a
 * line of 64 bytes. What the instructions from one of them to the end of its segment cost is known
 * by looking ahead, and never by looking back; so prices are made from the last to the first.
 *
 *   1. The price of an instruction is the time of its issue slots and, above that, what it waits.
 *   2. The excess at an instruction is the time that ports or the divider need, beyond the issue
 *      slots and some slack, from it to the segment's end. It waits for the difference between its
 *      excess and the largest one of later instructions.
 *   3. So waits are never negative, and the sum of prices from any instruction to the segment's end
 *      is never below any of the bounds, less the slack.
 *
 * Latency is not among the bounds of a segment: out-of-order execution hides it, except that of
 * chains that go on and on. Two kinds are known.
 *
 *   4. A chain from one iteration of a loop to the next: pipe_loop_wait() is that, and the branch
 *      back is charged with it. Of a loop it is also known what all of its segments need together,
 *      which may be less than what they need one after the other: then its branch does not wait for
 *      its port.
 *   5. A chain through long straight-line code, as of a hash function that is unrolled. A segment
 *      is straight if it ends with its line and PIPE_STRAIGHT whole lines or the page's end follow
 *      without a branch. Straight segments are joined up to the next multiple of PIPE_STRETCH. If
 *      the chain from an instruction to there, as if that code repeated, takes longer than the sum
 *      of prices, the instruction waits for the difference.
 *
 * Pure.
 */
#include "pipeline/priv.h"

static void need_ports(struct pipe_need *need, u16 ports, bool twice)
{
	u32 i = 0;

	while (i < need->uses && need->use[i].ports != ports)
		i++;
	if (i == PIPE_USES || !ports)
		return;
	if (i == need->uses) {
		need->use[i] = (struct pipe_use){ .ports = ports };
		need->uses++;
	}
	need->use[i].uops += twice ? 2 : 1;
}

/* The fixed price of an instruction without a row of uops: docs/model.md. */
static u32 plain_cycles(const ZydisDecodedInstruction *in)
{
	switch (in->meta.category) {
	case ZYDIS_CATEGORY_INTERRUPT:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_SYSRET:
	case ZYDIS_CATEGORY_SYSTEM:
		return 16;
	case ZYDIS_CATEGORY_X87_ALU:
	case ZYDIS_CATEGORY_STRINGOP:
	case ZYDIS_CATEGORY_SEMAPHORE:
		return 4;
	default:
		return 1;
	}
}

/* Which additions renaming does depends on the constant, and a need does not: those with a constant
 * that may be too large have a port. */
static bool has_ports(const struct pipe_core *core, const struct pipe_insn *insn,
		      const ZydisDecodedInstruction *in)
{
	bool large = in->raw.imm[0].size > 8 || in->raw.disp.size > 8;

	return pipe_needs_port(core, insn) || (insn->idiom == IDIOM_ADD && large);
}

static enum pipe_branch branch_of(const ZydisDecodedInstruction *in)
{
	switch (in->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
		return BRANCH_CONDITIONAL;
	case ZYDIS_CATEGORY_CALL:
		return in->raw.imm[0].is_relative ? BRANCH_CALL : BRANCH_OTHER;
	case ZYDIS_CATEGORY_RET:
		return in->meta.branch_type == ZYDIS_BRANCH_TYPE_NEAR ? BRANCH_RETURN
								      : BRANCH_OTHER;
	case ZYDIS_CATEGORY_UNCOND_BR:
		return BRANCH_OTHER;
	default:
		return BRANCH_NONE;
	}
}

void pipe_need(const struct pipe_core *core, const ZydisDecodedInstruction *in,
	       const ZydisDecodedOperand *ops, struct pipe_need *need)
{
	struct pipe_insn insn;

	*need = (struct pipe_need){ .slots = 1, .branch = branch_of(in) };
	if (!pipe_describe(core, in, ops, &insn)) {
		need->cycles = plain_cycles(in);
		return;
	}
	need->slots = insn.slots;
	need->fuses = pipe_fusion_of(core, &insn);
	need->condition = pipe_facts_of(in->mnemonic)->condition;
	for (u32 i = 0; i < insn.uops; i++) {
		need->divider += insn.uop[i].divider;
		if (has_ports(core, &insn, in))
			need_ports(need, insn.uop[i].ports, insn.uop[i].twice);
	}
	if (insn.load)
		need_ports(need, insn.vector ? core->p_load_vector : core->p_load, insn.twice);
	if (insn.store) {
		need_ports(need, core->p_sta, false);
		need_ports(need, insn.vector ? core->p_std_vector : core->p_std, insn.twice);
	}
	pipe_chain_edges(core, &insn, !has_ports(core, &insn, in), need);
}

/* --- segments --- */

#define SEGMENT_SETS 16

/* The instructions of a segment that were added, from its last one on. */
struct segment {
	u32 slots, divider;
	u32 excess; /* the most by which another bound was above the issue slots, in ticks */
	u32 ports;  /* the time of the most crowded ports, among the unions of two sets */
	u32 sets;
	struct pipe_use set[SEGMENT_SETS];
	const struct pipe_need *next; /* added last */
	u32 slack;	/* ticks of waits that overlap with what is around the segment */
	bool straight;	/* its chain is priced */
	bool ends_line; /* the code goes on in the next one, */
	u32 lines;	/* and so many whole lines after the segment are straight */
	/* Of all segments to the end of the stretch: the chain, and the sum of prices. */
	u32 stretch;
	struct pipe_chain chain;
};

static void begin(struct segment *segment)
{
	segment->slots = segment->divider = segment->excess = segment->ports = segment->sets = 0;
	segment->slack = segment->lines = 0;
	segment->straight = segment->ends_line = false;
	segment->next = NULL;
}

/* Uops were added to a set: only unions that contain it are more crowded than before. */
static void crowd(struct segment *segment, u16 added)
{
	for (u32 i = 0; i < segment->sets; i++)
		for (u32 j = i; j < segment->sets; j++) {
			u16 ports = segment->set[i].ports | segment->set[j].ports;

			if (!(added & ~ports))
				segment->ports =
					later(segment->ports,
					      pipe_confined(segment->set, segment->sets, ports));
		}
}

static void add_use(struct segment *segment, const struct pipe_use *use)
{
	u32 i = 0;

	while (i < segment->sets && segment->set[i].ports != use->ports)
		i++;
	if (i == SEGMENT_SETS)
		return;
	if (i == segment->sets) {
		segment->set[i] = *use;
		segment->sets++;
	} else {
		segment->set[i].uops += use->uops;
	}
	crowd(segment, use->ports);
}

static u32 slot_ticks(const struct pipe_core *core)
{
	return PIPE_TICKS / core->width;
}

/* A pair that fuses is one uop, on the branch's port. */
static bool fuses_next(const struct segment *segment, const struct pipe_need *need)
{
	const struct pipe_need *next = segment->next;

	return next && next->condition != FUSES_NOTHING && need->fuses >= next->condition;
}

/* Ticks by which a segment's need of ports may exceed its issue slots without a wait: what is
 * around it needs them less. More where the code goes on after its end. */
#define SLACK_LINE   45
#define SLACK_BRANCH 8

/* What the chain of the stretch takes beyond the sum of its prices, if it repeats. What does not
 * fit into one price is waited for by instructions before it. */
static void wait_for_chain(const struct pipe_core *core, struct segment *segment,
			   const struct pipe_need *need, struct pipe_price *price)
{
	const u32 room = 0xffff - price->wait;
	u32 turn, more;

	pipe_chain_add(&segment->chain, need);
	segment->stretch += pipe_price_ticks(core, price);
	turn = pipe_chain_turn(&segment->chain);
	if (turn <= segment->stretch)
		return;
	more = turn - segment->stretch < room ? turn - segment->stretch : room;
	segment->stretch += more;
	price->wait += more;
}

static struct pipe_price add(const struct pipe_core *core, struct segment *segment,
			     const struct pipe_need *need)
{
	bool fused = fuses_next(segment, need);
	struct pipe_price price = { .slots = need->slots - fused, .fused = fused };
	u32 issue, bound;

	segment->slots += price.slots;
	segment->divider += need->divider;
	for (u32 i = fused; i < need->uses; i++)
		add_use(segment, &need->use[i]);
	issue = segment->slots * slot_ticks(core);
	bound = later(segment->ports, segment->divider * PIPE_TICKS);
	bound = bound > segment->slack ? bound - segment->slack : 0;
	if (bound > issue + segment->excess) {
		price.wait = bound - issue - segment->excess;
		segment->excess = bound - issue;
	}
	if (need->cycles)
		price.wait = need->cycles * PIPE_TICKS - price.slots * slot_ticks(core);
	if (segment->straight)
		wait_for_chain(core, segment, need, &price);
	segment->next = need;
	return price;
}

bool pipe_falls_through(const struct pipe_piece *piece)
{
	return piece->need->branch == BRANCH_NONE && !piece->need->cycles;
}

bool pipe_ends_segment(const struct pipe_piece *piece)
{
	return !pipe_falls_through(piece) ||
	       (piece->at + piece->length) / PIPE_LINE != piece->at / PIPE_LINE;
}

/* It is a segment by itself: the second page may be missing, or another one tomorrow. */
static bool crosses_page(const struct pipe_piece *piece)
{
	return piece->at + piece->length > PAGE_SIZE;
}

/* The next instruction may lie in the next page, of which nothing is known. */
static bool ends_page(const struct pipe_piece *piece)
{
	return piece->at + piece->length > PAGE_SIZE - ZYDIS_MAX_INSTRUCTION_LENGTH;
}

static bool ends_stretch(const struct pipe_piece *piece)
{
	return (piece->at + piece->length) / PIPE_STRETCH != piece->at / PIPE_STRETCH;
}

/* Of the segment that ends with `last`, before the one that was priced. */
static void begin_before(struct segment *segment, const struct pipe_piece *last)
{
	u32 lines = segment->ends_line ? segment->lines + 1 : 0;
	bool goes_on = segment->straight && !ends_stretch(last) && !ends_page(last);

	begin(segment);
	if (!pipe_falls_through(last)) {
		segment->slack = last->need->cycles ? 0 : SLACK_BRANCH;
		return;
	}
	segment->slack = SLACK_LINE;
	segment->ends_line = pipe_ends_segment(last) || ends_page(last);
	segment->lines = ends_page(last) ? PIPE_STRAIGHT : lines;
	segment->straight = segment->lines >= PIPE_STRAIGHT;
	if (!goes_on) {
		segment->stretch = 0;
		pipe_chain_begin(&segment->chain);
	}
}

/* Of piece i, after those that follow it. */
static struct pipe_price next_price(const struct pipe_core *core, struct segment *segment,
				    const struct pipe_piece *piece, u32 i, u32 n)
{
	if (i + 1 == n)
		begin(segment);
	if (i + 1 == n || pipe_ends_segment(&piece[i]) || crosses_page(&piece[i + 1]))
		begin_before(segment, &piece[i]);
	return add(core, segment, piece[i].need);
}

void pipe_price(const struct pipe_core *core, const struct pipe_piece *piece, u32 n,
		struct pipe_price *price)
{
	struct segment segment;

	for (u32 i = n; i-- > 0;)
		price[i] = next_price(core, &segment, piece, i, n);
}

u32 pipe_price_ticks(const struct pipe_core *core, const struct pipe_price *price)
{
	return price->slots * slot_ticks(core) + price->wait;
}

/*
 * Intel, UOPS_RETIRED.HEAVY: all uops of an instruction but the last. AMD (56665, 2.10.3): more
 * than two macro-ops come from microcode.
 */
u32 pipe_price_heavy(const struct pipe_core *core, const struct pipe_price *price)
{
	u32 own = price->slots + price->fused;

	if (core->amd)
		return own > 2 ? price->slots * slot_ticks(core) : 0;
	return own > 1 ? (own - 1) * slot_ticks(core) : 0;
}

/* --- loops --- */

/* Of the branches within a loop, only those that go forward or are not taken leave it one loop. */
bool pipe_fits_loop(const struct pipe_piece *piece, bool is_last)
{
	u8 branch = piece->need->branch;

	return !piece->need->cycles && (is_last || branch == BRANCH_NONE ||
					(branch == BRANCH_CONDITIONAL && piece->jump >= 0));
}

/* Does it skip a part of the loop? A branch that leaves it does not. */
static bool skips(const struct pipe_piece *piece, const struct pipe_piece *last)
{
	return piece->need->branch == BRANCH_CONDITIONAL &&
	       (s64)piece->at + piece->length + piece->jump <= (s64)last->at;
}

/* What is called has no branches but its return. */
static bool is_one_loop(const struct pipe_piece *piece, u32 n, bool *forks, bool *calls)
{
	bool called = false;

	*forks = *calls = false;
	for (u32 i = 0; i < n; i++) {
		u8 branch = piece[i].need->branch;

		if (branch == (called ? BRANCH_RETURN : BRANCH_CALL)) {
			called = !called;
			*calls = true;
		} else if (called ? !pipe_falls_through(&piece[i])
				  : !pipe_fits_loop(&piece[i], i + 1 == n)) {
			return false;
		}
		*forks |= i + 1 < n && skips(&piece[i], &piece[n - 1]);
	}
	return !called;
}

/* Also what of it the last one waits. */
static u32 sum_of_prices(const struct pipe_core *core, const struct pipe_piece *piece, u32 n,
			 u32 *last_waits)
{
	struct segment segment;
	u32 ticks = 0;

	for (u32 i = n; i-- > 0;) {
		struct pipe_price price = next_price(core, &segment, piece, i, n);

		ticks += pipe_price_ticks(core, &price);
		if (i + 1 == n)
			*last_waits = price.wait;
	}
	return ticks;
}

/* Issue slots, ports and divider of an iteration: what one segment waits for overlaps with the
 * slots of the others, and with those of the next iteration. */
static u32 iteration_bound(const struct pipe_core *core, const struct pipe_piece *piece, u32 n)
{
	struct segment all;

	begin(&all);
	for (u32 i = n; i-- > 0;)
		add(core, &all, piece[i].need);
	return later(all.slots * slot_ticks(core), later(all.ports, all.divider * PIPE_TICKS));
}

s32 pipe_loop_wait(const struct pipe_core *core, const struct pipe_piece *piece, u32 n,
		   struct pipe_block *loop, struct pipe_work *work)
{
	u32 ticks, takes, last_waits;
	bool forks, calls;

	if (!is_one_loop(piece, n, &forks, &calls))
		return 0;
	if (n > PIPE_SHORT_LOOP || calls) {
		takes = pipe_chain_loop(piece, n);
	} else {
		loop->count = n;
		loop->loops = true;
		pipe_fuse(core, loop);
		takes = pipe_loop_latency(core, loop, work);
	}
	if (forks) /* an iteration does not always go along the longest chain: 0.7 fits best */
		takes = takes * 7 / 10;
	takes = later(takes, PIPE_TICKS); /* no core takes a branch more often */
	takes = later(takes, iteration_bound(core, piece, n));
	ticks = sum_of_prices(core, piece, n, &last_waits);
	if (takes >= ticks)
		return (s32)(takes - ticks);
	return ticks - takes < last_waits ? -(s32)(ticks - takes) : -(s32)last_waits;
}
