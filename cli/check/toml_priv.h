/* SPDX-License-Identifier: MIT */
/*
 * The inside of the parser: toml_value.c has what a line is made of, toml.c what a
 * document is.
 */
#ifndef CLI_CHECK_TOML_PRIV_H
#define CLI_CHECK_TOML_PRIV_H

#include "cli/check/toml.h"

struct parser {
	struct toml *toml;
	const char *at, *end;
	u32 line;
	struct toml_table *table; /* that keys go to */
};

/* Notes what is wrong with the line, unless something was. Returns false. */
__attribute__((format(printf, 2, 3))) bool toml_wrong(struct parser *p, const char *fmt, ...);
/* Zeroed memory of the document's. NULL: there is none, and that is noted. */
void *toml_allocate(struct parser *p, size_t size);
bool toml_append(struct parser *p, struct toml_value *array, const struct toml_value *item);

bool toml_at(const struct parser *p, char c);
bool toml_take(struct parser *p, char c); /* if it is at hand */
bool toml_begins(const struct parser *p, const char *word);
bool toml_is_word(char c); /* a character of a number, boolean or bare key */
void toml_skip_blanks(struct parser *p);
/* The end of a line; nothing but a comment may come before it. */
bool toml_end_line(struct parser *p);
/* Blanks, comments and ends of lines. */
bool toml_skip_lines(struct parser *p);
bool toml_take_string(struct parser *p, const char **string);
bool toml_take_value(struct parser *p, struct toml_value *value, u32 depth);

#endif
