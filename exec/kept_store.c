// SPDX-License-Identifier: MIT
/*
 * A store of kept translations: see kept_store.h. One process at a time changes it, under a lock
 * of the file; others read it meanwhile, and believe none of it (base/kept.h). So the order of
 * writes is not a matter of safety: a process that ends in their middle leaves a store in which
 * some look-ups miss. A disk that is full ends a merge, and the store is cut to what it was.
 *
 * New entries follow the old ones, and slots of the index lead to them. A store that has become too
 * large is written anew under another name, with what was used since the last time, and renamed.
 */
#include "exec/kept_store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK	      (4u << 10) /* of the index: keys lie anywhere in it, a run adds a few */
#define CHUNKS	      (KEPT_SLOTS * 8ull / CHUNK)
#define CHUNK_SLOTS   (CHUNK / 8)
#define OUT_SIZE      (1u << 20)
#define NEWS_IN_VAIN  KEPT_NEWS_SIZE /* bytes that may be hashed for entries that are none */
#define LOCK_TRIES    500
#define LOCK_TRY_NS   10000000
#define REPLACE_TRIES 16

/* A store that is open to be changed. */
struct store {
	int fd;
	struct kept_header header;
	struct {
		u64 *slots; /* NULL: not read yet */
		bool changed;
	} chunk[CHUNKS];
	u8 *out; /* entries that are to be written at header.end */
	u64 out_used;
	bool failed;
};

/* --- files --- */

static void name_file(char path[PATH_MAX], const char *folder, enum kept_kind kind)
{
	snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 32, folder,
		 kind == KEPT_CONFINED ? KEPT_STORE_NAME : KEPT_UNCONFINED_NAME);
}

/* Nobody else can have written to it. */
static bool is_private(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1 &&
	       !(st->st_mode & (S_IRWXG | S_IRWXO));
}

static bool read_at(int fd, void *data, u64 size, u64 at)
{
	return pread(fd, data, size, at) == (ssize_t)size;
}

static bool write_at(int fd, const void *data, u64 size, u64 at)
{
	const u8 *from = data;

	while (size) {
		ssize_t n = pwrite(fd, from, size, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		from += n;
		at += n;
		size -= n;
	}
	return true;
}

static bool read_header(int fd, const struct stat *st, struct kept_header *header)
{
	return read_at(fd, header, sizeof(*header), 0) && kept_header_good(header) &&
	       header->end <= (u64)st->st_size;
}

int kept_store_open(const char *folder, enum kept_kind kind, struct kept_header *header)
{
	char path[PATH_MAX];
	struct stat st;
	int fd;

	name_file(path, folder, kind);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && is_private(&st) && read_header(fd, &st, header))
		return fd;
	close(fd);
	return -1;
}

/* A process that has stopped may hold the lock: it is not waited for longer than some seconds. */
static bool lock(int fd)
{
	struct timespec pause = { .tv_nsec = LOCK_TRY_NS };

	for (u32 i = 0; i < LOCK_TRIES; i++) {
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return true;
		if (errno != EWOULDBLOCK)
			return false;
		nanosleep(&pause, NULL);
	}
	return false;
}

static bool is_still(int fd, const char *path)
{
	struct stat ours, named;

	return !fstat(fd, &ours) && !lstat(path, &named) && ours.st_dev == named.st_dev &&
	       ours.st_ino == named.st_ino;
}

/* Opens and locks the file that has the name when it is locked. One that others could have written,
 * or that is no file, is replaced. -1: it cannot be had. */
static int open_locked(const char *path)
{
	for (u32 i = 0; i < REPLACE_TRIES; i++) {
		int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
		struct stat st;

		if (fd < 0 && errno != ELOOP && errno != ENXIO)
			return -1;
		if (fd < 0 || fstat(fd, &st) || !is_private(&st)) {
			if (fd >= 0)
				close(fd);
			if (unlink(path) && errno != ENOENT)
				return -1;
			continue;
		}
		if (!lock(fd)) {
			close(fd);
			return -1;
		}
		if (is_still(fd, path))
			return fd;
		close(fd);
	}
	return -1;
}

/* --- a store that is being changed --- */

/* A new file is not cut: some filesystems (ext4) write a file that was cut to nothing to the disk
 * when it is closed, which takes longer than all of a merge. */
static void make_empty(struct store *s, u64 size)
{
	s->header = (struct kept_header){ .end = KEPT_DATA_AT };
	if ((size && ftruncate(s->fd, 0)) || ftruncate(s->fd, KEPT_DATA_AT))
		s->failed = true;
}

static struct store *store_new(int fd)
{
	struct store *s = calloc(1, sizeof(*s));

	if (s)
		s->out = malloc(OUT_SIZE);
	if (!s || !s->out) {
		free(s);
		return NULL;
	}
	s->fd = fd;
	return s;
}

static void store_free(struct store *s)
{
	for (u32 i = 0; i < CHUNKS; i++)
		free(s->chunk[i].slots);
	free(s->out);
	free(s);
}

