// SPDX-License-Identifier: MIT
/*
 * The control socket of a process with a guest that counts: garbage, half messages, clients that
 * stall or die, many at once, a stranger, and thousands of changes of everything that can be
 * changed. Whatever comes, the guest counts on and is exact. Run by `vpmu kvm`.
 */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "diff/diff.h"
#include "guest/control_client.h"
#include "guest/counting_guest.h"

#define CHANGES	      10000
#define SAMPLED_MOST  200000
#define NOBODY	      65534
/* proc(5), stat: fields 4 to 13. */
#define SKIP_TO_UTIME " %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u "

/* A thousand exits. */
GUEST_CODE(exiting, "mov $1000, %edi\n"
		    "1: xor %eax, %eax; cpuid; dec %edi; jne 1b\n"
		    "out %al, $0xf4\n");

static struct kvm_guest g; /* of tests that make their own */

/* The second gets a descriptor below the first's; the third number is a copy. */
static void every_vm_is_asked_once_whatever_its_descriptor(void **state)
{
	int kvm = counting_guest.kvm, below = dup(kvm), first = KVM_CALL(kvm, KVM_CREATE_VM, NULL),
	    second, copy, fd;
	char answer[256];

	(void)state;
	close(below);
	second = KVM_CALL(kvm, KVM_CREATE_VM, NULL);
	copy = dup(second);
	assert_true(second < first);
	fd = control_dial();
	control_say(fd, "0 list\n");
	assert_int_equal(control_hear(fd, answer, sizeof(answer)), 3);
	close(fd);
	close(copy);
	close(second);
	close(first);
}

static const char *const wrong_filters[] = {
	"0 filter\n",
	"0 filter maybe\n",
	"0 filter maybe 0\n",
	"0 filter allow\n",
	"0 filter deny\n",
	"0 filter off 0\n",
	"0 filter deny junk\n",
	"0 filter allow -1\n",
	"0 filter allow 0x100000000\n",
	"0 filter allow 0 -1\n",
};

static void a_vm_can_be_asked(void **state)
{
	int fd = control_dial();

	(void)state;
	control_ask(fd, "0 list\n", "vm ");
	control_ask(fd, "0 stat\n", "vm ");
	control_ask(fd, "0 nonsense\n", "error: there is no command");
	control_ask(fd, "77777 list\n", "error: there is no such VM");
	control_ask(fd, "0 set colour=blue\n", "error: ");
	control_ask(fd, "0 set pmu=none\n", "error: ");
	for (u32 i = 0; i < ARRAY_SIZE(wrong_filters); i++)
		control_ask(fd, wrong_filters[i], "error: ");
	control_ask(fd, "0 filter allow junk\n", "error: 'junk'");
	control_ask(fd, "0 filter allow 0 zebra\n", "error: 'zebra'");
	control_ask(fd, "0 filter deny 0x1\n", "ok");
	control_ask(fd, "0 filter off\n", "ok");
	control_ask(fd, "\n", ".");
	close(fd);
}

static void ten_thousand_changes_lose_no_count(void **state)
{
	static const char *const changes[] = {
		"0 set pmu=event\n",
		"0 filter deny 0 0xc0\n",
		"0 set accounting=vcpu\n",
		"0 set pmu=mediated\n",
		"0 filter off\n",
		"0 set accounting=guest\n",
		"0 filter allow 0 0xc4 0xc2\n",
	};
	int fd = control_dial();

	(void)state;
	for (u32 i = 0; i < CHANGES; i++)
		control_ask(fd, changes[i % ARRAY_SIZE(changes)], "ok");
	control_ask(fd, "0 filter off\n", "ok");
	close(fd);
}

/* Instructions that a guest counts over a thousand exits; in *of_host, if it is not NULL, those
 * that an event of the host counts meanwhile, which needs the physical counters. */
static u64 counted_over_exits(const char *accounting, u64 *of_host)
{
	u64 counted;
	int fd;

	kvm_guest_create(&g, exiting_start, exiting_end - exiting_start, 1);
	kvm_guest_set_msr(&g, 0, kvm_guest_counter(&g), 0);
	kvm_guest_set_msr(&g, 0, kvm_guest_select(&g), 0xc0 | COUNT_OS);
	fd = control_dial();
	control_ask(fd, accounting, "ok");
	if (of_host)
		control_ask(fd, "0 open 0 0x300c0 8 0\n", "ok");
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	counted = kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g));
	if (of_host)
		*of_host = control_event(fd, 0);
	close(fd);
	kvm_guest_destroy(&g);
	return counted;
}

