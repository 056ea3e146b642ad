/* SPDX-License-Identifier: MIT */
/*
 * Kept translations: what one process translated serves the next.
 *
 * Two files. The *store* is in the user's cache folder: a header, an index, and entries, each under
 * a key. The process of a VM has it mapped to read, and nothing more. What that process adds goes
 * to the *news*, a file in memory that it shares with the one that started it. When the VM has
 * ended, that one merges the news into the store (exec/kept_store.c).
 *
 * Neither is believed. Invariants:
 *
 *  1. An entry is used only from a private copy whose hash, key and size have been checked. So it
 * does not matter what happens to the file meanwhile: truncated, overwritten, replaced.
 *  2. No byte of either file is needed for safety: positions and sizes are checked against what is
 *     mapped, accesses are guarded, and a wrong slot of the index leads to a miss.
 *  3. A key stands for everything that the content of an entry depends on, the build among it. What
 *     is in an entry is known to the code that made it alone (engine/translate/kept_block.c), which
 *     compares what it can once more.
 *
 * The hash is against accidents. Whoever can write to the store is trusted: see docs/security.md.
 *
 * kept_find(), kept_add(): vCPU threads, any number of them; general registers only.
 */
#ifndef BASE_KEPT_H
#define BASE_KEPT_H

#include "base/types.h"

#define KEPT_MAGIC   0x7470656b756d7076ull /* "vpmukept" */
#define KEPT_VERSION 2

#define KEPT_SLOTS  (1u << 21)
#define KEPT_PROBES 32
#define KEPT_LINE   8		    /* slots in a line of the host's cache */
#define KEPT_NEAR   (2 * KEPT_LINE) /* first slots of keys that are looked for together */
#define KEPT_GROUP  512		    /* slots in a page of the index */
#define KEPT_ALIGN  16
#define KEPT_BODY   (12u << 10) /* bytes of an entry's body at most */

/* The layout of a store. */
#define KEPT_INDEX_AT PAGE_SIZE
#define KEPT_USED_AT  (KEPT_INDEX_AT + KEPT_SLOTS * 8ull)
#define KEPT_DATA_AT  (KEPT_USED_AT + KEPT_SLOTS / 8)

struct kept_header {
	u64 magic;
	u32 version, slots;
	u64 end;     /* of the entries */
	u64 entries; /* added since the store was made or cleaned up, replaced ones included */
	u64 runs;    /* VMs that used it */
	u64 lookups, hits; /* of all runs */
	u64 last_lookups, last_hits;
	u64 unused;
	u64 hash[2]; /* of all above */
};

struct kept_entry {
	u64 hash[2]; /* of the rest, up to the end that kept_length() says */
	u64 key[2];
	u32 size; /* of the body */
	u32 mark; /* KEPT_MARK */
		  /* The body follows. */
};

#define KEPT_MARK 0x7470656bu

/* An entry in a process's own memory. */
struct kept_buffer {
	struct kept_entry entry;
	u8 body[KEPT_BODY + KEPT_ALIGN];
} __attribute__((aligned(KEPT_ALIGN)));

/* The layout of news. */
#define KEPT_NEWS_SIZE (192ull << 20)
#define KEPT_NEWS_ROOM (KEPT_NEWS_SIZE - sizeof(struct kept_news))

struct kept_news {
	u64 next; /* bytes of data[] that have been given out; may be more than there are */
	u64 lookups, hits;
	u64 unused;
	u8 used[KEPT_SLOTS / 8]; /* slots of the index whose entries were used */
	u8 data[];
};

/* Both files, mapped. */
struct kept {
	const u8 *store; /* NULL: there is none */
	u64 store_size;
	struct kept_news *news; /* NULL: nothing is added */
	u64 build[2];		/* says which build of the library this is */
};

static inline u64 kept_length(u32 size)
{
	return (sizeof(struct kept_entry) + size + KEPT_ALIGN - 1) & ~(u64)(KEPT_ALIGN - 1);
}

/* One to one in the state and in the word: where one of them differs, so does the result. */
static inline u64 kept_step(u64 state, u64 word)
{
	u64 x = state ^ word;

	return (x << 32 | x >> 32) * 0x9e3779b97f4a7c15ull;
}

static inline u64 kept_end(u64 state, u64 word)
{
	u64 x = kept_step(state, word);

	return x ^ x >> 32;
}

/*
 * Four states, each of every fourth word, which do not wait for each other: a change of one word is
 * always seen, and any other is missed by chance. n is a multiple of 16; what the hash is to depend
 * on besides is in the seed.
 */
