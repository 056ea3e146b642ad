/* SPDX-License-Identifier: MIT */
/*
 * Copying, filling and comparing bytes for code that runs while guest vector state is live in the
 * host's registers: REP MOVSB, REP STOSB and general registers, never libc. Source and destination
 * of a copy must not overlap.
 */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include "base/types.h"

typedef u64 bytes_word __attribute__((aligned(1), may_alias));

static inline void bytes_copy(void *dst, const void *src, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
}

/* n <= 16 */
static inline void bytes_copy_few(void *dst, const void *src, size_t n)
{
	u8 *to = dst;
	const u8 *from = src;

	if (n >= 8) {
		u64 last = *(const bytes_word *)(from + n - 8);

		*(bytes_word *)to = *(const bytes_word *)from;
		*(bytes_word *)(to + n - 8) = last;
		return;
	}
	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

/* Some hundred bytes at most: REP MOVSB would take longer to begin. */
static inline void bytes_copy_short(void *dst, const void *src, size_t n)
{
	u8 *to = dst;
	const u8 *from = src;

	if (n >= 8) {
		u64 last = *(const bytes_word *)(from + n - 8);

		for (size_t i = 0; i < n - 8; i += 8)
			*(bytes_word *)(to + i) = *(const bytes_word *)(from + i);
		*(bytes_word *)(to + n - 8) = last;
		return;
	}
	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

/* n is a multiple of 8, and so small that REP MOVSB would take longer to begin. */
static inline void bytes_copy_words(void *dst, const void *src, size_t n)
{
	for (size_t i = 0; i < n / 8; i++)
		((bytes_word *)dst)[i] = ((const bytes_word *)src)[i];
}

/* A struct: compilers make an assignment REP STOS, which takes longer. */
static inline void bytes_clear_words(void *dst, size_t n)
{
	for (size_t i = 0; i < n / 8; i++)
		WRITE_ONCE(((bytes_word *)dst)[i], 0);
}

static inline void bytes_fill(void *dst, u8 value, size_t n)
{
	__asm__ volatile("rep stosb" : "+D"(dst), "+c"(n) : "a"(value) : "memory");
}

static inline bool bytes_equal(const void *a, const void *b, size_t n)
{
	const u8 *x = a, *y = b;

	if (n >= 8) {
		const u8 *last = x + n - 8;

		for (; x < last; x += 8, y += 8)
			if (*(const bytes_word *)x != *(const bytes_word *)y)
				return false;
		return *(const bytes_word *)last == *(const bytes_word *)(y - (x - last));
	}
	for (; n; n--)
		if (*x++ != *y++)
			return false;
	return true;
}

#endif
