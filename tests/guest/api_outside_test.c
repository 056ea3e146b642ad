// SPDX-License-Identifier: MIT
/*
 * Virtual time and what lies outside of the guest (docs/clock.md): a kick is served, and its
 * interrupt taken, before the next instruction, however long the device takes; a guest that waits
 * for the host stands still; random numbers follow from a seed. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/inherited.h"
#include "base/memfile.h"
#include "base/turns.h"
#include "guest/kvm_guest.h"

#define GSI    24
#define VECTOR 0x51
#define LAPIC  0xfee00000u
#define KICKS  50

#define X2APIC                                             \
	"mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n" \
	"mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"

/* Kicks, R8 times. The handler adds to R9 how long after the kick it comes, and counts in R10. RAX:
 * the TSC at the end. */
GUEST_CODE(kicking, X2APIC "sti\n"
			   "1: movl $1, 0x400000\n"
			   "behind_kick: nop; nop; nop\n"
			   "dec %r8; jnz 1b\n"
			   "rdtsc; shl $32, %rdx; or %rdx, %rax\n"
			   "out %al, $0xf4\n"
			   "kick_handler:\n"
			   "mov (%rsp), %rbx; lea behind_kick(%rip), %rcx; sub %rcx, %rbx; add %rbx, %r9\n"
			   "inc %r10\n"
			   "mov $0x80b, %ecx; xor %eax, %eax; xor %edx, %edx; wrmsr\n"
			   "iretq\n");

/* Waits for the host twice. RAX: the TSC. */
GUEST_CODE(waiting, "mov $0x5650, %edx; out %al, %dx\n"
		    "out %al, $0xf4\n"
		    "mov $0x5650, %edx; out %al, %dx\n"
		    "rdtsc; shl $32, %rdx; or %rdx, %rax; out %al, $0xf4\n");

/* R8, R9, R10: random numbers; R11: flags. */
GUEST_CODE(random_numbers, "rdrand %r8; rdseed %r9; xor %r10, %r10; dec %r10; rdrand %r10w\n"
			   "pushf; pop %r11; out %al, $0xf4\n");

extern const u8 kick_handler[];

static struct kvm_guest g;
static struct turns *page;

#define START(name, prepare) \
	kvm_guest_create_with(&g, name##_start, name##_end - name##_start, 1, prepare)

static void with_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static struct kvm_regs run_to_end(void)
{
	struct kvm_regs regs;
	int reason;

	do
		reason = kvm_guest_run(&g, 0);
	while (reason == -EINTR);
	assert_int_equal(reason, KVM_EXIT_IO);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	return regs;
}

struct device {
	int kick, call;
	bool is_slow;
};

static void pause_host(void)
{
	struct timespec pause = { .tv_nsec = 2000000 };

	nanosleep(&pause, NULL);
}

/* In its own time: late to read, slow to work, and as base/turns.h wants it. */
static void *serve(void *arg)
{
	struct device *device = arg;
	struct pollfd wait = { device->kick, POLLIN, 0 };
	eventfd_t count;

	for (u32 i = 0; i < KICKS && poll(&wait, 1, 20000) == 1; i++) {
		if (device->is_slow && i % 5 == 0)
			pause_host();
		turns_begin(page);
		eventfd_read(device->kick, &count);
		if (device->is_slow && i % 5 == 1)
			pause_host();
		eventfd_write(device->call, 1);
		turns_end(page);
	}
	return NULL;
}

static void serve_once(const struct device *device, struct turns *turns)
{
	eventfd_t count;

	turns_begin(turns);
	eventfd_read(device->kick, &count);
	eventfd_write(device->call, 1);
	turns_end(turns);
}

static void connect_device(const struct device *device)
{
	struct kvm_ioeventfd kick = { .addr = IMAGE_MMIO, .len = 4, .fd = device->kick };
	struct kvm_irqfd call = { .fd = device->call, .gsi = GSI };
	struct { /* kvm_irq_routing with one entry */
		u32 nr, flags;
		struct kvm_irq_routing_entry entry;
	} routes = { 1,
		     0,
		     { .gsi = GSI,
		       .type = KVM_IRQ_ROUTING_MSI,
		       .u.msi = { .address_lo = LAPIC, .data = VECTOR } } };

	KVM_CALL(g.vm, KVM_SET_GSI_ROUTING, &routes);
	KVM_CALL(g.vm, KVM_IOEVENTFD, &kick);
	KVM_CALL(g.vm, KVM_IRQFD, &call);
}

static u64 kick(bool is_slow)
{
	struct device device = { eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC), is_slow };
	struct kvm_regs regs = { .rip = IMAGE_CODE, .rflags = 2, .rsp = IMAGE_STACK, .r8 = KICKS };
	pthread_t thread;

	START(kicking, with_irqchip);
	image_gate(g.ram, VECTOR, IMAGE_CODE + (kick_handler - kicking_start), 0);
	connect_device(&device);
	KVM_CALL(g.vcpu[0], KVM_SET_REGS, &regs);
	assert_int_equal(pthread_create(&thread, NULL, serve, &device), 0);
	regs = run_to_end();
	pthread_join(thread, NULL);
	assert_int_equal(regs.r10, KICKS);
	assert_int_equal(regs.r9, 0); /* right after the kick, each time */
	kvm_guest_destroy(&g);
	close(device.kick);
	close(device.call);
	return regs.rax;
}

