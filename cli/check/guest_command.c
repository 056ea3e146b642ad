// SPDX-License-Identifier: MIT
/*
 * Running a benchmark: `vpmu exec --deterministic` as a child, whose standard files are pipes. The
 * environment in the guest is the same everywhere, but for what the benchmark asks for. Addresses
 * are not random (setarch -R): how many random numbers the kernel has drawn by then depends on the
 * sizes of files, and what a string function executes on the alignment of its arguments.
 */
#include "cli/check/guest_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/inherited.h"
#include "cli/cli.h"

static const char *const fixed_environment[] = {
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/",
	"LC_ALL=C",
};

/* --- the command line --- */

struct line {
	const char **word;
	u32 count;
	char timeout[16], cpus[16];
};

static void add(struct line *line, const char *word)
{
	line->word[line->count++] = word;
}

static void add_all(struct line *line, char *const *list)
{
	for (; *list; list++)
		add(line, *list);
}

static u32 length(char *const *list)
{
	u32 n = 0;

	while (list[n])
		n++;
	return n;
}

/* False: out of memory. */
static bool make_line(struct line *line, const struct check_case *of, const char *script,
		      char *const *words)
{
	const struct check_benchmark *b = of->benchmark;

	line->word = calloc(32ull + length(b->environment) + length(words), sizeof(*line->word));
	line->count = 0;
	if (!line->word)
		return false;
	snprintf(line->timeout, sizeof(line->timeout), "%u", b->timeout);
	snprintf(line->cpus, sizeof(line->cpus), "%u", b->cpus);
	add(line, "vpmu");
	add(line, "exec");
	add(line, "--deterministic");
	add(line, "--cpu");
	add(line, of->model);
	add(line, "--timeout");
	add(line, line->timeout);
	add(line, "--cpus");
	add(line, line->cpus);
	if (!b->host_features)
		add(line, "--baseline");
	if (b->memory) {
		add(line, "--memory");
		add(line, b->memory);
	}
	add(line, "--");
	add(line, "env");
	add(line, "-i");
	for (u32 i = 0; i < ARRAY_SIZE(fixed_environment); i++)
		add(line, fixed_environment[i]);
	add_all(line, b->environment);
	add(line, "setarch"); /* see above */
	add(line, "-R");
	add(line, "sh");
	add(line, "-c");
	add(line, script);
	add(line, "sh");
	add_all(line, words);
	return true;
}

/* --- the child --- */

static int open_input(const struct check_benchmark *b)
{
	return open(b->input ?: "/dev/null", O_RDONLY | O_CLOEXEC);
}

/* In the child. Whatever fails is said on the standard error that the parent reads. */
static void become_guest(const struct check_case *of, const struct line *line, pid_t parent,
			 int profile, const int fds[3])
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(STATUS_BROKEN); /* it was killed before it could be waited for */
	for (int i = 0; i < 3; i++)
		dup2(fds[i], i);
	if (chdir(of->benchmark->folder))
		_exit(failure(STATUS_BROKEN, "cannot enter %s: %s", of->benchmark->folder,
			      strerror(errno)));
	if (profile >= 0 &&
	    (fcntl(profile, F_SETFD, 0) || !inherited_export("VPMU_PROFILE", &profile, 1)))
		_exit(out_of_memory());
	execv("/proc/self/exe", (char **)line->word);
	_exit(failure(STATUS_BROKEN, "cannot start vpmu exec: %s", strerror(errno)));
}

/* --- what it says --- */

static void keep_first(struct check_guest *guest, const char *bytes, size_t n)
{
	size_t room = GUEST_OUTPUT - guest->output_size;

	memcpy(guest->output + guest->output_size, bytes, n < room ? n : room);
	guest->output_size += n < room ? n : room;
}

static void keep_last(struct check_guest *guest, const char *bytes, size_t n)
{
	size_t over;

	if (n > GUEST_ERROR) {
		bytes += n - GUEST_ERROR;
		n = GUEST_ERROR;
	}
	over = guest->error_size + n > GUEST_ERROR ? guest->error_size + n - GUEST_ERROR : 0;
	memmove(guest->error, guest->error + over, guest->error_size - over);
	guest->error_size -= over;
	memcpy(guest->error + guest->error_size, bytes, n);
	guest->error_size += n;
}

/* Until both ends are closed. */
static void listen_to(struct check_guest *guest, int output, int error)
{
	struct pollfd wait[] = { { output, POLLIN, 0 }, { error, POLLIN, 0 } };
	char bytes[4096];

	while (wait[0].fd >= 0 || wait[1].fd >= 0) {
		if (poll(wait, 2, -1) < 0 && errno != EINTR)
			return;
		for (u32 i = 0; i < 2; i++) {
			ssize_t n = wait[i].revents ? read(wait[i].fd, bytes, sizeof(bytes)) : 1;

			if (n <= 0)
				wait[i].fd = -1;
			else if (wait[i].revents)
				(i ? keep_last : keep_first)(guest, bytes, n);
			wait[i].revents = 0;
		}
	}
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return STATUS_BROKEN;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static bool start(const struct check_case *of, const struct line *line, int profile,
		  struct check_guest *guest)
{
	int in = open_input(of->benchmark), out[2] = { -1, -1 }, err[2] = { -1, -1 };
	pid_t parent = getpid(), pid = -1;
	int error;

	if (in >= 0 && !pipe2(out, O_CLOEXEC) && !pipe2(err, O_CLOEXEC))
		pid = fork();
	if (!pid)
		become_guest(of, line, parent, profile, (int[]){ in, out[1], err[1] });
	error = errno;
	close(in);
	close(out[1]);
	close(err[1]);
	if (pid > 0) {
		listen_to(guest, out[0], err[0]);
		guest->status = wait_for(pid);
	}
	close(out[0]);
	close(err[0]);
	errno = error;
	return pid > 0;
}

bool guest_run(const struct check_case *of, const char *script, char *const *words, int profile,
	       struct check_guest *guest)
{
	struct line line;
	bool ok;

	*guest = (struct check_guest){ .output = malloc(GUEST_OUTPUT + 1) };
	if (!guest->output || !make_line(&line, of, script, words)) {
		errno = ENOMEM;
		return false;
	}
	ok = start(of, &line, profile, guest);
	guest->output[guest->output_size] = '\0';
	guest->error[guest->error_size] = '\0';
	free(line.word);
	return ok;
}

void guest_free(struct check_guest *guest)
{
	free(guest->output);
	guest->output = NULL;
}

const char *guest_last_words(struct check_guest *guest)
{
	char *line;

	while (guest->error_size && strchr(" \t\r\n", guest->error[guest->error_size - 1]))
		guest->error[--guest->error_size] = '\0';
	line = strrchr(guest->error, '\n');
	return line ? line + 1 : guest->error;
}
