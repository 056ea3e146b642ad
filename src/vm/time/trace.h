/* SPDX-License-Identifier: MIT */
/*
 * The trace of a VM on virtual time (base/trace.h): hashes of its state after every so many
 * instructions, written to a socket. VPMU_TRACE is "EVERY,FROM,TO,STEP", the members of struct
 * trace_plan; VPMU_TRACE_SOCKET names the socket (base/inherited.h).
 *
 * 1. Instructions are counted over all vCPUs, of which one at a time runs (vm/time/schedule.h).
 * 2. The processor stops after the very instruction at which a record is due, as for the overflow
 * of a counter of instructions (hwpmu.stop_at). What the hypervisor completes is one instruction at
 *    a time. So no record is missed, and none depends on when the run loop looks.
 * 3. What a vCPU hashes is what its own thread has at an instruction boundary; what came in since
 *    the last record is in the running hash, once, at points that the guest's work determines. How
 *    often the processor was left for the host's sake must not show.
 *
 * The thread of the vCPU whose turn it is; the schedule's lock hands the trace on. A VM without a
 * trace has a NULL pointer that is looked at once per exit.
 */
#ifndef VM_TIME_TRACE_H
#define VM_TIME_TRACE_H

#include "base/trace.h"

struct vcpu;
struct vm;

struct vm_trace {
	int fd;
	struct trace_plan plan;
	u64 retired;	   /* instructions of all vCPUs */
	u64 next;	   /* value of `retired` at which a record is due; 0: the first one */
	u64 inputs;	   /* of struct trace_record */
	struct vcpu *last; /* whose turn it was at the last look; NULL: there was none */
	bool over;	   /* the last record has been written, or cannot be */
	u32 nevents;	   /* since the last record */
	struct trace_event event[TRACE_EVENTS];
};

void trace_environment(struct vm *vm); /* sets vm->trace; before the VM has vCPUs */
void trace_destroy(struct vm *vm);

/* Of VMs that have a trace: */

/* The vCPU is about to be entered: has the processor stop for the next record. */
void trace_enter(struct vcpu *vcpu);
/* Instructions may have retired: writes the record that is due, if one is. */
void trace_check(struct vcpu *vcpu);
/* An event was put into cpu->port.event. */
void trace_event(struct vcpu *vcpu);
/* The processor has left guest code with cpu->port.exit: for the user to read, and in no hash. */
void trace_exit(struct vcpu *vcpu);
/* What the hypervisor or the program has given the guest. */
void trace_input(struct vcpu *vcpu, const void *data, u32 size);
/* The guest's work is done: writes the last record. */
void trace_end(struct vcpu *vcpu);
/* The mark that follows `now`, of a plan. */
u64 trace_next(const struct trace_plan *plan, u64 now);

#endif
