// SPDX-License-Identifier: MIT
/*
 * The PMU's part in a turn of the run loop (docs/architecture.md): settings are taken over,
 * counters loaded, PMIs handed to the local APIC, and what the guest may reach without an exit is
 * written to the intercepts. Also the event filter. vCPU thread; filters on any.
 */
#include "vm/pmu/pmu.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "vm/pmu/host.h"
#include "vm/vm.h"

_Static_assert(LAPIC_EILVT_IBS == IBS_LVT, "what IBS_CTL says");

void vcpu_pmu_init(struct vcpu *vcpu)
{
	const struct pmu_model *model = pmu_model_of(vcpu->vm->model->set);

	vcpu->cpu->port.model = vcpu->vm->model;
	engine_attach_pmu(vcpu->cpu, model);
	hwpmu_attach_shadow(&vcpu->cpu->pmu, vcpu->vm->shadow);
	pmu_init(&vcpu->pmu.guest, model, &hostperf_mediated, &vcpu->cpu->pmu);
	intercept_init(&vcpu->pmu.intercepts, model->is_amd);
	vcpu->cpu->port.intercepts = &vcpu->pmu.intercepts;
	vcpu_host_init(vcpu);
	if (!vm_has_quirk(vcpu->vm, KVM_X86_QUIRK_STUFF_FEATURE_MSRS))
		vcpu->pmu.guest.perf_capabilities = 0; /* until the program writes it */
}

/*
 * SDM 3A 10.5.1. KVM: without an in-kernel APIC a PMI is dropped.
 *
 * Linux unmasks LVTPC after enabling the counters; an overflow in between would block later PMIs.
 * It interrupts as soon as LVTPC is unmasked, if the status still tells of it (Linux: "only unmask
 * the NMI after the overflow counters have been reset" says that it does). Not so on AMD, where a
 * PMI does not mask.
 */
static bool deliver(struct vcpu *vcpu)
{
	struct vcpu_pmu *pmu = &vcpu->pmu;
	bool pmi = pmu_take_requests(&pmu->guest) & PMU_REQUEST_PMI, news = pmi;
	bool masks = pmu_masks_lvtpc(&pmu->guest);

	if (hwpmu_take_ibs(&vcpu->cpu->pmu) && vcpu->has_lapic) {
		lapic_extended_interrupt(&vcpu->lapic, LAPIC_EILVT_IBS);
		news = true;
	}
	if (!vcpu->has_lapic)
		return pmi;
	pmu->pmi_held = pmi || (pmu->pmi_held && pmu_tells_overflow(&pmu->guest));
	if (pmu->pmi_held)
		pmu->pmi_held = !lapic_perf_interrupt(&vcpu->lapic, masks) && masks;
	return news;
}

/* A filter that denies nothing need not see anything either. */
static bool denies(const struct pmu_filter *filter)
{
	return filter->action == PMU_FILTER_ALLOW || filter->nentries || filter->fixed_bitmap;
}

static void take_filter(struct vcpu *vcpu)
{
	const struct vm_pmu_filter *f = __atomic_load_n(&vcpu->vm->pmu_filter, __ATOMIC_ACQUIRE);

	if (!f || f->serial == vcpu->pmu.filter_serial)
		return;
	vcpu->pmu.filter = f->filter;
	pmu_set_filter(&vcpu->pmu.guest, denies(&f->filter) ? &vcpu->pmu.filter : NULL);
	vcpu->pmu.filter_serial = f->serial;
}

static void pass(struct vcpu *vcpu, u32 index, enum intercept_access access)
{
	const struct msr_filter *filter = __atomic_load_n(&vcpu->vm->msr_filter, __ATOMIC_ACQUIRE);

	if (msr_filter_allows(filter, index, access == INTERCEPT_WRITE))
		intercept_pass(&vcpu->pmu.intercepts, index, access);
}

/* What the guest may do to its PMU without an exit, where the program does not want to see it. */
static void update_intercepts(struct vcpu *vcpu)
{
	u32 msr_serial = __atomic_load_n(&vcpu->vm->msr_filter_serial, __ATOMIC_ACQUIRE);
	struct pmu_pass passes[PMU_PASSES];
	u32 n;

	if (vcpu->pmu.pass_serial == vcpu->pmu.guest.pass_serial &&
	    vcpu->pmu.msr_serial == msr_serial)
		return;
	vcpu->pmu.pass_serial = vcpu->pmu.guest.pass_serial;
	vcpu->pmu.msr_serial = msr_serial;
	intercept_all(&vcpu->pmu.intercepts);
	n = pmu_passes(&vcpu->pmu.guest, passes);
	for (u32 i = 0; i < n; i++) {
		if (passes[i].read)
			pass(vcpu, passes[i].index, INTERCEPT_READ);
		if (passes[i].write)
			pass(vcpu, passes[i].index, INTERCEPT_WRITE);
	}
	vcpu->pmu.intercepts.pass_rdpmc = pmu_passes_rdpmc(&vcpu->pmu.guest);
}

void vcpu_pmu_enter(struct vcpu *vcpu)
{
	/* Before the host may take the counters: an overflow found then may clear a bit. */
	pmu_set_debugctl(&vcpu->pmu.guest, vcpu->cpu->debugctl);
	vcpu_host_prepare(vcpu);
	take_filter(vcpu);
	update_intercepts(vcpu);
	pmu_enter(&vcpu->pmu.guest);
	vcpu->cpu->debugctl = vcpu->pmu.guest.debugctl;
	vcpu_host_report(vcpu);
	deliver(vcpu);
}

u64 vcpu_pmu_capabilities(const struct vcpu *vcpu, u64 value)
{
	u64 supported = pmu_supported_capabilities(vcpu->pmu.guest.model);

	if (!vcpu->cpuid_filled || value != PERF_CAP_FULL_WIDTH)
		return value;
	if (!(vcpu->pmu.guest.fixed_set & BIT(3)))
		supported &= ~PERF_CAP_METRICS;
	return vcpu->pmu.guest.guest.ds ? supported : supported & ~PERF_CAP_PEBS;
}

bool vcpu_pmu_leave(struct vcpu *vcpu)
{
	pmu_set_debugctl(&vcpu->pmu.guest, vcpu->cpu->debugctl);
	pmu_leave(&vcpu->pmu.guest);
	vcpu->cpu->debugctl = vcpu->pmu.guest.debugctl;
	return deliver(vcpu) || vcpu->pmu.guest.dirty || vcpu->pmu.guest.stale ||
	       vcpu->pmu.guest.lbr_dirty;
}

static int filter_errno(enum pmu_filter_error error)
{
	return error == PMU_FILTER_OK ? 0 : error == PMU_FILTER_TOO_BIG ? -E2BIG : -EINVAL;
}

int vm_check_pmu_filter(const struct pmu_filter_args *args)
{
	return filter_errno(pmu_filter_check(args));
}

int vm_set_pmu_filter(struct vm *vm, const struct pmu_filter_args *args)
{
	struct vm_pmu_filter *new = malloc(sizeof(*new)), *old;
	int r;

	if (!new)
		return -ENOMEM;
	r = filter_errno(pmu_filter_make(&new->filter, args, vm->model->is_amd));
	if (r) {
		free(new);
		return r;
	}
	pthread_mutex_lock(&vm->lock);
	old = vm->pmu_filter;
	new->serial = old ? old->serial + 1 : 1;
	__atomic_store_n(&vm->pmu_filter, new, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&vm->lock);
	vm_synchronize(vm); /* vCPUs that run enter again, and see it */
	free(old);
	return 0;
}