static struct turns *make_page(void)
{
	int fd = memfile_create("turns", MFD_CLOEXEC);
	void *map;

	if (fd < 0 || ftruncate(fd, PAGE_SIZE))
		return NULL;
	map = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!inherited_export("VPMU_TURNS", &fd, 1)) /* for VMs that are made from now on */
		return NULL;
	return map == MAP_FAILED ? NULL : map;
}

static void kick_once(struct device *device)
{
	struct kvm_regs regs = { .rip = IMAGE_CODE, .rflags = 2, .rsp = IMAGE_STACK, .r8 = 1 };

	*device = (struct device){ eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC), false };
	START(kicking, with_irqchip);
	image_gate(g.ram, VECTOR, IMAGE_CODE + (kick_handler - kicking_start), 0);
	connect_device(device);
	KVM_CALL(g.vcpu[0], KVM_SET_REGS, &regs);
}

static void *run_guest(void *guest)
{
	while (kvm_guest_run(guest, 0) == -EINTR)
		;
	return NULL;
}

/*
 * As in a program that reads its ioeventfds on the vCPU's own thread. Takes the ten seconds that
 * the library is patient for. A guest that is to have endless patience has it: it kicked before the
 * other one, and is served after that has gone on.
 */
static void a_kick_that_nobody_reads_holds_the_guest_up_for_a_while(void **state)
{
	char *usual = strdup(getenv("VPMU_TURNS"));
	struct turns *endless = make_page();
	struct device device, other;
	struct kvm_guest patient;
	struct kvm_regs regs;
	struct pollfd kicked;
	pthread_t thread;

	(void)state;
	assert_non_null(endless);
	endless->endless = 1;
	kick_once(&other);
	patient = g;
	kicked = (struct pollfd){ other.kick, POLLIN, 0 };
	assert_int_equal(pthread_create(&thread, NULL, run_guest, &patient), 0);
	assert_int_equal(poll(&kicked, 1, -1), 1);
	setenv("VPMU_TURNS", usual, 1);
	kick_once(&device);
	regs = run_to_end();
	assert_int_equal(regs.r10, 0); /* interrupts */
	kvm_guest_destroy(&g);
	assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
	serve_once(&other, endless);
	pthread_join(thread, NULL);
	KVM_CALL(patient.vcpu[0], KVM_GET_REGS, &regs);
	assert_int_equal(regs.r10, 1);
	assert_int_equal(regs.r9, 0);
	kvm_guest_destroy(&patient);
	free(usual);
	close(device.kick);
	close(device.call);
	close(other.kick);
	close(other.call);
}

static void a_kick_is_served_before_the_next_instruction(void **state)
{
	u64 quick = kick(false);

	(void)state;
	assert_int_equal(kick(true), quick);
}

/* Puts a word into memory, and after a while, R8 rounds, kicks. The handler is the one above. */
GUEST_CODE(queueing, X2APIC "sti\n"
			    "movl $1, 0x100000\n"
			    "1: dec %r8; jnz 1b\n"
			    "movl $1, 0x400000\n"
			    "queued: out %al, $0xf4\n"
			    "queue_handler:\n"
			    "mov (%rsp), %rbx; lea queued(%rip), %rcx; sub %rcx, %rbx; add %rbx, %r9\n"
			    "inc %r10\n"
			    "mov $0x80b, %ecx; xor %eax, %eax; xor %edx, %edx; wrmsr\n"
			    "iretq\n");