/* The same is added to the guest's counter and to the host's. */
static void a_guest_is_charged_also_while_the_host_counts(void **state)
{
	u64 plain = counted_over_exits("0 set accounting=guest\n", NULL), of_host, charged;

	(void)state;
	assert_in_range(plain, 4000, 4002);
	assert_true(counted_over_exits("0 set accounting=vcpu\n", NULL) > 2 * plain);
	charged = counted_over_exits("0 set accounting=vcpu\n", &of_host) - plain;
	assert_true(charged > plain);
	assert_int_equal(charged, of_host);
	assert_int_equal(counted_over_exits("0 set accounting=guest\n", &of_host), plain);
	assert_true(of_host > plain);
}

#define DEBUGCTL	  0x1d9
#define PERF_CAPABILITIES 0x345
#define LBR_FORMAT	  MASK(5, 0)
#define LBR_AND_FREEZE	  (BIT(0) | BIT(11))

static void offer_version_2(struct kvm_cpuid_entry2 *entry)
{
	if (entry->function == 0xa)
		entry->eax = (entry->eax & ~MASK(7, 0)) | 2;
}

/* Gives the guest version 2, in which an overflow freezes branch records by clearing a bit of
 * DEBUGCTL. False: this model has no such records. */
static bool freezes_by_debugctl(void)
{
	u64 format = g.amd ? 0 : kvm_guest_get_msr(&g, 0, PERF_CAPABILITIES) & LBR_FORMAT;

	kvm_guest_set_cpuid(&g, 0, offer_version_2);
	return format && format != LBR_FORMAT;
}

/* Hardly an instruction of it runs before what is charged overflows the counter. */
static void an_overflow_by_what_is_charged_freezes(void **state)
{
	u64 debugctl = 0;
	bool freezes;
	int fd;

	(void)state;
	kvm_guest_create(&g, exiting_start, exiting_end - exiting_start, 1);
	freezes = freezes_by_debugctl();
	if (freezes) {
		fd = control_dial();
		control_ask(fd, "0 set accounting=vcpu\n", "ok");
		control_ask(fd, "0 open 0 0x300c0 8 0\n", "ok");
		kvm_guest_set_msr(&g, 0, kvm_guest_counter(&g), -50);
		kvm_guest_set_msr(&g, 0, kvm_guest_select(&g), 0xc0 | COUNT_OS | BIT(20));
		kvm_guest_set_msr(&g, 0, 0x38f, 1);
		kvm_guest_set_msr(&g, 0, DEBUGCTL, LBR_AND_FREEZE);
		kvm_guest_run(&g, 0);
		debugctl = kvm_guest_get_msr(&g, 0, DEBUGCTL);
		close(fd);
	}
	kvm_guest_destroy(&g);
	if (!freezes) {
		print_message("no branch records that DEBUGCTL freezes\n");
		skip();
	}
	assert_int_equal(debugctl, BIT(11));
}

/* A sample of the guest, with RBP as it is told: how many callers it has. */
static u32 callers(int fd, u64 rbp)
{
	char answer[4096];
	const char *stack;
	u32 n = 0;

	__atomic_store_n((u64 *)&counting_guest.ram[COUNTING_RBP], rbp, __ATOMIC_SEQ_CST);
	assert_true(counting_guest_runs());
	answer[0] = '\0';
	for (u32 i = 0; i < SAMPLED_MOST && !strstr(answer, " guest rip "); i++) {
		control_say(fd, "0 sample stacks\n");
		control_hear(fd, answer, sizeof(answer));
	}
	assert_non_null(strstr(answer, " guest rip "));
	for (stack = strstr(answer, " stack"); stack && *stack; stack++)
		n += !strncmp(stack, " 0x", 3);
	return n;
}

static void plant_frame(u64 at, u64 next, u64 address)
{
	u64 frame[] = { next, address };

	memcpy(&counting_guest.ram[at], frame, sizeof(frame));
}

