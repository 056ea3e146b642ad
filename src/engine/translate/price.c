// SPDX-License-Identifier: MIT
/*
 * Prices of a block's instructions, in ticks, by the model of the core (pipeline/price.c).
 *
 * Invariants, from which follows that cycles do not depend on how code is cut into blocks:
 *
 *   1. The price of an instruction is a function of the model, its address and the bytes from it to
 *      the next branch, or as far as straight-line code matters (pipe_price()). If the block ends
 *      before that, the instructions up to there are decoded as well, though they are not
 *      translated.
 *   2. A segment ends with a branch, with an instruction of a fixed price, before an instruction
 *      that crosses a page or cannot be decoded, and where the next one begins in another line.
 *   3. A direct jump back within its page is also charged with what its loop waits for. Its price
 *      depends on all bytes of the loop, and of functions in its page that the loop calls.
 *   4. All bytes that were looked at are in lines of the block's source: source_bytes() adds them,
 *      and a write to one of them drops the block.
 *
 * What the decoder's cache does not have is decoded by Zydis, after fpu_save(). What loops wait for
 * is kept by their bytes (struct priced_loop). Runs while translating, but for price_init(), at the
 * creation of an engine.
 */
#include "base/bytes.h"
#include "cpu/fpu.h"
#include "engine/decode.h"
#include "engine/price.h"
#include "engine/translate/trans.h"

_Static_assert(BLOCK_INSNS + PRICE_INSNS <= PIPE_LOOP_INSNS, "pricing->piece");

size_t price_memory_size(void)
{
	return sizeof(struct pricing) + pipe_work_size();
}

void price_init(struct pricing *p, enum model_set set)
{
	p->core = pipe_core_of(set);
	p->work = (struct pipe_work *)(p + 1);
}

static struct pipe_need *need_of(const struct trans *t, const struct decoded *d)
{
	return &t->eng->decoder->need[d->need];
}

void trans_price_learn(const struct trans *t, struct decoded *d)
{
	pipe_need(t->eng->pricing->core, t->zi, t->zops, need_of(t, d));
	d->priced = true;
}

static u32 page_offset(const struct trans *t, s32 offset)
{
	return (u32)((t->block->gpa & ~PAGE_MASK) + offset);
}

/* --- instructions as Zydis has them --- */

static bool decode_bytes(struct trans *t, const u8 *bytes, u32 n, u64 rip)
{
	struct pricing *p = t->eng->pricing;

	fpu_save(t->cpu);
	return decode_insn(bytes, n, rip, trans_decode_mode(t), &p->insn, &p->zi, p->zops) ==
	       DECODE_OK;
}

/* What the decoder keeps may have been learned while cycles were not counted. */
static bool price_kept(struct trans *t, struct decoded *d, const u8 *bytes, u32 n, u64 rip)
{
	struct pricing *p = t->eng->pricing;

	if (!d->priced && decode_bytes(t, bytes, n, rip)) {
		pipe_need(p->core, &p->zi, p->zops, need_of(t, d));
		d->priced = true;
	}
	return d->priced;
}

/* The bytes at an offset of the block's page, as far as an instruction there can reach: within page
 * and segment. Returns their number. */
static u32 bytes_at(struct trans *t, u32 at, u8 bytes[INSN_MAX], u64 *rip)
{
	u32 room, n;

	*rip = t->block->rip + (u64)((s64)at - (s64)page_offset(t, 0));
	if (at >= PAGE_SIZE)
		return 0;
	room = trans_room_in_segment(t, *rip);
	if (room > PAGE_SIZE - at)
		room = PAGE_SIZE - at;
	n = source_bytes(t, at, bytes);
	return n < room ? n : room;
}

/* --- instructions around the block --- */

/* As Zydis has it; its need is number i of those around the block. */
static bool decode_piece(struct trans *t, u32 i, const u8 *bytes, u32 n, u64 rip,
			 struct pipe_piece *piece)
{
	struct pricing *p = t->eng->pricing;

	if (!decode_bytes(t, bytes, n, rip))
		return false;
	pipe_need(p->core, &p->zi, p->zops, &p->need[i]);
	*piece = (struct pipe_piece){ .need = &p->need[i],
				      .length = p->insn.len,
				      .jump = p->insn.ops[0].imm };
	return true;
}

