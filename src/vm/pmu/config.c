// SPDX-License-Identifier: MIT
/*
 * The choices about a VM's PMU, as names and in vm->set. Any thread: settings change under
 * vm->lock, and vCPUs take them over at their next entry (vm/pmu/host.c).
 */
#include "vm/pmu/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "vm/vm.h"

static const char *const modes[] = { [VM_PMU_MEDIATED] = "mediated", [VM_PMU_EVENT] = "event" };
static const char *const accountings[] = {
	[VM_ACCOUNT_GUEST] = "guest",
	[VM_ACCOUNT_VCPU] = "vcpu",
};

static const char *const timings[] = { [VM_TIMING_STATIC] = "static", [VM_TIMING_FULL] = "full" };

static int index_of(const char *const *names, u32 n, const char *name)
{
	for (u32 i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

static int mode_of(const char *name)
{
	return index_of(modes, ARRAY_SIZE(modes), name);
}

static int accounting_of(const char *name)
{
	return index_of(accountings, ARRAY_SIZE(accountings), name);
}

static int timing_of(const char *name)
{
	return index_of(timings, ARRAY_SIZE(timings), name);
}

const char *pmu_config_mode(const struct vm *vm)
{
	return vm->set.pmu_disabled ? "off" : modes[READ_ONCE(vm->set.pmu_mode)];
}

const char *pmu_config_accounting(const struct vm *vm)
{
	return accountings[READ_ONCE(vm->set.accounting)];
}

const char *pmu_config_timing(const struct vm *vm)
{
	return timings[vm->set.timing];
}

u32 pmu_config_last_level(const struct vm *vm)
{
	return vm->set.last_level ?: vm->model->cache[CACHE_L3].kbytes;
}

bool pmu_config_off(void)
{
	const char *mode = getenv("VPMU_PMU");

	return mode && !strcmp(mode, "off");
}

/* Leaves that are about the PMU alone, and its bits in others. KVM: as with enable_pmu=0. */
static const u32 pmu_leaves[] = { 0xa, 0x1c, 0x8000001b, 0x80000022 };
static const enum feature pmu_features[] = { FEAT_DTES64,   FEAT_DS,  FEAT_PDCM,
					     FEAT_ARCH_LBR, FEAT_IBS, FEAT_PERFCTR_CORE };

static void hide_feature(struct kvm_cpuid_entry2 *e, const struct feature_row *row)
{
	u32 *const regs[] = { [CPUID_EAX] = &e->eax,
			      [CPUID_EBX] = &e->ebx,
			      [CPUID_ECX] = &e->ecx,
			      [CPUID_EDX] = &e->edx };

	if (e->function == row->leaf && e->index == row->subleaf)
		*regs[row->reg] &= ~(u32)BIT(row->bit);
}

static void hide_in(struct kvm_cpuid_entry2 *e)
{
	for (u32 i = 0; i < ARRAY_SIZE(pmu_leaves); i++)
		if (e->function == pmu_leaves[i])
			e->eax = e->ebx = e->ecx = e->edx = 0;
	for (u32 i = 0; i < ARRAY_SIZE(pmu_features); i++)
		hide_feature(e, &feature_rows[pmu_features[i]]);
}

void pmu_config_hide(struct kvm_cpuid_entry2 *entries, u32 n)
{
	for (u32 i = 0; i < n; i++)
		hide_in(&entries[i]);
}

/* A choice from the environment: its index, or 0 with a line in the log. */
static u32 chosen(const char *variable, int (*find)(const char *name))
{
	const char *name = getenv(variable);
	int i = name && *name ? find(name) : 0;

	if (i < 0)
		log_warn("%s=%s: there is no such choice", variable, name);
	return i < 0 ? 0 : i;
}

static u32 chosen_last_level(const struct vm *vm)
{
	const char *size = getenv("VPMU_LLC");
	u32 kbytes = 0;

	if (size && *size && !model_last_level(vm->model, size, &kbytes)) {
		log_warn("VPMU_LLC=%s: %s has a last level of %uK to %uK", size, vm->model->name,
			 LAST_LEVEL_LEAST, vm->model->cache[CACHE_L3].kbytes);
		return 0;
	}
	return kbytes;
}

static u32 chosen_last_level_life(void)
{
	const char *text = getenv("VPMU_LLC_LIFE");
	u32 cycles = 0;

	if (text && *text && !model_last_level_life(text, &cycles)) {
		log_warn("VPMU_LLC_LIFE=%s: it is %u to %u cycles", text, LAST_LEVEL_LIFE_LEAST,
			 LAST_LEVEL_LIFE_MOST);
		return 0;
	}
	return cycles;
}

void pmu_config_environment(struct vm *vm)
{
	vm->set.pmu_disabled = pmu_config_off();
	if (!vm->set.pmu_disabled)
		vm->set.pmu_mode = chosen("VPMU_PMU", mode_of);
	vm->set.accounting = chosen("VPMU_ACCOUNTING", accounting_of);
	vm->set.timing = chosen("VPMU_TIMING", timing_of);
	vm->set.last_level = chosen_last_level(vm);
	vm->set.last_level_life = chosen_last_level_life();
	vm->set.host_view = getenv("VPMU_HOST_VIEW");
}

/* KVM refuses to make a mediated VM while events of the host count guests. */
static bool host_counts_guest(const struct vm *vm)
{
	u32 n = vm_nvcpus(vm);

	for (u32 i = 0; i < n; i++)
		for (u32 e = 0; e < VCPU_HOST_EVENTS; e++) {
			const struct vcpu_host_event *event = &vm->vcpus[i]->pmu.host.event[e];

			if (READ_ONCE(event->session) && !event->view &&
			    !(event->event.flags & HOST_EXCLUDE_GUEST))
				return true;
		}
	return false;
}

static const char *set_mode(struct vm *vm, const char *value)
{
	int mode = mode_of(value);

	if (mode < 0)
		return "pmu can be mediated or event";
	if (vm->set.pmu_disabled)
		return "this VM was made without a PMU";
	if (mode == VM_PMU_MEDIATED && host_counts_guest(vm))
		return "events of the host count this guest: end them first";
	WRITE_ONCE(vm->set.pmu_mode, mode);
	return NULL;
}

static const char *set_accounting(struct vm *vm, const char *value)
{
	int accounting = accounting_of(value);

	if (accounting < 0)
		return "accounting can be guest or vcpu";
	if (accounting != VM_ACCOUNT_GUEST && vm->time.is_virtual)
		return "the clock is virtual: the host's time is not charged to the guest";
	WRITE_ONCE(vm->set.accounting, accounting);
	return NULL;
}

/* Counts, and virtual time, would be of two kinds; and the model has not seen what ran before. */
static const char *set_timing(struct vm *vm, const char *value)
{
	int timing = timing_of(value);

	if (timing < 0)
		return "timing can be static or full";
	if (timing != (int)vm->set.timing)
		return "timing is fixed when a VM is made, since all its counts of time are of one "
		       "kind: start it with --timing";
	return NULL;
}

static const char *set_host_view(struct vm *vm, const char *value)
{
	if (strcmp(value, "on") && strcmp(value, "off"))
		return "host-view can be on or off";
	WRITE_ONCE(vm->set.host_view, !strcmp(value, "on"));
	return NULL;
}

const char *pmu_config_set(struct vm *vm, const char *key, const char *value)
{
	static const struct {
		const char *key;
		const char *(*set)(struct vm *vm, const char *value);
	} settings[] = {
		{ "pmu", set_mode },
		{ "accounting", set_accounting },
		{ "host-view", set_host_view },
		{ "timing", set_timing },
	};

	for (u32 i = 0; i < ARRAY_SIZE(settings); i++) {
		const char *wrong;

		if (strcmp(settings[i].key, key))
			continue;
		pthread_mutex_lock(&vm->lock);
		wrong = settings[i].set(vm, value);
		pthread_mutex_unlock(&vm->lock);
		if (!wrong)
			vm_synchronize(vm); /* vCPUs that run enter again, and see it */
		return wrong;
	}
	return "there are pmu, accounting, host-view and watchdog to set";
}
