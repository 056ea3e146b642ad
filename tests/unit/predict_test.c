// SPDX-License-Identifier: MIT
/*
 * The branch predictor alone, of every CPU model: sequences of branches that it must learn, and
 * some that nothing can.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "timing/params.h"
#include "unit/on_models.h"

#define BRANCH 0x401000ull
#define TARGET 0x401040ull
#define LOOP   0x401080ull
#define OTHER  0x4010c0ull
#define TABLE  4096u

static u64 count[NRETIRE];
static struct timing *timing;
static void *memory;
static const struct predict_params *params;
static u8 bits[TABLE];

static struct timing *create(const char *name, u64 *counts)
{
	const struct model *model = model_find(name);
	struct timing *t = calloc(1, sizeof(*t));

	memory = calloc(1, timing_memory(model));
	assert_true(model && t && memory);
	timing_init(t, model, memory, counts);
	return t;
}

static int on_model(void **state)
{
	u32 seed = 1;

	memset(count, 0, sizeof(count));
	timing = create(*state, count);
	params = &timing->params->predict;
	for (u32 i = 0; i < TABLE; i++)
		bits[i] = (seed = seed * 1103515245 + 12345) >> 30 & 1;
	return 0;
}

static int done(void **state)
{
	(void)state;
	free(timing);
	free(memory);
	return 0;
}

/* What was counted since it was last asked for. */
static u64 taken(enum retire_class class)
{
	u64 n = count[class];

	count[class] = 0;
	return n;
}

static u32 longest_history(void)
{
	return params->length[params->tables - 1];
}

/* --- conditional branches --- */

static u64 misses_of_loop(u32 rounds, u32 length)
{
	taken(RETIRE_COND_MISSES);
	for (u32 round = 0; round < rounds; round++) {
		for (u32 i = 1; i <= length; i++)
			timing_conditional(timing, BRANCH, TARGET, i < length);
		timing_jump(timing, LOOP, BRANCH);
	}
	return taken(RETIRE_COND_MISSES);
}

static void the_exit_of_a_loop_is_foreseen_as_far_as_history_reaches(void **state)
{
	(void)state;
	misses_of_loop(200, 8);
	assert_int_equal(misses_of_loop(100, 8), 0);
	misses_of_loop(200, longest_history() - 1);
	assert_int_equal(misses_of_loop(100, longest_history() - 1), 0);
	misses_of_loop(200, 500);
	assert_int_equal(misses_of_loop(100, 500), 100);
}

/* One branch by a table, and the loop around it. */
static u64 misses_of_pattern(u32 period, u32 turns)
{
	taken(RETIRE_COND_MISSES);
	for (u32 i = 0; i < turns; i++) {
		timing_conditional(timing, BRANCH, TARGET, bits[i % period]);
		timing_conditional(timing, LOOP, BRANCH, true);
	}
	return taken(RETIRE_COND_MISSES);
}

static void patterns_are_learned(void **state)
{
	(void)state;
	for (u32 period = 2; period <= 256; period *= 2) {
		misses_of_pattern(period, 100 * period);
		assert_int_equal(misses_of_pattern(period, 10 * period), 0);
	}
}

static void chance_is_not_learned(void **state)
{
	u32 seed = 7, n = 100000;

	(void)state;
	for (u32 i = 0; i < n; i++) {
		seed = seed * 1103515245 + 12345;
		timing_conditional(timing, BRANCH, TARGET, seed >> 30 & 1);
	}
	assert_in_range(taken(RETIRE_COND_MISSES), n * 48 / 100, n * 52 / 100);
}

/* McFarling's gshare with 14 outcomes, as reference. */
static bool gshare_missed(u64 from, bool taken_)
{
	static u8 counters[1u << 14];
	static u32 history;
	u8 *c = &counters[(from ^ history) & 0x3fff];
	bool missed = (*c < 2) != taken_;

	if (taken_ && *c > 0)
		--*c;
	if (!taken_ && *c < 3)
		++*c;
	history = (history << 1 | taken_) & 0x3fff;
	return missed;
}

/* A branch that repeats what another one did 20 branches before, by chance. */
static void a_branch_remembers_another_beyond_many(void **state)
{
	u64 missed = 0, missed_by_gshare = 0;
	u32 seed = 3;

	(void)state;
	for (u32 i = 0; i < 6000; i++) {
		bool way = (seed = seed * 1103515245 + 12345) >> 30 & 1;
		bool wrong, wrong_by_gshare;

		timing_conditional(timing, BRANCH, TARGET, way);
		gshare_missed(BRANCH, way);
		for (u32 j = 0; j < 20; j++) {
			timing_conditional(timing, LOOP, LOOP - 16, j < 19);
			gshare_missed(LOOP, j < 19);
		}
		wrong = timing_conditional(timing, OTHER, TARGET, way);
		wrong_by_gshare = gshare_missed(OTHER, way);
		missed += i >= 5000 && wrong;
		missed_by_gshare += i >= 5000 && wrong_by_gshare;
	}
	assert_int_equal(missed, 0);
	assert_true(missed_by_gshare > 400);
}

