// SPDX-License-Identifier: MIT
/*
 * See plain_lapic.h.
 */
#include "unit/plain_lapic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct lapic lapic;
struct lapic_actions actions;

struct lapic_now at(u64 ns)
{
	return (struct lapic_now){ .ns = ns, .tsc = ns * 2, .tsc_khz = 2000000 };
}

void write_reg_at(u32 reg, u32 value, u64 ns)
{
	memset(&actions, 0, sizeof(actions));
	assert_true(lapic_mmio_write(&lapic, reg, 4, at(ns), &value, &actions));
}

void write_reg(u32 reg, u32 value)
{
	write_reg_at(reg, value, 0);
}

u32 read_reg_at(u32 reg, u64 ns)
{
	u32 value = 0xdeadbeef;

	assert_true(lapic_mmio_read(&lapic, reg, 4, at(ns), &value));
	return value;
}

u32 read_reg(u32 reg)
{
	return read_reg_at(reg, 0);
}

int plain_lapic_fresh(void **state)
{
	(void)state;
	lapic_init(&lapic, 3, false);
	lapic.deadline_mode = true;
	return 0;
}

int plain_lapic_enabled(void **state)
{
	plain_lapic_fresh(state);
	write_reg(LAPIC_SVR, 0x1ff);
	return 0;
}
