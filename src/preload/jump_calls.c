// SPDX-License-Identifier: MIT
/*
 * The functions of libc that set a signal mask which was saved elsewhere: one from before the first
 * request, in which the faults may be blocked. Any thread, also in signal handlers.
 */
#undef _FORTIFY_SOURCE /* it turns longjmp() into __longjmp_chk() */

#include "preload/preload.h"
#include "preload/real_libc.h"

/* glibc's fortified longjmp(); no header shows it. */
__attribute__((noreturn)) void __longjmp_chk(jmp_buf env, int value);

static void before_jump(jmp_buf env)
{
	if (env[0].__mask_was_saved)
		signals_mask_restored();
}

LIBC void longjmp(jmp_buf env, int value)
{
	before_jump(env);
	real()->longjmp(env, value);
	__builtin_unreachable();
}

LIBC void _longjmp(jmp_buf env, int value)
{
	longjmp(env, value);
}

LIBC void siglongjmp(sigjmp_buf env, int value)
{
	longjmp(env, value);
}

LIBC void __longjmp_chk(jmp_buf env, int value)
{
	before_jump(env);
	real()->__longjmp_chk(env, value);
	__builtin_unreachable();
}

LIBC int setcontext(const ucontext_t *to)
{
	signals_mask_restored();
	return real()->setcontext(to);
}

/* A context that is left here may come back on another thread: nothing is done after the call. */
LIBC int swapcontext(ucontext_t *restrict from, const ucontext_t *restrict to)
{
	signals_mask_restored();
	return real()->swapcontext(from, to);
}
