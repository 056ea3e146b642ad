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
#include <string.h>
#include <cmocka.h>

#include "engine/priv.h"
#include "guest/kept_tests.h"
#include "guest/machine.h"

#define ALL 1000000

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

struct result {
	u64 regs[16];
	u64 instructions, branches, cycles;
	u8 memory[4 * PAGE_SIZE];
	u64 translated, recalled;
};

static struct kept_news *news(void)
{
	return kept_in_memory()->news;
}

/* On a machine of its own. */
static void run_on(struct machine *m, const struct kept *kept, retire_wanted wanted,
		   struct result *r)
{
	const struct retire_tally *tally = &m->cpu->port.tally;

	machine_load(m, work_start, (size_t)(work_end - work_start));
	m->cpu->port.kept = kept;
	m->cpu->port.wanted = wanted;
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	memcpy(r->regs, m->cpu->regs, sizeof(r->regs));
	memcpy(r->memory, m->ram + IMAGE_DATA, sizeof(r->memory));
	r->instructions = tally->instructions[RETIRE_OS];
	r->branches = tally->branches[RETIRE_OS];
	r->cycles = tally->cycles[RETIRE_OS];
	r->translated = m->cpu->engine->blocks_made;
	r->recalled = m->cpu->engine->blocks_recalled;
}

static void run_new(const struct kept *kept, retire_wanted wanted, struct result *r)
{
	struct machine m;

	machine_create(&m);
	run_on(&m, kept, wanted, r);
	machine_destroy(&m);
}

static void assert_same(const struct result *a, const struct result *b)
{
	assert_memory_equal(a->regs, b->regs, sizeof(a->regs));
	assert_memory_equal(a->memory, b->memory, sizeof(a->memory));
	assert_int_equal(a->instructions, b->instructions);
	assert_int_equal(a->branches, b->branches);
	assert_int_equal(a->cycles, b->cycles);
}

/* What is kept is not translated the second time. */
static void try_counting(retire_wanted wanted, bool kept)
{
	static struct result without, first, second;

	run_new(NULL, wanted, &without);
	run_new(kept_in_memory(), wanted, &first);
	kept_in_memory_merge(NULL);
	run_new(kept_in_memory(), wanted, &second);
	assert_same(&without, &first);
	assert_same(&without, &second);
	assert_int_equal(without.recalled, 0);
	assert_true(without.translated > 4);
	assert_int_equal(second.recalled > 4, kept);
	if (kept) /* one may become hot that was not before */
		assert_in_range(second.translated, 0, 2);
}

static void recalled_blocks_compute_and_count_the_same(void **state)
{
	(void)state;
	try_counting(0, true);
	try_counting(RETIRE_BIT(RETIRE_CYCLES), true);
	try_counting(RETIRE_BIT(RETIRE_TAKEN) | RETIRE_BIT(RETIRE_LOADS), false);
	try_counting(RETIRE_BIT(RETIRE_BRANCH_MISSES), false);
	try_counting(RETIRE_BIT(RETIRE_L1D_MISSES), false);
}

/* Any budget ends at the same instruction, in the same state. */
static void recalled_blocks_end_at_the_same_instruction(void **state)
{
	static struct result whole;
	struct machine m[2];

	(void)state;
	run_new(kept_in_memory(), 0, &whole);
	kept_in_memory_merge(NULL);
	for (u32 i = 0; i < 2; i++) {
		machine_create(&m[i]);
		machine_load(&m[i], work_start, (size_t)(work_end - work_start));
	}
	m[1].cpu->port.kept = kept_in_memory();
	for (u32 n = 0; n < 500; n++) {
		assert_int_equal(machine_run(&m[0], 1 + n % 7), machine_run(&m[1], 1 + n % 7));
		assert_int_equal(m[0].cpu->rip, m[1].cpu->rip);
		assert_memory_equal(m[0].cpu->regs, m[1].cpu->regs, sizeof(m[0].cpu->regs));
		assert_int_equal(m[0].cpu->rflags, m[1].cpu->rflags);
	}
	assert_true(m[1].cpu->engine->blocks_recalled > 0);
	machine_destroy(&m[0]);
	machine_destroy(&m[1]);
}

static u64 hits_of(void (*change)(struct machine *, struct kept *))
{
	static struct result r;
	struct kept kept = *kept_in_memory();
	struct machine m;
	u64 before = news()->hits;

	machine_create(&m);
	change(&m, &kept);
	run_on(&m, &kept, 0, &r);
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
	static struct result r;

	(void)state;
	run_new(kept_in_memory(), 0, &r);
	kept_in_memory_merge(NULL);
	assert_true(hits_of(nothing) > 4);
	assert_int_equal(hits_of(another_build), 0);
	assert_int_equal(hits_of(another_vendor), 0);
	assert_int_equal(hits_of(another_rule), 0);
	assert_int_equal(hits_of(masked_addresses), 0);
	assert_int_equal(hits_of(another_model), 0);
	if (!__builtin_cpu_supports("bmi2"))
		return;
	assert_int_equal(hits_of(another_host), 0);
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

/* Bytes after which kept_hash() has forgotten what came before them: every line that ends with them
 * has the same key. */
GUEST_CODE(same_key, "out %al, $0xf4\n"
		     ".skip 46\n" /* up to the last 16 bytes of the line */
		     ".quad 0x94d049bb133111eb, 0xbf58476d1ce4e5b9\n");

static u64 recalled_with(const struct kept *kept)
{
	struct machine m;
	u64 recalled;

	machine_create(&m);
	machine_load(&m, same_key_start, (size_t)(same_key_end - same_key_start));
	m.cpu->port.kept = kept;
	assert_int_equal(machine_run(&m, ALL), EXIT_IO);
	recalled = m.cpu->engine->blocks_recalled;
	machine_destroy(&m);
	return recalled;
}

static void a_guest_that_forges_a_key_gains_nothing(void **state)
{
	struct kept other = *kept_in_memory();
	u64 hits;

	(void)state;
	recalled_with(kept_in_memory());
	kept_in_memory_merge(NULL);
	assert_int_equal(recalled_with(kept_in_memory()), 1);
	other.build[0] ^= 1;
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
static void entries_with_flipped_bytes_are_not_executed(void **state)
{
	const struct kept *kept = kept_in_memory();
	u8 *store = (u8 *)kept->store;
	u64 recalled, end, at;
	struct machine m;

	(void)state;
	kept_in_memory_merge(NULL); /* what other tests left */
	memset(store + KEPT_INDEX_AT, 0, KEPT_DATA_AT - KEPT_INDEX_AT);
	run_long(kept, (const u8 *)long_block_start, &recalled);
	assert_int_equal(recalled, 0);
	at = kept_in_memory_merge(&end);
	assert_true(at < end);
	machine_create(&m);
	machine_load(&m, long_block_start, (size_t)(long_block_end - long_block_start));
	m.cpu->port.kept = kept;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(recalled_blocks_compute_and_count_the_same),
		cmocka_unit_test(recalled_blocks_end_at_the_same_instruction),
		cmocka_unit_test(blocks_are_recalled_for_what_they_were_made_for),
		cmocka_unit_test(code_that_differs_anywhere_is_translated),
		cmocka_unit_test(a_guest_that_forges_a_key_gains_nothing),
		cmocka_unit_test(entries_with_flipped_bytes_are_not_executed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
