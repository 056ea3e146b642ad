// SPDX-License-Identifier: MIT
/*
 * The 8254 (Intel 231164) and port 0x61 (82371SB PIIX3 2.5.5.1): see irq/pit.h. Any thread, under
 * the owner's lock.
 */
#include "irq/pit.h"

#include <string.h>

#define NS_PER_S      1000000000ull
/* KVM: min_timer_period_us, so that a guest cannot flood the host. */
#define PERIOD_MIN_NS 200000ull
#define MODE_NONE     0xff /* not programmed yet */
#define REFRESH_SHIFT 14   /* the refresh clock toggles about every 15 us */

/* How a counter's bytes are read and written: control word, bits 5:4, and the word's second
 * half. */
enum access { ACCESS_LATCH, ACCESS_LOW, ACCESS_HIGH, ACCESS_WORD, ACCESS_WORD_HIGH };

/* a * b / c without overflow in between. */
static u64 scale(u64 a, u64 b, u64 c)
{
	return (unsigned __int128)a * b / c;
}

/* --- counting --- */

static u64 elapsed_ns(const struct pit *pit, u32 n, u64 now)
{
	if (n != 0)
		return now - pit->channel[n].count_load_time;
	return pit->period ? now - (pit->deadline - pit->period) : 0;
}

static u64 elapsed_clocks(const struct pit *pit, u32 n, u64 now)
{
	return scale(elapsed_ns(pit, n, now), PIT_HZ, NS_PER_S);
}

/* Modes 0, 1, 4 and 5 go on below zero; 2 and 3 start again (8254, "mode definitions"). */
static u16 counter(const struct pit *pit, u32 n, u64 now)
{
	const struct kvm_pit_channel_state *c = &pit->channel[n];
	u64 clocks = elapsed_clocks(pit, n, now);

	switch (c->mode) {
	case 0:
	case 1:
	case 4:
	case 5:
		return c->count - clocks;
	case 3: /* counts down in twos */
		return c->count - 2 * clocks % c->count;
	default:
		return c->count - clocks % c->count;
	}
}

static bool output(const struct pit *pit, u32 n, u64 now)
{
	const struct kvm_pit_channel_state *c = &pit->channel[n];
	u64 clocks = elapsed_clocks(pit, n, now);

	switch (c->mode) {
	case 1:
		return clocks < c->count;
	case 2:
		return clocks && clocks % c->count == 0;
	case 3:
		return clocks % c->count < (c->count + 1ull) / 2;
	case 4:
	case 5:
		return clocks == c->count;
	default:
		return clocks >= c->count;
	}
}

void pit_forget_ticks(struct pit *pit)
{
	pit->pending = 0;
	pit->acked = true;
}

static void start_timer(struct pit *pit, u64 now, bool periodic)
{
	u64 interval = scale(pit->channel[0].count, NS_PER_S, PIT_HZ);

	if (pit->flags & KVM_PIT_FLAGS_HPET_LEGACY)
		return; /* the HPET drives IRQ 0 */
	pit->period = interval;
	if (periodic && interval < PERIOD_MIN_NS)
		pit->period = PERIOD_MIN_NS;
	pit->periodic = periodic;
	pit->deadline = now + interval;
	pit->armed = true;
	pit_forget_ticks(pit);
}

static void load(struct pit *pit, u32 n, u32 count, u64 now)
{
	struct kvm_pit_channel_state *c = &pit->channel[n];

	c->count = count ? count : 0x10000;
	c->count_load_time = now;
	if (n != 0)
		return;
	switch (c->mode) {
	case 0:
	case 1:
	case 4:
		start_timer(pit, now, false);
		break;
	case 2:
	case 3:
		start_timer(pit, now, true);
		break;
	default:
		pit->armed = false;
	}
}

/* --- ticks --- */

u64 pit_expiry(const struct pit *pit)
{
	return pit->armed ? pit->deadline : PIT_NO_EXPIRY;
}

static bool may_raise(struct pit *pit)
{
	bool acked = pit->acked;

	pit->acked = false;
	return !pit->reinject || acked;
}

bool pit_poll(struct pit *pit, u64 now)
{
	u64 ticks = 1;

	if (!pit->armed || now < pit->deadline)
		return false;
	if (pit->periodic) {
		ticks += (now - pit->deadline) / pit->period;
		pit->deadline += ticks * pit->period;
	} else {
		pit->armed = false;
	}
	if (pit->reinject)
		pit->pending += ticks;
	return may_raise(pit);
}

bool pit_acked(struct pit *pit)
{
	if (!pit->reinject)
		return false;
	pit->acked = true;
	return pit->pending && --pit->pending && may_raise(pit);
}

void pit_set_reinject(struct pit *pit, bool reinject)
{
	if (pit->reinject != reinject)
		pit_forget_ticks(pit);
	pit->reinject = reinject;
}

/* --- ports --- */

static void latch_count(struct pit *pit, u32 n, u64 now)
{
	struct kvm_pit_channel_state *c = &pit->channel[n];

	if (c->count_latched)
		return;
	c->latched_count = counter(pit, n, now);
	c->count_latched = c->rw_mode;
}

static void latch_status(struct pit *pit, u32 n, u64 now)
{
	struct kvm_pit_channel_state *c = &pit->channel[n];

	if (c->status_latched)
		return;
	c->status = output(pit, n, now) << 7 | c->rw_mode << 4 | (c->mode & 7) << 1 | c->bcd;
	c->status_latched = 1;
}

