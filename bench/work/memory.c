// SPDX-License-Identifier: MIT
/*
 * Memory: a chase of pointers through 64 MB in random order, streaming arithmetic on arrays with
 * SSE2, and the C library's memcpy and memset in sizes from a few bytes to a megabyte.
 */
#include <emmintrin.h>
#include <stdlib.h>
#include <string.h>

#include "bench/work/work.h"

#define CHASE_SIZE  (64u << 20)
#define CHASE_LINE  64
#define CHASE_LINES (CHASE_SIZE / CHASE_LINE)
#define CHASE_HOPS  100000
#define DOUBLES	    (256u << 10) /* of each of three arrays: 2 MB */
#define COPY_SIZE   (1u << 20)
#define COPY_SPACE  (COPY_SIZE + 4096)

static void *allocate(size_t size)
{
	void *p = aligned_alloc(4096, size);

	if (!p)
		die("memory");
	memset(p, 1, size);
	return p;
}

/* --- the chase: one cycle through all lines (Sattolo's shuffle) --- */

struct line {
	struct line *next;
	uint64_t number;
	char rest[CHASE_LINE - 16];
};

static struct line *lines;

void chase_setup(void)
{
	uint32_t *order = allocate(CHASE_LINES * sizeof(*order));
	uint64_t seed = 7;

	lines = allocate(CHASE_SIZE);
	for (uint32_t i = 0; i < CHASE_LINES; i++)
		order[i] = i;
	for (uint32_t i = CHASE_LINES - 1; i; i--) {
		uint32_t j = random_next(&seed) % i, kept = order[i];

		order[i] = order[j];
		order[j] = kept;
	}
	for (uint32_t i = 0; i < CHASE_LINES; i++) {
		lines[order[i]].next = &lines[order[(i + 1) % CHASE_LINES]];
		lines[order[i]].number = order[i];
	}
	free(order);
}

uint64_t chase_unit(void)
{
	const struct line *p = lines;
	uint64_t sum = 0;

	for (int i = 0; i < CHASE_HOPS; i++) {
		p = p->next;
		sum += p->number;
	}
	return sum;
}

/* --- streaming --- */

static double *a, *b, *c;
static char *from, *to;

void stream_setup(void)
{
	a = allocate(DOUBLES * sizeof(double));
	b = allocate(DOUBLES * sizeof(double));
	c = allocate(DOUBLES * sizeof(double));
	from = allocate(COPY_SPACE);
	to = allocate(COPY_SPACE);
	for (size_t i = 0; i < COPY_SPACE; i++)
		from[i] = (char)(i * 7 + (i >> 8));
}

static void scale(double *to, const double *from, double factor)
{
	__m128d f = _mm_set1_pd(factor);

	for (size_t i = 0; i < DOUBLES; i += 2)
		_mm_store_pd(to + i, _mm_mul_pd(f, _mm_load_pd(from + i)));
}

static void triad(double *to, const double *x, const double *y, double factor)
{
	__m128d f = _mm_set1_pd(factor);

	for (size_t i = 0; i < DOUBLES; i += 2)
		_mm_store_pd(to + i, _mm_add_pd(_mm_load_pd(x + i),
						_mm_mul_pd(f, _mm_load_pd(y + i))));
}

static double sum(const double *x)
{
	__m128d total = _mm_setzero_pd();

	for (size_t i = 0; i < DOUBLES; i += 2)
		total = _mm_add_pd(total, _mm_load_pd(x + i));
	return total[0] + total[1];
}

uint64_t stream_unit(void)
{
	double result = 0;

	for (size_t i = 0; i < DOUBLES; i++)
		a[i] = (double)(i & 1023);
	for (int i = 0; i < 4; i++) {
		scale(b, a, 1.5);
		triad(c, a, b, 0.25);
		triad(a, c, b, -0.5);
		result += sum(a);
	}
	return hash(HASH_START, &result, sizeof(result));
}

/* --- copying: all sizes that are powers of two, at odd places --- */

uint64_t memcpy_unit(void)
{
	uint64_t result = HASH_START;

	memset(to, 0, COPY_SPACE);
	for (size_t size = 16; size <= COPY_SIZE; size *= 2) {
		size_t times = size < 65536 ? 2 * COPY_SIZE / size : 16;

		if (times > 2048)
			times = 2048;
		for (size_t i = 0; i < times; i++) {
			memcpy(to + i % 64, from + i * 5 % 64, size);
			memset(to + size / 2, (int)i, size / 4);
			__asm__ volatile("" ::: "memory");
		}
		result = hash(result, to, 256);
	}
	return result;
}
