// SPDX-License-Identifier: MIT
/*
 * Locked instructions of two vCPUs on the same bytes lose nothing: across two pages that are
 * neighbours for the guest but not on the host, across lines, on pages that hold translated code;
 * by both vCPUs, or by one while the other executes plain locked instructions and stores on a part
 * of these bytes. Run by `vpmu kvm`.
 *
 * usage: api_locks_test [--runs N]     instructions of each vCPU a row
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define CODE(name) name##_start, (size_t)(name##_end - name##_start)

#define BARRIER	  (IMAGE_DATA + 0x100)
#define PAGES	  0x120000 /* linear: two pages, mapped as a row says */
#define FIRST	  0x130000 /* physical */
#define NEIGHBOUR (FIRST + PAGE_SIZE)
#define ELSEWHERE 0x140000

/*
 * RDI: address; RSI: operand; R8: how often; R10: sum of what was found, or of errors; R12: the
 * loop; R13: vCPUs. All wait for each other first.
 */
GUEST_CODE(loops, "mov $0x100100, %eax\n"
		  "lock incl (%rax)\n"
		  "1: pause\n"
		  "cmp %r13d, (%rax)\n"
		  "jb 1b\n"
		  "jmp *%r12\n"
#define LOOP(number, body) \
	".org loops_start + 64 * " #number "\n1: " body "\ndec %r8\njnz 1b\nhlt\n"
		  LOOP(1, "lock incq (%rdi)")
		  LOOP(2, "lock decq (%rdi)")
		  LOOP(3, "lock addq %rsi, (%rdi)")
		  LOOP(4, "lock subq %rsi, (%rdi)")
		  LOOP(5, "mov %rsi, %rax; lock xaddq %rax, (%rdi)")
		  LOOP(6, "mov (%rdi), %rax; 2: lea (%rax, %rsi), %rbx; lock cmpxchgq %rbx, (%rdi); jne 2b")
		  LOOP(7, "mov (%rdi), %eax; mov 4(%rdi), %edx; 2: mov %eax, %ebx; mov %edx, %ecx;"
			  "add %esi, %ebx; adc $0, %ecx; lock cmpxchg8b (%rdi); jne 2b")
		  LOOP(8, "mov %rsi, %rax; xchg %rax, (%rdi); sub %rax, %r10; add %rsi, %r10; inc %rsi")
		  LOOP(9, "lock xorq %rsi, (%rdi)")
		  LOOP(10, "lock btcq %rsi, (%rdi)")
		  LOOP(11, "lock btsq %rsi, (%rdi); adc $0, %r10; lock btrq %rsi, (%rdi); cmc; adc $0, %r10")
		  LOOP(12, "lock notq (%rdi)")
		  LOOP(13, "stc; lock adcq $0, (%rdi)")
		  LOOP(14, "stc; lock sbbq $0, (%rdi)")
		  LOOP(15, "lock incl (%rdi)")
		  LOOP(16, "lock incw (%rdi)")
		  LOOP(17, "inc %esi; mov %esi, (%rdi)")
		  LOOP(18, "lock negq (%rdi)")
		  LOOP(19, "lock orq %rsi, (%rdi); mov (%rdi), %rax; not %rax; and %rsi, %rax; add %rax, %r10;"
			   "not %rsi; lock andq %rsi, (%rdi); not %rsi"));

#define LOOP_XCHG  8
#define LOOP_INCW  16
#define LOOP_STORE 17

/* What a loop does to the 8 bytes, besides what it adds to R10. */
enum effect { NOTHING, ADDS, TOGGLES };

struct loop {
	u32 number;
	enum effect effect;
	u64 by;	     /* what, by each instruction */
	u64 operand; /* RSI */
};

