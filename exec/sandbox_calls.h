/* SPDX-License-Identifier: MIT */
#ifndef EXEC_SANDBOX_CALLS_H
#define EXEC_SANDBOX_CALLS_H

#include "base/types.h"

/* The seccomp filter of sandbox_serve_files(); `changes`: with the calls that change files. No new
 * privileges must be set. Returns 0 or an errno. */
int sandbox_restrict_calls(bool changes);

#endif