static void a_sure_branch_surprises_once(void **state)
{
	struct sure *s = &timing->predict.sure[predict_place(BRANCH)];

	(void)state;
	for (u32 i = 1; i < SURE_AFTER; i++)
		timing_conditional(timing, BRANCH, TARGET, true);
	assert_int_equal(s->sure, 0);
	timing_conditional(timing, BRANCH, TARGET, true);
	assert_int_equal(s->sure, SURE_TAKEN);
	taken(RETIRE_BRANCH_MISSES);
	assert_false(timing_conditional(timing, BRANCH, TARGET, true));
	assert_true(timing_conditional(timing, BRANCH, TARGET, false));
	assert_int_equal(s->sure, 0);
	assert_int_equal(taken(RETIRE_BRANCH_MISSES), 1);
	assert_int_equal(taken(RETIRE_NOT_TAKEN_MISSES), 1);
}

/* Does the branch at hand leave a trace? */
static bool leaves_a_trace(bool way)
{
	u64 before = timing->predict.path;

	timing_conditional(timing, BRANCH, TARGET, way);
	return timing->predict.path != before;
}

/* With a history of outcomes, also branches that are not taken, if they once were. */
static void only_branches_that_are_ever_taken_are_on_the_path(void **state)
{
	(void)state;
	assert_false(leaves_a_trace(false));
	assert_true(leaves_a_trace(true));
	for (u32 i = 0; i < SURE_AFTER; i++)
		assert_int_equal(leaves_a_trace(false), params->outcomes);
	assert_false(leaves_a_trace(false)); /* it is sure */
	assert_true(leaves_a_trace(true));
}

/* --- branches that history does not help --- */

static u32 chance(void)
{
	static u32 seed = 11;

	return (seed = seed * 1103515245 + 12345) >> 16 & 0x7fff;
}

/* As translated code: of a branch that is sure, or a turn of a loop that is counted, C is told
 * nothing. True: C was called. */
static bool show_in_line(struct timing *t, u64 from, u64 to, bool way)
{
	struct predict *p = &t->predict;
	struct sure *s = &p->sure[predict_place(from)];

	if (s->sure != (way ? SURE_TAKEN : SURE_NOT_TAKEN)) {
		if (!way || !s->left) {
			timing_conditional(t, from, to, way);
			return true;
		}
		s->left--;
	}
	if (way)
		predict_taken(p, from, to, false);
	return false;
}

/* How many of `turns` outcomes, all but a tenth of them the same by chance, C is told. */
static u32 calls_of_chance(u32 turns, bool mostly)
{
	u32 calls = 0;

	for (u32 i = 0; i < turns; i++) {
		calls += show_in_line(timing, BRANCH, TARGET, (chance() % 10 < 9) == mostly);
		show_in_line(timing, LOOP, BRANCH, true);
	}
	return calls;
}

static void a_branch_by_chance_is_mostly_predicted_in_line(void **state)
{
	(void)state;
	for (u32 mostly = 0; mostly < 2; mostly++) {
		calls_of_chance(100000, mostly);
		taken(RETIRE_COND_MISSES);
		assert_in_range(calls_of_chance(10000, mostly), 1000, 4000);
		assert_in_range(taken(RETIRE_COND_MISSES), 900, 1300);
	}
}

/* However long the branch was plain. */
static void a_pattern_that_begins_later_is_learned(void **state)
{
	(void)state;
	calls_of_chance(1000000, true);
	misses_of_pattern(64, 200 * 64);
	assert_int_equal(misses_of_pattern(64, 10 * 64), 0);
}

static void a_loop_that_begins_later_is_learned(void **state)
{
	(void)state;
	calls_of_chance(1000000, true);
	misses_of_loop(5000, 8);
	assert_int_equal(misses_of_loop(100, 8), 0);
}

/* How many outcomes C is told. */
static u32 calls_of_loop(u32 runs, u32 turns)
{
	u32 calls = 0;

	for (u32 i = 0; i < runs; i++) {
		timing_jump(timing, OTHER, BRANCH);
		for (u32 j = 1; j <= turns; j++)
			calls += show_in_line(timing, LOOP, BRANCH, j < turns);
	}
	return calls;
}

static void of_a_loop_that_is_counted_only_the_exit_is_looked_up(void **state)
{
	(void)state;
	calls_of_loop(1000, 20);
	taken(RETIRE_COND_MISSES);
	assert_int_equal(calls_of_loop(100, 20), 100);
	assert_int_equal(taken(RETIRE_COND_MISSES), 0);
}

