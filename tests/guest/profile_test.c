// SPDX-License-Identifier: MIT
/*
 * The exact profile (base/profile.h): what it has of all blocks together is the tally, whatever way
 * blocks are left, and what it has of one is what that block retired.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/profile.h"
#include "engine/engine.h"
#include "guest/tally.h"

#define ONE_PIECE (~0ull >> 1)

struct profiled {
	struct machine machine;
	struct profile *profile;
};

static void create(struct profiled *p)
{
	p->profile = calloc(1, sizeof(*p->profile));
	assert_non_null(p->profile);
	machine_create(&p->machine);
}

static void begin(struct profiled *p, const void *code, size_t size)
{
	create(p);
	machine_load(&p->machine, code, size);
	engine_set_profile(p->machine.cpu, p->profile);
}

static void end(struct profiled *p)
{
	machine_destroy(&p->machine);
	free(p->profile);
}

static u64 user_sum(const struct profile *profile)
{
	u64 sum = 0;

	for (u32 i = 0; i < PROFILE_ENTRIES; i++)
		sum += profile->entry[i].count;
	return sum;
}

/* The entry of code at this offset in the page of IMAGE_CODE, or 0. */
static u64 count_at(const struct profiled *p, u64 offset)
{
	u64 page = profile_page(profile_hash(PROFILE_SEED, p->machine.ram + IMAGE_CODE, PAGE_SIZE));

	for (u32 i = 0; i < PROFILE_ENTRIES; i++)
		if (p->profile->entry[i].page == page && p->profile->entry[i].offset == offset)
			return p->profile->entry[i].count;
	return 0;
}

static void run_workload(const struct tally_workload *w, u64 slice)
{
	enum exit_reason reason;
	struct profiled p;

	create(&p);
	tally_load(&p.machine, w);
	engine_set_profile(p.machine.cpu, p.profile);
	do
		reason = machine_run(&p.machine, slice);
	while (reason == EXIT_BUDGET);
	assert_int_equal(reason, EXIT_IO);
	assert_int_equal(p.profile->kernel, w->os);
	assert_int_equal(user_sum(p.profile), w->usr);
	assert_int_equal(p.profile->lost, 0);
	end(&p);
}

static void blocks_sum_up_to_the_tally(void **state)
{
	(void)state;
	for (const struct tally_workload *w = tally_workloads; w < tally_workloads_end; w++) {
		run_workload(w, ONE_PIECE);
		run_workload(w, 997);
	}
}

/*
 * At CPL 3: a loop of 1000 turns that calls a function of 3 instructions, one of 5 every other
 * turn. Offsets are those of the labels.
 */
GUEST_CODE(counted, "pushq $0x23\n"    /* IMAGE_UDS */
		    "pushq $0xa0000\n" /* IMAGE_USER_STACK */
		    "pushf\n"
		    "pushq $0x2b\n" /* IMAGE_UCS */
		    "lea 1f(%rip), %rax\n"
		    "push %rax\n"
		    "iretq\n"
		    ".org counted_start + 0x40\n"
		    "1: mov $1000, %ebx\n" /* 1 */
		    "2: call 5f\n"	   /* 1000 */
		    "test $1, %bl\n"	   /* 1000 */
		    "jz 3f\n"		   /* 1000 */
		    "call 6f\n"		   /* 500 */
		    "3: dec %ebx\n"	   /* 1000 */
		    "jnz 2b\n"		   /* 1000 */
		    "int3\n"
		    ".org counted_start + 0x80\n"
		    "5: nop\n nop\n ret\n" /* 3000 */
		    ".org counted_start + 0xc0\n"
		    "6: nop\n nop\n nop\n nop\n ret\n" /* 2500 */
		    ".org counted_start + 0x100\n"
		    "out %al, $0xf4\n");

static void a_block_has_what_it_retired(void **state)
{
	struct profiled p;

	(void)state;
	begin(&p, counted_start, (size_t)(counted_end - counted_start));
	image_gate(p.machine.ram, 3, IMAGE_CODE + 0x100, 3);
	assert_int_equal(machine_run(&p.machine, ONE_PIECE), EXIT_IO);
	assert_int_equal(count_at(&p, 0x80), 3000);
	assert_int_equal(count_at(&p, 0xc0), 2500);
	/* With INT3, which retires. The block at 1 has one turn of that at 2. */
	assert_int_equal(user_sum(p.profile), 1 + 5 * 1000 + 500 + 1 + 3000 + 2500);
	assert_int_equal(count_at(&p, 0x40), 2);
	assert_int_equal(count_at(&p, 0x45), 999);
	end(&p);
}

/* PAUSE becomes two NOPs after the store, of which there are two turns. */
GUEST_CODE(replaced, "pushq $0x23\n"
		     "pushq $0xa0000\n"
		     "pushf\n"
		     "pushq $0x2b\n"
		     "lea 1f(%rip), %rax\n"
		     "push %rax\n"
		     "iretq\n"
		     ".org replaced_start + 0x40\n"
		     "1: mov $2, %ebx\n"
		     "2: jmp 3f\n"
		     ".org replaced_start + 0x80\n"
		     "3: pause\n"
		     "jmp 4f\n"
		     ".org replaced_start + 0xc0\n"
		     "4: movb $0x90, 3b(%rip)\n"
		     "dec %ebx\n"
		     "jnz 2b\n"
		     "int3\n"
		     ".org replaced_start + 0x100\n"
		     "out %al, $0xf4\n");

static void code_is_known_by_its_contents(void **state)
{
	struct profiled p;

	(void)state;
	begin(&p, replaced_start, (size_t)(replaced_end - replaced_start));
	image_gate(p.machine.ram, 3, IMAGE_CODE + 0x100, 3);
	assert_int_equal(machine_run(&p.machine, ONE_PIECE), EXIT_IO);
	assert_int_equal(count_at(&p, 0x80), 3); /* the second turn, and not the first */
	assert_int_equal(user_sum(p.profile), 1 + 2 + 2 + 3 + 2 * 3 + 1);
	end(&p);
}

/* One entry is left, far from where any of these blocks belongs: it is not looked for. */
static void a_full_profile_is_not_searched(void **state)
{
	struct profiled p;

	(void)state;
	begin(&p, counted_start, (size_t)(counted_end - counted_start));
	image_gate(p.machine.ram, 3, IMAGE_CODE + 0x100, 3);
	for (u32 i = 1; i < PROFILE_ENTRIES; i++)
		p.profile->entry[i].page = 1;
	assert_int_equal(machine_run(&p.machine, ONE_PIECE), EXIT_IO);
	assert_int_equal(user_sum(p.profile), 0);
	assert_int_equal(p.profile->lost, 1 + 5 * 1000 + 500 + 1 + 3000 + 2500);
	end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_sum_up_to_the_tally),
		cmocka_unit_test(a_block_has_what_it_retired),
		cmocka_unit_test(code_is_known_by_its_contents),
		cmocka_unit_test(a_full_profile_is_not_searched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
