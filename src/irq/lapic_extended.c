// SPDX-License-Identifier: MIT
/*
 * The extended register space of AMD's local APIC (APM2 16.3.4, 16.7): four more local vectors, of
 * which IBS uses one. KVM_GET_LAPIC has no room for them: MSRs of our own save them
 * (vm/msr/hidden_state.c). vCPU's thread or lock.
 */
#include "irq/lapic.h"
#include "irq/lapic_priv.h"

#define FEATURE	 0x400
#define CONTROL	 0x410
#define EILVT	 0x500
#define WRITABLE (LVT_MASKED | LVT_MODE | 0xffu)

static bool is_eilvt(u32 reg)
{
	return reg >= EILVT && reg < EILVT + 0x10 * LAPIC_EILVTS && reg % 0x10 == 0;
}

bool lapic_extended_read(const struct lapic *lapic, u32 reg, u32 *value)
{
	if (!lapic->extended)
		return false;
	if (is_eilvt(reg))
		*value = lapic->eilvt[(reg - EILVT) / 0x10];
	else if (reg == FEATURE)
		*value = LAPIC_EILVTS << 16;
	else if (reg == CONTROL)
		*value = 0;
	else
		return false;
	return true;
}

bool lapic_extended_write(struct lapic *lapic, u32 reg, u32 value)
{
	if (!lapic->extended || !is_eilvt(reg))
		return lapic->extended && reg == CONTROL;
	lapic_set_extended_entry(lapic, (reg - EILVT) / 0x10, value);
	return true;
}

u32 lapic_extended_entry(const struct lapic *lapic, u32 i)
{
	return lapic->eilvt[i];
}

void lapic_set_extended_entry(struct lapic *lapic, u32 i, u32 value)
{
	lapic->eilvt[i] = value & WRITABLE;
}

/* IBS's as firmware leaves it, and Linux sets it again: an NMI. A guest that was saved without the
 * MSRs that hold these registers thus still gets interrupts. */
void lapic_extended_reset(struct lapic *lapic)
{
	for (u32 i = 0; i < LAPIC_EILVTS; i++)
		lapic->eilvt[i] = i == LAPIC_EILVT_IBS ? LAPIC_NMI << 8 : LVT_MASKED;
}

bool lapic_extended_interrupt(struct lapic *lapic, u32 i)
{
	return lapic->extended && lapic_entry(lapic, lapic->eilvt[i]);
}
