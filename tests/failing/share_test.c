// SPDX-License-Identifier: MIT
/*
 * Requests to the file server that make a name on the host, with each call that can fail failed
 * once: a request that fails leaves no name behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/types.h"
#include "failing/every.h"
#include "unit/share_guest.h"

#define MADE "made"
#define OLD  "old" /* is there before */

static int create(u64 folder)
{
	const struct fuse_entry_out *entry = guest_body;
	u64 handle;
	int error = guest_create(folder, MADE, O_RDWR, 0600, &handle);

	return error ? error : guest_release(entry->nodeid, handle);
}

static int mkdir_(u64 folder)
{
	struct fuse_mkdir_in in = { .mode = 0700 };

	return guest_ask(FUSE_MKDIR, folder, &in, sizeof(in), MADE);
}

static int mknod_(u64 folder)
{
	struct fuse_mknod_in in = { .mode = S_IFIFO | 0600 };

	return guest_ask(FUSE_MKNOD, folder, &in, sizeof(in), MADE);
}

static int symlink_(u64 folder)
{
	return guest_ask(FUSE_SYMLINK, folder, MADE, sizeof(MADE), "target");
}

static int link_(u64 folder)
{
	struct fuse_link_in in = { .oldnodeid = guest_look_up(folder, OLD) };

	if (!in.oldnodeid)
		return -guest_answer->error;
	return guest_ask(FUSE_LINK, folder, &in, sizeof(in), MADE);
}

static int ask_in(const char *path, int (*request)(u64 folder))
{
	const char *writable = path + 1;
	u64 folder;
	int error;

	if (!guest_start(&writable, 1) || guest_share.root < 0) {
		error = errno;
	} else {
		folder = guest_walk(path);
		error = folder ? request(folder) : -guest_answer->error;
	}
	guest_stop();
	return error;
}

/* Is there what the answer says? It is removed. */
static bool agrees(int folder, int error)
{
	struct stat st;
	bool there = !fstatat(folder, MADE, &st, AT_SYMLINK_NOFOLLOW);

	if (there)
		unlinkat(folder, MADE, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
	return there == !error;
}

static int make(int (*request)(u64 folder))
{
	char path[] = "/tmp/vpmu-share-XXXXXX";
	int folder, old, error;
	bool right;

	if (!mkdtemp(path))
		return EVERY_WRONG;
	folder = openat(AT_FDCWD, path, O_PATH | O_CLOEXEC);
	old = openat(folder, OLD, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	error = ask_in(path, request);
	right = folder >= 0 && old >= 0 && agrees(folder, error);
	unlinkat(folder, OLD, 0);
	close(old);
	close(folder);
	rmdir(path);
	return right ? error : EVERY_WRONG;
}

static int run_create(void)
{
	return make(create);
}

static int run_mkdir(void)
{
	return make(mkdir_);
}

static int run_mknod(void)
{
	return make(mknod_);
}

static int run_symlink(void)
{
	return make(symlink_);
}

static int run_link(void)
{
	return make(link_);
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ .name = "create", .run = run_create }, { .name = "mkdir", .run = run_mkdir },
		{ .name = "mknod", .run = run_mknod },	 { .name = "symlink", .run = run_symlink },
		{ .name = "link", .run = run_link },
	};

	return every_failure(scenarios, ARRAY_SIZE(scenarios), argc, argv);
}
