/* SPDX-License-Identifier: MIT */
/*
 * The XSAVE area as a guest sees it: sizes and offsets of the state components beyond x87 and SSE
 * (SDM 1 13.4, 13.5; APM2 11.5.2). No state.
 */
#ifndef CPU_XSTATE_H
#define CPU_XSTATE_H

#include "base/types.h"

#define XSTATE_FIRST  2	  /* the first component that is not in the legacy region */
#define NXSTATE	      10  /* above all components' numbers */
#define XSTATE_HEADER 576 /* bytes of legacy region and header, where components begin */

/* Offsets in the standard format, as CPUID leaf 0DH lists them; 0: no such component. */
struct xstate_layout {
	u16 at[NXSTATE];
};

u32 xstate_bytes(u32 component); /* its size; 0: there is none of this number */
/* Intel leaves room for MPX, AMD packs what the processor supports. */
void xstate_standard(struct xstate_layout *layout, bool is_amd, u64 supported);
/* All of them in an area of this size, none on another? */
bool xstate_layout_valid(const struct xstate_layout *layout, u64 components, u32 size);
u32 xstate_standard_size(const struct xstate_layout *layout, u64 components);

/* In the compacted format with the components of `format`; it begins at XSTATE_HEADER. */
u32 xstate_compacted_at(u64 format, u32 component);
u32 xstate_compacted_size(u64 format);

#endif
