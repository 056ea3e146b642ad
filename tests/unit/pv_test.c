// SPDX-License-Identifier: MIT
/*
 * What a guest and its hypervisor arrange with each other: hypercalls, clock pages, steal time,
 * injected machine checks. A real VM with a page of memory, that never runs.
 */
#include <errno.h>
#include <linux/kvm_para.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "unit/plain_vcpu.h"
#include "vm/irq/apic.h"
#include "vm/pv.h"

#define MEMORY (1ull << 30)
#define PAGES  2

/* pvclock_vcpu_time_info and pvclock_wall_clock of the guest's ABI. */
struct time_page {
	u32 version, pad;
	u64 tsc, ns;
	u32 mul;
	s8 shift;
	u8 flags, pad2[2];
};

struct wall_page {
	u32 version, sec, nsec;
};

static struct vm *vm;
static struct vcpu *vcpu, *other;
static u8 *memory;

static struct vcpu *add_vcpu(u32 id)
{
	struct vcpu *made = plain_vcpu(vm, id);

	made->cpu->seg[CS].attr |= SEG_L;
	made->cpu->efer |= EFER_LMA;
	return made;
}

static int setup(void **state)
{
	struct kvm_userspace_memory_region2 region = { .guest_phys_addr = MEMORY,
						       .memory_size = PAGES * PAGE_SIZE };

	(void)state;
	vm = vm_create(model_find("milan"));
	vm_create_irqchip(vm);
	memory = mmap(NULL, PAGES * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	region.userspace_addr = (uintptr_t)memory;
	assert_int_equal(vm_set_memory_region(vm, &region), 0);
	vcpu = add_vcpu(0);
	other = add_vcpu(1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	vm_put(vm);
	munmap(memory, PAGES * PAGE_SIZE);
	return 0;
}

static enum pv_result call(u64 nr, u64 a0, u64 a1, u64 a2, u64 a3)
{
	static const u8 vmmcall[] = { 0x0f, 0x01, 0xd9 };
	struct cpu *cpu = vcpu->cpu;
	enum pv_result result;

	cpu->regs[RAX] = nr;
	cpu->regs[RBX] = a0;
	cpu->regs[RCX] = a1;
	cpu->regs[RDX] = a2;
	cpu->regs[RSI] = a3;
	cpu->port.exit.insn_len = sizeof(vmmcall);
	memcpy(cpu->port.exit.insn_bytes, vmmcall, sizeof(vmmcall));
	vcpu_section_begin(vcpu);
	result = pv_hypercall(vcpu);
	vcpu_section_end(vcpu);
	return result;
}

static void unknown_and_user_mode_calls_are_refused(void **state)
{
	(void)state;
	assert_int_equal(call(4711, 0, 0, 0, 0), PV_DONE);
	assert_int_equal(vcpu->cpu->regs[RAX], (u64)-KVM_ENOSYS);
	vcpu->cpu->cpl = 3;
	assert_int_equal(call(KVM_HC_VAPIC_POLL_IRQ, 0, 0, 0, 0), PV_DONE);
	assert_int_equal(vcpu->cpu->regs[RAX], (u64)-KVM_EPERM);
}

static void enforced_cpuid_hides_calls(void **state)
{
	static const u64 calls[] = { KVM_HC_KICK_CPU, KVM_HC_SEND_IPI, KVM_HC_SCHED_YIELD };

	(void)state;
	assert_true(pv_features(vcpu) & BIT(KVM_FEATURE_CLOCKSOURCE2));
	vcpu->enforce_pv_cpuid = true;
	vcpu->ncpuid = 0;
	for (u32 i = 0; i < ARRAY_SIZE(calls); i++) {
		assert_int_equal(call(calls[i], 0, 0, 0, 0), PV_DONE);
		assert_int_equal(vcpu->cpu->regs[RAX], (u64)-KVM_ENOSYS);
	}
}

static void send_ipi_reaches_the_vcpus_of_its_bitmap(void **state)
{
	u32 svr = 0x1ff;

	(void)state;
	assert_true(apic_mmio_write(other, LAPIC_DEFAULT_BASE + LAPIC_SVR, 4, &svr));
	call(KVM_HC_SEND_IPI, 0x1f, 0, 0,
	     0x4045); /* the first is disabled by software, three do not exist */
	assert_int_equal(vcpu->cpu->regs[RAX], 1);
	assert_int_equal(lapic_pending(&other->lapic), 0x45);
	assert_true(other->requests & REQUEST_EVENT);
	call(KVM_HC_SEND_IPI, 1, 0, 1, 0x4046);
	assert_int_equal(lapic_pending(&other->lapic), 0x46);
	call(KVM_HC_SEND_IPI, 1, 0, 1, 0x4846);
	assert_int_equal(vcpu->cpu->regs[RAX], (u64)-KVM_EINVAL);
	call(KVM_HC_SEND_IPI, ~0ull, ~0ull, ~0ull - 5, 0x4046); /* absurd ids */
}

static void kick_cpu_unhalts_its_target(void **state)
{
	(void)state;
	call(KVM_HC_KICK_CPU, 0, 1, 0, 0);
	assert_int_equal(vcpu->cpu->regs[RAX], 0);
	assert_int_equal(lapic_take_events(&other->lapic, ~0u), LAPIC_EVENT_UNHALT);
}

static void map_gpa_range_is_the_programs(void **state)
{
	(void)state;
	call(KVM_HC_MAP_GPA_RANGE, MEMORY, 1, 0, 0);
	assert_int_equal(vcpu->cpu->regs[RAX], (u64)-KVM_ENOSYS);
	vm->set.hypercall_exits = BIT(KVM_HC_MAP_GPA_RANGE);
	assert_int_equal(call(KVM_HC_MAP_GPA_RANGE, MEMORY + 1, 1, 0, 0), PV_DONE);
	assert_int_equal(vcpu->cpu->regs[RAX], (u64)-KVM_EINVAL);
	assert_int_equal(call(KVM_HC_MAP_GPA_RANGE, MEMORY, ~0ull, 0, 0), PV_DONE);
	assert_int_equal(call(KVM_HC_MAP_GPA_RANGE, MEMORY, 2, 0x10, 0), PV_USER_EXIT);
	assert_int_equal(vcpu->run->exit_reason, KVM_EXIT_HYPERCALL);
	assert_int_equal(vcpu->run->hypercall.nr, KVM_HC_MAP_GPA_RANGE);
	assert_int_equal(vcpu->run->hypercall.args[1], 2);
	assert_int_equal(vcpu->run->hypercall.flags, KVM_EXIT_HYPERCALL_LONG_MODE);
	vcpu->run->hypercall.ret = 99;
	pv_finish(vcpu);
	assert_int_equal(vcpu->cpu->regs[RAX], 99);
}

static void clock_pairing_needs_memory(void **state)
{
	struct kvm_clock_pairing pairing;

	(void)state;
	if (!clock_tsc_stable()) {
		print_message("skipped: the host's TSC is not stable\n");
		skip();
	}
	call(KVM_HC_CLOCK_PAIRING, MEMORY, KVM_CLOCK_PAIRING_WALLCLOCK, 0, 0);
	assert_int_equal(vcpu->cpu->regs[RAX], 0);
	memcpy(&pairing, memory, sizeof(pairing));
	assert_true(pairing.sec > 1500000000);
	call(KVM_HC_CLOCK_PAIRING, 0x1000, KVM_CLOCK_PAIRING_WALLCLOCK, 0, 0);
	assert_int_equal(vcpu->cpu->regs[RAX], (u64)-KVM_EFAULT);
	call(KVM_HC_CLOCK_PAIRING, MEMORY, 1, 0, 0);
	assert_int_equal(vcpu->cpu->regs[RAX], (u64)-KVM_EOPNOTSUPP);
}

static void update(void (*what)(struct vcpu *))
{
	vcpu_section_begin(vcpu);
	what(vcpu);
	vcpu_section_end(vcpu);
}

static void the_clock_page_tells_the_vms_clock(void **state)
{
	struct time_page *page = (void *)(memory + 64);
	struct kvm_clock_data before, after;
	u64 ns;

	(void)state;
	assert_int_equal(msr_write(vcpu, MSR_KVM_SYSTEM_TIME_NEW, false, MEMORY + 64 + 1), MSR_OK);
	assert_true(vcpu->requests & REQUEST_CLOCK_UPDATE);
	vm_clock_get(vm, &before);
	update(vcpu_clock_update);
	ns = page->ns + clock_scale_apply((struct clock_scale){ page->mul, page->shift },
					  vcpu_tsc(vcpu) - page->tsc);
	vm_clock_get(vm, &after);
	assert_int_equal(page->version, 2);
	assert_int_equal(page->flags, clock_tsc_stable());
	assert_in_range(ns, before.clock, after.clock);
	assert_int_equal(vcpu_clock_guest_stopped(vcpu), 0);
	update(vcpu_clock_update);
	assert_true(page->flags & 2);
	page->flags = 0;
	update(vcpu_clock_update);
	assert_false(page->flags & 2);
	assert_int_equal(page->version, 6);
	assert_int_equal(vcpu_clock_guest_stopped(other), -EINVAL);
}

#define TIME_PAGE(which) (64 + 64 * (which)->id)

/* What a guest reads from its page at a moment of the host's TSC. */
static u64 time_at(const struct vcpu *which, u64 host_tsc)
{
	const struct time_page *page = (const void *)(memory + TIME_PAGE(which));
	struct clock_scale scale = { page->mul, page->shift };

	return page->ns + clock_scale_apply(scale, vcpu_tsc_at(which, host_tsc) - page->tsc);
}

static void set_up_time_page(struct vcpu *which, u32 msr)
{
	u64 value = MEMORY + TIME_PAGE(which) + KVM_MSR_ENABLED;

	assert_int_equal(msr_write(which, msr, false, value), MSR_OK);
	vcpu_section_begin(which);
	vcpu_clock_update(which);
	vcpu_section_end(which);
}

/* KVM's master clock: all pages start from one moment, which is one TSC and one time. */
static void the_clock_pages_of_all_vcpus_tell_the_same_time(void **state)
{
	static const struct row {
		const char *name;
		u32 msr;
		s32 ppm;	/* that TSCs are set to run faster than the host's */
		u64 difference; /* of the TSCs */
	} rows[] = {
		{ "old MSR", MSR_KVM_SYSTEM_TIME, 0, 0 },
		{ "new MSR", MSR_KVM_SYSTEM_TIME_NEW, 0, 0 },
		{ "TSCs that differ", MSR_KVM_SYSTEM_TIME_NEW, 0, 1ull << 40 },
		{ "a little faster", MSR_KVM_SYSTEM_TIME, 200, 0 },
		{ "faster", MSR_KVM_SYSTEM_TIME, 400000, 0 },
		{ "slower, and TSCs that differ", MSR_KVM_SYSTEM_TIME_NEW, -400000, 1ull << 40 },
	};

	(void)state;
	for (const struct row *r = rows; r < rows + ARRAY_SIZE(rows); r++) {
		u64 now, step = clock_host_khz() * 12345ull, khz = clock_host_khz();

		khz += (s64)khz * r->ppm / 1000000;
		assert_int_equal(vcpu_clock_set_khz(vcpu, khz), 0);
		assert_int_equal(vcpu_clock_set_khz(other, khz), 0);
		if (r->difference)
			vcpu_tsc_offset_write(other, vcpu_tsc_offset(vcpu) + r->difference);
		set_up_time_page(vcpu, r->msr);
		set_up_time_page(other, r->msr);
		now = clock_host_tsc();
		for (u64 tsc = now; tsc < now + 100 * step; tsc += step + 1)
			if (time_at(vcpu, tsc) != time_at(other, tsc))
				fail_msg("%s: %lu and %lu", r->name, time_at(vcpu, tsc),
					 time_at(other, tsc));
	}
}

/* KVM: a frequency close to the host's is not scaled to. The page must tell of the TSC that is. */
static void kvmclock_keeps_the_hosts_pace_whatever_the_tsc_is_said_to_run_at(void **state)
{
	static const s32 ppm[] = { 0, 200, -200, 400000, -400000 };
	u64 khz = clock_host_khz(), hour = khz * 3600000, now, told;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(ppm); i++) {
		assert_int_equal(vcpu_clock_set_khz(vcpu, khz + (s64)khz * ppm[i] / 1000000), 0);
		set_up_time_page(vcpu, MSR_KVM_SYSTEM_TIME_NEW);
		now = clock_host_tsc();
		told = time_at(vcpu, now + hour) - time_at(vcpu, now);
		/* 1 ppb, which is more than the scale's 32 bits leave out */
		assert_in_range(told, 3600000000000 - 3600, 3600000000000 + 3600);
	}
}

static void the_wall_clock_is_that_of_the_vms_start(void **state)
{
	struct wall_page page;
	u64 tsc, now = clock_real_ns(&tsc) / 1000000000;

	(void)state;
	memory[0] = 1; /* an odd version left over */
	assert_int_equal(msr_write(vcpu, MSR_KVM_WALL_CLOCK_NEW, false, MEMORY), MSR_OK);
	update(vcpu_clock_update);
	memcpy(&page, memory, sizeof(page));
	assert_int_equal(page.version, 4);
	assert_in_range(page.sec, now - 60, now + 1);
}

static void pages_outside_memory_are_left_alone(void **state)
{
	static const u8 zeros[PAGES * PAGE_SIZE];

	(void)state;
	msr_write(vcpu, MSR_KVM_SYSTEM_TIME_NEW, false, 0xfffffffffffff001);
	msr_write(vcpu, MSR_KVM_WALL_CLOCK, false, 0x5000);
	update(vcpu_clock_update);
	assert_int_equal(msr_write(vcpu, MSR_KVM_STEAL_TIME, false, ~0x3eull), MSR_OK);
	update(vcpu_steal_update);
	update(vcpu_steal_preempted);
	msr_write(vcpu, MSR_KVM_SYSTEM_TIME_NEW, false, (MEMORY + PAGES * PAGE_SIZE - 8) | 1);
	update(vcpu_clock_update);
	assert_memory_equal(memory, zeros, sizeof(zeros));
}

static void steal_time_is_versioned_and_shows_preemption(void **state)
{
	struct kvm_steal_time *page = (void *)(memory + 128);

	(void)state;
	assert_int_equal(msr_write(vcpu, MSR_KVM_STEAL_TIME, false, (MEMORY + 128) | 2), MSR_FAULT);
	assert_int_equal(msr_write(vcpu, MSR_KVM_STEAL_TIME, false, (MEMORY + 128) | 1), MSR_OK);
	update(vcpu_steal_update);
	assert_int_equal(page->version, 2);
	update(vcpu_steal_preempted);
	assert_int_equal(page->preempted, KVM_VCPU_PREEMPTED);
	page->preempted |= KVM_VCPU_FLUSH_TLB;
	update(vcpu_steal_update);
	assert_int_equal(page->preempted, 0);
	assert_int_equal(page->version, 4);
}

/* KVM_RUN may end again before the vCPU has looked. */
static void a_flush_that_another_vcpu_asks_for_is_kept(void **state)
{
	struct kvm_steal_time *page = (void *)(memory + 128);

	(void)state;
	assert_int_equal(msr_write(vcpu, MSR_KVM_STEAL_TIME, false, (MEMORY + 128) | 1), MSR_OK);
	update(vcpu_steal_update);
	update(vcpu_steal_preempted);
	page->preempted |= KVM_VCPU_FLUSH_TLB;
	update(vcpu_steal_preempted);
	assert_int_equal(page->preempted, KVM_VCPU_PREEMPTED | KVM_VCPU_FLUSH_TLB);
	update(vcpu_steal_update);
	update(vcpu_steal_preempted);
	assert_int_equal(page->preempted, KVM_VCPU_PREEMPTED);
}

static void a_machine_check_does_not_replace_an_interrupt_that_was_taken(void **state)
{
	struct kvm_x86_mce mce = { .bank = 9,
				   .status = BIT(63) | BIT(61) | BIT(57),
				   .mcg_status = 4 };
	struct kvm_vcpu_events events;

	(void)state;
	assert_int_equal(msr_setup_mce(vcpu, MCG_CTL_P | 10), 0);
	vcpu->cpu->cr4 |= CR4_MCE;
	vcpu->cpu->port.event = (struct cpu_event){ .kind = EVENT_INTR, .vector = 0x40 };
	assert_int_equal(msr_inject_mce(vcpu, &mce), 0);
	vcpu_get_events(vcpu, &events);
	assert_int_equal(events.exception.nr, VEC_MC);
	assert_true(events.interrupt.injected);
	assert_int_equal(events.interrupt.nr, 0x40);
}

static void a_machine_check_is_raised_or_shuts_down(void **state)
{
	struct kvm_x86_mce mce = { .bank = 9,
				   .status = BIT(63) | BIT(61) | BIT(57),
				   .mcg_status = 4 };

	(void)state;
	assert_int_equal(msr_setup_mce(vcpu, MCG_CTL_P | 10), 0);
	vcpu->cpu->cr4 |= CR4_MCE;
	assert_int_equal(msr_inject_mce(vcpu, &mce), 0);
	assert_int_equal(vcpu->cpu->port.event.vector, VEC_MC);
	assert_int_equal(vcpu->msrs.mce_bank[4 * 9 + 1], mce.status);
	assert_false(vcpu->events.triple_fault);
	assert_int_equal(msr_inject_mce(vcpu, &mce), 0); /* in the handler of the first */
	assert_true(vcpu->events.triple_fault);
	mce.bank = 10;
	assert_int_equal(msr_inject_mce(vcpu, &mce), -EINVAL);
	mce = (struct kvm_x86_mce){ .bank = 0, .status = 1 };
	assert_int_equal(msr_inject_mce(vcpu, &mce), -EINVAL); /* not valid */
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unknown_and_user_mode_calls_are_refused),
		TEST(enforced_cpuid_hides_calls),
		TEST(send_ipi_reaches_the_vcpus_of_its_bitmap),
		TEST(kick_cpu_unhalts_its_target),
		TEST(map_gpa_range_is_the_programs),
		TEST(clock_pairing_needs_memory),
		TEST(the_clock_page_tells_the_vms_clock),
		TEST(the_clock_pages_of_all_vcpus_tell_the_same_time),
		TEST(kvmclock_keeps_the_hosts_pace_whatever_the_tsc_is_said_to_run_at),
		TEST(the_wall_clock_is_that_of_the_vms_start),
		TEST(pages_outside_memory_are_left_alone),
		TEST(steal_time_is_versioned_and_shows_preemption),
		TEST(a_flush_that_another_vcpu_asks_for_is_kept),
		TEST(a_machine_check_does_not_replace_an_interrupt_that_was_taken),
		TEST(a_machine_check_is_raised_or_shuts_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
