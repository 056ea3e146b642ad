// SPDX-License-Identifier: MIT
/*
 * Running the command of a trace again: `vpmu exec` as a child, in the working directory and with
 * the environment of the trace, up to an instruction. What it prints is not shown.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memfile.h"
#include "cli/base/command.h"
#include "cli/diverge/diverge.h"

#define INPUT_LIMIT (1ull << 30)

/* --- standard input --- */

static int copy_input(int to, u64 *size)
{
	static u8 bytes[64 << 10];
	ssize_t n;

	*size = 0;
	while ((n = read(0, bytes, sizeof(bytes))) > 0 && *size <= INPUT_LIMIT) {
		if (write(to, bytes, n) != n)
			return failure(STATUS_BROKEN, "cannot keep standard input in memory: %s",
				       strerror(errno));
		*size += n;
	}
	return n ? failure(STATUS_BROKEN, "cannot read standard input: %s",
			   n < 0 ? strerror(errno) : "it is longer than 1 GiB")
		 : STATUS_OK;
}

/* As vpmu exec hashes it; 0 if there is none. */
static u64 hash_input(int fd, u64 size)
{
	void *map = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	u64 hash;

	if (map == MAP_FAILED)
		return 0;
	hash = trace_hash(TRACE_SEED, map, size);
	munmap(map, size);
	return hash;
}

static void compare_input(const struct trace_file *file, const char *name, u64 size, u64 hash)
{
	if (file->header.input_size != size || file->header.input_hash != hash)
		printf("Standard input is not that of %s: it had %llu bytes, or others.\n", name,
		       (unsigned long long)file->header.input_size);
}

int repeat_input(const struct trace_file *a, const struct trace_file *b, int *input)
{
	u64 size, hash;
	int status;

	*input = memfile_create("input", MFD_CLOEXEC);
	if (*input < 0)
		return failure(STATUS_BROKEN, "cannot create a file in memory: %s",
			       strerror(errno));
	if (!a->header.input_size && !b->header.input_size)
		return STATUS_OK;
	if (isatty(0))
		return failure(STATUS_USAGE, "the runs had a standard input, and need it again: "
					     "vpmu diverge A B <FILE");
	status = copy_input(*input, &size);
	if (status)
		return status;
	hash = hash_input(*input, size);
	compare_input(a, "the first run", size, hash);
	compare_input(b, "the second run", size, hash);
	return STATUS_OK;
}

/* --- the run --- */

/* What vpmu exec opens: a descriptor of ours, which it does not inherit. */
static void name_descriptor(char name[64], int fd)
{
	snprintf(name, 64, "/proc/%d/fd/%d", getpid(), fd);
}

static char **make_line(const struct trace_file *recorded, const char *file, const char *every)
{
	const char *const first[] = {
		"vpmu", "exec", "--trace-hash", file, "--trace-every", every
	};
	u32 count = ARRAY_SIZE(first);
	char **line = calloc(count + recorded->header.words + 1, sizeof(*line));

	if (!line)
		return NULL;
	memcpy(line, first, sizeof(first));
	memcpy(line + count, recorded->words, recorded->header.words * sizeof(*line));
	return line;
}

static char **make_environment(const struct trace_file *recorded, char *window)
{
	u32 count = recorded->header.variables;
	char **list = calloc((size_t)count + 2, sizeof(*list));

	if (!list)
		return NULL;
	memcpy(list, recorded->variables, count * sizeof(*list));
	list[count] = window;
	return list;
}

struct run {
	char **line, **environment;
	const char *folder;
	char input[64];
	int said; /* a file for what it prints on standard error */
};

static _Noreturn void become(const struct run *run, pid_t parent)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), input;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	input = open(run->input, O_RDONLY | O_CLOEXEC);
	if (getppid() != parent || null < 0 || input < 0)
		_exit(STATUS_BROKEN);
	dup2(input, 0);
	dup2(null, 1);
	dup2(run->said, 2);
	if (chdir(run->folder))
		_exit(failure(STATUS_BROKEN, "cannot enter '%s': %s", run->folder,
			      strerror(errno)));
	execve("/proc/self/exe", run->line, run->environment);
	_exit(STATUS_BROKEN);
}

static int run_child(const struct run *run)
{
	pid_t parent = getpid(), pid;
	int status;

	signal(SIGCHLD, SIG_DFL);
	pid = fork();
	if (!pid)
		become(run, parent);
	if (pid < 0)
		return failure(STATUS_BROKEN, "cannot start a process: %s", strerror(errno));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return failure(STATUS_BROKEN, "cannot wait for a process: %s",
				       strerror(errno));
	return STATUS_OK;
}

/* The trace of the run, or what the run has said instead. The command's own exit code means
 * nothing here. */
static int take_trace(int trace, int said, const char *name, struct trace_file *repeated)
{
	char text[1024];
	ssize_t n;

	lseek(trace, 0, SEEK_SET);
	if (trace_load(repeated, trace))
		return STATUS_OK;
	n = pread(said, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	return failure(STATUS_BROKEN, "the run of %s cannot be repeated: %s\n%s", name,
		       repeated->error, text);
}

static int run_line(struct run *run, const char *name, int trace, struct trace_file *repeated)
{
	int status = STATUS_BROKEN;

	run->said = memfile_create("said", MFD_CLOEXEC);
	if (!run->line || !run->environment || run->said < 0)
		status = out_of_memory();
	else
		status = run_child(run);
	if (!status)
		status = take_trace(trace, run->said, name, repeated);
	if (run->said >= 0)
		close(run->said);
	return status;
}

int repeat_run(const struct trace_file *recorded, const char *name, const struct trace_plan *plan,
	       int input, struct trace_file *repeated)
{
	char file[64], every[24], window[96];
	int status, trace = memfile_create("trace", MFD_CLOEXEC);
	struct run run = { .folder = recorded->folder };

	if (trace < 0)
		return failure(STATUS_BROKEN, "cannot create a file in memory: %s",
			       strerror(errno));
	name_descriptor(file, trace);
	name_descriptor(run.input, input);
	snprintf(every, sizeof(every), "%llu", (unsigned long long)recorded->header.every);
	snprintf(window, sizeof(window), "VPMU_TRACE_WINDOW=%llu,%llu,%llu",
		 (unsigned long long)plan->from, (unsigned long long)plan->to,
		 (unsigned long long)plan->step);
	run.line = make_line(recorded, file, every);
	run.environment = make_environment(recorded, window);
	status = run_line(&run, name, trace, repeated);
	free(run.line);
	free(run.environment);
	close(trace);
	return status;
}
