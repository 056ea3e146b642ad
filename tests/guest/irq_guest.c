// SPDX-License-Identifier: MIT
/*
 * A guest that takes interrupts and tells them: see irq_guest.h.
 */
#include "guest/irq_guest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

struct kvm_guest irq_guest;

/* The 8259s at PIC_BASE, the local APIC in x2APIC mode; counter 0 at 100 Hz if there is an 8254. */
GUEST_CODE(waiting, "mov $0x11, %al; out %al, $0x20; out %al, $0xa0\n"
		    "mov $0x30, %al; out %al, $0x21; mov $0x38, %al; out %al, $0xa1\n"
		    "mov $0x04, %al; out %al, $0x21; mov $0x02, %al; out %al, $0xa1\n"
		    "mov $0x01, %al; out %al, $0x21; out %al, $0xa1\n"
		    "mov $0x00, %al; out %al, $0x21; out %al, $0xa1\n"
		    "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		    "mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		    "mov $0xff, %al; out %al, $0xf4\n"
		    "mov $0x34, %al; out %al, $0x43\n"
		    "mov $0x9c, %al; out %al, $0x40; mov $0x2e, %al; out %al, $0x40\n"
		    "sti\n"
		    "1: hlt; jmp 1b\n"
		    "end_pic:\n"
		    "mov $0x20, %al; out %al, $0x20\n"
		    "pop %rax; iretq\n"
		    "end_apic:\n"
		    "push %rcx; push %rdx\n"
		    "mov $0x80b, %ecx; xor %eax, %eax; xor %edx, %edx; wrmsr\n"
		    "pop %rdx; pop %rcx; pop %rax; iretq\n"
		    "end_nothing:\n"
		    "pop %rax; iretq\n");

extern const u8 end_pic[], end_apic[], end_nothing[];

/* push %rax; mov $vector, %al; out %al, $PORT; jmp end */
void irq_handle(u32 vector, u64 end)
{
	u64 at = IMAGE_STUBS + vector * IMAGE_STUB_SIZE;
	u8 code[] = { 0x50, 0xb0, vector, 0xe6, PORT, 0xe9, 0, 0, 0, 0 };
	u32 distance = end - (at + sizeof(code));

	memcpy(code + 6, &distance, sizeof(distance));
	memcpy(irq_guest.ram + at, code, sizeof(code));
}

int irq_next(u16 port)
{
	const struct kvm_run *run = irq_guest.run[0];
	int reason;

	do
		reason = kvm_guest_run(&irq_guest, 0);
	while (reason == KVM_EXIT_IO && run->io.port != port);
	return reason == KVM_EXIT_IO ? *(u8 *)kvm_io_data(irq_guest.run[0]) : -reason;
}

static u64 in_guest(const u8 *label)
{
	return IMAGE_CODE + (label - waiting_start);
}

void irq_start(void (*prepare)(int vm))
{
	kvm_guest_create_with(&irq_guest, waiting_start, waiting_end - waiting_start, 1, prepare);
	for (u32 v = 0x20; v < 0x100; v++)
		irq_handle(v, in_guest(v < PIC_BASE + 16 ? end_pic : end_apic));
	irq_handle(2, in_guest(end_nothing));
	assert_int_equal(irq_next(PORT), READY);
}

void irq_with_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

void irq_with_pit(int vm)
{
	struct kvm_pit_config config = { .flags = KVM_PIT_SPEAKER_DUMMY };

	irq_with_irqchip(vm);
	KVM_CALL(vm, KVM_CREATE_PIT2, &config);
}

void irq_with_split_irqchip(int vm)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_SPLIT_IRQCHIP, .args = { 24 } };

	KVM_CALL(vm, KVM_ENABLE_CAP, &cap);
}

void irq_redirect(u32 pin, u64 entry, u32 other_pin, u64 other_entry)
{
	struct kvm_irqchip chip = { .chip_id = KVM_IRQCHIP_IOAPIC };

	KVM_CALL(irq_guest.vm, KVM_GET_IRQCHIP, &chip);
	chip.chip.ioapic.redirtbl[pin].bits = entry;
	chip.chip.ioapic.redirtbl[other_pin].bits = other_entry;
	KVM_CALL(irq_guest.vm, KVM_SET_IRQCHIP, &chip);
	for (chip.chip_id = 0; chip.chip_id < 2; chip.chip_id++) {
		KVM_CALL(irq_guest.vm, KVM_GET_IRQCHIP, &chip);
		chip.chip.pic.imr = 0xff;
		KVM_CALL(irq_guest.vm, KVM_SET_IRQCHIP, &chip);
	}
}

int irq_line(u32 irq, u32 level)
{
	struct kvm_irq_level arg = { .irq = irq, .level = level };

	KVM_CALL(irq_guest.vm, KVM_IRQ_LINE_STATUS, &arg);
	return arg.status;
}

void irq_msi(u32 data)
{
	struct kvm_msi arg = { .address_lo = 0xfee00000, .data = data };

	assert_int_equal(KVM_CALL(irq_guest.vm, KVM_SIGNAL_MSI, &arg), 1);
}
