// SPDX-License-Identifier: MIT
/*
 * The local APIC alone: priorities, delivery, IPIs as messages, modes, LVTs and the state image.
 * Its timer: lapic_timer_test.c.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "unit/plain_lapic.h"

#define VALID_BASE (MASK(39, 12) | APIC_BASE_BSP | APIC_BASE_ENABLE | APIC_BASE_X2APIC)

static bool write_base(u64 value, bool host)
{
	memset(&actions, 0, sizeof(actions));
	return lapic_set_base(&lapic, value, VALID_BASE, host, &actions);
}

static bool write_msr(u32 msr, u64 value)
{
	memset(&actions, 0, sizeof(actions));
	return lapic_msr_write(&lapic, msr, value, at(0), &actions);
}

static int enabled_x2apic(void **state)
{
	plain_lapic_enabled(state);
	assert_true(write_base(lapic.base | APIC_BASE_X2APIC, false));
	return 0;
}

static void reset_values_are_those_of_the_manual(void **state)
{
	(void)state;
	assert_int_equal(lapic.base, LAPIC_DEFAULT_BASE | APIC_BASE_ENABLE);
	assert_int_equal(read_reg(LAPIC_ID), 3u << 24);
	assert_int_equal(read_reg(LAPIC_VERSION), 0x50014);
	assert_int_equal(read_reg(LAPIC_SVR), 0xff);
	assert_int_equal(read_reg(LAPIC_DFR), 0xffffffff);
	assert_int_equal(read_reg(LAPIC_LVT_PERF), 0x10000);
	lapic_init(&lapic, 0, true);
	assert_true(lapic.base & APIC_BASE_BSP);
	assert_true(lapic_accepts_pic(&lapic));
}

static void a_software_disabled_apic_takes_no_interrupt(void **state)
{
	(void)state;
	assert_false(lapic_set_irq(&lapic, 0x40, false));
	assert_int_equal(lapic_pending(&lapic), -1);
}

static void the_highest_vector_is_delivered_and_blocks_lower_ones(void **state)
{
	(void)state;
	assert_true(lapic_set_irq(&lapic, 0x45, false));
	assert_true(lapic_set_irq(&lapic, 0x61, false));
	assert_int_equal(lapic_pending(&lapic), 0x61);
	lapic_ack(&lapic, 0x61);
	assert_int_equal(lapic_pending(&lapic), -1);
	assert_int_equal(read_reg(LAPIC_PPR), 0x60);
	/* Another vector of the class in service waits, one of a higher class does not. */
	lapic_set_irq(&lapic, 0x6f, false);
	assert_int_equal(lapic_pending(&lapic), -1);
	lapic_set_irq(&lapic, 0x70, false);
	assert_int_equal(lapic_pending(&lapic), 0x70);
}

static void an_interrupt_is_the_processors_own_unless_a_message_brought_it(void **state)
{
	const struct lapic_message message = { .mode = LAPIC_FIXED,
					       .vector = 0x45,
					       .assert = true };
	const struct lapic_message nmi = { .mode = LAPIC_NMI, .assert = true };

	(void)state;
	write_reg(LAPIC_LVT_PERF, 0x45);
	assert_true(lapic_perf_interrupt(&lapic, true));
	assert_false(lapic_from_outside(&lapic, 0x45));
	assert_true(lapic_accept(&lapic, &message)); /* the same vector, once more */
	assert_true(lapic_from_outside(&lapic, 0x45));
	assert_false(lapic_from_outside(&lapic, 0x45));
	write_reg(LAPIC_LVT_PERF, LAPIC_NMI << 8);
	assert_true(lapic_perf_interrupt(&lapic, true));
	assert_false(lapic_nmi_from_outside(&lapic));
	assert_true(lapic_accept(&lapic, &nmi));
	assert_true(lapic_nmi_from_outside(&lapic));
}

