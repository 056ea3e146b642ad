// SPDX-License-Identifier: MIT
/*
 * What the instructions of a block take, in ticks, by the model of the core (pipeline/price.c).
 *
 * Invariants, on which it rests that cycles do not depend on how code is cut into blocks:
 *
 *   1. The price of an instruction is a function of the model, of its address within the line, and
 *      of the bytes from it to the end of its segment. Where the block ends earlier, bytes are
 *      looked at that are not translated.
 *   2. A segment ends with a branch, with an instruction that has a fixed price, and where the next
 *      instruction begins in another line or crosses a page. So all bytes of it lie in lines that
 *      the block has as its source, but for the end of the last instruction, which source_bytes()
 *      adds: a write there makes the block old.
 *   3. A conditional or unconditional jump back within its page also waits for the chain of
 *      dependencies that goes round its loop. Its price then depends on all bytes of the loop,
 *      whose lines become source as well.
 */
#include "base/bytes.h"
#include "cpu/fpu.h"
#include "engine/decode.h"
#include "engine/price.h"
#include "engine/translate/trans.h"

#define LINE 64

size_t pricing_size(void)
{
	return sizeof(struct pricing) + pipe_work_size();
}

void pricing_begin(struct pricing *p, enum model_set set)
{
	p->core = pipe_core_of(set);
	p->work = (struct pipe_work *)(p + 1);
}

static u32 page_offset(const struct trans *t, s32 offset)
{
	return (u32)((t->block->gpa & ~PAGE_MASK) + offset);
}

static bool crosses_page(const struct piece *piece)
{
	return piece->at + piece->len > PAGE_SIZE;
}

static bool ends_segment(const struct piece *piece)
{
	return piece->branch || piece->need->cycles ||
	       (piece->at + piece->len) / LINE != piece->at / LINE;
}

/* Prices of instructions that follow one another wherever a segment does not end. */
static void price_pieces(const struct pricing *p, const struct piece *piece, u32 n,
			 struct pipe_price *price)
{
	struct pipe_segment segment;

	for (u32 i = n; i-- > 0;) {
		if (i + 1 == n || ends_segment(&piece[i]) || crosses_page(&piece[i + 1]))
			segment = (struct pipe_segment){ .sets = 0 };
		pipe_segment_add(p->core, &segment, piece[i].need, &price[i]);
	}
}

static u32 ticks_of(const struct pricing *p, const struct pipe_price *price)
{
	return price->slots * pipe_slot_ticks(p->core) + price->wait;
}

/* --- instructions as Zydis has them --- */

static bool decode_bytes(struct trans *t, const u8 *bytes, u32 n, u64 rip)
{
	struct pricing *p = t->eng->pricing;

	fpu_save(t->cpu);
	return decode_insn(bytes, n, rip, trans_decode_mode(t), &p->insn, &p->zi, p->zops) ==
	       DECODE_OK;
}

/* The instruction at an address of the block's page, if it is one. */
static bool decode_at(struct trans *t, u32 at)
{
	u64 rip = t->block->rip + (at - page_offset(t, 0));
	u8 bytes[INSN_MAX];
	u32 n = at < PAGE_SIZE ? source_bytes(t, at, bytes) : 0;

	return n && decode_bytes(t, bytes, n < PAGE_SIZE - at ? n : PAGE_SIZE - at, rip);
}

/* --- the block --- */

static struct piece piece_of(struct trans *t, const struct scan *s)
{
	struct pricing *p = t->eng->pricing;
	struct decoded *d = s->decoded;

	if (!d->priced && decode_bytes(t, s->insn.bytes, s->insn.len, s->rip)) {
		pipe_need(p->core, &p->zi, p->zops, &d->need);
		d->priced = true;
	}
	return (struct piece){ .need = &d->need,
			       .at = page_offset(t, s->offset),
			       .len = s->insn.len,
			       .branch = s->insn.is_branch };
}

/* Those that follow the last one up to the end of its segment. */
static u32 look_ahead(struct trans *t, struct piece *piece, u32 n)
{
	struct pricing *p = t->eng->pricing;

	for (u32 i = 0; i < ARRAY_SIZE(p->ahead) && !ends_segment(&piece[n - 1]); i++, n++) {
		u32 at = piece[n - 1].at + piece[n - 1].len;

		if (!decode_at(t, at))
			break;
		pipe_need(p->core, &p->zi, p->zops, &p->ahead[i]);
		piece[n] = (struct piece){ .need = &p->ahead[i],
					   .at = at,
					   .len = p->insn.len,
					   .branch = p->insn.is_branch };
	}
	return n;
}

/* --- loops --- */

static u64 branch_to(const struct scan *s)
{
	return s->rip + s->insn.len + (u64)s->insn.ops[0].imm;
}

