/* SPDX-License-Identifier: MIT */
/*
 * What became of an operation (unit/guest_tables.h), compared; after cmocka.h.
 */
#ifndef UNIT_OUTCOME_H
#define UNIT_OUTCOME_H

#include "unit/guest_tables.h"

static inline void assert_outcome(struct outcome got, struct outcome wanted)
{
	assert_int_equal(got.vector, wanted.vector);
	assert_int_equal(got.error, wanted.error);
}

#endif
