// SPDX-License-Identifier: MIT
/*
 * The KVM API as functions (kvm/kvm.h): every request of ioctl.def with hostile arguments and on
 * the wrong kind of file, how long things live, statistics files, and what interrupts a run. Which
 * errno a refused value gets is in tests/guest/api_errno_test.c.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kvm/kvm.h"
#include "vm/vm.h"

#define NOWHERE 0x10000ul /* where programs that may be anywhere have nothing */

enum kind { SYSTEM, VM, VCPU, NKINDS };
enum copy { ZERO, VALUE, IN, OUT, INOUT, PTR };

static const struct request {
	enum kind kind;
	u32 request;
	enum copy copy;
} requests[] = {
#define IOCTL(kind, request, copy, handler) { kind, (u32)(request), copy },
#include "kvm/ioctl.def"
#undef IOCTL
};

struct open_file {
	struct kvm_file *file;
	int fd;
};

struct world {
	struct open_file open[NKINDS];
	struct kvm_run *run;
};

static void on_fault(int sig, siginfo_t *info, void *context)
{
	if (!kvm_signal(sig, info, context))
		signal(sig, SIG_DFL);
}

/* In the test itself: cmocka puts handlers of its own between setup and test. */
static void take_faults(void)
{
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &act, NULL);
	sigaction(SIGBUS, &act, NULL);
}

static long call(struct kvm_file *file, u32 request, unsigned long arg)
{
	struct kvm_newfd made;
	long r;

	take_faults();
	r = kvm_ioctl(file, request, arg, &made);
	assert_int_equal(made.fd, -1);
	return r;
}

static struct open_file make(struct kvm_file *file, u32 request, unsigned long arg)
{
	struct kvm_newfd made;
	long r = kvm_ioctl(file, request, arg, &made);

	assert_true(r >= 0);
	assert_int_equal(r, made.fd);
	return (struct open_file){ made.file, made.fd };
}

static void shut(struct open_file *open)
{
	if (open->fd >= 0)
		close(open->fd);
	if (open->file)
		kvm_put(open->file, 1);
	*open = (struct open_file){ NULL, -1 };
}

static void world_open(struct world *w, bool irqchip)
{
	w->open[SYSTEM] = (struct open_file){ kvm_open(), -1 };
	assert_non_null(w->open[SYSTEM].file);
	w->open[VM] = make(w->open[SYSTEM].file, KVM_CREATE_VM, 0);
	if (irqchip)
		assert_int_equal(call(w->open[VM].file, KVM_CREATE_IRQCHIP, 0), 0);
	w->open[VCPU] = make(w->open[VM].file, KVM_CREATE_VCPU, 0);
	w->run = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, w->open[VCPU].fd, 0);
	assert_ptr_not_equal(w->run, MAP_FAILED);
}

static void world_close(struct world *w)
{
	munmap(w->run, 4096);
	for (u32 kind = 0; kind < NKINDS; kind++)
		shut(&w->open[kind]);
}

static int setup(void **state)
{
	static struct world w;

	world_open(&w, false);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	world_close(*state);
	return 0;
}

