/* SPDX-License-Identifier: MIT */
/*
 * What the processes of `vpmu exec` that a guest talks to give up before they hear from it, so that
 * a guest that takes one of them over has gained little. All of it is for good, and inherited.
 */
#ifndef EXEC_SANDBOX_H
#define EXEC_SANDBOX_H

#include "base/types.h"

/* Confines the calling process, which has one thread, to serving files: no new privileges; of
 * root's capabilities those that reach files of all users; with Landlock, where the kernel has it,
 * files can be read everywhere and written below the folders named (without a leading slash, "" for
 * everything); with seccomp, the system calls of a file server, and of those that change files only
 * if there is such a folder. Any other call ends the process with a message. Returns 0 or an errno;
 * the process must not serve then. */
int sandbox_serve_files(const char *const *writable, u32 count);

/* For a program that is about to be executed: no new privileges; of root's capabilities the one to
 * read files of all users; with Landlock, files can be read and executed, and none be opened for
 * writing but those that have no name. Returns 0 or an errno. */
int sandbox_read_only(void);

/* The version of Landlock's ABI that the two above use, or 0: not in this kernel. */
int sandbox_landlock(void);

#endif