/* clang-format off */
static const struct row {
	const char *name;
	struct loop loop[2];
	u32 back; /* of the 8 bytes, so many lie on the first page, or line */
} rows[] = {
	{ "lock inc, lock dec", { { 1, ADDS, 1, 0 }, { 2, ADDS, -1ull, 0 } }, 3 },
	{ "lock inc", { { 1, ADDS, 1, 0 }, { 1, ADDS, 1, 0 } }, 4 },
	{ "lock add, lock sub", { { 3, ADDS, 0x10001, 0x10001 }, { 4, ADDS, -5ull, 5 } }, 1 },
	{ "lock xadd", { { 5, ADDS, 7, 7 }, { 5, ADDS, 1ull << 40, 1ull << 40 } }, 2 },
	{ "lock cmpxchg", { { 6, ADDS, 7, 7 }, { 6, ADDS, 1ull << 40, 1ull << 40 } }, 5 },
	{ "lock cmpxchg8b", { { 7, ADDS, 7, 7 }, { 1, ADDS, 1, 0 } }, 6 },
	{ "xchg", { { 8, NOTHING, 0, 1 }, { 8, NOTHING, 0, 1ull << 50 } }, 4 },
	{ "lock xor", { { 9, TOGGLES, 0x5555, 0x5555 }, { 9, TOGGLES, 0x33ull << 32, 0x33ull << 32 } }, 4 },
	{ "lock btc", { { 10, TOGGLES, 1, 0 }, { 10, TOGGLES, BIT(63), 63 } }, 7 },
	{ "lock bts and btr", { { 11, NOTHING, 0, 1 }, { 11, NOTHING, 0, 62 } }, 4 },
	{ "lock or and and", { { 19, NOTHING, 0, 0xf0 }, { 19, NOTHING, 0, BIT(60) } }, 4 },
	{ "lock not", { { 12, TOGGLES, ~0ull, 0 }, { 12, TOGGLES, ~0ull, 0 } }, 4 },
	{ "lock neg", { { 18, NOTHING, 0, 0 }, { 18, NOTHING, 0, 0 } }, 4 },
	{ "lock adc, lock sbb", { { 13, ADDS, 1, 0 }, { 14, ADDS, -1ull, 0 } }, 3 },
	{ "lock inc of 4 bytes", { { 15, ADDS, 1, 0 }, { 15, ADDS, 1, 0 } }, 2 },
	{ "lock inc of 2 bytes", { { 16, ADDS, 1, 0 }, { 16, ADDS, 1, 0 } }, 1 },
	{ "lock add, lock inc of its lower half", { { 3, ADDS, BIT(32), BIT(32) }, { 15, ADDS, 1, 0 } }, 4 },
	{ "lock add, stores to its lower half", { { 3, ADDS, BIT(32), BIT(32) }, { 17, ADDS, 1, 0 } }, 4 },
};
/* clang-format on */

/*
 * Odd, as every number that is asked for becomes. Where the host executes them itself there are
 * fewer: a host that detects split locks may take 0.1 ms for each.
 */
static u64 runs = 4001;

#define IN_PLACE (runs < 40000 ? runs / 40 | 1 : 1001)

struct runner {
	struct kvm_guest *g;
	int vcpu, reason;
};

static void *run_vcpu(void *arg)
{
	struct runner *r = arg;

	do
		r->reason = kvm_guest_run(r->g, r->vcpu);
	while (r->reason == -EINTR);
	return NULL;
}

static void start(struct kvm_guest *g, int vcpu, const struct loop *loop, u64 address, u64 n)
{
	struct kvm_regs regs = { .rip = IMAGE_CODE,
				 .rflags = 2,
				 .rsi = loop->operand,
				 .rdi = address,
				 .r8 = n,
				 .r12 = IMAGE_CODE + 64 * loop->number,
				 .r13 = g->nvcpus };

	KVM_CALL(g->vcpu[vcpu], KVM_SET_REGS, &regs);
}

static u32 disturbances; /* of each pair of runs */

/* Signals, and slots that come and go: who changes them waits for all vCPUs. */
static void disturb(struct kvm_guest *g, const pthread_t *thread)
{
	struct kvm_userspace_memory_region region = { .slot = 1,
						      .guest_phys_addr = 1 << 30,
						      .userspace_addr = (u64)g->ram };

	for (u32 i = 0; i < disturbances; i++) {
		region.memory_size = i & 1 ? 0 : PAGE_SIZE;
		KVM_CALL(g->vm, KVM_SET_USER_MEMORY_REGION, &region);
		pthread_kill(thread[i / 2 & 1], SIGUSR1);
	}
}

/* Returns the sum of all R10. */
static u64 run_all(struct kvm_guest *g, const struct row *row, u64 address, u64 n)
{
	struct runner runner[KVM_GUEST_VCPUS];
	pthread_t thread[KVM_GUEST_VCPUS];
	u64 sum = 0;

	*(u32 *)(g->ram + BARRIER) = 0;
	for (int i = 0; i < g->nvcpus; i++) {
		runner[i] = (struct runner){ g, i, 0 };
		start(g, i, &row->loop[i % 2], address, n);
		assert_int_equal(pthread_create(&thread[i], NULL, run_vcpu, &runner[i]), 0);
	}
	disturb(g, thread);
	for (int i = 0; i < g->nvcpus; i++) {
		struct kvm_regs regs;

		pthread_join(thread[i], NULL);
		assert_int_equal(runner[i].reason, KVM_EXIT_HLT);
		KVM_CALL(g->vcpu[i], KVM_GET_REGS, &regs);
		sum += regs.r10;
	}
	return sum;
}

static u64 expected(const struct row *row, u64 value, u64 n, u32 nvcpus)
{
	for (u32 i = 0; i < nvcpus; i++) {
		const struct loop *l = &row->loop[i % 2];

		if (l->effect == ADDS && l->number == LOOP_INCW) /* of 16 bits, without a carry */
			value = (value & ~0xffffull) | (u16)(value + l->by * n);
		else if (l->effect == ADDS)
			value += l->by * n;
		if (l->effect == TOGGLES)
			value ^= l->by;
	}
	return value;
}

/* before: where the byte is that the first page, or line, ends with; after: the next. */
struct place {
	u64 linear; /* of the latter */
	u8 *before, *after;
};

