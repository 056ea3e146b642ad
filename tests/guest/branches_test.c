// SPDX-License-Identifier: MIT
/*
 * Branch records that translated code writes: a program with every kind of branch, whose path is
 * written beside it, run in one piece and in slices, with each filter alone, and as a call stack.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/private.h"
#include "guest/machine.h"

#define WHOLE (~0ull >> 1)

/* Labels fN are branches, tN where they go. f9 is taken the first time only, and so is f5. */
GUEST_CODE(path, "f1: jmp t1\n"
		 "ud2\n"
		 "t1: lea t2(%rip), %rax\n"
		 "f2: jmp *%rax\n"
		 "ud2\n"
		 "t2: mov $2, %ecx\n"
		 "t5:\n"
		 "f3: call t3\n"
		 "t4: cmp $1, %ecx\n"
		 "f9: ja t9\n"
		 "nop\n"
		 "t9: dec %ecx\n"
		 "f5: jnz t5\n"
		 "lea t3(%rip), %rax\n"
		 "push %rax\n"
		 "f6: call *(%rsp)\n"
		 "t6: pop %rax\n"
		 "f7: call t7\n" /* of the next instruction */
		 "t7: pop %rax\n"
		 "mov $2, %ecx\n"
		 "t8: nop\n"
		 "f8: loop t8\n"
		 "fint: int $0x20\n"
		 "tiret: mov $1, %eax\n"
		 "xor %edx, %edx\n"
		 "xor %ebx, %ebx\n"
		 "fdiv: div %ebx\n" /* the handler returns after it */
		 "tdiv: out %al, $0xf4\n"
		 ".balign 16\n"
		 "t3: nop\n"
		 "f4: ret\n"
		 ".org path_start + 0x100\n"
		 "fi: iretq\n"
		 ".org path_start + 0x200\n"
		 "addq $2, (%rsp)\n"
		 "fd: iretq\n");

#pragma GCC visibility push(hidden)
extern const u8 f1[], f2[], f3[], f4[], f5[], f6[], f7[], f8[], f9[], fint[], fdiv[], fi[], fd[];
extern const u8 t1[], t2[], t3[], t4[], t5[], t6[], t7[], t8[], t9[], tiret[], tdiv[];
#pragma GCC visibility pop

#define AT(label) (IMAGE_CODE + (u64)(label - path_start))
#define NPATH	  16

static void build_path(struct branch out[NPATH])
{
	const struct branch taken[NPATH] = {
		{ .kind = BRANCH_REL_JMP, .from = AT(f1), .to = AT(t1) },
		{ .kind = BRANCH_IND_JMP, .from = AT(f2), .to = AT(t2) },
		{ .kind = BRANCH_REL_CALL, .from = AT(f3), .to = AT(t3) },
		{ .kind = BRANCH_RET, .from = AT(f4), .to = AT(t4) },
		{ .kind = BRANCH_JCC, .from = AT(f9), .to = AT(t9) },
		{ .kind = BRANCH_JCC, .from = AT(f5), .to = AT(t5) },
		{ .kind = BRANCH_REL_CALL, .from = AT(f3), .to = AT(t3) },
		{ .kind = BRANCH_RET, .from = AT(f4), .to = AT(t4) },
		{ .kind = BRANCH_IND_CALL, .from = AT(f6), .to = AT(t3) },
		{ .kind = BRANCH_RET, .from = AT(f4), .to = AT(t6) },
		{ .kind = BRANCH_REL_CALL, .from = AT(f7), .to = AT(t7) },
		{ .kind = BRANCH_JCC, .from = AT(f8), .to = AT(t8) },
		{ .kind = BRANCH_FAR, .from = AT(fint), .to = IMAGE_CODE + 0x100 },
		{ .kind = BRANCH_FAR, .from = AT(fi), .to = AT(tiret) },
		{ .kind = BRANCH_FAR, .from = AT(fdiv), .to = IMAGE_CODE + 0x200 },
		{ .kind = BRANCH_FAR, .from = AT(fd), .to = AT(tdiv) },
	};

	for (u32 i = 0; i < NPATH; i++)
		out[i] = taken[i];
}

