// SPDX-License-Identifier: MIT
/*
 * The mode word, computed from the registers it depends on and from what is counted (cpu->port).
 * Code that changes one of them calls cpu_update_mode(). The part for counting has a memory:
 * classes are counted for a while longer than they are wanted, and each set of classes that is in
 * use has a number (priv->count_sets). vCPU thread; general registers only.
 */
#include "cpu/mode.h"

#include "cpu/control.h"
#include "cpu/mmu/mmu.h"
#include "x86/descriptor.h"

static bool flat(const struct segment *s, bool code)
{
	u32 type = s->attr & SEG_TYPE;

	if (s->base || s->limit != 0xffffffff || (s->attr & SEG_UNUSABLE) ||
	    !(type & TYPE_WRITABLE))
		return false;
	return code || !(type & (TYPE_CODE | TYPE_EXPAND_DOWN));
}

static u32 code_mode(const struct cpu *cpu)
{
	u32 mode = 0;

	if (cpu_code64(cpu))
		return MODE_CODE64 | MODE_FLAT;
	if (cpu->seg[CS].attr & SEG_DB)
		mode |= MODE_CODE32;
	if (cpu->seg[SS].attr & SEG_DB)
		mode |= MODE_STACK32;
	if (flat(&cpu->seg[CS], true) && flat(&cpu->seg[DS], false) && flat(&cpu->seg[ES], false) &&
	    flat(&cpu->seg[SS], false))
		mode |= MODE_FLAT;
	return mode;
}

static u32 privilege_mode(const struct cpu *cpu)
{
	u32 mode = (u32)cpu->cpl << MODE_CPL_SHIFT;
	bool ac = cpu->rflags & FL_AC;

	if (cpu->cpl != 3 && (ac || !(cpu->cr4 & CR4_SMAP)))
		mode |= MODE_USER_OK;
	if (cpu->cpl == 3 && ac && (cpu->cr0 & CR0_AM))
		mode |= MODE_ALIGN;
	if (cpu->cpl <= (cpu->rflags & FL_IOPL) >> FL_IOPL_SHIFT)
		mode |= MODE_IOPL_OK;
	return mode;
}

static u32 fpu_mode(const struct cpu *cpu)
{
	u32 mode = 0;

	if (cpu->cr0 & CR0_TS)
		mode |= MODE_FPU_TS;
	if (cpu->cr0 & CR0_EM)
		mode |= MODE_FPU_EM;
	if (cpu->cr0 & CR0_MP)
		mode |= MODE_FPU_MP;
	if (cpu->cr4 & CR4_OSFXSR)
		mode |= MODE_SSE;
	if ((cpu->cr4 & CR4_OSXSAVE) && (~cpu->xcr0 & (XCR0_SSE | XCR0_AVX)) == 0)
		mode |= MODE_AVX;
	return mode;
}

/*
 * Translated code keeps counting classes for a while after they are no longer wanted: operating
 * systems stop and restart counters at each context switch, and each time blocks of another mode
 * would have to be found. What the timing model counts ends at once, since its caches depend on
 * what it is shown.
 */
#define LINGER 1000000 /* instructions: about a millisecond */

static void update_coded(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const retire_wanted observed = OBSERVED_IN_MEMORY | OBSERVED_IN_BRANCHES;
	u64 now = cpu_retired(cpu);
	bool less = !(cpu->port.wanted & ~priv->code_classes) &&
		    !((cpu->port.wanted ^ priv->code_classes) & observed);

	if (less && cpu->port.wanted != priv->code_classes && now < priv->code_classes_until)
		return;
	priv->code_classes = cpu->port.wanted;
	priv->code_classes_until = now + LINGER;
}

static u32 packed_words(retire_wanted set)
{
	u32 classes = 0;

	for (set &= COUNT_PACKED; set; set &= set - 1)
		classes++;
	return (classes + PACK_FIELDS - 1) / PACK_FIELDS;
}

/*
 * The set of classes that translated code counts: what is wanted, and what was wanted before if
 * that needs no further word. Where perf multiplexes events, all of them are soon in one set, so
 * that rotation needs no new translations.
 */
