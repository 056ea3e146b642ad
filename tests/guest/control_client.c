// SPDX-License-Identifier: MIT
/*
 * A client of the control socket, for tests that `vpmu kvm` runs.
 */
#include "guest/control_client.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE 20 /* seconds, for an answer */

bool control_reaches(int fd, uid_t user, pid_t process)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = PATIENCE };
	int n = sprintf(address.sun_path + 1, "vpmu/%u/%d", user, process);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return connect(fd, (void *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + n) == 0;
}

void control_connect(int fd)
{
	assert_true(control_reaches(fd, geteuid(), getpid()));
}

int control_dial(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	control_connect(fd);
	return fd;
}

void control_say(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* The next line, cut if it is longer. */
static void hear_line(int fd, char *out, size_t size)
{
	size_t n = 0;
	char c;

	while (recv(fd, &c, 1, 0) == 1) {
		if (c == '\n') {
			out[n] = '\0';
			return;
		}
		if (n + 1 < size)
			out[n++] = c;
	}
	fail_msg("no answer");
}

static bool is_end(const char *line)
{
	return strcmp(line, ".") == 0;
}

unsigned control_hear(int fd, char *out, size_t size)
{
	char line[8];
	unsigned n = 1;

	hear_line(fd, out, size);
	if (is_end(out))
		return 0;
	for (;; n++) {
		hear_line(fd, line, sizeof(line));
		if (is_end(line))
			return n;
	}
}

void control_ask(int fd, const char *line, const char *expected)
{
	char answer[256];

	control_say(fd, line);
	control_hear(fd, answer, sizeof(answer));
	if (strncmp(answer, expected, strlen(expected)))
		fail_msg("'%s' was answered '%s'", line, answer);
}

void control_find(int fd, const char *line, const char *expected)
{
	bool found = false;
	char heard[256];

	control_say(fd, line);
	for (;;) {
		hear_line(fd, heard, sizeof(heard));
		if (is_end(heard))
			break;
		found |= strcmp(heard, expected) == 0;
	}
	if (!found)
		fail_msg("no line of the answer to '%s' is '%s'", line, expected);
}

/* What was sent and not read makes of the end a reset. */
bool control_hung_up(int fd)
{
	ssize_t n;
	char c;

	errno = 0;
	n = recv(fd, &c, 1, 0);
	return n == 0 || (n < 0 && errno == ECONNRESET);
}

unsigned long long control_event(int fd, unsigned id)
{
	unsigned long long value;
	char line[64];

	snprintf(line, sizeof(line), "0 read %u\n", id);
	control_say(fd, line);
	control_hear(fd, line, sizeof(line));
	assert_int_equal(sscanf(line, "event %*u value %llu", &value), 1);
	return value;
}
