// SPDX-License-Identifier: MIT
/*
 * The page walk: every row of the permission table in every format and page size, reserved bits,
 * accessed and dirty bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/mode.h"
#include "unit/paged_cpu.h"

#define GVA  0x40000000ull /* aligned for every page size */
#define GPA  0x400000ull
#define FULL (PTE_P | PTE_W | PTE_U)
#define P    PTE_P
#define W    PTE_W
#define U    PTE_U
#define NX   PTE_NX

/* The state that permissions depend on. */
enum { WP = 1, SMEP = 2, SMAP = 4, AC = 8, NXE = 16 };
#define READ   ACCESS_READ
#define WRITE  ACCESS_WRITE
#define FETCH  ACCESS_FETCH
#define SYSTEM ACCESS_SYSTEM

#define OK -1

static const struct permission_row {
	u8 cpl;
	u8 state;
	u32 access;
	u64 entry; /* rights of the leaf; the tables above have all */
	int error; /* of the page fault, or OK */
} permission_rows[] = {
	/* Supervisor reads and writes on supervisor pages. */
	{ 0, WP, READ, P, OK },
	{ 0, WP, READ, 0, 0x0 },
	{ 0, WP, WRITE, 0, 0x2 },
	{ 0, WP, WRITE, P | W, OK },
	{ 0, WP, WRITE, P, 0x3 },
	{ 0, 0, WRITE, P, OK },
	{ 1, WP, WRITE, P, 0x3 },
	{ 2, WP, READ, P, OK },
	/* On user pages: SMAP, AC and implicit accesses. */
	{ 0, WP, READ, P | U, OK },
	{ 0, WP, WRITE, P | U, 0x3 },
	{ 0, 0, WRITE, P | U, OK },
	{ 0, WP | SMAP, READ, P | U, 0x1 },
	{ 0, WP | SMAP, WRITE, P | U | W, 0x3 },
	{ 0, SMAP, WRITE, P | U | W, 0x3 },
	{ 0, WP | SMAP | AC, READ, P | U, OK },
	{ 0, WP | SMAP | AC, WRITE, P | U | W, OK },
	{ 0, WP | SMAP | AC, WRITE, P | U, 0x3 },
	{ 0, SMAP | AC, WRITE, P | U, OK },
	{ 0, WP | SMAP | AC, READ | SYSTEM, P | U, 0x1 },
	{ 0, WP | SMAP, READ | SYSTEM, P, OK },
	{ 0, WP, READ | SYSTEM, P | U, OK },
	{ 2, WP | SMAP, READ, P | U, 0x1 },
	/* Implicit accesses at CPL 3 are supervisor accesses. */
	{ 3, WP, READ | SYSTEM, P, OK },
	{ 3, WP, WRITE | SYSTEM, P, 0x3 },
	{ 3, WP | SMAP | AC, READ | SYSTEM, P | U, 0x1 },
	{ 3, WP, READ | SYSTEM, 0, 0x0 },
	/* User accesses. */
	{ 3, WP, READ, P | U, OK },
	{ 3, WP, READ, P, 0x5 },
	{ 3, WP, READ, 0, 0x4 },
	{ 3, WP, WRITE, P | U | W, OK },
	{ 3, WP, WRITE, P | U, 0x7 },
	{ 3, 0, WRITE, P | U, 0x7 },
	{ 3, WP, WRITE, P | W, 0x7 },
	{ 3, WP | SMAP, READ, P | U, OK },
	{ 3, WP, WRITE | ACCESS_RMW, P | U, 0x7 },
	/* Fetches. */
	{ 0, WP, FETCH, P, OK },
	{ 0, WP, FETCH, P | U, OK },
	{ 0, WP | SMEP, FETCH, P, OK },
	{ 0, WP | SMEP, FETCH, P | U, 0x11 },
	{ 0, WP | SMEP, FETCH, 0, 0x10 },
	{ 0, WP | SMAP, FETCH, P | U, OK },
	{ 3, WP | SMEP, FETCH, P | U, OK },
	{ 3, WP | SMEP, FETCH, P, 0x15 },
	{ 3, WP, FETCH, P, 0x5 },
	{ 3, WP, FETCH, 0, 0x4 },
	{ 0, WP | NXE, FETCH, P, OK },
	{ 0, WP | NXE, FETCH, P | NX, 0x11 },
	{ 0, WP | NXE, FETCH, 0, 0x10 },
	{ 0, WP | NXE, READ, P | NX, OK },
	{ 3, WP | NXE, FETCH, P | U | NX, 0x15 },
	{ 3, WP | NXE, READ, P | U | NX, OK },
	{ 3, WP | NXE, WRITE, P | U | W | NX, OK },
	/* NX is reserved while EFER.NXE is clear. */
	{ 0, WP, READ, P | NX, 0x9 },
	{ 3, WP, WRITE, P | U | NX, 0xf },
	{ 0, WP, FETCH, P | NX, 0x9 },
};

