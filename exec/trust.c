// SPDX-License-Identifier: MIT
/*
 * Whose hands a kept kernel or machine went through. Whatever boots in a guest can do there what
 * the user may do, and sees the user's files; so it must come from the user or from root, from a
 * place where no other user can replace it. `sudo -E` is one way to meet the cache of another
 * user, a folder for a group another.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/exec.h"

bool trust_attributes(const char *path, const struct stat *st, struct distrust *distrust)
{
	if (st->st_uid && st->st_uid != geteuid()) {
		snprintf(distrust->why, sizeof(distrust->why), "%s belongs to user %u", path,
			 st->st_uid);
		snprintf(distrust->fix, sizeof(distrust->fix),
			 "set XDG_CACHE_HOME to a folder of your own");
		return false;
	}
	if (st->st_mode & (S_IWGRP | S_IWOTH)) {
		snprintf(distrust->why, sizeof(distrust->why), "%s can be written by %s", path,
			 st->st_mode & S_IWOTH ? "everybody" : "its group");
		snprintf(distrust->fix, sizeof(distrust->fix), "run chmod -R go-w '%s'", path);
		return false;
	}
	return true;
}

/* What is not there is no danger. */
static bool trust_path(const char *path, struct distrust *distrust)
{
	struct stat st;

	return stat(path, &st) || trust_attributes(path, &st, distrust);
}

static bool trust_folder(const char *folder, struct distrust *distrust)
{
	char path[PATH_MAX + 300];
	struct dirent *entry;
	DIR *dir = opendir(folder);
	bool ok = trust_path(folder, distrust);

	while (ok && dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		ok = entry->d_name[0] == '.' || trust_path(path, distrust);
	}
	if (dir)
		closedir(dir);
	return ok;
}

bool trust_kernel(const char *folder, struct distrust *distrust)
{
	char cache[PATH_MAX], modules[PATH_MAX + 16];

	snprintf(cache, sizeof(cache), "%s", folder);
	*strrchr(cache, '/') = '\0';
	snprintf(modules, sizeof(modules), "%s/modules", folder);
	return trust_path(cache, distrust) && trust_folder(folder, distrust) &&
	       trust_folder(modules, distrust);
}
