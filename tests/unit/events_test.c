// SPDX-License-Identifier: MIT
/*
 * The table of events: no event twice, and what perf, rr and the KVM selftests ask for is there on
 * each model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "x86/events.h"

/* Event selects as Linux writes them. */
static const struct {
	enum model_set models;
	u64 config;
} asked_for[] = {
	/* perf's generic events */
	{ MODELS_INTEL, 0x3c },
	{ MODELS_INTEL, 0xc0 },
	{ MODELS_INTEL, 0x4f2e },
	{ MODELS_INTEL, 0x412e },
	{ MODELS_INTEL, 0xc4 },
	{ MODELS_INTEL, 0xc5 },
	{ MODELS_INTEL, 0x13c },
	{ MODELS_AMD, 0x76 },
	{ MODELS_AMD, 0xc0 },
	{ MODELS_AMD, 0xff60 },
	{ MODELS_AMD, 0x964 },
	{ MODELS_AMD, 0xc2 },
	{ MODELS_AMD, 0xc3 },
	{ MODELS_AMD, 0xa9 },
	{ MODEL_GENOA, 0x100000120 },
	/* perf's cache events */
	{ MODELS_INTEL, 0x81d0 },
	{ MODELS_INTEL, 0x82d0 },
	{ INTEL_OLD_TLB, 0x151 },
	{ INTEL_OLD_TLB, 0x283 },
	{ INTEL_OLD_TLB, 0xe08 },
	{ INTEL_OLD_TLB, 0xe49 },
	{ INTEL_OLD_TLB, 0xe85 },
	{ INTEL_OLD_TLB, 0x2085 },
	{ MODEL_SAPPHIRERAPIDS, 0xe124 },
	{ MODEL_SAPPHIRERAPIDS, 0xe424 },
	{ MODEL_SAPPHIRERAPIDS, 0xe12 },
	{ MODEL_SAPPHIRERAPIDS, 0xe13 },
	{ MODEL_SAPPHIRERAPIDS, 0xe11 },
	{ MODEL_SAPPHIRERAPIDS, 0x4c4 },
	{ MODEL_SAPPHIRERAPIDS, 0x4c5 },
	{ MODELS_AMD, 0x40 },
	{ MODELS_AMD, 0xc860 },
	{ MODELS_AMD, 0xff5a },
	{ MODELS_AMD, 0x80 },
	{ MODELS_AMD, 0x81 },
	{ MODELS_AMD, 0xff45 },
	{ MODELS_AMD, 0xf045 },
	{ MODELS_AMD, 0x84 },
	{ MODELS_AMD, 0xff85 },
	{ INTEL_OLD_TLB, 0x1b7 },
	{ MODEL_SAPPHIRERAPIDS, 0x12a },
	/* perf's metrics: whether a core's other thread ran */
	{ MODELS_INTEL, 0x23c },
	{ INTEL_SLOTS, 0x83c },
	{ INTEL_SLOTS, 0x2ec },
	/* rr */
	{ MODEL_SKYLAKE, 0x1c4 },
	{ INTEL_SLOTS, 0x11c4 },
	{ MODELS_AMD, 0xd1 },
	/* KVM selftests */
	{ MODELS_INTEL, 0x83d0 },
	{ INTEL_SLOTS, 0x1a4 },
	{ MODELS_AMD, 0x129 },
	{ MODELS_AMD, 0x229 },
	{ MODELS_AMD, 0x429 },
};

static void what_programs_ask_for_exists(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(asked_for); i++) {
		u64 config = asked_for[i].config;
		u32 event = (config & 0xff) | (config >> 32 & 0xf) << 8;

		for (u32 model = MODEL_SKYLAKE; model <= MODEL_GENOA; model <<= 1)
			if (asked_for[i].models & model)
				assert_non_null(event_find(model, event, config >> 8 & 0xff));
	}
}

static void no_event_is_listed_twice(void **state)
{
	const struct event *a, *b;

	(void)state;
	for (u32 i = 0; (a = event_at(i)); i++)
		for (u32 j = 0; j < i && (b = event_at(j)); j++)
			assert_false((a->models & b->models) && a->event == b->event &&
				     a->umask == b->umask);
}

static void every_row_says_where_it_is_documented(void **state)
{
	const struct event *event;

	(void)state;
	for (u32 i = 0; (event = event_at(i)); i++) {
		assert_true(event->models && !(event->models & ~MODELS_ALL));
		assert_true(*event->name && *event->where);
	}
}

static void the_same_code_differs_between_generations(void **state)
{
	(void)state;
	assert_string_equal(event_find(MODEL_SKYLAKE, 0xc4, 1)->name,
			    "BR_INST_RETIRED.CONDITIONAL");
	assert_string_equal(event_find(MODEL_ICELAKE, 0xc4, 1)->name, "BR_INST_RETIRED.COND_TAKEN");
	assert_null(event_find(MODEL_MILAN, 0xc4, 1));
	assert_null(event_find(MODEL_MILAN, 0x120, 1));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_programs_ask_for_exists),
		cmocka_unit_test(no_event_is_listed_twice),
		cmocka_unit_test(every_row_says_where_it_is_documented),
		cmocka_unit_test(the_same_code_differs_between_generations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
