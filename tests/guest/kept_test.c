// SPDX-License-Identifier: MIT
/*
 * Blocks that were kept and recalled (engine/translate/kept_block.c): the guest computes and counts
 * the same, and a block is recalled for the code, mode, processor and build that it was made for
 * only. Other tests run on kept blocks with VPMU_TEST_KEPT (kept_tests.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/mode.h"
#include "engine/priv.h"
#include "guest/kept_tests.h"
#include "guest/machine.h"
#include "timing/coherence.h"
#include "x86/models.h"
#include "x86/paging.h"

#define ALL	 1000000
#define CYCLES	 RETIRE_BIT(RETIRE_CYCLES)
#define OBSERVED (OBSERVED_IN_MEMORY | OBSERVED_IN_BRANCHES)

/* Calls, returns, loops that become hot, strings, system instructions, accesses that share checks.
 */
GUEST_CODE(work, "mov $0x100000, %esi\n"
		 "xor %ebx, %ebx\n"
		 "mov $300, %ecx\n"
		 "1: call 3f\n"
		 "test $7, %cl\n"
		 "jnz 2f\n"
		 "mov %rcx, %rdx\n"
		 "lea 0x2000(%rsi), %rdi\n"
		 "mov $16, %ecx\n"
		 "rep stosb\n"
		 "mov %rdx, %rcx\n"
		 "pushfq\n"
		 "pop %rax\n"
		 "2: dec %ecx\n"
		 "jnz 1b\n"
		 "mov %cr0, %rax\n"
		 "cpuid\n"
		 "out %al, $0xf4\n"
		 "3: mov (%rsi), %rax\n"
		 "add %rcx, %rax\n"
		 "mov %rax, 8(%rsi)\n"
		 "add 16(%rsi), %rbx\n"
		 "add %rax, 16(%rsi)\n"
		 "movdqu (%rsi), %xmm0\n"
		 "movdqu %xmm0, 32(%rsi)\n"
		 "ret\n");

struct setting {
	const char *model; /* NULL: icelake */
	retire_wanted wanted;
	bool full;  /* timing */
	gpa_t code; /* page that has the code; 0: IMAGE_CODE */
};

/* The last page whose lines have keys of 31 bits, and the next. */
#define SHORT_KEYS 0x1fffffe000ull
#define LONG_KEYS  0x1ffffff000ull

struct result {
	u64 regs[16];
	struct retire_tally tally;
	u8 memory[4 * PAGE_SIZE];
	u64 code_line[TIMING_PLACES];
	u64 shown; /* the last access that the timing model had to look at */
	u64 translated, recalled;
};

static struct kept_news *news(void)
{
	return kept_in_memory()->news;
}

static void empty_store(void)
{
	u8 *store = (u8 *)kept_in_memory()->store;

	kept_in_memory_merge(NULL); /* what other tests left */
	memset(store + KEPT_INDEX_AT, 0, KEPT_DATA_AT - KEPT_INDEX_AT);
}

#define SPARE 0x20000ull

/* The page of code is another one, also of memory that the machine had not. */
static void move_code(struct machine *m, gpa_t to)
{
	struct mem_slot slot = { .id = 1, .base = to, .npages = 1, .hva = m->ram + SPARE };
	struct mem_map *old = m->map;

	memcpy(m->ram + SPARE, m->ram + IMAGE_CODE, PAGE_SIZE);
	memset(m->ram + IMAGE_CODE, 0, PAGE_SIZE);
	*image_pte(m->ram, IMAGE_CODE) = to | PTE_P | PTE_W | PTE_U;
	if (to == SPARE)
		return;
	m->cpu->port.mem = m->map = mem_map_with(old, &slot);
	assert_non_null(m->map);
	free(old);
}

