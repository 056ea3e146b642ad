// SPDX-License-Identifier: MIT
/*
 * The vhost-user side of the device: QEMU's messages (docs/interop/vhost-user.rst in its sources)
 * name guest memory, queues and event descriptors; then requests come by the queues. The socket's
 * end is the device's.
 */
#include "exec/share/share.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/poll_window.h"
#include "base/turns.h"
#include "exec/sandbox.h"

enum message_type {
	GET_FEATURES = 1,
	SET_FEATURES = 2,
	SET_OWNER = 3,
	SET_MEM_TABLE = 5,
	SET_VRING_NUM = 8,
	SET_VRING_ADDR = 9,
	SET_VRING_BASE = 10,
	GET_VRING_BASE = 11,
	SET_VRING_KICK = 12,
	SET_VRING_CALL = 13,
	SET_VRING_ERR = 14,
	GET_PROTOCOL_FEATURES = 15,
	SET_PROTOCOL_FEATURES = 16,
	GET_QUEUE_NUM = 17,
	SET_VRING_ENABLE = 18,
};

#define MESSAGE_VERSION 1
#define MESSAGE_REPLY	4
#define NO_DESCRIPTOR	0x100 /* in the number of a queue */
#define PROTOCOL_MQ	BIT(0)
#define HAS_PROTOCOL	BIT(30) /* in GET_FEATURES */

struct message {
	u32 type, flags, size;
	union {
		u64 number;
		struct vhost_vring_state state;
		struct vhost_vring_addr address;
		struct {
			u32 count, padding;
			struct table_region {
				u64 gpa, size, qemu_address, offset;
			} region[MAX_REGIONS];
		} memory;
	} body;
	int fd[MAX_REGIONS]; /* received with it, -1 where none */
} __attribute__((packed, aligned(4)));

#define HEADER_SIZE offsetof(struct message, body)

static struct queue *queue_of(struct share *share, u32 index)
{
	return index < MAX_QUEUES ? &share->queue[index] : NULL;
}

/* Again whenever memory is mapped again. */
static void place_rings(struct share *share, struct queue *queue)
{
	u64 n = queue->size;

	queue->desc = share_qemu(share, queue->desc_address, n * sizeof(*queue->desc));
	queue->avail = share_qemu(share, queue->avail_address, sizeof(*queue->avail) + 2 * n);
	queue->used = share_qemu(share, queue->used_address,
				 sizeof(*queue->used) + n * sizeof(queue->used->ring[0]));
	if (!n || !queue->desc || !queue->avail || !queue->used)
		queue->desc = NULL;
}

/* Requests are served one after the other, so what is not in the used ring is not served. That
 * agrees with the base that QEMU gives, but where the device is new to QEMU and not to the guest:
 * exec/guest/parked.c. */
static void go_on(struct queue *queue)
{
	if (queue->desc)
		queue->next = READ_ONCE(queue->used->idx);
}

static void unmap_memory(struct share *share)
{
	for (u32 i = 0; i < share->region_count; i++)
		munmap(share->region[i].map - (share->region[i].map_size - share->region[i].size),
		       share->region[i].map_size);
	share->region_count = 0;
}

/* Beyond the end of its file, memory that is mapped cannot be touched. */
static bool holds(int fd, u64 size)
{
	struct stat st;

	return !fstat(fd, &st) && (u64)st.st_size >= size;
}

static bool map_memory(struct share *share, const struct message *message)
{
	unmap_memory(share);
	if (message->body.memory.count > MAX_REGIONS)
		return false;
	for (u32 i = 0; i < message->body.memory.count; i++) {
		struct table_region from = message->body.memory.region[i];
		u64 size = from.size + from.offset;
		void *map;

		if (!holds(message->fd[i], size) || size < from.size)
			return false;
		map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, message->fd[i], 0);

		if (map == MAP_FAILED) {
			share->error = errno;
			return false;
		}
		share->region[share->region_count++] =
			(struct region){ .gpa = from.gpa,
					 .size = from.size,
					 .qemu_address = from.qemu_address,
					 .map = (u8 *)map + from.offset,
					 .map_size = size };
	}
	for (u32 i = 0; i < MAX_QUEUES; i++)
		if (share->queue[i].desc)
			place_rings(share, &share->queue[i]);
	return true;
}

static void replace_descriptor(int *fd, struct message *message)
{
	if (*fd >= 0)
		close(*fd);
	*fd = message->body.number & NO_DESCRIPTOR ? -1 : message->fd[0];
	if (*fd == message->fd[0])
		message->fd[0] = -1;
}

