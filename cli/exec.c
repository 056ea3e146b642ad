// SPDX-License-Identifier: MIT
/*
 * vpmu exec: boots a guest that sees the host's files, runs one command in it, and is gone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/base/monotonic.h"
#include "cli/cli.h"
#include "cli/passes/passes.h"
#include "exec/exec.h"
#include "x86/models.h"

static bool is_one_of(const char *value, const char *a, const char *b, const char *c)
{
	return !strcmp(value, a) || !strcmp(value, b) || !strcmp(value, c);
}

static int set_cpu(struct exec_options *options, const char *value)
{
	options->cpu = value;
	return model_find(value) ? STATUS_OK
				 : usage_error(&command_exec, "there is no CPU model '%s'", value);
}

static int set_pmu(struct exec_options *options, const char *value)
{
	options->pmu = value;
	return is_one_of(value, "mediated", "event", "off")
		       ? STATUS_OK
		       : usage_error(&command_exec, "--pmu is mediated, event or off, not '%s'",
				     value);
}

static int set_accounting(struct exec_options *options, const char *value)
{
	options->accounting = value;
	return is_one_of(value, "guest", "vcpu", "vcpu")
		       ? STATUS_OK
		       : usage_error(&command_exec, "--accounting is guest or vcpu, not '%s'",
				     value);
}

static int set_timing(struct exec_options *options, const char *value)
{
	options->timing = value;
	return is_one_of(value, "static", "full", "full")
		       ? STATUS_OK
		       : usage_error(&command_exec, "--timing is static or full, not '%s'", value);
}

/* What these mean depends on the model, which may be named later. */
static int set_last_level(struct exec_options *options, const char *value)
{
	options->llc = value;
	return STATUS_OK;
}

static int set_last_level_life(struct exec_options *options, const char *value)
{
	options->llc_life = value;
	return STATUS_OK;
}

static int set_filter(struct exec_options *options, const char *value)
{
	options->filter = (char *)value;
	return STATUS_OK;
}

static int set_machine(struct exec_options *options, const char *value)
{
	options->machine = value;
	return STATUS_OK;
}

static int set_kernel(struct exec_options *options, const char *value)
{
	options->kernel = value;
	return STATUS_OK;
}

static bool parse_number(const char *text, const char *suffixes, u32 low, u32 high, u32 *number)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || text[0] == '-' || n > high)
		return false;
	if (*end == 'G' && strchr(suffixes, 'G'))
		n *= 1024, end++;
	else if (*end && strchr(suffixes, *end))
		end++;
	*number = n;
	return !*end && n >= low && n <= high;
}

static int set_cpus(struct exec_options *options, const char *value)
{
	return parse_number(value, "", 1, 64, &options->cpus)
		       ? STATUS_OK
		       : usage_error(&command_exec, "--cpus wants a number from 1 to 64, not '%s'",
				     value);
}

static int set_memory(struct exec_options *options, const char *value)
{
	return parse_number(value, "MG", 192, 1 << 20, &options->memory)
		       ? STATUS_OK
		       : usage_error(&command_exec,
				     "--memory wants at least 192 MiB, as in 512M or 2G, not '%s'",
				     value);
}

static int set_timeout(struct exec_options *options, const char *value)
{
	return parse_number(value, "s", 1, 1000000, &options->timeout)
		       ? STATUS_OK
		       : usage_error(&command_exec, "--timeout wants a number of seconds, not '%s'",
				     value);
}

static int set_shared(struct exec_options *options, const char *value)
{
	char *path = realpath(value, NULL);
	struct stat st;

	if (!path)
		return failure(STATUS_USAGE, "cannot share '%s': %s", value, strerror(errno));
	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return failure(STATUS_USAGE, "cannot share '%s': it is no folder", value);
	if (options->shared_count == MAX_SHARED)
		return usage_error(&command_exec, "at most %u folders can be shared", MAX_SHARED);
	options->shared[options->shared_count++] = path;
	return STATUS_OK;
}

static int set_network(struct exec_options *options, const char *value)
{
	(void)value;
	options->network = true;
	return STATUS_OK;
}

