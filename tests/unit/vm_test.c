// SPDX-License-Identifier: MIT
/*
 * The hypervisor's own parts without a guest: slots and their dirty logs, waiting for vCPUs, events
 * and registers as they go in and come out.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/fpu.h"
#include "vm/cpuid/cpuid.h"
#include "vm/io.h"
#include "vm/vm.h"

#define BASE  0x100000ull
#define PAGES 100u
#define HOST  0x700000000000ull /* never touched */

struct machine {
	struct vm *vm;
	struct vcpu *vcpu;
};

static int setup(void **state)
{
	static struct machine m;
	void *run = mmap(NULL, VCPU_MMAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);

	m.vm = vm_create(cpuid_model("icelake"));
	assert_non_null(m.vm);
	assert_int_equal(vm_create_irqchip(m.vm), 0);
	assert_int_equal(vcpu_create(m.vm, 0, run, &m.vcpu), 0);
	*state = &m;
	return 0;
}

static int teardown(void **state)
{
	struct machine *m = *state;

	vm_put(m->vm);
	return 0;
}

static int set_slot(struct vm *vm, u64 base, u64 pages, u32 flags)
{
	struct kvm_userspace_memory_region2 region = { .slot = 1,
						       .flags = flags,
						       .guest_phys_addr = base,
						       .memory_size = pages * PAGE_SIZE,
						       .userspace_addr = HOST };

	return vm_set_memory_region(vm, &region);
}

static void touch(struct vm *vm, u64 page)
{
	gpa_t gpa = BASE + page * PAGE_SIZE;

	mem_mark_dirty(mem_find(vm->mem, gpa), gpa);
}

static int get_log(struct vm *vm, u64 bits[2])
{
	struct kvm_dirty_log log = { .slot = 1, .dirty_bitmap = bits };

	bits[0] = bits[1] = 0;
	return vm_get_dirty_log(vm, &log);
}

static int clear_log(struct vm *vm, u64 first, u32 n, u64 *bits)
{
	struct kvm_clear_dirty_log log = {
		.slot = 1, .first_page = first, .num_pages = n, .dirty_bitmap = bits
	};

	return vm_clear_dirty_log(vm, &log);
}

static void manual(struct vm *vm, u64 options)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
				      .args = { options } };

	assert_int_equal(vm_enable_cap(vm, &cap), 0);
}

static void the_log_is_given_once_and_then_empty(void **state)
{
	struct vm *vm = ((struct machine *)*state)->vm;
	u64 bits[2];

	assert_int_equal(set_slot(vm, BASE, PAGES, KVM_MEM_LOG_DIRTY_PAGES), 0);
	touch(vm, 3);
	touch(vm, 99);
	assert_int_equal(get_log(vm, bits), 0);
	assert_int_equal(bits[0], BIT(3));
	assert_int_equal(bits[1], BIT(35));
	assert_int_equal(get_log(vm, bits), 0);
	assert_int_equal(bits[0] | bits[1], 0);
}

static void the_manual_log_stays_until_it_is_cleared(void **state)
{
	struct vm *vm = ((struct machine *)*state)->vm;
	u64 bits[2], some[2] = { BIT(3), 0 };

	manual(vm, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);
	assert_int_equal(set_slot(vm, BASE, PAGES, KVM_MEM_LOG_DIRTY_PAGES), 0);
	touch(vm, 3);
	touch(vm, 4);
	assert_int_equal(get_log(vm, bits), 0);
	assert_int_equal(bits[0], BIT(3) | BIT(4));
	assert_int_equal(clear_log(vm, 0, 64, some), 0);
	assert_int_equal(get_log(vm, bits), 0);
	assert_int_equal(bits[0], BIT(4));
}

static void a_log_that_is_initially_set_names_every_page_and_no_more(void **state)
{
	struct vm *vm = ((struct machine *)*state)->vm;
	u64 bits[2];

	manual(vm, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | KVM_DIRTY_LOG_INITIALLY_SET);
	assert_int_equal(set_slot(vm, BASE, PAGES, KVM_MEM_LOG_DIRTY_PAGES), 0);
	assert_int_equal(get_log(vm, bits), 0);
	assert_int_equal(bits[0], ~0ull);
	assert_int_equal(bits[1], BIT(36) - 1);
}

