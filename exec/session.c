// SPDX-License-Identifier: MIT
/*
 * The host's side of a session: hands the command to the guest, carries bytes between it and our
 * own standard files, passes signals and the terminal's size on, and ends with the command's exit
 * code. A terminal is raw while the command runs: its keys are the guest terminal's to interpret.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "exec/exec.h"
#include "exec/qmp.h"
#include "exec/guest_files.h"
#include "exec/wire.h"
#include "cli/base/monotonic.h"

#define STATUS_SIGNAL 128 /* plus its number, as in sh(1) */

struct session {
	const struct exec_options *options;
	struct exec_machine *machine;
	struct wire wire;
	struct wire frames;    /* of a deterministic guest, which does not use the other for them */
	struct source input;   /* STREAM_IN or STREAM_TERMINAL */
	struct sink output[3]; /* STREAM_OUT, STREAM_ERR, STREAM_TERMINAL */
	struct host_terminal terminal;
	int signals;	 /* signalfd */
	int qemu, share; /* pidfds */
	bool ordered, started;
	u32 interrupts;
	u64 deadline;	  /* the machine's */
	u64 grace;	  /* of a signal that ends us, likewise */
	u32 final_signal; /* which one that was */
	int look_ms;	  /* until it is seen whether there are translations to keep */
	bool ended;
	bool exited; /* the command: its guest's time stands still soon */
	int status;
};

static void end(struct session *session, int status)
{
	session->ended = true;
	session->status = status;
}

/* --- the order --- */

struct text {
	char *bytes;
	size_t size;
	FILE *out;
};

static void put_string(struct text *text, const char *string)
{
	fwrite(string, 1, strlen(string) + 1, text->out);
}

static void put_strings(struct text *text, char *const *list)
{
	for (; *list; list++)
		put_string(text, *list);
}

static u32 count_strings(char *const *list)
{
	u32 count = 0;

	while (list[count])
		count++;
	return count;
}

static void describe_terminal(const struct session *session, struct start *start)
{
	struct { /* of the kernel, and not glibc's struct termios */
		u32 input, output, control, local;
		u8 rest[20];
	} modes = { 0 };

	if (!session->terminal.files)
		return;
	start->size = terminal_size(&session->terminal);
	ioctl(terminal_fd(&session->terminal), TCGETS, &modes);
	if (!session->terminal.is_ours)
		modes.output &= ~OPOST; /* ours stays as it is, and does that */
	memcpy(start->modes, &modes, sizeof(start->modes));
}

static void fill_start(const struct session *session, struct start *start)
{
	struct rlimit stack = { 8 << 20, 8 << 20 };
	struct timespec time;
	mode_t mask = umask(0);

	umask(mask);
	clock_gettime(CLOCK_REALTIME, &time);
	if (session->options->deterministic)
		time = (struct timespec){ VIRTUAL_DATE, 0 };
	getrlimit(RLIMIT_STACK, &stack);
	*start = (struct start){
		.version = WIRE_VERSION,
		.uid = geteuid(),
		.gid = getegid(),
		.umask = mask,
		.terminals = session->terminal.files,
		.network = session->options->network,
		.resumed = session->machine->resumed,
		.counts = session->options->passes != NULL,
		.stack_limit = stack.rlim_cur,
		.seconds = time.tv_sec,
		.nanoseconds = time.tv_nsec,
		.arguments = count_strings(session->options->command),
		.variables = count_strings(environ),
		.folders = session->options->shared_count,
	};
	describe_terminal(session, start);
	if (session->options->deterministic)
		virtual_seed(session->options->seed, start->seed, sizeof(start->seed));
	else if (getrandom(start->seed, sizeof(start->seed), 0) < 0)
		memset(start->seed, 0, sizeof(start->seed));
}

/* A deterministic guest fetches its order: long ones would come in pieces, each at a time of its
 * own. */
static int send_order(struct session *session, const void *body, u32 size)
{
	if (!session->options->deterministic) {
		wire_send(&session->wire, FRAME_START, 0, body, size);
		return STATUS_OK;
	}
	return virtual_order(&session->machine->files, body, size);
}

