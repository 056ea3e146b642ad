// SPDX-License-Identifier: MIT
/*
 * The program that does the work: on the host, where it is told on its command line what to
 * measure, and as the first process of a guest, where it reads the same words from the console,
 * line by line, until the machine is switched off.
 *
 *   list                       prints name, group and CPUs of each workload
 *   run NAME STATE MILLISECONDS
 *   count NAME UNITS ROUNDS    prints the cycles of units of work: count.c
 *   clock                      prints the cycles of a nanosecond
 *   now                        prints the clock that times are taken from
 *
 * says "work: begun" when the time begins and answers "work: NAME STATE UNITS NANOSECONDS WAITED CHECKSUM …" or "work: NAME STATE failed …".
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "bench/work/cycles.h"
#include "bench/work/work.h"

#define LINE_MAX_ 256

#define WORK_SETUP(setup)
#define WORK(name, group, kind, setup, unit) { #name, #group, kind, setup, unit },
const struct workload workloads[] = {
#include "bench/work/work.def"
};
#undef WORK

const unsigned workload_count = sizeof(workloads) / sizeof(*workloads);

void die(const char *what)
{
	perror(what);
	_exit(1);
}

static const struct workload *find(const char *name)
{
	for (unsigned i = 0; i < workload_count; i++)
		if (!strcmp(workloads[i].name, name))
			return &workloads[i];
	return NULL;
}

static int list(void)
{
	for (unsigned i = 0; i < workload_count; i++)
		printf("%s %s %d\n", workloads[i].name, workloads[i].group,
		       workloads[i].kind == ON_TWO_CPUS ? 2 : 1);
	return 0;
}

static int run(const char *name, const char *state, const char *milliseconds)
{
	const struct workload *w = find(name);
	struct outcome outcome = { 0 };
	char details[LINE_MAX_] = " no such workload";

	if (!w || measure(w, state, (unsigned)atoi(milliseconds), &outcome, details, sizeof(details))) {
		printf("work: %s %s failed%s\n", name, state, details);
		return 1;
	}
	printf("work: %s %s %llu %llu %llu %016llx%s\n", name, state,
	       (unsigned long long)outcome.units, (unsigned long long)outcome.nanoseconds,
	       (unsigned long long)outcome.waited, (unsigned long long)outcome.checksum, details);
	return 0;
}

static int obey(int words, char *word[])
{
	if (words == 1 && !strcmp(word[0], "list"))
		return list();
	if (words == 1 && !strcmp(word[0], "now"))
		return printf("work: now %llu\n", (unsigned long long)nanoseconds()) < 0;
	if (words == 4 && !strcmp(word[0], "run"))
		return run(word[1], word[2], word[3]);
	if (words == 1 && !strcmp(word[0], "clock"))
		return printf("work: clock %.4f\n", cycles_clock()) < 0;
	if (words == 4 && !strcmp(word[0], "count") && find(word[1]))
		return count(find(word[1]), (unsigned)atoi(word[2]), (unsigned)atoi(word[3])), 0;
	fprintf(stderr, "usage: work list | clock | now | count NAME UNITS ROUNDS | run NAME STATE MILLISECONDS\n");
	return 2;
}

/* --- in a guest --- */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return; /* a kernel without it needs no such word */
	if (write(fd, text, strlen(text)) < 0)
		perror(path);
	close(fd);
}

static void prepare_guest(void)
{
	static const char *const folders[][2] = { { "devtmpfs", "/dev" },
						  { "proc", "/proc" },
						  { "tmpfs", "/tmp" } };
	struct termios raw;

	for (unsigned i = 0; i < 3; i++) {
		mkdir(folders[i][1], 0755);
		mount(folders[i][0], folders[i][1], folders[i][0], 0, NULL);
	}
	/* Samples take longer than the kernel expects: it must not throttle them. */
	write_file("/proc/sys/kernel/perf_cpu_time_max_percent", "0");
	if (!tcgetattr(STDIN_FILENO, &raw)) {
		raw.c_lflag &= ~(tcflag_t)ECHO;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
}

static void serve(void)
{
	char line[LINE_MAX_], *word[5];

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("work: ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		int words = 0;

		for (char *p = strtok(line, " \n"); p && words < 5; p = strtok(NULL, " \n"))
			word[words++] = p;
		obey(words, word);
	}
	reboot(RB_AUTOBOOT); /* no one listens now; QEMU's -no-reboot makes this the end */
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "nothing")) /* the fork workload's other half */
		return 7;
	if (getpid() == 1) {
		prepare_guest();
		serve();
	}
	if (getenv("COMPILE_FOLDER"))
		compile_folder = getenv("COMPILE_FOLDER");
	return obey(argc - 1, argv + 1);
}
