// SPDX-License-Identifier: MIT
/*
 * Counting instructions by block: see profile.h. vCPU thread; general registers only.
 */
#include "engine/runtime/profile.h"

#include "base/guarded.h"
#include "base/profile.h"
#include "engine/runtime/count.h"

/* Entries that are looked at for a block. They cost as much as the hash of its page, also where a
 * guest makes blocks without end, and are enough until four fifths of the table are in use. */
#define PROBES 1024

/* 0: it cannot be read, and was no code of a file. */
static u64 hash_page(const u8 *page)
{
	u64 hash = PROFILE_SEED, line[8];

	for (u32 i = 0; i < PAGE_SIZE; i += sizeof(line)) {
		if (!guarded_read(line, page + i, sizeof(line)))
			return 0;
		hash = profile_hash(hash, line, sizeof(line));
	}
	return profile_page(hash);
}

/* NULL: there is no room for it where it belongs. */
static struct profile_entry *find_entry(struct profile *profile, u64 page, u64 offset)
{
	u64 at = page + offset * 0x9e3779b97f4a7c15ull;

	for (u32 i = 0; i < PROBES; i++) {
		struct profile_entry *entry = &profile->entry[(at + i) % PROFILE_ENTRIES];

		if (!entry->page)
			*entry = (struct profile_entry){ .page = page, .offset = offset };
		if (entry->page == page && entry->offset == offset)
			return entry;
	}
	return NULL;
}

void profile_block(const struct engine *eng, struct block *block, const u8 *host)
{
	u64 offset = block->gpa & ~PAGE_MASK, page;
	struct profile_entry *entry;

	block->retired = &eng->profile->kernel;
	if (mode_space(block->mode) != SPACE_USR)
		return;
	page = hash_page(host - offset);
	entry = page ? find_entry(eng->profile, page, offset) : NULL;
	block->retired = entry ? &entry->count : &eng->profile->lost;
}

void profile_settle(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;
	u64 now = count_instructions(cpu);

	if (eng->profiled)
		*eng->profiled += now - eng->profiled_at;
	eng->profiled_at = now;
}

void profile_visit(struct cpu *cpu, const struct block *block)
{
	profile_settle(cpu);
	cpu->engine->profiled = block->retired;
}
