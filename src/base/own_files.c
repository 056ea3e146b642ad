// SPDX-License-Identifier: MIT
/*
 * Descriptors of ours among those of the program: see base/own_files.h.
 */
#include "base/own_files.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

int own_files_add(struct own_files *own, int fd)
{
	struct epoll_event nothing = { .events = 0 };
	int r = 0;

	if (!own->n)
		own->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (own->epoll < 0)
		return -errno;
	if (epoll_ctl(own->epoll, EPOLL_CTL_ADD, fd, &nothing))
		r = -errno;
	if (!r)
		own->n++;
	else if (!own->n)
		close(own->epoll);
	return r;
}

bool own_files_has(const struct own_files *own, int fd)
{
	struct epoll_event nothing = { .events = 0 };

	return own->n && !epoll_ctl(own->epoll, EPOLL_CTL_MOD, fd, &nothing);
}

/* A set that has it is ours as well; one that was closed in between is not closed again. The set
 * would keep the file under this number for as long as the program has it open elsewhere. */
void own_files_close(struct own_files *own, int fd)
{
	bool ours = own->n && !epoll_ctl(own->epoll, EPOLL_CTL_DEL, fd, NULL);

	own->n--;
	if (ours && !own->n)
		close(own->epoll);
	if (ours)
		close(fd);
}
