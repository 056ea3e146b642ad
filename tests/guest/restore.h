/* SPDX-License-Identifier: MIT */
/*
 * Between restore_code.S, a guest that counts and samples a user-mode program of its own, and
 * api_restore_test.c, which tells it by tables in its memory which registers to write and to read.
 */
#ifndef GUEST_RESTORE_H
#define GUEST_RESTORE_H

#define RESTORE_LOG_AT	  0x100000 /* where the handler appends */
#define RESTORE_LOG_END	  0x100008 /* it drops what would go beyond */
#define RESTORE_DROPPED	  0x100010
#define RESTORE_PEBS_STEP 0x100018 /* what the debug store's threshold advances by */
#define RESTORE_ROUNDS	  0x100020
#define RESTORE_SUM	  0x100028 /* what the program computed: integers, a double */
#define RESTORE_BUFFER	  0x100040 /* of REP INSB */
#define RESTORE_TABLE	  0x101000 /* 256 u32 that the program loads */
#define RESTORE_STORES	  0x102000 /* 256 u32 that it stores */
#define RESTORE_COPY	  0x103000
#define RESTORE_DS	  0x104000 /* the debug store's area */
#define RESTORE_SETUP	  0x105000 /* struct { u64 msr, value; }, up to msr 0 */
#define RESTORE_ACK	  0x106000 /* the same, at the end of the handler */
#define RESTORE_RELOAD                                                                             \
	0x107000		 /* struct { u32 msr, period; }: counters that may have overflowed \
				  */
#define RESTORE_READ	0x108000 /* u32 msr: what the handler logs, after the interrupted RIP */
/* struct { u64 msr, test, keep, value; }: where a bit of `test` is set, the handler writes `value`
 * and the bits that `keep` names. */
#define RESTORE_RESTART 0x109000
#define RESTORE_LOG	0x200000
#define RESTORE_RECORDS 0x300000 /* of PEBS */
#define RESTORE_END	0x400000

#define RESTORE_DEVICE	 0xf5
#define RESTORE_END_GATE 0x80

#ifndef __ASSEMBLER__

#include "guest/kvm_guest.h"

/* What the handler logs: registers, and which of their bits the program alone determines. Others
 * depend on caches and predictors, which a new processor begins without. */
#define RESTORE_READS 128

struct restore_reads {
	u32 n;
	struct {
		u32 msr;
		u64 exact;
	} row[RESTORE_READS];
};

/* Fills the tables of a guest that was just created, in one of two ways to count and sample. */
void restore_setup(struct kvm_guest *g, u32 variant, u32 rounds, struct restore_reads *reads);

extern const u8 restore_start[], restore_end[], restore_nmi[], restore_syscall[], restore_finish[];

#endif /* __ASSEMBLER__ */

#endif
