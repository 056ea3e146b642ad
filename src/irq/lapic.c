// SPDX-License-Identifier: MIT
/*
 * The local APIC's registers and priorities (SDM 3A 10; APM2 16), its modes, resets and saved
 * state, with the choices that KVM made: see irq/lapic.h for threads and contracts.
 */
#include "irq/lapic.h"

#include <errno.h>
#include <string.h>

#include "irq/lapic_priv.h"

#define VERSION	     0x14u
#define SVR_ENABLE   BIT(8)
#define SVR_NO_BCAST BIT(12)
#define ICR_BUSY     BIT(12)

/* Which bits of an LVT a guest may set (SDM 3A figure 10-8). */
#define LVT_BITS  (LVT_MASKED | BIT(12) | 0xff)
#define LINT_BITS (LVT_BITS | LVT_MODE | BIT(13) | BIT(14) | BIT(15))

// clang-format off
static const struct lvt_row {
	u16 reg;
	u32 writable;
} lvts[] = {
	{ LAPIC_LVT_TIMER, LVT_BITS }, /* and mode bits: lapic_timer_mode_bits() */
	{ LAPIC_LVT_THERMAL, LVT_BITS | LVT_MODE },
	{ LAPIC_LVT_PERF, LVT_BITS | LVT_MODE },
	{ LAPIC_LVT_LINT0, LINT_BITS },
	{ LAPIC_LVT_LINT1, LINT_BITS },
	{ LAPIC_LVT_ERROR, LVT_BITS },
	{ LAPIC_LVT_CMCI, LVT_BITS | LVT_MODE }, /* last: there only with MCG_CMCI_P */
};
// clang-format on

static u32 x2apic_ldr(u32 id)
{
	return (id >> 4) << 16 | 1u << (id & 0xf);
}

static int highest_vector(const struct lapic *lapic, u32 set)
{
	for (int v = 224; v >= 0; v -= 32) {
		u32 word = READ_ONCE(*lapic_vector_word(lapic, set, v));

		if (word)
			return v + 31 - __builtin_clz(word);
	}
	return -1;
}

int lapic_highest_irr(const struct lapic *lapic)
{
	return highest_vector(lapic, LAPIC_IRR);
}

int lapic_highest_isr(const struct lapic *lapic)
{
	return highest_vector(lapic, LAPIC_ISR);
}

bool lapic_has_vector(const struct lapic *lapic, u8 vector)
{
	return lapic_test_vector(lapic, LAPIC_ISR, vector) ||
	       lapic_test_vector(lapic, LAPIC_IRR, vector);
}

bool lapic_is_level(const struct lapic *lapic, u8 vector)
{
	return lapic_test_vector(lapic, LAPIC_TMR, vector);
}

/* Processor priority: the higher class of TPR and the vector in service (SDM 3A 10.8.3.1). */
static u32 priority(const struct lapic *lapic)
{
	u32 tpr = lapic_reg(lapic, LAPIC_TPR) & 0xff;
	int isr = highest_vector(lapic, LAPIC_ISR);

	if (isr < 0 || (tpr & 0xf0) >= ((u32)isr & 0xf0))
		return tpr;
	return isr & 0xf0;
}

static void update_priority(struct lapic *lapic)
{
	lapic_set_reg(lapic, LAPIC_PPR, priority(lapic));
}

int lapic_pending(const struct lapic *lapic)
{
	int irr;

	if (!lapic_hw_enabled(lapic))
		return -1;
	irr = highest_vector(lapic, LAPIC_IRR);
	if (irr < 0 || ((u32)irr & 0xf0) <= priority(lapic))
		return -1;
	return irr;
}

void lapic_ack(struct lapic *lapic, u8 vector)
{
	lapic_clear_vector(lapic, LAPIC_IRR, vector);
	lapic_set_vector(lapic, LAPIC_ISR, vector);
	update_priority(lapic);
}

