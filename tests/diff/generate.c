// SPDX-License-Identifier: MIT
/*
 * Sequences of random instructions. A form gets random registers, an address, prefixes and an immediate; the
 * decoder says what came of it, and the generator keeps what is worth running: addresses that mostly lie in the
 * sandbox, and no instruction that reads a flag which an earlier one left undefined.
 *
 * To make addresses meaningful, registers have classes (pointer into the data pages, small number) that
 * input.c honours; a register is worth its class until something writes it.
 */
#include "diff.h"

#include <string.h>

#include "base/must.h"

static const ZydisAccessedFlags no_flags;

bool want_gpr(struct generator *g, u32 reg, enum register_class cls)
{
	u8 *have = &g->seq->gpr_class[reg];

	if (g->written[reg])
		return false;
	if (*have == CLASS_ANY)
		*have = cls;
	return *have == cls;
}

static bool want_vec(struct generator *g, u32 reg)
{
	g->seq->vec_class[reg] = CLASS_SMALL;
	return !g->vec_written[reg];
}

static u32 pick_gpr(struct generator *g, enum register_class cls)
{
	u32 nregs = g->mode->is32 ? 8 : 16;

	for (u32 i = 0; i < 24; i++) {
		u32 reg = rng_below(g->r, nregs);
		bool already = g->seq->gpr_class[reg] == cls;

		if ((already || i >= 4) && want_gpr(g, reg, cls))
			return reg;
	}
	return RSP;
}

/* --- encoding ------------------------------------------------------------------------------------------------ */

struct address {
	u8 mod, rm, sib;
	bool has_sib;
	u8 x, b;
	u8 disp_size;
	s32 disp;
	bool is_rip;
	u64 target;
};

static s32 pick_disp(struct generator *g, u32 size, u32 align)
{
	s32 disp = size == 1 ? (s8)rng_next(g->r) : (s32)rng_below(g->r, 0x400) - 0x200;

	return rng_one_in(g->r, 2) ? disp & -(s32)align : disp;
}

static u64 pick_target(struct generator *g, u32 align)
{
	return DATA_BASE + (rng_below(g->r, DATA_SIZE) & -align);
}

static void pick_address_absolute(struct generator *g, struct address *a, u32 align)
{
	a->disp_size = 4;
	a->target = pick_target(g, align);
	a->disp = (s32)a->target;
	a->rm = 5; /* RIP-relative in 64-bit mode */
	a->is_rip = !g->mode->is32;
	if (!g->mode->is32 && rng_one_in(g->r, 2)) {
		a->is_rip = false;
		a->has_sib = true;
		a->rm = 4;
		a->sib = 4 << 3 | 5;
	}
}

static void pick_address_scaled(struct generator *g, struct address *a, u32 index, u32 align)
{
	a->disp_size = 4;
	a->disp = (s32)pick_target(g, align);
	a->has_sib = true;
	a->rm = 4;
	a->sib = rng_below(g->r, 4) << 6 | (index & 7) << 3 | 5;
	a->x = index >> 3;
}

static void pick_address_based(struct generator *g, struct address *a, bool indexed, u32 index, u32 align)
{
	static const u8 sizes[] = { 0, 1, 1, 4 };
	u32 base = pick_gpr(g, CLASS_POINTER);

	a->disp_size = sizes[rng_below(g->r, 4)];
	if (a->disp_size == 0 && (base & 7) == RBP)
		a->disp_size = 1;
	a->mod = a->disp_size == 0 ? 0 : a->disp_size == 1 ? 1 : 2;
	a->disp = a->disp_size ? pick_disp(g, a->disp_size, align) : 0;
	a->has_sib = indexed || (base & 7) == RSP;
	a->rm = a->has_sib ? 4 : base & 7;
	a->sib = (indexed ? rng_below(g->r, 4) << 6 | (index & 7) << 3 : 4 << 3) | (base & 7);
	a->x = indexed ? index >> 3 : 0;
	a->b = base >> 3;
}

static void pick_address(struct generator *g, struct address *a, bool vsib, u32 align)
{
	u32 kind = rng_below(g->r, 8);
	bool indexed = vsib || kind < 3;
	u32 index = 0;

	memset(a, 0, sizeof(*a));
	if (vsib)
		index = rng_below(g->r, g->mode->is32 ? 8 : 16);
	else if (indexed)
		index = pick_gpr(g, CLASS_SMALL);
	if (!vsib && index == RSP)
		indexed = false;
	if (kind == 7 && !vsib)
		pick_address_absolute(g, a, align);
	else if (kind == 0 && indexed)
		pick_address_scaled(g, a, index, align);
	else
		pick_address_based(g, a, indexed, index, align);
}

