// SPDX-License-Identifier: MIT
/*
 * What reaches a local APIC from outside and from its own LVTs: which APIC a message concerns (SDM
 * 3A 10.6.2), and what becomes of it: a bit of IRR or of events. Any thread, but what comes from
 * LVTs is the vCPU thread's.
 */
#include "irq/lapic.h"
#include "irq/lapic_priv.h"

#define BROADCAST    0xffu
#define X2_BROADCAST 0xffffffffu

u32 lapic_take_events(struct lapic *lapic, u32 which)
{
	return __atomic_fetch_and(&lapic->events, ~which, __ATOMIC_SEQ_CST) & which;
}

u32 lapic_take_nmis(struct lapic *lapic)
{
	return __builtin_popcount(lapic_take_events(lapic, LAPIC_EVENT_NMIS));
}

void lapic_post(struct lapic *lapic, u32 events)
{
	__atomic_fetch_or(&lapic->events, events, __ATOMIC_SEQ_CST);
}

/* Hardware takes an NMI at once and latches one more meanwhile. The vCPU may come late to both
 * (KVM: process_nmi); a third is lost. */
static bool post_nmi(struct lapic *lapic)
{
	u32 before = __atomic_fetch_or(&lapic->events, LAPIC_EVENT_NMI, __ATOMIC_SEQ_CST);

	if (before & LAPIC_EVENT_NMI)
		lapic_post(lapic, LAPIC_EVENT_NMI_AGAIN);
	return true;
}

bool lapic_from_outside(struct lapic *lapic, u8 vector)
{
	u32 bit = BIT(vector % 32);

	return __atomic_fetch_and(&lapic->outside[vector / 32], ~bit, __ATOMIC_SEQ_CST) & bit;
}

bool lapic_nmi_from_outside(struct lapic *lapic)
{
	return __atomic_exchange_n(&lapic->outside_nmi, false, __ATOMIC_SEQ_CST);
}

static bool set_irq(struct lapic *lapic, u8 vector, bool level)
{
	if (!lapic_hw_enabled(lapic) || !lapic_sw_enabled(lapic))
		return false;
	if (lapic_test_vector(lapic, LAPIC_TMR, vector) != level) {
		if (level)
			lapic_set_vector(lapic, LAPIC_TMR, vector);
		else
			lapic_clear_vector(lapic, LAPIC_TMR, vector);
	}
	lapic_set_vector(lapic, LAPIC_IRR, vector);
	return true;
}

/* Before the interrupt itself: the vCPU that takes it may ask. */
static void mark_outside(struct lapic *lapic, u8 vector)
{
	__atomic_fetch_or(&lapic->outside[vector / 32], (u32)BIT(vector % 32), __ATOMIC_SEQ_CST);
}

bool lapic_set_irq(struct lapic *lapic, u8 vector, bool level)
{
	mark_outside(lapic, vector);
	return set_irq(lapic, vector, level);
}

static bool post(struct lapic *lapic, u32 event)
{
	lapic_post(lapic, event);
	return true;
}

/* INIT forgets a STARTUP that came before it. */
static bool post_init(struct lapic *lapic)
{
	lapic_take_events(lapic, LAPIC_EVENT_SIPI);
	return post(lapic, LAPIC_EVENT_INIT);
}

static bool post_startup(struct lapic *lapic, u8 vector)
{
	__atomic_store_n(&lapic->sipi_vector, vector, __ATOMIC_RELEASE);
	return post(lapic, LAPIC_EVENT_SIPI);
}

/* What an LVT and a message have in common. */
static bool accept(struct lapic *lapic, const struct lapic_message *message)
{
	bool deassert = message->level && !message->assert;

	switch (message->mode) {
	case LAPIC_LOWEST:
		__atomic_fetch_add(&lapic->arbitration, 1, __ATOMIC_RELAXED);
		/* fallthrough */
	case LAPIC_FIXED:
		return !deassert && set_irq(lapic, message->vector, message->level);
	case LAPIC_REMOTE_READ:
		return post(lapic, LAPIC_EVENT_UNHALT);
	case LAPIC_SMI:
		return post(lapic, LAPIC_EVENT_SMI);
	case LAPIC_NMI:
		return post_nmi(lapic);
	case LAPIC_INIT:
		return !deassert && post_init(lapic);
	case LAPIC_STARTUP:
		return post_startup(lapic, message->vector);
	case LAPIC_EXTINT: /* the 8259's business: lapic_accepts_pic() */
		break;
	}
	return false;
}

bool lapic_accept(struct lapic *lapic, const struct lapic_message *message)
{
	if (message->mode == LAPIC_NMI)
		__atomic_store_n(&lapic->outside_nmi, true, __ATOMIC_SEQ_CST);
	else
		mark_outside(lapic, message->vector);
	return accept(lapic, message);
}

/* KVM: messages from devices cannot name the x2APIC broadcast, so 0xff means it, unless told
 * otherwise. */
static u32 destination(const struct lapic *lapic, const struct lapic_message *message)
{
	if (!lapic->strict_broadcast && !message->ipi && message->dest == BROADCAST &&
	    lapic_x2apic(lapic))
		return X2_BROADCAST;
	return message->dest;
}

/* KVM: an ID that xAPIC cannot express reaches an APIC in xAPIC mode by its x2APIC ID (hotplug). */
static bool matches_physical(const struct lapic *lapic, u32 dest)
{
	if (lapic_x2apic(lapic) || dest > 0xff)
		return dest == lapic->id;
	return dest == lapic_reg(lapic, LAPIC_ID) >> 24;
}

/* SDM 3A 10.6.2.2 (flat and cluster model), 10.12.10.2 (x2APIC). */
static bool matches_logical(const struct lapic *lapic, u32 dest)
{
	u32 ldr = lapic_reg(lapic, LAPIC_LDR);

	if (lapic_x2apic(lapic))
		return ldr >> 16 == dest >> 16 && (ldr & dest & 0xffff);
	ldr >>= 24;
	switch (lapic_reg(lapic, LAPIC_DFR) >> 28) {
	case 0xf:
		return ldr & dest;
	case 0:
		return ldr >> 4 == dest >> 4 && (ldr & dest & 0xf);
	default:
		return false;
	}
}

bool lapic_matches(const struct lapic *lapic, const struct lapic_message *message)
{
	u32 dest = destination(lapic, message);

	if (!lapic_hw_enabled(lapic))
		return false;
	if (dest == (lapic_x2apic(lapic) ? X2_BROADCAST : BROADCAST))
		return true;
	return message->logical ? matches_logical(lapic, dest) : matches_physical(lapic, dest);
}

bool lapic_entry(struct lapic *lapic, u32 entry)
{
	struct lapic_message message = {
		.mode = (entry & LVT_MODE) >> 8,
		.vector = entry & 0xff,
		.level = entry & BIT(15),
		.assert = true,
	};

	if (!lapic_hw_enabled(lapic) || (entry & LVT_MASKED))
		return false;
	return accept(lapic, &message);
}

bool lapic_local(struct lapic *lapic, enum lapic_reg lvt)
{
	return lapic_entry(lapic, lapic_reg(lapic, lvt));
}

bool lapic_perf_interrupt(struct lapic *lapic, bool masks)
{
	bool taken = lapic_local(lapic, LAPIC_LVT_PERF);

	if (taken && masks)
		lapic->regs[LAPIC_LVT_PERF / 4] |= LVT_MASKED;
	return taken;
}