static bool set_up_queue(struct share *share, struct message *message)
{
	struct queue *queue = queue_of(share, message->body.state.index & 0xff);

	if (!queue)
		return false;
	switch (message->type) {
	case SET_VRING_NUM: /* its rings are placed again by SET_VRING_ADDR */
		queue->desc = NULL;
		queue->size = message->body.state.num;
		return queue->size && queue->size <= 32768 && !(queue->size & (queue->size - 1));
	case SET_VRING_BASE:
		queue->next = message->body.state.num;
		return true;
	case SET_VRING_ADDR:
		queue->desc_address = message->body.address.desc_user_addr;
		queue->avail_address = message->body.address.avail_user_addr;
		queue->used_address = message->body.address.used_user_addr;
		place_rings(share, queue);
		go_on(queue);
		return queue->desc;
	case SET_VRING_KICK:
		replace_descriptor(&queue->kick, message);
		return true;
	case SET_VRING_CALL:
		replace_descriptor(&queue->call, message);
		return true;
	case SET_VRING_ENABLE:
		queue->enabled = message->body.state.num;
		return true;
	default: /* SET_VRING_ERR: there is nothing to tell */
		return true;
	}
}

/* What GET_… is answered with; false for other messages. */
static bool reply_of(struct share *share, struct message *message)
{
	struct queue *queue;

	switch (message->type) {
	case GET_FEATURES:
		message->body.number =
			BIT(VIRTIO_F_VERSION_1) | HAS_PROTOCOL | BIT(VIRTIO_RING_F_INDIRECT_DESC);
		break;
	case GET_PROTOCOL_FEATURES:
		message->body.number = PROTOCOL_MQ;
		break;
	case GET_QUEUE_NUM:
		message->body.number = MAX_QUEUES;
		break;
	case GET_VRING_BASE: /* the queue stops */
		queue = queue_of(share, message->body.state.index);
		message->body.state.num = queue ? queue->next : 0;
		if (queue)
			queue->desc = NULL;
		break;
	default:
		return false;
	}
	message->size = sizeof(message->body.number);
	message->flags = MESSAGE_VERSION | MESSAGE_REPLY;
	return true;
}

