// SPDX-License-Identifier: MIT
/*
 * Exits: one function each, and at the end the switch that reads like a table of contents. What the
 * hypervisor does for the guest is done on struct cpu, followed by cpu_complete(); what it cannot
 * do becomes a KVM_EXIT_* for the program (api.rst 5). vCPU thread, inside a section.
 */
#include "vm/exit.h"

#include <errno.h>
#include <string.h>

#include "cpu/control.h"
#include "cpu/event.h"
#include "engine/engine.h"
#include "vm/cpuid/cpuid.h"
#include "vm/events.h"
#include "vm/io.h"
#include "vm/irq/apic.h"
#include "vm/pv.h"
#include "vm/time/trace.h"
#include "vm/vm.h"

#define CPUID_FAULTING	    BIT(0) /* MSR_MISC_FEATURES_ENABLES */
/* SDM 3C 27.8: VM-entry failure due to invalid guest state. */
#define INVALID_GUEST_STATE 0x80000021u

static int complete(struct vcpu *vcpu)
{
	cpu_complete(vcpu->cpu);
	vcpu->completed = true;
	if (unlikely(vcpu->vm->trace)) /* RAX, RCX, RDX, RBX: where answers are */
		trace_input(vcpu, vcpu->cpu->regs, 4 * sizeof(vcpu->cpu->regs[0]));
	return 1;
}

static int gp_fault(struct vcpu *vcpu)
{
	cpu_raise_error(vcpu->cpu, VEC_GP, 0);
	return 1;
}

static void set_edx_eax(struct cpu *cpu, u64 value)
{
	cpu->regs[RAX] = (u32)value;
	cpu->regs[RDX] = value >> 32;
}

static u64 get_edx_eax(const struct cpu *cpu)
{
	return (u32)cpu->regs[RAX] | cpu->regs[RDX] << 32;
}

static int exit_hlt(struct vcpu *vcpu)
{
	int r;

	vcpu->stats.halt_exits++;
	if (!vcpu->has_lapic && !(vcpu->vm->set.disabled_exits & KVM_X86_DISABLE_EXITS_HLT)) {
		vcpu->run->exit_reason = KVM_EXIT_HLT;
		schedule_leave(vcpu);
		return 0;
	}
	r = exit_to_debugger(vcpu); /* KVM: halted all the same */
	if (events_wake(vcpu))
		vcpu->pv_unhalted = false;
	else
		vcpu->mp_state = KVM_MP_STATE_HALTED;
	return r;
}

static int exit_cpuid(struct vcpu *vcpu)
{
	struct cpu *cpu = vcpu->cpu;
	u32 regs[4];

	vcpu->stats.cpuid_exits++;
	if (vcpu->msrs.misc_features_enables & CPUID_FAULTING && cpu->cpl)
		return gp_fault(vcpu);
	cpuid_query(vcpu, cpu->regs[RAX], cpu->regs[RCX], regs);
	cpu->regs[RAX] = regs[CPUID_EAX];
	cpu->regs[RBX] = regs[CPUID_EBX];
	cpu->regs[RCX] = regs[CPUID_ECX];
	cpu->regs[RDX] = regs[CPUID_EDX];
	return complete(vcpu);
}

/* An MSR access that failed: the program's, if it asked for such, else #GP(0). */
static int msr_failed(struct vcpu *vcpu, enum msr_result result, u32 exit_reason, u64 data)
{
	struct kvm_run *run = vcpu->run;
	u32 reason = msr_exit_reason(result);

	if (!(READ_ONCE(vcpu->vm->set.user_msr_exits) & reason))
		return gp_fault(vcpu);
	run->exit_reason = exit_reason;
	run->msr.error = 0;
	memset(run->msr.pad, 0, sizeof(run->msr.pad));
	run->msr.reason = reason;
	run->msr.index = vcpu->cpu->regs[RCX];
	run->msr.data = data;
	vcpu->pending = exit_reason == KVM_EXIT_X86_RDMSR ? PENDING_RDMSR : PENDING_WRMSR;
	return 0;
}

static int exit_rdmsr(struct vcpu *vcpu)
{
	u64 value;
	enum msr_result result = msr_guest_read(vcpu, &value);

	vcpu->stats.msr_exits++;
	if (result != MSR_OK)
		return msr_failed(vcpu, result, KVM_EXIT_X86_RDMSR, 0);
	set_edx_eax(vcpu->cpu, value);
	return complete(vcpu);
}

static int exit_wrmsr(struct vcpu *vcpu)
{
	u64 value = get_edx_eax(vcpu->cpu);
	enum msr_result result = msr_guest_write(vcpu, value);

	vcpu->stats.msr_exits++;
	if (result != MSR_OK)
		return msr_failed(vcpu, result, KVM_EXIT_X86_WRMSR, value);
	/* Now, so that an instruction which starts a counter is counted by it (as in KVM). */
	pmu_sync(&vcpu->pmu.guest);
	return complete(vcpu);
}

