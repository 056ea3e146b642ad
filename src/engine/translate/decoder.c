// SPDX-License-Identifier: MIT
/*
 * A cache of decoded instructions. Programs use few different instructions, apart from
 * displacements, immediates and addresses. What Zydis said of one, and all that the translator
 * found out about it, is kept by its *head*: prefixes, opcode, ModRM and SIB (SDM 2A 2.1). The
 * constants are read from the bytes at hand.
 *
 * Only legacy encodings in 64-bit code are kept, and only if Zydis found that nothing but constants
 * follows the head. Everything else is decoded each time, by engine/decode.c. An entry that stood
 * for a head but not for all instructions with it would mistranslate those. Runs while translating.
 */
#include "base/bytes.h"
#include "engine/decode.h"
#include "engine/translate/trans.h"

#define HEAD_MAX 8 /* bytes in front of the constants of an instruction that is remembered */

/*
 * What the bytes of instructions say of where they end. A table is asked for each instruction that
 * is translated, twice.
 */
#define PREFIX	   0x80
#define ENDS	   0x40 /* the block does not go on after it */
#define MODRM	   0x20
#define IMM	   0x07 /* bytes of immediate, one of: */
#define IMM_8	   1
#define IMM_WORD   2 /* 2 or 4 */
#define IMM_WIDE   3 /* 8 with REX.W */
#define IMM_TEST_8 4 /* as the first two, for two of eight instructions */
#define IMM_TEST   5

#define ALU(row)                                                                       \
	[(row) + 0 ...(row) + 3] = MODRM, [(row) + 4] = IMM_8, [(row) + 5] = IMM_WORD, \
			      [(row) + 8 ...(row) + 11] = MODRM, [(row) + 12] = IMM_8, \
			      [(row) + 13] = IMM_WORD

static const u8 one_byte[256] = {
	ALU(0x00),
	ALU(0x10),
	ALU(0x20),
	ALU(0x30),
	[0x26] = PREFIX,
	[0x2e] = PREFIX,
	[0x36] = PREFIX,
	[0x3e] = PREFIX,
	[0x63] = MODRM,
	[0x64 ... 0x67] = PREFIX,
	[0x68] = IMM_WORD,
	[0x69] = MODRM | IMM_WORD,
	[0x6a] = IMM_8,
	[0x6b] = MODRM | IMM_8,
	[0x70 ... 0x7f] = ENDS,
	[0x80] = MODRM | IMM_8,
	[0x81] = MODRM | IMM_WORD,
	[0x83] = MODRM | IMM_8,
	[0x84 ... 0x8f] = MODRM,
	[0xa8] = IMM_8,
	[0xa9] = IMM_WORD,
	[0xb0 ... 0xb7] = IMM_8,
	[0xb8 ... 0xbf] = IMM_WIDE,
	[0xc0 ... 0xc1] = MODRM | IMM_8,
	[0xc2 ... 0xc3] = ENDS,
	[0xc6] = MODRM | IMM_8,
	[0xc7] = MODRM | IMM_WORD,
	[0xd0 ... 0xd3] = MODRM,
	[0xd8 ... 0xdf] = MODRM,
	[0xe8 ... 0xe9] = ENDS,
	[0xeb] = ENDS,
	[0xf0] = PREFIX,
	[0xf2 ... 0xf3] = PREFIX,
	[0xf6] = MODRM | IMM_TEST_8,
	[0xf7] = MODRM | IMM_TEST,
	[0xfe ... 0xff] = MODRM,
};

static const u8 two_bytes[256] = {
	[0x00 ... 0x04] = MODRM,	 [0x0a] = MODRM,	  [0x0c ... 0x2f] = MODRM,
	[0x38 ... 0x39] = MODRM,	 [0x3a] = MODRM | IMM_8,  [0x3b ... 0x6f] = MODRM,
	[0x70 ... 0x73] = MODRM | IMM_8, [0x74 ... 0x76] = MODRM, [0x78 ... 0x7f] = MODRM,
	[0x80 ... 0x8f] = ENDS,		 [0x90 ... 0x9f] = MODRM, [0xa3] = MODRM,
	[0xa4] = MODRM | IMM_8,		 [0xa5 ... 0xa7] = MODRM, [0xab] = MODRM,
	[0xac] = MODRM | IMM_8,		 [0xad ... 0xb9] = MODRM, [0xba] = MODRM | IMM_8,
	[0xbb ... 0xc1] = MODRM,	 [0xc2] = MODRM | IMM_8,  [0xc3] = MODRM,
	[0xc4 ... 0xc6] = MODRM | IMM_8, [0xc7] = MODRM,	  [0xd0 ... 0xff] = MODRM,
};

/* What is at the end of a head. */
struct opcode {
	u8 facts; /* of the tables */
	bool rex_w;
	u8 after; /* offset of what follows the opcode */
};

