// SPDX-License-Identifier: MIT
/*
 * Looking up the rows of models.def. Freestanding.
 */
#include "x86/models.h"

static const struct model models[] = {
/* clang-format off */
#define MODEL(name, set, amd, family, model, stepping, brand, basic, extended, phys, mhz, ...) \
	{ #name, set, amd, family, model, stepping, brand, basic, extended, phys, mhz, __VA_ARGS__ },
/* clang-format on */
#include "x86/models.def"
#undef MODEL
};

const struct model *model_at(u32 i)
{
	return i < ARRAY_SIZE(models) ? &models[i] : NULL;
}

static bool same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++, b++)
		;
	return *a == *b;
}

const struct model *model_find(const char *name)
{
	for (u32 i = 0; i < ARRAY_SIZE(models); i++)
		if (same(models[i].name, name))
			return &models[i];
	return NULL;
}

/* A number up to `most`: where it ends; NULL: there is none. */
static const char *number(const char *text, u32 most, u32 *out)
{
	const char *at = text;
	u64 n = 0;

	for (; *at >= '0' && *at <= '9' && n <= most; at++)
		n = n * 10 + (u64)(*at - '0');
	*out = (u32)n;
	return at == text || n > most ? NULL : at;
}

bool model_last_level(const struct model *model, const char *text, u32 *kbytes)
{
	u32 most = model->cache[CACHE_L3].kbytes, n;
	const char *at = number(text, most, &n);

	if (!at || (*at != 'K' && *at != 'M') || at[1])
		return false;
	*kbytes = *at == 'M' ? n * 1024 : n;
	return *kbytes >= LAST_LEVEL_LEAST && *kbytes <= most;
}

bool model_last_level_life(const char *text, u32 *cycles)
{
	const char *at = number(text, LAST_LEVEL_LIFE_MOST, cycles);

	return at && !*at && *cycles >= LAST_LEVEL_LIFE_LEAST;
}

u32 model_signature(u32 family, u32 model, u32 stepping)
{
	u32 base = family < 0xf ? family : 0xf;

	return (family - base) << 20 | (model >> 4) << 16 | base << 8 | (model & 0xf) << 4 |
	       stepping;
}

u32 model_family_of(u32 signature)
{
	u32 base = signature >> 8 & 0xf;

	return base == 0xf ? base + (signature >> 20 & 0xff) : base;
}

u32 model_model_of(u32 signature)
{
	u32 base = signature >> 8 & 0xf;
	u32 high = base == 6 || base == 0xf ? signature >> 16 & 0xf : 0;

	return high << 4 | (signature >> 4 & 0xf);
}
