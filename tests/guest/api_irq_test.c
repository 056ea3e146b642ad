// SPDX-License-Identifier: MIT
/*
 * Interrupts from a program to its guest, through each of the controllers and by each way in:
 * lines, MSIs, irqfds, the local APIC's timer; and what the program hears back. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/irq_guest.h"

/* Ends interrupts by clearing the flag at IMAGE_DATA, and tells whether it was up. */
GUEST_CODE(pv_waiting, "mov $0x4b564d04, %ecx; mov $0x100001, %eax; xor %edx, %edx; wrmsr\n"
		       "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		       "mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		       "mov $0xff, %al; out %al, $0xf4\n"
		       "sti\n"
		       "1: hlt; jmp 1b\n"
		       "end_by_flag:\n"
		       "btrl $0, 0x100000\n"
		       "setc %al; out %al, $0xf5\n"
		       "pop %rax; iretq\n");

/*
 * Interrupts are disabled while the program raises lines, then enabled by STI in its shadow. The
 * handlers of vectors 0x78 and 0x66 append vector and RIP to the log at IMAGE_DATA, by RDI.
 */
GUEST_CODE(together, "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		     "mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		     "mov $0x100000, %edi\n"
		     "mov $0xff, %al; out %al, $0xf4\n"
		     "sti\n"
		     "nop\n"
		     "together_here: nop\n"
		     "nop\n"
		     "cli; out %al, $0xf4\n"
		     "isr_78: push $0x78; jmp 1f\n"
		     "isr_66: push $0x66\n"
		     "1: pop %rax; stosq\n"
		     "mov (%rsp), %rax; stosq\n"
		     "mov $0x80b, %ecx; xor %eax, %eax; xor %edx, %edx; wrmsr\n"
		     "iretq\n");

extern const u8 together_here[], isr_78[], isr_66[];

GUEST_CODE(ringing, "out %al, $0xf4; hlt\n");

/* The local APIC's timer expires once, in a millisecond. */
#define TIMER_STARTS                                                                \
	"mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"                          \
	"mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"               \
	"mov $0x83e, %ecx; mov $0xb, %eax; wrmsr\n"  /* divide by 1: nanoseconds */ \
	"mov $0x832, %ecx; mov $0x50, %eax; wrmsr\n" /* TIMER */                    \
	"mov $0x838, %ecx; mov $1000000, %eax; wrmsr\n"

/* One instruction that takes fifty times as long, in the shadow of another. */
GUEST_CODE(repeating, TIMER_STARTS "mov $0x2f0000, %ecx; mov $0x100000, %esi\n"
				   "sti; rep lodsb\n"
				   "1: jmp 1b\n");

/* The handler of #UD is the instruction that raises it, with interrupts enabled. */
GUEST_CODE(raising, TIMER_STARTS "sti; nop\n"
				 "raises: ud2\n");

/* The timer's mode is the reserved one, and it sleeps for good. */
GUEST_CODE(sleeping, "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		     "mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		     "mov $0x83e, %ecx; mov $0xb, %eax; wrmsr\n"
		     "mov $0x832, %ecx; mov $0x60050, %eax; wrmsr\n"
		     "mov $0x838, %ecx; mov $1, %eax; wrmsr\n"
		     "1: hlt; jmp 1b\n");

/*
 * The first 8259 at PIC_BASE, with line 5 as a level. Counts its interrupts in RBX, and ends after
 * so many. The last vector is nobody's.
 */
GUEST_CODE(counting, "mov $0x11, %al; out %al, $0x20\n"
		     "mov $0x30, %al; out %al, $0x21; mov $0x04, %al; out %al, $0x21\n"
		     "mov $0x01, %al; out %al, $0x21; mov $0x00, %al; out %al, $0x21\n"
		     "mov $0x4d0, %edx; mov $0x20, %al; out %al, %dx\n"
		     "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		     "mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		     "xor %ebx, %ebx\n"
		     "sti\n"
		     "1: cmp $300000, %ebx; jb 1b\n"
		     "cli; mov $0, %al; out %al, $0xf4\n"
		     "count_one: push %rax; inc %ebx\n"
		     "mov $0x20, %al; out %al, $0x20\n"
		     "pop %rax; iretq\n"
		     "of_nobody: mov $0xff, %al; out %al, $0xf4\n");

extern const u8 count_one[], of_nobody[];
extern const u8 raises[];
extern const u8 end_by_flag[];