static void a_part_of_the_log_begins_at_64_and_ends_at_64_or_with_the_slot(void **state)
{
	struct vm *vm = ((struct machine *)*state)->vm;
	u64 bits[4] = { 0 };

	assert_int_equal(set_slot(vm, BASE, PAGES, KVM_MEM_LOG_DIRTY_PAGES), 0);
	assert_int_equal(clear_log(vm, 0, 64, bits), 0);
	assert_int_equal(clear_log(vm, 64, 36, bits), 0);
	assert_int_equal(clear_log(vm, 0, PAGES, bits), 0);
	assert_int_equal(clear_log(vm, 1, 64, bits), -EINVAL);
	assert_int_equal(clear_log(vm, 64, 10, bits), -EINVAL);
	assert_int_equal(clear_log(vm, 64, 64, bits), -EINVAL);
	assert_int_equal(clear_log(vm, 128, 0, bits), -EINVAL);
	assert_int_equal(clear_log(vm, 0, ~0u, bits), -EINVAL);
}

static void a_slot_that_moves_takes_its_log_along(void **state)
{
	struct vm *vm = ((struct machine *)*state)->vm;
	u64 bits[2];

	assert_int_equal(set_slot(vm, BASE, PAGES, KVM_MEM_LOG_DIRTY_PAGES), 0);
	touch(vm, 5);
	assert_int_equal(set_slot(vm, 2 * BASE, PAGES, KVM_MEM_LOG_DIRTY_PAGES), 0);
	assert_int_equal(get_log(vm, bits), 0);
	assert_int_equal(bits[0], BIT(5));
	assert_int_equal(set_slot(vm, 2 * BASE, PAGES, 0), 0);
	assert_int_equal(get_log(vm, bits), -ENOENT);
}

static void a_slot_keeps_its_size_and_its_rights(void **state)
{
	struct vm *vm = ((struct machine *)*state)->vm;

	assert_int_equal(set_slot(vm, BASE, PAGES, 0), 0);
	assert_int_equal(set_slot(vm, BASE, PAGES, 0), 0);
	assert_int_equal(set_slot(vm, BASE, PAGES + 1, 0), -EINVAL);
	assert_int_equal(set_slot(vm, BASE, PAGES, KVM_MEM_READONLY), -EINVAL);
	assert_int_equal(set_slot(vm, 0, 0, 0), 0);
	assert_int_equal(set_slot(vm, 0, 0, 0), -EINVAL);
	assert_int_equal(set_slot(vm, BASE, PAGES, KVM_MEM_READONLY), 0);
}

struct reader {
	struct vcpu *vcpu;
	u32 in, out;
	bool found; /* the slot, when it left */
};

static void *read_for_a_while(void *arg)
{
	struct reader *r = arg;

	vcpu_section_begin(r->vcpu);
	__atomic_store_n(&r->in, 1, __ATOMIC_SEQ_CST);
	while (!(__atomic_load_n(&r->vcpu->requests, __ATOMIC_SEQ_CST) & REQUEST_LEAVE))
		usleep(100);
	usleep(20000);
	r->found = mem_find(r->vcpu->cpu->port.mem, BASE);
	__atomic_store_n(&r->out, 1, __ATOMIC_SEQ_CST);
	vcpu_section_end(r->vcpu);
	return NULL;
}

static void deleting_a_slot_waits_for_the_vcpu_that_uses_it(void **state)
{
	struct machine *m = *state;
	struct reader reader = { .vcpu = m->vcpu };
	pthread_t thread;

	assert_int_equal(set_slot(m->vm, BASE, PAGES, 0), 0);
	pthread_create(&thread, NULL, read_for_a_while, &reader);
	while (!__atomic_load_n(&reader.in, __ATOMIC_SEQ_CST))
		usleep(100);
	assert_int_equal(set_slot(m->vm, 0, 0, 0), 0);
	assert_int_equal(__atomic_load_n(&reader.out, __ATOMIC_SEQ_CST), 1);
	pthread_join(thread, NULL);
	assert_true(reader.found);
	vcpu_section_begin(m->vcpu);
	assert_null(mem_find(m->vcpu->cpu->port.mem, BASE));
	vcpu_section_end(m->vcpu);
}

