// SPDX-License-Identifier: MIT
/*
 * Where the parts of vpmu are, seen from the command: beside it (build tree), or where `make
 * install` puts them.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"
#include "cli.h"

static const char *const places[] = { "", "../lib/vpmu/" };

bool find_part(const char *name, char path[PATH_MAX])
{
	char self[PATH_MAX], candidate[2 * PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[n < 0 ? 0 : n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return false;
	slash[1] = '\0';
	for (u32 i = 0; i < ARRAY_SIZE(places); i++) {
		snprintf(candidate, sizeof(candidate), "%s%s%s", self, places[i], name);
		if (realpath(candidate, path))
			return true;
	}
	return false;
}
