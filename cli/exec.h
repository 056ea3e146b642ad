/* SPDX-License-Identifier: MIT */
/*
 * The parts of `vpmu exec`: from options to a machine, and a session with the command in it.
 */
#ifndef CLI_EXEC_H
#define CLI_EXEC_H

#include <limits.h>
#include <sys/types.h>

#include "cli.h"
#include "base/types.h"

#define MAX_SHARED 16

struct exec_options {
	const char *cpu, *machine, *kernel;
	u32 cpus, memory; /* memory in MiB */
	u32 timeout;	  /* in seconds, 0: none */
	bool network, verbose, dry_run;
	char *shared[MAX_SHARED]; /* folders to write, resolved */
	u32 shared_count;
	char **command;
};

/* exec_kernel.c: where a kernel and its modules are. Fetches it, if it is one of Debian's that was
 * not used before. An exit code; it has said what went wrong. */
struct exec_kernel {
	char image[PATH_MAX];
	char modules[PATH_MAX]; /* folder of the modules to load, may not exist */
};
int kernel_find(const char *wanted, struct exec_kernel *kernel);

/* exec_initramfs.c: a descriptor of the guest's first file system, or -1. */
int initramfs_make(const char *init, const char *modules, bool network);

/* exec_machine.c: QEMU and the server of the host's files. */
struct exec_machine {
	pid_t qemu, share;
	int link;    /* to the guest's first process */
	int console; /* what QEMU and the guest's kernel have said */
};
int machine_start(const struct exec_options *options, struct exec_machine *machine);
void machine_stop(struct exec_machine *machine);
/* What QEMU and the guest said, to stderr. */
void machine_explain(const struct exec_machine *machine);

/* exec_session.c: hands the command over and carries its bytes; returns the exit code. */
int session_run(const struct exec_options *options, struct exec_machine *machine);

#endif
