// SPDX-License-Identifier: MIT
/*
 * CPUID of a vCPU: the list that KVM_SET_CPUID2 gave it, what it makes of struct cpu, of the local
 * APIC and of the PMU, and how the guest's CPUID instruction reads it (KVM: arch/x86/kvm/cpuid.c;
 * SDM 2A CPUID). The holder of the vCPU's lock, or its thread.
 */
#include "vm/cpuid/cpuid.h"

#include <asm/kvm_para.h>
#include <errno.h>
#include <string.h>

#include "vm/vm.h"

#define LEAF1_ECX_MWAIT	       BIT(3)
#define LEAF1_ECX_TSC_DEADLINE BIT(24)
#define LEAF1_ECX_OSXSAVE      BIT(27)
#define LEAF1_EDX_APIC	       BIT(9)
#define LEAF7_ECX_OSPKE	       BIT(4)
#define EXT1_ECX_IBS	       BIT(10)
#define MISC_ENABLE_MWAIT      BIT(18)

#define CR4_ALWAYS                                                                                \
	(CR4_VME | CR4_PVI | CR4_TSD | CR4_DE | CR4_PSE | CR4_PAE | CR4_MCE | CR4_PGE | CR4_PCE | \
	 CR4_OSFXSR | CR4_OSXMMEXCPT) /* KVM: allowed whatever CPUID says */

/* Control bits that exist with a feature. */
static const struct control_bit {
	enum feature feature;
	u64 bit;
} cr4_bits[] = {
	{ FEAT_UMIP, CR4_UMIP },   { FEAT_LA57, CR4_LA57 },	{ FEAT_FSGSBASE, CR4_FSGSBASE },
	{ FEAT_PCID, CR4_PCIDE },  { FEAT_XSAVE, CR4_OSXSAVE }, { FEAT_SMEP, CR4_SMEP },
	{ FEAT_SMAP, CR4_SMAP },   { FEAT_PKU, CR4_PKE },
}, efer_bits[] = {
	{ FEAT_SYSCALL, EFER_SCE },
	{ FEAT_LM, EFER_LME | EFER_LMA },
	{ FEAT_NX, EFER_NX },
	{ FEAT_AUTOIBRS, EFER_AIBRSE },
};

/* The first entry for a leaf, of any subleaf where the list says that subleaves do not matter. */
static struct kvm_cpuid_entry2 *find(struct kvm_cpuid_entry2 *entries, u32 n, u32 leaf, u32 subleaf)
{
	for (u32 i = 0; i < n; i++) {
		struct kvm_cpuid_entry2 *e = &entries[i];

		if (e->function == leaf &&
		    (!(e->flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX) || e->index == subleaf))
			return e;
	}
	return NULL;
}

static struct kvm_cpuid_entry2 *entry_of(const struct vcpu *vcpu, u32 leaf, u32 subleaf)
{
	return find(vcpu->cpuid, vcpu->ncpuid, leaf, subleaf);
}

static u32 reg_of(const struct kvm_cpuid_entry2 *e, enum cpuid_reg reg)
{
	const u32 regs[4] = { e->eax, e->ebx, e->ecx, e->edx };

	return regs[reg];
}

static void set_bit(u32 *word, u32 bit, bool on)
{
	*word = on ? *word | bit : *word & ~bit;
}

int cpuid_check(const struct kvm_cpuid_entry2 *entries, u32 n)
{
	struct kvm_cpuid_entry2 *e = find((struct kvm_cpuid_entry2 *)entries, n, 0x80000008, 0);
	u32 virt_bits = e ? e->eax >> 8 & 0xff : 0;

	return virt_bits == 0 || virt_bits == 48 || virt_bits == 57 ? 0 : -EINVAL;
}

/*
 * What the guest may use: what its CPUID says, as far as we can do it here. Before it has a CPUID,
 * all that the model offers (KVM: SET_SREGS is then not restricted by CPUID).
 */
