/* SPDX-License-Identifier: MIT */
/*
 * Eventfds of the program, which KVM reads and writes from within the kernel: without waiting,
 * whether the program opened them with EFD_NONBLOCK or not, and without changing what it did.
 */
#ifndef BASE_EVENT_FILE_H
#define BASE_EVENT_FILE_H

#include "base/types.h"

bool event_file_take(int fd);		     /* reads it; false: another reader was first */
bool event_file_blocks(int fd);		     /* EFD_NONBLOCK is not set */
void event_file_signal(int fd, bool blocks); /* adds one; one that is full stays full */

/* Are they one file, as after dup()? If the host cannot tell: `otherwise`. */
bool event_file_same(int a, int b, bool otherwise);

#endif
