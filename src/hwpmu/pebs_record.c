// SPDX-License-Identifier: MIT
/*
 * The bytes of a PEBS record. Format 3 is one structure; formats 4 and 5 are a basic group and
 * those that MSR_PEBS_DATA_CFG asks for (SDM 3B tables 20-57, 20-60; 20.9.2). Pure functions.
 */
#include "hwpmu/pebs.h"

#include "x86/regs.h"

struct writer {
	u8 *p;
};

static void put(struct writer *w, u64 value)
{
	__builtin_memcpy(w->p, &value, sizeof(value)); /* little-endian, as the guest is */
	w->p += sizeof(value);
}

static void put_regs(struct writer *w, const struct pebs_sample *s, const u8 order[16])
{
	put(w, s->rflags);
	put(w, s->rip);
	for (u32 i = 0; i < 16; i++)
		put(w, s->regs[order[i]]);
}

#define FORMAT3_SIZE 200

static void write_format3(struct writer *w, const struct pebs_sample *s)
{
	static const u8 order[16] = { RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP,
				      R8,  R9,	R10, R11, R12, R13, R14, R15 };

	put_regs(w, s, order);
	put(w, s->counters);
	put(w, s->address);
	put(w, s->source);
	put(w, s->latency);
	put(w, s->eventing_rip);
	put(w, 0); /* there are no transactions */
	put(w, s->tsc);
}

#define BASIC_SIZE  32
#define MEMORY_SIZE 32
#define GPRS_SIZE   144
#define XMMS_SIZE   256
#define BRANCH_SIZE 24

static u32 branches_of(u64 cfg)
{
	return cfg & PEBS_CFG_LBRS ? (u8)(cfg >> PEBS_CFG_LBR_SHIFT) + 1 : 0;
}

static u32 adaptive_size(u64 cfg)
{
	return BASIC_SIZE + (cfg & PEBS_CFG_MEMORY ? MEMORY_SIZE : 0) +
	       (cfg & PEBS_CFG_GPRS ? GPRS_SIZE : 0) + (cfg & PEBS_CFG_XMMS ? XMMS_SIZE : 0) +
	       branches_of(cfg) * BRANCH_SIZE;
}

/* From format 5 on: the latency of the access, and in the upper half that of the instruction. */
static u64 latency_field(u32 format, u64 latency)
{
	return format < 5 ? latency : latency << 32 | latency;
}

static void put_memory(struct writer *w, u32 format, const struct pebs_sample *s)
{
	put(w, s->address);
	put(w, s->source);
	put(w, latency_field(format, s->latency));
	put(w, 0);
}

static void put_gprs(struct writer *w, const struct pebs_sample *s)
{
	static const u8 order[16] = { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI,
				      R8,  R9,	R10, R11, R12, R13, R14, R15 };

	put_regs(w, s, order);
}

static void put_xmms(struct writer *w, const struct pebs_sample *s)
{
	for (u32 i = 0; i < 16; i++) {
		put(w, s->xmm[i][0]);
		put(w, s->xmm[i][1]);
	}
}

static void put_branches(struct writer *w, u32 n, const struct pebs_sample *s)
{
	static const struct pebs_branch none;

	for (u32 i = 0; i < n; i++) {
		const struct pebs_branch *branch = i < s->nbranches ? &s->branch[i] : &none;

		put(w, branch->from);
		put(w, branch->to);
		put(w, branch->info);
	}
}

static void write_adaptive(struct writer *w, u32 format, u64 cfg, const struct pebs_sample *s)
{
	put(w, (u64)adaptive_size(cfg) << 48 | (u32)cfg);
	put(w, s->eventing_rip);
	put(w, s->counters);
	put(w, s->tsc);
	if (cfg & PEBS_CFG_MEMORY)
		put_memory(w, format, s);
	if (cfg & PEBS_CFG_GPRS)
		put_gprs(w, s);
	if (cfg & PEBS_CFG_XMMS)
		put_xmms(w, s);
	put_branches(w, branches_of(cfg), s);
}

u32 pebs_record_size(u32 format, u64 cfg)
{
	return format < 4 ? FORMAT3_SIZE : adaptive_size(cfg);
}

u32 pebs_record_write(u8 out[PEBS_RECORD_MAX], u32 format, u64 cfg,
		      const struct pebs_sample *sample)
{
	struct writer w = { out };

	if (format < 4)
		write_format3(&w, sample);
	else
		write_adaptive(&w, format, cfg, sample);
	return w.p - out;
}
