// SPDX-License-Identifier: MIT
/*
 * What a deterministic guest sees of files (fixed.c, listing.c): neither the host's inode
 * numbers, nor its time, nor its order of names.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/turns.h"
#include "exec/guest_files.h"
#include "unit/share_guest.h"

static struct turns page;
static const struct share_terms terms = {
	.page = &page, .fixed = true, .order = -1, .input = -1, .frames = -1
};

static int make(void **unused)
{
	static const char *const writable[] = { host_folder + 1 };

	(void)unused;
	host_make_folder();
	if (!guest_start(writable, 1))
		return -1;
	guest_share.virtual_time = &terms;
	page.date = 1000;
	guest_share.fixed.begun = 1000;
	return 0;
}

static int take_down(void **unused)
{
	u32 open = guest_stop();

	(void)unused;
	guest_share.virtual_time = NULL;
	return host_remove_folder() && !open ? 0 : -1;
}

static struct fuse_attr attributes(u64 node)
{
	struct fuse_getattr_in in = { 0 };

	assert_int_equal(guest_ask(FUSE_GETATTR, node, &in, sizeof(in), NULL), 0);
	return ((const struct fuse_attr_out *)guest_body)->attr;
}

static u64 create(const char *name, u64 *handle)
{
	assert_int_equal(guest_create(guest_walk(host_folder), name, O_RDWR, 0600, handle), 0);
	return guest_look_up(guest_walk(host_folder), name);
}

static void assert_times(u64 node, u64 modified, u64 changed)
{
	struct fuse_attr attr = attributes(node);

	assert_int_equal(attr.mtime * 1000000000 + attr.mtimensec, modified);
	assert_int_equal(attr.ctime * 1000000000 + attr.ctimensec, changed);
	assert_int_equal(attr.atime * 1000000000 + attr.atimensec, modified);
}

static void files_have_the_guests_times(void **unused)
{
	const u64 begun = VIRTUAL_DATE * 1000000000;
	struct fuse_setattr_in set = { .valid = FATTR_MTIME, .mtime = 77, .mtimensec = 7 };
	struct fuse_setattr_in mode = { .valid = FATTR_MODE, .mode = 0644 };
	u64 handle, file;

	(void)unused;
	page.date = 1005;
	file = create("file", &handle);
	assert_times(file, begun + 5, begun + 5);
	assert_times(guest_walk(host_folder), begun + 5, begun + 5);
	page.date = 1006;
	assert_int_equal(guest_write(file, handle, "text"), 0);
	assert_times(file, begun + 6, begun + 6);
	assert_times(guest_walk(host_folder), begun + 5, begun + 5);
	page.date = 1007;
	assert_int_equal(guest_set_attributes(file, set), 0);
	assert_times(file, 77000000007, begun + 7);
	page.date = 1008;
	assert_int_equal(guest_set_attributes(file, mode), 0);
	assert_times(file, 77000000007, begun + 8);
	assert_int_equal(guest_release(file, handle), 0);
	page.date = 1009;
	assert_int_equal(guest_ask(FUSE_UNLINK, guest_walk(host_folder), NULL, 0, "file"), 0);
	assert_times(guest_walk(host_folder), begun + 9, begun + 9);
}

/* Whether the host gives the inode of a removed file to the next one or not. */
static void numbers_do_not_follow_the_hosts(void **unused)
{
	u64 handle, file = create("first", &handle), first = attributes(file).ino;

	(void)unused;
	assert_int_equal(guest_release(file, handle), 0);
	assert_int_equal(guest_ask(FUSE_UNLINK, guest_walk(host_folder), NULL, 0, "first"), 0);
	assert_int_equal(mknod(in_folder("unseen"), S_IFREG | 0600, 0), 0); /* takes an inode */
	file = create("second", &handle);
	assert_int_equal(attributes(file).ino, first);
	assert_int_equal(guest_release(file, handle), 0);
	assert_int_equal(attributes(guest_look_up(guest_walk(host_folder), "unseen")).ino,
			 first + 1);
}

/* Java's files of running processes are the host's business; plain guests see them. */
static void what_programs_of_the_host_say_of_themselves_is_hidden(void **unused)
{
	char java[] = "/tmp/hsperfdata_vpmu-XXXXXX";
	const char *name = java + strlen("/tmp/");

	(void)unused;
	assert_non_null(mkdtemp(java));
	assert_false(guest_look_up(guest_walk("/tmp"), name));
	guest_share.virtual_time = NULL;
	assert_true(guest_look_up(guest_walk("/tmp"), name));
	guest_share.virtual_time = &terms;
	assert_int_equal(rmdir(java), 0);
}

static void a_second_name_has_the_same_number(void **unused)
{
	u64 handle, file = create("file", &handle), number = attributes(file).ino;
	struct fuse_link_in link = { .oldnodeid = file };

	(void)unused;
	assert_int_equal(guest_release(file, handle), 0);
	assert_int_equal(
		guest_ask(FUSE_LINK, guest_walk(host_folder), &link, sizeof(link), "other"), 0);
	assert_int_equal(guest_ask(FUSE_UNLINK, guest_walk(host_folder), NULL, 0, "file"), 0);
	assert_int_equal(attributes(guest_look_up(guest_walk(host_folder), "other")).ino, number);
}

