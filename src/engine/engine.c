// SPDX-License-Identifier: MIT
/*
 * Creating and destroying an engine, its settings, and forgetting what it holds. Not on a hot path:
 * libc is allowed. The thread that drives the processor, or the holder of the vCPU's lock, while it
 * does not run. The rest of engine.h is in runtime: engine_run() in run.c, engine_signal() in
 * signal.c, engine_where() in sample_position.c, engine_attach_pmu() in pmu.c.
 */
#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "cpu/mmu/code_pages.h"
#include "cpu/mmu/tlb.h"
#include "engine/jump_cache.h"
#include "engine/priv.h"
#include "engine/price.h"
#include "timing/coherence.h"

/* The tags of the timing model: zero pages until an event that needs the model is counted. */
static int timing_create(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	void *memory;

	if (!cpu->port.model)
		return 0;
	memory = mmap(NULL, timing_memory(cpu->port.model), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	timing_init(&priv->timing, cpu->port.model, memory, (u64 *)priv->live);
	if (cpu->port.last_level)
		timing_set_last(&priv->timing, cpu->port.last_level);
	if (cpu->port.last_level_life)
		timing_set_life(&priv->timing, cpu->port.last_level_life);
	return cpu->port.caches ? coherence_create(cpu->port.caches, cpu->port.model) : 0;
}

static void timing_destroy(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	if (priv->timing.params)
		munmap(priv->timing.l1d.tags, timing_memory(cpu->port.model));
	priv->timing.params = NULL;
}

/* The program will only report errno: the log says more. */
static void explain(int error)
{
	if (error == -EACCES || error == -EPERM)
		log_once(LOG_ERROR, "no memory may be executed here, and a vCPU needs some: look "
				    "at vm.memfd_noexec and at the security module's policy");
	else if (error == -ENOMEM)
		log_once(LOG_ERROR, "there is no memory for a vCPU: it takes more than 1 GB of "
				    "address space (ulimit -v)");
}

int engine_create(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	/* Mapped, not allocated: zeroed, and given back to the system at once. */
	struct engine *eng = mmap(NULL, sizeof(*eng), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int ret;

	if (eng == MAP_FAILED)
		return -ENOMEM;
	eng->hot_after = ENGINE_HOT_AFTER;
	eng->unshared_next = NO_RIP;
	eng->fences = cpu->port.harden;
	eng->epoch = eng->changed_epoch[SPACE_OS] = eng->changed_epoch[SPACE_USR] = 1;
	cpu->engine = eng;
	priv->code = code_create();
	ret = priv->code ? cache_create(eng) : -ENOMEM;
	if (!ret)
		ret = timing_create(cpu);
	if (ret) {
		explain(ret);
		engine_destroy(cpu);
		return ret;
	}
	price_init(eng->pricing, cpu->port.model ? cpu->port.model->set : MODEL_ICELAKE);
	priv->code_base = (uintptr_t)eng->code_rx;
	priv->guard_misses = eng->guard_misses;
	cpu_drop_jumps(cpu);
	returns_invalidate(eng);
	return 0;
}

void engine_destroy(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	if (!cpu->engine)
		return;
	timing_destroy(cpu);
	cache_destroy(cpu->engine);
	munmap(cpu->engine, sizeof(*cpu->engine));
	code_destroy(priv->code);
	cpu->engine = NULL;
	priv->code = NULL;
}

void engine_set_hot_after(struct cpu *cpu, u32 executions)
{
	cpu->engine->hot_after = executions;
}

void engine_set_profile(struct cpu *cpu, struct profile *profile)
{
	cpu->engine->profile = profile;
	engine_set_hot_after(cpu, INT32_MAX); /* there are no hot blocks */
}

void engine_cache(const struct cpu *cpu, struct engine_cache *cache)
{
	const struct engine *eng = cpu->engine;

	*cache = (struct engine_cache){
		.bytes = (eng->code_next - eng->code_first) + (eng->meta_next - eng->meta),
		.blocks = eng->blocks_made,
		.flushes = eng->flushes,
		.insns = eng->insns_translated,
		.lookups = eng->lookups,
		.compared = eng->lines_compared,
		.written = cpu_priv(cpu)->code->stores,
		.dropped = eng->single_drops,
	};
}

void engine_forget(struct cpu *cpu)
{
	if (cpu->engine)
		cache_flush(cpu);
}

void engine_forget_branches(struct cpu *cpu)
{
	struct timing *timing = &cpu_priv(cpu)->timing;

	if (timing->params)
		timing_forget_branches(timing);
}
