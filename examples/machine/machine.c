// SPDX-License-Identifier: MIT
/*
 * A machine with a PMU: how to embed libvpmu in something that is not a PC. The machine is a
 * processor of ten instructions with a kernel and a user mode, a timer and an interrupt controller;
 * it does not speak the KVM API. Its guest is a kernel that counts and samples a user program: the
 * PMU interrupts it every PERIOD user instructions, and the handler adds one to a histogram of
 * addresses. An owner of a PMU does six things, marked below:
 *
 *	(1) supplies the two functions that the library calls
 *	(2) creates, for each processor, tallies, a physical PMU and a guest's PMU of one model
 *	(3) adds to the tallies what retires, at the privilege at which it retires
 *	(4) ends a run where the next counter may overflow, and where the privilege changes
 *	(5) completes the guest's accesses to PMU registers, between two runs
 *	(6) has its interrupt controller deliver the PMU's interrupts
 *
 * main() compares what the guest found with arithmetic on its program. Counts and samples of user
 * code are exact: they do not depend on how often the timer interrupts.
 */
#include <vpmu.h>

#include <stdio.h>
#include <stdlib.h>

/* --- (1) what the library needs --- */

void hwpmu_port_unknown_event(const struct hwpmu *pmu, u32 event, u32 umask)
{
	(void)pmu;
	printf("machine: no event %x with unit mask %x: it is not counted\n", event, umask);
}

void must_failed(const char *expr, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, expr);
	abort();
}

/* --- the guest --- */

/* There is one register, which the kernel leaves alone. EPC is where user mode goes on. */
enum op {
	ADD,   /* register += value */
	INC,   /* ram[at]++ */
	BNZ,   /* if the register is not 0, go to `at` */
	TRAP,  /* go to ON_TRAP in kernel mode */
	TALLY, /* ram[at + EPC]++; this and the rest are the kernel's */
	WRMSR, /* register `at` of the PMU = value */
	RDPMC, /* ram[at] = counter `value` */
	EOI,   /* line `at` of the interrupt controller may interrupt again */
	IRET,  /* go to EPC in user mode */
	HALT,
};

struct insn {
	enum op op;
	u32 at;
	s64 value;
};

enum { LINE_PMU, LINE_TIMER };
enum { FIRST_TURNS = 20000, SECOND_TURNS = 5000, PERIOD = 997 };
/* Addresses of code, and of data. */
enum { BOOT, ON_PMI = 8, ON_TIMER = 13, ON_TRAP = 15, USER = 20, FIRST, SECOND = 24, END = 28 };
enum { HISTOGRAM, TICKS = END, SUM, BRANCHES, LOADS, INTERRUPTS, INSTRUCTIONS, RAM };

/* MSRs of Intel's PMU (SDM 4, table 2-2). */
enum { PMC0 = 0xc1, PERFEVTSEL0 = 0x186 };
enum { FIXED_CTRL = 0x38d, GLOBAL_CTRL = 0x38f, OVF_CTRL = 0x390 };
#define USER_EVENT(event, umask) (EVENTSEL_EN | EVENTSEL_USR | (umask) << 8 | (event))

static const struct insn rom[] = {
	[BOOT] = { WRMSR, PMC0, -PERIOD },
	{ WRMSR, PERFEVTSEL0, USER_EVENT(0xc0, 0) | EVENTSEL_INT }, /* instructions */
	{ WRMSR, PERFEVTSEL0 + 1, USER_EVENT(0xc4, 0) },	    /* branches */
	{ WRMSR, PERFEVTSEL0 + 2, USER_EVENT(0xd0, 0x81) },	    /* loads */
	{ WRMSR, PERFEVTSEL0 + 3, USER_EVENT(0xcb, 1) },	    /* interrupts */
	{ WRMSR, FIXED_CTRL, FIXED_CTRL_USR },			    /* instructions */
	{ WRMSR, GLOBAL_CTRL, BIT(PMU_FIXED_BASE) | MASK(3, 0) },
	{ IRET, 0, 0 },
	[ON_PMI] = { TALLY, HISTOGRAM, 0 },
	{ WRMSR, PMC0, -PERIOD },
	{ WRMSR, OVF_CTRL, BIT(0) },
	{ EOI, LINE_PMU, 0 },
	{ IRET, 0, 0 },
	[ON_TIMER] = { INC, TICKS, 0 },
	{ IRET, 0, 0 },
	[ON_TRAP] = { RDPMC, BRANCHES, 1 },
	{ RDPMC, LOADS, 2 },
	{ RDPMC, INTERRUPTS, 3 },
	{ RDPMC, INSTRUCTIONS, BIT(30) }, /* fixed counter 0 */
	{ HALT, 0, 0 },
	[USER] = { ADD, 0, FIRST_TURNS },
	[FIRST] = { ADD, 0, -1 }, /* a loop of two instructions */
	{ BNZ, FIRST, 0 },
	{ ADD, 0, SECOND_TURNS },
	[SECOND] = { INC, SUM, 0 }, /* a loop of three */
	{ ADD, 0, -1 },
	{ BNZ, SECOND, 0 },
	{ TRAP, 0, 0 },
};
_Static_assert(ARRAY_SIZE(rom) == END, "the histogram has a word for each instruction");

