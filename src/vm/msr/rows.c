// SPDX-License-Identifier: MIT
/*
 * The table made of msr.def, the functions that its rows name, for what does not fit into a row,
 * and the values after a reset. Semantics are KVM's. vCPU's lock.
 */
#include <asm/kvm_para.h>

#include "cpu/control.h"
#include "cpu/mmu/mmu.h"
#include "engine/engine.h"
#include "vm/cpuid/cpuid.h"
#include "vm/irq/apic.h"
#include "vm/msr/priv.h"
#include "vm/vm.h"

#define MISC_ENABLE_EMON	 BIT(7)
#define MISC_ENABLE_BTS_UNAVAIL	 BIT(11)
#define MISC_ENABLE_PEBS_UNAVAIL BIT(12)
#define MISC_ENABLE_MWAIT	 BIT(18)
#define PLATFORM_CPUID_FAULT	 BIT(31)
#define FEATURES_CPUID_FAULT	 BIT(0)
#define FEAT_CTL_LOCKED		 BIT(0)
#define HWCR_MC_STATUS_WRITE	 BIT(18)
#define HWCR_TSC_FREQ_SEL	 BIT(24) /* the TSC counts at the P0 frequency */
#define SPEC_CTRL_BHI_DIS_S	 BIT(10)
#define DEBUGCTL_LBR_BTF	 MASK(1, 0)
#define DEBUGCTL_PINS		 MASK(5, 2)

static bool check_canonical(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index, (void)host;
	return cpu_canonical_base(vcpu->cpu, *value);
}

/* KVM: a non-canonical SYSENTER address is made canonical, since AMD would not fault. */
static bool check_sysenter(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	u32 unused = 64 - cpu_linear_bits_max(vcpu->cpu);

	(void)index, (void)host;
	if (vcpu->cpu->is_amd)
		*value = (u32)*value;
	else
		*value = (u64)((s64)(*value << unused) >> unused);
	return true;
}

/* SDM 4: bits 63:32 are reserved; AMD ignores them. */
static bool check_tsc_aux(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index, (void)host;
	if (!vcpu->cpu->is_amd && *value >> 32)
		return false;
	*value = (u32)*value;
	return true;
}

/* Memory types 2, 3 and above 7 are reserved; 7 (UC-) exists in PAT only (SDM 3A 11.12.2). */
static bool types_valid(u64 value, u32 types)
{
	for (u32 i = 0; i < 8; i++) {
		u8 type = value >> (8 * i);

		if (type > 7 || !(types >> type & 1))
			return false;
	}
	return true;
}

static bool check_pat(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)vcpu, (void)index, (void)host;
	return types_valid(*value, 0xf3);
}

static bool check_mtrr_fixed(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)vcpu, (void)index, (void)host;
	return types_valid(*value, 0x73);
}

static bool check_mtrr_default(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)vcpu, (void)index, (void)host;
	return types_valid(*value & 0xff, 0x73);
}

static bool check_mtrr_variable(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	u64 beyond = ~MASK(vcpu->cpu->phys_bits - 1, 0);

	(void)host;
	if (index & 1)
		return !(*value & (beyond | 0x7ff));
	return !(*value & (beyond | 0xf00)) && types_valid(*value & 0xff, 0x73);
}

static u32 mce_banks(const struct vcpu *vcpu)
{
	return vcpu->msrs.mcg_cap & 0xff;
}

static bool check_mcg_ctl(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index;
	if (!(vcpu->msrs.mcg_cap & MCG_CTL_P) && (*value || !host))
		return false;
	return !*value || *value == ~0ull;
}

static bool read_mcg_ctl(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index;
	*value = vcpu->msrs.mcg_ctl;
	return host || (vcpu->msrs.mcg_cap & MCG_CTL_P);
}

/* A guest writes it to make the processor read it again; it keeps its value. */
static bool check_ucode_rev(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index;
	if (!host)
		*value = vcpu->msrs.ucode_rev;
	return true;
}

/* KVM: local machine checks are not offered, so a guest never has this one. */
static bool check_host(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)vcpu, (void)index, (void)value;
	return host;
}

static bool read_mcg_ext_ctl(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index;
	*value = vcpu->msrs.mcg_ext_ctl;
	return host;
}

