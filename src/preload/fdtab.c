// SPDX-License-Identifier: MIT
/*
 * The table of fdtab.h, in two levels, the second made on demand and never freed. An entry is one
 * word: pins in bits 63..48, the pointer, and in bit 0 whether it was inherited by a fork().
 *
 * A look-up adds one pin and gets the pointer in the same atomic addition. A pin is a reference
 * that the entry lends: an entry has one for each pin that there can be, and the thread that
 * empties it gives back those that are not lent. An unpin that finds another file in the entry
 * gives its own back. Pins and lent references of the same file are interchangeable, so it does not
 * matter if a file has left its entry and come back in between.
 */
#include "preload/fdtab.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/must.h"

#define CHUNK_BITS 10
#define CHUNK_SIZE (1u << CHUNK_BITS)
#define NCHUNKS	   1024u
#define PIN	   BIT(48)
#define LENDABLE   BIT(16) /* references of an entry: more than it can have pins */
#define INHERITED  BIT(0)

struct chunk {
	u64 entry[CHUNK_SIZE];
};

static struct chunk *chunks[NCHUNKS];

static struct kvm_file *file_of(u64 entry)
{
	return (struct kvm_file *)(uintptr_t)(entry & (PIN - 1) & ~INHERITED);
}

static bool has_entry(int fd)
{
	return fd >= 0 && (u32)fd < NCHUNKS * CHUNK_SIZE;
}

static u64 *entry_of(int fd)
{
	struct chunk *chunk;

	if (!has_entry(fd))
		return NULL;
	chunk = __atomic_load_n(&chunks[(u32)fd >> CHUNK_BITS], __ATOMIC_ACQUIRE);
	return chunk ? &chunk->entry[(u32)fd % CHUNK_SIZE] : NULL;
}

static u64 *make_entry(int fd)
{
	struct chunk *fresh, *expected = NULL;

	if (entry_of(fd) || !has_entry(fd))
		return entry_of(fd);
	fresh = mmap(NULL, sizeof(*fresh), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	if (fresh == MAP_FAILED)
		return NULL;
	if (!__atomic_compare_exchange_n(&chunks[(u32)fd >> CHUNK_BITS], &expected, fresh, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		munmap(fresh, sizeof(*fresh));
	return entry_of(fd);
}

struct kvm_file *fdtab_pin(int fd)
{
	u64 *entry = entry_of(fd), word;

	if (!entry || !file_of(__atomic_load_n(entry, __ATOMIC_RELAXED)))
		return NULL;
	word = __atomic_fetch_add(entry, PIN, __ATOMIC_ACQUIRE);
	if (file_of(word))
		return file_of(word);
	fdtab_unpin(fd, NULL); /* closed just now: the pin is on an empty entry */
	return NULL;
}

void fdtab_unpin(int fd, struct kvm_file *file)
{
	u64 *entry = entry_of(fd), word = __atomic_load_n(entry, __ATOMIC_RELAXED);

	while (file_of(word) == file && word >= PIN)
		if (__atomic_compare_exchange_n(entry, &word, word - PIN, true, __ATOMIC_RELEASE,
						__ATOMIC_RELAXED))
			return;
	if (file)
		kvm_put(file, 1);
}

/* Nothing of an inherited file is given back: the memory is the parent's. */
static void end_entry(u64 old)
{
	u64 lent = old / PIN;

	if (file_of(old) && (old & INHERITED))
		kvm_get(file_of(old), lent);
	else if (file_of(old))
		kvm_put(file_of(old), LENDABLE - lent);
}

int fdtab_set(int fd, struct kvm_file *file)
{
	u64 *entry = file ? make_entry(fd) : entry_of(fd), old;

	must(!((u64)(uintptr_t)file & ~(PIN - 1)) && !((u64)(uintptr_t)file & INHERITED));
	if (!entry)
		return !file ? 0 : has_entry(fd) ? -ENOMEM : -EMFILE;
	if (file)
		kvm_get(file, LENDABLE - 1); /* and the caller's */
	old = __atomic_exchange_n(entry, (u64)(uintptr_t)file, __ATOMIC_ACQ_REL);
	end_entry(old);
	return 0;
}

/* Calls visit() with every fd from first to last for which there may be an entry. */
static void each_fd(unsigned first, unsigned last, void (*visit)(int fd))
{
	if (last >= NCHUNKS * CHUNK_SIZE)
		last = NCHUNKS * CHUNK_SIZE - 1;
	for (unsigned fd = first; fd <= last; fd++) {
		if (entry_of(fd))
			visit(fd);
		else
			fd |= CHUNK_SIZE - 1;
	}
}

static void drop(int fd)
{
	if (file_of(*entry_of(fd)))
		fdtab_set(fd, NULL);
}

void fdtab_drop_range(unsigned first, unsigned last)
{
	each_fd(first, last, drop);
}

void fdtab_each(bool (*visit)(struct kvm_file *file, void *arg), void *arg)
{
	bool more = true;

	for (unsigned fd = 0; more && fd < NCHUNKS * CHUNK_SIZE; fd++) {
		struct kvm_file *file;

		if (!entry_of(fd)) {
			fd |= CHUNK_SIZE - 1;
			continue;
		}
		file = fdtab_pin(fd);
		if (!file)
			continue;
		more = visit(file, arg);
		fdtab_unpin(fd, file);
	}
}

/* The threads that held pins do not exist in the child. */
static void inherit(int fd)
{
	u64 *entry = entry_of(fd);

	*entry = file_of(*entry) ? (*entry & (PIN - 1)) | INHERITED : 0;
}

void fdtab_forked(void)
{
	each_fd(0, NCHUNKS * CHUNK_SIZE - 1, inherit);
}
