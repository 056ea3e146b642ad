// SPDX-License-Identifier: MIT
/*
 * Counting: how a run ends at the very instruction it has to end at, and every retired instruction
 * gets into the tallies once.
 *
 * The problem. engine_run() may retire at most `budget` instructions, and it has to stop after the
 * instruction with which a counter overflows (a *trip*, cpu->port.trips). Translated code cannot
 * ask before each instruction: a block adds its counts once, at its head, before any of its
 * instructions has run, and may be left in the middle.
 *
 * The idea. The budget is handed out in *slices*. A slice is short enough that no trip lies inside
 * it, so that within one slice a block has to test signs and guard bits only:
 *
 *   instructions   the countdown (priv.h) starts at minus the slice
 *   packed classes a field of priv->packed[] starts `distance` below its guard bit (count_pack.h)
 *   other classes  priv->live[class] starts at minus the distance to the trip
 *
 * What is left of branches bounds the slice until few are, and is counted apart from then on. A
 * block that would overdraw the slice or reach a trip is left at its head, with nothing of it
 * executed, and takes its counts back (count_refund_block(), place_refund_weights()). Then the
 * approach gets finer: a slice up to the block's instruction that trips, run in blocks of one
 * instruction (eng->single_insns, MODE_SINGLE), and at last, where a sample has to describe it,
 * that instruction by itself (eng->single_step). What a block was charged and did not execute
 * because it was left in the middle is refunded by unwind.c.
 *
 * Invariants, which the code cites by number:
 *
 *  1. While eng->counting, the tallies plus the difference between the counts and the values they
 *     started from (eng->slice, eng->live_start[], eng->packed_start[]) are what has retired. Else
 *     the tallies are, and the counts mean nothing. count_flush() goes from one to the other.
 *  2. eng->budget plus what is left of the slice is what may still retire in this run. They change
 *     together.
 *  3. A slice is no longer than the distance to the nearest trip of instructions, nor than the
 *     share of branches. What has used up its share ends the slice, not the run.
 *  4. When a block begins, every counted class of priv->live[] is negative and no guard is set. A
 *     sign or a guard says that a trip was reached or that a field is full; count_may_run() finds
 *     out which, before guest code is entered again.
 *  5. Distances are those of one privilege. A slice outlives a change of privilege only if all
 *     trips count both (eng->trips_span_privileges).
 *  6. Blocks that run count the classes that start() began: those of eng->counting_mode.
 *  7. With cpu->port.precise, the instruction that reaches a trip runs in a block that stores its
 *     address (cpu->port.last_rip). A slice that ends at a trip therefore ends one instruction
 *     early (eng->stops_before_trip), until blocks of one instruction run.
 *
 * vCPU thread; general registers only.
 */
#include "engine/runtime/count.h"

#include "base/bytes.h"
#include "engine/count_pack.h"

#define BRANCH_MASK (BIT(COUNT_SHIFT) - 1)
#define FAR_AWAY    BIT(62) /* nothing is counted up to this in one slice */

/* Counting so many branches twice costs about as much as starting one more slice. */
#define BRANCHES_NEAR 1024

static u64 least(u64 a, u64 b)
{
	return a < b ? a : b;
}

static u64 up_to(u64 trip, u64 now)
{
	return trip > now ? trip - now : 0;
}

/*
 * Occurrences up to the class's nearest trip while the privilege stays the same (invariant 5). 0 if
 * a trip was reached: by the instruction that changed the privilege it may be one of the other.
 */
static inline u64 distance(const struct cpu *cpu, enum retire_class class,
			   enum retire_privilege privilege)
{
	const u64 *trip = cpu->port.trips.at[class];
	u64 os, usr, to_os, to_usr;

	if (!(cpu->port.trips.armed & RETIRE_BIT(class)))
		return FAR_AWAY;
	os = retire_count(&cpu->port.tally, class, RETIRE_OS);
	usr = retire_count(&cpu->port.tally, class, RETIRE_USR);
	to_os = up_to(trip[RETIRE_IN_OS], os);
	to_usr = up_to(trip[RETIRE_IN_USR], usr);
	if (!to_os || !to_usr)
		return 0;
	return least(FAR_AWAY, least(privilege == RETIRE_OS ? to_os : to_usr,
				     up_to(trip[RETIRE_IN_BOTH], os + usr)));
}

static void start_class(struct cpu *cpu, enum retire_class class, u64 distance)
{
	cpu_priv(cpu)->live[class] = cpu->engine->live_start[class] = -(s64)distance;
}

static void set_guards(struct cpu *cpu, u32 bits)
{
	u64 guards = 0;

	for (u32 i = 0; i < PACK_FIELDS && pack_shift(bits, i) + bits <= 64; i++)
		guards |= pack_guard(bits) << pack_shift(bits, i);
	cpu_priv(cpu)->guards = guards;
}

