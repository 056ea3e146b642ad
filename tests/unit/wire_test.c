// SPDX-License-Identifier: MIT
/*
 * Frames and windows against another side that lies: each lie is a fault with a name, and none
 * makes this side queue more than its limits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exec/wire.h"

struct pair {
	struct wire wire;
	int other;
};

static struct pair make_pair(void)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
			 0);
	return (struct pair){ .wire = { .fd = ends[0] }, .other = ends[1] };
}

static void close_pair(struct pair *pair)
{
	close(pair->wire.fd);
	close(pair->other);
	free(pair->wire.in.bytes);
	free(pair->wire.out.bytes);
}

static void put_header(struct pair *pair, struct frame frame)
{
	assert_int_equal(write(pair->other, &frame, sizeof(frame)), sizeof(frame));
	wire_fill(&pair->wire);
}

static void a_frame_that_is_none_is_a_fault(void **unused)
{
	static const struct frame bad[] = { { FRAME_DATA, STREAM_OUT, WIRE_MAX_FRAME + 1 },
					    { FRAME_DATA, STREAM_OUT, ~0u },
					    { FRAME_DATA, STREAMS, 0 },
					    { FRAME_CREDIT, 0xffff, 4 } };
	const u8 *body;

	(void)unused;
	for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
		struct pair pair = make_pair();

		put_header(&pair, bad[i]);
		assert_null(wire_next(&pair.wire, &body));
		assert_true(pair.wire.closed);
		assert_string_equal(pair.wire.fault, "it sent a frame that is none");
		put_header(&pair, (struct frame){ FRAME_READY, 0, 0 });
		assert_null(wire_next(&pair.wire, &body)); /* nor is anything after it heard */
		close_pair(&pair);
	}
}

/* A window is what was sent and not yet taken, whatever a credit says. */
static void a_source_never_has_more_than_its_window(void **unused)
{
	static const u32 lies[] = { 1, WIRE_WINDOW, 1u << 31, ~0u };

	(void)unused;
	for (u32 i = 0; i < ARRAY_SIZE(lies); i++) {
		struct source source = { .fd = -1, .credit = WIRE_WINDOW };
		struct wire wire = { .fd = -1 };

		source_grant(&source, &wire, lies[i]);
		assert_string_equal(wire.fault, "it granted a stream more than its window");
		assert_int_equal(source.credit, WIRE_WINDOW);
	}
	struct source source = { .fd = -1, .credit = WIRE_WINDOW - 100 };
	struct wire wire = { .fd = -1 };

	source_grant(&source, &wire, 40);
	source_grant(&source, &wire, 60);
	assert_null(wire.fault);
	assert_int_equal(source.credit, WIRE_WINDOW);
	source.credit -= 10;
	source_grant(&source, &wire, 11);
	assert_non_null(wire.fault);
}

/* Bytes that were written but not yet reported are part of the window. */
static void a_sink_takes_one_window_and_no_more(void **unused)
{
	static u8 bytes[WIRE_WINDOW + 1];
	struct sink waiting = { .fd = 0 }, unreported = { .fd = -1 };
	struct wire wire = { .fd = -1 };

	(void)unused;
	sink_take(&waiting, &wire, bytes, WIRE_WINDOW - 5);
	sink_take(&waiting, &wire, bytes, 5);
	sink_take(&unreported, &wire, bytes, WIRE_WINDOW);
	assert_null(wire.fault);
	sink_take(&waiting, &wire, bytes, 1);
	assert_string_equal(wire.fault, "it sent more of a stream than its window");
	wire.fault = NULL;
	sink_take(&unreported, &wire, bytes, 1);
	assert_non_null(wire.fault);
	assert_int_equal(waiting.waiting.end - waiting.waiting.start, WIRE_WINDOW);
	free(waiting.waiting.bytes);
}

/* It sends byte after byte to a closed stream and never reads the credits for them. */
static void a_side_that_does_not_read_is_a_fault(void **unused)
{
	struct sink sink = { .fd = -1 };
	struct wire wire = { .fd = -1 };
	u32 frames = 0;

	(void)unused;
	for (; !wire.fault && frames < WIRE_MAX_QUEUE; frames++) {
		sink_take(&sink, &wire, (const u8 *)"x", 1);
		sink_pump(&sink, &wire);
	}
	assert_string_equal(wire.fault, "it does not read what it is sent");
	assert_true(wire.out.end - wire.out.start <= WIRE_MAX_QUEUE);
	assert_true(frames > 3 * WIRE_WINDOW); /* which one that reads never gets to */
	free(wire.out.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_that_is_none_is_a_fault),
		cmocka_unit_test(a_source_never_has_more_than_its_window),
		cmocka_unit_test(a_sink_takes_one_window_and_no_more),
		cmocka_unit_test(a_side_that_does_not_read_is_a_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
