// SPDX-License-Identifier: MIT
/*
 * The commands of the control socket that only report (docs/control.md): lists, statistics,
 * samples. Counters are read where they are, without asking the vCPU; a sample interrupts its
 * thread (vm/control/sample.h), if /proc says that the thread runs. Any thread.
 */
#include <stdio.h>
#include <string.h>

#include "vm/control/priv.h"
#include "vm/control/sample.h"
#include "vm/pmu/config.h"

/* --- list --- */

static u64 executed(const struct vcpu *vcpu)
{
	return vcpu_executed(vcpu, RETIRE_OS) + vcpu_executed(vcpu, RETIRE_USR);
}

void control_list(struct control_request *c)
{
	const struct vm *vm = c->vm;
	u64 instructions = 0, starved = 0;

	for (u32 i = 0; i < vm_nvcpus(vm); i++) {
		instructions += executed(vm->vcpus[i]);
		starved += __builtin_popcountll(READ_ONCE(vm->vcpus[i]->pmu.starved));
	}
	control_say(
		c,
		"vm %u model %s pmu %s accounting %s timing %s llc %uK llc_life %u vcpus %u uptime_ns %llu instructions %llu "
		"starved "
		"%llu\n",
		vm->serial, vm->model->name, pmu_config_mode(vm), pmu_config_accounting(vm),
		pmu_config_timing(vm), pmu_config_last_level(vm), vm->set.last_level_life,
		vm_nvcpus(vm), (unsigned long long)(clock_ns() - vm->created_ns),
		(unsigned long long)instructions, (unsigned long long)starved);
}

/* --- stat --- */

/* Accesses of an MSR, of all vCPUs. */
static void add_counts(struct intercept *sum, const struct intercept *count)
{
	for (u32 access = INTERCEPT_READ; access <= INTERCEPT_WRITE; access++) {
		sum->exits[access] += READ_ONCE(count->exits[access]);
		sum->passed[access] += READ_ONCE(count->passed[access]);
	}
}

static void say_counts(struct control_request *c, const char *name, const struct intercept *sum)
{
	control_say(c, "%s exits %llu %llu passed %llu %llu\n", name,
		    (unsigned long long)sum->exits[INTERCEPT_READ],
		    (unsigned long long)sum->exits[INTERCEPT_WRITE],
		    (unsigned long long)sum->passed[INTERCEPT_READ],
		    (unsigned long long)sum->passed[INTERCEPT_WRITE]);
}

static void say_msr(struct control_request *c, u32 index)
{
	struct intercept sum = { 0 };
	char name[80];
	struct pmu_reg reg = pmu_reg_find(index);

	for (u32 v = 0; v < vm_nvcpus(c->vm); v++) {
		const struct intercept *count =
			intercept_counted(&c->vm->vcpus[v]->pmu.intercepts, index);

		if (count)
			add_counts(&sum, count);
	}
	if (reg.row && reg.row->is_amd == c->vm->model->is_amd)
		snprintf(name, sizeof(name), "msr %#x pmu %s%u", index, reg.row->name, reg.i);
	else
		snprintf(name, sizeof(name), "msr %#x other -", index);
	say_counts(c, name, &sum);
}

static bool said_before(const struct vm *vm, u32 v, u32 index)
{
	for (u32 before = 0; before < v; before++)
		if (intercept_counted(&vm->vcpus[before]->pmu.intercepts, index))
			return true;
	return false;
}

/* Each MSR with the first vCPU that has it. */
static void say_msrs(struct control_request *c)
{
	struct intercept rdpmc = { 0 }, other = { 0 };

	for (u32 v = 0; v < vm_nvcpus(c->vm); v++) {
		const struct intercepts *set = &c->vm->vcpus[v]->pmu.intercepts;

		for (u32 i = 0; i < INTERCEPT_MSRS; i++)
			if (__atomic_load_n(&set->msr[i].used, __ATOMIC_ACQUIRE) &&
			    intercept_has_counted(&set->msr[i]) &&
			    !said_before(c->vm, v, set->msr[i].index))
				say_msr(c, set->msr[i].index);
		add_counts(&rdpmc, &set->rdpmc);
		add_counts(&other, &set->other);
	}
	say_counts(c, "rdpmc", &rdpmc);
	say_counts(c, "msrs besides", &other);
}

static void say_stats(struct control_request *c)
{
	static const struct {
		const char *name;
		size_t offset;
	} rows[] = {
#define VM_STAT(stat, type, unit)
#define VCPU_STAT(stat, type, unit) { #stat, offsetof(struct vcpu_stats, stat) },
#include "vm/stat.def"
#undef VM_STAT
#undef VCPU_STAT
	};

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		u64 sum = 0;

		for (u32 v = 0; v < vm_nvcpus(c->vm); v++) {
			struct vcpu_stats stats;

			vcpu_stats_get(c->vm->vcpus[v], &stats);
			sum += *(const u64 *)((const u8 *)&stats + rows[i].offset);
		}
		control_say(c, "stat %s %llu\n", rows[i].name, (unsigned long long)sum);
	}
}

void control_stat(struct control_request *c)
{
	control_list(c);
	say_stats(c);
	say_msrs(c);
	for (u32 v = 0; v < vm_nvcpus(c->vm); v++) {
		const struct vcpu *vcpu = c->vm->vcpus[v];

		control_say(c, "vcpu %u instructions %llu starved %#llx starvations %llu\n",
			    vcpu->id, (unsigned long long)executed(vcpu),
			    (unsigned long long)READ_ONCE(vcpu->pmu.starved),
			    (unsigned long long)READ_ONCE(vcpu->pmu.starvations));
	}
}

