// SPDX-License-Identifier: MIT
/*
 * The file server as QEMU meets it: a confined process at the other end of a vhost-user socket. A
 * QEMU that a guest has taken over names memory that it does not hand over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/poll_window.h"
#include "base/turns.h"
#include "base/written.h"
#include "unit/share_guest.h"

enum {
	GET_FEATURES = 1,
	SET_MEM_TABLE = 5,
	SET_VRING_NUM = 8,
	SET_VRING_ADDR = 9,
	SET_VRING_BASE = 10,
	GET_VRING_BASE = 11,
	SET_VRING_KICK = 12
};

#define RAM	     (64u << 10)
#define QEMU_ADDRESS 0x10000ull

struct table {
	u32 count, padding;
	struct {
		u64 gpa, size, qemu_address, offset;
	} region;
};

/* --- QEMU's side --- */

static void put(int socket, u32 type, const void *body, u32 size, int attached)
{
	u32 header[] = { type, 1 /* version */, size };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control = { .header = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec pieces[] = { { header, sizeof(header) }, { (void *)body, size } };
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };

	if (attached >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		memcpy(CMSG_DATA(&control.header), &attached, sizeof(attached));
	}
	/* One that has ended already takes no more. */
	if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
		return;
}

/* Memory as a table says, and a queue whose rings are at its start and at `avail`. */
static void place(int socket, const struct table *table, u64 avail, int kick, int ram)
{
	const struct vhost_vring_state size = { .index = 1, .num = 16 };
	const struct vhost_vring_addr address = { .index = 1,
						  .desc_user_addr = QEMU_ADDRESS,
						  .avail_user_addr = avail,
						  .used_user_addr = QEMU_ADDRESS + 4096 };
	const u64 queue = 1;

	put(socket, SET_MEM_TABLE, table, sizeof(*table), ram);
	put(socket, SET_VRING_NUM, &size, sizeof(size), -1);
	put(socket, SET_VRING_ADDR, &address, sizeof(address), -1);
	put(socket, SET_VRING_KICK, &queue, sizeof(queue), kick);
}

static void set_up(int socket, const struct table *table, u64 avail, int kick)
{
	int ram = memfd_create("ram", MFD_CLOEXEC);

	assert_int_equal(ftruncate(ram, RAM), 0);
	place(socket, table, avail, kick, ram);
	close(ram);
}

/* A confined server at the other end of a socket. It ends with it, or by a signal. */
static pid_t start_server(int *socket, const struct share_terms *terms)
{
	int ends[2];
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60);
		close(ends[0]);
		_exit(share_serve(ends[1], NULL, 0, NULL, terms, NULL, false));
	}
	close(ends[1]);
	*socket = ends[0];
	return pid;
}

/* Whether it still answers, after its queue was kicked; `status` is its end. */
static bool answers(const struct table *table, u64 avail, int *status)
{
	int socket, kick;
	struct timeval limit = { .tv_sec = 20 };
	u64 answer[3] = { 0 };
	ssize_t n;
	pid_t pid;

	guest_want_confinement();
	kick = eventfd(1, EFD_CLOEXEC);
	pid = start_server(&socket, NULL);
	set_up(socket, table, avail, kick);
	for (u32 i = 0; i < 3; i++) /* it serves its queue between messages */
		put(socket, GET_FEATURES, NULL, 0, -1);
	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	n = recv(socket, answer, 20, MSG_WAITALL);
	close(socket);
	close(kick);
	assert_int_equal(waitpid(pid, status, 0), pid);
	return n == 20;
}

/* --- tests --- */

static void an_honest_table_is_served(void **unused)
{
	const struct table table = { 1, 0, { 0, RAM, QEMU_ADDRESS, 0 } };
	int status;

	(void)unused;
	assert_true(answers(&table, QEMU_ADDRESS + 2048, &status));
	assert_int_equal(status, 0);
}

/* A region that is longer than its file, by a sum that wraps or not; the queue is in what is not
 * there. */
static void memory_that_was_not_handed_over_is_refused(void **unused)
{
	static const struct {
		u64 size, offset, avail;
	} cases[] = {
		{ -4096ull, 8192, QEMU_ADDRESS + (1ull << 40) },
		{ 1ull << 30, 0, QEMU_ADDRESS + (512ull << 20) },
		{ RAM, 4096, QEMU_ADDRESS + RAM - 4096 },
	};

	(void)unused;
	for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct table table = { 1,
					     0,
					     { 0, cases[i].size, QEMU_ADDRESS, cases[i].offset } };
		int status;

		assert_false(answers(&table, cases[i].avail, &status));
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), EPROTO);
	}
}

/* As with a machine that was resumed with a new device: QEMU counts from 0, and the guest has had
 * five requests served. The request at 0 would be answered if it were served again. */