/* Frames wherever RBP leads to: only what can be a stack is one. */
static void stacks_are_walked_with_care(void **state)
{
	const u64 frames = 0x110000, call = 0x120000, no_call = 0x130000;
	int fd = control_dial();

	(void)state;
	counting_guest.ram[call - 5] = 0xe8;
	plant_frame(frames, frames + 0x100, call);
	plant_frame(frames + 0x100, frames + 0x200, call);
	plant_frame(frames + 0x200, 0, call);
	assert_int_equal(callers(fd, frames), 3);
	assert_int_equal(callers(fd, frames + 0x100), 2);
	plant_frame(frames + 0x200, frames, call); /* back to the start */
	assert_int_equal(callers(fd, frames), 3);
	plant_frame(frames + 0x100, frames + 0x200, no_call);
	assert_int_equal(callers(fd, frames), 1);
	plant_frame(frames, frames, call); /* to itself */
	assert_int_equal(callers(fd, frames), 1);
	for (u32 i = 0; i < 1000; i++)
		plant_frame(frames + 16 * i, frames + 16 * (i + 1), call);
	assert_int_equal(callers(fd, frames), 64);
	assert_int_equal(callers(fd, frames + 1), 0);
	assert_int_equal(callers(fd, IMAGE_STACK - 16), 0); /* below RSP */
	assert_int_equal(callers(fd, IMAGE_RAM - 8), 0);    /* half of it is no memory */
	assert_int_equal(callers(fd, IMAGE_MMIO), 0);
	assert_int_equal(callers(fd, BIT(47)), 0);
	assert_int_equal(callers(fd, -8ull), 0);
	close(fd);
}

static void garbage_is_no_message(void **state)
{
	struct rng r = rng_for(1, 1);
	u8 bytes[4096];

	(void)state;
	for (u32 i = 0; i < 300; i++) {
		int fd = control_dial();
		u32 n = 1 + rng_below(&r, sizeof(bytes));

		for (u32 b = 0; b < n; b++)
			bytes[b] = rng_next(&r);
		send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		close(fd);
	}
}

/* Lines of words that have a meaning, in orders that have none: each is answered. None of them can
 * deny the guest its counter. */
static void any_order_of_words_is_answered(void **state)
{
	static const char *const words[] = {
		"list",
		"stat",
		"set",
		"filter",
		"deny",
		"open",
		"read",
		"close",
		"sample",
		"stacks",
		"off",
		"pmu=mediated",
		"pmu=",
		"watchdog=",
		"=",
		"accounting=vcpu",
		"host-view=on",
		"host-view=off",
		"0",
		"1",
		"-1",
		"0x300c0",
		"0x7fffffffffffffff",
		"18446744073709551616",
		"4294967295",
		"9",
		"%s%n",
		"\t",
		"\"",
	};
	struct rng r = rng_for(2, 1);
	int fd = control_dial();

	(void)state;
	for (u32 i = 0; i < 3000; i++) {
		char line[512] = "0";

		for (u32 n = rng_below(&r, 9); n; n--) {
			strcat(line, " ");
			strcat(line, words[rng_below(&r, ARRAY_SIZE(words))]);
		}
		strcat(line, "\n");
		control_ask(fd, line, "");
	}
	close(fd);
}

static void a_line_without_end_is_hung_up_on(void **state)
{
	char bytes[4096];
	int fd = control_dial();

	(void)state;
	memset(bytes, 'x', sizeof(bytes));
	for (u32 i = 0; i < 8; i++)
		send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
	assert_true(control_hung_up(fd));
	close(fd);
}

/* Some stall in a line, some never read what they asked for, some die. */
static void clients_that_stall_or_die_disturb_nobody(void **state)
{
	int fd[60], other = control_dial();

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(fd); i++) {
		fd[i] = control_dial();
		control_say(fd[i], i % 3 ? "0 stat\n0 stat\n0 stat\n0 sta" : "0 li");
		if (i % 5 == 0) {
			close(fd[i]);
			fd[i] = -1;
		}
	}
	for (u32 i = 0; i < 20; i++)
		control_ask(other, "0 list\n", "vm ");
	for (u32 i = 0; i < ARRAY_SIZE(fd); i++)
		if (fd[i] >= 0)
			close(fd[i]);
	close(other);
}

