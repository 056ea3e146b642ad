/* SPDX-License-Identifier: MIT */
/*
 * The border between a program and vpmu: libvpmu-kvm.so stands between the program and libc, knows
 * which descriptors and paths are ours, and turns -errno into errno. Nothing below this folder
 * knows that it exists.
 *
 * The functions of libc that are defined here are exported by export.map and marked LIBC.
 */
#ifndef PRELOAD_PRELOAD_H
#define PRELOAD_PRELOAD_H

#include <signal.h>

#include "base/types.h"
#include "x86/models.h"

#define LIBC __attribute__((visibility("default")))

/* init.c */
const struct model *preload_model(void); /* NULL: VPMU_CPU names none; the user has been told */
/*
 * Does this process share our memory without being the one that it belongs to: the child of a
 * vfork()? It may use its copy of the descriptors, but our tables are not its own.
 */
bool preload_is_vforked(void);

/* kvm_paths.c: what a path means to us. One look-up, for everything that takes a path. */
enum path_kind {
	PATH_OTHER,  /* not ours: ask libc */
	PATH_KVM,    /* /dev/kvm */
	PATH_PARAM,  /* a module parameter; *text is its content */
	PATH_FOLDER, /* a module's folder in /sys */
	PATH_ABSENT, /* below such a folder, and not there */
};

enum path_kind path_lookup(const char *path, const char **text);

/* signals.c */
/* Takes SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGTRAP, and passes on what is not ours. More than once
 * is once. */
void signals_take_faults(void);
/* Lets these signals through on this thread: a fault while its signal is blocked ends the
 * process. */
void signals_unblock_faults(void);
/* libc sets a mask of another time: what has been let through may be blocked. */
void signals_mask_restored(void);
/* Takes the faults, and lets SIGILL through on every thread, from now on. At load time. */
void signals_open_sigill(void);
/* Around a request: the program's handlers run after it. Returns, and takes, whether this one was
 * made by a handler in the middle of another. */
bool signals_hold(void);
void signals_release(bool outer);
/* Around a fork(), in the parent before and in both after. */
void signals_fork_begin(void);
void signals_fork_end(void);

/* threads.c: before a request, which pthread_cancel() can then end; in the child of a fork(); and
 * whether this signal is to end one. */
void threads_enter(void);
void threads_forked(void);
bool threads_is_kick(int sig, const siginfo_t *info);

/* fd_calls.c: around what allocates, frees or locks something of ours. The program's handlers run
 * after it, and the thread is cancelled after it. */
struct held {
	int cancel_state, cancel_type;
	bool outer; /* signals_hold() */
};
void preload_hold(struct held *held);
void preload_release(const struct held *held); /* keeps errno */

/* program_cpuid.c: the program's own CPUID. */
void program_cpuid_patch(const struct model *model);
bool program_cpuid_signal(int sig, void *ucontext); /* true: it was one of our UD2s, now answered */

/* request_stack.c: takes this thread's stack for requests, until it is given back; returns its top,
 * or NULL if a request is on it already, or there is none. */
void *stack_take(void);
void stack_give_back(void *top);
/* Calls function(arg) on the stack with this top; NULL: on the present one. */
long stack_call(void *top, long (*function)(void *), void *arg);

/* control.c: the control socket, from the first VM on; and in the child of a fork(). */
void control_start(void);
void control_forked(void);

/* Returns result, or -1 with errno. */
long preload_result(long result);

#endif
