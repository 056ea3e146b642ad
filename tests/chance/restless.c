// SPDX-License-Identifier: MIT
/*
 * A processor on a busy host, and worse: each visit to the guest ends after a number of
 * instructions that chance gives, and before some of them the processor forgets what it has cached:
 * translations, where jumps lead, the TLB. The linker sends calls of engine_run() here in a library
 * of its own (Makefile), which tests/exec/deterministic loads: nothing of it may show in a
 * deterministic guest. vCPU thread; general registers only.
 */
#include "cpu/mmu/mmu.h"
#include "cpu/mmu/tlb.h"
#include "engine/engine.h"

#define MOST 4096 /* instructions; a power of two */

enum exit_reason __real_engine_run(struct cpu *cpu, u64 budget);
enum exit_reason __wrap_engine_run(struct cpu *cpu, u64 budget);

static u64 chance(void)
{
	return __builtin_ia32_rdtsc() * 0x9e3779b97f4a7c15ull >> 32;
}

static bool once_in(u32 n)
{
	return chance() % n == 0;
}

static u64 limit(void)
{
	u64 n = chance();

	return 1 + (n / MOST % 8 ? n % MOST : n % 16);
}

enum exit_reason __wrap_engine_run(struct cpu *cpu, u64 budget)
{
	u64 most = limit();

	if (once_in(4000))
		engine_forget(cpu);
	if (once_in(64))
		tlb_flush(cpu);
	if (once_in(16))
		cpu_drop_jumps(cpu);
	return __real_engine_run(cpu, budget < most ? budget : most);
}
