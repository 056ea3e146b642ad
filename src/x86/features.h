/* SPDX-License-Identifier: MIT */
/*
 * features.def as an enum, whose values are bits of cpu->features, and as a table of where CPUID
 * has each. No state.
 */
#ifndef X86_FEATURES_H
#define X86_FEATURES_H

#include "base/types.h"

enum feature {
#define FEATURE(name, leaf, subleaf, reg, bit) FEAT_##name,
#include "x86/features.def"
#undef FEATURE
	NFEATURES
};

enum cpuid_reg { CPUID_EAX, CPUID_EBX, CPUID_ECX, CPUID_EDX };

struct feature_row {
	const char *name;
	u32 leaf, subleaf;
	enum cpuid_reg reg;
	u32 bit;
};

extern const struct feature_row feature_rows[NFEATURES];

#define FEATURE_WORDS ((NFEATURES + 63) / 64)

#endif
