// SPDX-License-Identifier: MIT
/*
 * Finding and adding kept translations, and sealing and checking the headers of a store: see
 * kept.h. General registers only; accesses to the two files are guarded, since the store may be
 * truncated and the memory of the news may be used up. Only the counters in the first page of the
 * news are accessed as they are.
 */
#include "base/kept.h"

#include "base/bytes.h"
#include "base/guarded.h"

/* What is hashed begins after the hash. */
static u64 hashed_length(u32 size)
{
	return kept_length(size) - offsetof(struct kept_entry, key);
}

void kept_seal(struct kept_buffer *buffer, const u64 key[2], u32 size)
{
	struct kept_entry *entry = &buffer->entry;

	entry->key[0] = key[0];
	entry->key[1] = key[1];
	entry->size = size;
	entry->mark = KEPT_MARK;
	bytes_fill(buffer->body + size, 0, kept_length(size) - sizeof(*entry) - size);
	kept_hash(entry->key, hashed_length(size), entry->hash);
}

static bool head_good(const struct kept_entry *entry)
{
	return entry->mark == KEPT_MARK && entry->size && entry->size <= KEPT_BODY;
}

u64 kept_check(const u8 *at, u64 room, u64 *vain)
{
	struct kept_entry entry;
	u64 hash[2], length;

	if (room < sizeof(entry))
		return 0;
	bytes_copy(&entry, at, sizeof(entry));
	length = head_good(&entry) ? kept_length(entry.size) : 0;
	if (!length || room < length)
		return 0;
	kept_hash(at + offsetof(struct kept_entry, key), hashed_length(entry.size), hash);
	if (hash[0] == entry.hash[0] && hash[1] == entry.hash[1])
		return length;
	*vain += hashed_length(entry.size);
	return 0;
}

bool kept_copy(const u8 *from, u64 room, struct kept_buffer *to)
{
	struct kept_entry *entry = &to->entry;
	const u8 *size_at = from + offsetof(struct kept_entry, size);
	u64 hash[2], length;
	u32 size;

	if (room < sizeof(*entry) || !guarded_read(&size, size_at, sizeof(size)) ||
	    size > KEPT_BODY)
		return false;
	length = kept_length(size);
	if (room < length || !guarded_read(to, from, length))
		return false;
	if (!head_good(entry) || entry->size != size)
		return false;
	kept_hash(entry->key, hashed_length(size), hash);
	return hash[0] == entry->hash[0] && hash[1] == entry->hash[1];
}

/* Entries lie in the order in which they were first needed: the next one likely follows. Nothing is
 * read that could fault. */
#define LINE	    64
#define ENTRY_LINES 10
#define NEXT_LINES  10

static void prefetch_two(const u8 *from)
{
	__builtin_prefetch(from);
	__builtin_prefetch(from + LINE);
}

/* n is even. */
static void prefetch_lines(const u8 *from, u32 n)
{
	for (u32 i = 0; i < n; i += 2)
		prefetch_two(from + i * LINE);
}

void kept_expect(const struct kept *kept, u64 whole, u32 part, u32 n)
{
	for (u32 i = 0; kept->store && i < n; i++) {
		u32 slot = kept_near_slot(whole, (part + i) % n);

		prefetch_two(kept->store + KEPT_INDEX_AT + 8ull * slot);
	}
	if (kept->news)
		prefetch_two(&kept->news->used[kept_near_slot(whole, 0) / KEPT_GROUP * LINE]);
}

_Static_assert(KEPT_GROUP / 8 == LINE, "kept_expect()");

/* NULL: there is no such place in the store. */
static const u8 *entry_of(const struct kept *kept, u64 slot)
{
	u64 at = kept_position(slot);

	return at < KEPT_DATA_AT || at >= kept->store_size ? NULL : kept->store + at;
}

static bool copy_from_slot(const struct kept *kept, u64 slot, const u64 key[2],
			   struct kept_buffer *buffer)
{
	const u8 *from = entry_of(kept, slot);

	if (!from)
		return false;
	prefetch_lines(from, ENTRY_LINES);
	if (!kept_copy(from, kept->store + kept->store_size - from, buffer) ||
	    buffer->entry.key[0] != key[0] || buffer->entry.key[1] != key[1])
		return false;
	prefetch_lines(from + kept_length(buffer->entry.size), NEXT_LINES);
	return true;
}

