/* SPDX-License-Identifier: MIT */
/*
 * GSI routes: where each of the VM's global interrupts goes, either to pins of the interrupt
 * controllers (one of each at most) or as an MSI to a local APIC
 * (Documentation/virt/kvm/api.rst 4.52).
 *
 * Threads: readers take no lock; a sequence count tells them to look again if the table was
 * replaced meanwhile. Writers hold a lock of the owner.
 */
#ifndef IRQ_ROUTE_H
#define IRQ_ROUTE_H

#include <linux/kvm.h>

#include "base/types.h"

#define ROUTE_MAX_GSIS 4096u
#define ROUTE_CHIPS    3u /* KVM_IRQCHIP_PIC_MASTER, _SLAVE, _IOAPIC */
#define ROUTE_MAX_PINS 24u
#define ROUTE_NO_PIN   0xffu

/* A GSI without any pin that is no MSI goes nowhere. */
struct route {
	bool msi;
	u8 pin[ROUTE_CHIPS]; /* or ROUTE_NO_PIN */
	u64 address;	     /* of the MSI */
	u32 data;
};

struct route_table {
	u32 sequence; /* odd while a writer is at work */
	s16 gsi_of[ROUTE_CHIPS][ROUTE_MAX_PINS];
	u64 row[ROUTE_MAX_GSIS][2]; /* struct route, packed */
};

void route_init(struct route_table *table);
/* Replaces all routes. 0, -EINVAL if a GSI has a route twice, -ENOMEM. Entries are sane one by
 * one. */
int route_set(struct route_table *table, const struct kvm_irq_routing_entry *entries, u32 n);
/* Pins 0 to 15 of the 8259s and 0 to 23 of the I/O APIC under their own numbers. */
int route_set_default(struct route_table *table);

struct route route_lookup(const struct route_table *table, u32 gsi);
int route_gsi_of(const struct route_table *table, u32 chip, u32 pin); /* -1: none */

#endif