/* Whether it ends sooner or later than it did before. */
static void a_counted_loop_surprises_once(void **state)
{
	const struct sure *s = &timing->predict.sure[predict_place(LOOP)];

	(void)state;
	for (u32 turns = 18; turns <= 22; turns += 4) {
		calls_of_loop(1000, 20);
		assert_int_equal(s->streak, COUNTED_AFTER);
		assert_int_equal(s->left, 19);
		taken(RETIRE_COND_MISSES);
		calls_of_loop(1, turns);
		assert_in_range(taken(RETIRE_COND_MISSES), 1, 2);
		assert_int_equal(s->left, 0);
	}
}

/* A loop of more turns than history has branches: the tables cannot know its exit. */
static void a_loop_that_is_not_foreseen_is_not_counted(void **state)
{
	const struct sure *s = &timing->predict.sure[predict_place(LOOP)];
	u32 turns = params->length[params->tables - 1] + 3;

	(void)state;
	for (u32 i = 0; i < 1000; i++) {
		calls_of_loop(1, turns);
		assert_true(s->streak < COUNTED_AFTER);
	}
	taken(RETIRE_COND_MISSES);
	calls_of_loop(100, turns);
	assert_in_range(taken(RETIRE_COND_MISSES), 90, 110);
}

/* Some loops of five turns, then one of more or fewer. */
static void show_loops(struct timing *t, bool in_line, u32 last_turns)
{
	for (u32 i = 1; i <= 20; i++) {
		u32 turns = i < 20 ? 5 : last_turns;

		timing_jump(t, OTHER, BRANCH);
		for (u32 j = 1; j <= turns; j++)
			if (in_line)
				show_in_line(t, LOOP, BRANCH, j < turns);
			else
				timing_conditional(t, LOOP, BRANCH, j < turns);
	}
}

/* Patterns, loops and chance, of more branches than places for them. */
static void show_phases(struct timing *t, bool in_line)
{
	u32 seed = 9;

	for (u32 i = 0; i < 400000; i++) {
		u32 r = (seed = seed * 1103515245 + 12345) >> 16, which = r % 4;
		u64 from = 0x2000 + 64 * which + 0x10000 * (i >> 17);
		bool way = which == 0 ? (r >> 3) % 16 > 0 : which == 1 ? bits[i % 32] : which == 2;

		if (in_line)
			show_in_line(t, from, TARGET, way);
		else
			timing_conditional(t, from, TARGET, way);
		if (i >> 17 == 2 && i % 16 == 0)
			show_loops(t, in_line, 1 + (i >> 4) % 8);
	}
}

static void it_makes_no_difference_what_is_predicted_in_line(void **state)
{
	u64 counts[NRETIRE] = { 0 };
	void *first = memory;
	struct timing *again = create(*state, counts);

	show_phases(timing, true);
	show_phases(again, false);
	assert_memory_equal(count, counts, sizeof(counts));
	assert_memory_equal(&timing->predict, &again->predict, sizeof(again->predict));
	free(again);
	free(first);
}

/* --- targets --- */

/* A jump to targets so many bytes apart, and back from each. Of numbers modulo four no two follow
 * each other twice: two turns tell which is next. */
static u64 misses_of_targets(u32 period, u32 apart, u32 turns)
{
	static const u8 order[] = { 0, 1, 2, 3, 4, 8, 6, 10, 5, 9, 7, 11, 13, 12, 15, 14 };

	taken(RETIRE_INDIRECT_MISSES);
	for (u32 i = 0; i < turns; i++) {
		u64 target = 0x5000 + apart * order[i % period];

		timing_indirect(timing, BRANCH, target);
		timing_jump(timing, target, LOOP);
		timing_jump(timing, LOOP, BRANCH);
	}
	return taken(RETIRE_INDIRECT_MISSES);
}

static void an_indirect_branch_learns_a_sequence(void **state)
{
	(void)state;
	for (u32 period = 1; period <= 16; period *= 2) {
		misses_of_targets(period, 68, 400 * period);
		assert_int_equal(misses_of_targets(period, 68, 100 * period), 0);
	}
}

/* Two taken branches later, nothing but two bits of their place is left of where they were. */
static void targets_at_the_same_place_of_their_lines_look_alike_to_amd(void **state)
{
	u64 missed;

	(void)state;
	misses_of_targets(16, 64, 10000);
	missed = misses_of_targets(16, 64, 1600);
	if (params->outcomes)
		assert_true(missed > 1400);
	else
		assert_int_equal(missed, 0);
}

