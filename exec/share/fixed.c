// SPDX-License-Identifier: MIT
/*
 * What a deterministic guest sees of a file in place of the host's inode number and of the host's
 * time of its changes (docs/clock.md): numbers in the order in which files are first shown, and the
 * guest's own time. The host's file keeps its own of both.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/turns.h"
#include "exec/guest_files.h"
#include "exec/share/share.h"

#define NS_PER_S 1000000000ull

static bool is_fixed(const struct share *share)
{
	return share->virtual_time && share->virtual_time->fixed;
}

/* What running programs of the host say of themselves, to others of their kind: a guest's Java
 * looks here when it starts, and removes the files of processes that it does not find. */
#define LIVE_FOLDER "tmp"
#define LIVE_NAMES  "hsperfdata_"

bool fixed_hides(struct share *share, u64 folder, const char *name)
{
	char path[PATH_MAX];

	return is_fixed(share) && !strncmp(name, LIVE_NAMES, strlen(LIVE_NAMES)) &&
	       !node_path(&share->nodes, folder, path) && !strcmp(path, LIVE_FOLDER) &&
	       !share_may_write(share, folder);
}

/* The guest's clock was VIRTUAL_DATE when it said that it begins. */
static u64 guest_date(const struct share *share)
{
	u64 now = __atomic_load_n(&share->virtual_time->page->date, __ATOMIC_SEQ_CST);

	return VIRTUAL_DATE * NS_PER_S + (share->fixed.begun ? now - share->fixed.begun : 0);
}

void fixed_begin(struct share *share)
{
	if (!share->fixed.begun)
		share->fixed.begun =
			__atomic_load_n(&share->virtual_time->page->date, __ATOMIC_SEQ_CST);
}

static u32 *bucket_of(struct fixed *fixed, const struct stat *st)
{
	u64 hash = (st->st_ino ^ (u64)st->st_dev << 40) * 0x9e3779b97f4a7c15ull;

	return &fixed->bucket[hash >> 32 & (NODE_BUCKETS - 1)];
}

/* Where the number of a file is, or of none: at the end of its chain. */
static u32 *place_of(struct fixed *fixed, const struct stat *st)
{
	u32 *place = bucket_of(fixed, st);

	while (*place && (fixed->file[*place].inode != st->st_ino ||
			  fixed->file[*place].device != st->st_dev))
		place = &fixed->file[*place].next;
	return place;
}

/* One that is not in use; 0: no memory, or as many are as there may be nodes. Number 0 is no
 * file's. */
static u32 take_unused(struct fixed *fixed)
{
	u32 number = fixed->unused, room = fixed->room ? 2 * fixed->room : 1024;
	struct fixed_file *grown;

	if (number) {
		fixed->unused = fixed->file[number].next;
		return number;
	}
	if (fixed->count + 1 >= fixed->room) {
		grown = room <= MAX_NODES ? realloc(fixed->file, room * sizeof(*grown)) : NULL;
		if (!grown)
			return 0;
		fixed->file = grown;
		fixed->room = room;
	}
	return ++fixed->count;
}

struct fixed_file *fixed_find(struct share *share, const struct stat *st)
{
	struct fixed *fixed = &share->fixed;
	u32 number;

	if (!is_fixed(share))
		return NULL;
	number = *place_of(fixed, st);
	if (number)
		return &fixed->file[number];
	number = take_unused(fixed);
	if (!number)
		return NULL;
	fixed->file[number] = (struct fixed_file){ .device = st->st_dev, .inode = st->st_ino };
	*place_of(fixed, st) = number; /* its chain's end may have moved with the table */
	return &fixed->file[number];
}

u64 fixed_number(const struct share *share, const struct fixed_file *file)
{
	return file - share->fixed.file;
}

static void forget(struct fixed *fixed, const struct stat *st)
{
	u32 *place = place_of(fixed, st), number = *place;

	if (!number)
		return;
	*place = fixed->file[number].next;
	fixed->file[number].next = fixed->unused;
	fixed->unused = number;
}

void fixed_changed(struct share *share, int fd, const char *name, enum fixed_change change)
{
	struct fixed_file *file;
	struct stat st;

	if (!is_fixed(share) || fstatat(fd, name, &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
		return;
	file = fixed_find(share, &st);
	if (!file)
		return;
	file->changed = guest_date(share);
	if (change == FIXED_CONTENT)
		file->modified = file->changed;
}

void fixed_set_time(struct share *share, int fd, u64 seconds, u32 nanoseconds)
{
	struct fixed_file *file;
	struct stat st;

	if (!is_fixed(share) || fstatat(fd, "", &st, AT_EMPTY_PATH))
		return;
	file = fixed_find(share, &st);
	if (file)
		file->modified = seconds * NS_PER_S + nanoseconds;
}

void fixed_opened(struct share *share, int fd)
{
	struct fixed_file *file;
	struct stat st;

	if (!is_fixed(share) || fstat(fd, &st))
		return;
	file = fixed_find(share, &st);
	if (file)
		file->opens++;
}

void fixed_closed(struct share *share, int fd)
{
	struct fixed_file *file;
	struct stat st;

	if (!is_fixed(share) || fstat(fd, &st))
		return;
	file = fixed_find(share, &st);
	if (file && file->opens)
		file->opens--;
	if (file && !file->opens && !st.st_nlink)
		forget(&share->fixed, &st);
}

/* The host may give the inode of a file that is gone to the next one, or not. It is gone with its
 * last handle. */
void fixed_removed(struct share *share, const struct stat *st)
{
	struct fixed_file *file = fixed_find(share, st);

	if (!file)
		return;
	if (!file->opens && (S_ISDIR(st->st_mode) || st->st_nlink <= 1))
		forget(&share->fixed, st);
	else
		file->changed = guest_date(share);
}
