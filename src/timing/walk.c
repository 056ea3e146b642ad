// SPDX-License-Identifier: MIT
/*
 * Page walks. A walk reads the entries of the guest's page tables through L2 and the last level,
 * and spares those that paging-structure caches know (SDM 3A 4.10.3, APM2 5.5): one cache for
 * entries that point to the last table of a walk of 4-Kbyte pages, one for those above. vCPU
 * thread; general registers only.
 */
#include "timing/walk.h"

#include "timing/levels.h"
#include "timing/params.h"
#include "timing/sets.h"

/* The paging-structure cache of a table `above` the last one of 4-Kbyte pages: 1, 2 and so on. */
static const struct timing_sets *structure_cache(const struct timing *t, u8 above)
{
	return above == 1 ? &t->directory : &t->upper;
}

static u64 structure_tag(const struct timing_access *a, const struct timing_table *table)
{
	u64 number = (a->linear & MASK(56, 0)) >> table->shift;

	return walk_owner(a->space) << SPACE_SHIFT | (u64)table->above << SIZE_SHIFT | (number + 1);
}

/* The first table that is read: the one that the lowest known entry points to. */
static u32 first_read(struct timing *t, const struct timing_access *a,
		      const struct timing_table *tables, u32 n)
{
	for (u32 i = n - 1; i > 0; i--) {
		const struct timing_table *known = &tables[i - 1];

		if (sets_touch(structure_cache(t, known->above), 0, structure_tag(a, known)))
			return i;
	}
	return 0;
}

void walk(struct timing *t, const struct timing_access *a, bool counted)
{
	struct timing_table tables[TIMING_TABLES];
	u32 n = t->port ? t->port->tables(t->owner, a->linear, tables) : 0;
	u64 lost;

	t->walk_cycles = t->params->second + t->params->walk;
	for (u32 i = n ? first_read(t, a, tables, n) : 0; i < n; i++) {
		u64 line = tables[i].entry >> LINE_SHIFT;
		enum observed_level level =
			counted ? levels_request(t, line) : levels_fill(t, line);

		t->walk_cycles += t->params->latency[level - OBSERVED_L1];
		if (i + 1 < n)
			sets_use(structure_cache(t, tables[i].above), 0,
				 structure_tag(a, &tables[i]), &lost);
	}
}

void walk_forget(struct timing *t)
{
	levels_empty(&t->directory);
	levels_empty(&t->upper);
}

void walk_forget_space(struct timing *t, u16 space)
{
	sets_drop_space(&t->directory, walk_owner(space));
	sets_drop_space(&t->upper, walk_owner(space));
}
