// SPDX-License-Identifier: MIT
/*
 * How every part of the command speaks to its user: what went wrong, on stderr, and help; the
 * standard files for it, and what may be in it.
 */
#include "cli/base/command.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/types.h"

int usage_error(const struct command *command, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "vpmu%s%s: ", command ? " " : "", command ? command->name : "");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\nTry 'vpmu help%s%s'.\n", command ? " " : "",
		command ? command->name : "");
	return STATUS_USAGE;
}

int failure(enum exit_code code, const char *fmt, ...)
{
	va_list args;

	fputs("vpmu: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return code;
}

int out_of_memory(void)
{
	return failure(STATUS_BROKEN, "out of memory");
}

void command_help(const struct command *command)
{
	printf("usage: vpmu %s %s\n\n%s.\n\n", command->name, command->synopsis, command->summary);
	command->describe();
}

void open_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= 2);
	close(fd);
}

void make_printable(char *text)
{
	for (; *text; text++)
		if ((u8)*text < 0x20 || (u8)*text >= 0x7f)
			*text = '?';
}
