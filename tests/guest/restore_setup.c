// SPDX-License-Identifier: MIT
/*
 * What the guest of api_restore_test.c counts and samples, on each model: every counter that
 * interrupts has a period of its own, and PEBS, branch records and IBS are on where the model has
 * them. In the second variant IBS counts cycles and branch records are a call stack.
 */
#include "guest/restore.h"

#include <stdlib.h>
#include <string.h>

#include "x86/ibs.h"
#include "x86/lbr.h"
#include "x86/pebs.h"
#include "x86/pmu_models.h"
#include "x86/pmu_regs.h"

#define USR_EN	     (EVENTSEL_USR | EVENTSEL_EN)
#define PEBS_BATCH   (16 * 1024) /* bytes of records between two interrupts */
#define BRANCHES_MAX 32

struct writer {
	struct kvm_guest *g;
	struct restore_reads *reads;
	u64 *setup, *ack;
	u32 *reload, *read;
	u64 *restart;
	u32 variant;
};

static u64 *at(struct kvm_guest *g, u64 address)
{
	return (u64 *)(g->ram + address);
}

static void setup(struct writer *w, u32 msr, u64 value)
{
	*w->setup++ = msr;
	*w->setup++ = value;
}

static void ack(struct writer *w, u32 msr, u64 value)
{
	*w->ack++ = msr;
	*w->ack++ = value;
}

static void read_bits(struct writer *w, u32 msr, u64 exact)
{
	*w->read++ = msr;
	w->reads->row[w->reads->n].msr = msr;
	w->reads->row[w->reads->n++].exact = exact;
}

static void restart(struct writer *w, u32 msr, u64 test, u64 keep, u64 value)
{
	*w->restart++ = msr;
	*w->restart++ = test;
	*w->restart++ = keep;
	*w->restart++ = value;
	setup(w, msr, value);
}

/* A counter that interrupts each `period`; its value is logged. */
static void sampling(struct writer *w, u32 counter, u32 period)
{
	setup(w, counter, -(u64)period & MASK(47, 0));
	*w->reload++ = counter;
	*w->reload++ = period;
	read_bits(w, counter, ~0ull);
}

static void counting(struct writer *w, u32 counter)
{
	read_bits(w, counter, ~0ull);
}

static void local_apic(struct writer *w)
{
	setup(w, 0x1b, 0xfee00d00); /* x2APIC, boot processor */
	setup(w, 0x80f, 0x1ff);
	setup(w, 0x834, 0x400); /* LVTPC: NMI */
}

static void system_call(struct writer *w)
{
	setup(w, 0xc0000081, IMAGE_STAR);
	setup(w, 0xc0000082, IMAGE_CODE + (restore_syscall - restore_start));
	setup(w, 0xc0000084, 0);
}

static void branch_rows(struct writer *w, const u32 first[3], u32 step, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		read_bits(w, first[0] + i * step, w->g->amd ? LBR_AMD_IP : ~0ull);
		read_bits(w, first[1] + i * step, ~0ull);
		if (first[2])
			read_bits(w, first[2] + i * step, ~LBR_INFO_MISPREDICTED);
	}
}

/* --- Intel --- */

#define LBR_DEBUGCTL (DEBUGCTL_LBR | DEBUGCTL_FREEZE_LBRS)

static void legacy_lbr(struct writer *w)
{
	static const u32 first[3] = { 0x680, 0x6c0, 0xdc0 };

	setup(w, 0x1c8, LBR_SELECT_OS | (w->variant ? LBR_SELECT_CALL_STACK | 0xc4 : 0));
	setup(w, 0x1d9, LBR_DEBUGCTL);
	ack(w, 0x1d9, LBR_DEBUGCTL);
	read_bits(w, 0x1c9, ~0ull);
	branch_rows(w, first, 1, BRANCHES_MAX);
}

static void arch_lbr(struct writer *w)
{
	static const u32 first[3] = { 0x1500, 0x1600, 0x1200 };
	u64 kinds = w->variant ? LBR_CTL_CALL_STACK | 0x380000 : LBR_CTL_KINDS;

	setup(w, 0x14cf, BRANCHES_MAX);
	setup(w, 0x14ce, LBR_CTL_EN | LBR_CTL_USR | kinds);
	setup(w, 0x1d9, DEBUGCTL_FREEZE_LBRS);
	branch_rows(w, first, 1, BRANCHES_MAX);
}

