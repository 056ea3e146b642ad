// SPDX-License-Identifier: MIT
/*
 * Kept translations for tests: see kept_tests.h.
 */
#include "guest/kept_tests.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/must.h"
#include "exec/kept_store.h"
#include "vm/kept.h"

#define MEMORY_STORE (KEPT_DATA_AT + (64ull << 20))

static void *map_empty(u64 size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(p != MAP_FAILED);
	return p;
}

/* --- in memory --- */

static struct kept memory;
static u64 memory_end;

const struct kept *kept_in_memory(void)
{
	if (!memory.store) {
		must(kept_build(&memory));
		memory.store = map_empty(MEMORY_STORE);
		memory.store_size = MEMORY_STORE;
		memory.news = map_empty(KEPT_NEWS_SIZE);
		memory_end = KEPT_DATA_AT;
	}
	return &memory;
}

static void set_slot(u64 *index, const struct kept_entry *entry, u64 at)
{
	for (u32 i = 0; i < KEPT_PROBES; i++) {
		u64 *slot = &index[kept_nth_slot(entry->key, i)];

		if (*slot && ((*slot ^ entry->key[1]) & KEPT_TAG))
			continue;
		*slot = kept_slot(entry->key, at);
		return;
	}
}

u64 kept_in_memory_merge(u64 *end)
{
	u8 *store = (u8 *)memory.store;
	struct kept_news *news = memory.news;
	u64 at;

	if (memory_end + news->next > MEMORY_STORE) {
		must(!madvise(store, MEMORY_STORE, MADV_DONTNEED));
		memory_end = KEPT_DATA_AT;
	}
	memcpy(store + memory_end, news->data, news->next);
	for (at = 0; at < news->next;) {
		const struct kept_entry *entry = (const void *)(news->data + at);

		set_slot((u64 *)(store + KEPT_INDEX_AT), entry, memory_end + at);
		at += kept_length(entry->size);
	}
	memory_end += news->next;
	at = memory_end - news->next;
	news->next = 0;
	if (end)
		*end = memory_end;
	return at;
}

/* --- in a folder --- */

static struct kept folder;
static pid_t owner;

/* How many were recalled is for the one who runs the test twice. */
static void merge_folder(void)
{
	if (getpid() == owner)
		must(kept_store_merge(getenv("VPMU_TEST_KEPT"), KEPT_UNCONFINED, folder.news, 0,
				      KEPT_STORE_LIMIT));
}

const struct kept *kept_in_folder(void)
{
	const char *name = getenv("VPMU_TEST_KEPT");
	struct kept_header header;
	struct stat st;
	int fd;

	if (!name || folder.news)
		return name ? &folder : NULL;
	must(kept_build(&folder));
	folder.news = map_empty(KEPT_NEWS_SIZE);
	fd = kept_store_open(name, KEPT_UNCONFINED, &header);
	if (fd >= 0) {
		must(!fstat(fd, &st));
		folder.store = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
		must(folder.store != MAP_FAILED);
		folder.store_size = st.st_size;
		close(fd);
	}
	owner = getpid();
	atexit(merge_folder);
	return &folder;
}
