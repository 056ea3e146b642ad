// SPDX-License-Identifier: MIT
/*
 * What processors tell each other about changed code: claims, writes, acknowledgements.
 */
#include "cpu/mmu/shared_code.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cpu/mmu/code_pages.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"

#define PAGES 16
#define GPA   0x3000ull

static struct shared_code shared;
static struct mem_map *map;
static u16 claims[PAGES];
static u8 ram[PAGES * PAGE_SIZE] __attribute__((aligned(4096)));
static struct cpu *cpu[2];

static struct mem_slot slot_of(u64 id)
{
	return (struct mem_slot){ .npages = PAGES, .hva = ram, .claims = claims, .claims_id = id };
}

static void put_slot(u64 id)
{
	struct mem_slot slot = slot_of(id);
	struct mem_map *old = map;

	map = mem_map_with(old, &slot);
	free(old);
	for (u32 i = 0; i < ARRAY_SIZE(cpu); i++)
		cpu[i]->port.mem = map;
}

static int setup(void **state)
{
	(void)state;
	shared = (struct shared_code){ 0 };
	bytes_fill(claims, 0, sizeof(claims));
	map = mem_map_empty();
	for (u32 i = 0; i < ARRAY_SIZE(cpu); i++) {
		cpu[i] = cpu_create();
		cpu_priv(cpu[i])->code = code_create();
		shared_join(cpu[i], &shared, i);
		shared_wake(cpu[i]);
	}
	put_slot(1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(cpu); i++) {
		code_destroy(cpu_priv(cpu[i])->code);
		cpu_destroy(cpu[i]);
	}
	free(map);
	return 0;
}

/* Processor i has translated from the first line of the page. */
static u64 translate(u32 i, gpa_t gpa)
{
	struct code_page *page = code_add(cpu_priv(cpu[i])->code, gpa);
	u64 number = shared_claim(cpu[i], page);

	page->lines = 1;
	return number;
}

static void nothing_is_no_news(void **state)
{
	(void)state;
	assert_false(shared_changed(cpu[0]) || shared_changed(cpu[1]));
	translate(0, GPA);
	assert_false(shared_changed(cpu[0]) || shared_changed(cpu[1]));
}

static void the_programs_turn_is_news_once(void **state)
{
	(void)state;
	shared_outside(&shared);
	assert_true(shared_changed(cpu[0]) && shared_changed(cpu[1]));
	assert_false(shared_changed(cpu[0]) || shared_changed(cpu[1]));
}

static void a_write_to_claimed_memory_is_news_to_others(void **state)
{
	(void)state;
	translate(0, GPA);
	assert_false(shared_watched(cpu[1], GPA + PAGE_SIZE, 8));
	assert_true(shared_watched(cpu[1], GPA + 0x800, 8));
	shared_written(cpu[1], GPA + 0x800, 8);
	assert_true(shared_changed(cpu[0]));
	assert_false(shared_changed(cpu[1]));
}

static void ones_own_code_is_noted_not_news(void **state)
{
	(void)state;
	translate(0, GPA);
	assert_false(shared_watched(cpu[0], GPA + 0x800, 8));
	assert_true(shared_watched(cpu[0], GPA, 8));
	shared_written(cpu[0], GPA, 8);
	assert_int_equal(cpu_priv(cpu[0])->code->nwritten, 1);
	assert_false(shared_changed(cpu[0]) || shared_changed(cpu[1]));
}

static void what_is_released_may_be_written(void **state)
{
	(void)state;
	translate(0, GPA);
	translate(1, GPA);
	shared_release(cpu[0], code_find(cpu_priv(cpu[0])->code, GPA));
	assert_true(shared_claimed(cpu[0], GPA));
	shared_release(cpu[1], code_find(cpu_priv(cpu[1])->code, GPA));
	assert_false(shared_claimed(cpu[0], GPA) || claims[GPA / PAGE_SIZE]);
}

static void claims_are_known_when_all_others_acknowledged(void **state)
{
	u64 number = translate(0, GPA);

	(void)state;
	assert_true(shared_acknowledged(cpu[0]) < number);
	shared_acknowledge(cpu[1]);
	assert_true(shared_acknowledged(cpu[0]) >= number);
}

static void who_acknowledges_gives_up_writing(void **state)
{
	struct translation t;

	(void)state;
	cpu_update_mode(cpu[1]); /* without paging: an address is its own */
	assert_int_equal(mmu_fill(cpu[1], GPA, ACCESS_WRITE, &t), FAULT_NONE);
	assert_int_equal(cpu_priv(cpu[1])->tlb[TLB_KERNEL_AC][GPA / PAGE_SIZE].write, GPA);
	translate(0, GPA);
	shared_acknowledge(cpu[1]);
	assert_int_not_equal(cpu_priv(cpu[1])->tlb[TLB_KERNEL_AC][GPA / PAGE_SIZE].write, GPA);
	assert_int_equal(cpu_priv(cpu[1])->tlb[TLB_KERNEL_AC][GPA / PAGE_SIZE].read, GPA);
	assert_int_equal(mmu_fill(cpu[1], GPA, ACCESS_WRITE, &t), FAULT_NONE);
	assert_int_not_equal(cpu_priv(cpu[1])->tlb[TLB_KERNEL_AC][GPA / PAGE_SIZE].write, GPA);
}

static void sleepers_are_not_waited_for(void **state)
{
	u64 number = translate(0, GPA);

	(void)state;
	shared_sleep(cpu[1]);
	assert_true(shared_acknowledged(cpu[0]) >= number);
	shared_wake(cpu[1]); /* it still has to look before it executes anything */
	assert_true(shared_acknowledged(cpu[0]) < number);
}

static void a_new_slot_has_no_claims(void **state)
{
	(void)state;
	translate(0, GPA);
	assert_false(shared_claim_gone(cpu[0], code_find(cpu_priv(cpu[0])->code, GPA)));
	put_slot(2);
	assert_true(shared_claim_gone(cpu[0], code_find(cpu_priv(cpu[0])->code, GPA)));
	shared_release(cpu[0], code_find(cpu_priv(cpu[0])->code, GPA));
	assert_int_equal(claims[GPA / PAGE_SIZE], 1); /* it was another slot's */
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_no_news),
		TEST(the_programs_turn_is_news_once),
		TEST(a_write_to_claimed_memory_is_news_to_others),
		TEST(ones_own_code_is_noted_not_news),
		TEST(what_is_released_may_be_written),
		TEST(claims_are_known_when_all_others_acknowledged),
		TEST(who_acknowledges_gives_up_writing),
		TEST(sleepers_are_not_waited_for),
		TEST(a_new_slot_has_no_claims),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