/* A part of the index; NULL: it cannot be read. */
static u64 *index_chunk(struct store *s, u32 number)
{
	u64 *slots = s->chunk[number].slots;

	if (slots)
		return slots;
	slots = malloc(CHUNK);
	if (slots && read_at(s->fd, slots, CHUNK, KEPT_INDEX_AT + number * CHUNK)) {
		s->chunk[number].slots = slots;
		return slots;
	}
	free(slots);
	s->failed = true;
	return NULL;
}

/* Which slot an entry gets: one with the same bits of its key, which it replaces; an empty one; or,
 * if there is neither, one whose entry is forgotten. */
static void set_slot(struct store *s, const u64 key[2], u64 position)
{
	u32 chosen = kept_nth_slot(key, KEPT_PROBES / 2);
	u64 *slots;

	for (u32 i = 0; i < KEPT_PROBES; i++) {
		u32 number = kept_nth_slot(key, i);
		u64 slot;

		slots = index_chunk(s, number / CHUNK_SLOTS);
		if (!slots)
			return;
		slot = slots[number % CHUNK_SLOTS];
		if (!slot || !((slot ^ key[1]) & KEPT_TAG)) {
			chosen = number;
			break;
		}
	}
	slots = index_chunk(s, chosen / CHUNK_SLOTS);
	if (!slots)
		return;
	slots[chosen % CHUNK_SLOTS] = kept_slot(key, position);
	s->chunk[chosen / CHUNK_SLOTS].changed = true;
}

static void write_out(struct store *s)
{
	if (!s->failed && !write_at(s->fd, s->out, s->out_used, s->header.end))
		s->failed = true;
	s->header.end += s->out_used;
	s->out_used = 0;
}

static void store_add(struct store *s, const struct kept_buffer *buffer)
{
	const struct kept_entry *entry = &buffer->entry;
	u64 length = kept_length(entry->size);

	if (s->out_used + length > OUT_SIZE)
		write_out(s);
	if (s->failed)
		return;
	memcpy(s->out + s->out_used, buffer, length);
	set_slot(s, entry->key, s->header.end + s->out_used);
	s->out_used += length;
	s->header.entries++;
}

/* Writes what is left, the header last. */
static bool store_finish(struct store *s)
{
	write_out(s);
	for (u32 i = 0; i < CHUNKS && !s->failed; i++)
		if (s->chunk[i].changed &&
		    !write_at(s->fd, s->chunk[i].slots, CHUNK, KEPT_INDEX_AT + i * CHUNK))
			s->failed = true;
	kept_header_seal(&s->header);
	return !s->failed && write_at(s->fd, &s->header, sizeof(s->header), 0);
}

/* --- what news says --- */

static u64 news_end(const struct kept_news *news)
{
	u64 next = READ_ONCE(news->next);

	return next < KEPT_NEWS_ROOM ? next : KEPT_NEWS_ROOM;
}

static void write_news(struct store *s, const u8 *from, u64 size)
{
	if (!s->failed && !write_at(s->fd, from, size, s->header.end))
		s->failed = true;
	s->header.end += size;
}

/*
 * Whole entries are written from where they lie. A guest that was killed may have left one
 * incomplete for each of its vCPUs, anywhere: from `first` up to `at` all are whole. News with more
 * of them than that are those of a QEMU that was taken over; then the rest is forgotten, since an
 * entry that is none can be claimed every KEPT_ALIGN bytes, and others wait for the lock. While a
 * guest runs, an entry that is not whole is being written: the news end there for now. Returns
 * where.
 */
static u64 add_news(struct store *s, const struct kept_news *news, u64 at, bool is_over)
{
	u64 end = news_end(news), first = at, vain = 0;

	write_out(s);
	while (at < end && vain < NEWS_IN_VAIN && !s->failed) {
		const struct kept_entry *entry = (const void *)(news->data + at);
		u64 length = kept_check(news->data + at, end - at, &vain);

		if (!length && !is_over)
			break;
		if (length) {
			set_slot(s, entry->key, s->header.end + at - first);
			s->header.entries++;
			at += length;
		}
		if (!length || at - first >= OUT_SIZE) {
			write_news(s, news->data + first, at - first);
			at += length ? 0 : KEPT_ALIGN;
			first = at;
		}
	}
	write_news(s, news->data + first, at - first);
	return at;
}

static void add_counts(struct kept_header *header, const struct kept_news *news)
{
	header->last_lookups = READ_ONCE(news->lookups);
	header->last_hits = READ_ONCE(news->hits);
	header->runs++;
	header->lookups += header->last_lookups;
	header->hits += header->last_hits;
}

/* Which slots were used since the store was made or cleaned up. */
static bool read_used(const struct store *s, const struct kept_news *news, u8 *used)
{
	if (!read_at(s->fd, used, KEPT_SLOTS / 8, KEPT_USED_AT))
		return false;
	for (u32 i = 0; i < KEPT_SLOTS / 8; i++)
		used[i] |= news->used[i];
	return true;
}

/* --- cleaning up --- */

