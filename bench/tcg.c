// SPDX-License-Identifier: MIT
/*
 * The loops of loops.h under `qemu-system-x86_64 -accel tcg`. The guest's markers come through its
 * serial port; time is taken when they arrive. Prints a line "name MIPS" each.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image.h"

#define DIVISOR	    10 /* of the iterations: it is slower, and not the one that is being measured */
#define SECONDS_MAX 120

static void write_image(const char *path)
{
	static u8 image[IMAGE_SIZE] __attribute__((aligned(8)));
	FILE *f = fopen(path, "wb");

	image_build(image, DIVISOR);
	if (!f || fwrite(image, IMAGE_SIZE, 1, f) != 1 || fclose(f)) {
		perror(path);
		exit(1);
	}
}

static void read_markers(int fd)
{
	double start = 0;
	u8 marker;

	while (read(fd, &marker, 1) == 1) {
		if (marker < NLOOPS)
			start = seconds();
		else if (marker >= 128 && marker < 128 + NLOOPS)
			printf("%s %.1f\n", loops[marker - 128].name,
			       mips(marker - 128, DIVISOR, seconds() - start));
	}
}

static void exec_qemu(const char *image, int out)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(out, STDOUT_FILENO);
	execlp("qemu-system-x86_64", "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m",
	       "64", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-device",
	       "isa-debug-exit,iobase=0xf4,iosize=4", "-kernel", image, (char *)NULL);
	perror("qemu-system-x86_64");
	_exit(127);
}

int main(int argc, char **argv)
{
	int pipefd[2], status;
	pid_t pid;

	if (argc != 2) {
		fprintf(stderr, "usage: tcg IMAGE-FILE-TO-WRITE\n");
		return 2;
	}
	write_image(argv[1]);
	alarm(SECONDS_MAX);
	if (pipe(pipefd) || (pid = fork()) < 0) {
		perror("tcg");
		return 1;
	}
	if (pid == 0)
		exec_qemu(argv[1], pipefd[1]);
	close(pipefd[1]);
	read_markers(pipefd[0]);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 1
		       ? 0
		       : 1; /* isa-debug-exit: 2 * value + 1 */
}
