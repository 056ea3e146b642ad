// SPDX-License-Identifier: MIT
/*
 * The event filter, section 4 of the specification: what the ioctl accepts, what a list permits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pmu/filter.h"
#include "x86/pmu_regs.h"

#define ALLOW PMU_FILTER_ALLOW
#define DENY  PMU_FILTER_DENY

#define MASKED(event, mask, match)  ((u64)(mask) << 56 | (u64)(match) << 8 | (event))
#define EXCLUDE(event, mask, match) (MASKED(event, mask, match) | PMU_MASKED_EXCLUDE)

static struct pmu_filter filter;

static enum pmu_filter_error make(u32 action, u32 flags, const u64 *events, u32 n, bool is_amd)
{
	struct pmu_filter_args args = {
		.action = action,
		.nevents = n,
		.flags = flags,
		.events = events,
	};

	return pmu_filter_make(&filter, &args, is_amd);
}

static bool intel(u64 select)
{
	return pmu_filter_allows(&filter, select, false);
}

static bool amd(u64 select)
{
	return pmu_filter_allows(&filter, select, true);
}

static void no_filter_allows_everything(void **state)
{
	(void)state;
	assert_true(pmu_filter_allows(NULL, 0xc0, false));
	assert_true(pmu_filter_allows_fixed(NULL, 2));
	assert_int_equal(make(DENY, 0, NULL, 0, false), PMU_FILTER_OK);
	assert_true(intel(0xc0));
	assert_true(pmu_filter_allows_fixed(&filter, 0));
}

static void plain_lists_compare_event_and_unit_mask(void **state)
{
	static const u64 events[] = { 0xc4, 0x4f2e };

	(void)state;
	assert_int_equal(make(ALLOW, 0, events, 2, false), PMU_FILTER_OK);
	assert_true(intel(0xc4));
	assert_true(intel(0x4f2e));
	assert_false(intel(0x412e));
	assert_false(intel(0x1c4));
	assert_false(intel(0xc0));
	assert_int_equal(make(DENY, 0, events, 2, false), PMU_FILTER_OK);
	assert_false(intel(0xc4));
	assert_true(intel(0x1c4));
	assert_true(intel(0xc0));
}

static void other_bits_of_the_select_do_not_matter(void **state)
{
	static const u64 events[] = { 0xc4 };

	(void)state;
	make(ALLOW, 0, events, 1, false);
	assert_true(intel(0xc4 | MASK(34, 16)));
}

static void plain_entries_with_other_bits_are_accepted_and_never_match(void **state)
{
	static const u64 events[] = { ~0ull, 0xc4 | BIT(16), 0xc0 | BIT(32) };

	(void)state;
	assert_int_equal(make(ALLOW, 0, events, 3, false), PMU_FILTER_OK);
	assert_false(intel(~0ull));
	assert_false(intel(0xc4 | BIT(16)));
	assert_false(intel(0xc0));
}

static void amd_compares_twelve_bits_of_event(void **state)
{
	static const u64 events[] = { BIT(32) | 0xc2 };

	(void)state;
	assert_int_equal(make(DENY, 0, events, 1, true), PMU_FILTER_OK);
	assert_true(amd(0xc2));
	assert_false(amd(BIT(32) | 0xc2));
}

static void masked_events_include_and_exclude(void **state)
{
	/* All of D0H but unit masks that end in 2; and of C4H those with bit 4. */
	static const u64 events[] = {
		MASKED(0xd0, 0, 0),
		EXCLUDE(0xd0, 0x0f, 0x02),
		MASKED(0xc4, 0x10, 0x10),
	};

	(void)state;
	assert_int_equal(make(ALLOW, PMU_FILTER_MASKED, events, 3, false), PMU_FILTER_OK);
	assert_true(intel(0x81d0));
	assert_false(intel(0x82d0));
	assert_true(intel(0x83d0));
	assert_true(intel(0x11c4));
	assert_false(intel(0x01c4));
	make(DENY, PMU_FILTER_MASKED, events, 3, false);
	assert_false(intel(0x81d0));
	assert_true(intel(0x82d0));
	assert_true(intel(0x01c4));
}

