// SPDX-License-Identifier: MIT
/*
 * The soft TLB: filling, flushing, protecting. The sets are independent: a page may be in all of
 * them, with different rights. Filled on the slow path of an access only, so an entry never grants
 * what no walk has granted.
 *
 * Whatever invalidates translations also takes new generations for what is known of code
 * (cpu/mmu/tlb.h), as far as code was fetched through them: filters of fetched pages tell.
 * Generations of user code are kept with their PCID. vCPU thread; general registers only.
 */
#include "cpu/mmu/priv.h"

#include "cpu/mmu/code_pages.h"
#include "cpu/mmu/shared_code.h"
#include "cpu/observe.h"

static void drop(struct tlb_entry *entry, u32 index)
{
	entry->read = entry->write = tlb_none(index);
	/* For a host that speculates past the check: engine/translate/emit_memory.c */
	entry->host = 0;
}

/* The bitmaps of used entries. */

static void note(struct tlb_bits *bits, u32 i)
{
	bits->some[i / 4096] |= BIT(i / 64 % 64);
	bits->bit[i / 64] |= BIT(i % 64);
}

static void forget(struct tlb_bits *bits, u32 i)
{
	bits->bit[i / 64] &= ~BIT(i % 64);
}

typedef void visit(struct cpu *cpu, enum tlb_set set, u32 i, u64 arg);

static inline void for_word(struct cpu *cpu, const struct tlb_bits *bits, enum tlb_set set,
			    u32 word, visit *visit, u64 arg)
{
	for (u64 left = bits[set].bit[word]; left; left &= left - 1)
		visit(cpu, set, 64 * word + __builtin_ctzll(left), arg);
}

static inline void for_each(struct cpu *cpu, const struct tlb_bits *bits, visit *visit, u64 arg)
{
	for (u32 set = 0; set < NTLBS; set++)
		for (u32 i = 0; i < TLB_SIZE / 4096; i++)
			for (u64 some = bits[set].some[i]; some; some &= some - 1)
				for_word(cpu, bits, set, 64 * i + __builtin_ctzll(some), visit,
					 arg);
}

static void drop_entry(struct cpu *cpu, enum tlb_set set, u32 i, u64 unused)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	(void)unused;
	drop(&priv->tlb[set][i], i);
	forget(&priv->tlb_used[set], i);
}

/* Bloom filters of page numbers. */

static u32 filter_hash(u64 number)
{
	return number * 0x9e3779b97f4a7c15ull >> (64 - FILTER_BITS);
}

static void filter_add(struct page_filter *filter, u64 number)
{
	u32 hash = filter_hash(number);

	filter->bits[hash / 64] |= BIT(hash % 64);
}

static bool filter_has(const struct page_filter *filter, u64 number)
{
	u32 hash = filter_hash(number);

	return filter->bits[hash / 64] & BIT(hash % 64);
}

/* Generations: what is cached of code addresses. */

void tlb_forget_mapped(struct mapped_pages *mapped)
{
	if (mapped->n > MAPPED_KEPT)
		bytes_fill(mapped->mapping, 0, sizeof(mapped->mapping));
	else
		for (u32 i = 0; i < mapped->n; i++)
			mapped->mapping[mapped->used[i]] = 0;
	mapped->n = 0;
}

/* Too many are found again one by one. */
static void keep_mapped(const struct mapped_pages *mapped, struct mapped_kept *kept)
{
	kept->n = mapped->n <= MAPPED_KEPT ? mapped->n : 0;
	for (u32 i = 0; i < kept->n; i++) {
		kept->page[i].place = mapped->used[i];
		kept->page[i].mapping = mapped->mapping[mapped->used[i]];
	}
}

static void restore_mapped(struct mapped_pages *mapped, const struct mapped_kept *kept)
{
	tlb_forget_mapped(mapped);
	for (u32 i = 0; i < kept->n; i++)
		tlb_note_mapped(mapped, kept->page[i].place, kept->page[i].mapping);
}

