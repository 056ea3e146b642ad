// SPDX-License-Identifier: MIT
/*
 * General, segment, control and debug registers as the API shows them (KVM: arch/x86/kvm/x86.c,
 * __set_sregs), by ioctls and in struct kvm_run. Control registers that no processor can have are
 * refused. As in KVM, a program that gives the boot processor the registers of a reset makes it
 * runnable. vCPU lock held, inside a section.
 */
#include <errno.h>
#include <string.h>

#include "base/guarded.h"
#include "cpu/control.h"
#include "cpu/event.h"
#include "vm/events.h"
#include "vm/irq/apic.h"
#include "vm/refused_state.h"
#include "vm/vm.h"

/* struct kvm_regs begins with the registers in this order. */
static const u8 gpr_order[16] = { RAX, RBX, RCX, RDX, RSI, RDI, RSP, RBP,
				  R8,  R9,  R10, R11, R12, R13, R14, R15 };

void vcpu_get_regs(struct vcpu *vcpu, struct kvm_regs *regs)
{
	const struct cpu *cpu = vcpu->cpu;
	u64 *out = (u64 *)regs;

	_Static_assert(offsetof(struct kvm_regs, rip) == 16 * sizeof(u64), "registers first");
	for (u32 i = 0; i < 16; i++)
		out[i] = cpu->regs[gpr_order[i]];
	regs->rip = cpu->rip;
	regs->rflags = cpu->rflags;
}

void vcpu_set_regs(struct vcpu *vcpu, const struct kvm_regs *regs)
{
	struct cpu *cpu = vcpu->cpu;
	const u64 *in = (const u64 *)regs;

	for (u32 i = 0; i < 16; i++)
		cpu->regs[gpr_order[i]] = in[i];
	/* KVM: new registers drop an exception that has not begun. A debugger's step stays where it
	 * has ended. */
	if (events_exception_pending(vcpu) ||
	    (cpu_debug_exit_waits(cpu) && cpu->rip != regs->rip)) {
		cpu->port.event = (struct cpu_event){ 0 };
		vcpu->events.exception_pending = false;
	}
	cpu->rip = regs->rip;
	cpu->rflags = regs->rflags | FL_FIX1;
	cpu_state_changed(cpu);
}

static void segment_out(const struct segment *seg, struct kvm_segment *out)
{
	u32 attr = seg->attr;
	bool unusable = attr & SEG_UNUSABLE;

	*out = (struct kvm_segment){
		.base = seg->base,
		.limit = seg->limit,
		.selector = seg->sel,
		.type = attr & SEG_TYPE,
		.s = !!(attr & SEG_S),
		.dpl = (attr & SEG_DPL) >> SEG_DPL_SHIFT,
		.present = !!(attr & SEG_P) && !unusable,
		.avl = !!(attr & SEG_AVL),
		.l = !!(attr & SEG_L),
		.db = !!(attr & SEG_DB),
		.g = !!(attr & SEG_G),
		.unusable = unusable,
	};
}

static void segment_in(struct segment *seg, const struct kvm_segment *in)
{
	bool unusable = in->unusable || !in->present;

	seg->base = in->base;
	seg->limit = in->limit;
	seg->sel = in->selector;
	seg->attr = (in->type & SEG_TYPE) | (in->s & 1 ? SEG_S : 0) |
		    (in->dpl & 3u) << SEG_DPL_SHIFT | (in->present & 1 ? SEG_P : 0) |
		    (in->avl & 1 ? SEG_AVL : 0) | (in->l & 1 ? SEG_L : 0) |
		    (in->db & 1 ? SEG_DB : 0) | (in->g & 1 ? SEG_G : 0) |
		    (unusable ? SEG_UNUSABLE : 0);
}

/* struct kvm_sregs and struct kvm_sregs2 begin alike. */
_Static_assert(offsetof(struct kvm_sregs, apic_base) == offsetof(struct kvm_sregs2, apic_base),
	       "sregs2 extends sregs");

static void common_out(struct vcpu *vcpu, struct kvm_sregs *out)
{
	const struct cpu *cpu = vcpu->cpu;

	events_apply_payload(vcpu);
	segment_out(&cpu->seg[CS], &out->cs);
	segment_out(&cpu->seg[DS], &out->ds);
	segment_out(&cpu->seg[ES], &out->es);
	segment_out(&cpu->seg[FS], &out->fs);
	segment_out(&cpu->seg[GS], &out->gs);
	segment_out(&cpu->seg[SS], &out->ss);
	segment_out(&cpu->tr, &out->tr);
	segment_out(&cpu->ldtr, &out->ldt);
	out->gdt.base = cpu->gdtr.base;
	out->gdt.limit = cpu->gdtr.limit;
	out->idt.base = cpu->idtr.base;
	out->idt.limit = cpu->idtr.limit;
	out->cr0 = cpu->cr0;
	out->cr2 = cpu->cr2;
	out->cr3 = cpu->cr3;
	out->cr4 = cpu->cr4;
	out->cr8 = apic_get_cr8(vcpu);
	out->efer = cpu->efer;
	out->apic_base = vcpu->lapic.base;
}