static bool guest_has(const struct vcpu *vcpu, enum feature f)
{
	const struct feature_row *row = &feature_rows[f];
	const struct kvm_cpuid_entry2 *e;

	if (!vcpu->cpuid)
		return cpuid_offered(vcpu->vm->model, row->leaf, row->subleaf, row->reg, row->bit);
	if (!cpuid_possible(row->leaf, row->subleaf, row->reg, row->bit))
		return false;
	e = entry_of(vcpu, row->leaf, row->subleaf);
	return e && reg_of(e, row->reg) >> row->bit & 1;
}

static void apply_features(struct vcpu *vcpu)
{
	struct cpu *cpu = vcpu->cpu;

	memset(cpu->features, 0, sizeof(cpu->features));
	for (u32 f = 0; f < NFEATURES; f++)
		if (guest_has(vcpu, f))
			cpu->features[f / 64] |= BIT(f % 64);
}

static u64 control_bits(const struct cpu *cpu, const struct control_bit *rows, u32 n)
{
	u64 allowed = 0;

	for (u32 i = 0; i < n; i++)
		if (cpu_has(cpu, rows[i].feature))
			allowed |= rows[i].bit;
	return allowed;
}

static u64 guest_xcr0(const struct vcpu *vcpu)
{
	const struct kvm_cpuid_entry2 *e = entry_of(vcpu, 0xd, 0);
	u64 listed = e ? e->eax | (u64)e->edx << 32 : 0;

	if (!vcpu->cpuid)
		return cpuid_xcr0_offered(vcpu->vm->model);
	return (listed & cpuid_xcr0_possible()) | XCR0_X87;
}

/* False: the list does not have all of these components, or where no area could have them. */
static bool listed_layout(const struct vcpu *vcpu, u64 components, struct xstate_layout *layout)
{
	memset(layout, 0, sizeof(*layout));
	for (u32 i = XSTATE_FIRST; i < NXSTATE; i++) {
		const struct kvm_cpuid_entry2 *e = entry_of(vcpu, 0xd, i);

		if (!(components & BIT(i)))
			continue;
		if (!e || e->eax != xstate_bytes(i) || e->ebx > sizeof(struct kvm_xsave))
			return false;
		layout->at[i] = e->ebx;
	}
	return xstate_layout_valid(layout, components, sizeof(struct kvm_xsave));
}

/*
 * Where components are in the standard format. The list decides: QEMU lists the offsets of the
 * host's processor, whatever the model, and expects KVM_GET_XSAVE to follow.
 */
static void apply_layout(struct vcpu *vcpu, bool is_amd)
{
	u64 components = vcpu->cpu->xcr0_allowed;

	if (!listed_layout(vcpu, components, &vcpu->cpu->xstate))
		xstate_standard(&vcpu->cpu->xstate, is_amd, components);
}

static u8 guest_phys_bits(const struct vcpu *vcpu)
{
	const struct kvm_cpuid_entry2 *limit = entry_of(vcpu, 0x80000000, 0);
	const struct kvm_cpuid_entry2 *e = entry_of(vcpu, 0x80000008, 0);
	u32 wanted = limit && limit->eax >= 0x80000008 && e ? e->eax & 0xff : 36; /* KVM: else 36 */

	if (!vcpu->cpuid)
		wanted = vcpu->vm->model->phys_bits;
	return wanted < 32 ? 32 : wanted > 52 ? 52 : wanted;
}

static bool vendor_is_amd(const struct kvm_cpuid_entry2 *e)
{
	return (e->ebx == 0x68747541 && e->edx == 0x69746e65 && e->ecx == 0x444d4163) ||
	       (e->ebx == 0x6f677948 && e->edx == 0x6e65476e && e->ecx == 0x656e6975); /* Hygon */
}

static bool guest_is_amd(const struct vcpu *vcpu)
{
	const struct kvm_cpuid_entry2 *e = entry_of(vcpu, 0, 0);

	return e ? vendor_is_amd(e) : !vcpu->cpuid && vcpu->vm->model->is_amd;
}