static void eoi_ends_the_highest_vector_in_service(void **state)
{
	(void)state;
	lapic_set_irq(&lapic, 0x45, true);
	lapic_ack(&lapic, 0x45);
	write_reg(LAPIC_EOI, 0);
	assert_int_equal(actions.what, LAPIC_DO_EOI | LAPIC_DO_EVENT);
	assert_int_equal(actions.eoi_vector, 0x45);
	assert_true(actions.eoi_level);
	write_reg(LAPIC_EOI, 0);
	assert_int_equal(actions.what, 0);
}

static void the_task_priority_masks_its_class_and_below(void **state)
{
	(void)state;
	lapic_set_irq(&lapic, 0x45, false);
	write_reg(LAPIC_TPR, 0x40);
	assert_int_equal(lapic_pending(&lapic), -1);
	assert_int_equal(lapic_get_cr8(&lapic), 4);
	lapic_set_cr8(&lapic, 3);
	assert_int_equal(read_reg(LAPIC_TPR), 0x30);
	assert_int_equal(lapic_pending(&lapic), 0x45);
}

static void an_icr_write_comes_back_as_a_message(void **state)
{
	(void)state;
	write_reg(LAPIC_ICR2, 0x05abcdef);
	assert_int_equal(read_reg(LAPIC_ICR2), 0x05000000);
	write_reg(LAPIC_ICR, 0x5041); /* the busy bit is not kept */
	assert_int_equal(actions.what, LAPIC_DO_SEND);
	assert_int_equal(actions.message.mode, LAPIC_FIXED);
	assert_int_equal(actions.message.vector, 0x41);
	assert_int_equal(actions.message.dest, 5);
	assert_true(actions.message.assert);
	assert_false(actions.message.logical);
	assert_int_equal(read_reg(LAPIC_ICR), 0x4041);
}

static void x2apic_icr_is_one_register_with_reserved_bits(void **state)
{
	u64 value;

	(void)state;
	assert_true(write_msr(0x830, 0x1200000000ull | 0x4845));
	assert_int_equal(actions.message.dest, 0x12);
	assert_true(actions.message.logical);
	assert_true(lapic_msr_read(&lapic, 0x830, at(0), &value));
	assert_int_equal(value, 0x1200004845ull);
	assert_false(write_msr(0x830, BIT(13)));
	assert_false(write_msr(0x830, BIT(20)));
	assert_true(write_msr(0x83f, 0x77));
	assert_int_equal(actions.message.shorthand, LAPIC_DEST_SELF);
	assert_false(write_msr(0x83f, 0x177));
}

static void x2apic_refuses_what_only_xapic_has(void **state)
{
	u32 data = 0;
	u64 value;

	(void)state;
	assert_false(lapic_mmio_read(&lapic, LAPIC_ID, 4, at(0), &data));
	assert_false(lapic_mmio_write(&lapic, LAPIC_TPR, 4, at(0), &data, &actions));
	assert_true(lapic_msr_read(&lapic, 0x802, at(0), &value));
	assert_int_equal(value, 3);
	assert_true(lapic_msr_read(&lapic, 0x80d, at(0), &value));
	assert_int_equal(value, 1u << 3);
	assert_false(lapic_msr_read(&lapic, 0x80e, at(0), &value)); /* DFR */
	assert_false(lapic_msr_read(&lapic, 0x831, at(0), &value)); /* ICR2 */
	assert_false(lapic_msr_read(&lapic, 0x80b, at(0), &value)); /* EOI */
	assert_false(write_msr(0x802, 1));			    /* ID */
	assert_false(write_msr(0x80d, 1));			    /* LDR */
	assert_false(write_msr(0x828, 1));			    /* ESR takes 0 only */
	assert_true(write_msr(0x828, 0));
	assert_false(write_msr(0x808, BIT(32)));
}

