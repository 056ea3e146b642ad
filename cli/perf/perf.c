// SPDX-License-Identifier: MIT
/*
 * vpmu perf and vpmu rr: these programs in a guest that writes to the current folder. What perf
 * does with files that exist, it does on the host. After a recording the host's perf knows the
 * names of the guest's kernel and of code that a JIT made there.
 */
#include "cli/perf/perf.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/types.h"
#include "cli/cli.h"
#include "exec/exec.h"

/*
 * Runs "$@" in the guest and leaves in the folder $1 what the host's perf will want: the symbols of
 * the kernel, unless they are in perf's cache $2 or there is none, and maps of JIT code that are
 * newer than its start. A signal goes to the whole process group: the shell must outlive the
 * program for its maps.
 */
static const char guest_script[] =
	"scratch=$1 cache=$2; shift 2; trap : HUP INT QUIT TERM\n"
	"if [ -n \"$cache\" ] && id=$(perf buildid-list -k 2>/dev/null) &&\n"
	"	echo \"$id\" >\"$scratch/id\" &&\n"
	"	! [ -e \"$cache/[kernel.kallsyms]/$id/kallsyms\" ]; then\n"
	"	cp /proc/kallsyms \"$scratch\"\n"
	"fi\n"
	"begun=$(mktemp) && \"$@\"; status=$?\n"
	"for map in /tmp/perf-*.map; do\n"
	"	if [ \"$map\" -nt \"$begun\" ]; then cp \"$map\" \"$scratch\"; fi\n"
	"done\n"
	"exit $status\n";

/* --- a command line of vpmu exec --- */

struct words {
	char **word;
	u32 count;
	bool is_in; /* --in: the guest is there, and its folders and processor are chosen */
};

static void add(struct words *words, const char *word)
{
	words->word[words->count++] = (char *)word;
}

/* For a new guest. */
static void share(struct words *words, const char *folder)
{
	if (words->is_in)
		return;
	add(words, "--rw");
	add(words, folder);
}

static void add_all(struct words *words, char **from, u32 n)
{
	for (u32 i = 0; i < n; i++)
		add(words, from[i]);
}

static int become_exec(struct words *words)
{
	add(words, NULL);
	execv("/proc/self/exe", words->word);
	return failure(STATUS_BROKEN, "cannot start vpmu exec: %s", strerror(errno));
}

static bool is_installed(const char *program)
{
	const char *folder = getenv("PATH") ?: "/usr/bin:/bin";
	char path[PATH_MAX];

	for (;; folder++) {
		int length = strcspn(folder, ":");

		snprintf(path, sizeof(path), "%.*s/%s", length, folder, program);
		if (!access(path, X_OK))
			return true;
		folder += length;
		if (!*folder)
			return false;
	}
}

/* The program's words, after the options for vpmu exec. NULL: `status` says why there are none. */
static char **find_program(const struct command *command, int argc, char **argv, bool *is_in,
			   int *status)
{
	int end;

	*status = STATUS_OK;
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		command_help(command);
		return NULL;
	}
	end = exec_options_end(command, argc, argv, is_in);
	*status = STATUS_USAGE;
	if (end < 0)
		return NULL;
	end += end < argc && !strcmp(argv[end], "--");
	if (end < argc)
		*status = STATUS_OK;
	else
		usage_error(command, "there is nothing for %s to do", command->name);
	return end < argc ? argv + end : NULL;
}

/* "vpmu exec --rw ." with the user's own options, and room for more words. False: no memory. */
static bool begin_words(struct words *words, const char *cpu, int argc, char **argv, char **program)
{
	u32 noptions = program - argv - 1;

	words->word = calloc(argc + 32, sizeof(char *));
	words->count = 0;
	if (!words->word)
		return false;
	if (noptions && !strcmp(program[-1], "--"))
		noptions--;
	add(words, "vpmu");
	add(words, "exec");
	share(words, ".");
	if (cpu && !words->is_in) {
		add(words, "--cpu");
		add(words, cpu);
	}
	add_all(words, argv + 1, noptions); /* their --cpu is the later one, and counts */
	return true;
}

