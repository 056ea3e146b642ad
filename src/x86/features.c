// SPDX-License-Identifier: MIT
/*
 * The rows of features.def.
 */
#include "x86/features.h"

const struct feature_row feature_rows[NFEATURES] = {
#define FEATURE(name, leaf, subleaf, reg, bit) { #name, leaf, subleaf, CPUID_##reg, bit },
#include "x86/features.def"
#undef FEATURE
};
