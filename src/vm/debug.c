// SPDX-License-Identifier: MIT
/*
 * Guest debugging from outside: KVM_SET_GUEST_DEBUG and KVM_TRANSLATE (api.rst 4.87, 4.16), and the
 * bytes at RIP for emulation failures and traces. Walks are the processor's, so that they set
 * accessed bits; what they raise is dropped. vCPU lock held, inside a section.
 */
#include <errno.h>
#include <string.h>

#include "base/guarded.h"
#include "cpu/control.h"
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "vm/events.h"
#include "vm/vm.h"

static int inject(struct vcpu *vcpu, u32 control)
{
	bool db = control & KVM_GUESTDBG_INJECT_DB;
	struct cpu *cpu = vcpu->cpu;

	if (cpu->port.event.kind == EVENT_EXCEPTION && !cpu_debug_exit_waits(cpu))
		return -EBUSY;
	events_set_aside(vcpu);
	cpu->port.event = (struct cpu_event){
		.kind = db ? EVENT_EXCEPTION : EVENT_SOFT_EXC,
		.vector = db ? VEC_DB : VEC_BP,
		.insn_len = !db, /* an INT3 of the guest's own */
		.injected = true,
	};
	return 0;
}

int vcpu_set_guest_debug(struct vcpu *vcpu, const struct kvm_guest_debug *dbg)
{
	struct cpu *cpu = vcpu->cpu;
	u32 control = dbg->control;
	int r;

	if (control & (KVM_GUESTDBG_INJECT_DB | KVM_GUESTDBG_INJECT_BP)) {
		r = inject(vcpu, control);
		if (r)
			return r;
	}
	vcpu->guest_debug = control & KVM_GUESTDBG_ENABLE ? control : 0;
	control = vcpu->guest_debug;
	cpu->port.debug = (struct cpu_debug){
		.single_step = control & KVM_GUESTDBG_SINGLESTEP,
		.software_bp = control & KVM_GUESTDBG_USE_SW_BP,
		.hardware_bp = control & KVM_GUESTDBG_USE_HW_BP,
		.block_irq = control & KVM_GUESTDBG_BLOCKIRQ,
		.dr7 = dbg->arch.debugreg[7],
	};
	memcpy(cpu->port.debug.dr, dbg->arch.debugreg, sizeof(cpu->port.debug.dr));
	if (cpu_debug_exit_waits(cpu) && !cpu_debugger_claims(cpu))
		cpu->port.event.kind = EVENT_NONE; /* its debugger has left */
	cpu_state_changed(cpu);
	return 0;
}

/* A walk on behalf of the program: what it raises is not for the guest. */
static bool translate(struct cpu *cpu, gva_t gva, u32 access, struct translation *t)
{
	struct cpu_event event = cpu->port.event;
	struct cpu_exit exit = cpu->port.exit;
	bool ok = mmu_translate(cpu, gva, access, t) == FAULT_NONE;

	cpu->port.event = event;
	cpu->port.exit = exit;
	return ok;
}

void vcpu_translate(struct vcpu *vcpu, struct kvm_translation *tr)
{
	struct translation t;
	bool ok = translate(vcpu->cpu, tr->linear_address, ACCESS_READ | ACCESS_SYSTEM, &t);

	tr->physical_address = ok ? t.gpa : ~0ull;
	tr->valid = ok;
	tr->writeable = 1; /* KVM: not looked at */
	tr->usermode = 0;
}

u32 vcpu_peek_code(struct vcpu *vcpu, u8 *buf, u32 n)
{
	struct cpu *cpu = vcpu->cpu;
	gva_t gva = cpu_code64(cpu) ? cpu->rip : (u32)(cpu->seg[CS].base + cpu->rip);
	u32 got = 0;

	while (got < n) {
		u32 room = PAGE_SIZE - (gva & ~PAGE_MASK), part = n - got < room ? n - got : room;
		struct translation t;

		/* As the guest fetches it: the hypervisor's own reads are subject to SMAP. */
		if (!translate(cpu, gva, ACCESS_FETCH, &t) || !t.host ||
		    !guarded_read(buf + got, t.host, part))
			break;
		got += part;
		gva = cpu_wrap(cpu, gva + part);
	}
	return got;
}