static void start_packed(struct cpu *cpu, enum retire_privilege privilege)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;
	retire_wanted set = cpu_packs(cpu, priv->mode);
	u32 bits = pack_bits(set), number = 0;
	u64 *words = priv->packed, guard = pack_guard(bits);

	if (!(set | eng->packed_classes))
		return;
	if (set != eng->packed_classes)
		set_guards(cpu, bits);
	eng->packed_classes = set;
	for (u32 i = 0; i < PACK_WORDS; i++)
		words[i] = 0;
	for (retire_wanted left = set; left; number++) {
		u64 most =
			least(guard - PACK_ROOM, distance(cpu, count_next_class(&left), privilege));

		words[number / PACK_FIELDS] |= (guard - most) << pack_shift(bits, number);
	}
	for (u32 i = 0; i < PACK_WORDS; i++)
		eng->packed_start[i] = words[i];
}

static void set_slice(struct cpu *cpu, u64 slice)
{
	cpu->engine->slice = slice;
	cpu_priv(cpu)->spill[SPILL_R14] = -((slice + 1) << COUNT_SHIFT);
}

/* Interrupts are counted by C alone: no class of priv->live[] tells of their trip. */
static bool at_trip(const struct cpu *cpu, enum retire_privilege privilege)
{
	return !distance(cpu, RETIRE_INTERRUPTS, privilege);
}

/* Branch records have the time up to them: that of the tallies, and what is live since. */
static void start_records(struct cpu *cpu)
{
	const u64 *ticks = cpu->port.tally.cycles;

	cpu->branches.ticks_from =
		ticks[RETIRE_OS] + ticks[RETIRE_USR] - cpu->engine->live_start[RETIRE_CYCLES];
}

/* One count serves both kinds of cycles. */
static u64 live_distance(const struct cpu *cpu, enum retire_class class,
			 enum retire_privilege privilege)
{
	u64 n = distance(cpu, class, privilege);

	return class == RETIRE_CYCLES ? least(n, distance(cpu, RETIRE_REF_CYCLES, privilege)) : n;
}

/*
 * The countdown holds the branches, but its sign tells of instructions only. Far from a trip of
 * branches a slice is as short as if each instruction were one; near it, code counts branches in
 * priv->live[] as well.
 */
static u64 share_branches(struct cpu *cpu, enum retire_privilege privilege)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 branches = distance(cpu, RETIRE_BRANCHES, privilege);
	bool packed = cpu_packs(cpu, priv->mode) & RETIRE_BIT(RETIRE_BRANCHES);
	bool near = !packed && branches <= BRANCHES_NEAR;

	if (near != priv->branch_trip_near) {
		priv->branch_trip_near = near;
		cpu_update_mode(cpu);
	}
	return near || packed ? FAR_AWAY : branches - BRANCHES_NEAR;
}

/* What an instruction did in the timing model is known only if it is executed by itself. Without
 * the model, blocks of one instruction are enough: they store its address. */
static bool alone(const struct cpu *cpu)
{
	return cpu->port.precise && mode_observes(cpu_priv(cpu)->mode);
}

/* Invariant 7: blocks that do not store addresses stop one instruction before a trip. */
static void stop_before_trip(struct cpu *cpu, u64 trip)
{
	struct engine *eng = cpu->engine;

	eng->stops_before_trip = eng->single_insns = false;
	if (!cpu->port.precise)
		return;
	if (alone(cpu))
		eng->single_step |= eng->slice == 1; /* also one that is a block of its own */
	else if (eng->slice == 1)
		eng->single_insns = true;
	else
		eng->stops_before_trip = eng->slice && eng->slice == trip && eng->budget;
}

static void start(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	enum retire_privilege privilege = cpu_privilege(cpu);
	struct engine *eng = cpu->engine;
	u64 trip = distance(cpu, RETIRE_INSTRUCTIONS, privilege);
	u64 share = share_branches(cpu, privilege);

	start_packed(cpu, privilege);
	eng->live_classes = (cpu_counts(cpu, priv->mode) & ~eng->packed_classes) |
			    (mode_observes(priv->mode) & cpu->port.wanted);
	for (retire_wanted left = eng->live_classes; left;) {
		enum retire_class class = count_next_class(&left);

		start_class(cpu, class, live_distance(cpu, class, privilege));
	}
	eng->last_slice = trip <= share;
	trip = least(trip, share);
	if (cpu->port.precise && trip > 1)
		trip--;
	set_slice(cpu, at_trip(cpu, privilege) ? 0 : least(least(eng->budget, SLICE_MAX), trip));
	eng->last_slice &= eng->slice < SLICE_MAX;
	eng->budget -= eng->slice;
	eng->counting = true;
	eng->counting_mode = priv->mode & MODE_COUNTING;
	stop_before_trip(cpu, trip);
	start_records(cpu);
}

