/* SPDX-License-Identifier: MIT */
/*
 * The hypervisor: struct vm and struct vcpu, where the parts meet. See docs/architecture.md for the
 * walk of a KVM_RUN.
 *
 * Locks, in the order in which they may be taken:
 *      vcpu->lock      the vCPU; held for the whole of an ioctl on it, KVM_RUN included
 *      vm->slots_lock  who edits memory slots, dirty logs, coalescing zones and ioeventfds
 *      vm->schedule.lock  whose turn it is, on virtual time
 *      vm->lock        everything else that the VM owns: settings, routes, filters, list of vCPUs
 *      irqchip->lock   the 8259s, the I/O APIC and the 8254
 * Before all of them vm->ask_lock; between the first and the last irqchip->drain_lock. After all of
 * them, for moments, the locks of the clock and of irqfds and vm->ring_lock.
 *
 * Guest memory and the tables that vCPU threads read without a lock (slots, zones, the MSR filter)
 * are snapshots: vCPU threads read them inside a *section* (vcpu_section_begin/end); an editor
 * publishes a new one, calls vm_synchronize() and frees the old one. So a thread inside a section
 * never waits for vcpu->lock or vm->slots_lock, and vm_synchronize() is called with no lock of
 * these but vm->slots_lock.
 */
#ifndef VM_VM_H
#define VM_VM_H

#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

#include "base/own_files.h"
#include "base/poll_window.h"
#include "base/types.h"
#include "cpu/cpu.h"
#include "cpu/mmu/exclusive.h"
#include "cpu/mmu/shared_code.h"
#include "irq/lapic.h"
#include "mem/mem.h"
#include "timing/coherence.h"
#include "vm/control/sample.h"
#include "vm/irq/written.h"
#include "vm/msr/msr.h"
#include "vm/pmu/pmu.h"
#include "vm/stats.h"
#include "vm/time/clock.h"
#include "vm/time/device_wait.h"
#include "vm/time/schedule.h"
#include "vm/time/vm_time.h"
#include "x86/models.h"

#define VM_MAX_VCPUS	SHARED_CPUS
#define VM_MAX_VCPU_IDS (4 * VM_MAX_VCPUS) /* KVM: ids are sparse when they encode a topology */
#define VM_MAX_SLOTS	32764		   /* KVM: 32767, less the three it keeps for itself */
#define VM_MAX_ROUTES	4096

/* The quirks of KVM that a program may switch off. */
#define VM_QUIRKS                                                                \
	(KVM_X86_QUIRK_LINT0_REENABLED | KVM_X86_QUIRK_CD_NW_CLEARED |           \
	 KVM_X86_QUIRK_LAPIC_MMIO_HOLE | KVM_X86_QUIRK_OUT_7E_INC_RIP |          \
	 KVM_X86_QUIRK_MISC_ENABLE_NO_MWAIT | KVM_X86_QUIRK_FIX_HYPERCALL_INSN | \
	 KVM_X86_QUIRK_MWAIT_NEVER_UD_FAULTS | KVM_X86_QUIRK_SLOT_ZAP_ALL |      \
	 KVM_X86_QUIRK_STUFF_FEATURE_MSRS)

/* The pages that a program maps from a vCPU: struct kvm_run, port I/O data, the coalescing ring. */
#define VCPU_MMAP_SIZE (3 * PAGE_SIZE)

struct vm;

struct vcpu_asked;

/* What the program must answer, or has been shown, before the instruction that exited is
 * finished. */
enum vcpu_pending {
	PENDING_NONE,
	PENDING_IO,
	PENDING_MMIO,
	PENDING_RDMSR,
	PENDING_WRMSR,
	PENDING_HYPERCALL
};

/* Events that wait for cpu->port.event to be free or for the guest to allow them. vCPU lock. */
struct vcpu_events {
	bool exception_pending; /* port.event is an exception from the program, not yet begun */
	bool irq_injected;	/* an interrupt from the program: taken whatever IF says */
	u8 irq_vector;
	bool nmi_injected;
	bool triple_fault;
	int extint;    /* an ExtINT vector from the program (split irqchip), or -1 */
	u8 ioapic_eoi; /* REQUEST_IOAPIC_EOI: which vector has ended */
	u8 sipi_vector;
};

struct vcpu {
	struct vm *vm;
	u32 id, index; /* index: in order of creation */
	pthread_mutex_t lock;
	struct cpu *cpu;
	struct kvm_run *run; /* the pages the program maps; written by both sides */
	u8 *pio_data;
	struct kvm_coalesced_mmio_ring *ring;

