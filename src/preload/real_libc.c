// SPDX-License-Identifier: MIT
/*
 * Finds libc's functions with dlsym(), which no signal handler may call: the table is filled before
 * our constructor returns. Racing first calls store the same pointers.
 */
#include "preload/real_libc.h"

#include <dlfcn.h>

#include "base/types.h"

static struct real_calls calls;
static bool known;

const struct real_calls *real(void)
{
	if (__atomic_load_n(&known, __ATOMIC_ACQUIRE))
		return &calls;
#define REAL(ret, name, params) calls.name = dlsym(RTLD_NEXT, #name);
	REAL_CALLS
#undef REAL
	__atomic_store_n(&known, true, __ATOMIC_RELEASE);
	return &calls;
}
