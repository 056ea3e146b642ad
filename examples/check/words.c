// SPDX-License-Identifier: MIT
/*
 * A program to be checked: counts the different words on standard input, as often as it is told.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 4096

static const char *table[WORDS];
static char text[1 << 20];

static unsigned hash(const char *word)
{
	unsigned h = 5381;

	while (*word)
		h = h * 33 + (unsigned char)*word++;
	return h;
}

/* Whether the word is new. */
static int add(const char *word)
{
	unsigned i = hash(word) % WORDS;

	for (unsigned n = 0; n < WORDS; n++, i = (i + 1) % WORDS) {
		if (!table[i]) {
			table[i] = word;
			return 1;
		}
		if (!strcmp(table[i], word))
			return 0;
	}
	return 0;
}

static unsigned count(char *from)
{
	unsigned found = 0;

	memset(table, 0, sizeof(table));
	while (*from) {
		char *word = from;

		while (*from && !isspace((unsigned char)*from))
			from++;
		if (*from)
			*from++ = '\0';
		found += *word && add(word);
	}
	return found;
}

int main(int argc, char **argv)
{
	static char copy[sizeof(text)];
	unsigned turns = argc > 1 ? atoi(argv[1]) : 1, found = 0;
	size_t size = fread(text, 1, sizeof(text) - 1, stdin);

	for (unsigned i = 0; i < turns; i++) {
		memcpy(copy, text, size + 1);
		found = count(copy);
	}
	printf("%u words\n", found);
	return 0;
}
