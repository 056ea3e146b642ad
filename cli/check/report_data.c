// SPDX-License-Identifier: MIT
/*
 * What a check found, for programs: JSON, and JUnit's XML (tests/exec/junit.xsd).
 */
#include <string.h>

#include "cli/check/check.h"

/* --- JSON --- */

/* What is no UTF-8, as in the name of a file, is U+FFFD, byte by byte. */
void report_put_string(FILE *out, const char *text)
{
	size_t left = strlen(text);

	fputc('"', out);
	while (left) {
		u32 length = toml_utf8_length(text, left);

		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		if (!length)
			fputs("\\ufffd", out);
		else if ((u8)*text < 0x20)
			fprintf(out, "\\u%04x", (u8)*text);
		else
			fwrite(text, 1, length, out);
		text += length ?: 1;
		left -= length ?: 1;
	}
	fputc('"', out);
}

static void json_rows(FILE *out, const struct check_comparison *c)
{
	fputs(", \"events\": [", out);
	for (u32 i = 0; i < c->rows; i++) {
		const struct check_row *row = &c->row[i];

		fputs(i ? ", {\"event\": " : "{\"event\": ", out);
		report_put_string(out, row->event);
		if (row->verdict != VERDICT_NEW)
			fprintf(out, ", \"before\": %llu", (unsigned long long)row->before);
		fprintf(out, ", \"after\": %llu, \"tolerance\": %g, \"verdict\": \"%s\"}",
			(unsigned long long)row->after, row->tolerance,
			verdict_names[row->verdict]);
	}
	fputc(']', out);
}

static void json_functions(FILE *out, const struct check_comparison *c)
{
	if (!c->has_functions)
		return;
	fputs(", \"functions\": [", out);
	for (u32 i = 0; i < c->differences; i++) {
		fputs(i ? ", {\"function\": " : "{\"function\": ", out);
		report_put_string(out, c->difference[i].name);
		fprintf(out, ", \"before\": %llu, \"after\": %llu}",
			(unsigned long long)c->difference[i].before,
			(unsigned long long)c->difference[i].after);
	}
	fputc(']', out);
}

static void json_case(FILE *out, const struct check_comparison *c)
{
	fputs("  {\"name\": ", out);
	report_put_string(out, c->of->benchmark->name);
	fputs(", \"model\": ", out);
	report_put_string(out, c->of->model);
	fprintf(out, ", \"verdict\": \"%s\"", verdict_names[c->verdict]);
	if (*c->reason) {
		fputs(", \"reason\": ", out);
		report_put_string(out, c->reason);
	}
	json_rows(out, c);
	json_functions(out, c);
	fputc('}', out);
}

void report_json(FILE *out, const struct check_report *report)
{
	fputs("{\"version\": 1, \"suite\": ", out);
	report_put_string(out, report->suite->path);
	fputs(", \"summary\": {", out);
	for (u32 i = 0; i < NVERDICTS; i++)
		fprintf(out, "%s\"%s\": %u", i ? ", " : "", verdict_names[i],
			report_count(report, i));
	fputs("}, \"benchmarks\": [\n", out);
	for (u32 i = 0; i < report->count; i++) {
		json_case(out, &report->comparison[i]);
		fputs(i + 1 < report->count ? ",\n" : "\n", out);
	}
	fputs("]}\n", out);
}

/* --- JUnit --- */

static void put_xml(FILE *out, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '&':
			fputs("&amp;", out);
			break;
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		default: /* XML 1.0 has no other control characters than these */
			fputc((u8)*text < 0x20 && !strchr("\t\n\r", *text) ? '?' : *text, out);
		}
}

static void junit_changes(FILE *out, const struct check_comparison *c)
{
	for (u32 i = 0; i < c->rows; i++) {
		const struct check_row *row = &c->row[i];

		if (row->verdict == VERDICT_SAME)
			continue;
		put_xml(out, row->event);
		fprintf(out, ": %llu, before %llu, %+lld (%+.4f %%), %s\n",
			(unsigned long long)row->after, (unsigned long long)row->before,
			(long long)row_change(row), row_percent(row), verdict_names[row->verdict]);
	}
	for (u32 i = 0; i < c->differences; i++) {
		const struct check_difference *d = &c->difference[i];

		put_xml(out, d->name);
		fprintf(out, ": %+lld\n", (long long)(d->after - d->before));
	}
}

static void junit_outcome(FILE *out, const struct check_comparison *c)
{
	switch (c->verdict) {
	case VERDICT_WORSE:
		fputs("<failure type=\"regression\" message=\"counts have grown\">", out);
		junit_changes(out, c);
		fputs("</failure>", out);
		break;
	case VERDICT_FAILED:
		fputs("<error type=\"failed\" message=\"", out);
		put_xml(out, c->reason);
		fputs("\"/>", out);
		break;
	case VERDICT_NEW:
	case VERDICT_OTHER:
		fputs("<skipped message=\"", out);
		put_xml(out,
			*c->reason ? c->reason : "the baseline does not have all of its events");
		fputs("\"/>", out);
		break;
	case VERDICT_BETTER:
	case VERDICT_TOLERATED:
		fputs("<system-out>", out);
		junit_changes(out, c);
		fputs("</system-out>", out);
		break;
	default:
		break;
	}
}

void report_junit(FILE *out, const struct check_report *report)
{
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"vpmu check\"",
	      out);
	fprintf(out, " tests=\"%u\" failures=\"%u\" errors=\"%u\" skipped=\"%u\">\n", report->count,
		report_count(report, VERDICT_WORSE), report_count(report, VERDICT_FAILED),
		report_count(report, VERDICT_NEW) + report_count(report, VERDICT_OTHER));
	for (u32 i = 0; i < report->count; i++) {
		const struct check_comparison *c = &report->comparison[i];

		fputs("<testcase classname=\"vpmu.check", out);
		fputs(*c->of->model ? "." : "", out);
		put_xml(out, c->of->model);
		fputs("\" name=\"", out);
		put_xml(out, c->of->benchmark->name);
		fputs("\">", out);
		junit_outcome(out, c);
		fputs("</testcase>\n", out);
	}
	fputs("</testsuite>\n</testsuites>\n", out);
}