void tlb_forget_others(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	bytes_fill(priv->kept_spaces, 0, sizeof(priv->kept_spaces));
}

static void forget_code(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	cpu_drop_jumps(cpu);
	for (u32 space = 0; space < NSPACES; space++)
		priv->map_generation[space] = ++priv->last_map;
	bytes_fill(&priv->fetched, 0, sizeof(priv->fetched));
	bytes_fill(&priv->fetched_large, 0, sizeof(priv->fetched_large));
	priv->kernel_code_local = priv->kernel_code_low = priv->user_code_global = false;
}

/* PCIDs name address spaces; two CR3 with the same PCID are one as far as a processor can tell. */
static void forget_pcid(struct cpu *cpu, u64 pcid)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	for (u32 i = 0; i < SPACES_KEPT; i++)
		if ((priv->kept_spaces[i].cr3 & ~PAGE_MASK) == pcid)
			priv->kept_spaces[i].jump_generation = 0;
}

/* Also that of other roots with the current PCID. */
static void forget_user_code(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	priv->jump_generation[SPACE_USR] = ++priv->last_jump;
	tlb_forget_mapped(&priv->mapped[SPACE_USR]);
	priv->map_generation[SPACE_USR] = ++priv->last_map;
	if (cpu->cr4 & CR4_PCIDE)
		forget_pcid(cpu, cpu->cr3 & ~PAGE_MASK);
}

/* A global translation is one of all address spaces, and INVLPG drops it for all (SDM 3A
 * 4.10.4.1). */
static void forget_page_of_user_code(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	forget_user_code(cpu);
	if (!priv->user_code_global)
		return;
	tlb_forget_others(cpu);
	priv->user_code_global = false;
}

void tlb_flush_data(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	for_each(cpu, priv->tlb_used, drop_entry, 0);
	for (u32 set = 0; set < NTLBS; set++) /* a tag of 0 has the index bits of this one alone */
		drop(&priv->tlb[set][0], 0);
	bytes_fill(priv->tlb_used, 0, sizeof(priv->tlb_used));
	bytes_fill(priv->tlb_local, 0, sizeof(priv->tlb_local));
	bytes_fill(priv->tlb_writable, 0, sizeof(priv->tlb_writable));
	priv->tlb_large = 0;
	bytes_fill(&priv->tlb_2m, 0, sizeof(priv->tlb_2m));
}

void tlb_flush(struct cpu *cpu)
{
	tlb_flush_data(cpu);
	forget_code(cpu);
}

void tlb_change_slots(struct cpu *cpu)
{
	tlb_flush(cpu);
	cpu_observe_slots(cpu);
}

static void drop_local(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	for_each(cpu, priv->tlb_local, drop_entry, 0);
	bytes_fill(priv->tlb_local, 0, sizeof(priv->tlb_local));
}

void tlb_flush_local(struct cpu *cpu)
{
	drop_local(cpu);
	forget_user_code(cpu);
	if (cpu_priv(cpu)->kernel_code_local)
		forget_code(cpu);
}

static struct space_kept *kept_of(struct cpu *cpu, u64 cr3)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	for (u32 i = 0; i < SPACES_KEPT; i++)
		if (priv->kept_spaces[i].cr3 == cr3 && priv->kept_spaces[i].jump_generation)
			return &priv->kept_spaces[i];
	return NULL;
}

static void keep_space(struct cpu *cpu, u64 cr3)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct space_kept *kept = kept_of(cpu, cr3);

	if (!kept)
		kept = &priv->kept_spaces[priv->next_kept_space++ % SPACES_KEPT];
	*kept = (struct space_kept){ cr3, priv->jump_generation[SPACE_USR],
				     priv->map_generation[SPACE_USR] };
	keep_mapped(&priv->mapped[SPACE_USR], &priv->mapped_kept[kept - priv->kept_spaces]);
}

