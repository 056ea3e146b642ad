// SPDX-License-Identifier: MIT
/*
 * Orders: what the host wants run, taken apart.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exec/guest/guest.h"

/* Each takes a byte at least: a count of more than there are is no list. */
static char **take_strings(const char **at, const char *end, u32 count)
{
	char **list = count <= end - *at ? calloc((size_t)count + 1, sizeof(*list)) : NULL;

	for (u32 i = 0; list && i < count; i++) {
		const char *next = *at < end ? memchr(*at, '\0', end - *at) : NULL;

		if (!next) {
			free(list);
			return NULL;
		}
		list[i] = (char *)*at;
		*at = next + 1;
	}
	return list;
}

bool order_read(struct order *order, const u8 *body, u32 size)
{
	const char *at = (const char *)body + sizeof(order->start),
		   *end = (const char *)body + size;

	order->names = order->arguments = order->variables = order->shared = NULL;
	if (size < sizeof(order->start))
		return false;
	memcpy(&order->start, body, sizeof(order->start));
	if (order->start.version != WIRE_VERSION || order->start.groups > 65536 ||
	    order->start.groups * sizeof(u32) > (size_t)(end - at))
		return false;
	order->groups = (const u32 *)at;
	at += order->start.groups * sizeof(u32);
	order->names = take_strings(&at, end, 2);
	order->arguments = take_strings(&at, end, order->start.arguments);
	order->variables = take_strings(&at, end, order->start.variables);
	order->shared = take_strings(&at, end, order->start.folders);
	if (!order->names || !order->arguments || !order->variables || !order->shared)
		return false;
	order->host = order->names[0];
	order->folder = order->names[1];
	return true;
}

void order_free(struct order *order)
{
	free(order->names);
	free(order->arguments);
	free(order->variables);
	free(order->shared);
	free(order->body);
	*order = (struct order){ .input = -1 };
}

void send_failed(struct wire *wire, u32 session, enum failed_step step, const char *what)
{
	u8 body[sizeof(struct failed) + 4096];
	struct failed failed = { step, errno };
	size_t length = strnlen(what, 4095);

	memcpy(body, &failed, sizeof(failed));
	memcpy(body + sizeof(failed), what, length);
	body[sizeof(failed) + length] = '\0';
	wire_send(wire, FRAME_FAILED, session * STREAMS, body, sizeof(failed) + length + 1);
}
