// SPDX-License-Identifier: MIT
/*
 * What vpmu-qemu makes of QEMU's command lines: those of libvirt 7 to 11, for probing and for
 * domains of both types, and odd ones. Rows separate words by a blank; '~' is a blank in a word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/qemu_line.h"

#define MAX_TEST_WORDS 64

struct words {
	char text[2048];
	char *word[MAX_TEST_WORDS + 1]; /* [0] is the program */
	u32 count;
};

static void split(const char *line, struct words *words)
{
	char *state, *word;

	words->word[0] = "program";
	words->count = 1;
	assert_true(strlen(line) < sizeof(words->text));
	strcpy(words->text, line);
	for (word = strtok_r(words->text, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
		assert_true(words->count < MAX_TEST_WORDS);
		words->word[words->count++] = word;
		for (char *c = word; *c; c++)
			*c = *c == '~' ? ' ' : *c;
	}
	words->word[words->count] = NULL;
}

static void make(struct qemu_line *line, const char *text, bool has_kvm)
{
	struct words words;

	split(text, &words);
	qemu_line_make(line, "program", words.word, has_kvm);
	assert_false(line->is_broken);
	assert_null(line->word[line->count]);
}

/* What libvirt writes around the options that matter. */
#define PROBE "-S -no-user-config -nodefaults -nographic "
#define PROBE_END                                                                                \
	" -qmp unix:/run/user/1000/libvirt/qmp.monitor,server=on,wait=off -pidfile /run/qmp.pid" \
	" -daemonize"
#define NAME	"-name guest=one,debug-threads=on -S "
#define SANDBOX " -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

/* Probing, where libvirt can use /dev/kvm and where it cannot. */
static const struct probe {
	const char *line, *with_kvm, *without;
} probes[] = {
	{ PROBE "-machine none,accel=kvm:tcg" PROBE_END, PROBE "-machine none,accel=kvm" PROBE_END,
	  PROBE "-machine none,accel=tcg" PROBE_END },
	{ PROBE "-machine none,accel=kvm:hvf:tcg" PROBE_END,
	  PROBE "-machine none,accel=kvm" PROBE_END, PROBE "-machine none,accel=tcg" PROBE_END },
	{ PROBE "-machine none,accel=tcg" PROBE_END, PROBE "-machine none,accel=kvm" PROBE_END,
	  PROBE "-machine none,accel=kvm" PROBE_END },
	{ "-machine pc,accel=kvm:tcg -cpu max", "-machine pc,accel=kvm -cpu max",
	  "-machine pc,accel=kvm -cpu max" },
};

/* QEMU's default and the processors that vpmu has are vpmu's; others are QEMU's. */
static const struct processor {
	const char *cpu, *becomes, *model;
	enum qemu_vendor vendor;
} processors[] = {
	{ "qemu64", "host", NULL, VENDOR_ANY },
	{ "qemu64-v1", "host", NULL, VENDOR_ANY },
	{ "qemu64,ds=on,svm=off", "host,ds=on,svm=off", NULL, VENDOR_ANY }, /* as it was saved */
	{ "host,migratable=on", "host,migratable=on", NULL, VENDOR_ANY },
	{ "max", "max", NULL, VENDOR_ANY },
	{ "Skylake-Server-noTSX-IBRS,md-clear=on", "host,md-clear=on", "skylake", VENDOR_ANY },
	{ "Icelake-Server", "host", "icelake", VENDOR_ANY },
	{ "SapphireRapids-v2", "host", "sapphirerapids", VENDOR_ANY },
	{ "EPYC-Milan,x2apic=on", "host,x2apic=on", "milan", VENDOR_ANY },
	{ "EPYC-Genoa,pmu=off", "host,pmu=off", "genoa", VENDOR_ANY },
	{ "EPYC-Milano", "EPYC-Milano", NULL, VENDOR_AMD },
	{ "Opteron_G3", "Opteron_G3", NULL, VENDOR_AMD },
	{ "athlon-v1,x2apic=on", "athlon-v1,x2apic=on", NULL, VENDOR_AMD },
	{ "EPYC", "EPYC", NULL, VENDOR_AMD },
	{ "Skylake-Client", "Skylake-Client", NULL, VENDOR_INTEL },
	{ "Cascadelake-Server", "Cascadelake-Server", NULL, VENDOR_INTEL },
	{ "Haswell-noTSX,pmu=on", "Haswell-noTSX,pmu=on", NULL, VENDOR_INTEL },
	{ "qemu6", "qemu6", NULL, VENDOR_INTEL },
	{ "qemu64x", "qemu64x", NULL, VENDOR_INTEL },
	{ "kvm64", "kvm64", NULL, VENDOR_INTEL },
	{ "help", "help", NULL, VENDOR_INTEL },
	{ ",", ",", NULL, VENDOR_INTEL },
};

static const struct row {
	const char *line, *becomes;
} rows[] = {
	/* libvirt 7.0, 9.0 and 11.3, type 'qemu'. */
	{ NAME "-machine pc-q35-5.2,accel=tcg,usb=off,dump-guest-core=off -cpu qemu64 -m 256",
	  NAME "-machine pc-q35-5.2,accel=kvm,usb=off,dump-guest-core=off -cpu host -m 256" },
	{ NAME "-machine pc-q35-7.2,usb=off,memory-backend=pc.ram -accel tcg -cpu qemu64" SANDBOX,
	  NAME "-machine pc-q35-7.2,usb=off,memory-backend=pc.ram -accel kvm -cpu host" SANDBOX },
	{ NAME "-machine pc-q35-10.0,usb=off,acpi=on -accel tcg -cpu qemu64,ds=on,svm=off",
	  NAME "-machine pc-q35-10.0,usb=off,acpi=on -accel kvm -cpu host,ds=on,svm=off" },
	/* Type 'kvm'. */
	{ "-machine q35,kernel_irqchip=on -accel kvm -cpu host,migratable=on",
	  "-machine q35,kernel_irqchip=on -accel kvm -cpu host,migratable=on" },
	{ "-machine q35 -accel kvm,dirty-ring-size=4096 -cpu host",
	  "-machine q35 -accel kvm,dirty-ring-size=4096 -cpu host" },

	/* The accelerator anywhere, under any name of its option. */
	{ "-machine pc,accel=tcg -cpu max", "-machine pc,accel=kvm -cpu max" },
	{ "-machine accel=tcg,type=pc -cpu max", "-machine accel=kvm,type=pc -cpu max" },
	{ "-M q35,usb=off,accel=tcg,smm=off -cpu max",
	  "-M q35,usb=off,accel=kvm,smm=off -cpu max" },
	{ "--machine pc,accel=tcg:kvm,accel=tcg --cpu qemu64",
	  "--machine pc,accel=kvm,accel=kvm --cpu host" },
	{ "-machine q35 -machine accel=tcg -cpu max", "-machine q35 -machine accel=kvm -cpu max" },
	{ "--accel accel=tcg -cpu max", "--accel kvm -cpu max" },
	{ "-accel tcg,thread=multi -cpu max", "-accel kvm -cpu max" },
	{ "-accel kvm -accel tcg -cpu max", "-accel kvm -cpu max" },
	{ "-accel tcg -accel kvm,dirty-ring-size=64 -cpu max",
	  "-accel kvm,dirty-ring-size=64 -cpu max" },
	{ "-accel tcg -S -accel tcg -cpu max", "-accel kvm -S -cpu max" },
	{ "-audio-help -accel tcg -xen-domid-restrict -cpu max",
	  "-audio-help -accel kvm -xen-domid-restrict -cpu max" },
	{ "-accel help", "-accel help -cpu host" },
	{ "-enable-kvm -cpu host", "-enable-kvm -cpu host" },
	{ "-machine pc,accel=tcg -enable-kvm -cpu max",
	  "-machine pc,accel=kvm -enable-kvm -cpu max" },
	/* QEMU says that these two exclude each other. */
	{ "-machine pc,accel=tcg -accel tcg -cpu max",
	  "-machine pc,accel=kvm -accel kvm -cpu max" },

	/* QEMU's own defaults are TCG and qemu64. */
	{ "", "-accel kvm -cpu host" },
	{ "-m 1G disk.qcow2", "-m 1G disk.qcow2 -accel kvm -cpu host" },
	{ "-machine none", "-machine none -accel kvm" },
	{ "-M type=none,accel=tcg", "-M type=none,accel=kvm" },

	/* Values that look like these options are none of them. */
	{ "-name -accel -append -cpu -serial tcg -accel tcg -cpu max",
	  "-name -accel -append -cpu -serial tcg -accel kvm -cpu max" },
	{ "-append console=ttyS0~-accel~tcg~accel=tcg -name accel=tcg,process=-cpu -cpu max",
	  "-append console=ttyS0~-accel~tcg~accel=tcg -name accel=tcg,process=-cpu -cpu max"
	  " -accel kvm" },
	{ "-machine pc,kernel=/a,,accel=tcg,accel=tcg -cpu max",
	  "-machine pc,kernel=/a,,accel=tcg,accel=kvm -cpu max" },
	{ "-machine pc,memory-backend=accel=tcg,xaccel=tcg,accelx=tcg -accel tcg -cpu max",
	  "-machine pc,memory-backend=accel=tcg,xaccel=tcg,accelx=tcg -accel kvm -cpu max" },
	{ "-accel kvm,device=accel=tcg -cpu max", "-accel kvm,device=accel=tcg -cpu max" },
	{ "accel=tcg -S none -accel tcg -cpu max", "accel=tcg -S none -accel kvm -cpu max" },
	{ "-object {\"qom-type\":\"secret\",\"id\":\"-accel~tcg\"} -accel tcg -cpu max",
	  "-object {\"qom-type\":\"secret\",\"id\":\"-accel~tcg\"} -accel kvm -cpu max" },

	/* What QEMU is to complain of reaches it. */
	{ "-accel tcg -cpu max -m", "-accel kvm -cpu max -m" },
	{ "-accel tcg -cpu", "-accel kvm -cpu" },
	{ "-cpu max -accel", "-cpu max -accel" },
	{ "-accel tcg -cpu max --", "-accel kvm -cpu max --" },
	{ "-accel tcg -cpu max -", "-accel kvm -cpu max -" },
	{ "-machine , -accel tcg -cpu max", "-machine , -accel kvm -cpu max" },
};

static enum qemu_vendor check_line(const char *text, const char *becomes, const char *model,
				   bool has_kvm)
{
	struct qemu_line line;
	struct words wanted;

	make(&line, text, has_kvm);
	if (line.refusal)
		fail_msg("%s: %s", text, line.refusal);
	split(becomes, &wanted);
	for (u32 i = 0; i < line.count && i < wanted.count; i++)
		if (strcmp(line.word[i], wanted.word[i]))
			fail_msg("%s: word %u is '%s', not '%s'", text, i, line.word[i],
				 wanted.word[i]);
	if (line.count != wanted.count)
		fail_msg("%s: %u words, not %u", text, line.count, wanted.count);
	if (strcmp(line.model ?: "", model ?: ""))
		fail_msg("%s: model %s", text, line.model ?: "none");
	qemu_line_free(&line);
	return line.vendor;
}

static void lines_for_tcg_become_lines_for_vpmu(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		check_line(rows[i].line, rows[i].becomes, NULL, true);
		check_line(rows[i].line, rows[i].becomes, NULL, false);
	}
}