/* --- the processor --- */

struct machine {
	u64 pc, epc, reg, ram[RAM];
	enum retire_privilege mode;
	bool halted, fault;
	u32 pending, masked;	    /* lines of the interrupt controller */
	s64 tick_every, until_tick; /* in cycles */
	struct retire_tally tally;
	struct hwpmu hw;
	struct pmu pmu;
};

/* (2) The guest has all that the model's CPUID describes. An owner can offer less. */
static void create(struct machine *m, s64 tick_every)
{
	const struct pmu_model *model = pmu_model_of(MODEL_SKYLAKE);
	u32 leaf_a[4];

	*m = (struct machine){ .epc = USER, .tick_every = tick_every, .until_tick = tick_every };
	pmu_cpuid(model, 0xa, leaf_a);
	hwpmu_init(&m->hw, model, &m->tally);
	pmu_init(&m->pmu, model, &hostperf_mediated, &m->hw);
	pmu_configure(&m->pmu,
		      &(struct pmu_guest){ .leaf_a_eax = leaf_a[0], .leaf_a_edx = leaf_a[3] });
}

/* (3) The classes that the guest's events count. Each grows by no more than retire.def says. */
static void retire(struct machine *m, enum op op)
{
	u32 cycles = op == INC || op == TALLY ? 4 : 1;

	m->until_tick -= cycles;
	m->tally.cycles[m->mode] += cycles * TICKS_PER_CYCLE;
	m->tally.instructions[m->mode]++;
	m->tally.loads[m->mode] += op == INC || op == TALLY;
	m->tally.branches[m->mode] += op == BNZ || op == TRAP || op == IRET;
}

static void go(struct machine *m, enum retire_privilege mode, u64 pc)
{
	m->mode = mode;
	m->pc = pc;
}

/* Executes an instruction that needs no PMU, and retires it at the privilege that it began at. */
static void execute(struct machine *m, const struct insn *insn)
{
	retire(m, insn->op);
	m->pc++;
	if (insn->op == ADD)
		m->reg += insn->value;
	else if (insn->op == INC || insn->op == TALLY)
		m->ram[insn->at + (insn->op == TALLY ? m->epc : 0)]++;
	else if (insn->op == BNZ && m->reg)
		m->pc = insn->at;
	else if (insn->op == TRAP)
		go(m, RETIRE_OS, ON_TRAP);
	else if (insn->op == EOI)
		m->masked &= ~BIT(insn->at);
	else if (insn->op == IRET)
		go(m, RETIRE_USR, m->epc);
	else if (insn->op == HALT)
		m->halted = true;
}

/* (4) Up to n instructions of one mode, until the timer is due. True: the next is one for (5). */
static bool run(struct machine *m, u64 n)
{
	enum retire_privilege mode = m->mode;

	for (; n && m->mode == mode && m->until_tick > 0 && !m->halted; n--) {
		const struct insn *insn = &rom[m->pc];

		m->fault = mode == RETIRE_USR && insn->op >= TALLY;
		if (m->fault || insn->op == WRMSR || insn->op == RDPMC)
			return !m->fault;
		execute(m, insn);
	}
	return false;
}

