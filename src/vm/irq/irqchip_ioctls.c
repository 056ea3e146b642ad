// SPDX-License-Identifier: MIT
/*
 * The ioctls of the VM's interrupt controllers: creation, state, lines, routes, MSIs, irqfds
 * (api.rst 4.24-4.26, 4.52, 4.70-4.75). Checks what the program passes, so that the chips need not.
 * Creation and routes change under vm->lock, state under that of the chips. Any thread.
 */
#include <errno.h>
#include <string.h>

#include "vm/io.h"
#include "vm/irq/apic.h"
#include "vm/irq/irqchip.h"
#include "vm/vm.h"

int vm_create_irqchip(struct vm *vm)
{
	int r;

	pthread_mutex_lock(&vm->lock);
	if (vm_has_lapic(vm))
		r = -EEXIST;
	else if (vm->created_vcpus)
		r = -EINVAL;
	else
		r = irqchip_create(vm, false);
	pthread_mutex_unlock(&vm->lock);
	return r;
}

static int create_pit(struct vm *vm, u32 flags)
{
	struct irqchip *chip = vm->irqchip;
	int r;

	if (!vm->irqchip_kernel)
		return -ENOENT;
	if (chip->has_pit)
		return -EEXIST;
	r = irq_thread_start(vm);
	if (r)
		return r;
	pthread_mutex_lock(&chip->lock);
	pit_init(&chip->pit, vm_timer_ns(vm));
	chip->has_speaker = flags & KVM_PIT_SPEAKER_DUMMY;
	WRITE_ONCE(chip->has_pit, true);
	pthread_mutex_unlock(&chip->lock);
	return 0;
}

int vm_create_pit(struct vm *vm, u32 flags)
{
	int r;

	pthread_mutex_lock(&vm->lock);
	r = create_pit(vm, flags);
	pthread_mutex_unlock(&vm->lock);
	return r;
}

int vm_get_irqchip(struct vm *vm, struct kvm_irqchip *chip)
{
	u32 id = chip->chip_id;

	if (!vm->irqchip_kernel)
		return -ENXIO;
	if (id >= KVM_NR_IRQCHIPS)
		return -EINVAL;
	memset(&chip->chip, 0, sizeof(chip->chip));
	pthread_mutex_lock(&vm->irqchip->lock);
	if (id == KVM_IRQCHIP_IOAPIC)
		ioapic_get_state(&vm->irqchip->ioapic, &chip->chip.ioapic);
	else
		pic_get_state(&vm->irqchip->pic, id, &chip->chip.pic);
	pthread_mutex_unlock(&vm->irqchip->lock);
	return 0;
}

int vm_set_irqchip(struct vm *vm, const struct kvm_irqchip *chip)
{
	bool output;

	if (!vm->irqchip_kernel)
		return -ENXIO;
	if (chip->chip_id >= KVM_NR_IRQCHIPS)
		return -EINVAL;
	output = irqchip_lock(vm);
	if (chip->chip_id == KVM_IRQCHIP_IOAPIC)
		ioapic_set_state(&vm->irqchip->ioapic, &chip->chip.ioapic);
	else
		pic_set_state(&vm->irqchip->pic, chip->chip_id, &chip->chip.pic);
	irqchip_unlock(vm, output);
	if (chip->chip_id == KVM_IRQCHIP_IOAPIC) { /* what it has sent by now is in the APICs */
		pthread_mutex_lock(&vm->irqchip->lock);
		rtc_eoi_restore_all(vm);
		pthread_mutex_unlock(&vm->irqchip->lock);
	}
	return 0;
}

static bool has_pit(const struct vm *vm)
{
	return vm->irqchip_kernel && READ_ONCE(vm->irqchip->has_pit);
}

int vm_get_pit(struct vm *vm, struct kvm_pit_state2 *pit)
{
	if (!has_pit(vm))
		return -ENXIO;
	pthread_mutex_lock(&vm->irqchip->lock);
	pit_get_state(&vm->irqchip->pit, pit);
	pthread_mutex_unlock(&vm->irqchip->lock);
	return 0;
}

int vm_set_pit(struct vm *vm, const struct kvm_pit_state2 *pit)
{
	if (!has_pit(vm))
		return -ENXIO;
	pthread_mutex_lock(&vm->irqchip->lock);
	pit_set_state(&vm->irqchip->pit, pit, vm_timer_ns(vm));
	irqchip_pit_rearm(vm);
	pthread_mutex_unlock(&vm->irqchip->lock);
	return 0;
}

int vm_reinject_control(struct vm *vm, bool reinject)
{
	if (!has_pit(vm))
		return -ENXIO;
	pthread_mutex_lock(&vm->irqchip->lock);
	pit_set_reinject(&vm->irqchip->pit, reinject);
	pthread_mutex_unlock(&vm->irqchip->lock);
	return 0;
}

