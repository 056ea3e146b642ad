// SPDX-License-Identifier: MIT
/*
 * The PMU through the KVM API: the program sets the counters of either vendor with KVM_SET_MSRS,
 * the guest counts and is interrupted. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/kvm_state.h"

#define PORT	     0xf4
#define READY	     0xff
#define VECTOR	     0x60
#define LVTPC	     0x340
#define LVT_MASKED   BIT(16)
#define NMI_VECTOR   2
#define GP_VECTOR    13
#define INSTRUCTIONS 0xc0 /* of both vendors */
#define COUNT_OS     (BIT(17) | BIT(22))
#define INTERRUPT    BIT(20)

/* Tells READY, then goes round a loop of four instructions. The handler leaves the address that it
 * interrupted at IMAGE_DATA. */
GUEST_CODE(looping, "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		    "mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		    "mov $0x834, %ecx; mov $0x60, %eax; xor %edx, %edx; wrmsr\n"
		    "sti\n"
		    "mov $0xff, %al; out %al, $0xf4\n"
		    "looping_round: nop; nop; nop; jmp looping_round\n"
		    "looping_handler:\n"
		    "pop %rbx; mov %rbx, 0x100000; mov $0x60, %al; out %al, $0xf4; hlt\n");

/* Sets the byte after IMAGE_DATA. Once that at IMAGE_DATA is set: what a counter grows by in a
 * thousand rounds, in RBX. */
GUEST_CODE(asking, "mov $0xff, %al; out %al, $0xf4\n"
		   "1: movb $1, 0x100001; cmpb $0, 0x100000; je 1b\n"
		   "xor %ecx, %ecx; rdpmc; mov %eax, %ebx\n"
		   "mov $1000, %ecx; 2: loop 2b\n"
		   "rdpmc; sub %ebx, %eax; mov %eax, %ebx\n"
		   "mov $0, %al; out %al, $0xf4\n");

GUEST_CODE(reading, "xor %ecx, %ecx; rdpmc; out %al, $0xf4\n");

/*
 * NMIs every 4096 instructions of ten million rounds: by IBS, and by a counter. The handlers count
 * themselves at IMAGE_DATA, and after it when nothing tells of a sample.
 */
GUEST_CODE(ibs, "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		"mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		"mov $0xc0011033, %ecx; mov $0xa0100, %eax; wrmsr\n"
		"mov $10000000, %ebx; 1: nop; dec %ebx; jnz 1b\n"
		"xor %eax, %eax; wrmsr\n"
		"out %al, $0xf4\n"
		"ibs_handler:\n"
		"push %rax; push %rcx; push %rdx; incl 0x100000\n"
		"mov $0xc0011033, %ecx; rdmsr; bt $18, %eax; jc 2f; incl 0x100004\n"
		"2: mov $0xa0100, %eax; xor %edx, %edx; wrmsr\n"
		"pop %rdx; pop %rcx; pop %rax; iretq\n");

GUEST_CODE(counter, "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		    "mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		    "mov $0x834, %ecx; mov $0x400, %eax; wrmsr\n"
		    "mov $0xc1, %ecx; mov $-4096, %eax; wrmsr\n"
		    "mov $0x186, %ecx; mov $0x5200c0, %eax; wrmsr\n"
		    "mov $10000000, %ebx; 1: nop; dec %ebx; jnz 1b\n"
		    "xor %eax, %eax; wrmsr\n"
		    "out %al, $0xf4\n"
		    "counter_handler:\n"
		    "push %rax; push %rcx; push %rdx; incl 0x100000\n"
		    "mov $0x38e, %ecx; rdmsr; bt $0, %eax; jc 2f; incl 0x100004\n"
		    "2: mov $0x390, %ecx; mov $1, %eax; xor %edx, %edx; wrmsr\n"
		    "mov $0xc1, %ecx; mov $-4096, %eax; wrmsr\n"
		    "mov $0x834, %ecx; mov $0x400, %eax; wrmsr\n"
		    "pop %rdx; pop %rcx; pop %rax; iretq\n");

/* An MSR that the program answers for. */
GUEST_CODE(wondering, "mov $0xff, %al; out %al, $0xf4\n"
		      "mov $0x12345678, %ecx; rdmsr\n"
		      "wondering_next: jmp wondering_next\n"
		      "wondering_handler:\n"
		      "pop %rbx; mov %rbx, 0x100000; mov $0x60, %al; out %al, $0xf4; hlt\n");

