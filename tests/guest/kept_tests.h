/* SPDX-License-Identifier: MIT */
/*
 * Kept translations for tests. One process at a time can keep them in its own memory, or, with
 * VPMU_TEST_KEPT=FOLDER, in a store there: a test that is run twice with it runs on blocks that
 * were read back.
 */
#ifndef TESTS_GUEST_KEPT_TESTS_H
#define TESTS_GUEST_KEPT_TESTS_H

#include "base/kept.h"

/* In memory; the same each time. */
const struct kept *kept_in_memory(void);
/* What was added to it can be found from now on. Where in the store it begins; *end, if not NULL:
 * and ends. */
u64 kept_in_memory_merge(u64 *end);

/* Those of VPMU_TEST_KEPT; NULL: it is not set. What is added is merged when the process ends. */
const struct kept *kept_in_folder(void);

#endif
