/* SPDX-License-Identifier: MIT */
/*
 * Pointers into code memory, and the build that checks them (make CHECK=1).
 *
 * The problem: translated code is entered through pointers that outlive one block's execution. The
 * memory they point to is reused after a flush, and the guest chooses both the bytes that are
 * translated and the addresses it branches to. One pointer followed too late, or for the wrong
 * address or privilege, lets a guest execute host instructions of its choice.
 *
 * The rule: a pointer into code memory is followed only while the block it leads to is alive, and
 * only for the address and key that it was made for. As invariants, which the code cites by number:
 *
 *  1. An entry of jump[] serves one guest address, compared in all 64 bits. It was made for an
 *     address that code was fetched from, so in 64-bit code the address is canonical and no
 *     other can match, wherever RIP comes from: a branch, SYSRET, IRET or KVM_SET_REGS.
 *  2. An entry serves one key, a field of its own: generation and index of the mode. The key holds
 *     privilege (in the mode) and address space (each has generations of its own). A generation is
 *     given once in an era; when they run out an era ends, with it all entries of jump[] and return
 *     slots (jump_update_key()). Key 0 is never current. An entry gets the current key in place of
 *     its own only if that is of the same mode, and while priv->mapped[] has the number of its
 *     mapping, as for a link (5).
 *  3. A block dies in cache_drop() or cache_flush() and nowhere else, and never while translated
 *     code is on the stack (engine->in_translated_code).
 *  4. When a block dies, everything that leads to it goes first: its entries of jump[]
 *     (jump_remove(); a flush empties jump[]), links to it (cut), return slots (filled with the
 *     look-up before the next entry), the hash chain. After a flush nothing is left of these.
 *  5. A link leads to a live block of the same mode. It has no guard only within one page, where
 *     both blocks die together with the page's bytes; else its guard holds the number of a mapping,
 *     of the target's linear page to its physical one, and the branch is taken only while
 *     priv->mapped[] has that number: in the current generation code was fetched through that
 *     mapping, and whatever changes the generation empties priv->mapped[]. No other mapping gets
 *     the number. A block of two pages is the target of no such link.
 *  6. A return slot leads to the landing of a live block, which compares the guest's whole target
 *     address, or to the look-up. Slots of a TLB set belong to one key (returns_validate()).
 *  7. C keeps no pointer to a block or link across what may kill one, unless it compares
 *     eng->blocks_dropped.
 *  8. Host code is entered from C at the start of a live block only (enter()).
 *
 * The checking build marks the places where code may be entered, asks C before it follows an entry
 * of jump[] or a return slot, and fills the code of dead blocks with INT3.
 *
 * vCPU thread; general registers only.
 */
#ifndef ENGINE_CODE_CHECK_H
#define ENGINE_CODE_CHECK_H

#include "engine/priv.h"

#ifdef CHECK_CODE
#define CHECKING true
#else
#define CHECKING false
#endif

/* The following do nothing in other builds. `code` is in the writable view. */
void check_enterable(struct engine *eng, const u8 *code); /* a block or a landing begins here */
void check_dead(struct engine *eng, u8 *from, u8 *to);	  /* nothing in here may be executed */
void check_live(const struct engine *eng, const u8 *code);
/* C is about to enter translated code for RIP in this mode. */
void check_entry(struct cpu *cpu, const void *code, u32 mode);

/* Called from translated code of the checking build: engine/slow.h. */
u64 check_jump(struct cpu *cpu, u64 rip, u32 code, const u8 *return_pc);
u64 check_return(struct cpu *cpu, u64 rip, u32 slot, const u8 *return_pc);

#endif
