/* SPDX-License-Identifier: MIT */
/*
 * A client of this process's own control socket (docs/control.md). What cannot be said or heard
 * fails the test.
 */
#ifndef GUEST_CONTROL_CLIENT_H
#define GUEST_CONTROL_CLIENT_H

#include <stddef.h>

int control_dial(void);
void control_connect(int fd);
void control_say(int fd, const char *text);
/* An answer, up to its dot; the first line is left in `out`. */
void control_hear(int fd, char *out, size_t size);
/* Says a line; the answer must begin like this. */
void control_ask(int fd, const char *line, const char *expected);

#endif
