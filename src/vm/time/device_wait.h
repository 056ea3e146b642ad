/* SPDX-License-Identifier: MIT */
/*
 * Devices on virtual time (vm/time/vm_time.h). What a device does for a guest takes none of it: a
 * vCPU that kicked one, by an ioeventfd, goes on when its work is done and its interrupt delivered.
 * The program's own devices count as done when their eventfd has been read, since nothing tells
 * more; a device of another process says so in a page that it shares with us (VPMU_TURNS,
 * base/turns.h).
 *
 * A guest that waits for the host, and not for a timer, says so by an OUT to OUTSIDE_PORT: its time
 * stands still until it is called, through that page. Only VMs with such a page have the port.
 */
#ifndef VM_TIME_DEVICE_WAIT_H
#define VM_TIME_DEVICE_WAIT_H

#include "base/poll_window.h"
#include "base/types.h"

struct turns;
struct vcpu;
struct vm;

#define OUTSIDE_PORT 0x5650u

/* Of the vCPU thread whose turn it is; the schedule's lock hands it on. */
struct vm_outside {
	struct turns *page; /* NULL: none */
	/* How often an ioeventfd was signalled; also counted by the thread of the ioctl that
	 * assigns one. And how often it had been when outside_waits() last found no work pending.
	 */
	u32 kicks, kicks_served;
	u64 unread_since; /* clock_ns() since when a kick waits to be read; 0: none does */
	bool must_wait;	  /* the guest asked to wait until it is called */
	u32 calls_seen;	  /* value of turns.calls when the last wait ended */
	struct poll_window poll;
};

void outside_environment(struct vm *vm); /* from VPMU_TURNS; before the VM has vCPUs */
void outside_destroy(struct vm *vm);

/* An OUT: true if it was to OUTSIDE_PORT and has ended; false with vm->outside.must_wait if it is
 * to be executed again after a call. */
bool outside_port_write(struct vm *vm, u32 port);
/* A device is about to be asked for something: tells it the date. */
void outside_show_date(struct vm *vm);
/*
 * An ioeventfd has been signalled: by the guest, or by its program before it was one. QEMU makes
 * them signalled. A device that comes to read that when it gets to run would find, or not find,
 * what the guest has put into its queue and not yet kicked for.
 */
void outside_kicked(struct vm *vm);
/* Has one been signalled since no work was pending? */
bool outside_is_kicked(const struct vm *vm);
/* Must no limit on how long something outside of the guest takes show in it? */
bool outside_endless(const struct vm *vm);
/* Does the guest have to wait? If it no longer has for work that it asked for, the interrupts of
 * that are delivered. Outside of sections. */
bool outside_waits(struct vm *vm);
void outside_wait(struct vm *vm); /* for a moment, or until a signal comes */

#endif
