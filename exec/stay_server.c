// SPDX-License-Identifier: MIT
/*
 * Guests that stay: `vpmu up` leaves a process running, which has the machine and a socket with the
 * guest's name in the user's runtime folder. A `vpmu exec --in` speaks the protocol of exec/wire.h
 * to it as to a guest of its own; the process puts the frames of all of them on the one wire that
 * the guest has.
 *
 * Neither side of it is trusted. A client that does not keep to the protocol, or to the windows of
 * its streams, is dropped: the guest's first process would take that for a fault of the whole wire.
 * A guest that does not is ended. What a client sends is read no faster than the guest takes it,
 * except that a client can always end the guest.
 *
 * One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "exec/exec.h"
#include "exec/qmp.h"
#include "exec/wire.h"

/* --- the place of a name --- */

#define NAME_MAX_LENGTH 32

static bool is_name(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_-.";
	size_t length = strspn(name, letters);

	return length && length <= NAME_MAX_LENGTH && !name[length] && *name != '.' && *name != '-';
}

/* A folder that no other user can enter. */
static bool is_private(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 077);
}

static bool try_folder(char path[PATH_MAX], const char *fmt, const char *base, u32 user)
{
	if (!base || base[0] != '/')
		return false;
	snprintf(path, PATH_MAX, fmt, base, user);
	mkdir(path, 0700);
	return is_private(path);
}

static int find_folder(char path[PATH_MAX])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (try_folder(path, "%.900s/vpmu", runtime, 0) ||
	    try_folder(path, "%s/user/%u/vpmu", "/run", geteuid()) ||
	    try_folder(path, "%s/vpmu-%u", "/tmp", geteuid()))
		return STATUS_OK;
	return failure(
		STATUS_BROKEN,
		"there is no folder for the sockets of guests that stay: $XDG_RUNTIME_DIR is "
		"not set to a folder of yours that others cannot enter, and /tmp/vpmu-%u "
		"cannot be had",
		geteuid());
}

/* Where a guest's socket, or another file of it, is. */
static int find_place(const char *name, const char *suffix, struct sockaddr_un *address)
{
	char folder[PATH_MAX];
	int status, n;

	if (!is_name(name))
		return failure(STATUS_USAGE,
			       "'%s' is no name of a guest: up to %u letters, digits, '_', '-' and "
			       "'.', the first of them a letter, a digit or '_'",
			       name, NAME_MAX_LENGTH);
	status = find_folder(folder);
	if (status)
		return status;
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(address->sun_path, sizeof(address->sun_path), "%.*s/%s.%s", PATH_MAX / 2,
		     folder, name, suffix);
	if (n < (int)sizeof(address->sun_path))
		return STATUS_OK;
	return failure(STATUS_BROKEN, "the name of the folder %s is too long for a socket", folder);
}

static bool find_peer(int fd, struct ucred *peer)
{
	socklen_t size = sizeof(*peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &size);
}

static bool is_ours(int fd)
{
	struct ucred peer;

	return find_peer(fd, &peer) && peer.uid == geteuid();
}

int stay_process(int fd)
{
	struct ucred peer;

	return find_peer(fd, &peer) ? syscall(SYS_pidfd_open, peer.pid, 0) : -1;
}

int stay_connect(const char *name, int *fd)
{
	struct sockaddr_un address;
	int status = find_place(name, "socket", &address);

	if (status)
		return status;
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return failure(STATUS_BROKEN, "cannot make a socket: %s", strerror(errno));
	if (connect(*fd, (struct sockaddr *)&address, sizeof(address)))
		return failure(STATUS_BROKEN,
			       "there is no guest '%s': 'vpmu up %s' starts one, 'vpmu ps' shows "
			       "which there are",
			       name, name);
	if (!is_ours(*fd))
		return failure(STATUS_BROKEN, "the guest '%s' is another user's", name);
	fcntl(*fd, F_SETFL, O_NONBLOCK);
	return STATUS_OK;
}

