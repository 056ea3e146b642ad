// SPDX-License-Identifier: MIT
/*
 * Running a program for what it says. Its standard files are files in memory: nothing blocks,
 * however much is written.
 */
#include "cli/check/tool.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memfile.h"
#include "cli/check/check.h"

enum { INPUT, OUTPUT, ERROR, FILES };

/* A file with a text, at its beginning. */
static int make_file(const char *text)
{
	int fd = memfile_create("vpmu-tool", MFD_CLOEXEC);
	size_t size = strlen(text);

	if (fd >= 0 && (pwrite(fd, text, size, 0) != (ssize_t)size)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Its contents; the caller frees them. NULL: out of memory. */
static char *read_file(int fd)
{
	struct stat st;
	char *text = fstat(fd, &st) ? NULL : calloc(1, st.st_size + 1);

	if (text && pread(fd, text, st.st_size, 0) != st.st_size)
		text[0] = '\0';
	return text;
}

/* Signals that the parent has blocked are not blocked in a program that it asks. */
static void become(char *const *argv, const int fd[FILES])
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int i = 0; i < FILES; i++)
		dup2(fd[i], i);
	execvp(argv[0], argv);
	dprintf(2, "cannot start %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void keep_last_line(struct tool_answer *answer, char *text)
{
	size_t n = strlen(text);
	char *line;

	while (n && strchr(" \t\r\n", text[n - 1]))
		text[--n] = '\0';
	line = strrchr(text, '\n');
	snprintf(answer->said, sizeof(answer->said), "%s", line ? line + 1 : text);
	if (!*answer->said)
		snprintf(answer->said, sizeof(answer->said), "exit code %d", answer->status);
	make_printable(answer->said);
}

bool tool_run(char *const *argv, const char *input, struct tool_answer *answer)
{
	int fd[FILES] = { make_file(input), make_file(""), make_file("") };
	bool ok = fd[INPUT] >= 0 && fd[OUTPUT] >= 0 && fd[ERROR] >= 0;
	pid_t pid = ok ? fork() : -1;
	char *error = NULL;

	*answer = (struct tool_answer){ .status = 1 };
	if (!pid)
		become(argv, fd);
	if (pid > 0) {
		answer->status = wait_for(pid);
		answer->output = read_file(fd[OUTPUT]);
		error = read_file(fd[ERROR]);
	}
	if (answer->output && error)
		keep_last_line(answer, error);
	else
		snprintf(answer->said, sizeof(answer->said), "cannot start %s: %s", argv[0],
			 strerror(errno));
	for (int i = 0; i < FILES; i++)
		close(fd[i]);
	free(error);
	return answer->output && !answer->status;
}
