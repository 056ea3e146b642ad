// SPDX-License-Identifier: MIT
/*
 * The vhost-user messages of a hostile QEMU, and the virtqueues of a hostile guest, to the server
 * of the host's files: everything that share_serve() does but for its sandbox, which would hold
 * this process too. The messages lie ready in the socket when it starts, and the socket's end is
 * after the last one. AddressSanitizer sees what leaves guest memory: the pages around it are no
 * memory.
 *
 * Input: size of guest memory's contents (2 bytes), contents; then messages: type, descriptors sent
 * with it (bits 3:0 how many, 7:4 which), size of the body, body.
 */
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "base/types.h"

#define GUARD (1ull << 20) /* more than the largest queue */

static void *map_guarded(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	u8 *all = size && size < BIT(46) ? mmap(NULL, size + 2 * GUARD, PROT_NONE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
					 : MAP_FAILED;

	(void)at;
	if (all == MAP_FAILED ||
	    mmap(all + GUARD, size, protection, flags | MAP_FIXED, fd, offset) != MAP_FAILED)
		return all == MAP_FAILED ? all : all + GUARD;
	munmap(all, size + 2 * GUARD);
	return MAP_FAILED;
}

static int unmap_guarded(void *at, size_t size)
{
	return munmap((u8 *)at - GUARD, size + 2 * GUARD);
}

#define mmap   map_guarded
#define munmap unmap_guarded
#include "exec/share/vhost_user.c"
#undef mmap
#undef munmap

#include "base/must.h"
#include "fuzz/fuzz.h"

#define RAM	     (64u << 10)
#define MAX_MESSAGES 48

enum { FD_RAM, FD_EVENT, FD_SHORT, FD_FOLDER, NFDS };

static int fds[NFDS];

void fuzz_set_up(void)
{
	fds[FD_RAM] = memfd_create("ram", MFD_CLOEXEC);
	fds[FD_EVENT] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fds[FD_SHORT] = memfd_create("short", MFD_CLOEXEC);
	fds[FD_FOLDER] = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (u32 i = 0; i < NFDS; i++)
		must(fds[i] >= 0);
	must(!ftruncate(fds[FD_SHORT], PAGE_SIZE));
}

/* Of the input's bytes and zeros, as nothing else: what the last input left is gone. */
static void fill_ram(struct fuzz_input *in)
{
	static u8 bytes[RAM];
	size_t size = fuzz_number(in, 2), n = fuzz_take(in, bytes, size < RAM ? size : RAM);

	must(!ftruncate(fds[FD_RAM], 0) && !ftruncate(fds[FD_RAM], RAM));
	must(pwrite(fds[FD_RAM], bytes, n, 0) == (ssize_t)n);
}

/* Before the socket's end, so that the queues have a turn after the last message. */
static void send_last(int socket)
{
	const struct message message = { .type = SET_OWNER, .flags = MESSAGE_VERSION };

	must(send(socket, &message, HEADER_SIZE, MSG_NOSIGNAL) == (ssize_t)HEADER_SIZE);
}

static void send_message(struct fuzz_input *in, int socket)
{
	struct message message = { .type = fuzz_u8(in), .flags = MESSAGE_VERSION };
	u8 with = fuzz_u8(in), count = (with & 15) % (MAX_REGIONS + 2);
	union {
		char bytes[CMSG_SPACE((MAX_REGIONS + 2) * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec piece = { &message, HEADER_SIZE };
	struct msghdr how = { .msg_iov = &piece, .msg_iovlen = 1 };
	u64 kicked = 1;

	message.size = fuzz_u8(in) + (with & 0x80 ? 0x80000000u : 0);
	piece.iov_len += fuzz_take(in, &message.body,
				   message.size < sizeof(message.body) ? message.size
								       : sizeof(message.body));
	if (count) {
		how.msg_control = &control;
		how.msg_controllen = CMSG_SPACE(count * sizeof(int));
		memset(&control, 0, sizeof(control));
		CMSG_FIRSTHDR(&how)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&how)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&how)->cmsg_len = CMSG_LEN(count * sizeof(int));
		for (u32 i = 0; i < count; i++)
			memcpy(CMSG_DATA(CMSG_FIRSTHDR(&how)) + i * sizeof(int),
			       &fds[(with >> 4) % NFDS], sizeof(int));
	}
	must(write(fds[FD_EVENT], &kicked, sizeof(kicked)) == sizeof(kicked));
	must(sendmsg(socket, &how, MSG_NOSIGNAL) == (ssize_t)piece.iov_len);
}

/* As share_serve() makes it. */
static struct share *make_share(int socket)
{
	static u8 in[MAX_BODY + PAGE_SIZE + 1];
	struct share *share = calloc(1, sizeof(*share));

	must(share && nodes_start(&share->nodes));
	share->socket = socket;
	share->root = fds[FD_FOLDER];
	share->in = in;
	for (u32 i = 0; i < MAX_QUEUES; i++)
		share->queue[i].kick = share->queue[i].call = -1;
	return share;
}

static void end_share(struct share *share)
{
	for (u32 i = 0; i < MAX_QUEUES; i++) {
		if (share->queue[i].kick >= 0)
			close(share->queue[i].kick);
		if (share->queue[i].call >= 0)
			close(share->queue[i].call);
	}
	for (u32 i = 0; i < share->handle_count; i++)
		if (share->handle[i].fd >= 0)
			close(share->handle[i].fd);
	for (u32 i = 2; i < share->nodes.count; i++)
		free(share->nodes.node[i].name);
	unmap_memory(share);
	free(share->nodes.node);
	free(share->handle);
	free(share);
}

void fuzz_one(struct fuzz_input *in)
{
	int ends[2];
	struct share *share;
	u64 kicks;

	fill_ram(in);
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	for (u32 i = 0; i < MAX_MESSAGES && fuzz_left(in); i++)
		send_message(in, ends[1]);
	send_last(ends[1]);
	must(!shutdown(ends[1], SHUT_WR));
	share = make_share(ends[0]);
	serve(share);
	end_share(share);
	close(ends[0]);
	close(ends[1]);
	if (read(fds[FD_EVENT], &kicks, sizeof(kicks)) < 0)
		must(errno == EAGAIN);
}
