// SPDX-License-Identifier: MIT
/*
 * Guests of random bytes through the KVM API, two vCPUs by turns: each KVM_RUN must return an exit
 * that KVM knows for them, and none may take the process down. A timer ends what loops.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "fuzz/garbage.h"
#include "fuzz/isolate.h"
#include "guest/kvm_guest.h"

#define CASES	  500
#define SEED	  0x5eed0002
#define MAX_EXITS 50
#define LIFE_USEC 3000

static void on_timer(int sig)
{
	(void)sig;
}

static void set_up(void)
{
	struct sigaction action = { .sa_handler =
					    on_timer }; /* no SA_RESTART: KVM_RUN returns EINTR */

	sigaction(SIGVTALRM, &action, NULL);
}

static void set_timer(long usec)
{
	struct itimerval timer = { { 0, usec }, { 0, usec } };

	setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

static bool is_right_exit(int reason)
{
	switch (reason) {
	case KVM_EXIT_IO:
	case KVM_EXIT_MMIO:
	case KVM_EXIT_HLT:
	case KVM_EXIT_SHUTDOWN:
	case KVM_EXIT_INTERNAL_ERROR:
	case KVM_EXIT_SET_TPR:
		return true;
	default:
		return false;
	}
}

static bool live(struct kvm_guest *g, int vcpu, u32 number)
{
	set_timer(LIFE_USEC);
	for (u32 i = 0; i < MAX_EXITS; i++) {
		int reason = kvm_guest_run(g, vcpu);

		if (reason == -EINTR || reason == KVM_EXIT_SHUTDOWN ||
		    reason == KVM_EXIT_INTERNAL_ERROR)
			break;
		if (!is_right_exit(reason)) {
			fprintf(stderr, "case %u: exit %d\n", number, reason);
			return false;
		}
	}
	set_timer(0);
	return true;
}

static bool run(u64 seed, u32 number)
{
	struct rng r = rng_for(seed, number);
	u8 code[GARBAGE_SIZE];
	struct kvm_guest guest;
	bool ok = true;

	garbage_fill(&r, code);
	kvm_guest_create(&guest, code, sizeof(code), 2);
	for (u32 i = 0; i < 6 && ok; i++) {
		struct kvm_regs regs;

		KVM_CALL(guest.vcpu[i % 2], KVM_GET_REGS, &regs);
		rng_fill(&r, &regs, sizeof(regs));
		regs.rip = IMAGE_CODE + rng_below(&r, GARBAGE_SIZE);
		regs.rsp = IMAGE_STACK;
		regs.rflags = 2;
		KVM_CALL(guest.vcpu[i % 2], KVM_SET_REGS, &regs);
		ok = live(&guest, i % 2, number);
	}
	kvm_guest_destroy(&guest);
	return ok;
}

int main(int argc, char **argv)
{
	struct isolate isolate = { .set_up = set_up, .run = run };

	return isolate_main(&isolate, argc, argv, SEED, CASES, "random guests");
}
