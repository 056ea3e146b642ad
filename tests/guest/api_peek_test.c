// SPDX-License-Identifier: MIT
/*
 * Guest memory read from outside (docs/control.md: registers, peek, sample percpu) while the guest
 * runs: what the page tables map is read, whatever they lead to instead is no answer, and no table
 * of a hostile guest leads anywhere else or on for ever. Run by `vpmu kvm`.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest/control_client.h"
#include "guest/kvm_guest.h"
#include "x86/paging.h"

#define TABLES	   0x200000 /* those of a hostile guest */
#define WORD	   0x120000
#define PER_CPU	   (0xffff800000000000ull + WORD) /* where the guest maps it too, for its kernel */
#define MSR_GS	   0xc0000101
#define MSR_USERGS 0xc0000102
#define ASKED_MOST 2000

GUEST_CODE(waiting, "1: cmpb $0, 0x100000; je 1b\n"
		    "out %al, $0xf4\n");

static struct kvm_guest g;
static pthread_t thread;

static u64 *words_at(u64 address)
{
	return (u64 *)&g.ram[address];
}

static void *run_guest(void *arg)
{
	(void)arg;
	return (void *)(long)kvm_guest_run(&g, 0);
}

/* The upper half has the same pages as the lower one. */
static int start(void **state)
{
	(void)state;
	kvm_guest_create(&g, waiting_start, waiting_end - waiting_start, 1);
	words_at(IMAGE_PML4)[256] = words_at(IMAGE_PML4)[0];
	words_at(WORD)[0] = 0x1122334455667788;
	kvm_guest_set_msr(&g, 0, MSR_GS, PER_CPU);
	kvm_guest_set_msr(&g, 0, MSR_USERGS, 0x1000);
	assert_int_equal(pthread_create(&thread, NULL, run_guest, NULL), 0);
	return 0;
}

static int finish(void **state)
{
	void *reason;

	(void)state;
	__atomic_store_n(&g.ram[IMAGE_DATA], 1, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_join(thread, &reason), 0);
	assert_int_equal((long)reason, KVM_EXIT_IO);
	kvm_guest_destroy(&g);
	return 0;
}

static void expect_peek(u64 cr3, u64 address, const char *size, const char *answer)
{
	char line[128];
	int fd = control_dial();

	snprintf(line, sizeof(line), "0 peek %#llx %#llx %s\n", (unsigned long long)cr3,
		 (unsigned long long)address, size);
	control_ask(fd, line, answer);
	close(fd);
}

static void mapped_memory_is_read(void **state)
{
	(void)state;
	expect_peek(IMAGE_PML4, WORD, "8", "8877665544332211");
	expect_peek(IMAGE_PML4, PER_CPU, "8", "8877665544332211");
	expect_peek(IMAGE_PML4 | 0xfff, WORD, "2", "8877"); /* PCID and flags are no address */
	memcpy(&g.ram[WORD + 0xffe], "\1\2\3\4", 4);
	expect_peek(IMAGE_PML4, WORD + 0xffe, "4", "01020304"); /* two pages */
}

static void physical_addresses_need_no_tables(void **state)
{
	int fd = control_dial();

	(void)state;
	memset(&g.ram[IMAGE_RAM - 4], 0xab, 4);
	control_ask(fd, "0 peek physical 0x120000 8\n", "8877665544332211");
	control_ask(fd, "0 peek physical 0x3ffffc 4\n", "abababab");
	control_ask(fd, "0 peek physical 0x3ffffc 5\n", "-");
	control_ask(fd, "0 peek physical 0xfffffffffffffffc 8\n", "-");
	close(fd);
}

static void what_is_not_memory_is_no_answer(void **state)
{
	(void)state;
	expect_peek(IMAGE_PML4, 0, "8", "-");
	expect_peek(IMAGE_PML4, IMAGE_MMIO, "8", "-");
	expect_peek(IMAGE_PML4, IMAGE_MMIO - 4, "8", "-"); /* half of it */
	expect_peek(IMAGE_PML4, ~0ull - 3, "8", "-");	   /* past the end of all addresses */
	expect_peek(~0ull, WORD, "8", "-");		   /* no table there */
	expect_peek(1ull << 40, WORD, "8", "-");
}

/* A table that is its own next level at every entry; one whose entries lead out of memory. */
static void hostile_tables_lead_nowhere_else(void **state)
{
	(void)state;
	for (u32 i = 0; i < 512; i++)
		words_at(TABLES)[i] = TABLES | PTE_P | PTE_A;
	expect_peek(TABLES, WORD, "8", "2100200000000000");
	expect_peek(TABLES, ~0ull & PAGE_MASK, "8", "2100200000000000");
	for (u32 i = 0; i < 512; i++)
		words_at(TABLES)[i] = ~0ull;
	expect_peek(TABLES, WORD, "8", "-");
	for (u32 i = 0; i < 512; i++)
		words_at(TABLES)[i] = (IMAGE_RAM - 8) | PTE_P;
	expect_peek(TABLES, WORD, "8", "-");
}

static void requests_that_make_no_sense_are_refused(void **state)
{
	static const char *const sizes[] = { "",  "0",	     "-1", "32769", "18446744073709551615",
					     "x", "8 0x1000" };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(sizes); i++)
		expect_peek(IMAGE_PML4, WORD, sizes[i], "error: peek CR3|physical ADDRESS SIZE");
}

static void registers_say_where_the_kernel_is(void **state)
{
	int fd = control_dial();

	(void)state;
	control_ask(fd, "0 registers\n", "vcpu 0 cr3 0x4000 cr4 ");
	close(fd);
}

/* The word at the kernel's GS base plus 0, of a sample that is of the guest. */
static void samples_have_the_word_of_their_cpu(void **state)
{
	int fd = control_dial();
	const char *word = NULL;
	char answer[256];

	(void)state;
	for (u32 i = 0; i < ASKED_MOST && !word; i++) {
		control_say(fd, "0 sample stacks percpu 0x4000 0x0\n");
		control_hear(fd, answer, sizeof(answer));
		word = strstr(answer, " percpu ");
	}
	assert_non_null(word);
	assert_memory_equal(word, " percpu 0xffff800000120000 0x1122334455667788", 45);
	close(fd);
}

/* Not once for all of them: cmocka forgets what fails in the tear-down of a group. */
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(mapped_memory_is_read),
		TEST(physical_addresses_need_no_tables),
		TEST(what_is_not_memory_is_no_answer),
		TEST(hostile_tables_lead_nowhere_else),
		TEST(requests_that_make_no_sense_are_refused),
		TEST(registers_say_where_the_kernel_is),
		TEST(samples_have_the_word_of_their_cpu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