static inline void kept_hash_from(const u64 seed[2], const void *data, u64 n, u64 hash[2])
{
	const u64_unaligned *word = data;
	u64 a = seed[0] ^ n, b = seed[1] ^ 0xbf58476d1ce4e5b9ull;
	u64 c = 0x94d049bb133111ebull, d = 0xd1b54a32d192ed03ull;

	for (; n >= 32; n -= 32, word += 4) {
		a = kept_step(a, word[0]);
		b = kept_step(b, word[1]);
		c = kept_step(c, word[2]);
		d = kept_step(d, word[3]);
	}
	if (n) {
		a = kept_step(a, word[0]);
		b = kept_step(b, word[1]);
	}
	hash[0] = kept_end(a, c);
	hash[1] = kept_end(kept_step(b, d), hash[0]);
}

static inline void kept_hash(const void *data, u64 n, u64 hash[2])
{
	const u64 none[2] = { 0 };

	kept_hash_from(none, data, n, hash);
}

/* A slot of the index: bits of the key, and where the entry is, in units of KEPT_ALIGN. 0: empty.
 */
#define KEPT_TAG MASK(63, 40)

static inline u64 kept_slot(const u64 key[2], u64 position)
{
	return (key[1] & KEPT_TAG) | position / KEPT_ALIGN;
}

static inline u64 kept_position(u64 slot)
{
	return (slot & ~KEPT_TAG) * KEPT_ALIGN;
}

static inline u32 kept_first_slot(const u64 key[2])
{
	return key[0] % KEPT_SLOTS;
}

/* Where an entry may have its slot, KEPT_PROBES places: the line of its first slot, the one beside
 * it, then others. Keys of one line may be many, those of code that is written again and again: the
 * others lie elsewhere. */
static inline u32 kept_nth_slot(const u64 key[2], u32 n)
{
	u64 line = n < KEPT_NEAR ? key[0] / KEPT_LINE ^ n / KEPT_LINE
				 : key[1] / KEPT_LINE + n / KEPT_LINE;

	return (line * KEPT_LINE + (key[0] + n) % KEPT_LINE) % KEPT_SLOTS;
}

/* The first of the KEPT_NEAR slots that are for the keys of a part of some whole: all parts of it
 * have theirs in one page of the index, in their order. */
static inline u32 kept_near_slot(u64 whole, u32 part)
{
	u64 group = whole / KEPT_GROUP * KEPT_GROUP;

	return (group + (whole / KEPT_NEAR + part) * KEPT_NEAR % KEPT_GROUP) % KEPT_SLOTS;
}

/* Makes the first slot of a key one of those; place < KEPT_NEAR. */
static inline void kept_near(u64 key[2], u64 whole, u32 part, u32 place)
{
	key[0] = (key[0] & ~(u64)(KEPT_SLOTS - 1)) | (kept_near_slot(whole, part) + place);
}

/* Fills in the hash; the bytes after the body are zeroed. */
void kept_seal(struct kept_buffer *buffer, const u64 key[2], u32 size);
/* Copies the entry at `from`, of which `room` bytes can be read, and checks the copy. */
bool kept_copy(const u8 *from, u64 room, struct kept_buffer *to);

/* The length of the entry at `at`, of which `room` bytes can be read; 0: it is not whole, and what
 * was hashed to see that is added to `vain`. Where nobody cuts the memory. */
u64 kept_check(const u8 *at, u64 room, u64 *vain);

/* Keys of this part will be looked for, and later those of the others; n: a power of two. */
void kept_expect(const struct kept *kept, u64 whole, u32 part, u32 n);
/* Whether there is an entry, which is then in the buffer. */
bool kept_find(const struct kept *kept, const u64 key[2], struct kept_buffer *buffer);
/* An entry that is not needed yet: where it is, and the host fetches it. An absent one is not
 * counted as a miss. */
struct kept_place {
	u64 slot; /* of the index */
	u32 number;
};
bool kept_expect_entry(const struct kept *kept, const u64 key[2], struct kept_place *place);
/* The entry that was expected there, if it is the one with this key. */
bool kept_take(const struct kept *kept, const u64 key[2], const struct kept_place *place,
	       struct kept_buffer *buffer);
/* The body is in the buffer. Where there is no room it is lost. */
void kept_add(const struct kept *kept, const u64 key[2], struct kept_buffer *buffer, u32 size);

/* Is it the header of a store that this code can read? */
bool kept_header_good(const struct kept_header *header);
void kept_header_seal(struct kept_header *header);

#endif