	/* Written by any thread, atomically. */
	u32 requests;		  /* REQUEST_*: served before the next entry */
	u32 wake;		  /* a futex: grows with every kick and signal */
	u32 nmis;		  /* NMIs asked for and not yet taken, at most 2 */
	bool outside_nmi;	  /* the program asked for one of them */
	u32 section;		  /* odd: inside a section. A futex for vm_synchronize() */
	u32 sync_waiting;	  /* vm_synchronize() waits for the end of this section */
	struct vcpu_asked *asked; /* vm/control/ask_vcpu.c */
	enum vcpu_where where;
	enum exit_reason last_exit; /* what the hypervisor is busy with */
	pid_t tid;		    /* of the thread that was last in KVM_RUN */
	/* A signal handler of the program ran on this thread: KVM_RUN returns EINTR. */
	bool signalled;
	bool sleeping;
	struct poll_window poll; /* of a halted vCPU; the thread's only */
	/* Times its thread was interrupted for one, and the system call it was in; the thread's
	 * only. */
	u32 samples;

	u32 mp_state;	   /* KVM_MP_STATE_* */
	bool refusal_told; /* refused_state.c */
	bool ever_ran;
	bool passed_over; /* has no turns: time/schedule.c */
	bool has_lapic;	  /* an irqchip existed when this vCPU was created */
	bool pv_unhalted;
	bool eoi_offered;      /* irq/pv_eoi.c: the flag in guest memory is up */
	bool enforce_pv_cpuid; /* KVM_CAP_ENFORCE_PV_FEATURE_CPUID */
	bool sigmask_active;
	sigset_t sigmask;
	u64 mem_generation; /* of the snapshot that the TLB was filled from */
	/* clock_ns() and instructions at the last reading of the clock: run.c. */
	u64 clock_read_ns, clock_read_work;
	u64 traced; /* instructions that vm->trace has counted */

	enum vcpu_pending pending;
	bool completed; /* the hypervisor has finished an instruction: settle_completed() */
	struct vcpu_events events;
	u32 guest_debug; /* KVM_GUESTDBG_* */

	struct lapic lapic;
	struct vcpu_clock clock;
	struct vcpu_msrs msrs;
	struct vcpu_pmu pmu;
	u32 ncpuid;
	struct kvm_cpuid_entry2 *cpuid;
	bool cpuid_filled; /* by cpuid_fill_newer() */
	struct vcpu_stats stats;
};

/* Settings made with KVM_ENABLE_CAP and its relatives. Changed under vm->lock, read anywhere. */
struct vm_settings {
	u64 disabled_quirks;  /* KVM_X86_QUIRK_* */
	u64 disabled_exits;   /* KVM_X86_DISABLE_EXITS_* */
	u64 user_msr_exits;   /* KVM_MSR_EXIT_REASON_* */
	u64 hypercall_exits;  /* bit per hypercall number */
	u64 x2apic_api;	      /* KVM_X2APIC_API_* */
	u64 manual_dirty_log; /* KVM_DIRTY_LOG_MANUAL_* */
	u64 apic_bus_cycle_ns;
	u32 halt_poll_ns; /* how long a halted vCPU may look before it sleeps */
	u32 max_vcpu_ids; /* 0: not limited by the program */
	u32 bsp_id;
	u32 reserved_ioapic_pins;
	bool exception_payload, triple_fault_event, exit_on_emulation_error;
	bool platform_info_hidden; /* KVM_CAP_MSR_PLATFORM_INFO 0 */
	bool pmu_disabled;
	bool host_view; /* events of the host may count the guest, on counters of their own */
	enum vm_pmu_mode pmu_mode;
	enum vm_accounting accounting;
	enum vm_timing timing; /* fixed before the VM has vCPUs */
	u32 last_level;	       /* VPMU_LLC: Kbytes of the model's last level; 0: all. As `timing` */
	u32 last_level_life;   /* VPMU_LLC_LIFE: cycles; 0: no neighbours. As `timing` */
	bool strict_cpuid;     /* VPMU_STRICT_CPUID: guests get the program's list as it is */
	bool seeded;	       /* VPMU_SEED: RDRAND and RDSEED are no chance */
	u64 seed;
	bool harden; /* VPMU_HARDEN: docs/security.md, "Speculation" */
};

struct io_zones; /* vm/memory/io_zones.c: coalescing zones and ioeventfds */
struct irqchip;	 /* vm/irq/irqchip.h */

struct vm {
	const struct model *model;
	u32 refs;
	pid_t owner; /* the process that created it, for names */
	u32 serial;

	pthread_mutex_t slots_lock, lock;
	pthread_mutex_t ask_lock; /* one question at a time; outermost */
	u64 created_ns;
	const struct mem_map *mem;
	u32 nslots;
	const struct io_zones *zones;
	struct own_files zone_files; /* eventfds of zones; changes under slots_lock */
	pthread_mutex_t ring_lock;
	struct msr_filter *msr_filter;	  /* NULL: none */
	u32 msr_filter_serial;		  /* grows after each change */
	struct vm_pmu_filter *pmu_filter; /* NULL: none */

