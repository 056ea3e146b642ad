/* SPDX-License-Identifier: MIT */
/*
 * A client of this process's own control socket (docs/control.md). What cannot be said or heard
 * fails the test.
 */
#ifndef GUEST_CONTROL_CLIENT_H
#define GUEST_CONTROL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

int control_dial(void);
void control_connect(int fd);
void control_say(int fd, const char *text);
/* An answer, up to its dot; the first line is left in `out`. How many lines there were, without the
 * dot, which is the first line of an answer that has none. */
unsigned control_hear(int fd, char *out, size_t size);
/* Says a line; the answer must begin like this. */
void control_ask(int fd, const char *line, const char *expected);
/* Says a line; a line of the answer must be this. */
void control_find(int fd, const char *line, const char *expected);
/* Connects to the socket of another process; fails no test. */
bool control_reaches(int fd, uid_t user, pid_t process);
/* The connection is ended by the other side; waits for that. */
bool control_hung_up(int fd);
/* What an event of the host has counted. */
unsigned long long control_event(int fd, unsigned id);

#endif
