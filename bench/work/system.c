// SPDX-License-Identifier: MIT
/*
 * What the kernel does for programs: system calls that return at once, fork and exec of a small
 * program, page faults, and a byte that goes back and forth between two processes through pipes.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/work/work.h"

#define CALLS	20000
#define FORKS	4
#define PAGES	1024
#define PAGE	4096
#define BOUNCES 500

uint64_t syscall_unit(void)
{
	uint64_t parent = (uint64_t)getppid(), same = 0;

	for (int i = 0; i < CALLS; i++)
		same += (uint64_t)syscall(SYS_getppid) == parent;
	return same;
}

uint64_t fork_unit(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		int status;

		if (pid < 0)
			die("fork");
		if (pid == 0) {
			execl("/proc/self/exe", "work", "nothing", (char *)NULL);
			_exit(127);
		}
		if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
			die("waitpid");
		sum = sum * 3 + (uint64_t)WEXITSTATUS(status);
	}
	return sum;
}

uint64_t fault_unit(void)
{
	uint64_t sum = 0;
	char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	if (pages == MAP_FAILED)
		die("mmap");
	madvise(pages, PAGES * PAGE, MADV_NOHUGEPAGE);
	for (int i = 0; i < PAGES; i++)
		pages[i * PAGE + i] = (char)i;
	for (int i = 0; i < PAGES; i++)
		sum = sum * 31 + (unsigned char)pages[i * PAGE + i] + (unsigned char)pages[i * PAGE + PAGE - 1];
	munmap(pages, PAGES * PAGE);
	return sum;
}

/* --- pipes --- */

static int to_echo, from_echo;

static void use_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

/* The other process: sends every byte back, changed. Ends with the pipe. */
static void echo(int in, int out, int cpu)
{
	unsigned char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	use_cpu(cpu);
	while (read(in, &byte, 1) == 1) {
		byte = (unsigned char)(byte * 5 + 1);
		if (write(out, &byte, 1) != 1)
			break;
	}
	_exit(0);
}

static void start_echo(int our_cpu, int its_cpu)
{
	int there[2], back[2];
	pid_t pid;

	if (pipe(there) || pipe(back) || (pid = fork()) < 0)
		die("pipe");
	if (pid == 0) {
		close(there[1]);
		echo(there[0], back[1], its_cpu);
	}
	close(there[0]);
	close(back[1]);
	to_echo = there[1];
	from_echo = back[0];
	use_cpu(our_cpu);
}

void pipe_setup(void)
{
	int cpu = sched_getcpu();

	start_echo(cpu, cpu);
}

void pipe2_setup(void)
{
	start_echo(0, 1);
}

uint64_t pipe_unit(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < BOUNCES; i++) {
		unsigned char byte = (unsigned char)i;

		if (write(to_echo, &byte, 1) != 1 || read(from_echo, &byte, 1) != 1)
			die("pipe");
		sum = sum * 31 + byte;
	}
	return sum;
}
