// SPDX-License-Identifier: MIT
/*
 * Claims of pages with translated code, and their acknowledgement: see cpu/mmu/shared_code.h for
 * the protocol. Any processor's thread; general registers only.
 */
#include "cpu/mmu/shared_code.h"

#include "cpu/mmu/code_pages.h"
#include "cpu/mmu/priv.h"

/* The count of a page's claims, or NULL: its slot has none, since there is one processor. */
static u16 *count_of(struct cpu *cpu, gpa_t gpa)
{
	const struct mem_slot *slot = cpu_priv(cpu)->shared ? cpu_slot(cpu, gpa) : NULL;

	return slot && slot->claims ? &slot->claims[(gpa - slot->base) >> PAGE_SHIFT] : NULL;
}

static gpa_t page_gpa(const struct code_page *page)
{
	return (page->gfn_plus_1 - 1) << PAGE_SHIFT;
}

static u64 news(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);

	return __atomic_load_n(&priv->shared->outside, __ATOMIC_SEQ_CST) +
	       __atomic_load_n(&priv->shared->written, __ATOMIC_SEQ_CST);
}

bool shared_change_unseen(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	u64 claims = __atomic_load_n(&priv->shared->claims, __ATOMIC_SEQ_CST);

	return claims != priv->acknowledged || news(cpu) != priv->changes_seen;
}

bool shared_changed(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 now = news(cpu);
	bool unseen = now != priv->changes_seen;

	priv->changes_seen = now;
	return unseen;
}

u64 shared_claim(struct cpu *cpu, struct code_page *page)
{
	gpa_t gpa = page_gpa(page);
	u16 *count = count_of(cpu, gpa);

	page->claim = 0;
	if (!count)
		return 0;
	page->claim = cpu_slot(cpu, gpa)->claims_id;
	__atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
	return __atomic_add_fetch(&cpu_priv(cpu)->shared->claims, 1, __ATOMIC_SEQ_CST);
}

bool shared_claim_gone(struct cpu *cpu, const struct code_page *page)
{
	const struct mem_slot *slot = cpu_slot(cpu, page_gpa(page));

	return page->claim != (slot && slot->claims ? slot->claims_id : 0);
}

void shared_release(struct cpu *cpu, struct code_page *page)
{
	u16 *count = count_of(cpu, page_gpa(page));

	if (page->claim && count && !shared_claim_gone(cpu, page))
		__atomic_sub_fetch(count, 1, __ATOMIC_SEQ_CST);
	page->claim = 0;
}

static bool claimed_at(struct cpu *cpu, gpa_t gpa)
{
	const u16 *count = count_of(cpu, gpa);

	return count && __atomic_load_n(count, __ATOMIC_SEQ_CST);
}

bool shared_claimed(struct cpu *cpu, gpa_t gpa)
{
	bool claimed = claimed_at(cpu, gpa);
	gpa_t alias;
	u32 at = 0;

	while (!claimed && cpu_next_alias(cpu, gpa, &at, &alias))
		claimed = claimed_at(cpu, alias);
	return claimed;
}

static void set_ack(struct cpu *cpu, u64 upto)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	__atomic_store_n(&priv->shared->ack[priv->shared_index].upto, upto, __ATOMIC_SEQ_CST);
}

static void acknowledge(struct cpu *cpu, u64 upto)
{
	cpu_priv(cpu)->acknowledged = upto;
	set_ack(cpu, upto);
}

void shared_acknowledge(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 claims = __atomic_load_n(&priv->shared->claims, __ATOMIC_SEQ_CST);

	if (claims == priv->acknowledged)
		return;
	tlb_protect_claimed(cpu);
	acknowledge(cpu, claims);
}

void shared_acknowledge_own(struct cpu *cpu, u64 number)
{
	if (cpu_priv(cpu)->acknowledged + 1 == number)
		acknowledge(cpu, number);
}

u64 shared_acknowledged(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	u32 n = __atomic_load_n(&priv->shared->ncpus, __ATOMIC_ACQUIRE);
	u64 least = SHARED_ASLEEP;

	for (u32 i = 0; i < n; i++) {
		u64 ack = __atomic_load_n(&priv->shared->ack[i].upto, __ATOMIC_SEQ_CST);

		if (i != priv->shared_index && ack < least)
			least = ack;
	}
	return least;
}

void shared_join(struct cpu *cpu, struct shared_code *shared, u32 index)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	priv->shared = shared;
	priv->shared_index = index;
	shared_sleep(cpu);
	__atomic_store_n(&shared->ncpus, index + 1, __ATOMIC_RELEASE);
}

void shared_sleep(struct cpu *cpu)
{
	set_ack(cpu, SHARED_ASLEEP);
}

/* Its old acknowledgement holds again; newer claims are acknowledged before it executes
 * anything. */
void shared_wake(struct cpu *cpu)
{
	set_ack(cpu, cpu_priv(cpu)->acknowledged);
}

/* A processor's own translations are dropped by the notes in priv->code. */
static bool claimed_by_others(struct cpu *cpu, gpa_t gpa)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const u16 *count = count_of(cpu, gpa);
	const struct code_page *own;
	u16 n = count ? __atomic_load_n(count, __ATOMIC_SEQ_CST) : 0;

	if (!n)
		return false;
	own = priv->code ? code_find(priv->code, gpa) : NULL;
	return n > (own && own->claim ? 1 : 0);
}

/* One look at the slot tells that no processor has translated from a page, the usual case. */
static bool claimed_by_none(struct cpu *cpu, gpa_t gpa)
{
	const u16 *count = count_of(cpu, gpa);

	return count && cpu_priv(cpu)->claims_generation == cpu->port.mem->generation &&
	       !__atomic_load_n(count, __ATOMIC_SEQ_CST);
}

static bool watched_at(struct cpu *cpu, gpa_t gpa, u32 size)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	if (claimed_by_none(cpu, gpa))
		return false;
	return (priv->code && code_touches(priv->code, gpa, size)) || claimed_by_others(cpu, gpa);
}

bool shared_watched(struct cpu *cpu, gpa_t gpa, u32 size)
{
	bool watched = watched_at(cpu, gpa, size);
	gpa_t alias;
	u32 at = 0;

	while (!watched && cpu_next_alias(cpu, gpa, &at, &alias))
		watched = watched_at(cpu, alias, size);
	return watched;
}

static void written_at(struct cpu *cpu, gpa_t gpa, u32 size)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	if (priv->code)
		code_written(priv->code, gpa, size);
	if (!claimed_by_others(cpu, gpa))
		return;
	__atomic_add_fetch(&priv->shared->written, 1, __ATOMIC_SEQ_CST);
	priv->changes_seen++; /* the writer has seen its own write */
}

void shared_written(struct cpu *cpu, gpa_t gpa, u32 size)
{
	gpa_t alias;
	u32 at = 0;

	written_at(cpu, gpa, size);
	while (cpu_next_alias(cpu, gpa, &at, &alias))
		written_at(cpu, alias, size);
}
