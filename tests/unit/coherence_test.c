// SPDX-License-Identifier: MIT
/*
 * Several timing models that share a last level: who has a line, who must give it up, and what is
 * counted of that. Host addresses are physical ones plus HOST.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "timing/coherence.h"
#include "timing/levels.h"
#include "timing/params.h"
#include "timing/sets.h"
#include "unit/on_models.h"

#define HOST 0x7f0000000000ull
#define LINE 64ull
#define CPUS 3
#define A    0x10000ull

static const struct model *model;
static struct coherence *caches;
static struct timing *cpu[CPUS];
static void *memory[CPUS];
static u64 count[CPUS][NRETIRE];

static void create(u32 n)
{
	caches = aligned_alloc(_Alignof(struct coherence), sizeof(*caches));
	assert_non_null(caches);
	memset(caches, 0, sizeof(*caches));
	assert_int_equal(coherence_create(caches, model), 0);
	memset(count, 0, sizeof(count));
	for (u32 i = 0; i < n; i++) {
		cpu[i] = calloc(1, sizeof(*cpu[i]));
		memory[i] = calloc(1, timing_memory(model));
		assert_true(cpu[i] && memory[i]);
		timing_init(cpu[i], model, memory[i], count[i]);
		cpu[i]->prefetch.kinds = 0;
		coherence_add_cpu(caches);
		coherence_join(caches, cpu[i], i);
	}
}

static int on_model(void **state)
{
	model = model_find(*state);
	create(CPUS);
	return 0;
}

static int done(void **state)
{
	(void)state;
	for (u32 i = 0; i < CPUS; i++) {
		free(cpu[i]);
		free(memory[i]);
		cpu[i] = NULL;
		memory[i] = NULL;
	}
	coherence_destroy(caches);
	free(caches);
	return 0;
}

/* On a page so large that translation plays no part. */
static void access_line(u32 i, u64 address, bool store, bool modify)
{
	struct timing_access a = { .linear = address,
				   .physical = address,
				   .host = HOST + address,
				   .size = 8,
				   .page_shift = 30,
				   .store = store,
				   .modify = modify,
				   .space = 1 };

	timing_data(cpu[i], &a);
}

static void load(u32 i, u64 address)
{
	access_line(i, address, false, false);
}

static void store(u32 i, u64 address)
{
	access_line(i, address, true, false);
}

static void modify(u32 i, u64 address)
{
	access_line(i, address, true, true);
}

static u64 taken(u32 i, enum retire_class class)
{
	u64 n = count[i][class];

	count[i][class] = 0;
	return n;
}

static const struct observed_access *seen(u32 i)
{
	return &cpu[i]->seen.access;
}

static void expect(u32 i, enum observed_level level, enum observed_snoop snoop)
{
	u16 cycles = cpu[i]->params->latency[snoop ? 4 : level - OBSERVED_L1];

	assert_int_equal(seen(i)->level, level);
	assert_int_equal(seen(i)->snoop, snoop);
	assert_in_range(seen(i)->latency, cycles, cycles + 100); /* a walk may be in it */
}

/* Would translated code pass? */
static bool reads_in_line(u32 i, u64 address)
{
	return cpu[i]->data_line[timing_place(HOST + address)] == ((HOST + address) & ~(LINE - 1));
}

static bool writes_in_line(u32 i, u64 address)
{
	return cpu[i]->store_line[timing_place(HOST + address)] == ((HOST + address) & ~(LINE - 1));
}

static void a_load_of_what_another_wrote_is_a_hitm(void **state)
{
	(void)state;
	store(0, A);
	expect(0, OBSERVED_MEMORY, OBSERVED_SNOOP_NONE);
	load(1, A + 8);
	expect(1, OBSERVED_LLC, OBSERVED_SNOOP_MODIFIED);
	assert_int_equal(taken(1, RETIRE_LOAD_FORWARDS), 1);
	assert_int_equal(taken(1, RETIRE_LOAD_LLC_HITS), 1);
	assert_int_equal(taken(1, RETIRE_LLC_MISSES), 0);
	load(1, A + 16);
	expect(1, OBSERVED_L1, OBSERVED_SNOOP_NONE);
	load(0, A);
	expect(0, OBSERVED_L1, OBSERVED_SNOOP_NONE);
	assert_int_equal(taken(0, RETIRE_LOAD_FORWARDS), 0);
	assert_int_equal(taken(1, RETIRE_LOAD_FORWARDS), 0);
}

