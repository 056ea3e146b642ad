/* SPDX-License-Identifier: MIT */
/*
 * A command in a deterministic guest, with what it said.
 */
#ifndef CLI_CHECK_GUEST_COMMAND_H
#define CLI_CHECK_GUEST_COMMAND_H

#include "cli/check/check.h"

#define GUEST_OUTPUT (1u << 20) /* bytes kept of standard output: the first */
#define GUEST_ERROR  4096	/* of standard error: the last */

struct check_guest {
	int status; /* the exit code, as vpmu exec has it */
	char *output, error[GUEST_ERROR + 1];
	size_t output_size, error_size;
};

/*
 * Runs `script`, which finds `words` as its arguments, with the benchmark's folder, input,
 * environment and time limit. profile: a descriptor for VPMU_PROFILE, -1: none. False: it could not
 * be started, with errno.
 */
bool guest_run(const struct check_case *of, const char *script, char *const *words, int profile,
	       struct check_guest *guest);
void guest_free(struct check_guest *guest);
/* The last line on standard error that says something, or "". */
const char *guest_last_words(struct check_guest *guest);

#endif
