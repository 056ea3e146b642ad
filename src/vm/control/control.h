/* SPDX-License-Identifier: MIT */
/*
 * What can be asked of a VM and changed about it through the control socket, as lines of text
 * (docs/control.md). The socket itself is in preload/.
 */
#ifndef VM_CONTROL_CONTROL_H
#define VM_CONTROL_CONTROL_H

#include <stddef.h>

#include "base/types.h"

struct vm;

/*
 * Does what a line of words says, for a session (not 0), and writes lines of answer to `out`: never
 * more than size bytes, the last of them 0. Their length. Any thread.
 */
size_t control_do(struct vm *vm, u32 session, char *line, char *out, size_t size);

/* Ends everything that belongs to the session. */
void control_end(struct vm *vm, u32 session);

#endif
