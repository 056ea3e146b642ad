// SPDX-License-Identifier: MIT
/*
 * Preloaded into vpmu by the tests: memory is out where $VPMU_FAULT says, and nowhere else; or it
 * may not be executed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int fails(const char *call)
{
	const char *fault = getenv("VPMU_FAULT");

	if (!fault || strcmp(fault, call) || strcmp(program_invocation_short_name, "vpmu"))
		return 0;
	errno = ENOMEM;
	return 1;
}

int setenv(const char *name, const char *value, int overwrite)
{
	int (*next)(const char *, const char *, int) = dlsym(RTLD_NEXT, "setenv");

	return fails("setenv") ? -1 : next(name, value, overwrite);
}

int asprintf(char **out, const char *format, ...)
{
	va_list args;
	int n;

	if (fails("asprintf"))
		return -1;
	va_start(args, format);
	n = vasprintf(out, format, args);
	va_end(args);
	return n;
}

FILE *open_memstream(char **bytes, size_t *size)
{
	FILE *(*next)(char **, size_t *) = dlsym(RTLD_NEXT, "open_memstream");

	return fails("open_memstream") ? NULL : next(bytes, size);
}

/* A policy that lets files in memory not be executed ("memfd"), or nothing at all ("code"). */
void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	void *(*next)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");

	if (prot & PROT_EXEC && ((fd >= 0 && fails("memfd")) || fails("code"))) {
		errno = EACCES;
		return MAP_FAILED;
	}
	return next(at, size, prot, flags, fd, offset);
}

/* Only what the buffers of a session have: others check it as well. */
void *realloc(void *bytes, size_t size)
{
	static void *(*next)(void *, size_t);

	if (!next)
		next = dlsym(RTLD_NEXT, "realloc");
	return size >= 100000 && fails("realloc") ? NULL : next(bytes, size);
}
