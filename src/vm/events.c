// SPDX-License-Identifier: MIT
/*
 * Events: what waits to be injected, in which order it gets its turn (SDM 3A 6.9, KVM:
 * kvm_check_and_inject_events), INIT and start-up IPIs, which reset and start the vCPU, and how the
 * program sees and sets all this (KVM_GET_VCPU_EVENTS, KVM_INTERRUPT, KVM_GET_MP_STATE). Looking
 * changes state, as in KVM: both ioctls that get take NMIs over from the local APIC, and
 * KVM_GET_MP_STATE acts on INIT and start-up IPIs. vCPU thread, or vCPU lock held.
 */
#include "vm/events.h"

#include <errno.h>
#include <string.h>

#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "vm/irq/irqchip.h"
#include "vm/time/trace.h"
#include "vm/vm.h"

static void set_event(struct cpu *cpu, enum event_kind kind, u8 vector)
{
	cpu->port.event = (struct cpu_event){ .kind = kind, .vector = vector, .injected = true };
}

static bool own_nmi(struct vcpu *vcpu)
{
	bool outside = __atomic_exchange_n(&vcpu->outside_nmi, false, __ATOMIC_SEQ_CST);

	return !lapic_nmi_from_outside(&vcpu->lapic) && !outside;
}

/* NMIs that the local APIC has for the processor. The PMI of the last instruction before a guest is
 * saved would be lost otherwise, and on Intel all later ones: it masks LVTPC. */
static void accept_nmis(struct vcpu *vcpu)
{
	u32 n = vcpu->has_lapic ? lapic_take_nmis(&vcpu->lapic) : 0;

	while (n--)
		vcpu_latch_nmi(vcpu);
}

static bool nmi_in_service(const struct vcpu *vcpu)
{
	return vcpu->cpu->nmi_masked || vcpu->events.nmi_injected ||
	       vcpu->cpu->port.event.kind == EVENT_NMI;
}

/* While one is in service one is latched and no more (KVM: process_nmi). */
static u32 pending_nmis(struct vcpu *vcpu)
{
	u32 two = 2;

	if (nmi_in_service(vcpu))
		__atomic_compare_exchange_n(&vcpu->nmis, &two, 1, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_RELAXED);
	return __atomic_load_n(&vcpu->nmis, __ATOMIC_ACQUIRE);
}

static bool take_nmi(struct vcpu *vcpu)
{
	u32 n = pending_nmis(vcpu);

	if (!n || vcpu->cpu->nmi_masked || vcpu->cpu->shadow)
		return false;
	__atomic_sub_fetch(&vcpu->nmis, 1, __ATOMIC_ACQ_REL);
	return true;
}

bool events_irq_allowed(const struct vcpu *vcpu)
{
	return (vcpu->cpu->rflags & FL_IF) && !vcpu->cpu->shadow;
}

static bool extint_waits(const struct vcpu *vcpu)
{
	bool waits =
		vcpu->vm->irqchip_kernel ? irqchip_has_extint(vcpu->vm) : vcpu->events.extint >= 0;

	return waits && lapic_accepts_pic(&vcpu->lapic);
}

static bool irq_waits(const struct vcpu *vcpu)
{
	return vcpu->has_lapic && (extint_waits(vcpu) || lapic_pending(&vcpu->lapic) >= 0);
}

static u8 take_extint(struct vcpu *vcpu)
{
	u8 vector = vcpu->events.extint;

	if (vcpu->vm->irqchip_kernel)
		return irqchip_take_extint(vcpu->vm);
	vcpu->events.extint = -1;
	return vector;
}

/* KVM: the 8259's before the local APIC's. There may be none by now: another thread lowers the
 * 8259's output at any time. */
static void take_irq(struct vcpu *vcpu)
{
	bool extint = extint_waits(vcpu);
	int vector = extint ? take_extint(vcpu) : lapic_pending(&vcpu->lapic);

	if (vector < 0)
		return;
	if (!extint)
		lapic_ack(&vcpu->lapic, vector);
	set_event(vcpu->cpu, EVENT_INTR, vector);
	vcpu->cpu->port.event.own = !extint && !lapic_from_outside(&vcpu->lapic, vector);
	vcpu->stats.irq_injections++;
}

