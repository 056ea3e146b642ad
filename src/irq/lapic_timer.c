// SPDX-License-Identifier: MIT
/*
 * The local APIC's timer (SDM 3A 10.5.4): one-shot, periodic and TSC-deadline. It runs on no timer
 * of the host: it knows when it expires next, its owner sleeps or looks until then and calls
 * lapic_timer_poll(). An expiry that the owner learns of late is one interrupt, however many
 * periods have passed. vCPU's thread or lock.
 */
#include "irq/lapic.h"
#include "irq/lapic_priv.h"

#define MODE_PERIODIC BIT(17)
#define MODE_DEADLINE BIT(18)
#define MODE_BITS     (MODE_PERIODIC | MODE_DEADLINE)

/* KVM: min_timer_period_us, so that a guest cannot flood the host. */
#define MIN_PERIOD_NS 200000ull

u32 lapic_timer_mode_bits(const struct lapic *lapic)
{
	return lapic->deadline_mode ? MODE_BITS : MODE_PERIODIC;
}

static bool one_shot(const struct lapic *lapic)
{
	return lapic->timer.mode == 0;
}

static bool periodic(const struct lapic *lapic)
{
	return lapic->timer.mode == MODE_PERIODIC;
}

static bool by_deadline(const struct lapic *lapic)
{
	return lapic->timer.mode == MODE_DEADLINE;
}

/* Both bits are a reserved mode, in which nothing counts (KVM: start_apic_timer()). */
static bool counts(const struct lapic *lapic)
{
	return one_shot(lapic) || periodic(lapic);
}

static u64 count_to_ns(const struct lapic *lapic, u32 count)
{
	return (u64)count * lapic->bus_cycle_ns * lapic->timer.divide;
}

static u64 remaining(const struct lapic *lapic, struct lapic_now now)
{
	u64 expiry = lapic->timer.expiry, period = lapic->timer.period;

	if (expiry == LAPIC_NO_EXPIRY)
		return 0;
	if (expiry > now.ns)
		return expiry - now.ns;
	return periodic(lapic) && period ? period - (now.ns - expiry) % period : 0;
}

u32 lapic_timer_count(const struct lapic *lapic, struct lapic_now now)
{
	u64 left = remaining(lapic, now), unit = count_to_ns(lapic, 1);

	if (by_deadline(lapic) || !lapic->timer.period)
		return 0;
	return (left < lapic->timer.period ? left : lapic->timer.period) / unit;
}

static void stop(struct lapic_timer *timer)
{
	timer->period = 0;
	timer->expiry = LAPIC_NO_EXPIRY;
}

static void set_period(struct lapic *lapic)
{
	u64 ns = count_to_ns(lapic, lapic_reg(lapic, LAPIC_TIMER_INITIAL));

	if (periodic(lapic) && ns && ns < MIN_PERIOD_NS)
		ns = MIN_PERIOD_NS;
	lapic->timer.period = ns;
}

/* Counting goes on between one-shot and periodic; to and from TSC-deadline it ends (SDM
 * 3A 10.5.4.1). */
void lapic_timer_mode_changed(struct lapic *lapic)
{
	u32 mode = lapic_reg(lapic, LAPIC_LVT_TIMER) & lapic_timer_mode_bits(lapic);
	u32 changed = mode ^ lapic->timer.mode;

	if (!changed)
		return;
	lapic->timer.mode = mode;
	if (changed & MODE_DEADLINE) {
		lapic_set_reg(lapic, LAPIC_TIMER_INITIAL, 0);
		lapic->timer.tsc_deadline = 0;
		stop(&lapic->timer);
	} else {
		set_period(lapic);
	}
}

static void start(struct lapic *lapic, u64 first, struct lapic_now now)
{
	lapic->timer.expiry = now.ns + first;
}

void lapic_timer_write_initial(struct lapic *lapic, u32 value, struct lapic_now now)
{
	if (by_deadline(lapic))
		return;
	lapic_set_reg(lapic, LAPIC_TIMER_INITIAL, value);
	set_period(lapic);
	if (value && counts(lapic))
		start(lapic, lapic->timer.period, now);
	else
		stop(&lapic->timer);
}

/* SDM 3A figure 10-10: bits 3, 1, 0 are log2 of the divisor minus one, and 111 divides by one. */
static u32 divisor(u32 divide_reg)
{
	u32 code = (divide_reg & 3) | (divide_reg & 8) >> 1;

	return 1u << ((code + 1) & 7);
}