static retire_wanted count_wanted(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	retire_wanted wanted = priv->code_classes & (COUNT_BRANCHES | COUNT_MEMORY |
						     COUNT_CYCLE_PARTS | OBSERVED_IN_BRANCHES);
	retire_wanted now = priv->count_sets[priv->count_set];

	if (wanted &
	    COUNT_PACKED) /* one more field costs nothing, and lets branches trip exactly */
		wanted |= priv->code_classes & RETIRE_BIT(RETIRE_BRANCHES);
	if (wanted && !((wanted ^ now) & OBSERVED_IN_BRANCHES) &&
	    packed_words(wanted | now) == packed_words(wanted))
		wanted |= now;
	return wanted;
}

/*
 * The number of that set. Number 0 is the empty set. A number is never reused while blocks have it;
 * when none is left the last one, all classes, serves until the engine drops all blocks.
 */
static u32 count_set(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	retire_wanted *sets = priv->count_sets, wanted = count_wanted(cpu);
	u32 i = 0;

	while (i < COUNT_SETS - 1 && sets[i] != wanted && (sets[i] || !i))
		i++;
	sets[i] = i < COUNT_SETS - 1 ? wanted
				     : COUNT_PACKED | COUNT_CYCLE_PARTS | OBSERVED_IN_BRANCHES;
	if (i)
		priv->count_set = i;
	return i;
}

/* With full timing everything is modelled if anything is, so that time does not depend on what
 * else is counted. */
static bool models_all(const struct cpu *cpu)
{
	const retire_wanted modelled = COUNT_CYCLES | OBSERVED_IN_MEMORY | OBSERVED_IN_BRANCHES;

	return cpu->port.full_timing && cpu_priv(cpu)->timing.params &&
	       ((cpu->port.wanted & modelled) || cpu->port.observe ||
		branch_wanted(&cpu->branches));
}

static u32 count_mode(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	bool all = models_all(cpu);

	update_coded(cpu);
	return count_set(cpu) << MODE_COUNT_SHIFT |
	       (all || (priv->code_classes & COUNT_CYCLES) ? MODE_COUNT_CYCLES : 0) |
	       (all || (cpu->port.wanted & OBSERVED_IN_BRANCHES) ? MODE_COUNT_MISSES : 0) |
	       (priv->branch_trip_near ? MODE_TRIP_BRANCHES : 0);
}

static u32 record_mode(const struct cpu *cpu)
{
	const u32 near = BIT(BRANCH_FAR) - 1;
	u32 kinds = cpu->branches.kinds[cpu_privilege(cpu)] & near;

	if (!kinds)
		return 0;
	return MODE_LBR | (kinds == near ? MODE_LBR_ANY : 0) |
	       (cpu->branches.call_stack ? MODE_LBR_STACK : 0);
}

static u32 observe_mode(const struct cpu *cpu)
{
	if (!cpu_priv(cpu)->timing.params)
		return 0;
	if (models_all(cpu))
		return MODE_OBSERVE_MEMORY | MODE_OBSERVE_BRANCHES;
	return cpu->port.observe |
	       (cpu->port.wanted & OBSERVED_IN_MEMORY ? MODE_OBSERVE_MEMORY : 0) |
	       (cpu->port.wanted & OBSERVED_IN_BRANCHES || branch_wanted(&cpu->branches)
			? MODE_OBSERVE_BRANCHES
			: 0);
}

void cpu_update_counting(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const u32 records = MODE_LBR | MODE_LBR_ANY | MODE_LBR_STACK;

	priv->mode = (priv->mode & ~(u32)(MODE_COUNTING | records)) | count_mode(cpu) |
		     observe_mode(cpu) | record_mode(cpu);
}

void cpu_update_mode(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u32 mode = code_mode(cpu) | privilege_mode(cpu) | fpu_mode(cpu) | count_mode(cpu) |
		   observe_mode(cpu) | record_mode(cpu);

	if (cpu_long_mode(cpu))
		mode |= MODE_LONG;
	if (cpu->port.tsc_scale == TSC_SCALE_ONE && !cpu->port.virtual_time &&
	    (!cpu->cpl || !(cpu->cr4 & CR4_TSD)))
		mode |= MODE_TSC;
	if ((cpu->cr0 & CR0_PE) && !(cpu->rflags & FL_VM))
		mode |= MODE_PROT;
	if ((cpu->rflags & FL_TF) || cpu->port.debug.single_step || priv->watch_active ||
	    ((cpu_dr7(cpu) & DR7_ENABLE) && cpu_watch_any_fetch(cpu)))
		mode |= MODE_STEP;
	priv->mode = mode;
}
