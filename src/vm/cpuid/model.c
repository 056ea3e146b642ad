// SPDX-License-Identifier: MIT
/*
 * CPUID of the models (SDM 2A CPUID; APM3 appendix E): what a row of models.def offers on this
 * host, as KVM_GET_SUPPORTED_CPUID lists it, and what a processor of that kind would answer to the
 * program itself; and which model a process has.
 *
 * Everything is computed from tables on each call; only the host's own feature words are kept, read
 * once. Any thread, and signal handlers too.
 */
#include "vm/cpuid/cpuid.h"

#include <asm/kvm_para.h>
#include <cpuid.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/xstate.h"
#include "pmu/pmu.h"
#include "vm/cpuid/priv.h"
#include "x86/features.h"
#include "x86/regs.h"

enum source { HOST, BASE, SOFT, NATIVE };

static const struct cpuid_bit {
	u32 leaf, subleaf;
	enum cpuid_reg reg;
	u32 mask;
	enum model_set models;
	enum source source;
	const char *name;
} bits[] = {
#define CPUID_BIT(name, leaf, subleaf, reg, bit, models, source) \
	{ leaf, subleaf, CPUID_##reg, 1u << bit, models, source, #name },
#include "x86/cpuid_bits.def"
#undef CPUID_BIT
};

static const u32 vendor_intel[3] = { 0x756e6547, 0x6c65746e, 0x49656e69 }; /* EBX ECX EDX */
static const u32 vendor_amd[3] = { 0x68747541, 0x444d4163, 0x69746e65 };

/* What vm/pv.c and vm/time/pvclock.c do for a guest. */
#define PV_FEATURES                                                                               \
	(1u << KVM_FEATURE_CLOCKSOURCE | 1u << KVM_FEATURE_NOP_IO_DELAY |                         \
	 1u << KVM_FEATURE_CLOCKSOURCE2 | 1u << KVM_FEATURE_STEAL_TIME |                          \
	 1u << KVM_FEATURE_PV_UNHALT | 1u << KVM_FEATURE_PV_SEND_IPI |                            \
	 1u << KVM_FEATURE_ASYNC_PF | 1u << KVM_FEATURE_PV_EOI | 1u << KVM_FEATURE_POLL_CONTROL | \
	 1u << KVM_FEATURE_PV_SCHED_YIELD | 1u << KVM_FEATURE_CLOCKSOURCE_STABLE_BIT)

/* The host's feature words. Written by the first thread that asks, with the same values by all that
 * race. */

static struct host_leaf {
	u32 leaf, subleaf, regs[4];
} host_leaves[] = {
	{ .leaf = 0x1 },
	{ .leaf = 0x7 },
	{ .leaf = 0x7, .subleaf = 1 },
	{ .leaf = 0xd, .subleaf = 1 },
	{ .leaf = 0x80000001 },
	{ .leaf = 0x80000007 },
	{ .leaf = 0x80000008 },
};
static bool host_known;
static bool baseline; /* VPMU_BASELINE: of the host's features, those of BASE */

static void host_cpuid(u32 leaf, u32 subleaf, u32 regs[4])
{
	regs[0] = regs[1] = regs[2] = regs[3] = 0;
	if (leaf <= (u32)__get_cpuid_max(leaf & 0x80000000, NULL))
		__cpuid_count(leaf, subleaf, regs[0], regs[1], regs[2], regs[3]);
}

/* The state components that the host's operating system saves. */
static u64 host_xcr0(const u32 leaf1[4])
{
	u32 low, high;

	if (!(leaf1[CPUID_ECX] & bit_OSXSAVE))
		return 0;
	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low | (u64)high << 32;
}

/* AVX-512 as Skylake has it, and the feature by which the engine saves its state (cpu/fpu.c). A
 * host with less is taken for one without. */
#define AVX512_LEAST (bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL)
#define AVX512_EBX   (AVX512_LEAST | bit_AVX512IFMA)
#define AVX512_ECX \
	(bit_AVX512VBMI | bit_AVX512VBMI2 | bit_AVX512VNNI | bit_AVX512BITALG | bit_AVX512VPOPCNTDQ)

static bool avx512_usable(u64 xcr0, const u32 leaf7[4], const u32 leafd_1[4])
{
	return (~xcr0 & (XCR0_AVX | XCR0_AVX512)) == 0 && (~leaf7[CPUID_EBX] & AVX512_LEAST) == 0 &&
	       (leafd_1[CPUID_EAX] & bit_XSAVEC);
}

/* To what the operating system lets programs use. The numbers name leaf and subleaf. */
static void host_restrict(u32 leaf1[4], u32 leaf7[4], u32 leaf7_1[4], const u32 leafd_1[4])
{
	u64 xcr0 = host_xcr0(leaf1);

	if (~xcr0 & (XCR0_SSE | XCR0_AVX)) {
		leaf1[CPUID_ECX] &= ~(bit_XSAVE | bit_AVX | bit_F16C | bit_FMA);
		leaf7[CPUID_EBX] &= ~bit_AVX2;
		leaf7[CPUID_ECX] &= ~(bit_VAES | bit_VPCLMULQDQ);
		leaf7_1[CPUID_EAX] &= ~bit_AVXVNNI;
	}
	if (!avx512_usable(xcr0, leaf7, leafd_1)) {
		leaf7[CPUID_EBX] &= ~AVX512_EBX;
		leaf7[CPUID_ECX] &= ~AVX512_ECX;
	}
}

static void host_learn(void)
{
	struct host_leaf known[ARRAY_SIZE(host_leaves)];

	if (__atomic_load_n(&host_known, __ATOMIC_ACQUIRE))
		return;
	memcpy(known, host_leaves, sizeof(known));
	for (u32 i = 0; i < ARRAY_SIZE(known); i++)
		host_cpuid(known[i].leaf, known[i].subleaf, known[i].regs);
	host_restrict(known[0].regs, known[1].regs, known[2].regs, known[3].regs);
	memcpy(host_leaves, known, sizeof(known));
	baseline = getenv("VPMU_BASELINE");
	__atomic_store_n(&host_known, true, __ATOMIC_RELEASE);
}

static bool host_has(const struct cpuid_bit *bit)
{
	for (u32 i = 0; i < ARRAY_SIZE(host_leaves); i++)
		if (host_leaves[i].leaf == bit->leaf && host_leaves[i].subleaf == bit->subleaf)
			return host_leaves[i].regs[bit->reg] & bit->mask;
	return false;
}

static bool can(const struct cpuid_bit *bit)
{
	if (bit->source == HOST && baseline)
		return false;
	return (bit->source != HOST && bit->source != BASE) || host_has(bit);
}

const char *cpuid_baseline_lacks(void)
{
	host_learn();
	for (u32 i = 0; i < ARRAY_SIZE(bits); i++)
		if (bits[i].source == BASE && !host_has(&bits[i]))
			return bits[i].name;
	return NULL;
}

/* The bits of one leaf that a model offers; `native`: also those it has and KVM does not offer. */
static void leaf_bits(const struct model *model, bool native, u32 leaf, u32 subleaf, u32 regs[4])
{
	for (u32 i = 0; i < ARRAY_SIZE(bits); i++) {
		const struct cpuid_bit *bit = &bits[i];

		if (bit->leaf != leaf || bit->subleaf != subleaf || !(bit->models & model->set))
			continue;
		if (can(bit) && (native || bit->source != NATIVE))
			regs[bit->reg] |= bit->mask;
	}
}

static const struct cpuid_bit *find_bit(u32 leaf, u32 subleaf, u32 reg, u32 bit)
{
	for (u32 i = 0; i < ARRAY_SIZE(bits); i++)
		if (bits[i].leaf == leaf && bits[i].subleaf == subleaf && bits[i].reg == reg &&
		    bits[i].mask == 1u << bit)
			return &bits[i];
	return NULL;
}

bool cpuid_possible(u32 leaf, u32 subleaf, u32 reg, u32 bit)
{
	const struct cpuid_bit *row = find_bit(leaf, subleaf, reg, bit);

	host_learn();
	return row && can(row);
}

bool cpuid_offered(const struct model *model, u32 leaf, u32 subleaf, u32 reg, u32 bit)
{
	const struct cpuid_bit *row = find_bit(leaf, subleaf, reg, bit);

	host_learn();
	return row && (row->models & model->set) && row->source != NATIVE && can(row);
}

/* State components that exist with a feature. */
static const struct {
	u32 leaf;
	enum cpuid_reg reg;
	u32 bit;
	u64 components;
} state_features[] = {
	{ 0x1, CPUID_ECX, 28, XCR0_AVX },
	{ 0x7, CPUID_EBX, 16, XCR0_AVX512 },
	{ 0x7, CPUID_ECX, 3, XCR0_PKRU },
};

u64 cpuid_xcr0_possible(void)
{
	u64 xcr0 = XCR0_X87 | XCR0_SSE;

	for (u32 i = 0; i < ARRAY_SIZE(state_features); i++)
		if (cpuid_possible(state_features[i].leaf, 0, state_features[i].reg,
				   state_features[i].bit))
			xcr0 |= state_features[i].components;
	return xcr0;
}

u64 cpuid_xcr0_offered(const struct model *model)
{
	u64 xcr0 = XCR0_X87 | XCR0_SSE;

	for (u32 i = 0; i < ARRAY_SIZE(state_features); i++)
		if (cpuid_offered(model, state_features[i].leaf, 0, state_features[i].reg,
				  state_features[i].bit))
			xcr0 |= state_features[i].components;
	return xcr0;
}

/* The leaves that are more than bits. Each fills what it knows into zeroed registers. */

static void fill_vendor(const struct model *model, u32 regs[4])
{
	const u32 *vendor = model->is_amd ? vendor_amd : vendor_intel;

	regs[CPUID_EBX] = vendor[0];
	regs[CPUID_ECX] = vendor[1];
	regs[CPUID_EDX] = vendor[2];
}

/* Leaf 4 of Intel and 0x8000001D of AMD have one layout. */
static void fill_caches(const struct model *model, u32 subleaf, u32 regs[4])
{
	static const u8 types[NCACHES] = { 1, 2, 3, 3 }, levels[NCACHES] = { 1, 1, 2, 3 };
	const struct model_cache *cache;

	if (subleaf >= NCACHES)
		return;
	cache = &model->cache[subleaf];
	regs[CPUID_EAX] = types[subleaf] | levels[subleaf] << 5 | 1 << 8; /* self-initializing */
	regs[CPUID_EBX] = (cache->ways - 1) << 22 | (64 - 1);
	regs[CPUID_ECX] = cache->kbytes * 1024 / 64 / cache->ways - 1;
	if (subleaf == CACHE_L2 && model->is_amd)
		regs[CPUID_EDX] = BIT(1); /* includes the L1s */
}

static void fill_d(const struct model *model, u32 subleaf, u32 regs[4])
{
	u64 xcr0 = cpuid_xcr0_offered(model);
	struct xstate_layout layout;

	xstate_standard(&layout, model->is_amd, xcr0);
	if (subleaf == 0) {
		regs[CPUID_EAX] = xcr0;
		regs[CPUID_EBX] = regs[CPUID_ECX] = xstate_standard_size(&layout, xcr0);
	} else if (subleaf == 1 && (regs[CPUID_EAX] & (bit_XSAVEC | bit_XSAVES))) {
		regs[CPUID_EBX] = xstate_compacted_size(xcr0);
	} else if (subleaf < NXSTATE && (xcr0 >> subleaf & 1)) {
		regs[CPUID_EAX] = xstate_bytes(subleaf);
		regs[CPUID_EBX] = layout.at[subleaf];
	}
}

static void fill_80000001(const struct model *model, u32 regs[4])
{
	u32 basic[4] = { 0 };

	leaf_bits(model, false, 0x1, 0, basic);
	regs[CPUID_EAX] = model_signature(model->family, model->model, model->stepping);
	regs[CPUID_EBX] = 4u << 28;			  /* package: SP3 */
	regs[CPUID_EDX] |= basic[CPUID_EDX] & 0x0183f3ff; /* repeated from leaf 1: APM3 E.4.2 */
}

static void fill_brand(const struct model *model, u32 part, u32 regs[4])
{
	char brand[48] = { 0 };

	memcpy(brand, model->brand, strnlen(model->brand, sizeof(brand) - 1));
	memcpy(regs, brand + 16 * part, 16);
}

static u32 l1_word(const struct model_cache *cache)
{
	return cache->kbytes << 24 | (u32)cache->ways << 16 | 1 << 8 | 64;
}

static void fill_80000005(const struct model *model, u32 regs[4])
{
	regs[CPUID_EAX] = regs[CPUID_EBX] = 0xff40ff40; /* L1 TLBs: 64 entries, fully associative */
	regs[CPUID_ECX] = l1_word(&model->cache[CACHE_L1D]);
	regs[CPUID_EDX] = l1_word(&model->cache[CACHE_L1I]);
}

/* The four-bit code of an associativity (APM3 E.4.5); 9: leaf 0x8000001D knows. */
static u32 ways_code(u8 ways)
{
	return ways == 8 ? 6 : ways == 16 ? 8 : 9;
}

static void fill_80000006(const struct model *model, u32 regs[4])
{
	const struct model_cache *l2 = &model->cache[CACHE_L2], *l3 = &model->cache[CACHE_L3];

	regs[CPUID_ECX] = l2->kbytes << 16 | ways_code(l2->ways) << 12 | 64;
	if (!model->is_amd)
		return;
	regs[CPUID_ECX] |= 1 << 8;
	regs[CPUID_EDX] = l3->kbytes / 512 << 18 | ways_code(l3->ways) << 12 | 1 << 8 | 64;
}

static void fill_80000008(const struct model *model, u32 regs[4])
{
	u32 leaf7[4] = { 0 }, virt_bits = 48;

	leaf_bits(model, false, 0x7, 0, leaf7);
	if (leaf7[CPUID_ECX] & BIT(16)) /* LA57 */
		virt_bits = 57;
	regs[CPUID_EAX] = model->phys_bits | virt_bits << 8;
	regs[CPUID_EAX] |= (u32)model->phys_bits << 16; /* KVM: all of it can be addressed */
}

static void fill_basic(const struct model *model, u32 leaf, u32 subleaf, u32 regs[4])
{
	switch (leaf) {
	case 0x0:
		fill_vendor(model, regs);
		regs[CPUID_EAX] = model->max_basic_leaf;
		break;
	case 0x1:
		regs[CPUID_EAX] = model_signature(model->family, model->model, model->stepping);
		regs[CPUID_EBX] = 1 << 16 | 64 / 8 << 8; /* one processor; CLFLUSH of 64 bytes */
		break;
	case 0x2:
		if (model->is_amd)
			break;
		regs[CPUID_EAX] = 0x00feff01; /* see leaf 4 for caches, leaf 0x18 for TLBs */
		regs[CPUID_EBX] = 0xf0;	      /* 64-byte prefetch */
		break;
	case 0x4:
		if (!model->is_amd)
			fill_caches(model, subleaf, regs);
		break;
	case 0x7:
		if (!model->is_amd && !subleaf)
			regs[CPUID_EAX] = LEAF7_SUBLEAVES;
		break;
	case 0xd:
		fill_d(model, subleaf, regs);
		break;
	case KVM_CPUID_SIGNATURE:
		regs[CPUID_EAX] = KVM_CPUID_FEATURES;
		memcpy(&regs[CPUID_EBX], "KVMKVMKVM\0\0", 12);
		break;
	case KVM_CPUID_FEATURES:
		regs[CPUID_EAX] = PV_FEATURES;
		break;
	}
}

static void fill_extended(const struct model *model, u32 leaf, u32 regs[4])
{
	switch (leaf) {
	case 0x80000000:
		regs[CPUID_EAX] = model->max_extended_leaf;
		break;
	case 0x80000002:
	case 0x80000003:
	case 0x80000004:
		fill_brand(model, leaf - 0x80000002, regs);
		break;
	case 0x80000006:
		fill_80000006(model, regs);
		break;
	case 0x80000008:
		fill_80000008(model, regs);
		break;
	}
}

/* Extended leaves that only AMD has, or fills with more. */
static void fill_amd(const struct model *model, u32 leaf, u32 subleaf, u32 regs[4])
{
	switch (leaf) {
	case 0x80000000:
		fill_vendor(model, regs);
		break;
	case 0x80000001:
		fill_80000001(model, regs);
		break;
	case 0x80000005:
		fill_80000005(model, regs);
		break;
	case 0x8000001a:
		regs[CPUID_EAX] = BIT(1) | BIT(2); /* fast MOVU, 256-bit datapath */
		break;
	case 0x8000001d:
		fill_caches(model, subleaf, regs);
		break;
	}
}

/* Without KVM's limits: SDM 3B 20.2; of AMD's leaf there is nothing to limit. */
static void native_perfmon(const struct pmu_model *pmu, u32 regs[4])
{
	regs[CPUID_EAX] = pmu->version | pmu->general << 8 | pmu->general_width << 16 |
			  (u32)pmu->arch_events << 24;
	regs[CPUID_EDX] = pmu->fixed | pmu->fixed_width << 5;
	if (pmu->version >= 5) {
		regs[CPUID_ECX] = MASK(pmu->fixed - 1, 0);
		regs[CPUID_EDX] |= BIT(15); /* AnyThread is deprecated */
	}
}

static void fill_pmu(const struct model *model, bool native, u32 leaf, u32 regs[4])
{
	const struct pmu_model *pmu = pmu_model_of(model->set);

	if (leaf != 0xa && leaf != 0x1c && leaf != 0x8000001b && leaf != 0x80000022)
		return;
	pmu_cpuid(pmu, leaf, regs);
	if (native && leaf == 0xa && !model->is_amd)
		native_perfmon(pmu, regs);
}

void cpuid_model_leaf(const struct model *model, bool native, u32 leaf, u32 subleaf, u32 regs[4])
{
	regs[0] = regs[1] = regs[2] = regs[3] = 0;
	host_learn();
	leaf_bits(model, native, leaf, subleaf, regs);
	fill_basic(model, leaf, subleaf, regs);
	fill_extended(model, leaf, regs);
	fill_pmu(model, native, leaf, regs);
	if (model->is_amd)
		fill_amd(model, leaf, subleaf, regs);
}

/* The program's own CPUID. */

static u32 native_leaf_limit(const struct model *model, u32 leaf)
{
	return leaf & 0x80000000 ? model->max_extended_leaf : model->max_basic_leaf;
}

void cpuid_native(const struct model *model, u32 leaf, u32 subleaf, u32 regs[4])
{
	u32 host[4];

	if (leaf > native_leaf_limit(model, leaf)) {
		regs[0] = regs[1] = regs[2] = regs[3] = 0;
		if (model->is_amd)
			return;
		leaf = model->max_basic_leaf;
	}
	cpuid_model_leaf(model, true, leaf, subleaf, regs);
	host_cpuid(leaf, subleaf, host);
	switch (leaf) {
	case 0x1: /* the program runs on the host's operating system, and on bare metal as far as it
		     knows */
		regs[CPUID_ECX] &= ~(1u << 31);
		regs[CPUID_ECX] |= host[CPUID_ECX] & bit_OSXSAVE;
		regs[CPUID_EBX] = (regs[CPUID_EBX] & 0xffff) | (host[CPUID_EBX] & 0xffff0000);
		break;
	case 0x7:
		regs[CPUID_ECX] |= regs[CPUID_ECX] & bit_PKU ? host[CPUID_ECX] & bit_OSPKE : 0;
		break;
	case 0x5: /* MONITOR: 64-byte lines, C-states as hints only */
		regs[CPUID_EAX] = regs[CPUID_EBX] = 64;
		regs[CPUID_ECX] = BIT(0) | BIT(1);
		break;
	case 0xb: /* topology and state sizes are the host's: the program's own XSAVE writes that
		     much */
	case 0xd:
		memcpy(regs, host, sizeof(host));
		break;
	}
}

/* Choosing. */

static bool host_is_amd(void)
{
	u32 regs[4];

	host_cpuid(0, 0, regs);
	return !memcmp(&regs[CPUID_EBX], vendor_amd, 4) ||
	       regs[CPUID_EBX] == 0x6f677948; /* Hygon */
}

static const struct model *host_model(void)
{
	u32 regs[4], family, model;

	if (!host_is_amd())
		return model_find("icelake");
	host_cpuid(1, 0, regs);
	family = model_family_of(regs[CPUID_EAX]);
	model = model_model_of(regs[CPUID_EAX]) & 0xf0;
	if (family > 0x19 ||
	    (family == 0x19 && (model == 0x10 || model == 0x60 || model == 0x70 || model == 0xa0)))
		return model_find("genoa"); /* Zen 4 and later */
	return model_find("milan");
}

const struct model *cpuid_model(const char *wanted)
{
	return wanted && *wanted ? model_find(wanted) : host_model();
}

/* Only the program's own CPUID shows these, and no instruction of it runs on the host. */
static bool lacks_native(const struct model *model, const u32 leaf1[4])
{
	for (u32 i = 0; i < ARRAY_SIZE(bits); i++) {
		const struct cpuid_bit *bit = &bits[i];

		if (bit->source == NATIVE && bit->leaf == 1 && (bit->models & model->set) &&
		    !(leaf1[bit->reg] & bit->mask))
			return true;
	}
	return false;
}

bool cpuid_differs(const struct model *model, bool is_amd, const u32 leaf1[4])
{
	return model->is_amd != is_amd || model->family != model_family_of(leaf1[CPUID_EAX]) ||
	       model->model != model_model_of(leaf1[CPUID_EAX]) || lacks_native(model, leaf1);
}

bool cpuid_is_foreign(const struct model *model)
{
	u32 regs[4];

	host_learn();
	host_cpuid(1, 0, regs);
	return baseline || cpuid_differs(model, host_is_amd(), regs);
}
