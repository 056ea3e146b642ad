// SPDX-License-Identifier: MIT
/*
 * How many zones and ioeventfds a VM takes, which of them a write finds, and what an eventfd is
 * known by where there is no /proc. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define PORT	  0xf4
#define EVENTS	  1500u
#define ZONES	  1000u /* KVM: NR_IOBUS_DEVS */
#define THE_EVENT 1234u /* its data, and its address in words */

/* Three writes for an ioeventfd, then three that differ from these a little. */
GUEST_CODE(ringing, "mov $1234, %eax; out %eax, $0xf4\n"
		    "mov %eax, 0x401348\n"
		    "mov %ax, 0x401348\n"
		    "mov $0x105d2, %eax; out %eax, $0xf4\n"
		    "mov %ax, 0x40134a\n"
		    "mov %eax, 0x5fff00\n"
		    "hlt\n");

static struct kvm_guest g;

static int setup(void **state)
{
	(void)state;
	kvm_guest_create(&g, ringing_start, ringing_end - ringing_start, 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	kvm_guest_destroy(&g);
	return 0;
}

static void allow_descriptors(rlim_t wanted)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur >= wanted)
		return;
	limit.rlim_cur = wanted;
	if (limit.rlim_max < wanted)
		limit.rlim_max = wanted;
	if (setrlimit(RLIMIT_NOFILE, &limit)) {
		print_message("SKIP: no %lu descriptors here\n", (unsigned long)wanted);
		skip();
	}
}

static struct kvm_ioeventfd on_port(u32 data, int fd)
{
	return (struct kvm_ioeventfd){ .datamatch = data,
				       .addr = PORT,
				       .len = 4,
				       .fd = fd,
				       .flags = KVM_IOEVENTFD_FLAG_PIO |
						KVM_IOEVENTFD_FLAG_DATAMATCH };
}

static struct kvm_ioeventfd in_memory(u32 word, u32 len, int fd)
{
	return (struct kvm_ioeventfd){ .addr = IMAGE_MMIO + 4 * word, .len = len, .fd = fd };
}

static void assign(struct kvm_ioeventfd event)
{
	KVM_CALL(g.vm, KVM_IOEVENTFD, &event);
}

static void deassign(struct kvm_ioeventfd event)
{
	event.flags |= KVM_IOEVENTFD_FLAG_DEASSIGN;
	KVM_CALL(g.vm, KVM_IOEVENTFD, &event);
}

/* One after the other from a place in the middle, so that no order helps. */
static u32 shuffled(u32 i)
{
	return (i * 7 + EVENTS / 2) % EVENTS;
}

static u64 ticks(int fd)
{
	eventfd_t n = 0;

	eventfd_read(fd, &n);
	return n;
}

static void a_vm_takes_more_than_a_thousand_ioeventfds(void **state)
{
	int wanted = eventfd(0, EFD_NONBLOCK), other = eventfd(0, EFD_NONBLOCK);

	(void)state;
	allow_descriptors(2 * EVENTS + 200);
	for (u32 i = 0; i < EVENTS; i++) {
		u32 n = shuffled(i);
		int fd = n == THE_EVENT ? wanted : other;

		assign(on_port(n, fd));
		assign(in_memory(n, 4, fd));
	}
	assign(in_memory(THE_EVENT, 2, wanted)); /* another size is another write */
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	assert_int_equal(ticks(wanted), 3);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_MMIO);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_MMIO);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	assert_int_equal(ticks(wanted), 0);
	assert_int_equal(ticks(other), 0);
	for (u32 n = 0; n < EVENTS; n++)
		deassign(on_port(n, n == THE_EVENT ? wanted : other));
	close(wanted);
	close(other);
}

static void an_ioeventfd_can_be_assigned_again_beside_another(void **state)
{
	int fd[2] = { eventfd(0, EFD_NONBLOCK), eventfd(0, EFD_NONBLOCK) };

	(void)state;
	assign(on_port(1, fd[0]));
	assign(on_port(2, fd[1]));
	for (u32 i = 0; i < 6; i++) {
		deassign(on_port(1 + i % 2, fd[i % 2]));
		assign(on_port(1 + i % 2, fd[i % 2]));
	}
	close(fd[0]);
	close(fd[1]);
}

