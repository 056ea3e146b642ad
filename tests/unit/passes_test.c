// SPDX-License-Identifier: MIT
/*
 * vpmu exec --passes: perf stat's lists of events, its arguments, and what is printed of what the
 * guest's perf has written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cli/passes/passes.h"

#define U  BIT(RETIRE_USR)
#define K  BIT(RETIRE_OS)
#define UK (U | K)

static const struct event_row {
	const char *model, *list, *name; /* name: of the last event */
	enum retire_class class;
	u8 unit, privileges;
	u32 count; /* events of the list; 0: one of them is refused */
} event_rows[] = {
	{ "icelake", "instructions", "instructions", RETIRE_INSTRUCTIONS, 1, UK, 1 },
	{ "icelake", "cycles,branches:u", "branches:u", RETIRE_BRANCHES, 1, U, 2 },
	{ "icelake", "{cycles,branches}:k", "branches:k", RETIRE_BRANCHES, 1, K, 2 },
	{ "icelake", "{cycles:u,branches}:D", "branches:D", RETIRE_BRANCHES, 1, UK, 2 },
	{ "icelake", "{cycles}:u,{branches}", "branches", RETIRE_BRANCHES, 1, UK, 2 },
	{ "icelake", "{cycles}:u,branches:ppk", "branches:ppk", RETIRE_BRANCHES, 1, K, 2 },
	{ "icelake", "BR_INST_RETIRED.NEAR_CALL", "BR_INST_RETIRED.NEAR_CALL", RETIRE_CALLS, 1, UK,
	  1 },
	{ "icelake", "cpu/event=0xc4,umask=0x2/u", "cpu/event=0xc4,umask=0x2/u", RETIRE_CALLS, 1, U,
	  1 },
	{ "icelake", "cpu/cache-misses/,cpu/r2c4/k", "cpu/r2c4/k", RETIRE_CALLS, 1, K, 2 },
	{ "icelake", "cpu/event=0xc0,inv,cmask=1/", "cpu/event=0xc0,inv,cmask=1/", RETIRE_STALLS,
	  TICKS_PER_CYCLE, UK, 1 },
	{ "icelake", "cpu/event=0xb7,umask=1,offcore_rsp=0x10001/",
	  "cpu/event=0xb7,umask=1,offcore_rsp=0x10001/", RETIRE_LOAD_L2_MISSES, 1, UK, 1 },
	{ "icelake", "LLC-load-misses:u", "LLC-load-misses:u", RETIRE_LOAD_LLC_MISSES, 1, U, 1 },
	{ "sapphirerapids", "LLC-stores", "LLC-stores", RETIRE_STORE_L2_MISSES, 1, UK, 1 },
	{ "icelake", "r400", "r400", RETIRE_CYCLES, TICKS_PER_CYCLE / 5, UK, 1 },
	{ "icelake", "r1cd", "r1cd", RETIRE_LOADS, 1, UK, 1 },
	{ "milan", "cycles,ex_ret_near_ret", "ex_ret_near_ret", RETIRE_RETURNS, 1, UK, 2 },
	{ "milan", "r400", NULL, 0, 0, 0, 0 },
	{ "skylake", "r400", NULL, 0, 0, 0, 0 },
	{ "icelake", "ex_ret_near_ret", NULL, 0, 0, 0, 0 },
	{ "icelake", "cycles,rffff", NULL, 0, 0, 0, 0 },
	{ "icelake", "cycles:G", NULL, 0, 0, 0, 0 },
	{ "icelake", "cycles::", NULL, 0, 0, 0, 0 },
	{ "icelake", "sched:sched_switch", NULL, 0, 0, 0, 0 },
	{ "icelake", "cpu/event=0xc4,umask=0x100/", NULL, 0, 0, 0, 0 },
	{ "icelake", "cpu/event=/", NULL, 0, 0, 0, 0 },
	{ "icelake", "cpu/event=-1/", NULL, 0, 0, 0, 0 },
	{ "icelake", "cpu/event=0xc4", NULL, 0, 0, 0, 0 },
	{ "icelake", "cpu//", NULL, 0, 0, 0, 0 },
	{ "icelake", "cpu/", NULL, 0, 0, 0, 0 },
	{ "icelake", "/", NULL, 0, 0, 0, 0 },
	{ "icelake", "tsc/event=0xc4/", NULL, 0, 0, 0, 0 },
};

static void check_events(const struct event_row *row, const struct pass_events *events)
{
	const struct pass_event *last = &events->item[row->count - 1];

	if (events->count != row->count || strcmp(last->name, row->name) ||
	    last->event.class != row->class || last->event.unit != row->unit ||
	    last->privileges != row->privileges || last->is_software)
		fail_msg("%s on %s: %u, %s, %u", row->list, row->model, events->count, last->name,
			 last->event.class);
}

static void lists_are_those_of_perf(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(event_rows); i++) {
		const struct event_row *row = &event_rows[i];
		struct pass_events events = { 0 };

		if (pass_events_add(&events, row->list, model_find(row->model), NULL) !=
		    !!row->count)
			fail_msg("%s on %s", row->list, row->model);
		if (row->count)
			check_events(row, &events);
		pass_events_free(&events);
	}
}

static void all_user_is_for_all(void **state)
{
	struct pass_events events = { 0 };

	(void)state;
	assert_true(pass_events_add(&events, "cycles,cycles:k,page-faults", model_find("milan"),
				    "--all-user"));
	for (u32 i = 0; i < 3; i++)
		assert_int_equal(events.item[i].privileges, U);
	assert_true(events.item[2].is_software);
	pass_events_free(&events);
}

/* --- arguments --- */

