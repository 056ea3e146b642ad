// SPDX-License-Identifier: MIT
/*
 * vpmu qemu, installed as vpmu-qemu for libvirt's <emulator>: becomes QEMU on vpmu, with a command
 * line for TCG or KVM. The process stays the one that libvirt started, with its descriptors and its
 * signals; standard error, where libvirt looks for the reason when a domain does not start, too.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/qemu_line.h"
#include "exec/exec.h"
#include "vm/cpuid/cpuid.h"
#include "x86/models.h"

/* The model nearest to the host, or that of the baseline, which is the same on all of them; or of
 * another vendor the last one, which has the most features. */
static const char *usual_model(enum qemu_vendor vendor)
{
	const struct model *model = cpuid_model(getenv("VPMU_BASELINE") ? BASELINE_MODEL : NULL);
	bool is_amd = vendor == VENDOR_AMD;

	if (vendor == VENDOR_ANY || model->is_amd == is_amd)
		return model->name;
	for (u32 i = 0; model_at(i); i++)
		if (model_at(i)->is_amd == is_amd)
			model = model_at(i);
	return model->name;
}

/*
 * What the user says of the model counts: <qemu:env name='VPMU_CPU' …/>. It is always named: QEMU's
 * own CPUID then shows it, and -cpu host is that model down to its numbers on a host that is only
 * near to it.
 */
static int choose_model(const struct qemu_line *line)
{
	const char *wanted = getenv("VPMU_CPU");

	if (wanted && !model_find(wanted))
		return failure(STATUS_USAGE,
			       "VPMU_CPU: there is no CPU model '%s'; 'vpmu help kvm' lists them",
			       wanted);
	if (setenv("VPMU_CPU", line->model ?: usual_model(line->vendor), 0))
		return out_of_memory();
	return STATUS_OK;
}

static int start(const struct qemu_line *line)
{
	int status;

	if (line->is_broken)
		return out_of_memory();
	if (line->refusal)
		return failure(STATUS_USAGE, "%s", line->refusal);
	status = getenv("VPMU_BASELINE") ? check_baseline() : STATUS_OK;
	if (!status)
		status = choose_model(line);
	return status ? status : kvm_start(line->word);
}

static int run(int argc, char **argv)
{
	char qemu[PATH_MAX];
	struct qemu_line line;
	int status;

	/* QEMU's own help is -help. */
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		command_help(&command_qemu);
		return STATUS_OK;
	}
	if (!machine_find_qemu(qemu))
		return failure(STATUS_BROKEN, "there is no " QEMU " in PATH: run 'apt install "
					      "qemu-system-x86'");
	qemu_line_make(&line, qemu, argv, !access("/dev/kvm", R_OK | W_OK));
	status = start(&line);
	qemu_line_free(&line);
	return status;
}

static void describe(void)
{
	puts("Takes QEMU's own options. Those for TCG become those for KVM, which is vpmu; what "
	     "TCG\n"
	     "alone can do is refused. QEMU's default processor (qemu64) and those that vpmu has\n"
	     "become vpmu's models, with their PMU; any other is kept, Intel's without one.\n\n"
	     "libvirt: install vpmu, and let vpmu-qemu, a name of this command, be the emulator "
	     "of\n"
	     "a domain of type 'qemu' or, where there is a /dev/kvm, 'kvm':\n\n"
	     "  <emulator>/usr/bin/vpmu-qemu</emulator>\n\n"
	     "Variables of vpmu kvm (VPMU_CPU=icelake, VPMU_PMU=off, ...) are set by <qemu:env>.\n"
	     "docs/libvirt.md has the rest. -help is QEMU's own help.\n\n"
	     "example:\n"
	     "  virt-install --connect qemu:///session --virt-type qemu --boot emulator=$(command\n"
	     "    -v vpmu-qemu) ...");
}

const struct command command_qemu = {
	.name = "qemu",
	.synopsis = "[QEMU'S OPTIONS]",
	.summary = "Run QEMU on vpmu with options for TCG, as libvirt's emulator",
	.run = run,
	.describe = describe,
};
