// SPDX-License-Identifier: MIT
/*
 * The interrupt controllers wired together: how a GSI reaches pins and APICs, what the guest sees
 * of the chips, and what follows from the end of an interrupt's service. See vm/irq/irqchip.h. Any
 * thread.
 *
 * The chips only mark what they want (irq/ioapic.h, irq/pic.h); settle() acts on the marks before
 * the lock is given back.
 */
#include "vm/irq/irqchip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vm/irq/apic.h"
#include "vm/vm.h"

#define TIMER_GSI 0 /* of the 8254 (KVM: whatever the routes say) */

int irqchip_create(struct vm *vm, bool split)
{
	struct irqchip *chip = calloc(1, sizeof(*chip));

	if (!chip)
		return -ENOMEM;
	pthread_mutex_init(&chip->lock, NULL);
	pthread_mutex_init(&chip->drain_lock, NULL);
	pic_init(&chip->pic);
	ioapic_init(&chip->ioapic);
	route_init(&chip->routes);
	if (!split && route_set_default(&chip->routes)) {
		pthread_mutex_destroy(&chip->drain_lock);
		pthread_mutex_destroy(&chip->lock);
		free(chip);
		return -ENOMEM;
	}
	vm->irqchip = chip;
	vm->irqchip_split = split;
	vm->irqchip_kernel = !split;
	return 0;
}

void irqchip_destroy(struct vm *vm)
{
	if (!vm->irqchip)
		return;
	irq_thread_end(vm);
	pthread_mutex_destroy(&vm->irqchip->drain_lock);
	pthread_mutex_destroy(&vm->irqchip->lock);
	free(vm->irqchip);
}

/* --- raising --- */

static void kick_for_pic(struct vm *vm)
{
	u32 n = vm_nvcpus(vm);

	for (u32 i = 0; i < n; i++)
		if (vm->vcpus[i]->has_lapic && lapic_accepts_pic(&vm->vcpus[i]->lapic))
			vcpu_kick(vm->vcpus[i], REQUEST_EVENT);
}

/* Sends what the I/O APIC has due: how many took the message of one pin, -1 if it had none. track:
 * who took that one is noted, until it has ended. */
static int send_due(struct vm *vm, u32 asked, bool track)
{
	struct ioapic *ioapic = &vm->irqchip->ioapic;
	struct lapic_message message;
	int pin, taken, result = -1;

	while ((pin = ioapic_next(ioapic, &message)) >= 0) {
		if (track && (u32)pin == asked)
			taken = apic_deliver_noting(vm, &message, rtc_eoi_taken);
		else
			taken = apic_deliver(vm, &message, NULL);
		ioapic_sent(ioapic, pin, taken);
		if ((u32)pin == asked)
			result = taken;
	}
	return result;
}

static int set_pin(struct vm *vm, u32 chip, u32 pin, enum irq_source source, bool level,
		   bool wants_status)
{
	struct irqchip *c = vm->irqchip;
	bool tracks = wants_status && pin == RTC_PIN;

	if (chip != KVM_IRQCHIP_IOAPIC)
		return pic_set_line(&c->pic, chip * 8 + pin, source, level);
	if (level && tracks && c->rtc.pending) {
		ioapic_note_line(&c->ioapic, pin, source);
		return 0;
	}
	switch (ioapic_set_line(&c->ioapic, pin, source, level)) {
	case IOAPIC_COALESCED:
		return 0;
	case IOAPIC_TAKEN:
		return 1;
	case IOAPIC_DUE:
		break;
	}
	return send_due(vm, pin, tracks);
}

/* Chip lock held. */
static int set_pins(struct vm *vm, const struct route *route, enum irq_source source, bool level,
		    bool wants_status)
{
	int sum = -1;

	for (u32 i = 0; i < ROUTE_CHIPS; i++) {
		int r = route->pin[i] == ROUTE_NO_PIN
				? -1
				: set_pin(vm, i, route->pin[i], source, level, wants_status);

		if (r >= 0)
			sum = (sum < 0 ? 0 : sum) + r;
	}
	return sum;
}

static void pulse_timer(struct vm *vm)
{
	struct route route = route_lookup(&vm->irqchip->routes, TIMER_GSI);

	set_pins(vm, &route, IRQ_SOURCE_PIT, true, false);
	set_pins(vm, &route, IRQ_SOURCE_PIT, false, false);
}

/* --- the end of service --- */

/* The line of a resampling irqfd goes down; its device raises it again if it still wants
 * something. */
