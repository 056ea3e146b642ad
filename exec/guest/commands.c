// SPDX-License-Identifier: MIT
/*
 * The commands that run in the guest, and the wire that carries the bytes of all of them: starts
 * one when the host orders it, until the host ends the guest.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/guest/session.h"

struct commands {
	struct wire *wire;
	char **shared; /* folders of the host, which are the guest's for its whole life */
	int children;  /* signalfd */
	struct session session[SESSIONS];
};

/* What was written to the host's folders is there when the host hears of the end. */
static void sync_shared(const struct commands *commands)
{
	for (char **folder = commands->shared; *folder; folder++) {
		int fd = open(*folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0)
			continue;
		syncfs(fd);
		close(fd);
	}
}

static void start(struct commands *commands, u32 id, const u8 *bytes, u32 size)
{
	struct order order = { .input = -1, .body = malloc(size) };

	if (order.body)
		memcpy(order.body, bytes, size);
	errno = EPROTO;
	if (order.body && order_read(&order, order.body, size) && order.start.arguments) {
		session_begin(&commands->session[id], commands->wire, id, &order);
		return;
	}
	send_failed(commands->wire, id, FAILED_SET_UP, "this is no order");
	order_free(&order);
}

/* What is said to a session that has ended was sent before the host knew. */
static void obey(struct commands *commands, const struct frame *frame, const u8 *body)
{
	struct session *session = &commands->session[frame->stream / STREAMS];

	if (session->in_use)
		session_obey(session, frame, body);
	else if (frame->type == FRAME_START)
		start(commands, frame->stream / STREAMS, body, frame->size);
}

/* After a command's end, another process may have its number while its output is still read. */
static void reap(struct commands *commands)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	if (read(commands->children, &info, sizeof(info)) < 0)
		return;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (u32 i = 0; i < SESSIONS; i++) {
			struct session *session = &commands->session[i];

			if (session->in_use && !session->ended && session->command == pid)
				session_command_ended(session, status);
		}
}

/* A deterministic guest has one command, and its time stands still after that. */
static void end_sessions(struct commands *commands)
{
	for (u32 i = 0; i < SESSIONS; i++) {
		struct session *session = &commands->session[i];

		if (!session->in_use || !session->ended || !session_is_over(session))
			continue;
		sync_shared(commands);
		session_end(session);
		while (fetch_is_wanted()) {
			wire_flush(commands->wire);
			fetch_wait();
		}
	}
}

#define FIRST_FILE 2

static void turn(struct commands *commands)
{
	struct wire *wire = commands->wire;
	struct pollfd wait[FIRST_FILE + SESSIONS * SESSION_FILES] = {
		{ wire_events(wire) ? wire->fd : -1, wire_events(wire), 0 },
		{ commands->children, POLLIN, 0 }
	};
	const struct frame *frame;
	const u8 *body;

	for (u32 i = 0; i < SESSIONS * SESSION_FILES; i++)
		wait[FIRST_FILE + i].fd = -1;
	for (u32 i = 0; i < SESSIONS; i++)
		if (commands->session[i].in_use)
			session_wait(&commands->session[i], &wait[FIRST_FILE + i * SESSION_FILES]);
	poll(wait, ARRAY_SIZE(wait), -1);
	if (wait[0].revents & POLLIN)
		wire_fill(wire);
	while ((frame = wire_next(wire, &body)))
		obey(commands, frame, body);
	for (u32 i = 0; i < SESSIONS; i++)
		if (commands->session[i].in_use)
			session_pump(&commands->session[i], &wait[FIRST_FILE + i * SESSION_FILES]);
	if (wait[1].revents)
		reap(commands);
	wire_flush(wire);
	for (u32 i = 0; i < 3 && wire->way == WIRE_OUT; i++)
		commands->session[0].output[i].credit = WIRE_WINDOW; /* it has been read */
	end_sessions(commands);
}

static int watch_children(void)
{
	sigset_t child;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The folders of the order outlive its command. */
static char **copy_list(char **list, u32 count)
{
	char **copy = calloc((size_t)count + 1, sizeof(*copy));

	for (u32 i = 0; copy && i < count; i++)
		copy[i] = strdup(list[i]);
	return copy;
}

void commands_run(struct wire *wire, struct order *order)
{
	static struct commands commands;

	wire->sessions = SESSIONS;
	commands.wire = wire;
	commands.shared = copy_list(order->shared, order->start.folders);
	commands.children = watch_children();
	if (commands.children < 0 || !commands.shared)
		give_up(wire, FAILED_SET_UP, "cannot watch over the command");
	if (order->start.arguments)
		session_begin(&commands.session[0], wire, 0, order);
	else
		wire_send(wire, FRAME_READY, 0, NULL, 0);
	for (;;)
		turn(&commands);
}
