// SPDX-License-Identifier: MIT
/*
 * Samples of a running guest, taken from outside (docs/control.md): they fall where the guest
 * spends its time, which its straight code shows, and not where the processor looks for work to do.
 * Run by `vpmu kvm`.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "diff/diff.h"
#include "guest/control_client.h"
#include "guest/kvm_guest.h"

#define QUARTERS   4
#define SAMPLES	   400
#define ASKED_MOST 200000
#define VECTOR	   0x40
#define PATIENCE   10 /* seconds */

/*
 * Until the byte at IMAGE_DATA is set: four times 256 dependent multiplications, without a branch,
 * then an interrupt that the processor sends itself.
 */
GUEST_CODE(working, "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		    "mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		    "sti\n"
		    "work: .rept 1024; imul $3, %rsi, %rsi; .endr\n"
		    "work_end: mov $0x83f, %ecx; mov $0x40, %eax; xor %edx, %edx; wrmsr\n"
		    "cmpb $0, 0x100000; je work\n"
		    "out %al, $0xf4\n"
		    "entry: nop\n"
		    "mov $0x80b, %ecx; xor %eax, %eax; xor %edx, %edx; wrmsr\n"
		    "iretq\n");

GUEST_CODE(nothing, "hlt\n");

extern const u8 work[], work_end[], entry[];

static struct kvm_guest g;
static pthread_t thread;

static u64 guest_address(const u8 *at)
{
	return IMAGE_CODE + (at - working_start);
}

static void *run_guest(void *arg)
{
	(void)arg;
	return (void *)(long)kvm_guest_run(&g, 0);
}

static void create_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static int start(void **state)
{
	(void)state;
	kvm_guest_create_with(&g, working_start, working_end - working_start, 1, create_irqchip);
	image_gate(g.ram, VECTOR, guest_address(entry), 0);
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

struct shares {
	u32 quarter[QUARTERS], work, entry, all;
};

static void add_sample(struct shares *shares, u64 rip)
{
	u64 first = guest_address(work), size = work_end - work;

	shares->all++;
	shares->entry += rip == guest_address(entry);
	if (rip < first || rip >= first + size)
		return;
	shares->work++;
	shares->quarter[(rip - first) * QUARTERS / size]++;
}

static void take_samples(struct shares *shares, const char *command)
{
	struct rng r = rng_for(1, 1);
	int fd = control_dial();

	for (u32 i = 0; i < ASKED_MOST && shares->all < SAMPLES; i++) {
		unsigned long long rip;
		char answer[256];

		/* An answer comes when the guest has been interrupted: the next time to ask must
		 * not depend on that. */
		usleep(rng_below(&r, 1000));
		control_say(fd, command);
		control_hear(fd, answer, sizeof(answer));
		if (sscanf(answer, "sample 0 guest rip %llx", &rip) == 1)
			add_sample(shares, rip);
	}
	assert_int_equal(shares->all, SAMPLES);
	close(fd);
}

/*
 * A quarter of straight code takes a quarter of its time; the first instruction of the handler is
 * one of a thousand. The bounds are many deviations away from that.
 */
static void expect_even(const struct shares *shares)
{
	assert_true(shares->work > SAMPLES / 2);
	for (u32 i = 0; i < QUARTERS; i++)
		assert_in_range(shares->quarter[i], shares->work / 10, shares->work / 2);
	assert_in_range(shares->entry, 0, SAMPLES / 20);
}

static void samples_fall_where_time_is_spent(void **state)
{
	struct shares shares = { 0 };

	(void)state;
	take_samples(&shares, "0 sample\n");
	expect_even(&shares);
}

static void samples_with_stacks_fall_there_too(void **state)
{
	struct shares shares = { 0 };

	(void)state;
	take_samples(&shares, "0 sample stacks\n");
	expect_even(&shares);
}

static bool is_sampled(void)
{
	time_t end = time(NULL) + PATIENCE;
	int fd = control_dial();
	char answer[256] = "";

	while (strncmp(answer, "sample 0 guest", 14) && time(NULL) < end) {
		control_say(fd, "0 sample\n");
		control_hear(fd, answer, sizeof(answer));
	}
	close(fd);
	return !strncmp(answer, "sample 0 guest", 14);
}

static void *end_when_sampled(void *arg)
{
	(void)arg;
	_exit(!is_sampled());
}

/* glibc gives the next thread what the last one had. */
static void a_thread_that_follows_another_is_sampled(void **state)
{
	pthread_t first = thread;

	(void)state;
	assert_true(is_sampled());
	__atomic_store_n(&g.ram[IMAGE_DATA], 1, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_join(thread, NULL), 0);
	g.ram[IMAGE_DATA] = 0;
	kvm_guest_set_rip(&g, 0, IMAGE_CODE);
	assert_int_equal(pthread_create(&thread, NULL, run_guest, NULL), 0);
	if (!pthread_equal(first, thread)) {
		print_message("SKIP: the second thread has another pthread_t\n");
		skip();
	}
	assert_true(is_sampled());
}

static int run_and_sample(void)
{
	kvm_guest_create_with(&g, working_start, working_end - working_start, 1, create_irqchip);
	image_gate(g.ram, VECTOR, guest_address(entry), 0);
	assert_int_equal(pthread_create(&thread, NULL, end_when_sampled, NULL), 0);
	kvm_guest_run(&g, 0);
	return 1;
}

/* In the child of a fork the same thread has another number. */
static void a_thread_that_has_forked_is_sampled(void **state)
{
	int status;
	pid_t child;

	(void)state;
	kvm_guest_create(&g, nothing_start, nothing_end - nothing_start, 1);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(run_and_sample());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	kvm_guest_destroy(&g);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(samples_fall_where_time_is_spent, start, finish),
		cmocka_unit_test_setup_teardown(samples_with_stacks_fall_there_too, start, finish),
		cmocka_unit_test(a_thread_that_has_forked_is_sampled),
		cmocka_unit_test_setup_teardown(a_thread_that_follows_another_is_sampled, start,
						finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
