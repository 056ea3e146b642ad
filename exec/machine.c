// SPDX-License-Identifier: MIT
/*
 * The machine: QEMU under `vpmu kvm`, and the server of the host's files, a process of its own.
 * Nothing of it has a name in the file system: sockets and files are inherited descriptors, and
 * both processes die with this one, whatever ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memfile.h"
#include "base/profile.h"
#include "base/written.h"
#include "cli/base/monotonic.h"
#include "exec/exec.h"
#include "exec/qmp.h"
#include "exec/sandbox.h"
#include "exec/share/share.h"
#include "vm/time/clock.h"
#include "vm/cpuid/cpuid.h"

/* In a child: it goes when we go, and the keyboard's signals are not for it. */
static void attach_to_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	setsid();
}

static int trace_end(const struct wiring *wiring)
{
	return wiring->trace && wiring->trace->out ? wiring->trace->end : -1;
}

static void inherit(const struct wiring *wiring)
{
	const int fds[] = { wiring->link,   wiring->files,   wiring->monitor,  wiring->initramfs,
			    wiring->ram,    wiring->console, wiring->turns,    wiring->profile,
			    wiring->shadow, wiring->written, trace_end(wiring) };

	for (u32 i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			fcntl(fds[i], F_SETFD, 0);
}

/* What the user adds with --qemu may open files for writing by their names: disks, say. */
bool machine_is_confined(const struct exec_options *options)
{
	return !options->qemu;
}

/* QEMU opens nothing for writing by a name of the file system. */
static void confine_qemu(const struct exec_options *options)
{
	int error = machine_is_confined(options) ? sandbox_read_only() : 0;

	if (error)
		_exit(failure(STATUS_BROKEN, "QEMU cannot be confined: %s", strerror(error)));
}

void machine_say(const struct exec_options *options, const char *what)
{
	if (!options->verbose && isatty(2))
		fprintf(stderr, "vpmu: %s\n", what);
}

pid_t machine_start_qemu(const struct line *line, const struct wiring *wiring,
			 const struct exec_options *options)
{
	pid_t parent = getpid(), pid = fork();
	int null;

	if (pid)
		return pid;
	attach_to_parent(parent);
	if (!options->verbose)
		dup2(wiring->console, 2);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		_exit(failure(STATUS_BROKEN, "cannot open /dev/null: %s", strerror(errno)));
	dup2(null, 0);
	dup2(null, 1);
	inherit(wiring);
	virtual_environment(options, wiring);
	kept_files_export(wiring->kept);
	if (trace_end(wiring) >= 0)
		trace_export(wiring->trace);
	confine_qemu(options);
	execv("/proc/self/exe", line->word);
	_exit(STATUS_BROKEN);
}

/* Of what we have open it keeps stderr, for a last word, its socket, what a guest on virtual time
 * needs, and the ring: these have the numbers from FIRST_KEPT on. */
#define FIRST_KEPT 4
#define KEPT	   6

static void keep_for_share(int socket, const int kept[KEPT])
{
	int copies[KEPT];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		_exit(failure(STATUS_BROKEN, "cannot open /dev/null: %s", strerror(errno)));
	dup2(null, 0);
	dup2(null, 1);
	for (u32 i = 0; i < KEPT; i++) /* out of the way */
		copies[i] = kept[i] < 0 ? -1 : fcntl(kept[i], F_DUPFD_CLOEXEC, 64);
	socket = fcntl(socket, F_DUPFD_CLOEXEC, 64);
	dup2(socket, 3);
	/* QEMU's ends of sockets are QEMU's alone, or its end would not be seen. */
	close_range(FIRST_KEPT, FIRST_KEPT + KEPT - 1, 0);
	for (u32 i = 0; i < KEPT; i++)
		if (copies[i] >= 0)
			dup2(copies[i], FIRST_KEPT + i);
	close_range(FIRST_KEPT + KEPT, ~0u, 0);
}

/* The terms of a guest on virtual time; false: they cannot be had. */
static bool make_terms(const struct server_files *files, bool fixed, struct share_terms *terms)
{
	void *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, FIRST_KEPT, 0);
	bool profiled = files->profile >= 0; /* VPMU_PROFILE may be a short file: SIGBUS */
	void *profile = profiled ? memfile_map(FIRST_KEPT + 4, sizeof(struct profile)) : NULL;

	*terms = (struct share_terms){
		.page = page,
		.fixed = fixed,
		.order = files->order < 0 ? -1 : FIRST_KEPT + 1,
		.input = files->input < 0 ? -1 : FIRST_KEPT + 2,
		.frames = files->frames_end < 0 ? -1 : FIRST_KEPT + 3,
		.profile = profile,
	};
	return page != MAP_FAILED && (profile || !profiled);
}

