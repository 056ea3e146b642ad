// SPDX-License-Identifier: MIT
/*
 * Any bytes as a block for the pipeline model: every byte belongs to one instruction or one named
 * problem, the simulation ends, and a second run says the same.
 *
 * Input: a byte of options, an offset of the first byte, then the code.
 */
#include <stdlib.h>

#include "base/must.h"
#include "cli/cost/cost.h"
#include "fuzz/fuzz.h"

#define MODELS	     5
#define FLAG_DECODED 0x80

static struct pipe_work *work;
static struct cost_block block;

void fuzz_set_up(void)
{
	work = malloc(pipe_work_size());
	must(work);
}

static void check_bytes(const struct cost_code *code)
{
	size_t bytes = 0;

	for (u32 i = 0; i < block.count; i++)
		bytes += block.insn[i].length;
	if (bytes != code->size)
		fuzz_fail("%zu bytes of %zu", bytes, code->size);
	if (block.block.count + block.problems != block.count)
		fuzz_fail("%u instructions, of which %u have an answer and %u are named",
			  block.count, block.block.count, block.problems);
}

void fuzz_one(struct fuzz_input *in)
{
	u8 flags = fuzz_u8(in), offset = fuzz_u8(in), bytes[1024];
	const struct pipe_core *core = pipe_core_of(model_at(flags % MODELS)->set);
	struct cost_code code = { .bytes = bytes,
				  .at = offset,
				  .size = fuzz_take(in, bytes, sizeof(bytes)) };
	struct pipe_result first, second;

	if (!code.size || !cost_describe(core, &code, &block))
		return;
	check_bytes(&code);
	if (!block.block.count)
		return;
	pipe_simulate(core, &block.block, flags & FLAG_DECODED, work, &first);
	pipe_simulate(core, &block.block, flags & FLAG_DECODED, work, &second);
	if (first.ticks != second.ticks || first.slots != second.slots)
		fuzz_fail("%u ticks, then %u", first.ticks, second.ticks);
}
