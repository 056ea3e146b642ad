// SPDX-License-Identifier: MIT
/*
 * Strings, numbers and arrays of the subset of TOML in toml.h, and the characters between
 * them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check/toml_priv.h"

/* --- characters --- */

bool toml_at(const struct parser *p, char c)
{
	return p->at < p->end && *p->at == c;
}

bool toml_take(struct parser *p, char c)
{
	bool found = toml_at(p, c);

	p->at += found;
	return found;
}

bool toml_begins(const struct parser *p, const char *word)
{
	size_t n = strlen(word);

	return (size_t)(p->end - p->at) >= n && !memcmp(p->at, word, n);
}

void toml_skip_blanks(struct parser *p)
{
	while (toml_at(p, ' ') || toml_at(p, '\t'))
		p->at++;
}

static bool is_control(char c)
{
	return ((u8)c < 0x20 && c != '\t') || c == 0x7f;
}

u32 toml_utf8_length(const char *text, size_t left)
{
	const u8 *s = (const u8 *)text;
	u32 n = s[0] < 0x80   ? 1
		: s[0] < 0xc2 ? 0
		: s[0] < 0xe0 ? 2
		: s[0] < 0xf0 ? 3
		: s[0] < 0xf5 ? 4
			      : 0;

	if (n > left)
		return 0;
	for (u32 i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

/* One character of a comment or string, which stays on its line. */
static bool check_character(struct parser *p, const char *where, u32 *length)
{
	*length = toml_utf8_length(p->at, p->end - p->at);
	if (!*length)
		return toml_wrong(p, "%s has a byte 0x%02x that is not UTF-8", where, (u8)*p->at);
	if (is_control(*p->at))
		return toml_wrong(p, "%s has a control character 0x%02x", where, (u8)*p->at);
	return true;
}

static bool is_line_end(const struct parser *p)
{
	return toml_at(p, '\n') || toml_begins(p, "\r\n");
}

static bool skip_comment(struct parser *p)
{
	u32 length;

	if (!toml_at(p, '#'))
		return true;
	while (p->at < p->end && !is_line_end(p)) {
		if (!check_character(p, "a comment", &length))
			return false;
		p->at += length;
	}
	return true;
}

bool toml_end_line(struct parser *p)
{
	toml_skip_blanks(p);
	if (!skip_comment(p))
		return false;
	if (p->at == p->end)
		return true;
	if (!is_line_end(p))
		return toml_wrong(p, "unexpected '%c' where the line should end", *p->at);
	p->at = (const char *)memchr(p->at, '\n', p->end - p->at) + 1;
	p->line++;
	return true;
}

bool toml_skip_lines(struct parser *p)
{
	for (;;) {
		toml_skip_blanks(p);
		if (!is_line_end(p) && !toml_at(p, '#'))
			return true;
		if (!toml_end_line(p))
			return false;
	}
}

/* --- strings --- */

static bool take_hex(struct parser *p, u32 digits, u32 *value)
{
	*value = 0;
	for (u32 i = 0; i < digits; i++, p->at++) {
		char c = p->at < p->end ? *p->at | 0x20 : 0;
		u32 digit = c >= '0' && c <= '9'   ? c - '0'
			    : c >= 'a' && c <= 'f' ? c - 'a' + 10
						   : 16;

		if (digit == 16)
			return toml_wrong(p, "\\%c needs %u hexadecimal digits",
					  digits == 4 ? 'u' : 'U', digits);
		*value = *value << 4 | digit;
	}
	if (!*value || *value > 0x10ffff || (*value >= 0xd800 && *value <= 0xdfff))
		return toml_wrong(p, "U+%04X is no character that a string may have", *value);
	return true;
}

static char *put_utf8(char *to, u32 c)
{
	u32 more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	static const u8 first[] = { 0, 0xc0, 0xe0, 0xf0 };

	*to++ = first[more] | c >> 6 * more;
	while (more--)
		*to++ = 0x80 | (c >> 6 * more & 0x3f);
	return to;
}

/* After a backslash. NULL: it is wrong. */
static char *take_escape(struct parser *p, char *to)
{
	static const char from[] = "btnfr\"\\", into[] = "\b\t\n\f\r\"\\";
	char c = p->at < p->end ? *p->at : 0;
	const char *simple = c ? strchr(from, c) : NULL;
	u32 value;

	if (simple) {
		p->at++;
		*to = into[simple - from];
		return to + 1;
	}
	if (c != 'u' && c != 'U') {
		toml_wrong(p, "unknown escape '\\%c' in a string", c ? c : ' ');
		return NULL;
	}
	p->at++;
	return take_hex(p, c == 'u' ? 4 : 8, &value) ? put_utf8(to, value) : NULL;
}

/* Where the string that begins at p->at ends, on its line. NULL: nowhere. */
static const char *find_quote(const struct parser *p, char quote)
{
	for (const char *at = p->at; at < p->end && *at != '\n'; at++) {
		if (*at == quote)
			return at;
		if (quote == '"' && *at == '\\')
			at++;
	}
	return NULL;
}

/* In quotes, which are at hand: "basic" or 'literal'. What an escape stands for is no longer than
 * it. */
bool toml_take_string(struct parser *p, const char **string)
{
	char quote = *p->at++;
	const char *close = find_quote(p, quote);
	char *text, *to;
	u32 length;

	if (close == p->at && close + 1 < p->end && close[1] == quote)
		return toml_wrong(p, "strings of several lines (%c%c%c) are not supported", quote,
				  quote, quote);
	if (!close)
		return toml_wrong(p, "a string has no closing %c", quote);
	*string = text = to = toml_allocate(p, close - p->at + 1);
	while (text && p->at < close) {
		if (quote == '"' && toml_take(p, '\\')) {
			to = take_escape(p, to);
			if (!to)
				return false;
			continue;
		}
		if (!check_character(p, "a string", &length))
			return false;
		memcpy(to, p->at, length);
		to += length;
		p->at += length;
	}
	return text && toml_take(p, quote);
}

/* --- numbers --- */

bool toml_is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-' || c == '+' || c == '.' || c == ':';
}

static bool is_digit(char c, bool hexadecimal)
{
	return (c >= '0' && c <= '9') ||
	       (hexadecimal && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')));
}

/* Takes underscores out, each of which must be between two digits. */
static bool strip_underscores(char *word, bool hexadecimal)
{
	char *to = word;

	for (char *from = word; *from; from++) {
		if (*from != '_')
			*to++ = *from;
		else if (from == word || !is_digit(from[-1], hexadecimal) ||
			 !is_digit(from[1], hexadecimal))
			return false;
	}
	*to = '\0';
	return true;
}

/* TOML's float: digits, then a fraction, an exponent or both. */
static bool is_float(const char *s)
{
	u32 digits = strspn(s, "0123456789"), fraction = 0, exponent;

	if (!digits || (digits > 1 && s[0] == '0'))
		return false;
	s += digits;
	if (*s == '.') {
		fraction = strspn(s + 1, "0123456789");
		if (!fraction)
			return false;
		s += 1 + fraction;
	}
	if (!*s)
		return fraction;
	if (*s != 'e' && *s != 'E')
		return false;
	s += 1 + (s[1] == '+' || s[1] == '-');
	exponent = strspn(s, "0123456789");
	return exponent && !s[exponent];
}

static bool take_number(struct parser *p, char *word, struct toml_value *value)
{
	const char *digits = word + (*word == '+' || *word == '-');
	bool hexadecimal = !strncmp(word, "0x", 2);
	char shown[64], *end;

	snprintf(shown, sizeof(shown), "%s", word);
	if (!strncmp(word, "0o", 2) || !strncmp(word, "0b", 2))
		return toml_wrong(p, "octal and binary numbers are not supported: '%s'", shown);
	if (digits[0] && strlen(digits) > 4 && digits[4] == '-' && is_digit(digits[3], false))
		return toml_wrong(p, "dates are not supported: '%s'", shown);
	if (!strip_underscores(word, hexadecimal))
		return toml_wrong(p, "'%s' is no value", shown);
	errno = 0;
	if (is_float(digits)) {
		value->type = TOML_FLOAT;
		value->number = strtod(word, NULL);
		return !errno || value->number == 0 || toml_wrong(p, "'%s' is too large", shown);
	}
	if (!is_digit(digits[0], false) || (digits[0] == '0' && digits[1] && !hexadecimal))
		return toml_wrong(p, "'%s' is no value", shown);
	value->type = TOML_INTEGER;
	value->integer = strtoll(word, &end, hexadecimal ? 16 : 10);
	if (*end || (hexadecimal && !word[2]))
		return toml_wrong(p, "'%s' is no value", shown);
	return !errno || toml_wrong(p, "'%s' is too large for an integer", shown);
}

/* A boolean or a number. */
static bool take_word(struct parser *p, struct toml_value *value)
{
	char word[64];
	size_t n = 0;

	while (p->at + n < p->end && toml_is_word(p->at[n]))
		n++;
	if (!n || n >= sizeof(word))
		return n ? toml_wrong(p, "a number is too long")
			 : toml_wrong(p, "there is no value");
	memcpy(word, p->at, n);
	word[n] = '\0';
	p->at += n;
	value->type = TOML_BOOLEAN;
	value->boolean = !strcmp(word, "true");
	return value->boolean || !strcmp(word, "false") || take_number(p, word, value);
}

/* --- values --- */

static bool take_array(struct parser *p, struct toml_value *array, u32 depth)
{
	p->at++;
	array->type = TOML_ARRAY;
	if (depth == TOML_DEPTH)
		return toml_wrong(p, "arrays are nested more than %u deep", TOML_DEPTH);
	for (;;) {
		struct toml_value item;

		if (!toml_skip_lines(p))
			return false;
		if (toml_take(p, ']'))
			return true;
		if (p->at == p->end)
			return toml_wrong(p, "an array has no closing ]");
		if (!toml_take_value(p, &item, depth + 1) || !toml_append(p, array, &item) ||
		    !toml_skip_lines(p))
			return false;
		if (!toml_take(p, ',') && !toml_at(p, ']') && p->at < p->end)
			return toml_wrong(p, "an array needs ',' or ']' after a value");
	}
}

bool toml_take_value(struct parser *p, struct toml_value *value, u32 depth)
{
	*value = (struct toml_value){ .line = p->line };
	if (toml_at(p, '"') || toml_at(p, '\'')) {
		value->type = TOML_STRING;
		return toml_take_string(p, &value->string);
	}
	if (toml_at(p, '['))
		return take_array(p, value, depth);
	if (toml_at(p, '{'))
		return toml_wrong(p, "inline tables ({...}) are not supported: use a [table]");
	return take_word(p, value);
}
