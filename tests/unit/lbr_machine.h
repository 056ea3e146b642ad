/* SPDX-License-Identifier: MIT */
/*
 * A vCPU as far as its branch records are concerned (unit/pmu_machine.h), and their registers.
 */
#ifndef UNIT_LBR_MACHINE_H
#define UNIT_LBR_MACHINE_H

#include "unit/pmu_machine.h"

#define LBR_SELECT   0x1c8
#define LBR_TOS	     0x1c9
#define FROM(i)	     (0x680 + (i))
#define TO(i)	     (0x6c0 + (i))
#define INFO(i)	     (0xdc0 + (i))
#define ARCH_CTL     0x14ce
#define ARCH_DEPTH   0x14cf
#define ARCH_FROM(i) (0x1500 + (i))
#define ARCH_TO(i)   (0x1600 + (i))
#define ARCH_INFO(i) (0x1200 + (i))
#define AMD_SELECT   0xc000010e
#define AMD_EXTN     0xc000010f
#define AMD_FROM(i)  (0xc0010300 + 2 * (i))
#define AMD_TO(i)    (0xc0010301 + 2 * (i))

#define ARCH_ALL (LBR_CTL_EN | LBR_CTL_OS | LBR_CTL_USR | LBR_CTL_KINDS)

extern struct pmu_machine m;

/* For cmocka: of a model with a legacy stack, with Arch LBR, and of AMD's. */
int on_skylake(void **state);
int on_sapphirerapids(void **state);
int on_genoa(void **state);

void debugctl(u64 value);
/* A register has this value. */
void expect(u32 index, u64 value);

#endif