static const struct shape {
	const char *name;
	enum format format;
	u32 level; /* of the leaf */
} shapes[] = {
	{ "32-bit 4K", FORMAT_32BIT, 1 },   { "32-bit 4M", FORMAT_32BIT, 2 },
	{ "PAE 4K", FORMAT_PAE, 1 },	    { "PAE 2M", FORMAT_PAE, 2 },
	{ "4-level 4K", FORMAT_4LEVEL, 1 }, { "4-level 2M", FORMAT_4LEVEL, 2 },
	{ "4-level 1G", FORMAT_4LEVEL, 3 }, { "5-level 4K", FORMAT_5LEVEL, 1 },
	{ "5-level 1G", FORMAT_5LEVEL, 3 },
};

static void set_state(struct cpu *cpu, u8 cpl, u8 state)
{
	cpu->cpl = cpl;
	cpu->cr0 = (cpu->cr0 & ~CR0_WP) | (state & WP ? CR0_WP : 0);
	cpu->cr4 &= ~(CR4_SMEP | CR4_SMAP);
	cpu->cr4 |= (state & SMEP ? CR4_SMEP : 0) | (state & SMAP ? CR4_SMAP : 0);
	cpu->efer = (cpu->efer & ~EFER_NX) | (state & NXE ? EFER_NX : 0);
	cpu->rflags = FL_FIX1 | (state & AC ? FL_AC : 0);
	cpu_update_mode(cpu);
	tlb_flush(cpu);
}

/* -1 or the error code of the page fault for this access. */
static int try(struct cpu *cpu, gva_t gva, u32 access, struct translation *t)
{
	enum guest_fault fault;

	cpu->port.event.kind = EVENT_NONE;
	fault = mmu_translate(cpu, gva, access, t);
	if (fault == FAULT_NONE)
		return OK;
	assert_int_equal(fault, FAULT_RAISED);
	assert_int_equal(cpu->port.event.kind, EVENT_EXCEPTION);
	assert_int_equal(cpu->port.event.vector, VEC_PF);
	assert_true(cpu->port.event.has_error && cpu->port.event.has_payload);
	assert_int_equal(cpu->port.event.payload, gva);
	return cpu->port.event.error;
}

static gpa_t leaf_gpa(const struct shape *s)
{
	return s->level == 3 ? 0 : GPA;
}

static void check_row(const struct shape *s, const struct permission_row *row, u64 leaf, u64 upper)
{
	struct paged_cpu p;
	struct translation t;
	int error;

	paged_cpu_init(&p, s->format);
	paged_cpu_map(&p, GVA, leaf_gpa(s), s->level, leaf, upper);
	set_state(p.cpu, row->cpl, row->state);
	error = try(p.cpu, GVA + 0x123, row->access, &t);
	if (error != row->error)
		print_error("%s: row %td: error %#x, not %#x\n", s->name, row - permission_rows,
			    error, row->error);
	assert_int_equal(error, row->error);
	if (error == OK)
		assert_int_equal(t.gpa, leaf_gpa(s) + 0x123);
	paged_cpu_free(&p);
}

static bool applies(const struct shape *s, const struct permission_row *row)
{
	if (s->format == FORMAT_32BIT && ((row->entry & NX) || (row->state & NXE)))
		return false;
	return true;
}

static void permissions_follow_the_leaf(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(shapes); i++)
		for (u32 j = 0; j < ARRAY_SIZE(permission_rows); j++)
			if (applies(&shapes[i], &permission_rows[j]))
				check_row(&shapes[i], &permission_rows[j], permission_rows[j].entry,
					  FULL);
}

/* The same rights, withheld by the tables above instead. */
static void permissions_follow_the_tables(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(shapes); i++)
		for (u32 j = 0; j < ARRAY_SIZE(permission_rows); j++) {
			const struct shape *s = &shapes[i];
			const struct permission_row *row = &permission_rows[j];

			if ((s->format == FORMAT_32BIT || s->format == FORMAT_PAE) && s->level == 2)
				continue; /* nothing above that has rights */
			if (row->entry && applies(s, row))
				check_row(s, row, FULL, row->entry);
		}
}

