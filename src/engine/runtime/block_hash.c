// SPDX-License-Identifier: MIT
/*
 * Blocks by address: the table in which the main loop looks for the block to execute. What is in it
 * is live (code_cache.c); a flush leaves it empty. vCPU thread.
 */
#include "base/bytes.h"
#include "base/must.h"
#include "engine/priv.h"

/*
 * Blocks are looked up by all that tells them apart. A program that is started again and again has
 * its libraries at other addresses each time, so there are many of one physical address. Those of a
 * page have their buckets side by side, since what is looked up next is likely near: few pages of
 * the host are touched, and most buckets have one block. From the top: number of the bucket, number
 * of its mark.
 */
#define PAGE_BUCKETS	128
#define GROUP_HASH_BITS (BLOCK_HASH_BITS - 7)
_Static_assert(PAGE_BUCKETS == 1 << (BLOCK_HASH_BITS - GROUP_HASH_BITS), "hash_of()");

static u64 hash_of(u64 rip, gpa_t gpa, u32 mode, u32 limit)
{
	u64 key = rip / PAGE_SIZE ^ gpa / PAGE_SIZE << 24 ^ (u64)mode << 32 ^ (u32)~limit;
	u64 page = key * 0x9e3779b97f4a7c15ull;
	u64 group = page >> (64 - GROUP_HASH_BITS);
	u64 bucket = group * PAGE_BUCKETS + rip % PAGE_SIZE / (PAGE_SIZE / PAGE_BUCKETS);

	return bucket << (64 - BLOCK_HASH_BITS) | ((rip ^ page >> 20) & 15)
							  << (64 - BLOCK_HASH_BITS - 4);
}

static u64 hash_of_block(const struct block *b)
{
	return hash_of(b->rip, b->gpa, b->mode, b->limit);
}

static u64 *bucket(const struct engine *eng, u64 hash)
{
	return &eng->by_hash[hash >> (64 - BLOCK_HASH_BITS)];
}

/*
 * While code is new every second look-up finds nothing, and would wait for each block of a chain to
 * arrive in the host's cache. So the bits of a bucket that addresses leave free say which blocks
 * its chain may have: one of sixteen, which the hash selects, is set for each that was inserted.
 */
#define CHAIN_SHIFT 48

static struct block *first_of(u64 chain)
{
	return (struct block *)(uintptr_t)(chain & (BIT(CHAIN_SHIFT) - 1));
}

static u64 mark_of(u64 hash)
{
	return BIT(CHAIN_SHIFT + (hash >> (64 - BLOCK_HASH_BITS - 4) & 15));
}

/* The marks stay, until the chain is empty. */
static u64 chain_of(u64 marks, const struct block *first)
{
	return first ? (marks & ~(BIT(CHAIN_SHIFT) - 1)) | (u64)(uintptr_t)first : 0;
}

void cache_prefetch(const struct cpu *cpu, u64 rip, gpa_t gpa, u32 mode)
{
	__builtin_prefetch(bucket(cpu->engine, hash_of(rip, gpa, mode, code_limit(cpu, mode))));
}

struct block *cache_find(const struct cpu *cpu, u64 rip, gpa_t gpa, u32 mode)
{
	u32 limit = code_limit(cpu, mode);
	u64 hash = hash_of(rip, gpa, mode, limit), chain = *bucket(cpu->engine, hash);
	struct block *b = chain & mark_of(hash) ? first_of(chain) : NULL;

	while (b && (b->rip != rip || b->gpa != gpa || b->mode != mode || b->limit != limit))
		b = b->next_hash;
	return b;
}

/* --- chains --- */

static void set_before(const struct engine *eng, struct block *block, const struct block *before)
{
	if (block)
		block->before_hash = before ? (u32)((const u8 *)before - eng->meta) + 1 : 0;
}

static struct block *before(const struct engine *eng, const struct block *block)
{
	return block->before_hash ? (struct block *)(eng->meta + block->before_hash - 1) : NULL;
}

void block_hash_add(const struct engine *eng, struct block *block)
{
	u64 hash = hash_of_block(block), *chain = bucket(eng, hash);

	block->next_hash = first_of(*chain);
	set_before(eng, block->next_hash, block);
	set_before(eng, block, NULL);
	*chain = chain_of(*chain | mark_of(hash), block);
}

/* Without a search: a guest can make chains long. */
void block_hash_remove(const struct engine *eng, struct block *block)
{
	u64 *chain = bucket(eng, hash_of_block(block));
	struct block *last = before(eng, block);

	set_before(eng, block->next_hash, last);
	if (last) {
		last->next_hash = block->next_hash;
		return;
	}
	must(first_of(*chain) == block);
	*chain = chain_of(*chain, block->next_hash);
}

/* Where there are few blocks, most of the table has never been touched. */
void block_hash_clear(const struct engine *eng)
{
	if (eng->nblocks > BLOCK_HASHES / 32) {
		bytes_fill(eng->by_hash, 0, BLOCK_HASHES * sizeof(*eng->by_hash));
		return;
	}
	for (u32 i = 0; i < eng->nblocks; i++)
		*bucket(eng, hash_of_block(eng->by_address[i])) = 0;
}
