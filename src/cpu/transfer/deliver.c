// SPDX-License-Identifier: MIT
/*
 * Delivery of events (SDM 3A 6), cpu_deliver() and cpu_int() of cpu/event.h: what guest debugging
 * takes for itself, CR2 and DR6, the modes, and how a second exception on the way combines with the
 * first; and the checks of gates that deliver_long.c and deliver_protected.c share. A #DB also
 * clears LBR and BTF of DEBUGCTL, and so stops the recording of branches (cpu->branches). vCPU
 * thread; general registers only.
 */
#include "cpu/transfer/deliver.h"

#include "cpu/control.h"
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "x86/pmu_regs.h"

#define DR6_B0_3 0xfull

/* SDM 3A table 6-4. */
enum class { BENIGN, CONTRIBUTORY, PAGE_FAULT, DOUBLE_FAULT };

static enum class class_of(const struct cpu_event *event)
{
	static const u8 classes[32] = {
		[VEC_DE] = CONTRIBUTORY, [VEC_TS] = CONTRIBUTORY, [VEC_NP] = CONTRIBUTORY,
		[VEC_SS] = CONTRIBUTORY, [VEC_GP] = CONTRIBUTORY, [VEC_PF] = PAGE_FAULT,
		[VEC_DF] = DOUBLE_FAULT,
	};

	/* Interrupts and INT n are benign whatever their vector. */
	if (event->kind != EVENT_EXCEPTION || event->vector >= ARRAY_SIZE(classes))
		return BENIGN;
	return classes[event->vector];
}

enum combination { SERIAL, DOUBLE, TRIPLE };

/* SDM 3A table 6-5: rows are the first event, columns what was met while delivering it. */
static const u8 combinations[4][4] = {
	/*			BENIGN	CONTRIB	PAGE	DOUBLE */
	[BENIGN] = { SERIAL, SERIAL, SERIAL, SERIAL },
	[CONTRIBUTORY] = { SERIAL, DOUBLE, SERIAL, SERIAL },
	[PAGE_FAULT] = { SERIAL, DOUBLE, DOUBLE, SERIAL },
	[DOUBLE_FAULT] = { SERIAL, TRIPLE, TRIPLE, TRIPLE },
};

static enum guest_fault debug_exit(struct cpu *cpu, enum vector vector, u64 dr6_bits)
{
	u64 base = cpu_code64(cpu) ? 0 : cpu->seg[CS].base;

	cpu->port.exit.reason = EXIT_DEBUG;
	cpu->port.exit.insn_len = 0;
	cpu->port.exit.debug.exception = vector;
	cpu->port.exit.debug.pc = base + cpu->rip;
	cpu->port.exit.debug.dr6 = DR6_FIXED1 | dr6_bits;
	cpu->port.exit.debug.dr7 = cpu_dr7(cpu);
	return FAULT_EXIT;
}

/* SDM 3A 6.15, #PF: the address of the last one is in CR2, also if that becomes a double fault or
 * ends in a shutdown. */
static void set_cr2(struct cpu *cpu, const struct cpu_event *event)
{
	if (event->kind == EVENT_EXCEPTION && event->vector == VEC_PF && event->has_payload)
		cpu->cr2 = event->payload;
}

/* SDM 3B 17.2.3: a new #DB replaces B0 to B3 and adds the rest. KVM does the same. */
static void apply_payload(struct cpu *cpu, const struct cpu_event *event)
{
	set_cr2(cpu, event);
	if (event->kind != EVENT_EXCEPTION || event->vector != VEC_DB)
		return;
	if (event->has_payload)
		cpu->dr6 = (cpu->dr6 & ~DR6_B0_3) | DR6_FIXED1 | event->payload;
	cpu->dr7 &= ~DR7_GD;
	if (cpu->debugctl & DEBUGCTL_LBR)
		cpu->branches.kinds[RETIRE_OS] = cpu->branches.kinds[RETIRE_USR] = 0;
	cpu->debugctl &= ~(DEBUGCTL_LBR | DEBUGCTL_BTF);
}

static enum guest_fault deliver_in_mode(struct cpu *cpu, const struct cpu_event *event)
{
	if (cpu_long_mode(cpu))
		return deliver_long(cpu, event);
	return cpu->cr0 & CR0_PE ? deliver_protected(cpu, event) : deliver_real(cpu, event);
}

