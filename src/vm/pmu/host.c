// SPDX-License-Identifier: MIT
/*
 * The host on a vCPU's thread (docs/ownership.md): who counts, the guest or events of the host, and
 * the events that clients opened. What the thread does between two runs of the guest is measured,
 * as CPU time of the thread while the program has it and by the TSC before, since there is no PMU
 * to count it: cycles are that time at the rate of the guest's TSC, instructions one a cycle. Only
 * while an event or the accounting needs it.
 */
#include "vm/pmu/host.h"

#include <errno.h>
#include <time.h>

#include "base/log.h"
#include "vm/vm.h"

/* Linux rotates with its tick. */
#define TURN_NS 4000000ull

/* What the processor counts besides the counters of the guest: those of the view, and time. */
static void update_wanted(struct vcpu *vcpu)
{
	retire_wanted time = vcpu->vm->time.is_virtual ? RETIRE_BIT(RETIRE_CYCLES) : 0;

	vcpu->cpu->pmu.owner_wanted = hwpmu_wanted(&vcpu->pmu.host.view_hw) | time;
}

void vcpu_host_init(struct vcpu *vcpu)
{
	struct vcpu_host *host = &vcpu->pmu.host;

	vcpu->cpu->pmu.host = &host->tally;
	hostperf_init(&host->perf, &vcpu->cpu->pmu);
	host->perf.yielded = true; /* mediated, until the first entry says otherwise */
	host->guest.host = &host->perf;
	hwpmu_init(&host->view_hw, vcpu->cpu->pmu.model, &vcpu->cpu->port.tally);
	host->view_hw.host = &host->tally;
	hostperf_init(&host->view, &host->view_hw);
	update_wanted(vcpu);
}

/* --- time --- */

static u64 thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static bool charges(const struct vcpu *vcpu)
{
	return READ_ONCE(vcpu->vm->set.accounting) == VM_ACCOUNT_VCPU;
}

/*
 * An exit that the hypervisor serves takes about as long as reading the thread's clock. So for the
 * host's events it is timed by the TSC, which does not know of preemption: longer times are cut to
 * this. A guest that is charged is charged by the thread's clock alone.
 */
#define QUICK_NS 50000

static u64 quick_ns(const struct vcpu *vcpu)
{
	u64 host = __builtin_ia32_rdtsc() - vcpu->pmu.host.left_tsc;
	u64 ns = (unsigned __int128)host * 1000000 / clock_host_khz();

	return ns < QUICK_NS ? ns : QUICK_NS;
}

void vcpu_host_after_guest(struct vcpu *vcpu)
{
	if (charges(vcpu))
		vcpu->pmu.host.away_ns = thread_ns();
	else if (vcpu->pmu.host.nevents)
		vcpu->pmu.host.left_tsc = __builtin_ia32_rdtsc();
}

/* Keeps the time noted so far for the next account(). */
static void keep_quick(struct vcpu *vcpu)
{
	vcpu->pmu.host.kept_ns += quick_ns(vcpu);
	vcpu->pmu.host.left_tsc = 0;
}

void vcpu_host_before_guest(struct vcpu *vcpu)
{
	if (vcpu->pmu.host.left_tsc)
		keep_quick(vcpu);
}

void vcpu_host_thread_away(struct vcpu *vcpu)
{
	if (!vcpu->pmu.host.left_tsc)
		return;
	keep_quick(vcpu);
	vcpu->pmu.host.away_ns = thread_ns();
}

/* Time outside of the guest since the last call. */
static u64 outside_ns(struct vcpu *vcpu)
{
	struct vcpu_host *host = &vcpu->pmu.host;
	u64 now, ns = host->kept_ns;

	if (host->left_tsc) {
		ns += quick_ns(vcpu);
	} else {
		now = thread_ns(); /* another thread's clock may be less */
		ns += now > host->away_ns ? now - host->away_ns : 0;
	}
	host->kept_ns = host->away_ns = host->left_tsc = 0;
	if (!charges(vcpu)) /* the exit is not finished yet */
		host->left_tsc = __builtin_ia32_rdtsc();
	return ns;
}