static u32 put_prefixes(struct generator *g, const struct form *f, bool memory, u8 *out)
{
	static const u8 segments[] = { 0x64, 0x65, 0x64, 0x65, 0x2e, 0x3e, 0x26, 0x36 };
	u32 n = 0;

	if (memory && rng_one_in(g->r, 12))
		out[n++] = segments[rng_below(g->r, 8)];
	if (memory && rng_one_in(g->r, g->mode->is32 ? 200 : 20))
		out[n++] = 0x67;
	if (f->is_vex)
		return n;
	if (memory && f->family <= FAMILY_semaphore && rng_one_in(g->r, 3))
		out[n++] = 0xf0;
	if ((f->pp == 0xf3 || f->pp == 0xf2) && rng_one_in(g->r, 5))
		out[n++] = 0x66;
	if (f->pp)
		out[n++] = f->pp;
	return n;
}

static u32 put_vex(struct generator *g, const struct form *f, const struct address *a, u8 *out)
{
	u8 pp = f->pp == 0x66 ? 1 : f->pp == 0xf3 ? 2 : f->pp == 0xf2 ? 3 : 0;
	u8 r = g->mode->is32 ? 0 : rng_below(g->r, 2);
	u8 vvvv = rng_one_in(g->r, 3) ? 0 : rng_below(g->r, g->mode->is32 ? 8 : 16);
	u8 last = (~vvvv & 15) << 3 | f->l << 2 | pp;

	if (f->map == MAP_0F && !f->w && !a->x && !a->b && rng_one_in(g->r, 2)) {
		out[0] = 0xc5;
		out[1] = (!r) << 7 | last;
		return 2;
	}
	out[0] = 0xc4;
	out[1] = (!r) << 7 | (!a->x) << 6 | (!a->b) << 5 | f->map;
	out[2] = f->w << 7 | last;
	return 3;
}

static u32 put_legacy(struct generator *g, const struct form *f, const struct address *a, u8 *out)
{
	u8 rex = 0x40 | f->w << 3 | rng_below(g->r, 2) << 2 | a->x << 1 | a->b;
	u32 n = 0;

	/* Half the time without, for AH to BH. */
	if (!g->mode->is32 && (f->w || a->x || a->b || rng_one_in(g->r, 2)))
		out[n++] = rex;
	if (f->map)
		out[n++] = 0x0f;
	if (f->map >= MAP_0F38)
		out[n++] = f->map == MAP_0F38 ? 0x38 : 0x3a;
	return n;
}

/* Returns where in the bytes the displacement is. */
static u32 put_modrm(const struct form *f, const struct address *a, u8 *out, u32 *n)
{
	u32 disp_at;

	if (f->modrm >= 0xc0) {
		out[(*n)++] = f->modrm;
		return 0;
	}
	out[(*n)++] = a->mod << 6 | (f->modrm & 0x38) | a->rm;
	if (a->has_sib)
		out[(*n)++] = a->sib;
	disp_at = *n;
	memcpy(out + *n, &a->disp, a->disp_size);
	*n += a->disp_size;
	return disp_at;
}

struct candidate {
	u8 bytes[40]; /* with random bytes behind, for the immediate */
	u32 rip_at;   /* 0: not RIP-relative */
	u64 target;
};

static void encode(struct generator *g, const struct form *f, struct candidate *c)
{
	bool memory = !f->has_modrm || f->modrm < 0xc0;
	u32 align = f->family >= FAMILY_x87 ? 16 : 4;
	struct address a = { 0 };
	u32 n, disp_at;

	if (f->has_modrm && memory)
		pick_address(g, &a, f->family == FAMILY_gather, align);
	else if (!g->mode->is32)
		a.b = rng_below(g->r, 2);
	rng_fill(g->r, c->bytes, sizeof(c->bytes));
	n = put_prefixes(g, f, memory, c->bytes);
	n += f->is_vex ? put_vex(g, f, &a, c->bytes + n) : put_legacy(g, f, &a, c->bytes + n);
	c->bytes[n++] = f->opcode;
	disp_at = f->has_modrm ? put_modrm(f, &a, c->bytes, &n) : 0;
	c->rip_at = a.is_rip ? disp_at : 0;
	c->target = a.target;
}

/* --- judging ------------------------------------------------------------------------------------------------- */

static int gpr_of(const struct generator *g, ZydisRegister reg)
{
	ZydisRegister whole = ZydisRegisterGetLargestEnclosing(g->mode->decoder.machine_mode, reg);

	if (ZydisRegisterGetClass(whole) != (g->mode->is32 ? ZYDIS_REGCLASS_GPR32 : ZYDIS_REGCLASS_GPR64))
		return -1;
	return ZydisRegisterGetId(whole);
}

