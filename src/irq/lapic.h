/* SPDX-License-Identifier: MIT */
/*
 * The local APIC of one logical processor (SDM 3A 10; APM2 16), xAPIC and x2APIC, as KVM models it:
 * no bus delays, version 0x14, no error reporting.
 *
 * A leaf: it knows neither its processor nor other APICs. What a register write asks of the outside
 * comes back in a struct lapic_actions, and the owner acts on it; time comes in as a struct
 * lapic_now. Accesses to registers, reads as well, first bring the timer up to that time, and so
 * may raise its interrupt.
 *
 * Threads: everything belongs to the vCPU's thread (or the holder of its lock), except
 * lapic_accept(), lapic_matches(), lapic_set_irq() and lapic_post(), which any thread may call.
 * They change IRR, TMR, outside, outside_nmi, events, sipi_vector and arbitration, atomically, and
 * read base, ID, LDR, DFR and SVR. The caller kicks the vCPU afterwards. A reset and
 * lapic_set_state() write all registers: an interrupt that another thread sends at that moment may
 * be lost, as in KVM.
 */
#ifndef IRQ_LAPIC_H
#define IRQ_LAPIC_H

#include <linux/kvm.h>

#include "base/types.h"

#define LAPIC_DEFAULT_BASE 0xfee00000ull
#define LAPIC_MMIO_SIZE	   0x1000u
#define LAPIC_NO_EXPIRY	   (~0ull)

/* IA32_APIC_BASE (SDM 3A 10.4.4). */
#define APIC_BASE_BSP	 BIT(8)
#define APIC_BASE_X2APIC BIT(10)
#define APIC_BASE_ENABLE BIT(11)

/* Register offsets in the MMIO page; the x2APIC MSR is 0x800 + offset / 16 (SDM 3A table 10-1). */
enum lapic_reg {
	LAPIC_ID = 0x20,
	LAPIC_VERSION = 0x30,
	LAPIC_TPR = 0x80,
	LAPIC_APR = 0x90,
	LAPIC_PPR = 0xa0,
	LAPIC_EOI = 0xb0,
	LAPIC_LDR = 0xd0,
	LAPIC_DFR = 0xe0,
	LAPIC_SVR = 0xf0,
	LAPIC_ISR = 0x100,
	LAPIC_TMR = 0x180,
	LAPIC_IRR = 0x200,
	LAPIC_ESR = 0x280,
	LAPIC_LVT_CMCI = 0x2f0,
	LAPIC_ICR = 0x300,
	LAPIC_ICR2 = 0x310,
	LAPIC_LVT_TIMER = 0x320,
	LAPIC_LVT_THERMAL = 0x330,
	LAPIC_LVT_PERF = 0x340,
	LAPIC_LVT_LINT0 = 0x350,
	LAPIC_LVT_LINT1 = 0x360,
	LAPIC_LVT_ERROR = 0x370,
	LAPIC_TIMER_INITIAL = 0x380,
	LAPIC_TIMER_CURRENT = 0x390,
	LAPIC_TIMER_DIVIDE = 0x3e0,
	LAPIC_SELF_IPI = 0x3f0,
};

/* Delivery modes as in ICR and LVTs (SDM 3A 10.6.1). */
enum lapic_delivery {
	LAPIC_FIXED,
	LAPIC_LOWEST,
	LAPIC_SMI,
	LAPIC_REMOTE_READ, /* KVM: used by KVM_HC_KICK_CPU to end a HLT */
	LAPIC_NMI,
	LAPIC_INIT,
	LAPIC_STARTUP,
	LAPIC_EXTINT,
};

enum lapic_shorthand { LAPIC_DEST_FIELD, LAPIC_DEST_SELF, LAPIC_DEST_ALL, LAPIC_DEST_OTHERS };

/* What travels between APICs: an IPI, an MSI or an I/O APIC's interrupt. */
struct lapic_message {
	enum lapic_delivery mode;
	enum lapic_shorthand shorthand;
	u8 vector;
	bool logical; /* destination mode */
	bool level;   /* trigger mode */
	bool assert;  /* level of a level-triggered message */
	bool ipi;     /* sent by an APIC, not by a device */
	u32 dest;
};

/* Events that are not vectors: bits of lapic.events. */
enum lapic_event {
	LAPIC_EVENT_NMI = BIT(0),
	LAPIC_EVENT_INIT = BIT(1),
	LAPIC_EVENT_SIPI = BIT(2), /* vector in lapic.sipi_vector */
	LAPIC_EVENT_SMI = BIT(3),
	LAPIC_EVENT_UNHALT = BIT(4),
	LAPIC_EVENT_NMI_AGAIN = BIT(5), /* a second NMI before the first was taken */
};

