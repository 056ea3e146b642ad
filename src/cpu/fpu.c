// SPDX-License-Identifier: MIT
/*
 * Moving x87, SSE, AVX and AVX-512 state between cpu->xsave and the host's registers (SDM 1 13;
 * APM2 11.5). While the guest's is live the host's control words wait in priv->host_fpu; the rest
 * of the host's vector state needs no saving, as no register of it survives a call. vCPU thread.
 *
 * Intel and AMD place the components of AVX-512 differently in the standard format, but not in the
 * compacted one, which holds the same components at the same offsets on every host. Compaction also
 * leaves out what is in its initial state: code without AVX-512 pays nothing for it. A host without
 * XSAVEC has the standard format, which is the same up to AVX, and no AVX-512.
 */
#include "cpu/fpu.h"

#include <cpuid.h>

#include "base/bytes.h"
#include "cpu/private.h"

#define MXCSR_MASK_DEFAULT 0xffbfu /* SDM 1 11.6.6: where the field is 0 */

static u32 *field32(struct cpu *cpu, enum xsave_offset at)
{
	return (u32 *)(cpu->xsave + at);
}

static u64 *field64(struct cpu *cpu, enum xsave_offset at)
{
	return (u64 *)(cpu->xsave + at);
}

static u64 host_xcr0(void)
{
	u32 eax, ebx, ecx, edx;

	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
		return 0;
	__asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
	return eax | (u64)edx << 32;
}

static bool host_compacts(void)
{
	u32 eax, ebx, ecx, edx;

	return __get_cpuid_count(0xd, 1, &eax, &ebx, &ecx, &edx) && (eax & bit_XSAVEC);
}

/* The operating system enables all of AVX-512 or nothing of it; anything else is not ours. */
static u64 host_features(bool compacts)
{
	u64 xcr0 = host_xcr0(), features = xcr0 & (XCR0_X87 | XCR0_SSE | XCR0_AVX);

	if (compacts && (features & XCR0_AVX) && (~xcr0 & XCR0_AVX512) == 0)
		features |= XCR0_AVX512;
	return features;
}

void fpu_probe(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u8 image[512] __attribute__((aligned(16)));

	bytes_fill(image, 0, sizeof(image));
	__asm__("fxsave64 %0" : "+m"(image));
	priv->host_fpu.compacts = host_xcr0() && host_compacts();
	priv->host_fpu.features = host_features(priv->host_fpu.compacts);
	priv->host_fpu.mxcsr_mask = *(u32 *)(image + XSAVE_MXCSR_MASK);
	if (!priv->host_fpu.mxcsr_mask)
		priv->host_fpu.mxcsr_mask = MXCSR_MASK_DEFAULT;
}

u32 fpu_mxcsr_mask(const struct cpu *cpu)
{
	return cpu_priv(cpu)->host_fpu.mxcsr_mask;
}

u32 fpu_component_at(u32 component)
{
	return xstate_compacted_at(XCR0_AVX | XCR0_AVX512, component);
}

u8 *fpu_component(struct cpu *cpu, u32 component)
{
	if (BIT(component) == XCR0_PKRU)
		return (u8 *)&cpu->pkru;
	return cpu->xsave + fpu_component_at(component);
}

void fpu_reset(struct cpu *cpu)
{
	bytes_fill(cpu->xsave, 0, XSAVE_END);
	*field32(cpu, XSAVE_FCW) = FCW_INIT; /* and FSW: 0. KVM: not FCW 0x40, as after power-up */
	*field32(cpu, XSAVE_MXCSR) = MXCSR_INIT;
	*field32(cpu, XSAVE_MXCSR_MASK) = cpu_priv(cpu)->host_fpu.mxcsr_mask;
	*field64(cpu, XSAVE_XSTATE_BV) = XCR0_X87 | XCR0_SSE;
}

void fpu_sanitise(struct cpu *cpu)
{
	const struct host_fpu *host = &cpu_priv(cpu)->host_fpu;

	*field32(cpu, XSAVE_MXCSR) &= host->mxcsr_mask;
	*field64(cpu, XSAVE_XSTATE_BV) &= host->features;
	bytes_fill(cpu->xsave + XSAVE_XCOMP_BV, 0, XSAVE_YMM0_HIGH - XSAVE_XCOMP_BV);
	if (host->compacts)
		*field64(cpu, XSAVE_XCOMP_BV) = XCOMP_COMPACT | host->features;
}

void fpu_reload(struct cpu *cpu)
{
	const struct host_fpu *host = &cpu_priv(cpu)->host_fpu;

	if (likely(host->features))
		__asm__ volatile("xrstor64 %0"
				 :
				 : "m"(cpu->xsave), "a"((u32)host->features), "d"(0)
				 : "memory");
	else
		__asm__ volatile("fxrstor64 %0" : : "m"(cpu->xsave) : "memory");
}

