// SPDX-License-Identifier: MIT
/*
 * Files in memory: see memfile.h. Any thread.
 */
#include "base/memfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 8u
#endif

int memfile_create(const char *name, unsigned flags)
{
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	return fd < 0 && errno == EINVAL ? memfd_create(name, flags) : fd;
}

int memfile_resize(int fd, size_t size)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < size) {
		errno = EFBIG;
		return -1;
	}
	return ftruncate(fd, size);
}

int memfile_fixed(const char *name, size_t size)
{
	int fd = memfile_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 ||
	    (!memfile_resize(fd, size) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)))
		return fd;
	close(fd);
	return -1;
}

void *memfile_map(int fd, size_t size)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st))
		return NULL;
	if ((size_t)st.st_size < size) {
		errno = EINVAL;
		return NULL;
	}
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return map == MAP_FAILED ? NULL : map;
}
