// SPDX-License-Identifier: MIT
/*
 * Arithmetic flags in translated code. They are in the host's flags after an instruction that
 * writes them, and saved (LAHF, SETO) only when something of ours is about to destroy them;
 * restored only for an instruction that reads them or leaves some of them alone. At block borders
 * they are in cpu->aflags.
 */
#include "engine/trans.h"

#define ALL_FLAGS                                                                    \
	(ZYDIS_CPUFLAG_CF | ZYDIS_CPUFLAG_PF | ZYDIS_CPUFLAG_AF | ZYDIS_CPUFLAG_ZF | \
	 ZYDIS_CPUFLAG_SF | ZYDIS_CPUFLAG_OF)

void flags_save(struct trans *t)
{
	if (t->flags != FLAGS_IN_HOST)
		return;
	emit_u8(&t->e, 0x9f); /* LAHF */
	emit_insn(&t->e, &(struct enc){ .map = MAP_0F, .opcode = 0x90 | CC_O, .rm = RAX });
	emit_rm(&t->e, false, OP_MOV_STORE, RAX, ea_base(RSP, CPU(aflags)));
	t->flags = FLAGS_IN_BOTH;
}

void flags_restore(struct trans *t)
{
	if (t->flags != FLAGS_IN_CPU)
		return;
	emit_rm(&t->e, false, OP_MOV_LOAD, RAX, ea_base(RSP, CPU(aflags)));
	emit_u8(&t->e, 0x04); /* ADD AL, 7Fh: sets OF if AL is 1 */
	emit_u8(&t->e, 0x7f);
	emit_u8(&t->e, 0x9e); /* SAHF */
	t->flags = FLAGS_IN_BOTH;
}

/* Logic instructions leave AF undefined on paper; every processor clears it. */
static bool clears_af(ZydisMnemonic m)
{
	return m == ZYDIS_MNEMONIC_AND || m == ZYDIS_MNEMONIC_OR || m == ZYDIS_MNEMONIC_XOR ||
	       m == ZYDIS_MNEMONIC_TEST;
}

/* A count of 0 leaves the flags alone. */
static bool may_keep_flags(const struct trans *t)
{
	u8 category = t->zi.meta.category;

	return category == ZYDIS_CATEGORY_SHIFT || category == ZYDIS_CATEGORY_ROTATE;
}

/*
 * Undefined flags count as kept: what an instruction leaves of them must not depend on the flags
 * that our own code left behind, or two runs would differ.
 */
void flags_classify(const struct trans *t, struct native *n)
{
	const ZydisAccessedFlags *f = t->zi.cpu_flags;
	u32 written, kept;

	if (!f)
		return;
	written = (f->modified | f->set_0 | f->set_1) & ALL_FLAGS;
	if (clears_af(t->zi.mnemonic))
		written |= ZYDIS_CPUFLAG_AF;
	kept = ALL_FLAGS & ~written;
	n->writes_flags = written || (f->undefined & ALL_FLAGS);
	n->needs_flags =
		(f->tested & ALL_FLAGS) || (n->writes_flags && (kept || may_keep_flags(t)));
}
