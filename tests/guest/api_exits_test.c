// SPDX-License-Identifier: MIT
/*
 * What a program sees of its guest through KVM_RUN: each exit with its data, kicks, and the
 * registers in between. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define CODE(name) name##_start, (size_t)(name##_end - name##_start)

/* OUT of three sizes, IN, and the value that IN gave. */
GUEST_CODE(ports, "mov $0x11223344, %eax\n"
		  "out %al, $0x20\n"
		  "mov $0x1234, %dx\n"
		  "out %ax, %dx\n"
		  "out %eax, %dx\n"
		  "in %dx, %eax\n"
		  "out %eax, $0x21\n"
		  "hlt\n");

static void expect_out(struct kvm_guest *g, u16 port, u8 size, u32 value)
{
	struct kvm_run *run = g->run[0];

	assert_int_equal(kvm_guest_run(g, 0), KVM_EXIT_IO);
	assert_int_equal(run->io.direction, KVM_EXIT_IO_OUT);
	assert_int_equal(run->io.port, port);
	assert_int_equal(run->io.size, size);
	assert_int_equal(run->io.count, 1);
	assert_memory_equal(kvm_io_data(run), &value, size);
}

static void ports_exit_with_their_data(void **state)
{
	const u32 answer = 0xcafef00d;
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(ports), 1);
	expect_out(&g, 0x20, 1, 0x44);
	expect_out(&g, 0x1234, 2, 0x3344);
	expect_out(&g, 0x1234, 4, 0x11223344);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	assert_int_equal(g.run[0]->io.direction, KVM_EXIT_IO_IN);
	memcpy(kvm_io_data(g.run[0]), &answer, 4);
	expect_out(&g, 0x21, 4, answer);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	kvm_guest_destroy(&g);
}

/* A load from a device, a store to it, and one that reads and writes. */
GUEST_CODE(mmio, "mov 0x400010, %eax\n"
		 "mov %ax, 0x400020\n"
		 "addl $1, 0x400030\n"
		 "hlt\n");

static void expect_mmio(struct kvm_guest *g, u64 gpa, u32 len, bool write)
{
	assert_int_equal(kvm_guest_run(g, 0), KVM_EXIT_MMIO);
	assert_int_equal(g->run[0]->mmio.phys_addr, gpa);
	assert_int_equal(g->run[0]->mmio.len, len);
	assert_int_equal(g->run[0]->mmio.is_write, write);
}

static void device_memory_exits_with_its_data(void **state)
{
	const u32 answer = 0x01020304;
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(mmio), 1);
	expect_mmio(&g, 0x400010, 4, false);
	memcpy(g.run[0]->mmio.data, &answer, 4);
	expect_mmio(&g, 0x400020, 2, true);
	assert_memory_equal(g.run[0]->mmio.data, "\x04\x03", 2);
	expect_mmio(&g, 0x400030, 4, false);
	memcpy(g.run[0]->mmio.data, &answer, 4);
	expect_mmio(&g, 0x400030, 4, true);
	assert_memory_equal(g.run[0]->mmio.data, "\x05\x03\x02\x01", 4);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	kvm_guest_destroy(&g);
}

/* An undefined instruction with no IDT to deliver it by. */
GUEST_CODE(triple_fault, "ud2\n");

static void a_triple_fault_is_a_shutdown(void **state)
{
	struct kvm_guest g;
	struct kvm_sregs sregs;

	(void)state;
	kvm_guest_create(&g, CODE(triple_fault), 1);
	KVM_CALL(g.vcpu[0], KVM_GET_SREGS, &sregs);
	sregs.idt.limit = 0;
	KVM_CALL(g.vcpu[0], KVM_SET_SREGS, &sregs);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_SHUTDOWN);
	kvm_guest_destroy(&g);
}

/* Runs off the end of everything: an exception by way of the IDT, into its stub. */
GUEST_CODE(unmapped, "mov $0x7fff00000000, %rax\n"
		     "jmp *%rax\n");

static void unmapped_code_is_a_page_fault(void **state)
{
	struct kvm_guest g;
	struct kvm_regs regs;
	struct kvm_sregs sregs;

	(void)state;
	kvm_guest_create(&g, CODE(unmapped), 1);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	KVM_CALL(g.vcpu[0], KVM_GET_SREGS, &sregs);
	assert_int_equal(regs.rip, IMAGE_STUBS + 14 * IMAGE_STUB_SIZE + 1);
	assert_int_equal(sregs.cr2, 0x7fff00000000);
	kvm_guest_destroy(&g);
}

#define ROUNDS IMAGE_DATA

GUEST_CODE(forever, "1: inc %rax\n"
		    "mov %rax, 0x100000\n" /* ROUNDS */
		    "jmp 1b\n");

static void on_signal(int sig)
{
	(void)sig;
}

struct kicker {
	pthread_t target, thread;
	const u64 *rounds; /* of the guest, of which there are a thousand before a kick; or NULL */
	bool done;
};

