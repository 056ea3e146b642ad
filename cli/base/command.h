/* SPDX-License-Identifier: MIT */
/*
 * What all parts of the vpmu command share, subcommands and vpmu exec alike: exit codes, messages
 * to the user, and where the other parts of the installation are.
 */
#ifndef CLI_BASE_COMMAND_H
#define CLI_BASE_COMMAND_H

#include <limits.h>
#include <stdbool.h>

/* Exit codes of vpmu itself. A command that it has started has its own, as under env(1) and
 * nice(1). */
enum exit_code {
	STATUS_OK = 0,
	STATUS_BROKEN = 1,    /* a part of the installation is missing, or the system refused */
	STATUS_USAGE = 2,     /* the command line makes no sense */
	STATUS_CANNOT = 126,  /* the command was found, but cannot be started */
	STATUS_MISSING = 127, /* no such command */
};

struct command {
	const char *name, *synopsis, *summary;
	int (*run)(int argc, char **argv); /* argv[0] is the subcommand's name, argv[-1] vpmu's */
	void (*describe)(void);		   /* the body of its help text, to stdout */
	/* In the list of commands: one that is on the same line, after this one, or NULL; and what
	 * is said of both. */
	const struct command *second;
	const char *both;
};

/* Says what is wrong and where to read more, on stderr. Returns STATUS_USAGE. */
__attribute__((format(printf, 2, 3))) int usage_error(const struct command *command,
						      const char *fmt, ...);
__attribute__((format(printf, 2, 3))) int failure(enum exit_code code, const char *fmt, ...);
int out_of_memory(void);
void command_help(const struct command *command);
/* Standard files that are closed must not become something else. */
void open_standard_files(void);
/* Replaces what is not printable ASCII: text of guests, processes and files, which would move the
 * cursor of a terminal or mislead the reader of a report. */
void make_printable(char *text);

/* Where a part of the installation is; need_part() is an exit code, and has said what is wrong. */
bool find_part(const char *name, char path[PATH_MAX]); /* false with errno */
int need_part(const char *name, char path[PATH_MAX]);
/* Becomes a part that is a program, which finds vpmu in $VPMU. argv[0] is replaced. */
int start_part(const char *name, char **argv);

#endif
