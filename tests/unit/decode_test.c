// SPDX-License-Identifier: MIT
/*
 * The decoder: what struct insn says of prefixes, segments, sizes and operands in 64-, 32- and
 * 16-bit code.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/mode.h"
#include "engine/translate/trans.h"

#define CODE64 (MODE_CODE64 | MODE_PROT)
#define CODE32 (MODE_CODE32 | MODE_STACK32 | MODE_PROT)
#define REAL16 0
#define RIP    0x1000

static struct insn insn;

static enum decode_result decode(u32 mode, const u8 *bytes, u32 n)
{
	ZydisDecodedOperand zops[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction zi;

	return decode_insn(bytes, n, RIP, mode, &insn, &zi, zops);
}

#define DECODE(mode, ...) \
	decode(mode, (const u8[]){ __VA_ARGS__ }, sizeof((const u8[]){ __VA_ARGS__ }))
#define DECODED(mode, ...) assert_int_equal(DECODE(mode, __VA_ARGS__), DECODE_OK)

static void rip_relative_addresses_are_folded(void **state)
{
	(void)state;
	DECODED(CODE64, 0x8b, 0x05, 0x11, 0, 0, 0); /* mov eax, [rip + 0x11] */
	assert_int_equal(insn.ops[1].base, NO_REG);
	assert_int_equal(insn.ops[1].imm, RIP + 6 + 0x11);
	DECODED(CODE64, 0x67, 0x8b, 0x05, 0, 0, 0, 0x80); /* mov eax, [eip - 2G] */
	assert_int_equal(insn.ops[1].imm, 0x80000000 + RIP + 7);
	assert_int_equal(insn.addrsize, 4);
}

static void stack_bases_mean_ss_unless_overridden(void **state)
{
	(void)state;
	DECODED(CODE64, 0x8b, 0x45, 0x00); /* mov eax, [rbp] */
	assert_int_equal(insn.ops[1].seg, SS);
	DECODED(CODE64, 0x8b, 0x04, 0x24); /* mov eax, [rsp] */
	assert_int_equal(insn.ops[1].seg, SS);
	DECODED(CODE64, 0x64, 0x8b, 0x45, 0x00);
	assert_int_equal(insn.ops[1].seg, FS);
	DECODED(CODE32, 0x3e, 0x8b, 0x45, 0x00);
	assert_int_equal(insn.ops[1].seg, DS);
	DECODED(REAL16, 0x8b, 0x46, 0x00); /* mov ax, [bp] */
	assert_int_equal(insn.ops[1].seg, SS);
	assert_int_equal(insn.opsize, 2);
}

static void only_fs_and_gs_override_in_64_bit_code(void **state)
{
	(void)state;
	DECODED(CODE64, 0x36, 0x8b, 0x00);
	assert_int_equal(insn.ops[1].seg, DS);
	DECODED(CODE64, 0x65, 0x2e, 0x8b, 0x00);
	assert_int_equal(insn.ops[1].seg, GS);
	DECODED(CODE32, 0x36, 0x8b, 0x00);
	assert_int_equal(insn.ops[1].seg, SS);
}

static void byte_registers_are_told_apart(void **state)
{
	(void)state;
	DECODED(CODE64, 0x88, 0xe0); /* mov al, ah */
	assert_true(insn.ops[1].high8);
	assert_int_equal(insn.ops[1].reg, RAX);
	DECODED(CODE64, 0x40, 0x88, 0xe0); /* mov al, spl */
	assert_false(insn.ops[1].high8);
	assert_int_equal(insn.ops[1].reg, RSP);
	DECODED(CODE64, 0x41, 0x88, 0xc7); /* mov r15b, al */
	assert_int_equal(insn.ops[0].reg, R15);
}

static void repeat_prefixes_are_only_those_that_repeat(void **state)
{
	(void)state;
	DECODED(CODE64, 0xf3, 0xa4); /* rep movsb */
	assert_int_equal(insn.prefixes, PREFIX_REP);
	assert_int_equal(insn.nops, 0);
	DECODED(CODE64, 0xf2, 0xa4); /* repne movsb */
	assert_int_equal(insn.prefixes, PREFIX_REPNE);
	DECODED(CODE64, 0xf3, 0x0f, 0xb8, 0xc0); /* popcnt eax, eax */
	assert_int_equal(insn.prefixes, 0);
	DECODED(CODE64, 0xf0, 0xff, 0x00); /* lock inc [rax] */
	assert_int_equal(insn.prefixes, PREFIX_LOCK);
}

