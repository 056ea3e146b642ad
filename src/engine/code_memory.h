/* SPDX-License-Identifier: MIT */
/*
 * Memory for code that is made at run time: two views of the same pages, one to write and one to
 * execute. No page is ever both at one address. Any thread.
 */
#ifndef ENGINE_CODE_MEMORY_H
#define ENGINE_CODE_MEMORY_H

#include "base/types.h"

struct code_memory {
	u8 *rw, *rx;
	bool is_anonymous; /* no file in memory may be executed here */
};

/* Zero pages, taken from the system when they are used. 0 or -errno; on failure both views are
 * NULL. */
int code_memory_map(struct code_memory *memory, size_t size);
void code_memory_unmap(struct code_memory *memory, size_t size);

#endif
