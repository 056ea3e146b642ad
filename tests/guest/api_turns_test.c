// SPDX-License-Identifier: MIT
/*
 * vCPUs on virtual time run in turns (vm/time/schedule.h, docs/clock.md): the order of their
 * accesses to memory, their interrupts and their time are the same in every run, whatever the host
 * does. Run by `vpmu kvm`.
 *
 * The guests write a log into memory: which vCPU, and its TSC, in one word each.
 */
#include <asm/kvm_para.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/inherited.h"
#include "base/memfile.h"
#include "base/turns.h"
#include "guest/kvm_guest.h"

#define ENTRIES	   3000
#define LAST_TURNS 200 /* more than VCPUS turns log: an entry of one that is not done may be 0 */
#define VCPUS	   3
#define QUANTUM	   5000
#define QUANTUM_IS "5000"
#define IPI	   0x52
#define DEADLINE   0x50
#define WHO_BITS   2

#define X2APIC                                             \
	"mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n" \
	"mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"

/* Appends an entry: EDI is the vCPU; RAX, RBX and RDX are lost. RBX: how many there were. */
#define LOG                                        \
	"mov $1, %ebx; lock xadd %rbx, 0x100000\n" \
	"rdtsc; shl $32, %rdx; or %rdx, %rax\n"    \
	"shl $2, %rax; or %rdi, %rax; mov %rax, 0x100008(, %rbx, 8)\n"

#define END_OF_INTERRUPT "mov $0x80b, %ecx; xor %eax, %eax; xor %edx, %edx; wrmsr\n"

/* Words below the log: 0xffff8, whether vCPU 1 takes interrupts; 0xffff0, the TSC that was read
 * last, by any vCPU; and how often one was before that. */
#define EARLIER	   0xfffe8
#define LAST_TSC   0xffff0
#define STEAL_TIME 0x200000

/* Logs until there are R8 entries. Asks the program for something now and then; each vCPU works for
 * another time in between. */
GUEST_CODE(logging, "1: mov 0xffff0, %r10\n"
		    "rdtsc; shl $32, %rdx; or %rdx, %rax\n"
		    "cmp %r10, %rax; jae 2f; incq 0xfffe8\n"
		    "2: mov %rax, 0xffff0\n" LOG
		    "cmp %r8, %rbx; jae 9f\n"
		    "test $63, %bl; jnz 3f\n"
		    "in $0x80, %al\n"
		    "3: lea 40(, %rdi, 8), %ecx\n"
		    "4: dec %ecx; jnz 4b\n"
		    "jmp 1b\n"
		    "9: out %al, $0xf4; jmp 9b\n");

/* vCPU 0 interrupts vCPU 1, when that is ready, R8 times, each time when it has seen that the last
 * one was taken. vCPU 1 counts in R9 or, if RSI, halts. The handler logs the TSC, and what it finds
 * in R9. */
GUEST_CODE(interrupting, X2APIC "test %edi, %edi; jnz 5f\n"
				"0: pause; cmpl $0, 0xffff8; je 0b\n"
				"1: mov 0x100000, %r10\n"
				"mov $0x830, %ecx; mov $1, %edx; mov $0x4052, %eax; wrmsr\n"
				"2: pause; cmp %r10, 0x100000; je 2b\n"
				"dec %r8; jnz 1b\n"
				"9: out %al, $0xf4; jmp 9b\n"
				"5: incl 0xffff8; sti\n"
				"test %esi, %esi; jnz 7f\n"
				"6: inc %r9; jmp 6b\n"
				"7: inc %r9; hlt; jmp 7b\n"
				"ipi_handler: " LOG
				"mov $1, %ebx; lock xadd %rbx, 0x100000; mov %r9, 0x100008(, %rbx, 8)\n"
				END_OF_INTERRUPT "iretq\n");