static int vec_of(ZydisRegister reg)
{
	switch (ZydisRegisterGetClass(reg)) {
	case ZYDIS_REGCLASS_XMM:
	case ZYDIS_REGCLASS_YMM:
		return ZydisRegisterGetId(reg);
	default:
		return -1;
	}
}

/* A register that an implicit address uses, or that decides how far an address reaches. */
static bool address_holds(struct generator *g, const ZydisDecodedInstruction *insn,
			  const ZydisDecodedOperand *ops)
{
	for (u32 i = 0; i < insn->operand_count; i++) {
		const ZydisDecodedOperand *op = &ops[i];
		int base;

		if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.type == ZYDIS_MEMOP_TYPE_AGEN)
			continue;
		base = gpr_of(g, op->mem.base);
		if (base >= 0 && !want_gpr(g, base, CLASS_POINTER))
			return false;
		if (op->mem.type == ZYDIS_MEMOP_TYPE_VSIB && !want_vec(g, vec_of(op->mem.index)))
			return false;
	}
	if (insn->meta.category == ZYDIS_CATEGORY_STRINGOP &&
	    (insn->attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)))
		return want_gpr(g, RCX, CLASS_SMALL);
	if (insn->meta.category == ZYDIS_CATEGORY_BITBYTE && ops[0].type == ZYDIS_OPERAND_TYPE_MEMORY &&
	    ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER)
		return want_gpr(g, gpr_of(g, ops[1].reg.value), CLASS_SMALL);
	if (insn->mnemonic == ZYDIS_MNEMONIC_DIV || insn->mnemonic == ZYDIS_MNEMONIC_IDIV)
		return want_gpr(g, RDX, CLASS_SMALL);
	return true;
}