extern const u8 wondering_next[], wondering_handler[];
extern const u8 looping_round[], looping_handler[], ibs_handler[], counter_handler[];

static struct kvm_guest g;

/* Counts instructions of the kernel from `value` on. */
static void count_instructions(u64 value, u64 flags)
{
	kvm_guest_set_msr(&g, 0, kvm_guest_counter(&g), value & MASK(47, 0));
	kvm_guest_set_msr(&g, 0, kvm_guest_select(&g), INSTRUCTIONS | COUNT_OS | flags);
}

static int next(void)
{
	int reason = kvm_guest_run(&g, 0);

	return reason == KVM_EXIT_IO ? *(u8 *)kvm_io_data(g.run[0]) : -reason;
}

static void with_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static void without_pmu(int vm)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_PMU_CAPABILITY,
				      .args = { KVM_PMU_CAP_DISABLE } };

	KVM_CALL(vm, KVM_ENABLE_CAP, &cap);
}

/* --- the tests --- */

static u64 in_looping(const u8 *label)
{
	return IMAGE_CODE + (label - looping_start);
}

/* The OUT that told READY is completed first, and counts. */
static u64 interrupted_after(u64 instructions)
{
	struct kvm_lapic_state lapic;
	u64 rip;
	u32 lvt;

	kvm_guest_create_with(&g, looping_start, looping_end - looping_start, 1, with_irqchip);
	image_gate(g.ram, VECTOR, in_looping(looping_handler), 0);
	assert_int_equal(next(), READY);
	count_instructions(-instructions, INTERRUPT);
	assert_int_equal(next(), VECTOR);
	memcpy(&rip, g.ram + IMAGE_DATA, sizeof(rip));
	KVM_CALL(g.vcpu[0], KVM_GET_LAPIC, &lapic);
	memcpy(&lvt, lapic.regs + LVTPC, sizeof(lvt));
	assert_int_equal(lvt, VECTOR | (g.amd ? 0 : LVT_MASKED)); /* SDM 3A 10.5.1 */
	kvm_guest_destroy(&g);
	return rip;
}

static void a_pmi_comes_behind_the_instruction_that_overflowed(void **state)
{
	(void)state;
	for (u32 i = 0; i < 8; i++)
		assert_int_equal(interrupted_after(1001 + i), in_looping(looping_round) + i % 4);
	assert_int_equal(interrupted_after(40000001), in_looping(looping_round));
}

static void interrupt_by_nmi(void)
{
	const u32 nmi = 4 << 8;
	struct kvm_lapic_state lapic;

	KVM_CALL(g.vcpu[0], KVM_GET_LAPIC, &lapic);
	memcpy(lapic.regs + LVTPC, &nmi, sizeof(nmi));
	KVM_CALL(g.vcpu[0], KVM_SET_LAPIC, &lapic);
}

/* Finishes the instruction that exited, and nothing else. It overflows, and the NMI is part of the
 * state. Returns the address that the NMI interrupts. */
static u64 nmi_of_the_finished_instruction(void)
{
	struct kvm_vcpu_events events;
	u64 rip;

	g.run[0]->immediate_exit = 1;
	assert_int_equal(next(), EINTR);
	g.run[0]->immediate_exit = 0;
	KVM_CALL(g.vcpu[0], KVM_GET_VCPU_EVENTS, &events);
	assert_int_equal(events.nmi.pending, 1);
	KVM_CALL(g.vcpu[0], KVM_SET_VCPU_EVENTS, &events);
	assert_int_equal(next(), VECTOR);
	memcpy(&rip, g.ram + IMAGE_DATA, sizeof(rip));
	return rip;
}

static void an_nmi_of_the_last_instruction_is_saved(void **state)
{
	(void)state;
	kvm_guest_create_with(&g, looping_start, looping_end - looping_start, 1, with_irqchip);
	image_gate(g.ram, NMI_VECTOR, in_looping(looping_handler), 0);
	assert_int_equal(next(), READY);
	interrupt_by_nmi();
	count_instructions(-1, INTERRUPT);
	assert_int_equal(nmi_of_the_finished_instruction(), in_looping(looping_round));
	kvm_guest_destroy(&g);
}

static void with_unknown_msrs(int vm)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_X86_USER_SPACE_MSR,
				      .args = { KVM_MSR_EXIT_REASON_UNKNOWN } };

	with_irqchip(vm);
	KVM_CALL(vm, KVM_ENABLE_CAP, &cap);
}

