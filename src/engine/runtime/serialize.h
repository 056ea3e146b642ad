/* SPDX-License-Identifier: MIT */
/*
 * Serializing instructions (SDM 3A 8.3): behind them a processor has noticed code that others
 * changed.
 */
#ifndef ENGINE_RUNTIME_SERIALIZE_H
#define ENGINE_RUNTIME_SERIALIZE_H

#include "engine/insn_table.h"

/*
 * The rare ones are executed for the sake of serializing, or at least those who do can afford it:
 * behind them everything is compared that they execute, which is all code for a kernel, and that of
 * programs for a program. Behind the frequent ones only what other processors or somebody who made
 * himself heard may have changed (cpu/mmu/shared_code.h).
 */
enum insn_serializing serializing(const struct insn *insn); /* never SERIALIZING_BY_TARGET */

#endif
