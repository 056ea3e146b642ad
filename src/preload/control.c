// SPDX-License-Identifier: MIT
/*
 * The control socket: a thread of ours in the program's process, from its first VM on, that carries
 * lines between clients and VMs (docs/control.md). It takes no signals of the program's, waits only
 * in poll() and, for seconds at most, for a vCPU's answer (vm/control), and ends quietly when the
 * program closes its descriptors.
 *
 * The socket has an abstract name: unlike a file it is gone with the process, however that ends.
 * What a file's mode would do is done by asking the kernel who is at the other end: a client
 * that is neither the same user nor root is hung up on before a byte is read.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "base/log.h"
#include "preload/fdtab.h"
#include "preload/preload.h"
#include "preload/real_libc.h"

#define CLIENTS	 128
#define REQUEST	 8192
#define ANSWER	 (128 * 1024)
#define STACK	 (512 * 1024)
#define PATIENCE 5000 /* ms to wait for the rest of a line, and for a client to read */
#define LOW_FD	 800

/* A descriptor of ours, and which file it was: the program may have closed it and got the number
 * for another one. */
struct own_fd {
	int fd; /* -1: none */
	dev_t dev;
	ino_t ino;
};

struct client {
	struct own_fd own;
	u32 session;
	u32 nline;
	u64 since; /* ms: a line or an answer is incomplete since then; 0: neither */
	char line[REQUEST];
	char *answer;
	size_t nanswer, sent;
};

struct server {
	struct own_fd own;
	bool full; /* the program or the system had no descriptor for a client: try again later */
	u32 sessions;
	struct client client[CLIENTS];
};

static struct server *server; /* NULL: not yet, or no more */

/* High numbers, for programs that expect to get the lowest ones. */
static struct own_fd own_fd(int fd)
{
	int high = fd < 0 ? -1 : real()->fcntl(fd, F_DUPFD_CLOEXEC, LOW_FD);
	struct stat st = { 0 };

	if (high >= 0) {
		real()->close(fd);
		fd = high;
	}
	if (fd >= 0)
		fstat(fd, &st);
	return (struct own_fd){ fd, st.st_dev, st.st_ino };
}

static bool still_ours(const struct own_fd *own)
{
	struct stat st;

	return !fstat(own->fd, &st) && st.st_dev == own->dev && st.st_ino == own->ino;
}

static void close_own(struct own_fd *own)
{
	if (own->fd >= 0 && still_ours(own))
		real()->close(own->fd);
	own->fd = -1;
}

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ull + ts.tv_nsec / 1000000;
}

/* --- what a line is for --- */

struct request {
	u32 vm; /* 0: all */
	u32 session;
	const char *line;
	bool end; /* of the session */
	char *out;
	size_t size, used;
	u32 number; /* of the VM that is served now; those below it have been */
	u32 next;   /* 0: none was found yet */
	u32 served;
};

static bool find_next(struct kvm_file *file, void *arg)
{
	struct request *r = arg;
	u32 number = kvm_vm_number(file);

	if (number > r->number && (!r->vm || number == r->vm) && (!r->next || number < r->next))
		r->next = number;
	return true;
}

/* Stops at the first: a VM may have several descriptors. */
static bool serve_vm(struct kvm_file *file, void *arg)
{
	struct request *r = arg;
	char line[REQUEST];

	if (kvm_vm_number(file) != r->number)
		return true;
	r->served++;
	if (r->end) {
		kvm_control_end(file, r->session);
		return false;
	}
	snprintf(line, sizeof(line), "%s", r->line);
	r->used += kvm_control(file, r->session, line, r->out + r->used, r->size - r->used);
	return false;
}

/* In order of the VMs' numbers, which is not that of their descriptors. */
static void serve_vms(struct request *r)
{
	for (;;) {
		r->next = 0;
		fdtab_each(find_next, r);
		if (!r->next)
			return;
		r->number = r->next;
		fdtab_each(serve_vm, r);
	}
}

static void end_session(const struct client *client)
{
	struct request r = { .session = client->session, .end = true };

	serve_vms(&r);
}

/* "VM COMMAND…": the answer's lines, and a line with a dot. */
static void serve(struct client *client, char *line)
{
	char *command;
	struct request r = {
		.vm = strtoul(line, &command, 10),
		.session = client->session,
		.out = client->answer,
		.size = ANSWER - 64,
	};

	while (*command == ' ')
		command++;
	r.line = command;
	serve_vms(&r);
	if (!r.served)
		r.used =
			snprintf(r.out, r.size, "error: there is no such VM: vpmu ps lists them\n");
	client->nanswer = r.used + snprintf(client->answer + r.used, 64, ".\n");
	client->sent = 0;
}

/* --- clients --- */

static void hang_up(struct client *client)
{
	close_own(&client->own);
	free(client->answer);
	client->answer = NULL;
	end_session(client);
}

static bool is_friend(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
	       (peer.uid == geteuid() || peer.uid == 0);
}

