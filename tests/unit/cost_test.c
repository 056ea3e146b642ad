// SPDX-License-Identifier: MIT
/*
 * vpmu cost as a script meets it: lists of blocks, assembler text, objects, damaged files. What it
 * says of blocks is pipeline_test.c's, its command line command_test.c's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char output[8192];

/* Runs a script, in which $VPMU is the command; its exit code. What it prints is in `output`. */
static int shell(const char *script)
{
	FILE *f = popen(script, "r");
	size_t n;

	assert_non_null(f);
	n = fread(output, 1, sizeof(output) - 1, f);
	output[n] = '\0';
	return WEXITSTATUS(pclose(f));
}

#define LIST "printf 'hex,from\\n4801d8,a\\nxyz,b\\n0fa2,c\\n48\\n\\n480fafc3\\n' | "

static void a_list_is_answered_line_by_line(void **state)
{
	(void)state;
	assert_int_equal(shell(LIST "$VPMU cost --csv - 2>/dev/null"), 1);
	assert_string_equal(output, "hex,cycles\n4801d8,1.000\n480fafc3,3.000\n");
	assert_int_equal(shell("printf '4801d8\\n480fafc3\\n' | $VPMU cost --csv -"), 0);
	assert_string_equal(output, "4801d8,1.000\n480fafc3,3.000\n");
}

static void lines_without_an_answer_are_named(void **state)
{
	(void)state;
	assert_int_equal(shell(LIST "$VPMU cost --csv - 2>&1 >/dev/null"), 1);
	assert_string_equal(
		output, "vpmu cost: standard input:3: the first column is not a block in "
			"hexadecimal digits\n"
			"vpmu cost: standard input:4: unsupported instruction 'cpuid' at byte 0\n"
			"vpmu cost: standard input:5: truncated instruction '48' at byte 0\n");
	assert_int_equal(shell("printf '4801d8%.0s' $(seq 300) | $VPMU cost --csv - 2>&1"), 1);
	assert_non_null(strstr(output, "more than 256 instructions"));
}

static void an_answer_that_cannot_be_written_is_a_failure(void **state)
{
	(void)state;
	assert_int_equal(shell("$VPMU cost 480fafc3 2>&1 >/dev/full"), 1);
	assert_string_equal(output, "vpmu: cannot write: No space left on device\n");
	assert_int_equal(shell("echo 480fafc3 | $VPMU cost --csv - 2>&1 >/dev/full"), 1);
	assert_string_equal(output, "vpmu: cannot write: No space left on device\n");
}

static void the_same_list_gives_the_same_answer(void **state)
{
	(void)state;
	assert_int_equal(shell("once=$($VPMU cost --csv tests/blocks/icelake.csv) && "
			       "test \"$once\" && "
			       "test \"$once\" = \"$($VPMU cost --csv tests/blocks/icelake.csv)\""),
			 0);
}

#define LOOP "printf 'f: imul %%rbx, %%rax\\ndec %%rcx\\njnz f\\n' | "

static void assembler_text_is_assembled(void **state)
{
	(void)state;
	assert_int_equal(shell(LOOP "$VPMU cost -"), 0);
	assert_non_null(strstr(output, "3 instructions, a loop"));
	assert_non_null(strstr(output, "cycles per iteration: 3.00"));
	assert_non_null(strstr(output, "2.00 issue slots"));
	assert_int_equal(shell("echo frob | $VPMU cost - 2>&1"), 1);
	assert_non_null(strstr(output, "as(1) refused it"));
	assert_int_equal(shell(LOOP "PATH=/nowhere $VPMU cost - 2>&1"), 1);
	assert_non_null(strstr(output, "as(1) is not installed"));
}

static void objects_are_read(void **state)
{
	(void)state;
	assert_int_equal(shell("f=$(mktemp) && " LOOP
			       "as -o $f - && $VPMU cost $f && $VPMU cost --symbol f $f "
			       "&& $VPMU cost --range 0-4 $f; e=$?; rm -f $f; exit $e"),
			 0);
	assert_non_null(strstr(output, "3 instructions, a loop"));
	assert_non_null(strstr(output, "1 instructions, repeated"));
}

/* A file that breaks off anywhere, or has any one byte wrong, is refused or answered, and never a
 * crash. */
static void damaged_objects_do_no_harm(void **state)
{
	(void)state;
	assert_int_equal(
		shell("f=$(mktemp) && trap 'rm -f $f $f.cut $f.err' EXIT && " LOOP
		      "as -o $f - && for n in $(seq 1 37 $(stat -c %s $f)); do "
		      "head -c $n $f >$f.cut || exit 8; "
		      "$VPMU cost $f.cut >/dev/null 2>>$f.err; [ $? -le 1 ] || exit 9; "
		      "cp $f $f.cut && printf '\\377' | "
		      "dd of=$f.cut bs=1 seek=$n conv=notrunc 2>/dev/null || exit 8; "
		      "$VPMU cost --symbol f $f.cut >/dev/null 2>>$f.err; [ $? -le 1 ] || exit 9; "
		      "done && ! grep -E 'Sanitizer|runtime error' $f.err"),
		0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_is_answered_line_by_line),
		cmocka_unit_test(lines_without_an_answer_are_named),
		cmocka_unit_test(an_answer_that_cannot_be_written_is_a_failure),
		cmocka_unit_test(the_same_list_gives_the_same_answer),
		cmocka_unit_test(assembler_text_is_assembled),
		cmocka_unit_test(objects_are_read),
		cmocka_unit_test(damaged_objects_do_no_harm),
	};
	char path[512] = "";

	if (readlink("/proc/self/exe", path, sizeof(path) - 32) < 0)
		return 1;
	strcpy(strrchr(path, '/') + 1, "../../vpmu");
	setenv("VPMU", path, 1);
	unsetenv("VPMU_CPU");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
