// SPDX-License-Identifier: MIT
/*
 * The files of guest_files.c, and what a guest on virtual time is shown of others.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/memfile.h"
#include "base/profile.h"
#include "exec/guest_files.h"
#include "unit/share_guest.h"

static struct share_terms terms;
static int frames; /* the session's end */

static int make(void **unused)
{
	int ends[2];

	(void)unused;
	host_make_folder();
	if (!guest_start(NULL, 0) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -1;
	frames = ends[0];
	terms = (struct share_terms){
		.fixed = true,
		.order = memfile_create("order", MFD_CLOEXEC),
		.input = memfile_create("input", MFD_CLOEXEC),
		.frames = ends[1],
	};
	guest_share.virtual_time = &terms;
	return write(terms.order, "an order", 8) == 8 && write(terms.input, "input", 5) == 5 ? 0
											     : -1;
}

static int take_down(void **unused)
{
	(void)unused;
	guest_share.virtual_time = NULL;
	close(frames);
	close(terms.frames);
	close(terms.order);
	close(terms.input);
	return host_remove_folder() && !guest_stop() ? 0 : -1;
}

static u64 open_link(const char *name, u32 flags)
{
	u64 node = guest_look_up(FUSE_ROOT_ID, name), handle;

	assert_true(node);
	assert_int_equal(guest_open(node, flags, &handle), 0);
	return node;
}

static void what_the_host_has_for_the_guest_is_read(void **unused)
{
	u64 order = open_link(LINK_ORDER, 0), input = open_link(LINK_INPUT, 0);

	(void)unused;
	assert_int_equal(guest_size(order), 8);
	assert_int_equal(guest_read(order, 0, 100), 0);
	assert_memory_equal(guest_body, "an order", 8);
	assert_int_equal(guest_read(input, 0, 100), 0);
	assert_memory_equal(guest_body, "input", 5);
	assert_int_equal(guest_write(order, 0, "no"), EBADF);
	assert_int_equal(guest_release(order, 0), 0);
}

static void what_the_guest_says_reaches_the_host(void **unused)
{
	u64 node = open_link(LINK_FRAMES, 1);
	char text[16] = "";

	(void)unused;
	assert_int_equal(guest_write(node, 0, "hello"), 0);
	assert_int_equal(recv(frames, text, sizeof(text), MSG_DONTWAIT), sizeof("hello"));
	assert_string_equal(text, "hello");
	assert_int_equal(guest_read(node, 0, 100), EBADF);
}

/* More than it says, a session that has gone: nothing is written, and nothing breaks. */
static void frames_that_are_none_are_refused(void **unused)
{
	u64 node = open_link(LINK_FRAMES, 1);
	struct fuse_write_in lie = { .size = 1 << 20 };

	(void)unused;
	assert_int_equal(guest_ask(FUSE_WRITE, node, &lie, sizeof(lie), "short"), EINVAL);
	shutdown(frames, SHUT_RDWR);
	assert_int_equal(guest_write(node, 0, "hello"), EPIPE);
}

static bool root_lists(const char *name)
{
	struct fuse_open_in open = { 0 };
	struct fuse_read_in read = { .size = 64 << 10 };
	bool found;

	assert_int_equal(guest_ask(FUSE_OPENDIR, FUSE_ROOT_ID, &open, sizeof(open), NULL), 0);
	read.fh = ((const struct fuse_open_out *)guest_body)->fh;
	assert_int_equal(guest_ask(FUSE_READDIR, FUSE_ROOT_ID, &read, sizeof(read), NULL), 0);
	found = memmem(guest_body, guest_answer->len - sizeof(*guest_answer), name, strlen(name));
	assert_int_equal(guest_release(FUSE_ROOT_ID, read.fh), 0);
	return found;
}

static void they_are_in_the_root_only_and_not_listed(void **unused)
{
	(void)unused;
	assert_true(root_lists("usr"));
	assert_false(root_lists(LINK_ORDER) || root_lists(LINK_INPUT) || root_lists(LINK_FRAMES));
	assert_int_equal(guest_look_up(guest_walk("usr"), LINK_ORDER), 0);
	assert_int_equal(guest_ask(FUSE_UNLINK, FUSE_ROOT_ID, NULL, 0, LINK_ORDER), EROFS);
	assert_int_equal(guest_ask(FUSE_SETATTR, guest_look_up(FUSE_ROOT_ID, LINK_ORDER),
				   &(struct fuse_setattr_in){ 0 }, sizeof(struct fuse_setattr_in),
				   NULL),
			 ENOSYS);
}

static void without_terms_there_are_none(void **unused)
{
	(void)unused;
	guest_share.virtual_time = NULL;
	assert_int_equal(guest_look_up(FUSE_ROOT_ID, LINK_ORDER), 0);
	guest_share.virtual_time = &terms;
	close(terms.frames);
	terms.frames = -1;
	assert_int_equal(guest_look_up(FUSE_ROOT_ID, LINK_FRAMES), 0);
}

static void times_of_access_are_not_shown(void **unused)
{
	const struct timespec accessed_and_modified[] = { { 2000, 20 }, { 1000, 10 } };
	const struct fuse_attr_out *out = guest_body;

	(void)unused;
	assert_int_equal(close(creat(in_folder("file"), 0600)), 0);
	assert_int_equal(utimensat(AT_FDCWD, in_folder("file"), accessed_and_modified, 0), 0);
	for (u32 shown = 0; shown < 2; shown++) {
		guest_share.virtual_time = shown ? NULL : &terms;
		assert_true(guest_mode(guest_walk(in_folder("file")), -1) > 0);
		assert_int_equal(out->attr.mtime, 1000);
		assert_int_equal(out->attr.mtimensec, 10);
		assert_int_equal(out->attr.atime, shown ? 2000 : 1000);
		assert_int_equal(out->attr.atimensec, shown ? 20 : 10);
	}
}

static void open_and_forget(const char *path)
{
	struct fuse_forget_in forget = { .nlookup = 1 };
	u64 node = guest_walk(path), handle;

	assert_int_equal(guest_open(node, 0, &handle), 0);
	assert_int_equal(guest_release(node, handle), 0);
	guest_ask(FUSE_FORGET, node, &forget, sizeof(forget), NULL); /* has no answer */
	assert_null(node_get(&guest_share.nodes, node));
}

static void a_file_that_is_opened_again_is_named_once(void **unused)
{
	static const char names[] = "etc/passwd\0etc/group";
	struct profile *profile = calloc(1, sizeof(*profile));

	(void)unused;
	assert_non_null(profile);
	terms.profile = profile;
	for (u32 i = 0; i < 10; i++) {
		open_and_forget("/etc/passwd");
		open_and_forget("/etc/group");
	}
	assert_int_equal(profile->names_used, sizeof(names));
	assert_memory_equal(profile->names, names, sizeof(names));
	assert_int_equal(profile->names_lost, 0);
	free(profile);
}

#define LINK_TEST(name) cmocka_unit_test_setup_teardown(name, make, take_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LINK_TEST(what_the_host_has_for_the_guest_is_read),
		LINK_TEST(what_the_guest_says_reaches_the_host),
		LINK_TEST(frames_that_are_none_are_refused),
		LINK_TEST(they_are_in_the_root_only_and_not_listed),
		LINK_TEST(without_terms_there_are_none),
		LINK_TEST(times_of_access_are_not_shown),
		LINK_TEST(a_file_that_is_opened_again_is_named_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