static int set_verbose(struct exec_options *options, const char *value)
{
	(void)value;
	options->verbose = true;
	return STATUS_OK;
}

static int set_qemu(struct exec_options *options, const char *value)
{
	options->qemu = value;
	options->cold = true; /* a machine with other devices was not saved */
	return STATUS_OK;
}

static int set_dry_run(struct exec_options *options, const char *value)
{
	(void)value;
	options->dry_run = true;
	return STATUS_OK;
}

static int set_clock(struct exec_options *options, const char *value)
{
	options->virtual_clock = !strcmp(value, "virtual");
	return is_one_of(value, "host", "virtual", "virtual")
		       ? STATUS_OK
		       : usage_error(&command_exec, "--clock is host or virtual, not '%s'", value);
}

static int set_deterministic(struct exec_options *options, const char *value)
{
	(void)value;
	options->deterministic = true;
	return STATUS_OK;
}

static int set_passes(struct exec_options *options, const char *value)
{
	(void)value;
	options->all_events = true;
	return STATUS_OK;
}

static int set_seed(struct exec_options *options, const char *value)
{
	char *end;

	errno = 0;
	options->seed = strtoull(value, &end, 0);
	options->has_seed = true;
	return *value >= '0' && *value <= '9' && !*end && !errno
		       ? STATUS_OK
		       : usage_error(&command_exec, "--seed wants a number, not '%s'", value);
}

static int set_quantum(struct exec_options *options, const char *value)
{
	return parse_number(value, "", QUANTUM_MIN, QUANTUM_MAX, &options->quantum)
		       ? STATUS_OK
		       : usage_error(&command_exec, QUANTUM_WANTED, value);
}

static int set_trace_hash(struct exec_options *options, const char *value)
{
	options->trace_hash = value;
	return STATUS_OK;
}

static int set_trace_every(struct exec_options *options, const char *value)
{
	return parse_number(value, "", TRACE_EVERY_MIN, ~0u, &options->trace_every)
		       ? STATUS_OK
		       : usage_error(&command_exec,
				     "--trace-every wants a number of instructions, at least %u, "
				     "not '%s'",
				     TRACE_EVERY_MIN, value);
}

static int set_baseline(struct exec_options *options, const char *value)
{
	(void)value;
	options->baseline = true;
	return STATUS_OK;
}

static int set_harden(struct exec_options *options, const char *value)
{
	(void)value;
	options->harden = true;
	return STATUS_OK;
}

static int set_in(struct exec_options *options, const char *value)
{
	options->in = value;
	return STATUS_OK;
}

static int set_no_cache(struct exec_options *options, const char *value)
{
	(void)value;
	options->no_cache = true;
	return STATUS_OK;
}

static int set_cold(struct exec_options *options, const char *value)
{
	(void)value;
	options->cold = true;
	return STATUS_OK;
}

static int set_accel(struct exec_options *options, const char *value)
{
	if (strcmp(value, "kvm") && strcmp(value, "tcg"))
		return usage_error(&command_exec, "--accel is kvm or tcg, not '%s'", value);
	options->tcg = !strcmp(value, "tcg");
	/* microvm has no timer that Linux could measure the TSC with. */
	if (options->tcg)
		options->machine = "q35";
	return STATUS_OK;
}

