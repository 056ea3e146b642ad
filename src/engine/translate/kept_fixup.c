// SPDX-License-Identifier: MIT
/*
 * Fixups of kept blocks: see kept_fixup.h; what each kind is, emit.h. Runs while translating;
 * general registers only.
 */
#include "engine/translate/kept_fixup.h"

#include "engine/code_check.h"

/* Displacements of line buffers have four bytes, wherever in the page the line is. */
_Static_assert(PRIV(timing) + (s32)offsetof(struct timing, code_line) > 127, "FIXUP_LINE");

bool kept_fixup_sound(const struct fixup *f, const struct fixup_bounds *bounds)
{
	u32 left = f->at < bounds->code_size ? bounds->code_size - f->at : 0;

	switch ((enum fixup_kind)f->kind) {
	case FIXUP_BLOCK64:
		return left >= 8;
	case FIXUP_INSN64:
		return left >= 8 && f->index < bounds->ncopies;
	case FIXUP_LINK32:
		return left >= 4 && f->index < bounds->nlinks;
	case FIXUP_LINE:
		return left >= 8 && f->index < PAGE_LINES;
	case FIXUP_KEY:
		return left >= 4 && f->index < PAGE_LINES;
	case FIXUP_THUNK:
	case FIXUP_BLOCK32:
	case FIXUP_NUMBER:
	case FIXUP_LANDING:
		return left >= 4;
	}
	return false;
}

void kept_fixup_neutralize(const struct trans *t, const struct fixup *f, u8 *code)
{
	const struct block *b = t->block;
	const u8 *site = b->code + f->at;
	u8 *at = code + f->at;

	switch ((enum fixup_kind)f->kind) {
	case FIXUP_THUNK:
		*(u32_unaligned *)at = site + 4 + *(const s32_unaligned *)site - t->eng->code_rw;
		break;
	case FIXUP_BLOCK64:
		*(u64_unaligned *)at = *(const u64_unaligned *)site - (u64)(uintptr_t)b;
		break;
	case FIXUP_INSN64:
	case FIXUP_LINE:
		*(u64_unaligned *)at = 0;
		break;
	case FIXUP_BLOCK32:
	case FIXUP_LINK32:
	case FIXUP_NUMBER:
	case FIXUP_KEY:
		*(u32_unaligned *)at = 0;
		break;
	case FIXUP_LANDING:
		break;
	}
}

void kept_fixup_fill_in(struct trans *t, const struct fixup *f)
{
	struct block *b = t->block;
	gpa_t line = (b->gpa & PAGE_MASK) + f->index * LINE_SIZE;
	u8 *at = b->code + f->at;

	switch ((enum fixup_kind)f->kind) {
	case FIXUP_THUNK:
		*(s32_unaligned *)at = t->eng->code_rw + *(const u32_unaligned *)at - (at + 4);
		break;
	case FIXUP_BLOCK64:
		*(u64_unaligned *)at += (u64)(uintptr_t)b;
		break;
	case FIXUP_INSN64:
		*(u64_unaligned *)at = (u64)(uintptr_t)(t->copies[0] + f->index);
		break;
	case FIXUP_BLOCK32:
		*(u32_unaligned *)at = meta_offset(t, b);
		break;
	case FIXUP_LINK32:
		*(u32_unaligned *)at = meta_offset(t, &b->link[f->index]);
		break;
	case FIXUP_NUMBER:
		*(u32_unaligned *)at = t->eng->nblocks;
		break;
	case FIXUP_LINE:
		*(s32_unaligned *)at = kept_fixup_line_buffer(line);
		*(u32_unaligned *)(at + 4) = timing_code_key(line);
		break;
	case FIXUP_KEY:
		*(u32_unaligned *)at = timing_code_key(line);
		break;
	case FIXUP_LANDING:
		check_enterable(t->eng, at);
		break;
	}
}
