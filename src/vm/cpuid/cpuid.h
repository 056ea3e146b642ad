/* SPDX-License-Identifier: MIT */
/*
 * CPUID: what KVM_GET_SUPPORTED_CPUID offers for a model on this host, what a vCPU's CPUID means
 * for its struct cpu, what the guest's CPUID instruction answers, and what the program's own CPUID
 * instruction answers when it was told to believe that it runs on the model.
 */
#ifndef VM_CPUID_CPUID_H
#define VM_CPUID_CPUID_H

#include <linux/kvm.h>

#include "base/types.h"
#include "x86/models.h"

struct vcpu;
struct vm;

#define CPUID_MAX_ENTRIES 256 /* KVM_MAX_CPUID_ENTRIES; more than that is E2BIG in SET_CPUID2 */

/* The model of this process: VPMU_CPU, or the one nearest to the host. NULL: VPMU_CPU names no
 * model. */
const struct model *cpuid_model(const char *wanted);
/* With VPMU_BASELINE a model has no more of the host's features than every host with AVX2 has. The
 * first one that this host lacks, or NULL. */
const char *cpuid_baseline_lacks(void);
/* Must a program's own CPUID be replaced for it to see this model? The host is of another vendor,
 * family or model, or a VM that lacks what the model shows to programs (MONITOR), or is not to show
 * at all (VPMU_BASELINE). */
bool cpuid_is_foreign(const struct model *model);
/* Does the model differ from a processor with this CPUID leaf 1? */
bool cpuid_differs(const struct model *model, bool is_amd, const u32 leaf1[4]);

/* Number of entries there are; writes at most max of them. */
u32 cpuid_supported(const struct model *model, struct kvm_cpuid_entry2 *out, u32 max);
u32 cpuid_emulated(const struct model *model, struct kvm_cpuid_entry2 *out, u32 max);

/* Can the engine do what this feature bit promises, on this host? Whether or not a model offers
 * it. */
bool cpuid_possible(u32 leaf, u32 subleaf, u32 reg, u32 bit);
/* Does cpuid_supported() have this feature bit? */
bool cpuid_offered(const struct model *model, u32 leaf, u32 subleaf, u32 reg, u32 bit);
u64 cpuid_xcr0_possible(void); /* the state components that a guest can have on this host */
u64 cpuid_xcr0_offered(const struct model *model);

/*
 * To be called when vcpu->cpuid and vcpu->ncpuid were replaced (also by nothing: ncpuid 0), before
 * the next entry: derives cpu->features, cr4_allowed, efer_allowed, xcr0_allowed, xstate,
 * phys_bits and is_amd, and configures the local APIC and the virtual PMU, whose registers it
 * resets. 0 or -EINVAL when no processor could be like that; then nothing was changed.
 */
int cpuid_apply(struct vcpu *vcpu);

/*
 * The same check on a list that is not the vCPU's yet: 0 or -EINVAL (KVM: kvm_check_cpuid).
 */
int cpuid_check(const struct kvm_cpuid_entry2 *entries, u32 n);

/*
 * Fills in what the program does not know of the model that its list names (older_program.c); the
 * list may grow and move. 1 if anything was filled in, else 0, or -ENOMEM.
 */
int cpuid_fill_newer(const struct vm *vm, struct kvm_cpuid_entry2 **entries, u32 *n);

/*
 * Refreshes the bits of vcpu->cpuid that follow the vCPU's state: OSXSAVE, APIC, MWAIT, OSPKE, the
 * sizes of leaf 0xD (KVM: kvm_update_cpuid_runtime). KVM_GET_CPUID2 calls it before it copies.
 */
void cpuid_refresh(struct vcpu *vcpu);

/* The guest's CPUID instruction: eax, ebx, ecx, edx. Any leaf is answered. vCPU thread or lock
 * held. */
void cpuid_query(struct vcpu *vcpu, u32 leaf, u32 subleaf, u32 regs[4]);

/* What a processor of this model would answer to the program's own CPUID. Async-signal-safe. */
void cpuid_native(const struct model *model, u32 leaf, u32 subleaf, u32 regs[4]);

#endif