/* (5) Retires like all others, unless the PMU refuses it: a PC would then have a #GP. */
static void complete(struct machine *m)
{
	const struct insn *insn = &rom[m->pc];
	enum pmu_result result;

	if (insn->op == WRMSR)
		result = pmu_wrmsr(&m->pmu, insn->at, false, insn->value);
	else
		result = pmu_rdpmc(&m->pmu, insn->value, true, &m->ram[insn->at]);
	m->fault = result != PMU_OK;
	if (!m->fault) {
		m->pc++;
		retire(m, insn->op);
	}
}

/* --- the timer and the interrupt controller --- */

/* (6) An interrupt of the PMU that finds its line masked is lost. One that is delivered masks its
 * line, where that is the vendor's rule. */
static void raise_lines(struct machine *m)
{
	u32 requests = pmu_take_requests(&m->pmu);

	if ((requests & PMU_REQUEST_PMI) && !(m->masked & BIT(LINE_PMU)))
		m->pending |= BIT(LINE_PMU);
	if (requests & PMU_REQUEST_MASK_LVTPC)
		m->masked |= BIT(LINE_PMU);
	if (m->until_tick <= 0) {
		m->pending |= BIT(LINE_TIMER);
		m->until_tick = m->tick_every;
	}
}

/* Only user mode is interrupted. */
static void deliver_interrupt(struct machine *m)
{
	u32 line = m->pending & BIT(LINE_PMU) ? LINE_PMU : LINE_TIMER;

	if (!m->pending || m->mode == RETIRE_OS)
		return;
	m->pending &= ~BIT(line);
	m->tally.interrupts[m->mode]++;
	m->epc = m->pc;
	go(m, RETIRE_OS, line == LINE_PMU ? ON_PMI : ON_TIMER);
}

/* The loop that pmu/pmu.h describes. */
static void run_machine(struct machine *m)
{
	while (!m->halted && !m->fault) {
		bool access;

		pmu_enter(&m->pmu);
		raise_lines(m);
		deliver_interrupt(m);
		access = run(m, hwpmu_horizon(&m->hw, m->mode, ~(retire_wanted)0));
		pmu_leave(&m->pmu);
		if (access)
			complete(m);
	}
}

/* --- what the guest must have found --- */

#define USER_INSTRUCTIONS (1 + 2 * FIRST_TURNS + 1 + 3 * SECOND_TURNS + 1)

/* The address of the user instruction that follows the first n > 0. */
static u64 user_pc(u64 n)
{
	if (n <= 2 * FIRST_TURNS)
		return FIRST + (n - 1) % 2;
	n -= 2 * FIRST_TURNS + 1;
	return n ? SECOND + (n - 1) % 3 : SECOND - 1;
}

static bool check(const struct machine *m)
{
	const u64 samples = USER_INSTRUCTIONS / PERIOD;
	u64 expected[RAM] = {
		[TICKS] = m->ram[TICKS],
		[SUM] = SECOND_TURNS,
		[BRANCHES] = FIRST_TURNS + SECOND_TURNS + 1,
		[LOADS] = SECOND_TURNS,
		[INTERRUPTS] = m->ram[TICKS] + samples,
		[INSTRUCTIONS] = USER_INSTRUCTIONS,
	};
	bool good = m->halted && m->ram[TICKS];

	for (u64 n = 1; n <= samples; n++)
		expected[HISTOGRAM + user_pc(n * PERIOD)]++;
	for (u32 at = 0; at < RAM; at++) {
		good &= m->ram[at] == expected[at];
		if (m->ram[at] != expected[at])
			printf("word %u: %lu, not %lu\n", at, m->ram[at], expected[at]);
	}
	return good;
}

int main(void)
{
	static struct machine m;
	bool good = true;

	for (s64 tick_every = 10; tick_every < 100000; tick_every *= 8) {
		create(&m, tick_every);
		run_machine(&m);
		printf("%lu user instructions, %lu ticks\n", m.ram[INSTRUCTIONS], m.ram[TICKS]);
		good &= check(&m);
	}
	for (u32 pc = USER; pc < END; pc++)
		printf("  %3lu samples at %u\n", m.ram[HISTOGRAM + pc], pc);
	return !good;
}
