// SPDX-License-Identifier: MIT
/*
 * A guest of the other vendor than the host's must differ from the native CPU in the rules of
 * x86/vendor.def and in nothing else. Which of them a difference comes from is found by turning
 * rules around: with all turned in which the two differ the guest is like the host, and each that
 * can be turned back without a difference has no part in it.
 */
#include "diff.h"

static bool differs_with(const struct test_case *c, enum plant plant, u64 rules)
{
	static struct verdict v;

	guest_turn_rules(rules);
	case_run(c, plant, &v);
	return v.differs;
}

u64 case_explain(const struct test_case *c, enum plant plant)
{
	u64 needed = guest_rules_unlike_host();

	if (differs_with(c, plant, needed))
		needed = 0;
	for (u32 i = 0; needed && i < NRULES; i++)
		if (!differs_with(c, plant, needed & ~BIT(i)))
			needed &= ~BIT(i);
	guest_turn_rules(0);
	return needed;
}
