// SPDX-License-Identifier: MIT
/*
 * States that a program restores: everything that KVM_GET_… gives, with any bytes of it changed, is
 * set again, and the guest runs with it. Whatever is accepted must be a state that a KVM_GET_… can
 * be called in, that runs, and that is restored without an error by setting what was got.
 *
 * Input: flags (enum busy_flag), then steps: a byte; from 240 on KVM_RUN, else a state of the table
 * below, offset (2 bytes), size, bytes that replace those of the state.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/must.h"
#include "fuzz/busy_guest.h"
#include "fuzz/fuzz.h"

#define MAX_STEPS  48
#define MAX_RUNS   6
#define MAX_STATE  8192
#define MSRS	   4 /* at a time */
#define MAX_LISTED 512

static struct kvm_guest guest;

static const struct state {
	u32 get, set;
	bool of_vm;
	u32 chip; /* in the first bytes: which one is got */
} states[] = {
	{ KVM_GET_REGS, KVM_SET_REGS, false, 0 },
	{ KVM_GET_SREGS, KVM_SET_SREGS, false, 0 },
	{ KVM_GET_SREGS2, KVM_SET_SREGS2, false, 0 },
	{ KVM_GET_FPU, KVM_SET_FPU, false, 0 },
	{ KVM_GET_XSAVE, KVM_SET_XSAVE, false, 0 },
	{ KVM_GET_XCRS, KVM_SET_XCRS, false, 0 },
	{ KVM_GET_DEBUGREGS, KVM_SET_DEBUGREGS, false, 0 },
	{ KVM_GET_VCPU_EVENTS, KVM_SET_VCPU_EVENTS, false, 0 },
	{ KVM_GET_MP_STATE, KVM_SET_MP_STATE, false, 0 },
	{ KVM_GET_LAPIC, KVM_SET_LAPIC, false, 0 },
	{ KVM_GET_MSRS, KVM_SET_MSRS, false, 0 },
	{ KVM_GET_IRQCHIP, KVM_SET_IRQCHIP, true, KVM_IRQCHIP_PIC_MASTER },
	{ KVM_GET_IRQCHIP, KVM_SET_IRQCHIP, true, KVM_IRQCHIP_PIC_SLAVE },
	{ KVM_GET_IRQCHIP, KVM_SET_IRQCHIP, true, KVM_IRQCHIP_IOAPIC },
	{ KVM_GET_PIT2, KVM_SET_PIT2, true, 0 },
	{ KVM_GET_CLOCK, KVM_SET_CLOCK, true, 0 },
};

/* struct kvm_msr_list */
static struct {
	u32 count, index[MAX_LISTED];
} listed;

void fuzz_set_up(void)
{
	busy_set_up();
}

static void list_msrs(void)
{
	if (listed.count)
		return;
	listed.count = MAX_LISTED;
	KVM_CALL(guest.kvm, KVM_GET_MSR_INDEX_LIST, &listed);
}

/* Neighbours of the list, from the one that the step names. */
static void name_msrs(struct kvm_msrs *msrs, u32 first)
{
	msrs->nmsrs = MSRS;
	for (u32 i = 0; i < MSRS; i++)
		msrs->entries[i] =
			(struct kvm_msr_entry){ .index = listed.index[(first + i) % listed.count] };
}

static void change(struct fuzz_input *in, u8 *state, u32 size)
{
	u32 offset = fuzz_number(in, 2) % size, n = fuzz_u8(in);

	fuzz_take(in, state + offset, n < size - offset ? n : size - offset);
}

/* After a state was accepted: what is got can be set. */
static void check_again(const struct state *s, int fd, u8 *state)
{
	static u8 again[MAX_STATE];

	memcpy(again, state, sizeof(again)); /* which chip, which MSRs */
	if (ioctl(fd, s->get, again) < 0)
		fuzz_fail("request %#x fails after %#x: %s", s->get, s->set, strerror(errno));
	if (s->set != KVM_SET_MSRS && ioctl(fd, s->set, again) < 0)
		fuzz_fail("request %#x refuses what was got: %s", s->set, strerror(errno));
}

static void step_state(const struct state *s, struct fuzz_input *in)
{
	static u8 state[MAX_STATE] __attribute__((aligned(8)));
	int fd = s->of_vm ? guest.vm : guest.vcpu[0];
	u32 size = s->get == KVM_GET_MSRS
			   ? sizeof(struct kvm_msrs) + MSRS * sizeof(struct kvm_msr_entry)
			   : _IOC_SIZE(s->get);

	memset(state, 0, sizeof(state));
	memcpy(state, &s->chip, sizeof(s->chip));
	if (s->get == KVM_GET_MSRS)
		name_msrs((void *)state, (u32)fuzz_number(in, 2));
	if (ioctl(fd, s->get, state) < 0)
		return; /* without an irqchip */
	change(in, state, size);
	if (s->get == KVM_GET_MSRS)
		((struct kvm_msrs *)state)->nmsrs %= MSRS + 1;
	if (ioctl(fd, s->set, state) >= 0)
		check_again(s, fd, state);
}

void fuzz_one(struct fuzz_input *in)
{
	u32 before = busy_count_fds(), after, runs = 0;

	busy_create(&guest, fuzz_u8(in));
	list_msrs();
	for (u32 i = 0; i < MAX_STEPS && fuzz_left(in); i++) {
		u8 code = fuzz_u8(in);

		if (code < 240)
			step_state(&states[code % ARRAY_SIZE(states)], in);
		else if (runs++ < MAX_RUNS)
			busy_run(&guest, 0);
	}
	busy_run(&guest, 0);
	kvm_guest_destroy(&guest);
	after = busy_count_fds();
	if (after != before)
		fuzz_fail("%u descriptors before, %u after", before, after);
}