#define LAPIC_EVENT_NMIS (LAPIC_EVENT_NMI | LAPIC_EVENT_NMI_AGAIN)

/* The time of an access: the owner's monotonic clock and the guest's TSC, read together. */
struct lapic_now {
	u64 ns;
	u64 tsc;
	u32 tsc_khz;
};

/* What the owner has to do after a register write: bits of lapic_actions.what. */
enum lapic_action {
	LAPIC_DO_SEND = BIT(0), /* deliver .message to whom it concerns */
	/* The service of .eoi_vector has ended, of a level if .eoi_level: tell the I/O APIC. */
	LAPIC_DO_EOI = BIT(1),
	LAPIC_DO_EVENT = BIT(2), /* look at lapic_pending() again */
	LAPIC_DO_TIMER = BIT(3), /* lapic_timer_expiry() has changed */
	LAPIC_DO_MODE = BIT(4),	 /* hardware enable or x2APIC mode changed: CPUID shows it */
};

struct lapic_actions {
	u32 what;
	u8 eoi_vector;
	bool eoi_level;
	struct lapic_message message;
};

struct lapic_timer {
	u64 period;	  /* ns of one full count; 0: not counting */
	u64 expiry;	  /* ns, on the clock of struct lapic_now; LAPIC_NO_EXPIRY when stopped */
	u64 tsc_deadline; /* IA32_TSC_DEADLINE; 0: disarmed */
	u32 divide;	  /* of the bus clock: 1 to 128 */
	u32 mode;	  /* the mode bits of LVT timer that are in force */
};

struct lapic {
	u32 regs[0x400 / 4]; /* as KVM_GET_LAPIC shows them */
	u64 base;	     /* IA32_APIC_BASE */
	u32 id;		     /* x2APIC ID: the vCPU's id */
	u32 events;	     /* enum lapic_event, atomically */
	u8 sipi_vector;
	u8 nlvts;	       /* 6, or 7 with LVT CMCI */
	bool deadline_mode;    /* CPUID has the TSC-deadline timer */
	bool directed_eoi;     /* version register offers EOI-broadcast suppression */
	bool ids32;	       /* KVM_X2APIC_API_USE_32BIT_IDS */
	bool strict_broadcast; /* KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK */
	bool boot;	       /* the bootstrap processor */
	bool lint0_masked;     /* KVM_X86_QUIRK_LINT0_REENABLED is off */
	/* Vectors that came as messages, not from this APIC's own LVTs; lapic_from_outside(). */
	u32 outside[8];
	bool outside_nmi; /* an NMI came from outside, too */
	/* Grows with each lowest-priority interrupt: the smallest takes the next one. */
	u32 arbitration;
	u32 bus_cycle_ns; /* 1; KVM_CAP_X86_APIC_BUS_CYCLES_NS */
	struct lapic_timer timer;
	bool extended; /* AMD's extended local vectors: lapic_extended.c */
#define LAPIC_EILVTS	4u
#define LAPIC_EILVT_IBS 1u
	u32 eilvt[LAPIC_EILVTS];
};

/* Power-up state. id is the x2APIC ID; boot: this is the bootstrap processor. */
void lapic_init(struct lapic *lapic, u32 id, bool boot);
/* INIT leaves the APIC ID and base; a reset sets them, too. */
void lapic_reset(struct lapic *lapic, bool init_event);
/* After CPUID or MCG_CAP changed: number of LVTs and features shown in the version register. */
void lapic_configure(struct lapic *lapic, bool cmci, bool directed_eoi);

static inline bool lapic_hw_enabled(const struct lapic *lapic)
{
	return READ_ONCE(lapic->base) & APIC_BASE_ENABLE;
}

static inline bool lapic_x2apic(const struct lapic *lapic)
{
	u64 both = APIC_BASE_ENABLE | APIC_BASE_X2APIC;

	return (READ_ONCE(lapic->base) & both) == both;
}

static inline bool lapic_sw_enabled(const struct lapic *lapic)
{
	return READ_ONCE(lapic->regs[LAPIC_SVR / 4]) & BIT(8);
}

/* Interrupts to the processor: the highest vector that may be delivered now, or -1; then
 * lapic_ack() it. */
