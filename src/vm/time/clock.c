// SPDX-License-Identifier: MIT
/*
 * The host's clocks, the VM's clock and the vCPUs' TSCs: see vm/time/clock.h. Any thread;
 * vm_clock.lock where noted. The rate of the host's TSC is measured once per process: the first
 * caller that needs it spins for up to 10 ms, less if clock_begin() was called before.
 */
#include "vm/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include "vm/vm.h"

#define NS_PER_SEC    1000000000ull
#define MEASURE_NS    10000000ull
#define MEASURE_MAX   1000000000ull
#define TOLERANCE_PPM 250 /* KVM: tsc_tolerance_ppm. Closer than that to the host is not scaled */
#define MAX_KHZ	      0x7fffffffu

/* What is known of the host, measured once per process. */
static struct {
	pthread_once_t once;
	u32 khz;
	bool stable;
	u64 tsc, ns; /* a moment, on both clocks: where measuring begins */
	u64 begun;   /* on a clock that also runs while the machine is suspended */
	struct clock_scale scale;
} host = { .once = PTHREAD_ONCE_INIT };

static u64 read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * NS_PER_SEC + ts.tv_nsec;
}

u64 clock_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

u64 clock_host_tsc(void)
{
	return __rdtsc();
}

/* Reads a clock and the TSC together: the closest pair of a few attempts. */
static u64 read_pair(clockid_t id, u64 *tsc)
{
	u64 best = ~0ull, ns = 0;

	*tsc = __rdtsc();
	for (u32 i = 0; i < 8; i++) {
		u64 before = __rdtsc(), now = read_clock(id), after = __rdtsc();

		if (after - before >= best)
			continue;
		best = after - before;
		ns = now;
		*tsc = before + best / 2;
	}
	return ns;
}

u64 clock_real_ns(u64 *host_tsc)
{
	return read_pair(CLOCK_REALTIME, host_tsc);
}

struct clock_scale clock_scale_of(u64 hz)
{
	struct clock_scale scale = { .shift = 0 };
	u64 freq = hz;

	/* Bring the frequency into (1e9, 2e9], so that the multiplier has all its 32 bits. */
	for (; freq > 2 * NS_PER_SEC; freq /= 2)
		scale.shift--;
	for (; freq <= NS_PER_SEC; freq *= 2)
		scale.shift++;
	if (scale.shift < 0)
		scale.mul = ((unsigned __int128)NS_PER_SEC << (32 - scale.shift)) / hz;
	else
		scale.mul = ((unsigned __int128)NS_PER_SEC << 32) / (hz << scale.shift);
	return scale;
}

u64 clock_scale_apply(struct clock_scale scale, u64 cycles)
{
	cycles = scale.shift < 0 ? cycles >> -scale.shift : cycles << scale.shift;
	return (unsigned __int128)cycles * scale.mul >> 32;
}

/* The kernel has watched the TSC against other clocks and knows best. */
static bool kernel_trusts_tsc(void)
{
	char name[64] = "";
	FILE *f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");

	if (!f)
		return false;
	if (!fgets(name, sizeof(name), f))
		name[0] = 0;
	fclose(f);
	return !strncmp(name, "tsc", 3) || !strncmp(name, "hyperv_clocksource_tsc", 22);
}

void clock_begin(void)
{
	host.ns = read_pair(CLOCK_MONOTONIC_RAW, &host.tsc);
	host.begun = read_clock(CLOCK_BOOTTIME);
}

/* Suspend may have reset the TSC: an old start is not used. */
static void measure(void)
{
	u64 tsc, ns;

	if (!host.begun || read_clock(CLOCK_BOOTTIME) - host.begun > MEASURE_MAX)
		clock_begin();
	do
		ns = read_pair(CLOCK_MONOTONIC_RAW, &tsc);
	while (ns - host.ns < MEASURE_NS);
	host.khz = (unsigned __int128)(tsc - host.tsc) * 1000000 / (ns - host.ns);
	host.scale = clock_scale_of(host.khz * 1000ull);
	host.stable = kernel_trusts_tsc();
}

u32 clock_host_khz(void)
{
	pthread_once(&host.once, measure);
	return host.khz;
}

bool clock_tsc_stable(void)
{
	pthread_once(&host.once, measure);
	return host.stable;
}

u64 clock_base_ns(u64 host_tsc)
{
	pthread_once(&host.once, measure);
	return host.ns + clock_scale_apply(host.scale, host_tsc - host.tsc);
}

