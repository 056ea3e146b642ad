/* SPDX-License-Identifier: MIT */
/*
 * Files in memory, whose descriptors stand for something: code memory, what processes share, the
 * descriptors of /dev/kvm and of its VMs.
 */
#ifndef BASE_MEMFILE_H
#define BASE_MEMFILE_H

/*
 * memfd_create() of a file that execve() refuses: the only kind that there is where vm.memfd_noexec
 * is 2. Its pages may be mapped for execution nevertheless. Linux before 6.3 has no such kind: it
 * gives an ordinary file. Returns -1 with errno set on failure.
 */
int memfile_create(const char *name, unsigned flags);

#endif
