// SPDX-License-Identifier: MIT
/*
 * Loads and stores: forwarding from the store buffer, accesses that cross a line or a page, and
 * stores on their way to L1, where everything hits. Pure.
 */
#include "pipeline/priv.h"

#define LINE 64u
#define FILL 0x0000000012340040ull /* what every 64 bits of memory hold */

static u64 filled(u64 address)
{
	u32 turn = 8 * (address & 7);

	return turn ? FILL >> turn | FILL << (64 - turn) : FILL;
}

static const struct pipe_store *find_store(const struct pipe_work *w, u64 address, u8 size)
{
	u32 n = w->stores < w->core->stores ? w->stores : w->core->stores;

	for (u32 i = 1; i <= n; i++) {
		const struct pipe_store *s = &w->store[(w->stores - i) % RING_STORES];

		if (s->address < address + size && address < s->address + s->size)
			return s;
	}
	return NULL;
}

static bool contains(const struct pipe_store *s, u64 address, u8 size)
{
	return s->address <= address && address + size <= s->address + s->size;
}

static bool crosses(u64 address, u8 size, u32 unit)
{
	return address != UNKNOWN_ADDRESS && (address & (unit - 1)) + size > unit;
}

/* Results of one cycle take longer than others; vectors take longer if they were loaded. */
static u32 forward_latency(const struct pipe_core *core, const struct pipe_insn *insn,
			   const struct pipe_store *s)
{
	if (insn->vector)
		return s->from == DOMAIN_SLOW || core->amd ? core->forward_vector : core->forward;
	return core->forward + (s->from == DOMAIN_INT && !core->amd ? 1 : 0);
}

static bool was_written(const struct pipe_work *w, u8 place, u64 since)
{
	return place != NO_PLACE && w->written[place] > since;
}

/* By the same registers, which hold what they held then, and the same constants. What RSP is moved
 * by is known while renaming. */
static bool names_same_address(const struct pipe_work *w, const struct pipe_store *s,
			       const struct pipe_mem *mem)
{
	if (s->mem.base != mem->base || s->mem.index != mem->index || s->mem.scale != mem->scale)
		return false;
	if (mem->base == PLACE_GPR + 4 && mem->index == NO_PLACE)
		return true;
	return s->mem.disp == mem->disp && !was_written(w, mem->base, s->slot) &&
	       !was_written(w, mem->index, s->slot);
}

/* A load that needs bytes of a store. `done`: when it would have them from the cache. */
static u32 forward(const struct pipe_work *w, const struct pipe_insn *insn, u64 address,
		   const struct pipe_store *s, u32 done)
{
	const struct pipe_core *core = w->core;
	bool whole = contains(s, address, insn->mem.size);

	/* Golden Cove gives the stored register itself to a load of the same address; to RMW not in
	 * the same cycle. */
	if (core->renames_memory && s->address == address && whole && insn->plain_address &&
	    s->plain && (!insn->store || w->cycle > s->issued))
		return later(s->data, w->cycle + core->delay);
	/* Zen does so for [RSP + constant]: it knows the address before RSP has its value. */
	if (core->renames_stack && s->address == address && whole && insn->plain_address &&
	    s->plain)
		return later(s->data, w->cycle + core->delay);
	/* Zen 4 does for any registers, if load and store name the same. */
	if (core->renames_addresses && s->address == address && whole && insn->plain_address &&
	    s->plain && names_same_address(w, s, &insn->mem))
		return later(s->data, w->cycle + core->delay);
	if (whole)
		return later(done, s->data + forward_latency(core, insn, s));
	/* It also completes a load that begins where a shorter store does, without waiting for the
	 * cache. */
	if (core->renames_memory && s->address == address)
		return later(done, s->data + core->blocked);
	return later(done, s->commit + core->blocked);
}

static u32 address_ready(const struct pipe_work *w, const struct pipe_insn *insn)
{
	u32 ready = 0;

	for (u32 i = 0; i < insn->address.n; i++)
		ready = later(ready, w->ready[insn->address.at[i]]);
	return ready;
}

/* More uops on the load ports. */
static u32 split_uops(const struct pipe_core *core, u64 address, u8 size)
{
	if (crosses(address, size, PAGE_SIZE))
		return core->split + core->page_split;
	return crosses(address, size, LINE) ? core->split : 0;
}

void pipe_load(struct pipe_work *w, const struct pipe_insn *insn, struct pipe_access *access)
{
	const struct pipe_store *s = NULL;
	u64 address = access->address;
	u32 at = pipe_start_load(w, address_ready(w, insn), address, insn);

	access->done = at + insn->load_latency;
	for (u32 i = 0; i < split_uops(w->core, address, insn->mem.size); i++)
		pipe_start_load(w, at + 1, UNKNOWN_ADDRESS, insn);
	if (crosses(address, insn->mem.size, LINE))
		access->done += w->core->split_latency;
	access->known = address != UNKNOWN_ADDRESS;
	access->value = filled(address);
	if (access->known)
		s = find_store(w, address, insn->mem.size);
	if (!s)
		return;
	access->known = s->known && contains(s, address, insn->mem.size);
	access->value = s->value >> 8 * ((address - s->address) & 7);
	if (s->commit > at)
		access->done = forward(w, insn, address, s, access->done);
}