static void use_ioapic(void)
{
	irq_redirect(EDGE_PIN, EDGE, HIGH_PIN, LEVEL | BIT(15));
}

static void a_line_interrupts_through_the_8259(void **state)
{
	(void)state;
	irq_start(irq_with_irqchip);
	assert_int_equal(irq_line(12, 1), 1);
	assert_int_equal(irq_next(PORT), PIC_BASE + 12);
	irq_line(12, 0);
	irq_line(4, 1);
	irq_line(4, 0); /* an edge is enough */
	assert_int_equal(irq_next(PORT), PIC_BASE + 4);
	kvm_guest_destroy(&irq_guest);
}

static void an_edge_interrupts_through_the_io_apic(void **state)
{
	(void)state;
	irq_start(irq_with_irqchip);
	use_ioapic();
	assert_int_equal(irq_line(EDGE_PIN, 1), 1);
	assert_int_equal(irq_line(EDGE_PIN, 1), 0);
	assert_int_equal(irq_next(PORT), EDGE);
	irq_line(EDGE_PIN, 0);
	irq_line(EDGE_PIN, 1);
	assert_int_equal(irq_next(PORT), EDGE);
	kvm_guest_destroy(&irq_guest);
}

static u64 in_together(const u8 *label)
{
	return IMAGE_CODE + (label - together_start);
}

static void pulse(u32 irq)
{
	irq_line(irq, 1);
	irq_line(irq, 0);
}

/* SDM 3A 10.8.4: the higher vector first; the other as soon as its handler returns, before another
 * instruction of the code that both interrupt. */
static void two_edges_are_delivered_in_order_of_priority(void **state)
{
	const u64 here = in_together(together_here);
	const u64 wanted[] = { 0x78, here, 0x66, here, 0 };

	(void)state;
	for (u32 first = 14; first <= 15; first++) {
		kvm_guest_create_with(&irq_guest, together_start, together_end - together_start, 1,
				      irq_with_irqchip);
		image_gate(irq_guest.ram, 0x78, in_together(isr_78), 0);
		image_gate(irq_guest.ram, 0x66, in_together(isr_66), 0);
		assert_int_equal(irq_next(PORT), READY);
		irq_redirect(14, 0x78, 15, 0x66);
		pulse(first);
		pulse(14 + 15 - first);
		assert_true(irq_next(PORT) >= 0);
		assert_memory_equal(irq_guest.ram + IMAGE_DATA, wanted, sizeof(wanted));
		kvm_guest_destroy(&irq_guest);
	}
}

static void a_level_interrupts_until_it_is_lowered(void **state)
{
	(void)state;
	irq_start(irq_with_irqchip);
	use_ioapic();
	irq_line(HIGH_PIN, 1);
	for (u32 i = 0; i < 3; i++)
		assert_int_equal(irq_next(PORT), LEVEL);
	irq_line(HIGH_PIN, 0);
	irq_line(EDGE_PIN, 1);
	assert_int_equal(irq_next(PORT), EDGE);
	kvm_guest_destroy(&irq_guest);
}

static void an_msi_and_a_route_to_one_interrupt(void **state)
{
	static u64 memory[16]; /* the table, and one entry after it */
	struct kvm_irq_routing *routes = (void *)memory;

	routes->nr = 1;
	routes->entries[0] = (struct kvm_irq_routing_entry){
		.gsi = 100,
		.type = KVM_IRQ_ROUTING_MSI,
		.u.msi = { .address_lo = 0xfee00000, .data = MSI + 1 },
	};
	(void)state;
	irq_start(irq_with_irqchip);
	irq_msi(MSI);
	assert_int_equal(irq_next(PORT), MSI);
	KVM_CALL(irq_guest.vm, KVM_SET_GSI_ROUTING, routes);
	assert_int_equal(irq_line(100, 1), 1);
	assert_int_equal(irq_next(PORT), MSI + 1);
	assert_int_equal(irq_line(EDGE_PIN, 1), -1); /* the table was replaced */
	kvm_guest_destroy(&irq_guest);
}

static void an_irqfd_interrupts_a_halted_guest(void **state)
{
	struct kvm_irqfd arg = { .fd = eventfd(0, EFD_NONBLOCK), .gsi = EDGE_PIN };

	(void)state;
	irq_start(irq_with_irqchip);
	use_ioapic();
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
	for (u32 i = 0; i < 20; i++) {
		eventfd_write(arg.fd, 1);
		assert_int_equal(irq_next(PORT), EDGE);
	}
	arg.flags = KVM_IRQFD_FLAG_DEASSIGN;
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
	kvm_guest_destroy(&irq_guest);
	close(arg.fd);
}

