/* SPDX-License-Identifier: MIT */
/*
 * A subset of TOML 1.0, for suites and baselines of `vpmu check`: comments, bare and quoted keys,
 * strings of one line (basic and literal), decimal and hexadecimal integers, floats, booleans,
 * arrays, tables and arrays of tables. What it lacks is refused by name: inline tables, dotted
 * keys, strings of several lines, dates, octal and binary numbers. Files are hostile: size, depth
 * and characters are checked.
 */
#ifndef CLI_CHECK_TOML_H
#define CLI_CHECK_TOML_H

#include <stdio.h>

#include "base/types.h"

#define TOML_SIZE  (128u << 20) /* bytes of a file */
#define TOML_DEPTH 16		/* of arrays in arrays, and of names in a header */

enum toml_type { TOML_STRING, TOML_INTEGER, TOML_FLOAT, TOML_BOOLEAN, TOML_ARRAY, TOML_TABLE };

struct toml_value {
	enum toml_type type;
	u32 line;
	bool of_tables; /* an array that [[name]] made: only that adds to it */
	union {
		const char *string; /* UTF-8 without NUL */
		s64 integer;
		double number;
		bool boolean;
		struct {
			struct toml_value *item;
			u32 count;
		} array;
		struct toml_table *table;
	};
};

struct toml_member {
	const char *key;
	struct toml_value value;
};

struct toml_table {
	struct toml_member *member; /* in the order of the file */
	u32 count;
	u32 *slot; /* a hash of the keys: index + 1 of a member; 0: free */
	u32 slots;
	bool is_open; /* so far no header has named it: one may */
};

struct toml {
	struct toml_table root;
	void *chunk; /* all of its memory */
	u32 line;    /* of the error */
	char error[160];
};

/* False: `error` says what is wrong in `line`. toml_free() in any case. */
bool toml_parse(struct toml *toml, const char *text, size_t size);
/* Reads a file; line is 0 if it could not be read. */
bool toml_read(struct toml *toml, const char *path);
void toml_free(struct toml *toml);

/* NULL: there is none. */
const struct toml_value *toml_find(const struct toml_table *table, const char *key);
/* What a value is, for messages: "a string". */
const char *toml_type_name(enum toml_type type);

/* The length of the UTF-8 sequence that a text begins with: RFC 3629. 0: it is none. */
u32 toml_utf8_length(const char *text, size_t left);

/* A string, or a key, in quotes as TOML has it. */
void toml_write_string(FILE *out, const char *string);

#endif