static u64 get(const struct place *p, u32 back)
{
	u64 value;

	memcpy(&value, p->before + 1 - back, back);
	memcpy((u8 *)&value + back, p->after, 8 - back);
	return value;
}

#define INITIAL 0x0123456700000000ull

static void set(const struct place *p, u32 back)
{
	const u64 value = INITIAL;

	memcpy(p->before + 1 - back, &value, back);
	memcpy(p->after, (const u8 *)&value + back, 8 - back);
}

/* XCHG: R10 has what was put in, less what was found; the last one is still there. */
static bool loses(struct kvm_guest *g, const struct row *row, const struct place *p, u64 n)
{
	u64 sum, found, wanted;

	set(p, row->back);
	sum = run_all(g, row, p->linear - row->back, n);
	found = get(p, row->back);
	wanted = expected(row, INITIAL, n, g->nvcpus);
	if (row->loop[0].number == LOOP_XCHG) {
		wanted += sum;
		sum = 0;
	}
	if (found == wanted && !sum)
		return false;
	print_error("%s: %#lx, want %#lx; errors: %#lx\n", row->name, found, wanted, sum);
	return true;
}

static void nothing_is_lost(struct kvm_guest *g, const struct place *p, u64 n)
{
	u32 lost = 0;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		lost += loses(g, &rows[i], p, n);
	assert_int_equal(lost, 0);
}

static void map(struct kvm_guest *g, u64 second)
{
	*image_pte(g->ram, PAGES) = FIRST | 7;
	*image_pte(g->ram, PAGES + PAGE_SIZE) = second | 7;
}

static struct place pages(struct kvm_guest *g, u64 second)
{
	return (struct place){ PAGES + PAGE_SIZE, g->ram + FIRST + PAGE_SIZE - 1, g->ram + second };
}

static void across_pages_that_are_not_neighbours(void **state)
{
	struct kvm_guest g;
	struct place p;

	(void)state;
	kvm_guest_create(&g, CODE(loops), 2);
	map(&g, ELSEWHERE);
	p = pages(&g, ELSEWHERE);
	nothing_is_lost(&g, &p, runs);
	kvm_guest_destroy(&g);
}

/* Those that do not mind company: bits and stores are of one vCPU each. */
static void four_vcpus(void **state)
{
	struct kvm_guest g;
	struct place p;

	(void)state;
	kvm_guest_create(&g, CODE(loops), 4);
	map(&g, ELSEWHERE);
	p = pages(&g, ELSEWHERE);
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].loop[0].effect == ADDS && rows[i].loop[1].number != LOOP_STORE)
			assert_false(loses(&g, &rows[i], &p, runs / 4 | 1));
	kvm_guest_destroy(&g);
}

static void across_pages_that_are_neighbours(void **state)
{
	struct kvm_guest g;
	struct place p;

	(void)state;
	kvm_guest_create(&g, CODE(loops), 2);
	map(&g, NEIGHBOUR);
	p = pages(&g, NEIGHBOUR);
	nothing_is_lost(&g, &p, IN_PLACE);
	kvm_guest_destroy(&g);
}

/* On the page of the loops themselves. */
static void on_a_page_with_code(void **state)
{
	struct kvm_guest g;
	u64 at = IMAGE_CODE + 0x800;

	(void)state;
	kvm_guest_create(&g, CODE(loops), 2);
	nothing_is_lost(&g, &(struct place){ at, g.ram + at - 1, g.ram + at }, IN_PLACE);
	kvm_guest_destroy(&g);
}

/* The first of the two pages is the second half of the code's: with its own translations. */
static void across_pages_with_code(void **state)
{
	struct kvm_guest g;
	struct place p;

	(void)state;
	kvm_guest_create(&g, CODE(loops), 2);
	*image_pte(g.ram, PAGES) = IMAGE_CODE | 7;
	*image_pte(g.ram, PAGES + PAGE_SIZE) = ELSEWHERE | 7;
	p = (struct place){ PAGES + PAGE_SIZE, g.ram + IMAGE_CODE + PAGE_SIZE - 1,
			    g.ram + ELSEWHERE };
	nothing_is_lost(&g, &p, runs);
	kvm_guest_destroy(&g);
}

static void on_signal(int sig)
{
	(void)sig;
}

static void while_the_program_interrupts(void **state)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGUSR1, &action, NULL);
	disturbances = 200;
	across_pages_that_are_not_neighbours(state);
	disturbances = 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(across_pages_that_are_not_neighbours),
		cmocka_unit_test(four_vcpus),
		cmocka_unit_test(across_pages_that_are_neighbours),
		cmocka_unit_test(on_a_page_with_code),
		cmocka_unit_test(across_pages_with_code),
		cmocka_unit_test(while_the_program_interrupts),
	};

	if (argc == 3 && !strcmp(argv[1], "--runs"))
		runs = strtoull(argv[2], NULL, 0) | 1;
	else if (argc != 1)
		return fprintf(stderr, "usage: api_locks_test [--runs N]\n"), 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