static bool check_mce_ctl2(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	if ((index & 0x1f) >= mce_banks(vcpu))
		return false;
	return (vcpu->msrs.mcg_cap & MCG_CMCI_P) || (!*value && host);
}

static bool read_mce_ctl2(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	u32 bank = index & 0x1f;

	*value = vcpu->msrs.mce_ctl2[bank];
	return bank < mce_banks(vcpu) && (host || (vcpu->msrs.mcg_cap & MCG_CMCI_P));
}

/* KVM: MCi_CTL takes 0 or all ones; bits 0 and 10 may be missing, since old guests clear them for
 * errata. */
static bool check_mce_bank(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	u32 reg = index & 3;

	if ((index & 0x7f) / 4 >= mce_banks(vcpu))
		return false;
	if (reg == 0)
		return !*value || (*value | BIT(10) | 1) == ~0ull;
	if (reg == 1 && !host && *value)
		return vcpu->cpu->is_amd && (vcpu->msrs.hwcr & HWCR_MC_STATUS_WRITE);
	return true;
}

static bool read_mce_bank(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)host;
	*value = vcpu->msrs.mce_bank[index & 0x7f];
	return (index & 0x7f) / 4 < mce_banks(vcpu);
}

/* SDM 3A 2.2.1. The program may set what the guest may not, but not LMA. */
static bool write_efer(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	struct cpu *cpu = vcpu->cpu;
	struct cpu_event event = cpu->port.event;
	bool ok;

	(void)index;
	if (host) {
		if (value & ~(EFER_SCE | EFER_LME | EFER_LMA | EFER_NX | EFER_AIBRSE))
			return false;
		cpu->efer = (value & ~EFER_LMA) | (cpu->efer & EFER_LMA);
		cpu_state_changed(cpu);
		return true;
	}
	ok = cpu_write_efer(cpu, value) == FAULT_NONE;
	cpu->port.event = event; /* ours to raise: the program may want to see the fault first */
	return ok;
}

static bool write_apic_base(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	(void)index;
	return apic_set_base(vcpu, value, host);
}

static bool read_apic_base(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index, (void)host;
	*value = vcpu->lapic.base;
	return true;
}

static bool read_x2apic(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)host;
	return lapic_msr_read(&vcpu->lapic, index, apic_now(vcpu), value);
}

static bool write_x2apic(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	struct lapic_actions actions = { 0 };

	(void)host;
	if (!lapic_msr_write(&vcpu->lapic, index, value, apic_now(vcpu), &actions))
		return false;
	apic_act(vcpu, &actions);
	return true;
}

static bool read_tsc_deadline(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index;
	*value = 0;
	if (!vcpu->has_lapic)
		return true;
	/* The program may save IRR before this MSR: an expiry in between must stay in the MSR. */
	if (!host)
		lapic_timer_poll(&vcpu->lapic, apic_now(vcpu));
	*value = lapic_get_tsc_deadline(&vcpu->lapic);
	return true;
}

static bool write_tsc_deadline(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	struct lapic_actions actions = { 0 };

	(void)index, (void)host;
	if (!vcpu->has_lapic)
		return true;
	lapic_set_tsc_deadline(&vcpu->lapic, value, apic_now(vcpu), &actions);
	apic_act(vcpu, &actions);
	return true;
}

static bool read_tsc(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index, (void)host;
	*value = vcpu_tsc(vcpu);
	return true;
}

static bool write_tsc(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	(void)index;
	vcpu_tsc_write(vcpu, value, host);
	return true;
}

/* KVM: without the feature, writes are accepted and do nothing. */
static bool write_tsc_adjust(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	(void)index;
	if (cpu_has(vcpu->cpu, FEAT_TSC_ADJUST))
		vcpu_tsc_adjust_write(vcpu, value, host);
	return true;
}

/* IBPB (SDM 4 "IA32_PRED_CMD"): the one thing that there is to forget is the timing model's. */
static bool write_pred_cmd(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	(void)index;
	(void)host;
	if (value)
		engine_forget_branches(vcpu->cpu);
	return true;
}

