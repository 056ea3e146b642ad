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
 * Mostly an address still means what it did. An entry also has the number of the *mapping* by which
 * its page was found, of a linear page to a physical one. Once code of that page was looked up in
 * the new generation, and found to be mapped and to have the bytes that it had, its other entries
 * are *renewed* when they miss: they get the new key. So a program that is started again looks up
 * each page, and not each block.
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
 *     and with that jump[] is emptied.
 *  5. An entry is renewed only for its mode, and while priv->mapped[] has the number of its
 *     mapping: in the current generation a block on that page was found through it, and so the page
 *     was verified and noted (invariant 3), as for a link (code_check.h, invariant 5). The entry of
 *     a block of two pages has none.
 *
 * vCPU thread; general registers only.
 */
#include "base/bytes.h"
#include "cpu/mmu/tlb.h"
#include "engine/jump_cache.h"
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

static struct code_mapping *find_mapping(struct code_page *page, u64 linear)
{
	for (u32 i = 0; i < CODE_MAPPINGS; i++)
		if (page->mapping[i].number && page->mapping[i].linear == linear)
			return &page->mapping[i];
	return NULL;
}

static struct code_mapping *add_mapping(struct engine *eng, struct code_page *page, u64 linear)
{
	struct code_mapping *mapping;

	if (eng->last_mapping == UINT32_MAX)
		return NULL;
	mapping = &page->mapping[page->next_mapping++ % CODE_MAPPINGS];
	*mapping = (struct code_mapping){ linear, ++eng->last_mapping };
	return mapping;
}

/* Links and entries that lead to that page are followed from now on. When numbers have run out,
 * those to pages that are new are not any more. */
void jump_note_mapping(struct cpu *cpu, struct code_page *page, const struct block *block)
{
	struct mapped_pages *mapped = &cpu_priv(cpu)->mapped[mode_space(block->mode)];
	u64 linear = block->rip & PAGE_MASK;
	const struct code_mapping *mapping;

	if (!(block->mode & MODE_CODE64))
		return;
	mapping = find_mapping(page, linear);
	if (!mapping)
		mapping = add_mapping(cpu->engine, page, linear);
	if (mapping)
		tlb_note_mapped(mapped, mapped_place(linear), mapping->number);
}

u32 jump_mapping_of(const struct cpu *cpu, const struct block *block)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	const struct mapped_pages *mapped = &priv->mapped[mode_space(block->mode)];
	struct code_page *page = code_find(priv->code, block->gpa);
	const struct code_mapping *mapping;

	if (!page || block->gpa2 != NO_GPA || !(block->mode & MODE_CODE64))
		return 0;
	mapping = find_mapping(page, block->rip & PAGE_MASK);
	if (!mapping || mapped->mapping[mapped_place(block->rip)] != mapping->number)
		return 0;
	return mapping->number;
}

/*
 * Keys, invariants 1 and 2.
 */

#define ERA_BITS (32 - JUMP_MODE_BITS)

static u64 era_of(u64 generation)
{
	return generation >> ERA_BITS;
}

/* The first generation of an era is given to nothing, so that no key is 0. */
static u32 key_of(u64 generation, u32 mode)
{
	return (u32)generation << JUMP_MODE_BITS | mode;
}

static u32 mode_of(u32 key)
{
	return key & (JUMP_MODES - 1);
}

/* Modes of one address have their entries in different places of jump[]. Processes share theirs:
 * those of one program have the same pages. */
static u32 spread_of(u32 mode)
{
	return (mode + 1) * 0x9e3779b1u >> 12 & (JUMP_SIZE - 1) * JUMP_SPAN;
}

void jump_clear(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	if (!priv->jump_used)
		return; /* memory that was never touched takes none */
	priv->jump_used = false;
	bytes_fill(priv->jump, 0, sizeof(priv->jump));
	bytes_fill(priv->jump_mapping, 0, sizeof(priv->jump_mapping));
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
		jump_clear(cpu);
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
	priv->jump_spread = spread_of(index);
	priv->mapped_now = priv->mapped[mode_space(mode)].mapping;
	returns_validate(cpu, mode);
}

u32 jump_mode(const struct cpu *cpu)
{
	return cpu->engine->modes[mode_of(cpu_priv(cpu)->jump_key)];
}

bool jump_pages_current(const struct cpu *cpu)
{
	enum space space = space_of(cpu);

	return cpu->engine->entered[space].drops == cpu_priv(cpu)->jump_drops[space];
}

void jump_expect(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	u32 i = cpu_jump_index(cpu->rip, priv->jump_spread);

	__builtin_prefetch(&priv->jump[i], 1);
	__builtin_prefetch(&priv->jump_mapping[i], 1);
}

static void move_beside(struct cpu_priv *priv, u32 i)
{
	u32 beside = cpu_jump_beside(i);

	priv->jump[beside] = priv->jump[i];
	priv->jump_mapping[beside] = priv->jump_mapping[i];
}

static void empty(struct cpu_priv *priv, u32 i)
{
	priv->jump[i] = (struct jump_entry){ 0 };
	priv->jump_mapping[i] = 0;
}

void jump_insert(struct cpu *cpu, const struct block *block)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;
	u32 i = cpu_jump_index(cpu->rip, priv->jump_spread);

	if (eng->profile)
		return; /* every block is looked for: profile.h */
	if (!jump_pages_current(cpu))
		return; /* the entries have just been dropped */
	if (priv->jump[i].code && priv->jump[i].rip != cpu->rip)
		move_beside(priv, i);
	priv->jump[i] = (struct jump_entry){ cpu->rip, priv->jump_key, block->code - eng->code_rw };
	priv->jump_mapping[i] = jump_mapping_of(cpu, block);
	priv->jump_used = true;
}

/* Invariant 5. */
static bool renew(struct cpu *cpu, u32 i)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct jump_entry *entry = &priv->jump[i];
	u32 mapping = priv->mapped_now[mapped_place(entry->rip)];

	if (!mapping || priv->jump_mapping[i] != mapping ||
	    mode_of(entry->key) != mode_of(priv->jump_key))
		return false;
	entry->key = priv->jump_key;
	return true;
}

/* What translated code does before it leaves: emit_jump_renew(). */
const void *jump_find(struct cpu *cpu, u32 mode)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u32 i;

	jump_update_key(cpu, mode);
	i = cpu_jump_index(cpu->rip, priv->jump_spread);
	if (priv->jump[i].rip != cpu->rip)
		i = cpu_jump_beside(i);
	if (priv->jump[i].rip != cpu->rip ||
	    (priv->jump[i].key != priv->jump_key && !renew(cpu, i)))
		return NULL;
	return cpu->engine->code_rx + priv->jump[i].code;
}

/* Whichever generation it is of. */
void jump_remove(struct cpu *cpu, const struct block *block)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct engine *eng = cpu->engine;
	u32 first = cpu_jump_index(block->rip, spread_of(find_mode(eng, block->mode)));
	u32 ways[] = { first, cpu_jump_beside(first) };

	for (u32 k = 0; k < ARRAY_SIZE(ways); k++)
		if (priv->jump[ways[k]].rip == block->rip &&
		    priv->jump[ways[k]].code == block->code - eng->code_rw)
			empty(priv, ways[k]);
}
