/* SPDX-License-Identifier: MIT */
/*
 * Copying, filling and comparing bytes for code that runs while guest vector state is live in the host's
 * registers: string instructions, never libc.
 */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include "base/types.h"

static inline void bytes_copy(void *dst, const void *src, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
}

static inline void bytes_fill(void *dst, u8 value, size_t n)
{
	__asm__ volatile("rep stosb" : "+D"(dst), "+c"(n) : "a"(value) : "memory");
}

typedef u64 bytes_word __attribute__((aligned(1), may_alias));

static inline bool bytes_equal(const void *a, const void *b, size_t n)
{
	const u8 *x = a, *y = b;

	for (; n >= 8; n -= 8, x += 8, y += 8)
		if (*(const bytes_word *)x != *(const bytes_word *)y)
			return false;
	for (; n; n--)
		if (*x++ != *y++)
			return false;
	return true;
}

#endif