static bool receive(int socket, struct message *message)
{
	union {
		char bytes[CMSG_SPACE(sizeof(message->fd))];
		struct cmsghdr align;
	} control;
	struct iovec header = { message, HEADER_SIZE };
	struct msghdr how = { .msg_iov = &header,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *extra;

	memset(message, 0, sizeof(*message));
	memset(message->fd, -1, sizeof(message->fd));
	if (recvmsg(socket, &how, MSG_CMSG_CLOEXEC | MSG_WAITALL) != (ssize_t)HEADER_SIZE)
		return false;
	extra = CMSG_FIRSTHDR(&how);
	if (extra && extra->cmsg_type == SCM_RIGHTS)
		memcpy(message->fd, CMSG_DATA(extra), extra->cmsg_len - CMSG_LEN(0));
	if (!message->size)
		return true;
	return message->size <= sizeof(message->body) &&
	       recv(socket, &message->body, message->size, MSG_WAITALL) == (ssize_t)message->size;
}

static bool obey(struct share *share, struct message *message)
{
	switch (message->type) {
	case SET_FEATURES:
	case SET_PROTOCOL_FEATURES:
	case SET_OWNER:
		return true;
	case SET_MEM_TABLE:
		return map_memory(share, message);
	case SET_VRING_NUM ... SET_VRING_BASE:
	case SET_VRING_KICK ... SET_VRING_ERR:
	case SET_VRING_ENABLE:
		return set_up_queue(share, message);
	default:
		return false;
	}
}

static bool serve_message(struct share *share)
{
	struct message message;
	bool ok = receive(share->socket, &message);

	if (ok && reply_of(share, &message)) {
		ssize_t size = HEADER_SIZE + message.size;

		ok = send(share->socket, &message, size, MSG_NOSIGNAL) == size;
	} else if (ok) {
		ok = obey(share, &message);
		if (!ok && !share->error)
			share->error = EPROTO;
	}
	for (u32 i = 0; i < ARRAY_SIZE(message.fd); i++)
		if (message.fd[i] >= 0)
			close(message.fd[i]);
	return ok;
}

static bool serves(const struct queue *queue)
{
	return queue->desc && queue->kick >= 0;
}

static void serve_queue(struct share *share, struct queue *queue)
{
	struct request request = { .in = share->in };

	while (serves(queue) && queue_next(share, queue, &request)) {
		u32 written = fuse_serve(share, &request);

		queue_note(share, &request);
		queue_done(queue, &request, written);
		queue_notify(share, queue);
	}
}

/* All that have come: they are older than the kicks. */
static bool serve_messages(struct share *share)
{
	struct pollfd wait = { share->socket, POLLIN, 0 };

	do {
		if (!serve_message(share))
			return false;
	} while (poll(&wait, 1, 0) > 0);
	return true;
}

static bool any_request(const struct share *share)
{
	for (u32 i = 0; i < MAX_QUEUES; i++)
		if (serves(&share->queue[i]) && queue_has_next(&share->queue[i]))
			return true;
	return false;
}

static void want_kicks(struct share *share, bool wanted)
{
	for (u32 i = 0; i < MAX_QUEUES; i++)
		if (serves(&share->queue[i]))
			queue_want_kicks(&share->queue[i], wanted);
}

static void begin_turn(struct share *share)
{
	if (share->virtual_time)
		turns_begin(share->virtual_time->page);
}

static void end_turn(struct share *share)
{
	if (share->virtual_time)
		turns_end(share->virtual_time->page);
}

/* In our turn: a guest on virtual time that finds its kick read, and no turn, goes on as if its
 * request had been served. False: there was none. */
static bool take_kick(const struct queue *queue, const struct pollfd *file)
{
	u64 kicks;

	return (file->revents & POLLIN) && queue->kick == file->fd &&
	       read(queue->kick, &kicks, sizeof(kicks)) == sizeof(kicks);
}

/* Without a kick only where the guest cannot tell when its request was found. */
static void serve_queues(struct share *share, const struct pollfd kicks[MAX_QUEUES])
{
	for (u32 i = 0; i < MAX_QUEUES; i++) {
		struct queue *queue = &share->queue[i];

		if (take_kick(queue, &kicks[i]) || !share->virtual_time)
			serve_queue(share, queue);
	}
}

#define WAITED (1 + MAX_QUEUES) /* QEMU's socket, and kicks */

static bool has_come(const struct share *share, struct pollfd files[WAITED])
{
	return share->virtual_time ? poll(files, WAITED, 0) : any_request(share);
}

/* Looks for requests for as long as that is worth it. They are seen in the rings, and the driver
 * need not kick meanwhile; on virtual time our turn begins with a kick. */
static void look_for_request(struct share *share, struct pollfd files[WAITED],
			     struct poll_window *window, struct poll_look *look)
{
	want_kicks(share, share->virtual_time);
	while (!has_come(share, files) && poll_again(window, look))
		;
	want_kicks(share, true);
}

/* Until there may be a request, or QEMU says something, as files[] tell then. False: errno. */
static bool wait_for(struct share *share, struct poll_window *window, struct pollfd files[WAITED])
{
	struct poll_look look = poll_begin(window, POLL_MOST_NS);
	int ready;

	files[0] = (struct pollfd){ share->socket, POLLIN, 0 };
	for (u32 i = 0; i < MAX_QUEUES; i++)
		files[1 + i] = (struct pollfd){ share->queue[i].kick, POLLIN, 0 };
	if (window->ns)
		look_for_request(share, files, window, &look);
	ready = poll(files, WAITED, !share->virtual_time && any_request(share) ? 0 : -1);
	poll_learn(window, &look, POLL_MOST_NS);
	return ready >= 0 || errno == EINTR;
}

static void serve(struct share *share)
{
	struct poll_window window = { 0 };
	struct pollfd files[WAITED];

	while (wait_for(share, &window, files)) {
		begin_turn(share);
		if (files[0].revents && !serve_messages(share))
			return;
		serve_queues(share, files + 1);
		end_turn(share);
	}
	share->error = errno;
}

/* As many files as the system allows: every file that is open in the guest is one here. */
static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return;
}

int share_serve(int socket, const char *const *writable, u32 count, const char *const *own,
		const struct share_terms *terms, struct written *ring, bool is_brief)
{
	struct share *share = calloc(1, sizeof(*share));
	int error;

	if (!share || !nodes_start(&share->nodes))
		return ENOMEM;
	share->socket = socket;
	share->virtual_time = terms;
	share->written = ring;
	share->writable = writable;
	share->writable_count = count;
	share->own = own;
	share->is_brief = is_brief;
	share->in = malloc(MAX_BODY + PAGE_SIZE + 1);
	share->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (!share->in || share->root < 0)
		return share->in ? errno : ENOMEM;
	for (u32 i = 0; i < MAX_QUEUES; i++)
		share->queue[i].kick = share->queue[i].call = -1;
	umask(0); /* the guest's kernel has applied that of the process */
	raise_limit();
	error = sandbox_serve_files(writable, count);
	if (error)
		return error;
	serve(share);
	return share->error;
}
