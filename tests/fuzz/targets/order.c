// SPDX-License-Identifier: MIT
/*
 * What the guest's first process hears of the host: an order, and the frames of a session. Its host
 * is trusted, but may be of another version. Each frame lies in memory of its own size, so that
 * AddressSanitizer sees what is read beyond it.
 *
 * Input: frames: type, stream, size (2 bytes), body. The type FRAME_START is an order.
 */
#include <signal.h>
#include <stdlib.h>

static int no_kill(int process, int signal);

#define main first_process
#define kill no_kill
#include "exec/guest/init.c"
#include "exec/guest/order.c"
#include "exec/guest/session.c"
#undef main
#undef kill

#include "base/must.h"
#include "fuzz/fuzz.h"

#define MAX_FRAMES 64

static int null_fd;

/* --- what these need of the others, and of libc --- */

static int no_kill(int process, int signal)
{
	(void)process;
	(void)signal;
	return 0;
}

void root_mount_early(void)
{
}

void root_add_extras(void)
{
}

void devices_load(void)
{
}

int devices_open_port(void)
{
	return -1;
}

void devices_look_again(void)
{
}

bool parked_is_wanted(void)
{
	return false;
}

bool parked_read(void)
{
	return false;
}

void parked_leave(bool returns)
{
	(void)returns;
}

bool parked_return(void)
{
	return false;
}

bool fetch_is_wanted(void)
{
	return false;
}

void fetch_settle(void)
{
}

void fetch_begin(const struct wire *wire)
{
	(void)wire;
}

void fetch_wait(void)
{
}

const char *fetch_order(struct wire *wire, struct order *order, u8 **body, u32 *size)
{
	(void)wire;
	(void)order;
	(void)body;
	(void)size;
	return "there is none";
}

const char *root_build(void)
{
	return NULL;
}

const char *root_enter(const struct order *order)
{
	(void)order;
	return NULL;
}

void settings_prepare(void)
{
}

void settings_apply(const struct order *order)
{
	(void)order;
}

void commands_run(struct wire *wire, struct order *order)
{
	(void)wire;
	(void)order;
	abort();
}

/* --- frames --- */

void fuzz_set_up(void)
{
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	must(null_fd >= 0);
}

/* Every string of an order ends within it. */
static void check_order(const struct order *order, const u8 *body, u32 size)
{
	const char *last = order->folder;

	for (u32 i = 0; i < order->start.arguments; i++)
		last = order->arguments[i];
	for (u32 i = 0; i < order->start.variables; i++)
		last = order->variables[i];
	for (u32 i = 0; i < order->start.folders; i++)
		last = order->shared[i];
	if (last < (const char *)body || last + strlen(last) >= (const char *)body + size)
		fuzz_fail("an order is taken whose last string has no end");
}

static void hear_order(const u8 *body, u32 size)
{
	struct order order = { .body = NULL };

	if (order_read(&order, body, size))
		check_order(&order, body, size);
	order_free(&order);
}

static void hear(struct session *session, struct fuzz_input *in)
{
	struct frame frame = { .type = fuzz_u8(in), .stream = fuzz_u8(in) % STREAMS };
	u32 size = fuzz_number(in, 2);
	u8 *body;

	frame.size = size < fuzz_left(in) ? size : fuzz_left(in);
	body = malloc(frame.size);
	must(body || !frame.size);
	fuzz_take(in, body, frame.size);
	if (frame.type == FRAME_START)
		hear_order(body, frame.size);
	else
		session_obey(session, &frame, body);
	sink_pump(&session->input, session->wire);
	free(body);
}

void fuzz_one(struct fuzz_input *in)
{
	struct wire wire = { .fd = null_fd };
	struct session session = { .wire = &wire, .terminal = -1 };

	session.input = (struct sink){ .fd = null_fd, .stream = STREAM_IN, .is_shared = true };
	for (u32 i = 0; i < 3; i++)
		session.output[i] =
			(struct source){ -1, STREAM_OUT + i, WIRE_WINDOW, .is_owned = true };
	for (u32 i = 0; i < MAX_FRAMES && fuzz_left(in); i++)
		hear(&session, in);
	free(session.input.waiting.bytes);
	free(wire.out.bytes);
}
