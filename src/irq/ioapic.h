/* SPDX-License-Identifier: MIT */
/*
 * The I/O APIC (Intel 290566 "82093AA"): 24 pins, version 0x11, no EOI register: the end of service
 * comes as a broadcast from the local APICs.
 *
 * A leaf: it sends nothing itself. Pins that have a message to send are marked in due; after every
 * call that can mark (lines, writes, EOI, state) the owner acts on acked, unmasked and reopened,
 * clears them, and then sends: while ((pin = ioapic_next(...)) >= 0) ioapic_sent(..., how many took
 * it).
 *
 * Threads: all under one lock of the owner, except ioapic_has_address() and ioapic_uses(), which
 * any thread may call.
 */
#ifndef IRQ_IOAPIC_H
#define IRQ_IOAPIC_H

#include <linux/kvm.h>

#include "base/types.h"
#include "irq/lapic.h" /* struct lapic_message */

#define IOAPIC_PINS KVM_IOAPIC_NUM_PINS
#define IOAPIC_BASE 0xfec00000ull
#define IOAPIC_SIZE 0x100u

struct ioapic {
	u64 base;
	u32 select; /* the register that the window shows */
	u32 id;
	u32 irr;       /* pins that are up, or whose edge was not taken yet */
	u32 delivered; /* edges in irr that were taken */
	u64 entry[IOAPIC_PINS];
	u8 lines[IOAPIC_PINS]; /* bit per source that holds the pin up */

	/* Marks for the owner: bit per pin. */
	u32 due;
	u32 acked;    /* service has ended: the owner clears them */
	u32 unmasked; /* a write let the pin through again: the owner clears them */
	/* A write left the pin unmasked while its level is up: resampling may find that it
	 * has fallen. */
	u32 reopened;

	u64 vectors[4]; /* that entries name */
};

enum ioapic_line {
	IOAPIC_COALESCED, /* the last edge was not taken yet */
	IOAPIC_TAKEN,	  /* noted: nothing to send */
	IOAPIC_DUE,	  /* look at ioapic_next() */
};

void ioapic_init(struct ioapic *ioapic);
/* One of up to eight sources of a pin changes. */
enum ioapic_line ioapic_set_line(struct ioapic *ioapic, u32 pin, u32 source, bool level);

/* A source goes up, but the pin does not: the owner coalesces it. */
void ioapic_note_line(struct ioapic *ioapic, u32 pin, u32 source);

/* What a pin sends. */
struct lapic_message ioapic_message(const struct ioapic *ioapic, u32 pin);
/* The next pin that has something to send, and what; or -1. */
int ioapic_next(struct ioapic *ioapic, struct lapic_message *message);
/* taken: how many local APICs accepted it, 0 none of the addressed, -1 no APIC was addressed. */
void ioapic_sent(struct ioapic *ioapic, u32 pin, int taken);

/* A local APIC ended a vector. level: as which it was taken there. */
void ioapic_eoi(struct ioapic *ioapic, u8 vector, bool level);
bool ioapic_uses(const struct ioapic *ioapic, u8 vector); /* else ioapic_eoi() would do nothing */

static inline bool ioapic_has_address(const struct ioapic *ioapic, u64 gpa)
{
	return gpa - READ_ONCE(ioapic->base) < IOAPIC_SIZE;
}

u32 ioapic_read(const struct ioapic *ioapic, u32 offset);
void ioapic_write(struct ioapic *ioapic, u32 offset, u32 value);

/* KVM_GET_IRQCHIP, KVM_SET_IRQCHIP. */
void ioapic_get_state(const struct ioapic *ioapic, struct kvm_ioapic_state *state);
void ioapic_set_state(struct ioapic *ioapic, const struct kvm_ioapic_state *state);

#endif
