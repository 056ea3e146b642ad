// SPDX-License-Identifier: MIT
/*
 * Folders of a deterministic guest (docs/clock.md): the host's order of names is that of a hash, or
 * of how they were made. The guest sees them sorted, each with its place as offset.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/share/share.h"

#define FIRST_ROOM (32u << 10)
#define MOST	   (256u << 20) /* bytes of all folders that are open: some millions of names */

void listing_free(struct share *share, struct listing *listing)
{
	share->listed -= listing->room;
	free(listing->bytes);
	free(listing->entry);
	*listing = (struct listing){ 0 };
}

static bool grow(struct share *share, struct listing *listing)
{
	u32 more = listing->room ?: 2 * FIRST_ROOM;
	u8 *grown =
		share->listed + more <= MOST ? realloc(listing->bytes, listing->room + more) : NULL;

	if (!grown)
		return false;
	listing->bytes = grown;
	listing->room += more;
	share->listed += more;
	return true;
}

/* All that the host has to say about the names, from the first one. 0 or an errno. */
static int read_all(struct share *share, struct listing *listing, int fd)
{
	long n = 1;

	if (lseek(fd, 0, SEEK_SET) < 0)
		return errno;
	while (n > 0) {
		if (listing->room - listing->size < FIRST_ROOM && !grow(share, listing))
			return ENOMEM;
		n = syscall(SYS_getdents64, fd, listing->bytes + listing->size,
			    listing->room - listing->size);
		if (n > 0)
			listing->size += n;
	}
	return n < 0 ? errno : 0;
}

/* Lets an entry sink to its place in a heap whose parents sort after their children by name. */
static void sink(struct host_entry **heap, u32 at, u32 n)
{
	struct host_entry *entry = heap[at];

	for (u32 child; (child = 2 * at + 1) < n; at = child) {
		if (child + 1 < n && strcmp(heap[child]->name, heap[child + 1]->name) < 0)
			child++;
		if (strcmp(entry->name, heap[child]->name) >= 0)
			break;
		heap[at] = heap[child];
	}
	heap[at] = entry;
}

/* qsort() asks the system how much memory there is, which this process may not. */
static void heap_sort(struct host_entry **entry, u32 n)
{
	for (u32 i = n / 2; i--;)
		sink(entry, i, n);
	while (n > 1) {
		struct host_entry *last = entry[0];

		entry[0] = entry[--n];
		entry[n] = last;
		sink(entry, 0, n);
	}
}

static int sort(struct listing *listing)
{
	struct host_entry *entry;
	u32 n = 0;

	for (u32 at = 0; at < listing->size; at += entry->size) {
		entry = (void *)(listing->bytes + at);
		n++;
	}
	listing->entry = malloc(n * sizeof(entry) + 1);
	if (!listing->entry)
		return ENOMEM;
	for (u32 at = 0; at < listing->size; at += entry->size) {
		entry = (void *)(listing->bytes + at);
		listing->entry[listing->count++] = entry;
	}
	heap_sort(listing->entry, n);
	for (u32 i = 0; i < n; i++)
		listing->entry[i]->offset = i + 1;
	return 0;
}

int listing_read(struct share *share, struct listing *listing, int fd)
{
	int error;

	listing_free(share, listing);
	error = read_all(share, listing, fd) ?: sort(listing);
	if (error)
		listing_free(share, listing);
	return error;
}