/* The one event that is due now, if nothing is under way already. */
static void inject_one(struct vcpu *vcpu)
{
	struct vcpu_events *e = &vcpu->events;
	bool blocked = vcpu->guest_debug & KVM_GUESTDBG_BLOCKIRQ;

	if (e->nmi_injected) {
		e->nmi_injected = false;
		set_event(vcpu->cpu, EVENT_NMI, VEC_NMI);
	} else if (e->irq_injected) {
		e->irq_injected = false;
		set_event(vcpu->cpu, EVENT_INTR, e->irq_vector);
		vcpu->stats.irq_injections++;
	} else if (!blocked && take_nmi(vcpu)) {
		set_event(vcpu->cpu, EVENT_NMI, VEC_NMI);
		vcpu->cpu->port.event.own = own_nmi(vcpu);
		vcpu->stats.nmi_injections++;
	} else if (!blocked && events_irq_allowed(vcpu) && irq_waits(vcpu)) {
		take_irq(vcpu);
	}
}

void events_set_aside(struct vcpu *vcpu)
{
	struct cpu_event *event = &vcpu->cpu->port.event;

	if (event->kind == EVENT_INTR) {
		vcpu->events.irq_injected = true;
		vcpu->events.irq_vector = event->vector;
	} else if (event->kind == EVENT_NMI) {
		vcpu->events.nmi_injected = true;
	} else {
		return;
	}
	event->kind = EVENT_NONE;
}

void events_inject(struct vcpu *vcpu)
{
	struct cpu *cpu = vcpu->cpu;
	bool blocked = vcpu->guest_debug & KVM_GUESTDBG_BLOCKIRQ;

	if (cpu->port.event.kind == EVENT_NONE && !cpu_holds_answer(cpu)) {
		inject_one(vcpu);
		if (unlikely(vcpu->vm->trace) && cpu->port.event.kind != EVENT_NONE)
			trace_event(vcpu);
	}
	vcpu->events.exception_pending = false;
	cpu->port.want_nmi_window = !blocked && __atomic_load_n(&vcpu->nmis, __ATOMIC_ACQUIRE);
	cpu->port.want_irq_window = (!blocked && irq_waits(vcpu)) || events_irq_wanted(vcpu);
}

bool events_irq_wanted(const struct vcpu *vcpu)
{
	if (!READ_ONCE(vcpu->run->request_interrupt_window) || vcpu->events.extint >= 0)
		return false;
	return !vcpu->has_lapic || (vcpu->vm->irqchip_split && lapic_accepts_pic(&vcpu->lapic));
}

bool events_ready_for_irq(const struct vcpu *vcpu)
{
	const struct vcpu_events *e = &vcpu->events;
	bool accepts = !vcpu->has_lapic || (e->extint < 0 && lapic_accepts_pic(&vcpu->lapic));

	return accepts && events_irq_allowed(vcpu) && vcpu->cpu->port.event.kind == EVENT_NONE &&
	       !e->irq_injected && !e->nmi_injected;
}

bool events_wake(const struct vcpu *vcpu)
{
	const struct vcpu_events *e = &vcpu->events;
	u32 starts = LAPIC_EVENT_INIT | LAPIC_EVENT_SIPI;

	if (vcpu->has_lapic && __atomic_load_n(&vcpu->lapic.events, __ATOMIC_ACQUIRE) & starts)
		return true;
	if (vcpu->mp_state == KVM_MP_STATE_UNINITIALIZED ||
	    vcpu->mp_state == KVM_MP_STATE_INIT_RECEIVED)
		return false;
	if (vcpu->pv_unhalted || vcpu->cpu->port.event.kind != EVENT_NONE || e->irq_injected ||
	    e->nmi_injected)
		return true;
	if (__atomic_load_n(&vcpu->nmis, __ATOMIC_ACQUIRE) && !vcpu->cpu->nmi_masked)
		return true;
	return events_irq_allowed(vcpu) && irq_waits(vcpu);
}

