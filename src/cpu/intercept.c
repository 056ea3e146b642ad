// SPDX-License-Identifier: MIT
/*
 * The table of struct intercepts: open addressing, entries are never removed. vCPU thread, or its
 * lock's holder; general registers only.
 */
#include "cpu/intercept.h"

#include "base/bytes.h"
#include "base/must.h"

#define SLOT_MASK (INTERCEPT_MSRS - 1)

static u32 hash(u32 index)
{
	return index * 0x9e3779b1u >> 23 & SLOT_MASK;
}

/* The MSR's entry, or the free one where it would be. There are always free ones:
 * INTERCEPT_MOST. */
static u32 slot_of(const struct intercepts *set, u32 index)
{
	u32 at = hash(index);

	while (__atomic_load_n(&set->msr[at].used, __ATOMIC_ACQUIRE) && set->msr[at].index != index)
		at = (at + 1) & SLOT_MASK;
	return at;
}

static struct intercept *add(struct intercepts *set, u32 at, u32 index)
{
	struct intercept *msr = &set->msr[at];

	if (set->nused == INTERCEPT_MOST)
		return &set->other;
	set->nused++;
	msr->index = index;
	msr->pmu = pmu_reg_find(index);
	__atomic_store_n(&msr->used, true, __ATOMIC_RELEASE); /* for readers */
	return msr;
}

struct intercept *intercept_find(struct intercepts *set, u32 index)
{
	u32 at;

	if (set->recent && set->recent->index == index)
		return set->recent;
	at = slot_of(set, index);
	if (!set->msr[at].used && add(set, at, index) == &set->other)
		return &set->other;
	set->recent = &set->msr[at];
	return set->recent;
}

void intercept_init(struct intercepts *set, bool is_amd)
{
	bytes_fill(set, 0, sizeof(*set));
	for (u32 r = 0; r < pmu_nrows; r++) {
		const struct pmu_row *row = &pmu_rows[r];
		u32 n = row->is_amd == is_amd ? row->most : row->quiet;

		for (u32 i = 0; i < n; i++)
			intercept_find(set, pmu_row_index(row, i));
	}
	must(set->nused <= INTERCEPT_MSRS / 2);
}

void intercept_all(struct intercepts *set)
{
	for (u32 i = 0; i < INTERCEPT_MSRS; i++)
		set->msr[i].pass[INTERCEPT_READ] = set->msr[i].pass[INTERCEPT_WRITE] = false;
	set->pass_rdpmc = false;
}

void intercept_pass(struct intercepts *set, u32 index, enum intercept_access access)
{
	struct intercept *msr = intercept_find(set, index);

	must(msr->pmu.row);
	msr->pass[access] = true;
}

bool intercept_has_counted(const struct intercept *msr)
{
	u64 n = 0;

	for (u32 access = INTERCEPT_READ; access <= INTERCEPT_WRITE; access++)
		n |= READ_ONCE(msr->exits[access]) | READ_ONCE(msr->passed[access]);
	return n;
}

const struct intercept *intercept_counted(const struct intercepts *set, u32 index)
{
	const struct intercept *msr = &set->msr[slot_of(set, index)];

	return __atomic_load_n(&msr->used, __ATOMIC_ACQUIRE) && intercept_has_counted(msr) ? msr
											   : NULL;
}
