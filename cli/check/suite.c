// SPDX-License-Identifier: MIT
/*
 * What a suite says: benchmarks, and what holds for all of them. A key that is not known is an
 * error, so that none is misspelt without a word. An error of a benchmark is that benchmark's: the
 * others are run.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check/check.h"
#include "x86/models.h"

#define DEFAULT_TIMEOUT 300
#define MAX_TIMEOUT	1000000
#define MAX_CPUS	64
#define NAME_SIZE	100

/* Whose errors are noted where: those of a benchmark in itself, others in the suite. */
struct reader {
	struct check_suite *suite;
	const struct toml_table *table, *defaults; /* a benchmark's, and the suite's */
	char *error;
	size_t room;
};

__attribute__((format(printf, 3, 4))) static bool wrong(struct reader *r, u32 line, const char *fmt,
							...)
{
	va_list args;
	int n;

	if (*r->error)
		return false; /* the first one counts */
	n = snprintf(r->error, r->room, "%s:%u: ", r->suite->path, line);
	va_start(args, fmt);
	if (n > 0 && (size_t)n < r->room)
		vsnprintf(r->error + n, r->room - n, fmt, args);
	va_end(args);
	make_printable(r->error);
	return false;
}

static void *allocate(struct reader *r, size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		wrong(r, 0, "out of memory");
	return memory;
}

/* --- values --- */

/* A benchmark's own value of a key, or the suite's. */
static const struct toml_value *find(const struct reader *r, const char *key)
{
	const struct toml_value *value = toml_find(r->table, key);

	return value || !r->defaults ? value : toml_find(r->defaults, key);
}

static bool has_type(struct reader *r, const struct toml_value *value, const char *key,
		     enum toml_type type)
{
	return value->type == type || wrong(r, value->line, "'%s' wants %s, not %s", key,
					    toml_type_name(type), toml_type_name(value->type));
}

static bool take_string(struct reader *r, const char *key, const char **string)
{
	const struct toml_value *value = find(r, key);

	if (!value)
		return true;
	if (!has_type(r, value, key, TOML_STRING))
		return false;
	*string = value->string;
	return *value->string || wrong(r, value->line, "'%s' is empty", key);
}

/* A list of strings, which has some. NULL where there is no such key, or an error. */
static char **take_strings(struct reader *r, const char *key)
{
	const struct toml_value *value = find(r, key);
	char **list;

	if (!value || !has_type(r, value, key, TOML_ARRAY))
		return NULL;
	if (!value->array.count) {
		wrong(r, value->line, "'%s' is empty", key);
		return NULL;
	}
	list = allocate(r, value->array.count + 1ull, sizeof(*list));
	for (u32 i = 0; list && i < value->array.count; i++) {
		const struct toml_value *item = &value->array.item[i];

		if (!has_type(r, item, key, TOML_STRING)) {
			free(list);
			return NULL;
		}
		list[i] = (char *)item->string;
	}
	return list;
}

static bool take_path(struct reader *r, const char *key, const char **path)
{
	char absolute[2 * PATH_MAX];
	const char *name = *path;

	if (!take_string(r, key, &name) || !name)
		return !*r->error;
	snprintf(absolute, sizeof(absolute), "%s%s%s", *name == '/' ? "" : r->suite->folder,
		 *name == '/' ? "" : "/", name);
	if (strlen(absolute) >= PATH_MAX)
		return wrong(r, find(r, key)->line, "'%s' is too long", key);
	*path = strdup(absolute);
	return *path || wrong(r, 0, "out of memory");
}

static bool check_keys(struct reader *r, const struct toml_table *table, const char *const *known,
		       const char *where)
{
	for (u32 i = 0; i < table->count; i++) {
		const char *const *key = known;

		while (*key && strcmp(*key, table->member[i].key))
			key++;
		if (!*key)
			return wrong(r, table->member[i].value.line,
				     "there is no key '%.60s' in %s", table->member[i].key, where);
	}
	return true;
}

/* --- a benchmark --- */

static const char *const benchmark_keys[] = {
	"name",	       "command", "folder", "input",	 "memory",  "cpus", "features",
	"environment", "models",  "events", "tolerance", "timeout", NULL,
};

static bool take_percent(struct reader *r, const struct toml_value *value, double *percent)
{
	bool is_integer = value->type == TOML_INTEGER;

	if (!is_integer && value->type != TOML_FLOAT)
		return wrong(r, value->line, "a tolerance is a number of percent, not %s",
			     toml_type_name(value->type));
	*percent = is_integer ? (double)value->integer : value->number;
	return *percent >= 0 || wrong(r, value->line, "a tolerance is not negative");
}

