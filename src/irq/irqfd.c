// SPDX-License-Identifier: MIT
/*
 * irqfds: see irq/irqfd.h. Each is a duplicate of the program's eventfd in one epoll set, next to
 * the timer and the fd that ends the wait. The program may close its own at any time. The lock
 * guards the list; it is held while eventfds are read, and while those that resample are written
 * (base/event_file.h).
 *
 * The thread that waits does so for a second set, in which the first is the only file, asked for or
 * not: one call takes its attention from all irqfds.
 *
 * The program may also close our descriptors: closefrom(), a loop over all numbers. A wait then
 * ends for good, and no number is written to or closed that may stand for a file of the program by
 * then: a descriptor is ours as long as the epoll set has that very file under that number.
 */
#include "irq/irqfd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/event_file.h"
#include "base/log.h"

#define EVENTS_MAX 32
#define CHECK_MS   1000 /* how long it may take to notice that our descriptors were closed */

struct irqfd {
	struct irqfd *next;
	u32 gsi;
	int fd, user_fd;
	int resample; /* -1: none */
	bool resample_blocks;
};

static int watch(struct irqfds *irqfds, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(irqfds->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static bool watched(const struct irqfds *irqfds, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return !epoll_ctl(irqfds->epoll, EPOLL_CTL_MOD, fd, &event);
}

/* Is the thread to be woken? False: the descriptors are no longer ours. */
static bool arm(const struct irqfds *irqfds, u32 events)
{
	struct epoll_event event = { .events = events, .data.fd = irqfds->epoll };

	return !epoll_ctl(irqfds->bell, EPOLL_CTL_MOD, irqfds->epoll, &event);
}

/* That it arms the bell does no harm: the thread is woken once in vain. */
static bool intact(const struct irqfds *irqfds)
{
	return watched(irqfds, irqfds->stop) && watched(irqfds, irqfds->timer) &&
	       arm(irqfds, EPOLLIN);
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

static int open_bell(struct irqfds *irqfds)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = irqfds->epoll };
	int r = 0;

	irqfds->bell = epoll_create1(EPOLL_CLOEXEC);
	if (irqfds->bell < 0 || epoll_ctl(irqfds->bell, EPOLL_CTL_ADD, irqfds->epoll, &event))
		r = -errno;
	if (r)
		close_if_open(irqfds->bell);
	return r;
}

int irqfd_open(struct irqfds *irqfds)
{
	int r;

	*irqfds = (struct irqfds){ .epoll = epoll_create1(EPOLL_CLOEXEC) };
	if (irqfds->epoll < 0)
		return -errno;
	irqfds->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	r = irqfds->timer < 0 ? -errno : 0;
	if (r)
		goto close_epoll;
	irqfds->stop = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	r = irqfds->stop < 0 ? -errno : 0;
	if (r)
		goto close_timer;
	r = open_bell(irqfds);
	if (r)
		goto close_stop;
	r = watch(irqfds, irqfds->timer);
	if (!r)
		r = watch(irqfds, irqfds->stop);
	if (!r)
		r = -pthread_mutex_init(&irqfds->lock, NULL);
	if (r)
		goto close_bell;
	return 0;
close_bell:
	close(irqfds->bell);
close_stop:
	close(irqfds->stop);
close_timer:
	close(irqfds->timer);
close_epoll:
	close(irqfds->epoll);
	return r;
}

/* One that was never in the list. */
static void irqfd_free(struct irqfd *irqfd)
{
	close_if_open(irqfd->fd);
	close_if_open(irqfd->resample);
	free(irqfd);
}

static void irqfd_release(struct irqfds *irqfds, struct irqfd *irqfd, bool ours)
{
	if (ours)
		close(irqfd->fd);
	if (irqfd->resample >= 0)
		own_files_close(&irqfds->resample_files, irqfd->resample);
	free(irqfd);
}

static void close_if_watched(const struct irqfds *irqfds, int fd)
{
	if (watched(irqfds, fd))
		close(fd);
}

void irqfd_close(struct irqfds *irqfds)
{
	bool ours = intact(irqfds);

	while (irqfds->first) {
		struct irqfd *irqfd = irqfds->first;

		irqfds->first = irqfd->next;
		irqfd_release(irqfds, irqfd, watched(irqfds, irqfd->fd));
	}
	close_if_watched(irqfds, irqfds->timer);
	close_if_watched(irqfds, irqfds->stop);
	if (ours) {
		close(irqfds->bell);
		close(irqfds->epoll);
	}
	pthread_mutex_destroy(&irqfds->lock);
}

/* --- what the program asks for --- */

/* KVM: an irqfd is found by its eventfd, whichever descriptor stands for that. */
static struct irqfd *find_file(const struct irqfds *irqfds, int fd, int user_fd)
{
	struct irqfd *irqfd = irqfds->first;

	while (irqfd && !event_file_same(irqfd->fd, fd, irqfd->user_fd == user_fd))
		irqfd = irqfd->next;
	return irqfd;
}

static struct irqfd *find_number(const struct irqfds *irqfds, int user_fd)
{
	struct irqfd *irqfd = irqfds->first;

	while (irqfd && irqfd->user_fd != user_fd)
		irqfd = irqfd->next;
	return irqfd;
}

/* EFD_SEMAPHORE or not, a resample fd is only ever written; any fd that is none fails when used. */
static int duplicate(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return copy < 0 ? -errno : copy;
}

static int open_pair(struct irqfd *irqfd, const struct kvm_irqfd *args)
{
	irqfd->resample = -1;
	irqfd->fd = duplicate(args->fd);
	if (irqfd->fd < 0)
		return irqfd->fd;
	if (!(args->flags & KVM_IRQFD_FLAG_RESAMPLE))
		return 0;
	irqfd->resample = duplicate(args->resamplefd);
	irqfd->resample_blocks = event_file_blocks(irqfd->resample);
	return irqfd->resample < 0 ? irqfd->resample : 0;
}

static void forget(struct irqfds *irqfds, struct irqfd *irqfd)
{
	struct irqfd **link = &irqfds->first;

	while (*link != irqfd)
		link = &(*link)->next;
	*link = irqfd->next;
	__atomic_fetch_sub(&irqfds->resampling, irqfd->resample >= 0, __ATOMIC_RELEASE);
	irqfd_release(irqfds, irqfd, !epoll_ctl(irqfds->epoll, EPOLL_CTL_DEL, irqfd->fd, NULL));
}

static int watch_pair(struct irqfds *irqfds, const struct irqfd *irqfd)
{
	int r = watch(irqfds, irqfd->fd);

	if (r || irqfd->resample < 0)
		return r;
	r = own_files_add(&irqfds->resample_files, irqfd->resample);
	if (r)
		epoll_ctl(irqfds->epoll, EPOLL_CTL_DEL, irqfd->fd, NULL);
	return r;
}

static bool resampled(const struct irqfds *irqfds, u32 gsi)
{
	for (const struct irqfd *f = irqfds->first; f; f = f->next)
		if (f->gsi == gsi && f->resample >= 0)
			return true;
	return false;
}

/* Was it the last that holds up the level of its GSI? */
static bool forget_level(struct irqfds *irqfds, struct irqfd *irqfd)
{
	bool level = irqfd->resample >= 0;
	u32 gsi = irqfd->gsi;

	forget(irqfds, irqfd);
	return level && !resampled(irqfds, gsi);
}

/* The program has closed the eventfd that had this number: the number has a new meaning. */
static void forget_closed(struct irqfds *irqfds, struct irqfd *old, s64 *fallen)
{
	u32 gsi = old->gsi;

	if (forget_level(irqfds, old))
		*fallen = gsi;
}

static int link_irqfd(struct irqfds *irqfds, struct irqfd *irqfd, s64 *fallen)
{
	struct irqfd *old;
	int r = 0;

	pthread_mutex_lock(&irqfds->lock);
	old = find_number(irqfds, irqfd->user_fd);
	if (find_file(irqfds, irqfd->fd, irqfd->user_fd))
		r = -EBUSY; /* KVM: an eventfd stands for one interrupt */
	else if (old)
		forget_closed(irqfds, old, fallen);
	if (!r)
		r = __atomic_load_n(&irqfds->over, __ATOMIC_ACQUIRE) ? -EBADF
								     : watch_pair(irqfds, irqfd);
	if (!r) {
		irqfd->next = irqfds->first;
		irqfds->first = irqfd;
		__atomic_fetch_add(&irqfds->resampling, irqfd->resample >= 0, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&irqfds->lock);
	return r;
}

int irqfd_assign(struct irqfds *irqfds, const struct kvm_irqfd *args, s64 *fallen)
{
	struct irqfd *irqfd = malloc(sizeof(*irqfd));
	int r;

	*fallen = -1;
	if (!irqfd)
		return -ENOMEM;
	*irqfd = (struct irqfd){ .gsi = args->gsi, .user_fd = args->fd };
	r = open_pair(irqfd, args);
	if (!r)
		r = link_irqfd(irqfds, irqfd, fallen);
	if (r)
		irqfd_free(irqfd);
	return r;
}

int irqfd_deassign(struct irqfds *irqfds, const struct kvm_irqfd *args, bool *last_of_level)
{
	struct irqfd *irqfd;

	*last_of_level = false;
	pthread_mutex_lock(&irqfds->lock);
	irqfd = find_file(irqfds, args->fd, args->fd);
	if (irqfd && irqfd->gsi == args->gsi)
		*last_of_level = forget_level(irqfds, irqfd);
	pthread_mutex_unlock(&irqfds->lock);
	return 0; /* KVM: also if there was none */
}

/* --- waiting --- */

void irqfd_set_timer(struct irqfds *irqfds, u64 expiry)
{
	struct itimerspec spec = { 0 };

	if (expiry != IRQFD_NEVER) {
		expiry = expiry ? expiry : 1; /* 0 would disarm it */
		spec.it_value.tv_sec = expiry / 1000000000;
		spec.it_value.tv_nsec = expiry % 1000000000;
	}
	if (watched(irqfds, irqfds->timer))
		timerfd_settime(irqfds->timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* The flag is for a thread whose descriptors were closed. */
void irqfd_stop(struct irqfds *irqfds)
{
	__atomic_store_n(&irqfds->over, true, __ATOMIC_RELEASE);
	if (watched(irqfds, irqfds->stop))
		eventfd_write(irqfds->stop, 1);
}

static void give_up(struct irqfds *irqfds)
{
	log_once(LOG_ERROR, "the program has closed descriptors of its VM: irqfds and the 8254 no "
			    "longer interrupt");
	__atomic_store_n(&irqfds->over, true, __ATOMIC_RELEASE);
}

/* Is there no use in waiting any longer? */
static bool is_over(struct irqfds *irqfds)
{
	if (__atomic_load_n(&irqfds->over, __ATOMIC_ACQUIRE))
		return true;
	if (intact(irqfds))
		return false;
	give_up(irqfds);
	return true;
}

/* Before it is read. If only the number is the program's now, epoll has the eventfd for as long as
 * that is open, and would never wait again. */
static bool still_ours(struct irqfds *irqfds, int fd)
{
	if (watched(irqfds, fd))
		return true;
	give_up(irqfds);
	return false;
}

/* What a readable fd means; false: it is the one that ends the wait, or was taken away
 * meanwhile. */
static bool decode(struct irqfds *irqfds, int fd, struct irqfd_event *event)
{
	struct irqfd *irqfd;
	eventfd_t count;

	if (fd == irqfds->timer) {
		*event = (struct irqfd_event){ .what = IRQFD_TIMER };
		return still_ours(irqfds, fd) &&
		       eventfd_read(fd, &count) == 0; /* eight bytes as well */
	}
	for (irqfd = irqfds->first; irqfd && irqfd->fd != fd; irqfd = irqfd->next)
		;
	if (!irqfd || !still_ours(irqfds, fd))
		return false;
	event->what = irqfd->resample >= 0 ? IRQFD_LEVEL : IRQFD_EDGE;
	event->gsi = irqfd->gsi;
	event->signals = event_file_take(fd);
	return event->signals;
}

static u32 take(struct irqfds *irqfds, struct irqfd_event *events, u32 n)
{
	struct epoll_event ready[EVENTS_MAX];
	u32 filled = 0;
	int nready = epoll_wait(irqfds->epoll, ready, n < EVENTS_MAX ? n : EVENTS_MAX, 0);

	pthread_mutex_lock(&irqfds->lock);
	for (int i = 0; i < nready; i++)
		filled += decode(irqfds, ready[i].data.fd, &events[filled]);
	pthread_mutex_unlock(&irqfds->lock);
	return filled;
}

void irqfd_wait(const struct irqfds *irqfds)
{
	struct pollfd wait = { irqfds->bell, POLLIN, 0 };

	poll(&wait, 1, CHECK_MS);
}

bool irqfd_look_begin(const struct irqfds *irqfds)
{
	return arm(irqfds, 0);
}

bool irqfd_look(const struct irqfds *irqfds)
{
	struct pollfd now = { irqfds->epoll, POLLIN, 0 };

	return poll(&now, 1, 0) > 0;
}

/* What came after the last look wakes the thread. */
void irqfd_look_end(const struct irqfds *irqfds)
{
	arm(irqfds, EPOLLIN);
}

u32 irqfd_next(struct irqfds *irqfds, struct irqfd_event *events, u32 n)
{
	u32 filled = take(irqfds, events, n);

	if (filled && !__atomic_load_n(&irqfds->over, __ATOMIC_ACQUIRE))
		return filled;
	events[0] = (struct irqfd_event){ .what = IRQFD_STOP };
	return is_over(irqfds);
}

/* Those of a list that begins at `f` which one poll() asks for, and where the rest begins. */
static bool some_are_signalled(const struct irqfds *irqfds, const struct irqfd **f)
{
	struct pollfd wait[EVENTS_MAX];
	u32 n = 0;

	for (; *f && n < ARRAY_SIZE(wait); *f = (*f)->next)
		wait[n++] = (struct pollfd){ (*f)->fd, POLLIN, 0 };
	if (poll(wait, n, 0) <= 0)
		return false;
	for (u32 i = 0; i < n; i++)
		if (wait[i].revents & POLLIN && watched(irqfds, wait[i].fd))
			return true;
	return false;
}

static bool any_is_signalled(struct irqfds *irqfds)
{
	const struct irqfd *f;
	bool found = false;

	pthread_mutex_lock(&irqfds->lock);
	f = irqfds->first;
	while (f && !found)
		found = some_are_signalled(irqfds, &f);
	pthread_mutex_unlock(&irqfds->lock);
	return found;
}

/*
 * Linux looks at the ready list without its lock when epoll_wait() is not to wait, and may find it
 * empty while another thread, in irqfd_sleep(), goes through it. Here what was signalled before is
 * not missed: a caller that goes on without it would have its interrupt at any time.
 */
u32 irqfd_take(struct irqfds *irqfds, struct irqfd_event *events, u32 n)
{
	u32 filled;

	do
		filled = take(irqfds, events, n);
	while (!filled && any_is_signalled(irqfds));
	return filled;
}

bool irqfd_sleep(struct irqfds *irqfds)
{
	irqfd_wait(irqfds);
	return !is_over(irqfds);
}

bool irqfd_resample(struct irqfds *irqfds, u32 gsi, bool tell)
{
	bool found = false;

	if (!__atomic_load_n(&irqfds->resampling, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&irqfds->lock);
	for (const struct irqfd *f = irqfds->first; f; f = f->next) {
		if (f->gsi != gsi || f->resample < 0)
			continue;
		found = true;
		if (tell && own_files_has(&irqfds->resample_files, f->resample))
			event_file_signal(f->resample, f->resample_blocks);
	}
	pthread_mutex_unlock(&irqfds->lock);
	return found;
}
