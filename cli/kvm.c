// SPDX-License-Identifier: MIT
/*
 * vpmu kvm: starts a program with libvpmu-kvm.so preloaded. No process of vpmu remains in front
 * of it: the program replaces this process.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/inherited.h"
#include "cli/cli.h"
#include "exec/exec.h"
#include "vm/cpuid/cpuid.h"
#include "x86/models.h"

#define LIBRARY "libvpmu-kvm.so"

#define HIGH_FD 700 /* harnesses and shells use lower numbers */

/* Colons and blanks separate the names in LD_PRELOAD, and nothing quotes them. A descriptor has a
 * name without them; it stays open for the command and its children. One that closes it may start a
 * program with a disk image under its number, and what guests write there must not be loaded: so it
 * is a number that nobody chooses. */
static bool name_without_blanks(const char *library, char name[PATH_MAX])
{
	int fd, high;

	if (!strpbrk(library, ": ")) {
		strcpy(name, library);
		return true;
	}
	fd = open(library, O_RDONLY);
	high = fd < 0 ? -1 : fcntl(fd, F_DUPFD, HIGH_FD);
	if (high >= 0)
		close(fd);
	else
		high = fd; /* there are not so many */
	snprintf(name, PATH_MAX, "/proc/self/fd/%d", high);
	return high >= 0;
}

static int export(const char *variable, const char *value)
{
	return setenv(variable, value, 1) ? out_of_memory() : STATUS_OK;
}

static int preload(const char *library)
{
	const char *others = getenv("LD_PRELOAD");
	char name[PATH_MAX], *list;
	int status;

	if (!name_without_blanks(library, name))
		return failure(STATUS_BROKEN, "cannot open %s: %s", library, strerror(errno));
	if (!others || !*others)
		return export("LD_PRELOAD", name);
	if (asprintf(&list, "%s:%s", name, others) < 0)
		return out_of_memory();
	status = export("LD_PRELOAD", list);
	free(list);
	return status;
}

static int choose_model(const char *name)
{
	if (!model_find(name))
		return usage_error(&command_kvm, "there is no CPU model '%s'", name);
	return export("VPMU_CPU", name);
}

static int choose_quantum(const char *value)
{
	char *end;
	unsigned long cycles = strtoul(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || cycles < QUANTUM_MIN || cycles > QUANTUM_MAX)
		return usage_error(&command_kvm, QUANTUM_WANTED, value);
	return export("VPMU_QUANTUM", value);
}

/* Options that become a variable of the environment, which the library reads. */
static const struct option {
	const char *name, *variable;
	const char *choices[4]; /* none: it takes no value */
} options[] = {
	{ "--cpu", "VPMU_CPU", { "MODEL" } },
	{ "--pmu", "VPMU_PMU", { "mediated", "event", "off" } },
	{ "--accounting", "VPMU_ACCOUNTING", { "guest", "vcpu" } },
	{ "--host-view", "VPMU_HOST_VIEW", { NULL } },
	{ "--timing", "VPMU_TIMING", { "static", "full" } },
	{ "--llc", "VPMU_LLC", { "SIZE" } },
	{ "--llc-life", "VPMU_LLC_LIFE", { "CYCLES" } },
	{ "--clock", "VPMU_CLOCK", { "host", "virtual" } },
	{ "--quantum", "VPMU_QUANTUM", { "CYCLES" } },
	{ "--baseline", "VPMU_BASELINE", { NULL } },
	{ "--strict-cpuid", "VPMU_STRICT_CPUID", { NULL } },
	{ "--harden", "VPMU_HARDEN", { NULL } },
	{ "--cache", "VPMU_CACHE", { NULL } },
};

static int choose(const struct option *option, const char *value)
{
	if (!strcmp(option->name, "--cpu"))
		return choose_model(value);
	if (!strcmp(option->name, "--quantum"))
		return choose_quantum(value);
	if (!strncmp(option->name, "--llc", 5))
		return export(option->variable, value); /* checked when the model is known */
	for (u32 i = 0; i < ARRAY_SIZE(option->choices) && option->choices[i]; i++)
		if (!strcmp(option->choices[i], value))
			return export(option->variable, value);
	return usage_error(&command_kvm, "%s is %s%s%s or %s, not '%s'", option->name,
			   option->choices[0], option->choices[2] ? ", " : "",
			   option->choices[2] ? option->choices[1] : "",
			   option->choices[option->choices[2] ? 2 : 1], value);
}