/* KVM knows eventfds, not descriptors. */
static void an_irqfd_is_found_by_any_copy_of_its_eventfd(void **state)
{
	struct kvm_irqfd arg = { .fd = eventfd(0, 0), .gsi = EDGE_PIN };
	struct kvm_irqfd copy = { .fd = dup(arg.fd), .gsi = EDGE_PIN };

	(void)state;
	if (syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, arg.fd, copy.fd)) {
		close(arg.fd);
		close(copy.fd);
		print_message("the host does not tell: no kcmp(2)\n");
		skip();
	}
	irq_start(irq_with_irqchip);
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
	assert_int_equal(ioctl(irq_guest.vm, KVM_IRQFD, &copy), -1);
	assert_int_equal(errno, EBUSY);
	copy.flags = KVM_IRQFD_FLAG_DEASSIGN;
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &copy);
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
	kvm_guest_destroy(&irq_guest);
	close(arg.fd);
	close(copy.fd);
}

static void a_full_ioeventfd_takes_the_write(void **state)
{
	static const int flags[] = { 0, EFD_NONBLOCK };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(flags); i++) {
		struct kvm_ioeventfd arg = { .fd = eventfd(0, flags[i]),
					     .addr = PORT,
					     .len = 1,
					     .flags = KVM_IOEVENTFD_FLAG_PIO };

		kvm_guest_create(&irq_guest, ringing_start, ringing_end - ringing_start, 1);
		assert_int_equal(eventfd_write(arg.fd, ~0ull - 1), 0);
		KVM_CALL(irq_guest.vm, KVM_IOEVENTFD, &arg);
		assert_int_equal(kvm_guest_run(&irq_guest, 0), KVM_EXIT_HLT);
		kvm_guest_destroy(&irq_guest);
		close(arg.fd);
	}
}

#define MAX_FDS 1024

