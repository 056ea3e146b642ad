// SPDX-License-Identifier: MIT
/*
 * Control sockets with canned answers. Their processes end with the test.
 */
#include "unit/canned_vm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define STRANGER 64321 /* a user that nothing on this machine belongs to */

socklen_t canned_name(int pid, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return offsetof(struct sockaddr_un, sun_path) + 1 +
	       snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "vpmu/%u/%d",
			(unsigned)getuid(), pid);
}

/* Who listens is whom the kernel names to clients. -1: it cannot. A child must not assert, or its
 * copy of cmocka goes on with the next test. */
static int listen_as(uid_t user, int pid)
{
	struct sockaddr_un address;
	socklen_t size = canned_name(pid, &address);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if ((user != getuid() && setuid(user)) || bind(fd, (void *)&address, size) || listen(fd, 0))
		return -1;
	return fd;
}

int canned_listen(int pid)
{
	int fd = listen_as(getuid(), pid);

	assert_true(fd >= 0);
	return fd;
}

/* Again and again: the first may come before the client waits for an answer. */
static void interrupt(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	char byte;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return;
	do {
		kill(peer.pid, SIGINT);
		usleep(50000);
	} while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0);
}

/* It hangs up at the first request that has no answer. */
static void serve(int fd, const char *const *answers)
{
	char request[8192];

	for (; recv(fd, request, sizeof(request), 0) > 0 && *answers; answers++) {
		if (!strcmp(*answers, CANNED_INTERRUPT))
			interrupt(fd);
		send(fd, *answers, strlen(*answers), MSG_NOSIGNAL);
		send(fd, "\n.\n", 3, MSG_NOSIGNAL);
	}
}

static void dribble(int fd, const char *const *answers)
{
	(void)answers;
	while (send(fd, "x", 1, MSG_NOSIGNAL) == 1)
		usleep(100000);
}

static void say_nothing(int fd, const char *const *answers)
{
	(void)fd, (void)answers;
	pause();
}

/* A process whose standard output says when it listens: returns 0 in it, and its number when it
 * does. */
static pid_t start_process(void)
{
	int ready[2];
	pid_t child;
	char byte;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ready[1], 1);
		return 0;
	}
	close(ready[1]); /* of a child that ends, it would hide the end */
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return child;
}

static void listen_and_talk(int listener, void (*talk)(int fd, const char *const *answers),
			    const char *const *answers)
{
	if (listener >= 0 && write(1, "", 1) == 1)
		talk(accept(listener, NULL, NULL), answers);
}

/* `pid`: whose name it takes, 0 for its own. */
static pid_t start(uid_t user, int pid, void (*talk)(int fd, const char *const *answers),
		   const char *const *answers)
{
	pid_t child = start_process();
	int listener;

	if (child)
		return child;
	listener = listen_as(user, pid ? pid : getpid());
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another user's process loses */
	listen_and_talk(listener, talk, answers);
	_exit(0);
}

pid_t canned_start(const char *const *answers)
{
	return start(getuid(), 0, serve, answers);
}

pid_t canned_start_slow(void)
{
	return start(getuid(), 0, dribble, NULL);
}

pid_t canned_start_silent(void)
{
	return start(getuid(), 0, say_nothing, NULL);
}

pid_t canned_start_stranger(int pid)
{
	return start(STRANGER, pid, say_nothing, NULL);
}

void canned_serve(const char *const *answers)
{
	listen_and_talk(listen_as(getuid(), getpid()), serve, answers);
}

pid_t canned_start_program(char **words)
{
	pid_t child = start_process();

	if (child)
		return child;
	execv("/proc/self/exe", words);
	_exit(127);
}

void canned_end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}
