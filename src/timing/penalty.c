// SPDX-License-Identifier: MIT
/*
 * Full timing: what misses and mispredictions cost, by an interval model (Karkhanis and Smith, ISCA
 * 2004; Eyerman et al., TOCS 2009).
 *
 * The problem. A processor executes out of order: a load that misses stalls it only when the
 * reorder buffer is full of younger instructions, other misses of these overlap with it, and a miss
 * whose address another miss loads does not. But a count of cycles must be right after each
 * instruction, so that a stall has to be charged at once, to the instruction that causes it.
 *
 * The idea. Each load that misses has a time at which its data is ready. The processor can hide the
 * time in which the reorder buffer fills, hidden(); what is beyond `now` plus that is the stall,
 * and is charged. The instructions that follow in the reorder buffer have in truth entered before
 * the stall: `early` says by how much, so that their misses begin where they would and mostly cost
 * nothing more. Delays of the front end use up that time first, too.
 *
 * A mispredicted branch that waits for a load lets the wrong path run until the reorder buffer is
 * full. Mostly both paths meet again after a few instructions: the loads that follow have then been
 * executed on the wrong path, and are under way when the right one comes to them (`lead`). Where an
 * address does depend on the branch this is too good, and on the load it is seen by value.
 *
 * Invariants:
 *
 *  1. After a charge no data is ready later than now + hidden(): times are bounded.
 *  2. State changes with events only, which come in the order of retirement, and by `now` and
 *     `insns`, which do not depend on how code is cut.
 *
 * Whether one miss has loaded the address of another is guessed from values: of a load that missed
 * the line is read from guest memory, by a guarded access to its host address (remember()).
 *
 * vCPU thread; general registers only.
 */
#include "base/bytes.h"
#include "base/guarded.h"
#include "base/must.h"
#include "timing/cause.h"
#include "timing/params.h"

#define TICKS(cycles) ((u64)(cycles) * TICKS_PER_CYCLE)

/* Values of a line that are so near to an address are pointers to it. */
#define NEAR_POINTER 2048u
/* A branch so few instructions after a load that missed is taken to depend on it. */
#define NEAR_LOAD    16u
/* Hiding takes a scheduler as well, which fills up with what waits for the load. */
#define HIDDEN_MOST  TICKS(400)
/* A line that is stored to takes some entries of the store buffer; some are always needed. */
#define STORES_LINE  4u
#define STORES_KEPT  8u
/* Stores begin to fetch their lines while older ones wait, but for so many at most. */
#define STORE_FILLS  10u
/* Code is decoded ahead of execution: so much of a hit of the second level is not seen. */
#define FETCH_HIDDEN 6u
/* Lines of straight-line code are fetched ahead, so many at once. */
#define FETCH_AHEAD  12u

/* After a misprediction the reorder buffer is empty. What comes then finds no older instructions to
 * overlap with, and the next misprediction waits for its chain of dependencies: each instruction
 * between the two costs so much more, but for the first few, and up to a number. */
#define RAMP_FIRST 12u
#define RAMP_INSNS 60u
#define RAMP_TICKS (TICKS_PER_CYCLE * 2 / 5)
/* Instructions: more than a reorder buffer holds, and than RAMP_FIRST + RAMP_INSNS. */
#define LONG_AGO   BIT(16)
/* String instructions, and all that is wider than a line, store 30 bytes in a cycle. */
#define BYTE_TICKS (TICKS_PER_CYCLE / 30)

#define STORES_AT_ONCE(fills) ((fills) < STORE_FILLS ? (fills) : STORE_FILLS)

/* Divisions are done here. */
static const struct penalty_params params[] = {
#define PENALTY(set, reorder, width, fills, ...) \
	{ set,                                   \
	  reorder,                               \
	  width,                                 \
	  fills,                                 \
	  __VA_ARGS__,                           \
	  .insn = TICKS_PER_CYCLE / (width),     \
	  .store = TICKS_PER_CYCLE / STORES_AT_ONCE(fills) },
#include "timing/penalties.def"
#undef PENALTY
};

#define PENALTY(set, reorder, width, fills, ...)                                                   \
	_Static_assert(!(TICKS_PER_CYCLE % (width)) && !(TICKS_PER_CYCLE % STORES_AT_ONCE(fills)), \
		       "nothing is lost by dividing first");
#include "timing/penalties.def"
#undef PENALTY

const struct penalty_params *penalty_params_of(enum model_set set)
{
	for (u32 i = 0; i < ARRAY_SIZE(params); i++)
		if (params[i].set == set)
			return &params[i];
	must(!"a row for each model");
	return NULL;
}

static u64 most(u64 a, u64 b)
{
	return a > b ? a : b;
}

static u64 least(u64 a, u64 b)
{
	return a < b ? a : b;
}