static enum guest_fault deliver_event(struct cpu *cpu, const struct cpu_event *event)
{
	enum guest_fault fault;

	apply_payload(cpu, event);
	if (event->kind == EVENT_NMI)
		cpu->nmi_masked = true;
	fault = deliver_in_mode(cpu, event);
	if (!fault)
		cpu->shadow = 0;
	return fault;
}

static enum guest_fault triple_fault(struct cpu *cpu)
{
	cpu->port.event.kind = EVENT_NONE;
	cpu->port.exit.reason = EXIT_TRIPLE_FAULT;
	cpu->port.exit.insn_len = 0;
	return FAULT_EXIT;
}

/*
 * The T flag of a TSS that an event has switched to: #DB before the task's first instruction. Once:
 * the trap of a task that handles this #DB waits for the end of its first instruction, so that
 * tasks cannot trap into each other for ever without executing any.
 */
static void raise_task_trap(struct cpu *cpu, bool *raised)
{
	if (*raised || !(cpu->pending_db & DR6_BT))
		return;
	*raised = true;
	cpu->pending_db = 0;
	cpu_raise_db(cpu, DR6_BT);
}

/*
 * Events whose delivery raises the next one, without a double fault between them, may follow each
 * other for ever: #AC whose handler's frame is misaligned, at privilege 3 or in a task. After more
 * of them than any guest needs the owner gets its turn; the event stays, and is delivered when the
 * processor runs again.
 */
#define MOST_DELIVERIES 16

static enum guest_fault pause_delivery(struct cpu *cpu)
{
	cpu->port.exit.reason = EXIT_BUDGET;
	cpu->port.exit.insn_len = 0;
	return FAULT_EXIT;
}

/* With RIP after the instruction, whose length the event has; but where it is if that fails. */
static enum guest_fault deliver_after(struct cpu *cpu, const struct cpu_event *event)
{
	u64 rip = cpu->rip;
	u16 task = cpu->tr.sel;
	enum guest_fault fault;

	cpu->rip = cpu_code64(cpu) ? rip + event->insn_len : (u32)(rip + event->insn_len);
	fault = deliver_event(cpu, event);
	if (fault && cpu->tr.sel == task) /* no other task's RIP */
		cpu->rip = rip;
	return fault;
}

enum guest_fault cpu_deliver(struct cpu *cpu)
{
	bool task_trap = false;

	for (u32 n = 0; cpu->port.event.kind != EVENT_NONE; n++) {
		struct cpu_event first = cpu->port.event;
		enum guest_fault fault;

		if (n == MOST_DELIVERIES)
			return pause_delivery(cpu);
		if (cpu_debug_exit_waits(cpu)) {
			cpu->port.event.kind = EVENT_NONE;
			return debug_exit(cpu, VEC_DB, first.payload);
		}
		fault = deliver_after(cpu, &first);
		if (fault == FAULT_EXIT)
			return fault;
		mmio_completed(cpu);
		if (fault == FAULT_NONE) {
			cpu->port.event.kind = EVENT_NONE;
			/* A new task's RF has no end of an instruction to outlive. */
			cpu_priv(cpu)->begun = 0;
			raise_task_trap(cpu, &task_trap);
			continue;
		}
		set_cr2(cpu, &cpu->port.event);
		switch (combinations[class_of(&first)][class_of(&cpu->port.event)]) {
		case DOUBLE:
			cpu_raise_error(cpu, VEC_DF, 0);
			break;
		case TRIPLE:
			return triple_fault(cpu);
		default:
			break; /* the second one is delivered in place of the first */
		}
	}
	return FAULT_NONE;
}

/* INT1 after a MOV SS that met a data breakpoint: both are told by one #DB. */
static void join_pending_db(struct cpu *cpu, struct cpu_event *event)
{
	if (event->kind != EVENT_EXCEPTION || event->vector != VEC_DB || !cpu->pending_db)
		return;
	event->has_payload = true;
	event->payload = cpu->pending_db;
	cpu->pending_db = 0;
}