static const struct reserved_row {
	enum format format;
	u32 level; /* where the bits are */
	u32 leaf;  /* level of the leaf */
	u64 bits;
	bool amd;
	int error;
} reserved_rows[] = {
	/* phys_bits is 39 here. */
	{ FORMAT_4LEVEL, 1, 1, BIT(39), false, 0x9 },
	{ FORMAT_4LEVEL, 1, 1, BIT(51), false, 0x9 },
	{ FORMAT_4LEVEL, 1, 1, MASK(62, 52), false, OK },
	{ FORMAT_4LEVEL, 4, 1, BIT(45), false, 0x9 },
	{ FORMAT_4LEVEL, 4, 1, PTE_PS, false, 0x9 },
	{ FORMAT_4LEVEL, 4, 1, PTE_G, false, OK },
	{ FORMAT_4LEVEL, 4, 1, PTE_G, true, 0x9 },
	{ FORMAT_4LEVEL, 3, 1, PTE_G, true, OK },
	{ FORMAT_4LEVEL, 2, 2, BIT(13), false, 0x9 },
	{ FORMAT_4LEVEL, 2, 2, BIT(20), false, 0x9 },
	{ FORMAT_4LEVEL, 2, 2, BIT(12), false, OK }, /* PAT */
	{ FORMAT_4LEVEL, 3, 3, BIT(13), false, 0x9 },
	{ FORMAT_4LEVEL, 3, 3, BIT(29), false, 0x9 },
	{ FORMAT_4LEVEL, 3, 3, BIT(12), false, OK },
	{ FORMAT_5LEVEL, 5, 1, PTE_PS, false, 0x9 },
	{ FORMAT_5LEVEL, 5, 1, BIT(40), false, 0x9 },
	{ FORMAT_PAE, 1, 1, BIT(39), false, 0x9 },
	{ FORMAT_PAE, 1, 1, BIT(52), false, 0x9 },
	{ FORMAT_PAE, 2, 1, BIT(62), false, 0x9 },
	{ FORMAT_PAE, 2, 2, BIT(13), false, 0x9 },
	{ FORMAT_32BIT, 2, 2, BIT(21), false, 0x9 },
	{ FORMAT_32BIT, 2, 2, BIT(20), false, 0x9 }, /* PSE-36: bit 39 of the address */
	{ FORMAT_32BIT, 2, 2, BIT(19), false, OK },
	{ FORMAT_32BIT, 1, 1, MASK(11, 9), false, OK },
};

/* SDM 3A 4.6.2, 4.7: key 3 in the leaf. */
#define KEY    3
#define AD     PKRU_AD(KEY)
#define WD     PKRU_WD(KEY)
#define OTHERS (u32) ~(AD | WD)

static const struct key_row {
	u8 cpl, state;
	u32 access;
	u64 entry;
	u32 pkru;
	int error;
} key_rows[] = {
	{ 3, WP, READ, P | U | W, 0, OK },
	{ 3, WP, READ, P | U | W, OTHERS, OK },
	{ 3, WP, WRITE, P | U | W, OTHERS, OK },
	{ 3, WP, READ, P | U | W, AD, 0x25 },
	{ 3, WP, WRITE, P | U | W, AD, 0x27 },
	{ 3, WP, READ, P | U | W, WD, OK },
	{ 3, WP, WRITE, P | U | W, WD, 0x27 },
	{ 3, 0, WRITE, P | U | W, WD, 0x27 },
	{ 3, WP, WRITE | ACCESS_RMW, P | U | W, WD, 0x27 },
	/* Data only. */
	{ 3, WP, FETCH, P | U | W, AD | WD, OK },
	{ 3, WP | NXE, FETCH, P | U | W | NX, AD | WD, 0x15 },
	/* The supervisor on user pages: WD with CR0.WP only, AC means nothing to keys. */
	{ 0, WP, READ, P | U | W, AD, 0x21 },
	{ 0, WP | SMAP | AC, READ, P | U | W, AD, 0x21 },
	{ 0, WP, WRITE, P | U | W, WD, 0x23 },
	{ 0, 0, WRITE, P | U | W, WD, OK },
	{ 0, 0, WRITE, P | U | W, AD, 0x23 },
	{ 3, WP, READ | SYSTEM, P | U | W, AD, 0x21 },
	/* Supervisor pages have no keys. */
	{ 0, WP, WRITE, P | W, AD | WD, OK },
	{ 3, WP, READ, P | W, AD, 0x5 },
	/* The error code tells of keys also where something else forbids the access as well. */
	{ 3, WP, WRITE, P | U, AD, 0x27 },
	{ 0, WP | SMAP, READ, P | U, AD, 0x21 },
	{ 3, WP, WRITE, P | U, 0, 0x7 },
	{ 3, WP, READ, 0, AD, 0x4 },
};

