/* SPDX-License-Identifier: MIT */
/*
 * Where a vCPU's thread is, sampled from another thread: by a signal, whose handler notes which
 * guest instruction it has interrupted. So a sample is of the instruction that was executed at that
 * moment; a kick would be noticed at a few places only, such as the entry of an interrupt.
 */
#ifndef VM_CONTROL_SAMPLE_H
#define VM_CONTROL_SAMPLE_H

#include <signal.h>

#include "engine/engine.h"

struct vcpu;

/* As far as vpmu knows: written by the thread, read by all. */
enum vcpu_where {
	WHERE_VMM, /* not in KVM_RUN; kvm_run says what for */
	WHERE_HYPERVISOR,
	WHERE_GUEST,
	WHERE_ENGINE, /* of a sample: on the way from one guest instruction to the next */
	WHERE_IDLE,   /* the guest has halted */
};

#define SAMPLE_FRAMES 64

struct vcpu_sample {
	enum vcpu_where where;
	enum exit_reason exit; /* what the hypervisor is busy with */
	struct engine_where guest;
	u64 cr3;
	u32 nframes;
	u64 frame[SAMPLE_FRAMES]; /* return addresses: vm/control/stack_walk.h */
	bool has_percpu;
	u64 percpu_base, percpu; /* see below */
};

/* What is wanted of a sample besides the address. */
struct sample_wish {
	bool stack;
	/* The word that the guest's kernel keeps for each CPU at its GS base plus `offset`, through
	 * page tables at `cr3`, those of the kernel: where Linux has the current task. */
	bool percpu;
	u64 cr3, offset;
};

/*
 * False: the thread did not get to run. Any thread that is not inside a vCPU. A system call that
 * the thread is in may return EINTR: not for threads that sleep.
 */
bool vcpu_sample(struct vcpu *vcpu, const struct sample_wish *wish, struct vcpu_sample *out);

/* In the child of a fork: a sample that the parent asked for is not the child's. */
void vcpu_sample_forked(void);

/* The vCPU's thread, where it serves requests: reads what a sample that was just taken wants from
 * guest memory. */
void vcpu_sample_finish(struct vcpu *vcpu);

/* For the process's handler: true if the signal was one of these, and has been dealt with.
 * Async-signal-safe. */
bool vcpu_sample_signal(int sig, const siginfo_t *info, const void *ucontext);

#endif