static void run_on(struct machine *m, const struct kept *kept, const struct setting *s,
		   struct result *r)
{
	machine_load(m, work_start, (size_t)(work_end - work_start));
	if (s->code)
		move_code(m, s->code);
	m->cpu->port.kept = kept;
	m->cpu->port.wanted = s->wanted;
	m->cpu->port.full_timing = s->full;
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	memcpy(r->regs, m->cpu->regs, sizeof(r->regs));
	memcpy(r->memory, m->ram + IMAGE_DATA, sizeof(r->memory));
	memcpy(r->code_line, cpu_priv(m->cpu)->timing.code_line, sizeof(r->code_line));
	r->shown = cpu_priv(m->cpu)->timing.shown;
	r->tally = m->cpu->port.tally;
	r->translated = m->cpu->engine->blocks_made;
	r->recalled = m->cpu->engine->blocks_recalled;
}

static void create(struct machine *m, const struct setting *s)
{
	machine_create_model(m, s->model ? s->model : "icelake");
}

/* On a machine of its own. */
static void run_new(const struct kept *kept, const struct setting *s, struct result *r)
{
	struct machine m;

	create(&m, s);
	run_on(&m, kept, s, r);
	machine_destroy(&m);
}

static void assert_same(const struct result *a, const struct result *b)
{
	assert_memory_equal(a->regs, b->regs, sizeof(a->regs));
	assert_memory_equal(a->memory, b->memory, sizeof(a->memory));
	assert_memory_equal(&a->tally, &b->tally, sizeof(a->tally));
	assert_memory_equal(a->code_line, b->code_line, sizeof(a->code_line));
	assert_int_equal(a->shown, b->shown);
}

/* What is kept is not translated the second time, wherever in memory the code is then. */
static void try_counting(struct setting s, bool kept)
{
	static const gpa_t places[] = { 0, SPARE, SHORT_KEYS };
	static struct result without, first, second;

	run_new(NULL, &s, &without);
	assert_true(without.translated > 4);
	run_new(kept_in_memory(), &s, &first);
	kept_in_memory_merge(NULL);
	assert_same(&without, &first);
	for (u32 i = 0; i < ARRAY_SIZE(places); i++) {
		s.code = places[i];
		run_new(NULL, &s, &without);
		run_new(kept_in_memory(), &s, &second);
		assert_same(&without, &second);
		assert_int_equal(without.recalled, 0);
		assert_int_equal(second.recalled > 4, kept);
		if (kept) /* one may become hot that was not before */
			assert_in_range(second.translated, 0, 2);
	}
}

static void recalled_blocks_compute_and_count_the_same(void **state)
{
	(void)state;
	try_counting((struct setting){ 0 }, true);
	try_counting((struct setting){ .wanted = CYCLES }, true);
	try_counting(
		(struct setting){ .wanted = RETIRE_BIT(RETIRE_TAKEN) | RETIRE_BIT(RETIRE_LOADS) },
		false);
}

/* On every model, with both timings. */
static void so_do_observed_ones(void **state)
{
	static const retire_wanted wanted[] = { OBSERVED_IN_MEMORY, OBSERVED_IN_BRANCHES,
						CYCLES | OBSERVED, CYCLES };

	(void)state;
	for (u32 i = 0; model_at(i); i++)
		for (u32 k = 0; k < 2 * ARRAY_SIZE(wanted); k++)
			try_counting((struct setting){ .model = model_at(i)->name,
						       .wanted = wanted[k / 2],
						       .full = k % 2 },
				     true);
	try_counting((struct setting){ .wanted = COUNT_CYCLES | OBSERVED, .full = true }, false);
}

/* Code that shows lines whose keys are long is another; what shows none is the same. */
static void lines_with_long_keys_are_not_kept(void **state)
{
	static struct result r;
	struct setting s = { .wanted = CYCLES, .full = true };

	(void)state;
	for (u32 i = 0; i < 2; i++) {
		run_new(kept_in_memory(), &s, &r);
		kept_in_memory_merge(NULL);
	}
	assert_true(r.recalled > 4);
	s.code = LONG_KEYS;
	run_new(kept_in_memory(), &s, &r);
	assert_int_equal(r.recalled, 0);
	assert_int_equal(news()->next, 0);
	s.wanted = 0;
	for (u32 i = 0; i < 2; i++) {
		run_new(kept_in_memory(), &s, &r);
		kept_in_memory_merge(NULL);
	}
	assert_true(r.recalled > 4);
}