/* The option at argv[*i], with its value in the next word or after a '='. */
static int take_option(char **argv, int *i)
{
	for (u32 o = 0; o < ARRAY_SIZE(options); o++) {
		const struct option *option = &options[o];
		size_t n = strlen(option->name);
		const char *arg = argv[*i];

		if (strncmp(arg, option->name, n) || (arg[n] && arg[n] != '='))
			continue;
		if (!option->choices[0])
			return arg[n] ? usage_error(&command_kvm, "%s takes no value", option->name)
				      : export(option->variable, "1");
		if (arg[n])
			return choose(option, arg + n + 1);
		if (!argv[++*i])
			return usage_error(&command_kvm, "%s needs %s", option->name,
					   o ? "a value" : "the name of a model");
		return choose(option, argv[*i]);
	}
	return usage_error(&command_kvm,
			   "unknown option '%s'; options of the command come after its name",
			   argv[*i]);
}

/* --- programs that cannot be served --- */

/* Where execvp() finds a command. */
static bool find_command(const char *name, char path[PATH_MAX])
{
	const char *folders = getenv("PATH");

	if (strchr(name, '/') || !folders)
		return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX;
	for (size_t n; *folders; folders += n + !!folders[n]) {
		n = strcspn(folders, ":");
		if (snprintf(path, PATH_MAX, "%.*s/%s", n ? (int)n : 1, n ? folders : ".", name) <
			    PATH_MAX &&
		    !access(path, X_OK))
			return true;
	}
	return false;
}

/* No dynamic linker loads it, or anything into it. Not so where it is no 64-bit program at all. */
static bool is_static(int fd)
{
	Elf64_Phdr part;
	Elf64_Ehdr head;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_phentsize != sizeof(part))
		return false;
	for (u32 i = 0; i < head.e_phnum; i++)
		if (pread(fd, &part, sizeof(part), head.e_phoff + i * sizeof(part)) !=
			    sizeof(part) ||
		    part.p_type == PT_INTERP)
			return false;
	return true;
}

/* It would find the host's own /dev/kvm, if there is one, and the user would not know. What it
 * starts may be dynamic. */
