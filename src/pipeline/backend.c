// SPDX-License-Identifier: MIT
/*
 * Issue, ports and retirement. One pass over the uops in program order gives the cycle in which
 * each of them issues, starts on a port, completes and retires. That is enough because older uops
 * have priority everywhere: a uop takes the first cycle of its port that the older ones left. Pure:
 * all state is the caller's.
 */
#include "pipeline/priv.h"

#define DIVIDER	     15u  /* its bit in busy[], beside the ports */
#define RING_RESERVE 256u /* cycles at the end of the ring for an operation of the divider */

/* --- issue and retirement --- */

static void next_cycle(struct pipe_work *w)
{
	u16 started = w->busy[w->cycle % RING_CYCLES];

	for (u32 p = 0; p < PIPE_PORTS && started >> p; p++)
		if (started >> p & 1) {
			w->pending[p]--;
			w->waiting--;
		}
	w->busy[w->cycle % RING_CYCLES] = 0;
	w->banks[w->cycle % RING_CYCLES] = 0;
	w->cycle++;
	w->used = 0;
}

/* The slots of this cycle. */
static u32 width_now(const struct pipe_work *w)
{
	return w->core->width - (w->core->lost && w->cycle % w->core->lost == 0 ? 1u : 0u);
}

static bool may_issue(const struct pipe_work *w)
{
	const struct pipe_core *core = w->core;

	return w->used < width_now(w) && w->cycle >= w->deliver && w->waiting < core->scheduler &&
	       (w->slot < core->rob || w->retired[w->slot % core->rob] <= w->cycle);
}

/* Zen issues the slots of an instruction in one cycle, and more than two in cycles of their own. */
void pipe_begin_slots(struct pipe_work *w, u32 slots)
{
	if (w->core->amd && w->used && (slots > 2 || w->used + slots > width_now(w)))
		w->deliver = later(w->deliver, w->cycle + 1);
}

void pipe_end_slots(struct pipe_work *w, u32 slots)
{
	if (w->core->amd && slots > 2)
		w->used = w->core->width;
}

/* Takes the next slot; gives its position in the cycle. */
u32 pipe_issue(struct pipe_work *w)
{
	while (!w->ideal && !may_issue(w))
		next_cycle(w);
	return w->used++;
}

/* In order, so many slots a cycle. */
void pipe_retire(struct pipe_work *w, u32 complete)
{
	u32 at = later(complete, w->last_retired);

	if (!w->ideal && at == w->last_retired && w->retired_then == w->core->retire)
		at++;
	if (at != w->last_retired)
		w->retired_then = 0;
	w->retired_then++;
	w->last_retired = at;
	w->retired[w->slot++ % w->core->rob] = at;
}

/* --- ports --- */

/* The port is bound at issue, long before the uop starts, except on some ports of Zen (p_late): the
 * one with the fewest uops that wait for it. */
static u32 bind(const struct pipe_work *w, u16 ports)
{
	u32 best = PIPE_PORTS;

	for (u32 p = PIPE_PORTS; p-- > 0;)
		if (ports >> p & 1 && (best == PIPE_PORTS || w->pending[p] < w->pending[best]))
			best = p;
	return best;
}

static bool is_busy(const struct pipe_work *w, u32 cycle, u32 unit)
{
	return w->busy[cycle % RING_CYCLES] >> unit & 1;
}

static u32 ring_end(const struct pipe_work *w)
{
	return w->cycle + RING_CYCLES - RING_RESERVE;
}

/* The first cycle from `at` on in which the port is free, for two cycles if `twice`, and, if
 * needed, the divider for so many cycles. */
static u32 free_cycle(const struct pipe_work *w, u32 port, u32 at, u32 divider, bool twice)
{
	u32 last = ring_end(w);

	while (at < last) {
		u32 n = 0;

		while (n < divider && !is_busy(w, at + n, DIVIDER))
			n++;
		if (n == divider && !is_busy(w, at, port) && !(twice && is_busy(w, at + 1, port)))
			return at;
		at += n < divider ? n + 1 : 1;
	}
	return last;
}

static void take(struct pipe_work *w, u32 port, u32 at)
{
	w->port_uops[port]++;
	if (is_busy(w, at, port))
		return; /* the end of the ring */
	w->busy[at % RING_CYCLES] |= BIT(port);
	w->pending[port]++;
	w->waiting++;
}

/* The port on which it could start first; of several, the one with the fewest uops that wait. */
static u32 earliest(const struct pipe_work *w, const struct pipe_uop *uop, u32 from)
{
	u32 best = PIPE_PORTS, best_at = 0;

	for (u32 p = PIPE_PORTS; p-- > 0;) {
		u32 at;

		if (!(uop->ports >> p & 1))
			continue;
		at = free_cycle(w, p, from, uop->divider, uop->twice);
		if (best == PIPE_PORTS || at < best_at ||
		    (at == best_at && w->pending[p] < w->pending[best])) {
			best = p;
			best_at = at;
		}
	}
	return best;
}

/* Binds and starts a uop whose inputs are ready in that cycle; gives the cycle in which
 * it starts. */
u32 pipe_start(struct pipe_work *w, const struct pipe_uop *uop, u32 ready)
{
	u32 from = later(ready, w->cycle + w->core->delay), port, at;

	if (w->ideal)
		return ready;
	port = w->core->p_late & uop->ports ? earliest(w, uop, from) : bind(w, uop->ports);
	at = free_cycle(w, port, from, uop->divider, uop->twice);
	for (u32 i = 0; i < uop->divider; i++)
		w->busy[(at + i) % RING_CYCLES] |= BIT(DIVIDER);
	take(w, port, at);
	if (uop->twice)
		take(w, port, at + 1);
	return at;
}

#define BANK_LOADS 2u

static bool bank_is_full(const struct pipe_work *w, u32 at, u32 bank)
{
	return (w->banks[at % RING_CYCLES] >> bank & 3) >= BANK_LOADS;
}

u32 pipe_start_load(struct pipe_work *w, u32 ready, u64 address, const struct pipe_insn *insn)
{
	u32 from = later(ready, w->cycle + w->core->delay), port, at;
	u32 bank = 2 * (address / 4 % 16);
	bool banked = w->core->has_banks && address != UNKNOWN_ADDRESS;

	if (w->ideal)
		return ready;
	port = bind(w, insn->vector ? w->core->p_load_vector : w->core->p_load);
	at = free_cycle(w, port, from, 0, insn->twice);
	while (banked && at < ring_end(w) && bank_is_full(w, at, bank))
		at = free_cycle(w, port, at + 1, 0, insn->twice);
	if (banked && !bank_is_full(w, at, bank))
		w->banks[at % RING_CYCLES] += 1u << bank;
	take(w, port, at);
	if (insn->twice)
		take(w, port, at + 1);
	return at;
}
