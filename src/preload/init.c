// SPDX-License-Identifier: MIT
/*
 * Loading, what a fork() does to the library, and where -errno becomes errno (preload_result()).
 * The library is in every child of the program too (sh, addr2line), so that it does as little as
 * possible until the program opens /dev/kvm: it finds libc's functions, reads the clocks, registers
 * for fork() and, if another CPU model was asked for, shows it to the program's own CPUID.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "preload/fdtab.h"
#include "preload/preload.h"
#include "preload/real_libc.h"
#include "vm/cpuid/cpuid.h"
#include "vm/time/clock.h"

static pid_t owner; /* the process whose memory this is */

long preload_result(long result)
{
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

bool preload_is_vforked(void)
{
	return owner && owner != getpid();
}

const struct model *preload_model(void)
{
	const char *wanted = getenv("VPMU_CPU");
	const struct model *model = cpuid_model(wanted);

	if (!model)
		log_once(LOG_ERROR, "VPMU_CPU=%s: no such CPU model; 'vpmu help kvm' lists them",
			 wanted);
	return model;
}

static void forked(void)
{
	owner = getpid();
	fdtab_forked();
	control_forked();
	threads_forked();
	signals_fork_end();
}

__attribute__((constructor)) static void load(void)
{
	const char *wanted = getenv("VPMU_CPU");
	const struct model *model = wanted && *wanted ? cpuid_model(wanted) : NULL;

	real();
	owner = getpid();
	clock_begin();
	pthread_atfork(signals_fork_begin, signals_fork_end, forked);
	if (model && cpuid_is_foreign(model))
		program_cpuid_patch(model);
}
