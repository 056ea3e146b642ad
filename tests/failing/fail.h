/* SPDX-License-Identifier: MIT */
/*
 * Calls of libc that fail when a test wants it. In programs that the Makefile links for
 * tests/failing, the calls of calls.def that our own objects make are counted, and the n-th one
 * fails; what libc and other libraries call among themselves is neither counted nor fails. What our
 * objects allocate and map is counted as well, so that a test can tell what a failure has left
 * behind. Any thread.
 */
#ifndef FAILING_FAIL_H
#define FAILING_FAIL_H

#include "base/types.h"

enum fail_call {
#define CALL(name, error) FAIL_##name,
#include "failing/calls.def"
#undef CALL
	NFAIL_CALLS
};

struct failure {
	enum fail_call call; /* NFAIL_CALLS: none has failed */
	int error;
	bool is_optional; /* its caller can do without */
	u64 caller;	  /* offset in the program, for addr2line */
};

struct fail_report {
	u32 calls; /* counted since fail_arm() */
	struct failure failure;
};

/* What our own objects hold at the moment. */
struct holdings {
	u64 blocks;	 /* of the heap */
	u64 mapped;	 /* bytes */
	u32 descriptors; /* of the process */
	u32 threads;
};

extern const char *const fail_names[NFAIL_CALLS];

/* From now on the n-th call fails, and no other; 0: none. */
void fail_arm(u32 n);
/* Ends that, and tells what happened. */
struct fail_report fail_disarm(void);
/* Where it is noted on the way, for other processes; shared memory, for ever. */
void fail_report_to(struct fail_report *place);
/* "malloc at FUNCTION (FILE:LINE)", as addr2line knows them. */
void fail_describe(const struct failure *failure, char *text, u32 room);
void fail_holdings(struct holdings *out);

/* A kernel that does not let files in memory be executable, and how it says so. */
enum fail_kernel {
	KERNEL_PLAIN,
	KERNEL_OLD,	 /* before 6.3: MFD_NOEXEC_SEAL is EINVAL */
	KERNEL_ENFORCES, /* vm.memfd_noexec=2: memfd_create() without MFD_NOEXEC_SEAL is EACCES */
	KERNEL_NO_MEMFD, /* a security module lets no memfd be mapped for execution */
	KERNEL_NO_CODE,	 /* nor any other file */
};

void fail_kernel(enum fail_kernel kernel);

#endif
