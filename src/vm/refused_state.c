// SPDX-License-Identifier: MIT
/*
 * State that a program sets and that this vCPU cannot have. KVM only returns EINVAL, and programs
 * ignore that: QEMU then runs a guest that dies silently. So the reason is logged. vCPU's lock.
 */
#include "vm/refused_state.h"

#include <errno.h>

#include "base/log.h"
#include "vm/vm.h"

int vcpu_refuse(struct vcpu *vcpu, const char *what, u64 value)
{
	if (vcpu->refusal_told)
		return -EINVAL;
	vcpu->refusal_told = true;
	log_warn("vCPU %u: %s = %#llx is refused: a vCPU of model %s with its CPUID cannot have "
		 "it. A "
		 "guest that was saved or migrates needs the model (--cpu), the timing (--timing) "
		 "and the version that it had",
		 vcpu->id, what, (unsigned long long)value, vcpu->vm->model->name);
	return -EINVAL;
}