/* One for all events, or a table of events. */
static bool take_tolerance(struct reader *r, struct check_benchmark *b)
{
	const struct toml_value *value = find(r, "tolerance");
	u32 used = 0;

	for (u32 i = 0; value && i < b->events; i++) {
		const struct toml_value *one = value->type == TOML_TABLE
						       ? toml_find(value->table, b->event[i].name)
						       : value;

		used += one != NULL;
		if (one && !take_percent(r, one, &b->event[i].tolerance))
			return false;
	}
	/* The suite's table is for all of its benchmarks. */
	if (!value || value->type != TOML_TABLE || value != toml_find(r->table, "tolerance") ||
	    used == value->table->count)
		return true;
	return wrong(r, value->line, "'tolerance' names an event that is not in 'events'");
}

/* Those of ASCII, and U+0080 to U+009F: some terminals take U+009B for ESC [. */
static bool has_controls(const char *text)
{
	for (; *text; text++)
		if ((u8)*text < 0x20 || *text == 0x7f ||
		    ((u8)text[0] == 0xc2 && (u8)text[1] < 0xa0))
			return true;
	return false;
}

/* A comma is part of an event between slashes, as in cpu/event=0xc0,umask=0/u: elsewhere perf takes
 * it for the end of an event, and has a count for each. */
static bool has_several(const char *event)
{
	bool inside = false;

	for (; *event; event++) {
		if (*event == '/')
			inside = !inside && strchr(event + 1, '/');
		if (*event == ',' && !inside)
			return true;
	}
	return false;
}

static bool take_events(struct reader *r, struct check_benchmark *b)
{
	static char *const usual[] = { "instructions:u", "branches:u", NULL };
	char **list = take_strings(r, "events");
	char *const *from = list ? list : usual;

	if (*r->error)
		return false;
	while (from[b->events])
		b->events++;
	b->event = allocate(r, b->events, sizeof(*b->event));
	for (u32 i = 0; b->event && i < b->events; i++) {
		b->event[i].name = from[i];
		for (u32 j = 0; j < i; j++)
			if (!strcmp(from[i], from[j]))
				wrong(r, find(r, "events")->line,
				      "the event '%.60s' is there twice", from[i]);
		/* perf has them in one list, and a line each in its answer. */
		if (!*from[i] || strpbrk(from[i], "| {}") || has_controls(from[i]) ||
		    *from[i] == '-')
			wrong(r, find(r, "events")->line, "'%.60s' is no event", from[i]);
		if (has_several(from[i]))
			wrong(r, find(r, "events")->line,
			      "'%.60s' is more than one event: each is a string of its own",
			      from[i]);
	}
	free(list);
	return !*r->error;
}

static bool take_models(struct reader *r, struct check_benchmark *b)
{
	static char *const usual[] = { DEFAULT_MODEL, NULL };

	b->models = take_strings(r, "models");
	if (*r->error)
		return false;
	if (!b->models) {
		b->models = allocate(r, 2, sizeof(*b->models));
		if (b->models)
			b->models[0] = usual[0];
		return b->models;
	}
	for (u32 i = 0; b->models[i]; i++) {
		if (!model_find(b->models[i]))
			return wrong(r, find(r, "models")->line, "there is no CPU model '%.60s'",
				     b->models[i]);
		for (u32 j = 0; j < i; j++)
			if (!strcmp(b->models[i], b->models[j]))
				return wrong(r, find(r, "models")->line,
					     "the model '%s' is there twice", b->models[i]);
	}
	return true;
}

static bool take_number(struct reader *r, const char *key, u32 most, u32 *number)
{
	const struct toml_value *value = find(r, key);

	if (!value)
		return true;
	if (!has_type(r, value, key, TOML_INTEGER))
		return false;
	if (value->integer < 1 || value->integer > most)
		return wrong(r, value->line, "'%s' is from 1 to %u", key, most);
	*number = value->integer;
	return true;
}

static bool take_features(struct reader *r, struct check_benchmark *b)
{
	const char *features = "baseline";

	if (!take_string(r, "features", &features))
		return false;
	b->host_features = !strcmp(features, "host");
	return b->host_features || !strcmp(features, "baseline") ||
	       wrong(r, find(r, "features")->line, "'features' is \"baseline\" or \"host\"");
}