static void base_changes_follow_the_state_diagram(void **state)
{
	u64 on = LAPIC_DEFAULT_BASE | APIC_BASE_ENABLE, x2 = on | APIC_BASE_X2APIC;

	(void)state;
	assert_false(write_base(LAPIC_DEFAULT_BASE | APIC_BASE_X2APIC, true)); /* invalid */
	assert_false(write_base(on | BIT(50), true));
	assert_false(write_base(on | BIT(9), true));
	assert_true(write_base(x2, false));
	assert_int_equal(actions.what, LAPIC_DO_MODE);
	assert_false(write_base(on, false)); /* x2APIC to xAPIC */
	assert_true(write_base(LAPIC_DEFAULT_BASE, false));
	assert_int_equal(lapic_pending(&lapic), -1);
	assert_false(write_base(x2, false)); /* disabled to x2APIC */
	assert_true(write_base(on, false));
	assert_int_equal(read_reg(LAPIC_ID), 3u << 24);
	/* The program may do both. */
	assert_true(write_base(x2, true));
	assert_true(write_base(on, true));
	assert_int_equal(read_reg(LAPIC_ID), 3u << 24);
}

static bool matches(u32 dest, bool logical)
{
	struct lapic_message message = { .dest = dest, .logical = logical, .ipi = true };

	return lapic_matches(&lapic, &message);
}

static void destinations_match_by_mode(void **state)
{
	(void)state;
	assert_true(matches(3, false));
	assert_false(matches(2, false));
	assert_true(matches(0xff, false));
	write_reg(LAPIC_LDR, 0x05000000);
	assert_true(matches(0x04, true));
	assert_false(matches(0x08, true));
	write_reg(LAPIC_DFR, 0x0fffffff);
	write_reg(LAPIC_LDR, 0x25000000);
	assert_true(matches(0x21, true));
	assert_false(matches(0x11, true));
	assert_false(matches(0x22, true));
	assert_true(write_base(lapic.base | APIC_BASE_X2APIC, false));
	assert_true(matches(1u << 3, true));
	assert_false(matches(1u << 16 | 1u << 3, true));
	assert_false(matches(0xff, false));
	assert_true(matches(0xffffffff, false));
}

static void a_device_may_broadcast_to_x2apic_by_the_quirk(void **state)
{
	struct lapic_message msi = { .dest = 0xff };

	(void)state;
	assert_true(lapic_matches(&lapic, &msi));
	lapic.strict_broadcast = true;
	assert_false(lapic_matches(&lapic, &msi));
}

static void nmi_init_and_startup_become_events(void **state)
{
	struct lapic_message message = { .mode = LAPIC_STARTUP, .vector = 0x9a };

	(void)state;
	assert_true(lapic_accept(&lapic, &message));
	message.mode = LAPIC_INIT;
	assert_true(lapic_accept(&lapic, &message)); /* forgets the STARTUP before it */
	assert_int_equal(lapic_take_events(&lapic, ~0u), LAPIC_EVENT_INIT);
	message.mode = LAPIC_STARTUP;
	assert_true(lapic_accept(&lapic, &message));
	message.mode = LAPIC_NMI;
	assert_true(lapic_accept(&lapic, &message));
	assert_int_equal(lapic_take_events(&lapic, LAPIC_EVENT_SIPI), LAPIC_EVENT_SIPI);
	assert_int_equal(lapic.sipi_vector, 0x9a);
	assert_int_equal(lapic_take_events(&lapic, ~0u), LAPIC_EVENT_NMI);
	message = (struct lapic_message){ .mode = LAPIC_INIT, .level = true };
	assert_false(lapic_accept(&lapic, &message)); /* INIT level de-assert */
}

static void lvts_keep_their_bits_and_are_masked_while_disabled(void **state)
{
	(void)state;
	write_reg(LAPIC_LVT_LINT0, 0xffffffff);
	assert_int_equal(read_reg(LAPIC_LVT_LINT0), 0x1f7ff);
	write_reg(LAPIC_LVT_PERF, 0xffffffff & ~0x10000u);
	assert_int_equal(read_reg(LAPIC_LVT_PERF), 0x17ff);
	write_reg(LAPIC_LVT_ERROR, 0xfe);
	write_reg(LAPIC_LVT_CMCI, 0xfe); /* not there */
	assert_int_equal(read_reg(LAPIC_LVT_CMCI), 0);
	write_reg(LAPIC_SVR, 0xff);
	assert_int_equal(read_reg(LAPIC_LVT_ERROR), 0x100fe);
	write_reg(LAPIC_LVT_ERROR, 0xfe);
	assert_int_equal(read_reg(LAPIC_LVT_ERROR), 0x100fe);
	lapic_configure(&lapic, true, true);
	assert_int_equal(read_reg(LAPIC_VERSION), 0x1060014);
	assert_int_equal(read_reg(LAPIC_LVT_CMCI), 0x10000);
}

