/* SPDX-License-Identifier: MIT */
/*
 * Serializing instructions (SDM 3A 8.3): behind them a processor has noticed code that others
 * changed.
 */
#ifndef ENGINE_SERIALIZE_H
#define ENGINE_SERIALIZE_H

#include "base/types.h"

bool serializing(u16 mnemonic); /* ZydisMnemonic */

#endif
