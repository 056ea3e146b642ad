// SPDX-License-Identifier: MIT
/*
 * Completes the CPUID list of programs older than the model. QEMU 7.2 asks for the
 * model as it is (-cpu host), but leaves out leaves that it does not know, and the invariant TSC
 * unless told that the guest will not migrate; QEMU 10 knows one of these leaves in part. Where a
 * list names this VM's model, these are filled in; everything else in it is the program's choice
 * (docs/cpuid.md; VPMU_STRICT_CPUID=1 turns it off). vCPU's lock.
 */
#include <errno.h>
#include <stdlib.h>

#include "vm/cpuid/cpuid.h"
#include "vm/vm.h"

#define LEAF7_MAX_SUBLEAF 2
#define PERFCTR_CORE	  BIT(23) /* 0x80000001.ECX */
#define IBS		  BIT(10)
#define PERFMON_V2	  BIT(0)     /* 0x80000022.EAX */
#define CORE_COUNTERS	  MASK(3, 0) /* 0x80000022.EBX */

/*
 * QEMU hides 0x80000007 because another host's TSC may run at another rate. Ours keeps its rate
 * wherever the guest goes: it is scaled, if need be (KVM_CAP_TSC_CONTROL).
 */
static const struct {
	u32 leaf, subleaf;
} newer[] = {
	{ 0x7, 2 },	   /* BHI_CTRL */
	{ 0x80000007, 0 }, /* INVTSC */
	{ 0x8000001b, 0 }, /* IBS, whose bit QEMU knows */
	{ 0x80000021, 0 }, /* SRSO_NO, AUTOIBRS and others: QEMU 8.1 */
	{ 0x80000022, 0 }, /* PerfMonV2: QEMU 10; branch records: none */
};

struct list {
	struct kvm_cpuid_entry2 *entries;
	u32 n;
};

static struct kvm_cpuid_entry2 *find(const struct list *list, u32 leaf, u32 subleaf)
{
	for (u32 i = 0; i < list->n; i++)
		if (list->entries[i].function == leaf && list->entries[i].index == subleaf)
			return &list->entries[i];
	return NULL;
}

/* Does this list describe the model, and not another processor that the program has in mind? */
static bool names_model(const struct list *list, const struct list *own)
{
	const struct kvm_cpuid_entry2 *vendor = find(list, 0, 0), *signature = find(list, 1, 0);

	return vendor && signature && vendor->ebx == find(own, 0, 0)->ebx &&
	       signature->eax == find(own, 1, 0)->eax;
}

static bool is_empty(const struct kvm_cpuid_entry2 *e)
{
	return !e || !(e->eax | e->ebx | e->ecx | e->edx);
}

/*
 * QEMU 10 passes PerfMonV2 and its counters on and clears the rest of the leaf, which is about
 * branch records, even with -cpu host,migratable=off.
 */
static bool is_perfmon_alone(const struct kvm_cpuid_entry2 *e, const struct kvm_cpuid_entry2 *own)
{
	return e->function == 0x80000022 && own->eax != PERFMON_V2 && e->eax == PERFMON_V2 &&
	       e->ebx == (own->ebx & CORE_COUNTERS) && !(e->ecx | e->edx);
}

static bool is_complete(const struct kvm_cpuid_entry2 *e, const struct kvm_cpuid_entry2 *own)
{
	return !is_empty(e) && !is_perfmon_alone(e, own);
}

/* The guest has the counters that PerfMonV2 adds to. */
static bool wants_perfmon(const struct list *list, const struct vm *vm)
{
	const struct kvm_cpuid_entry2 *e = find(list, 0x80000001, 0);

	return e && (e->ecx & PERFCTR_CORE) && !vm->set.pmu_disabled;
}

static bool has_ibs(const struct list *list)
{
	const struct kvm_cpuid_entry2 *e = find(list, 0x80000001, 0);

	return e && (e->ecx & IBS);
}

static void raise_limit(struct list *list, u32 leaf)
{
	struct kvm_cpuid_entry2 *limit = find(list, leaf == 0x7 ? 0x7 : leaf & 0x80000000, 0);
	u32 least = leaf == 0x7 ? LEAF7_MAX_SUBLEAF : leaf;

	if (limit && limit->eax < least)
		limit->eax = least;
}

static void fill(struct list *list, const struct kvm_cpuid_entry2 *from)
{
	struct kvm_cpuid_entry2 *e = find(list, from->function, from->index);

	if (!e)
		e = &list->entries[list->n++];
	*e = *from;
	raise_limit(list, from->function);
}

static bool fill_leaves(struct list *list, const struct list *own, const struct vm *vm)
{
	bool filled = false;

	for (u32 i = 0; i < ARRAY_SIZE(newer); i++) {
		const struct kvm_cpuid_entry2 *from = find(own, newer[i].leaf, newer[i].subleaf);

		if (is_empty(from) ||
		    is_complete(find(list, newer[i].leaf, newer[i].subleaf), from))
			continue;
		if (newer[i].leaf == 0x80000022 && !wants_perfmon(list, vm))
			continue;
		if (newer[i].leaf == 0x8000001b && !has_ibs(list))
			continue;
		fill(list, from);
		filled = true;
	}
	return filled;
}

int cpuid_fill_newer(const struct vm *vm, struct kvm_cpuid_entry2 **entries, u32 *n)
{
	struct kvm_cpuid_entry2 offered[CPUID_MAX_ENTRIES], *grown;
	struct list own = { offered, cpuid_supported(vm->model, offered, CPUID_MAX_ENTRIES) };
	struct list list = { *entries, *n };
	bool filled;

	if (vm->set.strict_cpuid || !names_model(&list, &own) ||
	    *n > CPUID_MAX_ENTRIES - ARRAY_SIZE(newer))
		return 0;
	grown = realloc(*entries, (*n + ARRAY_SIZE(newer)) * sizeof(**entries));
	if (!grown)
		return -ENOMEM;
	list.entries = grown;
	filled = fill_leaves(&list, &own, vm);
	*entries = list.entries;
	*n = list.n;
	return filled;
}
