/* SPDX-License-Identifier: MIT */
/*
 * Where the local APICs of a VM meet: their MMIO window, messages between them, and what their
 * registers ask of the outside. The APIC itself is irq/lapic.h.
 */
#ifndef VM_IRQ_APIC_H
#define VM_IRQ_APIC_H

#include "base/types.h"
#include "irq/lapic.h"

struct vcpu;
struct vm;

struct lapic_now apic_now(const struct vcpu *vcpu);

/* Acts on what a register write asked for: sends IPIs, marks requests. vCPU thread. */
void apic_act(struct vcpu *vcpu, const struct lapic_actions *actions);

/*
 * Delivers a message to every APIC that it is meant for, and kicks their vCPUs. source: the sending
 * vCPU, or NULL for MSIs and the I/O APIC. Returns how many took it, -1 if there was none to take
 * it (KVM_SIGNAL_MSI's answer).
 */
int apic_deliver(struct vm *vm, const struct lapic_message *message, const struct vcpu *source);
/* The same, and tells which vCPUs took it as an interrupt. */
int apic_deliver_noting(struct vm *vm, const struct lapic_message *message,
			void (*taken)(struct vcpu *vcpu, u8 vector));
/* Delivers a message to one vCPU, whatever its destination. */
bool apic_deliver_to(struct vcpu *vcpu, const struct lapic_message *message);
/* KVM_SIGNAL_MSI and MSI routes: an address and data pair as a message (SDM 3A 10.11). */
struct lapic_message apic_msi_message(const struct vm *vm, u64 address, u32 data);

/* MMIO: true if the APIC page is at gpa and this access was answered here; else it is the
 * program's. */
bool apic_mmio_read(struct vcpu *vcpu, gpa_t gpa, u32 len, void *data);
bool apic_mmio_write(struct vcpu *vcpu, gpa_t gpa, u32 len, const void *data);

/* IA32_APIC_BASE: false is #GP(0). Works without an in-kernel APIC too, as KVM does. */
bool apic_set_base(struct vcpu *vcpu, u64 value, bool host);

/* CR8, wherever it lives: in the APIC, or in struct cpu without one. */
u64 apic_get_cr8(const struct vcpu *vcpu);
void apic_set_cr8(struct vcpu *vcpu, u64 value);

#endif
