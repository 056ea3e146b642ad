// SPDX-License-Identifier: MIT
/*
 * Names for the host's perf. It looks for the symbols of a kernel in its cache, by build id, and
 * for those of JIT code in /tmp/perf-PID.map, where PID is the guest's. Guests give the same PIDs
 * again and again, so the maps of a recording are kept beside it too, in a folder, and are copied
 * to /tmp again when that recording is looked at.
 *
 * A guest wrote the files, and may have put links where folders are expected. Only regular files
 * with names as expected are taken, and bounded sizes; no link is followed, and files are named
 * relative to folders that are open. The folder of a recording is open before the guest starts:
 * it may put links in place of any folder on the way there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/types.h"
#include "cli/perf/perf.h"

#define MAX_FILE  (256ll << 20)
#define MAX_MAPS  1024
#define BUILD_ID  40	 /* hex digits */
#define PERF_MAPS "/tmp" /* where perf looks for maps of JIT code */
#define MAP_START "perf-"
#define MAP_END	  ".map"

/* --- files --- */

static int open_folder(int at, const char *path)
{
	return openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int open_regular(int folder, const char *name, off_t *size)
{
	int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= MAX_FILE) {
		*size = st.st_size;
		return fd;
	}
	close(fd);
	errno = EINVAL;
	return -1;
}

static bool copy_bytes(int from, int to, off_t size)
{
	while (size) {
		ssize_t n = sendfile(to, from, NULL, size);

		if (n <= 0)
			return false;
		size -= n;
	}
	return true;
}