/*
 * Number of bytes before displacement and immediate; 0: cannot be told this way. A guess, which is
 * right for all instructions with these bytes if it is right for one.
 */
static inline u32 head_length(const u8 *bytes, u32 n, struct opcode *opcode)
{
	bool two;
	u32 i = 0;
	u8 last;

	while (i < n && (one_byte[bytes[i]] & PREFIX))
		i++;
	opcode->rex_w = i < n && (bytes[i] & 0xf8) == 0x48;
	i += i < n && (bytes[i] & 0xf0) == 0x40; /* REX */
	two = i < n && bytes[i] == 0x0f;
	i += two;
	if (i + 3 > n)
		return 0;
	last = bytes[i++];
	i += two && (last == 0x38 || last == 0x3a); /* all of these have a ModRM */
	opcode->facts = (two ? two_bytes : one_byte)[last];
	opcode->after = i;
	if (opcode->facts & MODRM)
		i += 1 + ((bytes[i] & 7) == 4 && bytes[i] < 0xc0);
	return i <= n && i <= HEAD_MAX ? i : 0;
}

/* length <= HEAD_MAX */
static u64 head_of(const u8 *bytes, u32 n, u32 length)
{
	u64 head = 0;

	if (n >= HEAD_MAX && length)
		return *(const bytes_word *)bytes & MASK(8 * length - 1, 0);
	for (u32 i = 0; i < length; i++)
		head |= (u64)bytes[i] << 8 * i;
	return head;
}

static u32 bucket_of(u64 head, u32 length, u32 mode)
{
	u64 key = (head ^ (u64)length << 56 ^ (u64)mode << 32) * 0x9e3779b97f4a7c15ull;

	return key >> (64 - DECODED_BITS);
}

static struct decoded *numbered(struct decoder *decoder, u32 number)
{
	return number ? &decoder->entry[number - 1] : NULL;
}

static struct head head_at(const u8 *bytes, u32 n, u32 mode)
{
	struct opcode opcode;
	u32 length = mode & MODE_CODE64 ? head_length(bytes, n, &opcode) : 0;
	u64 head = head_of(bytes, n, length);

	return (struct head){ head, bucket_of(head, length, mode), 0, length };
}

static inline struct decoded *find(struct decoder *decoder, const struct head *head, u32 n,
				   u32 mode)
{
	struct decoded *d = numbered(decoder, decoder->bucket[head->bucket]);

	if (!head->length)
		return NULL;
	while (d && (d->head != head->bytes || d->head_length != head->length || d->mode != mode))
		d = numbered(decoder, d->next);
	return d && d->insn.len <= n ? d : NULL;
}

/* The bytes from `at` to `at` + size, by one load that ends with them. */
static inline s64 constant(const u8 *bytes, u32 n, u32 at, u32 size, bool is_signed)
{
	u32 end = at + size, unused = 64 - 8 * size;
	u64 word = 0;

	if (n >= 8)
		word = *(const bytes_word *)(bytes + (end > 8 ? end - 8 : 0))
		       << (end < 8 ? 64 - 8 * end : 0);
	else
		for (u32 i = 0; i < size; i++)
			word |= (u64)bytes[at + i] << (unused + 8 * i);
	return is_signed ? (s64)word >> unused : (s64)(word >> unused);
}

static inline u64 first_bytes(u32 n)
{
	return n < 8 ? BIT(8 * n) - 1 : ~0ull;
}

/* Those of the instruction, and zeros. Its length is not predicted. */
static inline void copy_bytes(struct insn *insn, const u8 *bytes, u32 n)
{
	u32 len = insn->len;

	if (n < INSN_MAX) {
		for (u32 i = 0; i < INSN_MAX; i++)
			insn->bytes[i] = i < len ? bytes[i] : 0;
		return;
	}
	*(bytes_word *)insn->bytes = *(const bytes_word *)bytes & first_bytes(len);
	*(bytes_word *)(insn->bytes + 7) =
		*(const bytes_word *)(bytes + 7) & first_bytes(len > 7 ? len - 7 : 0);
}

_Static_assert(INSN_MAX == 15, "copy_bytes()");

/* Copies the decoded instruction, with the constants of the n bytes at hand. */
void decoder_fill_in(const struct decoded *d, const u8 *bytes, u32 n, u64 rip, struct insn *insn)
{
	insn_copy_form(insn, &d->insn);
	copy_bytes(insn, bytes, n);
	if (d->disp_operand != NO_OPERAND) {
		s64 disp = constant(bytes, n, d->disp_at, d->disp_size, true);

		if (d->from_rip)
			disp = (s64)((u64)disp + rip + insn->len);
		if (d->from_rip && insn->addrsize == 4)
			disp = (u32)disp;
		insn->ops[d->disp_operand].imm = disp;
	}
	if (d->imm_operand != NO_OPERAND)
		insn->ops[d->imm_operand].imm =
			constant(bytes, n, d->imm_at, d->imm_size, d->imm_signed);
}

