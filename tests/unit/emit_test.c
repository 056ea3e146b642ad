// SPDX-License-Identifier: MIT
/*
 * The assembler's short ways (engine/translate/emit_inline.h), and bytes that are put together
 * ahead: both make what emit_any() makes of the same instruction.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/translate/emit.h"

static const s32 displacements[] = { 0, 1, -1, 127, 128, -128, -129, 0x12345678, INT32_MIN };

static struct emitter begin(u8 *bytes, u32 size)
{
	return (struct emitter){ .p = bytes, .limit = bytes + size };
}

static void check_same(const struct emitter *short_way, const u8 *found, const struct enc *x)
{
	u8 bytes[ENC_MAX];
	struct emitter e = begin(bytes, sizeof(bytes));

	emit_any(&e, x);
	assert_int_equal(short_way->p - found, e.p - bytes);
	assert_memory_equal(found, bytes, e.p - bytes);
}

/* The fields are constants where the instruction is emitted. */
#define SAME(...)                                               \
	do {                                                    \
		struct emitter e = begin(found, sizeof(found)); \
		struct enc x = { __VA_ARGS__ };                 \
                                                                \
		emit_insn(&e, &(struct enc){ __VA_ARGS__ });    \
		check_same(&e, found, &x);                      \
	} while (0)

#define IN_MEMORY(...) .is_mem = true, .ea = { __VA_ARGS__ }

static void instructions_are_the_same_when_the_compiler_knows_them(void **state)
{
	u8 found[ENC_MAX];

	(void)state;
	SAME(.opcode = 0x89, .reg = RDI, .rm = R13);
	SAME(.w = true, .opcode = 0xbf, .map = MAP_0F, .reg = R13, .rm = RAX);
	SAME(.p66 = true, .opcode = 0xff, .reg = 1, .rm = RCX);
	SAME(.opcode = 0x88, .reg = RSI, .rm = RDI, .force_rex = true);
	SAME(.opcode = 0x50, .no_modrm = true, .rm = R14);
	SAME(.map = MAP_0F38, .opcode = 0xf0, .reg = R9, .rm = RBX);
	SAME(.map = MAP_0F3A, .vex = true, .vex_pp = 3, .opcode = 0xf0, .reg = RAX, .rm = R13,
	     .imm = 7, .imm_len = 1);
	SAME(.w = true, .opcode = 0xb8, .no_modrm = true, .rm = R13, .imm = ~0x12345678ull,
	     .imm_len = 8);
	for (u32 i = 0; i < ARRAY_SIZE(displacements); i++) {
		s32 disp = displacements[i];

		SAME(.w = true, .opcode = 0x8b, .reg = R13,
		     IN_MEMORY(.base = RSP, .index = NO_BASE, .scale = 1, .disp = disp));
		SAME(.opcode = 0x8b, .reg = RAX,
		     IN_MEMORY(.base = RBP, .index = NO_BASE, .scale = 1, .disp = disp));
		SAME(.w = true, .opcode = 0x33, .reg = R13,
		     IN_MEMORY(.base = RSP, .index = RAX, .scale = 1, .disp = disp));
		SAME(.p66 = true, .opcode = 0x89, .reg = R8,
		     IN_MEMORY(.base = R13, .index = R12, .scale = 8, .disp = disp));
		SAME(.lock = true, .opcode = 0x81, .reg = GROUP_OR, .imm = (u32)disp, .imm_len = 4,
		     IN_MEMORY(.base = R12, .index = NO_BASE, .scale = 1, .disp = disp));
	}
}

static void short_forms_are_the_same(void **state)
{
	u8 found[ENC_MAX];

	(void)state;
	for (u32 i = 0; i < 2 * 16 * 16; i++) {
		struct emitter e = begin(found, sizeof(found));
		bool w = i & 1;
		u8 reg = i / 2 % 16, rm = i / 32;

		emit_rr(&e, w, OP_XOR, reg, rm);
		check_same(&e, found,
			   &(struct enc){ .w = w, .opcode = OP_XOR, .reg = reg, .rm = rm });
		for (u32 k = 0; k < ARRAY_SIZE(displacements); k++) {
			struct enc x = { .w = true,
					 .opcode = OP_LEA,
					 .reg = reg,
					 .is_mem = true,
					 .ea = ea_base(RSP, displacements[k]) };

			e = begin(found, sizeof(found));
			emit_rm(&e, true, OP_LEA, reg, ea_base(RSP, displacements[k]));
			check_same(&e, found, &x);
			x.ea.base = rm;
			x.w = w;
			e = begin(found, sizeof(found));
			emit_rm(&e, w, OP_LEA, reg, x.ea);
			check_same(&e, found, &x);
		}
	}
}

/* Those of struct decoded. */
static void bytes_that_were_put_together_ahead_are_the_same(void **state)
{
	u8 found[ENC_MAX];

	(void)state;
	for (u32 i = 0; i < 16 * 16 * 2 * 3 * 2; i++) {
		struct enc x = { .p66 = i / 512 % 3 == 1,
				 .map = i / 512 % 3 == 2 ? MAP_0F : MAP_ONE,
				 .w = i / 256 % 2,
				 .opcode = 0xaf,
				 .reg = i % 16,
				 .rm = i / 16 % 16,
				 .imm = 0x89abcdef,
				 .imm_len = i / 1536 ? 4 : 0 },
			   ahead = x;

		for (u32 k = 0; k <= ARRAY_SIZE(displacements); k++) {
			struct emitter e = begin(found, sizeof(found));

			emit_make_ready(&ahead, R13);
			assert_true(ahead.nready);
			if (k)
				ahead.ea.disp = x.ea.disp = displacements[k - 1];
			emit_any(&e, &ahead);
			check_same(&e, found, &x);
			x.is_mem = true;
			x.ea = ea_base(R13, 0);
			ahead = x;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(instructions_are_the_same_when_the_compiler_knows_them),
		cmocka_unit_test(short_forms_are_the_same),
		cmocka_unit_test(bytes_that_were_put_together_ahead_are_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
