// SPDX-License-Identifier: MIT
/*
 * The 8259A pair (Intel 231468 "8259A programmable interrupt controller"; ELCR: 82371SB PIIX3
 * 2.5.3.7): see irq/pic.h. Unlike KVM's, a chip does not interrupt before software has given it
 * vectors: has_vectors(). Any thread, under the owner's lock.
 */
#include "irq/pic.h"

#define CASCADE 2u /* the IRQ of the first chip that the second drives */

/* What a write to the data port is, by what ICW1 began. */
enum init_state { OPERATING, WANTS_ICW2, WANTS_ICW3, WANTS_ICW4 };

/* OCW2, bits 7:5: rotate, specific, end of interrupt. */
#define OCW2_ROTATE   BIT(7)
#define OCW2_SPECIFIC BIT(6)
#define OCW2_EOI      BIT(5)

static u32 chip_of(const struct pic *pic, const struct kvm_pic_state *s)
{
	return s - pic->chip;
}

void pic_init(struct pic *pic)
{
	*pic = (struct pic){ 0 };
	/* IRQs 0, 1, 2, 8 and 13 are edge-triggered always. */
	pic->chip[0].elcr_mask = 0xf8;
	pic->chip[1].elcr_mask = 0xde;
}

/* The set bit with the highest priority, counted from the IRQ that has it now; 8: none. */
static u32 first_by_priority(const struct kvm_pic_state *s, u8 bits)
{
	u32 n = 0;

	while (n < 8 && !(bits >> ((n + s->priority_add) & 7) & 1))
		n++;
	return n;
}

/* In service, as far as it keeps equal and lower priorities waiting. */
static u8 blocking(const struct pic *pic, const struct kvm_pic_state *s)
{
	u8 isr = s->isr;

	if (s->special_mask)
		isr &= ~s->imr;
	/* Special fully nested: the second chip decides by itself what may interrupt what. */
	if (s->special_fully_nested_mode && chip_of(pic, s) == 0)
		isr &= ~(1u << CASCADE);
	return isr;
}

/* A chip interrupts once ICW2 has given it vectors. One that no firmware initialized would have
 * those of exceptions, 0 and up, and the ticks of an 8254 at reset would be divide errors. KVM
 * delivers these. SeaBIOS on a microvm leaves such a chip to Linux, which does not use it
 * either. */
static bool has_vectors(const struct kvm_pic_state *s)
{
	return s->irq_base;
}

/* The request that should be served now, or -1. */
static int wanted(const struct pic *pic, const struct kvm_pic_state *s)
{
	u32 n = first_by_priority(s, s->irr & ~s->imr);

	if (!has_vectors(s) || n == 8 || n >= first_by_priority(s, blocking(pic, s)))
		return -1;
	return (n + s->priority_add) & 7;
}

static int set_request(struct kvm_pic_state *s, u32 irq, bool level)
{
	u8 bit = 1u << irq, before = s->irr;
	bool by_level = s->elcr & bit;

	if (level && (by_level || !(s->last_irr & bit)))
		s->irr |= bit;
	if (!level && by_level)
		s->irr &= ~bit;
	s->last_irr = level ? s->last_irr | bit : s->last_irr & ~bit;
	if (s->imr & bit)
		return -1;
	return !level || s->irr != before;
}

static void update(struct pic *pic)
{
	if (wanted(pic, &pic->chip[1]) >= 0) {
		set_request(&pic->chip[0], CASCADE, true);
		set_request(&pic->chip[0], CASCADE, false);
	}
	WRITE_ONCE(pic->output, wanted(pic, &pic->chip[0]) >= 0);
}

int pic_set_line(struct pic *pic, u32 irq, u32 source, bool level)
{
	int r;

	if (level)
		pic->lines[irq] |= 1u << source;
	else
		pic->lines[irq] &= ~(1u << source);
	r = set_request(&pic->chip[irq / 8], irq % 8, pic->lines[irq]);
	update(pic);
	return r;
}

static void end_service(struct pic *pic, struct kvm_pic_state *s, u32 irq)
{
	s->isr &= ~(1u << irq);
	pic->acked |= 1u << (chip_of(pic, s) * 8 + irq);
}

static void begin_service(struct pic *pic, struct kvm_pic_state *s, u32 irq)
{
	s->isr |= 1u << irq;
	if (!(s->elcr >> irq & 1)) /* a level stays requested until the device lets go */
		s->irr &= ~(1u << irq);
	if (!s->auto_eoi)
		return;
	if (s->rotate_on_auto_eoi)
		s->priority_add = (irq + 1) & 7;
	end_service(pic, s, irq);
}

static u8 ack_chip(struct pic *pic, u32 chip)
{
	struct kvm_pic_state *s = &pic->chip[chip];
	int irq = wanted(pic, s);

	if (irq < 0)
		return s->irq_base + 7; /* spurious: no ISR bit, no EOI expected */
	begin_service(pic, s, irq);
	return chip == 0 && irq == CASCADE ? ack_chip(pic, 1) : s->irq_base + irq;
}

