// SPDX-License-Identifier: MIT
/*
 * Preloaded into vpmu by the tests: memory is out where $VPMU_FAULT says, and nowhere else; or it
 * may not be executed; or files and processes are as they are elsewhere.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* A file system where every file has a name, as NFS. */
int open(const char *path, int flags, ...)
{
	int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = va_arg(args, mode_t);
	va_end(args);
	if ((flags & O_TMPFILE) == O_TMPFILE && fails("tmpfile")) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return next(path, flags, mode);
}

static int count_files(const char *folder)
{
	DIR *dir = opendir(folder);
	int count = -2; /* . and .. */

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

/* Until $VPMU_MEET_COUNT processes have left a file in the folder $VPMU_MEET; a minute at most. */
static void meet(void)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	const char *folder = getenv("VPMU_MEET");
	char name[4096];

	snprintf(name, sizeof(name), "%s/%d", folder, (int)getpid());
	close(creat(name, 0600));
	for (int i = 0; i < 6000 && count_files(folder) < atoi(getenv("VPMU_MEET_COUNT")); i++)
		nanosleep(&pause, NULL);
}

int linkat(int from, const char *path, int to, const char *name, int flags)
{
	int (*next)(int, const char *, int, const char *, int) = dlsym(RTLD_NEXT, "linkat");

	if (fails("meet"))
		meet();
	return next(from, path, to, name, flags);
}

/* The parent ends before a child that wants to end with it has said so. */
int prctl(int option, ...)
{
	int (*next)(int, ...) = dlsym(RTLD_NEXT, "prctl");
	const struct timespec pause = { .tv_nsec = 1000000 };
	pid_t parent = getppid();
	unsigned long argument;
	va_list args;

	va_start(args, option);
	argument = va_arg(args, unsigned long);
	va_end(args);
	if (fails("orphan")) {
		kill(parent, SIGKILL);
		for (int i = 0; i < 60000 && getppid() == parent; i++)
			nanosleep(&pause, NULL);
	}
	return next(option, argument, 0, 0, 0);
}