void lapic_eoi(struct lapic *lapic, struct lapic_actions *actions)
{
	int vector = highest_vector(lapic, LAPIC_ISR);

	if (vector < 0)
		return;
	lapic_clear_vector(lapic, LAPIC_ISR, vector);
	update_priority(lapic);
	actions->what |= LAPIC_DO_EOI | LAPIC_DO_EVENT;
	actions->eoi_vector = vector;
	actions->eoi_level = lapic_test_vector(lapic, LAPIC_TMR, vector);
}

u64 lapic_get_cr8(const struct lapic *lapic)
{
	return (lapic_reg(lapic, LAPIC_TPR) & 0xf0) >> 4;
}

void lapic_set_cr8(struct lapic *lapic, u64 value)
{
	lapic_set_reg(lapic, LAPIC_TPR, (value & 0xf) << 4);
	update_priority(lapic);
}

bool lapic_accepts_pic(const struct lapic *lapic)
{
	u32 lint0 = lapic_reg(lapic, LAPIC_LVT_LINT0);

	if (!lapic_hw_enabled(lapic))
		return true;
	return !(lint0 & LVT_MASKED) && (lint0 & LVT_MODE) >> 8 == LAPIC_EXTINT;
}

/* Registers that read as something: one bit per 16 bytes of the page. */
static u64 readable(const struct lapic *lapic)
{
	static const u16 always[] = {
		LAPIC_ID,	    LAPIC_VERSION,     LAPIC_TPR,	    LAPIC_PPR,
		LAPIC_LDR,	    LAPIC_SVR,	       LAPIC_ESR,	    LAPIC_ICR,
		LAPIC_LVT_TIMER,    LAPIC_LVT_THERMAL, LAPIC_LVT_PERF,	    LAPIC_LVT_LINT0,
		LAPIC_LVT_LINT1,    LAPIC_LVT_ERROR,   LAPIC_TIMER_INITIAL, LAPIC_TIMER_CURRENT,
		LAPIC_TIMER_DIVIDE,
	};
	static const u16 xapic_only[] = { LAPIC_APR, LAPIC_DFR, LAPIC_ICR2 };
	u64 mask = MASK(LAPIC_IRR / 16 + 7, LAPIC_ISR / 16);

	for (u32 i = 0; i < ARRAY_SIZE(always); i++)
		mask |= BIT(always[i] / 16);
	for (u32 i = 0; !lapic_x2apic(lapic) && i < ARRAY_SIZE(xapic_only); i++)
		mask |= BIT(xapic_only[i] / 16);
	if (lapic->nlvts > LVTS_BASIC)
		mask |= BIT(LAPIC_LVT_CMCI / 16);
	return mask;
}

static u32 reg_value(const struct lapic *lapic, u32 reg, struct lapic_now now)
{
	switch (reg) {
	case LAPIC_APR:
		return 0;
	case LAPIC_PPR:
		return priority(lapic);
	case LAPIC_TIMER_CURRENT:
		return lapic_timer_count(lapic, now);
	default:
		return lapic_reg(lapic, reg);
	}
}

/* Every access first brings the timer up to its time: the owner may poll late, and an expiry before
 * a write must find the mode, the vector and the mask from before it. */
static bool reg_read(struct lapic *lapic, u32 reg, struct lapic_now now, u32 *value)
{
	lapic_timer_poll(lapic, now);
	if (reg >= sizeof(lapic->regs))
		return lapic_extended_read(lapic, reg, value);
	if (!(readable(lapic) >> (reg / 16) & 1))
		return false;
	*value = reg_value(lapic, reg, now);
	return true;
}

static void send(const struct lapic *lapic, u32 icr, u32 dest, struct lapic_actions *actions)
{
	actions->what |= LAPIC_DO_SEND;
	actions->message = (struct lapic_message){
		.mode = (icr & LVT_MODE) >> 8,
		.shorthand = icr >> 18 & 3,
		.vector = icr & 0xff,
		.logical = icr & BIT(11),
		.level = icr & BIT(15),
		.assert = icr & BIT(14),
		.ipi = true,
		.dest = lapic_x2apic(lapic) ? dest : dest >> 24,
	};
}