void vm_clock_restart(struct vm *vm)
{
	struct vm_clock *clock = &vm->clock;

	clock->default_khz = vm_time_khz(vm);
	clock->anchor = vm_time(vm);
	clock->offset = -vm_time_ns(vm, clock->anchor);
}

void vm_clock_init(struct vm *vm)
{
	struct vm_clock *clock = &vm->clock;

	pthread_mutex_init(&clock->lock, NULL);
	vm_clock_restart(vm);
}

void vm_clock_destroy(struct vm *vm)
{
	pthread_mutex_destroy(&vm->clock.lock);
}

bool vm_clock_master(const struct vm *vm)
{
	u32 vcpus = vm_nvcpus(vm);

	return vm_time_stable(vm) && vm->clock.matched + 1 == vcpus && !vm->clock.old_boot;
}

/* As a guest would compute it from its clock page. */
static u64 vm_ns(const struct vm *vm, u64 time)
{
	const struct vm_clock *clock = &vm->clock;
	struct clock_scale scale = clock_scale_of(vm_time_khz(vm) * 1000ull);

	return vm_time_ns(vm, clock->anchor) + clock->offset +
	       clock_scale_apply(scale, time - clock->anchor);
}

void vm_clock_get(struct vm *vm, struct kvm_clock_data *data)
{
	u64 time, real = vm_time_date(vm, &time);

	memset(data, 0, sizeof(*data));
	pthread_mutex_lock(&vm->clock.lock);
	if (time < vm->clock.anchor)
		time = vm->clock.anchor;
	data->clock = vm_ns(vm, time);
	if (vm_clock_master(vm)) {
		data->flags = KVM_CLOCK_TSC_STABLE | KVM_CLOCK_REALTIME | KVM_CLOCK_HOST_TSC;
		data->realtime = real;
		data->host_tsc = time;
	}
	pthread_mutex_unlock(&vm->clock.lock);
}

int vm_clock_set(struct vm *vm, const struct kvm_clock_data *data)
{
	u64 time, real = vm_time_date(vm, &time), ns = data->clock;

	if (data->flags & ~(KVM_CLOCK_TSC_STABLE | KVM_CLOCK_REALTIME | KVM_CLOCK_HOST_TSC))
		return -EINVAL;
	/* KVM: time spent in migration is added, but the clock never steps back. */
	if ((data->flags & KVM_CLOCK_REALTIME) && real > data->realtime)
		ns += real - data->realtime;
	pthread_mutex_lock(&vm->clock.lock);
	vm->clock.anchor = time;
	vm->clock.offset = ns - vm_time_ns(vm, time);
	pthread_mutex_unlock(&vm->clock.lock);
	vm_kick_all(vm, REQUEST_CLOCK_UPDATE);
	return 0;
}

int vm_clock_set_khz(struct vm *vm, u32 khz)
{
	if (khz >= MAX_KHZ)
		return -EINVAL;
	WRITE_ONCE(vm->clock.default_khz, khz ? khz : vm_time_khz(vm));
	return 0;
}

static u64 scaled(const struct vcpu *vcpu, u64 time)
{
	return (unsigned __int128)time * vcpu->cpu->port.tsc_scale >> TSC_SCALE_SHIFT;
}

u64 vcpu_tsc_at(const struct vcpu *vcpu, u64 time)
{
	return scaled(vcpu, time) + vcpu->cpu->port.tsc_offset;
}

u64 vcpu_tsc(const struct vcpu *vcpu)
{
	return vcpu_tsc_at(vcpu, vcpu_time(vcpu));
}

u64 vcpu_tsc_hz(const struct vcpu *vcpu)
{
	return scaled(vcpu, vm_time_khz(vcpu->vm) * 1000ull);
}

u64 vcpu_tsc_offset(const struct vcpu *vcpu)
{
	return vcpu->cpu->port.tsc_offset;
}

static bool near(u32 khz, u64 own)
{
	u64 slack = own * TOLERANCE_PPM / 1000000;

	return khz >= own - slack && khz <= own + slack;
}

int vcpu_clock_set_khz(struct vcpu *vcpu, u32 khz)
{
	u64 scale = TSC_SCALE_ONE;
	u32 own = vm_time_khz(vcpu->vm);

	if (!khz)
		khz = own;
	if (khz >= MAX_KHZ)
		return -EINVAL;
	if (!near(khz, own))
		scale = ((unsigned __int128)khz << TSC_SCALE_SHIFT) / own;
	if (!scale)
		return -EINVAL;
	vcpu->clock.khz = khz;
	vcpu->cpu->port.tsc_scale = scale;
	vcpu_kick(vcpu, REQUEST_CLOCK_UPDATE);
	return 0;
}