static void registers_come_out_as_they_went_in(void **state)
{
	struct vcpu *vcpu = ((struct machine *)*state)->vcpu;
	struct kvm_regs in, out;
	struct kvm_sregs sregs, again;

	vcpu_section_begin(vcpu);
	for (u32 i = 0; i < sizeof(in) / 8; i++)
		((u64 *)&in)[i] = 0x1111111111111111ull * i;
	in.rflags = FL_FIX1 | FL_ZF;
	vcpu_set_regs(vcpu, &in);
	vcpu_get_regs(vcpu, &out);
	assert_memory_equal(&in, &out, sizeof(in));
	assert_int_equal(vcpu->cpu->regs[R9], in.r9);

	vcpu_get_sregs(vcpu, &sregs);
	sregs.ss.dpl = sregs.cs.dpl = 3;
	sregs.fs.base = 0x123456789000;
	sregs.cr0 |= CR0_PE;
	sregs.cr8 = 5;
	sregs.interrupt_bitmap[1] = BIT(2);
	assert_int_equal(vcpu_set_sregs(vcpu, &sregs), 0);
	vcpu_get_sregs(vcpu, &again);
	assert_memory_equal(&sregs, &again, sizeof(sregs));
	assert_int_equal(vcpu->cpu->cpl, 3);
	vcpu_section_end(vcpu);
}

static void registers_that_no_processor_has_are_refused(void **state)
{
	struct vcpu *vcpu = ((struct machine *)*state)->vcpu;
	struct kvm_sregs good, bad;

	vcpu_section_begin(vcpu);
	vcpu_get_sregs(vcpu, &good);
#define REFUSED(change)                                                \
	do {                                                           \
		bad = good;                                            \
		change;                                                \
		assert_int_equal(vcpu_set_sregs(vcpu, &bad), -EINVAL); \
	} while (0)
	REFUSED(bad.cr0 |= CR0_PG);
	REFUSED(bad.cr0 |= BIT(32));
	REFUSED(bad.cr0 = (bad.cr0 & ~CR0_CD) | CR0_NW);
	REFUSED(bad.cr4 |= BIT(31));
	REFUSED(bad.efer |= EFER_LMA);
	REFUSED(bad.cs.l = 1);
	REFUSED((bad.efer |= EFER_LME, bad.cr0 |= CR0_PG | CR0_PE));
	REFUSED(bad.apic_base |= BIT(3));
	vcpu_get_sregs(vcpu, &bad);
	assert_memory_equal(&good, &bad, sizeof(good));
	vcpu_section_end(vcpu);
}

static void an_xsave_area_with_unknown_parts_is_refused(void **state)
{
	struct vcpu *vcpu = ((struct machine *)*state)->vcpu;
	static struct kvm_xsave good, bad, again;

	vcpu_get_xsave(vcpu, &good);
	good.region[128] = XCR0_X87 | XCR0_SSE; /* XSTATE_BV */
	good.region[40] = 0xabcd;		/* XMM0 */
	assert_int_equal(vcpu_set_xsave(vcpu, &good), 0);
	vcpu_get_xsave(vcpu, &again);
	assert_memory_equal(&good, &again, sizeof(good));
	bad = good;
	bad.region[129] = BIT(30);
	assert_int_equal(vcpu_set_xsave(vcpu, &bad), -EINVAL);
	bad = good;
	bad.region[131] = BIT(31); /* XCOMP_BV: the compacted format */
	assert_int_equal(vcpu_set_xsave(vcpu, &bad), -EINVAL);
	bad = good;
	bad.region[6] = BIT(31); /* MXCSR */
	assert_int_equal(vcpu_set_xsave(vcpu, &bad), -EINVAL);
	vcpu_get_xsave(vcpu, &again);
	assert_memory_equal(&good, &again, sizeof(good));
}

static void set_byte(struct kvm_xsave *xsave, u32 at, u8 value)
{
	((u8 *)xsave->region)[at] = value;
}

/* The vCPU is icelake's: components are where Intel has them. */
static void opmask_and_zmm_state_go_in_and_come_out(void **state)
{
	struct vcpu *vcpu = ((struct machine *)*state)->vcpu;
	static struct kvm_xsave in, out;

	if (!(cpuid_xcr0_possible() & XCR0_AVX512)) {
		print_message("the host has no AVX-512\n");
		skip();
	}
	vcpu_get_xsave(vcpu, &in);
	in.region[128] = XCR0_X87 | XCR0_SSE | XCR0_AVX | XCR0_AVX512;
	set_byte(&in, 1088, 5);
	set_byte(&in, 1152 + 511, 6);
	set_byte(&in, 1664 + 1023, 7);
	assert_int_equal(vcpu_set_xsave(vcpu, &in), 0);
	vcpu_get_xsave(vcpu, &out);
	assert_memory_equal(&in, &out, sizeof(in));
	assert_int_equal(vcpu->cpu->xsave[XSAVE_OPMASK], 5);
	assert_int_equal(vcpu->cpu->xsave[XSAVE_END - 1], 7);
	in.region[128] &= ~XCR0_HI16_ZMM; /* its bytes count for nothing then */
	assert_int_equal(vcpu_set_xsave(vcpu, &in), 0);
	vcpu_get_xsave(vcpu, &out);
	set_byte(&in, 1664 + 1023, 0);
	assert_memory_equal(&in, &out, sizeof(in));
	in.region[128] |= BIT(3); /* MPX */
	assert_int_equal(vcpu_set_xsave(vcpu, &in), -EINVAL);
}