/* APM2 16.3.4 */
static void extended_lvts_exist_where_amd_has_them(void **state)
{
	(void)state;
	assert_int_equal(read_reg(0x400), 0);
	write_reg(0x520, 0x4ff);
	assert_int_equal(read_reg(0x520), 0);
	assert_false(lapic_extended_interrupt(&lapic, LAPIC_EILVT_IBS));
	lapic.extended = true;
	assert_int_equal(read_reg(0x400), 4 << 16);
	assert_int_equal(read_reg(0x500), 0x10000);
	assert_int_equal(read_reg(0x510), 0x400); /* firmware's choice for IBS: NMI */
	assert_int_equal(read_reg(0x540), 0);
	assert_true(lapic_extended_interrupt(&lapic, LAPIC_EILVT_IBS));
	assert_int_equal(lapic_take_events(&lapic, ~0u), LAPIC_EVENT_NMI);
	write_reg(0x510, 0x10400);
	assert_false(lapic_extended_interrupt(&lapic, LAPIC_EILVT_IBS));
	write_reg(0x510, 0xffffffff & ~0x10000u);
	assert_int_equal(read_reg(0x510), 0x7ff);
	write_reg(0x510, 0x55);
	assert_true(lapic_extended_interrupt(&lapic, LAPIC_EILVT_IBS));
	assert_int_equal(lapic_pending(&lapic), 0x55);
}

static void a_pmi_is_delivered_once_and_masks_lvtpc_on_intel(void **state)
{
	(void)state;
	write_reg(LAPIC_LVT_PERF, LAPIC_NMI << 8);
	assert_true(lapic_perf_interrupt(&lapic, true));
	assert_int_equal(lapic_take_events(&lapic, ~0u), LAPIC_EVENT_NMI);
	assert_int_equal(read_reg(LAPIC_LVT_PERF), 0x10000 | LAPIC_NMI << 8);
	assert_false(lapic_perf_interrupt(&lapic, true));
	write_reg(LAPIC_LVT_PERF, 0xee);
	assert_true(lapic_perf_interrupt(&lapic, false));
	assert_int_equal(lapic_pending(&lapic), 0xee);
	assert_int_equal(read_reg(LAPIC_LVT_PERF), 0xee);
}

static void odd_accesses_read_parts_and_write_nothing(void **state)
{
	u8 byte = 0;
	u64 wide = ~0ull;

	(void)state;
	assert_true(lapic_mmio_read(&lapic, LAPIC_VERSION + 2, 1, at(0), &byte));
	assert_int_equal(byte, 5);
	assert_true(lapic_mmio_read(&lapic, LAPIC_VERSION, 8, at(0), &wide));
	assert_int_equal(wide, 0);
	wide = 0x20;
	assert_true(lapic_mmio_write(&lapic, LAPIC_TPR, 8, at(0), &wide, &actions));
	assert_true(lapic_mmio_write(&lapic, LAPIC_TPR + 4, 4, at(0), &wide, &actions));
	assert_true(lapic_mmio_write(&lapic, 0xff0, 4, at(0), &wide, &actions));
	assert_int_equal(read_reg(LAPIC_TPR), 0);
	assert_int_equal(read_reg_at(0xff0, 0), 0);
}

static void the_state_image_restores_registers_and_timer(void **state)
{
	struct kvm_lapic_state image;

	(void)state;
	write_reg(LAPIC_TIMER_DIVIDE, 0xb);
	write_reg(LAPIC_LVT_TIMER, 0x41);
	write_reg(LAPIC_TIMER_INITIAL, 10000);
	lapic_set_irq(&lapic, 0x55, false);
	lapic_get_state(&lapic, at(4000), &image);
	plain_lapic_fresh(NULL);
	assert_int_equal(lapic_set_state(&lapic, at(50000), &image), 0);
	assert_int_equal(lapic_pending(&lapic), 0x55);
	assert_int_equal(lapic_timer_expiry(&lapic, at(50000)), 56000);
	assert_int_equal(read_reg_at(LAPIC_TIMER_CURRENT, 51000), 5000);
}

