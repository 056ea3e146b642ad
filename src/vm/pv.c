// SPDX-License-Identifier: MIT
/*
 * Hypercalls and the KVM features in CPUID: see vm/pv.h. A guest that executes the other vendor's
 * instruction has it replaced by its own in memory, a quirk of KVM's. vCPU thread, after the engine
 * has returned, inside a section.
 */
#include "vm/pv.h"

#include <errno.h>
#include <linux/kvm_para.h>
#include <sched.h>
#include <string.h>

#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "vm/irq/apic.h"
#include "vm/memory/guest_memory.h"
#include "vm/vm.h"

#define HYPERCALL_LEN 3 /* of VMCALL and VMMCALL, without prefixes */

/* The arguments, cut to 32 bits outside 64-bit code. */
struct call {
	u64 nr, a0, a1, a2, a3;
	bool wide;
};

static const struct kvm_cpuid_entry2 *find_leaf(const struct vcpu *vcpu, u32 leaf)
{
	for (u32 i = 0; i < vcpu->ncpuid; i++)
		if (vcpu->cpuid[i].function == leaf)
			return &vcpu->cpuid[i];
	return NULL;
}

/* KVM's leaves may be anywhere in the hypervisor range, for instance after Hyper-V's. */
u32 pv_features(const struct vcpu *vcpu)
{
	for (u32 base = KVM_CPUID_SIGNATURE; base < 0x40010000; base += 0x100) {
		const struct kvm_cpuid_entry2 *e = find_leaf(vcpu, base);

		if (!e || memcmp(&e->ebx, KVM_SIGNATURE, 12))
			continue;
		e = find_leaf(vcpu, base | KVM_CPUID_FEATURES);
		return e ? e->eax : 0;
	}
	return 0;
}

bool pv_allowed(const struct vcpu *vcpu, u32 feature)
{
	return !vcpu->enforce_pv_cpuid || (pv_features(vcpu) >> feature & 1);
}

static u64 kick_cpu(struct vcpu *vcpu, const struct call *call)
{
	struct vcpu *target = vm_vcpu_by_id(vcpu->vm, call->a1);

	if (!pv_allowed(vcpu, KVM_FEATURE_PV_UNHALT))
		return -KVM_ENOSYS;
	if (target && target->has_lapic) {
		lapic_post(&target->lapic, LAPIC_EVENT_UNHALT);
		vcpu_kick(target, REQUEST_EVENT);
		schedule_yield(vcpu);
	}
	return 0;
}

/* One bit per APIC ID, from `first` on. */
static u64 send_to_bits(struct vcpu *vcpu, u64 bits, u64 first, const struct lapic_message *message)
{
	u64 count = 0;

	for (; bits; bits &= bits - 1) {
		u64 id = first + __builtin_ctzll(bits);
		struct vcpu *target = id >> 32 ? NULL : vm_vcpu_by_id(vcpu->vm, id);

		if (target)
			count += apic_deliver_to(target, message);
	}
	return count;
}

static u64 send_ipi(struct vcpu *vcpu, const struct call *call)
{
	u32 icr = call->a3;
	struct lapic_message message = {
		.mode = icr >> 8 & 7,
		.vector = icr & 0xff,
		.level = icr & BIT(15),
		.assert = icr & BIT(14),
		.ipi = true,
	};

	if (!pv_allowed(vcpu, KVM_FEATURE_PV_SEND_IPI))
		return -KVM_ENOSYS;
	if (!vcpu->has_lapic)
		return -KVM_EOPNOTSUPP;
	if (icr & (BIT(11) | MASK(19, 18))) /* neither logical destinations nor shorthands */
		return -KVM_EINVAL;
	schedule_yield(vcpu);
	return send_to_bits(vcpu, call->a0, call->a2, &message) +
	       send_to_bits(vcpu, call->a1, call->a2 + (call->wide ? 64 : 32), &message);
}

static u64 yield_to(struct vcpu *vcpu)
{
	if (!pv_allowed(vcpu, KVM_FEATURE_PV_SCHED_YIELD))
		return -KVM_ENOSYS;
	if (vcpu->vm->time.is_virtual)
		schedule_yield(vcpu);
	else
		sched_yield();
	return 0;
}

static u64 clock_pairing(struct vcpu *vcpu, const struct call *call)
{
	struct kvm_clock_pairing pairing = { 0 };
	u64 time, ns = vm_time_date(vcpu->vm, &time);

	if (call->a1 != KVM_CLOCK_PAIRING_WALLCLOCK || !vm_time_stable(vcpu->vm))
		return -KVM_EOPNOTSUPP;
	pairing.sec = ns / 1000000000;
	pairing.nsec = ns % 1000000000;
	pairing.tsc = vcpu_tsc_at(vcpu, time);
	return guest_write(vcpu->cpu, call->a0, &pairing, sizeof(pairing)) ? 0 : -KVM_EFAULT;
}

