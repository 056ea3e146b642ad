// SPDX-License-Identifier: MIT
/*
 * Ticks of the RTC that were not ended yet. Its pin is an edge, but programs want to know from
 * KVM_IRQ_LINE_STATUS whether the guest has served the last tick, so that they can send those that
 * were lost again: guests that count ticks would be late (KVM: rtc_status in
 * arch/x86/kvm/ioapic.c). Any thread, under the lock of the chips.
 */
#include <string.h>

#include "vm/irq/irqchip.h"
#include "vm/vm.h"

_Static_assert(IRQCHIP_MAX_CPUS >= VM_MAX_VCPUS, "a bit for every vCPU");

static bool waits(const struct rtc_eoi *rtc, u32 index)
{
	return rtc->waits[index / 64] >> index % 64 & 1;
}

static void set_waits(struct rtc_eoi *rtc, u32 index, u8 vector)
{
	rtc->waits[index / 64] |= BIT(index % 64);
	WRITE_ONCE(rtc->vector[index], vector);
	WRITE_ONCE(rtc->pending, rtc->pending + 1);
}

static void clear_waits(struct rtc_eoi *rtc, u32 index)
{
	rtc->waits[index / 64] &= ~BIT(index % 64);
	WRITE_ONCE(rtc->pending, rtc->pending - 1);
}

void rtc_eoi_taken(struct vcpu *vcpu, u8 vector)
{
	struct rtc_eoi *rtc = &vcpu->vm->irqchip->rtc;

	if (!waits(rtc, vcpu->index))
		set_waits(rtc, vcpu->index, vector);
}

/* Also of a vector that the pin had before. Without the lock: the tick that is being sent now has
 * the vector of its pin (ioapic_uses()). */
bool rtc_eoi_wanted(const struct vcpu *vcpu, u8 vector)
{
	const struct rtc_eoi *rtc = &vcpu->vm->irqchip->rtc;

	return READ_ONCE(rtc->pending) && READ_ONCE(rtc->vector[vcpu->index]) == vector;
}

void rtc_eoi_ended(struct vcpu *vcpu, u8 vector)
{
	struct rtc_eoi *rtc = &vcpu->vm->irqchip->rtc;

	if (waits(rtc, vcpu->index) && rtc->vector[vcpu->index] == vector)
		clear_waits(rtc, vcpu->index);
}

static void restore(struct vcpu *vcpu)
{
	struct irqchip *chip = vcpu->vm->irqchip;
	struct lapic_message message = ioapic_message(&chip->ioapic, RTC_PIN);
	bool served;

	if (!vcpu->has_lapic || !lapic_matches(&vcpu->lapic, &message))
		return;
	served = !lapic_has_vector(&vcpu->lapic, message.vector);
	if (served && waits(&chip->rtc, vcpu->index))
		clear_waits(&chip->rtc, vcpu->index);
	else if (!served && !waits(&chip->rtc, vcpu->index))
		set_waits(&chip->rtc, vcpu->index, message.vector);
}

void rtc_eoi_restore(struct vcpu *vcpu)
{
	if (!vcpu->vm->irqchip_kernel)
		return;
	pthread_mutex_lock(&vcpu->vm->irqchip->lock);
	restore(vcpu);
	pthread_mutex_unlock(&vcpu->vm->irqchip->lock);
}

void rtc_eoi_restore_all(struct vm *vm)
{
	struct rtc_eoi *rtc = &vm->irqchip->rtc;
	u32 n = vm_nvcpus(vm);

	memset(rtc->waits, 0, sizeof(rtc->waits));
	WRITE_ONCE(rtc->pending, 0);
	for (u32 i = 0; i < n; i++)
		restore(vm->vcpus[i]);
}
