// SPDX-License-Identifier: MIT
/*
 * The server of the host's files, request by request: it serves files and not the kernel's
 * interfaces, opens regular files only, neither shows nor sets set-id bits, and keeps an open file
 * whose name is gone. The guest that asks is a hostile kernel: it sends what no Linux would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/share_guest.h"

/* --- its host --- */

static void put_file(const char *name, mode_t mode)
{
	int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_int_equal(write(fd, "content", 7), 7);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static mode_t host_mode(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(in_folder(name), &st), 0);
	return st.st_mode & 07777;
}

static int make(void **unused)
{
	(void)unused;
	return guest_start_in_folder() ? 0 : -1;
}

static int take_down(void **unused)
{
	u32 open_files = guest_stop();

	(void)unused;
	umount2(in_folder("rw/there"), MNT_DETACH); /* of a test that failed */
	umount2(in_folder("rw/file"), MNT_DETACH);
	assert_true(host_remove_folder());
	assert_int_equal(open_files, 0); /* each test closes what it opens */
	return 0;
}

/* --- file systems --- */

static void assert_sealed(const char *path, const char *inside)
{
	u64 node = guest_walk(path);

	assert_true(node);
	assert_int_equal(guest_mode(node, -1), S_IFDIR | 0555);
	assert_int_equal(guest_look_up(node, inside), 0);
	assert_int_equal(guest_entries(node, FUSE_READDIR), 0);
	assert_int_equal(guest_entries(node, FUSE_READDIRPLUS), 0);
}

static void interfaces_of_the_kernel_are_empty_folders(void **unused)
{
	char path[64];
	u64 handle;

	(void)unused;
	assert_sealed("/proc", "self");
	assert_sealed("/proc", "version");
	assert_sealed("/sys", "kernel");
	snprintf(path, sizeof(path), "/proc/%d/mem", getpid());
	assert_int_equal(guest_walk(path), 0);
	assert_int_equal(guest_open(guest_walk("/etc/passwd"), O_RDONLY, &handle), 0);
	assert_int_equal(guest_release(guest_walk("/etc/passwd"), handle), 0);
	assert_true(guest_entries(guest_walk("/etc"), FUSE_READDIRPLUS) > 3);
}

/* Mounts are made in a namespace of our own; that takes privileges. */
static void want_mounts(void)
{
	if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		print_message("skipped: mounting takes privileges: %s\n", strerror(errno));
		skip();
	}
	close(guest_share.root); /* it is one of the namespace before */
	guest_share.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void they_are_so_wherever_they_are_mounted(void **unused)
{
	static const char *const types[] = { "proc",	 "sysfs",    "devpts",	 "mqueue",
					     "cgroup2",	 "tracefs",  "debugfs",	 "securityfs",
					     "configfs", "bpf",	     "fusectl",	 "binfmt_misc",
					     "pstore",	 "efivarfs", "selinuxfs" };
	u32 mounted = 0;
	u64 handle;

	(void)unused;
	want_mounts();
	assert_int_equal(mkdir(in_folder("rw/there"), 0755), 0);
	for (u32 i = 0; i < ARRAY_SIZE(types); i++) {
		const char *path = in_folder("rw/there");

		if (mount(types[i], path, types[i], 0, NULL))
			continue; /* not in this kernel */
		mounted++;
		assert_sealed(path, "self");
		assert_int_equal(guest_ask(FUSE_MKDIR, guest_walk(in_folder("rw/there")),
					   &(struct fuse_mkdir_in){ .mode = 0755 },
					   sizeof(struct fuse_mkdir_in), "new"),
				 ENOENT);
		assert_int_equal(umount2(in_folder("rw/there"), MNT_DETACH), 0);
	}
	assert_true(mounted >= 2);
	/* One file of them, over one that could be written. */
	put_file("rw/file", 0644);
	assert_int_equal(
		mount("/proc/sys/kernel/hostname", in_folder("rw/file"), NULL, MS_BIND, NULL), 0);
	assert_int_equal(guest_mode(guest_walk(in_folder("rw/file")), -1), S_IFREG);
	assert_int_equal(guest_open(guest_walk(in_folder("rw/file")), O_RDONLY, &handle), EACCES);
	assert_int_equal(guest_open(guest_walk(in_folder("rw/file")), O_WRONLY, &handle), EACCES);
	assert_int_equal(guest_set_attributes(guest_walk(in_folder("rw/file")),
					      (struct fuse_setattr_in){ .valid = FATTR_SIZE }),
			 EPERM);
	assert_int_equal(umount2(in_folder("rw/file"), MNT_DETACH), 0);
	/* What stores files is served wherever it is. */
	assert_int_equal(mount("t", in_folder("rw/there"), "tmpfs", 0, NULL), 0);
	put_file("rw/there/file", 0644);
	assert_int_equal(guest_open(guest_walk(in_folder("rw/there/file")), O_RDWR, &handle), 0);
	assert_int_equal(guest_release(guest_walk(in_folder("rw/there/file")), handle), 0);
	assert_int_equal(umount2(in_folder("rw/there"), MNT_DETACH), 0);
}