static void read_back(struct pit *pit, u8 value, u64 now)
{
	for (u32 n = 0; n < ARRAY_SIZE(pit->channel); n++) {
		if (!(value >> (n + 1) & 1))
			continue;
		if (!(value & BIT(5)))
			latch_count(pit, n, now);
		if (!(value & BIT(4)))
			latch_status(pit, n, now);
	}
}

static void write_control(struct pit *pit, u8 value, u64 now)
{
	u8 n = value >> 6, access = value >> 4 & 3, mode = value >> 1 & 7;
	struct kvm_pit_channel_state *c = &pit->channel[n];

	if (n == 3) {
		read_back(pit, value, now);
	} else if (access == ACCESS_LATCH) {
		latch_count(pit, n, now);
	} else {
		c->rw_mode = c->read_state = c->write_state = access;
		c->mode = mode > 5 ? mode - 4 : mode; /* bit 2 does not matter in modes 2 and 3 */
		c->bcd = value & 1;
	}
}

static void write_count(struct pit *pit, u32 n, u8 value, u64 now)
{
	struct kvm_pit_channel_state *c = &pit->channel[n];

	switch (c->write_state) {
	case ACCESS_HIGH:
		load(pit, n, value << 8, now);
		break;
	case ACCESS_WORD:
		c->write_latch = value;
		c->write_state = ACCESS_WORD_HIGH;
		break;
	case ACCESS_WORD_HIGH:
		load(pit, n, c->write_latch | value << 8, now);
		c->write_state = ACCESS_WORD;
		break;
	default:
		load(pit, n, value, now);
	}
}

void pit_write(struct pit *pit, u32 port, u8 value, u64 now)
{
	if ((port & 3) == 3)
		write_control(pit, value, now);
	else
		write_count(pit, port & 3, value, now);
}

static u8 read_latched(struct kvm_pit_channel_state *c)
{
	u8 access = c->count_latched;

	c->count_latched = access == ACCESS_WORD ? ACCESS_HIGH : 0;
	return access == ACCESS_HIGH ? c->latched_count >> 8 : c->latched_count;
}

static u8 read_counter(struct pit *pit, u32 n, u64 now)
{
	struct kvm_pit_channel_state *c = &pit->channel[n];
	u16 count = counter(pit, n, now);

	switch (c->read_state) {
	case ACCESS_HIGH:
		return count >> 8;
	case ACCESS_WORD:
		c->read_state = ACCESS_WORD_HIGH;
		return count;
	case ACCESS_WORD_HIGH:
		c->read_state = ACCESS_WORD;
		return count >> 8;
	default:
		return count;
	}
}

u8 pit_read(struct pit *pit, u32 port, u64 now)
{
	u32 n = port & 3;

	if (n == 3)
		return 0; /* the control word cannot be read */
	if (pit->channel[n].status_latched) {
		pit->channel[n].status_latched = 0;
		return pit->channel[n].status;
	}
	if (pit->channel[n].count_latched)
		return read_latched(&pit->channel[n]);
	return read_counter(pit, n, now);
}

u8 pit_speaker_read(const struct pit *pit, u64 now)
{
	bool data = pit->flags & KVM_PIT_FLAGS_SPEAKER_DATA_ON;

	return pit->channel[2].gate | data << 1 | (now >> REFRESH_SHIFT & 1) << 4 |
	       output(pit, 2, now) << 5;
}

void pit_speaker_write(struct pit *pit, u8 value, u64 now)
{
	struct kvm_pit_channel_state *c = &pit->channel[2];
	bool gate = value & 1;

	pit->flags &= ~KVM_PIT_FLAGS_SPEAKER_DATA_ON;
	if (value & BIT(1))
		pit->flags |= KVM_PIT_FLAGS_SPEAKER_DATA_ON;
	/* KVM: in modes 0 and 4 the gate would stop the count; it does not here. */
	if (gate && !c->gate && c->mode != 0 && c->mode != 4)
		c->count_load_time = now;
	c->gate = gate;
}

/* --- state --- */

void pit_init(struct pit *pit, u64 now)
{
	memset(pit, 0, sizeof(*pit));
	for (u32 n = 0; n < ARRAY_SIZE(pit->channel); n++) {
		pit->channel[n].mode = MODE_NONE;
		pit->channel[n].gate = n != 2;
		load(pit, n, 0, now);
	}
	pit->reinject = true;
	pit_forget_ticks(pit);
}

void pit_get_state(const struct pit *pit, struct kvm_pit_state2 *state)
{
	memset(state, 0, sizeof(*state));
	memcpy(state->channels, pit->channel, sizeof(pit->channel));
	state->flags = pit->flags;
}

void pit_set_state(struct pit *pit, const struct kvm_pit_state2 *state, u64 now)
{
	bool was_hpet = pit->flags & KVM_PIT_FLAGS_HPET_LEGACY;
	bool is_hpet = state->flags & KVM_PIT_FLAGS_HPET_LEGACY;

	memcpy(pit->channel, state->channels, sizeof(pit->channel));
	pit->flags = state->flags;
	for (u32 n = 0; n < ARRAY_SIZE(pit->channel); n++)
		load(pit, n, pit->channel[n].count, now);
	if (is_hpet && !was_hpet)
		pit->armed = false;
	pit_forget_ticks(pit);
}