static void far_transfers_are_marked(void **state)
{
	(void)state;
	DECODED(CODE64, 0xcb); /* retf */
	assert_true(insn.far && insn.is_branch);
	assert_int_equal(insn.opsize, 4);
	DECODED(CODE64, 0xc3);
	assert_false(insn.far);
	DECODED(CODE32, 0x9a, 1, 2, 3, 4, 5, 6); /* call 0605:04030201 */
	assert_int_equal(insn.ops[0].kind, OPERAND_FAR);
	assert_int_equal(insn.ops[0].selector, 0x605);
	assert_int_equal(insn.ops[0].imm, 0x4030201);
	assert_int_equal(DECODE(CODE64, 0x9a, 1, 2, 3, 4, 5, 6), DECODE_INVALID);
}

static void branches_are_what_the_tally_counts(void **state)
{
	static const u8 branches[][2] = {
		{ 0x74, 0 },	{ 0xeb, 0 },	{ 0xe2, 0 },	{ 0xe3, 0 },	{ 0xcd, 0x80 },
		{ 0x0f, 0x05 }, { 0x0f, 0x07 }, { 0x0f, 0x34 }, { 0x0f, 0x35 }, { 0x48, 0xcf },
	};
	static const u8 others[][2] = { { 0xf3, 0x90 }, { 0x0f, 0xa2 }, { 0x0f, 0x0b } };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(branches); i++) {
		assert_int_equal(decode(CODE64, branches[i], 2), DECODE_OK);
		assert_true(insn.is_branch);
	}
	for (u32 i = 0; i < ARRAY_SIZE(others); i++) {
		assert_int_equal(decode(CODE64, others[i], 2), DECODE_OK);
		assert_false(insn.is_branch);
	}
	DECODED(CODE64, 0xcc); /* int3 */
	assert_true(insn.is_branch);
	DECODED(CODE64, 0xf1); /* int1 */
	assert_false(insn.is_branch);
}

static void incomplete_and_overlong_are_not_invalid(void **state)
{
	static const u8 prefixes[16] = { [0 ... 14] = 0x66, [15] = 0x90 };

	(void)state;
	assert_int_equal(DECODE(CODE64, 0x8b, 0x44), DECODE_SHORT);
	assert_int_equal(decode(CODE64, prefixes, 14), DECODE_SHORT);
	assert_int_equal(decode(CODE64, prefixes, 16), DECODE_TOO_LONG);
	assert_int_equal(DECODE(CODE64, 0x06), DECODE_INVALID);	      /* push es */
	assert_int_equal(DECODE(CODE64, 0xf0, 0x90), DECODE_INVALID); /* lock nop */
}

static void counting_zeros_was_scanning_once(void **state)
{
	(void)state;
	DECODED(CODE64, 0xf3, 0x0f, 0xbc, 0xc1);
	assert_int_equal(insn.mnemonic, ZYDIS_MNEMONIC_TZCNT);
	DECODED(CODE64 | DECODE_NO_LZCNT, 0xf3, 0x0f, 0xbc, 0xc1);
	assert_int_equal(insn.mnemonic, ZYDIS_MNEMONIC_TZCNT);
	DECODED(CODE64 | DECODE_NO_TZCNT, 0xf3, 0x0f, 0xbc, 0xc1);
	assert_int_equal(insn.mnemonic, ZYDIS_MNEMONIC_BSF);
	DECODED(CODE64 | DECODE_NO_LZCNT, 0xf3, 0x0f, 0xbd, 0xc1);
	assert_int_equal(insn.mnemonic, ZYDIS_MNEMONIC_BSR);
}

static void gathers_have_a_vector_index(void **state)
{
	(void)state;
	DECODED(CODE64, 0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x8f);
	assert_int_equal(insn.ops[1].index_cls, REG_VEC);
	assert_int_equal(insn.ops[1].index, 1);
	assert_int_equal(insn.ops[1].scale, 4);
	assert_int_equal(insn.ops[2].reg, 2);
}

/* --- decoding once: decoder.c --- */

static bool same_operand(const struct operand *a, const struct operand *b)
{
	return a->kind == b->kind && a->size == b->size && a->cls == b->cls && a->reg == b->reg &&
	       a->high8 == b->high8 && a->read == b->read && a->written == b->written &&
	       a->seg == b->seg && a->base == b->base && a->index == b->index &&
	       a->scale == b->scale && a->index_cls == b->index_cls && a->imm == b->imm &&
	       a->selector == b->selector;
}

static bool same_insn(const struct insn *a, const struct insn *b)
{
	bool same = a->mnemonic == b->mnemonic && a->id == b->id && a->len == b->len &&
		    a->opsize == b->opsize && a->addrsize == b->addrsize &&
		    a->prefixes == b->prefixes && a->nops == b->nops &&
		    a->is_branch == b->is_branch && a->far == b->far && a->seg == b->seg &&
		    a->evex == b->evex && a->mask == b->mask && a->vector == b->vector &&
		    !memcmp(a->bytes, b->bytes, sizeof(a->bytes));

	for (u32 i = 0; same && i < a->nops; i++)
		same = same_operand(&a->ops[i], &b->ops[i]);
	return same;
}