static void check_key_row(const struct shape *s, const struct key_row *row, bool enabled)
{
	struct paged_cpu p;
	struct translation t;
	int error;

	paged_cpu_init(&p, s->format);
	paged_cpu_map(&p, GVA, leaf_gpa(s), s->level, row->entry | (u64)KEY << 59, FULL);
	p.cpu->cr4 |= enabled ? CR4_PKE : 0;
	p.cpu->pkru = enabled ? row->pkru : AD | WD;
	set_state(p.cpu, row->cpl, row->state);
	error = try(p.cpu, GVA, row->access, &t);
	if (enabled)
		assert_int_equal(error, row->error);
	else
		assert_true(error == OK || !(error & PF_PK));
	paged_cpu_free(&p);
}

static void protection_keys_guard_data_on_user_pages(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(shapes); i++)
		for (u32 j = 0; j < ARRAY_SIZE(key_rows); j++)
			if (shapes[i].format >= FORMAT_4LEVEL) {
				check_key_row(&shapes[i], &key_rows[j], true);
				check_key_row(&shapes[i], &key_rows[j], false);
			}
}

static void or_entry(struct paged_cpu *p, u32 level, u64 bits)
{
	u8 *entry = paged_cpu_entry(p, GVA, level);

	for (u32 i = 0; i < (p->format == FORMAT_32BIT ? 4 : 8); i++)
		entry[i] |= bits >> (8 * i);
}

static void reserved_bits_fault(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(reserved_rows); i++) {
		const struct reserved_row *row = &reserved_rows[i];
		struct paged_cpu p;
		struct translation t;
		int error;

		paged_cpu_init(&p, row->format);
		p.cpu->phys_bits = 39;
		p.cpu->is_amd = row->amd;
		paged_cpu_map(&p, GVA, row->leaf == 3 ? 0 : GPA, row->leaf, FULL, FULL);
		or_entry(&p, row->level, row->bits);
		error = try(p.cpu, GVA, READ, &t);
		if (error != row->error)
			print_error("reserved row %u\n", i);
		assert_int_equal(error, row->error);
		paged_cpu_free(&p);
	}
}

static void gigabyte_pages_need_their_feature(void **state)
{
	struct paged_cpu p;
	struct translation t;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, 0, 3, FULL, FULL);
	p.cpu->features[FEAT_PDPE1GB / 64] &= ~BIT(FEAT_PDPE1GB % 64);
	assert_int_equal(try(p.cpu, GVA, READ, &t), 0x9);
	paged_cpu_free(&p);
}

static void pse36_reaches_above_4g(void **state)
{
	struct paged_cpu p;
	struct translation t;

	(void)state;
	paged_cpu_init(&p, FORMAT_32BIT);
	p.cpu->phys_bits = 40;
	paged_cpu_map(&p, GVA, 0x800000, 2, FULL | BIT(13) | BIT(20), FULL);
	assert_int_equal(try(p.cpu, GVA + 0x3fffff, READ, &t), OK);
	assert_int_equal(t.gpa, (BIT(32) | BIT(39)) + 0xbfffff);
	assert_null(t.slot);
	paged_cpu_free(&p);
}

static void accessed_and_dirty_are_set_where_due(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(shapes); i++) {
		const struct shape *s = &shapes[i];
		u32 top = s->format == FORMAT_32BIT || s->format == FORMAT_PAE ? 2
									       : (u32)s->format + 1;
		struct paged_cpu p;
		struct translation t;

		paged_cpu_init(&p, s->format);
		paged_cpu_map(&p, GVA, leaf_gpa(s), s->level, FULL, FULL);
		assert_int_equal(try(p.cpu, GVA, READ, &t), OK);
		for (u32 level = top; level >= s->level; level--)
			assert_int_equal(paged_cpu_entry_value(&p, GVA, level) & (PTE_A | PTE_D),
					 PTE_A);
		assert_int_equal(try(p.cpu, GVA, WRITE, &t), OK);
		for (u32 level = top; level > s->level; level--)
			assert_int_equal(paged_cpu_entry_value(&p, GVA, level) & PTE_D, 0);
		assert_int_equal(paged_cpu_entry_value(&p, GVA, s->level) & PTE_D, PTE_D);
		paged_cpu_free(&p);
	}
}

