/* SPDX-License-Identifier: MIT */
/*
 * The VM's interrupt controllers besides the local APICs, wired together: the 8259s, the I/O APIC,
 * the 8254, GSI routes and irqfds. The parts themselves are in irq/.
 *
 * struct irqchip exists from KVM_CREATE_IRQCHIP (or the split irqchip, which has routes and irqfds
 * only) until the VM ends. Its lock guards the chips. It is taken after every other lock but those
 * of the clock and of irqfds, also inside a section.
 */
#ifndef VM_IRQ_IRQCHIP_H
#define VM_IRQ_IRQCHIP_H

#include <pthread.h>

#include "irq/ioapic.h"
#include "irq/irqfd.h"
#include "irq/pic.h"
#include "irq/pit.h"
#include "irq/route.h"

#define RTC_PIN		 8 /* of the I/O APIC */
#define IRQCHIP_MAX_CPUS 1024

struct vcpu;
struct vm;

/* Sources that can hold a line up. */
enum irq_source { IRQ_SOURCE_PROGRAM, IRQ_SOURCE_RESAMPLE, IRQ_SOURCE_PIT };

/* rtc_eoi.c: by vcpu->index, which have taken the RTC's last tick and not ended it. */
struct rtc_eoi {
	u32 pending; /* how many */
	u64 waits[IRQCHIP_MAX_CPUS / 64];
	u8 vector[IRQCHIP_MAX_CPUS];
};

struct irqchip {
	pthread_mutex_t lock;
	struct rtc_eoi rtc;
	struct pic pic;
	struct ioapic ioapic;
	struct pit pit;
	bool has_pit, has_speaker;

	struct route_table routes; /* edited under vm->lock */

	/* irq_thread.c: of the 8254 and irqfds. Created under vm->lock, when there is the first. */
	bool has_thread;
	pthread_t thread;
	/* Taking from irqfds and delivering; taking irqfds away. Before `lock`. */
	pthread_mutex_t drain_lock;
	struct irqfds irqfds;
	bool is_looked_at; /* a halted vCPU looks for events in the thread's place. Atomic */
};

/* KVM_CREATE_IRQCHIP, or KVM_CAP_SPLIT_IRQCHIP. With vm->lock: 0 or -ENOMEM. */
int irqchip_create(struct vm *vm, bool split);
void irqchip_destroy(struct vm *vm);

/* One source of a GSI changes. How many APICs took it, 0 if it was coalesced, -1 if it was ignored.
 * Any thread. */
int irqchip_set_gsi(struct vm *vm, u32 gsi, enum irq_source source, bool level);
/* The same for KVM_IRQ_LINE_STATUS: a tick of the RTC is coalesced until the last one has ended. */
int irqchip_set_gsi_status(struct vm *vm, u32 gsi, bool level);
void irqchip_pit_expired(struct vm *vm);
u64 irqchip_pit_expiry(struct vm *vm); /* ns, or PIT_NO_EXPIRY. Any thread */

/* Every change of the 8259s and the I/O APIC is between these two; the second acts on what they
 * marked. */
bool irqchip_lock(struct vm *vm); /* returns INTR of the 8259s, for irqchip_unlock() */
void irqchip_unlock(struct vm *vm, bool had_output);
/* After a change of the 8254 that may have moved its expiry. Lock held. */
void irqchip_pit_rearm(struct vm *vm);

/* Port I/O and MMIO: true if one of the chips answered. vCPU thread. */
bool irqchip_port_read(struct vm *vm, u32 port, u32 len, void *data);
bool irqchip_port_write(struct vm *vm, u32 port, u32 len, const void *data);
bool irqchip_mmio_read(struct vm *vm, gpa_t gpa, u32 len, void *data);
bool irqchip_mmio_write(struct vm *vm, gpa_t gpa, u32 len, const void *data);

/* INTR of the 8259s, and their acknowledge cycle. vCPU thread. */
bool irqchip_has_extint(const struct vm *vm);
u8 irqchip_take_extint(struct vm *vm);
/* A local APIC ended a vector. vCPU thread. */
void irqchip_eoi(struct vcpu *vcpu, u8 vector, bool level);

/* rtc_eoi.c. With the lock: a vCPU takes a tick, or ends a vector; all is set from the state of the
 * local APICs. */
void rtc_eoi_taken(struct vcpu *vcpu, u8 vector);
void rtc_eoi_ended(struct vcpu *vcpu, u8 vector);
void rtc_eoi_restore_all(struct vm *vm);
/* Without it: does rtc_eoi_ended() want to know? And after the program has set a local APIC. */
bool rtc_eoi_wanted(const struct vcpu *vcpu, u8 vector);
void rtc_eoi_restore(struct vcpu *vcpu);

/* irq_thread.c. Start: with vm->lock held; 0 or -errno. */
int irq_thread_start(struct vm *vm);
void irq_thread_end(struct vm *vm);
/* A halted vCPU delivers in the thread's place. Begin: true if none does, until it ends. Not on
 * virtual time, nor with irqchip->lock. */
bool irq_look_begin(struct vm *vm);
void irq_look(struct vm *vm);
void irq_look_end(struct vm *vm);
/* Delivers what irqfds have to say by now. Virtual time only. Not with irqchip->lock. */
void irq_thread_drain(struct vm *vm);

#endif
