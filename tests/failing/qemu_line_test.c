// SPDX-License-Identifier: MIT
/*
 * Every allocation of the command line that vpmu-qemu makes fails once: the line says so, and all
 * of it is freed.
 */
#include <errno.h>
#include <string.h>

#include "cli/qemu_line.h"
#include "failing/every.h"

static int make(char *const *argv, const char *accel, bool is_refused)
{
	struct qemu_line line;
	int error = 0;

	qemu_line_make(&line, "qemu", argv, true);
	if (line.is_broken)
		error = ENOMEM;
	else if (strcmp(line.word[2], accel) || !line.refusal != !is_refused)
		error = EVERY_WRONG;
	qemu_line_free(&line);
	return error;
}

static int scenario_accel(void)
{
	char *const argv[] = { "vpmu-qemu", "-accel", "tcg", "-accel", "kvm,dirty-ring-size=64",
			       "-S",	    "-cpu",   "max", NULL };

	return make(argv, "kvm,dirty-ring-size=64", false);
}

static int scenario_machine(void)
{
	char *const argv[] = { "vpmu-qemu", "-machine", "q35,accel=kvm:tcg,usb=off", "disk", NULL };

	return make(argv, "q35,accel=kvm,usb=off", false);
}

static int scenario_refused(void)
{
	char *const argv[] = { "vpmu-qemu", "-M", "accel=xen", "-icount", "1", NULL };

	return make(argv, "accel=xen", true);
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "accel", scenario_accel, false },
		{ "machine", scenario_machine, false },
		{ "refused", scenario_refused, false },
	};

	return every_failure(scenarios, ARRAY_SIZE(scenarios), argc, argv);
}
