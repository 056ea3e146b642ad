// SPDX-License-Identifier: MIT
/*
 * The jump cache: guest address to translated code, for indirect branches, returns and branches
 * between pages, and for how long an entry holds.
 *
 * The problem. priv->jump[] is looked up by translated code in a handful of host instructions,
 * which can compare two words and no more. But what an address means changes often: with the
 * address space, with page tables, with the mode (privilege, segments, what is counted), and when
 * code has been written. Emptying 64 K entries each time would cost more than the look-ups save.
 *
 * The idea. Entries are not removed, they are given a *key*: a generation and the index of a mode.
 * Everything that makes an address mean something else takes another generation (cpu/mmu/tlb.h),
 * and with it all old entries miss. The kernel's code and user code have a generation each; that of
 * user code is kept with its address space, so that a process finds its entries again after others
 * ran.
 *
 * Entries lead to pages that were compared with guest memory in this *epoch*; an epoch ends when
 * code may have been changed by another processor, the program or a device (SDM 3A 8.1.3). To keep
 * the entries over the end of an epoch, the pages they lead to are noted (engine->entered[]) and
 * compared; where that would cost more than it saves, a new generation is taken instead. An epoch
 * of the space that does not run begins when its code is next entered: translated code never leads
 * from one space to the other.
 *
 * Invariants, besides 1 to 4 of code_check.h:
 *
 *  1. A generation is never given twice within an *era*; keys have its low ERA_BITS bits. When
 *     those run out an era ends, and every holder of a generation is emptied: jump[] and return
 *     slots.
 *  2. The first generation of an era is given to nothing, so no key is 0 and an empty entry never
 *     matches.
 *  3. engine->entered[space] has every page that entries of the current generation lead to, or more
 *     than ENTERED_MAX were noted and the next epoch drops the entries. It is of one generation:
 *     entered->drops is priv->jump_drops[space], or the notes are void.
 *  4. An index of engine->modes[] stands for one mode until the array is full; then it is reused,
 *     and with that all entries are dropped.
 *
 * vCPU thread; general registers only.
 */
#include "base/bytes.h"
#include "cpu/mmu/tlb.h"
#include "engine/priv.h"

/*
 * When an epoch begins, the pages that jump[] leads to are compared now, so that its entries stay
 * valid; all others when they are next entered. But comparing a page costs as much as some
 * look-ups. If the pages outnumber the look-ups that keeping the entries will save, which is
 * estimated from those of the last epoch and from its length in instructions, dropping the entries
 * is cheaper.
 */
#define INSNS_PER_LOOKUP 64

static bool worth_comparing(struct cpu *cpu, enum space space)
{
	struct entered_pages *entered = &cpu->engine->entered[space];
	u64 now = cpu_retired(cpu);
	u64 saved = (now - entered->insns_at_epoch) / INSNS_PER_LOOKUP;

	entered->insns_at_epoch = now;
	if (saved > entered->lookups)
		saved = entered->lookups;
	return entered->n <= ENTERED_MAX && entered->n <= 2 * saved + 8;
}

/* Comparing waits for memory more than for anything else: what comes next is prefetched, first the
 * tables of pages, then their lines. */
#define TABLES_AHEAD 6
#define LINES_AHEAD  2

static void expect(const struct entered_pages *entered, u32 i)
{
	if (i + TABLES_AHEAD < entered->n)
		__builtin_prefetch(entered->page[i + TABLES_AHEAD].page);
	if (i + LINES_AHEAD < entered->n)
		cache_expect(entered->page[i + LINES_AHEAD].page,
			     entered->page[i + LINES_AHEAD].host);
}

static void begin(struct cpu *cpu, enum space space)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;
	struct entered_pages *entered = &eng->entered[space];

	eng->epoch_due[space] = false;
	eng->changed_epoch[space] = ++eng->epoch;
	if (entered->drops != priv->jump_drops[space])
		return; /* no entry is valid anyway */
	if (!worth_comparing(cpu, space))
		cpu_drop_jumps_of(cpu, space);
	for (u32 i = 0; i < entered->n && entered->drops == priv->jump_drops[space]; i++) {
		expect(entered, i);
		cache_verify(cpu, entered->page[i].page, entered->page[i].host);
	}
}

/* That of the other space waits until its code is next entered: several are then compared as one.
 */
void epoch_begin(struct cpu *cpu, enum space space)
{
	if (space == space_of(cpu))
		begin(cpu, space);
	else
		cpu->engine->epoch_due[space] = true;
}

void epoch_begin_due(struct cpu *cpu)
{
	if (unlikely(cpu->engine->epoch_due[space_of(cpu)]))
		begin(cpu, space_of(cpu));
}

void epoch_check(struct cpu *cpu)
{
	if (cpu_priv(cpu)->shared && !cache_check_shared(cpu))
		return;
	for (u32 space = 0; space < NSPACES; space++)
		epoch_begin(cpu, space);
}

void jump_note_page(struct cpu *cpu, struct code_page *page, const u8 *host)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	enum space space = space_of(cpu);
	struct entered_pages *entered = &cpu->engine->entered[space];

	if (entered->drops != priv->jump_drops[space])
		entered->n = entered->lookups = 0;
	entered->drops = priv->jump_drops[space];
	entered->lookups++;
	if (page->entered[space] == entered->drops)
		return;
	page->entered[space] = entered->drops;
	if (entered->n < ENTERED_MAX)
		entered->page[entered->n] = (struct entered_page){ page, host };
	if (entered->n <= ENTERED_MAX)
		entered->n++;
}

/* Links to that page are followed from now on. When numbers have run out, those to pages that are
 * new are not made any more. */
