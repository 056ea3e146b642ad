/* SPDX-License-Identifier: MIT */
/*
 * Paging-structure entries (SDM 3A 4.3 to 4.5; APM2 5.3): the bits that mean the same in all
 * formats, and reserved bits that no processor uses. The shape of each format: cpu/mmu/walk.c.
 */
#ifndef X86_PAGING_H
#define X86_PAGING_H

#include "base/types.h"

#define PTE_P  BIT(0)
#define PTE_W  BIT(1)
#define PTE_U  BIT(2)
#define PTE_A  BIT(5)
#define PTE_D  BIT(6)
#define PTE_PS BIT(7) /* not at level 1, where bit 7 is PAT */
#define PTE_G  BIT(8)
#define PTE_NX BIT(63)

#define PTE_KEY(entry) ((entry) >> 59 & 15) /* protection key of a leaf, in long mode */

#define PTE_ADDR	       MASK(51, 12)
/* PAE paging, checked when CR3 is loaded. */
#define PDPTE_RSVD_LOW	       (MASK(2, 1) | MASK(8, 5))
#define LARGE_PAGE_RSVD(shift) MASK((shift) - 1, 13) /* below the address of a 2M or 1G page */

#endif
