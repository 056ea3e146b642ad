/* SPDX-License-Identifier: MIT */
/*
 * Serializing instructions (SDM 3A 8.3): after one, a processor executes code that other processors
 * or devices wrote before.
 */
#ifndef ENGINE_RUNTIME_SERIALIZE_H
#define ENGINE_RUNTIME_SERIALIZE_H

#include "engine/insn_table.h"

/*
 * After a rare one, such as CPUID, all code that may follow is compared: user code if user code
 * executed it, else all code. After a frequent one, such as IRET, code is compared only if another
 * processor wrote to a page with translations, or an ioctl or irqfd arrived
 * (cpu/mmu/shared_code.h).
 */
enum insn_serializing serializing(const struct insn *insn); /* never SERIALIZING_BY_TARGET */

#endif
