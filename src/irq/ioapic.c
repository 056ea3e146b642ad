// SPDX-License-Identifier: MIT
/*
 * The I/O APIC (82093AA 3), with the choices that KVM made: polarity is ignored, and so is the
 * delivery status. See irq/ioapic.h. Any thread, under the owner's lock.
 */
#include "irq/ioapic.h"

#include <string.h>

#define VERSION (0x11u | (IOAPIC_PINS - 1u) << 16)

/* Offsets in the page, and what the window shows (82093AA 3.1, 3.2). */
enum { OFFSET_SELECT = 0x00, OFFSET_WINDOW = 0x10 };
enum { REG_ID, REG_VERSION, REG_ARBITRATION, REG_ENTRIES = 0x10 };

/* A redirection table entry (82093AA 3.2.4). */
#define ENTRY_LOGICAL	 BIT(11)
#define ENTRY_STATUS	 BIT(12)
#define ENTRY_REMOTE_IRR BIT(14)
#define ENTRY_LEVEL	 BIT(15)
#define ENTRY_MASKED	 BIT(16)
#define ENTRY_READ_ONLY	 (ENTRY_STATUS | ENTRY_REMOTE_IRR)

static void note_vectors(struct ioapic *ioapic)
{
	u64 vectors[4] = { 0 };

	for (u32 i = 0; i < IOAPIC_PINS; i++)
		vectors[(ioapic->entry[i] & 0xff) / 64] |= BIT(ioapic->entry[i] % 64);
	for (u32 i = 0; i < ARRAY_SIZE(vectors); i++)
		__atomic_store_n(&ioapic->vectors[i], vectors[i], __ATOMIC_RELEASE);
}

bool ioapic_uses(const struct ioapic *ioapic, u8 vector)
{
	return __atomic_load_n(&ioapic->vectors[vector / 64], __ATOMIC_ACQUIRE) >> vector % 64 & 1;
}

void ioapic_init(struct ioapic *ioapic)
{
	memset(ioapic, 0, sizeof(*ioapic));
	ioapic->base = IOAPIC_BASE;
	for (u32 i = 0; i < IOAPIC_PINS; i++)
		ioapic->entry[i] = ENTRY_MASKED;
	note_vectors(ioapic);
}

static enum ioapic_line raise(struct ioapic *ioapic, u32 pin)
{
	u32 bit = 1u << pin;
	bool again = ioapic->irr & bit;

	ioapic->irr |= bit;
	if (!(ioapic->entry[pin] & ENTRY_LEVEL)) {
		ioapic->delivered &= ~bit;
		if (again)
			return IOAPIC_COALESCED;
	}
	ioapic->due |= bit;
	return IOAPIC_DUE;
}

enum ioapic_line ioapic_set_line(struct ioapic *ioapic, u32 pin, u32 source, bool level)
{
	if (level)
		ioapic->lines[pin] |= 1u << source;
	else
		ioapic->lines[pin] &= ~(1u << source);
	if (ioapic->lines[pin])
		return raise(ioapic, pin);
	ioapic->irr &= ~(1u << pin);
	return IOAPIC_TAKEN;
}

static bool may_send(const struct ioapic *ioapic, u32 pin)
{
	u64 entry = ioapic->entry[pin];

	if ((entry & ENTRY_MASKED) || !(ioapic->irr >> pin & 1))
		return false;
	return !(entry & ENTRY_LEVEL) || !(entry & ENTRY_REMOTE_IRR);
}

void ioapic_note_line(struct ioapic *ioapic, u32 pin, u32 source)
{
	ioapic->lines[pin] |= 1u << source;
}

struct lapic_message ioapic_message(const struct ioapic *ioapic, u32 pin)
{
	u64 entry = ioapic->entry[pin];

	return (struct lapic_message){
		.mode = entry >> 8 & 7,
		.vector = entry & 0xff,
		.logical = entry & ENTRY_LOGICAL,
		.level = entry & ENTRY_LEVEL,
		.assert = true,
		.dest = entry >> 56,
	};
}

int ioapic_next(struct ioapic *ioapic, struct lapic_message *message)
{
	while (ioapic->due) {
		u32 pin = __builtin_ctz(ioapic->due);

		ioapic->due &= ioapic->due - 1;
		if (!may_send(ioapic, pin))
			continue;
		*message = ioapic_message(ioapic, pin);
		return pin;
	}
	return -1;
}

