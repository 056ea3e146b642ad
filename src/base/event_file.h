/* SPDX-License-Identifier: MIT */
/*
 * Eventfds of the program, which KVM reads and writes from within the kernel: without waiting,
 * whether the program opened them with EFD_NONBLOCK or not, and without changing what it did. Linux
 * has no write that does not wait: another writer that fills an eventfd at the same moment can
 * still make event_file_signal() wait. Any thread; errno may change.
 */
#ifndef BASE_EVENT_FILE_H
#define BASE_EVENT_FILE_H

#include "base/types.h"

u64 event_file_take(int fd);	/* reads it; 0: another reader was first */
bool event_file_blocks(int fd); /* EFD_NONBLOCK is not set */
/* Adds one; one that is full stays full. blocks: what event_file_blocks() said of it. */
void event_file_signal(int fd, bool blocks);

/* Are they one file, as after dup()? If the host cannot tell: `otherwise`. */
bool event_file_same(int a, int b, bool otherwise);

#endif