static int build_order(struct session *session)
{
	static gid_t groups[NGROUPS_MAX];
	struct start start;
	struct text text = { 0 };
	int count = getgroups(ARRAY_SIZE(groups), groups), status;
	char host[256] = "vpmu", folder[PATH_MAX];

	if (!getcwd(folder, sizeof(folder)))
		return failure(STATUS_BROKEN, "the working directory has no path: %s",
			       strerror(errno));
	gethostname(host, sizeof(host) - 1);
	fill_start(session, &start);
	start.groups = count > 0 ? count : 0;
	text.out = open_memstream(&text.bytes, &text.size);
	if (!text.out)
		return out_of_memory();
	fwrite(&start, sizeof(start), 1, text.out);
	fwrite(groups, sizeof(u32), start.groups, text.out);
	put_string(&text, host);
	put_string(&text, folder);
	put_strings(&text, session->options->command);
	put_strings(&text, environ);
	for (u32 i = 0; i < start.folders; i++)
		put_string(&text, session->options->shared[i]);
	if (fclose(text.out))
		return out_of_memory();
	status = send_order(session, text.bytes, text.size);
	free(text.bytes);
	return status;
}

static void give_order(struct session *session)
{
	int status = STATUS_OK;

	if (session->options->filter)
		status = filter_apply(session->options->filter, session->machine->qemu);
	if (!status)
		status = build_order(session);
	if (status)
		end(session, status);
	session->ordered = true;
	session->input.credit = WIRE_WINDOW;
	if (session->options->deterministic || !session->options->command[0])
		session->input.fd = -1; /* the guest has it as a file, or there is no command */
}

/* --- what the guest says --- */

/* Keys are the guest's from now on, unless the terminal is another's: then they are nobody's here,
 * for as long as the command runs. */
static void begin_input(struct session *session)
{
	terminal_make_raw(&session->terminal);
	if (session->terminal.files & 1 && !session->terminal.is_ours)
		session->input.fd = -1;
}

static void command_failed(struct session *session, const u8 *body, u32 size)
{
	const char *name = session->options->command[0] ?: "";
	struct failed failed = { .step = FAILED_SET_UP };
	int length = 0;

	if (size >= sizeof(failed)) {
		memcpy(&failed, body, sizeof(failed));
		length = size - sizeof(failed);
	}
	if (failed.step == FAILED_EXEC)
		end(session,
		    failure(failed.error == ENOENT ? STATUS_MISSING : STATUS_CANNOT,
			    "cannot start '%s' in the guest: %s", name, strerror(failed.error)));
	else if (failed.step == FAILED_FOLDER)
		end(session,
		    failure(STATUS_CANNOT,
			    "the guest cannot enter the working directory: %s; what is in /dev, "
			    "/proc and /sys is the guest's own",
			    strerror(failed.error)));
	else
		end(session,
		    failure(STATUS_BROKEN, "the guest could not be set up: %.*s: %s%s", length,
			    (const char *)body + sizeof(failed), strerror(failed.error),
			    session->options->verbose || session->options->in
				    ? ""
				    : "; -v shows the guest's console"));
}

static void command_ended(struct session *session, u32 status)
{
	end(session, WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status));
}

static void hear(struct session *session, struct wire *wire, const struct frame *frame,
		 const u8 *body)
{
	struct sink *sink = frame->stream ? &session->output[frame->stream - STREAM_OUT] : NULL;
	u32 number = 0;

	if (frame->size >= sizeof(number))
		memcpy(&number, body, sizeof(number));
	switch (frame->type) {
	case FRAME_READY:
		if (!session->ordered)
			give_order(session);
		else if (!session->options->command[0])
			end(session, STATUS_OK);
		break;
	case FRAME_STARTED:
		session->started = true;
		begin_input(session);
		break;
	case FRAME_FAILED:
		command_failed(session, body, frame->size);
		break;
	case FRAME_EXIT:
		session->exited = true;
		command_ended(session, number);
		break;
	case FRAME_DATA:
		if (sink)
			sink_take(sink, wire, body, frame->size);
		break;
	case FRAME_END:
		if (sink)
			sink->ended = true;
		break;
	case FRAME_CREDIT:
		if (session->ordered && frame->stream == session->input.stream)
			source_grant(&session->input, wire, number);
		else
			wire_fault(wire, "it granted what it was not asked for");
		break;
	case FRAME_CLOSED:
		if (frame->stream == session->input.stream)
			session->input.fd = -1;
		break;
	}
}

