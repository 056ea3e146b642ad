// SPDX-License-Identifier: MIT
/*
 * x87 and vector state and XCR0 as the API shows them: in the standard XSAVE format (SDM 1 13.4),
 * with components where the guest's CPUID has them. struct cpu keeps them in the compacted form,
 * which has the same legacy region and header. vCPU lock held.
 */
#include <errno.h>
#include <string.h>

#include "cpu/control.h"
#include "cpu/fpu.h"
#include "vm/cpuid/cpuid.h"
#include "vm/refused_state.h"
#include "vm/vm.h"

/* The legacy region (SDM 1 table 10-2) and the header of the XSAVE area (SDM 1 13.4.2). */
struct fxsave {
	u16 fcw, fsw;
	u8 ftw, reserved;
	u16 fop;
	u64 fip, fdp;
	u32 mxcsr, mxcsr_mask;
	u8 st[8][16];
	u8 xmm[16][16];
	u8 unused[96];
};

struct xsave_area {
	struct fxsave legacy;
	u64 xstate_bv, xcomp_bv, reserved[6];
	u8 components[];
};

#define XSTATE_LEGACY (XCR0_X87 | XCR0_SSE)

static struct xsave_area *area_of(struct vcpu *vcpu)
{
	return (struct xsave_area *)vcpu->cpu->xsave;
}

/* Components that are in their initial state need not be in memory: put them there. */
static void make_explicit(struct vcpu *vcpu)
{
	struct xsave_area *area = area_of(vcpu);

	if (!(area->xstate_bv & XCR0_X87)) {
		memset(&area->legacy, 0, offsetof(struct fxsave, mxcsr));
		memset(area->legacy.st, 0, sizeof(area->legacy.st));
		area->legacy.fcw = FCW_INIT;
	}
	if (!(area->xstate_bv & XCR0_SSE))
		memset(area->legacy.xmm, 0, sizeof(area->legacy.xmm));
	if (!(area->xstate_bv & XCR0_AVX))
		memset(fpu_component(vcpu->cpu, 2), 0, xstate_bytes(2));
	fpu_fill_initial(vcpu->cpu, XCR0_AVX512);
}

void vcpu_get_fpu(struct vcpu *vcpu, struct kvm_fpu *fpu)
{
	struct fxsave *fx = &area_of(vcpu)->legacy;

	make_explicit(vcpu);
	memset(fpu, 0, sizeof(*fpu));
	memcpy(fpu->fpr, fx->st, sizeof(fpu->fpr));
	fpu->fcw = fx->fcw;
	fpu->fsw = fx->fsw;
	fpu->ftwx = fx->ftw;
	fpu->last_opcode = fx->fop;
	fpu->last_ip = fx->fip;
	fpu->last_dp = fx->fdp;
	memcpy(fpu->xmm, fx->xmm, sizeof(fpu->xmm));
}

/* KVM: neither direction transfers MXCSR. */
void vcpu_set_fpu(struct vcpu *vcpu, const struct kvm_fpu *fpu)
{
	struct xsave_area *area = area_of(vcpu);
	struct fxsave *fx = &area->legacy;

	memcpy(fx->st, fpu->fpr, sizeof(fpu->fpr));
	fx->fcw = fpu->fcw;
	fx->fsw = fpu->fsw;
	fx->ftw = fpu->ftwx;
	fx->fop = fpu->last_opcode;
	fx->fip = fpu->last_ip;
	fx->fdp = fpu->last_dp;
	memcpy(fx->xmm, fpu->xmm, sizeof(fpu->xmm));
	area->xstate_bv |= XSTATE_LEGACY;
}

static u8 *component_in(struct vcpu *vcpu, const struct kvm_xsave *xsave, u32 component)
{
	return (u8 *)xsave->region + vcpu->cpu->xstate.at[component];
}

