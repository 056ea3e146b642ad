// SPDX-License-Identifier: MIT
/*
 * What a hostile guest's first process says to `vpmu exec`: frames of the wire, and the session
 * that obeys them. One piece of the input arrives before each turn of the session, and the end of
 * the connection after the last one. The session must end, and never hold more of a stream than its
 * window.
 *
 * Input: pieces, each with its size in 2 bytes.
 */
#include "exec/session.c"

#include <stdarg.h>
#include <sys/socket.h>

#include "base/must.h"
#include "fuzz/fuzz.h"

#define MAX_TURNS 1000 /* after the guest's end of the connection was shut */

static int null_fd, input_fd, no_signals;

/* --- what session.c needs of the rest of the command --- */

int failure(enum exit_code code, const char *fmt, ...)
{
	static char text[256 << 10];
	va_list args;

	va_start(args, fmt);
	must(vsnprintf(text, sizeof(text), fmt, args) >= 0);
	va_end(args);
	return code;
}

int out_of_memory(void)
{
	return STATUS_BROKEN;
}

void console_trim(struct exec_machine *machine)
{
	(void)machine;
}

void console_explain(const struct exec_machine *machine)
{
	(void)machine;
}

u64 monotonic_ms(void)
{
	return 1;
}

int filter_apply(const char *request, pid_t qemu)
{
	(void)request;
	(void)qemu;
	return STATUS_OK;
}

/* --- the session --- */

void fuzz_set_up(void)
{
	sigset_t none;

	sigemptyset(&none);
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	input_fd = open("/dev/zero", O_RDWR | O_CLOEXEC); /* never ends: the credit does */
	no_signals = signalfd(-1, &none, SFD_CLOEXEC | SFD_NONBLOCK);
	must(null_fd >= 0 && input_fd >= 0 && no_signals >= 0);
}

static void start(struct session *session, int link)
{
	session->wire.fd = link;
	session->frames.fd = -1;
	session->signals = no_signals;
	session->qemu = session->share = -1;
	session->deadline = 2; /* poll() waits no longer: a piece may hold no whole frame */
	session->input = (struct source){ .fd = input_fd, .stream = STREAM_IN };
	for (u32 i = 0; i < 3; i++)
		session->output[i] =
			(struct sink){ .fd = null_fd, .stream = STREAM_OUT + i, .is_shared = true };
}

static void check(const struct session *session)
{
	for (u32 i = 0; i < 3; i++)
		if (session->output[i].waiting.end - session->output[i].waiting.start > WIRE_WINDOW)
			fuzz_fail("stream %u holds more than its window", i);
	if (session->wire.out.end - session->wire.out.start > WIRE_MAX_QUEUE)
		fuzz_fail("%zu bytes wait for the guest",
			  session->wire.out.end - session->wire.out.start);
}

/* One turn after another, each with more to hear. */
static void run(struct session *session, struct fuzz_input *in, int guest)
{
	u8 piece[4096];
	u32 after = 0;

	while (!session->ended) {
		size_t n = fuzz_take(in, piece, fuzz_number(in, 2) % sizeof(piece));

		if (n && send(guest, piece, n, MSG_NOSIGNAL) < 0)
			must(errno == EAGAIN);
		if (!n && !fuzz_left(in)) {
			shutdown(guest, SHUT_WR);
			if (after++ == MAX_TURNS)
				fuzz_fail("the session does not end");
		}
		turn(session);
		check(session);
	}
}

void fuzz_one(struct fuzz_input *in)
{
	static char *command[] = { "true", NULL };
	struct exec_options options = { .command = command };
	struct exec_machine machine = { .qemu = -1 };
	struct session session = { .options = &options, .machine = &machine };
	int ends[2];

	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends));
	start(&session, ends[0]);
	run(&session, in, ends[1]);
	write_rest(&session);
	for (u32 i = 0; i < 3; i++)
		free(session.output[i].waiting.bytes);
	free(session.wire.in.bytes);
	free(session.wire.out.bytes);
	close(ends[0]);
	close(ends[1]);
}
