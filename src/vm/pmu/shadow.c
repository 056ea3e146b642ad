// SPDX-License-Identifier: MIT
/*
 * The file of what is counted beside the guest's counters: see vm/pmu/shadow.h. The thread that
 * makes the VM.
 */
#include "vm/pmu/shadow.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/memfile.h"
#include "vm/vm.h"

void shadow_environment(struct vm *vm)
{
	const char *fd = getenv("VPMU_SHADOW");

	if (!fd)
		return;
	vm->shadow = memfile_map(atoi(fd), sizeof(*vm->shadow));
	if (!vm->shadow)
		log_warn("VPMU_SHADOW=%s cannot be mapped", fd);
}

void shadow_destroy(struct vm *vm)
{
	if (vm->shadow)
		munmap(vm->shadow, sizeof(*vm->shadow));
}
