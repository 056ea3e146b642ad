// SPDX-License-Identifier: MIT
/*
 * Descriptors in the environment: see inherited.h. Threads that may call getenv().
 */
#include "base/inherited.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAME	  64 /* bytes */
#define NAMES_MAX 4

/* "" where it is not open. */
static void name_file(int fd, char name[NAME])
{
	struct stat st;

	if (fd < 0)
		strcpy(name, "-");
	else if (fstat(fd, &st))
		*name = '\0';
	else
		snprintf(name, NAME, "%d:%llu:%llu", fd, (unsigned long long)st.st_dev,
			 (unsigned long long)st.st_ino);
}

bool inherited_export(const char *variable, const int *fds, u32 n)
{
	char text[NAMES_MAX * (NAME + 1)] = "", name[NAME];

	unsetenv(variable);
	for (u32 i = 0; i < n; i++) {
		name_file(fds[i], name);
		if (!*name || n > NAMES_MAX)
			return false;
		if (i)
			strcat(text, ",");
		strcat(text, name);
	}
	return !setenv(variable, text, 1);
}

/* The text has to begin with the very name that the descriptor has now. Its length; 0: it does not.
 */
static size_t match(const char *text, int *fd)
{
	char name[NAME];
	size_t n;

	*fd = *text == '-' ? -1 : (int)strtol(text, NULL, 10);
	name_file(*fd, name);
	n = strlen(name);
	return strncmp(text, name, n) ? 0 : n;
}

bool inherited_take(const char *variable, int *fds, u32 n)
{
	const char *text = getenv(variable);

	for (u32 i = 0; text && i < n; i++) {
		size_t length = match(text, &fds[i]);

		if (!length || text[length] != (i + 1 < n ? ',' : '\0'))
			return false;
		text += length + 1;
	}
	return text;
}