bool events_unaccepted(const struct vcpu *vcpu)
{
	u32 events = LAPIC_EVENT_NMIS | LAPIC_EVENT_UNHALT;

	return vcpu->has_lapic && __atomic_load_n(&vcpu->lapic.events, __ATOMIC_ACQUIRE) & events;
}

/* INIT and start-up IPIs (SDM 3A 8.4; KVM: kvm_apic_accept_events). */
static void start_up(struct vcpu *vcpu, u8 vector)
{
	struct segment *cs = &vcpu->cpu->seg[CS];

	vcpu->cpu->rip = 0;
	cs->sel = vector << 8;
	cs->base = (u64)vector << 12;
	vcpu->mp_state = KVM_MP_STATE_RUNNABLE;
}

void events_accept(struct vcpu *vcpu)
{
	u32 events;

	if (!vcpu->has_lapic)
		return;
	accept_nmis(vcpu);
	events = lapic_take_events(&vcpu->lapic, LAPIC_EVENT_INIT | LAPIC_EVENT_UNHALT);
	if (events & LAPIC_EVENT_UNHALT)
		vcpu->pv_unhalted = true;
	if (events & LAPIC_EVENT_INIT) {
		bool boot = vcpu->lapic.base & APIC_BASE_BSP;

		vcpu_reset(vcpu, true);
		vcpu->mp_state = boot ? KVM_MP_STATE_RUNNABLE : KVM_MP_STATE_INIT_RECEIVED;
	}
	/* Without an INIT before it, it is lost. */
	if (lapic_take_events(&vcpu->lapic, LAPIC_EVENT_SIPI) &&
	    vcpu->mp_state == KVM_MP_STATE_INIT_RECEIVED)
		start_up(vcpu, vcpu->lapic.sipi_vector);
}

static bool guest_exception(const struct cpu *cpu)
{
	return cpu->port.event.kind == EVENT_EXCEPTION && !cpu_debug_exit_waits(cpu);
}

/* KVM: without KVM_CAP_EXCEPTION_PAYLOAD the program may lose a payload, so it is applied before it
 * looks. */
void events_apply_payload(struct vcpu *vcpu)
{
	struct cpu *cpu = vcpu->cpu;
	struct cpu_event *e = &cpu->port.event;

	if (vcpu->vm->set.exception_payload || !guest_exception(cpu) || !e->has_payload)
		return;
	if (e->vector == VEC_PF)
		cpu->cr2 = e->payload;
	else if (e->vector == VEC_DB)
		cpu->dr6 = (cpu->dr6 & ~0xfull) | e->payload;
	e->has_payload = false;
	e->payload = 0;
}

bool events_exception_pending(const struct vcpu *vcpu)
{
	const struct cpu_event *e = &vcpu->cpu->port.event;

	return guest_exception(vcpu->cpu) && (vcpu->events.exception_pending || !e->injected);
}