static void pending_and_injected_exceptions_are_told_apart_with_payloads(void **state)
{
	struct machine *m = *state;
	struct kvm_enable_cap cap = { .cap = KVM_CAP_EXCEPTION_PAYLOAD, .args = { 1 } };
	struct kvm_vcpu_events in = { 0 }, out;

	in.flags = KVM_VCPUEVENT_VALID_PAYLOAD;
	in.exception.pending = 1;
	in.exception.nr = VEC_PF;
	in.exception.has_error_code = 1;
	in.exception.error_code = 2;
	in.exception_has_payload = 1;
	in.exception_payload = 0xdead000;
	assert_int_equal(vcpu_set_events(m->vcpu, &in), -EINVAL);
	assert_int_equal(vm_enable_cap(m->vm, &cap), 0);
	assert_int_equal(vcpu_set_events(m->vcpu, &in), 0);
	vcpu_get_events(m->vcpu, &out);
	assert_int_equal(out.exception.pending, 1);
	assert_int_equal(out.exception.injected, 0);
	assert_int_equal(out.exception_payload, 0xdead000);
	in.exception.nr = VEC_NMI;
	assert_int_equal(vcpu_set_events(m->vcpu, &in), -EINVAL);
	in.exception.nr = 32;
	assert_int_equal(vcpu_set_events(m->vcpu, &in), -EINVAL);
}

static void two_nmis_wait_and_more_are_lost(void **state)
{
	struct vcpu *vcpu = ((struct machine *)*state)->vcpu;
	struct kvm_vcpu_events events;

	for (u32 i = 0; i < 5; i++)
		vcpu_nmi(vcpu);
	vcpu_get_events(vcpu, &events);
	assert_int_equal(events.nmi.pending, 2);
}

static void coalesced_writes_fill_the_ring_but_for_one_entry(void **state)
{
	struct machine *m = *state;
	struct kvm_coalesced_mmio_zone zone = { .addr = 0xf000, .size = 0x100 }, part = zone;
	struct kvm_coalesced_mmio_ring *ring = m->vcpu->ring;
	u32 n = 0, value = 7;

	assert_int_equal(vm_register_coalesced(m->vm, &zone), 0);
	assert_false(zones_write(m->vm, true, 0xf000, 4, &value));
	assert_false(zones_write(m->vm, false, 0xf0fe, 4, &value));
	while (zones_write(m->vm, false, 0xf000 + n % 64 * 4, 4, &value))
		n++;
	assert_int_equal(n, (PAGE_SIZE - sizeof(*ring)) / sizeof(struct kvm_coalesced_mmio) - 1);
	ring->first = ring->last;
	assert_true(zones_write(m->vm, false, 0xf000, 4, &value));
	part.size = 4;
	assert_int_equal(vm_unregister_coalesced(m->vm, &part), 0);
	assert_false(zones_write(m->vm, false, 0xf000, 4, &value));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(the_log_is_given_once_and_then_empty),
		TEST(the_manual_log_stays_until_it_is_cleared),
		TEST(a_log_that_is_initially_set_names_every_page_and_no_more),
		TEST(a_part_of_the_log_begins_at_64_and_ends_at_64_or_with_the_slot),
		TEST(a_slot_that_moves_takes_its_log_along),
		TEST(a_slot_keeps_its_size_and_its_rights),
		TEST(deleting_a_slot_waits_for_the_vcpu_that_uses_it),
		TEST(registers_come_out_as_they_went_in),
		TEST(registers_that_no_processor_has_are_refused),
		TEST(an_xsave_area_with_unknown_parts_is_refused),
		TEST(opmask_and_zmm_state_go_in_and_come_out),
		TEST(pending_and_injected_exceptions_are_told_apart_with_payloads),
		TEST(two_nmis_wait_and_more_are_lost),
		TEST(coalesced_writes_fill_the_ring_but_for_one_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
