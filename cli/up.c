// SPDX-License-Identifier: MIT
/*
 * vpmu up: starts a guest that stays, for `vpmu exec --in`; vpmu down: ends one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/base/monotonic.h"
#include "cli/cli.h"
#include "exec/exec.h"
#include "exec/wire.h"

/* What a guest that stays cannot have. */
static int check_options(const struct exec_options *options)
{
	if (options->in)
		return usage_error(&command_up, "--in is for 'vpmu exec'");
	if (options->timeout)
		return usage_error(&command_up, "--timeout is for 'vpmu exec --in'");
	if (options->deterministic)
		return usage_error(&command_up, "a deterministic guest runs one command: "
						"'vpmu exec --deterministic'");
	return STATUS_OK;
}

/* Nothing of the terminal or the folder that it was started from is kept busy. */
static bool detach(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || chdir("/"))
		return false;
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	return true;
}

/* The process that stays. It says on the pipe that the guest is there; until then it ends with the
 * one that started it. */
static int stay(const struct exec_options *options, pid_t parent, int ready)
{
	struct exec_machine machine = { 0 };
	int lock, listener = -1, status;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		return STATUS_BROKEN;
	status = stay_claim(options->name, &lock);
	if (!status)
		status = machine_start(options, &machine);
	if (!status && !options->dry_run)
		status = session_run(options, &machine);
	if (!status && !options->dry_run) {
		listener = stay_listen(options->name);
		prctl(PR_SET_PDEATHSIG, 0);
		if (listener < 0 || setsid() < 0 || !detach() || write(ready, "", 1) != 1)
			status = failure(STATUS_BROKEN, "the guest cannot stay: %s",
					 strerror(errno));
	}
	if (status || options->dry_run) {
		machine_stop(&machine);
		return status;
	}
	close(ready);
	stay_serve(options->name, &machine, listener);
	return STATUS_OK;
}

/* In the new process, whose end drops what is not written: of a dry run that is everything. */
static void stay_and_end(const struct exec_options *options, pid_t parent, int ready)
{
	int status = stay(options, parent, ready);

	if ((fflush(stdout) || ferror(stdout)) && !status)
		status = failure(STATUS_BROKEN, "cannot write: %s", strerror(errno));
	_exit(status);
}

static int start(const struct exec_options *options)
{
	pid_t parent = getpid(), pid;
	int ready[2], status;
	char byte;

	if (pipe2(ready, O_CLOEXEC))
		return failure(STATUS_BROKEN, "cannot make a pipe: %s", strerror(errno));
	fflush(NULL); /* or both processes write it */
	pid = fork();
	if (pid < 0)
		return failure(STATUS_BROKEN, "cannot start a process: %s", strerror(errno));
	if (!pid) {
		close(ready[0]);
		stay_and_end(options, parent, ready[1]);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) == 1)
		return STATUS_OK;
	if (waitpid(pid, &status, 0) == pid && WIFEXITED(status))
		return WEXITSTATUS(status);
	return failure(STATUS_BROKEN, "the process of the guest was killed");
}

static int run_up(int argc, char **argv)
{
	static char *nothing[] = { NULL };
	struct exec_options options = { EXEC_DEFAULTS, .command = nothing };
	int i = 2, status;

	open_standard_files();
	options.started = monotonic_ms();
	if (argc < 2)
		return usage_error(&command_up, "there is no name for the guest");
	options.name = argv[1];
	options.help = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h");
	status = options.help ? STATUS_OK : exec_options_read(&options, argv, &i);
	if (options.help)
		command_help(&command_up);
	if (status || options.help)
		return status;
	if (i < argc)
		return usage_error(&command_up, "cannot make sense of '%s'", argv[i]);
	status = check_options(&options);
	if (!status)
		status = exec_options_check(&options);
	return status ? status : start(&options);
}

#define PATIENCE 10000 /* milliseconds */

/* The guest's process says nothing to a client that ends it, unless it has no room for one. */
static int down_refused(const char *name, const struct frame *frame, const u8 *body)
{
	u32 skipped = sizeof(struct failed);

	if (frame->type != FRAME_FAILED || frame->size < skipped)
		return failure(STATUS_BROKEN, "the process of the guest '%s' broke the protocol",
			       name);
	return failure(STATUS_BROKEN, "the guest '%s' was not ended: %.*s", name,
		       (int)(frame->size - skipped), (const char *)body + skipped);
}

/* The process stops the machine before it ends, and then its name is free. */
static int wait_for_end(const char *name, int fd, int process)
{
	struct wire wire = { .fd = fd };
	u64 deadline = monotonic_ms() + PATIENCE;
	const struct frame *frame;
	const u8 *body;

	for (u64 at = monotonic_ms(); at < deadline; at = monotonic_ms()) {
		struct pollfd wait[] = { { process, POLLIN, 0 },
					 { wire.closed ? -1 : fd, POLLIN, 0 } };

		if (poll(wait, 2, deadline - at) <= 0)
			continue;
		if (wait[1].revents)
			wire_fill(&wire);
		frame = wire_next(&wire, &body);
		if (frame)
			return down_refused(name, frame, body);
		if (wait[0].revents)
			return STATUS_OK;
	}
	return failure(STATUS_BROKEN, "the guest '%s' does not end", name);
}

static int run_down(int argc, char **argv)
{
	struct wire wire = { .fd = -1 };
	int process, status;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		command_help(&command_down);
		return STATUS_OK;
	}
	if (argc != 2)
		return usage_error(&command_down, "it takes the name of one guest");
	status = stay_connect(argv[1], &wire.fd);
	if (status)
		return status;
	process = stay_process(wire.fd);
	if (process < 0)
		return failure(STATUS_BROKEN, "the process of the guest '%s' cannot be found: %s",
			       argv[1], strerror(errno));
	signal(SIGPIPE, SIG_IGN); /* it may have closed the socket: its reason can still be read */
	wire_send(&wire, FRAME_DOWN, 0, NULL, 0);
	wire_flush(&wire);
	return wait_for_end(argv[1], wire.fd, process);
}

static void describe_up(void)
{
	puts("The guest has a name, boots once and stays: 'vpmu exec --in NAME -- COMMAND' runs a\n"
	     "command in it, several at once if asked to, each with its own standard files, terminal,\n"
	     "signals, working directory and exit code. It sees the host's files as they are; what\n"
	     "commands write is seen by those that follow, and gone with the guest, except in folders\n"
	     "shared with --rw. A command whose 'vpmu exec' is killed is killed, too.\n\n"
	     "options: those of 'vpmu exec', but for --in, --timeout, and --deterministic with what is for it.\n\n"
	     "examples:\n"
	     "  vpmu up work --cpu milan --cpus 2 --rw .\n"
	     "  vpmu exec --in work -- perf stat -e instructions:u ls\n"
	     "  vpmu exec --in work -- bash\n"
	     "  vpmu down work");
}

static void describe_down(void)
{
	puts("Commands that run in it end with it. 'vpmu ps' shows which guests there are.");
}

const struct command command_up = {
	.name = "up",
	.synopsis = "NAME [OPTIONS]",
	.summary = "Start a guest that stays, for vpmu exec --in",
	.second = &command_down,
	.both = "Start a guest that stays, for vpmu exec --in; end it",
	.run = run_up,
	.describe = describe_up,
};

const struct command command_down = {
	.name = "down",
	.synopsis = "NAME",
	.summary = "End a guest that vpmu up started",
	.run = run_down,
	.describe = describe_down,
};
