// SPDX-License-Identifier: MIT
/*
 * The lists of KVM_GET_SUPPORTED_CPUID and KVM_GET_EMULATED_CPUID: which leaves and subleaves of a
 * model they have (KVM: arch/x86/kvm/cpuid.c). model.c has the values. Any thread.
 */
#include "vm/cpuid/cpuid.h"

#include <asm/kvm_para.h>
#include <cpuid.h>

#include "cpu/xstate.h"
#include "vm/cpuid/priv.h"
#include "x86/features.h"

struct list {
	struct kvm_cpuid_entry2 *out;
	u32 max, n;
};

static bool leaf_is_indexed(u32 leaf)
{
	static const u32 indexed[] = { 0x4,  0x7,  0xb,	 0xd,  0xf,  0x10, 0x12,      0x14,
				       0x17, 0x18, 0x1d, 0x1e, 0x1f, 0x24, 0x8000001d };

	for (u32 i = 0; i < ARRAY_SIZE(indexed); i++)
		if (indexed[i] == leaf)
			return true;
	return false;
}

static void list_add(struct list *list, u32 leaf, u32 subleaf, const u32 regs[4])
{
	if (list->n < list->max)
		list->out[list->n] = (struct kvm_cpuid_entry2){
			.function = leaf,
			.index = subleaf,
			.flags = leaf_is_indexed(leaf) ? KVM_CPUID_FLAG_SIGNIFCANT_INDEX : 0,
			.eax = regs[CPUID_EAX],
			.ebx = regs[CPUID_EBX],
			.ecx = regs[CPUID_ECX],
			.edx = regs[CPUID_EDX],
		};
	list->n++;
}

/* Is there a subleaf after this one? Cache lists end with their first empty entry, which is listed
 * too. */
static bool more_subleaves(u32 leaf, u32 subleaf, const u32 regs[4])
{
	if (leaf == 0x4 || leaf == 0x8000001d)
		return regs[CPUID_EAX] & 0x1f;
	if (leaf == 0x7)
		return subleaf < LEAF7_SUBLEAVES && (subleaf || regs[CPUID_EAX]);
	if (leaf == 0xd)
		return subleaf < NXSTATE - 1;
	return false;
}

/* KVM: state components that do not exist are not listed. */
static bool subleaf_listed(u32 leaf, u32 subleaf, const u32 regs[4])
{
	return leaf != 0xd || subleaf < XSTATE_FIRST || regs[CPUID_EAX];
}

static void list_class(struct list *list, const struct model *model, u32 base)
{
	u32 regs[4], limit;

	cpuid_model_leaf(model, false, base, 0, regs);
	limit = regs[CPUID_EAX];
	for (u32 leaf = base; leaf <= limit; leaf++) {
		u32 subleaf = 0;

		do {
			cpuid_model_leaf(model, false, leaf, subleaf, regs);
			if (subleaf_listed(leaf, subleaf, regs))
				list_add(list, leaf, subleaf, regs);
		} while (more_subleaves(leaf, subleaf++, regs));
	}
}

u32 cpuid_supported(const struct model *model, struct kvm_cpuid_entry2 *out, u32 max)
{
	struct list list = { .out = out, .max = max };

	list_class(&list, model, 0);
	list_class(&list, model, 0x80000000);
	list_class(&list, model, KVM_CPUID_SIGNATURE);
	return list.n;
}

/* KVM: MOVBE and RDPID are what its emulator knows; here they are as good as any other
 * instruction. */
u32 cpuid_emulated(const struct model *model, struct kvm_cpuid_entry2 *out, u32 max)
{
	struct list list = { .out = out, .max = max };

	(void)model;
	list_add(&list, 0x0, 0, (const u32[4]){ [CPUID_EAX] = 7 });
	list_add(&list, 0x1, 0, (const u32[4]){ [CPUID_ECX] = bit_MOVBE });
	list_add(&list, 0x7, 0, (const u32[4]){ [CPUID_ECX] = bit_RDPID });
	return list.n;
}
