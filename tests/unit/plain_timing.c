// SPDX-License-Identifier: MIT
/*
 * See plain_timing.h.
 */
#include "unit/plain_timing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "timing/levels.h"
#include "timing/sets.h"

u64 count[NRETIRE];
struct timing *timing;
static void *memory;
const struct model *model;

int on_model(void **state)
{
	model = model_find(*state);
	timing = calloc(1, sizeof(*timing));
	memory = calloc(1, timing_memory(model));
	assert_true(model && timing && memory);
	memset(count, 0, sizeof(count));
	timing_init(timing, model, memory, count);
	timing->prefetch.kinds = 0;
	return 0;
}

int done(void **state)
{
	(void)state;
	free(timing);
	free(memory);
	return 0;
}

struct timing_access access_at(gva_t linear, gpa_t physical)
{
	return (struct timing_access){ .linear = linear,
				       .physical = physical,
				       .host = HOST + physical,
				       .size = 8,
				       .page_shift = PAGE_SHIFT,
				       .space = 1 };
}

void load(u64 address)
{
	struct timing_access a = access_at(address, address);

	timing_data(timing, &a);
}

/* On a page so large that translation plays no part. */
void load_large(u64 address)
{
	struct timing_access a = access_at(address, address);

	a.page_shift = 30;
	timing_data(timing, &a);
}

void fetch(u64 address)
{
	struct timing_access a = access_at(address, address);

	timing_fetch(timing, &a);
}

u64 taken(enum retire_class class)
{
	u64 n = count[class];

	count[class] = 0;
	return n;
}

bool holds(const struct timing_sets *s, u64 address)
{
	return sets_hold(s, address / LINE, levels_tag(address / LINE));
}