/* The instruction at an offset of the page, if there is a whole one. Most are known to the decoder,
 * and to ask it is a tenth of the work. */
static bool piece_at(struct trans *t, u32 i, u32 at, struct pipe_piece *piece)
{
	u8 bytes[INSN_MAX];
	struct decoded *d;
	u64 rip;
	u32 n = bytes_at(t, at, bytes, &rip);

	if (!n)
		return false;
	d = decoder_find(t->eng->decoder, bytes, n, trans_decode_mode(t));
	if (d && price_kept(t, d, bytes, n, rip))
		*piece = (struct pipe_piece){ .need = need_of(t, d),
					      .length = d->insn.len,
					      .jump = decoder_immediate(d, bytes, n) };
	else if (!decode_piece(t, i, bytes, n, rip, piece))
		return false;
	piece->at = at;
	return true;
}

/* --- the block --- */

static struct pipe_piece piece_of(struct trans *t, const struct scan *s)
{
	price_kept(t, s->decoded, s->insn.bytes, s->insn.len, s->rip);
	return (struct pipe_piece){ .need = need_of(t, s->decoded),
				    .at = page_offset(t, s->offset),
				    .length = s->insn.len };
}

/* Appends the instructions that follow the last piece, as far as pipe_price() asks for them. */
static u32 look_ahead(struct trans *t, struct pipe_piece *piece, u32 n)
{
	u32 stretch = piece[n - 1].at / PIPE_STRETCH + 1;
	u32 end = stretch * PIPE_STRETCH + PIPE_STRAIGHT * PIPE_LINE;

	for (u32 i = 0; i < PRICE_INSNS && pipe_falls_through(&piece[n - 1]); i++, n++) {
		u32 at = piece[n - 1].at + piece[n - 1].length;

		if (at >= end || !piece_at(t, i, at, &piece[n]))
			break;
	}
	return n;
}

/* --- loops --- */

/* Is it a direct jump back within its page? *back: bytes from its target to it. */
static bool jumps_back(const struct trans *t, const struct scan *s, u32 *back)
{
	s64 bytes = -s->insn.ops[0].imm - s->insn.len;

	*back = (u32)bytes;
	return s->vector < 0 && s->insn.is_branch && !s->insn.far &&
	       s->insn.ops[0].kind == OPERAND_IMM && s->insn.id != INSN_CALL && bytes >= 0 &&
	       bytes <= page_offset(t, s->offset);
}

/* Within the page. */
static bool is_called(const struct pipe_piece *piece, u32 *target)
{
	s64 to = (s64)piece->at + piece->length + piece->jump;

	*target = (u32)to;
	return piece->need->branch == BRANCH_CALL && to >= 0 && to < (s64)PAGE_SIZE;
}

/* From its first instruction to the branch, with the functions that it calls, if these have no
 * branches and lie in its page. Returns their number, or 0: they are not a loop that can be priced,
 * which is true of most and is found without describing them. */
static u32 find_loop(struct trans *t, u32 from, u32 branch_at, bool *calls)
{
	struct pricing *p = t->eng->pricing;
	u32 at = from, n = 0, back = 0, target; /* back: of a function, 0 outside */

	*calls = false;
	for (; (at <= branch_at || back) && n < PIPE_LOOP_INSNS; n++) {
		struct pipe_piece *piece = &p->piece[n];

		if (!piece_at(t, n, at, piece))
			return 0;
		at += piece->length;
		if (!back && is_called(piece, &target)) {
			*calls = true;
			back = at;
			at = target;
		} else if (back && piece->need->branch == BRANCH_RETURN) {
			at = back;
			back = 0;
		} else if (back ? !pipe_falls_through(piece)
				: !pipe_fits_loop(piece, piece->at == branch_at)) {
			return 0;
		}
	}
	return n && p->piece[n - 1].at == branch_at ? n : 0;
}