static const struct option {
	const char *name;
	char letter;
	const char *value, *text; /* value: what to call it in the help; NULL: it has none */
	int (*set)(struct exec_options *options, const char *value);
} options_table[] = {
	{ "cpu", 0, "MODEL", "the guest's processor: see vpmu help kvm", set_cpu },
	{ "baseline", 0, NULL, "features of every host with AVX2: see vpmu help kvm",
	  set_baseline },
	{ "pmu", 0, "MODE", "mediated, event or off: see vpmu help kvm", set_pmu },
	{ "accounting", 0, "MODE", "guest or vcpu: see vpmu help kvm", set_accounting },
	{ "timing", 0, "MODE", "static or full: see vpmu help kvm", set_timing },
	{ "llc", 0, "SIZE", "how much of the last-level cache there is: see vpmu help kvm",
	  set_last_level },
	{ "llc-life", 0, "CYCLES", "how long lines stay there: see vpmu help kvm",
	  set_last_level_life },
	{ "harden", 0, NULL, "mask guest addresses against speculation: see vpmu help kvm",
	  set_harden },
	{ "clock", 0, "CLOCK", "host or virtual: what time is made of; see vpmu help kvm",
	  set_clock },
	{ "deterministic", 0, NULL, "each run is the same, to the last instruction",
	  set_deterministic },
	{ "passes", 0, NULL, "perf stat: count any number of events, with --deterministic",
	  set_passes },
	{ "seed", 0, "N", "what chance is made of, with --deterministic (0)", set_seed },
	{ "quantum", 0, "CYCLES", "how long CPUs on virtual time take turns (100000)",
	  set_quantum },
	{ "trace-hash", 0, "FILE", "hashes of a deterministic run, for vpmu diverge",
	  set_trace_hash },
	{ "trace-every", 0, "N", "how many instructions apart (1000000)", set_trace_every },
	{ "filter", 0, "FILTER", "what may be counted: a name of the list below, or a file",
	  set_filter },
	{ "cpus", 'c', "N", "how many of them (1)", set_cpus },
	{ "memory", 'm', "SIZE", "the guest's memory (512M)", set_memory },
	{ "rw", 0, "DIR", "share a folder for writing; may be given again", set_shared },
	{ "net", 0, NULL, "a network: the host's, behind QEMU's address translation", set_network },
	{ "timeout", 0, "SECONDS", "end the command after this time, with exit code 124",
	  set_timeout },
	{ "in", 0, "NAME", "in a guest that stays: see vpmu help up", set_in },
	{ "kernel", 0, "KERNEL", "cloud, full (Debian's 6.12), or a file (cloud)", set_kernel },
	{ "machine", 0, "TYPE", "microvm or q35 (microvm)", set_machine },
	{ "accel", 0, "NAME", "kvm, or tcg: on QEMU's own translator, without a PMU (kvm)",
	  set_accel },
	{ "no-cache", 0, NULL, "neither use nor keep translations of other runs", set_no_cache },
	{ "cold", 0, NULL, "boot, and do not resume a machine that was saved", set_cold },
	{ "qemu", 0, "WORDS", "more arguments for QEMU: devices, say", set_qemu },
	{ "verbose", 'v', NULL, "show QEMU's command and the guest's console on stderr",
	  set_verbose },
	{ "dry-run", 0, NULL, "print QEMU's command and do nothing", set_dry_run },
};

static const struct option *find_option(const char *word)
{
	size_t length = strcspn(word + 2, "=");

	for (u32 i = 0; i < ARRAY_SIZE(options_table); i++) {
		const struct option *option = &options_table[i];

		if (word[1] == '-'
			    ? !strncmp(option->name, word + 2, length) && !option->name[length]
			    : word[1] == option->letter)
			return option;
	}
	return NULL;
}

/* Whether an option's value is part of its own word: after '=', or after its letter. */
static bool has_value(const char *word)
{
	return word[1] == '-' ? strchr(word, '=') != NULL : word[2] != '\0';
}

/* One option, and its value: after '=', after its letter, or the next word. */
static int take_option(struct exec_options *options, char **argv, int *i)
{
	const char *word = argv[*i], *value = NULL;
	const struct option *option = find_option(word);

	if (!option)
		return usage_error(&command_exec,
				   "unknown option '%s'; those of the command come after '--'",
				   word);
	if (word[1] == '-' && strchr(word, '='))
		value = strchr(word, '=') + 1;
	else if (word[1] != '-' && word[2])
		value = word + 2;
	if (!option->value && value)
		return usage_error(&command_exec, "--%s takes no value", option->name);
	if (option->value && !value)
		value = argv[++*i];
	if (option->value && !value)
		return usage_error(&command_exec, "--%s needs a value: %s", option->name,
				   option->value);
	if (option->set != set_in && option->set != set_timeout)
		options->made = option->name;
	return option->set(options, value);
}

