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
	u8 body[sizeof(struct failed) + 4096];
	struct failed failed = { step, errno };
	size_t length = strnlen(what, 4095);

	memcpy(body, &failed, sizeof(failed));
	memcpy(body + sizeof(failed), what, length);
	body[sizeof(failed) + length] = '\0';
	wire_send(wire, FRAME_FAILED, 0, body, sizeof(failed) + length + 1);
	for (;;) {
		struct pollfd wait = { wire->fd, wire_events(wire), 0 };

		wire_flush(wire);
		if (fetch_is_meant())
			fetch_wait();
		else
			poll(&wait, 1, 1000);
	}
}

/* Each takes a byte at least: a count of more than there are is no list. */
static char **take_strings(const char **at, const char *end, u32 count)
{
	char **list = count <= end - *at ? calloc((size_t)count + 1, sizeof(*list)) : NULL;

	for (u32 i = 0; list && i < count; i++) {
		const char *next = *at < end ? memchr(*at, '\0', end - *at) : NULL;

		if (!next)
			return NULL;
		list[i] = (char *)*at;
		*at = next + 1;
	}
	return list;
}

/* Takes an order apart; false if it is not whole. */
static bool read_order(struct order *order, const u8 *body, u32 size)
{
	const char *at = (const char *)body + sizeof(order->start),
		   *end = (const char *)body + size;
	char **names;

	if (size < sizeof(order->start))
		return false;
	memcpy(&order->start, body, sizeof(order->start));
	if (order->start.version != WIRE_VERSION || order->start.groups > 65536 ||
	    order->start.groups * sizeof(u32) > (size_t)(end - at))
		return false;
	order->groups = (const u32 *)at;
	at += order->start.groups * sizeof(u32);
	names = take_strings(&at, end, 2);
	order->arguments = take_strings(&at, end, order->start.arguments);
	order->variables = take_strings(&at, end, order->start.variables);
	order->shared = take_strings(&at, end, order->start.folders);
	if (!names || !order->arguments || !order->variables || !order->shared)
		return false;
	order->host = names[0];
	order->folder = names[1];
	return order->start.arguments;
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
	u8 *body;

	order->input = -1;
	if (fetch_is_meant())
		fetch_settle();
	wire_send(wire, FRAME_READY, 0, NULL, 0);
	body = fetch_is_meant() ? wait_and_fetch(wire, order, &size) : receive_order(wire, &size);
	errno = EPROTO;
	if (!body || !read_order(order, body, size))
		give_up(wire, FAILED_SET_UP,
			"vpmu-init and vpmu are not of the same version: run 'make' or 'make "
			"install'");
	if (!fetch_is_meant())
		build_root(wire, order->start.resumed);
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
	wire.fd = devices_open_port();
	if (wire.fd < 0)
		end_alone();
	wait_for_order(&wire, &order);
	problem = root_enter(&order);
	if (problem)
		give_up(&wire, FAILED_SET_UP, problem);
	settings_apply(&order);
	if (fetch_is_meant())
		fetch_begin(&wire);
	session_run(&wire, &order);
}
