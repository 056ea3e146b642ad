// SPDX-License-Identifier: MIT
/*
 * A VM: its life, its vCPUs, its boot vCPU and MSR filter, and how an editor of shared tables waits
 * for vCPU threads. Other settings are in enable_cap.c. Any thread.
 */
#include "vm/vm.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/must.h"
#include "vm/io.h"
#include "vm/irq/apic.h"
#include "vm/irq/irqchip.h"
#include "vm/pmu/shadow.h"
#include "vm/kept.h"
#include "vm/profile.h"
#include "vm/time/trace.h"

struct vm *vm_create(const struct model *model)
{
	static u32 serial;
	struct vm *vm = aligned_alloc(_Alignof(struct vm), sizeof(*vm));

	if (!vm)
		return NULL;
	memset(vm, 0, sizeof(*vm));
	vm->mem = mem_map_empty();
	if (!vm->mem)
		goto free_vm;
	vm->model = model;
	vm->refs = 1;
	vm->owner = getpid();
	vm->serial = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
	vm->set.apic_bus_cycle_ns = 1;
	vm->set.halt_poll_ns = POLL_MOST_NS;
	pthread_mutex_init(&vm->slots_lock, NULL);
	pthread_mutex_init(&vm->lock, NULL);
	pthread_mutex_init(&vm->ring_lock, NULL);
	pthread_mutex_init(&vm->ask_lock, NULL);
	vm->created_ns = clock_ns();
	schedule_init(vm);
	vm_clock_init(vm);
	return vm;
free_vm:
	free(vm);
	return NULL;
}

static void destroy(struct vm *vm)
{
	irqchip_destroy(vm); /* first: its thread kicks vCPUs */
	for (u32 i = 0; i < vm->nvcpus; i++)
		vcpu_destroy(vm->vcpus[i]);
	for (u32 i = 0; i < ARRAY_SIZE(vm->caches); i++)
		coherence_destroy(&vm->caches[i]);
	for (u32 i = 0; i < vm->mem->nslots; i++) {
		free(vm->mem->slots[i].dirty);
		free(vm->mem->slots[i].claims);
	}
	free((void *)vm->mem);
	io_zones_destroy(vm);
	if (vm->msr_filter)
		msr_filter_destroy(vm->msr_filter);
	free(vm->pmu_filter);
	outside_destroy(vm);
	written_destroy(vm);
	profile_destroy(vm);
	kept_destroy(vm);
	shadow_destroy(vm);
	trace_destroy(vm);
	vm_clock_destroy(vm);
	schedule_destroy(vm);
	pthread_mutex_destroy(&vm->ask_lock);
	pthread_mutex_destroy(&vm->ring_lock);
	pthread_mutex_destroy(&vm->lock);
	pthread_mutex_destroy(&vm->slots_lock);
	free(vm);
}

void vm_get(struct vm *vm)
{
	__atomic_add_fetch(&vm->refs, 1, __ATOMIC_RELAXED);
}

void vm_put(struct vm *vm)
{
	if (__atomic_sub_fetch(&vm->refs, 1, __ATOMIC_ACQ_REL) == 0)
		destroy(vm);
}

struct vcpu *vm_vcpu_by_id(struct vm *vm, u32 id)
{
	u32 n = vm_nvcpus(vm);

	/* Most programs number their vCPUs from 0 without gaps. */
	if (id < n && vm->vcpus[id]->id == id)
		return vm->vcpus[id];
	for (u32 i = 0; i < n; i++)
		if (vm->vcpus[i]->id == id)
			return vm->vcpus[i];
	return NULL;
}

void vm_kick_all(struct vm *vm, u32 requests)
{
	u32 n = vm_nvcpus(vm);

	for (u32 i = 0; i < n; i++)
		vcpu_kick(vm->vcpus[i], requests);
}

/* Waits until the vCPU has left the section numbered `seen`. */
static void wait_for_section(struct vcpu *vcpu, u32 seen)
{
	__atomic_add_fetch(&vcpu->sync_waiting, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&vcpu->section, __ATOMIC_SEQ_CST) == seen)
		syscall(SYS_futex, &vcpu->section, FUTEX_WAIT_PRIVATE, seen, NULL);
	__atomic_sub_fetch(&vcpu->sync_waiting, 1, __ATOMIC_SEQ_CST);
}

void vm_synchronize(struct vm *vm)
{
	u32 n = vm_nvcpus(vm);
	bool waited = false;

	must(!vcpu_current()); /* it would wait for itself */
	/* What the caller published, in the one order of all such accesses, comes before these
	 * loads. */
	for (u32 i = 0; i < n; i++) {
		struct vcpu *vcpu = vm->vcpus[i];
		u32 seen = __atomic_load_n(&vcpu->section, __ATOMIC_SEQ_CST);

		if (!(seen & 1))
			continue;
		vcpu_kick(vcpu, REQUEST_LEAVE);
		wait_for_section(vcpu, seen);
		waited = true;
	}
	__atomic_add_fetch(&vm->stats.remote_tlb_flush_requests, 1, __ATOMIC_RELAXED);
	if (waited)
		__atomic_add_fetch(&vm->stats.remote_tlb_flush, 1, __ATOMIC_RELAXED);
}

int vm_set_boot_cpu(struct vm *vm, u64 id)
{
	int r = 0;

	pthread_mutex_lock(&vm->lock);
	if (vm->created_vcpus)
		r = -EBUSY;
	else if (id > VM_MAX_VCPU_IDS || (vm->set.max_vcpu_ids && id > vm->set.max_vcpu_ids))
		r = -EINVAL;
	else
		vm->set.bsp_id = id;
	pthread_mutex_unlock(&vm->lock);
	return r;
}

int vm_set_msr_filter(struct vm *vm, const struct kvm_msr_filter *filter)
{
	struct msr_filter *new, *old;
	int r = msr_filter_create(filter, &new);

	if (r)
		return r;
	pthread_mutex_lock(&vm->lock);
	old = vm->msr_filter;
	__atomic_store_n(&vm->msr_filter, new, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&vm->msr_filter_serial, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&vm->lock);
	vm_synchronize(vm);
	if (old)
		msr_filter_destroy(old);
	return 0;
}
