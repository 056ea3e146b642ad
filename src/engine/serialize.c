// SPDX-License-Identifier: MIT
/*
 * The serializing instructions. CPUID, WRMSR and other exits are not listed: engine entry is an
 * epoch anyway.
 */
#include "engine/serialize.h"

#include <Zydis/Zydis.h>

bool serializing(u16 mnemonic)
{
	switch (mnemonic) {
	case ZYDIS_MNEMONIC_IRET:
	case ZYDIS_MNEMONIC_IRETD:
	case ZYDIS_MNEMONIC_IRETQ:
	case ZYDIS_MNEMONIC_INVD:
	case ZYDIS_MNEMONIC_INVLPG:
	case ZYDIS_MNEMONIC_INVPCID:
	case ZYDIS_MNEMONIC_LGDT:
	case ZYDIS_MNEMONIC_LIDT:
	case ZYDIS_MNEMONIC_LLDT:
	case ZYDIS_MNEMONIC_LTR:
	case ZYDIS_MNEMONIC_MOV: /* only forms with control and debug registers come this way */
	case ZYDIS_MNEMONIC_WBINVD:
	case ZYDIS_MNEMONIC_SERIALIZE:
		return true;
	default:
		return false;
	}
}
