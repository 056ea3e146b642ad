// SPDX-License-Identifier: MIT
/*
 * The server of metrics: one thread, a bounded number of connections, each with a time limit and a
 * bounded request, and one look at the VMs for all that ask within a moment. A connection is read
 * until its request is complete, answered, and closed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/base/client.h"
#include "cli/base/monotonic.h"
#include "cli/cli.h"
#include "cli/exporter/exporter.h"

#define CONNECTIONS 64
#define PATIENCE    5000 /* ms: for a request to come, and for its answer to go */
#define LOOK_MS	    3000 /* for all VMs together */
#define FRESH_MS    50	 /* a look is shared for so long: no client makes VMs answer more often */
#define HEAD	    512

struct connection {
	int fd; /* -1: none */
	u64 since;
	size_t nrequest;
	char request[MAX_REQUEST];
	char head[HEAD];
	size_t nhead;
	char *body; /* NULL: not answered yet, or none */
	size_t nbody, sent;
	bool answering;
};

struct server {
	int fd;
	bool full; /* the process or the system had no descriptor for a client: try again later */
	struct connection connection[CONNECTIONS];
	struct vm_snapshots look, before;
	u64 looked; /* ms; 0: never */
	struct exporter_state state;
};

static volatile sig_atomic_t ended;

static void end(int sig)
{
	(void)sig;
	ended = 1;
}

/* --- answers --- */

static void refresh(struct server *server)
{
	u64 now = monotonic_ms();

	if (server->looked && now - server->looked < FRESH_MS)
		return;
	server->before = server->look;
	exporter_collect(&server->look, &server->before, LOOK_MS);
	server->looked = monotonic_ms();
}

static bool make_body(struct server *server, struct connection *c, enum http_verdict verdict,
		      const struct http_request *request)
{
	if (verdict != HTTP_METRICS) {
		c->body = strdup(http_page(verdict));
		c->nbody = c->body ? strlen(c->body) : 0;
		return c->body;
	}
	server->state.scrapes++;
	refresh(server);
	c->body = exporter_text(&server->look, &server->state, request->format, &c->nbody);
	return c->body;
}

/* False: hang up. */
static bool answer(struct server *server, struct connection *c, enum http_verdict verdict,
		   const struct http_request *request)
{
	if (!make_body(server, c, verdict, request))
		return false;
	c->nhead = http_head(verdict, request, c->nbody, c->head, sizeof(c->head));
	if (request->head)
		c->nbody = 0;
	c->since = monotonic_ms(); /* looking has taken its time */
	c->answering = true;
	return c->nhead;
}

static bool send_part(struct connection *c, const char *text, size_t n, size_t from)
{
	ssize_t done;

	if (c->sent >= from + n)
		return true;
	done = send(c->fd, text + (c->sent - from), from + n - c->sent,
		    MSG_NOSIGNAL | MSG_DONTWAIT);
	if (done > 0)
		c->sent += done;
	return done > 0 || errno == EAGAIN || errno == EINTR;
}

/* False: it is done, or the client is gone. */
static bool send_answer(struct connection *c)
{
	if (c->sent < c->nhead)
		return send_part(c, c->head, c->nhead, 0) && (c->nbody || c->sent < c->nhead);
	return send_part(c, c->body, c->nbody, c->nhead) && c->sent < c->nhead + c->nbody;
}

/* --- connections --- */

static void hang_up(struct connection *c)
{
	char rest[1024];

	/* What was not read would have the kernel reset the connection, and the answer with it. */
	shutdown(c->fd, SHUT_WR);
	while (recv(c->fd, rest, sizeof(rest), MSG_DONTWAIT) > 0 && c->nrequest < 16 * MAX_REQUEST)
		c->nrequest += sizeof(rest);
	close(c->fd);
	free(c->body);
	c->body = NULL;
	c->fd = -1;
}

static bool receive(struct server *server, struct connection *c)
{
	ssize_t n = recv(c->fd, c->request + c->nrequest, sizeof(c->request) - c->nrequest,
			 MSG_DONTWAIT);
	struct http_request request;
	enum http_verdict verdict;

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	c->nrequest += n;
	verdict = http_parse(c->request, c->nrequest, &request);
	return verdict == HTTP_INCOMPLETE || answer(server, c, verdict, &request);
}

static bool attend(struct server *server, struct connection *c)
{
	return c->answering ? send_answer(c) : receive(server, c);
}

static void take_connection(struct server *server)
{
	int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	server->full = fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
	for (u32 i = 0; i < CONNECTIONS && fd >= 0; i++) {
		struct connection *c = &server->connection[i];

		if (c->fd >= 0)
			continue;
		c->fd = fd;
		c->since = monotonic_ms();
		c->nrequest = c->nhead = c->nbody = c->sent = 0;
		c->answering = false;
		return;
	}
	if (fd >= 0)
		close(fd);
}

