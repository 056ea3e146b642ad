// SPDX-License-Identifier: MIT
/*
 * Paravirtual EOI (Documentation/virt/kvm/x86/msr.rst, MSR_KVM_PV_EOI_EN): while an interrupt is in
 * service and nothing else is pending, a flag in guest memory tells the guest that clearing that
 * flag is enough to end it. vCPU thread, inside a section.
 *
 * The flag is up only while the guest runs. When it leaves, the flag is taken back: still up, and
 * the guest has yet to end its interrupt, by the APIC's register; down, and it has ended it.
 */
#include "vm/irq/apic.h"
#include "vm/irq/irqchip.h"
#include "vm/memory/guest_memory.h"
#include "vm/pv.h"
#include "vm/vm.h"

#define PV_EOI_ENABLED BIT(0)

static gpa_t flag_address(const struct vcpu *vcpu)
{
	return vcpu->msrs.pv_eoi & ~(u64)PV_EOI_ENABLED;
}

/* Does the I/O APIC, ours or the program's, have to hear of the end of this vector? */
static bool eoi_is_watched(const struct vcpu *vcpu, u8 vector)
{
	if (lapic_is_level(&vcpu->lapic, vector))
		return true;
	return vcpu->vm->irqchip_kernel && ioapic_uses(&vcpu->vm->irqchip->ioapic, vector);
}

void pv_eoi_offer(struct vcpu *vcpu)
{
	u8 flag = 1;
	int vector;

	if (!(vcpu->msrs.pv_eoi & PV_EOI_ENABLED) || !vcpu->has_lapic)
		return;
	vector = lapic_highest_isr(&vcpu->lapic);
	if (vector < 0 || lapic_highest_irr(&vcpu->lapic) >= 0 || eoi_is_watched(vcpu, vector))
		return;
	vcpu->eoi_offered = guest_write(vcpu->cpu, flag_address(vcpu), &flag, sizeof(flag));
}

void pv_eoi_collect(struct vcpu *vcpu)
{
	struct lapic_actions actions = { 0 };
	u8 flag = 0, none = 0;

	if (!vcpu->eoi_offered)
		return;
	vcpu->eoi_offered = false;
	if (!guest_read(vcpu->cpu->port.mem, flag_address(vcpu), &flag, sizeof(flag)))
		return;
	if (flag) {
		guest_write(vcpu->cpu, flag_address(vcpu), &none, sizeof(none));
		return;
	}
	lapic_eoi(&vcpu->lapic, &actions);
	apic_act(vcpu, &actions);
}