enum guest_fault cpu_int(struct cpu *cpu, enum event_kind kind, u8 vector, u8 insn_len)
{
	struct cpu_event event = { .kind = kind, .vector = vector, .insn_len = insn_len };
	enum guest_fault fault;

	if (kind == EVENT_SOFT_EXC && vector == VEC_BP && cpu->port.debug.software_bp)
		return debug_exit(cpu, VEC_BP, 0);
	join_pending_db(cpu, &event);
	if (kind == EVENT_EXCEPTION && cpu_debugger_claims(cpu)) /* INT1 */
		return debug_exit(cpu, VEC_DB, event.payload);
	/* Virtual-8086 mode: INT n is sensitive to IOPL, INT3 and INTO are not (SDM 3B 20.2.7). */
	if (kind == EVENT_SOFT_INT && (cpu->rflags & FL_VM) && (cpu->rflags & FL_IOPL) != FL_IOPL)
		return cpu_raise_error(cpu, VEC_GP, 0);
	fault = deliver_after(cpu, &event);
	if (!fault)
		cpu_priv(cpu)->begun |= BEGUN_TF; /* cleared: the handler is not stepped into */
	return fault;
}

u32 deliver_ext(const struct cpu_event *event)
{
	return event->kind == EVENT_SOFT_INT || event->kind == EVENT_SOFT_EXC ? 0 : ERROR_EXT;
}

enum guest_fault deliver_gate_fault(struct cpu *cpu, const struct cpu_event *event,
				    enum vector vector)
{
	return cpu_raise_error(cpu, vector, event->vector * 8u | ERROR_IDT | deliver_ext(event));
}

enum guest_fault deliver_check_gate(struct cpu *cpu, const struct cpu_event *event, u32 attr,
				    u32 types)
{
	bool software = !deliver_ext(event);

	if ((attr & SEG_S) || !(types >> (attr & SEG_TYPE) & 1))
		return deliver_gate_fault(cpu, event, VEC_GP);
	if (software && (attr & SEG_DPL) >> SEG_DPL_SHIFT < cpu->cpl)
		return deliver_gate_fault(cpu, event, VEC_GP);
	if (!(attr & SEG_P))
		return deliver_gate_fault(cpu, event, VEC_NP);
	return FAULT_NONE;
}

enum guest_fault deliver_read_code(struct cpu *cpu, const struct cpu_event *event, u16 sel,
				   struct descriptor *cs, u8 *cpl)
{
	u32 ext = deliver_ext(event);
	enum guest_fault fault;

	if (selector_null(sel))
		return cpu_raise_error(cpu, VEC_GP, ext);
	fault = descriptor_read(cpu, sel, VEC_GP, ext, cs);
	if (fault)
		return fault;
	if (!descriptor_is_code(cs) || descriptor_dpl(cs) > cpu->cpl)
		return descriptor_fault(cpu, VEC_GP, sel, ext);
	if (!(cs->attr & SEG_P))
		return descriptor_fault(cpu, VEC_NP, sel, ext);
	*cpl = descriptor_is_conforming(cs) ? cpu->cpl : descriptor_dpl(cs);
	return FAULT_NONE;
}

/* SDM 3B 17.3.1.1: faults push RF set, so that returning does not hit the same breakpoint again. */
u64 deliver_flags_image(const struct cpu *cpu, const struct cpu_event *event)
{
	const u32 not_faults = 1u << VEC_DB | 1u << VEC_NMI | 1u << VEC_BP | 1u << VEC_OF |
			       1u << VEC_DF | 1u << VEC_MC;
	u64 flags = cpu->rflags | FL_FIX1;

	if (event->kind == EVENT_EXCEPTION && !(not_faults >> (event->vector & 31) & 1))
		flags |= FL_RF;
	return flags;
}

void deliver_enter(struct cpu *cpu, const struct descriptor *cs, u8 cpl, u64 rip,
		   bool interrupt_gate)
{
	cpu->seg[CS] = descriptor_segment(cs);
	cpu->seg[CS].sel = (cs->sel & ~SEL_RPL) | cpl;
	cpu->cpl = cpl;
	cpu->rip = rip;
	cpu->rflags &= ~(FL_TF | FL_NT | FL_RF | FL_VM);
	if (interrupt_gate)
		cpu->rflags &= ~FL_IF;
	cpu_update_mode(cpu);
}
