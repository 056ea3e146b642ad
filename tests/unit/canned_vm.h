/* SPDX-License-Identifier: MIT */
/*
 * VMs that say what a test wants, at the control sockets of processes that run no guest.
 */
#ifndef TESTS_UNIT_CANNED_VM_H
#define TESTS_UNIT_CANNED_VM_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* The name of a process's control socket, and its size. */
socklen_t canned_name(int pid, struct sockaddr_un *address);
/* Takes that name and listens. */
int canned_listen(int pid);

/* For an answer: the client gets SIGINT, and nothing is said. */
#define CANNED_INTERRUPT "interrupt"

/* A process that serves a client: the answer to each request, and NULL, where it hangs up. */
pid_t canned_start(const char *const *answers);
/* One that sends a byte ten times a second and no line, or nothing at all. */
pid_t canned_start_slow(void);
pid_t canned_start_silent(void);
/* Another user's, with the name of a process of ours. For root only. */
pid_t canned_start_stranger(int pid);
/* This program again, with these words, for which main() calls canned_serve(). */
pid_t canned_start_program(char **words);
void canned_serve(const char *const *answers);
void canned_end(pid_t pid);

#endif