void fpu_load(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct host_fpu *host = &priv->host_fpu;

	if (priv->fpu_live)
		return;
	fpu_sanitise(cpu);
	__asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(host->mxcsr), "=m"(host->fcw));
	fpu_reload(cpu);
	priv->fpu_live = true;
}

#define X87_KEEPS_STORE 0x1f /* invalid, denormal, division, overflow, underflow; not precision */

bool fpu_x87_stored(void)
{
	u16 fsw, fcw;

	__asm__ volatile("fnstsw %0; fnstcw %1" : "=m"(fsw), "=m"(fcw));
	return !(fsw & ~fcw & X87_KEEPS_STORE);
}

static const struct component {
	u64 bit;
	u32 start, size;
} avx512[] = {
	{ XCR0_OPMASK, XSAVE_OPMASK, XSAVE_ZMM0_HIGH - XSAVE_OPMASK },
	{ XCR0_ZMM_HI256, XSAVE_ZMM0_HIGH, XSAVE_ZMM16 - XSAVE_ZMM0_HIGH },
	{ XCR0_HI16_ZMM, XSAVE_ZMM16, XSAVE_END - XSAVE_ZMM16 },
};

void fpu_fill_initial(struct cpu *cpu, u64 components)
{
	u64 missing = components & ~*field64(cpu, XSAVE_XSTATE_BV);

	for (u32 i = 0; i < ARRAY_SIZE(avx512); i++)
		if (missing & avx512[i].bit)
			bytes_fill(cpu->xsave + avx512[i].start, 0, avx512[i].size);
}

void fpu_make_present(struct cpu *cpu, u64 components)
{
	fpu_fill_initial(cpu, components);
	*field64(cpu, XSAVE_XSTATE_BV) |= components;
}

/* XSAVE leaves out components in their initial state; C code wants to find these in the image. */
static void fill_oldest(struct cpu *cpu)
{
	u64 oldest = cpu_priv(cpu)->host_fpu.features & ~XCR0_AVX512;
	u64 missing = oldest & ~*field64(cpu, XSAVE_XSTATE_BV);

	if (missing & XCR0_X87) {
		bytes_fill(cpu->xsave + XSAVE_FCW, 0, XSAVE_MXCSR - XSAVE_FCW);
		bytes_fill(cpu->xsave + XSAVE_ST0, 0, XSAVE_XMM0 - XSAVE_ST0);
		*field32(cpu, XSAVE_FCW) = FCW_INIT;
	}
	if (missing & XCR0_SSE)
		bytes_fill(cpu->xsave + XSAVE_XMM0, 0, XSAVE_LEGACY_END - XSAVE_XMM0);
	if (missing & XCR0_AVX)
		bytes_fill(cpu->xsave + XSAVE_YMM0_HIGH, 0, XSAVE_OPMASK - XSAVE_YMM0_HIGH);
	*field64(cpu, XSAVE_XSTATE_BV) |= oldest;
}

/* The last x87 instruction's and operand's addresses are the host's, of no use to the guest. */
static void clear_pointers(struct cpu *cpu)
{
	*field64(cpu, XSAVE_FIP) = 0;
	*field64(cpu, XSAVE_FDP) = 0;
}

/* The compacted form has MXCSR only if SSE is not in its initial state. */
static void store(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u32 features = priv->host_fpu.features;

	if (likely(priv->host_fpu.compacts)) {
		__asm__ volatile("stmxcsr %0" : "=m"(*field32(cpu, XSAVE_MXCSR)));
		__asm__ volatile("xsavec64 %0"
				 : "+m"(cpu->xsave)
				 : "a"(features), "d"(0)
				 : "memory");
	} else if (features) {
		__asm__ volatile("xsave64 %0"
				 : "+m"(cpu->xsave)
				 : "a"(features), "d"(0)
				 : "memory");
	} else {
		__asm__ volatile("fxsave64 %0" : "+m"(cpu->xsave) : : "memory");
	}
}

void fpu_save(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct host_fpu *host = &priv->host_fpu;

	if (!priv->fpu_live)
		return;
	store(cpu);
	if (host->features & XCR0_AVX)
		__asm__ volatile("vzeroupper");
	/* The ABI wants an empty x87 stack, and no exception may wait for the host's next FWAIT. */
	__asm__ volatile("fninit; fldcw %0; ldmxcsr %1" : : "m"(host->fcw), "m"(host->mxcsr));
	priv->fpu_live = false;
	if (host->features)
		fill_oldest(cpu);
	clear_pointers(cpu);
}
