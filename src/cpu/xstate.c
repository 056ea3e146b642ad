// SPDX-License-Identifier: MIT
/*
 * Where the components of the XSAVE area are. Pure; general registers only.
 */
#include "cpu/xstate.h"

#include "x86/regs.h"

static const struct {
	u16 size, intel;
} components[NXSTATE] = {
	[2] = { 256, 576 },   /* AVX */
	[5] = { 64, 1088 },   /* opmask, after MPX */
	[6] = { 512, 1152 },  /* ZMM_Hi256 */
	[7] = { 1024, 1664 }, /* Hi16_ZMM */
	[9] = { 8, 2688 },    /* PKRU */
};

u32 xstate_bytes(u32 component)
{
	return component < NXSTATE ? components[component].size : 0;
}

/* None of these asks to be aligned to 64 bytes; all are, since PKRU is the last. */
u32 xstate_compacted_at(u64 format, u32 component)
{
	u32 at = XSTATE_HEADER;

	for (u32 i = XSTATE_FIRST; i < component; i++)
		if (format & BIT(i))
			at += components[i].size;
	return at;
}

u32 xstate_compacted_size(u64 format)
{
	return xstate_compacted_at(format, NXSTATE);
}

void xstate_standard(struct xstate_layout *layout, bool is_amd, u64 supported)
{
	for (u32 i = 0; i < NXSTATE; i++) {
		layout->at[i] = is_amd ? xstate_compacted_at(supported, i) : components[i].intel;
		if (!components[i].size || !(supported & BIT(i)))
			layout->at[i] = 0;
	}
}

static bool overlap(const struct xstate_layout *layout, u32 a, u32 b)
{
	return layout->at[a] < layout->at[b] + components[b].size &&
	       layout->at[b] < layout->at[a] + components[a].size;
}

bool xstate_layout_valid(const struct xstate_layout *layout, u64 wanted, u32 size)
{
	for (u32 i = XSTATE_FIRST; i < NXSTATE; i++) {
		if (!(wanted & BIT(i)))
			continue;
		if (layout->at[i] < XSTATE_HEADER || layout->at[i] + components[i].size > size)
			return false;
		for (u32 j = XSTATE_FIRST; j < i; j++)
			if ((wanted & BIT(j)) && overlap(layout, i, j))
				return false;
	}
	return true;
}

u32 xstate_standard_size(const struct xstate_layout *layout, u64 wanted)
{
	u32 end = XSTATE_HEADER;

	for (u32 i = XSTATE_FIRST; i < NXSTATE; i++)
		if ((wanted & BIT(i)) && layout->at[i] && layout->at[i] + components[i].size > end)
			end = layout->at[i] + components[i].size;
	return end;
}