static void note_use(struct kept_news *news, u32 number)
{
	u8 byte;

	if (!news || !guarded_read(&byte, &news->used[number / 8], 1))
		return;
	byte |= 1u << number % 8; /* one that another vCPU sets meanwhile may be lost */
	guarded_write(&news->used[number / 8], &byte, 1);
}

static void count(u64 *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* The next slot, from the key's probe on, that may be the key's. */
static bool next_place(const struct kept *kept, const u64 key[2], u32 probe,
		       struct kept_place *place, u32 *found_at)
{
	if (!kept->store || kept->store_size < KEPT_DATA_AT)
		return false;
	for (u32 i = probe; i < KEPT_PROBES; i++) {
		u32 number = kept_nth_slot(key, i);
		u64 slot;

		if (!guarded_read(&slot, kept->store + KEPT_INDEX_AT + 8ull * number, 8) || !slot)
			return false;
		if ((slot ^ key[1]) & KEPT_TAG)
			continue;
		*place = (struct kept_place){ slot, number };
		*found_at = i;
		return true;
	}
	return false;
}

static bool take(const struct kept *kept, const u64 key[2], const struct kept_place *place,
		 struct kept_buffer *buffer)
{
	if (!copy_from_slot(kept, place->slot, key, buffer))
		return false;
	note_use(kept->news, place->number);
	return true;
}

static bool find(const struct kept *kept, const u64 key[2], struct kept_buffer *buffer)
{
	struct kept_place place;

	for (u32 i = 0; next_place(kept, key, i, &place, &i); i++)
		if (take(kept, key, &place, buffer))
			return true;
	return false;
}

bool kept_find(const struct kept *kept, const u64 key[2], struct kept_buffer *buffer)
{
	bool found = find(kept, key, buffer);

	if (kept->news) {
		count(&kept->news->lookups);
		if (found)
			count(&kept->news->hits);
	}
	return found;
}

bool kept_expect_entry(const struct kept *kept, const u64 key[2], struct kept_place *place)
{
	const u8 *entry;
	u32 probe;

	if (!next_place(kept, key, 0, place, &probe) || !(entry = entry_of(kept, place->slot)))
		return false;
	prefetch_lines(entry, ENTRY_LINES);
	return true;
}

bool kept_take(const struct kept *kept, const u64 key[2], const struct kept_place *place,
	       struct kept_buffer *buffer)
{
	if (!take(kept, key, place, buffer))
		return false;
	if (kept->news) {
		count(&kept->news->lookups);
		count(&kept->news->hits);
	}
	return true;
}

void kept_add(const struct kept *kept, const u64 key[2], struct kept_buffer *buffer, u32 size)
{
	struct kept_news *news = kept->news;
	u64 length = kept_length(size), at;

	if (!news || !size || size > KEPT_BODY ||
	    __atomic_load_n(&news->next, __ATOMIC_RELAXED) > KEPT_NEWS_ROOM - length)
		return;
	kept_seal(buffer, key, size);
	at = __atomic_fetch_add(&news->next, length, __ATOMIC_RELAXED);
	if (at <= KEPT_NEWS_ROOM - length)
		guarded_write(news->data + at, buffer, length);
}

static void header_hash(const struct kept_header *header, u64 hash[2])
{
	kept_hash(header, offsetof(struct kept_header, hash), hash);
}

_Static_assert(offsetof(struct kept_header, hash) % 16 == 0, "header_hash()");

bool kept_header_good(const struct kept_header *header)
{
	u64 hash[2];

	header_hash(header, hash);
	return header->magic == KEPT_MAGIC && header->version == KEPT_VERSION &&
	       header->slots == KEPT_SLOTS && header->end >= KEPT_DATA_AT &&
	       header->hash[0] == hash[0] && header->hash[1] == hash[1];
}

void kept_header_seal(struct kept_header *header)
{
	header->magic = KEPT_MAGIC;
	header->version = KEPT_VERSION;
	header->slots = KEPT_SLOTS;
	header_hash(header, header->hash);
}
