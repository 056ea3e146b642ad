// SPDX-License-Identifier: MIT
/*
 * Loads and stores: forwarding from the store buffer, accesses that cross a line or a page, and
 * stores on their way to L1, where everything hits. Pure.
 */
#include "pipeline/priv.h"

#define LINE		64u
#define SPLIT_LATENCY	6 /* more, of a load that crosses a line */
#define PAGE_SPLIT_UOPS 6 /* more, on the load ports, of one that crosses a page */
#define FILL		0x0000000012340040ull /* what every 64 bits of memory hold */

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
		return s->from == DOMAIN_SLOW ? core->forward_vector : core->forward;
	return core->forward + (s->from == DOMAIN_INT && !core->amd ? 1 : 0);
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
		return core->split + PAGE_SPLIT_UOPS;
	return crosses(address, size, LINE) ? core->split : 0;
}

void pipe_load(struct pipe_work *w, const struct pipe_insn *insn, struct pipe_access *access)
{
	const struct pipe_store *s = NULL;
	u64 address = access->address;
	u32 at = pipe_start_load(w, address_ready(w, insn), address, insn->vector);

	access->done = at + insn->load_latency;
	for (u32 i = 0; i < split_uops(w->core, address, insn->mem.size); i++)
		pipe_start_load(w, at + 1, UNKNOWN_ADDRESS, insn->vector);
	if (crosses(address, insn->mem.size, LINE))
		access->done += SPLIT_LATENCY;
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
	const struct pipe_uop sta = { .ports = w->core->p_sta }, std = { .ports = w->core->p_std };
	u32 where = pipe_start(w, &sta, address_ready(w, insn));

	*data = pipe_start(w, &std, ready);
	return later(where, *data) + 1;
}

/* Stores leave in order after they retired: one a cycle, or two to the same line; one that crosses
 * lines takes two. */
static u32 commit(struct pipe_work *w, u64 address, u8 size)
{
	bool split = crosses(address, size, LINE);
	u64 line = address / LINE;
	u32 at = later(w->last_retired + 1, w->last_commit);

	if (at == w->last_commit && (split || line != w->last_line || w->commits == 2))
		at++;
	w->commits = at == w->last_commit ? w->commits + 1 : 1;
	if (split) {
		at++;
		w->commits = 2;
	}
	w->last_commit = at;
	w->last_line = line;
	return at;
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
