// SPDX-License-Identifier: MIT
/*
 * What a guest writes to its console is forgotten but for its end (exec/console.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/exec.h"

/* As a guest that writes 64 MB, each megabyte of a letter of its own. */
static void a_console_that_is_written_without_end_stays_small(void **state)
{
	static char bytes[1 << 20];
	struct exec_machine machine = { 0 };
	char last[4096];
	struct stat st;
	int fd;

	(void)state;
	assert_true(console_open(false, &fd, &machine.console));
	for (u32 i = 0; i < 64; i++) {
		memset(bytes, 'A' + i % 26, sizeof(bytes));
		assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
		console_trim(&machine);
		assert_int_equal(fstat(machine.console, &st), 0);
		assert_in_range(st.st_blocks * 512, sizeof(last), 2 << 20);
		assert_int_equal(
			pread(machine.console, last, sizeof(last), st.st_size - sizeof(last)),
			sizeof(last));
		assert_memory_equal(last, bytes, sizeof(last));
	}
	close(fd);
	close(machine.console);
}

static void a_short_text_is_kept_as_a_whole(void **state)
{
	struct exec_machine machine = { 0 };
	char text[8];
	int fd;

	(void)state;
	assert_true(console_open(false, &fd, &machine.console));
	assert_int_equal(write(fd, "a panic", 8), 8);
	console_trim(&machine);
	assert_int_equal(pread(machine.console, text, sizeof(text), 0), sizeof(text));
	assert_string_equal(text, "a panic");
	close(fd);
	close(machine.console);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_console_that_is_written_without_end_stays_small),
		cmocka_unit_test(a_short_text_is_kept_as_a_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
