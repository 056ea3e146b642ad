// SPDX-License-Identifier: MIT
/*
 * EVEX without a processor that has it: what the decoder makes of a prefix, and what the assembler
 * makes of the translator's fields (SDM 2A 2.7).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/mode.h"
#include "engine/translate/trans.h"

#define CODE64 (MODE_CODE64 | MODE_PROT)
#define CODE32 (MODE_CODE32 | MODE_STACK32 | MODE_PROT)

static struct insn insn;

static enum decode_result decode(u32 mode, const char *bytes, u32 n)
{
	ZydisDecodedOperand zops[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction zi;
	u8 padded[INSN_MAX] = { 0 };

	memcpy(padded, bytes, n);
	return decode_insn(padded, INSN_MAX, 0x1000, mode, &insn, &zi, zops);
}

#define DECODE(mode, bytes)  decode(mode, bytes, sizeof(bytes) - 1)
#define DECODED(mode, bytes) assert_int_equal(DECODE(mode, bytes), DECODE_OK)

static void all_registers_are_found(void **state)
{
	(void)state;
	DECODED(CODE64, "\x62\xa1\x6c\x43\x58\xcb"); /* vaddps zmm17{k3}, zmm18, zmm19 */
	assert_true(insn.evex);
	assert_int_equal(insn.nops, 3);
	assert_int_equal(insn.mask, 3);
	assert_int_equal(insn.vector, 64);
	assert_int_equal(insn.ops[0].reg, 17);
	assert_int_equal(insn.ops[1].reg, 18);
	assert_int_equal(insn.ops[2].reg, 19);
	assert_int_equal(insn.ops[2].cls, REG_VEC);
}

static void a_mask_is_no_operand(void **state)
{
	(void)state;
	DECODED(CODE64, "\x62\xf3\x6d\x49\x25\x08\x03"); /* vpternlogd zmm1{k1}, zmm2, [rax], 3 */
	assert_int_equal(insn.nops, 4);
	assert_int_equal(insn.ops[2].kind, OPERAND_MEM);
	assert_int_equal(insn.ops[3].imm, 3);
	DECODED(CODE64, "\x62\xf3\x75\x49\x3e\x10\x01"); /* vpcmpub k2{k1}, zmm1, [rax], 1 */
	assert_int_equal(insn.mask, 1);
	assert_int_equal(insn.ops[0].cls, REG_MASK);
	assert_int_equal(insn.ops[0].reg, 2);
}

static void displacements_count_operands(void **state)
{
	(void)state;
	DECODED(CODE64, "\x62\xf1\x7c\x48\x10\x48\x01"); /* vmovups zmm1, [rax + 64] */
	assert_int_equal(insn.ops[1].imm, 64);
	assert_int_equal(insn.ops[1].size, 64);
	DECODED(CODE64, "\x62\xf1\x6c\x58\x58\x48\xff"); /* vaddps zmm1, zmm2, [rax - 4]{1to16} */
	assert_int_equal(insn.ops[2].imm, -4);
	assert_int_equal(insn.ops[2].size, 4);
	DECODED(CODE64, "\x62\xf2\x7e\x49\x31\x48\x02"); /* vpmovdb [rax + 32]{k1}, zmm1 */
	assert_int_equal(insn.ops[0].imm, 32);
	assert_int_equal(insn.ops[0].size, 16);
}

static void vector_indices_have_five_bits(void **state)
{
	(void)state;
	DECODED(CODE64, "\x62\xf2\x7d\x41\x90\x0c\x90"); /* vpgatherdd zmm1{k1}, [rax + zmm18*4] */
	assert_int_equal(insn.ops[1].index, 18);
	assert_int_equal(insn.ops[1].index_cls, REG_VEC);
	assert_int_equal(insn.ops[1].scale, 4);
	DECODED(CODE64, "\x62\xf2\x7d\x49\xa2\x0c\x90"); /* vscatterdps [rax + zmm2*4]{k1}, zmm1 */
	assert_int_equal(insn.ops[0].index, 2);
	assert_true(insn.ops[0].written);
}

