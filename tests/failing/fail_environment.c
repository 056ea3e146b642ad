// SPDX-License-Identifier: MIT
/*
 * Linked into a vpmu for tests/failing/exec, whose processes have calls fail as the environment
 * says: VPMU_FAIL_PROCESS, which of them; VPMU_FAIL_CALL, the how many-th call, 0 for none;
 * VPMU_FAIL_REPORT, an inherited descriptor of a file for a struct fail_report, since a process
 * that is confined can open none.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/must.h"
#include "failing/fail.h"

/* The children of `vpmu exec`, in the order in which it starts them. */
static const char *const children[] = { "files", "start" };
static u32 started;

static void begin(const char *process)
{
	const char *wanted = getenv("VPMU_FAIL_PROCESS");

	fail_disarm();
	if (wanted && !strcmp(wanted, process))
		fail_arm(strtoul(getenv("VPMU_FAIL_CALL"), NULL, 10));
}

static void count_child(void)
{
	started++;
}

static void begin_child(void)
{
	begin(started < ARRAY_SIZE(children) ? children[started] : "other");
}

__attribute__((constructor)) static void load(int argc, char **argv)
{
	const char *number = getenv("VPMU_FAIL_REPORT");
	struct fail_report *report;

	if (!number)
		return;
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(number), 0);
	must(report != MAP_FAILED);
	fail_report_to(report);
	pthread_atfork(NULL, count_child, begin_child);
	begin(argc > 1 && !strcmp(argv[1], "kvm") ? "kvm" : "session");
}