static void a_barrier_forgets_targets(void **state)
{
	(void)state;
	misses_of_targets(1, 64, 2 * SURE_AFTER);
	assert_int_equal(misses_of_targets(1, 64, 1), 0);
	timing_forget_branches(timing);
	assert_int_equal(misses_of_targets(1, 64, 2), 1);
}

static u64 misses_of_nest(u32 depth)
{
	taken(RETIRE_RETURN_MISSES);
	for (u32 i = 0; i < depth; i++) {
		timing_call(timing, 0x1010 + 32 * i);
		timing_jump(timing, 0x1000 + 32 * i, 0x1020 + 32 * i);
	}
	for (u32 i = depth; i-- > 0;)
		timing_return(timing, 0x1038 + 32 * i, 0x1010 + 32 * i);
	return taken(RETIRE_RETURN_MISSES);
}

/* Beyond, a processor of Intel goes by the path, as of an indirect jump. */
static void returns_are_predicted_as_deep_as_the_stack(void **state)
{
	u32 depth = params->returns;

	(void)state;
	assert_int_equal(misses_of_nest(depth), 0);
	assert_int_equal(misses_of_nest(depth + 5), 5);
	assert_int_equal(taken(RETIRE_BRANCH_MISSES), 5);
	for (u32 i = 0; i < 50; i++)
		misses_of_nest(depth + 5);
	assert_int_equal(misses_of_nest(depth + 5), params->falls_back ? 0 : 5);
	assert_int_equal(misses_of_nest(depth), 0);
}

static void a_return_elsewhere_is_a_surprise(void **state)
{
	(void)state;
	timing_call(timing, 0x1000);
	assert_true(timing_return(timing, BRANCH, 0x2000));
	timing_forget_branches(timing);
	timing_call(timing, 0x1000);
	assert_false(timing_return(timing, BRANCH, 0x1000));
}

/* --- all together --- */

static void show_mixture(struct timing *t)
{
	u32 seed = 5;

	for (u32 i = 0; i < 50000; i++) {
		u32 r = (seed = seed * 1103515245 + 12345) >> 16;

		timing_conditional(t, 0x1000 + 16 * (r % 64), 0x9000, r >> 6 & r >> 7 & 1);
		if (r % 8 == 0)
			timing_indirect(t, 0x3000, 0x5000 + 16 * (r >> 8 & 7));
		if (r % 5 == 0)
			timing_call(t, 0x4000 + r % 32);
		if (r % 7 == 0)
			timing_return(t, 0x6000, 0x4000 + r % 32);
	}
}

static void the_same_branches_leave_the_same_state(void **state)
{
	u64 counts[NRETIRE] = { 0 };
	void *first = memory;
	struct timing *again = create(*state, counts);

	show_mixture(timing);
	show_mixture(again);
	assert_memory_equal(count, counts, sizeof(counts));
	assert_memory_equal(&timing->predict, &again->predict, sizeof(again->predict));
	free(again);
	free(first);
}

static void every_model_has_its_numbers(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++) {
		const struct predict_params *p = &timing_params_of(model_at(i)->set)->predict;

		assert_in_range(p->tables, 1, TAGE_TABLES);
		assert_in_range(p->target_tables, 1, ITTAGE_TABLES);
		assert_in_range(p->returns, 1, RSB_MAX);
		assert_true(p->target_bits <= ITTAGE_BITS);
		for (u32 j = 0; j < p->tables; j++)
			assert_true(p->bits[j] <= TAGE_BITS && p->length[j] < SURE_AFTER &&
				    (!j || p->length[j] > p->length[j - 1]));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_model_has_its_numbers),
		TEST(the_exit_of_a_loop_is_foreseen_as_far_as_history_reaches),
		TEST(patterns_are_learned),
		TEST(chance_is_not_learned),
		TEST(a_branch_remembers_another_beyond_many),
		TEST(a_sure_branch_surprises_once),
		TEST(only_branches_that_are_ever_taken_are_on_the_path),
		TEST(of_a_loop_that_is_counted_only_the_exit_is_looked_up),
		TEST(a_counted_loop_surprises_once),
		TEST(a_loop_that_is_not_foreseen_is_not_counted),
		TEST(a_branch_by_chance_is_mostly_predicted_in_line),
		TEST(a_pattern_that_begins_later_is_learned),
		TEST(a_loop_that_begins_later_is_learned),
		TEST(it_makes_no_difference_what_is_predicted_in_line),
		TEST(an_indirect_branch_learns_a_sequence),
		TEST(targets_at_the_same_place_of_their_lines_look_alike_to_amd),
		TEST(a_barrier_forgets_targets),
		TEST(returns_are_predicted_as_deep_as_the_stack),
		TEST(a_return_elsewhere_is_a_surprise),
		TEST(the_same_branches_leave_the_same_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
