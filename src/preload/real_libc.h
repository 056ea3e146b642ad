/* SPDX-License-Identifier: MIT */
/*
 * libc's own functions, which those of this library replace. Code of this folder that calls them by
 * name calls ours instead, which is rarely meant.
 */
#ifndef PRELOAD_REAL_LIBC_H
#define PRELOAD_REAL_LIBC_H

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

/* REAL(return type, name, parameters). open64, fopen64, freopen64 and stat64 are the same functions
 * on x86-64. */
#define REAL_CALLS                                                                              \
	REAL(int, openat, (int dir, const char *path, int flags, ...))                          \
	REAL(FILE *, fopen, (const char *path, const char *mode))                               \
	REAL(FILE *, freopen, (const char *path, const char *mode, FILE *f))                    \
	REAL(int, fclose, (FILE * f))                                                           \
	REAL(int, faccessat, (int dir, const char *path, int mode, int flags))                  \
	REAL(int, fstatat, (int dir, const char *path, struct stat *st, int flags))             \
	REAL(int, statx, (int dir, const char *path, int flags, unsigned mask, struct statx *)) \
	REAL(int, ioctl, (int fd, unsigned long request, ...))                                  \
	REAL(int, close, (int fd))                                                              \
	REAL(int, close_range, (unsigned first, unsigned last, int flags))                      \
	REAL(void, closefrom, (int first))                                                      \
	REAL(int, dup, (int fd))                                                                \
	REAL(int, dup3, (int fd, int newfd, int flags))                                         \
	REAL(int, fcntl, (int fd, int cmd, ...))                                                \
	REAL(ssize_t, read, (int fd, void *buf, size_t n))                                      \
	REAL(ssize_t, pread, (int fd, void *buf, size_t n, off_t offset))                       \
	REAL(int, sigaction, (int sig, const struct sigaction *act, struct sigaction *old))     \
	REAL(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old))               \
	REAL(int, pthread_cancel, (pthread_t thread))                                           \
	REAL(void, longjmp, (jmp_buf env, int value))                                           \
	REAL(void, __longjmp_chk, (jmp_buf env, int value))                                     \
	REAL(int, setcontext, (const ucontext_t *to))                                           \
	REAL(int, swapcontext, (ucontext_t * from, const ucontext_t *to))

struct real_calls {
#define REAL(ret, name, params) ret(*name) params;
	REAL_CALLS
#undef REAL
};

/* Looked up at the first call, from whichever library's constructor that comes. */
const struct real_calls *real(void);

#endif
