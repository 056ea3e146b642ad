// SPDX-License-Identifier: MIT
/*
 * Sequences of random instructions. encode.c makes one of a form; the decoder says what came of it,
 * and what is worth running is kept: addresses that mostly lie in the sandbox, and no instruction
 * that reads a flag which an earlier one left undefined.
 *
 * To make addresses meaningful, registers have classes (pointer into the data pages, small number)
 * that input.c honours; a register is worth its class until something writes it.
 */
#include "diff.h"

#include <string.h>

#include "base/must.h"

static const ZydisAccessedFlags no_flags;

u64 code_origin(const struct sequence *seq)
{
	return seq->ldt ? LDT_CODE_ORIGIN : CODE_BASE;
}

u64 data_origin(const struct sequence *seq)
{
	return seq->ldt ? 0 : DATA_BASE;
}

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

/* --- judging
 * -------------------------------------------------------------------------------------------------
 */

static int gpr_of(const struct generator *g, ZydisRegister reg)
{
	ZydisRegister whole = ZydisRegisterGetLargestEnclosing(
		g->mode->is32 ? ZYDIS_MACHINE_MODE_LONG_COMPAT_32 : ZYDIS_MACHINE_MODE_LONG_64,
		reg);

	if (ZydisRegisterGetClass(whole) !=
	    (g->mode->is32 ? ZYDIS_REGCLASS_GPR32 : ZYDIS_REGCLASS_GPR64))
		return -1;
	return ZydisRegisterGetId(whole);
}

static int vec_of(ZydisRegister reg)
{
	switch (ZydisRegisterGetClass(reg)) {
	case ZYDIS_REGCLASS_XMM:
	case ZYDIS_REGCLASS_YMM:
	case ZYDIS_REGCLASS_ZMM:
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
		if (base == RSP && g->no_stack)
			return false;
		if (base >= 0 && !want_gpr(g, base, CLASS_POINTER))
			return false;
		if (op->mem.type == ZYDIS_MEMOP_TYPE_VSIB && !want_vec(g, vec_of(op->mem.index)))
			return false;
	}
	if (insn->meta.category == ZYDIS_CATEGORY_STRINGOP &&
	    (insn->attributes &
	     (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)))
		return want_gpr(g, RCX, CLASS_SMALL);
	if (insn->meta.category == ZYDIS_CATEGORY_BITBYTE &&
	    ops[0].type == ZYDIS_OPERAND_TYPE_MEMORY && ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER)
		return want_gpr(g, gpr_of(g, ops[1].reg.value), CLASS_SMALL);
	if (insn->mnemonic == ZYDIS_MNEMONIC_DIV || insn->mnemonic == ZYDIS_MNEMONIC_IDIV)
		return want_gpr(g, RDX, CLASS_SMALL);
	return true;
}

/*
 * A Zen 4 reads RSP without what PUSH, POP, CALL and RET have just added to it where EVEX.X is 0,
 * which has no meaning for a general register: its stack engine does not see that RSP is meant.
 * Seen with VPBROADCASTB and VPBROADCASTD; an interrupt in between makes the value right.
 */
static bool reads_stale_rsp(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *ops)
{
	if (insn->encoding != ZYDIS_INSTRUCTION_ENCODING_EVEX || insn->raw.evex.X)
		return false;
	for (u32 i = 0; i < insn->operand_count; i++)
		if (ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    ops[i].encoding == ZYDIS_OPERAND_ENCODING_MODRM_RM &&
		    ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64,
						     ops[i].reg.value) == ZYDIS_REGISTER_RSP)
			return true;
	return false;
}

/* A Zen 5 refuses CLZERO behind F2 or F3, which older ones ignore, and guests are of those. */
static bool refuses_clzero(const ZydisDecodedInstruction *insn)
{
	if (insn->mnemonic != ZYDIS_MNEMONIC_CLZERO || !host_is_zen5())
		return false;
	for (u32 i = 0; i < insn->raw.prefix_count; i++)
		if ((insn->raw.prefixes[i].value | 1) == 0xf3)
			return true;
	return false;
}

