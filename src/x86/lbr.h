/* SPDX-License-Identifier: MIT */
/*
 * Branch records as registers: what the virtual and the physical PMU mean by them. Each kind of
 * stack (enum pmu_lbr) has its own way to say what is recorded: MSR_LBR_SELECT, IA32_LBR_CTL,
 * LBR_SELECT of AMD.
 */
#ifndef X86_LBR_H
#define X86_LBR_H

#include "base/types.h"

enum lbr_field {
	LBR_FROM,
	LBR_TO,
	LBR_INFO,
	LBR_TOP, /* TOS of the legacy stack */
};

struct lbr_control {
	bool enabled;
	bool freezes; /* a bit of the global status holds records */
	u64 select;   /* the model's register */
	u8 depth;
};

#endif
