// SPDX-License-Identifier: MIT
/*
 * Runs a command and carries its bytes. Standard files that are a terminal on the host are one
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
#include <sys/stat.h>
#include <unistd.h>

#include "exec/guest/session.h"

/* Files are opened and processes started in steps, each NULL or what could not be done (errno). */

static const char *make_pipe(struct session *session, int number)
{
	int ends[2], ours = number ? 0 : 1;

	if (pipe2(ends, O_CLOEXEC))
		return "cannot make a pipe";
	fcntl(ends[ours], F_SETFL, O_NONBLOCK);
	session->own[number] = ends[!ours];
	if (number)
		session->output[number - 1].fd = ends[ours];
	else
		session->input.fd = ends[ours];
	return NULL;
}

/* Copies a file into the command's standard input, in a process of its own. */
static const char *feed(struct session *session, int from)
{
	static u8 bytes[64 << 10];
	ssize_t n;
	pid_t pid = fork();

	if (pid)
		return pid < 0 ? "cannot start a process" : NULL;
	for (int i = 0; i < OWN_FILES; i++)
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
	const struct start *start = &session->order.start;
	int unlocked = 0, slave;

	session->terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	ioctl(session->terminal, TIOCSPTLCK, &unlocked);
	slave = ioctl(session->terminal, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -1;
	ioctl(slave, TCSETS, start->modes);
	fchown(slave, start->uid, 5);
	fchmod(slave, 0620);
	resize(session, &start->size);
	session->output[2].fd = session->terminal;
	return slave;
}

static const char *open_files(struct session *session)
{
	u32 terminals = session->order.start.terminals;
	int slave = terminals ? open_terminal(session) : -1;
	const char *problem = terminals && slave < 0 ? "cannot open a terminal" : NULL;

	for (int i = 0; i < 3 && !problem; i++)
		if (terminals & 1u << i)
			session->own[i] = slave;
		else
			problem = make_pipe(session, i);
	if (session->order.start.counts && !terminals && !problem)
		problem = make_pipe(session, 3);
	if (terminals & 1)
		session->input.fd = session->terminal;
	if (problem || session->order.input < 0)
		return problem;
	problem = feed(session, session->order.input);
	close(session->order.input);
	close(session->input.fd);
	session->input.fd = -1;
	return problem;
}

/* In the new process. Returns only if something fails. */
static void become(const struct session *session, enum failed_step *step)
{
	const struct order *order = &session->order;
	sigset_t none;

	setsid();
	for (int i = 0; i < 3; i++)
		dup2(session->own[i], i);
	if (session->own[3] >= 0)
		dup2(session->own[3], COUNTS_FD);
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

/* A terminal is the command's end of several files. */
static void close_own(struct session *session)
{
	for (int i = 0; i < OWN_FILES; i++) {
		bool again = false;

		for (int j = 0; j < i; j++)
			again |= session->own[j] == session->own[i];
		if (session->own[i] >= 0 && !again)
			close(session->own[i]);
	}
	for (int i = 0; i < OWN_FILES; i++)
		session->own[i] = -1;
}

static const char *start_command(struct session *session, enum failed_step *step)
{
	int report[2];
	struct failed failed;
	ssize_t n;

	*step = FAILED_SET_UP;
	if (pipe2(report, O_CLOEXEC))
		return "cannot make a pipe";
	session->command = fork();
	if (!session->command) {
		become(session, step);
		failed = (struct failed){ *step, errno };
		if (write(report[1], &failed, sizeof(failed)) < 0)
			_exit(126);
		_exit(127);
	}
	close(report[1]);
	n = session->command < 0 ? 0 : read(report[0], &failed, sizeof(failed));
	close(report[0]);
	if (session->command < 0)
		return "cannot start a process";
	if (n != sizeof(failed))
		return NULL;
	*step = failed.step;
	errno = failed.error;
	return "cannot become the command's user";
}

static struct source *output_of(struct session *session, u32 stream)
{
	stream %= STREAMS;
	return stream == STREAM_IN ? NULL : &session->output[stream - STREAM_OUT];
}

/* The command's output is no longer wanted: it gets SIGPIPE when it writes. */
static void close_output(struct source *source)
{
	if (source && source->fd >= 0 && source->is_owned) {
		close(source->fd);
		source->fd = -1;
	}
}

/* After its end, another process may have its number. */
static void signal_command(const struct session *session, int number)
{
	if (!session->ended)
		kill(-session->command, number);
}

static void hang_up(struct session *session)
{
	signal_command(session, SIGHUP);
	signal_command(session, SIGCONT);
}

static bool has_terminal_input(const struct session *session)
{
	return session->order.start.terminals & 1;
}

/* No client reads its output or sees its exit code. */
static void abandon(struct session *session)
{
	signal_command(session, SIGKILL);
	for (int i = 0; i < 3; i++) {
		close_output(&session->output[i]);
		session->output[i].fd = -1;
	}
	session->input.ended = true;
}

void session_obey(struct session *session, const struct frame *frame, const u8 *body)
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
		if (has_terminal_input(session))
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
		signal_command(session, number);
		break;
	case FRAME_ABANDON:
		abandon(session);
		break;
	case FRAME_RESIZE:
		if (frame->size < sizeof(size))
			break;
		memcpy(&size, body, sizeof(size));
		resize(session, &size);
		break;
	}
}

