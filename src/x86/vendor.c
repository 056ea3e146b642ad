// SPDX-License-Identifier: MIT
/*
 * Names, sources and texts of the rules by which the vendors differ, for messages of tests. Which
 * vendor follows which: x86/vendor.h.
 */
#include "x86/vendor.h"

const struct vendor_row vendor_rows[NRULES] = {
#define RULE(name, vendor, source, text) [RULE_##name] = { #name, source, text },
#include "x86/vendor.def"
#undef RULE
};
