// SPDX-License-Identifier: MIT
/*
 * Questions to a vCPU. The question lies on the asker's stack; the thread that takes it out of
 * vcpu->asked owns it: the vCPU's thread, which then answers, or the asker, which then looks
 * whether the vCPU's lock is free, so that it can answer itself, or whether three seconds have
 * passed.
 */
#include "vm/control/ask_vcpu.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vm/vm.h"

#define WAIT_NS	    20000000ull /* between two attempts to take the lock */
#define PATIENCE_NS 3000000000ull

struct vcpu_asked {
	vcpu_question *question;
	void *arg;
	u32 answered; /* a futex */
};

void vcpu_answer(struct vcpu *vcpu)
{
	struct vcpu_asked *asked;

	if (!__atomic_load_n(&vcpu->asked, __ATOMIC_RELAXED))
		return;
	asked = __atomic_exchange_n(&vcpu->asked, NULL, __ATOMIC_SEQ_CST);
	if (!asked)
		return;
	asked->question(vcpu, asked->arg);
	__atomic_store_n(&asked->answered, 1, __ATOMIC_SEQ_CST);
	/* The asker may be gone by now; a wake-up without a waiter does no harm. */
	syscall(SYS_futex, &asked->answered, FUTEX_WAKE_PRIVATE, 1);
}

static bool answered(struct vcpu_asked *asked, u64 ns)
{
	struct timespec ts = { .tv_nsec = ns };

	if (!__atomic_load_n(&asked->answered, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &asked->answered, FUTEX_WAIT_PRIVATE, 0, &ts);
	return __atomic_load_n(&asked->answered, __ATOMIC_SEQ_CST);
}

/* Takes the question back; false: it is being answered. */
static bool retract(struct vcpu *vcpu, struct vcpu_asked *asked)
{
	struct vcpu_asked *expected = asked;

	return __atomic_compare_exchange_n(&vcpu->asked, &expected, NULL, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

static bool answer_here(struct vcpu *vcpu, vcpu_question *question, void *arg)
{
	if (pthread_mutex_trylock(&vcpu->lock))
		return false;
	question(vcpu, arg);
	pthread_mutex_unlock(&vcpu->lock);
	return true;
}

static bool ask(struct vcpu *vcpu, struct vcpu_asked *asked)
{
	u64 begun = clock_ns();

	while (!answer_here(vcpu, asked->question, asked->arg)) {
		if (clock_ns() - begun > PATIENCE_NS)
			return false;
		__atomic_store_n(&vcpu->asked, asked, __ATOMIC_SEQ_CST);
		vcpu_kick(vcpu, REQUEST_ASK);
		if (answered(asked, WAIT_NS))
			return true;
		if (retract(vcpu, asked))
			continue;
		while (!answered(asked, WAIT_NS))
			;
		return true;
	}
	return true;
}

bool vcpu_ask(struct vcpu *vcpu, vcpu_question *question, void *arg)
{
	struct vcpu_asked asked = { .question = question, .arg = arg };
	bool done;

	pthread_mutex_lock(&vcpu->vm->ask_lock);
	done = ask(vcpu, &asked);
	pthread_mutex_unlock(&vcpu->vm->ask_lock);
	return done;
}
