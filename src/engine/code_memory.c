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

static void unmap(u8 *from, const u8 *to)
{
	if (from && to > from)
		munmap(from, to - from);
}

/* Address space that begins at such a place; NULL: errno. */
static u8 *reserve(u64 size)
{
	u8 *p = mmap(NULL, size + ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		     -1, 0);
	u8 *place;

	if (p == MAP_FAILED)
		return NULL;
	place = p + -(uintptr_t)p % ALIGNMENT;
	unmap(p, place);
	unmap(place + size, p + size + ALIGNMENT);
	return place;
}

/* In address space that was reserved. */
static int map_at(u8 *place, u64 size, int prot, int flags, int fd)
{
	void *p = mmap(place, size, prot, MAP_FIXED | MAP_NORESERVE | flags, fd, 0);

	return p == MAP_FAILED ? -errno : 0;
}

/* The view to execute, with data after it. */
static int map_rx(struct code_memory *memory, int flags, int fd)
{
	int r;

	memory->rx = reserve(memory->size + memory->data_size);
	if (!memory->rx)
		return -errno;
	memory->data = memory->rx + memory->size;
	r = map_at(memory->rx, memory->size, PROT_READ | PROT_EXEC, MAP_SHARED | flags, fd);
	if (!r)
		r = map_at(memory->data, memory->data_size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1);
	return r;
}

static int map_rw(struct code_memory *memory, int fd)
{
	memory->rw = reserve(memory->size);
	if (!memory->rw)
		return -errno;
	return map_at(memory->rw, memory->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
}

static int map_memfd(struct code_memory *memory)
{
	int fd = memfile_create("vpmu-code", MFD_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = memfile_resize(fd, memory->size) ? -errno : map_rw(memory, fd);
	if (!r)
		r = map_rx(memory, 0, fd);
	close(fd);
	return r;
}

/*
 * The view to write is made of the one to execute and not the other way round: memory that was
 * writable may not become executable where W^X is enforced (PR_SET_MDWE, systemd's
 * MemoryDenyWriteExecute).
 */
static int map_anonymous(struct code_memory *memory)
{
	int r = map_rx(memory, MAP_ANONYMOUS, -1);
	void *copy;

	memory->is_anonymous = true;
	if (r)
		return r;
	/* 0: leaves the old mapping */
	copy = mremap(memory->rx, 0, memory->size, MREMAP_MAYMOVE);
	if (copy == MAP_FAILED)
		return -errno;
	memory->rw = copy;
	return mprotect(copy, memory->size, PROT_READ | PROT_WRITE) ? -errno : 0;
}

static int map_with(int (*way)(struct code_memory *), struct code_memory *memory, u64 size,
		    u64 data_size)
{
	int r;

	*memory = (struct code_memory){ .size = size, .data_size = data_size };
	r = way(memory);
	if (r)
		code_memory_unmap(memory);
	return r;
}

int code_memory_map(struct code_memory *memory, u64 size, u64 data_size)
{
	int r = map_with(map_memfd, memory, size, data_size);

	if (r == -EACCES || r == -EPERM || r == -EFBIG)
		r = map_with(map_anonymous, memory, size, data_size);
	return r;
}

void code_memory_unmap(struct code_memory *memory)
{
	unmap(memory->rw, memory->rw + memory->size);
	unmap(memory->rx, memory->rx + memory->size);
	unmap(memory->data, memory->data + memory->data_size);
	memory->rw = memory->rx = memory->data = NULL;
}