static void the_x2apic_id_in_the_image_is_read_only(void **state)
{
	struct kvm_lapic_state image;
	u32 id;

	(void)state;
	lapic_get_state(&lapic, at(0), &image);
	memcpy(&id, image.regs + LAPIC_ID, 4);
	assert_int_equal(id, 3u << 24);
	id = 9u << 24;
	memcpy(image.regs + LAPIC_ID, &id, 4);
	assert_int_equal(lapic_set_state(&lapic, at(0), &image), 0);
	lapic.ids32 = true;
	assert_int_equal(lapic_set_state(&lapic, at(0), &image), -EINVAL);
	lapic_get_state(&lapic, at(0), &image);
	memcpy(&id, image.regs + LAPIC_ID, 4);
	assert_int_equal(id, 3);
}

static void init_keeps_id_and_base(void **state)
{
	(void)state;
	write_reg(LAPIC_ID, 7u << 24);
	write_base(0xfed00000 | APIC_BASE_ENABLE, false);
	lapic_set_irq(&lapic, 0x55, false);
	lapic_reset(&lapic, true);
	assert_int_equal(lapic.base, 0xfed00000 | APIC_BASE_ENABLE);
	assert_int_equal(read_reg(LAPIC_ID), 7u << 24);
	assert_int_equal(lapic_highest_irr(&lapic), -1);
	lapic_reset(&lapic, false);
	assert_int_equal(read_reg(LAPIC_ID), 3u << 24);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(reset_values_are_those_of_the_manual, plain_lapic_fresh),
		cmocka_unit_test_setup(a_software_disabled_apic_takes_no_interrupt,
				       plain_lapic_fresh),
		cmocka_unit_test_setup(the_highest_vector_is_delivered_and_blocks_lower_ones,
				       plain_lapic_enabled),
		cmocka_unit_test_setup(
			an_interrupt_is_the_processors_own_unless_a_message_brought_it,
			plain_lapic_enabled),
		cmocka_unit_test_setup(eoi_ends_the_highest_vector_in_service, plain_lapic_enabled),
		cmocka_unit_test_setup(the_task_priority_masks_its_class_and_below,
				       plain_lapic_enabled),
		cmocka_unit_test_setup(an_icr_write_comes_back_as_a_message, plain_lapic_enabled),
		cmocka_unit_test_setup(x2apic_icr_is_one_register_with_reserved_bits,
				       enabled_x2apic),
		cmocka_unit_test_setup(x2apic_refuses_what_only_xapic_has, enabled_x2apic),
		cmocka_unit_test_setup(base_changes_follow_the_state_diagram, plain_lapic_enabled),
		cmocka_unit_test_setup(destinations_match_by_mode, plain_lapic_enabled),
		cmocka_unit_test_setup(a_device_may_broadcast_to_x2apic_by_the_quirk,
				       enabled_x2apic),
		cmocka_unit_test_setup(nmi_init_and_startup_become_events, plain_lapic_fresh),
		cmocka_unit_test_setup(lvts_keep_their_bits_and_are_masked_while_disabled,
				       plain_lapic_enabled),
		cmocka_unit_test_setup(a_pmi_is_delivered_once_and_masks_lvtpc_on_intel,
				       plain_lapic_enabled),
		cmocka_unit_test_setup(odd_accesses_read_parts_and_write_nothing,
				       plain_lapic_enabled),
		cmocka_unit_test_setup(extended_lvts_exist_where_amd_has_them, plain_lapic_enabled),
		cmocka_unit_test_setup(the_state_image_restores_registers_and_timer,
				       plain_lapic_enabled),
		cmocka_unit_test_setup(the_x2apic_id_in_the_image_is_read_only, enabled_x2apic),
		cmocka_unit_test_setup(init_keeps_id_and_base, plain_lapic_enabled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
