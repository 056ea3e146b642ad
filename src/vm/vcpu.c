// SPDX-License-Identifier: MIT
/*
 * A vCPU: its life, reset, CPUID, sections (vm/vm.h), and how other threads reach it. Creation and
 * state changes on any thread with the vCPU's lock; vcpu_kick() and vcpu_nmi() anywhere.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/must.h"
#include "cpu/control.h"
#include "cpu/mmu/mmu.h"
#include "engine/engine.h"
#include "vm/cpuid/cpuid.h"
#include "vm/irq/apic.h"
#include "vm/vm.h"

static void futex_wake(u32 *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

void vcpu_wake(struct vcpu *vcpu)
{
	__atomic_add_fetch(&vcpu->wake, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&vcpu->sleeping, __ATOMIC_SEQ_CST))
		futex_wake(&vcpu->wake);
}

void vcpu_kick(struct vcpu *vcpu, u32 requests)
{
	if (requests)
		__atomic_fetch_or(&vcpu->requests, requests, __ATOMIC_SEQ_CST);
	cpu_call_attention(vcpu->cpu, ATTENTION_OWNER);
	vcpu_wake(vcpu);
}

void vcpu_latch_nmi(struct vcpu *vcpu)
{
	u32 n = __atomic_load_n(&vcpu->nmis, __ATOMIC_RELAXED);

	/* One to be taken at once and one latched meanwhile: more are lost, as on hardware. */
	while (n < 2 && !__atomic_compare_exchange_n(&vcpu->nmis, &n, n + 1, true, __ATOMIC_SEQ_CST,
						     __ATOMIC_RELAXED))
		;
}

void vcpu_nmi(struct vcpu *vcpu)
{
	__atomic_store_n(&vcpu->outside_nmi, true, __ATOMIC_SEQ_CST);
	vcpu_latch_nmi(vcpu);
	vcpu_kick(vcpu, REQUEST_EVENT);
}

void vcpu_section_begin(struct vcpu *vcpu)
{
	const struct mem_map *mem;

	/* Odd before the table is read: an editor that sees it even has published before we
	 * look. */
	__atomic_add_fetch(&vcpu->section, 1, __ATOMIC_SEQ_CST);
	mem = __atomic_load_n(&vcpu->vm->mem, __ATOMIC_SEQ_CST);
	vcpu->cpu->port.mem = mem;
	if (mem->generation != vcpu->mem_generation) {
		vcpu->mem_generation = mem->generation;
		tlb_change_slots(vcpu->cpu);
	}
	/* Not only before the guest goes on: an answer may be stored first, to a page that the
	 * dirty log has just given out. */
	if (unlikely(__atomic_load_n(&vcpu->requests, __ATOMIC_SEQ_CST) & REQUEST_TLB_FLUSH)) {
		__atomic_fetch_and(&vcpu->requests, ~(u32)REQUEST_TLB_FLUSH, __ATOMIC_SEQ_CST);
		tlb_flush(vcpu->cpu);
	}
}

void vcpu_section_end(struct vcpu *vcpu)
{
	__atomic_add_fetch(&vcpu->section, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&vcpu->sync_waiting, __ATOMIC_SEQ_CST))
		futex_wake(&vcpu->section);
}

static u32 signature(struct vcpu *vcpu)
{
	u32 regs[4];

	if (!vcpu->ncpuid)
		return 0x600; /* KVM: a Pentium Pro until told otherwise */
	cpuid_query(vcpu, 1, 0, regs);
	return regs[CPUID_EAX];
}

/* What INIT leaves alone, and a reset does not (SDM 3A table 9-1). */
struct kept {
	u64 cache_off, xcr0, pkru, pat, star, lstar, cstar, sfmask, kernel_gs_base, tsc_aux;
	u64 sysenter_cs, sysenter_esp, sysenter_eip;
	u8 xsave[XSAVE_SIZE];
};

static void keep(const struct cpu *cpu, struct kept *kept)
{
	*kept = (struct kept){
		.cache_off = cpu->cr0 & (CR0_CD | CR0_NW),
		.xcr0 = cpu->xcr0,
		.pkru = cpu->pkru,
		.pat = cpu->pat,
		.star = cpu->star,
		.lstar = cpu->lstar,
		.cstar = cpu->cstar,
		.sfmask = cpu->sfmask,
		.kernel_gs_base = cpu->kernel_gs_base,
		.tsc_aux = cpu->tsc_aux,
		.sysenter_cs = cpu->sysenter_cs,
		.sysenter_esp = cpu->sysenter_esp,
		.sysenter_eip = cpu->sysenter_eip,
	};
	memcpy(kept->xsave, cpu->xsave, sizeof(kept->xsave));
}

