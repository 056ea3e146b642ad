// SPDX-License-Identifier: MIT
/*
 * The soft TLB: when an entry may grant an access without a call, and what drops it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/mmu/tlb.h"
#include "cpu/mode.h"
#include "unit/paged_cpu.h"

#define GVA    0x40000000ull
#define GPA    0x400000ull
#define FULL   (PTE_P | PTE_W | PTE_U)
#define READ   ACCESS_READ
#define WRITE  ACCESS_WRITE
#define FETCH  ACCESS_FETCH
#define SYSTEM ACCESS_SYSTEM

static struct tlb_entry *entry_of(struct paged_cpu *p, enum tlb_set set, gva_t gva)
{
	return &cpu_priv(p->cpu)->tlb[set][(gva >> PAGE_SHIFT) % TLB_SIZE];
}

/* As translated code does it. */
static bool serves(u64 tag, gva_t gva, u32 size)
{
	return (tag ^ gva) <= PAGE_SIZE - size;
}

static bool reads(struct paged_cpu *p, enum tlb_set set, gva_t gva)
{
	return serves(entry_of(p, set, gva)->read, gva, 8);
}

static bool writes(struct paged_cpu *p, enum tlb_set set, gva_t gva)
{
	return serves(entry_of(p, set, gva)->write, gva, 8);
}

static void an_empty_tlb_serves_nothing(void **state)
{
	struct paged_cpu p;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	for (u32 flushed = 0; flushed < 2; flushed++) {
		for (u32 set = 0; set < NTLBS; set++)
			for (gva_t gva = 0; gva < 4 * TLB_SIZE * PAGE_SIZE; gva += PAGE_SIZE) {
				assert_false(reads(&p, set, gva) || writes(&p, set, gva));
				assert_false(reads(&p, set, -1 - gva) || writes(&p, set, -1 - gva));
			}
		tlb_flush(p.cpu);
	}
	paged_cpu_free(&p);
}

static void fill(struct paged_cpu *p, gva_t gva, u32 access)
{
	struct translation t;

	assert_int_equal(mmu_fill(p->cpu, gva, access, &t), FAULT_NONE);
}

static void a_read_grants_writes_only_when_dirty(void **state)
{
	struct paged_cpu p;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, GPA, 1, FULL, FULL);
	fill(&p, GVA + 5, READ);
	assert_true(reads(&p, TLB_KERNEL_AC, GVA));
	assert_false(writes(&p, TLB_KERNEL_AC, GVA));
	assert_false(reads(&p, TLB_KERNEL, GVA) || reads(&p, TLB_USER, GVA));
	fill(&p, GVA, WRITE);
	assert_true(reads(&p, TLB_KERNEL_AC, GVA) && writes(&p, TLB_KERNEL_AC, GVA));
	assert_int_equal(entry_of(&p, TLB_KERNEL_AC, GVA)->host, (u64)p.ram + GPA);
	assert_int_equal(entry_of(&p, TLB_KERNEL_AC, GVA)->gpa, GPA);

	tlb_flush(p.cpu);
	assert_false(reads(&p, TLB_KERNEL_AC, GVA));
	fill(&p, GVA, READ);
	assert_true(writes(&p, TLB_KERNEL_AC, GVA));

	tlb_flush(p.cpu); /* the dirty log was harvested */
	memset(p.dirty, 0, sizeof(p.dirty));
	fill(&p, GVA, READ);
	assert_false(writes(&p, TLB_KERNEL_AC, GVA));
	paged_cpu_free(&p);
}

static void set_privilege(struct cpu *cpu, u8 cpl, bool ac)
{
	cpu->cpl = cpl;
	cpu->cr4 |= CR4_SMAP;
	cpu->rflags = FL_FIX1 | (ac ? FL_AC : 0);
	cpu_update_mode(cpu);
	tlb_flush(cpu);
}

static void each_privilege_has_its_set(void **state)
{
	struct paged_cpu p;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, GPA, 1, FULL, FULL);
	paged_cpu_map(&p, GVA + PAGE_SIZE, GPA, 1, PTE_P | PTE_W, FULL);
	set_privilege(p.cpu, 3, false);
	fill(&p, GVA, READ);
	assert_true(reads(&p, TLB_USER, GVA));
	assert_false(reads(&p, TLB_KERNEL, GVA) || reads(&p, TLB_KERNEL_AC, GVA));
	fill(&p, GVA + PAGE_SIZE, READ | SYSTEM);
	assert_true(reads(&p, TLB_KERNEL, GVA + PAGE_SIZE));
	assert_false(reads(&p, TLB_USER, GVA + PAGE_SIZE));
	set_privilege(p.cpu, 0, true);
	fill(&p, GVA, READ);
	assert_true(reads(&p, TLB_KERNEL_AC, GVA));
	assert_false(reads(&p, TLB_KERNEL, GVA));
	paged_cpu_free(&p);
}

