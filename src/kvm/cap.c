// SPDX-License-Identifier: MIT
/*
 * KVM_CHECK_EXTENSION: cap.def as a switch. What a row promises is kept elsewhere. Any thread.
 */
#include <unistd.h>

#include "kvm/priv.h"
#include "vm/pmu/config.h"

#define GUEST_DEBUG_CONTROLS                                                        \
	(KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP | KVM_GUESTDBG_USE_HW_BP |   \
	 KVM_GUESTDBG_USE_SW_BP | KVM_GUESTDBG_INJECT_BP | KVM_GUESTDBG_INJECT_DB | \
	 KVM_GUESTDBG_BLOCKIRQ)

static int online_cpus(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > VM_MAX_VCPUS ? VM_MAX_VCPUS : n;
}

int kvm_capability(const struct vm *vm, unsigned long cap)
{
	(void)vm; /* no answer depends on the VM yet */
	switch (cap) {
#define CAP(name, value)     \
	case KVM_CAP_##name: \
		return value;
#include "kvm/cap.def"
#undef CAP
	}
	return 0;
}
