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
#define QUESTIONS      16 /* about one state: QEMU says each time that the machine has stopped */
#define PARTS_AT_ONCE  64 /* of lines */

/* Adds what has come of a line; ends: all of it has, and the next part is of another one. A line
 * that is too long is cut. False: nothing has come, or the end. */
static bool read_part(struct monitor *monitor, int flags, bool *ends)
{
	char part[512];
	ssize_t seen = recv(monitor->fd, part, sizeof(part), MSG_PEEK | flags);
	char *end = seen > 0 ? memchr(part, '\n', seen) : NULL;
	ssize_t n = end ? end + 1 - part : seen;

	*ends = end;
	if (seen <= 0 || recv(monitor->fd, part, n, 0) != n)
		return false;
	for (ssize_t i = 0; i < n - *ends && monitor->size < sizeof(monitor->line) - 1; i++)
		monitor->line[monitor->size++] = part[i];
	monitor->line[monitor->size] = '\0';
	if (*ends)
		monitor->size = 0;
	return true;
}

/* The next line without its end. False: none came in time. */
static bool read_line(struct monitor *monitor, u64 deadline)
{
	bool ends;

	do {
		struct pollfd wait = { monitor->fd, POLLIN, 0 };
		u64 at = monotonic_ms();

		if (at >= deadline || poll(&wait, 1, deadline - at) <= 0 ||
		    !read_part(monitor, 0, &ends))
			return false;
	} while (!ends);
	return true;
}

/* A QEMU that does not read is not waited for: EAGAIN. */
static bool send_with(struct monitor *monitor, const char *text, int attached)
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
	return sendmsg(monitor->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)piece.iov_len;
}

static bool is_stop(const char *line)
{
	return strstr(line, "\"event\": \"STOP\"");
}

static bool is_answer(const char *line)
{
	return !strncmp(line, "{\"return\"", 9) || !strncmp(line, "{\"error\"", 8);
}

/* The answer is the line. stopped: set if QEMU says before it answers that the machine has. False:
 * none came in time, or it is an error. */
static bool wait_answer(struct monitor *monitor, u64 deadline, bool *stopped)
{
	while (read_line(monitor, deadline)) {
		if (!is_answer(monitor->line))
			*stopped |= is_stop(monitor->line);
		else if (monitor->is_asked)
			monitor->is_asked = false; /* an answer to monitor_read() */
		else
			return strncmp(monitor->line, "{\"error\"", 8);
	}
	return false;
}

static u64 answer_deadline(void)
{
	return monotonic_ms() + ANSWER_SECONDS * 1000ull;
}

static bool command_with(struct monitor *monitor, const char *text, int attached)
{
	bool stopped = false;

	return send_with(monitor, text, attached) &&
	       wait_answer(monitor, answer_deadline(), &stopped);
}

static bool command(struct monitor *monitor, const char *text)
{
	return command_with(monitor, text, -1);
}

#define OPEN "{\"execute\":\"qmp_capabilities\"}\n"

bool monitor_open(struct monitor *monitor)
{
	return command(monitor, OPEN);
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

#define ASK "{\"execute\":\"query-status\"}\n"

/* QEMU makes an answer and sends it later: a machine that stops in between is said to be running,
 * and its event comes first. Then QEMU is asked once more. One that has always just stopped is not
 * asked for ever: a guest may have taken it over. */
bool monitor_has_failed(struct monitor *monitor)
{
	u64 deadline = answer_deadline();

	for (u32 i = 0; i < QUESTIONS; i++) {
		bool stopped = false;

		if (!send_with(monitor, ASK, -1) || !wait_answer(monitor, deadline, &stopped))
			return false; /* its end is seen elsewhere */
		if (!stopped || names_failure(monitor->line))
			return names_failure(monitor->line);
	}
	return true;
}

/* A debugger stops the machine, too, and lets it go on. */
static bool hear_line(struct monitor *monitor)
{
	if (is_stop(monitor->line)) {
		monitor->has_stopped = true;
	} else if (monitor->is_asked && is_answer(monitor->line)) {
		monitor->is_asked = false;
		if (names_failure(monitor->line))
			return true;
	}
	if (!monitor->has_stopped || monitor->is_asked)
		return false;
	monitor->has_stopped = false;
	monitor->is_asked = send_with(monitor, ASK, -1);
	return !monitor->is_asked && errno == EAGAIN; /* it reads no questions */
}

bool monitor_read(struct monitor *monitor)
{
	bool ends;

	for (u32 i = 0; i < PARTS_AT_ONCE && read_part(monitor, MSG_DONTWAIT, &ends); i++)
		if (ends && hear_line(monitor))
			return true;
	return false;
}

bool monitor_is_closed(const struct monitor *monitor)
{
	char byte;
	ssize_t n = recv(monitor->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);

	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Memory is a file that we have, and not part of the state. */
#define LEAVE_MEMORY                                                                 \
	"{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":" \
	"[{\"capability\":\"x-ignore-shared\",\"state\":true}]}}\n"

/* With a descriptor: where the state goes to or comes from. */
#define TAKE_STATE "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"state\"}}\n"

static bool wait_saved(struct monitor *monitor)
{
	const struct timespec pause = { .tv_nsec = 2000000 };
	u64 deadline = answer_deadline();

	while (monotonic_ms() < deadline) {
		if (!command(monitor, "{\"execute\":\"query-migrate\"}\n") ||
		    strstr(monitor->line, "\"failed\""))
			return false;
		if (strstr(monitor->line, "\"completed\""))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

bool monitor_save(struct monitor *monitor, int state)
{
	return command(monitor, LEAVE_MEMORY) && command(monitor, "{\"execute\":\"stop\"}\n") &&
	       command_with(monitor, TAKE_STATE, state) &&
	       command(monitor,
		       "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:state\"}}\n") &&
	       wait_saved(monitor);
}

/* What QEMU is to do first, whenever it has started; nobody waits for that. */
bool monitor_prepare(struct monitor *monitor, int state)
{
	return send_with(monitor, OPEN LEAVE_MEMORY, -1) && send_with(monitor, TAKE_STATE, state);
}

#define PREPARED 3 /* answers */

/* It was stopped when it was saved, and stays so until told otherwise. */
bool monitor_resume(struct monitor *monitor)
{
	bool stopped = false, ok = true;

	for (u32 i = 0; i < PREPARED && ok; i++)
		ok = wait_answer(monitor, answer_deadline(), &stopped);
	return ok &&
	       command(monitor,
		       "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:state\"}}\n") &&
	       wait_saved(monitor) &&
	       command(monitor,
		       "{\"execute\":\"device_add\",\"arguments\":{\"driver\":\"vhost-user-fs-"
		       "pci\","
		       "\"bus\":\"socket\",\"chardev\":\"files\",\"tag\":\"root\"}}\n") &&
	       command(monitor, "{\"execute\":\"cont\"}\n");
}