static void reserved_encodings_are_invalid(void **state)
{
	(void)state;
	assert_int_equal(DECODE(CODE64, "\x62\xf1\x7c\x68\x10\xc8"), DECODE_INVALID); /* L'L 3 */
	assert_int_equal(DECODE(CODE64, "\x62\xf1\x78\x48\x10\xc8"), DECODE_INVALID); /* P1[2] */
	assert_int_equal(DECODE(CODE64, "\x62\xf1\x74\x48\x10\xc8"), DECODE_INVALID); /* vvvv */
	assert_int_equal(DECODE(CODE64, "\x62\xf1\x7c\xc8\x10\xc8"),
			 DECODE_INVALID); /* z, no mask */
	/* a gather without a mask, and into its index */
	assert_int_equal(DECODE(CODE64, "\x62\xf2\x7d\x48\x90\x0c\x90"), DECODE_INVALID);
	assert_int_equal(DECODE(CODE64, "\x62\xf2\x7d\x49\x90\x14\x90"), DECODE_INVALID);
}

static void assert_emitted(const struct enc *x, const char *bytes, u32 n)
{
	u8 code[64];
	struct emitter e = { .p = code, .limit = code + sizeof(code) };

	emit_insn(&e, x);
	assert_false(e.full);
	assert_int_equal(e.p - code, n);
	assert_memory_equal(code, bytes, n);
}

#define EMITTED(bytes, ...) \
	assert_emitted(&(struct enc){ .evex = true, __VA_ARGS__ }, bytes, sizeof(bytes) - 1)

static void prefixes_are_emitted(void **state)
{
	(void)state;
	/* vaddps zmm17{k3}, zmm18, zmm19 */
	EMITTED("\x62\xa1\x6c\x43\x58\xcb", .map = MAP_0F, .opcode = 0x58, .vex_l = 2, .reg = 17,
		.vvvv = 18, .rm = 19, .mask = 3);
	/* vaddpd zmm1{k7}{z}, zmm9, zmm3, {rz-sae} */
	EMITTED("\x62\xf1\xb5\xff\x58\xcb", .map = MAP_0F, .opcode = 0x58, .w = true, .vex_pp = 1,
		.vex_l = 3, .reg = 1, .vvvv = 9, .rm = 3, .mask = 7, .zeroing = true,
		.evex_b = true);
	/* vpternlogd xmm8, xmm24, [r13]{1to4}, 3 */
	EMITTED("\x62\x53\x3d\x10\x25\x45\x00\x03", .map = MAP_0F3A, .opcode = 0x25, .vex_pp = 1,
		.reg = 8, .vvvv = 24, .is_mem = true, .ea = ea_base(R13, 0), .evex_b = true,
		.imm = 3, .imm_len = 1);
}

/* One byte would count operands. */
static void displacements_have_four_bytes(void **state)
{
	(void)state;
	EMITTED("\x62\xf1\x7c\x48\x10\x88\x40\x00\x00\x00", .map = MAP_0F, .opcode = 0x10,
		.vex_l = 2, .reg = 1, .is_mem = true, .ea = ea_base(RAX, 64));
	EMITTED("\x62\xf1\x7c\x48\x10\x08", .map = MAP_0F, .opcode = 0x10, .vex_l = 2, .reg = 1,
		.is_mem = true, .ea = ea_base(RAX, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_registers_are_found),
		cmocka_unit_test(a_mask_is_no_operand),
		cmocka_unit_test(displacements_count_operands),
		cmocka_unit_test(vector_indices_have_five_bits),
		cmocka_unit_test(reserved_encodings_are_invalid),
		cmocka_unit_test(prefixes_are_emitted),
		cmocka_unit_test(displacements_have_four_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