void vcpu_get_xsave(struct vcpu *vcpu, struct kvm_xsave *xsave)
{
	struct xsave_area *area = area_of(vcpu), *out = (struct xsave_area *)xsave->region;
	u64 shown = vcpu->cpu->xcr0_allowed | XSTATE_LEGACY;

	make_explicit(vcpu);
	memset(xsave->region, 0, sizeof(xsave->region));
	memcpy(&out->legacy, &area->legacy, sizeof(out->legacy));
	memset(out->legacy.unused, 0, sizeof(out->legacy.unused));
	out->xstate_bv = (area->xstate_bv | (vcpu->cpu->pkru ? XCR0_PKRU : 0)) & shown;
	for (u32 i = XSTATE_FIRST; i < NXSTATE; i++)
		if (shown & BIT(i))
			memcpy(component_in(vcpu, xsave, i), fpu_component(vcpu->cpu, i),
			       xstate_bytes(i));
}

/* What this host can hold, and where: a layout may have no place for a component. */
static u64 components_known(const struct vcpu *vcpu)
{
	u64 known = cpuid_xcr0_possible();

	for (u32 i = XSTATE_FIRST; i < NXSTATE; i++)
		if (!vcpu->cpu->xstate.at[i])
			known &= ~BIT(i);
	return known;
}

/* KVM: what copy_uabi_to_xstate() refuses. */
static bool xsave_valid(const struct vcpu *vcpu, const struct xsave_area *in)
{
	u32 mxcsr_mask = fpu_mxcsr_mask(vcpu->cpu);
	u64 reserved = in->xcomp_bv;

	for (u32 i = 0; i < ARRAY_SIZE(in->reserved); i++)
		reserved |= in->reserved[i];
	return !reserved && !(in->xstate_bv & ~(components_known(vcpu) | XSTATE_LEGACY)) &&
	       !(in->legacy.mxcsr & ~mxcsr_mask);
}

/* KVM: 0 if the area leaves it out. */
static u32 pkru_in(struct vcpu *vcpu, const struct kvm_xsave *xsave)
{
	const struct xsave_area *in = (const struct xsave_area *)xsave->region;
	u32 pkru = 0;

	if (in->xstate_bv & XCR0_PKRU)
		memcpy(&pkru, component_in(vcpu, xsave, 9), sizeof(pkru));
	return pkru;
}

int vcpu_set_xsave(struct vcpu *vcpu, const struct kvm_xsave *xsave)
{
	const struct xsave_area *in = (const struct xsave_area *)xsave->region;
	struct xsave_area *area = area_of(vcpu);
	u32 mxcsr_mask = area->legacy.mxcsr_mask;

	if (!xsave_valid(vcpu, in))
		return -EINVAL;
	memcpy(area, in, sizeof(*area));
	area->legacy.mxcsr_mask = mxcsr_mask;
	for (u32 i = XSTATE_FIRST; i < NXSTATE; i++)
		if (in->xstate_bv & ~XCR0_PKRU & BIT(i))
			memcpy(fpu_component(vcpu->cpu, i), component_in(vcpu, xsave, i),
			       xstate_bytes(i));
	cpu_write_pkru(vcpu->cpu, pkru_in(vcpu, xsave));
	make_explicit(vcpu);
	return 0;
}

void vcpu_get_xcrs(struct vcpu *vcpu, struct kvm_xcrs *xcrs)
{
	memset(xcrs, 0, sizeof(*xcrs));
	xcrs->nr_xcrs = 1;
	xcrs->xcrs[0].value = vcpu->cpu->xcr0;
}

int vcpu_set_xcrs(struct vcpu *vcpu, const struct kvm_xcrs *xcrs)
{
	if (xcrs->nr_xcrs > KVM_MAX_XCRS || xcrs->flags)
		return -EINVAL;
	for (u32 i = 0; i < xcrs->nr_xcrs; i++) {
		if (xcrs->xcrs[i].xcr != 0)
			continue;
		if (!cpu_xcr0_valid(vcpu->cpu, xcrs->xcrs[i].value))
			return vcpu_refuse(vcpu, "XCR0", xcrs->xcrs[i].value);
		vcpu->cpu->xcr0 = xcrs->xcrs[i].value;
		cpu_state_changed(vcpu->cpu);
		break;
	}
	return 0;
}
