// SPDX-License-Identifier: MIT
/*
 * Signal handlers of a program whose thread is inside KVM_RUN. The kernel runs a handler when the
 * system call is over, so that it may do anything to the VM, or leave by siglongjmp(). Run by `vpmu
 * kvm`.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define CODE(name) name##_start, (size_t)(name##_end - name##_start)
#define ROUNDS	   30
#define WAITS	   100000 /* of 100 us */

/* Counts at IMAGE_DATA, and reads the pages of the slot at IMAGE_MMIO, each through the
 * page walk. */
GUEST_CODE(reading, "mov $0x100000, %ebx\n"
		    "1: mov $0x400000, %esi\n"
		    "2: incq (%rbx)\n"
		    "invlpg (%rsi)\n"
		    "mov (%rsi), %al\n"
		    "add $0x1000, %esi\n"
		    "cmp $0x410000, %esi\n"
		    "jb 2b\n"
		    "jmp 1b\n");

/* Its #DE is a SIGFPE of the host's: an open one. */
GUEST_CODE(dividing, "xor %ecx, %ecx\n"
		     "xor %edx, %edx\n"
		     "div %ecx\n");

#define SLOT_SIZE 0x10000u
#define DIVIDING  (IMAGE_CODE + 0x800)

static struct kvm_guest g;
static u8 *slot_memory;

static int set_slot(u64 size)
{
	struct kvm_userspace_memory_region region = { .slot = 1,
						      .guest_phys_addr = IMAGE_MMIO,
						      .memory_size = size,
						      .userspace_addr =
							      (u64)(uintptr_t)slot_memory };

	return ioctl(g.vm, KVM_SET_USER_MEMORY_REGION, &region);
}

static u64 progress(void)
{
	return __atomic_load_n((u64 *)(g.ram + IMAGE_DATA), __ATOMIC_ACQUIRE);
}

/* Sends a signal with a value once the guest has been seen to run. */
struct sender {
	pthread_t target, thread;
	int sig, value;
	bool sent;
};

static void *send_when_it_runs(void *arg)
{
	struct sender *sender = arg;
	u64 before = progress();

	for (u32 i = 0; i < WAITS && progress() - before < 1000; i++)
		usleep(100);
	sender->sent = !pthread_sigqueue(sender->target, sender->sig,
					 (union sigval){ .sival_int = sender->value });
	return NULL;
}

static void send(struct sender *sender, int sig, int value)
{
	sender->target = pthread_self();
	sender->sig = sig;
	sender->value = value;
	assert_int_equal(pthread_create(&sender->thread, NULL, send_when_it_runs, sender), 0);
}

static void sent(struct sender *sender)
{
	pthread_join(sender->thread, NULL);
	assert_true(sender->sent);
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	assert_int_equal(sigaction(sig, &action, NULL), 0);
}

static int set_up(void **state)
{
	(void)state;
	/* Memory that is freed holds no zeros and nothing that it held before. */
	mallopt(M_PERTURB, 0x5a);
	slot_memory =
		mmap(NULL, SLOT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	kvm_guest_create(&g, CODE(reading), 1);
	return slot_memory == MAP_FAILED || set_slot(SLOT_SIZE);
}

static int tear_down(void **state)
{
	(void)state;
	kvm_guest_destroy(&g);
	signal(SIGRTMIN, SIG_DFL);
	signal(SIGABRT, SIG_DFL);
	return munmap(slot_memory, SLOT_SIZE);
}

static int handler_result;

static void delete_slot(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info, (void)context;
	handler_result = set_slot(0);
	mprotect(slot_memory, SLOT_SIZE, PROT_NONE);
}

static void a_handler_may_delete_the_memory_that_the_guest_reads(void **state)
{
	(void)state;
	handle(SIGRTMIN, delete_slot, 0);
	for (u32 i = 0; i < ROUNDS; i++) {
		struct sender sender;

		handler_result = -1;
		send(&sender, SIGRTMIN, 0);
		assert_int_equal(kvm_guest_run(&g, 0), -EINTR);
		sent(&sender);
		assert_int_equal(handler_result, 0);
		assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_MMIO);
		mprotect(slot_memory, SLOT_SIZE, PROT_READ | PROT_WRITE);
		assert_int_equal(set_slot(SLOT_SIZE), 0);
	}
}

static sigjmp_buf behind;

static void leave(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	siglongjmp(behind, info->si_value.sival_int);
}