/* RDMSR is the third instruction, and is finished by the hypervisor. */
static void an_overflow_of_an_answered_instruction_is_saved(void **state)
{
	(void)state;
	kvm_guest_create_with(&g, wondering_start, wondering_end - wondering_start, 1,
			      with_unknown_msrs);
	image_gate(g.ram, NMI_VECTOR, IMAGE_CODE + (wondering_handler - wondering_start), 0);
	assert_int_equal(next(), READY);
	interrupt_by_nmi();
	count_instructions(-3, INTERRUPT);
	assert_int_equal(next(), -KVM_EXIT_X86_RDMSR);
	assert_int_equal(nmi_of_the_finished_instruction(),
			 IMAGE_CODE + (wondering_next - wondering_start));
	kvm_guest_destroy(&g);
}

/* What it writes counts the instruction that it has not answered yet. */
static void a_program_may_write_counters_before_it_answers(void **state)
{
	(void)state;
	kvm_guest_create_with(&g, wondering_start, wondering_end - wondering_start, 1,
			      with_unknown_msrs);
	assert_int_equal(next(), READY);
	assert_int_equal(next(), -KVM_EXIT_X86_RDMSR);
	count_instructions(0, 0);
	g.run[0]->immediate_exit = 1;
	assert_int_equal(next(), EINTR);
	g.run[0]->immediate_exit = 0;
	assert_int_equal(kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g)), 1);
	kvm_guest_destroy(&g);
}

static void save_and_restore(void)
{
	struct kvm_vcpu_events events;
	struct kvm_lapic_state lapic;

	KVM_CALL(g.vcpu[0], KVM_GET_VCPU_EVENTS, &events);
	KVM_CALL(g.vcpu[0], KVM_GET_LAPIC, &lapic);
	KVM_CALL(g.vcpu[0], KVM_SET_LAPIC, &lapic);
	KVM_CALL(g.vcpu[0], KVM_SET_VCPU_EVENTS, &events);
}

static void on_signal(int sig)
{
	(void)sig;
}

/* 0: no more. */
static void signal_every(u32 us)
{
	struct itimerval timer = { .it_interval.tv_usec = us, .it_value.tv_usec = us };

	signal(SIGALRM, on_signal);
	setitimer(ITIMER_REAL, &timer, NULL);
}

struct sampler {
	const u8 *start, *end, *handler;
	u32 samples;
};

/* Rounds have three instructions, and a period has so many of the handler: after the write of the
 * control and with it, or of the counter. */
#define SAMPLES(handler) (3 * 10000000 / (4096 - (handler)))

static const struct sampler by_ibs = { ibs_start, ibs_end, ibs_handler, SAMPLES(5) };
static const struct sampler by_counter = { counter_start, counter_end, counter_handler,
					   SAMPLES(8) };

static const struct sampler *sampler(void)
{
	kvm_guest_create(&g, reading_start, reading_end - reading_start, 1);
	kvm_guest_destroy(&g);
	return g.amd ? &by_ibs : &by_counter;
}

/* Has signals end KVM_RUN; returns how many did. */
static u32 take_samples(const struct sampler *s, u32 us)
{
	u32 seen[2], signals = 0;
	int exit;

	kvm_guest_create_with(&g, s->start, s->end - s->start, 1, with_irqchip);
	image_gate(g.ram, NMI_VECTOR, IMAGE_CODE + (s->handler - s->start), 0);
	signal_every(us);
	for (; (exit = next()) == EINTR; signals++)
		save_and_restore();
	signal_every(0);
	assert_int_equal(exit, 0);
	memcpy(seen, g.ram + IMAGE_DATA, sizeof(seen));
	assert_int_equal(seen[0], s->samples);
	assert_int_equal(seen[1], 0);
	kvm_guest_destroy(&g);
	return signals;
}

/* One that is lost would be the last: it waits for its handler. */
static void no_sample_is_lost_to_signals(void **state)
{
	const struct sampler *s = sampler();

	(void)state;
	assert_int_equal(take_samples(s, 0), 0);
	assert_int_not_equal(take_samples(s, 50), 0);
}

