// SPDX-License-Identifier: MIT
/*
 * Numbers of generations that come again: guarded links, the jump cache and return slots hold fewer
 * bits of them than there are. A page of code is replaced so that its new generation has the low
 * bits of the old one; the new code must run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/mmu/mmu.h"
#include "cpu/private.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define ALL    10000000
#define THERE  (IMAGE_CODE + 0x1000) /* the page whose mapping changes */
#define FIRST  (IMAGE_CODE + 0x2000) /* what it is mapped to */
#define SECOND (IMAGE_CODE + 0x3000)

/* Calls, jumps and returns to another page until that is hot. */
GUEST_CODE(linked, "mov $200, %ecx\n"
		   "1: jmp linked_start + 0x1000\n"
		   "2: dec %ecx\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n"
		   ".org linked_start + 0x2000\n"
		   "add $1, %ebx\n"
		   "jmp . + (2b - linked_start) - 0x1003\n"
		   ".org linked_start + 0x3000\n"
		   "add $100, %ebx\n"
		   "jmp . + (2b - linked_start) - 0x1003\n");

GUEST_CODE(looked_up, "mov $200, %ecx\n"
		      "lea looked_up_start + 0x1000(%rip), %rax\n"
		      "lea 2f(%rip), %rdx\n"
		      "1: jmp *%rax\n"
		      "2: dec %ecx\n"
		      "jnz 1b\n"
		      "out %al, $0xf4\n"
		      ".org looked_up_start + 0x2000\n"
		      "add $1, %ebx\n"
		      "jmp *%rdx\n"
		      ".org looked_up_start + 0x3000\n"
		      "add $100, %ebx\n"
		      "jmp *%rdx\n");

/* The page calls one that does not change: where that returns to is in a slot. In the second run
 * (RAX) nothing is called, so that the slot is still the first run's. */
GUEST_CODE(returned, "mov $200, %ecx\n"
		     "lea returned_start + 0x1005(%rip), %rdx\n"
		     "1: test %rax, %rax\n"
		     "jz returned_start + 0x1000\n"
		     "push %rdx\n"
		     "3: ret\n"
		     "2: dec %ecx\n"
		     "jnz 1b\n"
		     "out %al, $0xf4\n"
		     ".org returned_start + 0x2000\n"
		     "call . + (3b - returned_start) - 0x1000\n"
		     "add $1, %ebx\n"
		     "jmp . + (2b - returned_start) - 0x1008\n"
		     ".org returned_start + 0x3000\n"
		     "call . + (3b - returned_start) - 0x1000\n"
		     "add $100, %ebx\n"
		     "jmp . + (2b - returned_start) - 0x1008\n");

static const struct program {
	const u8 *start, *end;
} programs[] = {
	{ linked_start, linked_end },
	{ looked_up_start, looked_up_end },
	{ returned_start, returned_end },
};

static void map_there(struct machine *m, u64 to)
{
	*image_pte(m->ram, THERE) = to | 7;
}

static void restart(struct machine *m)
{
	m->cpu->rip = IMAGE_CODE;
	m->cpu->regs[RBX] = 0;
	m->cpu->regs[RAX] = 1;
	m->cpu->port.io.state = IO_IDLE;
}

/* The engine gives numbers of its own when it finds that an era has ended (jump_cache.c): the first
 * of an era is where they meet those of another. */
static void run_twice(struct machine *m, const struct program *p, u64 distance)
{
	u64 before;

	machine_load(m, p->start, (size_t)(p->end - p->start));
	map_there(m, FIRST);
	cpu_priv(m->cpu)->last_jump = BIT(41);
	tlb_flush(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	assert_int_equal(m->cpu->regs[RBX], 200);
	before = cpu_priv(m->cpu)->jump_generation[SPACE_OS];

	map_there(m, SECOND);
	cpu_priv(m->cpu)->last_jump = before + distance - 1; /* as if so many had been given */
	tlb_flush(m->cpu);
	restart(m);
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	assert_int_equal(cpu_priv(m->cpu)->jump_generation[SPACE_OS], before + distance);
	assert_int_equal(m->cpu->regs[RBX], 200 * 100);
}

static void generations_may_wrap(void **state)
{
	static const u8 bits[] = { 12, 16, 28, 29, 32, 33, 40 };

	for (u32 i = 0; i < ARRAY_SIZE(programs); i++)
		for (u32 k = 0; k < ARRAY_SIZE(bits); k++)
			run_twice(*state, &programs[i], BIT(bits[k]));
}

/* Generations that run out while code runs, two for each write of CR3. */
static void an_era_may_end_at_any_generation(void **state)
{
	struct machine *m = *state;

	for (u64 left = 0; left < 8; left++)
		for (u32 i = 0; i < ARRAY_SIZE(programs); i++) {
			machine_load(m, programs[i].start,
				     (size_t)(programs[i].end - programs[i].start));
			cpu_priv(m->cpu)->last_jump = BIT(32) - left;
			tlb_flush(m->cpu);
			map_there(m, FIRST);
			assert_int_equal(machine_run(m, ALL), EXIT_IO);
			assert_int_equal(m->cpu->regs[RBX], 200);
			map_there(m, SECOND);
			tlb_flush(m->cpu);
			restart(m);
			assert_int_equal(machine_run(m, ALL), EXIT_IO);
			assert_int_equal(m->cpu->regs[RBX], 200 * 100);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(generations_may_wrap),
		cmocka_unit_test(an_era_may_end_at_any_generation),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
