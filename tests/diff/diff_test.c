// SPDX-License-Identifier: MIT
/*
 * The differential test against the native CPU: at least a million random instruction executions,
 * everything architectural compared. --help lists the options.
 */
#include "diff.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_SKIP     4
#define COUNT_DEFAULT 3000000ull
#define COUNT_MIN     1000000ull
#define COUNT_LONG    200000000ull

static const char usage[] =
	"usage: diff_test [options]\n"
	"  --seed N|time   the random seed (default: 1, so that a test run can be repeated)\n"
	"  --count N       so many instruction executions\n"
	"  --long          two hundred million of them, and a seed from the clock\n"
	"  --family NAME   only instructions of this family (--list)\n"
	"  --mode 16|32|64 only this mode\n"
	"  --vendor intel|amd|other  of the guest (default: the host's); of the other vendor,\n"
	"                  differences by src/x86/vendor.def are counted by rule\n"
	"  --case N        only this case of the seed\n"
	"  --first N       start with this case: for mismatches that need a history\n"
	"  --keep-going    do not stop at the first mismatch\n"
	"  --workers N     processes (default: one per CPU)\n"
	"  --plant flag|fault  put a bug into the engine's results: it must be caught\n"
	"  --observed      with all or some of it counted and shown to the timing model\n"
	"  --kept          with translations that were kept and read back\n"
	"  --self          the native CPU against itself\n"
	"  --show          print every case before it runs\n"
	"  --list          list the families\n";

enum option_name {
	OPT_SEED = 1,
	OPT_COUNT,
	OPT_LONG,
	OPT_FAMILY,
	OPT_MODE,
	OPT_VENDOR,
	OPT_CASE,
	OPT_KEEP_GOING,
	OPT_WORKERS,
	OPT_PLANT,
	OPT_OBSERVED,
	OPT_KEPT,
	OPT_SELF,
	OPT_SHOW,
	OPT_FIRST,
	OPT_LIST,
	OPT_HELP,
};

static const struct option long_options[] = {
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "count", required_argument, NULL, OPT_COUNT },
	{ "long", no_argument, NULL, OPT_LONG },
	{ "family", required_argument, NULL, OPT_FAMILY },
	{ "mode", required_argument, NULL, OPT_MODE },
	{ "vendor", required_argument, NULL, OPT_VENDOR },
	{ "case", required_argument, NULL, OPT_CASE },
	{ "keep-going", no_argument, NULL, OPT_KEEP_GOING },
	{ "workers", required_argument, NULL, OPT_WORKERS },
	{ "plant", required_argument, NULL, OPT_PLANT },
	{ "observed", no_argument, NULL, OPT_OBSERVED },
	{ "kept", no_argument, NULL, OPT_KEPT },
	{ "self", no_argument, NULL, OPT_SELF },
	{ "list", no_argument, NULL, OPT_LIST },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "show", no_argument, NULL, OPT_SHOW },
	{ "first", required_argument, NULL, OPT_FIRST },
	{ 0 },
};

__attribute__((noreturn)) static void bad_usage(int code)
{
	fputs(usage, code ? stderr : stdout);
	exit(code);
}

static int family_named(const char *name)
{
	for (int i = 0; i < NFAMILIES; i++)
		if (strcmp(name, family_names[i]) == 0)
			return i;
	bad_usage(2);
}

static int mode_named(const char *bits)
{
	for (int i = 0; i < NMODES; i++)
		if (strtoul(bits, NULL, 10) == 64u >> i)
			return i;
	bad_usage(2);
}

static bool vendor_named(const char *name)
{
	if (strcmp(name, "intel") && strcmp(name, "amd") && strcmp(name, "other"))
		bad_usage(2);
	return strcmp(name, "other") ? strcmp(name, "amd") == 0 : !host_is_amd();
}

static void list_families(void)
{
	for (int i = 0; i < NFAMILIES; i++)
		puts(family_names[i]);
	exit(0);
}

static void apply_option(struct diff_options *opt, int option)
{
	switch (option) {
	case OPT_SEED:
		opt->seed = strcmp(optarg, "time") ? strtoull(optarg, NULL, 0) : (u64)time(NULL);
		break;
	case OPT_COUNT:
		opt->count = strtoull(optarg, NULL, 0);
		break;
	case OPT_LONG:
		opt->count = COUNT_LONG;
		opt->seed = (u64)time(NULL);
		break;
	case OPT_FAMILY:
		opt->family = family_named(optarg);
		break;
	case OPT_MODE:
		opt->mode = mode_named(optarg);
		break;
	case OPT_VENDOR:
		opt->is_amd = vendor_named(optarg);
		break;
	case OPT_CASE:
		opt->one = strtoll(optarg, NULL, 0);
		opt->workers = 1;
		break;
	case OPT_KEEP_GOING:
		opt->keep_going = true;
		break;
	case OPT_WORKERS:
		opt->workers = atoi(optarg);
		break;
	case OPT_PLANT:
		opt->plant = strcmp(optarg, "flag") == 0 ? PLANT_FLAG : PLANT_FAULT;
		break;
	case OPT_OBSERVED:
		opt->observed = true;
		break;
	case OPT_KEPT:
		opt->kept = true;
		break;
	case OPT_SELF:
		opt->self = true;
		break;
	case OPT_FIRST:
		opt->first = strtoull(optarg, NULL, 0);
		break;
	case OPT_SHOW:
		opt->show = true;
		break;
	case OPT_LIST:
		list_families();
		break;
	default:
		bad_usage(option == OPT_HELP ? 0 : 2);
	}
}

