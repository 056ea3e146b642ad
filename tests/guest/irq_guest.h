/* SPDX-License-Identifier: MIT */
/*
 * A guest that tells each vector that it takes by an OUT to PORT, then ends the interrupt as its
 * kind wants it; and ways to interrupt it. For tests that `vpmu kvm` runs; there is one at a time.
 */
#ifndef GUEST_IRQ_GUEST_H
#define GUEST_IRQ_GUEST_H

#include "guest/kvm_guest.h"

#define PORT	 0xf4
#define EOI_PORT 0xf5
#define READY	 0xff

#define PIC_BASE 0x30 /* vectors of the 8259s */
#define EDGE	 0x45
#define LEVEL	 0x4a
#define MSI	 0x50
#define EDGE_PIN 5
#define HIGH_PIN 10

extern struct kvm_guest irq_guest;

/* What a VM may have before it has vCPUs. */
void irq_with_irqchip(int vm);
void irq_with_pit(int vm);
void irq_with_split_irqchip(int vm);

/* Makes the guest, which has told READY and waits. */
void irq_start(void (*prepare)(int vm));
/* The stub of a vector, in this guest or another one, tells it and goes on at `end`. */
void irq_handle(u32 vector, u64 end);
/* The next byte that the guest sends to a port; other ports read as if no device were there. */
int irq_next(u16 port);

/* Two pins of the I/O APIC to the local APIC; all of the 8259s masked. */
void irq_redirect(u32 pin, u64 entry, u32 other_pin, u64 other_entry);
int irq_line(u32 irq, u32 level);
void irq_msi(u32 data);

#endif
