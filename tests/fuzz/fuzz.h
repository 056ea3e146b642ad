/* SPDX-License-Identifier: MIT */
/*
 * What a fuzz target is. tests/fuzz/targets/NAME.c defines fuzz_set_up() and fuzz_one(). `make
 * fuzz` links it with libFuzzer, which makes inputs by coverage; `make test` links it with
 * driver/replay.c, which runs the inputs of tests/fuzz/corpus/NAME. One input must leave nothing
 * behind that the next one can see.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <string.h>

#include "base/types.h"

/* The bytes of an input that are not read yet. */
struct fuzz_input {
	const u8 *at, *end;
};

void fuzz_set_up(void); /* once, before the first input */
void fuzz_one(struct fuzz_input *in);

/* Runs one input; keeps a copy where `make fuzz` finds it if the process ends without a word. */
void fuzz_run(const u8 *data, size_t size);

/* A finding: prints what is wrong and aborts. */
_Noreturn void fuzz_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static inline size_t fuzz_left(const struct fuzz_input *in)
{
	return (size_t)(in->end - in->at);
}

/* The next bytes, at most `size`; their number. */
static inline size_t fuzz_take(struct fuzz_input *in, void *to, size_t size)
{
	size_t n = size < fuzz_left(in) ? size : fuzz_left(in);

	memcpy(to, in->at, n);
	in->at += n;
	return n;
}

/* A number of 1 to 8 bytes. Bytes after the end are 0. */
static inline u64 fuzz_number(struct fuzz_input *in, size_t size)
{
	u64 value = 0;

	fuzz_take(in, &value, size);
	return value;
}

static inline u8 fuzz_u8(struct fuzz_input *in)
{
	return (u8)fuzz_number(in, 1);
}

#endif
