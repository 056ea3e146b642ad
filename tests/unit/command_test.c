// SPDX-License-Identifier: MIT
/*
 * The vpmu command as a user meets it: exit codes, messages, and what it hands to the program it
 * starts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/types.h"

static char folder[512]; /* of the build, with a slash at its end */

/* Runs `vpmu arguments` in a shell; *output gets what it says, on stdout and stderr. */
static int vpmu(const char *arguments, char output[4096])
{
	char line[1024];
	size_t n;
	FILE *f;

	snprintf(line, sizeof(line), "%svpmu %s 2>&1", folder, arguments);
	f = popen(line, "r");
	assert_non_null(f);
	n = fread(output, 1, 4095, f);
	output[n] = '\0';
	return WEXITSTATUS(pclose(f));
}

static const struct call {
	const char *arguments;
	int status;
	const char *says;
} calls[] = {
	{ "", 2, "usage: vpmu" },
	{ "--help", 0, "usage: vpmu" },
	{ "help", 0, "commands:" },
	{ "help kvm", 0, "sapphirerapids" },
	{ "help frob", 2, "no command 'frob'" },
	{ "--version", 0, "vpmu " },
	{ "--frob", 2, "unknown option '--frob'" },
	{ "frob", 2, "unknown command 'frob'" },
	{ "help | wc -l | awk '{ print $1 <= 24 ? \"one screen\" : $1 }'", 0, "one screen" },
	{ "help perf", 0, "usage: vpmu perf" },
	{ "rr", 2, "there is nothing for rr to do" },
	{ "rr --frob record", 2, "unknown option '--frob'; those of rr come after '--'" },
	{ "exporter --help", 0, "--allow-remote" },
	{ "flame", 2, "no command to run" },
	{ "flame --help", 0, "--call-graph MODE" },
	{ "kvm", 2, "no command to run" },
	{ "kvm --help", 0, "--cpu MODEL" },
	{ "kvm --cpu", 2, "needs the name" },
	{ "kvm --cpu 486 true", 2, "no CPU model '486'" },
	{ "kvm --frob true", 2, "vpmu help kvm" },
	{ "qemu --help", 0, "<emulator>" },
	{ "qemu -version", 0, "QEMU emulator version" },
	{ "qemu -machine none -icount 1", 2, "-icount: vpmu translates without TCG" },
	{ "qemu -machine none -frob", 1, "-frob: invalid option" },
	{ "help events", 0, "usage: vpmu events" },
	{ "events | head -n 1", 0, "skylake:" },
	{ "events --cpu genoa | grep 0x0d1", 0, "0x0d1  0x00  exact     ex_ret_cond" },
	{ "events --cpu=icelake | grep 0x41", 0, "0x02e  0x41  modelled  LONGEST_LAT_CACHE.MISS" },
	{ "events --cpu", 2, "needs the name" },
	{ "events --cpu 486", 2, "no CPU model '486'" },
	{ "events zebra", 2, "no model has an event 'zebra': it would count nothing" },
	{ "events --cpu milan LLC-loads", 2, "milan has no event 'LLC-loads'" },
	{ "events a b", 2, "cannot make sense of 'b'" },
	{ "events --frob", 2, "cannot make sense of '--frob'" },
	{ "events :u", 2, "':u' names no event" },
	{ "events --cpu genoa instructions:u", 0, "kind         exact" },
	{ "events branch-misses --cpu=icelake", 0,
	  "perf         branch-misses, branch-load-misses, r00c5" },
	{ "events br_misp_retired.cond", 0, "counts       mispredicted conditional branches\n" },
	{ "events r100000120", 0, "ls_not_halted_p0_cyc.p0_freq_cyc" },
	{ "events CYCLE_ACTIVITY.STALLS_TOTAL", 0, "r40004a3\n" },
	{ "events r40004a3", 0, "CYCLE_ACTIVITY.STALLS_TOTAL" },
	{ "events r04a3", 2, "no model has an event 'r04a3': it would count nothing" },
	{ "events r00000c0:u --cpu milan", 0, "kind         exact" },
	{ "events r+c0", 2, "no model has an event 'r+c0'" },
	{ "events rc4 --cpu skylake", 0, "BR_INST_RETIRED.ALL_BRANCHES" },
	{ "events L1-dcache-load-misses | grep models", 0, "models       skylake icelake\n" },
	{ "events stlb_hit | grep -c modelled", 0, "6\n" },
	{ "help cost", 0, "usage: vpmu cost" },
	{ "cost", 2, "there is no code to look at" },
	{ "cost --cpu 486 90", 2, "no CPU model '486'" },
	{ "cost --cpu", 2, "needs the name" },
	{ "cost --frob 90", 2, "cannot make sense of '--frob'" },
	{ "cost 90 91", 2, "cannot make sense of '91'" },
	{ "cost --csv /dev/null 90", 2, "either --csv or a block" },
	{ "cost --csv /no/such/file", 1, "cannot open /no/such/file" },
	{ "cost xyz", 1, "'xyz' is neither a file" },
	{ "cost /dev/null", 1, "/dev/null is empty" },
	{ "cost 480fafc3", 0, "cycles per iteration: 3.00" },
	{ "cost --cpu=milan 480fafc3", 0, "milan (compared with Zen 3 silicon)" },
	{ "cost --cpu=genoa 480fafc3", 0, "genoa (compared with Zen 4 silicon)" },
	{ "cost --cpu=skylake 480fafc3", 0, "skylake (never compared with its silicon)" },
	{ "cost 0fa2480fafc3", 1, "unsupported instruction 'cpuid' at byte 0" },
	{ "cost 0fa2480fafc3 2>/dev/null", 1, "cycles per iteration: 3.00" },
	{ "cost 0fff06480fafc34801", 1, "truncated instruction '4801' at byte 7" },
	{ "cost 06480fafc3", 1, "no instruction begins with '06' at byte 0" },
	{ "cost - </dev/null", 1, "standard input is empty" },
	{ "cost /proc/self/exe", 1, "more than 256 instructions" },
	{ "cost --symbol frob /proc/self/exe", 1, "has no symbol 'frob'" },
	{ "cost --range 8-4 /proc/self/exe", 2, "is not a range of addresses" },
	{ "cost --range 1-2 /proc/self/exe", 1, "has no code from 0x1 to 0x2" },
	{ "stat -I", 2, "a number of milliseconds is missing after '-I'" },
	{ "stat -I 0", 2, "-I wants a number of milliseconds from 1 to 4294967295, not '0'" },
	{ "stat -I 1s", 2, "-I wants a number of milliseconds from 1 to 4294967295, not '1s'" },
	{ "stat -I 4294967297", 2, "not '4294967297'" },
	{ "stat -I -1", 2, "not '-1'" },
	{ "stat --for", 2, "a number of seconds is missing after '--for'" },
	{ "stat --for 10m", 2, "--for wants a number of seconds up to 1000000000, not '10m'" },
	{ "stat --for inf", 2, "not 'inf'" },
	{ "stat --for -0.5", 2, "not '-0.5'" },
	{ "stat --frob", 2, "cannot make sense of '--frob'" },
	{ "stat 1", 1, "there is no VM in process 1" },
	{ "set 1 accounting=vcpu", 1, "there is no VM in process 1" },
	{ "filter 1 off", 1, "there is no VM in process 1" },
	{ "kvm /no/such/command", 127, "cannot start '/no/such/command'" },
	{ "kvm /", 126, "cannot start '/'" },
	{ "kvm true", 0, "" },
	{ "kvm -- false", 1, "" },
	{ "kvm /sbin/ldconfig --version", 0, "'/sbin/ldconfig' is statically linked" },
	{ "kvm sh -c 'exit 42'", 42, "" },
	{ "kvm --cpu milan sh -c 'echo $VPMU_CPU'", 0, "milan" },
	{ "kvm --cpu=genoa sh -c 'echo $VPMU_CPU'", 0, "genoa" },
	{ "kvm sh -c 'echo $LD_PRELOAD'", 0, "/libvpmu-kvm.so" },
	{ "kvm cat /sys/module/kvm/parameters/ignore_msrs", 0, "N\n" },
};

