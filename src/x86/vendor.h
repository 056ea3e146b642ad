/* SPDX-License-Identifier: MIT */
/*
 * vendor.def as an enum, as a set that vendor_follows() looks up, and as a table of texts. What a
 * processor asks is cpu_follows() (cpu/cpu.h). No state.
 */
#ifndef X86_VENDOR_H
#define X86_VENDOR_H

#include "base/types.h"
#include "x86/models.h"

enum vendor_rule {
#define RULE(name, vendor, source, text) RULE_##name,
#include "x86/vendor.def"
#undef RULE
	NRULES
};

/* The rules that AMD's processors follow, as a set; Intel's follow all others. */
enum { RULES_INTEL = 0, RULES_AMD = 1 };
#define RULE(name, vendor, source, text) (u64) RULES_##vendor << RULE_##name |
static const u64 rules_of_amd =
#include "x86/vendor.def"
	0;
#undef RULE

_Static_assert(NRULES <= 64, "rules are bits of a word");
#define RULES_ALL (~0ull >> (64 - NRULES))

static inline bool vendor_follows(bool is_amd, enum vendor_rule rule)
{
	return is_amd == (rules_of_amd >> rule & 1);
}

/* The rules in which a model differs from others of its vendor, as a set. */
static inline u64 vendor_exceptions(const struct model *model)
{
	u64 rules = 0;

#define RULE_EXCEPTION(name, rule, source) \
	rules |= model->set == MODEL_##name ? BIT(RULE_##rule) : 0;
#include "x86/vendor.def"
#undef RULE_EXCEPTION
	return rules;
}

struct vendor_row {
	const char *name, *source, *text;
};

extern const struct vendor_row vendor_rows[NRULES];

#endif
