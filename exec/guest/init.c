// SPDX-License-Identifier: MIT
/*
 * From the kernel's start to the command's: see guest.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>

#include "exec/guest/guest.h"

_Noreturn void give_up(struct wire *wire, enum failed_step step, const char *what)
{
	send_failed(wire, 0, step, what);
	for (;;) {
		struct pollfd wait = { wire->fd, wire_events(wire), 0 };

		wire_flush(wire);
		if (fetch_is_wanted())
			fetch_wait();
		else
			poll(&wait, 1, 1000);
	}
}

/* The first frame's body, in memory of its own; NULL if it is no order. */
static u8 *receive_order(struct wire *wire, u32 *size)
{
	const struct frame *frame;
	const u8 *body;
	u8 *copy;

	while (!(frame = wire_next(wire, &body))) {
		struct pollfd wait = { wire->fd, wire_events(wire), 0 };

		wire_flush(wire);
		poll(&wait, 1, -1);
		wire_fill(wire);
	}
	*size = frame->size;
	copy = frame->type == FRAME_START ? malloc(frame->size) : NULL;
	if (copy)
		memcpy(copy, body, frame->size);
	return copy;
}

static void build_root(struct wire *wire, bool resumed)
{
	const char *problem;

	if (resumed && parked_return())
		return;
	if (resumed)
		devices_look_again();
	problem = root_build();
	if (problem)
		give_up(wire, FAILED_SET_UP, problem);
}

/* Nobody tells whether devices have come: looking for them does no harm. */
static u8 *wait_and_fetch(struct wire *wire, struct order *order, u32 *size)
{
	const char *problem;
	u8 *body;

	while (wire_events(wire) & POLLOUT) {
		struct pollfd wait = { wire->fd, POLLOUT, 0 };

		poll(&wait, 1, -1);
		wire_flush(wire);
	}
	fetch_wait();
	build_root(wire, true);
	problem = fetch_order(wire, order, &body, size);
	if (problem)
		give_up(wire, FAILED_SET_UP, problem);
	return body;
}

static void wait_for_order(struct wire *wire, struct order *order)
{
	u32 size;

	order->input = -1;
	if (fetch_is_wanted())
		fetch_settle();
	wire_send(wire, FRAME_READY, 0, NULL, 0);
	order->body =
		fetch_is_wanted() ? wait_and_fetch(wire, order, &size) : receive_order(wire, &size);
	errno = EPROTO;
	if (!order->body || !order_read(order, order->body, size))
		give_up(wire, FAILED_SET_UP,
			"vpmu-init and vpmu are not of the same version: run 'make' or 'make "
			"install'");
	if (!fetch_is_wanted())
		build_root(wire, order->start.resumed);
}

/* The root of a machine that is to be saved is built before that, if that can be. */
static void prepare_root(void)
{
	if (parked_is_wanted())
		parked_leave(parked_read() && !root_build());
}

/* Nobody can be told but the console, which the host shows when the guest has ended. */
static _Noreturn void end_alone(void)
{
	fputs("vpmu: this kernel does not find the port to the host: it needs virtio_console, and "
	      "virtio_mmio for the machine microvm or virtio_pci for q35, built in or in the "
	      "folder 'modules' beside it\n",
	      stderr);
	reboot(RB_AUTOBOOT);
	exit(1);
}

/* A machine that is to be saved is saved while it waits for its order. */
int main(void)
{
	struct wire wire = { .fd = -1 };
	struct order order;
	const char *problem;

	root_mount_early();
	devices_load();
	root_add_extras();
	settings_prepare();
	wire.fd = devices_open_port();
	if (wire.fd < 0)
		end_alone();
	prepare_root();
	wait_for_order(&wire, &order);
	problem = root_enter(&order);
	if (problem)
		give_up(&wire, FAILED_SET_UP, problem);
	settings_apply(&order);
	if (fetch_is_wanted())
		fetch_begin(&wire);
	commands_run(&wire, &order);
}