static bool goes_back(const struct trans *t, const struct scan *s)
{
	u64 to = branch_to(s);

	return s->vector < 0 && s->insn.is_branch && !s->insn.far &&
	       s->insn.ops[0].kind == OPERAND_IMM && s->insn.mnemonic != ZYDIS_MNEMONIC_CALL &&
	       to <= s->rip && !((to ^ s->rip) & PAGE_MASK) &&
	       page_offset(t, s->offset) + s->insn.len <= PAGE_SIZE;
}

/* Of the branches within a loop only those that go forward, and may fall through, leave it one. */
static bool may_be_in_loop(const struct insn *insn, const ZydisDecodedInstruction *zi)
{
	return !insn->is_branch ||
	       (zi->meta.category == ZYDIS_CATEGORY_COND_BR && insn->ops[0].imm >= 0);
}

/* From its first instruction to the branch: how many, or 0: it is none. */
static u32 decode_loop(struct trans *t, u32 from, u32 branch_at, bool *forks)
{
	struct pricing *p = t->eng->pricing;
	u32 at = from, n = 0;

	*forks = false;
	for (; at <= branch_at && n < PRICE_INSNS; n++) {
		if (!decode_at(t, at) || !pipe_describe(p->core, &p->zi, p->zops, &p->loop.insn[n]))
			return 0;
		if (at != branch_at && !may_be_in_loop(&p->insn, &p->zi))
			return 0;
		*forks |= at != branch_at && p->insn.is_branch;
		pipe_need(p->core, &p->zi, p->zops, &p->ahead[n]);
		p->pieces[n] = (struct piece){ .need = &p->ahead[n],
					       .at = at,
					       .len = p->insn.len,
					       .branch = p->insn.is_branch };
		at += p->insn.len;
	}
	return n && p->pieces[n - 1].at == branch_at ? n : 0;
}

static u32 loop_ticks(struct trans *t, u32 n)
{
	struct pricing *p = t->eng->pricing;
	struct pipe_price price[PRICE_INSNS];
	u32 ticks = 0;

	price_pieces(p, p->pieces, n, price);
	for (u32 i = 0; i < n; i++)
		ticks += ticks_of(p, &price[i]);
	return ticks;
}

/* A turn that forks does not always go along the longest chain. */
static u32 chain_ticks(struct trans *t, u32 from, u32 n, bool forks)
{
	struct pricing *p = t->eng->pricing;
	u32 latency;

	p->loop.at = t->block->rip + (from - page_offset(t, 0));
	p->loop.count = n;
	p->loop.loops = true;
	pipe_fuse(p->core, &p->loop);
	latency = pipe_loop_latency(p->core, &p->loop, p->work);
	return forks ? latency * 7 / 10 : latency;
}

static u32 loop_wait(struct trans *t, const struct scan *s)
{
	u32 branch_at = page_offset(t, s->offset);
	u32 from = branch_at - (u32)(s->rip - branch_to(s));
	u32 n, ticks, chain;
	bool forks;

	n = decode_loop(t, from, branch_at, &forks);
	if (!n)
		return 0;
	ticks = loop_ticks(t, n);
	chain = chain_ticks(t, from, n, forks);
	return chain > ticks ? chain - ticks : 0;
}

/* --- all of it --- */

#define TICKS_MOST 0xffffu

static void set_weight(struct pricing *p, struct scan *s, const struct pipe_price *price, u32 more)
{
	u32 wait = price->wait + more, ticks = wait + price->slots * pipe_slot_ticks(p->core);

	s->insn.weight.wait = wait < TICKS_MOST ? wait : TICKS_MOST;
	s->insn.weight.ticks = ticks < TICKS_MOST ? ticks : TICKS_MOST;
}

void price_block(struct trans *t)
{
	struct pricing *p = t->eng->pricing;
	struct piece piece[BLOCK_INSNS + LINE];
	struct pipe_price price[BLOCK_INSNS + LINE];
	/* A block of several turns has its branch back several times. */
	const struct scan *looked = NULL;
	u32 n = 0, all, more = 0;

	while (n < t->nscan && t->scan[n].insn.len) {
		piece[n] = piece_of(t, &t->scan[n]);
		n++;
	}
	if (!n)
		return;
	all = n == t->nscan ? look_ahead(t, piece, n) : n;
	price_pieces(p, piece, all, price);
	for (u32 i = 0; i < n; i++) {
		struct scan *s = &t->scan[i];

		if (goes_back(t, s) && (!looked || looked->rip != s->rip)) {
			more = loop_wait(t, s);
			looked = s;
		}
		set_weight(p, s, &price[i], goes_back(t, s) ? more : 0);
	}
}
