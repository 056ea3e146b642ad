// SPDX-License-Identifier: MIT
/*
 * The maps and the table of struct intercepts. vCPU thread, or its lock's holder; general registers
 * only.
 */
#include "cpu/intercept.h"

#include "base/bytes.h"
#include "base/must.h"

static const u32 range_base[INTERCEPT_RANGES] = { 0, 0xc0000000, 0xc0010000 };

/* The range of an MSR, and its bit there; false: none. */
static bool find(u32 index, u32 *range, u32 *bit)
{
	for (u32 i = 0; i < INTERCEPT_RANGES; i++)
		if (index - range_base[i] < INTERCEPT_MSRS) {
			*range = i;
			*bit = index - range_base[i];
			return true;
		}
	return false;
}

void intercept_all(struct intercepts *set)
{
	bytes_fill(set->pass, 0, sizeof(set->pass));
	set->pass_rdpmc = false;
}

void intercept_pass(struct intercepts *set, u32 index, enum intercept_access access)
{
	u32 range, bit;

	must(find(index, &range, &bit));
	set->pass[range][access][bit / 64] |= BIT(bit % 64);
}

bool intercept_passes(const struct intercepts *set, u32 index, enum intercept_access access)
{
	u32 range, bit;

	return find(index, &range, &bit) && (set->pass[range][access][bit / 64] >> bit % 64 & 1);
}

#define COUNTS_MASK (INTERCEPT_COUNTS - 1)

static u32 hash(u32 index)
{
	return index * 0x9e3779b1u >> 24 & COUNTS_MASK;
}

struct intercept_count *intercept_count(struct intercepts *set, u32 index)
{
	for (u32 i = 0, at = hash(index); i < INTERCEPT_COUNTS; i++, at = (at + 1) & COUNTS_MASK) {
		struct intercept_count *count = &set->count[at];

		if (count->used && count->index != index)
			continue;
		if (!count->used) {
			count->index = index;
			__atomic_store_n(&count->used, true, __ATOMIC_RELEASE); /* for readers */
		}
		return count;
	}
	return &set->other;
}

const struct intercept_count *intercept_counted(const struct intercepts *set, u32 index)
{
	for (u32 i = 0, at = hash(index); i < INTERCEPT_COUNTS; i++, at = (at + 1) & COUNTS_MASK) {
		const struct intercept_count *count = &set->count[at];

		if (!__atomic_load_n(&count->used, __ATOMIC_ACQUIRE))
			return NULL;
		if (count->index == index)
			return count;
	}
	return NULL;
}
