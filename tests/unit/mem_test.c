// SPDX-License-Identifier: MIT
/*
 * Snapshots of the memory slots: order, search, replacement, overlap, aliases and the dirty bitmap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mem/mem.h"

static struct mem_slot slot(u32 id, gpa_t base, u64 npages)
{
	return (struct mem_slot){
		.id = id, .base = base, .npages = npages, .hva = (hva_t)(0x700000000000 + base)
	};
}

/* Replaces *map by one with the slot. */
static void add(struct mem_map **map, struct mem_slot s)
{
	struct mem_map *old = *map;

	*map = mem_map_with(old, &s);
	assert_non_null(*map);
	assert_int_not_equal((*map)->generation, old->generation);
	free(old);
}

static void drop(struct mem_map **map, u32 id)
{
	struct mem_map *old = *map;

	*map = mem_map_without(old, id);
	assert_non_null(*map);
	free(old);
}

static int setup(void **state)
{
	struct mem_map *map = mem_map_empty();

	assert_non_null(map);
	add(&map, slot(7, 0x100000, 16));
	add(&map, slot(1, 0, 160));
	add(&map, slot(3, 0x40000000, 1));
	*state = map;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static void slots_are_sorted_however_they_come(void **state)
{
	struct mem_map *map = *state;

	assert_int_equal(map->nslots, 3);
	for (u32 i = 1; i < map->nslots; i++)
		assert_true(map->slots[i - 1].base < map->slots[i].base);
}

static void an_address_is_found_from_its_first_to_its_last_byte(void **state)
{
	struct mem_map *map = *state;

	assert_int_equal(mem_find(map, 0)->id, 1);
	assert_int_equal(mem_find(map, 0x9ffff)->id, 1);
	assert_null(mem_find(map, 0xa0000));
	assert_null(mem_find(map, 0xfffff));
	assert_int_equal(mem_find(map, 0x100000)->id, 7);
	assert_int_equal(mem_find(map, 0x10ffff)->id, 7);
	assert_null(mem_find(map, 0x110000));
	assert_int_equal(mem_find(map, 0x40000fff)->id, 3);
	assert_null(mem_find(map, ~0ull));
	assert_ptr_equal(mem_hva(mem_find(map, 0x100123), 0x100123), (hva_t)0x700000100123);
}

static void an_empty_map_holds_nothing(void **state)
{
	struct mem_map *map = mem_map_empty();

	(void)state;
	assert_null(mem_find(map, 0));
	assert_null(mem_find_id(map, 0));
	assert_false(mem_overlaps(map, 0, 0, 1));
	free(map);
}

static void a_slot_moves_when_it_is_put_again(void **state)
{
	struct mem_map *map = *state;

	add(&map, slot(1, 0x80000000, 160));
	*state = map;
	assert_int_equal(map->nslots, 3);
	assert_null(mem_find(map, 0));
	assert_int_equal(mem_find(map, 0x80000000)->id, 1);
	assert_ptr_equal(mem_find_id(map, 1), &map->slots[2]);
}

static void a_slot_that_is_dropped_is_gone_and_the_others_stay(void **state)
{
	struct mem_map *map = *state;

	drop(&map, 7);
	drop(&map, 99);
	*state = map;
	assert_int_equal(map->nslots, 2);
	assert_null(mem_find(map, 0x100000));
	assert_non_null(mem_find(map, 0));
	assert_non_null(mem_find(map, 0x40000000));
}

static void overlap_is_seen_at_either_end_but_not_with_itself(void **state)
{
	struct mem_map *map = *state;

	assert_true(mem_overlaps(map, 50, 0x10f000, 2));
	assert_true(mem_overlaps(map, 50, 0xff000, 2));
	assert_false(mem_overlaps(map, 50, 0x110000, 2));
	assert_false(mem_overlaps(map, 50, 0xff000, 1));
	assert_false(mem_overlaps(map, 7, 0x100000, 16));
	assert_true(mem_overlaps(map, 50, 0, 0x100000));
}

static void a_write_marks_its_page_and_no_other(void **state)
{
	u64 bits[2] = { 0 };
	struct mem_slot s = slot(0, 0x10000, 100);

	(void)state;
	mem_mark_dirty(&s, 0x10000); /* no log: nothing happens */
	s.dirty = bits;
	mem_mark_dirty(&s, 0x10000);
	mem_mark_dirty(&s, 0x10000 + 70 * PAGE_SIZE + 5);
	assert_int_equal(bits[0], 1);
	assert_int_equal(bits[1], BIT(6));
}

/* At another place of the host than slot() has it. */
static struct mem_slot slot_at(u32 id, gpa_t base, u64 npages, u64 host)
{
	struct mem_slot s = slot(id, base, npages);

	s.hva = slot(0, host, 1).hva;
	return s;
}

/* The sum of the other addresses, and how many there are. */
static u64 aliases(const struct mem_map *map, gpa_t gpa, u32 *n)
{
	const struct mem_slot *of = mem_find(map, gpa);
	gpa_t alias, sum = 0;
	u32 at = 0;

	for (*n = 0; mem_next_alias(map, of, gpa, &at, &alias); ++*n) {
		assert_ptr_equal(mem_hva(mem_find(map, alias), alias), mem_hva(of, gpa));
		sum += alias;
	}
	return sum;
}

static void slots_that_share_host_memory_are_aliases_page_by_page(void **state)
{
	struct mem_map *map = *state;
	u32 n;

	assert_false(map->aliased);
	assert_int_equal(aliases(map, 0x3123, &n), 0);
	add(&map, slot_at(8, 0x50000000, 4, 0x3000));
	add(&map, slot_at(9, 0x60000000, 4, 0x5000));
	add(&map, slot_at(10, 0x70000000, 2, 0x200000)); /* shared with none */
	*state = map;
	assert_true(map->aliased);
	assert_true(mem_find_id(map, 1)->aliased);
	assert_true(mem_find_id(map, 8)->aliased);
	assert_true(mem_find_id(map, 9)->aliased);
	assert_false(mem_find_id(map, 7)->aliased);
	assert_false(mem_find_id(map, 10)->aliased);
	assert_int_equal(aliases(map, 0x2fff, &n), 0);
	assert_int_equal(aliases(map, 0x3123, &n), 0x50000123);
	assert_int_equal(aliases(map, 0x50000fff, &n), 0x3fff);
	assert_int_equal(aliases(map, 0x5000, &n), 0x50002000ull + 0x60000000);
	assert_int_equal(n, 2);
	assert_int_equal(aliases(map, 0x60001000, &n), 0x50003000 + 0x6000);
	assert_int_equal(aliases(map, 0x60003fff, &n), 0x8fff);
	assert_int_equal(aliases(map, 0x9000, &n), 0);
	assert_int_equal(aliases(map, 0x70000000, &n), 0);
}

static void aliases_go_with_their_slots_and_move_with_them(void **state)
{
	struct mem_map *map = *state;
	u32 n;

	add(&map, slot_at(8, 0x50000000, 4, 0x3000));
	add(&map, slot_at(9, 0x60000000, 4, 0x5000));
	drop(&map, 1);
	assert_true(map->aliased); /* the other two */
	assert_int_equal(aliases(map, 0x60000000, &n), 0x50002000);
	add(&map, slot_at(8, 0x80000000, 4, 0x3000));
	assert_int_equal(aliases(map, 0x60000000, &n), 0x80002000);
	drop(&map, 9);
	*state = map;
	assert_false(map->aliased);
	assert_false(mem_find_id(map, 8)->aliased);
	assert_int_equal(aliases(map, 0x80002000, &n), 0);
}

static void thousands_of_slots_are_kept_and_found(void **state)
{
	struct mem_map *map = mem_map_empty();

	(void)state;
	for (u32 i = 0; i < 5000; i++)
		add(&map, slot(i, (u64)(i * 2654435761u % 65536) << 20 | (u64)i << 40, 1));
	assert_int_equal(map->nslots, 5000);
	for (u32 i = 0; i < map->nslots; i++)
		assert_ptr_equal(mem_find(map, map->slots[i].base), &map->slots[i]);
	free(map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(slots_are_sorted_however_they_come, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_address_is_found_from_its_first_to_its_last_byte,
						setup, teardown),
		cmocka_unit_test(an_empty_map_holds_nothing),
		cmocka_unit_test_setup_teardown(a_slot_moves_when_it_is_put_again, setup, teardown),
		cmocka_unit_test_setup_teardown(a_slot_that_is_dropped_is_gone_and_the_others_stay,
						setup, teardown),
		cmocka_unit_test_setup_teardown(overlap_is_seen_at_either_end_but_not_with_itself,
						setup, teardown),
		cmocka_unit_test(a_write_marks_its_page_and_no_other),
		cmocka_unit_test_setup_teardown(
			slots_that_share_host_memory_are_aliases_page_by_page, setup, teardown),
		cmocka_unit_test_setup_teardown(aliases_go_with_their_slots_and_move_with_them,
						setup, teardown),
		cmocka_unit_test(thousands_of_slots_are_kept_and_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