pid_t machine_start_share(int socket, const struct exec_options *options,
			  const struct server_files *files, bool is_brief)
{
	const int kept[KEPT] = { files->turns,	    files->order,   files->input,
				 files->frames_end, files->profile, files->written };
	const char *writable[MAX_SHARED];
	struct own_places own;
	struct share_terms terms;
	struct written *ring = NULL;
	pid_t parent = getpid(), pid = fork();
	int error;

	if (pid)
		return pid;
	attach_to_parent(parent);
	keep_for_share(socket, kept);
	if (options->name)
		dup2(0, 2); /* it would keep the caller's open for as long as the guest stays */
	if (files->turns >= 0 && !make_terms(files, options->deterministic, &terms))
		_exit(failure(STATUS_BROKEN, "cannot map a file: %s", strerror(errno)));
	if (files->written >= 0)
		ring = memfile_map(FIRST_KEPT + 5, sizeof(*ring));
	for (u32 i = 0; i < options->shared_count; i++)
		writable[i] = options->shared[i] + 1; /* without its slash */
	if (!own_find(&own, options->trace_hash))
		_exit(out_of_memory());
	error = share_serve(3, writable, options->shared_count, (const char *const *)own.path,
			    files->turns < 0 ? NULL : &terms, ring, is_brief);
	if (error)
		failure(STATUS_BROKEN, "the file server ended: %s", strerror(error));
	_exit(error ? STATUS_BROKEN : STATUS_OK);
}

bool machine_find_qemu(char path[PATH_MAX])
{
	const char *folder = getenv("PATH") ?: "/usr/bin:/bin";

	for (;;) {
		int length = strcspn(folder, ":");

		snprintf(path, PATH_MAX, "%.*s/" QEMU, length, folder);
		if (!access(path, X_OK))
			return true;
		if (!folder[length])
			return false;
		folder += length + 1;
	}
}

/* Our ends of QEMU's sockets. */
struct ends {
	int link, files, monitor;
};

static bool connect_ends(int *ours, int *theirs)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return false;
	*ours = pair[0];
	*theirs = pair[1];
	return true;
}

static bool make_wiring(const struct initramfs *initramfs, const struct exec_state *state,
			struct wiring *wiring, struct ends *ends, char failed[PATH_MAX])
{
	if (!connect_ends(&ends->link, &wiring->link) ||
	    !connect_ends(&ends->files, &wiring->files) ||
	    !connect_ends(&ends->monitor, &wiring->monitor))
		return false;
	fcntl(ends->link, F_SETFL, O_NONBLOCK);
	wiring->ram = state->ram;
	wiring->is_resumable = state->device >= 0;
	if (wiring->is_resumable)
		return true;
	wiring->ram = memfile_create("ram", MFD_CLOEXEC);
	if (wiring->ram < 0)
		return false;
	wiring->initramfs = initramfs_make(initramfs, failed);
	return wiring->initramfs >= 0;
}

static int check_parts(const struct exec_options *options, char init[PATH_MAX])
{
	char library[PATH_MAX], qemu[PATH_MAX];
	int status;

	if (!line_has_machine(options->machine))
		return failure(STATUS_USAGE, "there is no machine '%s': microvm or q35",
			       options->machine);
	status = need_part("vpmu-init", init);
	if (!status)
		status = need_part("libvpmu-kvm.so", library);
	if (status)
		return status;
	if (!machine_find_qemu(qemu))
		return failure(STATUS_BROKEN,
			       "there is no " QEMU ": run 'apt install qemu-system-x86'");
	return STATUS_OK;
}

/* Starts both processes; what they inherited is closed here. */
static int start_processes(const struct exec_options *options, const struct line *line,
			   const struct wiring *wiring, const struct ends *ends,
			   struct exec_machine *machine)
{
	const int closed[] = { ends->files,	 wiring->link,	    wiring->files,
			       wiring->monitor,	 wiring->initramfs, wiring->console,
			       trace_end(wiring) };

	machine->share = machine_start_share(ends->files, options, &machine->files, false);
	machine->qemu = machine_start_qemu(line, wiring, options);
	machine->link = ends->link;
	machine->monitor = (struct monitor){ .fd = ends->monitor };
	for (u32 i = 0; i < ARRAY_SIZE(closed); i++)
		if (closed[i] >= 0)
			close(closed[i]);
	if (machine->qemu > 0 && machine->share > 0)
		return STATUS_OK;
	return failure(STATUS_BROKEN, "cannot start a process: %s", strerror(errno));
}

/* What a machine is made of. */
struct parts {
	char init[PATH_MAX];
	struct exec_kernel kernel;
};