/* Store address and store data; gives when both are done. */
u32 pipe_store_uops(struct pipe_work *w, const struct pipe_insn *insn, u32 ready, u32 *data)
{
	const struct pipe_uop sta = { .ports = w->core->p_sta }, std = {
		.ports = insn->vector ? w->core->p_std_vector : w->core->p_std, .twice = insn->twice
	};
	u32 where = pipe_start(w, &sta, address_ready(w, insn));

	*data = pipe_start(w, &std, ready);
	return later(where, *data) + 1;
}

/* --- stores on their way to L1 --- */

#define ECC_WINDOW 4u /* cycles */
#define ECC_STALL  3u

/* Words of 4 bytes, by the lowest bit of each, of which some byte is written, or only a part. */
static u64 words_of(u64 bytes)
{
	return (bytes | bytes >> 1 | bytes >> 2 | bytes >> 3) & 0x1111111111111111ull;
}

static u64 partial_words(u64 bytes)
{
	return words_of(bytes) & ~(bytes & bytes >> 1 & bytes >> 2 & bytes >> 3);
}

static struct pipe_group *group_at(struct pipe_work *w, u32 number)
{
	return &w->group[number % RING_GROUPS];
}

static bool was_just_written(struct pipe_work *w, const struct pipe_group *group, u64 words)
{
	for (u32 i = 1; words && i < RING_GROUPS && i <= w->groups; i++) {
		const struct pipe_group *older = group_at(w, w->groups - i);

		if (older->unit == group->unit && words & words_of(older->bytes) &&
		    group->at - older->at <= ECC_WINDOW)
			return true;
	}
	return false;
}

/*
 * Stores that follow one another to one unit of the cache leave as a group. Zen's cache has a check
 * code for each word: a group that writes a part of one reads the rest. If an older group that
 * wrote the word is still on its way, this one and all after it wait.
 */
static void close_group(struct pipe_work *w)
{
	struct pipe_group *group = group_at(w, w->groups);

	if (w->core->checks_words && was_just_written(w, group, partial_words(group->bytes))) {
		group->at += ECC_STALL;
		w->last_commit += ECC_STALL;
	}
	w->groups++;
}

static void add_to_group(struct pipe_work *w, u64 address, u8 size, bool joins)
{
	u32 unit = w->core->store_unit, first = address & (unit - 1);
	u32 n = first + size > unit ? unit - first : size;
	struct pipe_group *group = group_at(w, w->groups);

	if (!joins)
		*group = (struct pipe_group){ .unit = address / unit, .at = w->last_commit };
	if (address != UNKNOWN_ADDRESS)
		group->bytes |= (n == 64 ? ~0ull : BIT(n) - 1) << first;
}

/* In order after they retired: one a cycle, or two to the same unit, or on Zen a group; one that
 * crosses units takes two cycles. */
static u32 commit(struct pipe_work *w, u64 address, u8 size)
{
	u32 unit = w->core->store_unit;
	bool split = crosses(address, size, unit), joins = address / unit == w->last_unit;
	u32 at;

	if (w->core->groups_stores && !joins)
		close_group(w);
	at = later(w->last_retired + 1, w->last_commit);
	if (at == w->last_commit &&
	    (!joins || (!w->core->groups_stores && (split || w->commits == 2))))
		at++;
	w->commits = at == w->last_commit ? w->commits + 1 : 1;
	w->last_commit = at;
	w->last_unit = address / unit;
	add_to_group(w, address, size, joins);
	if (!split)
		return at;
	w->commits = 2;
	if (w->core->groups_stores) {
		close_group(w);
		w->last_unit++;
	}
	w->last_commit++;
	if (w->core->groups_stores)
		add_to_group(w, w->last_unit * unit, (u8)(address + size - w->last_unit * unit),
			     false);
	return w->last_commit;
}

void pipe_remember_store(struct pipe_work *w, const struct pipe_insn *insn,
			 const struct pipe_access *access, u32 data, u8 from)
{
	w->store[w->stores++ % RING_STORES] = (struct pipe_store){
		.address = access->address,
		.value = access->value,
		.issued = access->issued,
		.data = data,
		.commit = commit(w, access->address, insn->mem.size),
		.size = insn->mem.size,
		.known = access->known,
		.plain = insn->plain_address,
		.from = from,
		.mem = insn->mem,
		.slot = access->slot,
	};
}

u32 pipe_buffer_free(const struct pipe_work *w, const struct pipe_insn *insn)
{
	const struct pipe_core *core = w->core;
	u32 at = 0;

	if (insn->store && w->stores >= core->stores)
		at = w->store[(w->stores - core->stores) % RING_STORES].commit;
	if (insn->load && w->loads >= core->loads)
		at = later(at, w->load_retired[(w->loads - core->loads) % RING_LOADS]);
	return at;
}
