// SPDX-License-Identifier: MIT
/*
 * Targets of indirect branches: the last one by address, and tagged tables by address and path
 * (Seznec, "A 64-Kbytes ITTAGE indirect branch predictor", JWAC-2, 2011). The longest match
 * predicts. vCPU thread; general registers only.
 */
#include "timing/predict.h"

#define CONFIDENCE_MAX 3u
#define USEFUL_MAX     3u
#define AGE_AFTER      (1u << 14) /* updates */
#define NONE	       ITTAGE_TABLES

struct answer {
	struct ittage_entry *entry[ITTAGE_TABLES];
	u16 tag[ITTAGE_TABLES];
	u32 provider, other; /* the two longest matches; NONE */
};

static void look_up(struct predict *p, u64 from, struct answer *a)
{
	u64 key = predict_key(p, from, LAST_OF_INDIRECT);

	a->provider = a->other = NONE;
	for (u32 i = 0; i < p->params->target_tables; i++) {
		const struct history *h = &p->target_history[i];
		u64 hash = predict_hash_path(p, h, key);

		a->entry[i] = &p->ittage[i][predict_index(hash, ITTAGE_BITS) & h->mask];
		a->tag[i] = predict_tag(hash);
		if (a->entry[i]->tag != a->tag[i])
			continue;
		a->other = a->provider;
		a->provider = i;
	}
}

static void allocate(struct predict *p, const struct answer *a, u64 to)
{
	u32 first = a->provider == NONE ? 0 : a->provider + 1, n = p->params->target_tables;

	if (first + 1 < n && predict_draw(p) & 1)
		first++;
	for (u32 i = first; i < n; i++) {
		if (a->entry[i]->useful)
			continue;
		*a->entry[i] = (struct ittage_entry){ .target = to, .tag = a->tag[i] };
		return;
	}
	for (u32 i = first; i < n; i++)
		a->entry[i]->useful--;
}

static void learn(struct ittage_entry *entry, u64 to, bool other_right)
{
	if (entry->target == to) {
		entry->confidence += entry->confidence < CONFIDENCE_MAX;
		entry->useful += !other_right && entry->useful < USEFUL_MAX;
		return;
	}
	if (entry->confidence) {
		entry->confidence--;
		return;
	}
	entry->target = to;
	entry->useful = 0;
}

static void age(struct predict *p)
{
	for (u32 i = 0; i < p->params->target_tables; i++)
		for (u32 j = 0; j < 1u << p->params->target_bits; j++)
			p->ittage[i][j].useful >>= 1;
}

/* The provider was not right yet, and the match before it was. */
static bool trusts_other(const struct answer *a)
{
	const struct ittage_entry *entry;

	if (a->other == NONE)
		return false;
	entry = a->entry[a->provider];
	return !entry->confidence && !entry->useful && a->entry[a->other]->confidence;
}

bool ittage_missed(struct predict *p, u64 from, u64 to, u64 last)
{
	struct answer a;
	u64 other, said;

	look_up(p, from, &a);
	other = a.other == NONE ? last : a.entry[a.other]->target;
	said = a.provider == NONE ? last : a.entry[a.provider]->target;
	if (trusts_other(&a))
		said = other;
	if (a.provider != NONE)
		learn(a.entry[a.provider], to, other == to);
	if (said != to)
		allocate(p, &a, to);
	if (++p->target_updates % AGE_AFTER == 0)
		age(p);
	return said != to;
}
