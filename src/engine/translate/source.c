// SPDX-License-Identifier: MIT
/*
 * The bytes that are translated. They are copied line by line from guest memory into the page's
 * copy, and decoded from there: a concurrent writer can make the copy old, which cache_verify()
 * finds, but never make the translation differ from it. source_open() enters the page
 * into the table of pages with code, and has a copy that may be old compared with memory, which may
 * drop its blocks. Runs while translating.
 */
#include "base/bytes.h"
#include "base/guarded.h"
#include "engine/translate/trans.h"

#define LINE 64

/* One by one: compilers clear a struct by REP STOS, which takes longer. */
void source_begin(struct source *s)
{
	for (u32 i = 0; i < 2; i++) {
		s->copy[i] = NULL;
		s->page[i] = NULL;
		s->host[i] = NULL;
		s->loaded[i] = s->used[i] = 0;
	}
	s->nranges = 0;
	s->many_ranges = false;
}

bool source_open(struct trans *t, u32 which, gpa_t gpa, const u8 *host)
{
	struct source *s = &t->source;

	s->copy[which] = cache_page(t->cpu, gpa);
	if (!s->copy[which])
		return false;
	s->page[which] = code_find(cpu_priv(t->cpu)->code, gpa);
	s->host[which] = host - (gpa & ~PAGE_MASK);
	if (!page_verified(t->cpu, s->page[which]))
		cache_verify(t->cpu, s->page[which], s->host[which]);
	s->loaded[which] = s->page[which]->lines;
	return true;
}

bool source_spans(const struct trans *t)
{
	return t->source.copy[1];
}

static bool load_line(struct source *s, u32 which, u32 line)
{
	s->used[which] |= BIT(line);
	if (s->loaded[which] & BIT(line))
		return true;
	if (!guarded_read_line(s->copy[which]->bytes + line * LINE, s->host[which] + line * LINE))
		return false;
	s->loaded[which] |= BIT(line);
	return true;
}

const u8 *source_at(const struct trans *t, u32 offset)
{
	return t->source.copy[offset / PAGE_SIZE]->bytes + offset % PAGE_SIZE;
}

bool source_load_lines(struct trans *t, u64 lines)
{
	struct source *s = &t->source;
	u64 used = s->used[0];
	bool ok = true;

	for (; lines && ok; lines &= lines - 1)
		ok = load_line(s, 0, __builtin_ctzll(lines));
	s->used[0] = used;
	return ok;
}

/* Ranges grow at their ends, as code is read. */
static void note_any_range(struct source *s, u32 from, u32 to)
{
	struct source_range *last = NULL;

	for (u32 i = 0; i < s->nranges; i++) {
		last = &s->range[i];
		if (from >= last->from && to <= last->to)
			return;
	}
	if (last && from >= last->from && from <= last->to)
		last->to = to;
	else if (s->nranges < MAX_RANGES)
		s->range[s->nranges++] = (struct source_range){ from, to };
	else
		s->many_ranges = true;
}

/* Most blocks have one, and are read forwards. */
static void note_range(struct trans *t, u32 from, u32 to)
{
	struct source_range *r = t->source.range;

	if (!t->keeps)
		return;
	if (t->source.nranges == 1 && from >= r->from && from <= r->to)
		r->to = to > r->to ? to : r->to;
	else
		note_any_range(&t->source, from, to);
}

u32 source_bytes(struct trans *t, u32 offset, u8 *out)
{
	struct source *s = &t->source;
	u32 end = source_spans(t) ? 2 * PAGE_SIZE : PAGE_SIZE, n = 0, begin = offset;

	while (n < INSN_MAX && offset < end) {
		u32 which = offset / PAGE_SIZE, at = offset % PAGE_SIZE, room = LINE - at % LINE;

		if (!load_line(s, which, at / LINE))
			return n;
		if (room > INSN_MAX - n)
			room = INSN_MAX - n;
		bytes_copy_few(out + n, s->copy[which]->bytes + at, room);
		n += room;
		offset += room;
	}
	if (n)
		note_range(t, begin, offset);
	return n;
}

const u8 *source_view(struct trans *t, u32 offset, u8 *out, u32 *n)
{
	struct source *s = &t->source;
	u64 lines;

	if (offset + INSN_MAX <= PAGE_SIZE) {
		lines = source_lines(offset, offset + INSN_MAX);
		if (!(lines & ~s->loaded[0])) {
			s->used[0] |= lines;
			note_range(t, offset, offset + INSN_MAX);
			*n = INSN_MAX;
			return s->copy[0]->bytes + offset;
		}
	}
	*n = source_bytes(t, offset, out);
	return out;
}
