/* SPDX-License-Identifier: MIT */
/*
 * Register numbers and bits, exception vectors and page-fault error codes, as the manuals name them
 * (SDM 3A 2.5, 4.7, 6.3.1, 1 3.4.3; APM2 3.1).
 */
#ifndef X86_REGS_H
#define X86_REGS_H

#include "base/types.h"

enum gpr { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };
enum seg { ES, CS, SS, DS, FS, GS, NSEGS }; /* encoding order */

#define FL_CF	      BIT(0)
#define FL_FIX1	      BIT(1)
#define FL_PF	      BIT(2)
#define FL_AF	      BIT(4)
#define FL_ZF	      BIT(6)
#define FL_SF	      BIT(7)
#define FL_TF	      BIT(8)
#define FL_IF	      BIT(9)
#define FL_DF	      BIT(10)
#define FL_OF	      BIT(11)
#define FL_IOPL	      (BIT(12) | BIT(13))
#define FL_NT	      BIT(14)
#define FL_RF	      BIT(16)
#define FL_VM	      BIT(17)
#define FL_AC	      BIT(18)
#define FL_VIF	      BIT(19)
#define FL_VIP	      BIT(20)
#define FL_ID	      BIT(21)
#define FL_ARITH      (FL_CF | FL_PF | FL_AF | FL_ZF | FL_SF | FL_OF)
#define FL_IOPL_SHIFT 12

#define CR0_PE BIT(0)
#define CR0_MP BIT(1)
#define CR0_EM BIT(2)
#define CR0_TS BIT(3)
#define CR0_ET BIT(4)
#define CR0_NE BIT(5)
#define CR0_WP BIT(16)
#define CR0_AM BIT(18)
#define CR0_NW BIT(29)
#define CR0_CD BIT(30)
#define CR0_PG BIT(31)

#define CR4_VME	       BIT(0)
#define CR4_PVI	       BIT(1)
#define CR4_TSD	       BIT(2)
#define CR4_DE	       BIT(3)
#define CR4_PSE	       BIT(4)
#define CR4_PAE	       BIT(5)
#define CR4_MCE	       BIT(6)
#define CR4_PGE	       BIT(7)
#define CR4_PCE	       BIT(8)
#define CR4_OSFXSR     BIT(9)
#define CR4_OSXMMEXCPT BIT(10)
#define CR4_UMIP       BIT(11)
#define CR4_LA57       BIT(12)
#define CR4_FSGSBASE   BIT(16)
#define CR4_PCIDE      BIT(17)
#define CR4_OSXSAVE    BIT(18)
#define CR4_SMEP       BIT(20)
#define CR4_SMAP       BIT(21)
#define CR4_PKE	       BIT(22)

#define EFER_SCE    BIT(0)
#define EFER_LME    BIT(8)
#define EFER_LMA    BIT(10)
#define EFER_NX	    BIT(11)
#define EFER_SVME   BIT(12)
#define EFER_FFXSR  BIT(14)
#define EFER_AIBRSE BIT(21)

#define XCR0_X87       BIT(0)
#define XCR0_SSE       BIT(1)
#define XCR0_AVX       BIT(2)
#define XCR0_OPMASK    BIT(5)
#define XCR0_ZMM_HI256 BIT(6) /* upper halves of ZMM0 to ZMM15 */
#define XCR0_HI16_ZMM  BIT(7) /* ZMM16 to ZMM31 */
#define XCR0_PKRU      BIT(9)
#define XCR0_AVX512    (XCR0_OPMASK | XCR0_ZMM_HI256 | XCR0_HI16_ZMM)

#define XCOMP_COMPACT BIT(63) /* of XCOMP_BV: the area is in the compacted form (SDM 1 13.4.3) */

/* Control words in their initial state. */
#define FCW_INIT   0x37fu  /* of FNINIT (SDM 1 8.1.5) */
#define MXCSR_INIT 0x1f80u /* SDM 1 10.2.3 */

#define DR6_FIXED1 0xffff0ff0ull
#define DR6_BS	   BIT(14)
#define DR6_BD	   BIT(13)
#define DR6_BT	   BIT(15)
#define DR7_FIXED1 0x400ull
#define DR7_GD	   BIT(13)
#define DR7_ENABLE 0xffull /* of all four breakpoints, locally and globally */

/* Exception vectors (SDM 3A 6.3.1). */
enum vector {
	VEC_DE,
	VEC_DB,
	VEC_NMI,
	VEC_BP,
	VEC_OF,
	VEC_BR,
	VEC_UD,
	VEC_NM,
	VEC_DF,
	VEC_TS = 10,
	VEC_NP,
	VEC_SS,
	VEC_GP,
	VEC_PF,
	VEC_MF = 16,
	VEC_AC,
	VEC_MC,
	VEC_XM
};

/* Page-fault error code (SDM 3A 4.7). */
#define PF_PRESENT BIT(0)
#define PF_WRITE   BIT(1)
#define PF_USER	   BIT(2)
#define PF_RSVD	   BIT(3)
#define PF_FETCH   BIT(4)
#define PF_PK	   BIT(5)

/* PKRU has two bits for each protection key (SDM 3A 4.6.2). */
#define PKRU_AD(key) BIT(2 * (key))	/* no access to data */
#define PKRU_WD(key) BIT(2 * (key) + 1) /* no writes */

#endif
