// SPDX-License-Identifier: MIT
/*
 * What QEMU and the guest's kernel say: a file in memory that is appended to. Its end is shown when
 * the guest fails. A guest can write without end, and may stay for months, so only the end is kept:
 * the pages before it are given back, and offsets in the file stay what they were.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memfile.h"
#include "exec/exec.h"

#define KEPT  (64u << 10)
#define MOST  (1u << 20) /* more than this is cut to KEPT */
#define SHOWN 4096

/* Until all that have the other end are gone. */
static void copy_to_stderr(int from)
{
	char text[4096];
	ssize_t n, written;

	setsid(); /* the keyboard's signals are not for it */
	dup2(from, 0);
	dup2(2, 1);
	close_range(3, ~0u, 0);
	while ((n = read(0, text, sizeof(text))) > 0)
		for (ssize_t done = 0; done < n; done += written) {
			written = write(2, text + done, n - done);
			if (written < 0)
				_exit(1);
		}
	_exit(0);
}

/* A process that copies to stderr: the descriptor to write to. It is a child of a child, so that
 * nobody has to wait for it. -1: errno. */
static int start_copying(void)
{
	int ends[2], status;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid) {
		pid = fork();
		if (!pid)
			copy_to_stderr(ends[0]);
		_exit(pid < 0);
	}
	close(ends[0]);
	if (pid > 0 && waitpid(pid, &status, 0) == pid && !status)
		return ends[1];
	close(ends[1]);
	errno = EAGAIN; /* as fork() */
	return -1;
}

/* QEMU takes a descriptor for writing only, and may make it non-blocking: stderr is not only ours,
 * so it is opened once more. A socket cannot be, nor another user's terminal. */
bool console_open(bool verbose, int *console, int *kept)
{
	char name[64];

	*kept = memfile_create("console", MFD_CLOEXEC);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", verbose ? 2 : *kept);
	*console = *kept < 0 ? -1 : open(name, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (verbose && *kept >= 0 && *console < 0)
		*console = start_copying();
	return *console >= 0;
}

void console_trim(struct exec_machine *machine)
{
	off_t end = lseek(machine->console, 0, SEEK_END);

	if (end - machine->console_cut <= (off_t)MOST)
		return;
	machine->console_cut = end - KEPT;
	fallocate(machine->console, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		  machine->console_cut);
}

void console_explain(const struct exec_machine *machine)
{
	char text[SHOWN];
	off_t end = lseek(machine->console, 0, SEEK_END), from = end > SHOWN ? end - SHOWN : 0;
	ssize_t n = pread(machine->console, text, sizeof(text), from);

	if (n > 0)
		fwrite(text, 1, n, stderr);
}