static u32 entries(const char *folder)
{
	DIR *dir = opendir(folder);
	u32 n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static u32 open_fds(void)
{
	return entries("/proc/self/fd");
}

/* Pages of address space. A sanitizer of memory keeps what was freed, and finds leaks itself. */
static u64 address_space(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	pages = 0;
#endif
	return pages;
}

/* --- hostile arguments --- */

static void a_struct_that_is_not_there_is_a_fault(void **state)
{
	struct world *w = *state;

	for (u32 i = 0; i < ARRAY_SIZE(requests); i++) {
		const struct request *r = &requests[i];

		if (r->copy == IN || r->copy == INOUT)
			assert_int_equal(call(w->open[r->kind].file, r->request, NOWHERE), -EFAULT);
	}
}

/* The handler may find something else wrong first, but nothing succeeds without its memory. */
static void an_answer_that_cannot_be_stored_fails(void **state)
{
	struct world *w = *state;

	for (u32 i = 0; i < ARRAY_SIZE(requests); i++) {
		const struct request *r = &requests[i];

		if (r->copy == OUT || r->copy == PTR)
			assert_true(call(w->open[r->kind].file, r->request, NOWHERE) < 0);
	}
}

static long expected_unknown(enum kind kind)
{
	return kind == VM ? -ENOTTY : -EINVAL;
}

static bool has_request(enum kind kind, u32 request)
{
	for (u32 i = 0; i < ARRAY_SIZE(requests); i++)
		if (requests[i].kind == kind && requests[i].request == request)
			return true;
	return false;
}

static void a_request_on_the_wrong_kind_of_file_is_unknown_to_it(void **state)
{
	struct world *w = *state;

	for (u32 i = 0; i < ARRAY_SIZE(requests); i++)
		for (enum kind kind = 0; kind < NKINDS; kind++)
			if (!has_request(kind, requests[i].request))
				assert_int_equal(call(w->open[kind].file, requests[i].request, 0),
						 expected_unknown(kind));
}

static void a_request_of_another_size_is_another_request(void **state)
{
	struct world *w = *state;

	for (u32 i = 0; i < ARRAY_SIZE(requests); i++) {
		u32 other = requests[i].request ^ 4u << _IOC_SIZESHIFT;
		enum kind kind = requests[i].kind;

		if (!has_request(kind, other))
			assert_int_equal(call(w->open[kind].file, other, NOWHERE),
					 expected_unknown(kind));
	}
}

/* --- lives --- */

static void a_vcpu_lives_longer_than_its_vm_fd(void **state)
{
	struct world *w = *state;
	struct kvm_regs regs;

	shut(&w->open[VM]);
	shut(&w->open[SYSTEM]);
	assert_int_equal(call(w->open[VCPU].file, KVM_GET_REGS, (unsigned long)&regs), 0);
	assert_int_equal(regs.rip, 0xfff0);
}

/* As in the kernel: closing a vCPU's fd does not unmake the vCPU. */
static void a_vcpu_number_stays_taken_when_its_fd_is_closed(void **state)
{
	struct world *w = *state;

	shut(&w->open[VCPU]);
	assert_int_equal(call(w->open[VM].file, KVM_CREATE_VCPU, 0), -EEXIST);
}

static void a_thousand_vms_leave_nothing_behind(void **state)
{
	u32 before = open_fds(), threads = entries("/proc/self/task");
	u64 pages = 0;

	(void)state;
	for (u32 i = 0; i < 1000; i++) {
		struct world w;

		if (i == 500) /* allocators have what they need by then */
			pages = address_space();
		world_open(&w, i & 1);
		world_close(&w);
	}
	assert_int_equal(open_fds(), before);
	assert_int_equal(entries("/proc/self/task"), threads);
	assert_in_range(address_space(), 0, pages + 500 / 2);
}

static void a_failed_creation_leaves_no_descriptor(void **state)
{
	struct world *w = *state;
	u32 before = open_fds();

	assert_int_equal(call(w->open[VM].file, KVM_CREATE_VCPU, 0), -EEXIST);
	assert_int_equal(call(w->open[VM].file, KVM_CREATE_VCPU, 1ul << 40), -EINVAL);
	assert_int_equal(call(w->open[SYSTEM].file, KVM_CREATE_VM, 77), -EINVAL);
	assert_int_equal(open_fds(), before);
}

static void a_child_of_fork_has_no_vm(void **state)
{
	struct world *w = *state;
	struct kvm_regs regs;
	int status;
	pid_t pid = fork();

	if (!pid) {
		bool ok = call(w->open[VM].file, KVM_CHECK_EXTENSION, KVM_CAP_IRQCHIP) == -EIO &&
			  call(w->open[VCPU].file, KVM_GET_REGS, (unsigned long)&regs) == -EIO &&
			  call(w->open[SYSTEM].file, KVM_GET_API_VERSION, 0) == KVM_API_VERSION;

		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* --- statistics --- */

static void statistics_outlive_vm_and_vcpu(void **state)
{
	struct world *w = *state;
	struct open_file stats[2] = { make(w->open[VM].file, KVM_GET_STATS_FD, 0),
				      make(w->open[VCPU].file, KVM_GET_STATS_FD, 0) };

	for (u32 kind = 0; kind < NKINDS; kind++)
		shut(&w->open[kind]);
	for (u32 i = 0; i < 2; i++) {
		struct kvm_stats_header header;
		char id[64] = "";

		assert_true(kvm_readable(stats[i].file));
		assert_int_equal(kvm_read(stats[i].file, &header, sizeof(header), 0),
				 sizeof(header));
		assert_true(header.num_desc > 0 && header.name_size <= sizeof(id));
		kvm_read(stats[i].file, id, header.name_size, header.id_offset);
		assert_memory_equal(id, "kvm-", 4);
		shut(&stats[i]);
	}
}

static void a_statistics_file_ends_and_refuses_the_rest(void **state)
{
	struct world *w = *state;
	struct open_file stats = make(w->open[VCPU].file, KVM_GET_STATS_FD, 0);
	char all[65536];
	long size = kvm_read(stats.file, all, sizeof(all), 0);

	take_faults();
	assert_true(size > 0 && size < (long)sizeof(all));
	assert_int_equal(kvm_read(stats.file, all, sizeof(all), size), 0);
	assert_int_equal(kvm_read(stats.file, all, sizeof(all), size - 3), 3);
	assert_int_equal(kvm_read(stats.file, all, sizeof(all), ~0ull), 0);
	assert_int_equal(kvm_read(stats.file, (void *)NOWHERE, 8, 0), -EFAULT);
	assert_int_equal(call(stats.file, KVM_GET_API_VERSION, 0), -ENOTTY);
	assert_int_equal(kvm_read(w->open[VM].file, all, 8, 0), -EINVAL);
	shut(&stats);
}

/* --- running --- */

/* HLT at the reset vector, and again and again. */
static u8 *rom_of_hlts(struct world *w)
{
	u8 *rom = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region region = { .slot = 0,
						      .guest_phys_addr = 0xffff0000,
						      .memory_size = 65536,
						      .userspace_addr = (unsigned long)rom };

	memset(rom, 0xf4, 65536);
	assert_int_equal(call(w->open[VM].file, KVM_SET_USER_MEMORY_REGION, (unsigned long)&region),
			 0);
	return rom;
}

static void a_halt_without_an_irqchip_is_the_programs(void **state)
{
	struct world *w = *state;
	u8 *rom = rom_of_hlts(w);
	struct kvm_regs regs;

	assert_int_equal(call(w->open[VCPU].file, KVM_RUN, 0), 0);
	assert_int_equal(w->run->exit_reason, KVM_EXIT_HLT);
	call(w->open[VCPU].file, KVM_GET_REGS, (unsigned long)&regs);
	assert_int_equal(regs.rip, 0xfff1);
	munmap(rom, 65536);
}

static void an_immediate_exit_executes_nothing(void **state)
{
	struct world *w = *state;
	u8 *rom = rom_of_hlts(w);
	struct kvm_regs regs;

	w->run->immediate_exit = 1;
	assert_int_equal(call(w->open[VCPU].file, KVM_RUN, 0), -EINTR);
	call(w->open[VCPU].file, KVM_GET_REGS, (unsigned long)&regs);
	assert_int_equal(regs.rip, 0xfff0);
	munmap(rom, 65536);
}

static void on_kick(int sig)
{
	(void)sig;
	kvm_interrupt();
}

static struct world *nested_world;
static long nested[2];

/* No border postpones it here. */
static void request_and_kick(int sig)
{
	struct kvm_userspace_memory_region none = { 0 };
	struct kvm_regs regs;

	(void)sig;
	if (!vcpu_current())
		return;
	nested[0] = call(nested_world->open[VCPU].file, KVM_GET_REGS, (unsigned long)&regs);
	nested[1] =
		call(nested_world->open[VM].file, KVM_SET_USER_MEMORY_REGION, (unsigned long)&none);
	kvm_interrupt();
}

static void *run_until_interrupted(void *arg)
{
	struct world *w = arg;

	while (call(w->open[VCPU].file, KVM_RUN, 0) != -EINTR)
		;
	return NULL;
}

/* A handler that could not be postponed, or left KVM_RUN for good: nothing hangs or is freed. */
static void a_request_in_the_middle_of_kvm_run_is_refused(void **state)
{
	struct sigaction act = { .sa_handler = request_and_kick };
	struct kvm_regs regs;
	struct world w;
	pthread_t thread;
	u8 *rom;

	(void)state;
	world_open(&w, true);
	rom = rom_of_hlts(&w);
	nested_world = &w;
	sigaction(SIGUSR1, &act, NULL);
	pthread_create(&thread, NULL, run_until_interrupted, &w);
	for (u32 i = 0; pthread_tryjoin_np(thread, NULL) == EBUSY; i++) {
		usleep(10000);
		pthread_kill(thread, SIGUSR1);
		assert_true(i < 1000);
	}
	assert_int_equal(nested[0], -EBUSY);
	assert_int_equal(nested[1], -EBUSY);
	assert_int_equal(call(w.open[VCPU].file, KVM_GET_REGS, (unsigned long)&regs), 0);
	world_close(&w);
	munmap(rom, 65536);
}

#define RUNS 500

struct sleeper {
	struct world *w;
	u32 over;
};

static void *sleep_and_count(void *arg)
{
	struct sleeper *s = arg;

	for (u32 i = 0; i < RUNS; i++) {
		run_until_interrupted(s->w);
		__atomic_store_n(&s->over, i + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/*
 * The kick comes at every moment around falling asleep, or before KVM_RUN begins. There is one for
 * each run: a second would wake a vCPU that has missed the first.
 */
static void a_signal_always_wakes_a_halted_vcpu(void **state)
{
	struct sigaction act = { .sa_handler = on_kick };
	struct sleeper sleeper = { 0 };
	struct world w;
	pthread_t thread;
	u8 *rom;

	(void)state;
	sigaction(SIGUSR1, &act, NULL);
	world_open(&w, true);
	rom = rom_of_hlts(&w);
	sleeper.w = &w;
	pthread_create(&thread, NULL, sleep_and_count, &sleeper);
	for (u32 i = 0; i < RUNS; i++) {
		usleep(i % 300);
		pthread_kill(thread, SIGUSR1);
		for (u32 n = 0; __atomic_load_n(&sleeper.over, __ATOMIC_ACQUIRE) == i; n++) {
			usleep(100);
			assert_true(n < 200000);
		}
	}
	pthread_join(thread, NULL);
	assert_int_equal(w.run->exit_reason, KVM_EXIT_INTR);
	world_close(&w);
	munmap(rom, 65536);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_struct_that_is_not_there_is_a_fault, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_answer_that_cannot_be_stored_fails, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			a_request_on_the_wrong_kind_of_file_is_unknown_to_it, setup, teardown),
		cmocka_unit_test_setup_teardown(a_request_of_another_size_is_another_request, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_vcpu_lives_longer_than_its_vm_fd, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_vcpu_number_stays_taken_when_its_fd_is_closed,
						setup, teardown),
		cmocka_unit_test(a_thousand_vms_leave_nothing_behind),
		cmocka_unit_test_setup_teardown(a_failed_creation_leaves_no_descriptor, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_child_of_fork_has_no_vm, setup, teardown),
		cmocka_unit_test_setup_teardown(statistics_outlive_vm_and_vcpu, setup, teardown),
		cmocka_unit_test_setup_teardown(a_statistics_file_ends_and_refuses_the_rest, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_halt_without_an_irqchip_is_the_programs, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_immediate_exit_executes_nothing, setup,
						teardown),
		cmocka_unit_test(a_signal_always_wakes_a_halted_vcpu),
		cmocka_unit_test(a_request_in_the_middle_of_kvm_run_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
