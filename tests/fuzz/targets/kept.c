// SPDX-License-Identifier: MIT
/*
 * Kept translations: a store that was damaged anywhere, and news that a process wrote which may
 * have been killed or taken over. What is found is what was added; a merge believes no size or
 * position, and leaves a store that can be opened.
 *
 * Input: a number of patches in a byte; each as its place (a byte that chooses header, index, or an
 * entry, and two bytes of offset) and the new byte. Then the end of the news (2 bytes: end_of()),
 * and the bytes of it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/must.h"
#include "exec/kept_store.h"
#include "fuzz/fuzz.h"

#define ENTRIES 3
#define SIZE	100

static char folder[] = "/tmp/vpmu-fuzz-XXXXXX", path[64];
static struct kept_news *news;
static u64 length; /* of the good store */

static void key_of(u32 number, u64 key[2])
{
	u64 words[2] = { number, 1 };

	kept_hash(words, sizeof(words), key);
}

static void clear_news(void)
{
	must(!madvise(news, KEPT_NEWS_SIZE, MADV_REMOVE));
}

static void add_entries(void)
{
	static struct kept_buffer buffer;
	struct kept kept = { .news = news };
	u64 key[2];

	for (u32 i = 0; i < ENTRIES; i++) {
		key_of(i, key);
		memset(buffer.body, 0x10 + i, SIZE);
		kept_add(&kept, key, &buffer, SIZE);
	}
}

static void remove_folder(void)
{
	unlink(path);
	rmdir(folder);
}

void fuzz_set_up(void)
{
	must(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/" KEPT_STORE_NAME, folder);
	atexit(remove_folder);
	news = mmap(NULL, KEPT_NEWS_SIZE, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	must(news != MAP_FAILED);
}

/* A good store. */
static int make_store(void)
{
	struct stat st;
	int fd;

	unlink(path);
	clear_news();
	add_entries();
	must(kept_store_merge(folder, KEPT_CONFINED, news, 0, KEPT_STORE_LIMIT));
	fd = open(path, O_RDWR | O_CLOEXEC);
	must(fd >= 0 && !fstat(fd, &st));
	length = st.st_size;
	return fd;
}

static void patch(int fd, struct fuzz_input *in)
{
	u8 where = fuzz_u8(in), byte;
	u64 offset = fuzz_number(in, 2), key[2];

	byte = fuzz_u8(in);
	key_of(where % ENTRIES, key);
	if (where < 64)
		offset %= sizeof(struct kept_header);
	else if (where < 128)
		offset = KEPT_INDEX_AT + kept_first_slot(key) * 8ull + offset % 16;
	else
		offset = KEPT_DATA_AT + offset % (length - KEPT_DATA_AT);
	must(pwrite(fd, &byte, 1, offset) == 1);
}

static void look_up(int fd)
{
	static struct kept_buffer buffer;
	struct kept kept = { .store_size = length };
	u8 *map = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
	u64 key[2];

	must(map != MAP_FAILED);
	kept.store = map;
	for (u32 i = 0; i < ENTRIES + 1; i++) {
		key_of(i, key);
		if (!kept_find(&kept, key, &buffer))
			continue;
		if (i == ENTRIES || buffer.entry.size != SIZE)
			fuzz_fail("found what was not added");
		for (u32 n = 0; n < SIZE; n++)
			if (buffer.body[n] != 0x10 + i)
				fuzz_fail("an entry has other bytes than were added");
	}
	munmap(map, length);
}

/* All that is there, or at most 832 KB, all of which a merge looks at: more takes it longer, and it
 * finds nothing new. */
static u64 end_of(u32 number)
{
	return number == 0xffff ? KEPT_NEWS_ROOM + 1 : number * 13ull;
}

static void merge(struct fuzz_input *in)
{
	struct kept_header header;
	u64 merged = 0;
	int fd;

	clear_news();
	news->next = end_of(fuzz_number(in, 2));
	fuzz_take(in, news->data, fuzz_left(in));
	if (!kept_store_merge_early(folder, KEPT_CONFINED, news, &merged, KEPT_STORE_LIMIT) ||
	    merged > KEPT_NEWS_ROOM)
		fuzz_fail("what has come could not be merged");
	if (!kept_store_merge(folder, KEPT_CONFINED, news, merged, KEPT_STORE_LIMIT))
		fuzz_fail("nothing could be merged");
	fd = kept_store_open(folder, KEPT_CONFINED, &header);
	if (fd < 0)
		fuzz_fail("a merge left no good store");
	close(fd);
}

void fuzz_one(struct fuzz_input *in)
{
	int fd = make_store();

	for (u32 n = fuzz_u8(in); n && fuzz_left(in); n--)
		patch(fd, in);
	look_up(fd);
	close(fd);
	merge(in);
}
