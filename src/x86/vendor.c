// SPDX-License-Identifier: MIT
/*
 * The rules by which the vendors differ, to be shown.
 */
#include "x86/vendor.h"

const struct vendor_row vendor_rows[NRULES] = {
#define RULE(name, vendor, source, text) [RULE_##name] = { #name, source, text },
#include "x86/vendor.def"
#undef RULE
};