static void take_client(struct server *s)
{
	struct own_fd own = own_fd(accept4(s->own.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

	s->full = own.fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
	if (own.fd < 0)
		return;
	for (u32 i = 0; i < CLIENTS && is_friend(own.fd); i++)
		if (s->client[i].own.fd < 0) {
			s->client[i].own = own;
			s->client[i].nline = 0;
			s->client[i].since = 0;
			s->client[i].session = ++s->sessions;
			return;
		}
	close_own(&own);
}

/* False: hang up. */
static bool send_answer(struct client *client)
{
	while (client->sent < client->nanswer) {
		ssize_t n = send(client->own.fd, client->answer + client->sent,
				 client->nanswer - client->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		client->sent += n;
	}
	free(client->answer);
	client->answer = NULL;
	client->nanswer = client->sent = 0;
	return true;
}

/* Serves the lines that are complete, one answer at a time. */
static bool serve_lines(struct client *client)
{
	while (!client->answer) {
		char *end = memchr(client->line, '\n', client->nline);
		u32 n = end ? end + 1 - client->line : 0;

		if (!end)
			break;
		*end = '\0';
		client->answer = malloc(ANSWER);
		if (!client->answer)
			return false;
		serve(client, client->line);
		client->nline -= n;
		memmove(client->line, client->line + n, client->nline);
		if (!send_answer(client))
			return false;
	}
	if (!client->answer && !client->nline)
		client->since = 0;
	else if (!client->since)
		client->since = now_ms();
	return client->nline < sizeof(client->line);
}

static bool receive(struct client *client)
{
	ssize_t n = recv(client->own.fd, client->line + client->nline,
			 sizeof(client->line) - client->nline, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	client->nline += n;
	return n;
}

static bool attend(struct client *client, short events)
{
	if ((events & (POLLERR | POLLNVAL)) || !still_ours(&client->own))
		return false;
	if (client->answer && (events & POLLOUT) && !send_answer(client))
		return false;
	if (!client->answer && (events & (POLLIN | POLLHUP)) && !receive(client))
		return false;
	return serve_lines(client);
}

/* --- the thread --- */

static void drop_the_impatient(struct server *s, u64 now)
{
	for (u32 i = 0; i < CLIENTS; i++) {
		struct client *client = &s->client[i];

		if (client->own.fd >= 0 && client->since && now - client->since > PATIENCE)
			hang_up(client);
	}
}

/* poll() refuses more descriptors than the program may have now, which can be fewer than it has. */
static void wait_for_any(struct pollfd *fds, u32 n, int ms)
{
	if (poll(fds, n, ms) < 0 && errno != EINTR)
		poll(NULL, 0, 1000);
}

static void turn(struct server *s)
{
	/* A client that cannot be taken stays in the queue, where poll() would find it at once. */
	struct pollfd fds[CLIENTS + 1] = { { .fd = s->full ? -1 : s->own.fd, .events = POLLIN } };
	struct client *polled[CLIENTS + 1];
	bool waiting = s->full;
	u32 n = 1;

	for (struct client *client = s->client; client < s->client + CLIENTS; client++) {
		if (client->own.fd < 0)
			continue;
		fds[n] = (struct pollfd){ .fd = client->own.fd,
					  .events = client->answer ? POLLOUT : POLLIN };
		polled[n++] = client;
		waiting |= !!client->since;
	}
	s->full = false;
	wait_for_any(fds, n, waiting ? 1000 : -1);
	for (u32 i = 1; i < n; i++)
		if (fds[i].revents && !attend(polled[i], fds[i].revents))
			hang_up(polled[i]);
	drop_the_impatient(s, now_ms());
	if ((fds[0].revents & POLLIN) && still_ours(&s->own))
		take_client(s);
}

static void *work(void *arg)
{
	struct server *s = arg;

	while (still_ours(&s->own))
		turn(s);
	log_info("the program has closed the control socket");
	return NULL;
}

/* --- beginning and end --- */

static struct own_fd listening_socket(void)
{
	struct own_fd own = own_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int n = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "vpmu/%u/%d",
			 (unsigned)geteuid(), (int)getpid());

	if (bind(own.fd, (void *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + n) ||
	    listen(own.fd, CLIENTS))
		close_own(&own);
	return own;
}

static bool start_thread(struct server *s)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	sigfillset(&all);
	for (u32 i = 0; i < ARRAY_SIZE(faults); i++)
		sigdelset(&all, faults[i]);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK);
	real()->pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attr, work, s);
	real()->pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return !r;
}

static struct server *make_server(void)
{
	struct server *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	for (u32 i = 0; i < CLIENTS; i++)
		s->client[i].own.fd = -1;
	s->own = listening_socket();
	if (s->own.fd >= 0 && start_thread(s))
		return s;
	close_own(&s->own);
	free(s);
	return NULL;
}

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

void control_start(void)
{
	const char *wanted = getenv("VPMU_CONTROL");
	int saved_errno = errno;

	if (__atomic_load_n(&server, __ATOMIC_ACQUIRE) || (wanted && !strcmp(wanted, "off")))
		return;
	pthread_mutex_lock(&starting);
	if (!server)
		__atomic_store_n(&server, make_server(), __ATOMIC_RELEASE);
	if (!server)
		log_once(LOG_INFO, "no control socket: vpmu ps will not see this process");
	pthread_mutex_unlock(&starting);
	errno = saved_errno;
}

/* The thread and its clients are the parent's; only the descriptors have come along. So is a thread
 * that was starting one: it will not release the lock here. */
void control_forked(void)
{
	pthread_mutex_init(&starting, NULL);
	if (!server)
		return;
	close_own(&server->own);
	for (u32 i = 0; i < CLIENTS; i++)
		close_own(&server->client[i].own);
	server = NULL;
}