static char **split(char *words[32], char *text)
{
	u32 n = 0;

	for (char *save, *word = strtok_r(text, " ", &save); word;
	     word = strtok_r(NULL, " ", &save))
		words[n++] = word;
	words[n] = NULL;
	return words;
}

static void assert_guest_runs(const char *line, const char *wanted)
{
	char *words[32], text[200], joined[400] = "";
	struct pass_line read;

	snprintf(text, sizeof(text), "%s", line);
	assert_int_equal(pass_line_read(&read, split(words, text), model_find("milan")), 0);
	for (u32 i = 0; read.guest[i]; i++)
		snprintf(joined + strlen(joined), sizeof(joined) - strlen(joined), "%s%s",
			 i ? " " : "", read.guest[i]);
	assert_string_equal(joined, wanted);
	pass_line_free(&read);
}

static void a_file_named_by_a_dash_is_standard_error(void **state)
{
	char *words[32], text[] = "perf stat -o x -o - -e cycles ls";
	struct pass_line read;

	(void)state;
	assert_int_equal(pass_line_read(&read, split(words, text), model_find("milan")), 0);
	assert_null(read.output);
	pass_line_free(&read);
}

#define GUEST " stat -x | --log-fd 63 -e rffff:D"

static void the_guest_has_the_same_arguments_for_any_hardware_events(void **state)
{
	(void)state;
	assert_guest_runs("perf stat -e cycles ls -l", "perf" GUEST " -- ls -l");
	assert_guest_runs("perf stat -je {cycles,branches:u} --append -o x -B -- ls -l",
			  "perf" GUEST " -- ls -l");
	assert_guest_runs("/bin/perf stat -x, -ecs -e cycles,cs:u -i --all-kernel ls",
			  "/bin/perf" GUEST ",cs,cs:u --all-kernel -i -- ls");
}

/* --- the report --- */

/* Valid until the next one; NULL: nothing is reported. */
static const char *report(const char *said, const char *list, enum pass_format format)
{
	static char text[1000];
	char *words[] = { "ls", "-l", NULL }, copy[1000];
	struct pass_line line = { .format = format, .separator = ";", .command = words };
	struct hwpmu_shadow shadow = { 0 };
	FILE *out = fmemopen(text, sizeof(text), "w");
	bool is_partial, ok;

	shadow.counts.instructions[RETIRE_USR] = ~0ull - 5;
	shadow.counts.instructions[RETIRE_OS] = 3;
	snprintf(copy, sizeof(copy), "%s", said);
	assert_true(pass_events_add(&line.events, list, model_find("icelake"), NULL));
	ok = pass_report(out, &line, &shadow, copy, &is_partial);
	fclose(out);
	pass_events_free(&line.events);
	return ok ? text : NULL;
}

#define MARKER "# started\n\n0||rffff:D|1500|100.00||\n"

static void formats_are_perfs(void **state)
{
	const char *list = "instructions,task-clock,instructions:k,cpu/event=0xc0/k";
	const char *said = MARKER "1,25|msec|task-clock|1500|100,00|0.9|CPUs\n|||||1|of it\n";

	(void)state;
	assert_string_equal(report(said, list, FORMAT_CSV),
			    "18446744073709551613;;instructions;1500;100.00;;\n"
			    "1.25;msec;task-clock;1500;100.00;;\n"
			    "3;;instructions:k;1500;100.00;;\n"
			    "3;;cpu/event=0xc0/k;1500;100.00;;\n");
	assert_string_equal(
		report(said, "task-clock,instructions:k", FORMAT_JSON),
		"{\"counter-value\" : \"1.250000\", \"unit\" : \"msec\", \"event\" : "
		"\"task-clock\", \"event-runtime\" : 1500, \"pcnt-running\" : 100.00}\n"
		"{\"counter-value\" : \"3.000000\", \"unit\" : \"\", \"event\" : "
		"\"instructions:k\", \"event-runtime\" : 1500, \"pcnt-running\" : 100.00}\n");
	assert_string_equal(report(said, "task-clock,instructions:k", FORMAT_TABLE),
			    "\n  counts of 'ls -l', all events at once\n\n"
			    "                  1.25 msec  task-clock\n"
			    "                     3       instructions:k\n"
			    "\n           0.000001500 s of the guest's time\n\n");
}

static void what_was_not_counted_says_so(void **state)
{
	(void)state;
	assert_string_equal(
		report("<not counted>||rffff:D|0|100.00||\n", "instructions", FORMAT_CSV),
		"<not counted>;;instructions;0;100.00;;\n");
}

/* Whatever the command writes there. */
static void nothing_is_printed_of_what_perf_would_not_write(void **state)
{
	static const char *const said[] = {
		"",
		"\n",
		"0",
		"|||||",
		"0||rffff:D|1500",
		"0||rffff:D|1500|\n",
		"0||rffff:D|\x1b[2J|100.00||\n",
		"1e5||rffff:D|1500|100.00||\n",
		"0|\"|rffff:D|1500|100.00||\n",
		"0||rffff:D|1500|1.2.3||\n",
		"0||rffff:D|1500|100.||\n",
		MARKER,
		MARKER "x||page-faults|1|100.00||\n",
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(said); i++)
		if (report(said[i], "page-faults", FORMAT_CSV))
			fail_msg("'%s'", said[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_those_of_perf),
		cmocka_unit_test(all_user_is_for_all),
		cmocka_unit_test(the_guest_has_the_same_arguments_for_any_hardware_events),
		cmocka_unit_test(a_file_named_by_a_dash_is_standard_error),
		cmocka_unit_test(formats_are_perfs),
		cmocka_unit_test(what_was_not_counted_says_so),
		cmocka_unit_test(nothing_is_printed_of_what_perf_would_not_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