static void try_budgets(const struct setting *s)
{
	static struct result whole;
	struct machine m[2];

	run_new(kept_in_memory(), s, &whole);
	kept_in_memory_merge(NULL);
	for (u32 i = 0; i < 2; i++) {
		create(&m[i], s);
		machine_load(&m[i], work_start, (size_t)(work_end - work_start));
		m[i].cpu->port.wanted = s->wanted;
		m[i].cpu->port.full_timing = s->full;
	}
	m[1].cpu->port.kept = kept_in_memory();
	for (u32 n = 0; n < 500; n++) {
		assert_int_equal(machine_run(&m[0], 1 + n % 7), machine_run(&m[1], 1 + n % 7));
		assert_int_equal(m[0].cpu->rip, m[1].cpu->rip);
		assert_memory_equal(m[0].cpu->regs, m[1].cpu->regs, sizeof(m[0].cpu->regs));
		assert_int_equal(m[0].cpu->rflags, m[1].cpu->rflags);
		assert_memory_equal(&m[0].cpu->port.tally, &m[1].cpu->port.tally,
				    sizeof(m[0].cpu->port.tally));
		assert_int_equal(cpu_priv(m[0].cpu)->timing.shown,
				 cpu_priv(m[1].cpu)->timing.shown);
	}
	assert_true(m[1].cpu->engine->blocks_recalled > 0);
	machine_destroy(&m[0]);
	machine_destroy(&m[1]);
}

/* Any budget ends at the same instruction, in the same state. */
static void recalled_blocks_end_at_the_same_instruction(void **state)
{
	(void)state;
	try_budgets(&(struct setting){ 0 });
	try_budgets(&(struct setting){ .wanted = CYCLES, .full = true });
}

/* As after a page fault, which leaves RF in the flags: the instruction is executed alone. */
static void run_stepped(const struct kept *kept, struct result *r)
{
	struct machine m;
	enum exit_reason exit;

	machine_create(&m);
	machine_load(&m, work_start, (size_t)(work_end - work_start));
	m.cpu->port.kept = kept;
	do {
		m.cpu->rflags |= FL_RF;
		exit = machine_run(&m, 1);
	} while (exit == EXIT_BUDGET);
	assert_int_equal(exit, EXIT_IO);
	memcpy(r->regs, m.cpu->regs, sizeof(r->regs));
	memcpy(r->memory, m.ram + IMAGE_DATA, sizeof(r->memory));
	r->tally = m.cpu->port.tally;
	r->translated = m.cpu->engine->blocks_made;
	r->recalled = m.cpu->engine->blocks_recalled;
	machine_destroy(&m);
}

static void instructions_that_are_executed_alone_are_recalled(void **state)
{
	static struct result without, first, second;

	(void)state;
	empty_store();
	run_stepped(NULL, &without);
	run_stepped(kept_in_memory(), &first);
	kept_in_memory_merge(NULL);
	run_stepped(kept_in_memory(), &second);
	assert_same(&without, &first);
	assert_same(&without, &second);
	assert_true(first.translated > 20);
	assert_int_equal(second.recalled, first.translated);
	assert_int_equal(second.translated, 0);
}

static u64 hits_of(void (*change)(struct machine *, struct kept *), const struct setting *s)
{
	static struct result r;
	struct kept kept = *kept_in_memory();
	struct machine m;
	u64 before = news()->hits;

	create(&m, s);
	change(&m, &kept);
	run_on(&m, &kept, s, &r);
	machine_destroy(&m);
	return news()->hits - before;
}

static void nothing(struct machine *m, struct kept *kept)
{
	(void)m, (void)kept;
}

static void another_build(struct machine *m, struct kept *kept)
{
	(void)m;
	kept->build[1] ^= 1;
}

static void another_vendor(struct machine *m, struct kept *kept)
{
	(void)kept;
	m->cpu->is_amd = !m->cpu->is_amd;
}

