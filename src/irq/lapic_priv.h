/* SPDX-License-Identifier: MIT */
/*
 * Between the files of the local APIC (lapic*.c): register access, and what the timer and AMD's
 * extended registers do in it.
 */
#ifndef IRQ_LAPIC_PRIV_H
#define IRQ_LAPIC_PRIV_H

#include <string.h>

#include "irq/lapic.h"

#define LVT_MASKED BIT(16)
#define LVT_MODE   (7u << 8) /* delivery mode */
#define LVTS_BASIC 6

static inline u32 lapic_reg(const struct lapic *lapic, u32 reg)
{
	return READ_ONCE(lapic->regs[reg / 4]);
}

static inline void lapic_set_reg(struct lapic *lapic, u32 reg, u32 value)
{
	WRITE_ONCE(lapic->regs[reg / 4], value);
}

static inline void lapic_state_put(struct kvm_lapic_state *state, u32 reg, u32 value)
{
	memcpy(state->regs + reg, &value, 4);
}

/* IRR, ISR and TMR: 256 bits in eight registers, 16 bytes apart. */
static inline const u32 *lapic_vector_word(const struct lapic *lapic, u32 set, u8 vector)
{
	return &lapic->regs[(set + vector / 32 * 0x10) / 4];
}

static inline bool lapic_test_vector(const struct lapic *lapic, u32 set, u8 vector)
{
	return READ_ONCE(*lapic_vector_word(lapic, set, vector)) >> (vector % 32) & 1;
}

static inline void lapic_set_vector(struct lapic *lapic, u32 set, u8 vector)
{
	__atomic_fetch_or((u32 *)lapic_vector_word(lapic, set, vector), 1u << (vector % 32),
			  __ATOMIC_SEQ_CST);
}

static inline void lapic_clear_vector(struct lapic *lapic, u32 set, u8 vector)
{
	__atomic_fetch_and((u32 *)lapic_vector_word(lapic, set, vector), ~(1u << (vector % 32)),
			   __ATOMIC_SEQ_CST);
}

u32 lapic_timer_mode_bits(const struct lapic *lapic); /* of LVT timer that this CPU has */
u32 lapic_timer_count(const struct lapic *lapic, struct lapic_now now);
void lapic_timer_mode_changed(struct lapic *lapic);
void lapic_timer_write_initial(struct lapic *lapic, u32 value, struct lapic_now now);
void lapic_timer_write_divide(struct lapic *lapic, u32 value, struct lapic_now now);
void lapic_timer_reset(struct lapic *lapic);
void lapic_timer_restore(struct lapic *lapic, struct lapic_now now);

/* lapic_message.c: the interrupt of an entry of a local vector table. */
bool lapic_entry(struct lapic *lapic, u32 entry);

/* lapic_extended.c */
bool lapic_extended_read(const struct lapic *lapic, u32 reg, u32 *value);
bool lapic_extended_write(struct lapic *lapic, u32 reg, u32 value);
void lapic_extended_reset(struct lapic *lapic);

#endif