static void add(struct cpu *cpu, enum retire_class class, enum retire_privilege privilege, u64 n)
{
	cpu_tally(cpu, privilege, RETIRE_BIT(class), n);
}

/* All but the branches, which are in the countdown, too. */
static void flush_packed(struct cpu *cpu, enum retire_privilege privilege)
{
	const struct engine *eng = cpu->engine;
	u32 bits = pack_bits(eng->packed_classes), number = 0;

	for (retire_wanted left = eng->packed_classes; left; number++) {
		enum retire_class class = count_next_class(&left);
		s64 grown = pack_field(cpu_priv(cpu)->packed, bits, number) -
			    pack_field(eng->packed_start, bits, number);

		if (class != RETIRE_BRANCHES)
			add(cpu, class, privilege, grown);
	}
}

static void add_all(struct cpu *cpu, enum retire_privilege privilege)
{
	struct engine *eng = cpu->engine;
	u64 left = count_slice_left(cpu);

	add(cpu, RETIRE_INSTRUCTIONS, privilege, eng->slice - left);
	add(cpu, RETIRE_BRANCHES, privilege, cpu_priv(cpu)->spill[SPILL_R14] & BRANCH_MASK);
	for (retire_wanted classes = eng->live_classes & ~RETIRE_BIT(RETIRE_BRANCHES); classes;) {
		enum retire_class class = count_next_class(&classes);

		add(cpu, class, privilege, count_grown(cpu, class));
	}
	if (eng->live_classes & RETIRE_BIT(RETIRE_CYCLES))
		add(cpu, RETIRE_REF_CYCLES, privilege, count_grown(cpu, RETIRE_CYCLES));
	flush_packed(cpu, privilege);
}

void count_flush(struct cpu *cpu, enum retire_privilege privilege)
{
	struct engine *eng = cpu->engine;

	if (!eng->counting)
		return;
	add_all(cpu, privilege);
	eng->budget += count_slice_left(cpu);
	eng->counting = false;
	set_slice(cpu, 0);
}

/* Invariant 5. A trip that counts both privileges is as far away after the change. */
static bool may_keep_slice(const struct cpu *cpu, enum retire_privilege privilege)
{
	const struct engine *eng = cpu->engine;

	return !cpu->port.precise && !eng->single_insns &&
	       (privilege == cpu_privilege(cpu) || eng->trips_span_privileges);
}

void count_flush_keeping_slice(struct cpu *cpu, enum retire_privilege privilege)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;

	if (!eng->counting || !may_keep_slice(cpu, privilege)) {
		count_flush(cpu, privilege);
		return;
	}
	add_all(cpu, privilege);
	set_slice(cpu, count_slice_left(cpu));
	for (retire_wanted left = eng->live_classes; left;) {
		enum retire_class class = count_next_class(&left);

		eng->live_start[class] = priv->live[class];
	}
	for (u32 i = 0; eng->packed_classes && i < PACK_WORDS; i++)
		eng->packed_start[i] = priv->packed[i];
}

u64 count_cycles(const struct cpu *cpu)
{
	return count_ticks(cpu) / TICKS_PER_CYCLE;
}

void count_renew_sets(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	if (likely(!priv->count_sets[COUNT_SETS - 1]))
		return;
	cache_flush(cpu);
	bytes_fill(priv->count_sets, 0, sizeof(priv->count_sets));
	priv->count_set = 0;
	cpu_update_mode(cpu);
}

void count_rearm(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;

	eng->trips_span_privileges = true;
	for (retire_wanted left = cpu->port.trips.armed; left;) {
		const u64 *trip = cpu->port.trips.at[count_next_class(&left)];

		eng->trips_span_privileges &=
			trip[RETIRE_IN_OS] == RETIRE_NEVER && trip[RETIRE_IN_USR] == RETIRE_NEVER;
	}
}

void count_begin(struct cpu *cpu, u64 budget)
{
	struct engine *eng = cpu->engine;

	eng->budget = budget;
	eng->effort_start = cpu->port.effort;
	eng->effort_limit = least(budget, FAR_AWAY) + (cpu->port.may_end_early ? 0 : ENGINE_EFFORT);
	eng->single_step = false;
	eng->budget_exhausted = false;
	eng->finish_insn = false;
	eng->counting = false;
	set_slice(cpu, 0);
	count_rearm(cpu);
}

void count_end_timed(struct cpu *cpu)
{
	cpu->engine->budget_exhausted |= cpu_run_is_timed(cpu);
}

