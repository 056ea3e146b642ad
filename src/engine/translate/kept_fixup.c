// SPDX-License-Identifier: MIT
/*
 * Fixups of kept blocks: see kept_fixup.h; what each kind is, emit.h. A block has some
 * fourteen, and is recalled in some thousand instructions, so each kind has a loop of its own. Runs
 * while translating; general registers only.
 */
#include "engine/translate/kept_fixup.h"

#include "engine/code_check.h"

/* Displacements of line buffers have four bytes, wherever in the page the line is. */
_Static_assert(PRIV(timing) + (s32)offsetof(struct timing, code_line) > 127, "FIXUP_LINE");

void kept_fixup_count(const struct fixups *fixups, struct kept_fixups *counts)
{
	counts->all = fixups->n;
	for (u32 kind = 0; kind < NFIXUP_KINDS; kind++)
		counts->n[kind] = fixups->counts[kind];
}

/* --- keeping a block --- */

/* What a displacement to a thunk lacks if the block is at the start of code memory. */
static u32 moved_by(const struct trans *t)
{
	return t->eng->code_rw - t->block->code;
}

/* Kinds whose 32 bits become the index: 0, if it is unused. */
#define INDEX_32                                                                       \
	(BIT(FIXUP_BLOCK32) | BIT(FIXUP_NUMBER) | BIT(FIXUP_LINK32) | BIT(FIXUP_KEY) | \
	 BIT(FIXUP_HEAT))

/* Most are of the first kind and of those: a switch of all would be mispredicted. */
static inline void neutralize(const struct trans *t, const struct fixup *f, u32 moved, u8 *at)
{
	if (f->kind == FIXUP_THUNK) {
		*(u32_unaligned *)at -= moved;
		return;
	}
	if (INDEX_32 >> f->kind & 1) {
		*(u32_unaligned *)at = f->index;
		return;
	}
	if (f->kind == FIXUP_BLOCK64)
		*(u64_unaligned *)at -= (u64)(uintptr_t)t->block;
	else if (f->kind == FIXUP_INSN64 || f->kind == FIXUP_LINE)
		*(u64_unaligned *)at = f->index;
}

void kept_fixup_neutralize(const struct trans *t, struct kept_code code, u16 *places)
{
	const struct fixups *fixups = &t->fixups;
	u32 moved = moved_by(t);
	u16 *next[NFIXUP_KINDS];

	for (u32 kind = 0; kind < NFIXUP_KINDS; places += fixups->counts[kind++])
		next[kind] = places;
	for (u32 i = 0; i < fixups->n; i++) {
		const struct fixup *f = &fixups->fixup[i];

		neutralize(t, f, moved, code.bytes + f->at);
		*next[f->kind]++ = f->at;
	}
}

/* --- recalling it --- */

/* The fixups of one kind. By value: what is filled in could be anything, for all that a compiler
 * knows. */
struct fixup_group {
	struct kept_code code;
	const u16 *places;
	u32 n;
};

static void *place(struct fixup_group g, u32 i)
{
	return g.code.bytes + g.places[i];
}

/* Do the bytes of number i, so many, lie within the code? */
static bool inside(struct fixup_group g, u32 i, u32 bytes)
{
	return g.places[i] + bytes <= g.code.size;
}

static bool add_32(struct fixup_group g, u32 what)
{
	for (u32 i = 0; i < g.n; i++) {
		if (!inside(g, i, 4))
			return false;
		*(u32_unaligned *)place(g, i) += what;
	}
	return true;
}

static bool add_64(struct fixup_group g, u64 what)
{
	for (u32 i = 0; i < g.n; i++) {
		if (!inside(g, i, 8))
			return false;
		*(u64_unaligned *)place(g, i) += what;
	}
	return true;
}

static bool fill_in_links(const struct trans *t, struct fixup_group g)
{
	for (u32 i = 0; i < g.n; i++) {
		u32_unaligned *at = place(g, i);

		if (!inside(g, i, 4) || *at >= t->block->nlinks)
			return false;
		*at = meta_offset(t, &t->block->link[*at]);
	}
	return true;
}

static bool fill_in_insns(const struct trans *t, struct fixup_group g)
{
	for (u32 i = 0; i < g.n; i++) {
		u64_unaligned *at = place(g, i);

		if (!inside(g, i, 8) || *at >= t->ncopies)
			return false;
		*at = (u64)(uintptr_t)(t->copies[0] + *at);
	}
	return true;
}

static bool fill_in_lines(const struct trans *t, struct fixup_group g, bool buffers)
{
	for (u32 i = 0; i < g.n; i++) {
		u32_unaligned *at = place(g, i);
		gpa_t line;

		if (!inside(g, i, buffers ? 8 : 4) || *at >= PAGE_LINES)
			return false;
		line = (t->block->gpa & PAGE_MASK) + *at * LINE_SIZE;
		if (buffers)
			*at++ = kept_fixup_line_buffer(line);
		*at = timing_code_key(line);
	}
	return true;
}

static bool fill_in_heat(const struct trans *t, struct fixup_group g)
{
	for (u32 i = 0; i < g.n; i++) {
		if (!inside(g, i, 4))
			return false;
		*(u32_unaligned *)place(g, i) =
			heat_displacement(t->eng, t->block->code + g.places[i]);
	}
	t->block->heats = g.n;
	return true;
}

static bool note_landings(const struct trans *t, struct fixup_group g)
{
	for (u32 i = 0; i < g.n; i++) {
		if (!inside(g, i, 4))
			return false;
		check_enterable(t->eng, t->block->code + g.places[i]);
	}
	return true;
}

static u32 sum(const struct kept_fixups *counts)
{
	u32 n = 0;

	for (u32 kind = 0; kind < NFIXUP_KINDS; kind++)
		n += counts->n[kind];
	return n;
}

static struct fixup_group take(struct fixup_group *rest, u32 n)
{
	struct fixup_group g = { .code = rest->code, .places = rest->places, .n = n };

	rest->places += n;
	return g;
}

bool kept_fixup_fill_in(const struct trans *t, struct kept_code code,
			const struct kept_fixups *counts, const u16 *places)
{
	struct fixup_group rest = { .code = code, .places = places };
	const u16 *n = counts->n;

	return sum(counts) == counts->all && add_32(take(&rest, n[FIXUP_THUNK]), moved_by(t)) &&
	       add_64(take(&rest, n[FIXUP_BLOCK64]), (u64)(uintptr_t)t->block) &&
	       fill_in_insns(t, take(&rest, n[FIXUP_INSN64])) &&
	       add_32(take(&rest, n[FIXUP_BLOCK32]), meta_offset(t, t->block)) &&
	       fill_in_links(t, take(&rest, n[FIXUP_LINK32])) &&
	       add_32(take(&rest, n[FIXUP_NUMBER]), t->eng->nblocks) &&
	       fill_in_heat(t, take(&rest, n[FIXUP_HEAT])) &&
	       note_landings(t, take(&rest, n[FIXUP_LANDING])) &&
	       fill_in_lines(t, take(&rest, n[FIXUP_LINE]), true) &&
	       fill_in_lines(t, take(&rest, n[FIXUP_KEY]), false);
}
