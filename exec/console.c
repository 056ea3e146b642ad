// SPDX-License-Identifier: MIT
/*
 * What QEMU and the guest's kernel say: a file in memory that is appended to. Its end is shown when
 * the guest fails. A guest can write without end, and may stay for months, so only the end is kept:
 * the pages before it are given back, and offsets in the file stay what they were.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memfile.h"
#include "exec/exec.h"

#define KEPT  (64u << 10)
#define MOST  (1u << 20) /* more than this is cut to KEPT */
#define SHOWN 4096

/* QEMU takes a descriptor for writing only, and may make it non-blocking: stderr is not only ours,
 * so it is opened once more. */
bool console_open(bool verbose, int *console, int *kept)
{
	char name[64];

	*kept = memfile_create("console", MFD_CLOEXEC);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", verbose ? 2 : *kept);
	*console = *kept < 0 ? -1 : open(name, O_WRONLY | O_APPEND | O_CLOEXEC);
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