/* The caller says what it is blamed on: cause.h. */
static void charge(struct timing *t, u64 ticks)
{
	struct penalty *p = &t->penalty;

	t->count[RETIRE_CYCLES] += ticks;
	t->count[RETIRE_STALLS] += ticks;
	p->now += ticks;
	p->total += ticks;
}

void penalty_begin(struct timing *t)
{
	bytes_fill(&t->penalty, 0, sizeof(t->penalty));
}

/* The processor's tallies are of its whole life. What is behind it here, as far as it matters, is
 * long ago. */
static void place(struct penalty *p, u64 ticks, u64 insns)
{
	p->placed = true;
	p->rate_insns = insns;
	p->rate_ticks = p->aged = ticks;
	p->window = insns - LONG_AGO;
	p->restarted = insns - LONG_AGO;
}

void penalty_at(struct timing *t, u64 ticks, u64 insns)
{
	if (unlikely(!t->penalty.placed))
		place(&t->penalty, ticks, insns);
	t->penalty.now = ticks;
	t->penalty.insns = insns;
}

static inline u64 entered(struct timing *t)
{
	return penalty_entered(&t->penalty, t->costs);
}

static inline u64 begun(struct timing *t)
{
	return penalty_begun(&t->penalty, t->costs);
}

/* Entry of the next instructions is delayed until a time. Returns what was charged. */
static u64 delay(struct timing *t, u64 until)
{
	struct penalty *p = &t->penalty;
	u64 ticks = until > p->now ? until - p->now : 0;

	charge(t, ticks);
	p->early = p->now - until;
	return ticks;
}

/* --- loads --- */

/* The time in which the reorder buffer fills. */
static u64 hidden(struct timing *t)
{
	const struct penalty_params *costs = t->costs;
	struct penalty *p = &t->penalty;
	u64 insns = p->insns - p->rate_insns, ticks = p->now - p->total;

	if (insns >= costs->reorder) {
		p->rate = (ticks - p->rate_ticks) / insns;
		p->rate_insns = p->insns;
		p->rate_ticks = ticks;
	}
	return least(costs->reorder * most(p->rate, costs->insn), HIDDEN_MOST);
}

static inline bool points_to(const struct penalty_load *load, u64 linear)
{
	for (u32 i = 0; i < LINE_WORDS; i++)
		if (linear - load->word[i] + NEAR_POINTER < 2 * NEAR_POINTER)
			return true;
	return false;
}

/* When the address was known, at a time or later: it may be what a load that missed has loaded, or
 * be computed from that. */
static u64 address_ready(struct penalty *p, u64 linear, u64 at)
{
	u64 ready = at;

	for (u32 i = 0; i < PENALTY_LOADS; i++) {
		const struct penalty_load *load = &p->load[i];

		if (p->ready[i] <= at)
			continue;
		/* chain_follows() learns, whatever comes of it. */
		if (chain_follows(&p->chain, linear, load->value) ||
		    (p->ready[i] > ready && points_to(load, linear)))
			ready = most(ready, p->ready[i]);
	}
	return ready;
}

/* Of a line that was read, the bytes that were loaded. */
static u64 value_of(const struct penalty_load *load, u32 offset, u32 size)
{
	u32 word = offset / 8, shift = offset % 8 * 8;
	u64 value;

	if (size > sizeof(value) || offset + size > sizeof(load->word))
		return 0;
	value = load->word[word] >> shift;
	if (shift + 8 * size > 64)
		value |= load->word[word + 1] << (64 - shift);
	return size < sizeof(value) ? value & (BIT(8 * size) - 1) : value;
}

static void remember(struct penalty *p, const struct timing_access *a, u32 offset, u8 level,
		     u64 ready)
{
	u32 i = p->next_load++ % PENALTY_LOADS;
	struct penalty_load *load = &p->load[i];
	u64 host = a->host + offset, line = host & ~(u64)(LINE_SIZE - 1);

	p->ready[i] = ready;
	load->level = level;
	load->insn = p->insns;
	if (!guarded_read_line(load->word, (const void *)(uintptr_t)line))
		bytes_fill(load->word, 0, sizeof(load->word));
	load->value = offset ? 0 : value_of(load, (u32)(host - line), a->size);
}

static inline u64 line_begins(struct timing *t, u8 level, u64 at)
{
	return penalty_line_begins(&t->penalty, t->costs, level, at);
}

static u64 filled(struct timing *t, u64 line, u8 level, u64 at, u16 latency)
{
	struct penalty *p = &t->penalty;
	u64 *fill = &p->fill[p->next_fill], arrival = penalty_arrival(p, line);

	if (level == OBSERVED_L1)
		return most(at + TICKS(latency), arrival);
	at = line_begins(t, level, most(at, *fill));
	p->next_fill = p->next_fill + 1 < t->costs->fills ? p->next_fill + 1 : 0;
	return *fill = most(at + TICKS(latency), arrival);
}

