// SPDX-License-Identifier: MIT
/*
 * The processes of a machine, from outside of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/exec.h"

static pid_t start(void)
{
	pid_t pid = fork();

	if (!pid)
		for (;;)
			pause();
	assert_true(pid > 0);
	return pid;
}

/* Another process may have the number by the time of a second stop. */
static void a_machine_that_was_stopped_names_no_process(void **unused)
{
	struct exec_machine machine = { .qemu = start(), .share = start() };

	(void)unused;
	machine_stop(&machine);
	assert_int_equal(waitpid(-1, NULL, 0), -1);
	assert_int_equal(errno, ECHILD);
	assert_int_equal(machine.qemu, -1);
	assert_int_equal(machine.share, -1);
	machine_stop(&machine);
}

/* The memory of a machine that is to be saved is still needed: it names none. */
static void a_machine_gives_its_memory_back(void **unused)
{
	struct exec_machine machine = { .qemu = -1, .share = -1 };
	int ram = memfd_create("ram", 0);
	struct stat st;

	(void)unused;
	assert_int_equal(ftruncate(ram, 2 * PAGE_SIZE), 0);
	assert_int_equal(pwrite(ram, "x", 1, PAGE_SIZE), 1);
	machine_stop(&machine);
	assert_int_equal(fstat(ram, &st), 0);
	assert_int_not_equal(st.st_blocks, 0);
	machine.ram = dup(ram);
	machine_stop(&machine);
	assert_int_equal(fstat(ram, &st), 0);
	assert_int_equal(st.st_blocks, 0);
	assert_int_equal(machine.ram, 0);
	machine_stop(&machine);
	close(ram);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_machine_that_was_stopped_names_no_process),
		cmocka_unit_test(a_machine_gives_its_memory_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
