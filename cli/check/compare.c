// SPDX-License-Identifier: MIT
/*
 * Comparing results with a baseline. A change counts for or against the program only if the rest is
 * what it was: the model, vpmu, the guest's kernel, perf, and files with code that are not tested,
 * libraries above all.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/check/check.h"

/* --- the environment --- */

/* Is a file of this name in a folder that the suite tests? Names in it are relative to the suite's
 * folder. */
static bool is_tested(const struct check_suite *suite, const char *name)
{
	if (*name != '/')
		return true;
	for (char **folder = suite->tested; *folder; folder++) {
		size_t n = strlen(*folder);

		if (!strncmp(name, *folder, n) && (name[n] == '/' || !strcmp(*folder, "/")))
			return true;
	}
	return false;
}

static const char *fact_of(const struct check_facts *facts, const char *name)
{
	for (u32 i = 0; i < facts->count; i++)
		if (!strcmp(facts->item[i].name, name))
			return facts->item[i].value;
	return NULL;
}

/* The first fact in which two environments differ, into `reason`. What only one of them knows is a
 * difference if it is about the machine, but not if it is a file: the program may have stopped
 * using it. */
static bool differs(const struct check_suite *suite, const struct check_facts *before,
		    const struct check_facts *after, bool are_files, char *reason, size_t room)
{
	for (u32 i = 0; i < after->count; i++) {
		const struct check_fact *now = &after->item[i];
		const char *then = fact_of(before, now->name);

		if ((are_files && (!then || is_tested(suite, now->name))) ||
		    (then && !strcmp(then, now->value)))
			continue;
		snprintf(reason, room, "the baseline was made with %s%s %.100s, this is %.100s",
			 now->name, are_files ? " of build id" : "", then ? then : "unknown",
			 now->value);
		return true;
	}
	return false;
}

static bool is_other(const struct check_suite *suite, const struct check_result *counts,
		     const struct check_result *functions, const struct check_result *before,
		     char *reason, size_t room)
{
	return differs(suite, &before->where, &counts->where, false, reason, room) ||
	       (functions && differs(suite, &before->files, &functions->files, true, reason, room));
}

/* --- counts --- */

s64 row_change(const struct check_row *row)
{
	return (s64)(row->after - row->before);
}

double row_percent(const struct check_row *row)
{
	if (!row->before)
		return row->after ? 100 : 0;
	return 100.0 * (double)row_change(row) / (double)row->before;
}

static enum check_verdict judge(const struct check_row *row)
{
	double percent = row_percent(row);

	if (row->after == row->before)
		return VERDICT_SAME;
	if ((percent < 0 ? -percent : percent) <= row->tolerance)
		return VERDICT_TOLERATED;
	return row->after < row->before ? VERDICT_BETTER : VERDICT_WORSE;
}

static void add_row(struct check_comparison *c, const struct check_event *event,
		    const struct check_result *counts, const struct check_result *before)
{
	const struct check_count *then = before ? counts_find(&before->counts, event->name) : NULL;
	const struct check_count *now = counts_find(&counts->counts, event->name);
	struct check_row *row = &c->row[c->rows++];

	*row = (struct check_row){ .event = event->name,
				   .before = then ? then->value : 0,
				   .after = now ? now->value : 0,
				   .tolerance = event->tolerance };
	row->verdict = !now ? VERDICT_FAILED : then ? judge(row) : VERDICT_NEW;
	if (row->verdict > c->verdict)
		c->verdict = row->verdict;
}

/* --- functions --- */

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct check_count *)a)->name, ((const struct check_count *)b)->name);
}

static u64 size_of(const struct check_difference *d)
{
	return d->after > d->before ? d->after - d->before : d->before - d->after;
}

static int by_size(const void *a, const void *b)
{
	u64 left = size_of(a), right = size_of(b);

	if (left != right)
		return left < right ? 1 : -1;
	return strcmp(((const struct check_difference *)a)->name,
		      ((const struct check_difference *)b)->name);
}

static struct check_count *sorted(const struct check_counts *counts)
{
	struct check_count *copy = calloc(counts->count + 1ull, sizeof(*copy));

	if (!copy)
		return NULL;
	for (u32 i = 0; i < counts->count; i++)
		copy[i] = counts->item[i];
	qsort(copy, counts->count, sizeof(*copy), by_name);
	return copy;
}

/* Merges two lists, each sorted by name and ended by an entry without one. */
static void merge(struct check_comparison *c, const struct check_count *then,
		  const struct check_count *now)
{
	while (then->name || now->name) {
		int order = !then->name ? 1 : !now->name ? -1 : strcmp(then->name, now->name);
		struct check_difference d = { order > 0 ? now->name : then->name,
					      order > 0 ? 0 : then->value,
					      order < 0 ? 0 : now->value };

		then += order <= 0;
		now += order >= 0;
		if (d.before != d.after)
			c->difference[c->differences++] = d;
	}
}

static bool compare_functions(struct check_comparison *c, const struct check_result *now,
			      const struct check_result *then)
{
	struct check_count *a = sorted(&then->functions), *b = sorted(&now->functions);
	u64 most = 1ull + then->functions.count + now->functions.count;

	c->has_functions = true;
	c->difference = calloc(most, sizeof(*c->difference));
	if (a && b && c->difference) {
		merge(c, a, b);
		qsort(c->difference, c->differences, sizeof(*c->difference), by_size);
	}
	free(a);
	free(b);
	return a && b && c->difference;
}

/* --- a case --- */

static bool fail(struct check_comparison *c, const char *reason)
{
	c->verdict = VERDICT_FAILED;
	snprintf(c->reason, sizeof(c->reason), "%s", reason);
	return true;
}

bool compare_is_changed(const struct check_comparison *c)
{
	for (u32 i = 0; i < c->rows; i++)
		if (c->row[i].verdict != VERDICT_NEW && c->row[i].before != c->row[i].after)
			return true;
	return false;
}

bool compare_case(const struct check_suite *suite, const struct check_case *of,
		  const struct check_result *counts, const struct check_result *functions,
		  const struct check_result *before, struct check_comparison *c)
{
	*c = (struct check_comparison){ .of = of };
	if (of->benchmark->error || !counts)
		return fail(c, of->benchmark->error ?: "its result is missing");
	if (counts->error)
		return fail(c, counts->error);
	c->row = calloc(of->benchmark->events, sizeof(*c->row));
	if (!c->row)
		return false;
	for (u32 i = 0; i < of->benchmark->events; i++)
		add_row(c, &of->benchmark->event[i], counts, before);
	if (functions && functions->error)
		return fail(c, functions->error);
	if (!before)
		snprintf(c->reason, sizeof(c->reason), "the baseline has no counts of it on %s",
			 of->model);
	else if (compare_is_changed(c) &&
		 is_other(suite, counts, functions, before, c->reason, sizeof(c->reason)))
		c->verdict = VERDICT_OTHER;
	if (before && functions && functions->has_functions && before->has_functions)
		return compare_functions(c, functions, before);
	return true;
}

void compare_free(struct check_comparison *c)
{
	free(c->row);
	free(c->difference);
}
