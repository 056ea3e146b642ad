// SPDX-License-Identifier: MIT
/*
 * The simulation: iterations of a block, instruction by instruction, through front end, renaming,
 * ports, memory and retirement; and once more on an ideal core, where dependencies alone cost time,
 * for the latency bound of bounds.c. Pure: all state is the caller's `struct pipe_work`.
 */
#include "pipeline/priv.h"

#include "base/bytes.h"

#define RSP 4

size_t pipe_work_size(void)
{
	return sizeof(struct pipe_work);
}

/* --- renaming --- */

/* Nothing to execute: the result is there as soon as its inputs are. */
static bool is_renamed(const struct pipe_work *w, const struct pipe_insn *insn, u32 position)
{
	switch (insn->idiom) {
	case IDIOM_NOP:
	case IDIOM_ZERO:
		return true;
	case IDIOM_MOVE:
		return w->ideal || position < w->core->moves;
	case IDIOM_ADD:
		return w->core->folds_adds;
	default:
		return false;
	}
}

/* RSP is read or written otherwise after PUSH or POP: Intel's stack engine inserts a uop that adds
 * its offset. */
static void synchronize_stack(struct pipe_work *w)
{
	const struct pipe_uop uop = { .ports = w->core->p_alu };

	pipe_issue(w);
	if (!w->core->folds_adds)
		w->ready[RSP] = pipe_start(w, &uop, w->ready[RSP]) + 1;
	w->stack_moved = false;
	pipe_retire(w, w->ready[RSP]);
}

/* --- execution --- */

static bool multiplies(const struct pipe_core *core, u8 domain)
{
	return domain == DOMAIN_MUL || domain == DOMAIN_FLOAT ||
	       (domain == DOMAIN_ADDER && !core->fast_adds);
}

static bool is_float(u8 domain)
{
	return domain == DOMAIN_FLOGIC || domain == DOMAIN_FLOAT || domain == DOMAIN_ADDER;
}

static bool is_vector_integer(u8 domain)
{
	return domain == DOMAIN_SHUFFLE || domain == DOMAIN_VECTOR || domain == DOMAIN_MUL;
}

/* Zen 3: a cycle more between vector units of integers and of floating point, whatever they do. */
static bool crosses_domains(u8 from, u8 to)
{
	return (is_float(from) && is_vector_integer(to)) ||
	       (is_vector_integer(from) && is_float(to));
}

/* When the instruction may use what was written there: it takes longer between units of different
 * kinds. */
static u32 usable(const struct pipe_work *w, const struct pipe_insn *insn, u8 place)
{
	u8 from = w->domain[place], to = insn->domain;
	u32 ready = w->ready[place];

	if (w->core->fast_adds && from == DOMAIN_ADDER && to == DOMAIN_ADDER)
		return ready - 1;
	if (w->core->amd)
		return ready + (w->core->slow_crossings && crosses_domains(from, to));
	if ((from == DOMAIN_VECTOR || from == DOMAIN_FLOGIC) && multiplies(w->core, to))
		return ready + 1;
	return ready;
}

/* Cycles from which the first uop, and the last one, may start. */
struct inputs {
	u32 first, last;
};

static bool writes(const struct pipe_insn *insn, u8 place)
{
	for (u32 i = 0; i < insn->writes.n; i++)
		if (insn->writes.at[i] == place)
			return true;
	return false;
}

/* Zen 4's LEA of three parts adds the index last. */
bool pipe_enters_late(const struct pipe_core *core, const struct pipe_insn *insn, u8 place)
{
	if (core->late_index && insn->mnemonic == ZYDIS_MNEMONIC_LEA && insn->uops > 1)
		return place == insn->mem.index && place != insn->mem.base;
	return insn->shape == SHAPE_LATE && writes(insn, place);
}

static struct inputs find_inputs(const struct pipe_work *w, const struct pipe_insn *insn)
{
	struct inputs in = { 0, 0 };

	if (insn->idiom == IDIOM_ZERO || insn->idiom == IDIOM_ONES)
		return in;
	for (u32 i = 0; i < insn->reads.n; i++) {
		u8 place = insn->reads.at[i];
		u32 *when = pipe_enters_late(w->core, insn, place) ? &in.last : &in.first;

		*when = later(*when, usable(w, insn, place));
	}
	return in;
}

