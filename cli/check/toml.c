// SPDX-License-Identifier: MIT
/*
 * Parsing the subset of TOML in toml.h, by recursive descent: tables and files. The document
 * owns all memory, in chunks that are freed with it.
 */
#include "cli/check/toml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/check/toml_priv.h"

/* --- errors --- */

bool toml_wrong(struct parser *p, const char *fmt, ...)
{
	va_list args;

	if (*p->toml->error)
		return false; /* the first one counts */
	p->toml->line = p->line;
	va_start(args, fmt);
	vsnprintf(p->toml->error, sizeof(p->toml->error), fmt, args);
	va_end(args);
	return false;
}

const char *toml_type_name(enum toml_type type)
{
	static const char *const names[] = { "a string",  "an integer", "a float",
					     "a boolean", "an array",	"a table" };

	return names[type];
}

/* --- memory --- */

struct chunk {
	struct chunk *next;
	max_align_t bytes[];
};

void *toml_allocate(struct parser *p, size_t size)
{
	struct chunk *chunk = calloc(1, sizeof(*chunk) + size);

	if (!chunk) {
		toml_wrong(p, "out of memory");
		return NULL;
	}
	chunk->next = p->toml->chunk;
	p->toml->chunk = chunk;
	return chunk->bytes;
}

void toml_free(struct toml *toml)
{
	struct chunk *chunk = toml->chunk;

	while (chunk) {
		struct chunk *next = chunk->next;

		free(chunk);
		chunk = next;
	}
	toml->chunk = NULL;
}

/* --- tables --- */

static u32 hash_key(const char *key)
{
	u32 hash = 2166136261u;

	while (*key)
		hash = (hash ^ (u8)*key++) * 16777619u;
	return hash ^ hash >> 15;
}

/* The slot of a key, or the free one that it would have. */
static u32 *slot_of(const struct toml_table *table, const char *key)
{
	u32 i = hash_key(key);

	for (;; i++) {
		u32 *slot = &table->slot[i & (table->slots - 1)];

		if (!*slot || !strcmp(table->member[*slot - 1].key, key))
			return slot;
	}
}

const struct toml_value *toml_find(const struct toml_table *table, const char *key)
{
	u32 *slot = table->slots ? slot_of(table, key) : NULL;

	return slot && *slot ? &table->member[*slot - 1].value : NULL;
}

/* At most half of the slots are used, so that a search ends. */
static bool grow_table(struct parser *p, struct toml_table *table)
{
	u32 room = table->slots ? table->slots : 8;
	struct toml_member *member = toml_allocate(p, room * sizeof(*member));
	u32 *slot = toml_allocate(p, 2ull * room * sizeof(*slot));

	if (!member || !slot)
		return false;
	for (u32 i = 0; i < table->count; i++)
		member[i] = table->member[i];
	table->member = member;
	table->slot = slot;
	table->slots = 2 * room;
	for (u32 i = 0; i < table->count; i++)
		*slot_of(table, member[i].key) = i + 1;
	return true;
}

/* A new member; the caller has looked for the key. NULL: no memory. */
static struct toml_value *add_member(struct parser *p, struct toml_table *table, const char *key)
{
	if (table->count == table->slots / 2 && !grow_table(p, table))
		return NULL;
	*slot_of(table, key) = table->count + 1;
	table->member[table->count] = (struct toml_member){ key, { .line = p->line } };
	return &table->member[table->count++].value;
}

bool toml_append(struct parser *p, struct toml_value *array, const struct toml_value *item)
{
	u32 n = array->array.count;

	if (!(n & (n - 1))) { /* full: a power of two, or none */
		struct toml_value *more = toml_allocate(p, (n ? 2 * n : 1) * sizeof(*more));

		if (!more)
			return false;
		for (u32 i = 0; i < n; i++)
			more[i] = array->array.item[i];
		array->array.item = more;
	}
	array->array.item[array->array.count++] = *item;
	return true;
}

/* --- keys and headers --- */

static bool is_bare(char c)
{
	return toml_is_word(c) && c != '+' && c != '.' && c != ':';
}

static bool take_key(struct parser *p, const char **key)
{
	char *bare;
	size_t n = 0;

	if (toml_at(p, '"') || toml_at(p, '\''))
		return toml_take_string(p, key);
	while (p->at + n < p->end && is_bare(p->at[n]))
		n++;
	if (!n)
		return toml_wrong(
			p,
			"there is no key; those with other characters than A-Z a-z 0-9 _ - are quoted");
	bare = toml_allocate(p, n + 1);
	if (!bare)
		return false;
	memcpy(bare, p->at, n);
	p->at += n;
	*key = bare;
	return true;
}

static bool take_pair(struct parser *p)
{
	struct toml_value value, *to;
	const char *key;

	if (!take_key(p, &key))
		return false;
	toml_skip_blanks(p);
	if (toml_at(p, '.'))
		return toml_wrong(p, "dotted keys are not supported: use a [table]");
	if (!toml_take(p, '='))
		return toml_wrong(p, "there is no '=' after the key '%.60s'", key);
	toml_skip_blanks(p);
	if (toml_find(p->table, key))
		return toml_wrong(p, "the key '%.60s' is there twice", key);
	if (!toml_take_value(p, &value, 0))
		return false;
	to = add_member(p, p->table, key);
	if (to)
		*to = value;
	return to && toml_end_line(p);
}

