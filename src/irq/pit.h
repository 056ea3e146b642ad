/* SPDX-License-Identifier: MIT */
/*
 * The 8254 interval timer of a PC with the speaker's port, as KVM models it: counter 0 drives IRQ
 * 0, counter 2 the speaker, binary counting only, and gates of counters 0 and 1 are always on.
 *
 * A leaf: time comes in as the owner's monotonic nanoseconds. The owner waits until pit_expiry(),
 * calls pit_poll() and, when that says so, pulses IRQ 0; it reports the end of that interrupt's
 * service with pit_acked(). While reinject is on, no tick is lost: one that falls due while its
 * predecessor is not acknowledged yet is raised after it. With KVM_PIT_FLAGS_HPET_LEGACY counter 0
 * is not started, since an HPET drives IRQ 0.
 *
 * Threads: all under one lock of the owner.
 */
#ifndef IRQ_PIT_H
#define IRQ_PIT_H

#include <linux/kvm.h>

#include "base/types.h"

#define PIT_HZ	      1193182u
#define PIT_NO_EXPIRY (~0ull)
#define PIT_PORT      0x40u /* four of them: three counters, the control word */
#define PIT_SPEAKER   0x61u

struct pit {
	struct kvm_pit_channel_state channel[3]; /* as KVM_GET_PIT2 shows them */
	u32 flags;				 /* KVM_PIT_FLAGS_* */

	/* Counter 0. */
	u64 period;   /* ns; 0: never loaded */
	u64 deadline; /* when it next is, or was, at its end */
	bool armed, periodic;
	bool reinject;
	bool acked;  /* the last tick's service has ended */
	u32 pending; /* ticks that fell due and were not acknowledged */
};

void pit_init(struct pit *pit, u64 now);
u8 pit_read(struct pit *pit, u32 port, u64 now); /* 0x40 to 0x43 */
void pit_write(struct pit *pit, u32 port, u8 value, u64 now);
u8 pit_speaker_read(const struct pit *pit, u64 now);
void pit_speaker_write(struct pit *pit, u8 value, u64 now);

u64 pit_expiry(const struct pit *pit);	 /* ns, or PIT_NO_EXPIRY */
bool pit_poll(struct pit *pit, u64 now); /* true: raise IRQ 0 now */
bool pit_acked(struct pit *pit);	 /* true: raise it again now */
void pit_forget_ticks(struct pit *pit);	 /* IRQ 0 was unmasked: late ticks are of no use */
void pit_set_reinject(struct pit *pit, bool reinject);

/* KVM_GET_PIT2, KVM_SET_PIT2. */
void pit_get_state(const struct pit *pit, struct kvm_pit_state2 *state);
void pit_set_state(struct pit *pit, const struct kvm_pit_state2 *state, u64 now);

#endif
