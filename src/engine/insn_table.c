// SPDX-License-Identifier: MIT
/*
 * The table of instructions: facts by row, rows by mnemonic. Constant data.
 */
#include "engine/insn_table.h"

#include <Zydis/Mnemonic.h>

#include "cpu/cpu.h"
#include "engine/flag_recipe.h"

_Static_assert(sizeof(struct insn_facts) == 16, "insn_table.h says so");

const struct insn_facts insn_table[NINSNS] = {
#define HOST			  .host = true,
#define EMIT(name)		  .emitted = true,
#define INSN(mnemonic, ways, ...) [INSN_##mnemonic] = { ways __VA_ARGS__ },
#include "engine/insn.def"
};

/* Few of Zydis' mnemonics have a row: they are looked up when an instruction is decoded, and struct
 * insn has the number of the row. */
static const u16 ids[ZYDIS_MNEMONIC_MAX_VALUE + 1] = {
#define INSN(mnemonic, ...) [ZYDIS_MNEMONIC_##mnemonic] = INSN_##mnemonic,
#include "engine/insn.def"
};

enum insn_id insn_id_of(u32 mnemonic)
{
	return mnemonic <= ZYDIS_MNEMONIC_MAX_VALUE ? ids[mnemonic] : INSN_OTHER;
}
