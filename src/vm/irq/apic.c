// SPDX-License-Identifier: MIT
/*
 * Messages between local APICs, their MMIO window and IA32_APIC_BASE: see vm/irq/apic.h. Delivery
 * runs on any thread, the rest on the vCPU's.
 */
#include "vm/irq/apic.h"

#include <string.h>

#include "vm/cpuid/cpuid.h"
#include "vm/irq/irqchip.h"
#include "vm/vm.h"

struct lapic_now apic_now(const struct vcpu *vcpu)
{
	return (struct lapic_now){
		.ns = vcpu_timer_ns(vcpu),
		.tsc = vcpu_tsc(vcpu),
		.tsc_khz = vcpu->clock.khz,
	};
}

static bool is_meant(const struct vcpu *vcpu, const struct lapic_message *message,
		     const struct vcpu *source)
{
	if (!vcpu->has_lapic)
		return false;
	switch (message->shorthand) {
	case LAPIC_DEST_SELF:
		return vcpu == source;
	case LAPIC_DEST_ALL:
		return lapic_hw_enabled(&vcpu->lapic);
	case LAPIC_DEST_OTHERS:
		return vcpu != source && lapic_hw_enabled(&vcpu->lapic);
	case LAPIC_DEST_FIELD:
		break;
	}
	return lapic_matches(&vcpu->lapic, message);
}

/* Lowest priority: round-robin, as in KVM, not by task priority. */
static struct vcpu *lowest(struct vcpu *a, struct vcpu *b)
{
	if (!lapic_sw_enabled(&b->lapic))
		return a;
	if (!a || READ_ONCE(b->lapic.arbitration) < READ_ONCE(a->lapic.arbitration))
		return b;
	return a;
}

bool apic_deliver_to(struct vcpu *vcpu, const struct lapic_message *message)
{
	bool taken = vcpu->has_lapic && lapic_accept(&vcpu->lapic, message);

	if (taken)
		vcpu_kick(vcpu, REQUEST_EVENT);
	return taken;
}

static bool deliver_noting(struct vcpu *vcpu, const struct lapic_message *message,
			   void (*note)(struct vcpu *, u8))
{
	bool taken = apic_deliver_to(vcpu, message);

	if (note && taken && (message->mode == LAPIC_FIXED || message->mode == LAPIC_LOWEST))
		note(vcpu, message->vector);
	return taken;
}

static int deliver(struct vm *vm, const struct lapic_message *message, const struct vcpu *source,
		   void (*note)(struct vcpu *, u8))
{
	u32 n = vm_nvcpus(vm);
	struct vcpu *chosen = NULL;
	int taken = -1;

	for (u32 i = 0; i < n; i++) {
		struct vcpu *vcpu = vm->vcpus[i];

		if (!is_meant(vcpu, message, source))
			continue;
		if (message->mode == LAPIC_LOWEST)
			chosen = lowest(chosen, vcpu);
		else
			taken = (taken < 0 ? 0 : taken) + deliver_noting(vcpu, message, note);
	}
	return chosen ? deliver_noting(chosen, message, note) : taken;
}

int apic_deliver(struct vm *vm, const struct lapic_message *message, const struct vcpu *source)
{
	return deliver(vm, message, source, NULL);
}

int apic_deliver_noting(struct vm *vm, const struct lapic_message *message,
			void (*taken)(struct vcpu *vcpu, u8 vector))
{
	return deliver(vm, message, NULL, taken);
}

struct lapic_message apic_msi_message(const struct vm *vm, u64 address, u32 data)
{
	struct lapic_message message = {
		.mode = data >> 8 & 7,
		.vector = data & 0xff,
		.logical = address & BIT(2),
		.level = data & BIT(15),
		.assert = true,
		.dest = address >> 12 & 0xff,
	};

	if (vm->set.x2apic_api & KVM_X2APIC_API_USE_32BIT_IDS)
		message.dest |= address >> 32 & 0xffffff00;
	/* The redirection hint makes any of the addressed APICs good enough. */
	if ((address & BIT(3)) && message.mode == LAPIC_FIXED)
		message.mode = LAPIC_LOWEST;
	return message;
}

void apic_act(struct vcpu *vcpu, const struct lapic_actions *actions)
{
	if (actions->what & LAPIC_DO_SEND) {
		apic_deliver(vcpu->vm, &actions->message, vcpu);
		if (actions->message.shorthand != LAPIC_DEST_SELF)
			schedule_yield(vcpu);
	}
	if (actions->what & LAPIC_DO_EOI)
		irqchip_eoi(vcpu, actions->eoi_vector, actions->eoi_level);
	if (actions->what & LAPIC_DO_MODE)
		cpuid_refresh(vcpu);
	if (actions->what & (LAPIC_DO_EVENT | LAPIC_DO_TIMER | LAPIC_DO_MODE))
		__atomic_fetch_or(&vcpu->requests, REQUEST_EVENT, __ATOMIC_SEQ_CST);
}

static bool in_window(const struct vcpu *vcpu, gpa_t gpa)
{
	return vcpu->has_lapic && (gpa & PAGE_MASK) == (vcpu->lapic.base & PAGE_MASK);
}

/* KVM: where the page would be if the APIC were in xAPIC mode, nothing answers, but the program is
 * not asked. */
static bool swallow(const struct vcpu *vcpu)
{
	return vm_has_quirk(vcpu->vm, KVM_X86_QUIRK_LAPIC_MMIO_HOLE);
}

bool apic_mmio_read(struct vcpu *vcpu, gpa_t gpa, u32 len, void *data)
{
	if (!in_window(vcpu, gpa))
		return false;
	if (lapic_mmio_read(&vcpu->lapic, gpa & ~PAGE_MASK, len, apic_now(vcpu), data))
		return true;
	memset(data, 0xff, len);
	return swallow(vcpu);
}

bool apic_mmio_write(struct vcpu *vcpu, gpa_t gpa, u32 len, const void *data)
{
	struct lapic_actions actions = { 0 };
	u32 offset = gpa & ~PAGE_MASK;

	if (!in_window(vcpu, gpa))
		return false;
	if (!lapic_mmio_write(&vcpu->lapic, offset, len, apic_now(vcpu), data, &actions))
		return swallow(vcpu);
	apic_act(vcpu, &actions);
	return true;
}

bool apic_set_base(struct vcpu *vcpu, u64 value, bool host)
{
	struct lapic_actions actions = { 0 };
	u64 valid = MASK(vcpu->cpu->phys_bits - 1, 12) | APIC_BASE_ENABLE | APIC_BASE_BSP;

	if (cpu_has(vcpu->cpu, FEAT_X2APIC))
		valid |= APIC_BASE_X2APIC;
	if (!lapic_set_base(&vcpu->lapic, value, valid, host, &actions))
		return false;
	apic_act(vcpu, &actions);
	return true;
}

u64 apic_get_cr8(const struct vcpu *vcpu)
{
	return vcpu->has_lapic ? lapic_get_cr8(&vcpu->lapic) : vcpu->cpu->cr8;
}

void apic_set_cr8(struct vcpu *vcpu, u64 value)
{
	vcpu->cpu->cr8 = value & 0xf;
	if (!vcpu->has_lapic)
		return;
	lapic_set_cr8(&vcpu->lapic, value);
	__atomic_fetch_or(&vcpu->requests, REQUEST_EVENT, __ATOMIC_SEQ_CST);
}
