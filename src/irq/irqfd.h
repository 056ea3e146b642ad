/* SPDX-License-Identifier: MIT */
/*
 * irqfds: eventfds that stand for interrupts, those that resample (a level stays up until its
 * service ends, and then another eventfd asks the device whether it still wants it), and one timer,
 * for a thread of the owner that waits for all of them (Documentation/virt/kvm/api.rst 4.75).
 *
 * A leaf: it knows numbers of interrupts (GSIs), not what they do. The owner's thread calls
 * irqfd_wait(), then irqfd_next(), and acts on what that returns.
 *
 * Another thread of the owner may look for a while in its place, between irqfd_look_begin() and
 * irqfd_look_end(): the thread that waits is not woken then, so that nobody has to be.
 *
 * Threads: any; irqfd_next() and irqfd_take() under a lock of the owner. If events are acted upon
 * under that lock too, an irqfd that was taken away under it has nothing on its way any more.
 */
#ifndef IRQ_IRQFD_H
#define IRQ_IRQFD_H

#include <linux/kvm.h>
#include <pthread.h>

#include "base/own_files.h"
#include "base/types.h"

#define IRQFD_NEVER (~0ull)

struct irqfd;

struct irqfds {
	pthread_mutex_t lock;
	int epoll, timer, stop;
	int bell; /* an epoll set with `epoll` alone: what the owner's thread waits for */
	struct irqfd *first;
	struct own_files resample_files;
	u32 resampling; /* how many of them */
	bool over;	/* irqfd_stop() was called, or the program has closed our descriptors */
};

enum irqfd_what { IRQFD_STOP, IRQFD_TIMER, IRQFD_EDGE, IRQFD_LEVEL };

struct irqfd_event {
	enum irqfd_what what;
	u32 gsi;
	u64 signals; /* what was read from the eventfd */
};

int irqfd_open(struct irqfds *irqfds); /* 0 or -errno */
void irqfd_close(struct irqfds *irqfds);

/*
 * KVM_IRQFD: 0 or -errno. Resampling GSIs are the caller's to check. *fallen: a GSI whose level the
 * caller is to lower, whatever was returned, since the program has closed its last eventfd; or -1.
 */
int irqfd_assign(struct irqfds *irqfds, const struct kvm_irqfd *args, s64 *fallen);
int irqfd_deassign(struct irqfds *irqfds, const struct kvm_irqfd *args, bool *last_of_level);

void irqfd_set_timer(struct irqfds *irqfds, u64 expiry); /* CLOCK_MONOTONIC, ns, or IRQFD_NEVER */
void irqfd_stop(struct irqfds *irqfds); /* makes irqfd_next() return IRQFD_STOP, from then on */
void irqfd_wait(const struct irqfds *irqfds); /* sleeps until something may have happened */
/* One caller at a time. False: the program has closed the descriptors, and there is no look. */
bool irqfd_look_begin(const struct irqfds *irqfds);
bool irqfd_look(const struct irqfds *irqfds); /* may something have happened? */
void irqfd_look_end(const struct irqfds *irqfds);
/*
 * What happened: how many of up to n events were filled in. It may be none. Also returns IRQFD_STOP
 * if the program has closed the descriptors; then no further irqfd is assigned.
 */
u32 irqfd_next(struct irqfds *irqfds, struct irqfd_event *events, u32 n);
/*
 * As irqfd_next(), but 0 says that no irqfd was signalled before the call. For owners with several
 * threads; irqfd_sleep() is irqfd_wait(), and false where irqfd_next() would return IRQFD_STOP.
 */
u32 irqfd_take(struct irqfds *irqfds, struct irqfd_event *events, u32 n);
bool irqfd_sleep(struct irqfds *irqfds);

/* The service of a GSI has ended: true if an irqfd resamples it (and has been
 * signalled, if tell). */
bool irqfd_resample(struct irqfds *irqfds, u32 gsi, bool tell);

#endif
