// SPDX-License-Identifier: MIT
/*
 * A parallel compile: the C compiler proper of GCC turns the sources of this benchmark, already
 * preprocessed, into assembly, one or two files at a time. The checksum is of what it wrote.
 *
 * compile_folder has a link `cc1` to the compiler, and a list of files 0.i, 1.i, …
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/work/work.h"

#define FILES_MAX 64
#define FILES_FEW 2
#define NAME_MAX_ 128

const char *compile_folder = "/compile";

static void name(char path[NAME_MAX_], int file, const char *folder, const char *ending)
{
	snprintf(path, NAME_MAX_, "%s/%d.%s", folder, file, ending);
}

static void start(int file, const char *output_folder)
{
	char compiler[NAME_MAX_], input[NAME_MAX_], output[NAME_MAX_];
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return;
	snprintf(compiler, sizeof(compiler), "%s/cc1", compile_folder);
	name(input, file, compile_folder, "i");
	name(output, file, output_folder, "s");
	execl(compiler, "cc1", "-quiet", "-fpreprocessed", "-O1", input, "-o", output, (char *)NULL);
	_exit(127);
}

static void wait_for_one(void)
{
	int status;

	if (wait(&status) < 0 || status)
		die("cc1");
}

/* Adds an output file to the sum, and removes it. */
static uint64_t take(uint64_t sum, int file, const char *folder)
{
	char path[NAME_MAX_], buffer[4096];
	ssize_t n;
	int fd;

	name(path, file, folder, "s");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(path);
	while ((n = read(fd, buffer, sizeof(buffer))) > 0)
		sum = hash(sum, buffer, (size_t)n);
	close(fd);
	unlink(path);
	return sum;
}

static int count_files(void)
{
	char path[NAME_MAX_];
	int n = 0;

	for (; n < (only_check ? FILES_FEW : FILES_MAX); n++) {
		name(path, n, compile_folder, "i");
		if (access(path, R_OK))
			break;
	}
	if (!n)
		die("compile: no sources");
	return n;
}

static uint64_t compile(int jobs)
{
	char folder[] = "/tmp/compile-XXXXXX";
	int files = count_files();
	uint64_t sum = HASH_START;

	if (!mkdtemp(folder))
		die("mkdtemp");
	for (int i = 0; i < files; i++) {
		if (i >= jobs)
			wait_for_one();
		start(i, folder);
	}
	for (int i = 0; i < jobs; i++) /* there are more files than jobs */
		wait_for_one();
	for (int i = 0; i < files; i++)
		sum = take(sum, i, folder);
	rmdir(folder);
	return sum;
}

uint64_t compile1_unit(void)
{
	return compile(1);
}

uint64_t compile2_unit(void)
{
	return compile(2);
}
