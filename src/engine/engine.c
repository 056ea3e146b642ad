// SPDX-License-Identifier: MIT
/*
 * Making and unmaking an engine. Not on a hot path: libc is allowed.
 */
#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cpu/code.h"
#include "cpu/mmu.h"
#include "engine/priv.h"

int engine_create(struct cpu *cpu)
{
	/* Mapped, not allocated: zeroed, and given back to the system at once. */
	struct engine *eng = mmap(NULL, sizeof(*eng), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int ret;

	if (eng == MAP_FAILED)
		return -ENOMEM;
	cpu->engine = eng;
	cpu->code = code_create();
	ret = cpu->code ? cache_create(eng) : -ENOMEM;
	if (ret) {
		engine_destroy(cpu);
		return ret;
	}
	cpu_drop_jumps(cpu);
	return 0;
}

void engine_destroy(struct cpu *cpu)
{
	if (!cpu->engine)
		return;
	cache_destroy(cpu->engine);
	munmap(cpu->engine, sizeof(*cpu->engine));
	code_destroy(cpu->code);
	cpu->engine = NULL;
	cpu->code = NULL;
}

void engine_forget(struct cpu *cpu)
{
	if (cpu->engine)
		cache_flush(cpu);
}
