// SPDX-License-Identifier: MIT
/*
 * Where the parts of vpmu are, seen from the command: beside it (build tree), or where `make
 * install` puts them.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"
#include "cli/base/command.h"

static const char *const places[] = { "", "../lib/vpmu/" };

/* The command itself; an empty path where there is no /proc. */
static void find_self(char self[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);

	self[n < 0 ? 0 : n] = '\0';
}

bool find_part(const char *name, char path[PATH_MAX])
{
	char self[PATH_MAX], candidate[2 * PATH_MAX], *slash;

	find_self(self);
	slash = strrchr(self, '/');
	errno = ENOENT;
	if (!slash)
		return false;
	slash[1] = '\0';
	for (u32 i = 0; i < ARRAY_SIZE(places) && errno == ENOENT; i++) {
		snprintf(candidate, sizeof(candidate), "%s%s%s", self, places[i], name);
		if (realpath(candidate, path))
			return true;
	}
	return false;
}

int need_part(const char *name, char path[PATH_MAX])
{
	if (find_part(name, path))
		return STATUS_OK;
	if (errno != ENOENT)
		return failure(STATUS_BROKEN, "cannot find %s: %s", name, strerror(errno));
	return failure(STATUS_BROKEN,
		       "%s is not where it belongs, beside vpmu or in ../lib/vpmu: "
		       "run 'make' or 'make install'",
		       name);
}

int start_part(const char *name, char **argv)
{
	char program[PATH_MAX], self[PATH_MAX];
	int status = need_part(name, program);

	if (status)
		return status;
	find_self(self);
	if (setenv("VPMU", self, 1))
		return out_of_memory();
	argv[0] = program;
	execv(program, argv);
	return failure(STATUS_BROKEN, "cannot start %s: %s", program, strerror(errno));
}