int vm_irq_line(struct vm *vm, struct kvm_irq_level *irq, bool wants_status)
{
	if (!vm_has_lapic(vm))
		return -ENXIO;
	irq->status = wants_status ? irqchip_set_gsi_status(vm, irq->irq, irq->level)
				   : irqchip_set_gsi(vm, irq->irq, IRQ_SOURCE_PROGRAM, irq->level);
	return 0;
}

/* With 32-bit ids the upper destination bits are in address_hi's upper 24 (KVM). */
static bool msi_sane(const struct vm *vm, u32 address_hi)
{
	return !(vm->set.x2apic_api & KVM_X2APIC_API_USE_32BIT_IDS) || !(address_hi & 0xff);
}

/* KVM: kvm_set_routing_entry(). */
static bool route_sane(const struct vm *vm, const struct kvm_irq_routing_entry *e)
{
	if (e->gsi >= ROUTE_MAX_GSIS || e->flags)
		return false;
	switch (e->type) {
	case KVM_IRQ_ROUTING_IRQCHIP:
		if (!vm->irqchip_kernel)
			return false;
		return e->u.irqchip.irqchip == KVM_IRQCHIP_IOAPIC
			       ? e->u.irqchip.pin < IOAPIC_PINS
			       : e->u.irqchip.irqchip < KVM_IRQCHIP_IOAPIC && e->u.irqchip.pin < 8;
	case KVM_IRQ_ROUTING_MSI:
		return msi_sane(vm, e->u.msi.address_hi);
	default:
		return false;
	}
}

int vm_set_routes(struct vm *vm, const struct kvm_irq_routing_entry *entries, u32 n)
{
	int r;

	for (u32 i = 0; i < n; i++)
		if (!route_sane(vm, &entries[i]))
			return -EINVAL;
	pthread_mutex_lock(&vm->lock);
	r = route_set(&vm->irqchip->routes, entries, n);
	pthread_mutex_unlock(&vm->lock);
	return r;
}

int vm_signal_msi(struct vm *vm, const struct kvm_msi *msi)
{
	struct lapic_message message;

	if (!vm_has_lapic(vm) || msi->flags || !msi_sane(vm, msi->address_hi))
		return -EINVAL;
	message = apic_msi_message(vm, msi->address_lo | (u64)msi->address_hi << 32, msi->data);
	return apic_deliver(vm, &message, NULL); /* KVM: -1, which is -EPERM, if no APIC matches */
}

/* --- irqfds --- */

/* Where an irqfd goes away, the lock makes sure that no signal of it is still on its way: it would
 * raise the level again after it was lowered here (KVM flushes its work). */
static int assign_irqfd(struct vm *vm, const struct kvm_irqfd *args)
{
	struct irqchip *chip = vm->irqchip;
	s64 fallen;
	int r;

	pthread_mutex_lock(&chip->drain_lock);
	r = irqfd_assign(&chip->irqfds, args, &fallen);
	if (fallen >= 0)
		irqchip_set_gsi(vm, fallen, IRQ_SOURCE_RESAMPLE, false);
	pthread_mutex_unlock(&chip->drain_lock);
	return r;
}

static int irqfd_add(struct vm *vm, const struct kvm_irqfd *args)
{
	bool resamples = args->flags & KVM_IRQFD_FLAG_RESAMPLE;
	int r;

	if (resamples && !vm->irqchip_kernel) /* KVM: only pins have a level */
		return -EINVAL;
	r = io_eventfd_sane(args->fd);
	if (!r && resamples)
		r = io_eventfd_sane(args->resamplefd);
	if (r)
		return r;
	pthread_mutex_lock(&vm->lock);
	r = irq_thread_start(vm);
	pthread_mutex_unlock(&vm->lock);
	return r ? r : assign_irqfd(vm, args);
}

static int irqfd_remove(struct vm *vm, const struct kvm_irqfd *args)
{
	struct irqchip *chip = vm->irqchip;
	bool last_of_level;
	int r = io_eventfd_sane(args->fd);

	if (r || !READ_ONCE(chip->has_thread))
		return r;
	pthread_mutex_lock(&chip->drain_lock);
	r = irqfd_deassign(&chip->irqfds, args, &last_of_level);
	if (last_of_level)
		irqchip_set_gsi(vm, args->gsi, IRQ_SOURCE_RESAMPLE, false);
	pthread_mutex_unlock(&chip->drain_lock);
	return r;
}

int vm_irqfd(struct vm *vm, const struct kvm_irqfd *args)
{
	if (args->flags & ~(u32)(KVM_IRQFD_FLAG_DEASSIGN | KVM_IRQFD_FLAG_RESAMPLE))
		return -EINVAL;
	if (!vm_has_lapic(vm))
		return args->flags & KVM_IRQFD_FLAG_DEASSIGN ? 0 : -EAGAIN;
	return args->flags & KVM_IRQFD_FLAG_DEASSIGN ? irqfd_remove(vm, args) : irqfd_add(vm, args);
}