static void load(struct machine *m, u8 kinds, bool call_stack)
{
	machine_load(m, path_start, (size_t)(path_end - path_start));
	image_gate(m->ram, 0x20, IMAGE_CODE + 0x100, 0);
	image_gate(m->ram, VEC_DE, IMAGE_CODE + 0x200, 0);
	m->cpu->port.wanted = RETIRE_BIT(RETIRE_CYCLES);
	m->cpu->branches = (struct branch_ring){ .mask = BRANCH_DEPTH - 1,
						 .top = BRANCH_DEPTH - 1,
						 .kinds = { kinds, kinds },
						 .call_stack = call_stack };
}

static void run(struct machine *m, u64 slice)
{
	while (machine_run(m, slice) == EXIT_BUDGET)
		;
	assert_int_equal(m->cpu->rip, AT(tdiv));
	m->cpu->branches.kinds[RETIRE_OS] = m->cpu->branches.kinds[RETIRE_USR] = 0;
	m->cpu->port.wanted = 0;
}

static void check_path(const struct machine *m, u8 kinds)
{
	const struct branch_ring *ring = &m->cpu->branches;
	struct branch path[NPATH];
	u32 n = 0;

	build_path(path);
	for (u32 i = 0; i < NPATH; i++) {
		const struct branch_entry *e = &ring->entry[n];

		if (!(kinds >> path[i].kind & 1))
			continue;
		assert_int_equal(e->from, path[i].from);
		assert_int_equal(e->to, path[i].to);
		assert_int_equal(e->kind, path[i].kind + 1);
		n++;
	}
	assert_int_equal(ring->top, (n - 1) & ring->mask);
	assert_int_equal(ring->entry[n].kind, 0);
}

#define EVERY (BIT(NBRANCHES) - 1)

static void every_branch_is_recorded_once_and_in_order(void **state)
{
	static const u64 slices[] = { WHOLE, 1, 2, 3, 7 };

	for (u32 i = 0; i < ARRAY_SIZE(slices); i++) {
		load(*state, EVERY, false);
		run(*state, slices[i]);
		check_path(*state, EVERY);
	}
}

static void each_filter_keeps_its_kind(void **state)
{
	for (u32 kind = 0; kind < NBRANCHES; kind++) {
		load(*state, BIT(kind), false);
		run(*state, WHOLE);
		check_path(*state, BIT(kind));
		load(*state, EVERY & ~BIT(kind), false);
		run(*state, 3);
		check_path(*state, EVERY & ~BIT(kind));
	}
}

static void nothing_is_recorded_unless_wanted(void **state)
{
	struct machine *m = *state;

	load(m, 0, false);
	run(m, WHOLE);
	for (u32 i = 0; i < BRANCH_DEPTH; i++)
		assert_int_equal(m->cpu->branches.entry[i].from, 0);
}

/* Ticks of the static model: an entry goes on where the one before it was made. */
static void entries_know_the_cycles_between_them(void **state)
{
	struct machine *m = *state;
	const struct branch_entry *e = m->cpu->branches.entry;

	load(m, EVERY, false);
	run(m, WHOLE);
	for (u32 i = 1; i < NPATH; i++)
		assert_int_equal(e[i].since, e[i - 1].ticks);
	assert_true(e[1].ticks > e[1].since); /* LEA, JMP */
}

static void calls_push_and_returns_pop(void **state)
{
	const u8 calls = BIT(BRANCH_REL_CALL) | BIT(BRANCH_IND_CALL) | BIT(BRANCH_RET);
	static const u64 slices[] = { WHOLE, 1 };
	struct machine *m = *state;
	const struct branch_ring *ring = &m->cpu->branches;

	for (u32 i = 0; i < ARRAY_SIZE(slices); i++) {
		load(m, calls, true);
		/* Up to the first function's NOP: its call is on the stack. */
		while (m->cpu->rip != AT(t3))
			assert_int_equal(machine_run(m, 1), EXIT_BUDGET);
		assert_int_equal(ring->top, 0);
		assert_int_equal(ring->entry[0].from, AT(f3));
		run(m, slices[i]);
		/* All have returned, and the call of the next instruction was none. */
		assert_int_equal(ring->top, BRANCH_DEPTH - 1);
		for (u32 j = 0; j < BRANCH_DEPTH; j++)
			assert_int_equal(ring->entry[j].from | ring->entry[j].kind, 0);
	}
}

/* A return to a non-canonical address faults, and so never retires. */
GUEST_CODE(bad, "mov $1, %eax\n"
		"shl $62, %rax\n"
		"push %rax\n"
		"ret\n"
		".org bad_start + 0x100\n"
		"out %al, $0xf4\n");

