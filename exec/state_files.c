// SPDX-License-Identifier: MIT
/*
 * Files of saved machines in the user's cache folder: how one gets its name, and which of them go.
 *
 * A file gets its name when it is whole, and replaces one that could not be read or that another
 * process has made meanwhile. Until then it has none, so that nothing is left of a process that is
 * killed; or one that ends in .new, on file systems where every file has a name, as NFS. Its maker
 * holds a lock on it: what is not locked was left by a process that was killed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "exec/exec.h"

#define KEPT 8 /* states; the least recently used one goes */

int state_file_open(const char *cache, const char *path, struct state_file *file)
{
	u64 number = 0;

	if (getrandom(&number, sizeof(number), 0) < 0)
		number = getpid();
	snprintf(file->name, sizeof(file->name), "%s.%016llx.new", path,
		 (unsigned long long)number);
	file->fd = open(cache, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	file->is_named = file->fd < 0;
	if (file->is_named)
		file->fd =
			open(file->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file->fd >= 0)
		flock(file->fd, LOCK_EX | LOCK_NB);
	return file->fd;
}

static bool give_name(const struct state_file *file)
{
	char unnamed[64];

	snprintf(unnamed, sizeof(unnamed), "/proc/self/fd/%d", file->fd);
	return file->is_named ||
	       !linkat(AT_FDCWD, unnamed, AT_FDCWD, file->name, AT_SYMLINK_FOLLOW);
}

bool state_file_close(struct state_file *file, bool is_whole, const char *path)
{
	bool ok = is_whole && give_name(file) && !rename(file->name, path);
	int error = errno;

	if (!ok)
		unlink(file->name);
	close(file->fd);
	errno = error;
	return ok;
}

static int is_state(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return length > 6 && !strcmp(entry->d_name + length - 6, ".state");
}

static int is_new(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return strstr(entry->d_name, ".state.") && !strcmp(entry->d_name + length - 4, ".new");
}

static void free_entries(struct dirent **entries, int count)
{
	for (int i = 0; i < count; i++)
		free(entries[i]);
	if (count >= 0)
		free(entries);
}

/* One that is removed between its making and its locking is not kept: its maker says so. */
static void remove_leftovers(const char *cache)
{
	struct dirent **entries;
	int count = scandir(cache, &entries, is_new, alphasort);
	char path[PATH_MAX + 300];

	for (int i = 0; i < count; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%s", cache, entries[i]->d_name);
		fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
			unlink(path);
		if (fd >= 0)
			close(fd);
	}
	free_entries(entries, count);
}

static void remove_oldest(const char *cache)
{
	struct dirent **entries;
	int count = scandir(cache, &entries, is_state, alphasort);
	char path[PATH_MAX + 300], oldest[PATH_MAX + 300] = "";
	struct timespec age = { 0 };

	for (int i = 0; i < count; i++) {
		struct stat st;

		snprintf(path, sizeof(path), "%s/%s", cache, entries[i]->d_name);
		if (!stat(path, &st) && (!*oldest || st.st_mtim.tv_sec < age.tv_sec)) {
			strcpy(oldest, path);
			age = st.st_mtim;
		}
	}
	if (count > KEPT)
		unlink(oldest);
	free_entries(entries, count);
}

void state_files_trim(const char *cache)
{
	remove_leftovers(cache);
	remove_oldest(cache);
}