static void the_program_reads_what_the_guest_counted(void **state)
{
	(void)state;
	kvm_guest_create(&g, asking_start, asking_end - asking_start, 2);
	assert_int_equal(next(), READY);
	g.ram[IMAGE_DATA] = 1;
	count_instructions(0, 0);
	assert_int_equal(next(), 0);
	/* OUT, MOV, CMP, JE; XOR, RDPMC, MOV; MOV and the rounds; RDPMC, SUB, MOV, MOV; not the
	 * last OUT */
	assert_int_equal(kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g)), 4 + 3 + 1 + 1000 + 4);
	kvm_guest_set_msr(&g, 1, kvm_guest_counter(&g),
			  kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g)));
	kvm_guest_set_msr(&g, 1, kvm_guest_select(&g),
			  kvm_guest_get_msr(&g, 0, kvm_guest_select(&g)));
	assert_int_equal(kvm_guest_get_msr(&g, 1, kvm_guest_counter(&g)),
			 kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g)));
	assert_int_equal(kvm_guest_get_msr(&g, 1, kvm_guest_select(&g)), INSTRUCTIONS | COUNT_OS);
	kvm_guest_destroy(&g);
}

static void deny_instructions(void)
{
	struct kvm_pmu_event_filter *filter = calloc(1, sizeof(*filter) + sizeof(u64));

	filter->action = KVM_PMU_EVENT_DENY;
	filter->nevents = 1;
	filter->events[0] = INSTRUCTIONS;
	KVM_CALL(g.vm, KVM_SET_PMU_EVENT_FILTER, filter);
	free(filter);
}

static void *run_on(void *unused)
{
	(void)unused;
	return next() == 0 ? &g : NULL;
}

/* Ten seconds at most: the test then fails for want of counts. */
static void wait_until_running(void)
{
	for (u32 i = 0; i < 10000 && !READ_ONCE(g.ram[IMAGE_DATA + 1]); i++)
		usleep(1000);
}

static void a_filter_stops_a_counter_that_runs(void **state)
{
	struct kvm_regs regs;
	pthread_t thread;
	void *done;

	(void)state;
	kvm_guest_create(&g, asking_start, asking_end - asking_start, 1);
	assert_int_equal(next(), READY);
	count_instructions(0, 0);
	assert_int_equal(pthread_create(&thread, NULL, run_on, NULL), 0);
	wait_until_running();
	deny_instructions();
	__atomic_store_n(&g.ram[IMAGE_DATA], 1, __ATOMIC_SEQ_CST);
	pthread_join(thread, &done);
	assert_ptr_equal(done, &g);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	assert_int_equal(regs.rbx, 0);
	assert_true(kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g)) > 0);
	kvm_guest_destroy(&g);
}

/* A vCPU outside of KVM_RUN still has the filter that it last ran with (AddressSanitizer). */
static void a_filter_may_be_replaced_between_runs(void **state)
{
	struct kvm_state_msrs record = { .nmsrs = 1, .entry[0].index = 0xdc0 };

	(void)state;
	kvm_guest_create(&g, asking_start, asking_end - asking_start, 1);
	deny_instructions();
	assert_int_equal(next(), READY);
	count_instructions(0, 0);
	deny_instructions();
	/* MSR_LBR_INFO_0: the filter covers the cycles of a branch record. AMD has no such MSR. */
	assert_in_range(ioctl(g.vcpu[0], KVM_GET_MSRS, &record), 0, 1);
	g.ram[IMAGE_DATA] = 1;
	assert_int_equal(next(), 0);
	assert_int_equal(kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g)), 0);
	kvm_guest_destroy(&g);
}

static void without_a_pmu_rdpmc_faults(void **state)
{
	struct kvm_regs regs;

	(void)state;
	kvm_guest_create_with(&g, reading_start, reading_end - reading_start, 1, without_pmu);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	assert_int_equal(regs.rip & ~(IMAGE_STUB_SIZE - 1ull),
			 IMAGE_STUBS + GP_VECTOR * IMAGE_STUB_SIZE);
	assert_int_equal(kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g)), 0);
	kvm_guest_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pmi_comes_behind_the_instruction_that_overflowed),
		cmocka_unit_test(an_nmi_of_the_last_instruction_is_saved),
		cmocka_unit_test(an_overflow_of_an_answered_instruction_is_saved),
		cmocka_unit_test(a_program_may_write_counters_before_it_answers),
		cmocka_unit_test(no_sample_is_lost_to_signals),
		cmocka_unit_test(the_program_reads_what_the_guest_counted),
		cmocka_unit_test(a_filter_stops_a_counter_that_runs),
		cmocka_unit_test(a_filter_may_be_replaced_between_runs),
		cmocka_unit_test(without_a_pmu_rdpmc_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
