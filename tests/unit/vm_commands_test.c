// SPDX-License-Identifier: MIT
/*
 * vpmu stat and vpmu ps, and the VMs that they ask: what is shown of canned answers, with which
 * exit code, and for how long nothing is waited for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/types.h"
#include "cli/cli.h"
#include "unit/canned_vm.h"

#define LIMIT_SECONDS 9 /* less than one call waits that has no end */
#define VM_WORDS      "vm 1 model icelake pmu mediated accounting guest timing static llc 61440K "
#define VM	      VM_WORDS "llc_life 0 vcpus 1 uptime_ns 1 instructions 1 starved 0"

static bool is_alone; /* in a network of its own, there are no other VMs */
static char said[1 << 18];

static void read_back(int fd)
{
	ssize_t n = pread(fd, said, sizeof(said) - 1, 0);

	assert_true(n >= 0);
	said[n] = '\0';
	close(fd);
}

/* Runs a command in a process of its own: its exit code, and what it says. */
static int run(const struct command *command, char **words)
{
	FILE *out = tmpfile();
	int status, argc = 0, fd;
	pid_t pid;

	assert_non_null(out);
	fd = dup(fileno(out));
	fclose(out);
	while (words[argc])
		argc++;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(LIMIT_SECONDS);
		dup2(fd, 1);
		dup2(fd, 2);
		status = command->run(argc, words);
		fflush(stdout);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	read_back(fd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* vpmu stat of a VM that answers so. */
#define STAT(answers, ...) stat_of(answers, (char *[]){ "stat", __VA_ARGS__, NULL })

static int stat_of(const char *const *answers, char **words)
{
	pid_t vm = canned_start(answers);
	char name[16], *all[16];
	u32 n = 0;
	int status;

	snprintf(name, sizeof(name), "%d", vm);
	for (; words[n]; n++)
		all[n] = words[n];
	all[n] = name;
	all[n + 1] = NULL;
	status = run(&command_stat, all);
	canned_end(vm);
	return status;
}

static void assert_says(const char *text)
{
	if (!strstr(said, text))
		fail_msg("no '%s' in: %s", text, said);
}

/* --- stat --- */

static void what_is_now_is_no_difference(void **state)
{
	static const char *const answers[] = {
		VM,
		"stat exits 10\nstat code_cache_bytes 4096\nstat blocking 1",
		"stat exits 17\nstat code_cache_bytes 1024\nstat blocking 0",
		NULL,
	};

	(void)state;
	assert_int_equal(STAT(answers, "--json", "-I", "100", "--for", "0.05"), 0);
	assert_says("\"stats\": {\"exits\": 7, \"code_cache_bytes\": 1024, \"blocking\": 0}");
}

static void no_row_is_lost_among_many(void **state)
{
	static char look[1 << 17];
	const char *answers[] = { VM, look, NULL };
	int n = 0;

	(void)state;
	for (u32 i = 0; i < 1500; i++)
		n += snprintf(look + n, sizeof(look) - n, "msr %#x other - exits 1 0 passed 0 2\n",
			      0x1000 + i);
	snprintf(look + n, sizeof(look) - n,
		 "rdpmc exits 54321 0 passed 6 0\nmsrs besides exits 3 4 passed 0 0");
	assert_int_equal(STAT(answers, NULL), 0);
	assert_says("    54321         0         6         0\n"); /* RDPMC's */
	assert_says(" 1507 exits, 3000 passed\n");
}

static void what_a_vm_says_is_one_json_string(void **state)
{
	static const char *const answers[] = {
		"vm 1 model x\",\"y pmu \\ accounting a timing t llc l vcpus 1",
		"stat a\":1,\"b 5\nmsr 0x\" other n\\ exits 1 0 passed 0 0",
		NULL,
	};

	(void)state;
	assert_int_equal(STAT(answers, "--json"), 0);
	assert_says("\"model\": \"x\\\",\\\"y\", \"pmu\": \"\\\\\",");
	assert_says("\"llc_life\": 0,");
	assert_says("{\"a\\\":1,\\\"b\": 5}");
	assert_says("{\"name\": \"n\\\\\", \"msr\": \"0x\\\"\",");
}

static void a_watch_that_fails_is_no_success(void **state)
{
	static const char *const gone[] = { VM, "stat exits 10", "stat exits 17", NULL };
	static const char *const refused[] = { VM, "stat exits 10", "error: the reason", NULL };
	static const char *const interrupted[] = { VM, "stat exits 10", CANNED_INTERRUPT, NULL };

	(void)state;
	assert_int_equal(STAT(gone, "--for", "5"), 1);
	assert_says("does not answer: has the VM ended?");
	assert_says(" 7  exits\n");
	assert_int_equal(STAT(refused, "-I", "10"), 1);
	assert_says("vpmu: the reason\n");
	assert_int_equal(STAT(interrupted, "-I", "10"), 0);
}

/* A third look would fail: there is no answer. */
static void the_time_is_kept(void **state)
{
	static const char *const answers[] = { VM, "stat exits 10", "stat exits 17", NULL };

	(void)state;
	assert_int_equal(STAT(answers, "-I", "60000", "--for", "0.2"), 0);
	assert_says(" 7  exits\n");
}

/* --- ps --- */

static void one_that_does_not_answer_is_listed_and_soon(void **state)
{
	static const char *const answers[] = { VM, NULL };
	pid_t vm = canned_start(answers);
	pid_t slow = canned_start_slow(), silent = canned_start_silent();
	char row[3][64], name[16];
	int status;

	(void)state;
	snprintf(row[0], sizeof(row[0]), "%d.1 ", vm);
	prctl(PR_GET_NAME, name);
	snprintf(row[1], sizeof(row[1]), "%-12d %-16s does not answer\n", slow, name);
	snprintf(row[2], sizeof(row[2]), "%-12d %-16s does not answer\n", silent, name);
	status = run(&command_ps, (char *[]){ "ps", NULL });
	canned_end(vm);
	canned_end(slow);
	canned_end(silent);
	assert_int_equal(status, 0);
	for (u32 i = 0; i < ARRAY_SIZE(row); i++)
		assert_says(row[i]);
}

/* The word after -name. */
static const struct {
	char *name, *shown;
} names[] = {
	{ "one", "  one\n" },		{ "guest=one,debug-threads=on", "  one\n" },
	{ "two,process=x", "  two\n" }, { "guest=a,,b", "  a,b\n" },
	{ "guest=a b", "  a\n" },
};

static void a_guest_has_the_name_that_libvirt_gave_it(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(names); i++) {
		pid_t vm = canned_start_program((char *[]){ "vm", "-name", names[i].name, NULL });

		assert_int_equal(run(&command_ps, (char *[]){ "ps", NULL }), 0);
		canned_end(vm);
		assert_says(names[i].shown);
	}
}

/* --- other users --- */

static void names_that_others_took_are_not_counted(void **state)
{
	static const char *const answers[] = { VM, "stat exits 10", NULL };
	pid_t vm, stranger;
	int status;

	(void)state;
	if (!is_alone || getuid()) {
		print_message("skipped: it takes root, and a network of its own\n");
		skip();
	}
	vm = canned_start(answers);
	stranger = canned_start_stranger(getpid());
	status = run(&command_stat, (char *[]){ "stat", NULL });
	canned_end(vm);
	canned_end(stranger);
	assert_says(" 10  exits\n");
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_now_is_no_difference),
		cmocka_unit_test(no_row_is_lost_among_many),
		cmocka_unit_test(what_a_vm_says_is_one_json_string),
		cmocka_unit_test(a_watch_that_fails_is_no_success),
		cmocka_unit_test(the_time_is_kept),
		cmocka_unit_test(one_that_does_not_answer_is_listed_and_soon),
		cmocka_unit_test(a_guest_has_the_name_that_libvirt_gave_it),
		cmocka_unit_test(names_that_others_took_are_not_counted),
	};

	(void)argv;
	if (argc > 1) {
		canned_serve((const char *[]){ VM, NULL });
		return 0;
	}
	is_alone = !unshare(CLONE_NEWNET);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