static bool has_run(const struct kicker *kicker)
{
	return !kicker->rounds || __atomic_load_n(kicker->rounds, __ATOMIC_ACQUIRE) > 1000;
}

/* More than once: on a busy machine the first may come before KVM_RUN. */
static void *kick(void *arg)
{
	struct kicker *kicker = arg;

	while (!__atomic_load_n(&kicker->done, __ATOMIC_ACQUIRE)) {
		usleep(50000);
		if (has_run(kicker))
			pthread_kill(kicker->target, SIGUSR1);
	}
	return NULL;
}

static void kicker_start(struct kicker *kicker, const u64 *rounds)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGUSR1, &action, NULL);
	kicker->target = pthread_self();
	kicker->rounds = rounds;
	kicker->done = false;
	assert_int_equal(pthread_create(&kicker->thread, NULL, kick, kicker), 0);
}

static void kicker_stop(struct kicker *kicker)
{
	__atomic_store_n(&kicker->done, true, __ATOMIC_RELEASE);
	pthread_join(kicker->thread, NULL);
}

static void a_signal_interrupts_a_running_guest(void **state)
{
	struct kicker kicker;
	struct kvm_guest g;
	struct kvm_regs regs;

	(void)state;
	kvm_guest_create(&g, CODE(forever), 1);
	kicker_start(&kicker, (const u64 *)(g.ram + ROUNDS));
	assert_int_equal(kvm_guest_run(&g, 0), -EINTR);
	kicker_stop(&kicker);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	assert_true(regs.rax > 1000);
	kvm_guest_destroy(&g);
}

/* The handler of #UD returns to the instruction that raised it. */
GUEST_CODE(fault_loop, "ud2\n"
		       ".org fault_loop_start + 16\n"
		       "iretq\n");

static void endless_faults_can_be_interrupted(void **state)
{
	struct kicker kicker;
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(fault_loop), 1);
	image_gate(g.ram, 6, IMAGE_CODE + 16, 0);
	kicker_start(&kicker, NULL);
	assert_int_equal(kvm_guest_run(&g, 0), -EINTR);
	kicker_stop(&kicker);
	kvm_guest_destroy(&g);
}

GUEST_CODE(device_code, "mov $0x400000, %eax\n"
			"jmp *%rax\n");

static void code_in_device_memory_is_an_internal_error(void **state)
{
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(device_code), 1);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_INTERNAL_ERROR);
	assert_int_equal(g.run[0]->internal.suberror, KVM_INTERNAL_ERROR_EMULATION);
	kvm_guest_destroy(&g);
}

static void immediate_exit_leaves_the_guest_untouched(void **state)
{
	struct kvm_guest g;
	struct kvm_regs before, after;

	(void)state;
	kvm_guest_create(&g, CODE(forever), 1);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &before);
	g.run[0]->immediate_exit = 1;
	assert_int_equal(kvm_guest_run(&g, 0), -EINTR);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	kvm_guest_destroy(&g);
}

/* One instruction at a time, branches taken and not taken included. */
GUEST_CODE(steps, "xor %eax, %eax\n"
		  "jnz 1f\n"
		  "jz 1f\n"
		  "nop\n"
		  "1: inc %eax\n"
		  "hlt\n");

static void single_steps_stop_at_each_instruction(void **state)
{
	static const u64 stops[] = { 2, 4, 7, 9 };
	struct kvm_guest_debug debug = { .control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP };
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(steps), 1);
	KVM_CALL(g.vcpu[0], KVM_SET_GUEST_DEBUG, &debug);
	for (u32 i = 0; i < ARRAY_SIZE(stops); i++) {
		assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_DEBUG);
		assert_int_equal(g.run[0]->debug.arch.pc, IMAGE_CODE + stops[i]);
	}
	kvm_guest_destroy(&g);
}

/* Writes to a page, then once more by the answer of a device. */
GUEST_CODE(insb, "mov $0x200000, %edi\n"
		 "movb $1, (%rdi)\n"
		 "mov $0x1234, %dx\n"
		 "insb\n"
		 "hlt\n");

#define LOGGED 0x200000u

static bool was_written(struct kvm_guest *g)
{
	static u64 bitmap[IMAGE_RAM / PAGE_SIZE / 64];
	struct kvm_dirty_log log = { .slot = 0, .dirty_bitmap = bitmap };
	u32 page = LOGGED / PAGE_SIZE;

	KVM_CALL(g->vm, KVM_GET_DIRTY_LOG, &log);
	return bitmap[page / 64] & BIT(page % 64);
}

static void an_answer_that_is_stored_is_in_the_dirty_log(void **state)
{
	struct kvm_userspace_memory_region region = { .flags = KVM_MEM_LOG_DIRTY_PAGES,
						      .memory_size = IMAGE_RAM };
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(insb), 1);
	region.userspace_addr = (u64)(uintptr_t)g.ram;
	KVM_CALL(g.vm, KVM_SET_USER_MEMORY_REGION, &region);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	assert_true(was_written(&g));
	*(u8 *)kvm_io_data(g.run[0]) = 0x5a;
	g.run[0]->immediate_exit = 1; /* as programs do before they save a state */
	assert_int_equal(kvm_guest_run(&g, 0), -EINTR);
	assert_int_equal(g.ram[LOGGED], 0x5a);
	assert_true(was_written(&g));
	kvm_guest_destroy(&g);
}