/* There is no branch trace store, whatever the program wrote: QEMU clears the bit that says so. */
static u64 misc_enable_of_guest(const struct vcpu *vcpu)
{
	return vcpu->msrs.misc_enable | MISC_ENABLE_BTS_UNAVAIL;
}

static bool read_misc_enable(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index;
	*value = host ? vcpu->msrs.misc_enable : misc_enable_of_guest(vcpu);
	return true;
}

static bool check_misc_enable(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	u64 old = host ? vcpu->msrs.misc_enable : misc_enable_of_guest(vcpu);
	u64 changed = old ^ *value;

	(void)index;
	if (!host) {
		if (changed & (MISC_ENABLE_BTS_UNAVAIL | MISC_ENABLE_PEBS_UNAVAIL))
			return false;
		*value = (*value & ~MISC_ENABLE_EMON) | (old & MISC_ENABLE_EMON);
	}
	if (!(changed & MISC_ENABLE_MWAIT) ||
	    vm_has_quirk(vcpu->vm, KVM_X86_QUIRK_MISC_ENABLE_NO_MWAIT))
		return true;
	return cpu_has(vcpu->cpu, FEAT_SSE3);
}

static bool write_misc_enable(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	(void)index, (void)host;
	vcpu->msrs.misc_enable = value;
	cpuid_refresh(vcpu);
	return true;
}

static bool read_platform_info(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index;
	*value = vcpu->msrs.platform_info;
	return host || !READ_ONCE(vcpu->vm->set.platform_info_hidden);
}

static bool check_platform_info(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index, (void)host;
	return (*value & PLATFORM_CPUID_FAULT) || !vcpu->msrs.misc_features_enables;
}

static bool check_misc_features(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index, (void)host;
	return !*value || (vcpu->msrs.platform_info & PLATFORM_CPUID_FAULT);
}

static bool check_feat_ctl(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index, (void)value;
	return host || !(vcpu->msrs.feat_ctl & FEAT_CTL_LOCKED);
}

/* KVM: LBR and BTF are accepted and not kept while there is no LBR; so are AMD's pin controls. */
static bool check_debugctl(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	u64 legal = pmu_debugctl_legal(&vcpu->pmu.guest);

	(void)index, (void)host;
	*value &= legal | ~DEBUGCTL_LBR_BTF;
	if (vcpu->cpu->is_amd)
		*value &= ~DEBUGCTL_PINS;
	return !(*value & ~legal);
}

/* KVM: cache and TLB quirk bits are ignored. */
static bool check_hwcr(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)vcpu, (void)index, (void)host;
	*value &= ~(BIT(3) | BIT(6) | BIT(8));
	return !(*value & ~(HWCR_MC_STATUS_WRITE | HWCR_TSC_FREQ_SEL));
}

/* APM2 15.30.1: once SVM is disabled and locked, both bits stay. */
static bool check_vm_cr(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	u64 old = vcpu->msrs.vm_cr, kept = old & BIT(4) ? BIT(3) | BIT(4) : 0;

	(void)index, (void)host;
	*value = (old & kept) | (*value & ~kept);
	return true;
}

static bool write_xss(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	(void)index, (void)host;
	vcpu->cpu->xss = value;
	cpuid_refresh(vcpu);
	return true;
}

static bool write_wall_clock(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	(void)index, (void)host;
	vcpu_clock_write_wall_clock(vcpu, value);
	return true;
}

static bool read_wall_clock(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index, (void)host;
	*value = READ_ONCE(vcpu->vm->clock.wall_clock);
	return true;
}

static bool write_system_time(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	vcpu_clock_write_system_time(vcpu, value, index == MSR_KVM_SYSTEM_TIME, host);
	return true;
}

static bool write_steal_time(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	(void)index, (void)host;
	return vcpu_clock_write_steal_time(vcpu, value);
}

static bool check_pv_eoi(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)vcpu, (void)index, (void)host;
	return !(*value & 2); /* the flag word is aligned to 4 */
}

/*
 * Asynchronous page faults may be asked for and never come: guest memory is the program's, and the
 * host's kernel pages it in without our knowing.
 */
static bool check_async_pf(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	(void)index, (void)host;
	return vcpu->has_lapic || !*value;
}

