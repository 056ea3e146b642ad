// SPDX-License-Identifier: MIT
/*
 * The thread that maps memory for blocks (engine/runtime/code_cache_memory.c): it serves a
 * processor that makes much code, and ends with it; code that stays works as before when it has
 * huge pages under it.
 */
#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "guest/machine.h"

#define BLOCKS	 32768u
#define DISTANCE 8 /* bytes from one to the next */
#define SECONDS	 20

/* JMP +6; six bytes that are never executed. */
static const u8 jump[DISTANCE] = { 0xeb, DISTANCE - 2 };
/* OUT %al, $0xf4 */
static const u8 done[] = { 0xe6, 0xf4 };

static u8 code[BLOCKS * DISTANCE + sizeof(done)];

static void load(struct machine *m, u32 blocks)
{
	for (u32 i = 0; i < blocks; i++)
		memcpy(code + i * DISTANCE, jump, DISTANCE);
	memcpy(code + blocks * DISTANCE, done, sizeof(done));
	machine_load(m, code, blocks * DISTANCE + sizeof(done));
}

static void run(struct machine *m, u32 blocks)
{
	assert_int_equal(machine_run(m, 2 * BLOCKS), EXIT_IO);
	assert_int_equal(machine_retired(m), blocks); /* OUT has not retired */
}

static u32 threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	u32 n = 0;

	assert_non_null(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

static void the_thread_ends_with_its_processor(void **state)
{
	u32 before = threads();
	struct machine m;

	(void)state;
	machine_create(&m);
	assert_int_equal(threads(), before + 1);
	load(&m, BLOCKS);
	run(&m, BLOCKS);
	assert_int_equal(threads(), before + 1);
	machine_destroy(&m);
	assert_int_equal(threads(), before);
}

/* It has the memory, but not the thread: to wait for that would last for ever. */
static void a_child_of_fork_frees_the_memory(void **state)
{
	struct machine m;
	int status;
	pid_t child;

	(void)state;
	machine_create(&m);
	load(&m, BLOCKS);
	run(&m, BLOCKS);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		alarm(SECONDS);
		machine_destroy(&m);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	machine_destroy(&m);
}

/* Bytes of files in memory that this process has mapped by huge pages. */
static u64 huge(void)
{
	FILE *maps = fopen("/proc/self/smaps_rollup", "r");
	unsigned long long kbytes = 0;
	char line[128];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "ShmemPmdMapped: %llu", &kbytes) == 1)
			break;
	if (maps)
		fclose(maps);
	return kbytes << 10;
}

static void code_on_huge_pages_runs(void **state)
{
	struct machine m;

	(void)state;
	machine_create(&m);
	load(&m, BLOCKS);
	run(&m, BLOCKS);
	for (u32 i = 0; i < 50 && !huge(); i++)
		poll(NULL, 0, 100);
	if (!huge())
		print_message("this host gives no huge pages to files in memory\n");
	machine_start(&m);
	run(&m, BLOCKS);
	machine_destroy(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_thread_ends_with_its_processor),
		cmocka_unit_test(a_child_of_fork_frees_the_memory),
		cmocka_unit_test(code_on_huge_pages_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