/* Runs the guest until the handler leaves; the value that it was sent. */
static int run_and_leave(int sig, int value)
{
	static struct sender sender;
	int result = sigsetjmp(behind, 1);

	if (!result) {
		send(&sender, sig, value);
		kvm_guest_run(&g, 0);
	}
	sent(&sender);
	return result;
}

static void leave_by(int sig)
{
	struct kvm_regs regs;
	sigset_t mask;

	handle(sig, leave, 0);
	for (int i = 1; i <= ROUNDS; i++) {
		assert_int_equal(run_and_leave(sig, i), i);
		assert_int_equal(ioctl(g.vcpu[0], KVM_GET_REGS, &regs), 0);
		assert_int_equal(regs.rbx, IMAGE_DATA);
		assert_int_equal(set_slot(SLOT_SIZE), 0);
		pthread_sigmask(SIG_BLOCK, NULL, &mask);
		assert_false(sigismember(&mask, sig) || sigismember(&mask, SIGUSR1));
	}
}

static void a_handler_may_leave_kvm_run(void **state)
{
	(void)state;
	leave_by(SIGRTMIN);
	leave_by(SIGUSR2);
}

/* Also that of a signal which guest code raises as well, when it was sent. */
static void a_handler_of_faults_may_leave_kvm_run(void **state)
{
	(void)state;
	leave_by(SIGSEGV);
	leave_by(SIGTRAP);
}

static void *get_regs(void *arg)
{
	struct kvm_regs regs;

	return (void *)(long)ioctl(*(int *)arg, KVM_GET_REGS, &regs);
}

/* One that is sent waits as others do, although a thread may not outlive its own: its handler
 * leaves no vCPU locked, for other threads either. */
static void a_handler_of_abort_may_leave_kvm_run(void **state)
{
	pthread_t thread;
	void *result;

	(void)state;
	leave_by(SIGABRT);
	leave_by(SIGSYS);
	assert_int_equal(pthread_create(&thread, NULL, get_regs, &g.vcpu[0]), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result);
}

static struct {
	int calls, value, code, get_regs;
	u64 rip;
} once;

static void note_once(int sig, siginfo_t *info, void *context)
{
	struct kvm_regs regs;

	(void)sig, (void)context;
	once.calls++;
	once.value = info->si_value.sival_int;
	once.code = info->si_code;
	once.get_regs = ioctl(g.vcpu[0], KVM_GET_REGS, &regs);
	once.rip = regs.rip;
}

/* SA_RESETHAND and SA_NODEFER: the handler is the program's once, however often we come between. */
static void a_handler_that_is_reset_is_called_once(void **state)
{
	struct sigaction now;
	struct sender sender;

	(void)state;
	handle(SIGRTMIN, note_once, SA_RESETHAND | SA_NODEFER);
	send(&sender, SIGRTMIN, 4711);
	assert_int_equal(kvm_guest_run(&g, 0), -EINTR);
	sent(&sender);
	assert_int_equal(once.calls, 1);
	assert_int_equal(once.value, 4711);
	assert_int_equal(once.code, SI_QUEUE);
	assert_int_equal(once.get_regs, 0);
	assert_in_range(once.rip, IMAGE_CODE, IMAGE_CODE + PAGE_SIZE);
	assert_int_equal(sigaction(SIGRTMIN, NULL, &now), 0);
	assert_ptr_equal(now.sa_handler, SIG_DFL);
}

static int devices_opened;

static void open_device(int sig, siginfo_t *info, void *context)
{
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	(void)sig, (void)info, (void)context;
	devices_opened += fd >= 0;
	close(fd);
}

static void open_devices_every(u32 us)
{
	struct itimerval timer = { .it_interval.tv_usec = us, .it_value.tv_usec = us };

	handle(SIGALRM, open_device, SA_RESTART);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* The last close() of a VM frees it: a handler that allocates runs after that, not in between. */
static void a_handler_does_not_interrupt_the_end_of_a_vm(void **state)
{
	struct kvm_userspace_memory_region region = { .memory_size = SLOT_SIZE,
						      .userspace_addr =
							      (u64)(uintptr_t)slot_memory };

	(void)state;
	open_devices_every(50);
	for (u32 i = 0; i < 500; i++) {
		int vm = ioctl(g.kvm, KVM_CREATE_VM, 0), copy = dup(vm);

		assert_true(vm >= 0 && copy >= 0);
		assert_int_equal(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region), 0);
		assert_int_equal(close(vm), 0);
		assert_int_equal(dup2(g.kvm, copy), copy); /* ends it */
		assert_int_equal(close(copy), 0);
	}
	open_devices_every(0);
	assert_true(devices_opened > 0);
}