static void fetches_and_devices_stay_out(void **state)
{
	struct paged_cpu p;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, GPA, 1, FULL, FULL);
	paged_cpu_map(&p, GVA + PAGE_SIZE, MMIO_BASE, 1, FULL, FULL);
	paged_cpu_map(&p, GVA + 2 * PAGE_SIZE, ROM_BASE, 1, FULL, FULL);
	fill(&p, GVA, FETCH);
	fill(&p, GVA + PAGE_SIZE, WRITE);
	fill(&p, GVA + 2 * PAGE_SIZE, WRITE);
	for (gva_t gva = GVA; gva < GVA + 3 * PAGE_SIZE; gva += PAGE_SIZE)
		assert_false(reads(&p, TLB_KERNEL_AC, gva) || writes(&p, TLB_KERNEL_AC, gva));
	fill(&p, GVA + 2 * PAGE_SIZE, READ);
	assert_true(reads(&p, TLB_KERNEL_AC, GVA + 2 * PAGE_SIZE));
	assert_false(writes(&p, TLB_KERNEL_AC, GVA + 2 * PAGE_SIZE));
	paged_cpu_free(&p);
}

static void pages_with_code_are_not_writable(void **state)
{
	struct paged_cpu p;
	struct code_page *page;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, GPA, 1, FULL, FULL);
	paged_cpu_map(&p, GVA + 5 * PAGE_SIZE, GPA, 1, FULL, FULL);
	fill(&p, GVA, WRITE);
	fill(&p, GVA + 5 * PAGE_SIZE, WRITE);
	paged_cpu_map(&p, GVA + 6 * PAGE_SIZE, GPA + PAGE_SIZE, 1, FULL, FULL);
	fill(&p, GVA + 6 * PAGE_SIZE, WRITE);
	page = code_add(cpu_priv(p.cpu)->code, GPA + 0x40);
	page->lines = BIT(1);
	tlb_protect(p.cpu, GPA + 0x40);
	assert_false(writes(&p, TLB_KERNEL_AC, GVA) ||
		     writes(&p, TLB_KERNEL_AC, GVA + 5 * PAGE_SIZE));
	assert_true(reads(&p, TLB_KERNEL_AC, GVA));
	assert_true(writes(&p, TLB_KERNEL_AC, GVA + 6 * PAGE_SIZE));
	tlb_protect(p.cpu, GPA + PAGE_SIZE); /* what was looked through before is still known */
	assert_false(writes(&p, TLB_KERNEL_AC, GVA + 6 * PAGE_SIZE));
	fill(&p, GVA, WRITE);
	assert_false(writes(&p, TLB_KERNEL_AC, GVA));
	page->lines = 0;
	fill(&p, GVA, WRITE);
	assert_true(writes(&p, TLB_KERNEL_AC, GVA));
	paged_cpu_free(&p);
}

#define ALIASES 48 /* linear pages, two for each entry of the TLB */
#define SHARED	8  /* physical pages that they are mapped to */

static gva_t alias(u32 i)
{
	return GVA + i % (ALIASES / 2) * PAGE_SIZE + i / (ALIASES / 2) * (u64)TLB_SIZE * PAGE_SIZE;
}

static u32 any(u32 n)
{
	static u64 x = 88172645463325252;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x % n;
}

static void map_alias(struct paged_cpu *p, u32 i)
{
	paged_cpu_map(p, alias(i), GPA + any(SHARED) * PAGE_SIZE, 1, FULL, FULL);
	tlb_flush_page(p->cpu, alias(i));
}

/* Of the entries of a page all lose their write tags, and no others do. */
static void check_protect(struct paged_cpu *p, gpa_t page)
{
	bool before[ALIASES];

	for (u32 i = 0; i < ALIASES; i++)
		before[i] = writes(p, TLB_KERNEL_AC, alias(i));
	tlb_protect(p->cpu, page + any(PAGE_SIZE));
	for (u32 i = 0; i < ALIASES; i++)
		assert_int_equal(writes(p, TLB_KERNEL_AC, alias(i)),
				 before[i] && entry_of(p, TLB_KERNEL_AC, alias(i))->gpa != page);
}

