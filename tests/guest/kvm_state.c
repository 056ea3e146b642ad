// SPDX-License-Identifier: MIT
/*
 * Saving and restoring a VM through the KVM API: see kvm_state.h. The order of restoring is QEMU's
 * (target/i386/kvm/kvm.c): what a call resets or derives comes before what depends on it.
 */
#include "guest/kvm_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void list_msrs(int kvm, struct kvm_state_msrs *msrs)
{
	struct {
		u32 nmsrs;
		u32 index[KVM_STATE_MSRS];
	} list = { .nmsrs = KVM_STATE_MSRS };

	KVM_CALL(kvm, KVM_GET_MSR_INDEX_LIST, &list);
	msrs->nmsrs = list.nmsrs;
	for (u32 i = 0; i < list.nmsrs; i++)
		msrs->entry[i] = (struct kvm_msr_entry){ .index = list.index[i] };
}

static void access_msrs(int vcpu, unsigned long request, struct kvm_state_msrs *msrs)
{
	u32 done = KVM_CALL(vcpu, request, msrs);

	if (done == msrs->nmsrs)
		return;
	fprintf(stderr, "MSR %#x is refused, with %#llx\n", msrs->entry[done].index,
		(unsigned long long)msrs->entry[done].data);
	exit(1);
}

/* Events first: reading them settles what is pending. */
void kvm_state_save(struct kvm_guest *g, struct kvm_state *state)
{
	int vcpu = g->vcpu[0];

	memset(state, 0, sizeof(*state));
	KVM_CALL(vcpu, KVM_GET_VCPU_EVENTS, &state->events);
	KVM_CALL(vcpu, KVM_GET_MP_STATE, &state->mp);
	KVM_CALL(vcpu, KVM_GET_REGS, &state->regs);
	KVM_CALL(vcpu, KVM_GET_SREGS2, &state->sregs);
	KVM_CALL(vcpu, KVM_GET_XSAVE2, state->xsave);
	KVM_CALL(vcpu, KVM_GET_XCRS, &state->xcrs);
	KVM_CALL(vcpu, KVM_GET_DEBUGREGS, &state->debug);
	KVM_CALL(vcpu, KVM_GET_LAPIC, &state->lapic);
	list_msrs(g->kvm, &state->msrs);
	access_msrs(vcpu, KVM_GET_MSRS, &state->msrs);
	state->tsc_khz = KVM_CALL(vcpu, KVM_GET_TSC_KHZ, NULL);
	for (u32 i = 0; i < KVM_STATE_CHIPS; i++) {
		state->chip[i].chip_id = i;
		KVM_CALL(g->vm, KVM_GET_IRQCHIP, &state->chip[i]);
	}
	KVM_CALL(g->vm, KVM_GET_CLOCK, &state->clock);
}

void kvm_state_restore(struct kvm_guest *g, const struct kvm_state *saved)
{
	struct kvm_state *state = malloc(sizeof(*state));
	int vcpu = g->vcpu[0];

	if (!state)
		abort();
	*state = *saved;
	state->clock.flags = 0;
	KVM_CALL(g->vm, KVM_SET_CLOCK, &state->clock);
	for (u32 i = 0; i < KVM_STATE_CHIPS; i++)
		KVM_CALL(g->vm, KVM_SET_IRQCHIP, &state->chip[i]);
	KVM_CALL(vcpu, KVM_SET_TSC_KHZ, (void *)(long)state->tsc_khz);
	KVM_CALL(vcpu, KVM_SET_SREGS2, &state->sregs);
	KVM_CALL(vcpu, KVM_SET_LAPIC, &state->lapic);
	KVM_CALL(vcpu, KVM_SET_REGS, &state->regs);
	KVM_CALL(vcpu, KVM_SET_XSAVE, state->xsave);
	KVM_CALL(vcpu, KVM_SET_XCRS, &state->xcrs);
	access_msrs(vcpu, KVM_SET_MSRS, &state->msrs);
	KVM_CALL(vcpu, KVM_SET_VCPU_EVENTS, &state->events);
	KVM_CALL(vcpu, KVM_SET_MP_STATE, &state->mp);
	KVM_CALL(vcpu, KVM_SET_DEBUGREGS, &state->debug);
	free(state);
}

void kvm_state_move(struct kvm_guest *g, void (*prepare)(int vm))
{
	struct kvm_state *state = malloc(sizeof(*state));
	struct kvm_guest to;

	if (!state)
		abort();
	kvm_state_save(g, state);
	kvm_guest_create_with(&to, "", 0, 1, prepare);
	memcpy(to.ram, g->ram, IMAGE_RAM);
	kvm_state_restore(&to, state);
	kvm_guest_destroy(g);
	*g = to;
	free(state);
}
