// SPDX-License-Identifier: MIT
/*
 * Recording a branch (SDM 3B 17.4, 17.11, 18.1.2): the filter, the ring, the call stack. vCPU
 * thread, with guest vector state live.
 */
#include "hwpmu/branch.h"

static u64 both(const u64 tally[2])
{
	return tally[RETIRE_OS] + tally[RETIRE_USR];
}

static u64 visible_from(const struct branch_ring *ring, const struct branch *branch)
{
	return ring->hides_from && !ring->kinds[branch->before] ? ~0ull : branch->from;
}

static void push(struct branch_ring *ring, u64 cycles, const struct branch *branch)
{
	ring->top = (ring->top + 1) & ring->mask;
	ring->entry[ring->top] = (struct branch_entry){
		.from = branch->from,
		.to = branch->to,
		.cycles = cycles,
		.since = ring->cycles,
		.kind = branch->kind + 1,
		.missed = ring->missed,
	};
	ring->cycles = cycles;
}

static void pop(struct branch_ring *ring)
{
	ring->entry[ring->top] = (struct branch_entry){ 0 };
	ring->top = (ring->top - 1) & ring->mask;
}

/* SDM 3B 17.11.1: a call of the next instruction only finds out where it is; nothing returns from
 * it. */
static bool is_no_call(const struct branch_ring *ring, const struct branch *branch)
{
	return ring->call_stack && branch->kind == BRANCH_REL_CALL && branch->to == branch->next;
}

void branch_record(struct branch_ring *ring, const struct retire_tally *tally,
		   const struct branch *branch)
{
	struct branch visible = *branch;

	if (!(ring->kinds[branch->after] >> branch->kind & 1) || is_no_call(ring, branch))
		return;
	visible.from = visible_from(ring, branch);
	if (ring->call_stack && branch->kind == BRANCH_RET)
		pop(ring);
	else
		push(ring, both(tally->cycles), &visible);
}

/* --- the log --- */

struct notes {
	const struct branch_ring *ring;
	struct branch_log *log;
	const u8 *sites;
	u32 count_shift;
	u32 end, n; /* the last n in front of end */
	u32 lost;   /* how many were overwritten, but for multiples of the ring's size */
};

static struct branch_note *note_at(const struct notes *notes, u32 i)
{
	return &notes->log->note[(notes->end - notes->n + i) % BRANCH_NOTES];
}

static const struct branch_site *site_of(const struct notes *notes, const struct branch_note *note)
{
	return (const struct branch_site *)(notes->sites + note->site);
}

static u64 cycles_at(const struct notes *notes, const struct branch_note *note)
{
	return (u64)(note->count >> notes->count_shift) + (u64)note->stalls +
	       notes->ring->cycles_from - site_of(notes, note)->cycles_behind;
}

static bool canonical(u64 address)
{
	return (u64)((s64)(address << 16) >> 16) == address;
}

/* A jump or return to an address that is not canonical faults: it is the last that was noted. */
static bool faults(const struct notes *notes, const struct branch_note *note)
{
	const struct branch_site *site = site_of(notes, note);

	return site->indirect && site->kind != BRANCH_IND_CALL && !canonical(note->to);
}

static void settle_note(struct branch_ring *ring, const struct notes *notes,
			const struct branch_note *note)
{
	const struct branch_site *site = site_of(notes, note);
	struct branch branch = { .kind = site->kind,
				 .from = site->from,
				 .to = site->indirect ? note->to : site->to };

	if (ring->call_stack && site->no_call)
		return;
	if (ring->call_stack && site->kind == BRANCH_RET) {
		pop(ring);
		return;
	}
	ring->missed = note->missed_count == note->count && note->missed_from == site->from;
	push(ring, cycles_at(notes, note), &branch);
	ring->missed = 0;
}

/* The ring has room for the last ones only; the others leave nothing but its top and their time. */
static void skip_notes(struct branch_ring *ring, struct notes *notes)
{
	u32 depth = ring->mask + 1, skipped = notes->n - depth;

	if (notes->n <= depth || ring->call_stack)
		return;
	ring->top = (ring->top + notes->lost + skipped) & ring->mask;
	ring->cycles = cycles_at(notes, note_at(notes, skipped - 1));
	notes->n = depth;
}

/* What the model said of a branch that was not noted is behind the last one. */
static void clear_notes(struct branch_log *log, u32 n)
{
	for (u32 i = 0; i < BRANCH_NOTES && i <= n; i++) {
		log->note[i].site = 0;
		log->note[i].missed_count = 0;
	}
	log->at = 0;
}

void branch_settle(struct branch_ring *ring, struct branch_log *log, const u8 *sites,
		   u32 count_shift)
{
	u32 end = log->at / sizeof(struct branch_note);
	bool over = log->note[BRANCH_NOTES - 1].site;
	u32 n = over ? BRANCH_NOTES : end;
	struct notes notes = { ring, log, sites, count_shift, end, n, over ? end : 0 };

	if (n && faults(&notes, note_at(&notes, n - 1))) {
		notes.end--;
		notes.n--;
	}
	skip_notes(ring, &notes);
	for (u32 i = 0; i < notes.n; i++)
		settle_note(ring, &notes, note_at(&notes, i));
	clear_notes(log, n);
}
