// SPDX-License-Identifier: MIT
/*
 * Results of an earlier run in the folder that tasks write to. Functions explain counts of the same
 * run: where a case is counted again they are replaced as well, even if no task finds them again.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/check/check.h"

static void visit_one(const char *results, u32 index, enum check_step step,
		      void (*visit)(const char *path, const char *aside))
{
	char path[PATH_MAX], aside[PATH_MAX];

	check_result_path(path, results, index, step);
	strcat(strcpy(aside, path), ".old"); /* check_result_path() leaves room */
	visit(path, aside);
}

/* A file may be visited twice: of a task, and with the counts. */
static void visit_all(const struct check_task *task, u32 count, const char *results,
		      void (*visit)(const char *path, const char *aside))
{
	for (u32 i = 0; i < count; i++) {
		visit_one(results, task[i].index, task[i].step, visit);
		if (task[i].replaces_functions)
			visit_one(results, task[i].index, STEP_FUNCTIONS, visit);
	}
}

static void rename_aside(const char *path, const char *aside)
{
	rename(path, aside);
}

static void rename_back(const char *path, const char *aside)
{
	rename(aside, path);
}

static void remove_aside(const char *path, const char *aside)
{
	(void)path;
	unlink(aside);
}

void earlier_put_aside(const struct check_task *task, u32 count, const char *results)
{
	earlier_remove(task, count, results);
	visit_all(task, count, results, rename_aside);
}

void earlier_put_back(const struct check_task *task, u32 count, const char *results)
{
	visit_all(task, count, results, rename_back);
}

void earlier_remove(const struct check_task *task, u32 count, const char *results)
{
	visit_all(task, count, results, remove_aside);
}
