// SPDX-License-Identifier: MIT
/*
 * Runs the command and carries its bytes. Standard files that are a terminal on the host are one
 * here too, the same one for all of them; the others are pipes of their own.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/guest/guest.h"

struct session {
	struct wire *wire;
	const struct order *order;
	pid_t command;
	bool ended;
	u32 status;
	int terminal;		 /* the master's descriptor, or -1 */
	int own[3];		 /* the command's ends, closed here once it runs */
	struct sink input;	 /* STREAM_IN or STREAM_TERMINAL */
	struct source output[3]; /* STREAM_OUT, STREAM_ERR, STREAM_TERMINAL */
	int children;		 /* signalfd */
};

static void make_pipe(struct session *session, int number)
{
	int ends[2], ours = number ? 0 : 1;

	if (pipe2(ends, O_CLOEXEC))
		give_up(session->wire, FAILED_SET_UP, "cannot make a pipe");
	fcntl(ends[ours], F_SETFL, O_NONBLOCK);
	session->own[number] = ends[!ours];
	if (number)
		session->output[number - 1].fd = ends[ours];
	else
		session->input.fd = ends[ours];
}

/* Copies a file into the command's standard input, in a process of its own. */
static void feed(struct session *session, int from)
{
	static u8 bytes[64 << 10];
	ssize_t n;
	pid_t pid = fork();

	if (pid < 0)
		give_up(session->wire, FAILED_SET_UP, "cannot start a process");
	if (pid)
		return;
	for (int i = 0; i < 3; i++)
		close(session->own[i]);
	fcntl(session->input.fd, F_SETFL, 0);
	signal(SIGPIPE, SIG_DFL);
	while ((n = read(from, bytes, sizeof(bytes))) > 0)
		for (ssize_t done = 0, written; done < n; done += written) {
			written = write(session->input.fd, bytes + done, n - done);
			if (written < 0)
				_exit(1);
		}
	_exit(0);
}

static void resize(const struct session *session, const struct size *size)
{
	struct winsize winsize = { .ws_row = size->rows, .ws_col = size->columns };

	if (session->terminal >= 0)
		ioctl(session->terminal, TIOCSWINSZ, &winsize);
}

static int open_terminal(struct session *session)
{
	const struct start *start = &session->order->start;
	int unlocked = 0, slave;

	session->terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	ioctl(session->terminal, TIOCSPTLCK, &unlocked);
	slave = ioctl(session->terminal, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		give_up(session->wire, FAILED_SET_UP, "cannot open a terminal");
	ioctl(slave, TCSETS, start->modes);
	fchown(slave, start->uid, 5);
	fchmod(slave, 0620);
	resize(session, &start->size);
	session->output[2].fd = session->terminal;
	return slave;
}

static void open_files(struct session *session)
{
	u32 terminals = session->order->start.terminals;
	int slave = terminals ? open_terminal(session) : -1;

	for (int i = 0; i < 3; i++)
		if (terminals & 1u << i)
			session->own[i] = slave;
		else
			make_pipe(session, i);
	if (terminals & 1)
		session->input.fd = session->terminal;
	if (session->order->input < 0)
		return;
	feed(session, session->order->input);
	close(session->order->input);
	close(session->input.fd);
	session->input.fd = -1;
}

/* In the new process. Returns only if something fails. */
static void become(const struct session *session, enum failed_step *step)
{
	const struct order *order = session->order;
	sigset_t none;

	setsid();
	for (int i = 0; i < 3; i++)
		dup2(session->own[i], i);
	if (session->terminal >= 0)
		ioctl(__builtin_ctz(order->start.terminals), TIOCSCTTY, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	umask(order->start.umask);
	*step = FAILED_SET_UP;
	if (setgroups(order->start.groups, order->groups) || setgid(order->start.gid) ||
	    setuid(order->start.uid))
		return;
	*step = FAILED_FOLDER;
	if (chdir(order->folder))
		return;
	*step = FAILED_EXEC;
	environ = order->variables; /* execvp() looks for PATH there */
	execvp(order->arguments[0], order->arguments);
}

static void start_command(struct session *session)
{
	int report[2];
	struct failed failed;

	if (pipe2(report, O_CLOEXEC))
		give_up(session->wire, FAILED_SET_UP, "cannot make a pipe");
	session->command = fork();
	if (session->command < 0)
		give_up(session->wire, FAILED_SET_UP, "cannot start a process");
	if (!session->command) {
		enum failed_step step;

		become(session, &step);
		failed = (struct failed){ step, errno };
		if (write(report[1], &failed, sizeof(failed)) < 0)
			_exit(126);
		_exit(127);
	}
	close(report[1]);
	for (int i = 0; i < 3; i++)
		close(session->own[i]);
	if (read(report[0], &failed, sizeof(failed)) == sizeof(failed)) {
		errno = failed.error;
		give_up(session->wire, failed.step, "cannot become the command's user");
	}
	close(report[0]);
	wire_send(session->wire, FRAME_STARTED, 0, NULL, 0);
}

static struct source *output_of(struct session *session, u32 stream)
{
	return stream == STREAM_IN ? NULL : &session->output[stream - STREAM_OUT];
}

/* The command's output is not wanted any more: it gets SIGPIPE when it writes. */
static void close_output(struct source *source)
{
	if (source && source->fd >= 0 && source->stream != STREAM_TERMINAL) {
		close(source->fd);
		source->fd = -1;
	}
}

static void hang_up(struct session *session)
{
	kill(-session->command, SIGHUP);
	kill(-session->command, SIGCONT);
}

static void obey(struct session *session, const struct frame *frame, const u8 *body)
{
	struct source *source = output_of(session, frame->stream);
	u32 number = 0;
	struct size size;

	if (frame->size >= sizeof(number))
		memcpy(&number, body, sizeof(number));
	switch (frame->type) {
	case FRAME_DATA:
		sink_take(&session->input, session->wire, body, frame->size);
		break;
	case FRAME_END:
		if (session->input.stream == STREAM_TERMINAL)
			hang_up(session);
		session->input.ended = true;
		break;
	case FRAME_CREDIT:
		if (source)
			source_grant(source, session->wire, number);
		break;
	case FRAME_CLOSED:
		close_output(source);
		break;
	case FRAME_SIGNAL:
		kill(-session->command, number);
		break;
	case FRAME_RESIZE:
		if (frame->size < sizeof(size))
			break;
		memcpy(&size, body, sizeof(size));
		resize(session, &size);
		break;
	}
}

static void reap(struct session *session)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	if (read(session->children, &info, sizeof(info)) < 0)
		return;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != session->command)
			continue;
		session->ended = true;
		session->status = status;
	}
}

