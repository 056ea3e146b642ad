// SPDX-License-Identifier: MIT
/*
 * vpmu exec --passes: see passes.h.
 */
#include "cli/passes/passes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memfile.h"
#include "cli/cli.h"
#include "vm/cpuid/cpuid.h"

#define SAID_SIZE (64u << 10) /* of what the guest's perf writes; the rest is lost */

struct passes {
	struct pass_line line;
	struct exec_passes files;
	struct hwpmu_shadow *shadow;
	char *said;
	FILE *out;
};

static retire_wanted classes_of(const struct pass_events *events)
{
	retire_wanted classes = 0;

	for (u32 i = 0; i < events->count; i++)
		if (!events->item[i].is_software)
			classes |= RETIRE_BIT(events->item[i].event.class);
	return classes;
}

static int open_files(struct passes *passes)
{
	passes->files = (struct exec_passes){ memfile_fixed("shadow", sizeof(*passes->shadow)),
					      memfile_fixed("counts", SAID_SIZE) };
	if (passes->files.shadow < 0 || passes->files.counts < 0)
		return failure(STATUS_BROKEN, "cannot prepare a guest: %s", strerror(errno));
	passes->shadow = memfile_map(passes->files.shadow, sizeof(*passes->shadow));
	passes->said = memfile_map(passes->files.counts, SAID_SIZE);
	if (!passes->shadow || !passes->said)
		return failure(STATUS_BROKEN, "cannot map a file: %s", strerror(errno));
	passes->shadow->classes = classes_of(&passes->line.events);
	return STATUS_OK;
}

static int cannot_write(const struct passes *passes)
{
	return failure(STATUS_BROKEN, "cannot write '%s': %s",
		       passes->line.output ?: "standard error", strerror(errno));
}

/* Before the guest runs, as perf does. */
static int open_output(struct passes *passes)
{
	const char *name = passes->line.output;

	passes->out = name ? fopen(name, passes->line.append ? "ae" : "we") : stderr;
	return passes->out ? STATUS_OK : cannot_write(passes);
}

static int report(struct passes *passes, int status)
{
	bool is_partial = false;

	passes->said[SAID_SIZE - 1] = '\0'; /* the guest may have written more */
	if (!pass_report(passes->out, &passes->line, passes->shadow, passes->said, &is_partial))
		return status ?: failure(STATUS_BROKEN, "perf did not count in the guest");
	if (fflush(passes->out) || ferror(passes->out))
		return cannot_write(passes);
	if (is_partial)
		return failure(STATUS_USAGE,
			       "the command has used the guest's counters itself: these counts "
			       "are of a part of the time");
	return status;
}

static int run_guest(struct passes *passes, struct exec_options *options,
		     int (*run)(const struct exec_options *options))
{
	int status = open_files(passes);

	if (!status && !options->dry_run)
		status = open_output(passes);
	if (status)
		return status;
	options->passes = &passes->files;
	options->command = passes->line.guest;
	status = run(options);
	return options->dry_run ? status : report(passes, status);
}

int passes_run(struct exec_options *options, int (*run)(const struct exec_options *options))
{
	const struct model *model = cpuid_model(options->cpu ?: getenv("VPMU_CPU"));
	struct passes passes = { .out = NULL };
	int status;

	if (!model)
		return failure(STATUS_USAGE, "there is no CPU model '%s'", getenv("VPMU_CPU"));
	status = pass_line_read(&passes.line, options->command, model);
	if (!status)
		status = run_guest(&passes, options, run);
	pass_line_free(&passes.line);
	return status; /* the files end with the process */
}
