// SPDX-License-Identifier: MIT
/*
 * Talking to running VMs. The sockets have abstract names, "vpmu/UID/PID", which the kernel lists
 * in /proc/net/unix; who is at the other end is asked of the kernel too, since anybody may take a
 * name, and let nobody in.
 */
#include "cli/base/client.h"
#include "cli/base/monotonic.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE    10 /* seconds */
#define BUSY_TRIES  10
#define BUSY_TRY_NS 10000000
#define REQUEST	    8192

#define PID_LIMIT (4 << 20) /* of Linux: PID_MAX_LIMIT */
#define LISTENS	  0x10000   /* a flag in /proc/net/unix: __SO_ACCEPTCON */

/* The process of a line of /proc/net/unix; 0: it is no socket that listens, or has another name. */
static int listener_pid(const char *line, const char *prefix)
{
	size_t length = strlen(prefix);
	unsigned flags;
	int name = 0;
	char *end;
	long pid;

	/* Connections have the name of the socket that took them. */
	if (sscanf(line, "%*s %*s %*s %x %*s %*s %*s %n", &flags, &name) != 1 || !name ||
	    !(flags & LISTENS) || strncmp(line + name, prefix, length))
		return 0;
	line += name + length;
	if (*line < '1' || *line > '9')
		return 0;
	pid = strtol(line, &end, 10);
	return strcmp(end, "\n") || pid >= PID_LIMIT ? 0 : pid;
}

static bool is_ours(int pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	return !stat(path, &st) && st.st_uid == getuid();
}

/* Other users may take names with our number, and names with line ends, which forge lines. A name
 * counts once, and only if its process is ours: connecting to others could take any time. */
void client_each(void (*visit)(int pid, void *arg), void *arg)
{
	FILE *f = fopen("/proc/net/unix", "re");
	u8 *seen = calloc(PID_LIMIT / 8, 1);
	char line[512], prefix[64];

	snprintf(prefix, sizeof(prefix), "@vpmu/%u/", (unsigned)getuid());
	while (f && seen && fgets(line, sizeof(line), f)) {
		int pid = listener_pid(line, prefix);

		if (!pid || (seen[pid / 8] & 1 << pid % 8) || !is_ours(pid))
			continue;
		seen[pid / 8] |= 1 << pid % 8;
		visit(pid, arg);
	}
	free(seen);
	if (f)
		fclose(f);
}

void client_process_name(int pid, char *out, size_t size)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	f = fopen(path, "re");
	if (!f || !fgets(out, size, f))
		snprintf(out, size, "?");
	out[strcspn(out, "\n")] = '\0';
	make_printable(out);
	if (f)
		fclose(f);
}

static bool is_friend(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == getuid())
		return true;
	errno = EACCES;
	return false;
}

/* How long the next call may take. False, and ETIMEDOUT: no time is left. */
static bool set_patience(const struct client *client)
{
	struct timeval patience = { .tv_sec = PATIENCE };

	if (client->deadline) {
		u64 now = monotonic_ms(), left = client->deadline - now;

		if (now >= client->deadline) {
			errno = ETIMEDOUT;
			return false;
		}
		patience.tv_sec = left / 1000;
		patience.tv_usec = left % 1000 * 1000;
	}
	setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return true;
}

/* A VM lets 128 clients wait: one that has more is soon done with some, or is none. */
bool client_open(struct client *client, int pid)
{
	const struct timespec pause = { .tv_nsec = BUSY_TRY_NS };

	for (u32 i = 0; i < BUSY_TRIES; i++) {
		if (client_open_until(client, pid, 0))
			return true;
		if (errno != EAGAIN)
			return false;
		nanosleep(&pause, NULL);
	}
	errno = EAGAIN;
	return false;
}

/* Until it is known whose the socket is it is not waited for: EAGAIN. */
static bool connect_now(int fd, const struct sockaddr_un *address, socklen_t size)
{
	return !connect(fd, (const void *)address, size) && is_friend(fd) && !fcntl(fd, F_SETFL, 0);
}

bool client_open_until(struct client *client, int pid, u64 deadline)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int n = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "vpmu/%u/%d",
			 (unsigned)getuid(), pid);

	*client = (struct client){ .pid = pid, .deadline = deadline };
	client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (client->fd < 0)
		return false;
	if (set_patience(client) &&
	    connect_now(client->fd, &address, offsetof(struct sockaddr_un, sun_path) + 1 + n))
		return true;
	client_close(client);
	return false;
}

void client_close(struct client *client)
{
	close(client->fd);
	client->fd = -1;
}

/* The next line of the answer, without its end; false: none came. All of it may be printed: a guest
 * may have taken over the process that says it. */
static bool next_line(struct client *client, char *out, size_t size)
{
	size_t used = 0;

	for (;;) {
		if (client->at == client->nin) {
			ssize_t n = client->deadline && !set_patience(client)
					    ? -1
					    : recv(client->fd, client->in, sizeof(client->in), 0);

			if (!n)
				errno = ECONNRESET;
			if (n <= 0)
				return false;
			client->nin = n;
			client->at = 0;
		}
		if (client->in[client->at] == '\n')
			break;
		if (used + 1 < size)
			out[used++] = client->in[client->at];
		client->at++;
	}
	client->at++;
	out[used] = '\0';
	make_printable(out);
	return true;
}