static void a_refused_access_sets_no_bits(void **state)
{
	struct paged_cpu p;
	struct translation t;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, GPA, 1, P | U, FULL);
	assert_int_equal(try(p.cpu, GVA, WRITE, &t), 0x3);
	for (u32 level = 4; level; level--)
		assert_int_equal(paged_cpu_entry_value(&p, GVA, level) & (PTE_A | PTE_D), 0);
	paged_cpu_free(&p);
}

static bool is_dirty(const struct paged_cpu *p, gpa_t gpa)
{
	u64 page = gpa >> PAGE_SHIFT;

	return p->dirty[page / 64] >> (page % 64) & 1;
}

static void writes_and_bit_updates_reach_the_dirty_log(void **state)
{
	struct paged_cpu p;
	struct translation t;
	gpa_t table;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, GPA, 1, FULL, FULL);
	table = paged_cpu_entry(&p, GVA, 1) - p.ram;
	assert_int_equal(try(p.cpu, GVA, READ, &t), OK);
	assert_false(is_dirty(&p, GPA));
	assert_true(is_dirty(&p, table));
	assert_int_equal(try(p.cpu, GVA, WRITE, &t), OK);
	assert_true(is_dirty(&p, GPA));
	paged_cpu_free(&p);
}

static void tables_outside_ram_are_not_present(void **state)
{
	struct paged_cpu p;
	struct translation t;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	p.cpu->cr3 = MMIO_BASE;
	assert_int_equal(try(p.cpu, GVA, READ, &t), 0);
	paged_cpu_free(&p);
}

static void tables_in_rom_keep_their_bits(void **state)
{
	struct paged_cpu p;
	struct translation t;
	u64 entry = GPA | FULL;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, GVA, GPA, 1, FULL, FULL);
	*(u64 *)paged_cpu_entry(&p, GVA, 2) = ROM_BASE | FULL;
	memcpy(p.rom + (GVA >> 12 & 511) * 8, &entry, 8);
	assert_int_equal(try(p.cpu, GVA, WRITE, &t), OK);
	assert_memory_equal(p.rom + (GVA >> 12 & 511) * 8, &entry, 8);
	paged_cpu_free(&p);
}

static void without_paging_addresses_are_physical(void **state)
{
	struct paged_cpu p;
	struct translation t;

	(void)state;
	paged_cpu_init(&p, FORMAT_NONE);
	assert_int_equal(try(p.cpu, 0x100234, WRITE, &t), OK);
	assert_int_equal(t.gpa, 0x100234);
	assert_ptr_equal(t.host, p.ram + 0x100234);
	p.cpu->a20_masked = true;
	assert_int_equal(try(p.cpu, 0x100234, READ, &t), OK);
	assert_int_equal(t.gpa, 0x234);
	paged_cpu_free(&p);
}

static void outside_long_mode_addresses_have_32_bits(void **state)
{
	struct paged_cpu p;
	struct translation t;

	(void)state;
	paged_cpu_init(&p, FORMAT_PAE);
	paged_cpu_map(&p, GVA, GPA, 1, FULL, FULL);
	assert_int_equal(try(p.cpu, GVA, READ, &t), OK);
	assert_int_equal(mmu_translate(p.cpu, GVA | BIT(32), READ, &t), FAULT_NONE);
	assert_int_equal(t.gpa, GPA);
	paged_cpu_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(permissions_follow_the_leaf),
		cmocka_unit_test(permissions_follow_the_tables),
		cmocka_unit_test(protection_keys_guard_data_on_user_pages),
		cmocka_unit_test(reserved_bits_fault),
		cmocka_unit_test(gigabyte_pages_need_their_feature),
		cmocka_unit_test(pse36_reaches_above_4g),
		cmocka_unit_test(accessed_and_dirty_are_set_where_due),
		cmocka_unit_test(a_refused_access_sets_no_bits),
		cmocka_unit_test(writes_and_bit_updates_reach_the_dirty_log),
		cmocka_unit_test(tables_outside_ram_are_not_present),
		cmocka_unit_test(tables_in_rom_keep_their_bits),
		cmocka_unit_test(without_paging_addresses_are_physical),
		cmocka_unit_test(outside_long_mode_addresses_have_32_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