static struct toml_table *new_table(struct parser *p)
{
	return toml_allocate(p, sizeof(struct toml_table));
}

/* The table that a name of a header leads to from `in`; of an array of tables it is the last. */
static struct toml_table *descend(struct parser *p, struct toml_table *in, const char *key)
{
	struct toml_value *value = (struct toml_value *)toml_find(in, key);

	if (value && value->type == TOML_TABLE)
		return value->table;
	if (value && value->of_tables)
		return value->array.item[value->array.count - 1].table;
	if (value) {
		toml_wrong(p, "'%.60s' is %s already, and no table", key,
			   toml_type_name(value->type));
		return NULL;
	}
	value = add_member(p, in, key);
	if (!value)
		return NULL;
	value->type = TOML_TABLE;
	value->table = new_table(p);
	if (value->table)
		value->table->is_open = true;
	return value->table;
}

/* [name]: once, and not what [[name]] made. */
static bool open_table(struct parser *p, struct toml_table *in, const char *key)
{
	const struct toml_value *value = toml_find(in, key);

	if (value && (value->type != TOML_TABLE || !value->table->is_open))
		return toml_wrong(p, "'%.60s' is there twice", key);
	p->table = descend(p, in, key);
	if (p->table)
		p->table->is_open = false;
	return p->table;
}

/* [[name]]: one more. */
static bool open_item(struct parser *p, struct toml_table *in, const char *key)
{
	struct toml_value *value = (struct toml_value *)toml_find(in, key);
	struct toml_value item = { .type = TOML_TABLE, .line = p->line };

	if (value && !value->of_tables)
		return toml_wrong(p, "'%.60s' is %s already, and no array of tables", key,
				  toml_type_name(value->type));
	if (!value)
		value = add_member(p, in, key);
	if (!value)
		return false;
	value->type = TOML_ARRAY;
	value->of_tables = true;
	p->table = item.table = new_table(p);
	return p->table && toml_append(p, value, &item);
}

static bool take_header(struct parser *p)
{
	bool is_item = toml_begins(p, "[[");
	struct toml_table *in = &p->toml->root;
	const char *key;

	p->at += 1 + is_item;
	for (u32 depth = 0; depth < TOML_DEPTH; depth++) {
		toml_skip_blanks(p);
		if (!take_key(p, &key))
			return false;
		toml_skip_blanks(p);
		if (toml_take(p, '.')) {
			in = descend(p, in, key);
			if (!in)
				return false;
			continue;
		}
		if (!toml_begins(p, is_item ? "]]" : "]"))
			return toml_wrong(p, "a header has no closing %s", is_item ? "]]" : "]");
		p->at += 1 + is_item;
		return (is_item ? open_item(p, in, key) : open_table(p, in, key)) &&
		       toml_end_line(p);
	}
	return toml_wrong(p, "a header has more than %u names", TOML_DEPTH);
}

bool toml_parse(struct toml *toml, const char *text, size_t size)
{
	struct parser p = { .toml = toml, .at = text, .end = text + size, .line = 1 };

	*toml = (struct toml){ 0 };
	p.table = &toml->root;
	while (toml_skip_lines(&p) && p.at < p.end)
		if (!(toml_at(&p, '[') ? take_header(&p) : take_pair(&p)))
			return false;
	return !*toml->error;
}

/* --- files --- */

/* The bytes of a regular file; NULL: errno. */
static char *read_file(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;
	struct stat st;
	ssize_t n = 0;

	if (fd < 0)
		return NULL;
	errno = EINVAL;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode)) {
		errno = EFBIG;
		text = st.st_size <= TOML_SIZE ? malloc(st.st_size + 1) : NULL;
	}
	*size = 0;
	while (text && *size < (size_t)st.st_size &&
	       (n = read(fd, text + *size, st.st_size - *size)) > 0)
		*size += n;
	close(fd);
	if (text && n < 0) {
		free(text);
		text = NULL;
	}
	return text;
}

bool toml_read(struct toml *toml, const char *path)
{
	size_t size;
	char *text = read_file(path, &size);
	bool ok;

	*toml = (struct toml){ 0 };
	if (!text) {
		snprintf(toml->error, sizeof(toml->error), "%s",
			 errno == EINVAL ? "it is no regular file" : strerror(errno));
		return false;
	}
	ok = toml_parse(toml, text, size);
	free(text);
	return ok;
}

void toml_write_string(FILE *out, const char *string)
{
	static const char from[] = "\b\t\n\f\r\"\\", into[] = "btnfr\"\\";

	fputc('"', out);
	for (; *string; string++) {
		const char *escape = strchr(from, *string);

		if (escape)
			fprintf(out, "\\%c", into[escape - from]);
		else if (((u8)*string < 0x20 || *string == 0x7f))
			fprintf(out, "\\u%04X", (u8)*string);
		else
			fputc(*string, out);
	}
	fputc('"', out);
}
