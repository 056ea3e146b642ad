// SPDX-License-Identifier: MIT
/*
 * Chains of dependencies, as prices need them: through registers and flags, with loads that hit L1,
 * without stores that forward. An instruction is reduced to edges, each from a place that it reads,
 * with the latency from there to its results. Pure.
 */
#include "base/bytes.h"
#include "pipeline/priv.h"

#define RSP 4

/* --- edges --- */

/* What additions to RSP take is hidden by the stack engine, or short. */
static void add_edge(struct pipe_need *need, u8 place, u32 latency)
{
	if (place != PLACE_GPR + RSP && need->edges < PIPE_EDGES)
		need->edge[need->edges++] = (struct pipe_edge){ place, latency };
}

static u32 latency_of(const struct pipe_insn *insn)
{
	u32 last = insn->uop[insn->uops - 1].latency, others = 0;

	if (insn->shape == SHAPE_WIDE)
		return insn->uop[0].latency;
	for (u32 i = 0; i + 1 < insn->uops; i++)
		others = insn->shape == SHAPE_TREE ? later(others, insn->uop[i].latency)
						   : others + insn->uop[i].latency;
	return others + last;
}

void pipe_chain_edges(const struct pipe_core *core, const struct pipe_insn *insn, bool renamed,
		      struct pipe_need *need)
{
	u32 whole = insn->uops && !renamed ? latency_of(insn) : 0;
	bool is_new = insn->idiom == IDIOM_ZERO || insn->idiom == IDIOM_ONES;

	for (u32 i = 0; i < insn->writes.n && need->results < PIPE_RESULTS; i++)
		if (insn->writes.at[i] != PLACE_GPR + RSP)
			need->result[need->results++] = insn->writes.at[i];
	if (is_new || !need->results)
		return;
	for (u32 i = 0; i < insn->reads.n; i++) {
		u8 place = insn->reads.at[i];
		bool late = insn->uops && pipe_enters_late(core, insn, place);

		add_edge(need, place, late ? insn->uop[insn->uops - 1].latency : whole);
	}
	for (u32 i = 0; i < insn->address.n && insn->load; i++)
		add_edge(need, insn->address.at[i], whole + insn->load_latency);
}

/* --- straight-line code --- */

void pipe_chain_begin(struct pipe_chain *chain)
{
	chain->ends = 0;
}

static void add_end(struct pipe_chain *chain, u8 place)
{
	u32 i = 0;

	if (place == PLACE_FLAGS)
		return;
	while (i < chain->ends && chain->end[i] != place)
		i++;
	if (i < chain->ends || i == CHAIN_ENDS)
		return;
	chain->ends++;
	chain->end[i] = place;
	bytes_fill(chain->path[i], 0, sizeof(chain->path[i]));
	chain->path[i][place] = 1;
}

void pipe_chain_add(struct pipe_chain *chain, const struct pipe_need *need)
{
	for (u32 i = 0; i < need->results; i++)
		add_end(chain, need->result[i]);
	for (u32 end = 0; end < chain->ends; end++) {
		u16 *path = chain->path[end];
		u32 from_here = 0;

		for (u32 i = 0; i < need->results; i++) {
			from_here = later(from_here, path[need->result[i]]);
			path[need->result[i]] = 0;
		}
		for (u32 i = 0; from_here && i < need->edges; i++) {
			u32 length = from_here + need->edge[i].latency;
			u16 *known = &path[need->edge[i].place];

			*known = later(*known, length); /* a stretch has not as many cycles */
		}
	}
}

/* Chains that come back to a place after one turn, or after two. Longer ways round, as of variables
 * that are renamed from round to round, are not looked for. */
u32 pipe_chain_turn(const struct pipe_chain *chain)
{
	u32 halves = 0;

	for (u32 i = 0; i < chain->ends; i++) {
		const u16 *path = chain->path[i];

		if (path[chain->end[i]])
			halves = later(halves, 2 * (path[chain->end[i]] - 1u));
		for (u32 j = 0; j < i; j++) {
			u32 to = path[chain->end[j]], back = chain->path[j][chain->end[i]];

			if (to && back)
				halves = later(halves, to + back - 2);
		}
	}
	return halves * (PIPE_TICKS / 2);
}

/* --- loops --- */

/* The first half of them fills the chain; the second half has its steady rate. */
#define ITERATIONS 8

static u32 step(u32 *ready, const struct pipe_need *need)
{
	u32 done = 0;

	for (u32 i = 0; i < need->edges; i++)
		done = later(done, ready[need->edge[i].place] + need->edge[i].latency);
	for (u32 i = 0; i < need->results; i++)
		ready[need->result[i]] = done;
	return done;
}

u32 pipe_chain_loop(const struct pipe_piece *piece, u32 n)
{
	u32 ready[PIPE_PLACES], last = 0, half = 0;

	bytes_fill(ready, 0, sizeof(ready));
	for (u32 turn = 0; turn < ITERATIONS; turn++) {
		if (turn == ITERATIONS / 2)
			half = last;
		for (u32 i = 0; i < n; i++)
			last = later(last, step(ready, piece[i].need));
	}
	return (last - half) * PIPE_TICKS / (ITERATIONS / 2);
}
