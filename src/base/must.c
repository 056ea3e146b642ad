// SPDX-License-Identifier: MIT
/*
 * The end of a process whose invariant broke: say which, and abort so that a core can be had. Any
 * thread, also in signal handlers and while guest vector state is live: nothing continues after it.
 */
#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>

void must_failed(const char *expr, const char *file, int line)
{
	fprintf(stderr,
		"vpmu: broken invariant: %s (%s:%d); this is a bug in vpmu, please report it\n",
		expr, file, line);
	abort();
}