extern const u8 queue_handler[];

/* Looks for the word after each kick. The first one comes with the device, which is late for it: as
 * late as it has to be to find the word, if the guest does not wait for it. */
static void *serve_queue(void *arg)
{
	const struct device *device = arg;
	struct pollfd wait = { device->kick, POLLIN, 0 };
	u32 *queue = (u32 *)(g.ram + IMAGE_DATA);
	eventfd_t count;

	for (u32 i = 0; i < 2 && poll(&wait, 1, 20000) == 1; i++) {
		for (u32 n = 0; !i && n < 200 && !READ_ONCE(*queue); n++)
			pause_host();
		turns_begin(page);
		eventfd_read(device->kick, &count);
		if (__atomic_exchange_n(queue, 0, __ATOMIC_SEQ_CST))
			eventfd_write(device->call, 1);
		turns_end(page);
	}
	return NULL;
}

/* QEMU's ioeventfds are signalled when they are made. */
static void a_device_that_begins_with_a_kick_is_waited_for(void **state)
{
	struct device device = { eventfd(1, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC), true };
	struct kvm_regs regs = {
		.rip = IMAGE_CODE, .rflags = 2, .rsp = IMAGE_STACK, .r8 = 100000000
	};
	pthread_t thread;

	(void)state;
	START(queueing, with_irqchip);
	image_gate(g.ram, VECTOR, IMAGE_CODE + (queue_handler - queueing_start), 0);
	connect_device(&device);
	KVM_CALL(g.vcpu[0], KVM_SET_REGS, &regs);
	assert_int_equal(pthread_create(&thread, NULL, serve_queue, &device), 0);
	regs = run_to_end();
	pthread_join(thread, NULL);
	assert_int_equal(regs.r10, 1);
	assert_int_equal(regs.r9, 0); /* after its own kick */
	kvm_guest_destroy(&g);
	close(device.kick);
	close(device.call);
}

/* Once it waits, or twenty seconds have passed. */
static void *call_later(void *arg)
{
	(void)arg;
	for (u32 n = 0; n < 10000 && !turns_read(&page->waits); n++)
		pause_host();
	turns_call(page);
	return NULL;
}

/* The first call has come before, the second comes while it waits. */
static void a_guest_that_waits_for_the_host_stands_still(void **state)
{
	pthread_t thread;

	(void)state;
	START(waiting, NULL);
	turns_call(page);
	run_to_end();
	assert_false(page->waits); /* it did not have to */
	assert_int_equal(pthread_create(&thread, NULL, call_later, NULL), 0);
	assert_in_range(run_to_end().rax, 1, 200);
	assert_true(page->waits);
	pthread_join(thread, NULL);
	kvm_guest_destroy(&g);
	page->calls = page->waits = 0;
}

static struct kvm_regs draw(const char *seed)
{
	struct kvm_regs regs;

	setenv("VPMU_SEED", seed, 1);
	START(random_numbers, NULL);
	regs = run_to_end();
	kvm_guest_destroy(&g);
	unsetenv("VPMU_SEED");
	return regs;
}

static void random_numbers_follow_from_the_seed(void **state)
{
	struct kvm_regs first = draw("1"), again = draw("1"), other = draw("2");

	(void)state;
	assert_memory_equal(&first, &again, sizeof(first));
	assert_true(first.r8 != first.r9 && first.r8 != other.r8 && first.r9 != other.r9);
	assert_int_equal(first.r10 >> 16, 0xffffffffffffull); /* a word leaves the rest */
	assert_int_equal(first.r11 & 0x8d5, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_kick_is_served_before_the_next_instruction),
		cmocka_unit_test(a_device_that_begins_with_a_kick_is_waited_for),
		cmocka_unit_test(a_kick_that_nobody_reads_holds_the_guest_up_for_a_while),
		cmocka_unit_test(a_guest_that_waits_for_the_host_stands_still),
		cmocka_unit_test(random_numbers_follow_from_the_seed),
	};

	setenv("VPMU_CLOCK", "virtual", 1); /* the library reads these when a VM is made */
	page = make_page();
	if (!page)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