static void tally(struct retire_tally *tally, enum retire_privilege privilege, u64 cycles)
{
	tally->instructions[privilege] += cycles;
	tally->cycles[privilege] += cycles * TICKS_PER_CYCLE;
	tally->ref_cycles[privilege] += cycles * TICKS_PER_CYCLE;
	tally->backend_slots[privilege] += cycles * TICKS_PER_CYCLE;
}

/* What the thread did since the guest was left, in cycles. */
static u64 take_outside(struct vcpu *vcpu)
{
	struct vcpu_host *host = &vcpu->pmu.host;
	u64 ns;

	if (!host->left_tsc && !host->away_ns)
		return 0;
	ns = outside_ns(vcpu);
	host->time_ns += ns;
	return ns * vcpu->clock.khz / 1000000;
}

/* It counts for the guest too, charged to the instruction that exited, if accounting is by vCPU.
 * While the guest's counters are loaded: others do not see it. */
static void charge(struct vcpu *vcpu, u64 cycles)
{
	enum retire_privilege privilege = cpu_privilege(vcpu->cpu);

	if (!charges(vcpu))
		return;
	tally(&vcpu->cpu->port.tally, privilege, cycles);
	vcpu->pmu.host.charged[privilege] += cycles;
}

static void account(struct vcpu *vcpu)
{
	u64 cycles = take_outside(vcpu);

	charge(vcpu, cycles);
	tally(&vcpu->pmu.host.tally, RETIRE_OS, cycles);
}

/* The clock that times of events are told by. A mediated guest stops that of the host's events. */
static void advance(struct vcpu *vcpu)
{
	struct vcpu_host *host = &vcpu->pmu.host;
	u64 now = clock_ns();

	hostperf_advance(&host->view, now);
	hostperf_advance(&host->perf, vcpu->pmu.mode == VM_PMU_EVENT ? now : host->time_ns);
}

/* --- modes --- */

static void take_mode(struct vcpu *vcpu)
{
	enum vm_pmu_mode mode = READ_ONCE(vcpu->vm->set.pmu_mode);
	struct vcpu_host *host = &vcpu->pmu.host;

	if (mode == vcpu->pmu.mode)
		return;
	advance(vcpu);
	vcpu->pmu.mode = mode;
	host->perf.now = mode == VM_PMU_EVENT ? clock_ns() : host->time_ns;
	if (mode == VM_PMU_EVENT) {
		pmu_set_backend(&vcpu->pmu.guest, &hostperf_event, &host->guest);
		hostperf_resume(&host->perf);
	} else {
		pmu_set_backend(&vcpu->pmu.guest, &hostperf_mediated, &vcpu->cpu->pmu);
		hostperf_yield(&host->perf);
	}
}

/* A mediated guest is about to take the counters: what the host's events counted since it gave them
 * back is read, and they are scheduled out. */
static void hand_over(struct vcpu *vcpu)
{
	struct vcpu_host *host = &vcpu->pmu.host;
	u64 cycles = take_outside(vcpu);

	charge(vcpu, cycles);
	pmu_put(&vcpu->pmu.guest);
	hostperf_resume(&host->perf);
	tally(&host->tally, RETIRE_OS, cycles);
	advance(vcpu);
	hostperf_yield(&host->perf);
}

static void take_turns(struct vcpu *vcpu)
{
	struct vcpu_host *host = &vcpu->pmu.host;
	u64 now = clock_ns();

	if (now - host->rotated_ns < TURN_NS)
		return;
	host->rotated_ns = now;
	advance(vcpu);
	if (hostperf_multiplexes(&host->perf))
		hostperf_rotate(&host->perf);
	if (hostperf_multiplexes(&host->view)) {
		hostperf_rotate(&host->view);
		update_wanted(vcpu);
	}
}

