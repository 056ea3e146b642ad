// SPDX-License-Identifier: MIT
/*
 * What --passes prints: the counts of the processor and of the guest's kernel, in the order in
 * which they were asked for, as a table or in perf stat's own formats (perf-stat(1), "CSV FORMAT",
 * "JSON FORMAT"). What the guest's perf has written is the guest's word, and checked.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/passes/passes.h"

#define DIGITS "0123456789"

/* --- what the guest's perf says: VALUE|UNIT|EVENT|TIME|PERCENT|… --- */

/* Digits, and more of them after a point. */
static bool is_number(const char *text)
{
	size_t whole = strspn(text, DIGITS), rest = 0;

	if (text[whole] == '.')
		rest = 1 + strspn(text + whole + 1, DIGITS);
	return whole && rest != 1 && !text[whole + rest];
}

/* perf writes the point of its user's language. */
static bool take_number(char *text)
{
	char *comma = strchr(text, ',');

	if (comma)
		*comma = '.';
	return is_number(text);
}

static bool is_word(const char *text)
{
	while (isalpha((u8)*text))
		text++;
	return !*text;
}

static bool read_line(char *line, struct pass_count *count)
{
	char *field[5];

	for (u32 i = 0; i < ARRAY_SIZE(field); i++)
		field[i] = strsep(&line, "|");
	if (!field[4] || !is_word(field[1]) || !take_number(field[3]) || !take_number(field[4]))
		return false;
	if (strcmp(field[0], "<not counted>") && strcmp(field[0], "<not supported>") &&
	    !take_number(field[0]))
		return false;
	*count = (struct pass_count){ field[0], field[1], field[3], field[4] };
	return true;
}

/* The next event: between them are blank lines, a comment, metrics. False: there is none. */
static bool next_count(char **said, struct pass_count *count)
{
	char *line;

	while ((line = strsep(said, "\n")))
		if (*line && *line != '#' && *line != '|')
			return read_line(line, count);
	return false;
}

/* --- the processor's --- */

static u64 value_of(const struct pass_event *event, const struct hwpmu_shadow *shadow)
{
	u64 sum = 0;

	if (event->event.class == RETIRE_NOTHING)
		return 0;
	for (enum retire_privilege p = RETIRE_OS; p <= RETIRE_USR; p++)
		if (event->privileges & BIT(p))
			sum += retire_count(&shadow->counts, event->event.class, p);
	return sum / event->event.unit;
}

/* --- formats --- */

static void put_table(FILE *out, const char *name, const struct pass_count *count)
{
	fprintf(out, "  %20s %-4s  %s\n", count->value, count->unit, name);
}

static void put_csv(FILE *out, const char *name, const struct pass_count *count, const char *s)
{
	fprintf(out, "%s%s%s%s%s%s%s%s%s%s%s\n", count->value, s, count->unit, s, name, s,
		count->time, s, count->percent, s, s);
}

static void put_json_text(FILE *out, const char *text)
{
	for (; *text; text++)
		fprintf(out, strchr("\"\\", *text) ? "\\%c" : "%c", *text);
}

/* perf has six digits after the point. */
static void put_json_value(FILE *out, const char *value)
{
	int whole = strcspn(value, ".");
	const char *rest = value + whole + !!value[whole];

	if (!is_number(value)) {
		fputs(value, out);
		return;
	}
	fprintf(out, "%.*s.%.6s", whole, value, rest);
	for (size_t n = strlen(rest); n < 6; n++)
		putc('0', out);
}

static void put_json(FILE *out, const char *name, const struct pass_count *count)
{
	fputs("{\"counter-value\" : \"", out);
	put_json_value(out, count->value);
	fprintf(out, "\", \"unit\" : \"%s\", \"event\" : \"", count->unit);
	put_json_text(out, name);
	fprintf(out, "\", \"event-runtime\" : %s, \"pcnt-running\" : %s}\n", count->time,
		count->percent);
}

static void put(FILE *out, const struct pass_line *line, const char *name,
		const struct pass_count *count)
{
	if (line->format == FORMAT_JSON)
		put_json(out, name, count);
	else if (line->format == FORMAT_CSV)
		put_csv(out, name, count, line->separator);
	else
		put_table(out, name, count);
}

static void put_title(FILE *out, const struct pass_line *line)
{
	fputs("\n  counts of '", out);
	for (char **word = line->command; *word; word++)
		fprintf(out, "%s%s", word == line->command ? "" : " ", *word);
	fputs("', all events at once\n\n", out);
}

/* The marker's time is that of all: it is enabled while they are counted. */
static void put_hardware(FILE *out, const struct pass_line *line, const struct pass_event *event,
			 const struct pass_count *marker, u64 value)
{
	struct pass_count count = *marker;
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	if (is_number(marker->value))
		count.value = text;
	put(out, line, event->name, &count);
}

static void put_all(FILE *out, const struct pass_line *line, const struct hwpmu_shadow *shadow,
		    const struct pass_count *counts)
{
	const struct pass_count *marker = counts++;

	if (line->format == FORMAT_TABLE)
		put_title(out, line);
	for (u32 i = 0; i < line->events.count; i++) {
		const struct pass_event *event = &line->events.item[i];

		if (event->is_software)
			put(out, line, event->name, counts++);
		else
			put_hardware(out, line, event, marker, value_of(event, shadow));
	}
	if (line->format == FORMAT_TABLE)
		fprintf(out, "\n  %20.9f s of the guest's time\n\n", atof(marker->time) / 1e9);
}

/* The marker's, then those of software, in their order. NULL: they are not all there. */
static struct pass_count *read_counts(const struct pass_events *events, char *said)
{
	struct pass_count *counts = calloc(events->count + 1ull, sizeof(*counts));
	bool ok = counts && next_count(&said, &counts[0]);
	u32 n = 1;

	for (u32 i = 0; ok && i < events->count; i++)
		if (events->item[i].is_software)
			ok = next_count(&said, &counts[n++]);
	if (ok)
		return counts;
	free(counts);
	return NULL;
}

bool pass_report(FILE *out, const struct pass_line *line, const struct hwpmu_shadow *shadow,
		 char *said, bool *is_partial)
{
	struct pass_count *counts = read_counts(&line->events, said);

	if (!counts)
		return false;
	*is_partial = is_number(counts->value) && strcmp(counts->percent, "100.00");
	put_all(out, line, shadow, counts);
	free(counts);
	return true;
}