	struct vm_settings set;
	bool irqchip_kernel, irqchip_split; /* at most one */
	struct irqchip *irqchip;	    /* with either; written before it */

	struct vm_time time;
	struct vm_schedule schedule;
	struct vm_outside outside;
	struct vm_written written;
	struct profile *profile;     /* vm/profile.h; NULL: none */
	struct kept *kept;	     /* vm/kept.h; NULL: none */
	struct hwpmu_shadow *shadow; /* vm/pmu/shadow.h; NULL: none */
	struct vm_trace *trace;	     /* vm/time/trace.h; NULL: none */
	struct vm_clock clock;
	struct vm_stats stats;
	u32 created_vcpus;	    /* includes those being made */
	struct shared_code code;    /* claims and writes of code: cpu/mmu/shared_code.h */
	struct exclusive exclusive; /* cpu/mmu/exclusive.h */
	struct coherence caches[VM_MAX_VCPUS / COHERENCE_CPUS]; /* of so many vCPUs each */
	u32 nvcpus; /* vcpus[0..nvcpus-1] exist; written after the entry */
	struct vcpu *vcpus[VM_MAX_VCPUS];
};

enum vcpu_request {
	REQUEST_TLB_FLUSH = BIT(0),
	REQUEST_CLOCK_UPDATE = BIT(2),
	REQUEST_STEAL_UPDATE = BIT(3),
	REQUEST_EVENT = BIT(4),	     /* the LAPIC or the program has something to inject */
	REQUEST_LEAVE = BIT(5),	     /* vm_synchronize() waits for this vCPU */
	REQUEST_IOAPIC_EOI = BIT(6), /* the program's I/O APIC hears that a level has ended */
	REQUEST_ASK = BIT(7),	     /* vcpu_answer() */
};

static inline bool vm_has_lapic(const struct vm *vm)
{
	return vm->irqchip_kernel || vm->irqchip_split;
}

/* How many entries of vm->vcpus[] there are by now. Any thread. */
static inline u32 vm_nvcpus(const struct vm *vm)
{
	return __atomic_load_n(&vm->nvcpus, __ATOMIC_ACQUIRE);
}

static inline bool vm_has_quirk(const struct vm *vm, u64 quirk)
{
	return !(READ_ONCE(vm->set.disabled_quirks) & quirk);
}

/* vm.c. A VM lives until its last reference (its own fd, its vCPUs', its stats files') is gone. */
struct vm *vm_create(const struct model *model); /* NULL: out of memory */
void vm_get(struct vm *vm);
void vm_put(struct vm *vm);
struct vcpu *vm_vcpu_by_id(struct vm *vm, u32 id); /* NULL: none. Any thread */
/* Sets request bits on every vCPU and kicks them. */
void vm_kick_all(struct vm *vm, u32 requests);
/* Returns once every vCPU has left the section it was in, if any. Not inside a section, nor with
 * vm->lock. */
void vm_synchronize(struct vm *vm);
int vm_enable_cap(struct vm *vm, const struct kvm_enable_cap *cap);
int vm_set_boot_cpu(struct vm *vm, u64 id);
/* Bitmaps are the program's pointers. */
int vm_set_msr_filter(struct vm *vm, const struct kvm_msr_filter *filter);

/* memory/slots.c, memory/dirty_log.c */
int vm_set_memory_region(struct vm *vm, const struct kvm_userspace_memory_region2 *region);
int vm_get_dirty_log(struct vm *vm, const struct kvm_dirty_log *log);
int vm_clear_dirty_log(struct vm *vm, const struct kvm_clear_dirty_log *log);

/* vcpu.c. `run` is VCPU_MMAP_SIZE bytes of zeroes shared with the program; the vCPU owns the
 * mapping. */
int vcpu_create(struct vm *vm, u32 id, void *run, struct vcpu **out);
void vcpu_destroy(struct vcpu *vcpu);
/* Sets request bits and makes the vCPU notice: out of translated code, out of HLT. Any thread,
 * signal-safe. */