static void debug_store(struct writer *w, bool adaptive)
{
	u64 *ds = at(w->g, RESTORE_DS);
	const u64 cfg = PEBS_CFG_GROUPS | 3ull << PEBS_CFG_LBR_SHIFT;

	ds[DS_PEBS_BASE / 8] = ds[DS_PEBS_INDEX / 8] = RESTORE_RECORDS;
	ds[DS_PEBS_MAXIMUM / 8] = RESTORE_END;
	ds[DS_PEBS_LIMIT / 8] = RESTORE_RECORDS + PEBS_BATCH;
	ds[DS_RESET / 8 + 1] = -331ull;
	ds[DS_RESET / 8 + 2] = -449ull;
	*at(w->g, RESTORE_PEBS_STEP) = PEBS_BATCH;
	setup(w, 0x600, RESTORE_DS);
	if (adaptive)
		setup(w, 0x3f2, cfg);
	setup(w, 0x3f1, BIT(1) | BIT(2));
}

static void intel(struct writer *w)
{
	u64 caps = kvm_guest_get_msr(w->g, 0, 0x345);
	bool adaptive = caps & PERF_CAP_BASELINE, legacy = caps & PERF_CAP_LBR_FORMAT;
	bool metrics = caps & PERF_CAP_METRICS;
	u64 record = adaptive ? EVENTSEL_ADAPTIVE : 0;
	/* Of versions before 4 the status has no bit that freezes branch records. */
	u64 status = MASK(3, 0) | MASK(34, 32) | GLOBAL_STATUS_DS |
		     (adaptive ? GLOBAL_STATUS_LBR_FRZ : 0);

	read_bits(w, 0x38e, ~0ull);
	sampling(w, 0x4c1, 997);
	setup(w, 0x186, 0xc0 | USR_EN | EVENTSEL_INT);
	setup(w, 0x4c2, -331ull & MASK(47, 0));
	setup(w, 0x187, 0xc4 | USR_EN | record);
	counting(w, 0x4c2);
	setup(w, 0x4c3, -449ull & MASK(47, 0));
	setup(w, 0x188, 0x81d0 | USR_EN | record); /* loads */
	counting(w, 0x4c3);
	setup(w, 0x189, 0x82d0 | USR_EN); /* stores */
	counting(w, 0x4c4);
	sampling(w, 0x309, 1201);
	sampling(w, 0x30a, 1607);
	counting(w, 0x30b);
	if (metrics) { /* of slots */
		counting(w, 0x30c);
		counting(w, 0x329);
	}
	setup(w, 0x38d, metrics ? 0x22aa : 0x2aa); /* user mode; the first two interrupt */
	debug_store(w, adaptive);
	if (legacy)
		legacy_lbr(w);
	else
		arch_lbr(w);
	setup(w, 0x38f, MASK(3, 0) | (metrics ? MASK(35, 32) | GLOBAL_METRICS : MASK(34, 32)));
	ack(w, 0x390, status);
	ack(w, 0x834, 0x400);
}

/* --- AMD --- */

static struct kvm_cpuid_entry2 cpuid_of(int kvm, u32 leaf)
{
	const u32 entries = 256;
	struct kvm_cpuid2 *list = calloc(1, sizeof(*list) + entries * sizeof(list->entries[0]));
	struct kvm_cpuid_entry2 found = { 0 };

	if (!list)
		abort();
	list->nent = entries;
	KVM_CALL(kvm, KVM_GET_SUPPORTED_CPUID, list);
	for (u32 i = 0; i < list->nent; i++)
		if (list->entries[i].function == leaf)
			found = list->entries[i];
	free(list);
	return found;
}