void vcpu_get_events(struct vcpu *vcpu, struct kvm_vcpu_events *out)
{
	const struct cpu *cpu = vcpu->cpu;
	const struct cpu_event *e = &cpu->port.event;
	const struct vm_settings *set = &vcpu->vm->set;
	bool exception = guest_exception(cpu);

	events_apply_payload(vcpu);
	accept_nmis(vcpu);
	memset(out, 0, sizeof(*out));
	if (exception) {
		out->exception.pending = set->exception_payload && events_exception_pending(vcpu);
		out->exception.injected = !out->exception.pending;
		out->exception.nr = e->vector;
		out->exception.has_error_code = e->has_error;
		out->exception.error_code = e->error;
		out->exception_has_payload = e->has_payload;
		out->exception_payload = e->payload;
	}
	out->interrupt.injected = e->kind == EVENT_INTR || vcpu->events.irq_injected;
	out->interrupt.nr = e->kind == EVENT_INTR ? e->vector : vcpu->events.irq_vector;
	out->interrupt.shadow = (cpu->shadow & SHADOW_STI ? KVM_X86_SHADOW_INT_STI : 0) |
				(cpu->shadow & SHADOW_SS ? KVM_X86_SHADOW_INT_MOV_SS : 0);
	out->nmi.injected = e->kind == EVENT_NMI || vcpu->events.nmi_injected;
	out->nmi.pending = pending_nmis(vcpu);
	out->nmi.masked = cpu->nmi_masked;
	out->flags = KVM_VCPUEVENT_VALID_NMI_PENDING | KVM_VCPUEVENT_VALID_SHADOW |
		     KVM_VCPUEVENT_VALID_SMM;
	if (vcpu->has_lapic)
		out->smi.latched_init = !!(vcpu->lapic.events & LAPIC_EVENT_INIT);
	if (set->exception_payload)
		out->flags |= KVM_VCPUEVENT_VALID_PAYLOAD;
	if (set->triple_fault_event) {
		out->triple_fault.pending = vcpu->events.triple_fault;
		out->flags |= KVM_VCPUEVENT_VALID_TRIPLE_FAULT;
	}
}

#define EVENT_FLAGS                                                                           \
	(KVM_VCPUEVENT_VALID_NMI_PENDING | KVM_VCPUEVENT_VALID_SIPI_VECTOR |                  \
	 KVM_VCPUEVENT_VALID_SHADOW | KVM_VCPUEVENT_VALID_SMM | KVM_VCPUEVENT_VALID_PAYLOAD | \
	 KVM_VCPUEVENT_VALID_TRIPLE_FAULT)

/* What KVM refuses; `in` is a private copy and loses what its flags do not vouch for. */
static bool events_sane(const struct vcpu *vcpu, struct kvm_vcpu_events *in)
{
	const struct vm_settings *set = &vcpu->vm->set;

	if (in->flags & ~(u32)EVENT_FLAGS)
		return false;
	if (in->flags & KVM_VCPUEVENT_VALID_PAYLOAD) {
		if (!set->exception_payload)
			return false;
		if (in->exception.pending)
			in->exception.injected = 0;
		else
			in->exception_has_payload = 0;
	} else {
		in->exception.pending = 0;
		in->exception_has_payload = 0;
	}
	if ((in->exception.injected || in->exception.pending) &&
	    (in->exception.nr > 31 || in->exception.nr == VEC_NMI))
		return false;
	if (in->flags & KVM_VCPUEVENT_VALID_SMM &&
	    (in->smi.smm || in->smi.pending || in->smi.smm_inside_nmi)) /* there is no SMM */
		return false;
	return !(in->flags & KVM_VCPUEVENT_VALID_TRIPLE_FAULT) || set->triple_fault_event;
}

static void set_exception(struct vcpu *vcpu, const struct kvm_vcpu_events *in)
{
	bool none = !in->exception.injected && !in->exception.pending, soft;

	vcpu->events.exception_pending = in->exception.pending;
	if (none && cpu_debug_exit_waits(vcpu->cpu)) /* the program has not seen it */
		return;
	vcpu->cpu->port.event = (struct cpu_event){ 0 };
	if (none)
		return;
	/* KVM: what INT3 and INTO raise is returned so, with RIP at the instruction. */
	soft = in->exception.nr == VEC_BP || in->exception.nr == VEC_OF;
	vcpu->cpu->port.event = (struct cpu_event){
		.kind = soft ? EVENT_SOFT_EXC : EVENT_EXCEPTION,
		.vector = in->exception.nr,
		.insn_len = soft,
		.has_error = in->exception.has_error_code,
		.error = in->exception.error_code,
		.has_payload = in->exception_has_payload,
		.payload = in->exception_payload,
		.injected = true,
	};
}