static bool same_constants(const struct insn *a, const struct insn *b)
{
	for (u32 i = 0; i < a->nops; i++)
		if (a->ops[i].imm != b->ops[i].imm)
			return false;
	return true;
}

static bool reads_rip(const struct decoder *decoder)
{
	for (u32 i = 0; i < decoder->zi.operand_count_visible; i++) {
		const ZydisDecodedOperand *op = &decoder->zops[i];

		if (op->type == ZYDIS_OPERAND_TYPE_MEMORY &&
		    (op->mem.base == ZYDIS_REGISTER_RIP || op->mem.base == ZYDIS_REGISTER_EIP))
			return true;
	}
	return false;
}

/* The one operand of this kind if there is a constant for it, else NO_OPERAND. False: there are
 * several. */
static bool find_operand(const struct insn *insn, enum operand_kind kind, u32 size, u8 *which)
{
	*which = NO_OPERAND;
	for (u32 i = 0; size && i < insn->nops; i++) {
		if (insn->ops[i].kind != kind)
			continue;
		if (*which != NO_OPERAND)
			return false;
		*which = i;
	}
	return true;
}

/* Where the constants are. Returns whether nothing else follows the head. */
static bool find_constants(const struct decoder *decoder, struct decoded *d)
{
	const ZydisDecodedInstruction *zi = &decoder->zi;
	u32 disp = zi->raw.disp.size / 8, imm = zi->raw.imm[0].size / 8;

	d->disp_size = disp;
	d->disp_at = zi->raw.disp.offset;
	d->imm_size = imm;
	d->imm_at = zi->raw.imm[0].offset;
	d->imm_signed = zi->raw.imm[0].is_signed;
	d->from_rip = reads_rip(decoder);
	return d->legacy && d->head_length + disp + imm == zi->length && !zi->raw.imm[1].size &&
	       (!disp || d->disp_at == d->head_length) &&
	       (!imm || d->imm_at == d->head_length + disp) &&
	       find_operand(&d->insn, OPERAND_MEM, disp, &d->disp_operand) &&
	       find_operand(&d->insn, OPERAND_IMM, imm, &d->imm_operand);
}

static struct decoded describe(const struct decoder *decoder, const struct insn *insn, u32 mode)
{
	const ZydisDecodedInstruction *zi = &decoder->zi;

	return (struct decoded){ .mode = mode,
				 .legacy = zi->encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY,
				 .opcode = zi->opcode,
				 .map = zi->opcode_map,
				 .category = zi->meta.category,
				 .isa_set = zi->meta.isa_set,
				 .rex_b = zi->raw.rex.B,
				 .rex_w = zi->raw.rex.W,
				 .insn = *insn };
}

/* Does what was just decoded hold for every instruction with this head? */
static bool stands_for_all(const struct decoder *decoder, struct decoded *d, const u8 *bytes, u32 n,
			   u64 rip)
{
	struct insn again;

	if (!d->head_length || !find_constants(decoder, d))
		return false;
	decoder_fill_in(d, bytes, n, rip, &again);
	return same_constants(&again, &d->insn);
}

static struct decoded *keep(struct decoder *decoder, const struct decoded *d)
{
	struct decoded *kept = &decoder->entry[decoder->n];
	u16 *bucket = &decoder->bucket[bucket_of(d->head, d->head_length, d->mode)];

	*kept = *d;
	kept->need = decoder->n++;
	kept->next = *bucket;
	*bucket = decoder->n;
	return kept;
}

/* Of use for this block only. */
static struct decoded *keep_uncached(struct decoder *decoder, const struct decoded *d)
{
	struct decoded *kept = &decoder->uncached[decoder->nuncached];

	*kept = *d;
	kept->need = DECODED_MAX + decoder->nuncached++;
	kept->head_length = 0;
	return kept;
}

void decoder_make_room(struct decoder *decoder, u32 insns)
{
	decoder->nuncached = 0;
	if (decoder->n + insns <= DECODED_MAX)
		return;
	bytes_fill(decoder->bucket, 0, sizeof(decoder->bucket));
	decoder->n = 0;
}

/*
 * Prefetching. It must not wait for the table, so that where instructions begin is told from their
 * bytes alone. All of this is a hint: a wrong length makes the rest of the line come later.
 */

static u32 displacement(const u8 *modrm)
{
	bool no_base = (*modrm & 0xc7) == 5 || ((*modrm & 0xc7) == 4 && (modrm[1] & 7) == 5);

	return *modrm >> 6 == 1 ? 1 : *modrm >> 6 == 2 || no_base ? 4 : 0;
}

