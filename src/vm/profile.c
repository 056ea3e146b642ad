// SPDX-License-Identifier: MIT
/*
 * The file of an exact profile: see vm/profile.h. The thread that makes the VM.
 */
#include "vm/profile.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/inherited.h"
#include "base/log.h"
#include "base/memfile.h"
#include "base/profile.h"
#include "vm/vm.h"

void profile_environment(struct vm *vm)
{
	int fd;

	if (!vm->time.is_virtual || !inherited_take("VPMU_PROFILE", &fd, 1))
		return;
	vm->profile = memfile_map(fd, sizeof(*vm->profile));
	if (!vm->profile)
		log_warn("VPMU_PROFILE cannot be mapped");
}

void profile_destroy(struct vm *vm)
{
	if (vm->profile)
		munmap(vm->profile, sizeof(struct profile));
}
