/* SPDX-License-Identifier: MIT */
/*
 * Between the files of the control socket's commands: one request on its way.
 */
#ifndef VM_CONTROL_PRIV_H
#define VM_CONTROL_PRIV_H

#include <stddef.h>

#include "vm/vm.h"

#define CONTROL_WORDS 320 /* a filter has 300 events */

struct control_request {
	struct vm *vm;
	u32 session;
	u32 nwords; /* after the command's name */
	char *word[CONTROL_WORDS];
	char *out;
	size_t size, used;
};

/* A line of the answer; one that does not fit is left out. */
__attribute__((format(printf, 2, 3))) void control_say(struct control_request *c, const char *fmt,
						       ...);

/* control.c. False: the word is no number. */
bool control_number(const char *word, u64 *value);

/* report.c: the commands that only look. */
void control_list(struct control_request *c);
void control_stat(struct control_request *c);
void control_sample(struct control_request *c);

/* peek_command.c: what the guest's kernel knows. */
void control_registers(struct control_request *c);
void control_peek(struct control_request *c);

#endif