static void set_latched(struct vcpu *vcpu, const struct kvm_vcpu_events *in)
{
	if (in->flags & KVM_VCPUEVENT_VALID_SIPI_VECTOR)
		vcpu->lapic.sipi_vector = in->sipi_vector;
	if (!(in->flags & KVM_VCPUEVENT_VALID_SMM))
		return;
	if (in->smi.latched_init)
		lapic_post(&vcpu->lapic, LAPIC_EVENT_INIT);
	else
		lapic_take_events(&vcpu->lapic, LAPIC_EVENT_INIT);
}

/* KVM: in place of all that wait, in the local APIC too. */
static void set_pending_nmis(struct vcpu *vcpu, u32 n)
{
	if (vcpu->has_lapic)
		lapic_take_nmis(&vcpu->lapic);
	__atomic_store_n(&vcpu->nmis, n > 2 ? 2 : n, __ATOMIC_RELEASE);
}

int vcpu_set_events(struct vcpu *vcpu, const struct kvm_vcpu_events *user)
{
	struct kvm_vcpu_events in = *user;
	struct cpu *cpu = vcpu->cpu;

	if (!events_sane(vcpu, &in))
		return -EINVAL;
	set_exception(vcpu, &in);
	vcpu->events.irq_injected = in.interrupt.injected;
	vcpu->events.irq_vector = in.interrupt.nr;
	if (in.flags & KVM_VCPUEVENT_VALID_SHADOW)
		cpu->shadow = (in.interrupt.shadow & KVM_X86_SHADOW_INT_STI ? SHADOW_STI : 0) |
			      (in.interrupt.shadow & KVM_X86_SHADOW_INT_MOV_SS ? SHADOW_SS : 0);
	vcpu->events.nmi_injected = in.nmi.injected;
	if (in.flags & KVM_VCPUEVENT_VALID_NMI_PENDING)
		set_pending_nmis(vcpu, in.nmi.pending);
	cpu->nmi_masked = in.nmi.masked;
	if (vcpu->has_lapic)
		set_latched(vcpu, &in);
	if (in.flags & KVM_VCPUEVENT_VALID_TRIPLE_FAULT)
		vcpu->events.triple_fault = in.triple_fault.pending;
	return 0;
}

int vcpu_interrupt(struct vcpu *vcpu, u32 vector)
{
	if (vector > 255)
		return -EINVAL;
	if (!vm_has_lapic(vcpu->vm)) {
		vcpu->events.irq_injected = true;
		vcpu->events.irq_vector = vector;
		return 0;
	}
	if (vcpu->vm->irqchip_kernel)
		return -ENXIO;
	if (vcpu->events.extint >= 0)
		return -EEXIST;
	vcpu->events.extint = vector;
	return 0;
}

int vcpu_get_mp_state(struct vcpu *vcpu, struct kvm_mp_state *state)
{
	events_accept(vcpu);
	state->mp_state = vcpu->mp_state == KVM_MP_STATE_HALTED && vcpu->pv_unhalted
				  ? KVM_MP_STATE_RUNNABLE
				  : vcpu->mp_state;
	return 0;
}

int vcpu_set_mp_state(struct vcpu *vcpu, const struct kvm_mp_state *state)
{
	switch (state->mp_state) {
	case KVM_MP_STATE_UNINITIALIZED:
	case KVM_MP_STATE_HALTED:
	case KVM_MP_STATE_AP_RESET_HOLD:
	case KVM_MP_STATE_INIT_RECEIVED:
	case KVM_MP_STATE_SIPI_RECEIVED:
		if (!vcpu->has_lapic)
			return -EINVAL;
		break;
	case KVM_MP_STATE_RUNNABLE:
		break;
	default:
		return -EINVAL;
	}
	vcpu->mp_state = state->mp_state;
	if (state->mp_state == KVM_MP_STATE_SIPI_RECEIVED) {
		vcpu->mp_state = KVM_MP_STATE_INIT_RECEIVED;
		lapic_post(&vcpu->lapic, LAPIC_EVENT_SIPI);
	}
	return 0;
}
