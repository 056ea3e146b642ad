// SPDX-License-Identifier: MIT
/*
 * A toy hypervisor that embeds libvpmu: an interpreter of five instructions for a guest that
 * samples itself. The guest sets up a counter to overflow every 1000 instructions, runs a loop and
 * leaves; each PMI tells the address of the instruction after the one that overflowed.
 *
 * Everything that a real hypervisor has to do for a PMU is here: count what retires, stop at the
 * horizon, forward WRMSR and RDPMC, deliver PMIs.
 */
#include <vpmu.h>

#include <stdio.h>
#include <stdlib.h>

/* --- what the library needs of us --- */

void hwpmu_port_unknown_event(const struct hwpmu *pmu, u32 event, u32 umask)
{
	(void)pmu;
	printf("toy: the guest counts an unknown event %x, %x\n", event, umask);
}

void must_failed(const char *expr, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, expr);
	abort();
}

/* --- the guest: one register, five instructions --- */

enum op { ADD, JNZ, WRMSR, RDPMC, STOP };

struct insn {
	enum op op;
	u64 value; /* ADD: what; JNZ: to where; WRMSR: value; RDPMC: counter */
	u32 msr;
};

#define PMC0		 0xc1
#define PERFEVTSEL0	 0x186
#define PERF_GLOBAL_CTRL 0x38f
#define OVF_CTRL	 0x390
#define ITERATIONS	 10000
#define PERIOD		 1000

/* Instructions retired, both privileges, interrupt. */
#define COUNT_INSTRUCTIONS (0xc0 | EVENTSEL_USR | EVENTSEL_OS | EVENTSEL_INT | EVENTSEL_EN)

static const struct insn program[] = {
	{ WRMSR, 0, PERF_GLOBAL_CTRL },
	{ WRMSR, -PERIOD, PMC0 },
	{ WRMSR, COUNT_INSTRUCTIONS, PERFEVTSEL0 },
	{ WRMSR, 1, PERF_GLOBAL_CTRL }, /* from here on */
	{ ADD, ITERATIONS, 0 },
	{ ADD, -1, 0 }, /* 5: the loop, three instructions */
	{ ADD, 0, 0 },
	{ JNZ, 5, 0 },
	{ WRMSR, 0, PERF_GLOBAL_CTRL }, /* to here */
	{ RDPMC, 0, 0 },
	{ STOP, 0, 0 },
};

/* --- the processor --- */

struct vcpu {
	u64 reg, pc;
	struct retire_tally tally;
	struct hwpmu hw;
	struct pmu pmu;
	u64 pmis, pmi_at[16]; /* by address */
};

static void retire(struct vcpu *vcpu, bool branch)
{
	vcpu->tally.instructions[RETIRE_OS]++;
	vcpu->tally.branches[RETIRE_OS] += branch;
}

/* Runs up to n instructions; false: the next one is the hypervisor's. */
static bool execute(struct vcpu *vcpu, u64 n)
{
	for (; n; n--) {
		const struct insn *insn = &program[vcpu->pc];

		if (insn->op == ADD)
			vcpu->reg += insn->value;
		else if (insn->op != JNZ)
			return false;
		vcpu->pc = insn->op == JNZ && vcpu->reg ? insn->value : vcpu->pc + 1;
		retire(vcpu, insn->op == JNZ);
	}
	return true;
}

/* --- the hypervisor --- */

/* Does an instruction for the guest, which then has retired like any other. */
static void complete(struct vcpu *vcpu)
{
	const struct insn *insn = &program[vcpu->pc];
	enum pmu_result result = PMU_OK;

	if (insn->op == WRMSR)
		result = pmu_wrmsr(&vcpu->pmu, insn->msr, false, insn->value);
	else
		result = pmu_rdpmc(&vcpu->pmu, insn->value, true, &vcpu->reg);
	must(result == PMU_OK); /* or #GP */
	vcpu->pc++;
	retire(vcpu, false);
}

/* The guest's handler: counts where it was interrupted and starts a new period. */
static void deliver_pmi(struct vcpu *vcpu)
{
	vcpu->pmis++;
	vcpu->pmi_at[vcpu->pc]++;
	pmu_wrmsr(&vcpu->pmu, PMC0, false, -PERIOD);
	pmu_wrmsr(&vcpu->pmu, OVF_CTRL, false, 1);
}

static void run(struct vcpu *vcpu)
{
	while (program[vcpu->pc].op != STOP) {
		u64 budget;
		bool ours;

		pmu_enter(&vcpu->pmu);
		if (pmu_take_requests(&vcpu->pmu) & PMU_REQUEST_PMI) {
			deliver_pmi(vcpu);
			continue;
		}
		budget = hwpmu_horizon(&vcpu->hw, RETIRE_OS, ~0u);
		ours = !execute(vcpu, budget);
		pmu_leave(&vcpu->pmu);
		if (ours)
			complete(vcpu);
	}
}

static void create(struct vcpu *vcpu)
{
	const struct pmu_model *model = pmu_model_of(MODEL_ICELAKE);
	struct pmu_guest guest = { .pdcm = true };
	u32 cpuid[4];

	pmu_cpuid(model, 0xa, cpuid);
	guest.leaf_a_eax = cpuid[0];
	guest.leaf_a_edx = cpuid[3];
	hwpmu_init(&vcpu->hw, model, &vcpu->tally);
	pmu_init(&vcpu->pmu, model, &hostperf_mediated, &vcpu->hw);
	pmu_configure(&vcpu->pmu, &guest);
}

int main(void)
{
	static struct vcpu vcpu;
	/* The opening ADD, the loop, and one of the two WRMSRs around them. */
	const u64 counted = 1 + 3 * ITERATIONS + 1;
	u64 rest;

	create(&vcpu);
	run(&vcpu);
	rest = (vcpu.reg + PERIOD) & MASK(47, 0);
	printf("%lu instructions, %lu PMIs, %lu since the last\n",
	       (unsigned long)vcpu.tally.instructions[RETIRE_OS], (unsigned long)vcpu.pmis,
	       (unsigned long)rest);
	for (u32 pc = 0; pc < ARRAY_SIZE(vcpu.pmi_at); pc++)
		if (vcpu.pmi_at[pc])
			printf("  %4lu at %u\n", (unsigned long)vcpu.pmi_at[pc], pc);
	/* Exactly every 1000th, and since 1000 is not a multiple of 3, evenly over the loop. */
	return vcpu.pmis != counted / PERIOD || vcpu.pmi_at[5] != 10 || vcpu.pmi_at[6] != 10 ||
	       vcpu.pmi_at[7] != 10 || rest != counted % PERIOD;
}
