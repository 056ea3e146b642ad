// SPDX-License-Identifier: MIT
/*
 * The file server's table of names, under requests that no Linux would send: whatever a guest
 * renames, forgets and keeps open, a node stands for one file, and a request changes the file that
 * it had the right to change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/share_guest.h"

/* --- its host: all files, with one folder to write, rw --- */

static u64 rw; /* its node */

static void put_file(const char *name)
{
	int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_EXCL, 0644);

	assert_true(fd >= 0);
	close(fd);
}

static struct stat host_file(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(in_folder(name), &st), 0);
	return st;
}

static mode_t host_mode(const char *name)
{
	return host_file(name).st_mode & 07777;
}

static int make(void **unused)
{
	(void)unused;
	if (!guest_start_in_folder())
		return -1;
	rw = guest_walk(in_folder("rw"));
	return 0;
}

static int take_down(void **unused)
{
	bool holds = nodes_check(&guest_share.nodes);
	u32 open_files = guest_stop();

	(void)unused;
	assert_true(holds);
	return host_remove_folder() && !open_files ? 0 : -1;
}

/* --- requests --- */

static void forget(u64 node)
{
	struct fuse_forget_in all = { .nlookup = ~0ull };

	assert_int_equal(guest_ask(FUSE_FORGET, node, &all, sizeof(all), NULL), -1);
}

static int change_mode(u64 node, u32 mode)
{
	return guest_set_attributes(node,
				    (struct fuse_setattr_in){ .valid = FATTR_MODE, .mode = mode });
}

static int link_to(u64 node, const char *name)
{
	struct fuse_link_in in = { .oldnodeid = node };

	return guest_ask(FUSE_LINK, rw, &in, sizeof(in), name);
}

/* --- renames that change nothing --- */

static void a_name_renamed_to_itself_stays_what_it_was(void **unused)
{
	u64 node;

	(void)unused;
	put_file("rw/a");
	node = guest_look_up(rw, "a");
	assert_int_equal(guest_rename(rw, "a", rw, "a", 0), 0);
	assert_int_equal(guest_mode(node, -1), S_IFREG | 0644);
	assert_int_equal(guest_look_up(rw, "a"), node);
	assert_int_equal(guest_rename(rw, "a", rw, "a", RENAME_NOREPLACE), EEXIST);
	assert_int_equal(guest_look_up(rw, "a"), node);
	forget(node);
	assert_int_equal(guest_rename(rw, "a", rw, "a", 0), 0); /* of a name that has no node */
	assert_int_equal(guest_mode(guest_look_up(rw, "a"), -1), S_IFREG | 0644);
	assert_int_equal(guest_rename(rw, "none", rw, "none", 0), ENOENT);
}

/* rename(2): "If oldpath and newpath are existing hard links referring to the same file, then
 * rename() does nothing". */
static void a_name_renamed_to_another_one_of_its_file_stays(void **unused)
{
	u64 node, other;

	(void)unused;
	put_file("rw/a");
	assert_int_equal(link(in_folder("rw/a"), in_folder("rw/b")), 0);
	node = guest_look_up(rw, "a");
	other = guest_look_up(rw, "b");
	assert_int_equal(guest_rename(rw, "a", rw, "b", 0), 0);
	assert_int_equal(host_file("rw/a").st_ino, host_file("rw/b").st_ino);
	assert_int_equal(guest_mode(node, -1), S_IFREG | 0644);
	assert_int_equal(guest_mode(other, -1), S_IFREG | 0644);
	assert_int_equal(guest_look_up(rw, "a"), node);
	assert_int_equal(guest_look_up(rw, "b"), other);
	forget(node);
	forget(other);
}

static void two_names_cannot_be_exchanged(void **unused)
{
	u64 node;

	(void)unused;
	put_file("rw/a");
	put_file("rw/b");
	node = guest_look_up(rw, "a");
	assert_int_equal(guest_rename(rw, "a", rw, "b", RENAME_EXCHANGE), EINVAL);
	assert_int_equal(guest_look_up(rw, "a"), node);
}

/* --- what an attack makes of a node that is free and in a chain --- */

/* The hash chain that a node is in. */
static u32 chain_of(u32 node)
{
	const struct nodes *nodes = &guest_share.nodes;

	for (u32 i = 0; i < NODE_BUCKETS; i++)
		for (u32 at = nodes->bucket[i]; at; at = nodes->node[at].next)
			if (at == node)
				return i;
	fail_msg("node %u is in no chain", node);
	return 0;
}

static u32 chain_of_name(u64 parent, const char *name)
{
	u32 node = node_lookup(&guest_share.nodes, parent, name), chain = chain_of(node);

	node_forget(&guest_share.nodes, node, 1);
	return chain;
}

/* A file of rw whose name shares a chain with another name. */
static void put_beside(u64 parent, const char *other, char name[16])
{
	u32 wanted = chain_of_name(parent, other);
	char path[32];

	for (u32 i = 0;; i++) {
		snprintf(name, 16, "a%u", i);
		if (chain_of_name(rw, name) == wanted)
			break;
	}
	snprintf(path, sizeof(path), "rw/%s", name);
	put_file(path);
}