static void warn_of_static(const char *name)
{
	char path[PATH_MAX];
	int fd = find_command(name, path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	if (is_static(fd))
		fprintf(stderr,
			"vpmu: '%s' is statically linked: vpmu serves what it starts, but not the "
			"program itself\n",
			name);
	close(fd);
}

/* vpmu exec, or another vpmu kvm, may have opened the files already, and waits itself. They may
 * also have been closed since then. The program is not confined. */
static void use_cache(void)
{
	struct exec_options options = { .no_cache = !getenv("VPMU_CACHE") };
	struct exec_kept kept;
	int fds[2];

	unsetenv("VPMU_CACHE");
	if (inherited_take("VPMU_KEPT", fds, 2))
		return;
	unsetenv("VPMU_KEPT");
	kept_files_open(&options, false, &kept);
	if (kept.is_open && kept_files_watch(&kept))
		kept_files_export(&kept);
}

int kvm_start(char **argv)
{
	char library[PATH_MAX];
	int status;

	status = need_part(LIBRARY, library);
	if (!status)
		status = preload(library);
	if (status)
		return status;
	warn_of_static(argv[0]);
	use_cache();
	execvp(argv[0], argv);
	return failure(errno == ENOENT ? STATUS_MISSING : STATUS_CANNOT, "cannot start '%s': %s",
		       argv[0], strerror(errno));
}

static bool is_set(const char *variable, const char *value)
{
	const char *text = getenv(variable);

	return text && !strcmp(text, value);
}

int check_baseline(void)
{
	const char *lacks = cpuid_baseline_lacks();

	return lacks ? failure(STATUS_BROKEN,
			       "--baseline is for hosts with AVX2: this one's processor, or its "
			       "hypervisor, has no %s",
			       lacks)
		     : STATUS_OK;
}

int check_last_level(const struct command *command, const char *cpu, const char *size,
		     const char *life, const char *timing)
{
	const struct model *model = cpuid_model(cpu);
	u32 number;

	if (size && *size && model && !model_last_level(model, size, &number))
		return usage_error(
			command, "--llc of %s is %uK to %uK, as in 4096K or 4M, not '%s'",
			model->name, LAST_LEVEL_LEAST, model->cache[CACHE_L3].kbytes, size);
	if (!life || !*life)
		return STATUS_OK;
	if (!model_last_level_life(life, &number))
		return usage_error(command,
				   "--llc-life wants a number of cycles from %u to %u, not '%s'",
				   LAST_LEVEL_LIFE_LEAST, LAST_LEVEL_LIFE_MOST, life);
	if (!timing || strcmp(timing, "full"))
		return usage_error(command, "--llc-life is for --timing full: other cycles do not "
					    "pass while lines are waited for");
	return STATUS_OK;
}

static int choose_baseline(void)
{
	const char *cpu = getenv("VPMU_CPU");
	int status = check_baseline();

	return status || (cpu && *cpu) ? status : export("VPMU_CPU", BASELINE_MODEL);
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
		status = take_option(argv, &i);
		if (status)
			return status;
	}
	if (i >= argc)
		return usage_error(&command_kvm, "there is no command to run");
	if (is_set("VPMU_CLOCK", "virtual") && is_set("VPMU_ACCOUNTING", "vcpu"))
		return usage_error(&command_kvm, "--accounting vcpu counts the host's time, which "
						 "is no part of a virtual clock");
	status = getenv("VPMU_BASELINE") ? choose_baseline() : STATUS_OK;
	if (!status)
		status = check_last_level(&command_kvm, getenv("VPMU_CPU"), getenv("VPMU_LLC"),
					  getenv("VPMU_LLC_LIFE"), getenv("VPMU_TIMING"));
	return status ?: kvm_start(argv + i);
}

static void describe(void)
{
	puts("options:\n"
	     "  --cpu MODEL  the processor that guests get, and that the program's own CPUID\n"
	     "               shows; without it: the model nearest to the host\n"
	     "  --pmu mediated|event|off\n"
	     "               who owns the physical counters while a guest runs: the guest\n"
	     "               (without this option), or events of the host; off: no PMU\n"
	     "  --accounting guest|vcpu\n"
	     "               what is counted as the guest's: what it executes, or also what\n"
	     "               is done for it outside, charged to the instruction that exited\n"
	     "  --timing static|full\n"
	     "               what modelled cycles are made of: instructions alone, or also misses\n"
	     "               and mispredictions, which makes counting slower; see docs/model.md\n"
	     "  --llc SIZE   how much of the model's last-level cache the guest has, as in 4M; the rest\n"
	     "               is its neighbours'. CPUID shows all of it\n"
	     "  --llc-life CYCLES\n"
	     "               how long a line stays there that the guest does not use, since its\n"
	     "               neighbours push it out; with --timing full\n"
	     "  --clock host|virtual\n"
	     "               what time is made of: the host's, or virtual, of the cycles that the\n"
	     "               guest executes; accounting guest; see docs/clock.md\n"
	     "  --quantum CYCLES\n"
	     "               how long vCPUs on virtual time take turns (100000)\n"
	     "  --cache      uses and keeps translations, as vpmu exec does: see vpmu help cache\n"
	     "  --baseline   features that are the same on every host with AVX2, of either vendor;\n"
	     "               without --cpu, of " BASELINE_MODEL "\n"
	     "  --host-view  a second set of counters, for events of the host that count guests\n"
	     "  --strict-cpuid\n"
	     "               guests see just the CPUID that the program passed; without this,\n"
	     "               leaves of the model that the program does not know are filled in\n"
	     "  --harden     translated code cannot be made to speculate on memory of the program\n"
	     "               that is not the guest's (Spectre, variant 1); costs some speed\n"
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
	.synopsis = "[OPTIONS] [--] COMMAND [ARGUMENTS]",
	.summary = "Run a command that uses /dev/kvm on vpmu",
	.run = run,
	.describe = describe,
	.second = &command_qemu,
	.both = "Run a command that uses /dev/kvm on vpmu; QEMU as libvirt's emulator",
};
