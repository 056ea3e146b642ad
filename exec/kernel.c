// SPDX-License-Identifier: MIT
/*
 * Guest kernels: Debian's, kept unpacked in the user's cache folder, or a file that the user names.
 * vpmu-kernel, a script, fetches and unpacks them.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/exec.h"

#define SCRIPT "vpmu-kernel"

static const struct flavour {
	const char *option, *name; /* name: of vpmu-kernel and of the folder */
} flavours[] = {
	{ "cloud", "6.12-cloud" },
	{ "full", "6.12-full" },
};

/* Where kernels are looked for, in this order. */
static const struct place {
	const char *variable, *base; /* the folder in this variable, or this one */
	const char *rest;	     /* of the path */
	bool is_cache;		     /* kernels are put there, too, and what else is kept */
	bool is_public; /* anybody can make it: with the user's number, if it is theirs */
} places[KERNEL_PLACES] = {
	{ "XDG_CACHE_HOME", NULL, "/vpmu", .is_cache = true },
	{ "HOME", NULL, "/.cache/vpmu", .is_cache = true },
	{ NULL, "/var/cache", "/vpmu", .is_cache = false },
	{ NULL, "/var/tmp", "/vpmu", .is_cache = true, .is_public = true },
};

static const char *base_of(const struct place *place)
{
	return place->variable ? getenv(place->variable) : place->base;
}

bool kernel_place(u32 number, char path[PATH_MAX])
{
	const struct place *place = &places[number];
	const char *base = base_of(place);
	char user[16] = "";

	if (place->is_public)
		snprintf(user, sizeof(user), "-%u", geteuid());
	return base && snprintf(path, PATH_MAX, "%s%s%s", base, place->rest, user) < PATH_MAX;
}

static bool make_folder(const char *path)
{
	return !mkdir(path, 0700) || errno == EEXIST;
}

/* Whether a folder is ours to use: others must not be able to put a kernel there. */
static bool is_own(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH)) && !access(path, W_OK);
}

/* Makes a place, from its base on, if it can be the user's cache. */
static bool try_cache(u32 number, char path[PATH_MAX])
{
	const char *base = base_of(&places[number]);

	if (!places[number].is_cache || !kernel_place(number, path) || base[0] != '/')
		return false;
	for (char *slash = path + strlen(base); slash; slash = strchr(slash + 1, '/')) {
		char kept = *slash;

		*slash = '\0';
		make_folder(path);
		*slash = kept;
	}
	return make_folder(path) && is_own(path);
}

/* The user's cache folder; where the home cannot be written, one in /var/tmp. */
bool kernel_cache(char path[PATH_MAX])
{
	for (u32 i = 0; i < KERNEL_PLACES; i++)
		if (try_cache(i, path))
			return true;
	return false;
}

static int run_script(const char *script, const char *name, const char *folder)
{
	pid_t parent = getpid(), pid = fork();
	int status;

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(STATUS_BROKEN);
		dup2(2, 1); /* progress is no output of the command */
		execl(script, SCRIPT, name, folder, NULL);
		_exit(failure(STATUS_MISSING, "cannot run %s: %s", script, strerror(errno)));
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return failure(STATUS_BROKEN, "cannot run %s: %s", script, strerror(errno));
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return STATUS_OK;
	return failure(STATUS_BROKEN, "there is no guest kernel: '%s %s %s' failed", script, name,
		       folder);
}

/* Read-only caches are as good, once the kernel is there. */
static bool is_there(u32 number, const char *name, char folder[PATH_MAX])
{
	char place[PATH_MAX], complete[PATH_MAX + 16];

	if (!kernel_place(number, place) || (places[number].is_public && !is_own(place)) ||
	    snprintf(folder, PATH_MAX, "%s/%s", place, name) >= PATH_MAX)
		return false;
	snprintf(complete, sizeof(complete), "%s/.complete", folder);
	return !access(complete, F_OK);
}

static bool find_kept(const char *name, char folder[PATH_MAX])
{
	for (u32 i = 0; i < KERNEL_PLACES; i++)
		if (is_there(i, name, folder))
			return true;
	return false;
}

bool kernel_is_kept(const char *wanted, char folder[PATH_MAX])
{
	for (u32 i = 0; i < ARRAY_SIZE(flavours); i++)
		if (!strcmp(wanted, flavours[i].option))
			return find_kept(flavours[i].name, folder);
	return false;
}

static int find_debian(const char *name, char folder[PATH_MAX])
{
	char cache[PATH_MAX], script[PATH_MAX];
	struct distrust distrust;
	int status;

	if (find_kept(name, folder))
		return trust_kernel(folder, &distrust)
			       ? STATUS_OK
			       : failure(STATUS_BROKEN, "the guest kernel is not booted: %s: %s",
					 distrust.why, distrust.fix);
	if (!kernel_cache(cache))
		return failure(STATUS_BROKEN,
			       "no folder to keep a guest kernel in can be written: "
			       "neither $XDG_CACHE_HOME/vpmu nor ~/.cache/vpmu nor "
			       "/var/tmp/vpmu-%u; set XDG_CACHE_HOME",
			       geteuid());
	status = need_part(SCRIPT, script);
	snprintf(folder, PATH_MAX, "%.*s/%s", PATH_MAX - 32, cache, name);
	return status ? status : run_script(script, name, folder);
}

/* A kernel of the user's: the file itself, or a folder as vpmu-kernel makes them. */
static int find_file(const char *path, struct exec_kernel *kernel)
{
	char folder[PATH_MAX];
	struct stat st;

	if (!realpath(path, folder) || stat(folder, &st))
		return failure(STATUS_USAGE, "cannot use the kernel '%s': %s", path,
			       strerror(errno));
	if (S_ISDIR(st.st_mode)) {
		snprintf(kernel->image, PATH_MAX, "%.*s/vmlinux", PATH_MAX - 16, folder);
	} else {
		strcpy(kernel->image, folder);
		*strrchr(folder, '/') = '\0';
	}
	snprintf(kernel->modules, PATH_MAX, "%.*s/modules", PATH_MAX - 16, folder);
	return access(kernel->image, R_OK) ? failure(STATUS_USAGE, "cannot use the kernel '%s': %s",
						     kernel->image, strerror(errno))
					   : STATUS_OK;
}

int kernel_find(const char *wanted, struct exec_kernel *kernel)
{
	char folder[PATH_MAX];
	int status;

	for (u32 i = 0; i < ARRAY_SIZE(flavours); i++)
		if (!strcmp(wanted, flavours[i].option)) {
			status = find_debian(flavours[i].name, folder);
			return status ? status : find_file(folder, kernel);
		}
	return find_file(wanted, kernel);
}
