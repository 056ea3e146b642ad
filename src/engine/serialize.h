/* SPDX-License-Identifier: MIT */
/*
 * Serializing instructions (SDM 3A 8.3): behind them a processor has noticed code that others
 * changed.
 */
#ifndef ENGINE_SERIALIZE_H
#define ENGINE_SERIALIZE_H

#include "engine/insn.h"

/*
 * Programs execute the rare ones for the sake of serializing, or at least can afford it: behind them everything
 * is compared. Behind the frequent ones only what other processors or somebody who made himself heard
 * may have changed (cpu/shared.h).
 */
enum serializing { SERIALIZING_NOT, SERIALIZING_OFTEN, SERIALIZING_RARELY };

enum serializing serializing(const struct insn *insn);

#endif