/* Its last name goes while it is open. */
static u64 create_without_a_name(u64 *handle)
{
	u64 file = create("file", handle), number = attributes(file).ino;

	page.date++;
	assert_int_equal(guest_ask(FUSE_UNLINK, guest_walk(host_folder), NULL, 0, "file"), 0);
	assert_int_equal(attributes(file).ino, number);
	return file;
}

static void a_file_keeps_its_number_while_it_is_open(void **unused)
{
	const u64 begun = VIRTUAL_DATE * 1000000000;
	u64 handle, other, file;

	(void)unused;
	page.date = 1005;
	file = create_without_a_name(&handle);
	assert_times(file, begun + 5, begun + 6);
	assert_true(attributes(create("file", &other)).ino != attributes(file).ino);
	assert_int_equal(guest_write(file, handle, "text"), 0);
	assert_times(file, begun + 6, begun + 6);
	assert_int_equal(guest_release(file, handle), 0);
	assert_int_equal(guest_release(guest_look_up(guest_walk(host_folder), "file"), other), 0);
}

static void nothing_is_kept_of_files_without_a_name(void **unused)
{
	u64 handle, file = create_without_a_name(&handle);
	u32 count = guest_share.fixed.count;
	char name[16];

	(void)unused;
	assert_int_equal(guest_release(file, handle), 0);
	for (u32 i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "unseen%u", i);
		assert_int_equal(mknod(in_folder(name), S_IFREG | 0600, 0),
				 0); /* takes the last inode */
		file = create_without_a_name(&handle);
		assert_int_equal(guest_write(file, handle, "text"), 0);
		assert_int_equal(guest_release(file, handle), 0);
	}
	assert_int_equal(guest_share.fixed.count, count);
}

/* The guest may list more files than anything could be kept of. */
static void what_is_kept_of_files_has_a_limit(void **unused)
{
	struct fixed *fixed = &guest_share.fixed;
	struct stat st = { .st_ino = 1 };

	(void)unused;
	fixed->file = calloc(MAX_NODES, sizeof(*fixed->file));
	assert_non_null(fixed->file);
	fixed->room = MAX_NODES;
	fixed->count = MAX_NODES - 2;
	assert_non_null(fixed_find(&guest_share, &st));
	st.st_ino = 2;
	assert_null(fixed_find(&guest_share, &st));
	st.st_ino = 1;
	assert_non_null(fixed_find(&guest_share, &st));
}

/* The names of a folder, from an offset on, with a slash after each. */
static void list(u64 node, u64 handle, u64 offset, char *names)
{
	struct fuse_read_in in = { .fh = handle, .offset = offset, .size = 120 };
	const u8 *at = guest_body, *end;

	assert_int_equal(guest_ask(FUSE_READDIR, node, &in, sizeof(in), NULL), 0);
	end = at + guest_answer->len - sizeof(*guest_answer);
	while (at < end) {
		const struct fuse_dirent *entry = (const void *)at;

		strncat(names, entry->name, entry->namelen);
		strcat(names, "/");
		assert_true(entry->off > offset);
		offset = entry->off;
		at += FUSE_DIRENT_SIZE(entry);
	}
	if (at > (const u8 *)guest_body)
		list(node, handle, offset, names);
}

/* In pieces, too; and from the first one, it is read again. */
static void names_are_sorted(void **unused)
{
	static const char *const made[] = { "zebra", "a", "middle", "b", "Upper", "yes" };
	u64 node = guest_walk(host_folder), handle;
	struct fuse_open_in in = { 0 };
	char names[256] = "";

	(void)unused;
	for (u32 i = 0; i < ARRAY_SIZE(made); i++) {
		u64 file = create(made[i], &handle);

		assert_int_equal(guest_release(file, handle), 0);
	}
	assert_int_equal(guest_ask(FUSE_OPENDIR, node, &in, sizeof(in), NULL), 0);
	handle = ((const struct fuse_open_out *)guest_body)->fh;
	list(node, handle, 0, names);
	assert_string_equal(names, "./../Upper/a/b/middle/yes/zebra/");
	assert_int_equal(guest_ask(FUSE_UNLINK, node, NULL, 0, "middle"), 0);
	names[0] = '\0';
	list(node, handle, 0, names);
	assert_string_equal(names, "./../Upper/a/b/yes/zebra/");
	names[0] = '\0';
	list(node, handle, ~0ull - 1, names); /* a hostile guest's */
	assert_string_equal(names, "");
	assert_int_equal(guest_release(node, handle), 0);
	assert_int_equal(guest_share.listed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(files_have_the_guests_times, make, take_down),
		cmocka_unit_test_setup_teardown(numbers_do_not_follow_the_hosts, make, take_down),
		cmocka_unit_test_setup_teardown(
			what_programs_of_the_host_say_of_themselves_is_hidden, make, take_down),
		cmocka_unit_test_setup_teardown(a_second_name_has_the_same_number, make, take_down),
		cmocka_unit_test_setup_teardown(a_file_keeps_its_number_while_it_is_open, make,
						take_down),
		cmocka_unit_test_setup_teardown(nothing_is_kept_of_files_without_a_name, make,
						take_down),
		cmocka_unit_test_setup_teardown(what_is_kept_of_files_has_a_limit, make, take_down),
		cmocka_unit_test_setup_teardown(names_are_sorted, make, take_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
