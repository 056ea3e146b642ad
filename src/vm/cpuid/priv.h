/* SPDX-License-Identifier: MIT */
/*
 * Between the files of this folder: the leaves of a model.
 */
#ifndef VM_CPUID_PRIV_H
#define VM_CPUID_PRIV_H

#include "x86/models.h"

#define LEAF7_SUBLEAVES 2 /* of Intel's: the last one; AMD has none */

/* What a model answers on this host; `native`: to the program itself, not as KVM offers it. */
void cpuid_model_leaf(const struct model *model, bool native, u32 leaf, u32 subleaf, u32 regs[4]);

#endif
