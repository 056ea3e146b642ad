/* SPDX-License-Identifier: MIT */
/*
 * A session: one command of the guest, its standard files and its terminal.
 */
#ifndef EXEC_GUEST_SESSION_H
#define EXEC_GUEST_SESSION_H

#include <sys/types.h>

#include "exec/guest/guest.h"

#define OWN_FILES 4 /* standard files, and one for counts: wire.h, struct start */

struct session {
	bool in_use;
	u32 id;
	struct wire *wire;
	struct order order;
	pid_t command;
	bool ended;
	u32 status;
	int terminal;		 /* the master's descriptor, or -1 */
	int own[OWN_FILES];	 /* the command's ends, closed here once it runs */
	struct sink input;	 /* STREAM_IN or STREAM_TERMINAL */
	struct source output[3]; /* STREAM_OUT, STREAM_ERR, STREAM_TERMINAL */
	u32 left[3];		 /* bytes of these pipes to send after the command's end */
};

/* Takes the order over and starts its command; what cannot be done the host is told, and the
 * session is free again. */
void session_begin(struct session *session, struct wire *wire, u32 id, struct order *order);
void session_obey(struct session *session, const struct frame *frame, const u8 *body);

#define SESSION_FILES 4
/* What to wait for, and what to do when that has come. */
void session_wait(const struct session *session, struct pollfd wait[SESSION_FILES]);
void session_pump(struct session *session, const struct pollfd wait[SESSION_FILES]);

/* The command has ended, with this status of wait(2). */
void session_command_ended(struct session *session, u32 status);
/* The command has ended and everything that it wrote has been sent. */
bool session_is_over(const struct session *session);
/* Tells the host how the command ended; the session is free. */
void session_end(struct session *session);

#endif
