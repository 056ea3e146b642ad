// SPDX-License-Identifier: MIT
/*
 * The checking build's part of code_check.h: a bit for each byte of code memory, set where code may
 * be entered, and must() on what breaks its invariants. In other builds these functions do nothing.
 * vCPU thread; general registers only.
 */
#include "engine/code_check.h"
#include "engine/jump_cache.h"

#include "base/bytes.h"
#include "base/must.h"
#include "cpu/mmu/mmu.h"

#define INT3 0xcc

static bool enterable(const struct engine *eng, const u8 *code)
{
	u64 at = code - eng->code_rw;

	return code >= eng->code_first && code < eng->code_next &&
	       (eng->enterable[at / 64] & BIT(at % 64));
}

static const u8 *writable_view(const struct engine *eng, const void *code)
{
	return (const u8 *)code - (eng->code_rx - eng->code_rw);
}

void check_enterable(struct engine *eng, const u8 *code)
{
	u64 at = code - eng->code_rw;

	if (CHECKING)
		eng->enterable[at / 64] |= BIT(at % 64);
}

void check_dead(struct engine *eng, u8 *from, u8 *to)
{
	if (!CHECKING)
		return;
	bytes_fill(from, INT3, to - from);
	for (u64 at = from - eng->code_rw; at < (u64)(to - eng->code_rw); at++)
		if (at % 64 == 0 && at + 64 <= (u64)(to - eng->code_rw)) {
			eng->enterable[at / 64] = 0;
			at += 63;
		} else {
			eng->enterable[at / 64] &= ~BIT(at % 64);
		}
}

void check_live(const struct engine *eng, const u8 *code)
{
	must(!CHECKING || enterable(eng, code));
}

static void check_block(const struct cpu *cpu, const void *code, u64 rip, u32 mode)
{
	const struct engine *eng = cpu->engine;
	const struct block *block = cache_by_code(eng, code);

	must(enterable(eng, writable_view(eng, code)));
	must(exec_view(eng, block->code) == code);
	must(block->rip == rip && block->mode == mode);
	must(!(mode & MODE_CODE64) || cpu_canonical(cpu, rip));
}

void check_entry(struct cpu *cpu, const void *code, u32 mode)
{
	if (CHECKING)
		check_block(cpu, code, cpu->rip, mode);
}

u64 check_jump(struct cpu *cpu, u64 rip, u32 code, const u8 *return_pc)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct engine *eng = cpu->engine;
	u32 mode = jump_mode(cpu);

	(void)return_pc;
	must(mode == (priv->mode & ~(u32)MODE_IOPL_OK));
	check_block(cpu, eng->code_rx + code, rip, mode);
	priv->spill[SPILL_HOST] = priv->code_base + code;
	return SLOW_DIRECT;
}

/* `slot` is where it is in struct cpu. */
u64 check_return(struct cpu *cpu, u64 rip, u32 slot, const u8 *return_pc)
{
	const struct engine *eng = cpu->engine;
	const void *code = *(const void **)((u8 *)cpu + slot);
	const struct block *block;

	(void)return_pc;
	cpu_priv(cpu)->spill[SPILL_HOST] = rip;
	if (code == exec_view(eng, eng->jump_lookup))
		return SLOW_DIRECT;
	block = cache_by_code(eng, code);
	must(enterable(eng, writable_view(eng, code)));
	must((block->mode & ~(u32)MODE_UNSHARED) == jump_mode(cpu));
	return SLOW_DIRECT;
}
