/* SPDX-License-Identifier: MIT */
/*
 * Files in memory, whose descriptors stand for something: code memory, what processes share, the
 * descriptors of /dev/kvm and of its VMs.
 */
#ifndef BASE_MEMFILE_H
#define BASE_MEMFILE_H

#include <stddef.h>

/*
 * memfd_create() of a file that execve() refuses: the only kind that there is where vm.memfd_noexec
 * is 2. Its pages may be mapped for execution nevertheless. Linux before 6.3 has no such kind: it
 * gives an ordinary file. Returns -1 with errno set on failure.
 */
int memfile_create(const char *name, unsigned flags);
/* ftruncate(), but a size beyond RLIMIT_FSIZE is EFBIG and no signal, which would end the program.
 */
int memfile_resize(int fd, size_t size);
/* Of this size for ever: a process that maps it need not fear that another one cuts it. */
int memfile_fixed(const char *name, size_t size);
/* Maps a file, ours or one that was inherited, to read and write. NULL: errno; EINVAL: it is
 * shorter. */
void *memfile_map(int fd, size_t size);

#endif