static void a_branch_that_faults_is_not_recorded(void **state)
{
	struct machine *m = *state;

	load(m, EVERY, false);
	machine_load(m, bad_start, (size_t)(bad_end - bad_start));
	image_gate(m->ram, VEC_GP, IMAGE_CODE + 0x100, 0);
	assert_int_equal(machine_run(m, WHOLE), EXIT_IO);
	assert_int_equal(m->cpu->branches.top, 0); /* the exception itself */
	assert_int_equal(m->cpu->branches.entry[0].kind, BRANCH_FAR + 1);
	assert_int_equal(m->cpu->branches.entry[0].to, IMAGE_CODE + 0x100);
	m->cpu->branches.kinds[RETIRE_OS] = m->cpu->branches.kinds[RETIRE_USR] = 0;
}

/* Branches of every kind, some of them predicted badly, in a loop that becomes hot, and faults in
 * the middle of it. The handler continues after the DIV. */
GUEST_CODE(often, "mov $300, %ecx\n"
		  "mov $7, %edx\n"
		  "1: imul $1103515245, %edx, %edx\n"
		  "add $12345, %edx\n"
		  "call 2f\n"
		  "test $0x10000, %edx\n"
		  "jz 3f\n"
		  "add $7, %edi\n"
		  "jmp 4f\n"
		  "3: sub $3, %edi\n"
		  "4: adc $1, %esi\n"
		  "test $0x60000, %edx\n"
		  "jnz 5f\n"
		  "xor %ebx, %ebx\n"
		  "div %ebx\n"
		  "5: lea 6f(%rip), %rax\n"
		  "test $0x80000, %edx\n"
		  "jz 7f\n"
		  "lea 8f(%rip), %rax\n"
		  "7: jmp *%rax\n"
		  "6: nop\n"
		  "8: call 9f\n"
		  "9: pop %rax\n"
		  "dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n"
		  "2: push %rbx\n"
		  "lea 10f(%rip), %rbx\n"
		  "call *%rbx\n"
		  "pop %rbx\n"
		  "ret\n"
		  "10: ret\n"
		  ".org often_start + 0x200\n"
		  "addq $2, (%rsp)\n"
		  "iretq\n");

/*
 * Ways out of the middle of a hot block where nothing is branched: a string instruction that goes
 * on or faults, an instruction that C executes, accesses that end on two pages, devices that are
 * written to and read from; and many jumps in a row. In the second half the stack is on the line of
 * the code that is called. The handler leaves out the REP MOVSB.
 */
GUEST_CODE(ways, "mov $0x120008, %r10d\n"
		 "mov $0x400000, %r8d\n"
		 "mov $7, %edx\n"
		 "0: mov $250, %ebp\n"
		 "1: imul $1103515245, %edx, %edx\n"
		 "add $12345, %edx\n"
		 ".rept 18\n"
		 "jmp 2f\n"
		 "2:\n"
		 ".endr\n"
		 "test $0x10000, %edx\n"
		 "jz 3f\n"
		 "mov %edx, (%r8)\n"
		 "3: mov %rdx, (%r10)\n"
		 "mov %rdx, -64(%r10)\n"
		 "mov $0x121000, %esi\n"
		 "mov %edx, %eax\n"
		 "shr $18, %eax\n"
		 "and $3, %eax\n"
		 "mov %eax, %ecx\n"
		 "jz 4f\n"
		 "cmp $3, %eax\n"
		 "cmove %r9, %rsi\n"
		 "lea 64(%rsi), %rdi\n"
		 "rep movsb\n"
		 "4: call 5f\n"
		 "test $0x200000, %edx\n"
		 "jnz 6f\n"
		 "jmp 9f\n"
		 "9: sldt %eax\n"
		 "mov (%r8), %eax\n"
		 "6: dec %ebp\n"
		 "jnz 1b\n"
		 "lea 8f + 8(%rip), %rax\n"
		 "cmp %rax, %rsp\n"
		 "mov %rax, %rsp\n"
		 "jne 0b\n"
		 "out %al, $0xf4\n"
		 ".org ways_start + 0x200\n"
		 "add $8, %rsp\n" /* the error code */
		 "addq $2, (%rsp)\n"
		 "iretq\n"
		 ".org ways_start + 0x400\n"
		 "8: .skip 16\n"
		 "5: test $0x400000, %edx\n"
		 "jz 7f\n"
		 "inc %ebx\n"
		 "7: lea 10f(%rip), %rax\n"
		 "jmp *%rax\n"
		 "10: ret\n");

