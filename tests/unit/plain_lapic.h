/* SPDX-License-Identifier: MIT */
/*
 * A local APIC without a processor, for tests of its registers. One of them, made again for each
 * test.
 */
#ifndef UNIT_PLAIN_LAPIC_H
#define UNIT_PLAIN_LAPIC_H

#include "irq/lapic.h"

extern struct lapic lapic;
extern struct lapic_actions actions; /* of the last write */

/* For cmocka: as after a reset, with ID 3; and enabled by software. */
int plain_lapic_fresh(void **state);
int plain_lapic_enabled(void **state);

struct lapic_now at(u64 ns);
void write_reg(u32 reg, u32 value); /* at 0 ns, as read_reg() */
void write_reg_at(u32 reg, u32 value, u64 ns);
u32 read_reg(u32 reg);
u32 read_reg_at(u32 reg, u64 ns);

#endif