bool client_ask(struct client *client, void (*line)(char *line, void *arg), void *arg,
		const char *fmt, ...)
{
	char text[REQUEST];
	va_list args;
	int n = snprintf(text, sizeof(text), "%u ", client->vm);

	client->refused = false;
	va_start(args, fmt);
	n += vsnprintf(text + n, sizeof(text) - n - 1, fmt, args);
	va_end(args);
	text[n++] = '\n';
	if (send(client->fd, text, n, MSG_NOSIGNAL) != n)
		return false;
	for (;;) {
		if (!next_line(client, text, sizeof(text)))
			return false;
		if (!strcmp(text, "."))
			return !client->refused;
		if (!strncmp(text, "error: ", 7)) {
			failure(STATUS_BROKEN, "%s", text + 7);
			client->refused = true;
		} else if (line) {
			line(text, arg);
		}
	}
}

int client_failed(const struct client *client)
{
	if (client->refused)
		return STATUS_BROKEN;
	return failure(STATUS_BROKEN, "process %d does not answer: has the VM ended?", client->pid);
}

int client_tell(struct client *client, const char *fmt, ...)
{
	char text[REQUEST];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (n >= REQUEST - 16)
		return failure(STATUS_USAGE, "that is too much for one request");
	return client_ask(client, NULL, NULL, "%s", text) ? STATUS_OK : client_failed(client);
}

const char *client_word(const char *line, const char *key, char *out, size_t size)
{
	size_t n = strlen(key);

	for (const char *at = line; (at = strstr(at, key)); at += n) {
		if ((at != line && at[-1] != ' ') || at[n] != ' ')
			continue;
		at += n + 1;
		snprintf(out, size, "%.*s", (int)strcspn(at, " "), at);
		return out;
	}
	return NULL;
}

u64 client_number(const char *line, const char *key)
{
	char word[32];

	return client_word(line, key, word, sizeof(word)) ? strtoull(word, NULL, 0) : 0;
}

/* --- which VM --- */

struct search {
	struct client *client;
	u32 found;
};

/* The first stays open. A name that another user has taken is none of ours: it does not count. */
static void note_process(int pid, void *arg)
{
	struct search *search = arg;
	struct client other;

	if (!client_open_until(search->found ? &other : search->client, pid, 0))
		return;
	if (search->found++)
		client_close(&other);
}

static void note_vm(char *line, void *arg)
{
	struct search *search = arg;
	struct client *client = search->client;

	search->found++;
	client->vm = client_number(line, "vm");
	client_word(line, "model", client->model, sizeof(client->model));
	client_word(line, "pmu", client->mode, sizeof(client->mode));
	client_word(line, "accounting", client->accounting, sizeof(client->accounting));
	client_word(line, "timing", client->timing, sizeof(client->timing));
	client_word(line, "llc", client->llc, sizeof(client->llc));
	client_word(line, "llc_life", client->llc_life, sizeof(client->llc_life));
}

/* A number from 1 to `most`. What follows its digits, or NULL: it is none. */
static const char *read_number(const char *at, u64 most, u64 *out)
{
	char *end;

	if (*at < '0' || *at > '9')
		return NULL;
	*out = strtoull(at, &end, 10);
	return *out && *out <= most ? end : NULL;
}

static int not_opened(int pid)
{
	if (errno == ECONNREFUSED)
		return failure(STATUS_BROKEN, "there is no VM in process %d: vpmu ps lists them",
			       pid);
	return failure(STATUS_BROKEN, "cannot ask process %d: %s", pid, strerror(errno));
}

static int open_named(struct client *client, const struct command *command, const char *word)
{
	u64 pid, vm = 0;
	const char *end = read_number(word, PID_LIMIT - 1, &pid);

	if (end && *end == '.')
		end = read_number(end + 1, UINT32_MAX, &vm);
	if (!end || *end)
		return usage_error(command,
				   "'%s' names no VM: PID or PID.NUMBER, as vpmu ps shows them",
				   word);
	if (!client_open(client, pid))
		return not_opened(pid);
	client->vm = vm;
	return STATUS_OK;
}

static int open_only(struct client *client, const struct command *command)
{
	struct search search = { .client = client };

	client_each(note_process, &search);
	if (search.found == 1)
		return STATUS_OK;
	if (!search.found)
		return usage_error(command, "there is no VM: vpmu exec or vpmu kvm starts one");
	client_close(client);
	return usage_error(command, "there are several VMs: say which; vpmu ps lists them");
}

int client_find(struct client *client, const struct command *command, const char *word)
{
	struct search search = { .client = client };
	int status = word ? open_named(client, command, word) : open_only(client, command);

	if (status)
		return status;
	if (!client_ask(client, note_vm, &search, "list"))
		return client_failed(client);
	if (search.found != 1)
		return usage_error(command, "process %d has %u VMs: say which, %d.NUMBER",
				   client->pid, search.found, client->pid);
	return STATUS_OK;
}
