/* SPDX-License-Identifier: MIT */
/*
 * An exact profile: how many instructions the user code of a VM retired, block by block, in a file
 * that the process of the VM shares with others (VPMU_PROFILE names its descriptor). Code is known
 * by the contents of its page and its offset in it: whatever address it had in whatever process, a
 * reader who has the file that it came from finds it there (cli/check/code_names.c).
 *
 * The processors write `entry` and the sums, one of them at a time (vm/profile.h), the server of
 * the host's files `names`. Readers come when all have ended, and believe nothing: a guest may have
 * got hold of either.
 */
#ifndef BASE_PROFILE_H
#define BASE_PROFILE_H

#include "base/types.h"

#define PROFILE_ENTRIES (1u << 20)
#define PROFILE_NAMES	(1u << 20)

struct profile_entry {
	/* profile_page() of what the page held when the block was translated; 0: unused. */
	u64 page;
	u64 offset; /* of the block's first instruction in it */
	u64 count;  /* instructions retired */
};

struct profile {
	u64 kernel;	/* instructions retired at the other privileges */
	u64 lost;	/* by user code for which no entry was left */
	u32 names_used; /* bytes */
	u32 names_lost; /* files for which there was no room */
	/* Paths of the files that the guest opened, without the first slash, each with its NUL. */
	char names[PROFILE_NAMES];
	struct profile_entry entry[PROFILE_ENTRIES];
};

/* A hash of the bytes from `data` on, continued from `hash`; n is a multiple of 8. */
static inline u64 profile_hash(u64 hash, const void *data, size_t n)
{
	const u64_unaligned *words = data;

	for (size_t i = 0; i < n / 8; i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 32;
	}
	return hash;
}

#define PROFILE_SEED 0x76706d75ull

/* The hash of a page as it is in an entry, where 0 means none. */
static inline u64 profile_page(u64 hash)
{
	return hash ?: 1;
}

#endif
