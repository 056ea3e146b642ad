// SPDX-License-Identifier: MIT
/*
 * OFFCORE_RESPONSE (SDM 3B, "Off-core Response Performance Monitoring"): an event whose meaning is
 * in a register of its own, requests in the low bits, the part that answered in the others. The
 * bits are those of Skylake server, Ice Lake server and Sapphire Rapids as far as they agree; of
 * the requests there are those of the program, since nothing is prefetched; of the answers the
 * last-level cache and memory, since no other part has data. Pure.
 */
#include "hwpmu/priv.h"

#define REQUESTS     MASK(2, 0) /* data reads, reads for ownership, code reads */
#define ANY_RESPONSE BIT(16)
#define LLC_HIT	     MASK(21, 18)
#define LLC_MISS     MASK(29, 22)

#define NONE RETIRE_NOTHING /* no class has just that */

enum answer { ANSWER_ANY, ANSWER_LLC, ANSWER_MEMORY, NANSWERS };

enum retire_class hwpmu_offcore_class(u64 response)
{
	static const enum retire_class classes[REQUESTS + 1][NANSWERS] = {
		[0] = { NONE, NONE, NONE },
		[1] = { RETIRE_LOAD_L2_MISSES, RETIRE_LOAD_LLC_HITS, RETIRE_LOAD_LLC_MISSES },
		[2] = { RETIRE_STORE_L2_MISSES, NONE, RETIRE_STORE_LLC_MISSES },
		[3] = { RETIRE_DATA_L2_MISSES, RETIRE_DATA_LLC_HITS, RETIRE_DATA_LLC_MISSES },
		[4] = { RETIRE_CODE_L2_MISSES, NONE, NONE },
		[5] = { NONE, NONE, NONE },
		[6] = { NONE, NONE, NONE },
		[7] = { RETIRE_LLC_REFERENCES, NONE, RETIRE_LLC_MISSES },
	};
	bool hit = response & LLC_HIT, miss = response & LLC_MISS;
	enum answer answer = hit ? ANSWER_LLC : ANSWER_MEMORY;

	if ((response & ANY_RESPONSE) || (hit && miss))
		answer = ANSWER_ANY;
	else if (!hit && !miss)
		return NONE;
	return classes[response & REQUESTS][answer];
}