int exec_options_end(const struct command *command, int argc, char **argv, bool *is_in)
{
	int i = 1;

	*is_in = false;
	for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
		const struct option *option;

		if (!strcmp(argv[i], "--"))
			return i;
		option = find_option(argv[i]);
		if (!option) {
			usage_error(command, "unknown option '%s'; those of %s come after '--'",
				    argv[i], command->name);
			return -1;
		}
		*is_in |= option->set == set_in;
		if (option->value && !has_value(argv[i]))
			i++;
	}
	return i < argc ? i : argc;
}

/* An option's value, or that of the variable that stands for it; an empty one says nothing. */
static const char *chosen(const char *option, const char *variable)
{
	const char *value = option ?: getenv(variable);

	return value && *value ? value : NULL;
}

/* What a guest on virtual time cannot have. */
static int check_clock(struct exec_options *options)
{
	bool fixed = options->deterministic, is_virtual = options->virtual_clock || fixed;
	const char *accounting = chosen(options->accounting, "VPMU_ACCOUNTING") ?: "guest";
	const char *pmu = chosen(options->pmu, "VPMU_PMU") ?: "mediated";
	const struct {
		bool found;
		const char *reason;
	} refused[] = {
		{ options->has_seed && !fixed, "--seed is for --deterministic" },
		{ options->all_events && !fixed,
		  "--passes is for --deterministic: only there the guest is the same whatever is "
		  "counted" },
		{ options->all_events && strcmp(pmu, "mediated"),
		  "--passes needs --pmu mediated: the guest's counters are the processor's" },
		{ options->all_events && options->filter,
		  "--passes counts beside the guest's counters, which is what --filter is for" },
		{ options->trace_hash && !fixed, "--trace-hash is for --deterministic" },
		{ options->trace_every && !options->trace_hash,
		  "--trace-every is for --trace-hash" },
		{ fixed && options->qemu,
		  "--qemu adds devices, which answer when they answer: a deterministic guest has "
		  "none" },
		{ fixed && options->cold,
		  "--cold boots a guest, which is not deterministic: one that was saved is" },
		{ fixed && options->network,
		  "a network is not deterministic: its packets come when they come" },
		{ fixed && isatty(0),
		  "a terminal is not deterministic: standard input must be a file or a pipe, as "
		  "in 'vpmu exec --deterministic -- COMMAND </dev/null'" },
		{ options->quantum && !is_virtual, "--quantum is for --clock virtual" },
		{ is_virtual && strcmp(options->machine, "microvm"),
		  "the ACPI timer and RTC of q35 follow the host's time: a virtual clock needs "
		  "--machine microvm" },
		{ is_virtual && !strcmp(accounting, "vcpu"),
		  "--accounting vcpu counts the host's time, which is no part of a virtual "
		  "clock" },
	};

	options->virtual_clock = is_virtual;
	for (u32 i = 0; i < ARRAY_SIZE(refused); i++)
		if (refused[i].found)
			return usage_error(&command_exec, "%s", refused[i].reason);
	return STATUS_OK;
}

static int choose_baseline(struct exec_options *options)
{
	if (!chosen(options->cpu, "VPMU_CPU"))
		options->cpu = BASELINE_MODEL;
	return check_baseline();
}

int exec_options_read(struct exec_options *options, char **argv, int *i)
{
	int status = STATUS_OK;

	for (; !status && argv[*i] && argv[*i][0] == '-' && argv[*i][1]; ++*i) {
		if (!strcmp(argv[*i], "--")) {
			++*i;
			break;
		}
		options->help = !strcmp(argv[*i], "--help") || !strcmp(argv[*i], "-h");
		if (options->help)
			break;
		status = take_option(options, argv, i);
	}
	return status;
}

/* What is vpmu's own has no place on another translator. */
static int check_accel(const struct exec_options *options)
{
	if (options->tcg &&
	    (options->cpu || options->baseline || options->pmu || options->accounting ||
	     options->timing || options->llc || options->llc_life || options->harden ||
	     options->virtual_clock || options->filter))
		return usage_error(&command_exec,
				   "--accel tcg has no PMU and none of vpmu's models and clocks");
	return STATUS_OK;
}

