// SPDX-License-Identifier: MIT
/*
 * What guests only read, whatever is shared with them: every place that kernels, machines and
 * translations are taken from, and the names that lead there.
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

#include "exec/exec.h"
#include "unit/share_guest.h"

static struct own_places own;

static int make(void **unused)
{
	(void)unused;
	host_make_folder();
	assert_int_equal(setenv("HOME", host_folder, 1), 0);
	assert_int_equal(setenv("XDG_CACHE_HOME", in_folder("x"), 1), 0);
	return 0;
}

static int take_down(void **unused)
{
	(void)unused;
	own_free(&own);
	return host_remove_folder() ? 0 : -1;
}

static void put_folder(const char *name)
{
	assert_int_equal(mkdir(in_folder(name), 0755), 0);
}

static void put_link(const char *target, const char *name)
{
	assert_int_equal(symlink(target, in_folder(name)), 0);
}

static bool has_path(const char *path)
{
	for (u32 i = 0; i < own.count; i++)
		if (!strcmp(own.path[i], path + 1))
			return true;
	return false;
}

static bool has(const char *name)
{
	return has_path(in_folder(name));
}

static void places_that_do_not_exist_are_among_them(void **unused)
{
	char last[64];

	(void)unused;
	snprintf(last, sizeof(last), "/var/tmp/vpmu-%u", geteuid());
	assert_true(own_find(&own, NULL));
	assert_true(has("x/vpmu"));
	assert_true(has(".cache/vpmu"));
	assert_true(has_path("/var/cache/vpmu"));
	assert_true(has_path(last));
	assert_null(own.path[own.count]);
	own_free(&own);
	assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
	assert_int_equal(unsetenv("HOME"), 0);
	assert_true(own_find(&own, NULL));
	assert_false(has(".cache/vpmu"));
	assert_true(has_path("/var/cache/vpmu"));
}

static void links_on_the_way_and_where_they_lead_are_too(void **unused)
{
	(void)unused;
	put_folder("far");
	put_folder("far/cache");
	put_link("far/cache", ".cache");
	put_link("../../y", "far/cache/vpmu");
	put_link(in_folder("z/../w/."), "x"); /* to what is not there */
	assert_true(own_find(&own, NULL));
	assert_true(has(".cache"));
	assert_true(has("far/cache/vpmu"));
	assert_true(has("y"));
	assert_true(has("x"));
	assert_true(has("w/vpmu"));
}

static void names_that_are_not_absolute_and_links_in_circles_end(void **unused)
{
	(void)unused;
	put_link("b", "a");
	put_link("a", "b");
	put_link("b/c", ".cache");
	assert_int_equal(setenv("XDG_CACHE_HOME", "d//./e", 1), 0);
	assert_int_equal(chdir(host_folder), 0);
	assert_true(own_find(&own, NULL));
	assert_int_equal(chdir("/"), 0);
	assert_true(has("d/e/vpmu"));
	assert_true(has(".cache"));
	assert_true(has("a"));
	assert_true(has("b"));
}

/* As many as Linux follows. */
static void a_trace_is_among_them_wherever_its_name_leads(void **unused)
{
	char link[16], target[16];

	(void)unused;
	put_folder("traces");
	put_link("traces/a", "link0");
	for (u32 i = 1; i < MAX_OWN_LINKS; i++) {
		snprintf(link, sizeof(link), "link%u", i);
		snprintf(target, sizeof(target), "link%u", i - 1);
		put_link(target, link);
	}
	assert_int_equal(chdir(host_folder), 0);
	assert_true(own_find(&own, link));
	assert_int_equal(chdir("/"), 0);
	assert_true(has(link));
	assert_true(has("link0"));
	assert_true(has("traces/a"));
	assert_true(has("x/vpmu"));
	own_free(&own);
	assert_true(own_find(&own, in_folder("traces/../b")));
	assert_true(has("b"));
	assert_false(has("traces/a"));
}

/* --- what the file server makes of them --- */

static int make_folder(u64 parent, const char *name)
{
	const struct fuse_mkdir_in made = { .mode = 0755 };

	return guest_ask(FUSE_MKDIR, parent, &made, sizeof(made), name);
}

static int remove_file(u64 parent, const char *name)
{
	return guest_ask(FUSE_UNLINK, parent, NULL, 0, name);
}

static int make_link(u64 parent, const char *name)
{
	return guest_ask(FUSE_SYMLINK, parent, name, strlen(name) + 1, "elsewhere");
}

static void a_guest_changes_none_of_them(void **unused)
{
	const char *const writable[] = { host_folder + 1 };
	u64 home, handle;

	(void)unused;
	put_folder("x");
	put_folder("x/vpmu");
	put_link("later", ".cache");
	assert_true(own_find(&own, NULL));
	assert_true(guest_start(writable, 1));
	guest_share.own = (const char *const *)own.path;
	home = guest_walk(host_folder);
	assert_int_equal(guest_create(guest_walk(in_folder("x/vpmu")), "f", O_RDWR, 0644, &handle),
			 EROFS);
	assert_int_equal(make_folder(home, "later"), EROFS);
	assert_int_equal(make_link(home, "later"), EROFS);
	assert_int_equal(remove_file(home, ".cache"), EROFS);
	assert_int_equal(make_folder(home, "other"), 0);
	assert_int_equal(make_folder(guest_walk(in_folder("x")), "other"), 0);
	assert_int_equal(make_link(home, "link"), 0);
	assert_int_equal(guest_stop(), 0);
}

static void a_guest_does_not_change_its_trace(void **unused)
{
	const char *const writable[] = { host_folder + 1 };
	struct fuse_link_in link;
	u64 home, trace, handle;

	(void)unused;
	assert_int_equal(close(creat(in_folder("trace"), 0600)), 0);
	assert_true(own_find(&own, in_folder("trace")));
	assert_true(guest_start(writable, 1));
	guest_share.own = (const char *const *)own.path;
	home = guest_walk(host_folder);
	trace = guest_walk(in_folder("trace"));
	assert_int_equal(guest_open(trace, O_WRONLY, &handle), EROFS);
	assert_int_equal(remove_file(home, "trace"), EROFS);
	assert_int_equal(guest_create(home, "evil", O_RDWR, 0644, &handle), 0);
	assert_int_equal(guest_release(guest_walk(in_folder("evil")), handle), 0);
	assert_int_equal(guest_rename(home, "evil", home, "trace", 0), EROFS);
	assert_int_equal(guest_rename(home, "trace", home, "elsewhere", 0), EROFS);
	link.oldnodeid = trace;
	assert_int_equal(guest_ask(FUSE_LINK, home, &link, sizeof(link), "other"), EXDEV);
	assert_int_equal(guest_rename(home, "evil", home, "good", 0), 0);
	assert_int_equal(guest_stop(), 0);
}

#define OWN_TEST(name) cmocka_unit_test_setup_teardown(name, make, take_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		OWN_TEST(places_that_do_not_exist_are_among_them),
		OWN_TEST(links_on_the_way_and_where_they_lead_are_too),
		OWN_TEST(names_that_are_not_absolute_and_links_in_circles_end),
		OWN_TEST(a_trace_is_among_them_wherever_its_name_leads),
		OWN_TEST(a_guest_changes_none_of_them),
		OWN_TEST(a_guest_does_not_change_its_trace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