static void every_call_ends_with_its_code_and_says_why(void **state)
{
	char output[4096];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(calls); i++) {
		int status = vpmu(calls[i].arguments, output);

		if (status != calls[i].status || !strstr(output, calls[i].says))
			fail_msg("vpmu %s: exit code %d, says: %s", calls[i].arguments, status,
				 output);
	}
}

static void other_preloaded_libraries_stay(void **state)
{
	char output[4096];

	(void)state;
	setenv("LD_PRELOAD", "libc.so.6", 1);
	assert_int_equal(vpmu("kvm sh -c 'echo $LD_PRELOAD'", output), 0);
	unsetenv("LD_PRELOAD");
	assert_non_null(strstr(output, "libvpmu-kvm.so:libc.so.6\n"));
}

/* vpmu-qemu starts what PATH has: a script that tells the model and its arguments. */
static void make_qemu(char place[64])
{
	char name[128];
	FILE *f;

	strcpy(place, "/tmp/vpmu-command-XXXXXX");
	assert_non_null(mkdtemp(place));
	snprintf(name, sizeof(name), "%s/qemu-system-x86_64", place);
	f = fopen(name, "w");
	assert_non_null(f);
	fputs("#!/bin/sh\necho \"$VPMU_CPU $*\"\n", f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(name, 0755), 0);
}