void vcpu_kick(struct vcpu *vcpu, u32 requests);
/* Its thread looks again at what it sleeps for. Any thread. */
void vcpu_wake(struct vcpu *vcpu);
void vcpu_section_begin(struct vcpu *vcpu);
void vcpu_section_end(struct vcpu *vcpu);
/* Of the vCPU's own thread, or with its lock held. */
static inline bool vcpu_in_section(const struct vcpu *vcpu)
{
	return vcpu->section & 1;
}
void vcpu_reset(struct vcpu *vcpu, bool init);
/* KVM_SET_CPUID2. `entries` is from malloc() and taken over, whatever the outcome. */
int vcpu_set_cpuid(struct vcpu *vcpu, struct kvm_cpuid_entry2 *entries, u32 n);
int vcpu_enable_cap(struct vcpu *vcpu, const struct kvm_enable_cap *cap);
/* Hands an NMI to the vCPU: of the program, on any thread; of the local APIC, on the vCPU's. */
void vcpu_nmi(struct vcpu *vcpu);
void vcpu_latch_nmi(struct vcpu *vcpu);
/* The vCPU whose KVM_RUN this thread is inside of, or NULL. Async-signal-safe. */
struct vcpu *vcpu_current(void);

/* run.c: KVM_RUN. 0 with run->exit_reason set, or -errno. */
int vcpu_run(struct vcpu *vcpu);
/* Has KVM_RUN to end: by a signal, or because the program says so? */
bool vcpu_interrupted(const struct vcpu *vcpu);
/* A signal has come: ends the KVM_RUN that this thread is inside of, or the next one, unless it is
 * forgotten before that begins. Async-signal-safe. */
void vcpu_interrupt_current(void);
void vcpu_interrupt_forget(void);
/* In the child of a fork(): this thread is another one than it was. */
void vcpu_thread_forked(void);

/* registers.c, xstate.c, events.c, debug.c: the registers as the API shows them. vCPU lock held. */
/* Registers in struct kvm_run, around KVM_RUN: what the program left there (0 or -errno), and what
 * it asked for. */
int vcpu_sync_in(struct vcpu *vcpu);
void vcpu_sync_out(struct vcpu *vcpu);
void vcpu_get_regs(struct vcpu *vcpu, struct kvm_regs *regs);
void vcpu_set_regs(struct vcpu *vcpu, const struct kvm_regs *regs);
void vcpu_get_sregs(struct vcpu *vcpu, struct kvm_sregs *sregs);
int vcpu_set_sregs(struct vcpu *vcpu, const struct kvm_sregs *sregs);
void vcpu_get_sregs2(struct vcpu *vcpu, struct kvm_sregs2 *sregs);
int vcpu_set_sregs2(struct vcpu *vcpu, const struct kvm_sregs2 *sregs);
void vcpu_get_debugregs(struct vcpu *vcpu, struct kvm_debugregs *regs);
int vcpu_set_debugregs(struct vcpu *vcpu, const struct kvm_debugregs *regs);
void vcpu_get_xcrs(struct vcpu *vcpu, struct kvm_xcrs *xcrs);
int vcpu_set_xcrs(struct vcpu *vcpu, const struct kvm_xcrs *xcrs);
void vcpu_get_fpu(struct vcpu *vcpu, struct kvm_fpu *fpu);
void vcpu_set_fpu(struct vcpu *vcpu, const struct kvm_fpu *fpu);
void vcpu_get_xsave(struct vcpu *vcpu, struct kvm_xsave *xsave);
int vcpu_set_xsave(struct vcpu *vcpu, const struct kvm_xsave *xsave);
void vcpu_get_events(struct vcpu *vcpu, struct kvm_vcpu_events *events);
int vcpu_set_events(struct vcpu *vcpu, const struct kvm_vcpu_events *events);
int vcpu_interrupt(struct vcpu *vcpu, u32 vector); /* KVM_INTERRUPT */
int vcpu_get_mp_state(struct vcpu *vcpu, struct kvm_mp_state *state);
int vcpu_set_mp_state(struct vcpu *vcpu, const struct kvm_mp_state *state);
int vcpu_set_guest_debug(struct vcpu *vcpu, const struct kvm_guest_debug *debug);
void vcpu_translate(struct vcpu *vcpu, struct kvm_translation *tr);
/* The bytes at RIP: how many of n can be read. */
u32 vcpu_peek_code(struct vcpu *vcpu, u8 *buf, u32 n);

/* irq/irqchip_ioctls.c */
int vm_create_irqchip(struct vm *vm);
int vm_create_pit(struct vm *vm, u32 flags);
int vm_get_irqchip(struct vm *vm, struct kvm_irqchip *chip);
int vm_set_irqchip(struct vm *vm, const struct kvm_irqchip *chip);
int vm_get_pit(struct vm *vm, struct kvm_pit_state2 *pit);
int vm_set_pit(struct vm *vm, const struct kvm_pit_state2 *pit);
int vm_reinject_control(struct vm *vm, bool reinject);
int vm_irq_line(struct vm *vm, struct kvm_irq_level *irq, bool wants_status);
int vm_set_routes(struct vm *vm, const struct kvm_irq_routing_entry *entries, u32 n);
int vm_signal_msi(struct vm *vm, const struct kvm_msi *msi);
int vm_irqfd(struct vm *vm, const struct kvm_irqfd *args);

#endif