/* A file that no one else has: its name is `name` and a random number. */
static int open_part(int folder, const char *name, char part[NAME_MAX + 1])
{
	u64 random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -1;
	snprintf(part, NAME_MAX + 1, "%.200s.%016llx", name, (unsigned long long)random);
	return openat(folder, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/* Copies a file and renames the copy to its name, so that no reader sees a part of it. `times`: of
 * the copy, as of futimens(). */
static bool copy(int folder, const char *name, int to_folder, const struct timespec *times)
{
	char part[NAME_MAX + 1];
	off_t size;
	int from = open_regular(folder, name, &size), to;
	bool ok;

	if (from < 0)
		return false;
	to = open_part(to_folder, name, part);
	ok = to >= 0 && copy_bytes(from, to, size) && !fchmod(to, 0644) && !futimens(to, times) &&
	     !renameat(to_folder, part, to_folder, name);
	if (to >= 0 && !ok)
		unlinkat(to_folder, part, 0);
	if (to >= 0)
		close(to);
	close(from);
	return ok;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st, (void)kind, (void)at;
	return remove(path) && errno != ENOENT;
}

static void remove_folder(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- the kernel --- */

bool perf_cache(char path[PATH_MAX])
{
	const char *home = getenv("HOME");

	if (!home || home[0] != '/')
		return false;
	snprintf(path, PATH_MAX, "%.*s/.debug", PATH_MAX - 256, home);
	return true;
}

static bool read_id(int folder, char id[BUILD_ID + 1])
{
	off_t size;
	int fd = open_regular(folder, "id", &size);
	ssize_t n = fd < 0 ? -1 : read(fd, id, BUILD_ID);

	if (fd >= 0)
		close(fd);
	id[BUILD_ID] = '\0';
	return n == BUILD_ID && strspn(id, "0123456789abcdef") == BUILD_ID;
}

/* What is in the cache stays: a guest chooses the build id that it sends symbols for. */
static bool copy_kernel(int folder, const char *path)
{
	int to = open_folder(AT_FDCWD, path);
	bool ok = to >= 0 && (!faccessat(to, "kallsyms", F_OK, AT_SYMLINK_NOFOLLOW) ||
			      copy(folder, "kallsyms", to, NULL));

	if (to >= 0)
		close(to);
	return ok;
}

/* As perf's own record does: the file, and a link to its folder by build id. */
static bool keep_kernel(int folder, const char *cache, const char *id)
{
	char path[PATH_MAX + 128], target[128];
	const char *const made[] = { "", "/[kernel.kallsyms]", "/[kernel.kallsyms]/%s",
				     "/.build-id", "/.build-id/%.2s" };

	for (u32 i = 0; i < ARRAY_SIZE(made); i++) {
		int n = snprintf(path, sizeof(path), "%s", cache);

		snprintf(path + n, sizeof(path) - n, made[i], id);
		if (mkdir(path, 0755) && errno != EEXIST)
			return false;
	}
	snprintf(path, sizeof(path), "%s/[kernel.kallsyms]/%s", cache, id);
	if (!copy_kernel(folder, path))
		return false;
	snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s", cache, id, id + 2);
	snprintf(target, sizeof(target), "../../[kernel.kallsyms]/%s", id);
	return !symlink(target, path) || errno == EEXIST;
}

static void take_kernel(int folder)
{
	char id[BUILD_ID + 1], cache[PATH_MAX];

	if (faccessat(folder, "kallsyms", F_OK, AT_SYMLINK_NOFOLLOW) || !perf_cache(cache))
		return; /* it is there already, or has no place */
	if (!read_id(folder, id) || !keep_kernel(folder, cache, id))
		failure(STATUS_BROKEN,
			"perf on this host will not name the guest kernel's functions: cannot "
			"write %s: %s",
			cache, strerror(errno));
}

/* --- maps of JIT code --- */

/* The process of a file "perf-PID.map"; 0: it is another file. */
static int map_pid(const char *name)
{
	size_t length = strlen(MAP_START);
	char *end;
	long pid;

	if (strncmp(name, MAP_START, length) || name[length] < '1' || name[length] > '9')
		return 0;
	pid = strtol(name + length, &end, 10);
	return strcmp(end, MAP_END) || pid > INT_MAX ? 0 : pid;
}

/* Calls visit() with the maps of a folder; returns how many there were. */
static u32 each_map(int at, const char *path,
		    void (*visit)(int folder, const char *name, void *arg), void *arg)
{
	int fd = open_folder(at, path);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	u32 n = 0;

	while (dir && n < MAX_MAPS && (entry = readdir(dir)))
		if (map_pid(entry->d_name)) {
			n++;
			visit(dirfd(dir), entry->d_name, arg);
		}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return n;
}

/*
 * Copies at perf's own place have this time, which they lose when a process of the host writes to
 * them. A PID of a guest says nothing about processes here: many are those of kernel threads.
 */
static const struct timespec placed[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

static bool is_placed(const struct stat *st)
{
	return st->st_mtim.tv_sec == placed[1].tv_sec && st->st_mtim.tv_nsec == placed[1].tv_nsec;
}

/* Whether a file at perf's own place may be replaced: it is ours, and no process here fills it. */
static bool may_replace(const char *path, int pid)
{
	char process[32];
	struct stat st;

	if (lstat(path, &st))
		return errno == ENOENT;
	snprintf(process, sizeof(process), "/proc/%d", pid);
	return S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	       (is_placed(&st) || access(process, F_OK));
}

struct placing {
	int tmp; /* the folder of perf's own maps */
	const char *data;
};

static void place_map(int folder, const char *name, void *arg)
{
	const struct placing *placing = arg;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), PERF_MAPS "/%s", name);
	if (!may_replace(path, map_pid(name)))
		failure(STATUS_BROKEN,
			"%s belongs to a process of this host: perf will not find the guest's, "
			"%s.maps/%s",
			path, placing->data, name);
	else if (!copy(folder, name, placing->tmp, placed))
		failure(STATUS_BROKEN, "cannot copy %s.maps/%s to " PERF_MAPS ": %s", placing->data,
			name, strerror(errno));
}

static void keep_map(int folder, const char *name, void *arg)
{
	if (!copy(folder, name, *(int *)arg, NULL))
		failure(STATUS_BROKEN, "cannot keep %s: %s", name, strerror(errno));
}

static void forget_map(int folder, const char *name, void *arg)
{
	(void)arg;
	unlinkat(folder, name, 0);
}

/* The folder beside a recording. */
static void name_maps(const struct perf_file *data, const char *suffix, char maps[PATH_MAX])
{
	snprintf(maps, PATH_MAX, "%.*s%s", PATH_MAX - 16, data->name, suffix);
}

/* perf has renamed a recording of the same name to FILE.old: its maps go with it. */
static void rotate_maps(const struct perf_file *data, const char *maps)
{
	char old[PATH_MAX];

	name_maps(data, ".old.maps", old);
	each_map(data->folder, old, forget_map, NULL);
	if (unlinkat(data->folder, old, AT_REMOVEDIR))
		unlinkat(data->folder, old, 0); /* what the guest put there */
	renameat(data->folder, maps, data->folder, old);
}

static void ignore_map(int folder, const char *name, void *arg)
{
	(void)folder, (void)name, (void)arg;
}

static void place_maps(const struct perf_file *data)
{
	struct placing placing = { .tmp = open(PERF_MAPS, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
				   .data = data->path };
	char maps[PATH_MAX];

	if (placing.tmp < 0)
		return;
	name_maps(data, ".maps", maps);
	each_map(data->folder, maps, place_map, &placing);
	close(placing.tmp);
}

static void take_maps(const char *scratch, const struct perf_file *data)
{
	char maps[PATH_MAX];
	struct stat st;
	int folder;

	name_maps(data, ".maps", maps);
	if (!fstatat(data->folder, maps, &st, AT_SYMLINK_NOFOLLOW))
		rotate_maps(data, maps);
	if (!each_map(AT_FDCWD, scratch, ignore_map, NULL))
		return;
	folder = mkdirat(data->folder, maps, 0777) ? -1 : open_folder(data->folder, maps);
	if (folder < 0) {
		failure(STATUS_BROKEN, "cannot make %s.maps: %s", data->path, strerror(errno));
		return;
	}
	each_map(AT_FDCWD, scratch, keep_map, &folder);
	close(folder);
	place_maps(data);
}

/* --- for vpmu perf --- */

void perf_file_open(const char *path, struct perf_file *file)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash + 1 - path) : 1,
		 slash ? path : ".");
	file->path = path;
	file->name = slash ? slash + 1 : path;
	file->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

void perf_file_close(struct perf_file *file)
{
	if (file->folder >= 0)
		close(file->folder);
}

void perf_place_maps(const char *data)
{
	struct perf_file file;

	perf_file_open(data, &file);
	if (file.folder >= 0)
		place_maps(&file);
	perf_file_close(&file);
}

void perf_take_symbols(const char *scratch, const struct perf_file *data)
{
	int folder = open_folder(AT_FDCWD, scratch);

	if (folder >= 0) {
		take_kernel(folder);
		close(folder);
	}
	if (data)
		take_maps(scratch, data);
	remove_folder(scratch);
}