/* Things to keep away from: most would leave the sandbox. */
static bool forbidden(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *ops)
{
	for (u32 i = 0; i < insn->operand_count; i++)
		if (ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    ZydisRegisterGetClass(ops[i].reg.value) == ZYDIS_REGCLASS_SEGMENT &&
		    (ops[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			return true;
	/* RULE_PREFETCH_REGISTER_UD has not been compared with AMD's processors in all
	 * its forms. */
	if (host_is_amd() && insn->opcode_map == ZYDIS_OPCODE_MAP_0F && insn->opcode == 0x0d &&
	    insn->raw.modrm.mod == 3)
		return true;
	/* Nor has RULE_VEX_W_UD. */
	if (host_is_amd() &&
	    (insn->mnemonic == ZYDIS_MNEMONIC_VPINSRD ||
	     insn->mnemonic == ZYDIS_MNEMONIC_VPEXTRD) &&
	    insn->raw.vex.W)
		return true;
	/* With VEX.W a Zen 4 moves all 64 bits, outside 64-bit code too. The upper half of RSP is
	 * then the host kernel's, which returns to 16-bit stacks by one of its own (espfix). */
	if (insn->mnemonic == ZYDIS_MNEMONIC_KMOVD && insn->raw.vex.W &&
	    ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER && ops[1].reg.value == ZYDIS_REGISTER_ESP)
		return true;
	return (host_is_amd() && reads_stale_rsp(insn, ops)) || refuses_clzero(insn) ||
	       (insn->mnemonic == ZYDIS_MNEMONIC_INT && ops[0].imm.value.u == 0x80);
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
static bool spoils(struct generator *g, const ZydisDecodedInstruction *insn,
		   const ZydisDecodedOperand *ops)
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
	item->vsib = insn->meta.category == ZYDIS_CATEGORY_AVX2GATHER ||
		     insn->meta.category == ZYDIS_CATEGORY_GATHER ||
		     insn->meta.category == ZYDIS_CATEGORY_SCATTER;
	item->string = insn->meta.category == ZYDIS_CATEGORY_STRINGOP;
	item->evex = insn->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX;
	item->undefined = g->seq->undefined;
	note_flags(g, insn);
	return item;
}

/* In 16-bit code prefixes make it what it is in 32-bit code. */
u32 template_prefixes(const struct generator *g)
{
	return g->mode->is16 ? 2 : 0;
}

struct item *append_item(struct generator *g, enum family family, const u8 *bytes, u32 len)
{
	u8 widened[15] = { 0x66, 0x67 };
	u32 prefixes = template_prefixes(g);
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];

	if (g->seq->n == SEQUENCE_MAX || len + prefixes > sizeof(widened))
		return NULL;
	memcpy(widened + prefixes, bytes, len);
	if (!ZYAN_SUCCESS(
		    ZydisDecoderDecodeFull(&g->mode->decoder, widened, len + prefixes, &insn, ops)))
		return NULL;
	if (!flags_fit(g, &insn))
		return NULL;
	note_writes(g, &insn, ops);
	return add_item(g, family, widened, &insn);
}

/* --- appending
 * -----------------------------------------------------------------------------------------------
 */

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

	encode_form(g, f, &c);
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

/* VMCALL or VMMCALL: hypervisors below us try to make one of the other, whatever its prefixes. */
static bool is_hypercall(const u8 *bytes)
{
	return bytes[0] == 0x0f && bytes[1] == 0x01 && (bytes[2] == 0xc1 || bytes[2] == 0xd9);
}

static bool add_decoded(struct generator *g, enum family family, const u8 *bytes,
			const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *ops)
{
	if (form_family(insn) == NFAMILIES || forbidden(insn, ops) || !flags_fit(g, insn))
		return false;
	note_writes(g, insn, ops);
	add_item(g, family, bytes, insn);
	return true;
}

static void add_undecodable(struct generator *g, enum family family, const u8 *bytes)
{
	struct item *item = &g->seq->items[g->seq->n++];

	memset(item, 0, sizeof(*item));
	memcpy(item->bytes, bytes, 15);
	item->len = 15;
	item->family = family;
	item->evex = family == FAMILY_evex_raw;
	item->undefined = g->seq->undefined;
	g->done = true;
}

/* Bytes without a plan, prefixes first. What does not decode must be #UD on both sides. */
static bool try_raw(struct generator *g)
{
	static const u8 prefixes[] = { 0x66, 0xf2, 0xf3, 0xf0, 0x67, 0x64,
				       0x0f, 0x40, 0x48, 0xc5, 0xc4, 0x0f };
	u8 bytes[15];
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	u32 n = rng_below(g->r, 3);

	for (u32 i = 0; i < 15; i++)
		bytes[i] = i < n ? prefixes[rng_below(g->r, ARRAY_SIZE(prefixes))] : rng_next(g->r);
	/* EVEX (try_evex() makes it), XOP: the host may have it, the guest does not. MPX is all
	 * NOPs. */
	for (u32 i = 0; i < 6; i++)
		if (bytes[i] == 0x62 || bytes[i] == 0x8f || bytes[i] == 0x1a || bytes[i] == 0x1b)
			return false;
	if (ZYAN_SUCCESS(ZydisDecoderDecodeFull(&g->mode->decoder, bytes, 15, &insn, ops)))
		return add_decoded(g, FAMILY_raw, bytes, &insn, ops);
	for (u32 i = 0; i < 6; i++)
		if (bytes[i] == 0xc4 || bytes[i] == 0xc5 ||
		    bytes[i] == 0xf0 /* LOCK MOV CR0 is CR8 on AMD */ || is_hypercall(bytes + i))
			return false;
	add_undecodable(g, FAMILY_raw, bytes);
	return true;
}

/* An EVEX prefix with all its reserved bits and combinations (SDM 2A 2.7.11), and any opcode. */
static bool try_evex(struct generator *g)
{
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	u8 bytes[15];

	rng_fill(g->r, bytes, sizeof(bytes));
	bytes[0] = 0x62;
	if (!rng_one_in(g->r, 16))
		bytes[1] = (bytes[1] & 0xf0) | (1 + rng_below(g->r, 3));
	if (g->mode->is32) /* else it is BOUND */
		bytes[1] |= 0xc0;
	if (!rng_one_in(g->r, 16))
		bytes[2] |= 4;
	for (u32 i = 2; i < 4; i++)
		bytes[i] = rng_one_in(g->r, 2) ? rng_next(g->r) | (i == 2 ? 4 : 0) : bytes[i];
	if (rng_one_in(g->r, 2))
		bytes[2] |= 0x78; /* no second source */
	bytes[4] = rng_next(g->r);
	if (ZYAN_SUCCESS(ZydisDecoderDecodeFull(&g->mode->decoder, bytes, 15, &insn, ops)))
		return address_holds(g, &insn, ops) &&
		       add_decoded(g, FAMILY_evex_raw, bytes, &insn, ops);
	add_undecodable(g, FAMILY_evex_raw, bytes);
	return true;
}

bool append_random(struct generator *g, enum family family)
{
	for (u32 i = 0; i < 60; i++) {
		const struct form *f;

		if (g->seq->n == SEQUENCE_MAX)
			return false;
		if (family == FAMILY_raw || family == FAMILY_evex_raw) {
			if (family == FAMILY_raw ? try_raw(g) : try_evex(g))
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

/* What programs are mostly made of. */
static enum family program_family(struct rng *r)
{
	static const u8 families[] = { FAMILY_arith,   FAMILY_arith,  FAMILY_logic, FAMILY_move,
				       FAMILY_move,    FAMILY_stack,  FAMILY_cond,  FAMILY_shift,
				       FAMILY_pointer, FAMILY_pointer };

	return families[rng_below(r, ARRAY_SIZE(families))];
}

static void start(struct generator *g, bool ldt)
{
	memset(g->seq, 0, sizeof(*g->seq));
	g->seq->is32 = g->mode->is32;
	g->seq->is16 = g->mode->is16;
	g->seq->ldt = ldt;
	g->seq->gpr_class[RSP] = CLASS_POINTER;
}

void generate(struct sequence *seq, struct rng *r, const struct mode *mode,
	      const struct form_table *table, int only, bool program, bool ldt)
{
	struct generator g = { .r = r, .mode = mode, .table = table, .seq = seq };
	u32 want = program	      ? PROGRAM_MIN + rng_below(r, 24)
		   : rng_one_in(r, 4) ? 1
				      : 1 + rng_below(r, 10);
	u32 theme = only >= 0 ? (u32)only : rng_below(r, NFAMILIES);

	start(&g, ldt);
	while (seq->n < want && !g.done) {
		u32 family = only >= 0 || rng_one_in(r, 2) ? theme : rng_below(r, NFAMILIES);

		if (program && rng_one_in(r, 2))
			family = program_family(r);
		if (only < 0 && rng_one_in(r, program ? 4 : 8))
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

/* --- layout
 * --------------------------------------------------------------------------------------------------
 */

static void apply_fix(const struct item *item, u8 *out, u64 here, const u64 *addr)
{
	u64 end = here + item->len;
	u64 alias = here & HIGH_ALIAS;
	u64 target = item->fix == FIX_RIP ? item->target + alias : addr[item->target];
	u64 value = (item->fix == FIX_ABS32 ? target : target - end) + item->fix_add;

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
		if (seq->items[i].ends_with_end)
			memcpy(out + size + seq->items[i].len - 4, &addr[seq->n], 4);
		size += seq->items[i].len;
	}
	memcpy(out + size, "\x0f\x0b", 2);
	if (addr_out)
		memcpy(addr_out, addr, sizeof(u64) * (seq->n + 1));
	return size + 2;
}

/* State areas are overwritten in part by what follows; and how many bytes of a bad instruction are
 * fetched before it is found bad is not compared. */
static bool must_not_break_off(const struct sequence *seq)
{
	for (u32 i = 0; i < seq->n; i++)
		if (seq->items[i].family == FAMILY_xsave ||
		    seq->items[i].mnemonic == ZYDIS_MNEMONIC_INVALID)
			return true;
	return false;
}

/* Mostly anywhere on the first page; sometimes across the two, above all programs; sometimes
 * running into the hole after them. */
void sequence_place(struct sequence *seq, struct rng *r)
{
	u8 bytes[SEQUENCE_MAX * 15 + 2];
	u32 size = sequence_bytes(seq, bytes, NULL);

	switch (must_not_break_off(seq) ? 2 : rng_below(r, seq->n < PROGRAM_MIN ? 8 : 4)) {
	case 0:
		seq->start = code_origin(seq) + PAGE_SIZE - rng_below(r, size);
		break;
	case 1:
		seq->start = code_origin(seq) + CODE_PAGES * PAGE_SIZE - size +
			     rng_below(r, 2) * rng_below(r, size);
		break;
	default:
		seq->start = code_origin(seq) + rng_below(r, PAGE_SIZE - size);
	}
	if (!seq->is32 && rng_one_in(r, 3))
		seq->start += HIGH_ALIAS;
	seq->straight = true;
	for (u32 i = 0; i < seq->n; i++)
		if (seq->items[i].family == FAMILY_branch ||
		    (seq->items[i].fix != FIX_NONE && seq->items[i].fix != FIX_RIP))
			seq->straight = false;
}