/*
 * Clients beyond those that fit wait in the kernel's queue until one is done or is too slow. Only
 * connections that exist are polled: poll() refuses more entries than RLIMIT_NOFILE.
 */
static void turn(struct server *server)
{
	struct pollfd fds[CONNECTIONS + 1];
	struct connection *polled[CONNECTIONS];
	bool full = server->full;
	u32 n = 0;

	for (struct connection *c = server->connection; c < server->connection + CONNECTIONS; c++) {
		if (c->fd < 0)
			continue;
		fds[n] = (struct pollfd){ c->fd, c->answering ? POLLOUT : POLLIN, 0 };
		polled[n++] = c;
	}
	/* A client that cannot be taken stays in the queue, where poll() would find it at once. */
	fds[n] = (struct pollfd){ n < CONNECTIONS && !full ? server->fd : -1, POLLIN, 0 };
	server->full = false;
	if (poll(fds, n + 1, n || full ? 1000 : -1) < 0)
		return;
	for (u32 i = 0; i < n; i++)
		if ((fds[i].revents && !attend(server, polled[i])) ||
		    monotonic_ms() - polled[i]->since > PATIENCE)
			hang_up(polled[i]);
	if (fds[n].revents & POLLIN)
		take_connection(server);
}

/* --- the address --- */

static bool is_local(const struct sockaddr *address)
{
	const struct sockaddr_in6 *six = (const void *)address;
	const struct sockaddr_in *four = (const void *)address;

	if (address->sa_family == AF_INET)
		return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return address->sa_family == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) ||
						  (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) &&
						   six->sin6_addr.s6_addr[12] == IN_LOOPBACKNET));
}

/* "HOST:PORT", "[HOST]:PORT" or "PORT". False: it is none of these. */
static bool split(const char *text, char host[256], char port[16])
{
	const char *colon = strrchr(text, ':');
	const char *begin = text, *end = colon ?: text;

	snprintf(port, 16, "%s", colon ? colon + 1 : text);
	if (!port[0] || port[strspn(port, "0123456789")] || strtoul(port, NULL, 10) > 65535)
		return false;
	if (begin[0] == '[' && end > begin && end[-1] == ']')
		begin++, end--;
	else if (memchr(begin, ':', end - begin))
		return false; /* an IPv6 address without brackets */
	snprintf(host, 256, "%.*s", (int)(end - begin), begin);
	return colon ? host[0] : true;
}

static int listen_on(const struct addrinfo *found)
{
	int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!bind(fd, found->ai_addr, found->ai_addrlen) && !listen(fd, CONNECTIONS))
		return fd;
	close(fd);
	return -1;
}

/* Scrapers, and people, are told where: the port may have been 0. */
static void say_where(int fd)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	char host[INET6_ADDRSTRLEN], port[16];

	if (getsockname(fd, (void *)&address, &size) ||
	    getnameinfo((void *)&address, size, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	fprintf(stderr, "vpmu exporter: http://%s%s%s:%s/metrics\n",
		address.ss_family == AF_INET6 ? "[" : "", host,
		address.ss_family == AF_INET6 ? "]" : "", port);
}

static int open_address(const char *text, bool allow_remote, int *fd)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *found;
	char host[256], port[16];
	int error, status = STATUS_OK;

	if (!split(text, host, port))
		return usage_error(&command_exporter,
				   "'%s' is no address: HOST:PORT, [HOST]:PORT or PORT", text);
	error = getaddrinfo(host[0] ? host : "127.0.0.1", port, &hints, &found);
	if (error)
		return failure(STATUS_BROKEN, "cannot listen on %s: %s", text, gai_strerror(error));
	if (!allow_remote && !is_local(found->ai_addr))
		status = failure(STATUS_USAGE,
				 "%s can be reached from other machines, and what VMs do would be "
				 "seen there: --allow-remote allows it",
				 text);
	else
		*fd = listen_on(found);
	if (!status && *fd < 0)
		status = failure(STATUS_BROKEN, "cannot listen on %s: %s%s", text, strerror(errno),
				 errno == EADDRINUSE ? "; --listen chooses another port" : "");
	freeaddrinfo(found);
	return status;
}

int exporter_serve(const char *address, bool allow_remote)
{
	static struct server server;
	struct sigaction action = { .sa_handler = end };
	int status = open_address(address, allow_remote, &server.fd);

	if (status)
		return status;
	for (u32 i = 0; i < CONNECTIONS; i++)
		server.connection[i].fd = -1;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	say_where(server.fd);
	while (!ended)
		turn(&server);
	close(server.fd);
	return STATUS_OK;
}
