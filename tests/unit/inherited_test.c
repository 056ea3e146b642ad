// SPDX-License-Identifier: MIT
/*
 * Descriptors that the environment names: base/inherited.h.
 */
#include "base/inherited.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/memfile.h"

#define VARIABLE "VPMU_TEST_FILES"

static int make_file(void)
{
	int fd = memfile_create("inherited", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void names_lead_to_their_files(void **state)
{
	int files[] = { make_file(), -1, make_file() }, found[3];

	(void)state;
	assert_true(inherited_export(VARIABLE, files, 3));
	assert_true(inherited_take(VARIABLE, found, 3));
	assert_memory_equal(found, files, sizeof(files));
	assert_false(inherited_take(VARIABLE, found, 2)); /* all that there are, or none */
	close(files[0]);
	close(files[2]);
	unsetenv(VARIABLE);
	assert_false(inherited_take(VARIABLE, found, 1));
}

static void a_number_that_became_another_file_is_not_taken(void **state)
{
	int file = make_file(), other = make_file(), found;

	(void)state;
	assert_true(inherited_export(VARIABLE, &file, 1));
	assert_int_equal(dup2(other, file), file);
	assert_false(inherited_take(VARIABLE, &found, 1));
	close(file);
	assert_false(inherited_take(VARIABLE, &found, 1));
	assert_false(inherited_export(VARIABLE, &file, 1));
	assert_null(getenv(VARIABLE));
	close(other);
}

static void refuse(const char *before, const char *name, const char *after)
{
	char text[256];
	int found;

	snprintf(text, sizeof(text), "%s%s%s", before, name, after);
	assert_int_equal(setenv(VARIABLE, text, 1), 0);
	if (inherited_take(VARIABLE, &found, 1))
		fail_msg("'%s' is taken", text);
}

static void other_forms_are_not_taken(void **state)
{
	static const char *const before[] = { " ", "+", "-", "0", "x", ",", "-," };
	static const char *const after[] = { " ", "0", ":", ",", ",-", "\n" };
	char name[64], number[16];
	int file = make_file();

	(void)state;
	assert_true(inherited_export(VARIABLE, &file, 1));
	snprintf(name, sizeof(name), "%s", getenv(VARIABLE));
	snprintf(number, sizeof(number), "%d", file);
	for (u32 i = 0; i < ARRAY_SIZE(before); i++)
		refuse(before[i], name, "");
	for (u32 i = 0; i < ARRAY_SIZE(after); i++)
		refuse("", name, after[i]);
	refuse("", number, ""); /* a number alone */
	refuse("-1", "", "");
	refuse("", "", "");
	close(file);
	unsetenv(VARIABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_lead_to_their_files),
		cmocka_unit_test(a_number_that_became_another_file_is_not_taken),
		cmocka_unit_test(other_forms_are_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