/* Halts until the TSC deadline R8 ahead. When all R9 vCPUs are through, the last one says so. */
GUEST_CODE(sleeping, X2APIC "mov $0x832, %ecx; mov $0x40050, %eax; wrmsr\n"
			    "rdtsc; shl $32, %rdx; or %rdx, %rax; add %r8, %rax\n"
			    "mov %rax, %rdx; shr $32, %rdx; mov $0x6e0, %ecx; wrmsr\n"
			    "sti\n"
			    "1: hlt; jmp 1b\n"
			    "deadline_handler: " LOG
			    "inc %rbx; cmp %r9, %rbx; je 2f\n"
			    END_OF_INTERRUPT "iretq\n"
			    "2: out %al, $0xf4; jmp 2b\n");

/* Takes some turns. */
GUEST_CODE(spinning, "mov $20000, %ecx; 1: dec %ecx; jnz 1b; out %al, $0xf4\n");

extern const u8 ipi_handler[], deadline_handler[];

static struct kvm_guest g;
static pthread_t threads[VCPUS];
static volatile bool done;
static bool is_disturbed;

#define START(name, vcpus, prepare) \
	kvm_guest_create_with(&g, name##_start, name##_end - name##_start, vcpus, prepare)

static void with_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static void handle(u32 vector, const u8 *handler, const u8 *code)
{
	image_gate(g.ram, vector, IMAGE_CODE + (handler - code), 0);
}

/* R8, R9 and RSI are the test's. All vCPUs are runnable. */
static void set_vcpu(int vcpu, u64 r8, u64 r9, u64 rsi)
{
	struct kvm_mp_state runnable = { KVM_MP_STATE_RUNNABLE };
	struct kvm_regs regs = { .rip = IMAGE_CODE,
				 .rflags = 2,
				 .rsp = IMAGE_STACK - vcpu * PAGE_SIZE,
				 .rdi = vcpu,
				 .rsi = rsi,
				 .r8 = r8,
				 .r9 = r9 };

	KVM_CALL(g.vcpu[vcpu], KVM_SET_REGS, &regs);
	KVM_CALL(g.vcpu[vcpu], KVM_SET_MP_STATE, &runnable);
}

/* A program that takes its time, now and then. */
static void answer(int vcpu)
{
	struct timespec pause = { .tv_nsec = 300000 };

	*(u8 *)kvm_io_data(g.run[vcpu]) = 0;
	if (is_disturbed && vcpu != 1)
		nanosleep(&pause, NULL);
}

static void *run_vcpu(void *arg)
{
	int vcpu = (int)(long)arg;

	while (!done) {
		int reason = kvm_guest_run(&g, vcpu);

		if (reason == -EINTR || reason == -EAGAIN)
			continue;
		assert_int_equal(reason, KVM_EXIT_IO);
		if (g.run[vcpu]->io.port == IMAGE_DONE_PORT)
			done = true;
		else
			answer(vcpu);
	}
	return NULL;
}

static void interrupted(int signal)
{
	(void)signal;
}

static void start_thread(int vcpu)
{
	struct timespec pause = { .tv_nsec = 2000000 };

	if (is_disturbed) /* the others are there long before it */
		nanosleep(&pause, NULL);
	assert_int_equal(pthread_create(&threads[vcpu], NULL, run_vcpu, (void *)(long)vcpu), 0);
}

/* Until a vCPU says that the guest has done it. Signals end the KVM_RUN of the others, too. */
static void run_all(bool disturbed)
{
	struct timespec pause = { .tv_nsec = 50000 };

	is_disturbed = disturbed;
	done = false;
	for (int i = 0; i < g.nvcpus; i++)
		start_thread(disturbed ? g.nvcpus - 1 - i : i);
	for (int i = 0; !done; i = (i + 1) % g.nvcpus) {
		if (disturbed)
			pthread_kill(threads[i], SIGUSR1);
		nanosleep(&pause, NULL);
	}
	for (int i = 0; i < g.nvcpus; i++) {
		g.run[i]->immediate_exit = 1;
		pthread_kill(threads[i], SIGUSR1);
		pthread_join(threads[i], NULL);
	}
}

static const u64 *logged(void)
{
	return (const u64 *)(g.ram + IMAGE_DATA + 8);
}

static u64 word(u64 address)
{
	return *(const u64 *)(g.ram + address);
}

struct together {
	u64 log[ENTRIES];
	u64 stolen; /* from vCPU 1, in cycles */
	u64 end;    /* the TSC that was read last */
};

static void log_together(bool disturbed, struct together *run)
{
	START(logging, VCPUS, with_irqchip);
	for (int i = 0; i < VCPUS; i++)
		set_vcpu(i, ENTRIES + LAST_TURNS, 0, 0);
	kvm_guest_set_msr(&g, 1, MSR_KVM_STEAL_TIME, STEAL_TIME | KVM_MSR_ENABLED);
	run_all(disturbed);
	assert_int_equal(word(EARLIER), 0);
	memcpy(run->log, logged(), sizeof(run->log));
	run->stolen = word(STEAL_TIME) * KVM_CALL(g.vcpu[0], KVM_GET_TSC_KHZ, NULL) / 1000000;
	run->end = word(LAST_TSC);
	kvm_guest_destroy(&g);
}

static void shared_memory_is_accessed_in_the_same_order_in_every_run(void **state)
{
	static struct together quiet, disturbed;

	(void)state;
	log_together(false, &quiet);
	log_together(true, &disturbed);
	assert_memory_equal(&quiet, &disturbed, sizeof(quiet));
}

static void time_of_other_turns_is_stolen(void **state)
{
	static struct together run;

	(void)state;
	log_together(false, &run);
	assert_in_range(run.stolen, run.end * 3 / 5, run.end * 2 / 3);
}

static u32 who(u64 entry)
{
	return entry & ((1 << WHO_BITS) - 1);
}

/* The first entry of a turn is made where it begins; before the last one's time is read, it may
 * end. */
static void turns_follow_each_other_on_one_time(void **state)
{
	static struct together run;
	const u64 *log = run.log;
	u64 begun, turns = 0;

	(void)state;
	log_together(false, &run);
	begun = log[0] >> WHO_BITS;
	assert_int_equal(who(log[0]), 0);
	for (u32 i = 1; i < ENTRIES; i++) {
		u64 time = log[i] >> WHO_BITS;

		if (who(log[i]) == who(log[i - 1]))
			continue;
		assert_int_equal(who(log[i]), (who(log[i - 1]) + 1) % VCPUS);
		assert_in_range(time - begun, QUANTUM - 200, QUANTUM + 200); /* entries are apart */
		begun = time;
		turns++;
	}
	assert_true(turns > 30);
}

static u64 interrupt_each_other(bool disturbed, bool halts, u64 *log)
{
	const u64 times = 100;
	u64 size;

	START(interrupting, 2, with_irqchip);
	handle(IPI, ipi_handler, interrupting_start);
	set_vcpu(0, times, 0, 0);
	set_vcpu(1, 0, 0, halts);
	run_all(disturbed);
	size = word(IMAGE_DATA);
	assert_int_equal(size, 2 * times);
	memcpy(log, logged(), size * sizeof(*log));
	kvm_guest_destroy(&g);
	return size * sizeof(*log);
}

static void an_ipi_comes_at_the_same_instruction_in_every_run(void **state)
{
	static u64 quiet[ENTRIES], disturbed[ENTRIES];

	(void)state;
	for (u32 halts = 0; halts < 2; halts++) {
		u64 size = interrupt_each_other(false, halts, quiet);

		assert_int_equal(interrupt_each_other(true, halts, disturbed), size);
		assert_memory_equal(quiet, disturbed, size);
	}
}

/* It is taken in the next turn, which begins with the instruction that sends it. */
static void an_ipi_is_not_waited_for_by_spinning(void **state)
{
	static u64 log[ENTRIES];

	(void)state;
	interrupt_each_other(false, true, log);
	for (u32 i = 2; i < 200; i += 2)
		assert_in_range((log[i] - log[i - 2]) >> WHO_BITS, 1, 1000);
}

/* KVM: a program that has the local APIC in the kernel adds it to CPUID itself. */
static void add_deadline_timer(int vcpu)
{
	struct { /* kvm_cpuid2 with room */
		u32 nent, padding;
		struct kvm_cpuid_entry2 entry[256];
	} list = { .nent = 256 };

	KVM_CALL(g.vcpu[vcpu], KVM_GET_CPUID2, &list);
	for (u32 i = 0; i < list.nent; i++)
		if (list.entry[i].function == 1)
			list.entry[i].ecx |= BIT(24);
	KVM_CALL(g.vcpu[vcpu], KVM_SET_CPUID2, &list);
}

/* An hour, two and three, the last vCPU first. */
static void time_skips_to_the_first_timer_of_all(void **state)
{
	u64 hour, time;

	(void)state;
	START(sleeping, VCPUS, with_irqchip);
	handle(DEADLINE, deadline_handler, sleeping_start);
	hour = KVM_CALL(g.vcpu[0], KVM_GET_TSC_KHZ, NULL) * 3600000ull;
	for (int i = 0; i < VCPUS; i++) {
		add_deadline_timer(i);
		set_vcpu(i, hour * (VCPUS - i), VCPUS, 0);
	}
	run_all(false);
	for (u64 i = 0; i < VCPUS; i++) {
		time = logged()[i] >> WHO_BITS;
		assert_int_equal(who(logged()[i]), VCPUS - 1 - i);
		assert_in_range(time, hour * (i + 1), hour * (i + 1) + 100000);
	}
	kvm_guest_destroy(&g);
}

static struct kvm_guest make_patient(void)
{
	struct turns turns = { .endless = 1 };
	int fd = memfile_create("turns", MFD_CLOEXEC);

	assert_true(fd >= 0 && !ftruncate(fd, PAGE_SIZE));
	assert_int_equal(pwrite(fd, &turns, sizeof(turns), 0), sizeof(turns));
	assert_true(inherited_export("VPMU_TURNS", &fd, 1));
	START(spinning, 2, NULL);
	unsetenv("VPMU_TURNS");
	close(fd);
	return g;
}

static void *run_first(void *guest)
{
	return (void *)(intptr_t)kvm_guest_run(guest, 0);
}

static void *run_second(void *guest)
{
	return (void *)(intptr_t)kvm_guest_run(guest, 1);
}

/* Takes the ten seconds that the library is patient for. A guest that is to have endless patience,
 * and that began before, still waits then. Its vCPUs end when both are run: the first one, which
 * keeps its turn, and the other by a signal. */
static void a_vcpu_that_the_program_does_not_run_is_passed_over(void **state)
{
	struct kvm_guest patient = make_patient();
	pthread_t thread[2];
	void *reason;

	(void)state;
	assert_int_equal(pthread_create(&thread[0], NULL, run_first, &patient), 0);
	START(spinning, 2, NULL);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	kvm_guest_destroy(&g);
	assert_int_equal(pthread_tryjoin_np(thread[0], NULL), EBUSY);
	assert_int_equal(pthread_create(&thread[1], NULL, run_second, &patient), 0);
	pthread_join(thread[0], &reason);
	assert_int_equal((intptr_t)reason, KVM_EXIT_IO);
	while (pthread_tryjoin_np(thread[1], NULL) == EBUSY)
		pthread_kill(thread[1], SIGUSR1);
	kvm_guest_destroy(&patient);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_memory_is_accessed_in_the_same_order_in_every_run),
		cmocka_unit_test(turns_follow_each_other_on_one_time),
		cmocka_unit_test(time_of_other_turns_is_stolen),
		cmocka_unit_test(an_ipi_comes_at_the_same_instruction_in_every_run),
		cmocka_unit_test(an_ipi_is_not_waited_for_by_spinning),
		cmocka_unit_test(time_skips_to_the_first_timer_of_all),
		cmocka_unit_test(a_vcpu_that_the_program_does_not_run_is_passed_over),
	};
	struct sigaction action = { .sa_handler = interrupted };

	sigaction(SIGUSR1, &action, NULL);
	setenv("VPMU_CLOCK", "virtual", 1); /* the library reads these when a VM is made */
	setenv("VPMU_QUANTUM", QUANTUM_IS, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