static void resample(struct vm *vm, int gsi)
{
	struct route route;

	if (gsi < 0 || !irqfd_resample(&vm->irqchip->irqfds, gsi, false))
		return;
	route = route_lookup(&vm->irqchip->routes, gsi);
	set_pins(vm, &route, IRQ_SOURCE_RESAMPLE, false, false);
	irqfd_resample(&vm->irqchip->irqfds, gsi, true);
}

/* Pins of one chip whose service has ended, or that were let through again. */
static void pins_changed(struct vm *vm, u32 chip, u32 acked, u32 unmasked, u32 reopened)
{
	struct irqchip *c = vm->irqchip;

	for (u32 rest = acked | unmasked | reopened; rest; rest &= rest - 1) {
		u32 pin = __builtin_ctz(rest), bit = 1u << pin;
		int gsi = route_gsi_of(&c->routes, chip, pin);

		if ((unmasked & bit) && gsi == TIMER_GSI)
			pit_forget_ticks(&c->pit);
		if ((acked | reopened) & bit)
			resample(vm, gsi);
		if ((acked & bit) && gsi == TIMER_GSI && c->has_pit && pit_acked(&c->pit))
			pulse_timer(vm);
	}
}

static u32 take(u32 *marks)
{
	u32 taken = *marks;

	*marks = 0;
	return taken;
}

/* Acts on all that the chips marked. Chip lock held. */
static void settle(struct vm *vm)
{
	struct ioapic *ioapic = &vm->irqchip->ioapic;
	struct pic *pic = &vm->irqchip->pic;

	while (pic->acked | pic->unmasked | ioapic->acked | ioapic->unmasked | ioapic->reopened) {
		u32 acked = pic->acked, unmasked = pic->unmasked;

		pic->acked = pic->unmasked = 0;
		pins_changed(vm, KVM_IRQCHIP_PIC_MASTER, acked & 0xff, unmasked & 0xff, 0);
		pins_changed(vm, KVM_IRQCHIP_PIC_SLAVE, acked >> 8, unmasked >> 8, 0);
		acked = take(&ioapic->acked);
		unmasked = take(&ioapic->unmasked);
		pins_changed(vm, KVM_IRQCHIP_IOAPIC, acked, unmasked, take(&ioapic->reopened));
	}
	send_due(vm, IOAPIC_PINS, false);
}

bool irqchip_lock(struct vm *vm)
{
	pthread_mutex_lock(&vm->irqchip->lock);
	return pic_output(&vm->irqchip->pic);
}

void irqchip_unlock(struct vm *vm, bool had_output)
{
	bool rose;

	settle(vm);
	rose = !had_output && pic_output(&vm->irqchip->pic);
	pthread_mutex_unlock(&vm->irqchip->lock);
	if (rose)
		kick_for_pic(vm);
}

static int set_gsi(struct vm *vm, u32 gsi, enum irq_source source, bool level, bool wants_status)
{
	struct route route = route_lookup(&vm->irqchip->routes, gsi);
	struct lapic_message message;
	bool output;
	int r;

	if (route.msi) {
		message = apic_msi_message(vm, route.address, route.data);
		return level ? apic_deliver(vm, &message, NULL) : -1;
	}
	output = irqchip_lock(vm);
	r = set_pins(vm, &route, source, level, wants_status);
	irqchip_unlock(vm, output);
	return r;
}

int irqchip_set_gsi(struct vm *vm, u32 gsi, enum irq_source source, bool level)
{
	return set_gsi(vm, gsi, source, level, false);
}

int irqchip_set_gsi_status(struct vm *vm, u32 gsi, bool level)
{
	return set_gsi(vm, gsi, IRQ_SOURCE_PROGRAM, level, true);
}

bool irqchip_has_extint(const struct vm *vm)
{
	return pic_output(&vm->irqchip->pic);
}

u8 irqchip_take_extint(struct vm *vm)
{
	bool output = irqchip_lock(vm);
	u8 vector = pic_ack(&vm->irqchip->pic);

	irqchip_unlock(vm, output);
	return vector;
}

void irqchip_eoi(struct vcpu *vcpu, u8 vector, bool level)
{
	struct vm *vm = vcpu->vm;
	bool output;

	if (vm->irqchip_split) {
		/* Only I/O APICs send levels: one of the program's wants to know. */
		if (level && vm->set.reserved_ioapic_pins) {
			vcpu->events.ioapic_eoi = vector;
			__atomic_fetch_or(&vcpu->requests, REQUEST_IOAPIC_EOI, __ATOMIC_SEQ_CST);
		}
		return;
	}
	if (!ioapic_uses(&vm->irqchip->ioapic, vector) && !rtc_eoi_wanted(vcpu, vector))
		return;
	output = irqchip_lock(vm);
	rtc_eoi_ended(vcpu, vector);
	ioapic_eoi(&vm->irqchip->ioapic, vector, level);
	irqchip_unlock(vm, output);
}

