// SPDX-License-Identifier: MIT
/*
 * Interrupt controllers of the VM and the routes to them: creation, their state as the program
 * saves and restores it, GSI routing, MSIs (api.rst 4.24-4.26, 4.52, 4.70). Any thread.
 *
 * Local APICs and MSIs are real. The 8259s, the I/O APIC and the 8254 keep the state that the
 * program gives them and do not act on it yet: a pin that is raised interrupts nobody.
 */
#include "vm/irqchip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "vm/apic.h"
#include "vm/vm.h"

struct irq_routes {
	u32 n;
	struct kvm_irq_routing_entry entry[];
};

/* Power-up state: all pins of the I/O APIC masked (82093AA 3.2.4), nothing in service. */
static void chips_reset(struct vm *vm)
{
	struct kvm_ioapic_state *ioapic = &vm->chips[KVM_IRQCHIP_IOAPIC].chip.ioapic;

	memset(vm->chips, 0, sizeof(vm->chips));
	for (u32 i = 0; i < KVM_NR_IRQCHIPS; i++)
		vm->chips[i].chip_id = i;
	vm->chips[KVM_IRQCHIP_PIC_MASTER].chip.pic.elcr_mask = 0xf8;
	vm->chips[KVM_IRQCHIP_PIC_SLAVE].chip.pic.elcr_mask = 0xde;
	ioapic->base_address = 0xfec00000;
	for (u32 i = 0; i < KVM_IOAPIC_NUM_PINS; i++)
		ioapic->redirtbl[i].fields.mask = 1;
}

int vm_create_irqchip(struct vm *vm)
{
	int r = 0;

	pthread_mutex_lock(&vm->lock);
	if (vm_has_lapic(vm)) {
		r = -EEXIST;
	} else if (vm->created_vcpus) {
		r = -EINVAL;
	} else {
		chips_reset(vm);
		vm->irqchip_kernel = true;
	}
	pthread_mutex_unlock(&vm->lock);
	return r;
}

int vm_create_pit(struct vm *vm, u32 flags)
{
	int r = 0;

	(void)flags; /* KVM_PIT_SPEAKER_DUMMY: there is no speaker port either way */
	pthread_mutex_lock(&vm->lock);
	if (vm->pit)
		r = -EEXIST;
	else if (!vm->irqchip_kernel)
		r = -ENOENT;
	else
		vm->pit = true;
	pthread_mutex_unlock(&vm->lock);
	return r;
}

int vm_get_irqchip(struct vm *vm, struct kvm_irqchip *chip)
{
	if (!vm->irqchip_kernel)
		return -ENXIO;
	if (chip->chip_id >= KVM_NR_IRQCHIPS)
		return -EINVAL;
	pthread_mutex_lock(&vm->lock);
	chip->chip = vm->chips[chip->chip_id].chip;
	pthread_mutex_unlock(&vm->lock);
	return 0;
}

int vm_set_irqchip(struct vm *vm, const struct kvm_irqchip *chip)
{
	if (!vm->irqchip_kernel)
		return -ENXIO;
	if (chip->chip_id >= KVM_NR_IRQCHIPS)
		return -EINVAL;
	pthread_mutex_lock(&vm->lock);
	vm->chips[chip->chip_id].chip = chip->chip;
	pthread_mutex_unlock(&vm->lock);
	return 0;
}

int vm_get_pit(struct vm *vm, struct kvm_pit_state2 *pit)
{
	if (!vm->pit)
		return -ENXIO;
	pthread_mutex_lock(&vm->lock);
	*pit = vm->pit_state;
	memset(pit->reserved, 0, sizeof(pit->reserved));
	pthread_mutex_unlock(&vm->lock);
	return 0;
}

int vm_set_pit(struct vm *vm, const struct kvm_pit_state2 *pit)
{
	if (!vm->pit)
		return -ENXIO;
	pthread_mutex_lock(&vm->lock);
	vm->pit_state = *pit;
	pthread_mutex_unlock(&vm->lock);
	return 0;
}

/* One route of a GSI: how many APICs took the interrupt, -1 if none could. */
static int raise_route(struct vm *vm, const struct kvm_irq_routing_entry *e)
{
	struct lapic_message message;

	if (e->type != KVM_IRQ_ROUTING_MSI) {
		log_once(LOG_WARN, "the I/O APIC and the 8259 do not deliver interrupts yet");
		return -1;
	}
	message = apic_msi_message(vm, e->u.msi.address_lo | (u64)e->u.msi.address_hi << 32,
				   e->u.msi.data);
	return apic_deliver(vm, &message, NULL);
}

int vm_irq_line(struct vm *vm, struct kvm_irq_level *irq)
{
	int taken = -1;

	if (!vm_has_lapic(vm))
		return -ENXIO;
	pthread_mutex_lock(&vm->lock);
	for (u32 i = 0; irq->level && vm->routes && i < vm->routes->n; i++) {
		const struct kvm_irq_routing_entry *e = &vm->routes->entry[i];
		int r = e->gsi == irq->irq ? raise_route(vm, e) : -1;

		if (r >= 0)
			taken = (taken < 0 ? 0 : taken) + r;
	}
	pthread_mutex_unlock(&vm->lock);
	irq->status = taken;
	return 0;
}

/* KVM: setup_routing_entry() and kvm_set_routing_entry(). */
static bool route_sane(const struct vm *vm, const struct kvm_irq_routing_entry *e)
{
	if (e->gsi >= VM_MAX_ROUTES)
		return false;
	switch (e->type) {
	case KVM_IRQ_ROUTING_IRQCHIP:
		if (!vm->irqchip_kernel || e->flags)
			return false;
		return e->u.irqchip.irqchip == KVM_IRQCHIP_IOAPIC
			       ? e->u.irqchip.pin < VM_IOAPIC_PINS
			       : e->u.irqchip.irqchip < KVM_IRQCHIP_IOAPIC && e->u.irqchip.pin < 8;
	case KVM_IRQ_ROUTING_MSI:
		/* With 32-bit ids the upper destination bits are in address_hi's upper 24 (KVM). */
		return !e->flags && !(vm->set.x2apic_api & KVM_X2APIC_API_USE_32BIT_IDS &&
				      e->u.msi.address_hi & 0xff);
	default:
		return false;
	}
}

int vm_set_routes(struct vm *vm, const struct kvm_irq_routing_entry *entries, u32 n)
{
	struct irq_routes *routes;

	for (u32 i = 0; i < n; i++)
		if (!route_sane(vm, &entries[i]))
			return -EINVAL;
	routes = malloc(sizeof(*routes) + n * sizeof(routes->entry[0]));
	if (!routes)
		return -ENOMEM;
	routes->n = n;
	if (n)
		memcpy(routes->entry, entries, n * sizeof(routes->entry[0]));
	pthread_mutex_lock(&vm->lock);
	free(vm->routes);
	vm->routes = routes;
	pthread_mutex_unlock(&vm->lock);
	return 0;
}

int vm_signal_msi(struct vm *vm, const struct kvm_msi *msi)
{
	struct lapic_message message;

	if (!vm_has_lapic(vm) || msi->flags)
		return -EINVAL;
	if (vm->set.x2apic_api & KVM_X2APIC_API_USE_32BIT_IDS && msi->address_hi & 0xff)
		return -EINVAL;
	message = apic_msi_message(vm, msi->address_lo | (u64)msi->address_hi << 32, msi->data);
	return apic_deliver(vm, &message, NULL); /* KVM: -1, which is -EPERM, if nobody is there */
}

void irqchip_destroy(struct vm *vm)
{
	free(vm->routes);
}