static void print_families(const struct progress *sum)
{
	for (int i = 0; i < NFAMILIES; i++)
		printf("%15s %9llu%s", family_names[i], (unsigned long long)sum->per_family[i],
		       i % 5 == 4 || i == NFAMILIES - 1 ? "\n" : "");
}

static void print_rules(const struct diff_options *opt, const struct progress *sum)
{
	if (opt->is_amd == host_is_amd())
		return;
	printf("differences between the vendors, by rule (src/x86/vendor.def):\n");
	for (int i = 0; i < NRULES; i++)
		if (sum->per_rule[i])
			printf("%9llu  %s\n", (unsigned long long)sum->per_rule[i],
			       vendor_rows[i].name);
}

/* Workers give up where there is hardly anything to execute. Of a family that may be right, if it
 * is not nothing. */
static bool ran_enough(const struct diff_options *opt, const struct progress *sum)
{
	u64 least = opt->count / opt->workers * opt->workers;

	if (opt->family >= 0)
		least = 1;
	if (opt->one >= 0 || sum->mismatches || sum->executed >= least)
		return true;
	printf("NOT RUN: %llu of %llu executions\n", (unsigned long long)sum->executed,
	       (unsigned long long)least);
	return false;
}

/* A run of everything runs everything. */
static bool all_families_ran(const struct diff_options *opt, const struct progress *sum)
{
	bool all = true;

	if (opt->family >= 0 || opt->one >= 0 || opt->mode >= 0 || opt->count < COUNT_MIN)
		return true;
	for (int i = 0; i < NFAMILIES; i++) {
		if (!family_offered(i))
			printf("%s: not offered by this host\n", family_names[i]);
		else if (!sum->per_family[i] && !sum->mismatches)
			printf("%s: NOT RUN\n", family_names[i]), all = false;
	}
	return all;
}

static int conclude(const struct diff_options *opt, const struct progress *sum, bool fine)
{
	print_families(sum);
	print_rules(opt, sum);
	printf("seed %llu: %llu instruction executions in %llu sequences, %llu mismatches\n",
	       (unsigned long long)opt->seed, (unsigned long long)sum->executed,
	       (unsigned long long)sum->cases, (unsigned long long)sum->mismatches);
	if (opt->plant != PLANT_NONE) {
		printf("planted bug %s at %s, shrunk to %u instructions\n",
		       sum->mismatches ? "caught" : "NOT caught",
		       ZydisMnemonicGetString(sum->caught), sum->caught_length);
		return fine && sum->mismatches ? 0 : 1;
	}
	fine &= ran_enough(opt, sum);
	return fine && !sum->mismatches && all_families_ran(opt, sum) ? 0 : 1;
}

static int default_workers(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > WORKERS_MAX ? WORKERS_MAX : (int)n;
}

int main(int argc, char **argv)
{
	struct diff_options opt = {
		.seed = 1,
		.count = COUNT_DEFAULT,
		.one = -1,
		.family = -1,
		.mode = -1,
		.is_amd = host_is_amd(),
		.workers = default_workers(),
	};
	struct progress sum;
	int option;
	bool fine;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		apply_option(&opt, option);
	if (optind != argc || opt.workers < 1 || opt.workers > WORKERS_MAX)
		bad_usage(2);
	if (!native_supported()) {
		puts("SKIP: this kernel does not let programs write the FS base (FSGSBASE)");
		return EXIT_SKIP;
	}
	if (opt.family >= 0 && !family_offered(opt.family)) {
		printf("SKIP: this host does not offer %s\n", family_names[opt.family]);
		return EXIT_SKIP;
	}
	if (!ldt_install()) {
		printf("%smodify_ldt(2) is not there: no segments, no 16-bit code\n",
		       opt.mode == MODE_16 ? "SKIP: " : "");
		if (opt.mode == MODE_16)
			return EXIT_SKIP;
	}
	fine = diff_run(&opt, &sum);
	return conclude(&opt, &sum, fine);
}