/* The ways to a KVM_RUN with a mask that the library has not seen set. */
enum way { LEFT_WITH_MASK, LEFT_WITHOUT_MASK, IN_HANDLER, RETURNED, JUMPED, SWITCHED };

static struct divided {
	enum way way;
	int exit;
	struct kvm_regs regs;
} divided;

static void divide(void)
{
	kvm_guest_set_rip(&g, 0, DIVIDING);
	divided.exit = kvm_guest_run(&g, 0);
	ioctl(g.vcpu[0], KVM_GET_REGS, &divided.regs);
}

static void divide_or_leave(int sig, siginfo_t *info, void *context)
{
	if (divided.way == IN_HANDLER)
		divide();
	else if (divided.way == RETURNED)
		ioctl(g.vcpu[0], KVM_GET_REGS, &divided.regs);
	else
		leave(sig, info, context);
}

static void block_all_but(int sig)
{
	sigset_t set;

	sigfillset(&set);
	sigdelset(&set, sig);
	pthread_sigmask(SIG_SETMASK, &set, NULL);
}

/* Back to the mask before the first request, without a signal. */
static void make_request_and_go_back(void)
{
	volatile bool back = false;
	ucontext_t context;

	if (divided.way == SWITCHED)
		getcontext(&context);
	else if (sigsetjmp(behind, 1))
		return;
	if (back)
		return;
	back = true;
	ioctl(g.vcpu[0], KVM_GET_REGS, &divided.regs);
	if (divided.way == SWITCHED)
		setcontext(&context);
	siglongjmp(behind, 1);
}

/* A thread that has made no request yet: its mask is what it says. */
static void *divide_afterwards(void *arg)
{
	struct sender sender;

	(void)arg;
	block_all_but(SIGUSR1);
	if (divided.way == RETURNED)
		raise(SIGUSR1);
	if (divided.way == JUMPED || divided.way == SWITCHED)
		make_request_and_go_back();
	if (divided.way >= RETURNED) {
		divide();
		return NULL;
	}
	if (!sigsetjmp(behind, divided.way == LEFT_WITH_MASK)) {
		send(&sender, SIGUSR1, 1);
		kvm_guest_run(&g, 0);
	}
	pthread_join(sender.thread, NULL);
	if (divided.way != IN_HANDLER)
		divide();
	return NULL;
}

static void divide_by(enum way way)
{
	struct sigaction action = { .sa_sigaction = divide_or_leave, .sa_flags = SA_SIGINFO };
	pthread_t thread;

	sigfillset(&action.sa_mask);
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	memcpy(g.ram + DIVIDING, CODE(dividing));
	divided = (struct divided){ .way = way };
	assert_int_equal(pthread_create(&thread, NULL, divide_afterwards, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(divided.exit, KVM_EXIT_HLT);
	assert_in_range(divided.regs.rip, IMAGE_STUBS, IMAGE_STUBS + IMAGE_STUB_SIZE - 1);
	signal(SIGUSR1, SIG_DFL);
}

static void faults_of_the_guest_arrive_after_a_handler_left_with_its_mask(void **state)
{
	(void)state;
	divide_by(LEFT_WITH_MASK);
}

static void faults_of_the_guest_arrive_after_a_handler_left_without_a_mask(void **state)
{
	(void)state;
	divide_by(LEFT_WITHOUT_MASK);
}

static void faults_of_the_guest_arrive_in_a_handler_that_blocks_all(void **state)
{
	(void)state;
	divide_by(IN_HANDLER);
}

static void faults_of_the_guest_arrive_after_a_handler_made_the_first_request(void **state)
{
	(void)state;
	divide_by(RETURNED);
}

static void faults_of_the_guest_arrive_after_a_jump_that_sets_the_mask(void **state)
{
	(void)state;
	divide_by(JUMPED);
	divide_by(SWITCHED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_handler_may_delete_the_memory_that_the_guest_reads, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_handler_may_leave_kvm_run, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_handler_of_faults_may_leave_kvm_run, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_handler_of_abort_may_leave_kvm_run, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_handler_that_is_reset_is_called_once, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_handler_does_not_interrupt_the_end_of_a_vm,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			faults_of_the_guest_arrive_after_a_handler_left_with_its_mask, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			faults_of_the_guest_arrive_after_a_handler_left_without_a_mask, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			faults_of_the_guest_arrive_in_a_handler_that_blocks_all, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			faults_of_the_guest_arrive_after_a_handler_made_the_first_request, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			faults_of_the_guest_arrive_after_a_jump_that_sets_the_mask, set_up,
			tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