/* A node that was looked up before something was mounted over it. */
static void a_node_is_judged_when_it_is_used(void **unused)
{
	u64 node, handle;

	(void)unused;
	assert_int_equal(mkdir(in_folder("rw/there"), 0755), 0);
	put_file("rw/there/version", 0644);
	node = guest_walk(in_folder("rw/there/version"));
	assert_int_equal(guest_open(node, O_RDONLY, &handle), 0);
	assert_int_equal(guest_release(node, handle), 0);
	want_mounts();
	assert_int_equal(mount("proc", in_folder("rw/there"), "proc", 0, NULL), 0);
	assert_int_equal(guest_open(node, O_RDONLY, &handle), EACCES);
	assert_int_equal(umount2(in_folder("rw/there"), MNT_DETACH), 0);
}

/* --- types of files --- */

static void pipes_sockets_and_devices_are_listed_but_not_opened(void **unused)
{
	static const char *const names[] = { "pipe", "socket" };
	struct fuse_mknod_in device = { .mode = S_IFCHR | 0666, .rdev = 0x103 };
	char path[64];
	u64 handle;

	(void)unused;
	assert_int_equal(mkfifo(in_folder("rw/pipe"), 0666), 0);
	assert_int_equal(mknod(in_folder("rw/socket"), S_IFSOCK | 0666, 0), 0);
	for (u32 i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "rw/%s", names[i]);
		assert_true(guest_walk(in_folder(path)));
		assert_int_equal(guest_open(guest_walk(in_folder(path)), O_RDONLY, &handle),
				 EACCES);
		assert_int_equal(guest_open(guest_walk(in_folder(path)), O_RDWR, &handle), EACCES);
		assert_int_equal(
			guest_create(guest_walk(in_folder("rw")), names[i], O_RDWR, 0644, &handle),
			EACCES);
	}
	assert_int_equal(guest_open(guest_walk("/dev/null"), O_RDONLY, &handle), EACCES);
	assert_int_equal(guest_open(guest_walk("/dev/zero"), O_RDONLY, &handle), EACCES);
	assert_int_equal(
		guest_ask(FUSE_MKNOD, guest_walk(in_folder("rw")), &device, sizeof(device), "null"),
		EPERM);
	assert_int_equal(guest_entries(guest_walk(in_folder("rw")), FUSE_READDIR), 2);
}

static void a_file_that_exists_is_opened_by_create_as_it_is(void **unused)
{
	u64 node, handle;

	(void)unused;
	put_file("rw/file", 0640);
	node = guest_walk(in_folder("rw/file"));
	assert_int_equal(
		guest_create(guest_walk(in_folder("rw")), "file", O_RDWR | O_EXCL, 0666, &handle),
		EEXIST);
	assert_int_equal(guest_create(guest_walk(in_folder("rw")), "file", O_RDWR, 0666, &handle),
			 0);
	assert_int_equal(guest_read(node, handle, 100), 0);
	assert_int_equal(guest_answer->len - sizeof(*guest_answer), 7);
	assert_int_equal(host_mode("rw/file"), 0640);
	assert_int_equal(guest_release(node, handle), 0);
	assert_int_equal(
		guest_create(guest_walk(in_folder("rw")), "file", O_RDWR | O_TRUNC, 0666, &handle),
		0);
	assert_int_equal(guest_size(node), 0);
	assert_int_equal(guest_release(node, handle), 0);
}

/* --- set-id bits --- */

static void set_id_bits_are_not_shown(void **unused)
{
	(void)unused;
	put_file("both", 06755);
	put_file("rw/user", 04711);
	assert_int_equal(guest_mode(guest_walk(in_folder("both")), -1), S_IFREG | 0755);
	assert_int_equal(guest_mode(guest_walk(in_folder("rw/user")), -1), S_IFREG | 0711);
	guest_walk(in_folder("both"));
	assert_int_equal(((const struct fuse_entry_out *)guest_body)->attr.mode, S_IFREG | 0755);
}

