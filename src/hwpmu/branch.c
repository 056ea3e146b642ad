// SPDX-License-Identifier: MIT
/*
 * Recording branches (SDM 3B 17.4, 17.11, 18.1.2) in the ring of branch.h: one that C code reports,
 * through the filter and the call stack; and those that translated code has noted in the log, after
 * it checked the filter. Touches ring and log only. vCPU thread, with guest vector state live.
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

static void push(struct branch_ring *ring, u64 ticks, const struct branch *branch)
{
	ring->top = (ring->top + 1) & ring->mask;
	ring->entry[ring->top] = (struct branch_entry){
		.from = branch->from,
		.to = branch->to,
		.ticks = ticks,
		.since = ring->ticks,
		.kind = branch->kind + 1,
		.missed = ring->missed,
	};
	ring->ticks = ticks;
}

static void pop(struct branch_ring *ring)
{
	ring->entry[ring->top] = (struct branch_entry){ 0 };
	ring->top = (ring->top - 1) & ring->mask;
}

/* SDM 3B 17.11.1: a call to the next instruction only loads its own address; no return
 * matches it. */
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
	struct branch_ring *ring;
	const struct branch_log *log;
	const u8 *meta;
	u8 linear_bits;
	u32 end;      /* position after the last one, before it is reduced to the ring's size */
	bool faulted; /* the last branch of the last one */
};

static const struct branch_note *note_at(const struct notes *notes, u32 i)
{
	return &notes->log->note[i % BRANCH_NOTES];
}

static const struct branch_path *path_of(const u8 *meta, const struct branch_note *note)
{
	return (const struct branch_path *)(meta + note->path);
}

static const struct branch_site *sites_of(const u8 *meta, const struct branch_path *path)
{
	return (const struct branch_site *)(meta + path->sites);
}

/* How many branches in the block's middle precede this instruction. */
static u32 sites_before(const u8 *meta, const struct branch_note *note, u32 index)
{
	const struct branch_path *path = path_of(meta, note);
	const struct branch_site *sites = sites_of(meta, path);
	u32 n = path->n;

	while (n && sites[n - 1].index >= index)
		n--;
	return n;
}

static u32 first_site(const u8 *meta, const struct branch_note *note)
{
	return note->first ? sites_before(meta, note, note->first) : 0;
}

static u32 passed(const u8 *meta, const struct branch_note *note)
{
	if (!note->upto)
		return path_of(meta, note)->n;
	return sites_before(meta, note, note->upto) - first_site(meta, note);
}

static u32 branches_at(const struct notes *notes, u32 i)
{
	const struct branch_note *note = note_at(notes, i);
	bool faulted = notes->faulted && i + 1 == notes->end;

	return passed(notes->meta, note) + (path_of(notes->meta, note)->ends && !faulted);
}

static const struct branch_site *site_at(const struct notes *notes, u32 i, u32 j)
{
	const struct branch_path *path = path_of(notes->meta, note_at(notes, i));

	j += first_site(notes->meta, note_at(notes, i));
	return j < path->n ? &sites_of(notes->meta, path)[j] : &path->last;
}

static u64 ticks_at(const struct notes *notes, u32 i, u32 j)
{
	return (u64)note_at(notes, i)->ticks + notes->ring->ticks_from -
	       site_at(notes, i, j)->ticks_after;
}

static bool canonical(const struct notes *notes, u64 address)
{
	u32 unused = 64 - notes->linear_bits;

	return (u64)((s64)(address << unused) >> unused) == address;
}

/* A jump or return to an address that is not canonical faults: it is the last that was noted. */
static bool faults(const struct notes *notes)
{
	const struct branch_note *note = note_at(notes, notes->end - 1);
	const struct branch_path *path = path_of(notes->meta, note);

	return path->ends && path->last.indirect && path->last.kind != BRANCH_IND_CALL &&
	       !canonical(notes, note->to);
}

static bool missed(const struct notes *notes, u32 i, const struct branch_site *site)
{
	const struct branch_verdict *verdict = &notes->log->verdict[i % BRANCH_NOTES];

	if (site->outcome != BRANCH_UNNOTED)
		return !verdict->predicted[site->outcome];
	return verdict->missed_count == note_at(notes, i)->count &&
	       verdict->missed_from == site->from;
}

static void settle_branch(const struct notes *notes, u32 i, u32 j)
{
	const struct branch_site *site = site_at(notes, i, j);
	struct branch_ring *ring = notes->ring;
	struct branch branch = { .kind = site->kind,
				 .from = site->from,
				 .to = site->indirect ? note_at(notes, i)->to : site->to };

	if (ring->call_stack && site->no_call)
		return;
	if (ring->call_stack && site->kind == BRANCH_RET) {
		pop(ring);
		return;
	}
	ring->missed = missed(notes, i, site);
	push(ring, ticks_at(notes, i, j), &branch);
	ring->missed = 0;
}

/* Ticks at the last branch before a note. */
static u64 ticks_before(const struct notes *notes, u32 i)
{
	return ticks_at(notes, i - 1, branches_at(notes, i - 1) - 1);
}

/*
 * The ring keeps the last branches only. Of earlier ones, including overwritten notes, only the
 * move of the ring's top and the cycles of the last one matter.
 */
static void settle_last(const struct notes *notes, u32 records)
{
	struct branch_ring *ring = notes->ring;
	u32 depth = ring->mask + 1, begin = notes->end, n = 0, skip;

	while (begin && n < depth)
		n += branches_at(notes, --begin);
	skip = n > depth ? n - depth : 0;
	ring->top = (ring->top + records - (n - skip)) & ring->mask;
	if (skip)
		ring->ticks = ticks_at(notes, begin, skip - 1);
	else if (begin)
		ring->ticks = ticks_before(notes, begin);
	for (u32 i = begin; i < notes->end; i++, skip = 0)
		for (u32 j = skip; j < branches_at(notes, i); j++)
			settle_branch(notes, i, j);
}

/* All of them: none was overwritten. */
static void settle_stack(const struct notes *notes)
{
	for (u32 i = 0; i < notes->end; i++)
		for (u32 j = 0; j < branches_at(notes, i); j++)
			settle_branch(notes, i, j);
}

/* The next visit to translated code may repeat these counts. */
static void forget_misses(struct branch_log *log)
{
	for (u32 i = 0; log->missed && i < BRANCH_NOTES; i++)
		log->verdict[i].missed_count = 0;
	log->missed = false;
}

void branch_note_part(struct branch_log *log, const u8 *meta, const struct branch_note *note)
{
	u32 n = passed(meta, note);

	if (!n)
		return;
	log->note[branch_next_note(log)] = *note;
	log->at += branch_step(n);
}

void branch_settle(struct branch_ring *ring, struct branch_log *log, const u8 *meta, u8 linear_bits)
{
	struct notes notes = { .ring = ring,
			       .log = log,
			       .meta = meta,
			       .linear_bits = linear_bits,
			       .end = (log->at & (u32)MASK(BRANCH_SHIFT - 1, 0)) / BRANCH_STEP };

	notes.faulted = notes.end && faults(&notes);
	if (ring->call_stack)
		settle_stack(&notes);
	else
		settle_last(&notes, (log->at >> BRANCH_SHIFT) - notes.faulted);
	forget_misses(log);
	log->at = 0;
}
