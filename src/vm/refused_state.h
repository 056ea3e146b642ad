/* SPDX-License-Identifier: MIT */
#ifndef VM_REFUSED_STATE_H
#define VM_REFUSED_STATE_H

#include "base/types.h"

struct vcpu;

/* Says, once per vCPU, which register of the program's is refused and why. -EINVAL. */
int vcpu_refuse(struct vcpu *vcpu, const char *what, u64 value);

#endif
