/* SPDX-License-Identifier: MIT */
/*
 * Files in memory.
 */
#ifndef BASE_MEMFILE_H
#define BASE_MEMFILE_H

/*
 * memfd_create() of a file that execve() refuses: the only kind that there is where vm.memfd_noexec
 * is 2. Its pages may be mapped for execution nevertheless.
 */
int memfile_create(const char *name, unsigned flags);

#endif
