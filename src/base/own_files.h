/* SPDX-License-Identifier: MIT */
/*
 * Which descriptors are ours. The program may close any of them, in a loop over all numbers or by
 * closefrom(), and get the number for a file of its own. An epoll set knows: it finds a file by its
 * number and the file itself. Nothing waits on it. Its user serializes changes; own_files_has() any
 * thread. errno may change.
 */
#ifndef BASE_OWN_FILES_H
#define BASE_OWN_FILES_H

#include "base/types.h"

struct own_files {
	int epoll; /* while there are any */
	u32 n;
};

/* From now on fd is ours, of a kind that epoll takes. 0 or -errno. */
int own_files_add(struct own_files *own, int fd);
bool own_files_has(const struct own_files *own, int fd);
/* Closes what was added, if the number still stands for it. */
void own_files_close(struct own_files *own, int fd);

#endif