/* Disabling the APIC by software masks its LVTs (SDM 3A 10.4.7.2). */
static void write_svr(struct lapic *lapic, u32 value, struct lapic_actions *actions)
{
	u32 writable = 0x3ff;

	if (lapic->directed_eoi)
		writable |= SVR_NO_BCAST;
	lapic_set_reg(lapic, LAPIC_SVR, value & writable);
	if (value & SVR_ENABLE)
		return;
	for (u32 i = 0; i < lapic->nlvts; i++)
		lapic->regs[lvts[i].reg / 4] |= LVT_MASKED;
	lapic_timer_mode_changed(lapic);
	actions->what |= LAPIC_DO_TIMER;
}

static bool write_lvt(struct lapic *lapic, const struct lvt_row *row, u32 value,
		      struct lapic_actions *actions)
{
	u32 writable = row->writable;

	if (row - lvts >= lapic->nlvts)
		return false;
	if (row->reg == LAPIC_LVT_TIMER)
		writable |= lapic_timer_mode_bits(lapic);
	if (!lapic_sw_enabled(lapic))
		value |= LVT_MASKED;
	lapic_set_reg(lapic, row->reg, value & writable);
	if (row->reg == LAPIC_LVT_TIMER) {
		lapic_timer_mode_changed(lapic);
		actions->what |= LAPIC_DO_TIMER;
	}
	return true;
}

static const struct lvt_row *find_lvt(u32 reg)
{
	for (u32 i = 0; i < ARRAY_SIZE(lvts); i++)
		if (lvts[i].reg == reg)
			return &lvts[i];
	return NULL;
}

/* Registers that exist in xAPIC mode only, or differ there. */
static bool write_xapic(struct lapic *lapic, u32 reg, u32 value, struct lapic_actions *actions)
{
	if (lapic_x2apic(lapic))
		return false;
	switch (reg) {
	case LAPIC_ID:
	case LAPIC_LDR:
	case LAPIC_ICR2:
		lapic_set_reg(lapic, reg, value & 0xff000000u);
		break;
	case LAPIC_DFR:
		lapic_set_reg(lapic, reg, value | 0x0fffffffu);
		break;
	case LAPIC_ICR:
		value &= ~ICR_BUSY;
		send(lapic, value, lapic_reg(lapic, LAPIC_ICR2), actions);
		lapic_set_reg(lapic, reg, value);
		break;
	}
	return true;
}

static bool write_self_ipi(struct lapic *lapic, u32 value, struct lapic_actions *actions)
{
	if (!lapic_x2apic(lapic) || value > 0xff)
		return false;
	send(lapic, (u32)LAPIC_DEST_SELF << 18 | value, 0, actions);
	return true;
}

static bool reg_write(struct lapic *lapic, u32 reg, u32 value, struct lapic_now now,
		      struct lapic_actions *actions)
{
	const struct lvt_row *lvt = find_lvt(reg);

	lapic_timer_poll(lapic, now);
	if (lvt)
		return write_lvt(lapic, lvt, value, actions);
	if (reg >= sizeof(lapic->regs))
		return lapic_extended_write(lapic, reg, value);
	switch (reg) {
	case LAPIC_ID:
	case LAPIC_LDR:
	case LAPIC_DFR:
	case LAPIC_ICR:
	case LAPIC_ICR2:
		return write_xapic(lapic, reg, value, actions);
	case LAPIC_TPR:
		lapic_set_reg(lapic, LAPIC_TPR, value & 0xff);
		update_priority(lapic);
		actions->what |= LAPIC_DO_EVENT;
		return true;
	case LAPIC_EOI:
		lapic_eoi(lapic, actions);
		return true;
	case LAPIC_SVR:
		write_svr(lapic, value, actions);
		return true;
	case LAPIC_ESR: /* KVM: errors are never reported, so there is nothing to latch */
		return !lapic_x2apic(lapic) || !value;
	case LAPIC_TIMER_INITIAL:
		lapic_timer_write_initial(lapic, value, now);
		actions->what |= LAPIC_DO_TIMER;
		return true;
	case LAPIC_TIMER_DIVIDE:
		lapic_timer_write_divide(lapic, value & 0xb, now);
		actions->what |= LAPIC_DO_TIMER;
		return true;
	case LAPIC_SELF_IPI:
		return write_self_ipi(lapic, value, actions);
	default:
		return false;
	}
}