static void set_id_bits_are_not_made(void **unused)
{
	struct fuse_mknod_in node = { .mode = S_IFREG | 06755 };
	struct fuse_mkdir_in made = { .mode = 07777 };
	u64 handle, rw = guest_walk(in_folder("rw"));

	(void)unused;
	assert_int_equal(guest_create(guest_walk(in_folder("rw")), "created", O_RDWR,
				      S_IFREG | 06755, &handle),
			 0);
	assert_int_equal(host_mode("rw/created"), 0755);
	assert_int_equal(guest_release(guest_walk(in_folder("rw/created")), handle), 0);
	assert_int_equal(guest_ask(FUSE_MKNOD, rw, &node, sizeof(node), "node"), 0);
	assert_int_equal(host_mode("rw/node"), 0755);
	assert_int_equal(guest_ask(FUSE_MKDIR, rw, &made, sizeof(made), "folder"), 0);
	assert_int_equal(host_mode("rw/folder"), 01777);
	assert_int_equal(guest_set_attributes(
				 guest_walk(in_folder("rw/node")),
				 (struct fuse_setattr_in){ .valid = FATTR_MODE, .mode = 06711 }),
			 0);
	assert_int_equal(host_mode("rw/node"), 0711);
}

/* The guest does not see that a folder hands its group on, and so cannot ask to keep it. */
static void a_folder_keeps_its_group_bit(void **unused)
{
	(void)unused;
	assert_int_equal(mkdir(in_folder("rw/team"), 0755), 0);
	assert_int_equal(chmod(in_folder("rw/team"), 02755), 0);
	assert_int_equal(guest_set_attributes(
				 guest_walk(in_folder("rw/team")),
				 (struct fuse_setattr_in){ .valid = FATTR_MODE, .mode = 04700 }),
			 0);
	assert_int_equal(host_mode("rw/team"), 02700);
}

/* --- files without a name --- */

/* Everything that can be done with an open file, by a handle and by its node alone. */
static void assert_works(u64 node, u64 handle)
{
	assert_true(S_ISREG(guest_mode(node, handle)));
	assert_true(S_ISREG(guest_mode(node, -1)));
	assert_int_equal(
		guest_set_attributes(node, (struct fuse_setattr_in){ .valid = FATTR_SIZE | FATTR_FH,
								     .fh = handle,
								     .size = 5 }),
		0);
	assert_int_equal(guest_size(node), 5);
	assert_int_equal(guest_set_attributes(node, (struct fuse_setattr_in){ .valid = FATTR_MODE,
									      .mode = 0600 }),
			 0);
	assert_int_equal(guest_mode(node, -1), S_IFREG | 0600);
	assert_int_equal(guest_write(node, handle, "words"), 0);
	assert_int_equal(guest_read(node, handle, 100), 0);
	assert_string_equal(guest_body, "words");
}

static void an_unlinked_file_lives_as_long_as_any_handle(void **unused)
{
	enum { HANDLES = 5 };
	u64 node, handle[HANDLES], again;

	(void)unused;
	for (u32 last = 0; last < HANDLES; last++) {
		put_file("rw/file", 0644);
		node = guest_walk(in_folder("rw/file"));
		for (u32 i = 0; i < HANDLES; i++)
			assert_int_equal(guest_open(node, O_RDWR, &handle[i]), 0);
		assert_int_equal(
			guest_ask(FUSE_UNLINK, guest_walk(in_folder("rw")), NULL, 0, "file"), 0);
		for (u32 i = 0; i < HANDLES; i++)
			if (i != last) {
				assert_works(node, handle[i]);
				assert_int_equal(guest_release(node, handle[i]), 0);
				assert_works(node, handle[last]);
			}
		assert_int_equal(guest_open(node, O_RDWR, &again), 0); /* /proc/self/fd/N there */
		assert_int_equal(guest_release(node, handle[last]), 0);
		assert_works(node, again);
		assert_int_equal(guest_release(node, again), 0);
		assert_int_equal(guest_mode(node, -1), -ESTALE);
	}
}

