// SPDX-License-Identifier: MIT
/*
 * The pages a guest asks for to know the time: kvmclock, wall clock and steal time
 * (Documentation/virt/kvm/x86/msr.rst). MSR writes mark; the updates run on the vCPU's thread
 * before it enters the guest, inside a section. On the host's time, steal is what /proc says that
 * the thread waited to run; on virtual time, the turns of others.
 */
#include <asm/kvm_para.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/guarded.h"
#include "cpu/mmu/mmu.h"
#include "vm/memory/guest_memory.h"
#include "vm/time/trace.h"
#include "vm/vm.h"

#define FLAG_TSC_STABLE	   BIT(0)
#define FLAG_GUEST_STOPPED BIT(1)

/* Layout of the guest's pages: an ABI (arch/x86/include/asm/pvclock-abi.h). */
struct pvclock_page {
	u32 version;
	u32 pad0;
	u64 tsc_timestamp;
	u64 system_time;
	u32 mul;
	s8 shift;
	u8 flags;
	u8 pad[2];
} __attribute__((packed));

struct wall_clock_page {
	u32 version, sec, nsec;
} __attribute__((packed));

void vcpu_clock_write_system_time(struct vcpu *vcpu, u64 value, bool old_msr, bool host)
{
	if (vcpu->id == 0 && !host)
		WRITE_ONCE(vcpu->vm->clock.old_boot, old_msr);
	vcpu->clock.system_time = value;
	vm_kick_all(vcpu->vm, REQUEST_CLOCK_UPDATE);
}

void vcpu_clock_write_wall_clock(struct vcpu *vcpu, u64 value)
{
	WRITE_ONCE(vcpu->vm->clock.wall_clock, value);
	vcpu->clock.wall_clock = value;
	vcpu_kick(vcpu, REQUEST_CLOCK_UPDATE);
}

int vcpu_clock_guest_stopped(struct vcpu *vcpu)
{
	if (!(vcpu->clock.system_time & KVM_MSR_ENABLED))
		return -EINVAL;
	vcpu->clock.guest_stopped = true;
	vcpu_kick(vcpu, REQUEST_CLOCK_UPDATE);
	return 0;
}

/*
 * What the page should say, but for its version. The anchor serves vCPUs whose TSCs differ too: a
 * page that starts from another moment rounds differently, and two vCPUs that read the TSC in the
 * same tick of the host would see time go back by a nanosecond.
 */
static struct pvclock_page time_page(struct vcpu *vcpu)
{
	struct vm_clock *clock = &vcpu->vm->clock;
	struct clock_scale scale = clock_scale_of(vcpu_tsc_hz(vcpu));
	struct pvclock_page page = { .mul = scale.mul, .shift = scale.shift };

	pthread_mutex_lock(&clock->lock);
	if (vm_clock_master(vcpu->vm))
		page.flags = FLAG_TSC_STABLE;
	page.system_time = vm_time_ns(vcpu->vm, clock->anchor) + clock->offset;
	page.tsc_timestamp = vcpu_tsc_at(vcpu, clock->anchor);
	pthread_mutex_unlock(&clock->lock);
	return page;
}

/* What a page tells, without its version. */
static void trace_page(struct vcpu *vcpu, const void *data, u32 size)
{
	if (unlikely(vcpu->vm->trace))
		trace_input(vcpu, data, size);
}

/* Other vCPUs may read the page: its version is odd while it changes. */
static void write_time_page(struct vcpu *vcpu, gpa_t gpa)
{
	const struct mem_map *map = vcpu->cpu->port.mem;
	struct pvclock_page page = time_page(vcpu), old;
	u32 version;

	if (!guest_read(map, gpa, &old, sizeof(old)))
		return;
	version = (old.version + 1) | 1;
	page.version = version;
	page.flags |= old.flags & FLAG_GUEST_STOPPED;
	if (vcpu->clock.guest_stopped)
		page.flags |= FLAG_GUEST_STOPPED;
	if (!guest_write(vcpu->cpu, gpa, &version, sizeof(version)) ||
	    !guest_write(vcpu->cpu, gpa, &page, sizeof(page)))
		return;
	vcpu->clock.guest_stopped = false;
	trace_page(vcpu, &page.tsc_timestamp, sizeof(page) - 8);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	version++;
	guest_write(vcpu->cpu, gpa, &version, sizeof(version));
}

/* The wall clock is that of the moment at which kvmclock was zero. */
static void write_wall_page(struct vcpu *vcpu, gpa_t gpa)
{
	struct vm_clock *clock = &vcpu->vm->clock;
	const struct mem_map *map = vcpu->cpu->port.mem;
	u64 time, real = vm_time_date(vcpu->vm, &time), epoch;
	struct wall_clock_page page;

	if (!guest_read(map, gpa, &page.version, sizeof(page.version)))
		return;
	pthread_mutex_lock(&clock->lock);
	epoch = real - (vm_time_ns(vcpu->vm, time) + clock->offset);
	pthread_mutex_unlock(&clock->lock);
	page.version = (page.version + 1) | 1;
	page.sec = epoch / 1000000000;
	page.nsec = epoch % 1000000000;
	trace_page(vcpu, &page.sec, 8);
	if (!guest_write(vcpu->cpu, gpa, &page, sizeof(page)))
		return;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	page.version++;
	guest_write(vcpu->cpu, gpa, &page.version, sizeof(page.version));
}

