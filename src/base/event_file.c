// SPDX-License-Identifier: MIT
/*
 * The program's eventfds: see base/event_file.h. Any thread.
 */
#include "base/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Linux before 5.8 cannot read an eventfd without waiting unless it is open so. */
u64 event_file_take(int fd)
{
	eventfd_t count;
	struct iovec to = { &count, sizeof(count) };
	ssize_t n = preadv2(fd, &to, 1, -1, RWF_NOWAIT);

	if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		return eventfd_read(fd, &count) ? 0 : count;
	return n == sizeof(count) ? count : 0;
}

bool event_file_blocks(int fd)
{
	return !(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

/* A write to an eventfd cannot be told not to wait: one that blocks is asked first. */
void event_file_signal(int fd, bool blocks)
{
	struct pollfd room = { .fd = fd, .events = POLLOUT };

	if (!blocks || (poll(&room, 1, 0) == 1 && (room.revents & POLLOUT)))
		eventfd_write(fd, 1);
}

bool event_file_same(int a, int b, bool otherwise)
{
	long order = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, a, b);

	return order < 0 ? otherwise : !order;
}
