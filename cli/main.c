// SPDX-License-Identifier: MIT
/*
 * vpmu: finds the subcommand and runs it; answers --help and --version.
 */
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/types.h"
#include "base/version.h"

static const struct command *const commands[] = {
	&command_exec,	 &command_up,	    &command_down,    &command_perf,	&command_rr,
	&command_flame,	 &command_check,    &command_history, &command_diverge, &command_doctor,
	&command_cache,	 &command_kvm,	    &command_qemu,    &command_events,	&command_cost,
	&command_ps,	 &command_stat,	    &command_set,     &command_filter,	&command_record,
	&command_report, &command_exporter, &command_lab,
};

static const struct command *find_command(const char *name)
{
	for (u32 i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

/* Whether the next command is on the same line. */
static bool list_command(FILE *out, const struct command *command)
{
	char names[32];

	snprintf(names, sizeof(names), "%s%s%s", command->name, command->second ? ", " : "",
		 command->second ? command->second->name : "");
	fprintf(out, "  %-11s %s\n", names, command->second ? command->both : command->summary);
	return command->second;
}

static int general_help(FILE *out)
{
	fputs("usage: vpmu COMMAND [ARGUMENTS], vpmu help COMMAND, vpmu --version\n"
	      "KVM in user space, with a PMU that counts exactly: no hardware virtualization, no root.\n\n"
	      "commands:\n",
	      out);
	for (u32 i = 0; i < ARRAY_SIZE(commands); i++)
		i += list_command(out, commands[i]);
	fputs("\nexit codes: 1 missing or refused, 2 wrong usage, 126 cannot start, 127 not found, else the "
	      "command's\n",
	      out);
	return out == stdout ? STATUS_OK : STATUS_USAGE;
}

static int help(int argc, char **argv)
{
	const struct command *command;

	if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return general_help(stdout);
	command = find_command(argv[1]);
	if (!command)
		return usage_error(NULL, "there is no command '%s' to explain", argv[1]);
	command_help(command);
	return STATUS_OK;
}

/* libvirt's <emulator> is the name of a program without arguments: a link to this one. */
static bool is_launcher(const char *name)
{
	const char *slash = strrchr(name, '/');

	return !strcmp(slash ? slash + 1 : name, "vpmu-qemu");
}

/* Output that was cut off, as by a full disk, must not look complete to the program that reads it.
 */
static int written(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	return status ?: failure(STATUS_BROKEN, "cannot write: %s", strerror(errno));
}

static int run(int argc, char **argv)
{
	const struct command *command;

	if (argc && is_launcher(argv[0]))
		return command_qemu.run(argc, argv);
	if (argc < 2)
		return general_help(stderr);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help(argc - 1, argv + 1);
	if (!strcmp(argv[1], "--version")) {
		puts("vpmu " VPMU_VERSION);
		return STATUS_OK;
	}
	command = find_command(argv[1]);
	if (!command)
		return usage_error(NULL, "unknown %s '%s'",
				   argv[1][0] == '-' ? "option" : "command", argv[1]);
	/* A limit on the size of files, and of those in memory, fails a call, with a message. What
	 * vpmu kvm becomes decides for itself. */
	if (command != &command_kvm && command != &command_qemu)
		signal(SIGXFSZ, SIG_IGN);
	return command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	return written(run(argc, argv));
}
