// SPDX-License-Identifier: MIT
/*
 * vpmu cache: what the user's cache folder holds, and removing what makes itself again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "exec/exec.h"
#include "exec/kept_store.h"

/* Bytes that files take on the disk. Folders are kernels, with a level of folders in them. */
static u64 disk_use(int at, const char *name, u32 levels)
{
	struct dirent *entry;
	struct stat st;
	u64 sum = 0;
	DIR *dir;
	int fd;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	if (!S_ISDIR(st.st_mode) || !levels)
		return st.st_blocks * 512ull;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			sum += disk_use(fd, entry->d_name, levels - 1);
	if (dir)
		closedir(dir);
	return sum;
}

enum kind { KIND_KERNEL, KIND_MACHINE, KIND_TRANSLATIONS, KIND_UNCONFINED, KIND_OTHER };

static bool begins_with(const char *name, const char *start)
{
	return !strncmp(name, start, strlen(start));
}

/* A state that is being made and a store that is being cleaned up have another file, whose name is
 * longer. */
static enum kind kind_of(const struct dirent *entry)
{
	if (strstr(entry->d_name, ".state"))
		return KIND_MACHINE;
	if (begins_with(entry->d_name, KEPT_UNCONFINED_NAME))
		return KIND_UNCONFINED;
	if (begins_with(entry->d_name, KEPT_STORE_NAME))
		return KIND_TRANSLATIONS;
	return entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? KIND_KERNEL : KIND_OTHER;
}

struct use {
	u32 count;
	u64 bytes;
};

/* Adds up what there is of each kind; with `clear`, removes machines and translations. An exit
 * code. */
static int walk(const char *folder, struct use use[KIND_OTHER + 1], bool clear)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	int status = STATUS_OK;

	while (dir && (entry = readdir(dir))) {
		enum kind kind = kind_of(entry);

		if (kind == KIND_OTHER)
			continue;
		use[kind].count++;
		use[kind].bytes += disk_use(dirfd(dir), entry->d_name, 8);
		if (clear && kind != KIND_KERNEL && unlinkat(dirfd(dir), entry->d_name, 0))
			status = failure(STATUS_BROKEN, "cannot remove %s/%s: %s", folder,
					 entry->d_name, strerror(errno));
	}
	if (dir)
		closedir(dir);
	return status;
}

static double megabytes(u64 bytes)
{
	return bytes / 1048576.0;
}

static void print_rate(const char *who, u64 lookups, u64 hits)
{
	if (lookups)
		printf("  %-12s %.1f %% of %llu blocks were found\n", who, 100.0 * hits / lookups,
		       (unsigned long long)lookups);
}

/* False: there is no such store. */
static bool print_store(const char *folder, enum kept_kind kind, const char *name, u64 bytes)
{
	struct kept_header header;
	int fd = kept_store_open(folder, kind, &header);

	if (fd < 0)
		return false;
	close(fd);
	printf("%-14s %.0f MB of at most %.0f\n", name, megabytes(bytes),
	       megabytes(KEPT_STORE_LIMIT));
	print_rate("last guest", header.last_lookups, header.last_hits);
	printf("  %-12s %llu since it was made\n", "guests", (unsigned long long)header.runs);
	print_rate("all guests", header.lookups, header.hits);
	return true;
}

static int show(const char *folder)
{
	struct use use[KIND_OTHER + 1] = { 0 };
	int status = walk(folder, use, false);

	printf("folder         %s\n", folder);
	printf("kernels        %u, %.0f MB\n", use[KIND_KERNEL].count,
	       megabytes(use[KIND_KERNEL].bytes));
	printf("saved machines %u, %.0f MB\n", use[KIND_MACHINE].count,
	       megabytes(use[KIND_MACHINE].bytes));
	if (!print_store(folder, KEPT_CONFINED, "translations", use[KIND_TRANSLATIONS].bytes))
		puts("translations   none");
	print_store(folder, KEPT_UNCONFINED, "unconfined", use[KIND_UNCONFINED].bytes);
	return status;
}

static int clear(const char *folder)
{
	struct use use[KIND_OTHER + 1] = { 0 };
	int status = walk(folder, use, true);

	if (!status)
		printf("removed: %u saved machines and %u files of translations, %.0f MB\n",
		       use[KIND_MACHINE].count,
		       use[KIND_TRANSLATIONS].count + use[KIND_UNCONFINED].count,
		       megabytes(use[KIND_MACHINE].bytes + use[KIND_TRANSLATIONS].bytes +
				 use[KIND_UNCONFINED].bytes));
	return status;
}

static int run(int argc, char **argv)
{
	char folder[PATH_MAX];

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		command_help(&command_cache);
		return STATUS_OK;
	}
	if (argc > 2 || (argc == 2 && strcmp(argv[1], "clear")))
		return usage_error(&command_cache,
				   "there is nothing but 'clear' to be said, not '%s'",
				   argv[argc == 2 ? 1 : 2]);
	if (!kernel_cache(folder))
		return failure(STATUS_BROKEN, "there is no cache folder that can be written");
	return argc == 2 ? clear(folder) : show(folder);
}

static void describe(void)
{
	puts("Without an argument: what is kept in the user's cache folder, how much of the disk it\n"
	     "takes, and how many blocks of translated code guests found there. Programs that are\n"
	     "not confined, those of vpmu kvm --cache and of vpmu exec --qemu, keep theirs apart.\n\n"
	     "  clear        removes saved machines and translations. The next guest boots, and\n"
	     "               translates all of its code again; kernels stay\n\n"
	     "vpmu exec --no-cache neither uses nor keeps translations; --cold boots.");
}

const struct command command_cache = {
	.name = "cache",
	.synopsis = "[clear]",
	.summary = "Show what is kept for the next guest, or clean it up",
	.run = run,
	.describe = describe,
};
