// SPDX-License-Identifier: MIT
/*
 * Waiting for devices and for the host: see vm/time/device_wait.h. The vCPU's thread.
 */
#include "vm/time/device_wait.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/inherited.h"
#include "base/log.h"
#include "base/turns.h"
#include "vm/io.h"
#include "vm/irq/irqchip.h"
#include "vm/vm.h"

#define WAIT_NS	     5000000 /* longest sleep on the page's futex */
/* Between two polls of eventfds: reading them wakes no thread. The device of the page does when it
 * has served what it read. */
#define WAIT_READ_NS 20000
/* An ioeventfd that is unread for so long has no reader on another thread: the guest goes on,
 * unless its program knows better (base/turns.h, endless). */
#define PATIENCE_NS  10000000000ull

void outside_environment(struct vm *vm)
{
	void *map;
	int fd;

	if (!vm->time.is_virtual || !inherited_take("VPMU_TURNS", &fd, 1))
		return;
	map = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		log_warn("VPMU_TURNS cannot be mapped");
	else
		vm->outside.page = map;
}

void outside_destroy(struct vm *vm)
{
	if (vm->outside.page)
		munmap(vm->outside.page, PAGE_SIZE);
}

static bool called(const struct vm_outside *outside)
{
	return turns_read(&outside->page->calls) != outside->calls_seen;
}

bool outside_port_write(struct vm *vm, u32 port)
{
	struct vm_outside *outside = &vm->outside;

	if (!outside->page || port != OUTSIDE_PORT)
		return false;
	outside->must_wait = !called(outside);
	outside->calls_seen += !outside->must_wait;
	if (outside->must_wait)
		turns_note_wait(outside->page);
	return !outside->must_wait;
}

void outside_show_date(struct vm *vm)
{
	u64 time;

	if (vm->outside.page)
		__atomic_store_n(&vm->outside.page->date, vm_time_date(vm, &time),
				 __ATOMIC_SEQ_CST);
}

void outside_kicked(struct vm *vm)
{
	if (vm->time.is_virtual)
		__atomic_fetch_add(&vm->outside.kicks, 1, __ATOMIC_RELAXED);
}

bool outside_is_kicked(const struct vm *vm)
{
	return READ_ONCE(vm->outside.kicks) != vm->outside.kicks_served;
}

bool outside_endless(const struct vm *vm)
{
	return vm->outside.page && READ_ONCE(vm->outside.page->endless);
}

static bool worth_waiting(struct vm *vm)
{
	struct vm_outside *outside = &vm->outside;
	u64 now = clock_ns();

	if (!outside->unread_since)
		outside->unread_since = now;
	if (now - outside->unread_since < PATIENCE_NS || outside_endless(vm))
		return true;
	log_warn("no device has read an ioeventfd for 10 s: the guest on virtual time goes on");
	return false;
}

/* In this order: a request that was taken is being served. */
static bool device_works(struct vm *vm)
{
	struct vm_outside *outside = &vm->outside;
	bool unread = zones_unread(vm);
	bool serves = outside->page && turns_read(&outside->page->turns) & 1;

	if (unread && !serves)
		return worth_waiting(vm);
	outside->unread_since = 0;
	return serves;
}

bool outside_waits(struct vm *vm)
{
	struct vm_outside *outside = &vm->outside;
	u32 kicks = READ_ONCE(outside->kicks); /* one that comes meanwhile is served next time */

	if (kicks != outside->kicks_served && device_works(vm))
		return true;
	if (kicks != outside->kicks_served)
		irq_thread_drain(vm);
	outside->kicks_served = kicks;
	outside->unread_since = 0;
	outside->must_wait = outside->must_wait && !called(outside);
	return outside->must_wait;
}

/* Looks for the device's next step before it sleeps: it often comes within microseconds. */
static void wait_for_step(struct vm_outside *outside)
{
	u32 *turns = &outside->page->turns, seen = turns_read(turns);
	u64 limit = seen & 1 ? WAIT_NS : WAIT_READ_NS;
	struct poll_look look = poll_begin(&outside->poll, limit);

	while (turns_read(turns) == seen && poll_again(&outside->poll, &look))
		;
	turns_wait(turns, seen, limit);
	poll_learn(&outside->poll, &look, POLL_MOST_NS);
}

static void wait_for_device(struct vm_outside *outside)
{
	const struct timespec pause = { .tv_nsec = WAIT_READ_NS };

	if (outside->page)
		wait_for_step(outside);
	else
		nanosleep(&pause, NULL);
}

void outside_wait(struct vm *vm)
{
	if (outside_is_kicked(vm))
		wait_for_device(&vm->outside);
	else
		turns_wait(&vm->outside.page->calls, vm->outside.calls_seen, WAIT_NS);
}
