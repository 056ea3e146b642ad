// SPDX-License-Identifier: MIT
/*
 * The table of instructions: how a mnemonic finds its row, and what must hold of every row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <Zydis/Zydis.h>

#include "cpu/mode.h"
#include "engine/decode.h"
#include "engine/insn_table.h"

enum { WAY_HOST = 1, WAY_EMIT = 2, WAY_SYS = 4 };

static const struct {
	const char *name;
	u16 mnemonic, id;
	u8 ways;
} rows[] = {
#define HOST			     | WAY_HOST
#define EMIT(name)		     | WAY_EMIT
#define SYS(handler, gates, feature) | WAY_SYS
#define INSN(mnemonic, ways, ...)    { #mnemonic, ZYDIS_MNEMONIC_##mnemonic, INSN_##mnemonic, 0 ways },
#include "engine/insn.def"
};

static void a_mnemonic_finds_its_row(void **state)
{
	(void)state;
	assert_int_equal(ARRAY_SIZE(rows) + 1, NINSNS);
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(insn_id_of(rows[i].mnemonic), rows[i].id);
	assert_int_equal(insn_id_of(ZYDIS_MNEMONIC_INVALID), INSN_OTHER);
	assert_int_equal(insn_id_of(ZYDIS_MNEMONIC_ADC), INSN_OTHER);
	assert_int_equal(insn_id_of(ZYDIS_MNEMONIC_MAX_VALUE + 1), INSN_OTHER);
}

static void an_instruction_has_the_row_of_its_mnemonic(void **state)
{
	static const u8 cpuid[] = { 0x0f, 0xa2 }, adc[] = { 0x11, 0xc0 };
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction zi;
	struct insn insn;

	(void)state;
	assert_int_equal(decode_insn(cpuid, 2, 0, MODE_CODE64 | MODE_PROT, &insn, &zi, operands),
			 DECODE_OK);
	assert_int_equal(insn.id, INSN_CPUID);
	assert_int_equal(insn_facts(&insn)->serializing, SERIALIZING_RARELY);
	assert_int_equal(decode_insn(adc, 2, 0, MODE_CODE64 | MODE_PROT, &insn, &zi, operands),
			 DECODE_OK);
	assert_int_equal(insn.id, INSN_OTHER);
	assert_false(insn_facts(&insn)->host);
}

static bool agree(const struct insn_facts *facts, u8 ways)
{
	bool executed_by_c = ways & WAY_SYS;

	if (facts->host != !!(ways & WAY_HOST) || facts->emitted != !!(ways & WAY_EMIT))
		return false;
	if (facts->system && (!executed_by_c || !facts->emitted))
		return false;
	if (facts->conditional && (!facts->followable || ways != WAY_EMIT))
		return false;
	if (facts->random && ways != (WAY_HOST | WAY_SYS))
		return false;
	if (facts->outside && !executed_by_c)
		return false;
	return executed_by_c || !(facts->access || facts->index_size || facts->quick ||
				  facts->serializing || facts->seg);
}

static void facts_of_a_row_agree_with_its_ways(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		if (!agree(&insn_table[rows[i].id], rows[i].ways))
			fail_msg("%s", rows[i].name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mnemonic_finds_its_row),
		cmocka_unit_test(an_instruction_has_the_row_of_its_mnemonic),
		cmocka_unit_test(facts_of_a_row_agree_with_its_ways),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
