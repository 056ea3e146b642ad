/* SPDX-License-Identifier: MIT */
/*
 * The other end of the control socket (docs/control.md), for the commands that talk to running VMs.
 */
#ifndef CLI_BASE_CLIENT_H
#define CLI_BASE_CLIENT_H

#include "base/types.h"
#include "cli/base/command.h"
#include "pmu/filter.h"
#include "x86/models.h"

/* A process with VMs, and which of them: 0 is all. */
struct client {
	int fd;
	int pid;
	u32 vm;
	/* Monotonic ms after which nothing is waited for; 0: each call has its time. */
	u64 deadline;
	char model[32], mode[16], accounting[16], timing[16], llc[16], llc_life[16];
	bool refused; /* the last answer was an error */
	u32 nin, at;
	char in[4096];
};

/* The command that a process runs, as the kernel names it, printable. */
void client_process_name(int pid, char *out, size_t size);
/* Calls visit() with the pid of each vpmu process of this user. */
void client_each(void (*visit)(int pid, void *arg), void *arg);

/* The process `pid`. False, and errno: ECONNREFUSED, it is not there; EACCES, it is another user's;
 * EAGAIN: so many wait for it already that it may be another user's, 100 ms later, too; others: it
 * cannot be asked now. */
bool client_open(struct client *client, int pid);
/* client_open() without waiting. `deadline` is for all that is asked: of monotonic_ms(), or 0. */
bool client_open_until(struct client *client, int pid, u64 deadline);
void client_close(struct client *client);

/*
 * Finds the VM that a word names: PID, PID.N for the Nth of a process, or the only one there is if
 * the word is NULL. STATUS_OK, or another code and the user has been told.
 */
int client_find(struct client *client, const struct command *command, const char *word);

/*
 * Asks, and calls line() with each line of the answer. False: the VM has ended, or the answer was
 * an error, which the user has been told.
 */
__attribute__((format(printf, 4, 5))) bool client_ask(struct client *client,
						      void (*line)(char *line, void *arg),
						      void *arg, const char *fmt, ...);
/* Asks for something to be done: an exit code, and the user has been told. */
__attribute__((format(printf, 2, 3))) int client_tell(struct client *client, const char *fmt, ...);
/* After client_ask() has failed: says so, if that was no error that was told. STATUS_BROKEN. */
int client_failed(const struct client *client);

/* The word after `key` in a line of words "KEY VALUE KEY VALUE…", or NULL. */
const char *client_word(const char *line, const char *key, char *out, size_t size);
u64 client_number(const char *line, const char *key);

/* event_name.c: an event as perf writes it, "NAME[:MODIFIERS]", for a model: u, k, H, G, D, or
 * rHEX. */
struct event_wanted {
	u64 select;
	u32 flags; /* enum host_event_flags */
};
bool event_parse(const char *text, const char *model, struct event_wanted *out);
/* A name alone, of n bytes. `response`: as in struct perf_name. */
bool event_code(const char *name, size_t n, enum model_set model, u64 *select, u64 *response);
/* The code that an event select has for an event of x86/events.h: perf's rHEX. */
u64 event_select(u32 event, u32 umask);

/* A name of perf's own for an event; perf_names.def has them. */
struct perf_name {
	enum model_set models;
	u16 event;
	u8 umask;
	const char *name;
	u64 response; /* what OFFCORE_RSP has for it; 0: that register has no say */
};
const struct perf_name *perf_name_at(u32 i); /* NULL after the last */

/* The events of a filter, as the request has them. */
struct event_list {
	u32 count, fixed; /* fixed: a bitmap of fixed counters */
	char text[PMU_FILTER_EVENTS * sizeof(" 0xf0000ffff")];
};
/* False: it is full. The filter of KVM has 16 bits of a code, and AMD's upper ones. The fixed
 * counter of an event is listed with it: Linux counts the event there. */
bool event_list_add(struct event_list *list, u64 select);
/* False: the word is none of fixed0 to fixed3. */
bool event_list_add_fixed(struct event_list *list, const char *word);

#endif
