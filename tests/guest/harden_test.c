// SPDX-License-Identifier: MIT
/*
 * Accesses with masked addresses (cpu->port.harden): they do what others do, each check is followed
 * by a mask, and an entry of the soft TLB that serves no address leads nowhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/mmu/mmu.h"
#include "engine/priv.h"
#include "guest/machine.h"

#define ALL 1000000

/* Single accesses and groups, the stack, and accesses that cross a page. */
GUEST_CODE(work, "mov $0x100ff0, %esi\n"
		 "mov $200, %ecx\n"
		 "1: mov (%rsi), %rax\n"
		 "add %rcx, %rax\n"
		 "mov %rax, 8(%rsi)\n"
		 "add %rax, 13(%rsi)\n" /* crosses */
		 "push %rax\n"
		 "add 24(%rsi), %rbx\n"
		 "pop 16(%rsi)\n"
		 "lea (%rsi, %rcx, 8), %rdi\n"
		 "xor %rbx, (%rdi)\n"
		 "movdqu 5(%rsi), %xmm0\n"
		 "movdqu %xmm0, 0x1000(%rdi)\n"
		 "dec %ecx\n"
		 "jnz 1b\n"
		 "out %al, $0xf4\n");

static u64 run_work(struct machine *m, bool harden, u8 *memory)
{
	m->cpu->port.harden = harden;
	machine_load(m, work_start, (size_t)(work_end - work_start));
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	memcpy(memory, m->ram + IMAGE_DATA, 4 * PAGE_SIZE);
	return m->cpu->regs[RBX];
}

/* AND R13D, 0xfff in all of the code that was made. */
static u32 masks(const struct engine *eng)
{
	static const u8 mask[] = { 0x41, 0x81, 0xe5, 0xff, 0x0f, 0x00, 0x00 };
	u32 n = 0;

	for (const u8 *p = eng->code_first; p + sizeof(mask) <= eng->code_next; p++)
		n += !memcmp(p, mask, sizeof(mask));
	return n;
}

static void hardened_code_does_the_same(void **state)
{
	static u8 plain[4 * PAGE_SIZE], hardened[4 * PAGE_SIZE];
	struct machine *m = *state;
	u64 rbx = run_work(m, false, plain);

	assert_int_equal(masks(m->cpu->engine), 0);
	assert_int_equal(run_work(m, true, hardened), rbx);
	assert_memory_equal(plain, hardened, sizeof(plain));
	assert_true(masks(m->cpu->engine) >= 5);
	m->cpu->port.harden = false;
}

static void a_dropped_entry_leads_nowhere(void **state)
{
	struct machine *m = *state;
	static u8 memory[4 * PAGE_SIZE];
	u32 served = 0;

	run_work(m, false, memory);
	for (u32 i = 0; i < TLB_SIZE; i++)
		served += cpu_priv(m->cpu)->tlb[TLB_KERNEL_AC][i].host != 0;
	assert_true(served >= 2);
	tlb_flush(m->cpu);
	for (u32 set = 0; set < NTLBS; set++)
		for (u32 i = 0; i < TLB_SIZE; i++)
			assert_int_equal(cpu_priv(m->cpu)->tlb[set][i].host, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hardened_code_does_the_same),
		cmocka_unit_test(a_dropped_entry_leads_nowhere),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