/* --- what we hear --- */

static const int forwarded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

#define PATIENCE 3    /* interrupts that a guest may ignore */
#define GRACE_MS 5000 /* that a command has to end in after SIGTERM and SIGHUP */

static void forward(struct session *session, u32 signal)
{
	bool final = signal == SIGTERM || signal == SIGHUP;
	bool reaches = session->started && !session->options->deterministic;

	if (!reaches || (signal == SIGINT && ++session->interrupts > PATIENCE)) {
		end(session, STATUS_SIGNAL + signal);
		return;
	}
	wire_send(&session->wire, FRAME_SIGNAL, 0, &signal, sizeof(signal));
	if (final && !session->grace) {
		session->grace = monotonic_ms() + GRACE_MS;
		session->final_signal = signal;
	}
}

static void take_signal(struct session *session)
{
	struct signalfd_siginfo info;
	struct size size;

	if (read(session->signals, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo != SIGWINCH) {
		forward(session, info.ssi_signo);
	} else if (session->terminal.files && session->started) {
		size = terminal_size(&session->terminal);
		wire_send(&session->wire, FRAME_RESIZE, 0, &size, sizeof(size));
	}
}

/* The end of the time that is left, 0: there is none. */
static u64 limit_of(const struct session *session)
{
	bool is_grace =
		session->grace && (!session->deadline || session->grace < session->deadline);

	return is_grace ? session->grace : session->deadline;
}

static void end_at_limit(struct session *session)
{
	terminal_restore(&session->terminal);
	if (limit_of(session) == session->grace)
		end(session, STATUS_SIGNAL + session->final_signal);
	else
		end(session, failure(STATUS_TIMEOUT, TIMED_OUT, session->options->timeout));
}

static void check_limit(struct session *session)
{
	u64 limit = limit_of(session);

	if (limit && monotonic_ms() >= limit && !session->ended)
		end_at_limit(session);
}

static int milliseconds_left(const struct session *session)
{
	u64 at = monotonic_ms(), limit = limit_of(session);

	if (!limit)
		return -1;
	return limit <= at ? 0 : limit - at;
}

/* A command in a guest that stays has no console. */
static int milliseconds_to_wait(const struct session *session)
{
	int left = milliseconds_left(session);

	if (session->machine->console < 0 || (left >= 0 && left < session->look_ms))
		return left;
	return session->look_ms;
}

/* Often while there are new ones. */
static void keep_translations(struct session *session)
{
	bool is_growing = kept_files_merge_early(&session->machine->kept);

	session->look_ms = is_growing ? LOOK_MS : 2 * session->look_ms;
	if (session->look_ms > CONSOLE_MS)
		session->look_ms = CONSOLE_MS;
}

static void guest_gone(struct session *session, const char *how)
{
	terminal_restore(&session->terminal);
	failure(STATUS_BROKEN, "the guest %s%s", how,
		session->options->verbose || session->options->in ? ""
								  : "; -v shows more. It said:");
	console_explain(session->machine);
	end(session, STATUS_BROKEN);
}

static void guest_lies(struct session *session)
{
	terminal_restore(&session->terminal);
	end(session, failure(STATUS_BROKEN, "the guest broke the protocol with vpmu: %s",
			     session->wire.fault ?: session->frames.fault));
}

/* A machine whose failure could not be seen does not go on. */
static void hear_monitor(struct session *session)
{
	struct monitor *monitor = &session->machine->monitor;

	if (monitor_is_closed(monitor))
		guest_gone(session, "ended before the command did");
	else if (monitor_read(monitor))
		guest_gone(session, "stopped before the command did");
}

/* A guest without its root would wait for ever. The file server ends by itself when QEMU does; if
 * it failed, it has said why. */
static void share_gone(struct session *session)
{
	siginfo_t info = { 0 };

	waitid(P_PIDFD, session->share, &info, WEXITED | WNOHANG | WNOWAIT);
	if (info.si_code == CLD_EXITED && !info.si_status) {
		guest_gone(session, "ended before the command did");
		return;
	}
	terminal_restore(&session->terminal);
	end(session, failure(STATUS_BROKEN, "the file server ended before the command did%s%s",
			     info.si_code == CLD_EXITED ? "" : ": ",
			     info.si_code == CLD_EXITED ? "" : strsignal(info.si_status)));
}

/* --- the loop --- */

static void listen_to(struct session *session, struct wire *wire)
{
	const struct frame *frame;
	const u8 *body;

	wire_fill(wire);
	while (!session->ended && (frame = wire_next(wire, &body)))
		hear(session, wire, frame, body);
}

/* The wire that streams are on. */
static struct wire *streams(struct session *session)
{
	return session->options->deterministic ? &session->frames : &session->wire;
}

/* Frames that come one way are read when the streams of the last ones have been written. */
static int frames_to_read(const struct session *session)
{
	for (u32 i = 0; i < 3; i++)
		if (sink_is_waiting(&session->output[i]))
			return -1;
	return session->frames.fd;
}

/* A job that was stopped and goes on in the background does not read keys: they are the shell's. */
static int input_to_read(const struct session *session)
{
	bool has_keys = session->terminal.files & 1;

	if (!source_is_ready(&session->input) || (has_keys && !terminal_is_foreground()))
		return -1;
	return session->input.fd;
}

static struct pollfd trace_to_read(const struct session *session)
{
	const struct exec_trace *trace = &session->machine->trace;

	return (struct pollfd){ trace_is_open(trace) ? trace->socket : -1, POLLIN, 0 };
}

static void take_trace(struct session *session)
{
	trace_read(&session->machine->trace);
	if (session->machine->trace.is_stopped && !session->ended)
		end(session, STATUS_OK);
}

static void turn(struct session *session)
{
	struct wire *wire = &session->wire;
	struct pollfd wait[11] = { { wire->fd, wire_events(wire), 0 },
				   { session->signals, POLLIN, 0 },
				   { session->qemu, POLLIN, 0 },
				   { input_to_read(session), POLLIN, 0 } };

	for (u32 i = 0; i < 3; i++)
		wait[4 + i] = (struct pollfd){ sink_is_waiting(&session->output[i])
						       ? session->output[i].fd
						       : -1,
					       POLLOUT, 0 };
	wait[7] = (struct pollfd){ session->machine->monitor.fd, POLLIN, 0 };
	wait[8] = (struct pollfd){ session->share, POLLIN, 0 };
	wait[9] = (struct pollfd){ frames_to_read(session), POLLIN, 0 };
	wait[10] = trace_to_read(session);
	if (poll(wait, ARRAY_SIZE(wait), milliseconds_to_wait(session)) < 0)
		return;
	console_trim(session->machine);
	keep_translations(session);
	if (wait[0].revents & (POLLIN | POLLHUP))
		listen_to(session, wire);
	if (wait[9].revents & (POLLIN | POLLHUP))
		listen_to(session, &session->frames);
	for (u32 i = 0; i < 3; i++)
		if (wait[4 + i].revents || !sink_is_waiting(&session->output[i]))
			sink_pump(&session->output[i], streams(session));
	if (wait[3].revents)
		source_pump(&session->input, wire);
	if (wait[10].revents)
		take_trace(session);
	if (wait[1].revents)
		take_signal(session);
	wire_flush(wire);
	check_limit(session);
	if (!session->ended && (wire->fault || session->frames.fault))
		guest_lies(session);
	if (!session->ended && (wire->closed || wait[2].revents))
		guest_gone(session, "ended before the command did");
	if (!session->ended && wait[7].revents)
		hear_monitor(session);
	if (!session->ended && wait[8].revents)
		share_gone(session);
}

/* --- after the command's end --- */

/* Takes a signal for a command that has ended. True: it is one that ends us, and the exit code says
 * that something was lost. */
static bool is_told_to_end(struct session *session)
{
	struct signalfd_siginfo info;

	if (read(session->signals, &info, sizeof(info)) != sizeof(info))
		return false;
	if (info.ssi_signo == SIGWINCH || info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2)
		return false;
	end(session, STATUS_SIGNAL + info.ssi_signo);
	return true;
}

/* Until a reader takes more of the output. False: it has no more time. */
static bool wait_for_reader(struct session *session, const struct sink *sink)
{
	struct pollfd wait[] = { { sink->fd, POLLOUT, 0 }, { session->signals, POLLIN, 0 } };

	while (!wait[0].revents) {
		int found = poll(wait, 2, milliseconds_left(session));

		if (!found && session->exited)
			end_at_limit(session);
		if (found <= 0 || (wait[1].revents && is_told_to_end(session)))
			return false;
	}
	return true;
}

/* What has come but is not yet written. */
static void write_rest(struct session *session)
{
	for (u32 i = 0; i < 3; i++)
		while (sink_is_waiting(&session->output[i])) {
			if (!wait_for_reader(session, &session->output[i]))
				return;
			sink_pump(&session->output[i], streams(session));
		}
}

/* A guest whose command has ended executes a little more, up to where its trace ends. */
#define TRACE_PATIENCE_MS 60000

static void read_rest_of_trace(struct session *session)
{
	u64 limit = monotonic_ms() + TRACE_PATIENCE_MS;

	while (session->exited && trace_is_open(&session->machine->trace)) {
		struct pollfd wait[] = { trace_to_read(session), { session->signals, POLLIN, 0 } };
		u64 now = monotonic_ms();

		if (now >= limit || poll(wait, 2, limit - now) <= 0 ||
		    (wait[1].revents && is_told_to_end(session)))
			return;
		if (wait[0].revents)
			trace_read(&session->machine->trace);
	}
}

/* A reader that goes away is no error: the command has got SIGPIPE. */
static void report_lost_output(struct session *session)
{
	static const char *const names[] = { "standard output", "standard error", "the terminal" };

	for (u32 i = 0; i < ARRAY_SIZE(names); i++) {
		const struct sink *sink = &session->output[i];
		bool is_counts = sink->stream == STREAM_TERMINAL && session->options->passes;
		int status;

		if (!sink->error)
			continue;
		status = failure(STATUS_BROKEN, "cannot write %s: %s",
				 is_counts ? "the counts" : names[i], strerror(sink->error));
		session->status = session->status ?: status;
	}
}

static void open_streams(struct session *session)
{
	const struct exec_passes *passes = session->options->passes;

	if (!session->options->deterministic)
		session->terminal = session->options->terminal;
	session->input.stream = session->terminal.files & 1 ? STREAM_TERMINAL : STREAM_IN;
	if (session->terminal.files & 1 && !session->terminal.is_ours)
		session->input.fd = -1;
	session->output[0] = (struct sink){ .fd = 1, .stream = STREAM_OUT, .is_shared = true };
	session->output[1] = (struct sink){ .fd = 2, .stream = STREAM_ERR, .is_shared = true };
	session->output[2] =
		(struct sink){ .fd = passes ? passes->counts : terminal_fd(&session->terminal),
			       .stream = STREAM_TERMINAL,
			       .is_shared = true };
}

static bool catch_signals(struct session *session)
{
	sigset_t set;

	sigemptyset(&set);
	for (u32 i = 0; i < ARRAY_SIZE(forwarded); i++) {
		struct sigaction old;

		/* A signal that vpmu was started with ignored stays ignored, as with nohup(1). */
		if (!sigaction(forwarded[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaddset(&set, forwarded[i]);
	}
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	session->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return session->signals >= 0;
}

int session_run(const struct exec_options *options, struct exec_machine *machine)
{
	struct session session = { .options = options, .machine = machine, .look_ms = LOOK_MS };

	session.wire.fd = machine->link;
	session.frames = (struct wire){ .fd = -1, .way = WIRE_IN };
	if (options->deterministic)
		session.frames.fd = machine->files.frames;
	session.qemu = syscall(SYS_pidfd_open, machine->qemu, 0);
	session.share = syscall(SYS_pidfd_open, machine->share, 0);
	session.deadline = machine->deadline;
	open_streams(&session);
	if (!catch_signals(&session))
		return failure(STATUS_BROKEN, "cannot catch signals: %s", strerror(errno));
	/* A deterministic guest is called after QEMU's answer, when interrupts that its devices
	 * raise at the start are there. */
	if (machine->resumed && !options->deterministic)
		give_order(&session);
	wire_flush(&session.wire);
	if (!session.ended && monitor_has_failed(&machine->monitor))
		guest_gone(&session, "stopped before the command did");
	if (!session.ended && machine->resumed && !session.ordered)
		give_order(&session);
	while (!session.ended)
		turn(&session);
	write_rest(&session);
	read_rest_of_trace(&session);
	terminal_restore(&session.terminal);
	report_lost_output(&session);
	return session.status;
}