bool lapic_mmio_read(struct lapic *lapic, u32 offset, u32 len, struct lapic_now now, void *data)
{
	u32 within = offset & 0xf, value;

	if (!lapic_hw_enabled(lapic) || lapic_x2apic(lapic))
		return false;
	memset(data, 0, len);
	if (within + len <= 4 && reg_read(lapic, offset & ~0xfu, now, &value))
		memcpy(data, (char *)&value + within, len);
	return true;
}

bool lapic_mmio_write(struct lapic *lapic, u32 offset, u32 len, struct lapic_now now,
		      const void *data, struct lapic_actions *actions)
{
	u32 value;

	if (!lapic_hw_enabled(lapic) || lapic_x2apic(lapic))
		return false;
	if (len != 4 || (offset & 0xf))
		return true;
	memcpy(&value, data, 4);
	reg_write(lapic, offset, value, now, actions);
	return true;
}

bool lapic_msr_read(struct lapic *lapic, u32 msr, struct lapic_now now, u64 *value)
{
	u32 reg = (msr & 0xff) << 4, low;

	if (!lapic_x2apic(lapic) || !reg_read(lapic, reg, now, &low))
		return false;
	*value = low;
	if (reg == LAPIC_ICR)
		*value |= (u64)lapic_reg(lapic, LAPIC_ICR2) << 32;
	return true;
}

/* SDM 3A 10.12.9. KVM: the busy bit is ignored, though AMD has it reserved. */
static bool write_x2apic_icr(struct lapic *lapic, u64 value, struct lapic_actions *actions)
{
	if (value & (MASK(31, 20) | MASK(17, 16) | BIT(13)))
		return false;
	value &= ~ICR_BUSY;
	send(lapic, value, value >> 32, actions);
	lapic_set_reg(lapic, LAPIC_ICR, value);
	lapic_set_reg(lapic, LAPIC_ICR2, value >> 32);
	return true;
}

bool lapic_msr_write(struct lapic *lapic, u32 msr, u64 value, struct lapic_now now,
		     struct lapic_actions *actions)
{
	u32 reg = (msr & 0xff) << 4;

	if (!lapic_x2apic(lapic))
		return false;
	if (reg == LAPIC_ICR)
		return write_x2apic_icr(lapic, value, actions);
	return !(value >> 32) && reg_write(lapic, reg, value, now, actions);
}

static void set_xapic_id(struct lapic *lapic)
{
	lapic_set_reg(lapic, LAPIC_ID, lapic->id << 24);
}

static void set_x2apic_id(struct lapic *lapic)
{
	lapic_set_reg(lapic, LAPIC_ID, lapic->id);
	lapic_set_reg(lapic, LAPIC_LDR, x2apic_ldr(lapic->id));
}

static void change_base(struct lapic *lapic, u64 value)
{
	u64 changed = lapic->base ^ value;

	WRITE_ONCE(lapic->base, value);
	if ((changed & APIC_BASE_ENABLE) && (value & APIC_BASE_ENABLE))
		set_xapic_id(lapic);
	if (!(changed & APIC_BASE_X2APIC))
		return;
	if (value & APIC_BASE_X2APIC)
		set_x2apic_id(lapic);
	else if (value & APIC_BASE_ENABLE)
		set_xapic_id(lapic);
}

/* SDM 3A figure 10-27: x2APIC is entered from xAPIC and left by disabling only. The program may do
 * anything valid. */
static bool transition_allowed(u64 from, u64 to)
{
	bool enabled = from & APIC_BASE_ENABLE, x2apic = from & APIC_BASE_X2APIC;

	if (x2apic && (to & APIC_BASE_ENABLE) && !(to & APIC_BASE_X2APIC))
		return false;
	return enabled || !(to & APIC_BASE_X2APIC);
}

bool lapic_set_base(struct lapic *lapic, u64 value, u64 valid_bits, bool host,
		    struct lapic_actions *actions)
{
	u64 mode = APIC_BASE_ENABLE | APIC_BASE_X2APIC;