int exec_options_check(struct exec_options *options)
{
	const char *cpu;
	int status = check_clock(options);

	if (!status)
		status = check_accel(options);
	if (!status && options->baseline)
		status = choose_baseline(options);
	cpu = options->cpu ?: getenv("VPMU_CPU");
	if (!status)
		status = check_last_level(&command_exec, cpu, chosen(options->llc, "VPMU_LLC"),
					  chosen(options->llc_life, "VPMU_LLC_LIFE"),
					  chosen(options->timing, "VPMU_TIMING"));
	if (!status && options->filter)
		status = filter_choose(options->filter, cpu, &options->filter);
	return status;
}

/* In a guest that is there: it has been made, and the host's other processes are not ours. */
static int run_in(const struct exec_options *options)
{
	struct exec_machine machine = { .qemu = -1,
					.share = -1,
					.monitor.fd = -1,
					.console = -1,
					.resumed = true,
					.deadline = machine_deadline(options) };
	int status;

	if (options->made)
		return usage_error(&command_exec,
				   "--%s is for a new guest: 'vpmu up %s' takes it when the guest "
				   "is started",
				   options->made, options->in);
	status = stay_connect(options->in, &machine.link);
	return status ? status : session_run(options, &machine);
}

static int run_alone(const struct exec_options *options)
{
	struct exec_machine machine = { 0 };
	int status = machine_start(options, &machine), traced;

	if (!status && !options->dry_run)
		status = session_run(options, &machine);
	machine_stop(&machine);
	traced = trace_close(options, &machine.trace);
	return status ? status : traced;
}

static int run(int argc, char **argv)
{
	struct exec_options options = { EXEC_DEFAULTS };
	int i = 1, status;

	open_standard_files();
	terminal_look(&options.terminal);
	options.started = monotonic_ms();
	status = exec_options_read(&options, argv, &i);
	if (options.help)
		command_help(&command_exec);
	if (status || options.help)
		return status;
	if (i >= argc)
		return usage_error(&command_exec, "there is no command to run");
	options.words = argv + 1;
	options.option_words = i - 1;
	options.command = argv + i;
	if (options.in)
		return run_in(&options);
	status = exec_options_check(&options);
	if (status)
		return status;
	return options.all_events ? passes_run(&options, run_alone) : run_alone(&options);
}

static void describe(void)
{
	puts("options:");
	for (u32 i = 0; i < ARRAY_SIZE(options_table); i++) {
		const struct option *option = &options_table[i];
		char name[64];

		snprintf(name, sizeof(name), "%c%c%s--%s%s%s", option->letter ? '-' : ' ',
			 option->letter ?: ' ', option->letter ? ", " : "  ", option->name,
			 option->value ? " " : "", option->value ?: "");
		printf("  %-24s %s\n", name, option->text);
	}
	puts("  --                       end of options\n\n"
	     "The guest sees the host's files as they are. What the command writes is gone with\n"
	     "the guest, except in folders shared with --rw. Arguments, environment, working\n"
	     "directory, user, terminal and standard files are those of vpmu; so is the exit "
	     "code.\n\n"
	     "filters:\n"
	     "  ipc            instructions and cycles\n"
	     "  architectural  Intel's architectural events, or AMD's counterparts\n"
	     "  standard       these and the caches, TLBs and branches that perf has names for\n"
	     "  full           everything that vpmu events lists\n"
	     "  off            everything\n"
	     "  FILE           'allow' or 'deny', then events, as perf names them, and fixed0\n"
	     "                 to fixed3, separated by blanks; # begins a comment. An event\n"
	     "                 stands for its fixed counter too\n\n"
	     "examples:\n"
	     "  vpmu exec -- perf stat -e instructions:u ls\n"
	     "  vpmu exec --deterministic --passes -- perf stat -e EVENTS ls </dev/null\n"
	     "  vpmu exec --cpu milan --rw . -- perf record -o perf.data ./my-program\n"
	     "  vpmu exec -- bash");
}

const struct command command_exec = {
	.name = "exec",
	.synopsis = "[OPTIONS] [--] COMMAND [ARGUMENTS]",
	.summary = "Run a command in a throw-away Linux guest that has a PMU",
	.run = run,
	.describe = describe,
};