/* Whatever was filled, replaced and dropped meanwhile. */
static void a_page_is_protected_in_all_of_its_entries(void **state)
{
	struct paged_cpu p;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	for (u32 i = 0; i < ALIASES; i++)
		map_alias(&p, i);
	for (u32 i = 0; i < 20000; i++) {
		for (u32 n = any(4); n; n--)
			fill(&p, alias(any(ALIASES)), WRITE);
		if (!any(3))
			map_alias(&p, any(ALIASES));
		if (!any(100))
			tlb_flush_local(p.cpu);
		if (!any(100))
			tlb_flush(p.cpu);
		check_protect(&p, GPA + any(SHARED) * PAGE_SIZE);
	}
	paged_cpu_free(&p);
}

static void invlpg_drops_one_page_or_all_of_a_large_one(void **state)
{
	struct paged_cpu p;
	const gva_t large = GVA + (2ull << 20), huge = GVA + (1ull << 30);

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, GPA, 1, FULL, FULL);
	paged_cpu_map(&p, large, GPA, 2, FULL, FULL);
	fill(&p, GVA, WRITE);
	fill(&p, large + 0x5000, READ);
	fill(&p, large + 0x7000, READ);
	tlb_flush_page(p.cpu, large + 0x1ff123);
	assert_true(reads(&p, TLB_KERNEL_AC, GVA));
	assert_false(reads(&p, TLB_KERNEL_AC, large + 0x5000));
	assert_false(reads(&p, TLB_KERNEL_AC, large + 0x7000));
	tlb_flush_page(p.cpu, GVA + 0x123);
	assert_false(reads(&p, TLB_KERNEL_AC, GVA) || writes(&p, TLB_KERNEL_AC, GVA));

	paged_cpu_map(&p, huge, 0, 3, FULL, FULL);
	fill(&p, huge + GPA, READ);
	tlb_flush_page(p.cpu, huge + 0x3ff00123);
	assert_false(reads(&p, TLB_KERNEL_AC, huge + GPA));
	paged_cpu_free(&p);
}

static const struct translation code_global = { .shift = PAGE_SHIFT, .global = true };
static const struct translation code_local = { .shift = PAGE_SHIFT };
static const struct translation code_large = { .shift = 21, .global = true };
static const struct translation code_4m = { .shift = 22, .global = true };

static void a_flush_drops_the_jumps(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 os = priv->jump_generation[SPACE_OS], usr = priv->jump_generation[SPACE_USR];

	(void)state;
	tlb_flush(cpu);
	assert_int_not_equal(priv->jump_generation[SPACE_OS], os);
	assert_int_not_equal(priv->jump_generation[SPACE_USR], usr);
	cpu_destroy(cpu);
}

static void invlpg_drops_the_jumps_of_code_alone(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 before = priv->jump_generation[SPACE_OS];

	(void)state;
	tlb_flush_page(cpu, GVA);
	assert_int_equal(priv->jump_generation[SPACE_OS], before);
	tlb_fetched(cpu, GVA, &code_global);
	tlb_flush_page(cpu, GVA + 0x123);
	assert_int_not_equal(priv->jump_generation[SPACE_OS], before);
	before = priv->jump_generation[SPACE_OS];
	tlb_fetched(cpu, GVA, &code_large);
	tlb_flush_page(cpu, GVA ^ 0x100000);
	assert_int_not_equal(priv->jump_generation[SPACE_OS], before);
	cpu_destroy(cpu);
}

static void invlpg_anywhere_in_4m_drops_the_jumps(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	const gva_t low = 0x08000000, high = low + 0x200000; /* 32-bit paging: CR4.PSE */

	(void)state;
	for (u32 i = 0; i < 4; i++) {
		u64 before = priv->jump_generation[SPACE_OS];

		tlb_fetched(cpu, i & 1 ? high : low, &code_4m);
		tlb_flush_page(cpu, (i & 2 ? high : low) + 0x123456);
		assert_int_not_equal(priv->jump_generation[SPACE_OS], before);
	}
	cpu_destroy(cpu);
}

static void invlpg_of_user_code_leaves_the_kernels(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 os = priv->jump_generation[SPACE_OS], usr = priv->jump_generation[SPACE_USR];

	(void)state;
	cpu->cpl = 3;
	tlb_fetched(cpu, GVA, &code_local);
	tlb_flush_page(cpu, GVA);
	assert_int_equal(priv->jump_generation[SPACE_OS], os);
	assert_int_not_equal(priv->jump_generation[SPACE_USR], usr);
	cpu->cpl = 0; /* without SMEP the kernel may execute it, too */
	tlb_fetched(cpu, GVA, &code_local);
	tlb_flush_page(cpu, GVA);
	assert_int_not_equal(priv->jump_generation[SPACE_OS], os);
	cpu_destroy(cpu);
}