static void another_rule(struct machine *m, struct kept *kept)
{
	(void)kept;
	m->cpu->port.foreign_rules ^= 1;
}

static void masked_addresses(struct machine *m, struct kept *kept)
{
	(void)kept;
	m->cpu->port.harden = true;
}

static void another_host(struct machine *m, struct kept *kept)
{
	(void)kept;
	m->cpu->engine->has_rorx = !m->cpu->engine->has_rorx;
}

static void another_model(struct machine *m, struct kept *kept)
{
	(void)kept;
	machine_destroy(m);
	machine_create_model(m, "genoa");
}

static void blocks_are_recalled_for_what_they_were_made_for(void **state)
{
	const struct setting s = { 0 };
	static struct result r;

	(void)state;
	run_new(kept_in_memory(), &s, &r);
	kept_in_memory_merge(NULL);
	assert_true(hits_of(nothing, &s) > 4);
	assert_int_equal(hits_of(another_build, &s), 0);
	assert_int_equal(hits_of(another_vendor, &s), 0);
	assert_int_equal(hits_of(another_rule, &s), 0);
	assert_int_equal(hits_of(masked_addresses, &s), 0);
	assert_int_equal(hits_of(another_model, &s), 0);
	if (!__builtin_cpu_supports("bmi2"))
		return;
	assert_int_equal(hits_of(another_host, &s), 0);
}

static struct coherence caches;

static void beside_others(struct machine *m, struct kept *kept)
{
	(void)kept;
	m->cpu->port.caches = &caches;
}

/* Stores of a processor that has others beside it look elsewhere. */
static void so_are_observed_ones(void **state)
{
	struct setting s = { .wanted = CYCLES | OBSERVED, .full = true };
	static struct result r;

	(void)state;
	empty_store();
	assert_int_equal(coherence_create(&caches, model_find("icelake")), 0);
	coherence_add_cpu(&caches);
	coherence_add_cpu(&caches);
	run_new(kept_in_memory(), &s, &r);
	kept_in_memory_merge(NULL);
	assert_true(hits_of(nothing, &s) > 4);
	assert_int_equal(hits_of(beside_others, &s), 0);
	kept_in_memory_merge(NULL);
	assert_true(hits_of(beside_others, &s) > 4);
	s.full = false; /* in the same mode */
	assert_int_equal(hits_of(nothing, &s), 0);
	s.wanted = 0; /* nothing looks there */
	assert_int_equal(hits_of(nothing, &s), 0);
	kept_in_memory_merge(NULL);
	assert_true(hits_of(beside_others, &s) > 4);
	coherence_destroy(&caches);
}

/* A byte in another line than the block's first, which the key does not tell. */
GUEST_CODE(long_block, "mov $1, %ebx\n"
		       ".rept 30\n"
		       "lea 1(%rbx), %rbx\n"
		       ".endr\n"
		       "out %al, $0xf4\n");

static u64 run_long(const struct kept *kept, const u8 *code, u64 *recalled)
{
	struct machine m;
	u64 rbx;

	machine_create(&m);
	machine_load(&m, code, (size_t)(long_block_end - long_block_start));
	m.cpu->port.kept = kept;
	assert_int_equal(machine_run(&m, ALL), EXIT_IO);
	rbx = m.cpu->regs[RBX];
	*recalled = m.cpu->engine->blocks_recalled;
	machine_destroy(&m);
	return rbx;
}

static void code_that_differs_anywhere_is_translated(void **state)
{
	u32 size = long_block_end - long_block_start, last = size - 3;
	static u8 code[512];
	u64 recalled;

	(void)state;
	assert_true(size > 100 && size < sizeof(code));
	memcpy(code, long_block_start, size);
	assert_int_equal(run_long(kept_in_memory(), code, &recalled), 31);
	kept_in_memory_merge(NULL);
	assert_int_equal(run_long(kept_in_memory(), code, &recalled), 31);
	assert_true(recalled);
	assert_int_equal(code[last], 1); /* of the last LEA */
	code[last] = 11;
	assert_int_equal(run_long(kept_in_memory(), code, &recalled), 41);
	assert_int_equal(recalled, 0);
}