/* --- the 8254 --- */

void irqchip_pit_rearm(struct vm *vm)
{
	struct irqchip *chip = vm->irqchip;
	u64 expiry = pit_expiry(&chip->pit);

	if (vm->time.is_virtual)
		return; /* the vCPU looks */
	irqfd_set_timer(&chip->irqfds, expiry == PIT_NO_EXPIRY ? IRQFD_NEVER : expiry);
}

void irqchip_pit_expired(struct vm *vm)
{
	struct irqchip *chip = vm->irqchip;
	bool output = irqchip_lock(vm);

	if (pit_poll(&chip->pit, vm_timer_ns(vm)))
		pulse_timer(vm);
	irqchip_pit_rearm(vm);
	irqchip_unlock(vm, output);
}

u64 irqchip_pit_expiry(struct vm *vm)
{
	struct irqchip *chip = vm->irqchip;
	u64 expiry;

	if (!chip || !READ_ONCE(chip->has_pit))
		return PIT_NO_EXPIRY;
	pthread_mutex_lock(&chip->lock);
	expiry = pit_expiry(&chip->pit);
	pthread_mutex_unlock(&chip->lock);
	return expiry;
}

/* --- what the guest sees --- */

static bool pit_has_port(const struct irqchip *chip, u32 port)
{
	if (!READ_ONCE(chip->has_pit))
		return false;
	return (port & ~3u) == PIT_PORT || (chip->has_speaker && port == PIT_SPEAKER);
}

static bool has_port(const struct vm *vm, u32 port)
{
	return vm->irqchip_kernel && (pic_has_port(port) || pit_has_port(vm->irqchip, port));
}

static u8 port_read(struct vm *vm, u32 port)
{
	struct irqchip *chip = vm->irqchip;

	if (pic_has_port(port))
		return pic_read(&chip->pic, port);
	if (port == PIT_SPEAKER)
		return pit_speaker_read(&chip->pit, vm_timer_ns(vm));
	return pit_read(&chip->pit, port, vm_timer_ns(vm));
}

static void port_write(struct vm *vm, u32 port, u8 value)
{
	struct irqchip *chip = vm->irqchip;
	u64 before = pit_expiry(&chip->pit);

	if (pic_has_port(port)) {
		pic_write(&chip->pic, port, value);
	} else if (port == PIT_SPEAKER) {
		pit_speaker_write(&chip->pit, value, vm_timer_ns(vm));
	} else {
		pit_write(&chip->pit, port, value, vm_timer_ns(vm));
		if (pit_expiry(&chip->pit) != before)
			irqchip_pit_rearm(vm);
	}
}

bool irqchip_port_read(struct vm *vm, u32 port, u32 len, void *data)
{
	bool output;

	if (!has_port(vm, port))
		return false;
	output = irqchip_lock(vm);
	memset(data, 0, len);
	if (len == 1 || !pic_has_port(port)) /* KVM: the 8259s know bytes only */
		*(u8 *)data = port_read(vm, port);
	irqchip_unlock(vm, output);
	return true;
}

bool irqchip_port_write(struct vm *vm, u32 port, u32 len, const void *data)
{
	bool output;

	if (!has_port(vm, port))
		return false;
	output = irqchip_lock(vm);
	if (len == 1 || !pic_has_port(port))
		port_write(vm, port, *(const u8 *)data);
	irqchip_unlock(vm, output);
	return true;
}

static bool has_address(const struct vm *vm, gpa_t gpa)
{
	return vm->irqchip_kernel && ioapic_has_address(&vm->irqchip->ioapic, gpa);
}

bool irqchip_mmio_read(struct vm *vm, gpa_t gpa, u32 len, void *data)
{
	u64 value;

	if (!has_address(vm, gpa))
		return false;
	pthread_mutex_lock(&vm->irqchip->lock);
	value = ioapic_read(&vm->irqchip->ioapic, gpa & (IOAPIC_SIZE - 1));
	pthread_mutex_unlock(&vm->irqchip->lock);
	memcpy(data, &value, len);
	return true;
}

bool irqchip_mmio_write(struct vm *vm, gpa_t gpa, u32 len, const void *data)
{
	u32 value = 0;
	bool output;

	if (!has_address(vm, gpa))
		return false;
	memcpy(&value, data, len < sizeof(value) ? len : sizeof(value));
	output = irqchip_lock(vm);
	ioapic_write(&vm->irqchip->ioapic, gpa & (IOAPIC_SIZE - 1), value);
	irqchip_unlock(vm, output);
	return true;
}