/* --- sample --- */

static void say_guest(struct control_request *c, u32 id, const struct vcpu_sample *sample)
{
	char percpu[64] = "", stack[SAMPLE_FRAMES * 20 + 16] = "";
	size_t n = 0;

	if (sample->has_percpu)
		snprintf(percpu, sizeof(percpu), " percpu %#llx %#llx",
			 (unsigned long long)sample->percpu_base,
			 (unsigned long long)sample->percpu);

	for (u32 i = 0; i < sample->nframes; i++)
		n += snprintf(stack + n, sizeof(stack) - n, "%s %#llx", i ? "" : " stack",
			      (unsigned long long)sample->frame[i]);
	control_say(c, "sample %u guest rip %#llx cr3 %#llx cpl %u%s%s\n", id,
		    (unsigned long long)sample->guest.rip, (unsigned long long)sample->cr3,
		    sample->guest.cpl, percpu, stack);
}

/* R, S and so on, as /proc has it: a thread that waits is no sample. */
static char thread_state(const struct vcpu *vcpu)
{
	char path[64], text[512], *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)READ_ONCE(vcpu->tid));
	f = fopen(path, "re");
	if (!f || !fgets(text, sizeof(text), f))
		text[0] = '\0';
	if (f)
		fclose(f);
	end = strrchr(text, ')');
	return end && end[1] ? end[2] : '?';
}

static void say_vmm(struct control_request *c, const struct vcpu *vcpu)
{
	const struct kvm_run *run = vcpu->run;
	u32 reason = READ_ONCE(run->exit_reason);
	u64 at = 0;

	if (reason == KVM_EXIT_IO)
		at = READ_ONCE(run->io.port);
	else if (reason == KVM_EXIT_MMIO)
		at = READ_ONCE(run->mmio.phys_addr);
	control_say(c, "sample %u vmm %c exit %u at %#llx\n", vcpu->id, thread_state(vcpu), reason,
		    (unsigned long long)at);
}

static const char *exit_name(enum exit_reason reason)
{
	static const char *const names[] = {
		[EXIT_NONE] = "none",
		[EXIT_BUDGET] = "timer",
		[EXIT_PMI] = "pmi",
		[EXIT_ATTENTION] = "kick",
		[EXIT_IO] = "io",
		[EXIT_MMIO] = "mmio",
		[EXIT_HLT] = "hlt",
		[EXIT_CPUID] = "cpuid",
		[EXIT_RDMSR] = "rdmsr",
		[EXIT_WRMSR] = "wrmsr",
		[EXIT_RDPMC] = "rdpmc",
		[EXIT_HYPERCALL] = "hypercall",
		[EXIT_IRQ_WINDOW] = "irq-window",
		[EXIT_NMI_WINDOW] = "nmi-window",
	};

	return reason < ARRAY_SIZE(names) && names[reason] ? names[reason] : "other";
}

static void say_sample(struct control_request *c, struct vcpu *vcpu,
		       const struct vcpu_sample *sample, char state)
{
	switch (sample->where) {
	case WHERE_VMM:
		say_vmm(c, vcpu);
		break;
	case WHERE_HYPERVISOR:
		control_say(c, "sample %u hypervisor %c exit %s\n", vcpu->id, state,
			    exit_name(sample->exit));
		break;
	case WHERE_GUEST:
		say_guest(c, vcpu->id, sample);
		break;
	case WHERE_ENGINE:
		control_say(c, "sample %u hypervisor R exit engine\n", vcpu->id);
		break;
	case WHERE_IDLE:
		control_say(c, "sample %u idle\n", vcpu->id);
		break;
	}
}

/* Only a thread that executes guest or hypervisor is interrupted. Where it was found before that
 * decides nothing else: by the time the signal arrives it may be somewhere else. */
static void sample_vcpu(struct control_request *c, struct vcpu *vcpu,
			const struct sample_wish *wish)
{
	struct vcpu_sample sample = { .where = READ_ONCE(vcpu->where),
				      .exit = READ_ONCE(vcpu->last_exit) };
	char state = sample.where == WHERE_HYPERVISOR ? thread_state(vcpu) : 'R';
	bool runs =
		sample.where == WHERE_GUEST || (sample.where == WHERE_HYPERVISOR && state == 'R');

	if (runs && !vcpu_sample(vcpu, wish, &sample))
		return;
	say_sample(c, vcpu, &sample, state);
}

/* sample [stacks] [percpu CR3 OFFSET]. Words that say something else are passed over. */
static void parse_wish(const struct control_request *c, struct sample_wish *wish)
{
	for (u32 i = 0; i < c->nwords; i++) {
		if (!strcmp(c->word[i], "stacks"))
			wish->stack = true;
		if (!strcmp(c->word[i], "percpu") && i + 2 < c->nwords)
			wish->percpu = control_number(c->word[i + 1], &wish->cr3) &&
				       control_number(c->word[i + 2], &wish->offset);
	}
}

/* Where every vCPU's thread is now. */
void control_sample(struct control_request *c)
{
	struct sample_wish wish = { 0 };

	parse_wish(c, &wish);
	for (u32 v = 0; v < vm_nvcpus(c->vm); v++)
		sample_vcpu(c, c->vm->vcpus[v], &wish);
}