/* What the command has written is in its pipes now, before everything that processes which it
 * started write later. */
void session_command_ended(struct session *session, u32 status)
{
	session->ended = true;
	session->status = status;
	for (int i = 0; i < 3; i++) {
		int bytes = 0;

		if (session->output[i].fd >= 0 && !ioctl(session->output[i].fd, FIONREAD, &bytes))
			session->left[i] = bytes;
	}
}

/* Its last writers have lost the terminal with the command, which led their session. FIONREAD does
 * not know all that is on its way in a terminal. */
static bool terminal_has_more(const struct session *session)
{
	struct pollfd wait = { session->output[2].fd, POLLIN, 0 };

	return session->terminal >= 0 && wait.fd >= 0 && poll(&wait, 1, 0) > 0;
}

/* After the command's end, what it has written is still to be sent; what others that it started may
 * write later is not. */
bool session_is_over(const struct session *session)
{
	if (terminal_has_more(session))
		return false;
	for (int i = 0; i < 3; i++)
		if (session->output[i].fd >= 0 && session->left[i])
			return false;
	return session->ended;
}

void session_wait(const struct session *session, struct pollfd wait[SESSION_FILES])
{
	wait[0] = (struct pollfd){ sink_is_waiting(&session->input) ? session->input.fd : -1,
				   POLLOUT, 0 };
	for (int i = 0; i < 3; i++)
		wait[1 + i] = (struct pollfd){
			source_is_ready(&session->output[i]) ? session->output[i].fd : -1, POLLIN, 0
		};
}

void session_pump(struct session *session, const struct pollfd wait[SESSION_FILES])
{
	sink_pump(&session->input, session->wire);
	for (int i = 0; i < 3; i++) {
		struct source *source = &session->output[i];
		u32 credit = source->credit, sent;

		if (!wait[1 + i].revents || !source_is_ready(source))
			continue;
		source_pump(source, session->wire);
		sent = credit - source->credit;
		session->left[i] -= sent < session->left[i] ? sent : session->left[i];
	}
}

static void release(struct session *session)
{
	close_own(session);
	for (int i = 0; i < 3; i++)
		close_output(&session->output[i]);
	if (session->input.fd >= 0 && !session->input.is_shared)
		close(session->input.fd);
	if (session->terminal >= 0)
		close(session->terminal);
	free(session->input.waiting.bytes);
	order_free(&session->order);
	session->in_use = false;
}

void session_begin(struct session *session, struct wire *wire, u32 id, struct order *order)
{
	bool terminal = order->start.terminals & 1;
	bool counts = order->start.counts && !order->start.terminals;
	enum failed_step step = FAILED_SET_UP;
	const char *problem;

	*session = (struct session){ .in_use = true,
				     .id = id,
				     .wire = wire,
				     .order = *order,
				     .terminal = -1,
				     .own = { -1, -1, -1, -1 } };
	*order = (struct order){ .input = -1 };
	session->input =
		(struct sink){ .fd = -1,
			       .stream = id * STREAMS + (terminal ? STREAM_TERMINAL : STREAM_IN),
			       .is_shared = terminal };
	for (u32 i = 0; i < 3; i++)
		session->output[i] = (struct source){ -1, id * STREAMS + STREAM_OUT + i,
						      WIRE_WINDOW, .is_owned = i < 2 || counts };
	problem = open_files(session);
	if (!problem)
		problem = start_command(session, &step);
	close_own(session);
	if (!problem) {
		wire_send(wire, FRAME_STARTED, id * STREAMS, NULL, 0);
		return;
	}
	send_failed(wire, id, step, problem);
	release(session);
}

void session_end(struct session *session)
{
	wire_send(session->wire, FRAME_EXIT, session->id * STREAMS, &session->status,
		  sizeof(session->status));
	release(session);
}