static void apply_to_lapic(struct vcpu *vcpu)
{
	const struct kvm_cpuid_entry2 *e = entry_of(vcpu, 1, 0);

	if (!e)
		return;
	vcpu->lapic.deadline_mode = e->ecx & LEAF1_ECX_TSC_DEADLINE;
	vcpu->lapic.extended = cpu_has(vcpu->cpu, FEAT_IBS);
	lapic_configure(&vcpu->lapic, vcpu->lapic.nlvts > 6,
			cpu_has(vcpu->cpu, FEAT_X2APIC) && !vcpu->vm->irqchip_kernel);
}

static void apply_to_pmu(struct vcpu *vcpu)
{
	const struct kvm_cpuid_entry2 *a = entry_of(vcpu, 0xa, 0);
	const struct kvm_cpuid_entry2 *v2 = entry_of(vcpu, 0x80000022, 0);
	struct pmu_guest guest = {
		.disabled = vcpu->vm->set.pmu_disabled,
		.leaf_a_eax = a ? a->eax : 0,
		.leaf_a_ecx = a ? a->ecx : 0,
		.leaf_a_edx = a ? a->edx : 0,
		.pdcm = cpu_has(vcpu->cpu, FEAT_PDCM),
		.core_ext = cpu_has(vcpu->cpu, FEAT_PERFCTR_CORE),
		.leaf_22_eax = v2 ? v2->eax : 0,
		.leaf_22_ebx = v2 ? v2->ebx : 0,
		.arch_lbr = cpu_has(vcpu->cpu, FEAT_ARCH_LBR),
		.ds = cpu_has(vcpu->cpu, FEAT_DS) && cpu_has(vcpu->cpu, FEAT_DTES64),
		.la57 = cpu_has(vcpu->cpu, FEAT_LA57),
		.ibs = cpu_has(vcpu->cpu, FEAT_IBS),
	};

	pmu_configure(&vcpu->pmu.guest, &guest);
}

/* IBS interrupts by the extended LVT of our local APIC; a program's own need not have one. */
static void drop_ibs(const struct vcpu *vcpu)
{
	struct kvm_cpuid_entry2 *e = entry_of(vcpu, 0x80000001, 0);

	if (e)
		set_bit(&e->ecx, EXT1_ECX_IBS, false);
}

int cpuid_apply(struct vcpu *vcpu)
{
	struct cpu *cpu = vcpu->cpu;

	if (cpuid_check(vcpu->cpuid, vcpu->ncpuid))
		return -EINVAL;
	if (!vcpu->has_lapic && guest_is_amd(vcpu))
		drop_ibs(vcpu);
	apply_features(vcpu);
	cpu->cr4_allowed = CR4_ALWAYS | control_bits(cpu, cr4_bits, ARRAY_SIZE(cr4_bits));
	cpu->efer_allowed = control_bits(cpu, efer_bits, ARRAY_SIZE(efer_bits));
	cpu->xcr0_allowed = guest_xcr0(vcpu);
	cpu->phys_bits = guest_phys_bits(vcpu);
	cpu->is_amd = guest_is_amd(vcpu);
	cpu->port.foreign_rules =
		cpu->is_amd == vcpu->vm->model->is_amd ? vendor_exceptions(vcpu->vm->model) : 0;
	apply_layout(vcpu, cpu->is_amd);
	apply_to_lapic(vcpu);
	apply_to_pmu(vcpu);
	cpuid_refresh(vcpu);
	return 0;
}

static void refresh_leaf1(const struct vcpu *vcpu, struct kvm_cpuid_entry2 *e)
{
	set_bit(&e->ecx, LEAF1_ECX_OSXSAVE, vcpu->cpu->cr4 & CR4_OSXSAVE);
	set_bit(&e->edx, LEAF1_EDX_APIC, lapic_hw_enabled(&vcpu->lapic));
	if (!vm_has_quirk(vcpu->vm, KVM_X86_QUIRK_MISC_ENABLE_NO_MWAIT))
		set_bit(&e->ecx, LEAF1_ECX_MWAIT, vcpu->msrs.misc_enable & MISC_ENABLE_MWAIT);
}