/* Looks up new files until this node is handed out; false: it is not. */
static bool is_handed_out_again(u64 node, char name[16])
{
	char path[32];

	for (u32 i = 0; i < 1100; i++) { /* the table begins with 1024 */
		snprintf(name, 16, "m%u", i);
		snprintf(path, sizeof(path), "rw/%s", name);
		put_file(path);
		if (guest_look_up(rw, name) == node)
			return true;
	}
	return false;
}

static void a_node_is_handed_out_once(void **unused)
{
	u64 top = guest_walk(host_folder), first, second, reader, writer = ~0ull;
	char name[16];
	bool again;
	int error;

	(void)unused;
	put_file("kept");
	put_file("rw/any");
	put_beside(top, "kept", name);
	first = guest_look_up(rw, name);
	second = guest_look_up(rw, "any");
	assert_int_equal(guest_rename(rw, name, rw, name, 0), 0);
	forget(first);
	forget(second);
	assert_int_equal(guest_look_up(top, "kept"), second);
	assert_int_equal(guest_open(second, O_RDONLY, &reader), 0);
	again = is_handed_out_again(second, name);
	if (again) {
		guest_open(second, O_RDWR, &writer);
		guest_ask(FUSE_UNLINK, rw, NULL, 0, name);
	}
	error = change_mode(second, 0666);
	assert_int_equal(host_mode("kept"), 0644);
	assert_int_equal(error, EROFS);
	assert_false(again);
	assert_int_equal(guest_release(second, reader), 0);
}

/* --- permission and file are of one handle --- */

/*
 * A node with two handles: one for reading of a file that its user has moved out of the shared
 * folder since, `kept`, and one for writing of the file that took its place and whose name is gone.
 */
struct two {
	u64 node, reader, writer;
};

static void open_two(struct two *two)
{
	put_file("rw/file");
	two->node = guest_look_up(rw, "file");
	assert_int_equal(guest_open(two->node, O_RDONLY, &two->reader), 0);
	assert_int_equal(rename(in_folder("rw/file"), in_folder("kept")), 0);
	put_file("rw/file");
	assert_int_equal(guest_open(two->node, O_RDWR, &two->writer), 0);
	assert_int_equal(guest_ask(FUSE_UNLINK, rw, NULL, 0, "file"), 0);
}

static void the_handle_that_allows_a_change_names_the_file(void **unused)
{
	struct two two;
	u64 again;

	(void)unused;
	open_two(&two);
	assert_int_equal(change_mode(two.node, 0600), 0);
	assert_int_equal(host_mode("kept"), 0644);
	assert_int_equal(guest_mode(two.node, two.writer), S_IFREG | 0600);
	assert_int_equal(link_to(two.node, "new"), ENOENT); /* as of any file without a name */
	assert_int_equal(host_file("kept").st_nlink, 1);
	assert_int_equal(guest_open(two.node, O_RDWR | O_TRUNC, &again), 0);
	assert_int_equal(guest_write(two.node, again, "words"), 0);
	assert_int_equal(host_file("kept").st_size, 0);
	assert_int_equal(guest_release(two.node, again), 0);
	assert_int_equal(guest_release(two.node, two.writer), 0);
	assert_int_equal(change_mode(two.node, 0600), EROFS);
	assert_int_equal(guest_release(two.node, two.reader), 0);
}

/* The name is in the shared folder, and leads nowhere. */
static void a_handle_for_reading_allows_no_change(void **unused)
{
	u64 node, handle, again;

	(void)unused;
	put_file("rw/file");
	node = guest_look_up(rw, "file");
	assert_int_equal(guest_open(node, O_RDONLY, &handle), 0);
	assert_int_equal(rename(in_folder("rw/file"), in_folder("kept")), 0);
	assert_int_equal(change_mode(node, 0600), ENOENT);
	assert_int_equal(
		guest_set_attributes(node, (struct fuse_setattr_in){ .valid = FATTR_MODE | FATTR_FH,
								     .fh = handle,
								     .mode = 0600 }),
		ENOENT);
	assert_int_equal(link_to(node, "new"), ENOENT);
	assert_int_equal(guest_open(node, O_RDWR, &again), ENOENT);
	assert_int_equal(host_mode("kept"), 0644);
	assert_int_equal(host_file("kept").st_nlink, 1);
	assert_int_equal(guest_mode(node, -1), S_IFREG | 0644); /* reading goes on */
	assert_int_equal(guest_release(node, handle), 0);
}

#define NODE_TEST(name) cmocka_unit_test_setup_teardown(name, make, take_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		NODE_TEST(a_name_renamed_to_itself_stays_what_it_was),
		NODE_TEST(a_name_renamed_to_another_one_of_its_file_stays),
		NODE_TEST(two_names_cannot_be_exchanged),
		NODE_TEST(a_node_is_handed_out_once),
		NODE_TEST(the_handle_that_allows_a_change_names_the_file),
		NODE_TEST(a_handle_for_reading_allows_no_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