/* Shifters cannot add what renaming left to be added: another unit does both. */
static bool shifts_folded(const struct pipe_work *w, const struct pipe_insn *insn)
{
	if (!insn->shifts)
		return false;
	for (u32 i = 0; i < insn->reads.n; i++)
		if (w->domain[insn->reads.at[i]] == DOMAIN_FOLDED)
			return true;
	return false;
}

/* Gives when the result is there; `first`: that of the first uop. */
static u32 execute(struct pipe_work *w, const struct pipe_insn *insn, const struct inputs *in,
		   u32 *first)
{
	bool folded = shifts_folded(w, insn);
	u32 last = in->first, all = in->first;

	for (u32 i = 0; i < insn->uops; i++) {
		const struct pipe_uop *uop = folded ? &w->core->folded_shift : &insn->uop[i];
		bool is_last = i + 1 == insn->uops;
		u32 from = in->first, done;

		if (insn->shape == SHAPE_CHAIN || insn->shape == SHAPE_LATE)
			from = last;
		else if (insn->shape == SHAPE_TREE && is_last)
			from = all;
		if (is_last)
			from = later(from, in->last);
		done = pipe_start(w, uop, from) + uop->latency;
		if (!i)
			*first = done;
		last = done;
		all = later(all, done);
	}
	return insn->shape == SHAPE_WIDE ? *first : last;
}

/* A move that renaming did is the same result; an addition is marked. */
static u8 domain_of(const struct pipe_work *w, const struct pipe_insn *insn, bool renamed)
{
	if (renamed && insn->idiom == IDIOM_ADD)
		return DOMAIN_FOLDED;
	if (renamed && insn->idiom == IDIOM_MOVE)
		return w->domain[insn->reads.at[0]];
	return insn->domain;
}

static void set_places(struct pipe_work *w, const struct pipe_insn *insn, u8 domain, u32 done,
		       u32 first)
{
	for (u32 i = 0; i < insn->writes.n; i++) {
		u8 place = insn->writes.at[i];

		w->ready[place] = insn->low_first && place == PLACE_GPR ? first : done;
		w->domain[place] = domain;
		if (place < PLACE_VEC)
			w->written[place] = w->slot + 1;
	}
}

/* --- one instruction --- */

static void wait_for_slot(struct pipe_work *w, const struct pipe_insn *insn)
{
	if (insn->touches_rsp && w->stack_moved)
		synchronize_stack(w);
	w->deliver = later(w->deliver, pipe_buffer_free(w, insn));
	pipe_begin_slots(w, insn->slots);
	if (insn->mnemonic == ZYDIS_MNEMONIC_VZEROUPPER && w->core->zeroupper_first && w->used)
		w->deliver = later(w->deliver, w->cycle + 1);
}

static void take_slots(struct pipe_work *w, const struct pipe_insn *insn, u32 done)
{
	if (!insn->slots)
		return;
	pipe_retire(w, done);
	for (u32 i = 1; i < insn->slots; i++) {
		pipe_issue(w);
		pipe_retire(w, done);
	}
	pipe_end_slots(w, insn->slots);
}

/* Where the stored data is from: this instruction's uop, or the register that it stores. */
static u8 origin(const struct pipe_work *w, const struct pipe_insn *insn)
{
	if (insn->uops)
		return insn->domain;
	for (u32 i = 0; i < insn->reads.n; i++)
		if (w->domain[insn->reads.at[i]] != DOMAIN_SLOW)
			return w->domain[insn->reads.at[i]];
	return DOMAIN_SLOW;
}

