/* SPDX-License-Identifier: MIT */
/*
 * The CPU models: a row each in models.def. Which one a process uses is chosen by VPMU_CPU, which
 * `vpmu kvm --cpu` sets.
 */
#ifndef X86_MODELS_H
#define X86_MODELS_H

#include "base/types.h"

/* Sets of models: the index in models.def as a bit, and the generations that share features. */
enum model_set {
	MODEL_SKYLAKE = BIT(0),
	MODEL_ICELAKE = BIT(1),
	MODEL_SAPPHIRERAPIDS = BIT(2),
	MODEL_MILAN = BIT(3),
	MODEL_GENOA = BIT(4),
	MODELS_INTEL = MODEL_SKYLAKE | MODEL_ICELAKE | MODEL_SAPPHIRERAPIDS,
	MODELS_AMD = MODEL_MILAN | MODEL_GENOA,
	MODELS_ALL = MODELS_INTEL | MODELS_AMD,
	MODELS_SINCE_ICELAKE = MODELS_ALL & ~MODEL_SKYLAKE,
	MODELS_AVX512 = MODELS_ALL & ~MODEL_MILAN,
	MODELS_AVX512_ICELAKE = MODELS_AVX512 & MODELS_SINCE_ICELAKE,
};

enum model_cache_kind { CACHE_L1D, CACHE_L1I, CACHE_L2, CACHE_L3, NCACHES };

struct model_cache {
	u32 kbytes;
	u8 ways;
};

struct model {
	const char *name;
	enum model_set set; /* the one bit of this model */
	bool is_amd;
	u32 family, model, stepping; /* display values */
	const char *brand;
	u32 max_basic_leaf, max_extended_leaf;
	u8 phys_bits;
	u32 nominal_mhz; /* of the TSC */
	struct model_cache cache[NCACHES];
};

const struct model *model_find(const char *name); /* NULL: no such model */
const struct model *model_at(u32 i);		  /* for lists; NULL after the last */

/* How much of the last level a guest has: KBYTES of `text`, a number with K or M. False: it is
 * none, or less than LAST_LEVEL_LEAST, or more than the model has. */
#define LAST_LEVEL_LEAST 256u
bool model_last_level(const struct model *model, const char *text, u32 *kbytes);
/* And for how many cycles a line that it does not use stays there. */
#define LAST_LEVEL_LIFE_LEAST 10000u
#define LAST_LEVEL_LIFE_MOST  1000000000u
bool model_last_level_life(const char *text, u32 *cycles);

/* CPUID.1:EAX of a display family, model and stepping, and back (SDM 2A CPUID; APM3 E.3.2). */
u32 model_signature(u32 family, u32 model, u32 stepping);
u32 model_family_of(u32 signature);
u32 model_model_of(u32 signature);

#endif