u8 pic_ack(struct pic *pic)
{
	u8 vector = ack_chip(pic, 0);

	update(pic);
	return vector;
}

/* --- ports --- */

static void icw1(struct pic *pic, struct kvm_pic_state *s, u8 value)
{
	u8 forgotten = s->irr & ~s->elcr;

	s->init4 = value & 1;
	s->last_irr = 0;
	s->irr &= s->elcr;
	s->isr = 0;
	s->imr = 0;
	s->priority_add = 0;
	s->special_mask = 0;
	s->read_reg_select = 0;
	if (!s->init4) {
		s->special_fully_nested_mode = 0;
		s->auto_eoi = 0;
	}
	s->init_state = WANTS_ICW2;
	/* A device that waits for the EOI of such an edge would wait forever (KVM). */
	pic->acked |= (u32)forgotten << chip_of(pic, s) * 8;
	update(pic);
}

static void ocw2(struct pic *pic, struct kvm_pic_state *s, u8 value)
{
	u32 n = first_by_priority(s, s->isr);
	u32 irq = value & OCW2_SPECIFIC ? value & 7u : (n + s->priority_add) & 7;

	if (!(value & (OCW2_EOI | OCW2_SPECIFIC))) {
		s->rotate_on_auto_eoi = !!(value & OCW2_ROTATE);
		return;
	}
	if (!(value & OCW2_SPECIFIC) && n == 8)
		return; /* nothing in service */
	if (value & OCW2_EOI)
		end_service(pic, s, irq);
	if (value & OCW2_ROTATE)
		s->priority_add = (irq + 1) & 7;
	update(pic);
}

static void ocw3(struct pic *pic, struct kvm_pic_state *s, u8 value)
{
	if (value & BIT(2))
		s->poll = 1;
	if (value & BIT(1))
		s->read_reg_select = value & 1;
	if (value & BIT(6))
		s->special_mask = value >> 5 & 1;
	update(pic);
}

static void write_command(struct pic *pic, struct kvm_pic_state *s, u8 value)
{
	if (value & BIT(4))
		icw1(pic, s, value);
	else if (value & BIT(3))
		ocw3(pic, s, value);
	else
		ocw2(pic, s, value);
}

static void write_data(struct pic *pic, struct kvm_pic_state *s, u8 value)
{
	switch (s->init_state) {
	case OPERATING:
		pic->unmasked |= (s->imr & (u32)~value & 0xff) << chip_of(pic, s) * 8;
		s->imr = value;
		break;
	case WANTS_ICW2:
		s->irq_base = value & 0xf8;
		s->init_state = WANTS_ICW3;
		break;
	case WANTS_ICW3: /* ICW3 says how the chips are wired, which is fixed */
		s->init_state = s->init4 ? WANTS_ICW4 : OPERATING;
		break;
	case WANTS_ICW4:
		s->special_fully_nested_mode = value >> 4 & 1;
		s->auto_eoi = value >> 1 & 1;
		s->init_state = OPERATING;
		break;
	}
	update(pic);
}

/* A poll is an acknowledge cycle of one chip: bit 7 and the IRQ, served and, as KVM has it,
 * ended. */
static u8 poll(struct pic *pic, struct kvm_pic_state *s)
{
	int irq = wanted(pic, s);

	s->poll = 0;
	if (irq >= 0) {
		if (chip_of(pic, s) == 1) {
			pic->chip[0].isr &= ~(1u << CASCADE);
			pic->chip[0].irr &= ~(1u << CASCADE);
		}
		s->irr &= ~(1u << irq);
		end_service(pic, s, irq);
	}
	update(pic);
	return irq < 0 ? 7 : 0x80 | irq;
}

bool pic_has_port(u32 port)
{
	return (port & ~0x81u) == 0x20 || (port & ~1u) == 0x4d0;
}

static struct kvm_pic_state *chip_at(struct pic *pic, u32 port)
{
	return &pic->chip[port & 0x400 ? port & 1 : port >> 7 & 1];
}

u8 pic_read(struct pic *pic, u32 port)
{
	struct kvm_pic_state *s = chip_at(pic, port);

	if (port & 0x400)
		return s->elcr;
	if (s->poll)
		return poll(pic, s);
	if (port & 1)
		return s->imr;
	return s->read_reg_select ? s->isr : s->irr;
}

void pic_write(struct pic *pic, u32 port, u8 value)
{
	struct kvm_pic_state *s = chip_at(pic, port);

	if (port & 0x400)
		s->elcr = value & s->elcr_mask;
	else if (port & 1)
		write_data(pic, s, value);
	else
		write_command(pic, s, value);
}

/* --- state --- */

void pic_get_state(const struct pic *pic, u32 chip, struct kvm_pic_state *state)
{
	*state = pic->chip[chip];
}

void pic_set_state(struct pic *pic, u32 chip, const struct kvm_pic_state *state)
{
	pic->chip[chip] = *state;
	update(pic);
}
