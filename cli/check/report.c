// SPDX-License-Identifier: MIT
/*
 * What a check found, for people: text and Markdown. Both have a line for every event whose count
 * has changed, and below it the functions. What is the same is not mentioned.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/check/check.h"

#define FEW_FUNCTIONS 5

const char *const verdict_names[NVERDICTS] = {
	[VERDICT_SAME] = "same",     [VERDICT_TOLERATED] = "tolerated", [VERDICT_BETTER] = "better",
	[VERDICT_NEW] = "new",	     [VERDICT_OTHER] = "other",		[VERDICT_WORSE] = "worse",
	[VERDICT_FAILED] = "failed",
};

u32 report_count(const struct check_report *report, enum check_verdict verdict)
{
	u32 n = 0;

	for (u32 i = 0; i < report->count; i++)
		n += report->comparison[i].verdict == verdict;
	return n;
}

/* --- numbers and names --- */

#define NUMBER_SIZE 40

/* 1234567 as 1,234,567. */
static const char *grouped(char text[NUMBER_SIZE], u64 number, const char *sign)
{
	char digits[NUMBER_SIZE];
	int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
	char *to = text + snprintf(text, NUMBER_SIZE, "%s", sign);

	for (int i = 0; i < n; i++) {
		if (i && (n - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
	return text;
}

static const char *change(char text[NUMBER_SIZE], u64 before, u64 after)
{
	return after >= before ? grouped(text, after - before, "+")
			       : grouped(text, before - after, "-");
}

static void case_name(char *text, size_t room, const struct check_case *of)
{
	snprintf(text, room, "%s%s%s", of->benchmark->name, *of->model ? "@" : "", of->model);
}

static bool is_shown(const struct check_row *row)
{
	return row->verdict != VERDICT_SAME && row->verdict != VERDICT_NEW;
}

static bool has_functions_to_show(const struct check_report *report,
				  const struct check_comparison *c)
{
	return c->has_functions && (report->every_function || compare_is_changed(c));
}

static u32 functions_shown(const struct check_report *report, const struct check_comparison *c)
{
	return report->every_function || c->differences <= FEW_FUNCTIONS ? c->differences
									 : FEW_FUNCTIONS;
}

/* --- text --- */

struct widths {
	int name, event;
};

static struct widths measure(const struct check_report *report)
{
	struct widths widths = { 0 };
	char name[256];

	for (u32 i = 0; i < report->count; i++) {
		const struct check_comparison *c = &report->comparison[i];

		case_name(name, sizeof(name), c->of);
		if (c->verdict != VERDICT_SAME && (int)strlen(name) > widths.name)
			widths.name = strlen(name);
		for (u32 j = 0; j < c->rows; j++)
			if (is_shown(&c->row[j]) && (int)strlen(c->row[j].event) > widths.event)
				widths.event = strlen(c->row[j].event);
	}
	return widths;
}

static void text_row(FILE *out, const struct widths *widths, const char *name,
		     const struct check_comparison *c, const struct check_row *row)
{
	char before[NUMBER_SIZE], after[NUMBER_SIZE], by[NUMBER_SIZE];
	enum check_verdict verdict = c->verdict == VERDICT_OTHER ? VERDICT_OTHER : row->verdict;

	fprintf(out, "%-*s  %-*s %16s -> %-16s %10s %+10.4f %%  %s\n", widths->name, name,
		widths->event, row->event, grouped(before, row->before, ""),
		grouped(after, row->after, ""), change(by, row->before, row->after),
		row_percent(row), verdict_names[verdict]);
}

/* As one word of a command that can be copied to a shell. */
static void put_quoted(FILE *out, const char *text)
{
	fputc('\'', out);
	for (; *text; text++)
		if (*text == '\'')
			fputs("'\\''", out);
		else
			fputc(*text, out);
	fputc('\'', out);
}

static void text_functions(FILE *out, const struct check_report *report,
			   const struct check_comparison *c)
{
	u32 shown = functions_shown(report, c);
	char by[NUMBER_SIZE];

	if (!has_functions_to_show(report, c))
		return;
	for (u32 i = 0; i < shown; i++)
		fprintf(out, "%16s  %s\n",
			change(by, c->difference[i].before, c->difference[i].after),
			c->difference[i].name);
	if (shown < c->differences) {
		fprintf(out, "%16s  %u more: vpmu check --explain ", "…", c->differences - shown);
		put_quoted(out, c->of->benchmark->name);
		fputc('\n', out);
	}
	if (!c->differences)
		fprintf(out, "%16s  no function of user code has changed\n", "");
}

static void text_case(FILE *out, const struct check_report *report, const struct widths *widths,
		      const struct check_comparison *c)
{
	char name[256];

	case_name(name, sizeof(name), c->of);
	for (u32 i = 0; i < c->rows && c->verdict != VERDICT_FAILED; i++)
		if (is_shown(&c->row[i]))
			text_row(out, widths, name, c, &c->row[i]);
	if (*c->reason)
		fprintf(out, "%-*s  %s: %s\n", widths->name, name, verdict_names[c->verdict],
			c->reason);
	if (report->every_function && !*c->reason && !compare_is_changed(c))
		fprintf(out, "%s: no count has changed\n", name);
	text_functions(out, report, c);
}

static void summary(FILE *out, const struct check_report *report)
{
	fprintf(out, "%u benchmark%s", report->count, report->count == 1 ? "" : "s");
	for (u32 i = 0; i < NVERDICTS; i++)
		if (report_count(report, i))
			fprintf(out, ", %u %s", report_count(report, i), verdict_names[i]);
	fputc('\n', out);
}

void report_text(FILE *out, const struct check_report *report)
{
	struct widths widths = measure(report);

	for (u32 i = 0; i < report->count; i++)
		text_case(out, report, &widths, &report->comparison[i]);
	summary(out, report);
}

/* --- Markdown --- */

/* A cell of a table, in which | and line ends have a meaning, and so have * _ ` < [ in all text. */
static void put_cell(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (strchr("|\\*_`<>[]&#~", *text))
			fputc('\\', out);
		fputc((u8)*text < 0x20 ? ' ' : *text, out);
	}
}

static void markdown_row(FILE *out, const struct check_comparison *c, const struct check_row *row)
{
	char before[NUMBER_SIZE], after[NUMBER_SIZE], by[NUMBER_SIZE], name[256];
	enum check_verdict verdict = c->verdict == VERDICT_OTHER ? VERDICT_OTHER : row->verdict;

	case_name(name, sizeof(name), c->of);
	fputs("| ", out);
	put_cell(out, name);
	fputs(" | ", out);
	put_cell(out, row->event);
	fprintf(out, " | %s | %s | %s | %+.4f %% | %s |\n", grouped(before, row->before, ""),
		grouped(after, row->after, ""), change(by, row->before, row->after),
		row_percent(row), verdict_names[verdict]);
}

static void markdown_table(FILE *out, const struct check_report *report)
{
	bool head = false;

	for (u32 i = 0; i < report->count; i++) {
		const struct check_comparison *c = &report->comparison[i];

		for (u32 j = 0; j < c->rows && c->verdict != VERDICT_FAILED; j++) {
			if (!is_shown(&c->row[j]))
				continue;
			if (!head)
				fputs("| benchmark | event | before | after | change | | verdict |\n"
				      "|---|---|---:|---:|---:|---:|---|\n",
				      out);
			head = true;
			markdown_row(out, c, &c->row[j]);
		}
	}
	if (head)
		fputc('\n', out);
}

static void markdown_functions(FILE *out, const struct check_report *report,
			       const struct check_comparison *c)
{
	u32 shown = functions_shown(report, c);
	char name[256], by[NUMBER_SIZE];

	if (!has_functions_to_show(report, c) || !c->differences)
		return;
	case_name(name, sizeof(name), c->of);
	fputs("Functions of ", out);
	put_cell(out, name);
	fputs(":\n\n", out);
	for (u32 i = 0; i < shown; i++) {
		fprintf(out, "- %s ", change(by, c->difference[i].before, c->difference[i].after));
		put_cell(out, c->difference[i].name);
		fputc('\n', out);
	}
	if (shown < c->differences)
		fprintf(out, "- %u more\n", c->differences - shown);
	fputc('\n', out);
}

void report_markdown(FILE *out, const struct check_report *report)
{
	char name[256];

	fputs("### vpmu check\n\n", out);
	markdown_table(out, report);
	for (u32 i = 0; i < report->count; i++) {
		const struct check_comparison *c = &report->comparison[i];

		if (*c->reason) {
			case_name(name, sizeof(name), c->of);
			fputs("- ", out);
			put_cell(out, name);
			fprintf(out, ": %s: ", verdict_names[c->verdict]);
			put_cell(out, c->reason);
			fputs("\n\n", out);
		}
		markdown_functions(out, report, c);
	}
	summary(out, report);
}
