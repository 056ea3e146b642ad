/* SPDX-License-Identifier: MIT */
/*
 * must(): an invariant of ours. It is checked in every build and ends the process: nothing that a
 * guest or a caller of the KVM API supplies may ever reach one.
 */
#ifndef BASE_MUST_H
#define BASE_MUST_H

__attribute__((noreturn, cold)) void must_failed(const char *expr, const char *file, int line);

#define must(expr) \
	(__builtin_expect(!!(expr), 1) ? (void)0 : must_failed(#expr, __FILE__, __LINE__))

#endif