static void restore(struct cpu *cpu, const struct kept *kept)
{
	cpu->cr0 = (cpu->cr0 & ~(CR0_CD | CR0_NW)) | kept->cache_off;
	cpu->xcr0 = kept->xcr0;
	cpu->pkru = kept->pkru;
	cpu->pat = kept->pat;
	cpu->star = kept->star;
	cpu->lstar = kept->lstar;
	cpu->cstar = kept->cstar;
	cpu->sfmask = kept->sfmask;
	cpu->kernel_gs_base = kept->kernel_gs_base;
	cpu->tsc_aux = kept->tsc_aux;
	cpu->sysenter_cs = kept->sysenter_cs;
	cpu->sysenter_esp = kept->sysenter_esp;
	cpu->sysenter_eip = kept->sysenter_eip;
	memcpy(cpu->xsave, kept->xsave, sizeof(kept->xsave));
}

void vcpu_reset(struct vcpu *vcpu, bool init)
{
	struct cpu *cpu = vcpu->cpu;
	struct kept kept;

	keep(cpu, &kept);
	cpu_reset(cpu);
	if (init)
		restore(cpu, &kept);
	cpu->regs[RDX] = signature(vcpu);
	msr_reset(vcpu, init);
	vcpu->events = (struct vcpu_events){ .extint = -1 };
	__atomic_store_n(&vcpu->nmis, 0, __ATOMIC_SEQ_CST);
	vcpu->pending = PENDING_NONE;
	if (vcpu->has_lapic)
		lapic_reset(&vcpu->lapic, init);
	cpu_state_changed(cpu);
}

static void lapic_setup(struct vcpu *vcpu, bool boot)
{
	const struct vm_settings *set = &vcpu->vm->set;

	lapic_init(&vcpu->lapic, vcpu->id, boot);
	vcpu->lapic.ids32 = set->x2apic_api & KVM_X2APIC_API_USE_32BIT_IDS;
	vcpu->lapic.strict_broadcast = set->x2apic_api & KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK;
	vcpu->lapic.bus_cycle_ns = set->apic_bus_cycle_ns;
	vcpu->lapic.lint0_masked = !vm_has_quirk(vcpu->vm, KVM_X86_QUIRK_LINT0_REENABLED);
}

static struct vcpu *vcpu_alloc(struct vm *vm, u32 id, void *run)
{
	struct vcpu *vcpu = calloc(1, sizeof(*vcpu));
	bool boot = id == vm->set.bsp_id;

	if (!vcpu)
		return NULL;
	vcpu->cpu = cpu_create();
	if (!vcpu->cpu) {
		free(vcpu);
		return NULL;
	}
	vcpu->cpu->port.harden = vm->set.harden;
	vcpu->cpu->port.kept = vm->kept;
	vcpu->cpu->port.full_timing = vm->set.timing == VM_TIMING_FULL;
	vcpu->cpu->port.last_level = vm->set.last_level;
	vcpu->cpu->port.last_level_life = vm->set.last_level_life;
	vcpu->cpu->port.virtual_time = vm->time.is_virtual;
	vcpu->cpu->port.seeded = vm->set.seeded;
	vcpu->cpu->port.random = vm->set.seed ^ (u64)id << 32; /* other numbers on each vCPU */
	vcpu->vm = vm;
	vcpu->id = id;
	vcpu->run = run;
	vcpu->pio_data = (u8 *)run + KVM_PIO_PAGE_OFFSET * PAGE_SIZE;
	vcpu->ring = (void *)((u8 *)run + KVM_COALESCED_MMIO_PAGE_OFFSET * PAGE_SIZE);
	vcpu->has_lapic = vm_has_lapic(vm);
	vcpu->mp_state =
		boot || !vcpu->has_lapic ? KVM_MP_STATE_RUNNABLE : KVM_MP_STATE_UNINITIALIZED;
	pthread_mutex_init(&vcpu->lock, NULL);
	/* vm_synchronize() does not know the vCPU yet: the lock keeps the table of slots. */
	pthread_mutex_lock(&vm->slots_lock);
	vcpu_section_begin(vcpu);
	lapic_setup(vcpu, boot);
	vcpu_pmu_init(vcpu);
	must(cpuid_apply(vcpu) == 0); /* no CPUID is a CPUID */
	vcpu_reset(vcpu, false);
	vcpu_clock_init(vcpu);
	vcpu_section_end(vcpu);
	pthread_mutex_unlock(&vm->slots_lock);
	return vcpu;
}

void vcpu_destroy(struct vcpu *vcpu)
{
	if (vcpu->cpu->engine)
		engine_destroy(vcpu->cpu);
	cpu_destroy(vcpu->cpu);
	if (vcpu->run)
		munmap(vcpu->run, VCPU_MMAP_SIZE);
	pthread_mutex_destroy(&vcpu->lock);
	free(vcpu->cpuid);
	free(vcpu);
}