/* KVM's feature leaf, wherever in the hypervisor's range the program has put KVM. */
static struct kvm_cpuid_entry2 *pv_leaf(const struct vcpu *vcpu)
{
	static const char signature[12] = "KVMKVMKVM";

	for (u32 base = 0x40000000; base < 0x40010000; base += 0x100) {
		const struct kvm_cpuid_entry2 *e = entry_of(vcpu, base, 0);

		if (e && !memcmp(&e->ebx, signature, sizeof(signature)))
			return entry_of(vcpu, base | KVM_CPUID_FEATURES, 0);
	}
	return NULL;
}

void cpuid_refresh(struct vcpu *vcpu)
{
	struct kvm_cpuid_entry2 *e;

	e = entry_of(vcpu, 0x1, 0);
	if (e)
		refresh_leaf1(vcpu, e);
	e = entry_of(vcpu, 0x7, 0);
	if (e)
		set_bit(&e->ecx, LEAF7_ECX_OSPKE, vcpu->cpu->cr4 & CR4_PKE);
	e = entry_of(vcpu, 0xd, 0);
	if (e)
		e->ebx = xstate_standard_size(&vcpu->cpu->xstate, vcpu->cpu->xcr0);
	e = entry_of(vcpu, 0xd, 1);
	if (e && (e->eax & (BIT(1) | BIT(3)))) /* XSAVEC, XSAVES */
		e->ebx = xstate_compacted_size(vcpu->cpu->xcr0);
	if (e)
		e->ecx = e->edx = 0; /* no supervisor state; QEMU adds that of Arch LBR by itself */
	if (READ_ONCE(vcpu->vm->set.disabled_exits) & KVM_X86_DISABLE_EXITS_HLT) {
		e = pv_leaf(vcpu); /* a HLT that does not exit cannot be ended by a kick */
		if (e)
			e->eax &= ~(1u << KVM_FEATURE_PV_UNHALT);
	}
}

/*
 * A leaf that is not listed. Intel answers a leaf beyond the limit of its class (basic, extended,
 * each 256 hypervisor leaves) like the last basic leaf, with the subleaf that was asked for; AMD
 * with zeros (KVM: get_out_of_range_cpuid_entry).
 */
static struct kvm_cpuid_entry2 *beyond_limit(const struct vcpu *vcpu, u32 *leaf, u32 subleaf)
{
	const struct kvm_cpuid_entry2 *basic = entry_of(vcpu, 0, 0), *class;

	if (!basic || vendor_is_amd(basic))
		return NULL;
	if (*leaf >= 0x40000000 && *leaf <= 0x4fffffff)
		class = entry_of(vcpu, *leaf & 0xffffff00, 0);
	else if (*leaf >= 0xc0000000)
		class = entry_of(vcpu, 0xc0000000, 0);
	else
		class = entry_of(vcpu, *leaf & 0x80000000, 0);
	if (class && *leaf <= class->eax)
		return NULL;
	*leaf = basic->eax;
	return entry_of(vcpu, basic->eax, subleaf);
}

void cpuid_query(struct vcpu *vcpu, u32 leaf, u32 subleaf, u32 regs[4])
{
	const struct kvm_cpuid_entry2 *e;

	cpuid_refresh(vcpu);
	memset(regs, 0, 4 * sizeof(regs[0]));
	e = entry_of(vcpu, leaf, subleaf);
	if (!e)
		e = beyond_limit(vcpu, &leaf, subleaf);
	if (e) {
		for (u32 reg = 0; reg < 4; reg++)
			regs[reg] = reg_of(e, reg);
		return;
	}
	if (leaf == 0xb || leaf == 0x1f) { /* undefined subleaves of a topology that exists */
		e = entry_of(vcpu, leaf, 1);
		regs[CPUID_ECX] = e ? subleaf & 0xff : 0;
		regs[CPUID_EDX] = e ? e->edx : 0;
	}
}
