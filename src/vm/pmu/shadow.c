// SPDX-License-Identifier: MIT
/*
 * The file of what is counted beside the guest's counters: see vm/pmu/shadow.h. The thread that
 * makes the VM.
 */
#include "vm/pmu/shadow.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/inherited.h"
#include "base/log.h"
#include "base/memfile.h"
#include "vm/vm.h"

void shadow_environment(struct vm *vm)
{
	int fd;

	if (!inherited_take("VPMU_SHADOW", &fd, 1))
		return;
	vm->shadow = memfile_map(fd, sizeof(*vm->shadow));
	if (!vm->shadow)
		log_warn("VPMU_SHADOW cannot be mapped");
}

void shadow_destroy(struct vm *vm)
{
	if (vm->shadow)
		munmap(vm->shadow, sizeof(*vm->shadow));
}
