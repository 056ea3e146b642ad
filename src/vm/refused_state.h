/* SPDX-License-Identifier: MIT */
/*
 * Telling the user which state a program set that its vCPU cannot have, since programs ignore
 * EINVAL.
 */
#ifndef VM_REFUSED_STATE_H
#define VM_REFUSED_STATE_H

#include "base/types.h"

struct vcpu;

/* Says, once per vCPU, which register of the program's is refused and why. -EINVAL. */
int vcpu_refuse(struct vcpu *vcpu, const char *what, u64 value);

#endif
