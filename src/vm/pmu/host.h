/* SPDX-License-Identifier: MIT */
/*
 * The host's part in a vCPU's PMU: which mode it is in, what the thread did outside of the guest,
 * and the events that clients of the control socket have opened (docs/ownership.md). The vCPU's
 * thread, or the holder of its lock.
 */
#ifndef VM_PMU_HOST_H
#define VM_PMU_HOST_H

#include "base/types.h"

struct vcpu;
struct vm;
struct host_event;

void vcpu_host_init(struct vcpu *vcpu);
/* Around a run of the guest, in this order: before counters are loaded, after they are, right
 * before the run and right after it. They cost next to nothing while the host has no events. */
void vcpu_host_prepare(struct vcpu *vcpu);
void vcpu_host_report(struct vcpu *vcpu);
void vcpu_host_before_guest(struct vcpu *vcpu);
void vcpu_host_after_guest(struct vcpu *vcpu);
/* The thread goes to sleep or returns to the program. */
void vcpu_host_thread_away(struct vcpu *vcpu);

/*
 * Opens an event for a session. 0; -EOPNOTSUPP: it would count a guest that owns the counters;
 * -ENOSPC: too many.
 */
int vcpu_host_open(struct vcpu *vcpu, u32 session, u32 id, const struct host_event *event);
void vcpu_host_close(struct vcpu *vcpu, u32 session);
/* What the session's event `id` reads, in *out; false: there is none. */
bool vcpu_host_read(struct vcpu *vcpu, u32 session, u32 id, struct host_event *out);

#endif
