// SPDX-License-Identifier: MIT
/*
 * QMP, as much as it takes to save a machine and to watch it (docs/interop/qmp-spec.txt in QEMU): a
 * command is a line, and so is its answer, which begins with "return" or "error"; events come
 * between them.
 */
#include "exec/qmp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cli/base/monotonic.h"
#include "exec/exec.h"

#define ANSWER_SECONDS 30

/* Takes what has come of a line; n: how much that was. False: there is nothing, or its end. */
static bool read_part(int fd, char *part, u32 room, u32 *n, bool *ends)
{
	ssize_t seen = recv(fd, part, room, MSG_PEEK);
	char *end = seen > 0 ? memchr(part, '\n', seen) : NULL;

	*n = end ? end + 1 - part : seen;
	*ends = end;
	return seen > 0 && recv(fd, part, *n, 0) == (ssize_t)*n;
}

/* The next line without its end; a longer one is cut. False: none came in time. */
static bool read_line(int fd, char *line, u32 room, u64 deadline)
{
	char part[512];
	u32 size = 0, n;
	bool ends;

	do {
		struct pollfd wait = { fd, POLLIN, 0 };
		u64 at = monotonic_ms();

		if (at >= deadline || poll(&wait, 1, deadline - at) <= 0 ||
		    !read_part(fd, part, sizeof(part), &n, &ends))
			return false;
		for (u32 i = 0; i < n - ends && size < room - 1; i++)
			line[size++] = part[i];
	} while (!ends);
	line[size] = '\0';
	return true;
}

static bool send_with(int fd, const char *text, int attached)
{
	union {
		char bytes[CMSG_SPACE(sizeof(attached))];
		struct cmsghdr header;
	} control = { .header = { CMSG_LEN(sizeof(attached)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec piece = { (void *)text, strlen(text) };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };

	if (attached >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		memcpy(CMSG_DATA(&control.header), &attached, sizeof(attached));
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)piece.iov_len;
}

static bool is_stop(const char *line)
{
	return strstr(line, "\"event\": \"STOP\"");
}

/* stopped: set if QEMU says before it answers that the machine has. */
static bool wait_answer(int fd, char *answer, u32 room, bool *stopped)
{
	u64 deadline = monotonic_ms() + ANSWER_SECONDS * 1000ull;

	while (read_line(fd, answer, room, deadline)) {
		if (!strncmp(answer, "{\"return\"", 9))
			return true;
		if (!strncmp(answer, "{\"error\"", 8))
			return false;
		*stopped |= is_stop(answer);
	}
	return false;
}

static bool command_with(int fd, const char *text, int attached, char *answer, u32 room)
{
	bool stopped = false;

	return send_with(fd, text, attached) && wait_answer(fd, answer, room, &stopped);
}

static bool command(int fd, const char *text, char *answer, u32 room)
{
	return command_with(fd, text, -1, answer, room);
}

#define OPEN "{\"execute\":\"qmp_capabilities\"}\n"

bool monitor_open(int fd)
{
	char answer[4096];

	return command(fd, OPEN, answer, sizeof(answer));
}

/* Of RunState in QEMU's qapi/run-state.json those that nothing ends. */
static const char *const failed_states[] = { "internal-error", "io-error", "guest-panicked" };

static bool names_failure(const char *status)
{
	char state[64];

	for (u32 i = 0; i < ARRAY_SIZE(failed_states); i++) {
		snprintf(state, sizeof(state), "\"status\": \"%s\"", failed_states[i]);
		if (strstr(status, state))
			return true;
	}
	return false;
}

/* QEMU makes an answer and sends it later: a machine that stops in between is said to be running,
 * and its event comes first. Then QEMU is asked once more. */
bool monitor_has_failed(int fd)
{
	char answer[4096];
	bool stopped;

	do {
		stopped = false;
		if (!send_with(fd, "{\"execute\":\"query-status\"}\n", -1) ||
		    !wait_answer(fd, answer, sizeof(answer), &stopped))
			return false; /* its end is seen elsewhere */
	} while (stopped && !names_failure(answer));
	return names_failure(answer);
}

/* A debugger stops the machine, too, and lets it go on. */
bool monitor_read(int fd)
{
	char line[4096];

	return read_line(fd, line, sizeof(line), monotonic_ms() + ANSWER_SECONDS * 1000ull) &&
	       is_stop(line) && monitor_has_failed(fd);
}

bool monitor_is_closed(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);

	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Memory is a file that we have, and not part of the state. */
#define LEAVE_MEMORY                                                                 \
	"{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":" \
	"[{\"capability\":\"x-ignore-shared\",\"state\":true}]}}\n"

/* With a descriptor: where the state goes to or comes from. */
#define TAKE_STATE "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"state\"}}\n"

static bool wait_saved(int fd, char *answer, u32 room)
{
	const struct timespec pause = { .tv_nsec = 2000000 };
	u64 deadline = monotonic_ms() + ANSWER_SECONDS * 1000ull;

	while (monotonic_ms() < deadline) {
		if (!command(fd, "{\"execute\":\"query-migrate\"}\n", answer, room) ||
		    strstr(answer, "\"failed\""))
			return false;
		if (strstr(answer, "\"completed\""))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

bool monitor_save(int fd, int state)
{
	char answer[4096];

	return command(fd, LEAVE_MEMORY, answer, sizeof(answer)) &&
	       command(fd, "{\"execute\":\"stop\"}\n", answer, sizeof(answer)) &&
	       command_with(fd, TAKE_STATE, state, answer, sizeof(answer)) &&
	       command(fd, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:state\"}}\n",
		       answer, sizeof(answer)) &&
	       wait_saved(fd, answer, sizeof(answer));
}

/* What QEMU is to do first, whenever it has started; nobody waits for that. */
bool monitor_prepare(int fd, int state)
{
	return send_with(fd, OPEN LEAVE_MEMORY, -1) && send_with(fd, TAKE_STATE, state);
}

#define PREPARED 3 /* answers */

/* It was stopped when it was saved, and stays so until told otherwise. */
bool monitor_resume(int fd)
{
	char answer[4096];
	bool stopped = false, ok = true;

	for (u32 i = 0; i < PREPARED && ok; i++)
		ok = wait_answer(fd, answer, sizeof(answer), &stopped);
	return ok &&
	       command(fd,
		       "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:state\"}}\n",
		       answer, sizeof(answer)) &&
	       wait_saved(fd, answer, sizeof(answer)) &&
	       command(fd,
		       "{\"execute\":\"device_add\",\"arguments\":{\"driver\":\"vhost-user-fs-"
		       "pci\","
		       "\"bus\":\"socket\",\"chardev\":\"files\",\"tag\":\"root\"}}\n",
		       answer, sizeof(answer)) &&
	       command(fd, "{\"execute\":\"cont\"}\n", answer, sizeof(answer));
}
