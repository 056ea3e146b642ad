// SPDX-License-Identifier: MIT
/*
 * The names of the files that a guest opened, for its profile (base/profile.h). A node that the
 * guest has forgotten is another one when it is looked up again, so names are known by their hash:
 * a guest that makes two of them the same has the code of one file without its name.
 */
#include <stdlib.h>
#include <string.h>

#include "base/profile.h"
#include "exec/share/share.h"

#define SLOTS  (1u << 17) /* twice as many as there is room for names of 16 bytes */
#define PROBES 64	  /* a guest chooses its names, and with them how many share a place */

/* FNV-1a; 0 is an unused slot. */
static u64 hash_of(const char *path)
{
	u64 hash = 0xcbf29ce484222325ull;

	for (; *path; path++)
		hash = (hash ^ (u8)*path) * 0x100000001b3ull;
	return hash ?: 1;
}

/* The slot of a name, or the free one that it would have. NULL: there is none, or no memory. */
static u64 *slot_of(struct opened *opened, u64 hash)
{
	if (!opened->known)
		opened->known = calloc(SLOTS, sizeof(*opened->known));
	for (u32 i = 0; opened->known && i < PROBES; i++) {
		u64 *slot = &opened->known[(hash + i) % SLOTS];

		if (!*slot || *slot == hash)
			return slot;
	}
	return NULL;
}

static void add(struct opened *opened, struct profile *profile, const char *path)
{
	u64 hash = hash_of(path), *slot = slot_of(opened, hash);
	size_t size = strlen(path) + 1;

	if (slot && *slot)
		return;
	if (!slot || size > PROFILE_NAMES - opened->bytes) {
		profile->names_lost++;
		return;
	}
	*slot = hash;
	memcpy(profile->names + opened->bytes, path, size);
	opened->bytes += size;
	profile->names_used = opened->bytes;
}

void opened_add(struct share *share, u64 id)
{
	struct profile *profile = share->virtual_time ? share->virtual_time->profile : NULL;
	struct node *node = profile ? node_get(&share->nodes, id) : NULL;
	char path[PATH_MAX];

	if (!node || node->named || node_path(&share->nodes, id, path))
		return;
	node->named = true;
	add(&share->opened, profile, path);
}