/* After the command's end, what it has written is still to be sent; what others that it started may
 * write later is not. */
static bool is_drained(const struct session *session)
{
	for (int i = 0; i < 3; i++) {
		struct pollfd wait = { session->output[i].fd, POLLIN, 0 };

		if (wait.fd >= 0 && poll(&wait, 1, 0) > 0)
			return false;
	}
	return true;
}

static _Noreturn void finish(struct session *session)
{
	const struct order *order = session->order;

	for (u32 i = 0; i < order->start.folders; i++) {
		int fd = open(order->shared[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0)
			syncfs(fd);
	}
	wire_send(session->wire, FRAME_EXIT, 0, &session->status, sizeof(session->status));
	for (;;) {
		struct pollfd wait = { session->wire->fd, wire_events(session->wire), 0 };

		wire_flush(session->wire);
		if (fetch_is_meant())
			fetch_wait();
		else
			poll(&wait, 1, 1000);
		if (wait.revents & POLLIN)
			wire_fill(session->wire);
	}
}

static void turn(struct session *session)
{
	struct wire *wire = session->wire;
	struct pollfd wait[6] = { { wire_events(wire) ? wire->fd : -1, wire_events(wire), 0 },
				  { session->children, POLLIN, 0 } };
	const struct frame *frame;
	const u8 *body;

	wait[2] = (struct pollfd){ sink_is_waiting(&session->input) ? session->input.fd : -1,
				   POLLOUT, 0 };
	for (int i = 0; i < 3; i++)
		wait[3 + i] = (struct pollfd){
			source_is_ready(&session->output[i]) ? session->output[i].fd : -1, POLLIN, 0
		};
	poll(wait, ARRAY_SIZE(wait), -1);
	if (wait[0].revents & POLLIN)
		wire_fill(wire);
	while ((frame = wire_next(wire, &body)))
		obey(session, frame, body);
	sink_pump(&session->input, wire);
	for (int i = 0; i < 3; i++)
		if (wait[3 + i].revents && source_is_ready(&session->output[i]))
			source_pump(&session->output[i], wire);
	if (wait[1].revents)
		reap(session);
	wire_flush(wire);
	for (int i = 0; i < 3 && wire->way == WIRE_OUT; i++)
		session->output[i].credit = WIRE_WINDOW; /* it has been read */
}

void session_run(struct wire *wire, const struct order *order)
{
	struct session session = { .wire = wire, .order = order, .terminal = -1 };
	sigset_t child;

	session.input =
		(struct sink){ .fd = -1,
			       .stream = order->start.terminals & 1 ? STREAM_TERMINAL : STREAM_IN };
	for (int i = 0; i < 3; i++)
		session.output[i] = (struct source){ -1, STREAM_OUT + i, WIRE_WINDOW };
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	session.children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (session.children < 0)
		give_up(wire, FAILED_SET_UP, "cannot watch over the command");
	open_files(&session);
	start_command(&session);
	while (!session.ended || !is_drained(&session))
		turn(&session);
	finish(&session);
}