/* A TSC got a new offset: does it join the current generation, or begin a new one? With
 * clock.lock. */
static void join(struct vcpu *vcpu, u64 offset, u64 value, u64 ns, bool matched)
{
	struct vm_clock *clock = &vcpu->vm->clock;

	clock->write_ns = ns;
	clock->write_value = value;
	clock->write_khz = vcpu->clock.khz;
	clock->write_offset = offset;
	vcpu->cpu->port.tsc_offset = offset;
	if (!matched) {
		clock->generation++;
		clock->generation_offset = offset;
		clock->matched = 0;
		clock->anchor = vcpu_time(vcpu);
	} else if (vcpu->clock.generation != clock->generation) {
		clock->matched++;
	}
	vcpu->clock.generation = clock->generation;
}

/*
 * KVM: programs set TSCs one by one, a little apart, and mean them to be in step. A written 0, or a
 * value within a second of what the last written TSC has become, is therefore taken as "the same as
 * that one".
 */
static bool means_the_same(const struct vcpu *vcpu, u64 value, u64 ns)
{
	const struct vm_clock *clock = &vcpu->vm->clock;
	u64 khz = vcpu->clock.khz, second = khz * 1000, expected;

	if (!value)
		return true;
	if (!clock->user_set)
		return false;
	expected = clock->write_value +
		   (u64)((unsigned __int128)(ns - clock->write_ns) * khz / 1000000);
	return value < expected + second && value + second > expected;
}

static void synchronize(struct vcpu *vcpu, u64 value, bool by_program)
{
	struct vm_clock *clock = &vcpu->vm->clock;
	u64 time = vcpu_time(vcpu), ns = vm_time_ns(vcpu->vm, time);
	u64 offset = value - scaled(vcpu, time);
	bool matched;

	pthread_mutex_lock(&clock->lock);
	matched = means_the_same(vcpu, value, ns) && clock->write_khz == vcpu->clock.khz;
	if (matched)
		offset = clock->generation_offset;
	if (by_program)
		clock->user_set = true;
	join(vcpu, offset, value, ns, matched);
	pthread_mutex_unlock(&clock->lock);
	vm_kick_all(vcpu->vm, REQUEST_CLOCK_UPDATE);
}

void vcpu_clock_init(struct vcpu *vcpu)
{
	vcpu->clock = (struct vcpu_clock){ .waits_since = TIME_NEVER };
	vcpu_clock_set_khz(vcpu, READ_ONCE(vcpu->vm->clock.default_khz));
}

void vcpu_clock_join(struct vcpu *vcpu)
{
	synchronize(vcpu, 0, false);
}

void vcpu_tsc_offset_write(struct vcpu *vcpu, u64 offset)
{
	struct vm_clock *clock = &vcpu->vm->clock;
	u64 time = vcpu_time(vcpu);

	pthread_mutex_lock(&clock->lock);
	clock->user_set = true;
	join(vcpu, offset, scaled(vcpu, time) + offset, vm_time_ns(vcpu->vm, time),
	     clock->write_khz == vcpu->clock.khz && clock->write_offset == offset);
	pthread_mutex_unlock(&clock->lock);
	vm_kick_all(vcpu->vm, REQUEST_CLOCK_UPDATE);
}

static void move_tsc(struct vcpu *vcpu, u64 difference)
{
	vcpu->cpu->port.tsc_offset += difference;
	vcpu_kick(vcpu, REQUEST_CLOCK_UPDATE);
}

/* SDM 3B 17.17.3: a guest's write to the TSC shows in TSC_ADJUST. The program's write does not. */
void vcpu_tsc_write(struct vcpu *vcpu, u64 value, bool host)
{
	u64 difference = value - vcpu_tsc(vcpu);

	if (host) {
		synchronize(vcpu, value, true);
		return;
	}
	vcpu->clock.adjust += difference;
	move_tsc(vcpu, difference);
}

void vcpu_tsc_adjust_write(struct vcpu *vcpu, u64 value, bool host)
{
	if (!host)
		move_tsc(vcpu, value - vcpu->clock.adjust);
	vcpu->clock.adjust = value;
}
