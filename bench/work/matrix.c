// SPDX-License-Identifier: MIT
/*
 * Single-precision matrix multiply by blocks of registers, once with SSE2 and once with AVX2. The
 * order of the additions is fixed, so the result has one value.
 */
#include <immintrin.h>

#include "bench/work/work.h"

#define SIDE  192
#define STRIP 4 /* rows at a time */

static float left[SIDE][SIDE] __attribute__((aligned(64)));
static float right[SIDE][SIDE] __attribute__((aligned(64)));
static float product[SIDE][SIDE] __attribute__((aligned(64)));

void matrix_setup(void)
{
	uint64_t seed = 3;

	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			left[i][j] = (float)(random_next(&seed) % 1000) / 64;
			right[i][j] = (float)(random_next(&seed) % 1000) / 128;
		}
}

uint64_t sse2mm_unit(void)
{
	for (int i = 0; i < SIDE; i += STRIP)
		for (int j = 0; j < SIDE; j += 8) {
			__m128 sum[STRIP][2] = { { _mm_setzero_ps() } };

			for (int k = 0; k < SIDE; k++) {
				__m128 low = _mm_load_ps(&right[k][j]);
				__m128 high = _mm_load_ps(&right[k][j + 4]);

				for (int row = 0; row < STRIP; row++) {
					__m128 x = _mm_set1_ps(left[i + row][k]);

					sum[row][0] = _mm_add_ps(sum[row][0], _mm_mul_ps(x, low));
					sum[row][1] = _mm_add_ps(sum[row][1], _mm_mul_ps(x, high));
				}
			}
			for (int row = 0; row < STRIP; row++) {
				_mm_store_ps(&product[i + row][j], sum[row][0]);
				_mm_store_ps(&product[i + row][j + 4], sum[row][1]);
			}
		}
	return hash(HASH_START, product[SIDE / 2], sizeof(product[0]));
}

__attribute__((target("avx2"))) uint64_t avx2mm_unit(void)
{
	for (int i = 0; i < SIDE; i += STRIP)
		for (int j = 0; j < SIDE; j += 16) {
			__m256 sum[STRIP][2] = { { _mm256_setzero_ps() } };

			for (int k = 0; k < SIDE; k++) {
				__m256 low = _mm256_load_ps(&right[k][j]);
				__m256 high = _mm256_load_ps(&right[k][j + 8]);

				for (int row = 0; row < STRIP; row++) {
					__m256 x = _mm256_set1_ps(left[i + row][k]);

					sum[row][0] = _mm256_add_ps(sum[row][0], _mm256_mul_ps(x, low));
					sum[row][1] = _mm256_add_ps(sum[row][1], _mm256_mul_ps(x, high));
				}
			}
			for (int row = 0; row < STRIP; row++) {
				_mm256_store_ps(&product[i + row][j], sum[row][0]);
				_mm256_store_ps(&product[i + row][j + 8], sum[row][1]);
			}
		}
	return hash(HASH_START, product[SIDE / 2], sizeof(product[0]));
}
