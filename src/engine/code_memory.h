/* SPDX-License-Identifier: MIT */
/*
 * Memory for code that is made at run time: two views of the same pages, one to write and one to
 * execute. No page is ever both at one address. Beside the second there is memory for data, which
 * code reaches by 32-bit displacements. Any thread.
 */
#ifndef ENGINE_CODE_MEMORY_H
#define ENGINE_CODE_MEMORY_H

#include "base/types.h"

struct code_memory {
	u8 *rw, *rx;
	u8 *data;
	u64 size, data_size;
	bool is_anonymous; /* no file in memory may be executed here */
};

/* Zero pages, taken from the system when they are used. 0 or -errno; on failure all views are
 * NULL. */
int code_memory_map(struct code_memory *memory, u64 size, u64 data_size);
void code_memory_unmap(struct code_memory *memory);

#endif