static void remove_qemu(const char *place)
{
	char name[128];

	snprintf(name, sizeof(name), "%s/qemu-system-x86_64", place);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(rmdir(place), 0);
}

#define ANY   "skylake icelake sapphirerapids milan genoa"
#define INTEL "skylake icelake sapphirerapids"
#define AMD   "milan genoa"

static const struct choice {
	const char *wanted; /* VPMU_CPU, or NULL */
	const char *cpu, *models, *becomes;
} choices[] = {
	{ NULL, "qemu64", ANY, "host" },
	{ NULL, "max", ANY, "max" },
	{ NULL, "Haswell", INTEL, "Haswell" },
	{ NULL, "EPYC-Rome", AMD, "EPYC-Rome" },
	{ NULL, "Skylake-Server", "skylake", "host" },
	{ NULL, "EPYC-Milan", "milan", "host" },
	{ "icelake", "EPYC-Milan", "icelake", "host" },
	{ "icelake", "qemu64", "icelake", "host" },
};

/* With VPMU_BASELINE: the same on every host. */
static const struct choice baselines[] = {
	{ NULL, "qemu64", "icelake", "host" },	   { NULL, "max", "icelake", "max" },
	{ NULL, "Haswell", "icelake", "Haswell" }, { NULL, "EPYC-Rome", "genoa", "EPYC-Rome" },
	{ NULL, "EPYC-Milan", "milan", "host" },   { "skylake", "qemu64", "skylake", "host" },
};

static void check_choice(const struct choice *choice)
{
	char arguments[64], output[4096], rest[64], *blank;

	if (choice->wanted)
		setenv("VPMU_CPU", choice->wanted, 1);
	snprintf(arguments, sizeof(arguments), "qemu -cpu %s", choice->cpu);
	snprintf(rest, sizeof(rest), " -cpu %s -accel kvm\n", choice->becomes);
	assert_int_equal(vpmu(arguments, output), 0);
	unsetenv("VPMU_CPU");
	blank = strchr(output, ' ');
	if (!blank || strcmp(blank, rest))
		fail_msg("-cpu %s: %s", choice->cpu, output);
	*blank = '\0';
	if (!*output || !strstr(choice->models, output))
		fail_msg("-cpu %s: model '%s'", choice->cpu, output);
}

static void qemu_gets_a_model_that_suits_its_processor(void **state)
{
	char place[64], path[4096], *before = strdup(getenv("PATH"));

	(void)state;
	assert_non_null(before);
	make_qemu(place);
	snprintf(path, sizeof(path), "%s:%s", place, before);
	setenv("PATH", path, 1);
	unsetenv("VPMU_CPU");
	for (u32 i = 0; i < ARRAY_SIZE(choices); i++)
		check_choice(&choices[i]);
	setenv("VPMU_BASELINE", "1", 1);
	for (u32 i = 0; i < ARRAY_SIZE(baselines); i++)
		check_choice(&baselines[i]);
	unsetenv("VPMU_BASELINE");
	setenv("PATH", before, 1);
	free(before);
	remove_qemu(place);
}

#define SKIPPED 4

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_ends_with_its_code_and_says_why),
		cmocka_unit_test(qemu_gets_a_model_that_suits_its_processor),
		cmocka_unit_test(other_preloaded_libraries_stay),
	};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	puts("SKIP: a sanitizer's runtime cannot be loaded behind a preloaded library");
	return SKIPPED;
#endif
	if (readlink("/proc/self/exe", folder, sizeof(folder) - 32) < 0)
		return 1;
	strcpy(strrchr(folder, '/') + 1, "../../");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
