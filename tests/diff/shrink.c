// SPDX-License-Identifier: MIT
/*
 * Making a mismatch small: instructions are left out and inputs made plain as long as the mismatch
 * stays.
 */
#include "diff.h"

#include <stdio.h>
#include <string.h>

static bool still_differs(const struct test_case *c, enum plant plant)
{
	static struct verdict v;

	case_load(c);
	case_run(c, plant, &v);
	return v.differs;
}

static bool branches(const struct item *item)
{
	return item->fix == FIX_REL8 || item->fix == FIX_REL32 || item->fix == FIX_ABS32;
}

/* What may be undefined where the item starts may still be so after it when it is gone. */
static void remove_item(struct sequence *seq, u32 at)
{
	for (u32 i = at + 1; i < seq->n; i++)
		seq->items[i].undefined |= seq->items[at].undefined;
	seq->undefined |= seq->items[at].undefined;
	seq->n--;
	memmove(&seq->items[at], &seq->items[at + 1], (seq->n - at) * sizeof(seq->items[0]));
	for (u32 i = 0; i < seq->n; i++)
		if (branches(&seq->items[i]) && seq->items[i].target > at)
			seq->items[i].target--;
}

static bool shrink_sequence(struct test_case *c, enum plant plant)
{
	static struct test_case smaller;
	bool any = false;

	for (u32 i = c->seq.n; i-- > 0;) {
		if (c->seq.items[i].pinned)
			continue;
		smaller = *c;
		remove_item(&smaller.seq, i);
		if (!still_differs(&smaller, plant))
			continue;
		c->seq = smaller.seq;
		any = true;
	}
	return any;
}

/* Parts of the input to try without: offsets into struct state, and the plain value of each byte
 * there. */
static void plain_part(struct test_case *c, enum plant plant, size_t offset, size_t size,
		       const void *plain)
{
	static struct test_case smaller;

	smaller = *c;
	if (plain)
		memcpy((u8 *)&smaller.in + offset, plain, size);
	else
		memset((u8 *)&smaller.in + offset, 0, size);
	if (still_differs(&smaller, plant))
		c->in = smaller.in;
}

static void shrink_input(struct test_case *c, enum plant plant)
{
	static const u64 flags = FL_FIX1 | FL_IF;
	static const u8 control[32] = { 0x7f, 0x03, [24] = 0x80, 0x1f };
	const size_t xsave = offsetof(struct state, xsave);

	for (u32 i = 0; i < 16; i++) {
		if (i != RSP || !c->seq.ldt) /* there it belongs to the stack segment's size */
			plain_part(c, plant, offsetof(struct state, gpr) + 8 * i, 8, NULL);
		plain_part(c, plant, xsave + 160 + 16 * i, 16, NULL);
		plain_part(c, plant, xsave + XSAVE_YMM + 16 * i, 16, NULL);
		plain_part(c, plant, offsetof(struct state, zmm_high) + 32 * i, 32, NULL);
		plain_part(c, plant, offsetof(struct state, zmm16) + 64 * i, 64, NULL);
	}
	for (u32 i = 0; i < 8; i++) {
		plain_part(c, plant, xsave + 32 + 16 * i, 16, NULL);
		plain_part(c, plant, offsetof(struct state, mask) + 8 * i, 8, NULL);
	}
	plain_part(c, plant, xsave, 6, control);
	plain_part(c, plant, xsave + 24, 4, control + 24);
	plain_part(c, plant, offsetof(struct state, rflags), 8, &flags);
	if (c->seq.ldt)
		return; /* bases belong to selectors */
	plain_part(c, plant, offsetof(struct state, fs_base), 8, NULL);
	plain_part(c, plant, offsetof(struct state, gs_base), 8, NULL);
}

static void shrink_placement(struct test_case *c, enum plant plant)
{
	static struct test_case smaller;

	smaller = *c;
	smaller.seq.start = smaller.in.rip = code_origin(&smaller.seq) + 0x100;
	smaller.budget = ~0ull >> 1;
	if (still_differs(&smaller, plant))
		*c = smaller;
}

void case_shrink(struct test_case *c, enum plant plant, struct verdict *v)
{
	while (shrink_sequence(c, plant))
		;
	shrink_placement(c, plant);
	shrink_input(c, plant);
	case_load(c);
	case_run(c, plant, v);
}

/* --- printing
 * -----------------------------------------------------------------------------------------------------
 */

static void print_code(const struct sequence *seq)
{
	ZydisMachineMode mode = seq->is16   ? ZYDIS_MACHINE_MODE_LONG_COMPAT_16
				: seq->is32 ? ZYDIS_MACHINE_MODE_LONG_COMPAT_32
					    : ZYDIS_MACHINE_MODE_LONG_64;
	u8 bytes[SEQUENCE_MAX * 15 + 2];
	u64 addr[SEQUENCE_MAX + 1];

	sequence_bytes(seq, bytes, addr);
	for (u32 i = 0; i <= seq->n; i++) {
		const u8 *p = bytes + (addr[i] - seq->start);
		u32 len = i < seq->n ? seq->items[i].len : 2;
		ZydisDisassembledInstruction d;

		if (!ZYAN_SUCCESS(ZydisDisassembleIntel(mode, addr[i], p, len, &d)))
			strcpy(d.text, "(undecodable)");
		printf("  %08llx  ", (unsigned long long)addr[i]);
		for (u32 j = 0; j < 15; j++)
			printf(j < len ? "%02x" : "  ", p[j]);
		printf("  %s\n", d.text);
	}
}

static void print_input(const struct state *in)
{
	static const char *const names[16] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp",
					       "rsi", "rdi", "r8",  "r9",  "r10", "r11",
					       "r12", "r13", "r14", "r15" };

	printf("  with");
	for (u32 i = 0; i < 16; i++)
		if (in->gpr[i])
			printf(" %s=%llx", names[i], (unsigned long long)in->gpr[i]);
	for (u32 i = 0; i < 8; i++)
		if (in->mask[i])
			printf(" k%u=%llx", i, (unsigned long long)in->mask[i]);
	printf(" rflags=%llx fs=%llx gs=%llx", (unsigned long long)in->rflags,
	       (unsigned long long)in->fs_base, (unsigned long long)in->gs_base);
	if (in->sel[DS] & 4)
		printf(" es=%x ss=%x ds=%x fs=%x gs=%x", in->sel[ES], in->sel[SS], in->sel[DS],
		       in->sel[FS], in->sel[GS]);
	printf(" fcw=%02x%02x fsw=%02x%02x ftw=%02x mxcsr=%02x%02x\n", in->xsave[1], in->xsave[0],
	       in->xsave[3], in->xsave[2], in->xsave[4], in->xsave[25], in->xsave[24]);
}

void case_print(const struct test_case *c, const struct verdict *v)
{
	print_code(&c->seq);
	print_input(&c->in);
	if (c->budget < 1000)
		printf("  in runs of %llu instructions\n", (unsigned long long)c->budget);
	for (u32 i = 0; i < v->nlines; i++)
		printf("  differs: %s\n", v->lines[i]);
}