static void step(struct pipe_work *w, const struct pipe_insn *insn)
{
	struct pipe_access access = { .address = UNKNOWN_ADDRESS };
	struct inputs in;
	u32 position, done, first = 0, data = 0;
	u8 from = DOMAIN_SLOW;
	bool renamed;

	wait_for_slot(w, insn);
	if (insn->load || insn->store)
		access.address = pipe_address(&w->values, insn);
	position = insn->slots ? pipe_issue(w) : 0;
	access.issued = w->cycle;
	access.slot = w->slot;
	in = find_inputs(w, insn);
	if (insn->store)
		from = origin(w, insn);
	if (insn->load) {
		pipe_load(w, insn, &access);
		in.first = later(in.first, access.done);
		w->loads++;
	}
	done = later(in.first, in.last);
	renamed = is_renamed(w, insn, position);
	if (insn->uops && !renamed)
		done = execute(w, insn, &in, &first);
	access.known = pipe_values_step(&w->values, insn, access.known ? &access.value : NULL,
					&access.value);
	set_places(w, insn, domain_of(w, insn, renamed), done, first);
	if (insn->store)
		done = pipe_store_uops(w, insn, done, &data);
	w->stack_moved |= insn->pushes || insn->pops;
	take_slots(w, insn, later(done, w->ideal ? 0 : w->cycle + 1));
	if (insn->load)
		w->load_retired[(w->loads - 1) % RING_LOADS] = w->last_retired;
	if (insn->store)
		pipe_remember_store(w, insn, &access, data, from);
}

/* --- blocks --- */

static void reset(struct pipe_work *w, const struct pipe_core *core, bool ideal, u64 at)
{
	bytes_fill(w, 0, ideal ? offsetof(struct pipe_work, busy) : sizeof(*w));
	w->core = core;
	w->ideal = ideal;
	w->front.at = at;
	w->front.block = at / core->fetch;
	pipe_values_reset(&w->values);
}

static void iterate(struct pipe_work *w, const struct pipe_block *block, bool decoded)
{
	u32 begin = w->cycle;

	for (u32 i = 0; i < block->count; i++) {
		const struct pipe_insn *insn = &block->insn[i];

		if (decoded)
			w->deliver = pipe_decode(&w->front, w->core, insn);
		else
			w->deliver = pipe_fetch_cached(&w->front, w->core, block, i);
		step(w, insn);
	}
	if (!block->loops)
		return;
	w->deliver = later(w->deliver, begin + 1); /* at most one taken branch a cycle */
	pipe_jump(&w->front, w->core, block->at);
}

#define SHORT_RUN 400 /* instructions: the measured blocks were repeated so often too */
#define LONG_RUN  1000

/* Stores that wait for the cache count: in the long run the buffer is full of them. */
static u32 finished(const struct pipe_work *w)
{
	return later(w->last_retired, w->ideal ? 0 : w->last_commit);
}

/* Cycles and slots of many iterations, less those of a few. */
static void run(struct pipe_work *w, const struct pipe_block *block, bool decoded,
		struct pipe_result *result)
{
	u32 few = (SHORT_RUN + block->count - 1) / block->count;
	u32 many = (LONG_RUN + block->count - 1) / block->count, begin = 0;
	u64 slots = 0;

	for (u32 i = 0; i < many; i++) {
		if (i == few) {
			begin = finished(w);
			slots = w->slot;
			bytes_fill(w->port_uops, 0, sizeof w->port_uops);
		}
		iterate(w, block, decoded);
	}
	result->ticks = (u64)(finished(w) - begin) * PIPE_TICKS / (many - few);
	result->slots = (w->slot - slots) * PIPE_TICKS / (many - few);
	for (u32 p = 0; p < PIPE_PORTS; p++)
		result->port[p] = (u64)w->port_uops[p] * PIPE_TICKS / (many - few);
}

/* The first half of them fills the chain of dependencies; the second half has its steady rate. */
#define LATENCY_ITERATIONS 8

u32 pipe_loop_latency(const struct pipe_core *core, const struct pipe_block *block,
		      struct pipe_work *work)
{
	u32 half = 0;

	reset(work, core, true, block->at);
	for (u32 i = 0; i < LATENCY_ITERATIONS; i++) {
		if (i == LATENCY_ITERATIONS / 2)
			half = finished(work);
		iterate(work, block, false);
	}
	return (finished(work) - half) * PIPE_TICKS / (LATENCY_ITERATIONS / 2);
}

void pipe_simulate(const struct pipe_core *core, const struct pipe_block *block, bool decoded,
		   struct pipe_work *work, struct pipe_result *result)
{
	struct pipe_result ideal;

	reset(work, core, true, block->at);
	run(work, block, false, &ideal);
	reset(work, core, false, block->at);
	decoded = decoded || pipe_is_uncacheable(core, block->insn, block->count, block->at);
	run(work, block, decoded, result);
	result->decoded = decoded;
	pipe_bounds(core, block, ideal.ticks, result);
}