/* As QEMU's vmport does. */
GUEST_CODE(vmport, "mov $0x5658, %edx\n"
		   "in %dx, %eax\n"
		   "out %eax, $0x21\n"
		   "mov $0x5658, %edx\n"
		   "out %eax, %dx\n"
		   "out %eax, $0x22\n");

static void clear_rdx(struct kvm_guest *g)
{
	struct kvm_regs regs;

	KVM_CALL(g->vcpu[0], KVM_GET_REGS, &regs);
	regs.rdx = 0;
	KVM_CALL(g->vcpu[0], KVM_SET_REGS, &regs);
}

static void a_program_may_change_the_port_before_it_answers(void **state)
{
	const u32 answer = 0x11223344;
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(vmport), 1);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	assert_int_equal(g.run[0]->io.port, 0x5658);
	memcpy(kvm_io_data(g.run[0]), &answer, 4);
	clear_rdx(&g);
	expect_out(&g, 0x21, 4, answer);
	expect_out(&g, 0x5658, 4, answer);
	clear_rdx(&g);
	expect_out(&g, 0x22, 4, answer);
	kvm_guest_destroy(&g);
}

/* The handlers tell the low byte of the address that they return to. */
GUEST_CODE(faulting, "nop\n"
		     "int3\n"
		     "faulting_next: in $0x10, %al\n"
		     "faulting_last: out %al, $0x21\n"
		     "hlt\n"
		     "faulting_handler: pop %rcx; mov %ecx, %eax; out %al, $0x20\n"
		     "push %rcx; iretq\n"
		     "faulting_error: pop %rdx; mov %al, %bl; jmp faulting_handler\n");

extern const u8 faulting_next[], faulting_last[], faulting_handler[], faulting_error[];

static u64 in_faulting(const u8 *label)
{
	return IMAGE_CODE + (label - faulting_start);
}

static void set_exception(struct kvm_guest *g, u8 vector, bool has_error)
{
	struct kvm_vcpu_events events;

	KVM_CALL(g->vcpu[0], KVM_GET_VCPU_EVENTS, &events);
	events.exception.injected = 1;
	events.exception.nr = vector;
	events.exception.has_error_code = has_error;
	KVM_CALL(g->vcpu[0], KVM_SET_VCPU_EVENTS, &events);
}

static void a_breakpoint_that_the_program_returns_is_after_its_instruction(void **state)
{
	struct kvm_guest_debug debug = { .control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_SW_BP };
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(faulting), 1);
	image_gate(g.ram, 3, in_faulting(faulting_handler), 0);
	KVM_CALL(g.vcpu[0], KVM_SET_GUEST_DEBUG, &debug);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_DEBUG);
	assert_int_equal(g.run[0]->debug.arch.pc, in_faulting(faulting_next) - 1);
	set_exception(&g, 3, false);
	expect_out(&g, 0x20, 1, (u8)in_faulting(faulting_next));
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	assert_int_equal(g.run[0]->io.port, 0x10);
	kvm_guest_destroy(&g);
}

static void an_exception_of_the_program_comes_after_what_it_answers(void **state)
{
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(faulting), 1);
	image_gate(g.ram, 13, in_faulting(faulting_error), 0);
	kvm_guest_set_rip(&g, 0, in_faulting(faulting_next));
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	assert_int_equal(g.run[0]->io.port, 0x10);
	*(u8 *)kvm_io_data(g.run[0]) = 0x77;
	set_exception(&g, 13, true);
	expect_out(&g, 0x20, 1, (u8)in_faulting(faulting_last));
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO); /* not asked again */
	assert_int_equal(g.run[0]->io.port, 0x21);
	kvm_guest_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ports_exit_with_their_data),
		cmocka_unit_test(device_memory_exits_with_its_data),
		cmocka_unit_test(a_triple_fault_is_a_shutdown),
		cmocka_unit_test(unmapped_code_is_a_page_fault),
		cmocka_unit_test(code_in_device_memory_is_an_internal_error),
		cmocka_unit_test(a_signal_interrupts_a_running_guest),
		cmocka_unit_test(endless_faults_can_be_interrupted),
		cmocka_unit_test(immediate_exit_leaves_the_guest_untouched),
		cmocka_unit_test(single_steps_stop_at_each_instruction),
		cmocka_unit_test(an_answer_that_is_stored_is_in_the_dirty_log),
		cmocka_unit_test(a_program_may_change_the_port_before_it_answers),
		cmocka_unit_test(a_breakpoint_that_the_program_returns_is_after_its_instruction),
		cmocka_unit_test(an_exception_of_the_program_comes_after_what_it_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