static int by_position(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* Where the used entries are, in ascending order. Their number. */
static u32 list_used(struct store *s, const u8 *used, u64 *positions)
{
	u32 n = 0;

	for (u32 i = 0; i < KEPT_SLOTS; i++) {
		const u64 *slots;

		if (!(used[i / 8] >> i % 8 & 1))
			continue;
		slots = index_chunk(s, i / CHUNK_SLOTS);
		if (slots && slots[i % CHUNK_SLOTS])
			positions[n++] = kept_position(slots[i % CHUNK_SLOTS]);
	}
	qsort(positions, n, sizeof(*positions), by_position);
	return n;
}

/* An entry of the old store; false: it is not whole. */
static bool read_entry(int fd, u64 at, struct kept_buffer *buffer)
{
	static u8 bytes[sizeof(struct kept_buffer)];
	ssize_t n = pread(fd, bytes, sizeof(bytes), at);

	return n > 0 && kept_copy(bytes, n, buffer);
}

/* As many of the used entries as half of the limit holds: the last ones that were added. */
static void copy_used(struct store *from, struct store *to, const u8 *used, u64 limit,
		      struct kept_buffer *buffer)
{
	u64 *positions = calloc(KEPT_SLOTS, sizeof(*positions));
	u32 n = positions ? list_used(from, used, positions) : 0, first = n;
	u64 least = from->header.end > limit / 2 ? from->header.end - limit / 2 : 0;

	while (first && positions[first - 1] >= least)
		first--;
	for (u32 i = first; i < n && !to->failed; i++)
		if (read_entry(from->fd, positions[i], buffer))
			store_add(to, buffer);
	free(positions);
}

static bool fill_successor(struct store *old, struct store *s, const struct kept_news *news,
			   u64 limit, struct kept_buffer *buffer)
{
	u8 *used = malloc(KEPT_SLOTS / 8);

	make_empty(s, 0);
	s->header.runs = old->header.runs;
	s->header.lookups = old->header.lookups;
	s->header.hits = old->header.hits;
	if (used && read_used(old, news, used))
		copy_used(old, s, used, limit, buffer);
	free(used);
	add_news(s, news, 0, true);
	add_counts(&s->header, news);
	return store_finish(s);
}

/* The old one is locked: nobody else writes the file with the other name. */
static bool clean_up(const char *path, struct store *old, const struct kept_news *news, u64 limit,
		     struct kept_buffer *buffer)
{
	char other[PATH_MAX + 8];
	struct store *s;
	bool ok;
	int fd;

	snprintf(other, sizeof(other), "%s.new", path);
	unlink(other);
	fd = open(other, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	s = fd < 0 ? NULL : store_new(fd);
	ok = s && fill_successor(old, s, news, limit, buffer) && !rename(other, path);
	if (!ok)
		unlink(other);
	if (s)
		store_free(s);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* --- merging --- */

static bool add_used(const struct store *s, const struct kept_news *news)
{
	u8 *used = malloc(KEPT_SLOTS / 8);
	bool ok = used && read_used(s, news, used) &&
		  write_at(s->fd, used, KEPT_SLOTS / 8, KEPT_USED_AT);

	free(used);
	return ok;
}

/* What is in the news from *merged on, which it moves. */
static bool add_in_place(struct store *s, const struct kept_news *news, u64 *merged, bool is_over)
{
	u64 end = s->header.end, at;
	bool ok;

	at = add_news(s, news, *merged, is_over);
	if (is_over)
		add_counts(&s->header, news);
	ok = (!is_over || add_used(s, news)) && store_finish(s);
	if (ok)
		*merged = at;
	else if (ftruncate(s->fd, end))
		return false;
	return ok;
}

/* A successor is made of what was used: what was merged early is taken from the news once more. */
static bool merge(const char *path, struct store *s, const struct kept_news *news, u64 *merged,
		  bool is_over, u64 limit)
{
	struct kept_buffer *buffer = malloc(sizeof(*buffer));
	struct stat st;
	bool ok = false;

	if (buffer && !fstat(s->fd, &st)) {
		if (!read_header(s->fd, &st, &s->header))
			make_empty(s, st.st_size);
		if (s->header.end + news_end(news) - *merged <= limit)
			ok = add_in_place(s, news, merged, is_over);
		else if (is_over)
			ok = clean_up(path, s, news, limit, buffer);
	}
	free(buffer);
	return ok;
}

static bool merge_by_name(const char *folder, enum kept_kind kind, const struct kept_news *news,
			  u64 *merged, bool is_over, u64 limit)
{
	char path[PATH_MAX];
	struct store *s;
	bool ok;
	int fd;

	name_file(path, folder, kind);
	fd = open_locked(path);
	s = fd < 0 ? NULL : store_new(fd);
	ok = s && merge(path, s, news, merged, is_over, limit);
	if (s)
		store_free(s);
	if (fd >= 0)
		close(fd);
	return ok;
}

bool kept_store_merge_early(const char *folder, enum kept_kind kind, const struct kept_news *news,
			    u64 *merged, u64 limit)
{
	return merge_by_name(folder, kind, news, merged, false, limit);
}

bool kept_store_merge(const char *folder, enum kept_kind kind, const struct kept_news *news,
		      u64 merged, u64 limit)
{
	return merge_by_name(folder, kind, news, &merged, true, limit);
}