void vcpu_get_sregs(struct vcpu *vcpu, struct kvm_sregs *sregs)
{
	const struct cpu_event *e = &vcpu->cpu->port.event;

	memset(sregs, 0, sizeof(*sregs));
	common_out(vcpu, sregs);
	if (e->kind == EVENT_INTR)
		sregs->interrupt_bitmap[e->vector / 64] |= BIT(e->vector % 64);
	else if (vcpu->events.irq_injected)
		sregs->interrupt_bitmap[vcpu->events.irq_vector / 64] |=
			BIT(vcpu->events.irq_vector % 64);
}

static bool pae_paging(u64 cr0, u64 cr4, u64 efer)
{
	return cr0 & CR0_PG && cr4 & CR4_PAE && !(efer & EFER_LMA);
}

void vcpu_get_sregs2(struct vcpu *vcpu, struct kvm_sregs2 *sregs)
{
	const struct cpu *cpu = vcpu->cpu;

	memset(sregs, 0, sizeof(*sregs));
	common_out(vcpu, (struct kvm_sregs *)sregs);
	if (!pae_paging(cpu->cr0, cpu->cr4, cpu->efer))
		return;
	memcpy(sregs->pdptrs, cpu->pdptr, sizeof(sregs->pdptrs));
	sregs->flags = KVM_SREGS2_FLAGS_PDPTRS_VALID;
}

/* A state that a processor can be in (KVM: kvm_is_valid_sregs). */
static bool sregs_valid(const struct cpu *cpu, const struct kvm_sregs *s)
{
	bool lma = s->efer & EFER_LMA;

	if (s->efer & EFER_LME && s->cr0 & CR0_PG) {
		if (!(s->cr4 & CR4_PAE) || !lma)
			return false;
	} else if (lma || s->cs.l) {
		return false;
	}
	return cpu_cr_valid(cpu, s->cr0, s->cr3, s->cr4, s->efer);
}

static void load_pdptrs(struct cpu *cpu)
{
	gpa_t table = cpu->cr3 & 0xffffffe0;
	const struct mem_slot *slot = mem_find(cpu->port.mem, table);
	u64 pdptr[4];

	if (slot && guarded_read(pdptr, mem_hva(slot, table), sizeof(pdptr)))
		memcpy(cpu->pdptr, pdptr, sizeof(pdptr));
}

static void segments_in(struct cpu *cpu, const struct kvm_sregs *in)
{
	segment_in(&cpu->seg[CS], &in->cs);
	segment_in(&cpu->seg[DS], &in->ds);
	segment_in(&cpu->seg[ES], &in->es);
	segment_in(&cpu->seg[FS], &in->fs);
	segment_in(&cpu->seg[GS], &in->gs);
	segment_in(&cpu->seg[SS], &in->ss);
	segment_in(&cpu->tr, &in->tr);
	segment_in(&cpu->ldtr, &in->ldt);
	/* The CPL is SS.DPL (SDM 3C 24.4.1), but 0 in real mode. */
	cpu->cpl = in->cr0 & CR0_PE ? in->ss.dpl & 3 : 0;
	cpu->gdtr = (struct descriptor_table){ in->gdt.base, in->gdt.limit };
	cpu->idtr = (struct descriptor_table){ in->idt.base, in->idt.limit };
}

static int common_in(struct vcpu *vcpu, const struct kvm_sregs *in, const u64 *pdptrs)
{
	struct cpu *cpu = vcpu->cpu;

	if (!sregs_valid(cpu, in))
		return vcpu_refuse(vcpu, "CR4 (or CR0, CR3, EFER)", in->cr4);
	if (!apic_set_base(vcpu, in->apic_base, true))
		return -EINVAL;
	segments_in(cpu, in);
	cpu->cr0 = in->cr0 | CR0_ET;
	cpu->cr2 = in->cr2;
	cpu->cr3 = in->cr3;
	cpu->cr4 = in->cr4;
	cpu->efer = in->efer;
	apic_set_cr8(vcpu, in->cr8 & 0xf);
	if (pdptrs)
		memcpy(cpu->pdptr, pdptrs, sizeof(cpu->pdptr));
	else if (pae_paging(cpu->cr0, cpu->cr4, cpu->efer))
		load_pdptrs(cpu);
	cpu_state_changed(cpu);
	/* KVM: older programs do not make the boot processor runnable when they reset it. */
	if (vcpu->id == vcpu->vm->set.bsp_id && cpu->rip == 0xfff0 && in->cs.selector == 0xf000 &&
	    in->cs.base == 0xffff0000 && !(in->cr0 & CR0_PE))
		vcpu->mp_state = KVM_MP_STATE_RUNNABLE;
	return 0;
}

