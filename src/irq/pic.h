/* SPDX-License-Identifier: MIT */
/*
 * The two 8259A interrupt controllers of a PC, the second on IRQ 2 of the first, with the
 * edge/level control registers (ELCR) of a PIIX. Modes that PC software uses: fully nested, special
 * fully nested, special mask, automatic EOI, rotation, polling.
 *
 * A leaf: output says whether INTR is up; what the owner may want to know besides is marked in
 * acked and unmasked, and the owner clears what it has seen.
 *
 * Threads: all under one lock of the owner, except pic_output(), which any thread may call.
 */
#ifndef IRQ_PIC_H
#define IRQ_PIC_H

#include <linux/kvm.h>

#include "base/types.h"

#define PIC_PINS 16

struct pic {
	struct kvm_pic_state chip[2]; /* the registers, as KVM_GET_IRQCHIP shows them */
	u8 lines[PIC_PINS];	      /* bit per source that holds the line up */
	u16 acked;		      /* IRQs whose service has ended */
	u16 unmasked;		      /* IRQs that a write to IMR let through again */
	bool output;
};

void pic_init(struct pic *pic);

/* One of up to eight sources of a line changes. -1: masked, 0: it was up already, 1: new or
 * lowered. */
int pic_set_line(struct pic *pic, u32 irq, u32 source, bool level);

static inline bool pic_output(const struct pic *pic)
{
	return READ_ONCE(pic->output);
}

/* The processor's acknowledge cycle: a vector; that of IRQ 7 or 15 if the cause has gone away. */
u8 pic_ack(struct pic *pic);

bool pic_has_port(u32 port); /* 0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1 */
u8 pic_read(struct pic *pic, u32 port);
void pic_write(struct pic *pic, u32 port, u8 value);

/* KVM_GET_IRQCHIP, KVM_SET_IRQCHIP: chip 0 or 1. */
void pic_get_state(const struct pic *pic, u32 chip, struct kvm_pic_state *state);
void pic_set_state(struct pic *pic, u32 chip, const struct kvm_pic_state *state);

#endif
