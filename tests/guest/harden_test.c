// SPDX-License-Identifier: MIT
/*
 * Hardened code (cpu->port.harden): it does what other code does, an access whose check has failed
 * stays on the page that the entry of the soft TLB leads to, an entry that serves no address leads
 * nowhere, and translated code waits until C has decided where it goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/mmu/mmu.h"
#include "engine/engine.h"
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

/* CMOVAE R13, RAX in all of the code that was made. */
static u32 masks(const struct engine *eng)
{
	static const u8 mask[] = { 0x4c, 0x0f, 0x43, 0xe8 };
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

/*
 * A misprediction, made visible: without the jump of its check an access goes where the host would
 * speculate to. CMP R13, limit; JAE becomes CMP and a NOP of six bytes. How many there were.
 */
static u32 disarm_checks(struct engine *eng)
{
	static const u8 compare[] = { 0x49, 0x81, 0xfd }, jae[] = { 0x0f, 0x83 };
	static const u8 nop[] = { 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	u32 n = 0;

	for (u8 *p = eng->code_first; p + 13 <= eng->code_next; p++)
		if (!memcmp(p, compare, sizeof(compare)) && !memcmp(p + 7, jae, sizeof(jae))) {
			memcpy(p + 7, nop, sizeof(nop));
			n++;
		}
	return n;
}

#define INSIDE	0x1111111111111111u /* what the page holds that the entry leads to */
#define OUTSIDE 0x22		    /* and each byte of the next one */

/* Each accesses memory at RSI, more than once, and leaves INSIDE in RAX if that came from the page
 * or went to it. The offset is that of RSI in a page whose end the last bytes cross. */
#define ACCESS(name, text) GUEST_CODE(name, "1: " text "\nout %al, $0xf4\njmp 1b\n")
ACCESS(load, "mov (%rsi), %rax");
ACCESS(load_vector, "movdqu (%rsi), %xmm0\npsrldq $8, %xmm0\nmovq %xmm0, %rax");
ACCESS(load_fs, "mov %fs:(%rsi), %rax");
ACCESS(set_bit, "mov $63, %edx\nbts %rdx, (%rsi)\nmov %rbx, %rax");
ACCESS(store, "mov %rbx, (%rsi)\nmov %rbx, %rax");
ACCESS(modify, "notq (%rsi)\nmov %rbx, %rax");
ACCESS(pop, "mov %rsi, %rsp\npop %rax");
ACCESS(push, "lea 8(%rsi), %rsp\npush %rbx\nmov %rbx, %rax");
ACCESS(group, "mov (%rsi), %rbx\nmov 504(%rsi), %rax");
ACCESS(group_last, "mov 504(%rsi), %rbx\nmov %rbx, 8(%rsi)\nmov 500(%rsi), %rax");

static const struct {
	const u8 *start, *end;
	u32 offset;
} accesses[] = {
	{ load_start, load_end, PAGE_SIZE - 4 },
	{ load_vector_start, load_vector_end, PAGE_SIZE - 12 },
	{ load_fs_start, load_fs_end, PAGE_SIZE - 1 },
	{ set_bit_start, set_bit_end, PAGE_SIZE - 7 },
	{ store_start, store_end, PAGE_SIZE - 4 },
	{ modify_start, modify_end, PAGE_SIZE - 4 },
	{ pop_start, pop_end, PAGE_SIZE - 7 },
	{ push_start, push_end, PAGE_SIZE - 7 },
	{ group_start, group_end, PAGE_SIZE - 504 - 4 },
	{ group_last_start, group_last_end, PAGE_SIZE - 504 },
};

/* The access at RSI, which ends at IMAGE_DONE_PORT. */
static void access_at(struct machine *m, u64 rsi)
{
	m->cpu->regs[RSI] = rsi;
	m->cpu->regs[RAX] = 0;
	m->cpu->regs[RBX] = INSIDE;
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	m->cpu->port.io.state = IO_DONE;
}

static void assert_stays(struct machine *m, u64 rsi)
{
	u8 *page = m->ram + IMAGE_DATA, *next = page + PAGE_SIZE;

	memset(page, INSIDE & 0xff, PAGE_SIZE);
	memset(next, OUTSIDE, PAGE_SIZE);
	access_at(m, rsi);
	assert_int_equal(m->cpu->regs[RAX], INSIDE);
	for (u32 i = 0; i < PAGE_SIZE; i++)
		assert_int_equal(next[i], OUTSIDE);
}

static void an_access_that_failed_its_check_stays_on_the_page(void **state)
{
	struct machine *m = *state;

	m->cpu->port.harden = true;
	for (u32 i = 0; i < ARRAY_SIZE(accesses); i++) {
		u64 crosses = IMAGE_DATA + accesses[i].offset;

		machine_load(m, accesses[i].start, (size_t)(accesses[i].end - accesses[i].start));
		access_at(m, IMAGE_DATA); /* translates, and fills the entry */
		access_at(m, IMAGE_DATA);
		assert_true(disarm_checks(m->cpu->engine) >= 1);
		assert_stays(m, crosses);
		assert_stays(m, crosses + TLB_SIZE * PAGE_SIZE); /* another page of that entry */
		assert_stays(m, crosses | BIT(62));		 /* not canonical */
	}
	m->cpu->port.harden = false;
	machine_load(m, work_start, (size_t)(work_end - work_start));
}

static bool has_fence(const u8 *code, ptrdiff_t size)
{
	static const u8 lfence[] = { 0x0f, 0xae, 0xe8 };

	return memmem(code, (size_t)size, lfence, sizeof(lfence));
}

static void translated_code_waits_until_c_has_decided(void **state)
{
	(void)state;
	for (u32 harden = 0; harden < 2; harden++) {
		struct cpu *cpu = cpu_create();
		const struct engine *eng;

		assert_non_null(cpu);
		cpu->port.harden = harden;
		assert_int_equal(engine_create(cpu), 0);
		eng = cpu->engine;

		const u8 *thunks[] = { eng->slow, eng->share, eng->commit, eng->call, eng->pass };

		assert_int_equal(has_fence(eng->code_rw, eng->leave - eng->code_rw), harden);
		for (u32 i = 0; i < ARRAY_SIZE(thunks); i++)
			assert_int_equal(has_fence(thunks[i], eng->share - eng->slow), harden);
		engine_destroy(cpu);
		cpu_destroy(cpu);
	}
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
		cmocka_unit_test(an_access_that_failed_its_check_stays_on_the_page),
		cmocka_unit_test(translated_code_waits_until_c_has_decided),
		cmocka_unit_test(a_dropped_entry_leads_nowhere),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
