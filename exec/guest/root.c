// SPDX-License-Identifier: MIT
/*
 * The guest's root: the host's files below, memory above, so that everything can be written and
 * nothing reaches the host; folders shared for writing are the host's own. Devices, processes and
 * the like are the guest's.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/guest/guest.h"

#define LOWER "/host"
#define UPPER "/memory"
#define ROOT  "/root"

void root_mount_early(void)
{
	mkdir("/dev", 0755);
	mkdir("/proc", 0555);
	mkdir("/sys", 0555);
	mount("dev", "/dev", "devtmpfs", MS_NOSUID, "mode=755");
	mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

/* The cloud kernel has it built in; whatever is there when its device is not is an error. */
const char *root_build(void)
{
	mkdir(LOWER, 0755);
	mkdir(UPPER, 0755);
	mkdir(ROOT, 0755);
	if (mount("root", LOWER, "virtiofs", MS_NOSUID | MS_NODEV, NULL))
		return "cannot mount the host's files, for which the kernel needs virtiofs";
	if (mount("memory", UPPER, "tmpfs", 0, "mode=755,size=80%"))
		return "cannot mount a file system in memory, for which the kernel needs tmpfs";
	mkdir(UPPER "/files", 0755);
	mkdir(UPPER "/work", 0755);
	if (mount("root", ROOT, "overlay", 0,
		  "lowerdir=" LOWER ",upperdir=" UPPER "/files,workdir=" UPPER "/work,volatile"))
		return "cannot lay memory over the host's files, for which the kernel needs "
		       "overlay";
	return NULL;
}

int root_open(const char *name, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), LOWER "/%s", name);
	return open(path, flags | O_CLOEXEC);
}

static void carry_over(const char *from)
{
	char to[64];

	snprintf(to, sizeof(to), ROOT "%s", from);
	mkdir(to, 0755);
	mount(from, to, NULL, MS_MOVE, NULL);
}

static const struct extra {
	const char *name, *folder, *options;
	unsigned long flags;
} extras[] = {
	{ "devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666", MS_NOSUID | MS_NOEXEC },
	{ "tmpfs", "/dev/shm", "mode=1777", MS_NOSUID | MS_NODEV },
	{ "tracefs", "/sys/kernel/tracing", "mode=755", MS_NOSUID | MS_NODEV | MS_NOEXEC },
	{ "debugfs", "/sys/kernel/debug", "mode=755", MS_NOSUID | MS_NODEV | MS_NOEXEC },
};

static const struct link {
	const char *target, *name;
} links[] = {
	{ "/proc/self/fd", "/dev/fd" },
	{ "/proc/self/fd/0", "/dev/stdin" },
	{ "/proc/self/fd/1", "/dev/stdout" },
	{ "/proc/self/fd/2", "/dev/stderr" },
};

void root_add_extras(void)
{
	for (u32 i = 0; i < ARRAY_SIZE(extras); i++) {
		mkdir(extras[i].folder, 0755);
		mount(extras[i].name, extras[i].folder, extras[i].name, extras[i].flags,
		      extras[i].options);
	}
	for (u32 i = 0; i < ARRAY_SIZE(links); i++)
		if (symlink(links[i].target, links[i].name))
			continue; /* the kernel made it */
	chmod("/dev/fuse", 0666);
}

/* The guest has its own there. */
static bool is_extra(const char *folder)
{
	for (u32 i = 0; i < ARRAY_SIZE(extras); i++) {
		size_t length = strlen(extras[i].folder);

		if (!strncmp(folder, extras[i].folder, length) &&
		    (!folder[length] || folder[length] == '/'))
			return true;
	}
	return false;
}

static const char *share(const char *folder)
{
	char from[PATH_MAX], to[PATH_MAX];
	static char problem[PATH_MAX + 64];

	snprintf(from, sizeof(from), LOWER "%s", folder);
	snprintf(to, sizeof(to), ROOT "%s", folder);
	errno = ENOENT;
	if (!is_extra(folder) && !mount(from, to, NULL, MS_BIND, NULL))
		return NULL;
	snprintf(problem, sizeof(problem), "cannot share '%s' for writing", folder);
	return problem;
}

/* All folders to share but the root, or the root alone. */
static const char *share_all(const struct order *order, bool root)
{
	const char *problem = NULL;

	for (u32 i = 0; i < order->start.folders && !problem; i++)
		if (!strcmp(order->shared[i], "/") == root)
			problem = share(order->shared[i]);
	return problem;
}

/* Devices and processes are the guest's own even if the host's root is shared: they lie over it. */
const char *root_enter(const struct order *order)
{
	const char *problem = share_all(order, true);

	carry_over("/dev");
	carry_over("/proc");
	carry_over("/sys");
	if (!problem)
		problem = share_all(order, false);
	if (problem)
		return problem;
	if (chdir(ROOT) || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		return "cannot enter the guest's root";
	return NULL;
}