void jump_note_mapping(struct cpu *cpu, struct code_page *page, const struct block *block)
{
	struct engine *eng = cpu->engine;
	u64 linear = block->rip & PAGE_MASK;

	if (!(block->mode & MODE_CODE64))
		return;
	if (!page->mapping || page->linear != linear) {
		page->linear = linear;
		page->mapping = eng->last_mapping < UINT32_MAX ? ++eng->last_mapping : 0;
	}
	if (page->mapping)
		tlb_note_mapped(&cpu_priv(cpu)->mapped[mode_space(block->mode)],
				mapped_place(linear), page->mapping);
}

/*
 * Keys, invariants 1 and 2.
 */

#define ERA_BITS      28
#define KEY_MODE_BITS 4

static u64 era_of(u64 generation)
{
	return generation >> ERA_BITS;
}

/* The first generation of an era is given to nothing, so that no key is 0. */
static u32 key_of(u64 generation, u32 mode)
{
	return (u32)generation << KEY_MODE_BITS | mode;
}

/* Processes that use the same addresses, and modes of one address, have their entries in different
 * places of jump[]. */
static u32 spread_of(u32 key)
{
	return key * 0x9e3779b1u >> 15 & (JUMP_SIZE - 1) << 1;
}

static struct jump_entry *entry_of(struct cpu *cpu, u64 rip, u32 key)
{
	return &cpu_priv(cpu)->jump[cpu_jump_index(rip, spread_of(key))];
}

void jump_clear(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	bytes_fill(priv->jump, 0, sizeof(priv->jump));
}

/* eng->nmodes: not found. */
static u32 find_mode(const struct engine *eng, u32 mode)
{
	u32 i = 0;

	while (i < eng->nmodes && eng->modes[i] != mode)
		i++;
	return i;
}

static u32 mode_index(struct cpu *cpu, u32 mode)
{
	struct engine *eng = cpu->engine;
	u32 *last = &eng->last_mode[mode_space(mode)]; /* kernel and user take turns */

	if (likely(*last < eng->nmodes && eng->modes[*last] == mode))
		return *last;
	*last = find_mode(eng, mode);
	if (*last < eng->nmodes)
		return *last;
	if (eng->nmodes == ARRAY_SIZE(eng->modes)) {
		eng->nmodes = 0;
		cpu_drop_jumps(cpu);
	}
	*last = eng->nmodes++;
	eng->modes[*last] = mode;
	return *last;
}

void returns_invalidate(struct engine *eng)
{
	for (u32 set = 0; set < NTLBS; set++)
		eng->returns_key[set] = NO_KEY;
}

static void returns_validate(struct cpu *cpu, u32 mode)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;
	enum tlb_set set = cpu_tlb_set(mode);

	if (likely(eng->returns_key[set] == priv->jump_key))
		return;
	for (u32 i = 0; i < RETURN_SLOTS; i++)
		priv->returns[set][i] = exec_view(eng, eng->jump_lookup);
	eng->returns_key[set] = priv->jump_key;
}

/* Invariant 1. Generations are numbered by cpu/mmu/tlb.h, which does not know of eras. */
static void begin_era(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;

	priv->last_jump = era_of(priv->last_jump) << ERA_BITS;
	cpu_drop_jumps(cpu);
	jump_clear(cpu);
	returns_invalidate(eng);
	eng->era = era_of(priv->last_jump);
}

void jump_update_key(struct cpu *cpu, u32 mode)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;
	u32 index = mode_index(cpu, mode);

	if (unlikely(eng->era != era_of(priv->last_jump)))
		begin_era(cpu);
	priv->jump_key = key_of(priv->jump_generation[mode_space(mode)], index);
	priv->jump_spread = spread_of(priv->jump_key);
	returns_validate(cpu, mode);
}

u32 jump_mode(const struct cpu *cpu)
{
	return cpu->engine->modes[cpu_priv(cpu)->jump_key & (BIT(KEY_MODE_BITS) - 1)];
}

bool jump_pages_current(const struct cpu *cpu)
{
	enum space space = space_of(cpu);

	return cpu->engine->entered[space].drops == cpu_priv(cpu)->jump_drops[space];
}

void jump_insert(struct cpu *cpu, const struct block *block)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;

	if (eng->profile)
		return; /* every block is looked for: profile.h */
	if (!jump_pages_current(cpu))
		return; /* the entries have just been dropped */
	*entry_of(cpu, cpu->rip, priv->jump_key) =
		(struct jump_entry){ cpu->rip, priv->jump_key, block->code - eng->code_rw };
}

const void *jump_find(struct cpu *cpu, u32 mode)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct jump_entry *entry;

	jump_update_key(cpu, mode);
	entry = entry_of(cpu, cpu->rip, priv->jump_key);
	if (entry->rip != cpu->rip || entry->key != priv->jump_key)
		return NULL;
	return cpu->engine->code_rx + entry->code;
}

static void remove_entry(struct cpu *cpu, const struct block *block, u64 generation, u32 mode)
{
	u32 key = key_of(generation, mode);
	struct jump_entry *entry = entry_of(cpu, block->rip, key);

	if (entry->rip == block->rip && entry->key == key)
		*entry = (struct jump_entry){ 0 };
}

/* User code may have entries in each address space whose generation is kept. */
void jump_remove(struct cpu *cpu, const struct block *block)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u32 mode = find_mode(cpu->engine, block->mode);

	if (mode == cpu->engine->nmodes)
		return;
	remove_entry(cpu, block, priv->jump_generation[mode_space(block->mode)], mode);
	if (mode_space(block->mode) == SPACE_OS)
		return;
	for (u32 i = 0; i < SPACES_KEPT; i++)
		if (priv->kept_spaces[i].jump_generation)
			remove_entry(cpu, block, priv->kept_spaces[i].jump_generation, mode);
}
