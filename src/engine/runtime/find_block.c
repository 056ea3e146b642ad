// SPDX-License-Identifier: MIT
/*
 * Finding the translation block at RIP. A block that the cache has is used only after its pages
 * have been compared with guest memory in this epoch (code_cache.c); one that it does not have is
 * translated, after a flush if code memory is full.
 *
 * vCPU thread, no translated code on the stack. General registers only, but where decoding or more
 * code memory needs libc: the guest's vector state is saved then.
 */
#include "cpu/event.h"
#include "cpu/fpu.h"
#include "cpu/mmu/mmu.h"
#include "engine/jump_cache.h"
#include "engine/priv.h"
#include "engine/runtime/count.h"
#include "engine/runtime/profile.h"

/* A block whose instruction crosses into another page: is that page still mapped there, and
 * verified? */
static struct block *check_tail(struct cpu *cpu, u32 mode, struct block *block,
				enum guest_fault *fault)
{
	u64 tail = cpu_wrap(cpu, linear_rip(cpu) + PAGE_SIZE) & PAGE_MASK;
	struct code_page *page;
	const u8 *host;
	gpa_t gpa;

	*fault = fetch_page(cpu, tail, &gpa, &host);
	if (*fault != FAULT_NONE)
		return NULL;
	page = code_find(cpu_priv(cpu)->code, gpa);
	if (page && !page_verified(cpu, page))
		cache_verify(cpu, page, host);
	block = cache_find(cpu, cpu->rip, block->gpa, mode);
	if (block && block->gpa2 != gpa) {
		cache_drop(cpu, block);
		return NULL;
	}
	if (block)
		block->host2 = host;
	return block;
}

static struct block *make_block(struct cpu *cpu, u32 mode, gpa_t gpa, const u8 *host,
				enum guest_fault *fault)
{
	struct block *block;

	if (cache_wants_memory(cpu->engine)) {
		fpu_save(cpu);
		cache_populate(cpu);
	}
	cpu_effort(cpu, EFFORT_BLOCK);
	block = translate(cpu, mode, gpa, host, fault);
	if (!block && *fault == FAULT_NONE) {
		cache_flush(cpu);
		block = translate(cpu, mode, gpa, host, fault);
	}
	if (block && unlikely(cpu->engine->profile))
		profile_block(cpu->engine, block, host);
	return block;
}

static void note_block(struct cpu *cpu, const struct block *block, const u8 *host)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	struct code_page *page = code_find(priv->code, block->gpa);

	jump_note_page(cpu, page, host);
	jump_note_mapping(cpu, page, block);
	if (block->gpa2 != NO_GPA)
		jump_note_page(cpu, code_find(priv->code, block->gpa2), block->host2);
}

struct block *block_find(struct cpu *cpu, u32 mode, enum guest_fault *fault)
{
	struct engine *eng = cpu->engine;
	struct code_page *page;
	struct block *block = NULL;
	const u8 *host;
	gpa_t gpa;

	if (unlikely(!(mode & MODE_CODE64) && cpu->rip > code_limit(cpu, mode)))
		*fault = cpu_raise_error(cpu, VEC_GP, 0);
	else
		*fault = fetch_page(cpu, linear_rip(cpu), &gpa, &host);
	if (*fault != FAULT_NONE)
		return NULL;
	eng->lookups++;
	cache_prefetch(cpu, cpu->rip, gpa, mode);
	if (jump_usable(mode))
		jump_expect(cpu);
	page = code_find(cpu_priv(cpu)->code, gpa);
	if (page && !page_verified(cpu, page))
		cache_verify(cpu, page, host - (gpa & ~PAGE_MASK));
	if (page)
		block = cache_find(cpu, cpu->rip, gpa, mode);
	if (block && block->gpa2 != NO_GPA)
		block = check_tail(cpu, mode, block, fault);
	if (*fault != FAULT_NONE)
		return NULL;
	if (!block)
		block = make_block(cpu, mode, gpa, host, fault);
	if (block && jump_usable(mode))
		note_block(cpu, block, host - (gpa & ~PAGE_MASK));
	return block;
}