GUEST_CODE(short_block, "out %al, $0xf4\n");

static u64 recalled_with(const struct kept *kept)
{
	struct machine m;
	u64 recalled;

	machine_create(&m);
	machine_load(&m, short_block_start, (size_t)(short_block_end - short_block_start));
	m.cpu->port.kept = kept;
	assert_int_equal(machine_run(&m, ALL), EXIT_IO);
	recalled = m.cpu->engine->blocks_recalled;
	machine_destroy(&m);
	return recalled;
}

/* The only entry that a guest leaves in the news. */
static struct kept_buffer *kept_by(const struct kept *kept, struct kept_buffer *to)
{
	news()->next = 0;
	recalled_with(kept);
	assert_true(kept_copy(news()->data, news()->next, to));
	assert_int_equal(kept_length(to->entry.size), news()->next);
	return to;
}

/* As if its bytes were chosen so: the entry of one build has the key that a block of another build
 * is looked for by. */
static void a_guest_that_forges_a_key_gains_nothing(void **state)
{
	static struct kept_buffer own, others;
	struct kept other = *kept_in_memory();
	u64 hits;

	(void)state;
	empty_store();
	other.build[0] ^= 1;
	kept_by(&other, &others);
	kept_by(kept_in_memory(), &own);
	assert_memory_not_equal(own.entry.key, others.entry.key, sizeof(own.entry.key));
	news()->next = 0;
	kept_add(kept_in_memory(), others.entry.key, &own, own.entry.size);
	kept_in_memory_merge(NULL);
	hits = news()->hits;
	assert_int_equal(recalled_with(&other), 0);
	assert_int_equal(news()->hits - hits, 1); /* its key was found */
}

/* How many blocks are recalled; the guest does the same in any case. */
static u64 recalled_again(struct machine *m)
{
	u64 before = m->cpu->engine->blocks_recalled;

	machine_start(m);
	engine_forget(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	assert_int_equal(m->cpu->regs[RBX], 31);
	return m->cpu->engine->blocks_recalled - before;
}

/* Whatever byte of an entry changes, it is the one that is not recalled. */
static void try_flipping(retire_wanted wanted, bool full)
{
	const struct kept *kept = kept_in_memory();
	u8 *store = (u8 *)kept->store;
	u64 recalled, end, at;
	struct machine m;

	empty_store();
	machine_create(&m);
	machine_load(&m, long_block_start, (size_t)(long_block_end - long_block_start));
	m.cpu->port.kept = kept;
	m.cpu->port.wanted = wanted;
	m.cpu->port.full_timing = full;
	assert_int_equal(recalled_again(&m), 0);
	at = kept_in_memory_merge(&end);
	assert_true(at < end);
	recalled = recalled_again(&m);
	assert_true(recalled > 0);
	for (; at < end; at++) {
		store[at] ^= 1u << at % 8;
		assert_int_equal(recalled_again(&m), recalled - 1);
		store[at] ^= 1u << at % 8;
	}
	assert_int_equal(recalled_again(&m), recalled);
	machine_destroy(&m);
}

static void entries_with_flipped_bytes_are_not_executed(void **state)
{
	(void)state;
	try_flipping(0, false);
	try_flipping(CYCLES, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(recalled_blocks_compute_and_count_the_same),
		cmocka_unit_test(so_do_observed_ones),
		cmocka_unit_test(lines_with_long_keys_are_not_kept),
		cmocka_unit_test(recalled_blocks_end_at_the_same_instruction),
		cmocka_unit_test(instructions_that_are_executed_alone_are_recalled),
		cmocka_unit_test(blocks_are_recalled_for_what_they_were_made_for),
		cmocka_unit_test(so_are_observed_ones),
		cmocka_unit_test(code_that_differs_anywhere_is_translated),
		cmocka_unit_test(a_guest_that_forges_a_key_gains_nothing),
		cmocka_unit_test(entries_with_flipped_bytes_are_not_executed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