/* The engine has looked at CR4.PCE. */
static int exit_rdpmc(struct vcpu *vcpu)
{
	u64 value;

	if (pmu_rdpmc(&vcpu->pmu.guest, vcpu->cpu->regs[RCX], true, &value) != PMU_OK)
		return gp_fault(vcpu);
	set_edx_eax(vcpu->cpu, value);
	return complete(vcpu);
}

static int complete_msr(struct vcpu *vcpu, bool read)
{
	vcpu_pmu_enter(vcpu); /* what the program wrote meanwhile counts it */
	if (READ_ONCE(vcpu->run->msr.error))
		return gp_fault(vcpu);
	if (read)
		set_edx_eax(vcpu->cpu, READ_ONCE(vcpu->run->msr.data));
	return complete(vcpu);
}

static int exit_hypercall(struct vcpu *vcpu)
{
	vcpu->stats.hypercalls++;
	switch (pv_hypercall(vcpu)) {
	case PV_DONE:
		return complete(vcpu);
	case PV_USER_EXIT:
		vcpu->pending = PENDING_HYPERCALL;
		return 0;
	case PV_FAULT:
	case PV_RETRY:
		break;
	}
	return 1;
}

static int complete_hypercall(struct vcpu *vcpu)
{
	vcpu_pmu_enter(vcpu);
	pv_finish(vcpu);
	return complete(vcpu);
}

/* KVM: MONITOR and MWAIT do nothing, and exist unless the program wants them to follow CPUID. */
static int exit_monitor_mwait(struct vcpu *vcpu)
{
	u32 regs[4];

	cpuid_query(vcpu, 1, 0, regs);
	if (!vm_has_quirk(vcpu->vm, KVM_X86_QUIRK_MWAIT_NEVER_UD_FAULTS) &&
	    !(regs[CPUID_ECX] & BIT(3))) {
		cpu_raise(vcpu->cpu, VEC_UD);
		return 1;
	}
	return complete(vcpu);
}

static int exit_xsetbv(struct vcpu *vcpu)
{
	struct cpu *cpu = vcpu->cpu;

	if (cpu_write_xcr(cpu, cpu->regs[RCX], get_edx_eax(cpu)) != FAULT_NONE)
		return 1;
	cpuid_refresh(vcpu);
	return complete(vcpu);
}

static int exit_cr8_write(struct vcpu *vcpu)
{
	u64 before = apic_get_cr8(vcpu), value = vcpu->cpu->port.exit.value;

	apic_set_cr8(vcpu, value);
	complete(vcpu);
	if (vcpu->has_lapic || before <= value)
		return 1;
	/* The program's APIC may hold an interrupt that the old priority kept back. */
	vcpu->run->exit_reason = KVM_EXIT_SET_TPR;
	return 0;
}

static int exit_debug(struct vcpu *vcpu)
{
	const struct cpu_exit *exit = &vcpu->cpu->port.exit;
	struct kvm_run *run = vcpu->run;

	run->exit_reason = KVM_EXIT_DEBUG;
	run->debug.arch.exception = exit->debug.exception;
	run->debug.arch.pc = exit->debug.pc;
	run->debug.arch.dr6 = exit->debug.dr6;
	run->debug.arch.dr7 = exit->debug.dr7;
	return 0;
}

int exit_to_debugger(struct vcpu *vcpu)
{
	if (!cpu_debug_exit_waits(vcpu->cpu))
		return 1;
	cpu_deliver(vcpu->cpu);
	return exit_debug(vcpu);
}

int exit_shutdown(struct vcpu *vcpu)
{
	vcpu->run->exit_reason = KVM_EXIT_SHUTDOWN;
	return 0;
}

int exit_ioapic_eoi(struct vcpu *vcpu)
{
	vcpu->run->exit_reason = KVM_EXIT_IOAPIC_EOI;
	vcpu->run->eoi.vector = vcpu->events.ioapic_eoi;
	return 0;
}

static void tell_emulation_failure(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;
	u8 bytes[sizeof(run->emulation_failure.insn_bytes)];
	u32 n = vcpu_peek_code(vcpu, bytes, sizeof(bytes));

	run->exit_reason = KVM_EXIT_INTERNAL_ERROR;
	memset(&run->emulation_failure, 0, sizeof(run->emulation_failure));
	run->emulation_failure.suberror = KVM_INTERNAL_ERROR_EMULATION;
	run->emulation_failure.ndata = 1;
	if (!n)
		return;
	run->emulation_failure.ndata = 3; /* in 64-bit words: the flags, then size and bytes */
	run->emulation_failure.flags = KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES;
	run->emulation_failure.insn_size = n;
	memset(run->emulation_failure.insn_bytes, 0x90, sizeof(run->emulation_failure.insn_bytes));
	memcpy(run->emulation_failure.insn_bytes, bytes, n);
}