static bool take_environment(struct reader *r, struct check_benchmark *b)
{
	const struct toml_value *value = find(r, "environment");
	const struct toml_table *table = value && value->type == TOML_TABLE ? value->table : NULL;

	if (value && !has_type(r, value, "environment", TOML_TABLE))
		return false;
	b->environment = allocate(r, (table ? table->count : 0) + 1ull, sizeof(char *));
	for (u32 i = 0; b->environment && table && i < table->count; i++) {
		const struct toml_member *member = &table->member[i];

		if (!has_type(r, &member->value, member->key, TOML_STRING))
			return false;
		if (!*member->key || strchr(member->key, '='))
			return wrong(r, member->value.line, "'%.60s' is no name of a variable",
				     member->key);
		if (asprintf(&b->environment[i], "%s=%s", member->key, member->value.string) < 0)
			return wrong(r, 0, "out of memory");
	}
	return b->environment;
}

static bool take_command(struct reader *r, u32 line, struct check_benchmark *b)
{
	if (!toml_find(r->table, "command"))
		return wrong(r, line, "the benchmark '%.60s' has no command", b->name);
	b->command = take_strings(r, "command");
	if (b->command && !*b->command[0])
		return wrong(r, line, "the command of '%.60s' is empty", b->name);
	return b->command;
}

static bool take_benchmark(struct reader *r, u32 line, struct check_benchmark *b)
{
	b->folder = ".";
	b->timeout = DEFAULT_TIMEOUT;
	b->cpus = 1;
	return check_keys(r, r->table, benchmark_keys, "a benchmark") && take_command(r, line, b) &&
	       take_path(r, "folder", &b->folder) && take_path(r, "input", &b->input) &&
	       take_string(r, "memory", &b->memory) && take_models(r, b) && take_events(r, b) &&
	       take_tolerance(r, b) && take_number(r, "timeout", MAX_TIMEOUT, &b->timeout) &&
	       take_number(r, "cpus", MAX_CPUS, &b->cpus) && take_features(r, b) &&
	       take_environment(r, b);
}

/* Without a name nothing can be said about a benchmark. */
static bool take_name(struct reader *r, u32 line, struct check_benchmark *b)
{
	const struct toml_value *value = toml_find(r->table, "name");

	if (!value)
		return wrong(r, line, "a benchmark has no name");
	if (!has_type(r, value, "name", TOML_STRING))
		return false;
	if (!*value->string || strlen(value->string) > NAME_SIZE || has_controls(value->string))
		return wrong(r, value->line,
			     "a name has one to %u bytes, and no control characters", NAME_SIZE);
	for (u32 i = 0; i < r->suite->benchmarks; i++)
		if (!strcmp(r->suite->benchmark[i].name, value->string))
			return wrong(r, value->line, "the benchmark '%s' is there twice",
				     value->string);
	b->name = value->string;
	return true;
}

/* --- the suite --- */

static const char *const suite_keys[] = {
	"baseline", "tested",	   "benchmark", "folder", "input",     "memory",  "cpus",
	"features", "environment", "models",	"events", "tolerance", "timeout", NULL,
};

static bool add_benchmark(struct check_suite *suite, const struct toml_value *item)
{
	struct check_benchmark *b = &suite->benchmark[suite->benchmarks];
	char error[sizeof(suite->error)] = "";
	struct reader of_suite = { suite, item->table, NULL, suite->error, sizeof(suite->error) };
	struct reader of_benchmark = { suite, item->table, &suite->toml.root, error,
				       sizeof(error) };

	if (!take_name(&of_suite, item->line, b))
		return false;
	suite->benchmarks++;
	if (take_benchmark(&of_benchmark, item->line, b))
		return true;
	b->error = strdup(error);
	return b->error || wrong(&of_suite, 0, "out of memory");
}

/* A benchmark with an error is a case, too, so that it is told of. */
static bool make_cases(struct reader *r)
{
	static const char *const none[] = { "", NULL };
	struct check_suite *suite = r->suite;

	for (u32 i = 0; i < suite->benchmarks; i++) {
		const struct check_benchmark *b = &suite->benchmark[i];
		const char *const *model = b->error ? none : (const char *const *)b->models;

		for (; *model; model++) {
			struct check_case *more =
				realloc(suite->one, (suite->cases + 1ull) * sizeof(*more));

			if (!more)
				return wrong(r, 0, "out of memory");
			suite->one = more;
			suite->one[suite->cases++] = (struct check_case){ b, *model };
		}
	}
	return true;
}