static void a_clean_line_is_forwarded(void **state)
{
	(void)state;
	load(0, A);
	load(1, A);
	expect(1, OBSERVED_LLC, OBSERVED_SNOOP_CLEAN);
	assert_int_equal(taken(1, RETIRE_LOAD_FORWARDS), model->set != MODEL_SKYLAKE);
	assert_true(reads_in_line(0, A) && reads_in_line(1, A));
}

static void a_store_takes_the_line_from_all_others(void **state)
{
	(void)state;
	load(0, A);
	load(1, A);
	load(2, A);
	memset(count, 0, sizeof(count));
	store(0, A);
	expect(0, OBSERVED_LLC, OBSERVED_SNOOP_CLEAN);
	assert_int_equal(taken(0, RETIRE_STORE_L1_MISSES), 1);
	assert_int_equal(taken(0, RETIRE_L1D_FILLS), 0);
	assert_true(writes_in_line(0, A) && reads_in_line(0, A));
	for (u32 i = 1; i < CPUS; i++) {
		assert_false(reads_in_line(i, A));
		assert_false(writes_in_line(i, A));
	}
	store(0, A);
	expect(0, OBSERVED_L1, OBSERVED_SNOOP_NONE);
	load(1, A);
	expect(1, OBSERVED_LLC, OBSERVED_SNOOP_MODIFIED);
	load(2, A); /* the second finds it clean */
	expect(2, OBSERVED_LLC, OBSERVED_SNOOP_CLEAN);
}

static void a_line_that_nobody_else_has_is_written_at_once(void **state)
{
	(void)state;
	load(0, A);
	memset(count, 0, sizeof(count));
	assert_false(writes_in_line(0, A));
	store(0, A);
	expect(0, OBSERVED_L1, OBSERVED_SNOOP_NONE);
	assert_int_equal(taken(0, RETIRE_L1D_MISSES), 0);
	assert_true(writes_in_line(0, A));
}

static void a_reader_takes_the_right_to_write(void **state)
{
	(void)state;
	store(0, A);
	assert_true(writes_in_line(0, A));
	load(1, A);
	assert_true(reads_in_line(0, A));
	assert_false(writes_in_line(0, A));
	store(0, A);
	expect(0, OBSERVED_LLC, OBSERVED_SNOOP_CLEAN);
	load(1, A);
	expect(1, OBSERVED_LLC, OBSERVED_SNOOP_MODIFIED);
}

/* Also where the line buffer holds another line of the set by then. */
static void a_line_leaves_all_private_caches(void **state)
{
	(void)state;
	load(1, A);
	load(1, A + LINE * TIMING_LINES);
	store(0, A);
	load(1, A + LINE * TIMING_LINES);
	expect(1, OBSERVED_L1, OBSERVED_SNOOP_NONE);
	load(1, A);
	expect(1, OBSERVED_LLC, OBSERVED_SNOOP_MODIFIED);
}

/* Stores alone are no loads; read-modify-writes are, if they read what another wrote. */
static void two_writers_meet(void **state)
{
	(void)state;
	for (u32 i = 0; i < 10; i++) {
		store(0, A);
		store(1, A + 8);
		expect(1, OBSERVED_LLC, OBSERVED_SNOOP_MODIFIED);
	}
	assert_int_equal(taken(0, RETIRE_LOAD_FORWARDS), 0);
	assert_int_equal(taken(0, RETIRE_SLOW_LOADS), 0);
	assert_int_equal(taken(1, RETIRE_STORE_L2_MISSES), 10);
	memset(count, 0, sizeof(count));
	for (u32 i = 0; i < 10; i++) {
		modify(0, A);
		modify(1, A + 8);
	}
	assert_int_equal(taken(0, RETIRE_LOAD_FORWARDS), 10);
	assert_int_equal(taken(1, RETIRE_LOAD_FORWARDS), 10);
	assert_int_equal(taken(1, RETIRE_SLOW_LOADS), 10);
}

/* Which lines are loaded ahead does not change what is said of the load: of the second line the
 * third is prefetched, which nobody has, and of the third, which then is there, the fourth, a
 * written one. */