void vcpu_clock_update(struct vcpu *vcpu)
{
	if (vcpu->clock.wall_clock)
		write_wall_page(vcpu, vcpu->clock.wall_clock);
	vcpu->clock.wall_clock = 0;
	if (vcpu->clock.system_time & KVM_MSR_ENABLED)
		write_time_page(vcpu, vcpu->clock.system_time & ~(u64)KVM_MSR_ENABLED);
}

bool vcpu_clock_write_steal_time(struct vcpu *vcpu, u64 value)
{
	if (value & KVM_STEAL_RESERVED_MASK)
		return false;
	vcpu->clock.steal_msr = value;
	vcpu_kick(vcpu, REQUEST_STEAL_UPDATE);
	return true;
}

/* How long this thread was runnable but did not run: the second number of its schedstat. */
static u64 run_delay(void)
{
	char text[96], *end;
	int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	strtoull(text, &end, 10);
	return strtoull(end, NULL, 10);
}

static gpa_t steal_gpa(const struct vcpu *vcpu)
{
	return vcpu->clock.steal_msr & KVM_STEAL_VALID_BITS;
}

/* Clears `preempted`; another vCPU may have left a TLB flush in it for us
 * (KVM_FEATURE_PV_TLB_FLUSH). */
static bool take_preempted(struct vcpu *vcpu, gpa_t gpa)
{
	gpa_t word = gpa + offsetof(struct kvm_steal_time, preempted);
	const struct mem_slot *slot = mem_find(vcpu->cpu->port.mem, word);
	u32 old = 0;
	bool done = false;

	vcpu->clock.shows_preempted = false;
	if (!slot || (slot->flags & MEM_READONLY))
		return false;
	while (!done)
		if (!guarded_cmpxchg32((u32 *)mem_hva(slot, word), &old, old & ~0xffu, &done))
			return false;
	shared_written(vcpu->cpu, word, sizeof(old));
	if (old & KVM_VCPU_FLUSH_TLB)
		tlb_flush(vcpu->cpu);
	return true;
}

/* Asking the host takes longer than most turns of the program: ten times a millisecond will do. */
static bool asked_just_now(struct vcpu_clock *clock)
{
	u64 now = clock_host_tsc();

	if (now - clock->steal_asked < clock_host_khz() / 10)
		return true;
	clock->steal_asked = now;
	return false;
}

/* A thread that never stopped running has not waited. */
static bool ran_through(struct vcpu_clock *clock)
{
	struct rusage usage;
	u64 switches;

	if (getrusage(RUSAGE_THREAD, &usage))
		return false;
	switches = (u64)usage.ru_nvcsw + usage.ru_nivcsw + 1;
	if (switches == clock->steal_switches)
		return true;
	clock->steal_switches = switches;
	return false;
}

static u64 newly_stolen_virtual(struct vcpu *vcpu)
{
	u64 ns = vm_time_ns(vcpu->vm, vcpu->clock.stolen);

	vcpu->clock.stolen = 0;
	return ns;
}

static u64 newly_stolen(struct vcpu_clock *clock)
{
	bool same = asked_just_now(clock) || ran_through(clock);
	u64 delay = same ? clock->steal_seen : run_delay();
	u64 since = delay - clock->steal_seen;

	if (delay < clock->steal_seen) /* another thread runs this vCPU now */
		since = 0;
	clock->steal_seen = delay;
	return since;
}

void vcpu_steal_update(struct vcpu *vcpu)
{
	const struct mem_map *map = vcpu->cpu->port.mem;
	gpa_t gpa = steal_gpa(vcpu);
	struct kvm_steal_time page;

	if (!(vcpu->clock.steal_msr & KVM_MSR_ENABLED) || !take_preempted(vcpu, gpa))
		return;
	if (!guest_read(map, gpa, &page, offsetof(struct kvm_steal_time, flags)))
		return;
	page.version = (page.version + 1) | 1;
	guest_write(vcpu->cpu, gpa + 8, &page.version, sizeof(page.version));
	__atomic_thread_fence(__ATOMIC_RELEASE);
	page.steal +=
		vcpu->vm->time.is_virtual ? newly_stolen_virtual(vcpu) : newly_stolen(&vcpu->clock);
	guest_write(vcpu->cpu, gpa, &page.steal, sizeof(page.steal));
	trace_page(vcpu, &page.steal, sizeof(page.steal));
	__atomic_thread_fence(__ATOMIC_RELEASE);
	page.version++;
	guest_write(vcpu->cpu, gpa + 8, &page.version, sizeof(page.version));
}

void vcpu_steal_preempted(struct vcpu *vcpu)
{
	u8 preempted = KVM_VCPU_PREEMPTED;

	/* Once only: another vCPU may have asked for a flush since (KVM:
	 * kvm_steal_time_set_preempted). */
	if (!(vcpu->clock.steal_msr & KVM_MSR_ENABLED) || vcpu->vm->time.is_virtual ||
	    vcpu->clock.shows_preempted)
		return;
	guest_write(vcpu->cpu, steal_gpa(vcpu) + offsetof(struct kvm_steal_time, preempted),
		    &preempted, sizeof(preempted));
	vcpu->clock.shows_preempted = true;
}