void tlb_switch(struct cpu *cpu, u64 old_cr3, bool keep)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct space_kept *kept = NULL;

	if (cpu->cr4 & CR4_PCIDE)
		keep_space(cpu, old_cr3);
	if (keep)
		kept = kept_of(cpu, cpu->cr3);
	else
		forget_pcid(cpu, cpu->cr3 & ~PAGE_MASK);
	if (!kept) {
		tlb_flush_local(cpu);
		return;
	}
	drop_local(cpu);
	priv->jump_generation[SPACE_USR] = kept->jump_generation;
	priv->map_generation[SPACE_USR] = kept->map_generation;
	restore_mapped(&priv->mapped[SPACE_USR], &priv->mapped_kept[kept - priv->kept_spaces]);
	if (priv->kernel_code_local)
		forget_code(cpu);
}

void tlb_fetched(struct cpu *cpu, gva_t gva, const struct translation *t)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	filter_add(&priv->fetched, gva >> PAGE_SHIFT);
	if (t->shift > PAGE_SHIFT)
		filter_add(&priv->fetched_large, gva >> 21);
	if (t->shift == 22) /* the other half of 4 MB */
		filter_add(&priv->fetched_large, gva >> 21 ^ 1);
	if (t->shift > 22) /* a gigabyte: too many regions to name */
		bytes_fill(&priv->fetched_large, 0xff, sizeof(priv->fetched_large));
	if (!t->global && cpu->cpl != 3)
		priv->kernel_code_local = true;
	if (t->global && cpu->cpl == 3)
		priv->user_code_global = true;
	if (!(gva >> 63) && cpu->cpl != 3)
		priv->kernel_code_low = true;
}

/* Large pages of which there may be entries: those of 2 MB by their numbers, larger ones by the
 * gigabytes they lie in. */

static u64 large_hash(gva_t gva)
{
	return BIT((gva >> 30) % 64);
}

static void note_large(struct cpu *cpu, gva_t gva, u8 shift)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	if (shift == 21)
		filter_add(&priv->tlb_2m, gva >> 21);
	else if (shift > PAGE_SHIFT)
		priv->tlb_large |= large_hash(gva);
}

static bool may_be_large(const struct cpu *cpu, gva_t gva)
{
	const struct cpu_priv *priv = cpu_priv(cpu);

	return (priv->tlb_large & large_hash(gva)) || filter_has(&priv->tlb_2m, gva >> 21);
}

static void drop_if_large(struct cpu *cpu, enum tlb_set set, u32 i, u64 gva)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u8 shift = priv->tlb_shift[set][i];

	if (shift > PAGE_SHIFT && !((priv->tlb[set][i].read ^ gva) >> shift))
		drop_entry(cpu, set, i, 0);
}

/* SDM 3A 4.10.4.1: INVLPG drops all of a large page, of which there may be many entries here. Those
 * of 2 MB lie side by side. */
static void flush_large(struct cpu *cpu, gva_t gva)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u32 first = (gva >> 21 << (21 - PAGE_SHIFT)) % TLB_SIZE / 64;

	if (priv->tlb_large & large_hash(gva)) {
		for_each(cpu, priv->tlb_used, drop_if_large, gva);
		return;
	}
	for (u32 set = 0; set < NTLBS; set++)
		for (u32 word = first; word < first + BIT(21 - PAGE_SHIFT) / 64; word++)
			for_word(cpu, priv->tlb_used, set, word, drop_if_large, gva);
}

void tlb_flush_page(struct cpu *cpu, gva_t gva)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u32 i = (gva >> PAGE_SHIFT) % TLB_SIZE;

	for (u32 set = 0; set < NTLBS; set++)
		drop(&priv->tlb[set][i], i);
	if (may_be_large(cpu, gva))
		flush_large(cpu, gva);
	if (!filter_has(&priv->fetched, gva >> PAGE_SHIFT) &&
	    !filter_has(&priv->fetched_large, gva >> 21))
		return;
	if (gva >> 63 || priv->kernel_code_low)
		forget_code(cpu);
	else
		forget_page_of_user_code(cpu);
}