static void a_prefetch_does_not_speak_for_its_load(void **state)
{
	(void)state;
	for (u64 line = 0; line < 4; line++)
		if (line != 2)
			store(0, A + line * LINE);
	cpu[1]->prefetch.kinds = PREFETCH_NEXT;
	for (u64 line = 0; line < 3; line++) {
		load(1, A + line * LINE);
		expect(1, line == 2 ? OBSERVED_L1 : OBSERVED_LLC,
		       line == 2 ? OBSERVED_SNOOP_NONE : OBSERVED_SNOOP_MODIFIED);
		assert_int_equal(taken(1, RETIRE_LOAD_FORWARDS), line != 2);
	}
}

static void neighbours_do_not_meet(void **state)
{
	(void)state;
	modify(0, A);
	modify(1, A + LINE);
	memset(count, 0, sizeof(count));
	for (u32 i = 0; i < 10; i++) {
		modify(0, A);
		modify(1, A + LINE);
	}
	for (u32 i = 0; i < 2; i++) {
		assert_int_equal(taken(i, RETIRE_L1D_MISSES), 0);
		assert_int_equal(taken(i, RETIRE_LOAD_FORWARDS), 0);
	}
}

/* Walks through as many lines as L2 holds, of sets beside A's at first. */
static void push_out(u32 i)
{
	u64 lines = model->cache[CACHE_L2].kbytes * 1024ull / LINE;

	for (u64 n = 0; n < 2 * lines; n++)
		load(i, 0x40000000 + n * LINE);
}

/* What a cache has lost is another's no longer: it comes from the last level. */
static void a_modified_line_that_was_evicted_is_no_hitm(void **state)
{
	(void)state;
	store(0, A);
	push_out(0);
	load(1, A);
	expect(1, OBSERVED_LLC, OBSERVED_SNOOP_NONE);
	store(0, A);
	assert_int_equal(seen(0)->level, OBSERVED_LLC);
	assert_int_not_equal(seen(0)->snoop, OBSERVED_SNOOP_MODIFIED);
	assert_false(reads_in_line(1, A));
}

/* Other machines, not other processors of this one, push a line out of the last level. */
static bool one_finds_what_another_lost(u64 ticks)
{
	u64 line = A / LINE;

	for (u64 i = 0; i <= cpu[0]->l2.ways; i++)
		levels_fill(cpu[0], line + i * cpu[0]->l2.sets);
	penalty_at(cpu[1], ticks, 0);
	return levels_fill(cpu[1], line) == OBSERVED_LLC;
}

static void the_last_level_loses_lines_for_all(void **state)
{
	u64 life;

	(void)state;
	for (u32 i = 0; i < CPUS; i++) {
		timing_set_full(cpu[i], true);
		timing_set_life(cpu[i], 2400000);
		penalty_at(cpu[i], 0, 0);
	}
	life = cpu[0]->llc_period * cpu[0]->llc.ways;
	assert_false(one_finds_what_another_lost(life));
	penalty_at(cpu[0], life, 0);
	levels_drop(cpu[0], A / LINE);
	assert_true(one_finds_what_another_lost(2 * life - 1));
	/* A clock that is behind changes nothing. */
	assert_int_equal(cpu[0]->llc_aged[A / LINE % cpu[0]->llc.sets],
			 2 * life / cpu[0]->llc_period - 1);
	levels_drop(cpu[0], A / LINE);
	assert_true(one_finds_what_another_lost(2 * life - 1));
}

static void the_last_level_is_one(void **state)
{
	(void)state;
	load(0, A);
	push_out(0);
	load(1, A);
	expect(1, OBSERVED_LLC, OBSERVED_SNOOP_NONE);
}

static void a_flush_reaches_every_cache(void **state)
{
	(void)state;
	load(0, A);
	store(1, A);
	timing_flush_line(cpu[2], A);
	assert_false(reads_in_line(1, A) || writes_in_line(1, A));
	load(0, A);
	expect(0, OBSERVED_MEMORY, OBSERVED_SNOOP_NONE);
	load(1, A);
	expect(1, OBSERVED_LLC, OBSERVED_SNOOP_CLEAN);
	timing_flush_caches(cpu[1]);
	load(1, A);
	expect(1, OBSERVED_LLC, OBSERVED_SNOOP_CLEAN);
	timing_flush_caches(cpu[1]);
	store(0, A);
	expect(0, OBSERVED_L1, OBSERVED_SNOOP_NONE);
}

/* More lines than a set of the directory has, all with one processor, in its first level. */
static void what_falls_out_of_the_directory_is_held_by_none(void **state)
{
	u64 way = LINE * COHERENCE_SETS;

	(void)state;
	load(0, A);
	for (u64 i = 1; i <= COHERENCE_WAYS; i++)
		load(1, A + i * way);
	assert_false(reads_in_line(0, A));
	memset(count, 0, sizeof(count));
	load(0, A);
	assert_int_equal(taken(0, RETIRE_L1D_MISSES), 1);
}