static int coalesce(u32 pio, u32 i)
{
	struct kvm_coalesced_mmio_zone zone = { .addr = (pio ? 0x1000 : IMAGE_MMIO) + 4 * i,
						.size = 4,
						.pio = pio };

	return ioctl(g.vm, KVM_REGISTER_COALESCED_MMIO, &zone) ? errno : 0;
}

static void each_bus_takes_a_thousand_coalescing_zones(void **state)
{
	struct kvm_ioeventfd event = in_memory(ZONES + 8, 4, eventfd(0, 0));

	(void)state;
	assign(event);
	for (u32 pio = 0; pio < 2; pio++) {
		for (u32 i = 0; i < ZONES; i++)
			assert_int_equal(coalesce(pio, i), 0);
		assert_int_equal(coalesce(pio, ZONES), ENOSPC);
	}
	deassign(event);
	assert_int_equal(ioctl(g.vm, KVM_IOEVENTFD, &event), -1); /* KVM: nor this */
	assert_int_equal(errno, ENOSPC);
	close(event.fd);
}

/* --- where there is no /proc --- */

enum { NOT_ALLOWED = 100 };

static int ioeventfd_errno(int vm, int fd)
{
	struct kvm_ioeventfd event = { .addr = IMAGE_MMIO, .len = 4, .fd = fd };

	return ioctl(vm, KVM_IOEVENTFD, &event) ? errno : 0;
}

static int irqfd_errno(int vm, int fd)
{
	struct kvm_irqfd irqfd = { .gsi = 5, .fd = fd };

	return ioctl(vm, KVM_IRQFD, &irqfd) ? errno : 0;
}

/* The first that is not as it should be, from 1; or 0. */
static int check_files(int vm)
{
	int pipes[2], sockets[2], file = open("file", O_RDWR | O_CREAT, 0600), full;

	if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || file < 0)
		return 1;
	unlink("file");
	const int others[] = {
		pipes[0],	 pipes[1], sockets[0], file, timerfd_create(CLOCK_MONOTONIC, 0),
		epoll_create1(0)
	};
	for (u32 i = 0; i < ARRAY_SIZE(others); i++)
		if (ioeventfd_errno(vm, others[i]) != EINVAL ||
		    irqfd_errno(vm, others[i]) != EINVAL)
			return 10 + i;
	if (ioeventfd_errno(vm, 1000) != EBADF)
		return 2;
	full = eventfd(0, 0);
	eventfd_write(full, ~0ull - 1);
	if (ioeventfd_errno(vm, full))
		return 3;
	return irqfd_errno(vm, eventfd(0, EFD_NONBLOCK)) ? 4 : 0;
}

static int in_chroot(const char *root)
{
	int kvm, vm;

	if (geteuid() && unshare(CLONE_NEWUSER))
		return NOT_ALLOWED;
	kvm = open("/dev/kvm", O_RDWR);
	vm = KVM_CALL(kvm, KVM_CREATE_VM, NULL);
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
	if (chroot(root) || chdir("/"))
		return NOT_ALLOWED;
	return access("/proc/self/fd", F_OK) ? check_files(vm) : NOT_ALLOWED;
}

static void an_eventfd_is_known_without_proc(void **state)
{
	char root[] = "/tmp/vpmu-zones-XXXXXX";
	int status = 0;
	pid_t child;

	(void)state;
	assert_non_null(mkdtemp(root));
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(in_chroot(root));
	assert_int_equal(waitpid(child, &status, 0), child);
	rmdir(root);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NOT_ALLOWED) {
		print_message("SKIP: chroot is not allowed here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_vm_takes_more_than_a_thousand_ioeventfds, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_ioeventfd_can_be_assigned_again_beside_another,
						setup, teardown),
		cmocka_unit_test_setup_teardown(each_bus_takes_a_thousand_coalescing_zones, setup,
						teardown),
		cmocka_unit_test(an_eventfd_is_known_without_proc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
