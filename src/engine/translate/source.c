// SPDX-License-Identifier: MIT
/*
 * The bytes that are translated. They are copied line by line from guest memory into the page's
 * copy, and decoded from there: a concurrent writer can make the copy old, which cache_verify()
 * finds, but never make the translation differ from it.
 */
#include "base/bytes.h"
#include "base/guarded.h"
#include "engine/translate/trans.h"

#define LINE 64

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
	if (!guarded_read(s->copy[which]->bytes + line * LINE, s->host[which] + line * LINE, LINE))
		return false;
	s->loaded[which] |= BIT(line);
	return true;
}

const u8 *source_rest(const struct trans *t, u32 offset, u32 *n)
{
	*n = LINE - offset % LINE;
	return t->source.copy[offset / PAGE_SIZE]->bytes + offset % PAGE_SIZE;
}

u32 source_bytes(struct trans *t, u32 offset, u8 *out)
{
	struct source *s = &t->source;
	u32 end = source_spans(t) ? 2 * PAGE_SIZE : PAGE_SIZE, n = 0;

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
	return n;
}