/* A processor whose handler left with a lock goes on; others take it after a while. */
static void a_lock_of_a_thread_that_left_is_taken(void **state)
{
	(void)state;
	caches->lock[timing_set(A)].holder = 1;
	store(0, A);
	assert_int_equal(caches->lock[timing_set(A)].holder, 0);
	caches->lock[timing_set(A)].holder = 1;
	load(1, A);
	assert_int_equal(caches->lock[timing_set(A)].holder, 0);
}

/* With others that do nothing, a processor counts what it does alone. */
static void a_processor_with_idle_others_counts_as_alone(void **state)
{
	struct timing *alone = calloc(1, sizeof(*alone));
	void *tags = calloc(1, timing_memory(model));
	u64 counted[NRETIRE] = { 0 }, random = 1;

	(void)state;
	timing_init(alone, model, tags, counted);
	cpu[0]->prefetch.kinds = alone->prefetch.kinds;
	for (u32 i = 0; i < 300000; i++) {
		struct timing_access a = { .size = 8, .page_shift = 12, .space = 1 };

		random = random * 6364136223846793005ull + 1442695040888963407ull;
		a.linear = a.physical = (random >> 33) % (random >> 63 ? 0x800000 : 0x8000) & ~7ull;
		a.host = HOST + a.physical;
		a.store = random >> 40 & 1;
		timing_data(alone, &a);
		timing_data(cpu[0], &a);
	}
	assert_memory_equal(counted, count[0], sizeof(counted));
	free(tags);
	free(alone);
}

#define ROUNDS 200000

static void *write_often(void *arg)
{
	u32 self = *(u32 *)arg;

	for (u32 i = 0; i < ROUNDS; i++) {
		u64 line = A + (i * 7 % 32) * LINE * (i % 3 ? 1 : TIMING_LINES);

		access_line(self, line, i & 1, false);
	}
	return NULL;
}

/* The invariants of coherence.c, after threads that raced for lines. */
static void threads_leave_one_owner(void **state)
{
	const struct coherence_entry *all = caches->memory;
	u32 index[CPUS];
	pthread_t thread[CPUS];

	(void)state;
	for (u32 i = 0; i < CPUS; i++) {
		index[i] = i;
		assert_int_equal(pthread_create(&thread[i], NULL, write_often, &index[i]), 0);
	}
	for (u32 i = 0; i < CPUS; i++)
		pthread_join(thread[i], NULL);
	for (u64 i = 0; i < COHERENCE_SETS * COHERENCE_WAYS; i++)
		if (all[i].tag & COHERENCE_MODIFIED)
			assert_int_equal(__builtin_popcountll(all[i].holders), 1);
	for (u32 place = 0; place < TIMING_PLACES; place++) {
		u64 owned[CPUS];

		assert_int_equal(caches->lock[place % TIMING_LINES].holder, 0);
		for (u32 i = 0; i < CPUS; i++) {
			owned[i] = cpu[i]->store_line[place];
			assert_true(!owned[i] || owned[i] == cpu[i]->data_line[place] ||
				    !cpu[i]->data_line[place]);
			for (u32 j = 0; owned[i] && j < CPUS; j++)
				assert_true(j == i || cpu[j]->data_line[place] != owned[i]);
		}
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_load_of_what_another_wrote_is_a_hitm),
		TEST(a_clean_line_is_forwarded),
		TEST(a_store_takes_the_line_from_all_others),
		TEST(a_line_that_nobody_else_has_is_written_at_once),
		TEST(a_reader_takes_the_right_to_write),
		TEST(a_line_leaves_all_private_caches),
		TEST(two_writers_meet),
		TEST(a_prefetch_does_not_speak_for_its_load),
		TEST(neighbours_do_not_meet),
		TEST(a_modified_line_that_was_evicted_is_no_hitm),
		TEST(the_last_level_is_one),
		TEST(the_last_level_loses_lines_for_all),
		TEST(a_flush_reaches_every_cache),
		TEST(what_falls_out_of_the_directory_is_held_by_none),
		ON(a_lock_of_a_thread_that_left_is_taken, "icelake"),
		TEST(a_processor_with_idle_others_counts_as_alone),
		TEST(threads_leave_one_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
