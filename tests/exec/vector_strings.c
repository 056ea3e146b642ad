// SPDX-License-Identifier: MIT
/*
 * glibc's string functions: which of their variants this processor is given, as the offset of each
 * in libc, and a digest of what they compute for all small lengths and alignments. One line for
 * each.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

static const char *const names[] = {
	"memchr",  "memcmp",  "memcpy", "memmove", "mempcpy", "memrchr",    "memset",  "rawmemchr",
	"stpcpy",  "strcat",  "strchr", "strcmp",  "strcpy",  "strlen",	    "strncmp", "strncpy",
	"strnlen", "strrchr", "strspn", "wcslen",  "wmemset", "strcasecmp",
};

static uint64_t digest = 14695981039346656037u;

static void add(uint64_t value)
{
	digest = (digest ^ value) * 1099511628211u;
}

static void add_bytes(const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		add((unsigned char)bytes[i]);
}

static char a[1024], b[1024];

static void add_place(const char *found)
{
	add(found ? found - a : -1);
}

static void fill(size_t at, size_t length)
{
	for (size_t i = 0; i < sizeof(a); i++)
		a[i] = b[i] = 1 + (i * 31 + length) % 250;
	a[at + length] = 0;
}

static void compute(size_t at, size_t length)
{
	const char *s = a + at;
	char *to = b + at / 2;

	fill(at, length);
	add(strlen(s));
	add(strnlen(s, length / 2));
	add_place(strchr(s, 77));
	add_place(strrchr(s, 77));
	add_place(memchr(s, 99, length));
	add_place(memrchr(s, 99, length));
	add(memcmp(s, to, length) > 0);
	add(strcmp(s, to) > 0);
	add(strncmp(s, to, length) > 0);
	add(strcasecmp(s, to) > 0);
	add(strspn(s, "abcdefgh"));
	memcpy(to, s, length);
	memmove(a + 5, a + at, length);
	memset(b + 700, (int)at, length);
	strcpy(b + 350, a + 5);
	add_bytes(a, sizeof(a));
	add_bytes(b, sizeof(b));
}

int main(void)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *function = dlsym(RTLD_DEFAULT, names[i]);
		Dl_info info;

		if (function && dladdr(function, &info))
			printf("%s at %#tx\n", names[i], (char *)function - (char *)info.dli_fbase);
	}
	for (size_t at = 0; at < 70; at += 3)
		for (size_t length = 0; length < 260; length += 1 + length / 40)
			compute(at, length);
	printf("digest %016jx\n", (uintmax_t)digest);
	return 0;
}