static void a_hundred_clients_are_served(void **state)
{
	int fd[100];
	char answer[256];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(fd); i++) {
		fd[i] = control_dial();
		control_say(fd[i], "0 list\n");
	}
	for (u32 i = 0; i < ARRAY_SIZE(fd); i++) {
		control_hear(fd[i], answer, sizeof(answer));
		assert_memory_equal(answer, "vm ", 3);
		close(fd[i]);
	}
}

/* Ticks of processor time that threads other than the test's and the guest's have used. */
static u64 ticks_of_others(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *entry;
	u64 sum = 0;

	assert_non_null(tasks);
	while ((entry = readdir(tasks))) {
		unsigned long long user = 0, system = 0;
		pid_t tid = atoi(entry->d_name);
		char path[300];
		FILE *f;

		if (!tid || tid == gettid() || tid == counting_guest_thread())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
		f = fopen(path, "re");
		assert_non_null(f);
		assert_int_equal(fscanf(f, "%*[^)]) %*c" SKIP_TO_UTIME "%llu %llu", &user, &system),
				 2);
		fclose(f);
		sum += user + system;
	}
	closedir(tasks);
	return sum;
}

/* A client waits that cannot be taken, since the program has no descriptors left: the others are
 * served, nothing spins, and it is served when there are some. */
static void a_program_without_descriptors_is_no_reason_to_spin(void **state)
{
	struct rlimit before, full;
	int known = control_dial(), fd[2];
	char answer[256];
	u64 ticks;

	(void)state;
	control_ask(known, "0 list\n", "vm ");
	assert_true(counting_guest_runs()); /* the first KVM_RUN needs descriptors itself */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	fd[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fd[1] = dup(fd[0]); /* the lowest that is free */
	close(fd[1]);
	full = (struct rlimit){ .rlim_cur = fd[1], .rlim_max = before.rlim_max };
	ticks = ticks_of_others();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &full), 0);
	control_connect(fd[0]);
	control_say(fd[0], "0 list\n");
	control_ask(known, "0 list\n", "vm ");
	usleep(1000000);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_in_range(ticks_of_others() - ticks, 0, 4);
	control_hear(fd[0], answer, sizeof(answer));
	assert_memory_equal(answer, "vm ", 3);
	close(fd[0]);
	close(known);
}

/* What a stranger finds. */
enum { HUNG_UP, IS_HEARD, FINDS_NOBODY, IS_NO_STRANGER };

static int ask_as_a_stranger(int fd)
{
	if (setuid(NOBODY) || geteuid() != NOBODY)
		return IS_NO_STRANGER;
	if (!control_reaches(fd, 0, getppid()))
		return FINDS_NOBODY;
	send(fd, "0 list\n", 7, MSG_NOSIGNAL);
	return control_hung_up(fd) ? HUNG_UP : IS_HEARD;
}

static void strangers_are_hung_up_on(void **state)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), status;
	pid_t child;

	(void)state;
	assert_true(fd >= 0);
	if (geteuid()) {
		close(fd);
		print_message("not root: cannot be somebody else\n");
		skip();
	}
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(ask_as_a_stranger(fd));
	close(fd);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (status == W_EXITCODE(IS_NO_STRANGER, 0)) {
		print_message("this root cannot be somebody else\n");
		skip();
	}
	assert_int_equal(status, 0);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, counting_guest_start, counting_guest_finish)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_vm_can_be_asked),
		TEST(every_vm_is_asked_once_whatever_its_descriptor),
		TEST(ten_thousand_changes_lose_no_count),
		cmocka_unit_test(a_guest_is_charged_also_while_the_host_counts),
		cmocka_unit_test(an_overflow_by_what_is_charged_freezes),
		TEST(stacks_are_walked_with_care),
		TEST(garbage_is_no_message),
		TEST(any_order_of_words_is_answered),
		TEST(a_line_without_end_is_hung_up_on),
		TEST(clients_that_stall_or_die_disturb_nobody),
		TEST(a_hundred_clients_are_served),
		TEST(a_program_without_descriptors_is_no_reason_to_spin),
		TEST(strangers_are_hung_up_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
