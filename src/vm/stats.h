/* SPDX-License-Identifier: MIT */
/*
 * Statistics: stat.def as structs, and the file format that KVM_GET_STATS_FD promises. A vCPU's
 * counters are grown by its thread, a VM's atomically or under a lock; any thread reads them,
 * without one.
 */
#ifndef VM_STATS_H
#define VM_STATS_H

#include "base/types.h"
#include "hwpmu/retire.h"

struct vm;
struct vcpu;

struct vm_stats {
#define VM_STAT(name, type, unit) u64 name;
#define VCPU_STAT(name, type, unit)
#include "vm/stat.def"
#undef VM_STAT
#undef VCPU_STAT
};

struct vcpu_stats {
#define VM_STAT(name, type, unit)
#define VCPU_STAT(name, type, unit) u64 name;
#include "vm/stat.def"
#undef VM_STAT
#undef VCPU_STAT
};

/* As they are now, with what is counted elsewhere. Any thread. */
void vcpu_stats_get(const struct vcpu *vcpu, struct vcpu_stats *out);

/* Instructions that the guest executed, without what accounting has added (vm/pmu/host.c). Any
 * thread. */
u64 vcpu_executed(const struct vcpu *vcpu, enum retire_privilege privilege);

/* read() of a statistics file: bytes copied to the program's buffer, 0 past the end, or -EFAULT. */
long vm_stats_read(struct vm *vm, void *user, size_t n, u64 offset);
long vcpu_stats_read(struct vcpu *vcpu, void *user, size_t n, u64 offset);

#endif