static void probes_find_kvm_where_libvirt_does(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(probes); i++) {
		check_line(probes[i].line, probes[i].with_kvm, NULL, true);
		check_line(probes[i].line, probes[i].without, NULL, false);
	}
}

static void processors_are_vpmus_where_it_has_them(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(processors); i++) {
		char line[256], becomes[256];

		snprintf(line, sizeof(line), "-accel tcg -cpu %s", processors[i].cpu);
		snprintf(becomes, sizeof(becomes), "-accel kvm -cpu %s", processors[i].becomes);
		if (check_line(line, becomes, processors[i].model, true) != processors[i].vendor)
			fail_msg("%s: another vendor", line);
	}
	/* QEMU takes the last. */
	assert_int_equal(check_line("-accel tcg -cpu EPYC-Milan -cpu EPYC -cpu qemu64",
				    "-accel kvm -cpu host -cpu EPYC -cpu host", NULL, true),
			 VENDOR_ANY);
}

static const struct refusal {
	const char *line, *says;
} refusals[] = {
	{ "-accel tcg,tb-size=256", "no 'tb-size=256'" },
	{ "-accel tcg,thread=single", "no 'thread=single'" },
	{ "-accel tcg,thread=multi,split-wx=on", "no 'split-wx=on'" },
	{ "-accel thread=single,accel=tcg", "no 'thread=single'" },
	{ "-accel tcg,one-insn-per-tb", "no 'one-insn-per-tb'" },
	{ "-accel kvm -accel tcg,tb-size=1", "<features><tcg>" },
	{ "-accel xen", "-accel xen: the domain's type must be" },
	{ "-accel tcg,accel=hvf", "-accel hvf: " },
	{ "-accel", NULL },
	{ "-accel tcgx", "-accel tcgx: " },
	{ "-accel kv", "-accel kv: " },
	{ "-accel kvm,accel=qtest -S", "-accel qtest: " },
	{ "-machine pc,accel=xen,usb=off", "-machine accel=xen: the domain's type must be" },
	{ "-machine pc,accel=", "-machine accel=: " },
	{ "-machine pc,accel=xen:tcgx", "-machine accel=xen:tcgx: " },
	{ "-icount shift=auto", "-icount: vpmu translates without TCG" },
	{ "-accel tcg -plugin libinsn.so,tcg=1", "-plugin: " },
	{ "-singlestep", "-singlestep: " },
	{ "-perfmap -S", "-perfmap: " },
	{ "--jitdump", "--jitdump: " },
	{ "-tb-size 32", "-tb-size: " },
	{ "-append -icount -name -plugin", NULL },
};

static void what_tcg_alone_can_do_is_refused(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(refusals); i++) {
		const struct refusal *row = &refusals[i];
		struct qemu_line line;

		make(&line, row->line, true);
		if (!line.refusal != !row->says || (row->says && !strstr(line.refusal, row->says)))
			fail_msg("%s: '%s'", row->line, line.refusal ?: "accepted");
		qemu_line_free(&line);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_for_tcg_become_lines_for_vpmu),
		cmocka_unit_test(probes_find_kvm_where_libvirt_does),
		cmocka_unit_test(processors_are_vpmus_where_it_has_them),
		cmocka_unit_test(what_tcg_alone_can_do_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
