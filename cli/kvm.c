// SPDX-License-Identifier: MIT
/*
 * vpmu kvm: starts a program with libvpmu-kvm.so preloaded. Nothing of vpmu stays behind in front
 * of it: the program replaces this process.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "x86/models.h"

#define LIBRARY "libvpmu-kvm.so"

static int preload(const char *library)
{
	const char *others = getenv("LD_PRELOAD");
	char *list;

	if (strpbrk(library, ": "))
		return failure(STATUS_BROKEN,
			       "LD_PRELOAD cannot express '%s': move vpmu to a folder without ':' "
			       "and spaces in its name",
			       library);
	if (!others)
		others = "";
	if (asprintf(&list, "%s%s%s", library, *others ? ":" : "", others) < 0 ||
	    setenv("LD_PRELOAD", list, 1))
		return failure(STATUS_BROKEN, "%s", strerror(errno));
	free(list);
	return STATUS_OK;
}

static int choose_model(const char *name)
{
	if (!name)
		return usage_error(&command_kvm, "--cpu needs the name of a model");
	if (!model_find(name))
		return usage_error(&command_kvm, "there is no CPU model '%s'", name);
	return setenv("VPMU_CPU", name, 1) ? failure(STATUS_BROKEN, "%s", strerror(errno))
					   : STATUS_OK;
}

static int strict_cpuid(void)
{
	return setenv("VPMU_STRICT_CPUID", "1", 1) ? failure(STATUS_BROKEN, "%s", strerror(errno))
						   : STATUS_OK;
}

static int start(char **argv)
{
	char library[PATH_MAX];
	int status;

	if (!find_part(LIBRARY, library))
		return failure(STATUS_BROKEN,
			       LIBRARY " is not where it belongs, beside vpmu or in ../lib/vpmu: "
				       "run 'make' or 'make install'");
	status = preload(library);
	if (status)
		return status;
	execvp(argv[0], argv);
	return failure(errno == ENOENT ? STATUS_MISSING : STATUS_CANNOT, "cannot start '%s': %s",
		       argv[0], strerror(errno));
}

static int run(int argc, char **argv)
{
	int i = 1, status;

	for (; i < argc && argv[i][0] == '-'; i++) {
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			command_help(&command_kvm);
			return STATUS_OK;
		}
		if (!strcmp(argv[i], "--cpu"))
			status = choose_model(argv[++i]);
		else if (!strncmp(argv[i], "--cpu=", 6))
			status = choose_model(argv[i] + 6);
		else if (!strcmp(argv[i], "--strict-cpuid"))
			status = strict_cpuid();
		else
			status = usage_error(&command_kvm,
					     "unknown option '%s'; options of the "
					     "command come after its name",
					     argv[i]);
		if (status)
			return status;
	}
	if (i >= argc)
		return usage_error(&command_kvm, "there is no command to run");
	return start(argv + i);
}

static void describe(void)
{
	puts("options:\n"
	     "  --cpu MODEL  the processor that guests get, and that the program's own CPUID\n"
	     "               shows; without it: the model nearest to the host\n"
	     "  --strict-cpuid\n"
	     "               guests see just the CPUID that the program passed; without this,\n"
	     "               leaves of the model that the program does not know are filled in\n"
	     "  --           end of options\n\n"
	     "models:");
	for (u32 i = 0; model_at(i); i++)
		printf("  %-15s family %u, model %-3u  %s\n", model_at(i)->name,
		       model_at(i)->family, model_at(i)->model, model_at(i)->brand);
	puts("\nexamples:\n"
	     "  vpmu kvm qemu-system-x86_64 -accel kvm -m 1G disk.img\n"
	     "  vpmu kvm --cpu icelake ./set_sregs_test\n\n"
	     "The command must be dynamically linked: the library stands between it and libc.\n"
	     "VPMU_LOG=error|warn|info|debug chooses what vpmu reports on stderr.");
}

const struct command command_kvm = {
	.name = "kvm",
	.synopsis = "[--cpu MODEL] [--strict-cpuid] [--] COMMAND [ARGUMENTS]",
	.summary = "Run a command that uses /dev/kvm on vpmu",
	.run = run,
	.describe = describe,
};