void ioapic_sent(struct ioapic *ioapic, u32 pin, int taken)
{
	if (!(ioapic->entry[pin] & ENTRY_LEVEL))
		ioapic->delivered |= 1u << pin;
	else if (taken) /* KVM: a message that addresses no APIC waits for its EOI, too */
		ioapic->entry[pin] |= ENTRY_REMOTE_IRR;
}

void ioapic_eoi(struct ioapic *ioapic, u8 vector, bool level)
{
	for (u32 i = 0; i < IOAPIC_PINS; i++) {
		if ((ioapic->entry[i] & 0xff) != vector)
			continue;
		ioapic->acked |= 1u << i;
		if (!level || !(ioapic->entry[i] & ENTRY_LEVEL))
			continue;
		ioapic->entry[i] &= ~ENTRY_REMOTE_IRR;
		ioapic->due |= ioapic->irr & 1u << i;
	}
}

/* --- registers --- */

static u32 read_window(const struct ioapic *ioapic)
{
	u32 pin = (ioapic->select - REG_ENTRIES) / 2;

	switch (ioapic->select) {
	case REG_VERSION:
		return VERSION;
	case REG_ID:
	case REG_ARBITRATION:
		return ioapic->id << 24;
	}
	if (pin >= IOAPIC_PINS)
		return ~0u;
	return ioapic->entry[pin] >> (ioapic->select & 1 ? 32 : 0);
}

static void entry_changed(struct ioapic *ioapic, u32 pin, u64 old)
{
	u64 *entry = &ioapic->entry[pin];
	u32 bit = 1u << pin;

	/* KVM: how Linux and Xen end a level interrupt by hand without an EOI register. */
	if (!(*entry & ENTRY_LEVEL))
		*entry &= ~ENTRY_REMOTE_IRR;
	if (old & ~*entry & ENTRY_MASKED)
		ioapic->unmasked |= bit;
	if ((*entry & ENTRY_LEVEL) && may_send(ioapic, pin)) {
		ioapic->due |= bit;
		ioapic->reopened |= bit;
	}
	note_vectors(ioapic);
}

static void write_entry(struct ioapic *ioapic, u32 pin, bool high, u32 value)
{
	u64 old = ioapic->entry[pin];
	u64 new = high ? (u32)old | (u64)value << 32 : (old & ~0xffffffffull) | value;

	ioapic->entry[pin] = (new & ~ENTRY_READ_ONLY) | (old & ENTRY_READ_ONLY);
	entry_changed(ioapic, pin, old);
}

static void write_window(struct ioapic *ioapic, u32 value)
{
	u32 pin = (ioapic->select - REG_ENTRIES) / 2;

	if (ioapic->select == REG_ID)
		ioapic->id = value >> 24 & 0xf;
	else if (ioapic->select >= REG_ENTRIES && pin < IOAPIC_PINS)
		write_entry(ioapic, pin, ioapic->select & 1, value);
}

u32 ioapic_read(const struct ioapic *ioapic, u32 offset)
{
	switch (offset) {
	case OFFSET_SELECT:
		return ioapic->select;
	case OFFSET_WINDOW:
		return read_window(ioapic);
	default:
		return 0;
	}
}

void ioapic_write(struct ioapic *ioapic, u32 offset, u32 value)
{
	if (offset == OFFSET_SELECT)
		ioapic->select = value & 0xff;
	else if (offset == OFFSET_WINDOW)
		write_window(ioapic, value);
}

/* --- state --- */

void ioapic_get_state(const struct ioapic *ioapic, struct kvm_ioapic_state *state)
{
	memset(state, 0, sizeof(*state));
	state->base_address = ioapic->base;
	state->ioregsel = ioapic->select;
	state->id = ioapic->id;
	state->irr = ioapic->irr & ~ioapic->delivered;
	for (u32 i = 0; i < IOAPIC_PINS; i++)
		state->redirtbl[i].bits = ioapic->entry[i];
}

void ioapic_set_state(struct ioapic *ioapic, const struct kvm_ioapic_state *state)
{
	WRITE_ONCE(ioapic->base, state->base_address);
	ioapic->select = state->ioregsel & 0xff;
	ioapic->id = state->id & 0xf;
	ioapic->irr = ioapic->delivered = ioapic->due = 0;
	for (u32 i = 0; i < IOAPIC_PINS; i++)
		ioapic->entry[i] = state->redirtbl[i].bits;
	note_vectors(ioapic);
	for (u32 i = 0; i < IOAPIC_PINS; i++)
		if (state->irr >> i & 1)
			raise(ioapic, i);
}