static u32 immediate(const struct opcode *opcode, u8 modrm, u32 word)
{
	switch (opcode->facts & IMM) {
	case IMM_8:
		return 1;
	case IMM_WORD:
		return word;
	case IMM_WIDE:
		return opcode->rex_w ? 8 : word;
	case IMM_TEST_8:
		return modrm >> 3 & 7 ? 0 : 1;
	case IMM_TEST:
		return modrm >> 3 & 7 ? 0 : word;
	default:
		return 0;
	}
}

/* Length of the instruction with this head, after which the block goes on. */
static u32 guess_length(const u8 *bytes, u32 head, const struct opcode *opcode)
{
	const u8 *modrm = bytes + opcode->after;

	return head + immediate(opcode, *modrm, bytes[0] == 0x66 ? 2 : 4) +
	       (opcode->facts & MODRM ? displacement(modrm) : 0);
}

static void prefetch_entry(const struct decoded *d)
{
	__builtin_prefetch(d);
	__builtin_prefetch(&d->as_native);
	__builtin_prefetch(&d->insn);
}

void decoder_expect_none(struct decoder *decoder)
{
	decoder->ahead.n = decoder->ahead.next = 0;
}

u32 decoder_prefetch(struct decoder *decoder, const u8 *bytes, u32 n, u32 at, u32 mode)
{
	struct heads *ahead = &decoder->ahead;
	struct opcode opcode = { 0 };
	u32 first = ahead->n, found = first, i = 0;

	if (!(mode & MODE_CODE64))
		return 0;
	while (i < n && found < HEADS_AHEAD && !(opcode.facts & ENDS)) {
		struct head *head = &ahead->head[found];

		head->length = head_length(bytes + i, n - i, &opcode);
		if (!head->length)
			break;
		head->at = at + i;
		head->bytes = head_of(bytes + i, n - i, head->length);
		head->bucket = bucket_of(head->bytes, head->length, mode);
		__builtin_prefetch(&decoder->bucket[head->bucket]);
		i += guess_length(bytes + i, head->length, &opcode);
		found++;
	}
	ahead->n = found;
	/* Of a bucket with several entries, the last one. */
	for (u32 k = first; k < found; k++) {
		u16 number = decoder->bucket[ahead->head[k].bucket];

		if (number)
			prefetch_entry(&decoder->entry[number - 1]);
	}
	return found < HEADS_AHEAD && !(opcode.facts & ENDS) ? at + i : 0;
}

/* Heads are those of the bytes that were guessed from, so that one that begins here is the one. */
static inline const struct head *next_head(struct heads *ahead, u32 at)
{
	u32 i = ahead->next;

	while (i < ahead->n && ahead->head[i].at < at)
		i++;
	ahead->next = i + 1;
	return i < ahead->n && ahead->head[i].at == at ? &ahead->head[i] : NULL;
}

struct decoded *decoder_find(struct decoder *decoder, const u8 *bytes, u32 n, u32 mode)
{
	struct head head = head_at(bytes, n, mode);

	return find(decoder, &head, n, mode);
}

s64 decoder_immediate(const struct decoded *d, const u8 *bytes, u32 n)
{
	return d->imm_size ? constant(bytes, n, d->imm_at, d->imm_size, d->imm_signed) : 0;
}

bool decoder_recall(struct decoder *decoder, const u8 *bytes, u32 n, u64 rip, u32 mode,
		    struct insn *insn, struct decoded **which)
{
	struct decoded *d = decoder_find(decoder, bytes, n, mode);

	if (!d)
		return false;
	decoder_fill_in(d, bytes, n, rip, insn);
	*which = d;
	return true;
}

struct decoded *decoder_recall_ahead(struct decoder *decoder, const u8 *bytes, u32 n, u32 at,
				     u32 mode)
{
	const struct head *head = next_head(&decoder->ahead, at);

	return head ? find(decoder, head, n, mode) : decoder_find(decoder, bytes, n, mode);
}

enum decode_result decoder_decode(struct decoder *decoder, const u8 *bytes, u32 n, u64 rip,
				  u32 mode, struct insn *insn, struct decoded **which)
{
	struct head head = head_at(bytes, n, mode);
	enum decode_result result;
	struct decoded d;

	decoder->invalid.need = ARRAY_SIZE(decoder->need) - 1;
	*which = &decoder->invalid;
	result = decode_insn(bytes, n, rip, mode, insn, &decoder->zi, decoder->zops);
	if (result != DECODE_OK)
		return result;
	d = describe(decoder, insn, mode);
	d.head = head.bytes;
	d.head_length = head.length;
	*which = stands_for_all(decoder, &d, bytes, n, rip) ? keep(decoder, &d)
							    : keep_uncached(decoder, &d);
	return DECODE_OK;
}