static bool describe_loop(struct trans *t, u32 n)
{
	struct pricing *p = t->eng->pricing;
	u8 bytes[INSN_MAX];
	u64 rip;

	for (u32 i = 0; i < n; i++) {
		u32 size = bytes_at(t, p->piece[i].at, bytes, &rip);

		if (!decode_bytes(t, bytes, size, rip) ||
		    !pipe_describe(p->core, &p->zi, p->zops, &p->loop.insn[i]))
			return false;
	}
	return true;
}

/* Where what was found for a loop is kept, or would be; NULL: it is too long for that. */
static struct priced_loop *kept_loop(struct trans *t, const u8 *bytes, u32 at, u32 size)
{
	u32 hash = size;

	if (size > PRICED_BYTES)
		return NULL;
	for (u32 i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 16777619;
	return &t->eng->pricing->kept[(hash ^ hash >> 16 ^ at) % PRICED_LOOPS];
}

static bool is_kept(const struct priced_loop *kept, const u8 *bytes, u32 at, u32 size, u32 mode)
{
	return kept && kept->size == size && kept->at == at && kept->mode == mode &&
	       bytes_equal(kept->bytes, bytes, size);
}

static void keep_loop(struct priced_loop *kept, const u8 *bytes, u32 at, u32 size, u32 mode,
		      s32 wait)
{
	kept->wait = wait;
	kept->mode = mode;
	kept->at = at;
	kept->size = size;
	bytes_copy(kept->bytes, bytes, size);
}

/* A loop's branch is priced for each block that it is in, but its bytes, their place in the page
 * and the mode decide alone. */
static s32 loop_wait(struct trans *t, const struct scan *s, u32 back)
{
	struct pricing *p = t->eng->pricing;
	bool calls;
	u32 at = page_offset(t, s->offset), from = at - back, n = find_loop(t, from, at, &calls);
	const u8 *bytes = t->source.copy[0]->bytes + from;
	u32 size = back + s->insn.len, mode = trans_decode_mode(t);
	struct priced_loop *kept;
	s32 wait;

	if (!n)
		return 0;
	if (calls || n > PIPE_SHORT_LOOP) /* needs no descriptions, which are most of the work */
		return pipe_loop_wait(p->core, p->piece, n, &p->loop, p->work);
	kept = kept_loop(t, bytes, from, size);
	if (is_kept(kept, bytes, from, size, mode))
		return kept->wait;
	p->loop.at = from;
	wait = describe_loop(t, n) ? pipe_loop_wait(p->core, p->piece, n, &p->loop, p->work) : 0;
	if (kept)
		keep_loop(kept, bytes, from, size, mode, wait);
	return wait;
}

/* --- all of it --- */

/* `more`: what its loop waits for. What does not fit into 16 bits is not charged (docs/model.md).
 */
static void set_weight(struct pricing *p, struct scan *s, const struct pipe_price *price, s32 more)
{
	struct weight *weight = &s->insn.weight;
	u32 heavy = pipe_price_heavy(p->core, price);
	u32 used = pipe_price_ticks(p->core, price) - price->wait, wait = price->wait + (u32)more;

	weight->wait = wait < 0xffff - used ? wait : 0xffff - used;
	weight->ticks = used + weight->wait;
	weight->heavy = heavy < used ? heavy : used;
	weight->fused = price->fused;
}

static void set_weights(struct trans *t, u32 n, const struct pipe_price *price)
{
	const struct scan *looked = NULL; /* an unrolled loop has its branch several times */
	u32 back;
	s32 wait = 0;

	for (u32 i = 0; i < n; i++) {
		struct scan *s = &t->scan[i];
		bool loops = jumps_back(t, s, &back);

		if (loops && (!looked || looked->rip != s->rip)) {
			wait = loop_wait(t, s, back);
			looked = s;
		}
		set_weight(t->eng->pricing, s, &price[i], loops ? wait : 0);
	}
}

void trans_price_block(struct trans *t)
{
	struct pricing *p = t->eng->pricing;
	u32 n = 0, all;

	/* What cannot be decoded has no length, and ends the block. */
	for (; n < t->nscan && t->scan[n].insn.len; n++)
		p->piece[n] = piece_of(t, &t->scan[n]);
	if (!n)
		return;
	all = n == t->nscan ? look_ahead(t, p->piece, n) : n;
	pipe_price(p->core, p->piece, all, p->price);
	set_weights(t, n, p->price);
}
