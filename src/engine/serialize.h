/* SPDX-License-Identifier: MIT */
/*
 * Serializing instructions (SDM 3A 8.3): behind them a processor has noticed code that others
 * changed.
 */
#ifndef ENGINE_SERIALIZE_H
#define ENGINE_SERIALIZE_H

#include "engine/insn.h"

/* alone: no other processor is there. Device writes are noticed at interrupts and the like. */
bool serializing(const struct insn *insn, bool alone);

#endif