static void another_address_space_drops_what_is_not_global(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 os = priv->jump_generation[SPACE_OS], usr = priv->jump_generation[SPACE_USR];

	(void)state;
	tlb_fetched(cpu, GVA, &code_global);
	tlb_switch(cpu, 0x1000, false);
	assert_int_equal(priv->jump_generation[SPACE_OS], os);
	assert_int_not_equal(priv->jump_generation[SPACE_USR], usr);
	tlb_fetched(cpu, GVA, &code_local);
	tlb_switch(cpu, 0x1000, false);
	assert_int_not_equal(priv->jump_generation[SPACE_OS], os);
	cpu_destroy(cpu);
}

static void a_pcid_comes_back_to_its_jumps_unless_flushed(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 first;

	(void)state;
	cpu->cr4 |= CR4_PCIDE;
	first = priv->jump_generation[SPACE_USR];
	cpu->cr3 = 0x2002;
	tlb_switch(cpu, 0x1001, true);
	assert_int_not_equal(priv->jump_generation[SPACE_USR], first);
	cpu->cr3 = 0x1001;
	tlb_switch(cpu, 0x2002, true);
	assert_int_equal(priv->jump_generation[SPACE_USR], first);
	tlb_switch(cpu, 0x1001, false);
	assert_int_not_equal(priv->jump_generation[SPACE_USR], first);
	cpu_drop_jumps(cpu); /* code was changed: no entry is valid */
	cpu->cr3 = 0x2002;
	first = priv->jump_generation[SPACE_USR];
	tlb_switch(cpu, 0x1001, true);
	assert_true(priv->jump_generation[SPACE_USR] > first);
	cpu_destroy(cpu);
}

/* A processor knows PCIDs, not roots: what is invalidated under one is under the other. */
static void invlpg_drops_the_jumps_of_all_roots_of_its_pcid(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 first = priv->jump_generation[SPACE_USR];

	(void)state;
	cpu->cr4 |= CR4_PCIDE;
	cpu->cpl = 3;
	tlb_fetched(cpu, GVA, &code_local);
	cpu->cpl = 0;
	cpu->cr3 = 0x2001;
	tlb_switch(cpu, 0x1001, true);
	tlb_flush_page(cpu, GVA);
	cpu->cr3 = 0x1001;
	tlb_switch(cpu, 0x2001, true);
	assert_int_not_equal(priv->jump_generation[SPACE_USR], first);
	cpu_destroy(cpu);
}

#define NOTES 4000

struct note {
	u64 generation;
	u32 space, place, mapping;
};

static struct note notes[NOTES];

/* What was noted last of a place in that generation; 0: nothing. */
static u32 noted(u32 n, u32 space, u64 generation, u32 place)
{
	while (n--)
		if (notes[n].space == space && notes[n].generation == generation &&
		    notes[n].place == place)
			return notes[n].mapping;
	return 0;
}

static void check_mapped(const struct cpu_priv *priv, u32 n)
{
	for (u32 space = 0; space < NSPACES; space++)
		for (u32 i = 0; i < MAPPED_PAGES; i++) {
			u32 mapping = priv->mapped[space].mapping[i];

			if (mapping)
				assert_int_equal(mapping,
						 noted(n, space, priv->jump_generation[space], i));
		}
}

/* More places than are kept of an address space, at times; the rest are few. */
static u32 random_place(u32 random, u32 round)
{
	return random % (round / 1000 & 1 ? MAPPED_PAGES : 8);
}

static void invalidate(struct cpu *cpu, u32 random)
{
	u64 cr3 = cpu->cr3;

	switch (random % 8) {
	case 0:
		tlb_flush_page(cpu, GVA);
		break;
	case 1:
		tlb_flush(cpu);
		break;
	case 2:
		cpu_drop_jumps_of(cpu, random >> 8 & 1);
		break;
	case 3:
		cpu->cpl = random >> 8 & 1 ? 3 : 0;
		tlb_fetched(cpu, GVA, random >> 9 & 1 ? &code_local : &code_global);
		cpu->cpl = 0;
		break;
	default:
		cpu->cr3 = (random >> 8 & 15) << PAGE_SHIFT | (random >> 12 & 3);
		tlb_switch(cpu, cr3, random >> 14 & 3);
	}
}