static void a_file_that_was_replaced_is_not_the_new_one(void **unused)
{
	u64 rw = guest_walk(in_folder("rw")), node, first, second;

	(void)unused;
	put_file("rw/old", 0644);
	put_file("rw/new", 0600);
	node = guest_walk(in_folder("rw/old"));
	assert_int_equal(guest_open(node, O_RDWR, &first), 0);
	assert_int_equal(guest_open(node, O_RDONLY, &second), 0);
	assert_int_equal(guest_rename(rw, "new", rw, "old", 0), 0);
	assert_int_equal(guest_mode(node, -1), S_IFREG | 0644);
	assert_int_equal(guest_mode(guest_walk(in_folder("rw/old")), -1), S_IFREG | 0600);
	assert_int_equal(guest_release(node, first), 0);
	assert_int_equal(guest_mode(node, second), S_IFREG | 0644);
	/* What is left is a handle for reading. */
	assert_int_equal(
		guest_set_attributes(node, (struct fuse_setattr_in){ .valid = FATTR_SIZE }), EROFS);
	assert_int_equal(guest_write(node, second, "words"), EBADF);
	assert_int_equal(guest_release(node, second), 0);
}

/* Linux forgets a node when nothing uses it; this guest forgets one that it has open. */
static void a_node_that_is_open_is_not_forgotten(void **unused)
{
	struct fuse_forget_in forget = { .nlookup = ~0ull };
	u64 node, handle;

	(void)unused;
	put_file("rw/file", 0644);
	node = guest_walk(in_folder("rw/file"));
	assert_int_equal(guest_open(node, O_RDWR, &handle), 0);
	assert_int_equal(guest_ask(FUSE_FORGET, node, &forget, sizeof(forget), NULL), -1);
	assert_int_not_equal(guest_look_up(guest_walk(in_folder("rw")), "another"), node);
	assert_works(node, handle);
	assert_int_equal(guest_release(node, handle), 0);
	assert_int_equal(guest_mode(node, -1), -ESTALE);
}

static void a_handle_belongs_to_its_node(void **unused)
{
	u64 mine, other, handle;

	(void)unused;
	put_file("rw/mine", 0644);
	put_file("other", 0644);
	mine = guest_walk(in_folder("rw/mine"));
	other = guest_walk(in_folder("other"));
	assert_int_equal(guest_open(mine, O_RDWR, &handle), 0);
	assert_int_equal(guest_mode(other, handle), -EBADF);
	assert_int_equal(guest_set_attributes(
				 other, (struct fuse_setattr_in){ .valid = FATTR_MODE | FATTR_FH,
								  .fh = handle,
								  .mode = 0777 }),
			 EBADF);
	assert_int_equal(guest_release(other, handle), EBADF);
	assert_int_equal(guest_release(mine, handle), 0);
}

static int move(const char *name, const char *new_name)
{
	u64 rw = guest_walk(in_folder("rw"));

	return guest_rename(rw, name, rw, new_name, 0);
}

static int set(u64 node, u32 valid)
{
	return guest_set_attributes(
		node, (struct fuse_setattr_in){
			      .valid = valid, .mode = 0777, .uid = geteuid(), .gid = getegid() });
}

/* A user who may write to a folder on the way to it can put another one in its place. */
static void assert_stays_the_users(u64 node, const char *name)
{
	struct fuse_open_in open = { 0 };
	u64 handle;

	assert_int_equal(set(node, FATTR_MODE), EROFS);
	assert_int_equal(set(node, FATTR_UID), EROFS);
	assert_int_equal(set(node, FATTR_GID), EROFS);
	assert_int_equal(guest_ask(FUSE_OPENDIR, node, &open, sizeof(open), NULL), 0);
	handle = ((const struct fuse_open_out *)guest_body)->fh;
	assert_int_equal(
		guest_set_attributes(node, (struct fuse_setattr_in){ .valid = FATTR_MODE | FATTR_FH,
								     .fh = handle,
								     .mode = 0777 }),
		EROFS);
	assert_int_equal(guest_release(node, handle), 0);
	assert_int_equal(host_mode(name), 0755);
}