int lapic_pending(const struct lapic *lapic);
void lapic_ack(struct lapic *lapic, u8 vector); /* the processor takes it: IRR to ISR */
int lapic_highest_irr(const struct lapic *lapic);
int lapic_highest_isr(const struct lapic *lapic);
bool lapic_has_vector(const struct lapic *lapic, u8 vector); /* in IRR or ISR */
bool lapic_is_level(const struct lapic *lapic, u8 vector);   /* as it was last taken */
bool lapic_accepts_pic(const struct lapic *lapic); /* LINT0 lets the 8259's interrupts through */
u32 lapic_take_events(struct lapic *lapic, u32 which); /* returns and clears those pending */
u32 lapic_take_nmis(struct lapic *lapic);	       /* how many: at most 2 */

/* Interrupts from outside, any thread. False: not taken (disabled, masked). The caller kicks. */
bool lapic_accept(struct lapic *lapic, const struct lapic_message *message);
/* A fixed interrupt; level: trigger mode. */
bool lapic_set_irq(struct lapic *lapic, u8 vector, bool level);
bool lapic_matches(const struct lapic *lapic, const struct lapic_message *message);
void lapic_post(struct lapic *lapic, u32 events);

/* Interrupts of the local vector table. */
bool lapic_local(struct lapic *lapic, enum lapic_reg lvt);
/* A PMI, through LVTPC. masks: delivering it masks LVTPC (SDM 3A 10.5.1). False: it is masked. */
bool lapic_perf_interrupt(struct lapic *lapic, bool masks);
bool lapic_extended_interrupt(struct lapic *lapic, u32 i); /* through extended LVT i */
u32 lapic_extended_entry(const struct lapic *lapic, u32 i);
void lapic_set_extended_entry(struct lapic *lapic, u32 i, u32 value); /* drops reserved bits */

/* CR8: bits 7:4 of TPR. */
u64 lapic_get_cr8(const struct lapic *lapic);
void lapic_set_cr8(struct lapic *lapic, u64 value);

/*
 * MMIO, offset into the page. False: no xAPIC answers there now (disabled or x2APIC). Odd sizes and
 * offsets read as nothing and write nothing, as KVM does.
 */
bool lapic_mmio_read(struct lapic *lapic, u32 offset, u32 len, struct lapic_now now, void *data);
bool lapic_mmio_write(struct lapic *lapic, u32 offset, u32 len, struct lapic_now now,
		      const void *data, struct lapic_actions *actions);
/* x2APIC MSRs 0x800 to 0x8ff. False: #GP(0). */
bool lapic_msr_read(struct lapic *lapic, u32 msr, struct lapic_now now, u64 *value);
bool lapic_msr_write(struct lapic *lapic, u32 msr, u64 value, struct lapic_now now,
		     struct lapic_actions *actions);
void lapic_eoi(struct lapic *lapic, struct lapic_actions *actions);

/* IA32_APIC_BASE. False: #GP(0). valid_bits: which bits may be set, by MAXPHYADDR and CPUID. */
bool lapic_set_base(struct lapic *lapic, u64 value, u64 valid_bits, bool host,
		    struct lapic_actions *actions);

/*
 * Did the interrupt that is now taken, or the NMI, come from outside, since the last call?
 * Interrupts of the APIC's own timer and counters do not mean that a device or another processor
 * wrote memory.
 */
bool lapic_from_outside(struct lapic *lapic, u8 vector);
bool lapic_nmi_from_outside(struct lapic *lapic);

/* KVM_GET_LAPIC, KVM_SET_LAPIC. set: 0 or -EINVAL. */
void lapic_get_state(struct lapic *lapic, struct lapic_now now, struct kvm_lapic_state *state);
int lapic_set_state(struct lapic *lapic, struct lapic_now now, const struct kvm_lapic_state *state);

/* The timer (lapic_timer.c). The owner sleeps until lapic_timer_expiry() and then polls. */
u64 lapic_timer_deadline(const struct lapic *lapic); /* TSC-deadline mode: the TSC; 0: not armed */
bool lapic_timer_masked(const struct lapic *lapic);
/* ns, or LAPIC_NO_EXPIRY. */
u64 lapic_timer_expiry(const struct lapic *lapic, struct lapic_now now);
/* true: an interrupt was raised. */
bool lapic_timer_poll(struct lapic *lapic, struct lapic_now now);
u64 lapic_get_tsc_deadline(const struct lapic *lapic);
void lapic_set_tsc_deadline(struct lapic *lapic, u64 value, struct lapic_now now,
			    struct lapic_actions *actions);

#endif