static int exit_emulation_failure(struct vcpu *vcpu)
{
	/* KVM: user code cannot take the VM down with it, unless the program wants to see all. */
	if (!vcpu->vm->set.exit_on_emulation_error) {
		cpu_raise(vcpu->cpu, VEC_UD);
		if (vcpu->cpu->cpl)
			return 1;
	}
	tell_emulation_failure(vcpu);
	return 0;
}

static int exit_host_fault(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;

	run->exit_reason = KVM_EXIT_MEMORY_FAULT;
	run->memory_fault.flags = 0;
	run->memory_fault.gpa = vcpu->cpu->port.exit.gpa & PAGE_MASK;
	run->memory_fault.size = PAGE_SIZE;
	return -EFAULT;
}

static int exit_bad_state(struct vcpu *vcpu)
{
	vcpu->run->exit_reason = KVM_EXIT_FAIL_ENTRY;
	vcpu->run->fail_entry.hardware_entry_failure_reason = INVALID_GUEST_STATE;
	vcpu->run->fail_entry.cpu = 0;
	return 0;
}

static void count_exit(struct vcpu *vcpu)
{
	struct engine_cache cache;

	engine_cache(vcpu->cpu, &cache);
	vcpu->stats.exits++;
	vcpu->stats.code_cache_bytes = cache.bytes;
	vcpu->stats.code_cache_flushes = cache.flushes;
	vcpu->stats.translated_blocks = cache.blocks;
	vcpu->stats.translated_instructions = cache.insns;
	vcpu->stats.code_lookups = cache.lookups;
	vcpu->stats.code_lines_compared = cache.compared;
	vcpu->stats.code_stores = cache.written;
	vcpu->stats.code_blocks_dropped = cache.dropped;
}

int exit_handle(struct vcpu *vcpu, enum exit_reason reason)
{
	count_exit(vcpu);
	switch (reason) {
	case EXIT_NONE:
	case EXIT_BUDGET:
	case EXIT_PMI:
	case EXIT_ATTENTION:
		return 1;
	case EXIT_IO:
		return io_port_exit(vcpu);
	case EXIT_MMIO:
		return io_mmio_exit(vcpu);
	case EXIT_HLT:
		return exit_hlt(vcpu);
	case EXIT_CPUID:
		return exit_cpuid(vcpu);
	case EXIT_RDMSR:
		return exit_rdmsr(vcpu);
	case EXIT_WRMSR:
		return exit_wrmsr(vcpu);
	case EXIT_RDPMC:
		return exit_rdpmc(vcpu);
	case EXIT_HYPERCALL:
		return exit_hypercall(vcpu);
	case EXIT_MONITOR:
	case EXIT_MWAIT:
		return exit_monitor_mwait(vcpu);
	case EXIT_XSETBV:
		return exit_xsetbv(vcpu);
	case EXIT_CR8_WRITE:
		return exit_cr8_write(vcpu);
	case EXIT_IRQ_WINDOW:
		vcpu->stats.irq_window_exits++;
		return 1; /* the loop injects, or tells the program */
	case EXIT_NMI_WINDOW:
		vcpu->stats.nmi_window_exits++;
		return 1;
	case EXIT_DEBUG:
		return exit_debug(vcpu);
	case EXIT_TRIPLE_FAULT:
		return exit_shutdown(vcpu);
	case EXIT_UNEMULATED:
		return exit_emulation_failure(vcpu);
	case EXIT_HOST_FAULT:
		return exit_host_fault(vcpu);
	case EXIT_BAD_STATE:
		return exit_bad_state(vcpu);
	}
	return 1;
}

int exit_complete(struct vcpu *vcpu, bool *again)
{
	enum vcpu_pending pending = vcpu->pending;
	int r;

	vcpu->pending = PENDING_NONE;
	*again = false;
	switch (pending) {
	case PENDING_NONE:
		return 1;
	case PENDING_IO:
		*again = true;
		return io_port_complete(vcpu);
	case PENDING_MMIO:
		r = io_mmio_complete(vcpu);
		*again = r > 0 && vcpu->cpu->port.mmio.nreads;
		return r;
	case PENDING_RDMSR:
		return complete_msr(vcpu, true);
	case PENDING_WRMSR:
		return complete_msr(vcpu, false);
	case PENDING_HYPERCALL:
		return complete_hypercall(vcpu);
	}
	return 1;
}