/* What the guest's own mitigations would act on does not exist here: its code is translated. */
#define ARCH_CAPABILITIES_VALUE                                                           \
	(BIT(0) /* RDCL_NO */ | BIT(1) /* IBRS_ALL */ | BIT(3) /* SKIP_L1DFL_VMENTRY */ | \
	 BIT(4) /* SSB_NO */ | BIT(5) /* MDS_NO */ | BIT(6) /* PSCHANGE_MC_NO */ |        \
	 BIT(8) /* TAA_NO */ | BIT(13) /* SBDR_SSDP_NO */ | BIT(14) /* FBSDP_NO */ |      \
	 BIT(15) /* PSDP_NO */ | BIT(24) /* PBRSB_NO */ | BIT(26) /* GDS_NO */ |          \
	 BIT(27) /* RFDS_NO */ | BIT(62) /* ITS_NO */)

#define GATE(g)	       .gate = GATE_##g
#define PV(feature)    .pv = KVM_FEATURE_##feature + 1
#define OWN(field)     .home = HOME_OWN, .offset = offsetof(struct vcpu_msrs, field)
#define CPU(field)     .home = HOME_CPU, .offset = offsetof(struct cpu, field)
#define CLOCK(field)   .home = HOME_CLOCK, .offset = offsetof(struct vcpu_clock, field)
#define VALUE(v)       .value = v
#define AMD_VALUE(v)   .amd_value = v
#define INTEL_VALUE(v) .intel_value = v
#define RESERVED(m)    .reserved = m
#define CHECK(f)       .check = check_##f
#define READ(f)	       .read = read_##f
#define WRITE(f)       .write = write_##f
#define RW(f)	       READ(f), WRITE(f)
#define HIDDEN	       .read = msr_read_hidden, .write = msr_write_hidden

#define MSRS(first_, last_, name_, flags_, ...) \
	{ .first = first_, .last = last_, .name = #name_, .flags = flags_, ##__VA_ARGS__ },
#define MSR(index, name_, flags_, ...) MSRS(index, index, name_, flags_, ##__VA_ARGS__)

const struct msr_row msr_rows[] = {
#include "vm/msr/msr.def"
};

const u32 msr_nrows = ARRAY_SIZE(msr_rows);

/* Feature MSRs begin with what the model has; without the quirk it is the program that gives it. */
static void reset_features(struct vcpu *vcpu)
{
	bool amd = vcpu->vm->model->is_amd;
	bool stuff = vm_has_quirk(vcpu->vm, KVM_X86_QUIRK_STUFF_FEATURE_MSRS);

	for (u32 i = 0; i < msr_nrows; i++)
		if ((msr_rows[i].flags & FEATURE) && msr_rows[i].home)
			*msr_home(vcpu, &msr_rows[i], msr_rows[i].first) =
				stuff ? msr_value(&msr_rows[i], amd) : 0;
	vcpu->msrs.platform_info = stuff ? PLATFORM_CPUID_FAULT : 0;
}

/* The invariant TSC of AMD runs at the P0 frequency; programs leave HWCR at KVM's 0. */
void msr_fill_newer(struct vcpu *vcpu)
{
	if (vcpu->vm->model->is_amd)
		vcpu->msrs.hwcr |= HWCR_TSC_FREQ_SEL;
}

/* INIT leaves most of them (SDM 3A table 9-1). */
void msr_reset(struct vcpu *vcpu, bool init_event)
{
	struct vcpu_msrs *msrs = &vcpu->msrs;

	msrs->smi_count = 0;
	msrs->spec_ctrl = 0;
	msrs->virt_spec_ctrl = 0;
	msrs->pv_eoi = 0;
	msrs->async_pf = 0;
	msrs->async_pf_int = 0;
	vcpu->clock.steal_msr = 0;
	vcpu->clock.system_time = 0;
	if (init_event)
		return;
	reset_features(vcpu);
	msrs->misc_features_enables = 0;
	msrs->misc_enable = MISC_ENABLE_PEBS_UNAVAIL | MISC_ENABLE_BTS_UNAVAIL;
	msrs->poll_control = 1;
	msrs->feat_ctl = 0;
	if (!msrs->mcg_cap)
		msrs->mcg_cap = MSR_MCE_BANKS;
}