bool count_trip_reached(const struct cpu *cpu)
{
	enum retire_privilege privilege = cpu_privilege(cpu);

	for (retire_wanted left = cpu->port.trips.armed; left;)
		if (!distance(cpu, count_next_class(&left), privilege))
			return true;
	return false;
}

bool count_may_run(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;

	if (eng->counting && (!count_slice_left(cpu) || count_at_trip(cpu) ||
			      eng->counting_mode != (cpu_priv(cpu)->mode & MODE_COUNTING)))
		count_flush(cpu, cpu_privilege(cpu)); /* maybe only a share is used up */
	if (!eng->counting) {
		if (count_trip_reached(cpu))
			return false;
		start(cpu);
	}
	return count_slice_left(cpu) && !eng->budget_exhausted && !count_at_trip(cpu);
}

bool count_stops_here(struct cpu *cpu)
{
	return READ_ONCE(cpu->attention) || !count_may_run(cpu);
}

void count_refund(struct cpu *cpu, u32 mode, bool branch, const struct weight *weight)
{
	cpu_priv(cpu)->spill[SPILL_R14] -= BIT(COUNT_SHIFT) + branch;
	weight_refund(cpu, mode, weight);
}

void count_one_retired(struct cpu *cpu)
{
	cpu->engine->budget--;
}

void count_refund_block(struct cpu *cpu, const struct block *block)
{
	cpu_priv(cpu)->spill[SPILL_R14] -= ((u64)block->ninsns << COUNT_SHIFT) + block->nbranches;
}

/* Blocks of one instruction are next, so the slice may include the instruction that trips. */
static void use_single_insns(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;

	eng->single_insns = true;
	if (!eng->stops_before_trip)
		return;
	eng->stops_before_trip = false;
	eng->budget--;
	eng->slice++;
	cpu_priv(cpu)->spill[SPILL_R14] -= BIT(COUNT_SHIFT);
}

static u64 up_to_trip(const struct cpu *cpu)
{
	return distance(cpu, RETIRE_INSTRUCTIONS, cpu_privilege(cpu));
}

bool count_next_slice(struct cpu *cpu, const struct block *block)
{
	struct engine *eng = cpu->engine;
	bool used_up = (s64)cpu_priv(cpu)->spill[SPILL_R14] >= 0;

	count_refund_block(cpu, block);
	if (!used_up)
		return false;
	if (!eng->last_slice) {
		count_flush(cpu, cpu_privilege(cpu));
		start(cpu);
	}
	if (block->ninsns <= count_slice_left(cpu))
		return true;
	if (cpu->port.may_end_early && !eng->budget && up_to_trip(cpu) > eng->slice)
		eng->budget_exhausted = true;
	else
		use_single_insns(cpu);
	return true;
}

/* How many instructions of the block precede the one that reaches the class's trip, or may reach
 * it: which way a conditional branch at the block's end will go is not known. */
static u32 before_class(const struct block *block, enum retire_class class, s64 live)
{
	for (u32 i = 0; i < block->ninsns; i++) {
		u32 weight = weight_of(&block->weights[i], class);

		live += weight;
		if (weight && live >= 0)
			return i;
	}
	return block->ninsns;
}

static u32 before_trip(const struct cpu *cpu, const struct block *block)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	retire_wanted packs = cpu_packs(cpu, block->mode);
	u32 n = block->ninsns, bits = pack_bits(packs), number = 0;

	for (retire_wanted left = packs; left; number++) {
		enum retire_class class = count_next_class(&left);
		s64 live = pack_field(priv->packed, bits, number) - (s64)pack_guard(bits);

		if (live >= -(s64)BLOCK_INSNS)
			n = least(n, before_class(block, class, live));
	}
	for (retire_wanted left = cpu_counts(cpu, block->mode) & ~packs; left;) {
		enum retire_class class = count_next_class(&left);

		n = least(n, before_class(block, class, priv->live[class]));
	}
	return n;
}

/* Nothing of the slice has been used. */
static void shorten_slice(struct cpu *cpu, u64 slice)
{
	struct engine *eng = cpu->engine;

	if (slice >= eng->slice)
		return;
	eng->budget += eng->slice - slice;
	set_slice(cpu, slice);
	eng->stops_before_trip = false;
}

void count_stop_at_trip(struct cpu *cpu, const struct block *block)
{
	struct engine *eng = cpu->engine;
	u32 before;

	place_refund_weights(cpu, block, 0);
	count_flush(cpu, cpu_privilege(cpu));
	start(cpu);
	before = before_trip(cpu, block);
	if (before == block->ninsns)
		return;
	if (before)
		shorten_slice(cpu, before);
	else
		eng->single_step = true;
	eng->single_insns = true;
}