	if ((value & ~valid_bits) || (value & mode) == APIC_BASE_X2APIC)
		return false;
	if (!host && !transition_allowed(lapic->base, value))
		return false;
	if ((lapic->base ^ value) & mode)
		actions->what |= LAPIC_DO_MODE;
	change_base(lapic, value);
	return true;
}

static void set_version(struct lapic *lapic)
{
	u32 version = VERSION | (lapic->nlvts - 1u) << 16;

	if (lapic->directed_eoi)
		version |= BIT(24);
	lapic_set_reg(lapic, LAPIC_VERSION, version);
}

void lapic_configure(struct lapic *lapic, bool cmci, bool directed_eoi)
{
	u8 nlvts = cmci ? ARRAY_SIZE(lvts) : LVTS_BASIC;

	if (nlvts > lapic->nlvts)
		lapic_set_reg(lapic, LAPIC_LVT_CMCI, LVT_MASKED);
	lapic->nlvts = nlvts;
	lapic->directed_eoi = directed_eoi;
	set_version(lapic);
}

static void reset_registers(struct lapic *lapic)
{
	u32 id = lapic_reg(lapic, LAPIC_ID), ldr = lapic_reg(lapic, LAPIC_LDR);

	memset(lapic->regs, 0, sizeof(lapic->regs));
	lapic_set_reg(lapic, LAPIC_ID, id);
	lapic_set_reg(lapic, LAPIC_LDR, lapic_x2apic(lapic) ? ldr : 0);
	lapic_set_reg(lapic, LAPIC_DFR, ~0u);
	lapic_set_reg(lapic, LAPIC_SVR, 0xff);
	set_version(lapic);
	for (u32 i = 0; i < lapic->nlvts; i++)
		lapic_set_reg(lapic, lvts[i].reg, LVT_MASKED);
	/* KVM: firmware that never touches LINT0 still gets the 8259's interrupts. */
	if (lapic->boot && !lapic->lint0_masked)
		lapic_set_reg(lapic, LAPIC_LVT_LINT0, (u32)LAPIC_EXTINT << 8);
}

void lapic_reset(struct lapic *lapic, bool init_event)
{
	if (!init_event) {
		change_base(lapic, LAPIC_DEFAULT_BASE | APIC_BASE_ENABLE |
					   (lapic->boot ? APIC_BASE_BSP : 0));
		set_xapic_id(lapic);
	}
	reset_registers(lapic);
	lapic_extended_reset(lapic);
	lapic->arbitration = 0;
	lapic_timer_reset(lapic);
}

void lapic_init(struct lapic *lapic, u32 id, bool boot)
{
	memset(lapic, 0, sizeof(*lapic));
	lapic->id = id;
	lapic->boot = boot;
	lapic->nlvts = LVTS_BASIC;
	lapic->bus_cycle_ns = 1;
	lapic_reset(lapic, false);
}

void lapic_get_state(struct lapic *lapic, struct lapic_now now, struct kvm_lapic_state *state)
{
	u32 id = lapic->id;

	update_priority(lapic);
	memcpy(state->regs, lapic->regs, sizeof(lapic->regs));
	lapic_state_put(state, LAPIC_TIMER_CURRENT, lapic_timer_count(lapic, now));
	if (lapic_x2apic(lapic))
		lapic_state_put(state, LAPIC_ID, lapic->ids32 ? id : id << 24);
}

int lapic_set_state(struct lapic *lapic, struct lapic_now now, const struct kvm_lapic_state *state)
{
	u32 id;

	memcpy(&id, state->regs + LAPIC_ID, 4);
	if (lapic_x2apic(lapic) && lapic->ids32 && id != lapic->id)
		return -EINVAL;
	memcpy(lapic->regs, state->regs, sizeof(lapic->regs));
	if (lapic_x2apic(lapic)) /* KVM: these are not the program's to choose */
		set_x2apic_id(lapic);
	set_version(lapic);
	update_priority(lapic);
	lapic_timer_restore(lapic, now);
	lapic->arbitration = 0;
	return 0;
}