/* What is kept there will be executed, in the process of another guest. */
static void vpmus_own_folder_is_for_reading(void **unused)
{
	static const char *const folders[] = { "rw/cache", "rw/cache/vpmu" };
	const struct fuse_mkdir_in made = { .mode = 0755 };
	char first[PATH_MAX], second[PATH_MAX];
	const char *const own[] = { first, second, NULL };
	u64 handle, file;

	(void)unused;
	for (u32 i = 0; i < ARRAY_SIZE(folders); i++)
		assert_int_equal(mkdir(in_folder(folders[i]), 0755), 0);
	put_file("rw/cache/vpmu/file", 0644);
	put_file("rw/cache/file", 0644);
	snprintf(first, sizeof(first), "%s/elsewhere/vpmu", host_folder + 1);
	snprintf(second, sizeof(second), "%s/rw/cache/vpmu", host_folder + 1);
	guest_share.own = own;
	file = guest_walk(in_folder("rw/cache/vpmu/file"));
	assert_int_equal(guest_open(file, O_RDONLY, &handle), 0);
	assert_int_equal(guest_release(file, handle), 0);
	assert_int_equal(guest_open(file, O_RDWR, &handle), EROFS);
	assert_int_equal(
		guest_create(guest_walk(in_folder("rw/cache/vpmu")), "new", O_RDWR, 0644, &handle),
		EROFS);
	assert_int_equal(
		guest_ask(FUSE_UNLINK, guest_walk(in_folder("rw/cache/vpmu")), NULL, 0, "file"),
		EROFS);
	/* nor does another one take its place */
	assert_int_equal(move("cache", "other"), EROFS);
	assert_int_equal(guest_ask(FUSE_RMDIR, guest_walk(in_folder("rw/cache")), NULL, 0, "vpmu"),
			 EROFS);
	assert_stays_the_users(guest_walk(in_folder("rw/cache/vpmu")), "rw/cache/vpmu");
	assert_stays_the_users(guest_walk(in_folder("rw/cache")), "rw/cache");
	assert_stays_the_users(guest_walk(in_folder("rw")), "rw");
	assert_int_equal(set(guest_walk(in_folder("rw/cache")), FATTR_MTIME), 0);
	assert_int_equal(set(guest_walk(in_folder("rw/cache/file")), FATTR_MODE), 0);
	assert_int_equal(host_mode("rw/cache/file"), 0777);
	/* what is beside it can be changed */
	assert_int_equal(guest_ask(FUSE_UNLINK, guest_walk(in_folder("rw/cache")), NULL, 0, "file"),
			 0);
	assert_int_equal(guest_ask(FUSE_MKDIR, guest_walk(in_folder("rw/cache")), &made,
				   sizeof(made), "vpmu2"),
			 0);
	assert_int_equal(
		guest_ask(FUSE_MKDIR, guest_walk(in_folder("rw")), &made, sizeof(made), "cach"), 0);
	assert_int_equal(move("cach", "moved"), 0);
	assert_int_equal(move("moved", "cache"), EROFS);
}

/* The server that answers after the machine was resumed is another one, and knows none of this. */
static void a_guest_that_is_to_be_saved_believes_nothing(void **unused)
{
	const struct fuse_getattr_in how = { 0 };
	const struct fuse_entry_out *entry = guest_body;
	const struct fuse_attr_out *attributes = guest_body;

	(void)unused;
	for (u32 saved = 0; saved <= 1; saved++) {
		guest_share.is_brief = saved;
		assert_int_equal(guest_ask(FUSE_GETATTR, FUSE_ROOT_ID, &how, sizeof(how), NULL), 0);
		assert_int_equal(!attributes->attr_valid, saved);
		assert_int_equal(guest_ask(FUSE_LOOKUP, FUSE_ROOT_ID, NULL, 0, "etc"), 0);
		assert_int_equal(!entry->attr_valid, saved);
		assert_int_equal(!entry->entry_valid, saved);
		assert_int_equal(guest_ask(FUSE_LOOKUP, FUSE_ROOT_ID, NULL, 0, "no such name"), 0);
		assert_int_equal(entry->nodeid, 0);
		assert_int_equal(!entry->entry_valid, saved);
	}
}

#define SHARE_TEST(name) cmocka_unit_test_setup_teardown(name, make, take_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SHARE_TEST(interfaces_of_the_kernel_are_empty_folders),
		SHARE_TEST(they_are_so_wherever_they_are_mounted),
		SHARE_TEST(a_node_is_judged_when_it_is_used),
		SHARE_TEST(pipes_sockets_and_devices_are_listed_but_not_opened),
		SHARE_TEST(a_file_that_exists_is_opened_by_create_as_it_is),
		SHARE_TEST(set_id_bits_are_not_shown),
		SHARE_TEST(set_id_bits_are_not_made),
		SHARE_TEST(a_folder_keeps_its_group_bit),
		SHARE_TEST(an_unlinked_file_lives_as_long_as_any_handle),
		SHARE_TEST(a_file_that_was_replaced_is_not_the_new_one),
		SHARE_TEST(a_node_that_is_open_is_not_forgotten),
		SHARE_TEST(a_handle_belongs_to_its_node),
		SHARE_TEST(vpmus_own_folder_is_for_reading),
		SHARE_TEST(a_guest_that_is_to_be_saved_believes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