int vcpu_set_sregs(struct vcpu *vcpu, const struct kvm_sregs *sregs)
{
	int r = common_in(vcpu, sregs, NULL);

	for (u32 i = 0; !r && i < ARRAY_SIZE(sregs->interrupt_bitmap); i++) {
		if (!sregs->interrupt_bitmap[i])
			continue;
		vcpu->events.irq_injected = true;
		vcpu->events.irq_vector = i * 64 + __builtin_ctzll(sregs->interrupt_bitmap[i]);
		break;
	}
	return r;
}

int vcpu_set_sregs2(struct vcpu *vcpu, const struct kvm_sregs2 *sregs)
{
	bool has_pdptrs = sregs->flags & KVM_SREGS2_FLAGS_PDPTRS_VALID;

	if (sregs->flags & ~(u64)KVM_SREGS2_FLAGS_PDPTRS_VALID)
		return -EINVAL;
	if (has_pdptrs && !pae_paging(sregs->cr0, sregs->cr4, sregs->efer))
		return -EINVAL;
	return common_in(vcpu, (const struct kvm_sregs *)sregs,
			 has_pdptrs ? (const u64 *)sregs->pdptrs : NULL);
}

void vcpu_get_debugregs(struct vcpu *vcpu, struct kvm_debugregs *regs)
{
	const struct cpu *cpu = vcpu->cpu;

	events_apply_payload(vcpu);
	memset(regs, 0, sizeof(*regs));
	memcpy(regs->db, cpu->dr, sizeof(regs->db));
	regs->dr6 = cpu->dr6;
	regs->dr7 = cpu->dr7;
}

int vcpu_set_debugregs(struct vcpu *vcpu, const struct kvm_debugregs *regs)
{
	struct cpu *cpu = vcpu->cpu;

	if (regs->flags || regs->dr6 >> 32 || regs->dr7 >> 32)
		return -EINVAL;
	memcpy(cpu->dr, regs->db, sizeof(cpu->dr));
	cpu->dr6 = regs->dr6;
	cpu->dr7 = regs->dr7;
	cpu_state_changed(cpu);
	return 0;
}

/* --- in struct kvm_run --- */

#define SYNC_FIELDS (KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS | KVM_SYNC_X86_EVENTS)

/* Copied before they are looked at, since the program may go on writing. */
int vcpu_sync_in(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;
	u64 valid = READ_ONCE(run->kvm_valid_regs), dirty = READ_ONCE(run->kvm_dirty_regs);

	if ((valid | dirty) & ~(u64)SYNC_FIELDS)
		return -EINVAL;
	if (dirty & KVM_SYNC_X86_REGS) {
		struct kvm_regs regs = run->s.regs.regs;

		vcpu_set_regs(vcpu, &regs);
		run->kvm_dirty_regs &= ~(u64)KVM_SYNC_X86_REGS;
	}
	if (dirty & KVM_SYNC_X86_SREGS) {
		struct kvm_sregs sregs = run->s.regs.sregs;

		if (vcpu_set_sregs(vcpu, &sregs))
			return -EINVAL;
		run->kvm_dirty_regs &= ~(u64)KVM_SYNC_X86_SREGS;
	}
	if (dirty & KVM_SYNC_X86_EVENTS) {
		struct kvm_vcpu_events events = run->s.regs.events;

		if (vcpu_set_events(vcpu, &events))
			return -EINVAL;
		run->kvm_dirty_regs &= ~(u64)KVM_SYNC_X86_EVENTS;
	}
	return 0;
}

void vcpu_sync_out(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;
	u64 valid = READ_ONCE(run->kvm_valid_regs);

	if (valid & KVM_SYNC_X86_REGS)
		vcpu_get_regs(vcpu, &run->s.regs.regs);
	if (valid & KVM_SYNC_X86_SREGS)
		vcpu_get_sregs(vcpu, &run->s.regs.sregs);
	if (valid & KVM_SYNC_X86_EVENTS)
		vcpu_get_events(vcpu, &run->s.regs.events);
	run->if_flag = !!(vcpu->cpu->rflags & FL_IF);
	run->cr8 = apic_get_cr8(vcpu);
	run->apic_base = vcpu->lapic.base;
	run->ready_for_interrupt_injection = vcpu->vm->irqchip_kernel || events_ready_for_irq(vcpu);
}