static void an_exclude_alone_lists_nothing(void **state)
{
	static const u64 events[] = { EXCLUDE(0xd0, 0xff, 0x81) };

	(void)state;
	make(ALLOW, PMU_FILTER_MASKED, events, 1, false);
	assert_false(intel(0x81d0));
	assert_false(intel(0x82d0));
	make(DENY, PMU_FILTER_MASKED, events, 1, false);
	assert_true(intel(0x81d0));
}

/* All entries of an event are looked at, wherever it stands in a full list. */
static void a_full_list_is_searched_completely(void **state)
{
	u64 events[PMU_FILTER_EVENTS];
	u32 n = 0;

	(void)state;
	for (u32 i = 0; n < PMU_FILTER_EVENTS - 3; i++)
		events[n++] =
			i % 2 ? MASKED(i & 0xcf, 0xff, i >> 8) : EXCLUDE(i & 0xcf, 0xff, 0xfe);
	events[n++] = MASKED(0xd0, 0xff, 0x83);
	events[n++] = MASKED(0xd0, 0xff, 0x81);
	events[n++] = MASKED(0xd0, 0xff, 0x82);
	assert_int_equal(make(ALLOW, PMU_FILTER_MASKED, events, n, false), PMU_FILTER_OK);
	assert_int_equal(filter.nentries, PMU_FILTER_EVENTS);
	assert_true(intel(0x81d0));
	assert_true(intel(0x82d0));
	assert_true(intel(0x83d0));
	assert_false(intel(0x84d0));
	for (u32 i = 1; i < filter.nentries; i++)
		if (i != filter.nincludes)
			assert_true(filter.entry[i - 1].event <= filter.entry[i].event);
}

static void masked_entries_with_other_bits_are_invalid(void **state)
{
	static const u64 bad_on_intel[] = { ~0ull, BIT(16), BIT(54), BIT(32) };
	static const u64 good = EXCLUDE(0xff, 0xff, 0xff), high = BIT(35) | 0xff;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(bad_on_intel); i++)
		assert_int_equal(make(ALLOW, PMU_FILTER_MASKED, &bad_on_intel[i], 1, false),
				 PMU_FILTER_INVALID);
	assert_int_equal(make(ALLOW, PMU_FILTER_MASKED, &good, 1, false), PMU_FILTER_OK);
	assert_int_equal(make(ALLOW, PMU_FILTER_MASKED, &high, 1, true), PMU_FILTER_OK);
}

static void arguments_are_checked(void **state)
{
	(void)state;
	assert_int_equal(make(2, 0, NULL, 0, false), PMU_FILTER_INVALID);
	assert_int_equal(make(ALLOW, 2, NULL, 0, false), PMU_FILTER_INVALID);
	assert_int_equal(make(ALLOW, 0, NULL, PMU_FILTER_EVENTS + 1, false), PMU_FILTER_TOO_BIG);
}

static void fixed_counters_obey_the_bitmap_alone(void **state)
{
	static const u64 instructions = 0xc0;

	(void)state;
	for (u32 bitmap = 0; bitmap < 16; bitmap++)
		for (u32 i = 0; i < 4; i++) {
			struct pmu_filter_args args = {
				.action = ALLOW,
				.nevents = 1,
				.fixed_bitmap = bitmap,
				.events = &instructions,
			};

			pmu_filter_make(&filter, &args, false);
			assert_int_equal(pmu_filter_allows_fixed(&filter, i), bitmap >> i & 1);
			args.action = DENY;
			pmu_filter_make(&filter, &args, false);
			assert_int_equal(pmu_filter_allows_fixed(&filter, i), !(bitmap >> i & 1));
		}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_filter_allows_everything),
		cmocka_unit_test(plain_lists_compare_event_and_unit_mask),
		cmocka_unit_test(other_bits_of_the_select_do_not_matter),
		cmocka_unit_test(plain_entries_with_other_bits_are_accepted_and_never_match),
		cmocka_unit_test(amd_compares_twelve_bits_of_event),
		cmocka_unit_test(masked_events_include_and_exclude),
		cmocka_unit_test(an_exclude_alone_lists_nothing),
		cmocka_unit_test(a_full_list_is_searched_completely),
		cmocka_unit_test(masked_entries_with_other_bits_are_invalid),
		cmocka_unit_test(arguments_are_checked),
		cmocka_unit_test(fixed_counters_obey_the_bitmap_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
