// SPDX-License-Identifier: MIT
/*
 * The file of an exact profile: see vm/profile.h. The thread that makes the VM.
 */
#include "vm/profile.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/profile.h"
#include "vm/vm.h"

static bool is_long_enough(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && (u64)st.st_size >= sizeof(struct profile);
}

void profile_environment(struct vm *vm)
{
	const char *fd = getenv("VPMU_PROFILE");
	void *map = MAP_FAILED;

	if (!fd || !vm->time.is_virtual)
		return;
	if (is_long_enough(atoi(fd)))
		map = mmap(NULL, sizeof(struct profile), PROT_READ | PROT_WRITE, MAP_SHARED,
			   atoi(fd), 0);
	if (map == MAP_FAILED)
		log_warn("VPMU_PROFILE=%s cannot be mapped", fd);
	else
		vm->profile = map;
}

void profile_destroy(struct vm *vm)
{
	if (vm->profile)
		munmap(vm->profile, sizeof(struct profile));
}