static int start_from(const struct exec_options *options, const struct parts *parts,
		      const struct exec_state *state, struct exec_machine *machine)
{
	struct initramfs initramfs = { parts->init, parts->kernel.modules, options->network };
	struct wiring wiring = NO_WIRING;
	struct ends ends = { -1, -1, -1 };
	struct line line = { .count = 0 };
	char failed[PATH_MAX] = "";
	int status;

	if (!console_open(options->verbose, &wiring.console, &machine->console) ||
	    !make_wiring(&initramfs, state, &wiring, &ends, failed))
		return failure(STATUS_BROKEN, "cannot prepare a guest: %s%s%s", failed,
			       *failed ? ": " : "", strerror(errno));
	wiring.turns = machine->files.turns;
	wiring.written = machine->files.written;
	wiring.profile = machine->files.profile;
	wiring.shadow = options->passes ? options->passes->shadow : -1;
	wiring.trace = &machine->trace;
	wiring.kept = &machine->kept;
	line_make(&line, options, parts->kernel.image, state->khz, &wiring);
	if (line.is_broken)
		return out_of_memory();
	if (line.is_short)
		return failure(STATUS_USAGE,
			       "--qemu has too many words: QEMU's command may have %u", MAX_WORDS);
	if (options->dry_run || options->verbose)
		line_print(options->dry_run ? stdout : stderr, &line);
	if (options->dry_run)
		return STATUS_OK;
	if (!wiring.is_resumable)
		machine_say(options, "booting a guest");
	machine->ram = fcntl(wiring.ram, F_DUPFD_CLOEXEC, 3);
	status = start_processes(options, &line, &wiring, &ends, machine);
	if (status)
		return status;
	if (wiring.is_resumable) {
		machine->resumed = monitor_prepare(&machine->monitor, state->device) &&
				   state_fill(state) && monitor_resume(&machine->monitor);
		return STATUS_OK;
	}
	close(wiring.ram);
	/* If QEMU does not answer it ends or has ended, which the session sees. */
	monitor_open(&machine->monitor);
	return STATUS_OK;
}

/* Virtual time has the frequency of the model. */
u32 machine_khz(const struct exec_options *options)
{
	const struct model *model = cpuid_model(options->cpu ?: getenv("VPMU_CPU"));

	return options->virtual_clock && model ? model->nominal_mhz * 1000 : clock_host_khz();
}

/* How a boot goes depends on when QEMU's devices answer. */
static int boot(const struct exec_options *options, const struct parts *parts,
		struct exec_machine *machine)
{
	struct exec_state none = NO_STATE;

	if (options->deterministic && !options->dry_run)
		return failure(STATUS_BROKEN,
			       "a deterministic guest is resumed, and no machine could "
			       "be saved or resumed; -v shows more");
	none.khz = machine_khz(options);
	return start_from(options, parts, &none, machine);
}

u64 machine_deadline(const struct exec_options *options)
{
	return options->timeout ? options->started + 1000ull * options->timeout : 0;
}

/* What was done since then takes nothing of the command's time. */
static void extend_deadline(struct exec_machine *machine, u64 since)
{
	if (machine->deadline)
		machine->deadline += monotonic_ms() - since;
}

static bool get_state(const struct exec_options *options, const struct parts *parts,
		      struct exec_machine *machine, struct exec_state *state)
{
	u64 since = monotonic_ms();
	bool ok = line_can_resume(options->machine) && !options->cold && !options->dry_run &&
		  state_get(options, &parts->kernel, parts->init, state);

	extend_deadline(machine, since);
	return ok;
}

int machine_start(const struct exec_options *options, struct exec_machine *machine)
{
	struct exec_state state = NO_STATE;
	struct parts parts;
	u64 since = monotonic_ms();
	int status = check_parts(options, parts.init);
	bool has_state;

	if (!status)
		status = kernel_find(options->kernel, &parts.kernel);
	machine->deadline = machine_deadline(options);
	extend_deadline(machine, since);
	if (!status)
		status = virtual_prepare(options, machine->deadline, &machine->files);
	if (!status && !options->dry_run) /* -1 only makes the guest slower */
		machine->files.written = memfile_fixed("written", sizeof(struct written));
	if (!status)
		status = trace_prepare(options, &machine->files, &machine->trace);
	if (status)
		return status;
	has_state = get_state(options, &parts, machine, &state);
	/* A boot just now has left translations there. */
	kept_files_open(options, machine_is_confined(options), &machine->kept);
	if (!has_state)
		return boot(options, &parts, machine);
	status = start_from(options, &parts, &state, machine);
	state_close(&state);
	if (status || machine->resumed)
		return status;
	/* Whatever is wrong with it, booting needs none. */
	machine_stop(machine);
	state_forget(options, &parts.kernel, parts.init);
	return boot(options, &parts, machine);
}

/* The guest's memory is given back here, while QEMU gives the rest back: both take some ten
 * milliseconds, and the caller waits. */
static void empty_ram(struct exec_machine *machine)
{
	if (machine->ram <= 0)
		return;
	fallocate(machine->ram, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		  lseek(machine->ram, 0, SEEK_END));
	close(machine->ram);
	machine->ram = 0;
}

/* All give their memory back at the same time, and while translations are kept. */
void machine_stop(struct exec_machine *machine)
{
	pid_t *const pid[] = { &machine->qemu, &machine->share };

	for (u32 i = 0; i < ARRAY_SIZE(pid); i++)
		if (*pid[i] > 0)
			kill(*pid[i], SIGKILL);
	empty_ram(machine);
	kept_files_close(&machine->kept);
	for (u32 i = 0; i < ARRAY_SIZE(pid); i++) {
		if (*pid[i] > 0)
			waitpid(*pid[i], NULL, 0);
		*pid[i] = -1; /* another process may have the number by now */
	}
}
