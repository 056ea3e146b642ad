// SPDX-License-Identifier: MIT
/*
 * What vpmu cost prints of one block: cycles, the bottleneck, the load of every port, and a line
 * for each instruction.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cost/cost.h"

#define TEXT 160

static double cycles(u32 ticks)
{
	return (double)ticks / PIPE_TICKS;
}

/* As the literature does: "p0156", "alu0123 fp01"; A and B are 10 and 11. */
static void write_ports(const struct pipe_core *core, u16 ports, char text[TEXT])
{
	size_t n = 0, kind = 0;
	const char *before = "";

	text[0] = '\0';
	for (u32 p = 0; p < pipe_port_count(core); p++) {
		const char *name = pipe_port_name(core, p);

		if (!(ports >> p & 1))
			continue;
		if (!kind || strncmp(before, name, kind))
			n += snprintf(text + n, TEXT - n, "%s%.*s", n ? " " : "",
				      (int)strcspn(name, "0123456789"), name);
		kind = strcspn(name, "0123456789");
		before = name;
		n += snprintf(text + n, TEXT - n, "%X", atoi(name + kind));
	}
}

static u32 largest_bound(const struct pipe_result *result)
{
	u32 largest = 0;

	for (u32 i = 1; i < PIPE_BOUNDS; i++)
		if (result->bound[i] > result->bound[largest])
			largest = i;
	return largest;
}

/* How far the simulation may be above a bound for that to be the reason. */
#define NEAR(ticks) ((ticks) + (ticks) / 5)

static void print_bottleneck(const struct pipe_core *core, const struct pipe_result *result)
{
	static const char *const names[] = {
		[BOUND_FRONT_END] = "front end", [BOUND_ISSUE] = "issue",
		[BOUND_PORTS] = "ports",	 [BOUND_DIVIDER] = "divider",
		[BOUND_LATENCY] = "latency",
	};
	u32 largest = largest_bound(result);
	char ports[TEXT];

	write_ports(core, result->bound_ports, ports);
	printf("cycles per iteration: %.2f\n", cycles(result->ticks));
	if (result->ticks > NEAR(result->bound[largest]))
		printf("bottleneck: memory, or several together; %s alone would take %.2f\n",
		       names[largest], cycles(result->bound[largest]));
	else
		printf("bottleneck: %s%s%s\n", names[largest], largest == BOUND_PORTS ? " " : "",
		       largest == BOUND_PORTS ? ports : "");
	printf("each part alone:");
	for (u32 i = 0; i < PIPE_BOUNDS; i++)
		printf("%s %s %.2f", i ? "," : "", names[i], cycles(result->bound[i]));
	printf("\n%.2f issue slots of %u a cycle%s\n\n", cycles(result->slots), pipe_width(core),
	       result->decoded ? "; the uop cache does not hold this code" : "");
}

static void print_ports(const struct pipe_core *core, const struct pipe_result *result)
{
	printf("port ");
	for (u32 p = 0; p < pipe_port_count(core); p++)
		printf(" %5s", pipe_port_name(core, p));
	printf("\nuops ");
	for (u32 p = 0; p < pipe_port_count(core); p++)
		printf(" %5.2f", cycles(result->port[p]));
	printf("\n\n");
}

/* From the registers to the result; the shape says which uops follow one another. */
static u32 latency_of(const struct pipe_insn *insn)
{
	u32 latency = insn->load ? insn->load_latency : 0, all = 0, longest = 0;

	if (insn->idiom == IDIOM_NOP || insn->idiom == IDIOM_ZERO || insn->idiom == IDIOM_MOVE)
		return 0;
	for (u32 i = 0; i < insn->uops; i++) {
		all += insn->uop[i].latency;
		if (i + 1 < insn->uops && insn->uop[i].latency > longest)
			longest = insn->uop[i].latency;
	}
	if (!insn->uops)
		return latency;
	if (insn->shape == SHAPE_WIDE)
		return latency + insn->uop[0].latency;
	if (insn->shape == SHAPE_TREE)
		return latency + longest + insn->uop[insn->uops - 1].latency;
	return latency + all;
}

static u16 ports_of(const struct pipe_insn *insn)
{
	u16 ports = 0;

	for (u32 i = 0; i < insn->uops; i++)
		ports |= insn->uop[i].ports;
	return ports;
}

static const char *note_of(const struct pipe_insn *insn)
{
	switch (insn->idiom) {
	case IDIOM_ZERO:
		return "zero idiom";
	case IDIOM_ONES:
		return "ones idiom";
	case IDIOM_MOVE:
		return "move elimination";
	case IDIOM_NOP:
		return "no operation";
	default:
		return insn->fuses_next ? "fused with the next" : "";
	}
}

static void print_insn(const struct pipe_core *core, const struct cost_insn *shown,
		       const struct pipe_insn *insn)
{
	u32 uops = insn->uops + insn->load + 2 * insn->store;
	char ports[TEXT];

	write_ports(core, insn->idiom == IDIOM_ZERO ? 0 : ports_of(insn), ports);
	printf("%6.3f %5u %4u %7u  %-20s %s%s  %s%s%s\n", cycles(shown->ticks), insn->slots, uops,
	       latency_of(insn), ports, insn->load ? "L" : " ", insn->store ? "S" : " ",
	       shown->text, *note_of(insn) ? "  ; " : "", note_of(insn));
}

static void print_insns(const struct pipe_core *core, const struct cost_block *block)
{
	char problem[TEXT];

	puts("static slots uops latency  ports                    instruction (L: load, S: store)");
	for (u32 i = 0; i < block->count; i++) {
		const struct cost_insn *insn = &block->insn[i];

		if (insn->status == COST_OK) {
			print_insn(core, insn, &block->block.insn[insn->row]);
			continue;
		}
		cost_name_problem(insn, problem, sizeof(problem));
		printf("%6.3f     -    -       -  %-20s     %s\n", cycles(insn->ticks),
		       "not counted", problem);
	}
}

/* docs/model.md has the figures. */
static const char *validity(const struct model *model)
{
	switch (model->set) {
	case MODEL_ICELAKE:
		return "compared with Ice Lake silicon";
	case MODEL_SAPPHIRERAPIDS:
		return "compared with Emerald Rapids silicon, which has the same core";
	case MODEL_MILAN:
		return "compared with Zen 3 silicon";
	case MODEL_GENOA:
		return "compared with Zen 4 silicon";
	default:
		return "never compared with its silicon";
	}
}

void cost_print(const struct cost_options *options, const struct cost_block *block,
		const struct pipe_result *result)
{
	printf("%s (%s): %u instructions, %s\n", options->model->name, validity(options->model),
	       block->count, block->block.loops ? "a loop" : "repeated one after the other");
	print_bottleneck(options->core, result);
	printf("static timing: %.2f cycles\n\n", cycles(block->repeated_ticks));
	print_ports(options->core, result);
	print_insns(options->core, block);
}