static bool take_benchmarks(struct reader *r)
{
	const struct toml_value *list = toml_find(r->table, "benchmark");
	struct check_suite *suite = r->suite;

	if (!list)
		return wrong(r, 1, "there is no [[benchmark]]");
	if (!list->of_tables)
		return wrong(r, list->line, "'benchmark' is not an array of tables: [[benchmark]]");
	suite->benchmark = allocate(r, list->array.count, sizeof(*suite->benchmark));
	for (u32 i = 0; suite->benchmark && i < list->array.count; i++)
		if (!add_benchmark(suite, &list->array.item[i]))
			return false;
	return suite->benchmark && make_cases(r);
}

/* Where it is, and what belongs to it unless it says otherwise. */
static bool place(struct check_suite *suite, const char *path)
{
	char copy[PATH_MAX], *slash;

	*suite = (struct check_suite){ 0 };
	snprintf(suite->path, sizeof(suite->path), "%s", path);
	snprintf(copy, sizeof(copy), "%s", path);
	slash = strrchr(copy, '/');
	if (slash)
		slash[slash == copy] = '\0';
	return realpath(slash ? copy : ".", suite->folder);
}

/* SUITE.toml has SUITE.baseline. */
static bool place_baseline(struct reader *r)
{
	struct check_suite *suite = r->suite;
	char name[PATH_MAX];
	const char *base = strrchr(suite->path, '/'), *path = name;
	int length;

	base = base ? base + 1 : suite->path;
	length = strlen(base);
	if (length > 5 && !strcmp(base + length - 5, ".toml"))
		length -= 5;
	snprintf(name, sizeof(name), "%.*s.baseline", length, base);
	if (!take_path(r, "baseline", &path))
		return false;
	snprintf(suite->baseline, sizeof(suite->baseline), "%s", path);
	free((char *)path);
	return true;
}

static bool place_tested(struct reader *r)
{
	char **list = take_strings(r, "tested");
	struct check_suite *suite = r->suite;

	if (*r->error)
		return false;
	if (!list) {
		list = allocate(r, 2, sizeof(*list));
		if (list)
			list[0] = ".";
	}
	suite->tested = list;
	for (u32 i = 0; list && list[i]; i++) {
		char path[2 * PATH_MAX], real[PATH_MAX];

		snprintf(path, sizeof(path), "%s%s%s", *list[i] == '/' ? "" : suite->folder,
			 *list[i] == '/' ? "" : "/", list[i]);
		list[i] = strdup(realpath(path, real) ? real : path);
		if (!list[i])
			return wrong(r, 0, "out of memory");
	}
	return list;
}

static bool understand(struct check_suite *suite)
{
	struct reader r = { suite, &suite->toml.root, NULL, suite->error, sizeof(suite->error) };

	return check_keys(&r, r.table, suite_keys, "a suite") && place_baseline(&r) &&
	       place_tested(&r) && take_benchmarks(&r);
}

static bool syntax_error(struct check_suite *suite)
{
	if (suite->toml.line)
		snprintf(suite->error, sizeof(suite->error), "%.80s:%u: %s", suite->path,
			 suite->toml.line, suite->toml.error);
	else
		snprintf(suite->error, sizeof(suite->error), "cannot read %.80s: %s", suite->path,
			 suite->toml.error);
	return false;
}

bool suite_read(struct check_suite *suite, const char *path)
{
	if (!place(suite, path)) {
		snprintf(suite->error, sizeof(suite->error), "cannot read %.80s: %s", path,
			 strerror(errno));
		return false;
	}
	return toml_read(&suite->toml, path) ? understand(suite) : syntax_error(suite);
}

bool suite_parse(struct check_suite *suite, const char *path, const char *text, size_t size)
{
	if (!place(suite, path))
		return false;
	return toml_parse(&suite->toml, text, size) ? understand(suite) : syntax_error(suite);
}

static void free_strings(char **list)
{
	for (u32 i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

void suite_free(struct check_suite *suite)
{
	for (u32 i = 0; suite->benchmark && i < suite->benchmarks; i++) {
		struct check_benchmark *b = &suite->benchmark[i];

		free((char *)b->error);
		free(b->command);
		free(b->models);
		free(b->event);
		free_strings(b->environment);
		if (b->folder && *b->folder == '/')
			free((char *)b->folder);
		free((char *)b->input);
	}
	free(suite->benchmark);
	free(suite->one);
	free_strings(suite->tested);
	toml_free(&suite->toml);
	*suite = (struct check_suite){ 0 };
}