int stay_claim(const char *name, int *lock)
{
	struct sockaddr_un address;
	int status = find_place(name, "lock", &address);

	if (status)
		return status;
	*lock = open(address.sun_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (*lock < 0)
		return failure(STATUS_BROKEN, "cannot make %s: %s", address.sun_path,
			       strerror(errno));
	if (flock(*lock, LOCK_EX | LOCK_NB))
		return failure(STATUS_BROKEN,
			       "there is a guest '%s' already: 'vpmu down %s' ends it", name, name);
	return STATUS_OK;
}

/* The process with the lock has the socket, too: one that is there is what a killed one left. */
int stay_listen(const char *name)
{
	struct sockaddr_un address;
	int fd;

	if (find_place(name, "socket", &address))
		return -1;
	unlink(address.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 16)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* --- the process --- */

/* A session whose client has gone is taken until the guest says that it is over, which it may never
 * do. Clients that have none yet have room of their own: one of them may want to end the guest. */
#define CLIENTS (2 * SESSIONS)

struct client {
	bool in_use;
	struct wire wire;    /* fd -1: the client has gone */
	bool ordered, ended; /* its command was sent to the guest; has ended there */
	u32 session;	     /* of the guest, once it is ordered */
	u32 input;	     /* bytes that it may send */
	u64 owed[STREAMS];   /* bytes that it was sent and has not granted again */
};

struct keeper {
	struct exec_machine *machine;
	struct wire link;
	int listener, signals, qemu, share; /* the last two: pidfds */
	bool down;
	struct client client[CLIENTS];
	u32 first;			  /* of the clients that is visited next */
	struct client *session[SESSIONS]; /* NULL: free */
};

/* The link has more than this to send: the frames of clients wait until it has less. One frame may
 * come on top of it, which together is less than WIRE_MAX_QUEUE. */
#define ENOUGH (1u << 20)

static bool has_enough(const struct keeper *keeper)
{
	return wire_waiting(&keeper->link) > ENOUGH;
}

static void release(struct keeper *keeper, struct client *client)
{
	if (client->ordered)
		keeper->session[client->session] = NULL;
	if (client->wire.fd >= 0)
		close(client->wire.fd);
	free(client->wire.in.bytes);
	free(client->wire.out.bytes);
	*client = (struct client){ 0 };
}

/* A session that the guest knows is over when the guest says so. */
static void drop(struct keeper *keeper, struct client *client)
{
	if (!client->ordered || client->ended) {
		release(keeper, client);
		return;
	}
	wire_send(&keeper->link, FRAME_ABANDON, client->session * STREAMS, NULL, 0);
	close(client->wire.fd);
	client->wire.fd = -1;
}

/* Tells the client why, and closes. */
static void refuse(struct wire *wire, const char *why)
{
	struct {
		struct failed failed;
		char why[64];
	} message = { { FAILED_SET_UP, EAGAIN }, "" };

	snprintf(message.why, sizeof(message.why), "%s", why);
	wire_send(wire, FRAME_FAILED, 0, &message, sizeof(message));
	wire_flush(wire);
	wire_fault(wire, why);
}

static struct client *find_free_client(struct keeper *keeper)
{
	for (u32 i = 0; i < CLIENTS; i++)
		if (!keeper->client[i].in_use)
			return &keeper->client[i];
	return NULL;
}

static void take_client(struct keeper *keeper)
{
	struct client client = { .in_use = true, .input = WIRE_WINDOW }, *place;

	client.wire.fd = accept4(keeper->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (client.wire.fd < 0)
		return;
	if (!is_ours(client.wire.fd)) {
		close(client.wire.fd);
		return;
	}
	place = find_free_client(keeper);
	if (place) {
		*place = client;
		return;
	}
	refuse(&client.wire, "as many clients wait there as can");
	release(keeper, &client);
}

static bool take_session(struct keeper *keeper, struct client *client)
{
	for (u32 i = 0; i < SESSIONS; i++) {
		if (keeper->session[i])
			continue;
		keeper->session[i] = client;
		client->session = i;
		client->ordered = true;
		return true;
	}
	return false;
}

static bool read_number(const struct frame *frame, const u8 *body, u32 *number)
{
	if (frame->size != sizeof(*number))
		return false;
	memcpy(number, body, sizeof(*number));
	return true;
}

/* --- from a client to the guest --- */

static bool may_send(struct client *client, u32 size)
{
	if (size > client->input)
		return false;
	client->input -= size;
	return true;
}

static bool may_grant(struct client *client, const struct frame *frame, const u8 *body)
{
	u32 bytes;

	if (!read_number(frame, body, &bytes) || bytes > client->owed[frame->stream])
		return false;
	client->owed[frame->stream] -= bytes;
	return true;
}

static bool may_say(struct client *client, const struct frame *frame, const u8 *body)
{
	switch (frame->type) {
	case FRAME_START:
		return !client->ordered && !frame->stream;
	case FRAME_DATA:
		return client->ordered && may_send(client, frame->size);
	case FRAME_CREDIT:
		return client->ordered && may_grant(client, frame, body);
	case FRAME_RESIZE:
		return client->ordered && frame->size == sizeof(struct size);
	case FRAME_SIGNAL:
		return client->ordered && frame->size == sizeof(u32);
	case FRAME_END:
	case FRAME_CLOSED:
		return client->ordered && !frame->size;
	default:
		return false;
	}
}

/* What comes after the command's end has no reader: the number may be another command's by the time
 * the guest hears it. */
static void forward(struct keeper *keeper, struct client *client, const struct frame *frame,
		    const u8 *body)
{
	if (frame->type == FRAME_DOWN) {
		keeper->down = true;
		return;
	}
	if (!may_say(client, frame, body)) {
		wire_fault(&client->wire, "it does not keep to the protocol");
		return;
	}
	if (frame->type == FRAME_START && !take_session(keeper, client)) {
		refuse(&client->wire, "as many commands run there as can");
		return;
	}
	if (!client->ended)
		wire_send(&keeper->link, frame->type, client->session * STREAMS + frame->stream,
			  body, frame->size);
}

/* A client with a frame that waits is not read, so that no more than a frame and what came with it
 * is held of each. */
static bool holds_frame(struct client *client)
{
	const u8 *body;

	return client->in_use && wire_peek(&client->wire, &body);
}

static void hear_client(struct keeper *keeper, struct client *client)
{
	const struct frame *frame;
	const u8 *body;

	while (!keeper->down && (frame = wire_peek(&client->wire, &body))) {
		if (has_enough(keeper) && frame->type != FRAME_DOWN)
			break;
		frame = wire_next(&client->wire, &body);
		forward(keeper, client, frame, body);
	}
}

/* --- from the guest to a client --- */

static bool guest_may_say(struct client *client, u32 stream, const struct frame *frame,
			  const u8 *body)
{
	u32 bytes;

	if (!client || client->ended)
		return false;
	if (frame->type == FRAME_DATA)
		client->owed[stream] += frame->size;
	if (frame->type != FRAME_CREDIT)
		return true;
	if (!read_number(frame, body, &bytes) || bytes > WIRE_WINDOW - client->input)
		return false;
	client->input += bytes;
	return true;
}

static void deliver(struct keeper *keeper, const struct frame *frame, const u8 *body)
{
	struct client *client = keeper->session[frame->stream / STREAMS];
	u32 stream = frame->stream % STREAMS;

	if (!guest_may_say(client, stream, frame, body)) {
		wire_fault(&keeper->link, "it does not keep to the protocol");
		return;
	}
	client->ended = frame->type == FRAME_EXIT || frame->type == FRAME_FAILED;
	if (client->wire.fd >= 0)
		wire_send(&client->wire, frame->type, stream, body, frame->size);
	else if (client->ended)
		release(keeper, client);
}

static void hear_guest(struct keeper *keeper)
{
	const struct frame *frame;
	const u8 *body;

	wire_fill(&keeper->link);
	while ((frame = wire_next(&keeper->link, &body)))
		deliver(keeper, frame, body);
}

/* --- the loop --- */

enum { FOR_LINK, FOR_LISTENER, FOR_SIGNALS, FOR_QEMU, FOR_SHARE, FOR_MONITOR, FOR_CLIENTS };

static struct pollfd wait_for_client(struct client *client)
{
	short events = client->in_use ? wire_events(&client->wire) : 0;

	return (struct pollfd){ client->in_use ? client->wire.fd : -1,
				holds_frame(client) ? events & ~POLLIN : events, 0 };
}

/* Frames that the link has room for again are not waited for. */
static bool has_work(struct keeper *keeper)
{
	for (u32 i = 0; i < CLIENTS && !has_enough(keeper); i++)
		if (keeper->client[i].wire.fd >= 0 && holds_frame(&keeper->client[i]))
			return true;
	return false;
}

static void wait_for_all(struct keeper *keeper, struct pollfd wait[FOR_CLIENTS + CLIENTS])
{
	wait[FOR_LINK] = (struct pollfd){ keeper->link.fd, wire_events(&keeper->link), 0 };
	wait[FOR_LISTENER] = (struct pollfd){ keeper->listener, POLLIN, 0 };
	wait[FOR_SIGNALS] = (struct pollfd){ keeper->signals, POLLIN, 0 };
	wait[FOR_QEMU] = (struct pollfd){ keeper->qemu, POLLIN, 0 };
	wait[FOR_SHARE] = (struct pollfd){ keeper->share, POLLIN, 0 };
	wait[FOR_MONITOR] = (struct pollfd){ keeper->machine->monitor.fd, POLLIN, 0 };
	for (u32 i = 0; i < CLIENTS; i++)
		wait[FOR_CLIENTS + i] = wait_for_client(&keeper->client[i]);
	poll(wait, FOR_CLIENTS + CLIENTS, has_work(keeper) ? 0 : CONSOLE_MS);
}

static void visit_client(struct keeper *keeper, struct client *client, short revents)
{
	if (!client->in_use || client->wire.fd < 0)
		return;
	if (revents & (POLLIN | POLLHUP | POLLERR))
		wire_fill(&client->wire);
	hear_client(keeper, client);
	wire_flush(&client->wire);
	if (client->wire.closed)
		drop(keeper, client);
}

/* Each time another client is the first: one that fills the link holds up no other for long. */
static void visit_clients(struct keeper *keeper, const struct pollfd wait[CLIENTS])
{
	for (u32 i = 0; i < CLIENTS; i++) {
		u32 index = (keeper->first + i) % CLIENTS;

		visit_client(keeper, &keeper->client[index], wait[index].revents);
	}
	keeper->first = (keeper->first + 1) % CLIENTS;
}

/* A machine whose failure could not be seen does not go on. */
static bool has_failed(struct monitor *monitor)
{
	return monitor_is_closed(monitor) || monitor_read(monitor);
}

static void turn(struct keeper *keeper)
{
	struct pollfd wait[FOR_CLIENTS + CLIENTS];

	wait_for_all(keeper, wait);
	if (wait[FOR_LINK].revents & (POLLIN | POLLHUP))
		hear_guest(keeper);
	visit_clients(keeper, wait + FOR_CLIENTS);
	console_trim(keeper->machine);
	wire_flush(&keeper->link);
	if (wait[FOR_LISTENER].revents)
		take_client(keeper);
	keeper->down |= keeper->link.closed || wait[FOR_SIGNALS].revents ||
			wait[FOR_QEMU].revents || wait[FOR_SHARE].revents ||
			(wait[FOR_MONITOR].revents && has_failed(&keeper->machine->monitor));
}

static int catch_ends(void)
{
	static const int ends[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT };
	sigset_t set;

	sigemptyset(&set);
	for (u32 i = 0; i < ARRAY_SIZE(ends); i++)
		sigaddset(&set, ends[i]);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

void stay_serve(const char *name, struct exec_machine *machine, int listener)
{
	static struct keeper keeper;
	struct sockaddr_un address;

	keeper = (struct keeper){ .machine = machine, .listener = listener };
	keeper.link = (struct wire){ .fd = machine->link, .sessions = SESSIONS };
	keeper.signals = catch_ends();
	keeper.qemu = syscall(SYS_pidfd_open, machine->qemu, 0);
	keeper.share = syscall(SYS_pidfd_open, machine->share, 0);
	while (!keeper.down)
		turn(&keeper);
	machine_stop(machine);
	/* No new guest has this name while we have its lock. */
	if (!find_place(name, "socket", &address))
		unlink(address.sun_path);
}