void lapic_timer_write_divide(struct lapic *lapic, u32 value, struct lapic_now now)
{
	u64 left = remaining(lapic, now);
	u32 old = lapic->timer.divide;

	lapic_set_reg(lapic, LAPIC_TIMER_DIVIDE, value);
	lapic->timer.divide = divisor(value);
	if (lapic->timer.divide == old || !lapic->timer.period)
		return;
	set_period(lapic);
	if (lapic->timer.expiry != LAPIC_NO_EXPIRY)
		start(lapic, (unsigned __int128)left * lapic->timer.divide / old, now);
}

void lapic_timer_reset(struct lapic *lapic)
{
	lapic->timer = (struct lapic_timer){ .expiry = LAPIC_NO_EXPIRY, .divide = divisor(0) };
}

/*
 * The registers were set from outside; the current count says how far the timer had come. KVM: a
 * one-shot timer at zero fires again, since its interrupt may not have reached IRR before the state
 * was saved.
 */
void lapic_timer_restore(struct lapic *lapic, struct lapic_now now)
{
	u64 first;

	lapic->timer.mode = lapic_reg(lapic, LAPIC_LVT_TIMER) & lapic_timer_mode_bits(lapic);
	lapic->timer.divide = divisor(lapic_reg(lapic, LAPIC_TIMER_DIVIDE));
	first = count_to_ns(lapic, lapic_reg(lapic, LAPIC_TIMER_CURRENT));
	lapic_set_reg(lapic, LAPIC_TIMER_CURRENT, 0);
	stop(&lapic->timer);
	if (!counts(lapic))
		return;
	lapic->timer.tsc_deadline = 0;
	set_period(lapic);
	if (!lapic->timer.period)
		return;
	if (first > lapic->timer.period || (!first && periodic(lapic)))
		first = lapic->timer.period;
	start(lapic, first, now);
}

/* When the guest's TSC reaches the deadline, on the owner's clock. */
static u64 deadline_ns(const struct lapic *lapic, struct lapic_now now)
{
	u64 deadline = lapic->timer.tsc_deadline;
	unsigned __int128 ns;

	if (!deadline || !now.tsc_khz)
		return LAPIC_NO_EXPIRY;
	if (deadline <= now.tsc)
		return now.ns;
	ns = (unsigned __int128)(deadline - now.tsc) * 1000000 / now.tsc_khz + 1 + now.ns;
	return ns < LAPIC_NO_EXPIRY ? (u64)ns : LAPIC_NO_EXPIRY - 1;
}

bool lapic_timer_masked(const struct lapic *lapic)
{
	return lapic_reg(lapic, LAPIC_LVT_TIMER) & LVT_MASKED;
}

u64 lapic_timer_deadline(const struct lapic *lapic)
{
	return by_deadline(lapic) ? lapic->timer.tsc_deadline : 0;
}

u64 lapic_timer_expiry(const struct lapic *lapic, struct lapic_now now)
{
	return by_deadline(lapic) ? deadline_ns(lapic, now) : lapic->timer.expiry;
}

/* A period that was missed completely is skipped. */
static void advance(struct lapic_timer *timer, struct lapic_now now)
{
	u64 missed = (now.ns - timer->expiry) / timer->period;

	timer->expiry += (missed + 1) * timer->period;
}

bool lapic_timer_poll(struct lapic *lapic, struct lapic_now now)
{
	u64 expiry = lapic_timer_expiry(lapic, now);

	if (expiry == LAPIC_NO_EXPIRY || expiry > now.ns)
		return false;
	if (by_deadline(lapic))
		lapic->timer.tsc_deadline = 0;
	else if (periodic(lapic) && lapic->timer.period)
		advance(&lapic->timer, now);
	else
		lapic->timer.expiry = LAPIC_NO_EXPIRY;
	return lapic_local(lapic, LAPIC_LVT_TIMER);
}

u64 lapic_get_tsc_deadline(const struct lapic *lapic)
{
	if (!lapic_hw_enabled(lapic) || !by_deadline(lapic))
		return 0;
	return lapic->timer.tsc_deadline;
}

void lapic_set_tsc_deadline(struct lapic *lapic, u64 value, struct lapic_now now,
			    struct lapic_actions *actions)
{
	lapic_timer_poll(lapic, now);
	if (!lapic_hw_enabled(lapic) || !by_deadline(lapic))
		return;
	lapic->timer.tsc_deadline = value;
	actions->what |= LAPIC_DO_TIMER;
}