static void ibs(struct writer *w)
{
	static const struct {
		enum ibs_register reg;
		u64 exact;
	} rows[] = {
		{ IBS_FETCH_CTL, ~0ull },
		{ IBS_FETCH_LINEAR, ~0ull },
		{ IBS_OP_CTL, ~0ull },
		{ IBS_OP_RIP, ~0ull },
		{ IBS_OP_DATA, IBS_DATA_BRANCH | IBS_DATA_TAKEN | IBS_DATA_RETURN },
		{ IBS_OP_DATA3, IBS_DATA3_LOAD | IBS_DATA3_STORE | IBS_DATA3_LINEAR |
					IBS_DATA3_PHYSICAL | MASK(25, IBS_DATA3_WIDTH_AT) },
		{ IBS_DC_LINEAR, ~0ull },
		{ IBS_DC_PHYSICAL, ~0ull },
		{ IBS_BRANCH_TARGET, ~0ull },
	};
	u64 unit = w->variant ? 0 : IBS_OP_COUNTS_OPS;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		read_bits(w, IBS_MSR + rows[i].reg, rows[i].exact);
	restart(w, IBS_MSR + IBS_FETCH_CTL, IBS_FETCH_VAL, 0, IBS_FETCH_EN | 0x163);
	restart(w, IBS_MSR + IBS_OP_CTL, IBS_OP_VAL, IBS_RANDOM << IBS_OP_CNT_AT,
		IBS_OP_EN | unit | 0x14d);
}

static void amd_lbr(struct writer *w)
{
	static const u32 first[3] = { 0xc0010300, 0xc0010301, 0 };

	setup(w, 0xc000010e, LBR_SELECT_OS);
	setup(w, 0xc000010f, DBG_EXTN_CFG_LBR);
	setup(w, 0x1d9, DEBUGCTL_FREEZE_LBRS);
	branch_rows(w, first, 2, 16);
}

static void amd(struct writer *w)
{
	struct kvm_cpuid_entry2 leaf = cpuid_of(w->g->kvm, 0x80000022);

	setup(w, 0x850, 0x10431); /* an extended local vector: masked, but not as after reset */
	sampling(w, 0xc0010201, 997);
	setup(w, 0xc0010200, 0xc0 | USR_EN | EVENTSEL_INT);
	sampling(w, 0xc0010203, 211);
	setup(w, 0xc0010202, 0xc2 | USR_EN | EVENTSEL_INT);
	sampling(w, 0xc0010205, 1607);
	setup(w, 0xc0010204, 0x76 | USR_EN | EVENTSEL_INT);
	setup(w, 0xc0010206, 0x429 | USR_EN); /* loads and stores */
	counting(w, 0xc0010207);
	if (leaf.eax & BIT(1))
		amd_lbr(w);
	if (leaf.eax & BIT(0)) {
		read_bits(w, 0xc0000300, ~0ull);
		setup(w, 0xc0000301, MASK(5, 0));
		ack(w, 0xc0000302, MASK(5, 0) | GLOBAL_STATUS_LBR_FRZ);
	}
	ibs(w);
}

static void memory(struct kvm_guest *g, u32 rounds)
{
	u32 *table = (u32 *)(g->ram + RESTORE_TABLE);

	*at(g, RESTORE_LOG_AT) = RESTORE_LOG;
	/* Room for what the handler writes before it looks. */
	*at(g, RESTORE_LOG_END) = RESTORE_RECORDS - 8 * (RESTORE_READS + 1);
	*at(g, RESTORE_ROUNDS) = rounds;
	for (u32 i = 0; i < 256; i++)
		table[i] = i * 2654435761u;
	image_gate(g->ram, 2, IMAGE_CODE + (restore_nmi - restore_start), 0);
	image_gate(g->ram, RESTORE_END_GATE, IMAGE_CODE + (restore_finish - restore_start), 3);
}

void restore_setup(struct kvm_guest *g, u32 variant, u32 rounds, struct restore_reads *reads)
{
	struct writer w = { .g = g,
			    .reads = reads,
			    .setup = at(g, RESTORE_SETUP),
			    .ack = at(g, RESTORE_ACK),
			    .reload = (u32 *)at(g, RESTORE_RELOAD),
			    .read = (u32 *)at(g, RESTORE_READ),
			    .restart = at(g, RESTORE_RESTART),
			    .variant = variant };

	memory(g, rounds);
	reads->n = 0;
	local_apic(&w);
	system_call(&w);
	if (g->amd)
		amd(&w);
	else
		intel(&w);
}
