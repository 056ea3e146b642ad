// SPDX-License-Identifier: MIT
/*
 * A client of the control socket, for tests that `vpmu kvm` runs.
 */
#include "guest/control_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE 20 /* seconds, for an answer */

void control_connect(int fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = PATIENCE };
	int n = sprintf(address.sun_path + 1, "vpmu/%u/%d", geteuid(), getpid());

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	assert_int_equal(
		connect(fd, (void *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + n), 0);
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

void control_hear(int fd, char *out, size_t size)
{
	char c, last = '\n', first_of_line = 0;
	size_t n = 0;
	bool first = true;

	while (recv(fd, &c, 1, 0) == 1) {
		if (last == '\n')
			first_of_line = c;
		if (c == '\n' && last == '.' && first_of_line == '.')
			goto done;
		first &= c != '\n';
		if (first && n + 1 < size)
			out[n++] = c;
		last = c;
	}
	fail_msg("no answer");
done:
	out[n] = '\0';
}

void control_ask(int fd, const char *line, const char *expected)
{
	char answer[256];

	control_say(fd, line);
	control_hear(fd, answer, sizeof(answer));
	if (strncmp(answer, expected, strlen(expected)))
		fail_msg("'%s' was answered '%s'", line, answer);
}