static void a_queue_goes_on_where_its_used_ring_ends(void **unused)
{
	const struct table table = { 1, 0, { 0, RAM, QEMU_ADDRESS, 0 } };
	const struct vhost_vring_state base = { .index = 1 };
	int socket, status, ram, kick;
	struct timeval limit = { .tv_sec = 20 };
	u32 answer[5] = { 0 };
	u8 *map;
	pid_t pid;

	(void)unused;
	guest_want_confinement();
	ram = memfd_create("ram", MFD_CLOEXEC);
	kick = eventfd(1, EFD_CLOEXEC);
	assert_int_equal(ftruncate(ram, RAM), 0);
	map = mmap(NULL, RAM, PROT_READ | PROT_WRITE, MAP_SHARED, ram, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	((struct vring_avail *)(map + 2048))->idx = 7; /* two more are there */
	((struct vring_used *)(map + 4096))->idx = 5;
	pid = start_server(&socket, NULL);
	put(socket, SET_VRING_BASE, &base, sizeof(base), -1);
	place(socket, &table, QEMU_ADDRESS + 2048, kick, ram);
	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	for (u32 turn = 0; turn < 1000 && READ_ONCE(((struct vring_used *)(map + 4096))->idx) < 7;
	     turn++)
		usleep(20000);
	assert_int_equal(((struct vring_used *)(map + 4096))->idx, 7);
	put(socket, GET_VRING_BASE, &base, sizeof(base), -1);
	assert_int_equal(recv(socket, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
	assert_int_equal(answer[4], 7); /* after the header: the queue, and its next request */
	close(socket);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	munmap(map, RAM);
	close(ram);
	close(kick);
}

static bool is_unread(int kick)
{
	struct pollfd file = { kick, POLLIN, 0 };

	return poll(&file, 1, 0);
}

/* base/turns.h: a guest that finds its kick read, and no turn, takes its request for served. */
static void a_kick_is_read_in_a_turn(void **unused)
{
	const struct table table = { 1, 0, { 0, RAM, QEMU_ADDRESS, 0 } };
	const struct share_terms terms = {
		.page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			     -1, 0),
		.order = -1,
		.input = -1,
		.frames = -1,
	};
	int kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), socket, status;
	u64 end = poll_clock() + 60000000000ull;
	u32 before, early = 0;
	pid_t pid;

	(void)unused;
	guest_want_confinement();
	assert_ptr_not_equal(terms.page, MAP_FAILED);
	pid = start_server(&socket, &terms);
	set_up(socket, &table, QEMU_ADDRESS + 2048, kick);
	for (u32 round = 0; round < 4000; round++) {
		while (turns_read(&terms.page->turns) & 1 && poll_clock() < end)
			;
		before = turns_read(&terms.page->turns);
		assert_int_equal(eventfd_write(kick, 1), 0);
		while (is_unread(kick) && poll_clock() < end)
			;
		early += turns_read(&terms.page->turns) == before;
	}
	assert_true(poll_clock() < end);
	assert_int_equal(early, 0);
	close(socket);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	munmap(terms.page, PAGE_SIZE);
	close(kick);
}

/* For the guest's processors: base/written.h. */
static void what_an_answer_overwrites_is_noted(void **unused)
{
	static u8 ram[4 * PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
	static struct written ring;
	static struct share share = { .written = &ring,
				      .region = { { .gpa = 0x700000, .size = 64, .map = ram },
						  { 0x100000, sizeof(ram), 0, ram, 0 } },
				      .region_count = 2 };
	static struct request request = { .out = { { ram + 100, 8 }, { ram + 4090, 4106 } },
					  .out_count = 2 };
	struct queue queue = { .size = 4,
			       .avail = (void *)(ram + 2 * PAGE_SIZE),
			       .used = (void *)(ram + 3 * PAGE_SIZE),
			       .call = eventfd(0, EFD_CLOEXEC) };
	eventfd_t signals;

	(void)unused;
	queue_note(&share, &request);
	assert_int_equal(ring.next, 2);
	assert_int_equal(ring.range[0], 0x100000);
	assert_int_equal(ring.range[1], 0x100002); /* and two pages more */
	queue_notify(&share, &queue);
	assert_int_equal(ring.next, 3);
	assert_int_equal(ring.range[2], 0x103000);
	assert_int_equal(eventfd_read(queue.call, &signals), 0);
	assert_true(written_told(signals));
	ring.next = ~0ull; /* QEMU has the ring, too */
	queue_note(&share, &request);
	assert_int_equal(ring.next, 1);
	assert_int_equal(ring.range[WRITTEN_RANGES - 1], 0x100000);
	close(queue.call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_honest_table_is_served),
		cmocka_unit_test(a_queue_goes_on_where_its_used_ring_ends),
		cmocka_unit_test(memory_that_was_not_handed_over_is_refused),
		cmocka_unit_test(a_kick_is_read_in_a_turn),
		cmocka_unit_test(what_an_answer_overwrites_is_noted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