static void note_descriptors(bool *open)
{
	for (int fd = 0; fd < MAX_FDS; fd++)
		open[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Lets the number of each descriptor that is not in `known` stand for a file of the program. */
static u32 take_descriptors(const bool *known, int file, int *taken)
{
	u32 n = 0;

	for (int fd = 0; fd < MAX_FDS; fd++)
		if (!known[fd] && fcntl(fd, F_GETFD) >= 0) {
			assert_int_equal(dup2(file, fd), fd);
			taken[n++] = fd;
		}
	return n;
}

/*
 * As closefrom() and open() do after `request`: the numbers of its descriptors become those of a
 * pipe of the program, which nobody else may write to or close until the VM is gone. Interrupts and
 * signals may be lost.
 */
static void request_and_lose(unsigned long request, void *arg, int exit_reason)
{
	bool known[MAX_FDS];
	int file[2], taken[MAX_FDS];
	u32 n;
	char c;

	assert_int_equal(pipe2(file, O_NONBLOCK), 0);
	note_descriptors(known);
	assert_int_equal(ioctl(irq_guest.vm, request, arg), 0);
	n = take_descriptors(known, file[1], taken);
	assert_true(n > 0);
	if (exit_reason)
		assert_int_equal(kvm_guest_run(&irq_guest, 0), exit_reason);
	kvm_guest_destroy(&irq_guest);
	for (u32 i = 0; i < n; i++)
		assert_int_equal(close(taken[i]), 0);
	assert_int_equal(read(file[0], &c, 1), -1);
	assert_int_equal(errno, EAGAIN);
	close(file[0]);
	close(file[1]);
}

static void a_vm_whose_descriptors_were_closed_can_be_closed(void **state)
{
	struct kvm_irqfd arg = { .fd = eventfd(0, EFD_NONBLOCK), .gsi = EDGE_PIN };

	(void)state;
	irq_start(irq_with_irqchip);
	request_and_lose(KVM_IRQFD, &arg, 0);
	close(arg.fd);
}

static void an_ioeventfd_writes_to_no_file_of_the_program(void **state)
{
	struct kvm_ioeventfd arg = { .addr = PORT,
				     .len = 1,
				     .fd = eventfd(0, EFD_NONBLOCK),
				     .flags = KVM_IOEVENTFD_FLAG_PIO };

	(void)state;
	kvm_guest_create(&irq_guest, ringing_start, ringing_end - ringing_start, 1);
	request_and_lose(KVM_IOEVENTFD, &arg, KVM_EXIT_HLT);
	close(arg.fd);
}

static void a_resampling_irqfd_hears_of_the_end(void **state)
{
	struct kvm_irqfd arg = { .fd = eventfd(0, EFD_NONBLOCK),
				 .gsi = HIGH_PIN,
				 .flags = KVM_IRQFD_FLAG_RESAMPLE,
				 .resamplefd = eventfd(0, EFD_NONBLOCK) };
	struct pollfd again = { .fd = arg.resamplefd, .events = POLLIN };

	(void)state;
	irq_start(irq_with_irqchip);
	use_ioapic();
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
	eventfd_write(arg.fd, 1);
	assert_int_equal(irq_next(PORT), LEVEL);
	assert_int_equal(poll(&again, 1, 0), 0);
	irq_line(EDGE_PIN, 1); /* waits until the level has ended */
	assert_int_equal(irq_next(PORT), EDGE);
	assert_int_equal(poll(&again, 1, 0), 1);
	kvm_guest_destroy(&irq_guest);
	close(arg.fd);
	close(arg.resamplefd);
}

static void a_split_irqchip_tells_of_the_end_of_levels(void **state)
{
	(void)state;
	irq_start(irq_with_split_irqchip);
	irq_msi(MSI);
	assert_int_equal(irq_next(PORT), MSI);
	irq_msi(LEVEL | BIT(15) | BIT(14));
	assert_int_equal(irq_next(PORT), LEVEL);
	assert_int_equal(kvm_guest_run(&irq_guest, 0), KVM_EXIT_IOAPIC_EOI);
	assert_int_equal(irq_guest.run[0]->eoi.vector, LEVEL);
	irq_msi(MSI);
	assert_int_equal(irq_next(PORT), MSI);
	kvm_guest_destroy(&irq_guest);
}

static void a_split_irqchip_takes_the_program_8259_vectors(void **state)
{
	struct kvm_interrupt irq = { .irq = PIC_BASE };

	(void)state;
	irq_start(irq_with_split_irqchip);
	irq_guest.run[0]->request_interrupt_window = 1;
	while (kvm_guest_run(&irq_guest, 0) != KVM_EXIT_IRQ_WINDOW_OPEN)
		assert_int_equal(irq_guest.run[0]->exit_reason, KVM_EXIT_IO);
	assert_true(irq_guest.run[0]->ready_for_interrupt_injection);
	irq_guest.run[0]->request_interrupt_window = 0;
	KVM_CALL(irq_guest.vcpu[0], KVM_INTERRUPT, &irq);
	assert_int_equal(irq_next(PORT), PIC_BASE);
	kvm_guest_destroy(&irq_guest);
}

static void clearing_a_flag_ends_an_interrupt(void **state)
{
	(void)state;
	kvm_guest_create_with(&irq_guest, pv_waiting_start, pv_waiting_end - pv_waiting_start, 1,
			      irq_with_irqchip);
	irq_handle(MSI, IMAGE_CODE + (end_by_flag - pv_waiting_start));
	assert_int_equal(irq_next(PORT), READY);
	for (u32 i = 0; i < 3; i++) {
		irq_msi(MSI);
		assert_int_equal(irq_next(PORT), MSI);
		assert_int_equal(irq_guest.ram[IMAGE_DATA], 0); /* not up while the program looks */
		assert_int_equal(irq_next(EOI_PORT), 1);
	}
	kvm_guest_destroy(&irq_guest);
}

#define TIMER 0x50

static void start_timed(const u8 *code, size_t size)
{
	kvm_guest_create_with(&irq_guest, code, size, 1, irq_with_irqchip);
	irq_handle(TIMER, 0);
}

static void the_timer_interrupts_a_repetition(void **state)
{
	struct kvm_regs regs;

	(void)state;
	start_timed(repeating_start, repeating_end - repeating_start);
	assert_int_equal(irq_next(PORT), TIMER);
	KVM_CALL(irq_guest.vcpu[0], KVM_GET_REGS, &regs);
	assert_int_not_equal(regs.rcx, 0);
	kvm_guest_destroy(&irq_guest);
}

static void the_timer_interrupts_exceptions_that_retire_nothing(void **state)
{
	(void)state;
	start_timed(raising_start, raising_end - raising_start);
	image_gate(irq_guest.ram, 6, IMAGE_CODE + (raises - raising_start), 0);
	image_ist(irq_guest.ram, 6, IMAGE_INT_STACK);
	irq_guest.ram[IMAGE_IDT + 16 * 6 + 5] |= 1; /* a trap gate: IF stays */
	assert_int_equal(irq_next(PORT), TIMER);
	kvm_guest_destroy(&irq_guest);
}

static void offer_deadline_timer(struct kvm_cpuid_entry2 *entry)
{
	if (entry->function == 1)
		entry->ecx |= BIT(24);
}

static void only_interrupts(int sig)
{
	(void)sig;
}

/* Until the other thread says that it is done. */
struct companion {
	pthread_t target;
	bool done;
};

static void *signal_often(void *arg)
{
	struct companion *companion = arg;

	while (!__atomic_load_n(&companion->done, __ATOMIC_ACQUIRE)) {
		pthread_kill(companion->target, SIGUSR1);
		usleep(1000);
	}
	return NULL;
}

static void a_timer_in_the_reserved_mode_leaves_a_sleeper_interruptible(void **state)
{
	struct sigaction action = { .sa_handler = only_interrupts };
	struct companion companion = { .target = pthread_self() };
	pthread_t thread;

	(void)state;
	kvm_guest_create_with(&irq_guest, sleeping_start, sleeping_end - sleeping_start, 1,
			      irq_with_irqchip);
	kvm_guest_set_cpuid(&irq_guest, 0, offer_deadline_timer);
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, signal_often, &companion), 0);
	for (u32 i = 0; i < 100; i++)
		assert_int_equal(kvm_guest_run(&irq_guest, 0), -EINTR);
	__atomic_store_n(&companion.done, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(thread, NULL), 0);
	kvm_guest_destroy(&irq_guest);
}