/* Shared or private, of a confidential guest: the program knows. */
static enum pv_result map_gpa_range(struct vcpu *vcpu, const struct call *call, u64 *ret)
{
	struct kvm_run *run = vcpu->run;
	u64 page = call->a0 >> PAGE_SHIFT;

	if (!(READ_ONCE(vcpu->vm->set.hypercall_exits) & BIT(KVM_HC_MAP_GPA_RANGE)))
		return PV_DONE;
	*ret = -KVM_EINVAL;
	if ((call->a0 & ~PAGE_MASK) || !call->a1 || page + call->a1 <= page)
		return PV_DONE;
	run->exit_reason = KVM_EXIT_HYPERCALL;
	memset(&run->hypercall, 0, sizeof(run->hypercall));
	run->hypercall.nr = call->nr;
	run->hypercall.args[0] = call->a0;
	run->hypercall.args[1] = call->a1;
	run->hypercall.args[2] = call->a2;
	run->hypercall.flags = call->wide ? KVM_EXIT_HYPERCALL_LONG_MODE : 0;
	return PV_USER_EXIT;
}

static struct call call_of(const struct cpu *cpu)
{
	bool wide = cpu_code64(cpu);
	u64 mask = wide ? ~0ull : 0xffffffffull;

	return (struct call){
		.nr = cpu->regs[RAX] & mask,
		.a0 = cpu->regs[RBX] & mask,
		.a1 = cpu->regs[RCX] & mask,
		.a2 = cpu->regs[RDX] & mask,
		.a3 = cpu->regs[RSI] & mask,
		.wide = wide,
	};
}

static void answer(struct cpu *cpu, u64 ret)
{
	cpu->regs[RAX] = cpu_code64(cpu) ? ret : (u32)ret;
}

static enum pv_result execute(struct vcpu *vcpu)
{
	struct call call = call_of(vcpu->cpu);
	enum pv_result result = PV_DONE;
	u64 ret = -KVM_ENOSYS;

	if (vcpu->cpu->cpl) {
		answer(vcpu->cpu, -KVM_EPERM);
		return PV_DONE;
	}
	switch (call.nr) {
	case KVM_HC_VAPIC_POLL_IRQ:
		ret = 0;
		break;
	case KVM_HC_KICK_CPU:
		ret = kick_cpu(vcpu, &call);
		break;
	case KVM_HC_CLOCK_PAIRING:
		ret = clock_pairing(vcpu, &call);
		break;
	case KVM_HC_SEND_IPI:
		ret = send_ipi(vcpu, &call);
		break;
	case KVM_HC_SCHED_YIELD:
		ret = yield_to(vcpu);
		break;
	case KVM_HC_MAP_GPA_RANGE:
		result = map_gpa_range(vcpu, &call, &ret);
		break;
	}
	if (result == PV_DONE)
		answer(vcpu->cpu, ret);
	return result;
}

/* A guest that was built for the other vendor's instruction: it gets the right one, if its page can
 * be written. */
static enum pv_result patch(struct vcpu *vcpu, const u8 *right)
{
	struct cpu *cpu = vcpu->cpu;
	gva_t at = cpu->rip + cpu->port.exit.insn_len - HYPERCALL_LEN;

	if (!vm_has_quirk(vcpu->vm, KVM_X86_QUIRK_FIX_HYPERCALL_INSN)) {
		cpu_raise(cpu, VEC_UD);
		return PV_FAULT;
	}
	if (!cpu_code64(cpu))
		at = (u32)(at + cpu->seg[CS].base);
	switch (cpu_write(cpu, at, right, HYPERCALL_LEN, ACCESS_WRITE)) {
	case FAULT_NONE:
		return PV_RETRY;
	case FAULT_RAISED:
		return PV_FAULT;
	case FAULT_EXIT: /* code in what is not RAM */
		break;
	}
	cpu_raise(cpu, VEC_UD);
	return PV_FAULT;
}

enum pv_result pv_hypercall(struct vcpu *vcpu)
{
	static const u8 vmcall[] = { 0x0f, 0x01, 0xc1 }, vmmcall[] = { 0x0f, 0x01, 0xd9 };
	const u8 *right = vcpu->vm->model->is_amd ? vmmcall : vmcall;
	const struct cpu_exit *exit = &vcpu->cpu->port.exit;

	if (exit->insn_len < HYPERCALL_LEN ||
	    !memcmp(exit->insn_bytes + exit->insn_len - HYPERCALL_LEN, right, HYPERCALL_LEN))
		return execute(vcpu);
	return patch(vcpu, right);
}

void pv_finish(struct vcpu *vcpu)
{
	answer(vcpu->cpu, vcpu->run->hypercall.ret);
}
