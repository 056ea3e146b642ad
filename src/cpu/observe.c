// SPDX-License-Identifier: MIT
/*
 * Showing the timing model what C code does: see cpu/observe.h. While the model does not observe,
 * invalidations only mark its TLBs as stale. vCPU thread; general registers only.
 */
#include "cpu/observe.h"

#include "timing/coherence.h"

void cpu_observe(struct cpu *cpu, struct timing_access access)
{
	access.space = cpu_space(cpu);
	timing_data(&cpu_priv(cpu)->timing, &access);
}

/* Is the model observing? If not, its TLBs become stale. */
static bool looking(struct cpu *cpu)
{
	cpu_priv(cpu)->timing_stale |= !cpu_observes(cpu);
	return cpu_observes(cpu);
}

static const struct timing_port port = { mmu_tables };

void cpu_observe_begin(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	if (cpu_observes(cpu) && priv->timing_stale)
		timing_flush_tlbs(&priv->timing);
	if (cpu_observes(cpu)) {
		priv->timing_stale = false;
		priv->timing.port = &port;
		priv->timing.owner = cpu;
	}
	timing_set_full(&priv->timing, cpu->port.full_timing);
	timing_observe(&priv->timing, cpu_observes(cpu));
}

bool cpu_observe_join(struct cpu *cpu)
{
	struct timing *t = &cpu_priv(cpu)->timing;

	if (likely(t->shared) || !t->params || !cpu->port.caches ||
	    !coherence_needed(cpu->port.caches))
		return false;
	coherence_join(cpu->port.caches, t, cpu->port.caches_index);
	return true;
}

void cpu_observe_cr3(struct cpu *cpu, bool flush)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	if (!looking(cpu))
		return;
	if (flush)
		timing_flush_space(&priv->timing, cpu_space(cpu));
	else
		timing_switch_space(&priv->timing);
}

void cpu_observe_invlpg(struct cpu *cpu, gva_t gva)
{
	if (looking(cpu))
		timing_flush_page(&cpu_priv(cpu)->timing, gva);
}

void cpu_observe_invpcid(struct cpu *cpu, u16 space)
{
	if (looking(cpu))
		timing_flush_space(&cpu_priv(cpu)->timing, space);
}

void cpu_observe_flush(struct cpu *cpu)
{
	if (looking(cpu))
		timing_flush_tlbs(&cpu_priv(cpu)->timing);
}

void cpu_observe_clflush(struct cpu *cpu, gpa_t gpa)
{
	if (cpu_observes(cpu))
		timing_flush_line(&cpu_priv(cpu)->timing, gpa);
}

void cpu_observe_wbinvd(struct cpu *cpu)
{
	if (cpu_observes(cpu))
		timing_flush_caches(&cpu_priv(cpu)->timing);
}

void cpu_observe_slots(struct cpu *cpu)
{
	if (cpu_priv(cpu)->timing.params)
		timing_forget_hosts(&cpu_priv(cpu)->timing);
}