static void *toggle_line(void *arg)
{
	struct companion *companion = arg;

	while (!__atomic_load_n(&companion->done, __ATOMIC_ACQUIRE)) {
		irq_line(EDGE_PIN, 1);
		irq_line(EDGE_PIN, 0);
	}
	return NULL;
}

static void a_level_that_falls_while_it_is_taken_is_no_vector_of_the_local_apic(void **state)
{
	struct companion companion = { .done = false };
	pthread_t thread;

	(void)state;
	kvm_guest_create_with(&irq_guest, counting_start, counting_end - counting_start, 1,
			      irq_with_irqchip);
	for (u32 v = PIC_BASE; v < PIC_BASE + 8; v++) /* the 8259 says 7 if it is too late */
		image_gate(irq_guest.ram, v, IMAGE_CODE + (count_one - counting_start), 0);
	image_gate(irq_guest.ram, 0xff, IMAGE_CODE + (of_nobody - counting_start), 0);
	assert_int_equal(pthread_create(&thread, NULL, toggle_line, &companion), 0);
	assert_int_equal(irq_next(PORT), 0);
	__atomic_store_n(&companion.done, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(thread, NULL), 0);
	kvm_guest_destroy(&irq_guest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_interrupts_through_the_8259),
		cmocka_unit_test(an_edge_interrupts_through_the_io_apic),
		cmocka_unit_test(two_edges_are_delivered_in_order_of_priority),
		cmocka_unit_test(a_level_interrupts_until_it_is_lowered),
		cmocka_unit_test(an_msi_and_a_route_to_one_interrupt),
		cmocka_unit_test(an_irqfd_interrupts_a_halted_guest),
		cmocka_unit_test(a_resampling_irqfd_hears_of_the_end),
		cmocka_unit_test(an_irqfd_is_found_by_any_copy_of_its_eventfd),
		cmocka_unit_test(a_full_ioeventfd_takes_the_write),
		cmocka_unit_test(a_vm_whose_descriptors_were_closed_can_be_closed),
		cmocka_unit_test(an_ioeventfd_writes_to_no_file_of_the_program),
		cmocka_unit_test(a_split_irqchip_tells_of_the_end_of_levels),
		cmocka_unit_test(a_split_irqchip_takes_the_program_8259_vectors),
		cmocka_unit_test(clearing_a_flag_ends_an_interrupt),
		cmocka_unit_test(the_timer_interrupts_a_repetition),
		cmocka_unit_test(the_timer_interrupts_exceptions_that_retire_nothing),
		cmocka_unit_test(a_timer_in_the_reserved_mode_leaves_a_sleeper_interruptible),
		cmocka_unit_test(
			a_level_that_falls_while_it_is_taken_is_no_vector_of_the_local_apic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