/* Room and a legal number for one more vCPU (KVM: kvm_arch_vcpu_precreate). */
static int reserve(struct vm *vm, u32 id)
{
	int r = -EINVAL;

	pthread_mutex_lock(&vm->lock);
	if (vm->created_vcpus >= VM_MAX_VCPUS)
		goto unlock;
	if (!vm->set.max_vcpu_ids)
		vm->set.max_vcpu_ids = VM_MAX_VCPU_IDS;
	if (id >= vm->set.max_vcpu_ids)
		goto unlock;
	vm->created_vcpus++;
	r = 0;
unlock:
	pthread_mutex_unlock(&vm->lock);
	return r;
}

static void share_caches(struct vcpu *vcpu)
{
	struct cpu_port *port = &vcpu->cpu->port;

	port->caches = &vcpu->vm->caches[vcpu->index / COHERENCE_CPUS];
	port->caches_index = vcpu->index % COHERENCE_CPUS;
	coherence_add_cpu(port->caches);
}

static int enlist(struct vm *vm, struct vcpu *vcpu)
{
	int r = 0;

	pthread_mutex_lock(&vm->lock);
	if (vm_vcpu_by_id(vm, vcpu->id)) {
		r = -EEXIST;
	} else {
		vcpu_clock_join(vcpu);
		vcpu->index = vm->nvcpus;
		shared_join(vcpu->cpu, &vm->code, vcpu->index);
		exclusive_join(vcpu->cpu, &vm->exclusive, vcpu->index);
		share_caches(vcpu);
		vm->vcpus[vm->nvcpus] = vcpu;
		__atomic_store_n(&vm->nvcpus, vm->nvcpus + 1, __ATOMIC_RELEASE);
		/* A vCPU that runs may have seen the clock matched by one that did not count. */
		vm_kick_all(vm, REQUEST_CLOCK_UPDATE);
	}
	pthread_mutex_unlock(&vm->lock);
	return r;
}

int vcpu_create(struct vm *vm, u32 id, void *run, struct vcpu **out)
{
	struct vcpu *vcpu;
	int r = reserve(vm, id);

	if (r)
		return r;
	r = -ENOMEM;
	vcpu = vcpu_alloc(vm, id, run);
	if (!vcpu)
		goto unreserve;
	r = enlist(vm, vcpu);
	if (r)
		goto free_vcpu;
	*out = vcpu;
	return 0;
free_vcpu:
	vcpu->run = NULL; /* still the caller's */
	vcpu_destroy(vcpu);
unreserve:
	pthread_mutex_lock(&vm->lock);
	vm->created_vcpus--;
	pthread_mutex_unlock(&vm->lock);
	return r;
}

static void swap_cpuid(struct vcpu *vcpu, struct kvm_cpuid_entry2 **entries, u32 *n)
{
	struct kvm_cpuid_entry2 *old = vcpu->cpuid;
	u32 nold = vcpu->ncpuid;

	vcpu->cpuid = *entries;
	vcpu->ncpuid = *n;
	*entries = old;
	*n = nold;
}

/* Is this what the vCPU has already, but for what follows its state? */
static bool same_cpuid(struct vcpu *vcpu, struct kvm_cpuid_entry2 *entries, u32 n)
{
	bool same = n == vcpu->ncpuid;

	cpuid_refresh(vcpu);
	swap_cpuid(vcpu, &entries, &n);
	cpuid_refresh(vcpu);
	swap_cpuid(vcpu, &entries, &n);
	for (u32 i = 0; same && i < n; i++)
		same = !memcmp(&entries[i], &vcpu->cpuid[i],
			       offsetof(struct kvm_cpuid_entry2, padding));
	return same;
}

/* Leaves in *entries what is to be freed: the new list if it was refused, else the old one. */
static int replace_cpuid(struct vcpu *vcpu, struct kvm_cpuid_entry2 **entries, u32 n)
{
	int r = cpuid_check(*entries, n), filled;

	if (r)
		return r;
	filled = cpuid_fill_newer(vcpu->vm, entries, &n);
	if (filled < 0)
		return filled;
	/* KVM: the model is fixed by the first run, but a program that reuses the vCPU may say it
	 * again. */
	if (vcpu->ever_ran)
		return same_cpuid(vcpu, *entries, n) ? 0 : -EINVAL;
	swap_cpuid(vcpu, entries, &n);
	r = cpuid_apply(vcpu);
	if (r) {
		swap_cpuid(vcpu, entries, &n);
		return r;
	}
	vcpu->cpuid_filled = filled;
	if (filled)
		msr_fill_newer(vcpu);
	cpu_state_changed(vcpu->cpu);
	return 0;
}

int vcpu_set_cpuid(struct vcpu *vcpu, struct kvm_cpuid_entry2 *entries, u32 n)
{
	int r;

	if (!n) { /* no list, not an empty one */
		free(entries);
		entries = NULL;
	}
	r = replace_cpuid(vcpu, &entries, n);
	free(entries);
	return r;
}