/* Links to other pages are followed as long as the mapping of their target is there: it must be one
 * that was seen in this generation. */
static void mapped_pages_are_those_of_the_generation(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	u32 filled = 0;

	(void)state;
	srandom(1);
	cpu->cr4 |= CR4_PCIDE;
	for (u32 i = 0; i < NOTES; i++) {
		u32 space = random() & 1, place = random_place(random(), i);

		notes[i] = (struct note){ priv->jump_generation[space], space, place, i + 1 };
		tlb_note_mapped(&priv->mapped[space], place, i + 1);
		assert_int_equal(priv->mapped[space].mapping[place], i + 1);
		if (!(random() & 7))
			invalidate(cpu, random());
		check_mapped(priv, i + 1);
		filled += priv->mapped[SPACE_USR].n > 1;
	}
	assert_true(filled > NOTES / 8);
	cpu_destroy(cpu);
}

/* An address space that comes back finds what it had. */
static void a_pcid_comes_back_to_its_mapped_pages(void **state)
{
	struct cpu *cpu = cpu_create();
	struct mapped_pages *mapped = &cpu_priv(cpu)->mapped[SPACE_USR];

	(void)state;
	cpu->cr4 |= CR4_PCIDE;
	tlb_note_mapped(mapped, 5, 77);
	tlb_note_mapped(mapped, 5, 78);
	tlb_note_mapped(mapped, MAPPED_PAGES - 1, 79);
	cpu->cr3 = 0x2002;
	tlb_switch(cpu, 0x1001, true);
	assert_int_equal(mapped->n, 0);
	assert_int_equal(mapped->mapping[5], 0);
	assert_int_equal(mapped->mapping[MAPPED_PAGES - 1], 0);
	cpu->cr3 = 0x1001;
	tlb_switch(cpu, 0x2002, true);
	assert_int_equal(mapped->n, 2);
	assert_int_equal(mapped->mapping[5], 78);
	assert_int_equal(mapped->mapping[MAPPED_PAGES - 1], 79);
	for (u32 i = 0; i <= MAPPED_KEPT; i++)
		tlb_note_mapped(mapped, i, 100 + i);
	cpu->cr3 = 0x2002;
	tlb_switch(cpu, 0x1001, true);
	for (u32 i = 0; i < MAPPED_PAGES; i++)
		assert_int_equal(mapped->mapping[i], 0);
	cpu_destroy(cpu);
}

/* Tables that the processor reads may be anywhere; accesses of code are checked by the tag alone.
 */
static void addresses_that_are_not_canonical_stay_out(void **state)
{
	const gva_t far = BIT(55) + GVA;
	struct paged_cpu p;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, 0x5000, 1, PTE_P | PTE_W | PTE_A | PTE_D, PTE_P | PTE_W);
	fill(&p, GVA, ACCESS_READ | ACCESS_SYSTEM);
	fill(&p, far, ACCESS_READ | ACCESS_SYSTEM);
	for (u32 set = 0; set < NTLBS; set++)
		assert_false(reads(&p, set, far) || writes(&p, set, far));
	paged_cpu_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_tlb_serves_nothing),
		cmocka_unit_test(a_read_grants_writes_only_when_dirty),
		cmocka_unit_test(each_privilege_has_its_set),
		cmocka_unit_test(fetches_and_devices_stay_out),
		cmocka_unit_test(pages_with_code_are_not_writable),
		cmocka_unit_test(a_page_is_protected_in_all_of_its_entries),
		cmocka_unit_test(invlpg_drops_one_page_or_all_of_a_large_one),
		cmocka_unit_test(a_flush_drops_the_jumps),
		cmocka_unit_test(invlpg_drops_the_jumps_of_code_alone),
		cmocka_unit_test(invlpg_anywhere_in_4m_drops_the_jumps),
		cmocka_unit_test(invlpg_of_user_code_leaves_the_kernels),
		cmocka_unit_test(another_address_space_drops_what_is_not_global),
		cmocka_unit_test(a_pcid_comes_back_to_its_jumps_unless_flushed),
		cmocka_unit_test(invlpg_drops_the_jumps_of_all_roots_of_its_pcid),
		cmocka_unit_test(mapped_pages_are_those_of_the_generation),
		cmocka_unit_test(a_pcid_comes_back_to_its_mapped_pages),
		cmocka_unit_test(addresses_that_are_not_canonical_stay_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
