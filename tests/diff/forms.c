// SPDX-License-Identifier: MIT
/*
 * Every instruction shape there is: each opcode of each map with each mandatory prefix is shown to
 * the decoder, and what it knows and families.def wants becomes a form. So nothing is forgotten by
 * hand.
 */
#include "diff.h"

#include <cpuid.h>
#include <stdlib.h>
#include <string.h>

#include "base/must.h"

const char *const family_names[NFAMILIES] = {
#define FAMILY(name, feature) #name,
#include "families.def"
};

static const enum feature family_feature[NFAMILIES] = {
#define FAMILY(name, feature) FEAT_##feature,
#include "families.def"
};

#define ZYDIS_CATEGORY_ANY (-1)

static const struct match {
	enum family family;
	int ext, category;
} matches[] = {
#define MATCH(family, ext, category) \
	{ FAMILY_##family, ZYDIS_ISA_EXT_##ext, ZYDIS_CATEGORY_##category },
#include "families.def"
};

enum group {
	GROUP_NONE,
	GROUP_F,
	GROUP_BW,
	GROUP_DQ,
	GROUP_CD,
	GROUP_IFMA,
	GROUP_VBMI,
	GROUP_VBMI2,
	GROUP_VNNI,
	GROUP_BITALG,
	GROUP_POPCNT,
	GROUP_GFNI,
	GROUP_VAES,
	GROUP_VPCLMUL,
	GROUP_SCALAR,
	GROUP_ANY,
};

static const u8 groups[ZYDIS_ISA_SET_MAX_VALUE + 1] = {
#define SET(set, group) [ZYDIS_ISA_SET_##set] = GROUP_##group,
#include "families.def"
};

static const struct avx512_match {
	enum family family;
	enum group group;
	int category;
} avx512_matches[] = {
#define AVX512(family, group, category) \
	{ FAMILY_##family, GROUP_##group, ZYDIS_CATEGORY_##category },
#include "families.def"
};

static const u16 excluded[] = {
#define EXCLUDE(mnemonic) ZYDIS_MNEMONIC_##mnemonic,
#include "families.def"
};

static bool cpuid_says(const struct feature_row *row)
{
	u32 reg[4] = { 0 };

	__get_cpuid_count(row->leaf, row->subleaf, &reg[0], &reg[1], &reg[2], &reg[3]);
	return reg[row->reg] >> row->bit & 1;
}

bool host_has(enum feature f)
{
	static s8 known[NFEATURES]; /* CPUID is slow under a hypervisor */

	if (!known[f])
		known[f] = cpuid_says(&feature_rows[f]) ? 1 : -1;
	return known[f] > 0;
}

void mode_init(struct mode *mode, u32 which)
{
	static const struct {
		ZydisMachineMode mode;
		ZydisStackWidth width;
	} decoders[NMODES] = {
		[MODE_64] = { ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64 },
		[MODE_32] = { ZYDIS_MACHINE_MODE_LONG_COMPAT_32, ZYDIS_STACK_WIDTH_32 },
		[MODE_16] = { ZYDIS_MACHINE_MODE_LONG_COMPAT_16, ZYDIS_STACK_WIDTH_16 },
	};

	mode->is32 = which != MODE_64;
	mode->is16 = which == MODE_16;
	ZydisDecoderInit(&mode->decoder, decoders[which].mode, decoders[which].width);
}

static enum family avx512_family(const ZydisDecodedInstruction *insn)
{
	enum group group = groups[insn->meta.isa_set];

	for (size_t i = 0; group != GROUP_NONE && i < ARRAY_SIZE(avx512_matches); i++) {
		const struct avx512_match *m = &avx512_matches[i];

		if ((m->group == GROUP_ANY || m->group == group) &&
		    (m->category == ZYDIS_CATEGORY_ANY || (int)insn->meta.category == m->category))
			return m->family;
	}
	return NFAMILIES;
}

enum family form_family(const ZydisDecodedInstruction *insn)
{
	if (insn->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX ||
	    insn->meta.category == ZYDIS_CATEGORY_KMASK)
		return avx512_family(insn);
	for (size_t i = 0; i < ARRAY_SIZE(excluded); i++)
		if (insn->mnemonic == excluded[i])
			return NFAMILIES;
	if (insn->mnemonic == ZYDIS_MNEMONIC_POPCNT)
		return FAMILY_popcnt;
	for (size_t i = 0; i < ARRAY_SIZE(matches); i++)
		if ((int)insn->meta.isa_ext == matches[i].ext &&
		    (matches[i].category == ZYDIS_CATEGORY_ANY ||
		     (int)insn->meta.category == matches[i].category))
			return matches[i].family;
	return NFAMILIES;
}

bool family_offered(enum family family)
{
	bool avx512 = family >= FAMILY_opmask && family <= FAMILY_evex_raw;

	return host_has(family_feature[family]) && (!avx512 || native_has_avx512());
}

/* vvvv is 6 for gathers, whose three registers must differ, and 0 otherwise. With EVEX they have an
 * opmask register. */
static u32 opcode_bytes(const struct form *f, bool gather, u8 *out)
{
	u32 n = 0;
	u8 pp = f->pp == 0x66 ? 1 : f->pp == 0xf3 ? 2 : f->pp == 0xf2 ? 3 : 0;

	if (f->is_evex) {
		out[n++] = 0x62;
		out[n++] = 0xf0 | f->map;
		out[n++] = f->w << 7 | 0x7c | pp;
		out[n++] = f->l << 5 | f->b << 4 | 8 | gather;
	} else if (f->is_vex) {
		out[n++] = 0xc4;
		out[n++] = 0xe0 | f->map;
		out[n++] = f->w << 7 | (gather ? 0x48 : 0x78) | f->l << 2 | pp;
	} else {
		if (f->pp)
			out[n++] = f->pp;
		if (f->w)
			out[n++] = 0x48;
		if (f->map)
			out[n++] = 0x0f;
		if (f->map >= MAP_0F38)
			out[n++] = f->map == MAP_0F38 ? 0x38 : 0x3a;
	}
	out[n++] = f->opcode;
	return n;
}

static bool decode_bytes(const struct form *f, const struct mode *mode, bool gather,
			 ZydisDecodedInstruction *insn)
{
	u8 bytes[24] = { 0 };
	u32 n = opcode_bytes(f, gather, bytes);

	bytes[n] = f->modrm;
	bytes[n + 1] = gather ? 7 << 3 : 0; /* SIB, if there is one */
	return ZYAN_SUCCESS(
		ZydisDecoderDecodeInstruction(&mode->decoder, NULL, bytes, sizeof(bytes), insn));
}

static bool form_decode(struct form *f, const struct mode *mode)
{
	ZydisDecodedInstruction insn;

	if (!decode_bytes(f, mode, false, &insn) &&
	    !((f->is_vex || f->is_evex) && decode_bytes(f, mode, true, &insn)))
		return false;
	f->mnemonic = insn.mnemonic;
	f->family = form_family(&insn);
	f->has_modrm = insn.attributes & ZYDIS_ATTRIB_HAS_MODRM;
	if (f->family == NFAMILIES || !family_offered(f->family))
		return false;
	/* A prefix taken for an opcode, or a VEX prefix found by accident. */
	if (insn.opcode != f->opcode ||
	    (insn.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX) != f->is_vex ||
	    (insn.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX) != f->is_evex)
		return false;
	return f->has_modrm || f->modrm == 4;
}

static int compare_forms(const void *a, const void *b)
{
	const struct form *x = a, *y = b;

	if (x->family != y->family)
		return x->family - y->family;
	return x->mnemonic - y->mnemonic;
}

static void add_form(struct form_table *t, const struct form *f)
{
	if ((t->nforms & (t->nforms + 1)) == 0) {
		t->forms = realloc(t->forms, (2 * t->nforms + 2) * sizeof(*t->forms));
		must(t->forms);
	}
	t->forms[t->nforms++] = *f;
}

static void index_forms(struct form_table *t)
{
	u32 family = 0;

	qsort(t->forms, t->nforms, sizeof(*t->forms), compare_forms);
	t->mnemonic_start = calloc(t->nforms + 1, sizeof(u32));
	must(t->mnemonic_start);
	for (u32 i = 0; i < t->nforms; i++) {
		if (i && compare_forms(&t->forms[i - 1], &t->forms[i]) == 0)
			continue;
		while (family <= t->forms[i].family)
			t->family_start[family++] = t->nmnemonics;
		t->mnemonic_start[t->nmnemonics++] = i;
	}
	t->mnemonic_start[t->nmnemonics] = t->nforms;
	while (family <= NFAMILIES)
		t->family_start[family++] = t->nmnemonics;
}

/* All registers, and one kind of address (with a SIB byte): the generator makes the others. */
static bool modrm_redundant(const struct form *f)
{
	if (f->is_evex && f->modrm >= 0xc0) /* encode.c chooses the second register */
		return (f->modrm & 7) != 1;
	return f->modrm < 0xc0 && (f->modrm & ~0x38) != 4;
}

/* With this ModRM byte, and what else the prefix says: bit 0 W, bits 1 and 2 the length, bit 3
 * EVEX.b. */
static bool variant_redundant(const struct form *f, const struct mode *mode, u32 variant)
{
	if (f->is_evex)
		return false;
	if (f->is_vex)
		return variant & ~3u;
	return variant & ~1u || (variant && mode->is32);
}

static void find_variants(struct form_table *t, const struct mode *mode, struct form f)
{
	for (u32 j = 0; j < 256 * 16; j++) {
		f.modrm = j;
		f.w = j >> 8 & 1;
		f.l = j >> 9 & 3;
		f.b = j >> 11;
		if (!modrm_redundant(&f) && !variant_redundant(&f, mode, j >> 8) &&
		    form_decode(&f, mode))
			add_form(t, &f);
	}
}

void forms_find(struct form_table *t, const struct mode *mode)
{
	static const u8 prefixes[] = { 0, 0x66, 0xf3, 0xf2 };

	memset(t, 0, sizeof(*t));
	for (u32 i = 0; i < 4 * NMAPS * 4 * 256; i++) {
		struct form f = { .is_vex = (i & 3) == 1,
				  .is_evex = (i & 3) == 2,
				  .map = i >> 2 & 3,
				  .pp = prefixes[i >> 4 & 3],
				  .opcode = i >> 6 };

		if ((i & 3) == 3 || ((f.is_vex || f.is_evex) && f.map == MAP_1) ||
		    (f.is_evex && !native_has_avx512()))
			continue;
		find_variants(t, mode, f);
	}
	index_forms(t);
}

const struct form *form_pick(const struct form_table *t, enum family family, struct rng *r)
{
	u32 first = t->family_start[family], n = t->family_start[family + 1] - first;
	u32 mnemonic;

	if (n == 0)
		return NULL;
	mnemonic = first + rng_below(r, n);
	first = t->mnemonic_start[mnemonic];
	return &t->forms[first + rng_below(r, t->mnemonic_start[mnemonic + 1] - first)];
}