void vcpu_host_prepare(struct vcpu *vcpu)
{
	take_mode(vcpu);
	if (vcpu->pmu.host.nphysical && vcpu->pmu.mode == VM_PMU_MEDIATED)
		hand_over(vcpu);
	else
		account(vcpu);
	if (vcpu->pmu.host.nevents)
		take_turns(vcpu);
}

void vcpu_host_report(struct vcpu *vcpu)
{
	u64 starved, fresh;

	if (vcpu->pmu.mode != VM_PMU_EVENT && !vcpu->pmu.starved)
		return;
	if (vcpu->pmu.mode == VM_PMU_EVENT)
		hostperf_settle_guest(&vcpu->pmu.host.guest);
	starved = vcpu->pmu.mode == VM_PMU_EVENT ? hostperf_starved(&vcpu->pmu.host.guest) : 0;
	fresh = starved & ~vcpu->pmu.starved;
	WRITE_ONCE(vcpu->pmu.starved, starved);
	if (!fresh)
		return;
	vcpu->pmu.starvations += __builtin_popcountll(fresh);
	log_warn("vCPU %u: the host has no counter for the guest's %#llx (bits of GLOBAL_CTRL): it "
		 "counts nothing until it is set up again",
		 vcpu->id, (unsigned long long)fresh);
}

/* --- events of the control socket --- */

static struct vcpu_host_event *find(struct vcpu *vcpu, u32 session, u32 id)
{
	struct vcpu_host_event *event = vcpu->pmu.host.event;

	for (u32 i = 0; i < VCPU_HOST_EVENTS; i++)
		if (event[i].session == session && (!session || event[i].id == id))
			return &event[i];
	return NULL;
}

static struct hostperf *perf_of(struct vcpu *vcpu, const struct vcpu_host_event *event)
{
	return event->view ? &vcpu->pmu.host.view : &vcpu->pmu.host.perf;
}

int vcpu_host_open(struct vcpu *vcpu, u32 session, u32 id, const struct host_event *wanted)
{
	bool counts_guest = !(wanted->flags & HOST_EXCLUDE_GUEST);
	bool owned = READ_ONCE(vcpu->vm->set.pmu_mode) == VM_PMU_MEDIATED;
	struct vcpu_host_event *event = find(vcpu, 0, 0);

	if (counts_guest && owned && !vcpu->vm->set.host_view)
		return -EOPNOTSUPP;
	if (!event)
		return -ENOSPC;
	advance(vcpu);
	*event = (struct vcpu_host_event){
		.session = session,
		.id = id,
		.view = counts_guest && vcpu->vm->set.host_view,
		.event = *wanted,
	};
	if (!hostperf_add(perf_of(vcpu, event), &event->event)) {
		event->session = 0;
		return -ENOSPC;
	}
	vcpu->pmu.host.nevents++;
	vcpu->pmu.host.nphysical += !event->view;
	hostperf_schedule(perf_of(vcpu, event));
	update_wanted(vcpu);
	return 0;
}

void vcpu_host_close(struct vcpu *vcpu, u32 session)
{
	struct vcpu_host *host = &vcpu->pmu.host;

	for (u32 i = 0; i < VCPU_HOST_EVENTS; i++) {
		struct vcpu_host_event *event = &host->event[i];

		if (event->session != session)
			continue;
		hostperf_remove(perf_of(vcpu, event), &event->event);
		event->session = 0;
		host->nevents--;
		host->nphysical -= !event->view;
	}
	hostperf_schedule(&host->perf);
	hostperf_schedule(&host->view);
	update_wanted(vcpu);
}

bool vcpu_host_read(struct vcpu *vcpu, u32 session, u32 id, struct host_event *out)
{
	struct vcpu_host_event *event = find(vcpu, session, id);

	if (!event)
		return false;
	advance(vcpu);
	*out = event->event;
	out->value = hostperf_read(perf_of(vcpu, event), &event->event);
	return true;
}