/* Things to keep away from: most would leave the sandbox. */
static bool forbidden(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *ops)
{
	for (u32 i = 0; i < insn->operand_count; i++)
		if (ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    ZydisRegisterGetClass(ops[i].reg.value) == ZYDIS_REGCLASS_SEGMENT &&
		    (ops[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			return true;
	/* AMD: PREFETCH of a register is #UD; Intel and the decoder: NOP. */
	if (insn->opcode_map == ZYDIS_OPCODE_MAP_0F && insn->opcode == 0x0d && insn->raw.modrm.mod == 3)
		return true;
	/* AMD: #UD; Intel and the decoder: W is ignored outside 64-bit code. */
	if ((insn->mnemonic == ZYDIS_MNEMONIC_VPINSRD || insn->mnemonic == ZYDIS_MNEMONIC_VPEXTRD) &&
	    insn->raw.vex.W)
		return true;
	return insn->mnemonic == ZYDIS_MNEMONIC_INT && ops[0].imm.value.u == 0x80;
}

/* String and stack instructions move their pointers by little. */
static bool moves_pointer(const ZydisDecodedInstruction *insn, int reg)
{
	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_STRINGOP:
		return reg != RAX;
	case ZYDIS_CATEGORY_PUSH:
	case ZYDIS_CATEGORY_POP:
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_RET:
		return reg == RSP;
	default:
		return insn->mnemonic == ZYDIS_MNEMONIC_LEAVE && reg == RSP;
	}
}

/* Does it spoil a register that addresses use? Sometimes that is welcome. */
static bool spoils(struct generator *g, const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *ops)
{
	for (u32 i = 0; i < insn->operand_count; i++) {
		int reg;

		if (ops[i].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    !(ops[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		reg = gpr_of(g, ops[i].reg.value);
		if (reg < 0 || moves_pointer(insn, reg) || g->written[reg])
			continue;
		if (reg == RSP && !rng_one_in(g->r, 20))
			return true;
		if (g->seq->gpr_class[reg] != CLASS_ANY && !rng_one_in(g->r, 4))
			return true;
	}
	return false;
}

static void note_writes(struct generator *g, const ZydisDecodedInstruction *insn,
			const ZydisDecodedOperand *ops)
{
	for (u32 i = 0; i < insn->operand_count; i++) {
		int reg, vec;

		if (ops[i].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    !(ops[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		reg = gpr_of(g, ops[i].reg.value);
		vec = vec_of(ops[i].reg.value);
		if (reg >= 0 && !moves_pointer(insn, reg))
			g->written[reg] = true;
		if (vec >= 0)
			g->vec_written[vec] = true;
	}
}

/* Shifts by CL and repeated strings may execute without touching a flag. */
static bool may_keep_flags(const ZydisDecodedInstruction *insn)
{
	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_SHIFT:
	case ZYDIS_CATEGORY_ROTATE:
	case ZYDIS_CATEGORY_STRINGOP:
		return true;
	default:
		return false;
	}
}

static void note_flags(struct generator *g, const ZydisDecodedInstruction *insn)
{
	const ZydisAccessedFlags *fl = insn->cpu_flags ? insn->cpu_flags : &no_flags;

	if (!may_keep_flags(insn) && g->seq->n > g->branch_end)
		g->seq->undefined &= ~(fl->modified | fl->set_0 | fl->set_1);
	g->seq->undefined |= fl->undefined;
}

static bool flags_fit(const struct generator *g, const ZydisDecodedInstruction *insn)
{
	const ZydisAccessedFlags *fl = insn->cpu_flags ? insn->cpu_flags : &no_flags;

	if (fl->tested & g->seq->undefined)
		return false;
	return !(g->no_undefined && fl->undefined);
}

static struct item *add_item(struct generator *g, enum family family, const u8 *bytes,
			     const ZydisDecodedInstruction *insn)
{
	struct item *item = &g->seq->items[g->seq->n++];

	memset(item, 0, sizeof(*item));
	memcpy(item->bytes, bytes, insn->length);
	item->len = insn->length;
	item->family = family;
	item->mnemonic = insn->mnemonic;
	item->undefined = g->seq->undefined;
	note_flags(g, insn);
	return item;
}

struct item *append_item(struct generator *g, enum family family, const u8 *bytes, u32 len)
{
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];

	if (g->seq->n == SEQUENCE_MAX ||
	    !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&g->mode->decoder, bytes, len, &insn, ops)))
		return NULL;
	if (!flags_fit(g, &insn))
		return NULL;
	note_writes(g, &insn, ops);
	return add_item(g, family, bytes, &insn);
}

/* --- appending ----------------------------------------------------------------------------------------------- */

static void fix_moffs(struct generator *g, struct candidate *c, const ZydisDecodedInstruction *insn)
{
	u64 address = pick_target(g, 4);

	if (!(insn->attributes & ZYDIS_ATTRIB_HAS_MODRM) && insn->raw.disp.size)
		memcpy(c->bytes + insn->raw.disp.offset, &address, insn->raw.disp.size / 8);
}

static bool try_form(struct generator *g, const struct form *f)
{
	struct candidate c;
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	struct item *item;

	encode(g, f, &c);
	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&g->mode->decoder, c.bytes, 15, &insn, ops)))
		return false;
	if (form_family(&insn) != f->family || forbidden(&insn, ops) || !flags_fit(g, &insn))
		return false;
	if (!address_holds(g, &insn, ops) && !rng_one_in(g->r, 16))
		return false;
	if (spoils(g, &insn, ops))
		return false;
	fix_moffs(g, &c, &insn);
	note_writes(g, &insn, ops);
	item = add_item(g, f->family, c.bytes, &insn);
	if (c.rip_at) {
		item->fix = FIX_RIP;
		item->fix_at = c.rip_at;
		item->target = c.target;
	}
	return true;
}

/* Bytes without a plan, prefixes first. What does not decode must be #UD on both sides. */
static bool try_raw(struct generator *g)
{
	static const u8 prefixes[] = { 0x66, 0xf2, 0xf3, 0xf0, 0x67, 0x64, 0x0f, 0x40, 0x48, 0xc5, 0xc4, 0x0f };
	u8 bytes[15];
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	u32 n = rng_below(g->r, 3);
	struct item *item;

	for (u32 i = 0; i < 15; i++)
		bytes[i] = i < n ? prefixes[rng_below(g->r, ARRAY_SIZE(prefixes))] : rng_next(g->r);
	for (u32 i = 0; i < 6; i++)
		if (bytes[i] == 0x62 || bytes[i] == 0x8f) /* EVEX: the host has it, the guest not; XOP */
			return false;
	if (ZYAN_SUCCESS(ZydisDecoderDecodeFull(&g->mode->decoder, bytes, 15, &insn, ops))) {
		if (form_family(&insn) == NFAMILIES || forbidden(&insn, ops) || !flags_fit(g, &insn))
			return false;
		note_writes(g, &insn, ops);
		add_item(g, FAMILY_raw, bytes, &insn);
		return true;
	}
	item = &g->seq->items[g->seq->n++];
	memset(item, 0, sizeof(*item));
	memcpy(item->bytes, bytes, 15);
	item->len = 15;
	item->family = FAMILY_raw;
	item->undefined = g->seq->undefined;
	g->done = true;
	return true;
}

bool append_random(struct generator *g, enum family family)
{
	for (u32 i = 0; i < 60; i++) {
		const struct form *f;

		if (g->seq->n == SEQUENCE_MAX)
			return false;
		if (family == FAMILY_raw) {
			if (try_raw(g))
				return true;
			continue;
		}
		f = form_pick(g->table, family, g->r);
		if (!f)
			return append_template(g, family);
		if (try_form(g, f))
			return true;
	}
	return false;
}

static void start(struct generator *g)
{
	memset(g->seq, 0, sizeof(*g->seq));
	g->seq->is32 = g->mode->is32;
	g->seq->gpr_class[RSP] = CLASS_POINTER;
}

void generate(struct sequence *seq, struct rng *r, const struct mode *mode, const struct form_table *table,
	      int only)
{
	struct generator g = { .r = r, .mode = mode, .table = table, .seq = seq };
	u32 want = rng_one_in(r, 4) ? 1 : 1 + rng_below(r, 10);
	u32 theme = only >= 0 ? (u32)only : rng_below(r, NFAMILIES);

	start(&g);
	while (seq->n < want && !g.done) {
		u32 family = only >= 0 || rng_one_in(r, 2) ? theme : rng_below(r, NFAMILIES);

		if (only < 0 && rng_one_in(r, 8))
			family = FAMILY_branch;
		if (append_random(&g, family))
			continue;
		if (only >= 0 && rng_one_in(r, 20))
			break; /* perhaps there is none in this mode */
		theme = only >= 0 ? (u32)only : rng_below(r, NFAMILIES);
	}
	for (u32 i = 0; i < seq->n; i++)
		if ((seq->items[i].fix == FIX_REL8 || seq->items[i].fix == FIX_REL32 ||
		     seq->items[i].fix == FIX_ABS32) &&
		    seq->items[i].target > seq->n)
			seq->items[i].target = seq->n;
	sequence_place(seq, r);
}

/* --- layout -------------------------------------------------------------------------------------------------- */

static void apply_fix(const struct item *item, u8 *out, u64 here, const u64 *addr)
{
	u64 end = here + item->len;
	u64 target = item->fix == FIX_RIP ? item->target : addr[item->target];
	u64 value = item->fix == FIX_ABS32 ? target : target - end;

	memcpy(out + item->fix_at, &value, item->fix == FIX_REL8 ? 1 : 4);
}

u32 sequence_bytes(const struct sequence *seq, u8 *out, u64 *addr_out)
{
	u64 addr[SEQUENCE_MAX + 1];
	u32 size = 0;

	for (u32 i = 0; i < seq->n; i++) {
		addr[i] = seq->start + size;
		size += seq->items[i].len;
	}
	addr[seq->n] = seq->start + size;
	size = 0;
	for (u32 i = 0; i < seq->n; i++) {
		memcpy(out + size, seq->items[i].bytes, seq->items[i].len);
		if (seq->items[i].fix)
			apply_fix(&seq->items[i], out + size, addr[i], addr);
		size += seq->items[i].len;
	}
	memcpy(out + size, "\x0f\x0b", 2);
	if (addr_out)
		memcpy(addr_out, addr, sizeof(u64) * (seq->n + 1));
	return size + 2;
}

/* State areas are overwritten in part by what follows; and how many bytes of a bad instruction are fetched before it
 * is found bad is nobody's business. */
static bool must_not_break_off(const struct sequence *seq)
{
	for (u32 i = 0; i < seq->n; i++)
		if (seq->items[i].family == FAMILY_xsave || seq->items[i].mnemonic == ZYDIS_MNEMONIC_INVALID)
			return true;
	return false;
}

/* Mostly anywhere on the first page; sometimes across the two; sometimes running into the hole behind them. */
void sequence_place(struct sequence *seq, struct rng *r)
{
	u8 bytes[SEQUENCE_MAX * 15 + 2];
	u32 size = sequence_bytes(seq, bytes, NULL);

	switch (must_not_break_off(seq) ? 2 : rng_below(r, 8)) {
	case 0:
		seq->start = CODE_BASE + PAGE_SIZE - rng_below(r, size);
		break;
	case 1:
		seq->start = CODE_BASE + CODE_PAGES * PAGE_SIZE - size + rng_below(r, 2) * rng_below(r, size);
		break;
	default:
		seq->start = CODE_BASE + rng_below(r, PAGE_SIZE - size);
	}
	seq->straight = true;
	for (u32 i = 0; i < seq->n; i++)
		if (seq->items[i].fix != FIX_NONE && seq->items[i].fix != FIX_RIP)
			seq->straight = false;
}