static u64 random_bits(void)
{
	static u64 x = 88172645463325252;

	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

/* Prefixes, opcode and ModRM, and anything after them. */
static void make_up(u8 *bytes, u32 i, u32 map, u8 opcode)
{
	static const char *const prefixes[] = { "",	    "\x66",	"\xf2",	    "\xf3",
						"\x48",	    "\x41",	"\x66\x48", "\x65\x4f",
						"\x67",	    "\xf0",	"\x47",	    "\x2e\x66",
						"\xf3\x41", "\x67\x45", "\x66\xf3" };
	static const char *const maps[] = { "", "\x0f", "\x0f\x38", "\x0f\x3a" };
	const char *prefix = prefixes[i % ARRAY_SIZE(prefixes)];
	u32 n = 0;

	for (; *prefix; prefix++)
		bytes[n++] = *prefix;
	for (u32 k = 0; maps[map][k]; k++)
		bytes[n++] = maps[map][k];
	bytes[n++] = opcode;
	while (n < INSN_MAX)
		bytes[n++] = random_bits();
}

static void check_once(struct decoder *decoder, u32 mode, const u8 *bytes, u32 n)
{
	enum decode_result expected = decode(mode, bytes, n), result = DECODE_OK;
	struct decoded *which;
	struct insn found;

	decoder_make_room(decoder, 1);
	if (!decoder_recall(decoder, bytes, n, RIP, mode, &found, &which))
		result = decoder_decode(decoder, bytes, n, RIP, mode, &found, &which);
	assert_int_equal(result, expected);
	if (result == DECODE_OK && !same_insn(&found, &insn))
		fail_msg("mode %x: %02x %02x %02x %02x %02x %02x %02x %02x", mode, bytes[0],
			 bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]);
}

static struct decoder *new_decoder(void)
{
	struct decoder *decoder = aligned_alloc(64, sizeof(*decoder));

	assert_non_null(decoder);
	memset(decoder, 0, sizeof(*decoder));
	return decoder;
}

/* The same ModRM with other constants after it finds what the first one left. */
static void instructions_are_the_same_when_decoded_once(void **state)
{
	struct decoder *decoder = new_decoder();
	u8 bytes[INSN_MAX];

	(void)state;
	for (u32 i = 0; i < 60; i++) {
		for (u32 opcode = 0; opcode < 4 * 256; opcode++) {
			u32 n = i % 8 ? INSN_MAX : random_bits() % INSN_MAX + 1;
			u32 at = random_bits() % INSN_MAX;

			make_up(bytes, i, opcode / 256, opcode);
			check_once(decoder, CODE64, bytes, n);
			bytes[at] ^= random_bits();
			check_once(decoder, CODE64, bytes, n);
			bytes[INSN_MAX - 1 - i % 8] ^= random_bits();
			check_once(decoder, CODE64, bytes, INSN_MAX);
			check_once(decoder, CODE64 | DECODE_NO_TZCNT | DECODE_NO_LZCNT, bytes, n);
			check_once(decoder, i % 2 ? CODE32 : REAL16, bytes, n);
		}
	}
	free(decoder);
}

/* Of the instructions that compilers make, most differ in their constants only. */
static void an_instruction_with_other_constants_is_known(void **state)
{
	static const u8 first[] = { 0x48, 0x8b, 0x84, 0x24, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0 };
	static const u8 second[] = { 0x48, 0x8b, 0x84, 0x24, 5, 6, 7, 0x80, 9, 9, 9, 9, 9, 9, 9 };
	struct decoder *decoder = new_decoder();
	struct decoded *a, *b;

	(void)state;
	assert_false(decoder_recall(decoder, first, 15, RIP, CODE64, &insn, &a));
	assert_int_equal(decoder_decode(decoder, first, 15, RIP, CODE64, &insn, &a), DECODE_OK);
	assert_true(decoder_recall(decoder, second, 15, RIP, CODE64, &insn, &b));
	assert_ptr_equal(a, b);
	assert_int_equal(insn.ops[1].imm, (s32)0x80070605);
	free(decoder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rip_relative_addresses_are_folded),
		cmocka_unit_test(stack_bases_mean_ss_unless_overridden),
		cmocka_unit_test(only_fs_and_gs_override_in_64_bit_code),
		cmocka_unit_test(byte_registers_are_told_apart),
		cmocka_unit_test(repeat_prefixes_are_only_those_that_repeat),
		cmocka_unit_test(far_transfers_are_marked),
		cmocka_unit_test(branches_are_what_the_tally_counts),
		cmocka_unit_test(incomplete_and_overlong_are_not_invalid),
		cmocka_unit_test(counting_zeros_was_scanning_once),
		cmocka_unit_test(gathers_have_a_vector_index),
		cmocka_unit_test(instructions_are_the_same_when_decoded_once),
		cmocka_unit_test(an_instruction_with_other_constants_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
