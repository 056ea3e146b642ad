// SPDX-License-Identifier: MIT
/*
 * Two views of the same pages. A memfd that is mapped twice needs nothing but mmap(). Where the
 * kernel or a security module does not let a memfd be executed, or files may not be that large
 * (ulimit -f), shared anonymous memory is left, whose second view mremap() makes. Not on a hot
 * path: libc is allowed.
 */
#include "engine/code_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memfile.h"

/* Views should begin at a multiple of this: then huge pages can be mapped in both. */
#define ALIGNMENT (2u << 20)

/* Such a place that is free now; NULL: there is none. */
static u8 *aligned_place(size_t size)
{
	u8 *p = mmap(NULL, size + ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		     -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	munmap(p, size + ALIGNMENT);
	return p + -(uintptr_t)p % ALIGNMENT;
}

static void *map(size_t size, int prot, int flags, int fd)
{
	void *place = aligned_place(size), *p;

	if (!place)
		return NULL;
	/* A hint: if another thread was there first, it is elsewhere. */
	p = mmap(place, size, prot, MAP_SHARED | MAP_NORESERVE | flags, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

static int map_memfd(struct code_memory *memory, size_t size)
{
	int fd = memfile_create("vpmu-code", MFD_CLOEXEC), r = 0;

	if (fd < 0)
		return -errno;
	if (memfile_resize(fd, size) || !(memory->rw = map(size, PROT_READ | PROT_WRITE, 0, fd)) ||
	    !(memory->rx = map(size, PROT_READ | PROT_EXEC, 0, fd)))
		r = -errno;
	close(fd);
	return r;
}

/*
 * The view to write is made of the one to execute and not the other way round: memory that was
 * writable may not become executable where W^X is enforced (PR_SET_MDWE, systemd's
 * MemoryDenyWriteExecute).
 */
static int map_anonymous(struct code_memory *memory, size_t size)
{
	void *copy;

	memory->is_anonymous = true;
	memory->rx = map(size, PROT_READ | PROT_EXEC, MAP_ANONYMOUS, -1);
	if (!memory->rx)
		return -errno;
	copy = mremap(memory->rx, 0, size, MREMAP_MAYMOVE); /* 0: leaves the old mapping */
	if (copy == MAP_FAILED)
		return -errno;
	memory->rw = copy;
	return mprotect(copy, size, PROT_READ | PROT_WRITE) ? -errno : 0;
}

static int map_with(int (*way)(struct code_memory *, size_t), struct code_memory *memory,
		    size_t size)
{
	int r;

	*memory = (struct code_memory){ 0 };
	r = way(memory, size);
	if (r)
		code_memory_unmap(memory, size);
	return r;
}

int code_memory_map(struct code_memory *memory, size_t size)
{
	int r = map_with(map_memfd, memory, size);

	if (r == -EACCES || r == -EPERM || r == -EFBIG)
		r = map_with(map_anonymous, memory, size);
	return r;
}

void code_memory_unmap(struct code_memory *memory, size_t size)
{
	if (memory->rw)
		munmap(memory->rw, size);
	if (memory->rx)
		munmap(memory->rx, size);
	memory->rw = memory->rx = NULL;
}
