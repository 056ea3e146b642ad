// SPDX-License-Identifier: MIT
/*
 * The loops of loops.h as the processor runs them. Prints a line "name MIPS" each.
 */
#include <stdio.h>
#include <stdlib.h>

#include "image.h"

int main(void)
{
	static void (*const run[NLOOPS])(u64, void *) = { loop_integer, loop_memory, loop_indirect,
							  loop_sse };
	void *data = aligned_alloc(4096, DATA_SIZE);

	if (!data)
		return 1;
	memset(data, 0, DATA_SIZE);
	for (u32 i = 0; i < NLOOPS; i++) {
		double start = seconds();

		run[i](loops[i].iterations, data);
		printf("%s %.1f\n", loops[i].name, mips(i, 1, seconds() - start));
	}
	return 0;
}
