/* SPDX-License-Identifier: MIT */
/*
 * What `vpmu exec` and the first process of its guest say to each other over a virtio serial port:
 * frames with a header. Streams of bytes (the command's standard files and its terminal) have
 * a window each, so that one that is not read holds up no other, and never the messages beside
 * them. Both sides link this file; both are single-threaded and poll.
 *
 * A guest can run several commands at once, a session each. The first order sets the guest up; one
 * without arguments does nothing else, and the guest is ready again. Between a guest that stays and
 * the commands that want something run in it is a process of the host (exec/stay_server.c), which
 * has their frames on sockets of their own, as those of session 0.
 */
#ifndef EXEC_WIRE_H
#define EXEC_WIRE_H

#include <poll.h>

#include "base/types.h"

enum frame_type {
	/* to the guest */
	FRAME_START = 1, /* struct start and its strings */
	FRAME_RESIZE,	 /* struct size */
	FRAME_SIGNAL,	 /* u32: to the command's process group */
	/* from the guest */
	FRAME_READY,   /* waits for FRAME_START */
	FRAME_STARTED, /* the command runs */
	FRAME_FAILED,  /* struct failed: the command could not be started */
	FRAME_EXIT,    /* u32: status as wait(2) gives it; nothing follows of this session */
	/* both ways */
	FRAME_DATA,   /* of a stream */
	FRAME_END,    /* of a stream: no more will be sent */
	FRAME_CLOSED, /* of a stream: no more is wanted */
	FRAME_CREDIT, /* u32: so many bytes of a stream were taken */
	/* of guests that stay: to the guest, and to the process of the host that has it */
	FRAME_ABANDON, /* no client waits for the command any longer: kill it */
	FRAME_DOWN,    /* end the guest */
};

enum stream { STREAM_IN, STREAM_OUT, STREAM_ERR, STREAM_TERMINAL, STREAMS };

#define SESSIONS 16 /* commands that run at once in a guest */

struct frame {
	u16 type, stream; /* stream: plus STREAMS times the session */
	u32 size;	  /* of what follows */
};

struct size {
	u16 rows, columns;
};

#define WIRE_VERSION 4
#define SEED_SIZE    32

/* The last that needs no bigger table in Linux. Files that the command opens have the numbers that
 * they would have without it. */
#define COUNTS_FD      63
#define COUNTS_FD_NAME "63"

/* Followed by NUL-terminated strings: the host's name, the working directory, arguments,
 * environment, folders shared for writing; before them the supplementary groups. */
struct start {
	u32 version;
	u32 uid, gid, umask;
	u32 terminals; /* bit n: standard file n is the terminal */
	u8 modes[36];  /* of the terminal, as TCGETS gives them */
	struct size size;
	u32 network; /* configure it */
	u32 resumed; /* devices have come since the machine was saved */
	u32 counts;  /* COUNTS_FD of the command is a pipe, STREAM_TERMINAL: there is no terminal */
	u64 stack_limit;
	u64 seconds, nanoseconds; /* the time of day */
	u8 seed[SEED_SIZE];	  /* for the guest's random numbers */
	u32 groups, arguments, variables, folders;
};

enum failed_step { FAILED_EXEC, FAILED_FOLDER, FAILED_SET_UP };

struct failed {
	u32 step, error; /* enum failed_step, errno; a string may follow: what failed */
};

#define WIRE_WINDOW    (256u << 10) /* bytes of a stream on their way */
#define WIRE_MAX_FRAME (8u << 20)   /* Linux allows arguments and environment of 6 MB */
/*
 * Bytes that wait to be sent: an order, a window, and a credit for each byte of the other windows.
 * A side that lets more wait is not reading. A credit is granted when it is queued, not when it is
 * sent: so this, and not the window, bounds what a side can make the other hold that sends on
 * without reading its credits.
 */
#define WIRE_MAX_QUEUE (32u << 20)

struct buffer {
	u8 *bytes;
	size_t start, end, room;
};

/* A wire that goes one way has a reader who stops the writer by not reading: streams need no
 * windows there, and messages to the writer are dropped. */
enum wire_way { WIRE_BOTH_WAYS, WIRE_OUT, WIRE_IN };

struct wire {
	int fd;
	struct buffer in, out;
	bool closed;	   /* by the other side, or broken */
	const char *fault; /* what the other side did and must not; NULL: nothing */
	enum wire_way way;
	u32 sessions; /* that share it; 0: there is one */
};

/* Where a stream comes from, and what may still be sent of it. */
struct source {
	int fd;	    /* -1: none, or ended */
	u32 stream; /* as in a frame */
	u32 credit;
	bool is_owned; /* to be closed at its end */
};

/* Where a stream goes to. */
struct sink {
	int fd;	    /* -1: none, or closed */
	u32 stream; /* as in a frame */
	struct buffer waiting;
	u32 taken; /* bytes that were written and not yet reported */
	int error; /* errno: why it was closed. 0: it was not, or its reader has gone */
	bool ended;
	bool is_shared; /* with others: it may block, and is not ours to close */
};

/* Closes a wire whose other side does not keep to the protocol. The first fault is kept. */
void wire_fault(struct wire *wire, const char *what);
/* Queues a frame. Out of memory ends the process: neither side has anything better to do. */
void wire_send(struct wire *wire, enum frame_type type, u32 stream, const void *body, u32 size);
/* Writes what is queued, as far as the other side takes it; reads what has come. */
void wire_flush(struct wire *wire);
void wire_fill(struct wire *wire);
/* The next whole frame and its body, or NULL. Valid until the next wire_fill(). */
const struct frame *wire_next(struct wire *wire, const u8 **body);
/* The frame that wire_next() would give, which stays the next one. */
const struct frame *wire_peek(struct wire *wire, const u8 **body);
short wire_events(const struct wire *wire);
size_t wire_waiting(const struct wire *wire); /* bytes that are queued */

/* Reads once from the source's file and sends it. */
void source_pump(struct source *source, struct wire *wire);
bool source_is_ready(const struct source *source);
/* The other side took so many bytes: more than were sent is a fault. */
void source_grant(struct source *source, struct wire *wire, u32 bytes);
/* Takes a frame's bytes in: more than the window is a fault. */
void sink_take(struct sink *sink, struct wire *wire, const u8 *bytes, u32 size);
/* Writes what its file takes, and reports. */
void sink_pump(struct sink *sink, struct wire *wire);
bool sink_is_waiting(const struct sink *sink);

#endif
