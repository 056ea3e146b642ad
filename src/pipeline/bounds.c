// SPDX-License-Identifier: MIT
/*
 * What each part of the core alone would allow. The largest of these bounds is the bottleneck; the
 * simulation is at or above it, because uops are bound to ports before it is known when they start.
 * price.c uses the bound of the ports, too. Pure.
 */
#include "pipeline/priv.h"

#define PORT_SETS 32

struct port_sets {
	u32 n;
	struct pipe_use set[PORT_SETS];
};

static void add_uop(struct port_sets *sets, u16 ports, bool twice)
{
	u32 i = 0;

	while (i < sets->n && sets->set[i].ports != ports)
		i++;
	if (i == PORT_SETS || !ports)
		return;
	if (i == sets->n) {
		sets->set[i].ports = ports;
		sets->set[sets->n++].uops = 0;
	}
	sets->set[i].uops += twice ? 2 : 1;
}

bool pipe_needs_port(const struct pipe_core *core, const struct pipe_insn *insn)
{
	switch (insn->idiom) {
	case IDIOM_NOP:
	case IDIOM_ZERO:
	case IDIOM_MOVE:
		return false;
	case IDIOM_ADD:
		return !core->folds_adds;
	default:
		return true;
	}
}

static void collect(const struct pipe_core *core, const struct pipe_block *block,
		    struct port_sets *sets)
{
	for (u32 i = 0; i < block->count; i++) {
		const struct pipe_insn *insn = &block->insn[i];

		for (u32 u = 0; u < insn->uops && pipe_needs_port(core, insn); u++)
			add_uop(sets, insn->uop[u].ports, insn->uop[u].twice);
		if (insn->load)
			add_uop(sets, insn->vector ? core->p_load_vector : core->p_load,
				insn->twice);
		if (insn->store) {
			add_uop(sets, core->p_sta, false);
			add_uop(sets, insn->vector ? core->p_std_vector : core->p_std, insn->twice);
		}
	}
}

static u32 count_ports(u16 ports)
{
	u32 n = 0;

	for (; ports; ports &= ports - 1)
		n++;
	return n;
}

/* Uops that cannot leave these ports, shared evenly by them. */
u32 pipe_confined(const struct pipe_use *sets, u32 n, u16 ports)
{
	u32 uops = 0;

	for (u32 i = 0; i < n; i++)
		if (!(sets[i].ports & ~ports))
			uops += sets[i].uops;
	return uops * PIPE_TICKS / count_ports(ports);
}

/* The most crowded union of two port sets: a third is never needed by the sets that cores have. */
static void bound_ports(const struct pipe_core *core, const struct pipe_block *block,
			struct pipe_result *result)
{
	struct port_sets sets;

	sets.n = 0;
	result->bound[BOUND_PORTS] = 0;
	result->bound_ports = 0;
	collect(core, block, &sets);
	for (u32 i = 0; i < sets.n; i++)
		for (u32 j = i; j < sets.n; j++) {
			u16 ports = sets.set[i].ports | sets.set[j].ports;
			u32 ticks = pipe_confined(sets.set, sets.n, ports);

			if (ticks > result->bound[BOUND_PORTS]) {
				result->bound[BOUND_PORTS] = ticks;
				result->bound_ports = ports;
			}
		}
}

static u32 bound_divider(const struct pipe_block *block)
{
	u32 cycles = 0;

	for (u32 i = 0; i < block->count; i++)
		for (u32 u = 0; u < block->insn[i].uops; u++)
			cycles += block->insn[i].uop[u].divider;
	return cycles * PIPE_TICKS;
}

#define TURNS 64 /* until the alignment of code of any length has come round */

/* Decoders or uop cache alone. */
static u32 bound_front_end(const struct pipe_core *core, const struct pipe_block *block,
			   bool decoded)
{
	struct pipe_front front = { .at = block->at, .block = block->at / core->fetch };
	u32 begin = 0, cycles = 0;

	for (u32 turn = 0; turn <= TURNS; turn++) {
		for (u32 i = 0; i < block->count; i++)
			cycles = decoded ? pipe_decode(&front, core, &block->insn[i])
					 : pipe_fetch_cached(&front, core, block, i);
		if (!turn)
			begin = cycles;
		if (block->loops)
			pipe_jump(&front, core, block->at);
	}
	return (cycles - begin) * PIPE_TICKS / TURNS;
}

void pipe_bounds(const struct pipe_core *core, const struct pipe_block *block, u32 latency,
		 struct pipe_result *result)
{
	result->bound[BOUND_FRONT_END] = bound_front_end(core, block, result->decoded);
	result->bound[BOUND_ISSUE] = result->slots / core->width;
	result->bound[BOUND_DIVIDER] = bound_divider(block);
	result->bound[BOUND_LATENCY] = latency;
	bound_ports(core, block, result);
}