static u32 count_words(char **word)
{
	u32 n = 0;

	while (word[n])
		n++;
	return n;
}

/* --- perf --- */

static int run_on_host(char **program)
{
	perf_place_maps(perf_input(program));
	program[-1] = "perf";
	execvp("perf", program - 1);
	return failure(STATUS_CANNOT, "cannot start perf: %s", strerror(errno));
}

/* The folder that a program was told to write to, if there is one. */
static void share_output(struct words *words, const char *output, char folder[PATH_MAX])
{
	char *slash;

	if (!output || !strcmp(output, "-"))
		return;
	snprintf(folder, PATH_MAX, "%s", output);
	for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/';)
		folder[--n] = '\0';
	slash = strrchr(folder, '/');
	if (!slash)
		return;
	slash[slash == folder] = '\0';
	share(words, folder);
}

static pid_t exec_pid;

static void pass_on(int number)
{
	kill(exec_pid, number);
}

/* The terminal sends its signals to the guest's vpmu too. The others are passed on. */
static int wait_for(pid_t pid)
{
	static const int passed[] = { SIGTERM, SIGHUP };
	struct sigaction pass = { .sa_handler = pass_on }, ignore = { .sa_handler = SIG_IGN };
	int status;

	exec_pid = pid;
	for (u32 i = 0; i < ARRAY_SIZE(passed); i++)
		sigaction(passed[i], &pass, NULL);
	sigaction(SIGINT, &ignore, NULL);
	sigaction(SIGQUIT, &ignore, NULL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return STATUS_BROKEN;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Runs perf in a guest, and takes over what its recording needs on the host. */
static int record(struct words *words, const char *scratch, const char *output)
{
	struct stat before = { 0 }, after = { 0 };
	struct perf_file data;
	pid_t pid;
	int status;

	perf_file_open(output, &data);
	fstatat(data.folder, data.name, &before, 0);
	pid = fork();
	if (!pid)
		_exit(become_exec(words));
	status = pid < 0 ? failure(STATUS_BROKEN, "cannot start a process: %s", strerror(errno))
			 : wait_for(pid);
	fstatat(data.folder, data.name, &after, 0);
	perf_take_symbols(scratch, is_same_file(&before, &after) ? NULL : &data);
	perf_file_close(&data);
	return status;
}

static int prepare_record(struct words *words, char **program, int at)
{
	char scratch[PATH_MAX], cache[PATH_MAX] = "";
	const char *output = perf_output(program);

	snprintf(scratch, sizeof(scratch), "%s/vpmu-perf-XXXXXX", getenv("TMPDIR") ?: "/tmp");
	if (!mkdtemp(scratch))
		return failure(STATUS_BROKEN, "cannot make %s: %s", scratch, strerror(errno));
	perf_cache(cache);
	share(words, scratch);
	add(words, "--");
	add(words, "sh");
	add(words, "-c");
	add(words, guest_script);
	add(words, "sh");
	add(words, scratch);
	add(words, cache);
	add(words, "perf");
	add_all(words, program, at + 1);
	/* Its standard output is a pipe in the guest, into which perf would write. An -o of the
	 * user's comes later, and counts. */
	add(words, "-o");
	add(words, PERF_DATA);
	add_all(words, program + at + 1, count_words(program + at + 1));
	return record(words, scratch, output ?: PERF_DATA);
}

static int run_perf(int argc, char **argv)
{
	char folder[PATH_MAX];
	struct words words;
	int status, at;
	char **program = find_program(&command_perf, argc, argv, &words.is_in, &status);

	if (!program)
		return status;
	if (!is_installed("perf"))
		return failure(STATUS_MISSING, "there is no perf: run 'apt install linux-perf'");
	if (perf_is_for_host(program))
		return run_on_host(program);
	if (!begin_words(&words, NULL, argc, argv, program))
		return out_of_memory();
	share_output(&words, perf_output(program), folder);
	at = perf_find_record(program);
	if (at >= 0)
		return prepare_record(&words, program, at);
	add(&words, "--");
	add(&words, "perf");
	add_all(&words, program, count_words(program));
	return become_exec(&words);
}

static void describe_perf(void)
{
	puts("OPTIONS are those of vpmu exec; what perf writes lands in the current folder, or "
	     "where\n"
	     "its -o says. Commands of perf that read files run on the host: report, annotate,\n"
	     "script, diff and their like; after a recording they name the functions of the "
	     "guest's\n"
	     "kernel, and of JIT code that /tmp/perf-PID.map describes. With --in NAME perf "
	     "writes\n"
	     "where that guest may (vpmu up --rw), and these names are not taken over.\n\n"
	     "examples:\n"
	     "  vpmu perf stat -e instructions:u ./my-program\n"
	     "  vpmu perf --cpu icelake record -g ./my-program\n"
	     "  vpmu perf report");
}

const struct command command_perf = {
	.name = "perf",
	.synopsis = "[OPTIONS] [--] COMMAND [ARGUMENTS]",
	.summary = "Run perf: counting in a guest, reports on the host",
	.second = &command_rr,
	.both = "Run perf or rr in a guest; perf reports on the host",
	.run = run_perf,
	.describe = describe_perf,
};

/* --- rr --- */

/* Where rr keeps its traces. False: there is no home. */
static bool trace_folder(char path[PATH_MAX])
{
	static const struct {
		const char *variable, *folder;
	} places[] = { { "_RR_TRACE_DIR", "" },
		       { "XDG_DATA_HOME", "/rr" },
		       { "HOME", "/.local/share/rr" } };

	for (u32 i = 0; i < ARRAY_SIZE(places); i++) {
		const char *value = getenv(places[i].variable);

		if (!value || value[0] != '/')
			continue;
		snprintf(path, PATH_MAX, "%.*s%s", PATH_MAX - 32, value, places[i].folder);
		return true;
	}
	return false;
}

/* Makes a folder, and those that it is in. */
static bool make_folder(const char *path)
{
	char part[PATH_MAX];

	for (const char *end = path; *end;) {
		end += 1 + strcspn(end + 1, "/");
		snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
		if (mkdir(part, 0700) && errno != EEXIST)
			return false;
	}
	return true;
}

/* One that rr knows; a trace is replayed on the model that it was recorded on. */
#define RR_CPU "skylake"

static int run_rr(int argc, char **argv)
{
	char traces[PATH_MAX], output[PATH_MAX];
	struct words words;
	int status;
	char **program = find_program(&command_rr, argc, argv, &words.is_in, &status);

	if (!program)
		return status;
	if (!is_installed("rr"))
		return failure(STATUS_MISSING, "there is no rr: run 'apt install rr'");
	if (!begin_words(&words, RR_CPU, argc, argv, program))
		return out_of_memory();
	share_output(&words, rr_output(program), output);
	if (!words.is_in && !rr_output(program) && trace_folder(traces)) {
		if (!make_folder(traces) || setenv("_RR_TRACE_DIR", traces, 1))
			return failure(STATUS_BROKEN, "cannot make %s: %s", traces,
				       strerror(errno));
		share(&words, traces);
	}
	add(&words, "--");
	add(&words, "rr");
	add_all(&words, program, count_words(program));
	return become_exec(&words);
}

static void describe_rr(void)
{
	puts("OPTIONS are those of vpmu exec; without --cpu the guest's processor is a skylake, "
	     "which\n"
	     "rr knows. Traces are kept where rr keeps them (~/.local/share/rr), or where its -o "
	     "says,\n"
	     "and are replayed in a guest too. With --in NAME both are as that guest has them.\n\n"
	     "examples:\n"
	     "  vpmu rr record ./my-program\n"
	     "  vpmu rr replay");
}

const struct command command_rr = {
	.name = "rr",
	.synopsis = "[OPTIONS] [--] COMMAND [ARGUMENTS]",
	.summary = "Run rr in a guest: record and replay a program",
	.run = run_rr,
	.describe = describe_rr,
};
