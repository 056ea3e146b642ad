// SPDX-License-Identifier: MIT
/*
 * Something to optimize by what branches do: a sort with a branch that is never taken and one that
 * is taken half the time. For tests/linux/feedback.
 */
#include <stdio.h>
#include <stdlib.h>

#define MOST 30000

static int numbers[MOST];

__attribute__((noinline)) static void never(int i)
{
	printf("%d\n", i);
}

__attribute__((noinline)) static void sort(int *a, int n)
{
	for (int i = 0; i < n; i++)
		for (int j = 1; j < n; j++) {
			if (a[j] < -1)
				never(j);
			if (a[j - 1] > a[j]) {
				int swap = a[j - 1];

				a[j - 1] = a[j];
				a[j] = swap;
			}
		}
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 2000;
	unsigned random = 1;

	for (int i = 0; i < n; i++) {
		random = random * 1103515245 + 12345;
		numbers[i] = random >> 16 & 0x7fff;
	}
	sort(numbers, n);
	for (int i = 1; i < n; i++)
		if (numbers[i - 1] > numbers[i])
			return 1;
	return 0;
}