static void set_bit(u64 *bits, u32 i, bool on)
{
	bits[i / 64] = on ? bits[i / 64] | BIT(i % 64) : bits[i / 64] & ~BIT(i % 64);
}

static void protect(struct cpu *cpu, enum tlb_set set, u32 i)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct tlb_entry *entry = &priv->tlb[set][i];

	if (entry->write == entry->read)
		set_bit(priv->tlb_code[set], i, true);
	entry->write = tlb_none(i);
}

/*
 * Which entries may write to a physical page? A new page with code takes its write tags away, and
 * most have one, by which the kernel filled it: a hash of pages leads to that entry. A slot is
 * right or it says too much: the entry that it names may have gone, and of several all may have.
 * It never says too little, since fill() alone gives write tags.
 */

_Static_assert(NTLBS *TLB_SIZE < TLB_SEVERAL, "struct cpu_priv");

static bool is_writable(const struct tlb_entry *entry, u32 i)
{
	return entry->write == entry->read && entry->read != tlb_none(i);
}

/* Of a number in tlb_writable[]. */
static struct tlb_entry *numbered(struct cpu_priv *priv, u32 number, enum tlb_set *set, u32 *i)
{
	*set = (number - 1) / TLB_SIZE;
	*i = (number - 1) % TLB_SIZE;
	return &priv->tlb[*set][*i];
}

static bool slot_is_right(struct cpu_priv *priv, u32 slot)
{
	u32 number = priv->tlb_writable[slot], i;
	const struct tlb_entry *entry;
	enum tlb_set set;

	if (!number || number == TLB_SEVERAL)
		return number;
	entry = numbered(priv, number, &set, &i);
	return is_writable(entry, i) && filter_hash(entry->gpa >> PAGE_SHIFT) == slot;
}

/* The entry has a write tag. */
static void note_writable(struct cpu_priv *priv, enum tlb_set set, u32 i)
{
	u32 slot = filter_hash(priv->tlb[set][i].gpa >> PAGE_SHIFT);
	u32 number = 1 + set * TLB_SIZE + i;

	if (priv->tlb_writable[slot] == number)
		return;
	priv->tlb_writable[slot] = slot_is_right(priv, slot) ? TLB_SEVERAL : number;
}

static void protect_page(struct cpu *cpu, enum tlb_set set, u32 i, u64 page)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct tlb_entry *entry = &priv->tlb[set][i];

	if (!is_writable(entry, i))
		return;
	if (entry->gpa == page)
		protect(cpu, set, i);
	else
		note_writable(priv, set, i);
}

static void protect_gpa(struct cpu *cpu, gpa_t page)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u32 number = priv->tlb_writable[filter_hash(page >> PAGE_SHIFT)], i;
	enum tlb_set set;

	if (!number)
		return;
	if (number != TLB_SEVERAL) {
		if (numbered(priv, number, &set, &i)->gpa == (page & PAGE_MASK))
			protect_page(cpu, set, i, page & PAGE_MASK);
		return;
	}
	bytes_fill(priv->tlb_writable, 0, sizeof(priv->tlb_writable));
	for_each(cpu, priv->tlb_used, protect_page, page & PAGE_MASK);
}

void tlb_protect(struct cpu *cpu, gpa_t page)
{
	gpa_t alias;
	u32 at = 0;

	protect_gpa(cpu, page);
	while (cpu_next_alias(cpu, page, &at, &alias))
		protect_gpa(cpu, alias);
}

static void protect_claimed(struct cpu *cpu, enum tlb_set set, u32 i, u64 unused)
{
	const struct tlb_entry *entry = &cpu_priv(cpu)->tlb[set][i];

	(void)unused;
	if (is_writable(entry, i) && shared_claimed(cpu, entry->gpa))
		protect(cpu, set, i);
}

void tlb_protect_claimed(struct cpu *cpu)
{
	for_each(cpu, cpu_priv(cpu)->tlb_used, protect_claimed, 0);
}

