// SPDX-License-Identifier: MIT
/*
 * What clang calls to copy and clear structs in code that runs while guest vector state is live:
 * the Makefile leads its calls of memcpy() and memset() here. libc's use vector registers.
 */
#include "base/bytes.h"

void *bytes_memcpy(void *dst, const void *src, size_t n);
void *bytes_memset(void *dst, int value, size_t n);

void *bytes_memcpy(void *dst, const void *src, size_t n)
{
	bytes_copy(dst, src, n);
	return dst;
}

void *bytes_memset(void *dst, int value, size_t n)
{
	bytes_fill(dst, value, n);
	return dst;
}