#define MOST 40000

static u64 add_to_hash(u64 hash, u64 value)
{
	return (hash ^ value) * 0x100000001b3ull;
}

/* The records, and what the predictor goes by. */
static u64 hash_of(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	const struct branch_ring *ring = &cpu->branches;
	const struct predict *p = &priv->timing.predict;
	u64 hash = add_to_hash(p->path, (u32)p->path_at << 16 | p->rsb_top << 8 | ring->top);

	for (u32 i = 0; i < BRANCH_DEPTH; i++) {
		const struct branch_entry *e = &ring->entry[i];

		hash = add_to_hash(hash, e->from);
		hash = add_to_hash(hash, e->to);
		hash = add_to_hash(hash, e->kind << 1 | !!e->missed);
		hash = add_to_hash(hash, e->ticks);
		hash = add_to_hash(hash, e->since);
	}
	return hash;
}

static void begin(struct machine *m, u8 kinds, bool call_stack)
{
	machine_start(m);
	machine_cold(m);
	m->cpu->regs[R9] = BIT(62);
	m->cpu->port.wanted = RETIRE_BIT(RETIRE_CYCLES);
	m->cpu->branches = (struct branch_ring){ .mask = BRANCH_DEPTH - 1,
						 .kinds = { kinds, kinds },
						 .call_stack = call_stack };
}

/* The records after each instruction, and how many of them tell of a misprediction. */
static u64 step_all(struct machine *m, u64 hash[MOST])
{
	const struct branch_ring *ring = &m->cpu->branches;
	u64 missed = 0;

	while (machine_run(m, 1) == EXIT_BUDGET) {
		assert_true(machine_retired(m) < MOST);
		hash[machine_retired(m)] = hash_of(m->cpu);
		missed += !!ring->entry[ring->top].missed;
	}
	assert_int_equal(m->cpu->port.exit.reason, EXIT_IO);
	return missed;
}

static void check(struct machine *m, u8 kinds, bool call_stack)
{
	static const u64 slices[] = { WHOLE, WHOLE, 4099, 997, 101, 13 };
	static u64 hash[MOST];
	u64 missed;

	begin(m, kinds, call_stack);
	missed = step_all(m, hash);
	assert_true(missed || call_stack || !(kinds & BIT(BRANCH_JCC)));
	for (u32 i = 0; i < ARRAY_SIZE(slices); i++) {
		begin(m, kinds, call_stack);
		while (machine_run(m, slices[i]) == EXIT_BUDGET)
			assert_int_equal(hash_of(m->cpu), hash[machine_retired(m)]);
		assert_int_equal(m->cpu->port.exit.reason, EXIT_IO);
		assert_int_equal(hash_of(m->cpu), hash[machine_retired(m)]);
	}
}

static void check_all(struct machine *m)
{
	check(m, EVERY, false);
	for (u32 kind = 0; kind < NBRANCHES; kind++)
		check(m, BIT(kind), false);
	check(m, BIT(BRANCH_REL_CALL) | BIT(BRANCH_IND_CALL) | BIT(BRANCH_RET), true);
	check(m, EVERY, true);
	m->cpu->branches.kinds[RETIRE_OS] = m->cpu->branches.kinds[RETIRE_USR] = 0;
}

static void records_are_those_of_single_steps(void **state)
{
	struct machine *m = *state;

	machine_load(m, often_start, (size_t)(often_end - often_start));
	image_gate(m->ram, VEC_DE, IMAGE_CODE + 0x200, 0);
	check_all(m);
}

static void so_they_are_where_blocks_are_left_in_their_middle(void **state)
{
	struct machine *m = *state;

	machine_load(m, ways_start, (size_t)(ways_end - ways_start));
	image_gate(m->ram, VEC_GP, IMAGE_CODE + 0x200, 0);
	check_all(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_branch_is_recorded_once_and_in_order),
		cmocka_unit_test(each_filter_keeps_its_kind),
		cmocka_unit_test(nothing_is_recorded_unless_wanted),
		cmocka_unit_test(entries_know_the_cycles_between_them),
		cmocka_unit_test(calls_push_and_returns_pop),
		cmocka_unit_test(a_branch_that_faults_is_not_recorded),
		cmocka_unit_test(records_are_those_of_single_steps),
		cmocka_unit_test(so_they_are_where_blocks_are_left_in_their_middle),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
