// SPDX-License-Identifier: MIT
/*
 * Branch prediction of the timing model, but for conditional branches (tage.c): indirect branches
 * that are sure (predict.h), the return stack, jumps. Direct branches are known at decode and never
 * mispredicted. Far branches are not predicted, and not part of the path. predict_init() is here
 * for all three files of the predictor. vCPU thread; general registers only.
 */
#include "base/bytes.h"
#include "timing/timing.h"

static struct history history_of(u8 length, u8 bits)
{
	struct history h = { .factor = HASH_FACTOR, .mask = (1u << bits) - 1, .length = length };

	while (length--)
		h.factor *= PATH_FACTOR;
	return h;
}

void predict_init(struct predict *p, const struct predict_params *params)
{
	p->params = params;
	p->shift_register = 1;
	for (u32 i = 0; i < params->tables; i++)
		p->history[i] = history_of(params->length[i], params->bits[i]);
	for (u32 i = 0; i < params->target_tables; i++)
		p->target_history[i] = history_of(params->target_length[i], params->target_bits);
}

static void outcome(struct timing *t, bool wrong, enum retire_class class)
{
	t->seen.mispredicted = wrong;
	t->count[RETIRE_BRANCH_MISSES] += wrong;
	t->count[RETIRE_TAKEN_MISSES] += wrong;
	t->count[class] += wrong;
}

/* --- targets --- */

static bool target_missed(struct predict *p, u64 from, u64 to)
{
	struct sure_target *s = &p->sure_target[predict_target_place(from)];
	u64 last = s->last, sure = s->sure;

	if (sure == to)
		return false;
	s->run = last == to ? s->run + 1 : 1;
	s->last = to;
	s->sure = s->run == SURE_AFTER ? to : 0;
	return sure || ittage_missed(p, from, to, last);
}

bool timing_indirect(struct timing *t, u64 from, u64 to)
{
	bool wrong = target_missed(&t->predict, from, to);

	predict_taken(&t->predict, from, to, true);
	outcome(t, wrong, RETIRE_INDIRECT_MISSES);
	return wrong;
}

void timing_jump(struct timing *t, u64 from, u64 to)
{
	predict_taken(&t->predict, from, to, true);
}

/* --- returns --- */

static u64 *return_at(struct predict *p, u32 below)
{
	return &p->rsb[(u8)(p->rsb_top - below * sizeof(u64)) / sizeof(u64)];
}

/* A full stack loses its oldest entry. */
void timing_call(struct timing *t, u64 next)
{
	struct predict *p = &t->predict;

	p->rsb_top += sizeof(u64);
	*return_at(p, p->params->returns) = 0;
	*return_at(p, 0) = next;
}

static bool return_missed(struct predict *p, u64 from, u64 to)
{
	u64 *entry = return_at(p, 0), next = *entry;

	*entry = 0;
	p->rsb_top -= sizeof(u64);
	if (!next && p->params->falls_back)
		return ittage_missed(p, from, to, 0);
	return next != to;
}

bool timing_return(struct timing *t, u64 from, u64 to)
{
	bool wrong = return_missed(&t->predict, from, to);

	predict_taken(&t->predict, from, to, true);
	outcome(t, wrong, RETIRE_RETURN_MISSES);
	return wrong;
}

void timing_forget_branches(struct timing *t)
{
	struct predict *p = &t->predict;

	bytes_fill(p->sure_target, 0, sizeof(p->sure_target));
	bytes_fill(p->ittage, 0, sizeof(p->ittage));
	bytes_fill(p->rsb, 0, sizeof(p->rsb));
}
