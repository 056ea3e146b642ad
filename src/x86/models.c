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