static void load_missed(struct timing *t, const struct timing_access *a, u32 offset, u8 level,
			u16 latency)
{
	struct penalty *p = &t->penalty;
	u64 begins = address_ready(p, a->linear + offset, begun(t));
	u64 ready = filled(t, (a->physical + offset) >> LINE_SHIFT, level, begins, latency);
	u64 limit = p->now + hidden(t);

	if (ready > limit) {
		charge(t, ready - limit);
		cause_load(t, ready - limit, level);
		p->early += ready - limit;
	}
	remember(p, a, offset, level, ready);
}

/* --- stores --- */

static void store_missed(struct timing *t, u64 line, u8 level, u16 latency)
{
	const struct penalty_params *costs = t->costs;
	struct penalty *p = &t->penalty;
	u64 takes = (u64)latency * costs->store;
	u64 room = (costs->stores - STORES_KEPT) / STORES_LINE * takes;

	p->stores_done = most(p->stores_done, p->now);
	if (level != OBSERVED_L1)
		p->stores_done = line_begins(t, level, p->stores_done) + takes;
	p->stores_done = most(p->stores_done, penalty_arrival(p, line));
	if (p->stores_done > p->now + room) {
		cause_store(t, p->stores_done - p->now - room);
		charge(t, p->stores_done - p->now - room);
	}
}

void penalty_data(struct timing *t, const struct timing_access *a, u32 offset, u8 level,
		  u16 latency)
{
	u64 line = (a->physical + offset) >> LINE_SHIFT;

	if (a->store)
		store_missed(t, line, level, latency);
	else
		load_missed(t, a, offset, level, latency);
}

/* The processor compares addresses within pages: it takes the copy for one that overlaps. */
static bool aliases(const struct timing *t, const struct timing_access *a)
{
	u64 distance = (a->linear - t->penalty.copied) & (PAGE_SIZE - 1);

	return t->penalty.copier == t->penalty.insns && distance && distance < t->costs->alias;
}

void penalty_bytes(struct timing *t, const struct timing_access *a)
{
	struct penalty *p = &t->penalty;
	u64 ticks;

	if (!a->store) {
		p->copied = a->linear;
		p->copier = p->insns;
		return;
	}
	ticks = aliases(t, a) ? TICKS(a->size) : (u64)a->size * BYTE_TICKS;
	charge(t, ticks);
	cause_string(t, ticks);
}

/* --- prefetches --- */

/* The lines take their places among the lines when the load does, but the wrong path asks for none:
 * searches, where that is another one, would find all lines that they need next. */
void penalty_prefetched(struct timing *t)
{
	struct penalty *p = &t->penalty;
	u64 at = entered(t), begins = begun(t);

	for (u32 i = 0; i < p->nasked; i++)
		penalty_arrives(p, t->costs, t->params->latency, p->asked[i].line,
				p->asked[i].level, begins, at);
	p->nasked = 0;
}

/* --- the front end --- */

/* Addresses are translated before lines are fetched, and not ahead. */
void penalty_fetch(struct timing *t, u64 line, u8 level, u16 cycles, u16 translation)
{
	struct penalty *p = &t->penalty;
	u64 ticks = TICKS(cycles);
	bool ahead = p->code_line && line == p->code_line;

	if (level == OBSERVED_L2)
		ticks -= least(ticks, TICKS(FETCH_HIDDEN));
	if (ahead)
		ticks /= FETCH_AHEAD;
	if (level != OBSERVED_L1)
		p->code_line = line + 1;
	cause_fetch(t, delay(t, entered(t) + TICKS(translation) + ticks), ahead ? ticks : 0);
}

static u64 ramp(const struct penalty *p)
{
	u64 insns = p->insns - p->restarted;

	return insns > RAMP_FIRST ? least(insns - RAMP_FIRST, RAMP_INSNS) * RAMP_TICKS : 0;
}

/* The right path begins so many ticks after the wrong one did. If the branch waits for a load, the
 * wrong path has filled the reorder buffer meanwhile. */
static void run_ahead(struct timing *t, u64 ticks, bool waits, u64 load)
{
	struct penalty *p = &t->penalty;

	if (p->insns < p->lead_until) {
		p->lead += ticks;
	} else if (waits) {
		p->lead = ticks;
		p->lead_until = load + t->costs->reorder;
	}
}

void penalty_branch(struct timing *t)
{
	struct penalty *p = &t->penalty;
	u32 i = (p->next_load - 1) % PENALTY_LOADS;
	const struct penalty_load *last = &p->load[i];
	u64 at = entered(t), resolved = at + TICKS(t->costs->resolve);
	bool waits = p->insns - last->insn < NEAR_LOAD && p->ready[i] > resolved;

	if (waits)
		resolved = p->ready[i];
	resolved += ramp(p);
	p->restarted = p->insns;
	run_ahead(t, resolved + TICKS(t->costs->refill) - at, waits, last->insn);
	cause_branch(t, delay(t, resolved + TICKS(t->costs->refill)), waits ? last->level : 0);
}
