// SPDX-License-Identifier: MIT
/*
 * A guest for fuzz targets of the KVM API: see busy_guest.h.
 */
#include "fuzz/busy_guest.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/must.h"

#define RUN_NS 2000000

static timer_t timer;

/* Calls, memory, ports, MMIO, CPUID, MSRs, the local APIC, HLT; again and again. */
GUEST_CODE(busy, "1: mov $3, %ecx\n"
		 "2: call 3f\n loop 2b\n"
		 "mov $0x100000, %ebx\n incq (%rbx)\n mov $0x400000, %ebx\n mov %eax, (%rbx)\n"
		 "mov $0x80, %edx\n out %al, %dx\n in %dx, %al\n"
		 "xor %eax, %eax\n cpuid\n mov $0x1b, %ecx\n rdmsr\n wrmsr\n rdtsc\n sti\n nop\n"
		 "cli\n"
		 "mov 0xfee00020, %eax\n sti\n hlt\n jmp 1b\n"
		 "3: movups %xmm0, -64(%rsp)\n ret\n");

static void on_signal(int sig)
{
	(void)sig;
}

/* To this thread: the library's own threads take no signals. */
void busy_set_up(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = BUSY_SIGNAL };

	event._sigev_un._tid = gettid();
	setenv("VPMU_CONTROL", "off", 1);
	must(!sigaction(BUSY_SIGNAL, &action, NULL));
	must(!timer_create(CLOCK_MONOTONIC, &event, &timer));
}

static void create_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static void create_irqchip_pit(int vm)
{
	struct kvm_pit_config config = { 0 };

	create_irqchip(vm);
	KVM_CALL(vm, KVM_CREATE_PIT2, &config);
}

void busy_create(struct kvm_guest *g, u8 flags)
{
	void (*prepare)(int vm) = flags & BUSY_PIT ? create_irqchip_pit : create_irqchip;

	kvm_guest_create_with(g, busy_start, (size_t)(busy_end - busy_start),
			      flags & BUSY_TWO ? 2 : 1,
			      flags & (BUSY_IRQCHIP | BUSY_PIT) ? prepare : NULL);
}

/* The signal comes again and again: a guest may sleep, and the first one may come too early. */
static void set_timer(long ns)
{
	const struct itimerspec when = { { 0, ns }, { 0, ns } };

	must(!timer_settime(timer, 0, &when, NULL));
}

void busy_run(struct kvm_guest *g, u8 vcpu)
{
	set_timer(RUN_NS);
	kvm_guest_run(g, vcpu % g->nvcpus);
	set_timer(0);
}

u32 busy_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	u32 n = 0;

	must(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}
