// SPDX-License-Identifier: MIT
/*
 * The VM's own thread: turns signals of irqfds and expiries of the 8254 into interrupts. One per
 * VM, created with the first of them; it sleeps otherwise. It runs no code of the guest and none of
 * the program's signal handlers. A vCPU that is halted looks for itself at first, and the thread
 * sleeps on: one thread less to be woken before the guest goes on. On virtual time a vCPU that
 * waited for a device delivers as well (vm/time/device_wait.c), and the 8254 is the vCPUs' alone.
 */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "vm/irq/irqchip.h"
#include "vm/vm.h"

#define EVENTS 16

static void handle(struct vm *vm, const struct irqfd_event *event)
{
	switch (event->what) {
	case IRQFD_STOP:
		break;
	case IRQFD_TIMER:
		irqchip_pit_expired(vm);
		break;
	case IRQFD_EDGE:
		written_signalled(vm, event->signals);
		irqchip_set_gsi(vm, event->gsi, IRQ_SOURCE_PROGRAM, true);
		irqchip_set_gsi(vm, event->gsi, IRQ_SOURCE_PROGRAM, false);
		break;
	case IRQFD_LEVEL:
		written_signalled(vm, event->signals);
		irqchip_set_gsi(vm, event->gsi, IRQ_SOURCE_RESAMPLE, true);
		break;
	}
}

/* False: the thread is to end. */
static bool handle_all(struct vm *vm, const struct irqfd_event *events, u32 n)
{
	bool goes_on = true;

	for (u32 i = 0; i < n; i++) {
		goes_on &= events[i].what != IRQFD_STOP;
		handle(vm, &events[i]);
	}
	return goes_on;
}

/* What a thread takes is delivered before it releases the lock: after that nothing is on its way
 * of an irqfd that is no more (irqchip_ioctls.c). */
static bool serve_some(struct vm *vm)
{
	struct irqchip *chip = vm->irqchip;
	struct irqfd_event events[EVENTS];
	bool goes_on;

	pthread_mutex_lock(&chip->drain_lock);
	goes_on = handle_all(vm, events, irqfd_next(&chip->irqfds, events, EVENTS));
	pthread_mutex_unlock(&chip->drain_lock);
	return goes_on;
}

static void *serve(void *arg)
{
	struct vm *vm = arg;

	do
		irqfd_wait(&vm->irqchip->irqfds);
	while (serve_some(vm));
	return NULL;
}

bool irq_look_begin(struct vm *vm)
{
	struct irqchip *chip = vm->irqchip;

	if (!chip || !READ_ONCE(chip->has_thread) ||
	    __atomic_exchange_n(&chip->is_looked_at, true, __ATOMIC_ACQUIRE))
		return false;
	if (irqfd_look_begin(&chip->irqfds))
		return true;
	__atomic_store_n(&chip->is_looked_at, false, __ATOMIC_RELEASE);
	return false;
}

/* That the thread is to end is for the thread to see. */
void irq_look(struct vm *vm)
{
	if (irqfd_look(&vm->irqchip->irqfds))
		serve_some(vm);
}

void irq_look_end(struct vm *vm)
{
	irqfd_look_end(&vm->irqchip->irqfds);
	__atomic_store_n(&vm->irqchip->is_looked_at, false, __ATOMIC_RELEASE);
}

/* On virtual time the vCPU delivers, too, and finds done what the thread has taken. */
static void drain(struct vm *vm)
{
	struct irqchip *chip = vm->irqchip;
	struct irqfd_event events[EVENTS];
	u32 n;

	pthread_mutex_lock(&chip->drain_lock);
	do {
		n = irqfd_take(&chip->irqfds, events, EVENTS);
		handle_all(vm, events, n);
	} while (n);
	pthread_mutex_unlock(&chip->drain_lock);
}

static void *serve_virtual(void *arg)
{
	struct vm *vm = arg;

	while (irqfd_sleep(&vm->irqchip->irqfds))
		drain(vm);
	return NULL;
}

void irq_thread_drain(struct vm *vm)
{
	if (vm->irqchip && READ_ONCE(vm->irqchip->has_thread))
		drain(vm);
}

int irq_thread_start(struct vm *vm)
{
	struct irqchip *chip = vm->irqchip;
	sigset_t all, saved;
	int r;

	if (chip->has_thread)
		return 0;
	r = irqfd_open(&chip->irqfds);
	if (r)
		return r;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	r = -pthread_create(&chip->thread, NULL, vm->time.is_virtual ? serve_virtual : serve, vm);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (r) {
		irqfd_close(&chip->irqfds);
		return r;
	}
	pthread_setname_np(chip->thread, "vpmu-irq");
	WRITE_ONCE(chip->has_thread, true);
	return 0;
}

void irq_thread_end(struct vm *vm)
{
	struct irqchip *chip = vm->irqchip;

	if (!chip->has_thread)
		return;
	if (vm->owner == getpid()) { /* a child of fork() has the memory, but not the thread */
		irqfd_stop(&chip->irqfds);
		pthread_join(chip->thread, NULL);
	}
	irqfd_close(&chip->irqfds);
}