/* A write needs no notice: not for the dirty log. */
static bool dirty_already(const struct translation *t)
{
	u64 page = (t->gpa - t->slot->base) >> PAGE_SHIFT;
	const u64 *dirty = t->slot->dirty;

	if (t->slot->flags & MEM_READONLY)
		return false;
	return !dirty || (__atomic_load_n(&dirty[page / 64], __ATOMIC_RELAXED) & BIT(page % 64));
}

static bool has_code(struct cpu *cpu, gpa_t gpa)
{
	return shared_watched(cpu, gpa & PAGE_MASK, PAGE_SIZE);
}

static void fill(struct cpu *cpu, gva_t gva, u32 access, const struct walk *walk,
		 const struct translation *t)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	gva_t page = (cpu_long_mode(cpu) ? gva : (u32)gva) & PAGE_MASK;
	enum tlb_set set = tlb_set_of(cpu, access);
	u32 i = (page >> PAGE_SHIFT) % TLB_SIZE;
	struct tlb_entry *entry = &priv->tlb[set][i];
	bool writable = walk->writable && dirty_already(t), code = has_code(cpu, t->gpa);

	entry->read = page;
	entry->write = writable && !code ? page : tlb_none(i);
	entry->gpa = t->gpa & PAGE_MASK;
	entry->host = (u64)t->host & PAGE_MASK;
	priv->tlb_shift[set][i] = walk->shift;
	note_large(cpu, page, walk->shift);
	note(&priv->tlb_used[set], i);
	if (walk->global)
		forget(&priv->tlb_local[set], i);
	else
		note(&priv->tlb_local[set], i);
	if (entry->write == page)
		note_writable(priv, set, i);
	set_bit(priv->tlb_code[set], i, writable && code);
}

bool tlb_writes_code(struct cpu *cpu, gva_t gva, u32 access, gpa_t *gpa, hva_t *host)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	enum tlb_set set = tlb_set_of(cpu, access);
	u32 i = (gva >> PAGE_SHIFT) % TLB_SIZE;
	const struct tlb_entry *entry = &priv->tlb[set][i];

	if (entry->read != (gva & PAGE_MASK) || !(priv->tlb_code[set][i / 64] & BIT(i % 64)) ||
	    !has_code(cpu, entry->gpa))
		return false;
	*gpa = entry->gpa + (gva & ~PAGE_MASK);
	*host = (hva_t)entry->host + (gva & ~PAGE_MASK);
	return true;
}

#define WALK_EFFORT 16

static enum guest_fault translate(struct cpu *cpu, gva_t gva, u32 access, struct walk *walk,
				  struct translation *out)
{
	enum guest_fault fault = mmu_walk(cpu, gva, access, walk);

	cpu_effort(cpu, WALK_EFFORT);
	if (fault)
		return fault;
	out->gpa = walk->gpa;
	out->shift = walk->shift;
	out->global = walk->global;
	out->slot = cpu_slot(cpu, walk->gpa);
	if (out->slot && (access & ACCESS_WRITE)) {
		if (out->slot->flags & MEM_READONLY)
			out->slot = NULL;
		else
			mem_mark_dirty(out->slot, out->gpa);
	}
	out->host = out->slot ? mem_hva(out->slot, out->gpa) : NULL;
	return FAULT_NONE;
}

enum guest_fault mmu_translate(struct cpu *cpu, gva_t gva, u32 access, struct translation *out)
{
	struct walk walk;

	return translate(cpu, gva, access, &walk, out);
}

enum guest_fault mmu_fill(struct cpu *cpu, gva_t gva, u32 access, struct translation *out)
{
	struct walk walk;
	enum guest_fault fault = translate(cpu, gva, access, &walk, out);

	/* The right to execute is not the right to read (SMAP does not apply to fetches). Addresses
	 * of tables need not be canonical, those of accesses that find an entry are. */
	if (!fault && out->slot && !(access & ACCESS_FETCH) && !watch_page(cpu, gva) &&
	    cpu_canonical(cpu, gva))
		fill(cpu, gva, access, &walk, out);
	return fault;
}
