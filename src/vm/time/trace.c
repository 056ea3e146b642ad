// SPDX-License-Identifier: MIT
/*
 * Hashes of a VM's state: see vm/time/trace.h. The thread of the vCPU whose turn it is. A reader of
 * the socket that falls behind holds that thread up; the guest, on virtual time, does not notice.
 */
#include "vm/time/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/inherited.h"
#include "base/log.h"
#include "cpu/fpu.h"
#include "vm/irq/apic.h"
#include "vm/vm.h"

static bool parse(const char *text, u64 *number, u32 count)
{
	for (u32 i = 0; i < count; i++) {
		char *end;

		number[i] = strtoull(text, &end, 10);
		if (end == text || *end != (i + 1 < count ? ',' : '\0'))
			return false;
		text = end + 1;
	}
	return true;
}

void trace_environment(struct vm *vm)
{
	const char *text = getenv("VPMU_TRACE");
	struct vm_trace *trace;
	u64 number[4];
	int fd;

	if (!text || !vm->time.is_virtual || !inherited_take("VPMU_TRACE_SOCKET", &fd, 1))
		return;
	trace = parse(text, number, ARRAY_SIZE(number)) && number[0] ? calloc(1, sizeof(*trace))
								     : NULL;
	if (!trace) {
		log_warn("VPMU_TRACE=%s cannot be used", text);
		return;
	}
	trace->fd = fd;
	trace->plan = (struct trace_plan){ number[0], number[1], number[2], number[3] };
	trace->inputs = TRACE_SEED;
	vm->trace = trace;
}

void trace_destroy(struct vm *vm)
{
	free(vm->trace);
}

/* --- the state of a vCPU --- */

static struct trace_segment segment(const struct segment *seg)
{
	return (struct trace_segment){ seg->base, seg->sel, seg->limit, seg->attr };
}

static struct trace_segment table(const struct descriptor_table *table)
{
	return (struct trace_segment){ .base = table->base, .limit = table->limit };
}

static void take_registers(struct trace_state *state, const struct cpu *cpu)
{
	memcpy(state->regs, cpu->regs, sizeof(state->regs));
	state->rip = cpu->rip;
	state->rflags = cpu->rflags;
	for (u32 i = 0; i < ARRAY_SIZE(state->seg); i++)
		state->seg[i] = segment(&cpu->seg[i]);
	state->ldtr = segment(&cpu->ldtr);
	state->tr = segment(&cpu->tr);
	state->gdtr = table(&cpu->gdtr);
	state->idtr = table(&cpu->idtr);
	state->blocked = cpu->shadow | (u64)cpu->nmi_masked << 2;
}

static void take_system(struct trace_state *state, const struct cpu *cpu)
{
	state->cr0 = cpu->cr0;
	state->cr2 = cpu->cr2;
	state->cr3 = cpu->cr3;
	state->cr4 = cpu->cr4;
	state->efer = cpu->efer;
	state->xcr0 = cpu->xcr0;
	state->xss = cpu->xss;
	state->pkru = cpu->pkru;
	memcpy(state->dr, cpu->dr, sizeof(state->dr));
	state->dr6 = cpu->dr6;
	state->dr7 = cpu->dr7;
	state->star = cpu->star;
	state->lstar = cpu->lstar;
	state->cstar = cpu->cstar;
	state->sfmask = cpu->sfmask;
	state->kernel_gs_base = cpu->kernel_gs_base;
	state->sysenter_cs = cpu->sysenter_cs;
	state->sysenter_esp = cpu->sysenter_esp;
	state->sysenter_eip = cpu->sysenter_eip;
	state->pat = cpu->pat;
	state->tsc_aux = cpu->tsc_aux;
	state->debugctl = cpu->debugctl;
}

static u64 read_field(const u8 *xsave, u32 at, u32 size)
{
	u64 value = 0;

	memcpy(&value, xsave + at, size);
	return value;
}

/* Components of AVX-512 that are not there are zero (cpu/fpu.h). The x87's last instruction and
 * data pointers are left out: vendors differ in when they are kept. */
static void take_vectors(struct trace_state *state, const struct cpu *cpu)
{
	const u8 *xsave = cpu->xsave;
	u64 present = read_field(xsave, XSAVE_XSTATE_BV, 8);

	state->fcw = read_field(xsave, XSAVE_FCW, 2);
	state->fsw = read_field(xsave, XSAVE_FSW, 2);
	state->ftw = read_field(xsave, XSAVE_FTW, 1);
	state->mxcsr = read_field(xsave, XSAVE_MXCSR, 4);
	for (u32 i = 0; i < ARRAY_SIZE(state->st); i++)
		memcpy(state->st[i], xsave + XSAVE_ST0 + 16 * i, 10);
	for (u32 i = 0; i < 16; i++) {
		memcpy(state->zmm[i], xsave + XSAVE_XMM0 + 16 * i, 16);
		memcpy(&state->zmm[i][2], xsave + XSAVE_YMM0_HIGH + 16 * i, 16);
		if (present & XCR0_ZMM_HI256)
			memcpy(&state->zmm[i][4], xsave + XSAVE_ZMM0_HIGH + 32 * i, 32);
	}
	if (present & XCR0_HI16_ZMM)
		memcpy(state->zmm[16], xsave + XSAVE_ZMM16, 16 * sizeof(state->zmm[0]));
	if (present & XCR0_OPMASK)
		memcpy(state->opmask, xsave + XSAVE_OPMASK, sizeof(state->opmask));
}

static void take_state(struct trace_state *state, const struct vcpu *vcpu)
{
	memset(state, 0, sizeof(*state));
	take_registers(state, vcpu->cpu);
	take_system(state, vcpu->cpu);
	take_vectors(state, vcpu->cpu);
	state->cr8 = apic_get_cr8(vcpu);
	state->tsc = vcpu_tsc(vcpu);
}

/* --- records --- */

static void put(struct vm_trace *trace, const void *data, size_t size)
{
	const u8 *bytes = data;

	while (size && !trace->over) {
		ssize_t n = send(trace->fd, bytes, size, MSG_NOSIGNAL);

		if (n >= 0) {
			bytes += n;
			size -= n;
		} else if (errno != EINTR) {
			log_warn("the trace cannot be written: %s", strerror(errno));
			trace->over = true;
		}
	}
}

static u32 code_bits(const struct cpu *cpu)
{
	return cpu_code64(cpu) ? 64 : cpu->seg[CS].attr & SEG_DB ? 32 : 16;
}

static void put_detail(struct vm_trace *trace, struct vcpu *vcpu, const struct trace_state *state)
{
	struct trace_detail detail = {
		.state = *state,
		.cpl = vcpu->cpu->cpl,
		.bits = code_bits(vcpu->cpu),
		.nevents = trace->nevents,
	};

	detail.code_size = vcpu_peek_code(vcpu, detail.code, sizeof(detail.code));
	memcpy(detail.event, trace->event, sizeof(detail.event));
	put(trace, &detail, sizeof(detail));
}

static void put_record(struct vm_trace *trace, struct vcpu *vcpu, enum trace_kind kind)
{
	struct trace_state state;
	struct trace_record record = {
		.kind = kind,
		.vcpu = vcpu->index,
		.instruction = trace->retired,
		.rip = vcpu->cpu->rip,
		.inputs = trace_hash_word(trace->inputs, vcpu->cpu->port.digest),
	};

	take_state(&state, vcpu);
	record.state = trace_hash(TRACE_SEED, &state, sizeof(state));
	put(trace, &record, sizeof(record));
	if (kind == TRACE_STATE)
		put_detail(trace, vcpu, &state);
	memset(trace->event, 0, sizeof(trace->event));
	trace->nevents = 0;
}

static u64 earlier(u64 a, u64 b)
{
	return a < b ? a : b;
}

u64 trace_next(const struct trace_plan *plan, u64 now)
{
	u64 next = now - now % plan->every + plan->every;

	if (plan->step && now < plan->from)
		next = earlier(next, plan->from);
	else if (plan->step)
		next = earlier(next, now - (now - plan->from) % plan->step + plan->step);
	return plan->to > now ? earlier(next, plan->to) : next;
}

static bool is_detailed(const struct trace_plan *plan, u64 now)
{
	return plan->step == 1 && now >= plan->from && now <= plan->to;
}

static void finish(struct vm_trace *trace, struct vcpu *vcpu, enum trace_kind kind)
{
	put_record(trace, vcpu, kind);
	trace->over = true;
}

static void put_due(struct vm_trace *trace, struct vcpu *vcpu)
{
	const struct trace_plan *plan = &trace->plan;

	if (trace->over || trace->retired < trace->next)
		return;
	put_record(trace, vcpu, is_detailed(plan, trace->retired) ? TRACE_STATE : TRACE_HASH);
	if (plan->to && trace->retired >= plan->to)
		finish(trace, vcpu, TRACE_STOP);
	trace->next = trace_next(plan, trace->retired);
}

/* --- the run loop --- */

static void account(struct vm_trace *trace, struct vcpu *vcpu)
{
	u64 retired = cpu_retired(vcpu->cpu);

	trace->retired += retired - vcpu->traced;
	vcpu->traced = retired;
}

static void arm(const struct vm_trace *trace, struct vcpu *vcpu)
{
	vcpu->cpu->pmu.stop_at =
		trace->over ? RETIRE_NEVER : vcpu->traced + (trace->next - trace->retired);
}

static void note(struct vm_trace *trace, struct trace_event event)
{
	if (trace->nevents < TRACE_EVENTS)
		trace->event[trace->nevents] = event;
	trace->nevents++;
}

static void add_input(struct vm_trace *trace, const void *data, size_t size)
{
	trace->inputs = trace_hash(trace->inputs, data, size);
}

/* Another vCPU has got its turn: the state in which the last one lost it becomes part of the hash.
 * That vCPU waits, so nothing changes it. */
static void begin_turn(struct vm_trace *trace, struct vcpu *vcpu)
{
	const struct vcpu *last = trace->last;
	struct trace_event event = { .kind = TRACE_TURN,
				     .vcpu = vcpu->index,
				     .number = vcpu->index };
	struct trace_state state;

	trace->last = vcpu;
	if (!vcpu->cpu->port.digest)
		vcpu->cpu->port.digest = TRACE_SEED;
	if (!last)
		return;
	take_state(&state, last);
	add_input(trace, &state, sizeof(state));
	trace->inputs = trace_hash_word(trace->inputs, last->cpu->port.digest);
	add_input(trace, &event, sizeof(event));
	trace->inputs = trace_hash_word(trace->inputs, trace->retired);
	note(trace, event);
}

void trace_enter(struct vcpu *vcpu)
{
	struct vm_trace *trace = vcpu->vm->trace;

	if (trace->last != vcpu)
		begin_turn(trace, vcpu);
	account(trace, vcpu);
	put_due(trace, vcpu);
	arm(trace, vcpu);
}

void trace_check(struct vcpu *vcpu)
{
	struct vm_trace *trace = vcpu->vm->trace;

	if (!schedule_holds(vcpu)) /* what it did is accounted for in its turn */
		return;
	account(trace, vcpu);
	put_due(trace, vcpu);
	arm(trace, vcpu);
}

void trace_event(struct vcpu *vcpu)
{
	static const u8 kinds[] = { [EVENT_INTR] = TRACE_INTERRUPT, [EVENT_NMI] = TRACE_NMI };
	struct vm_trace *trace = vcpu->vm->trace;
	struct trace_event event = { .kind = kinds[vcpu->cpu->port.event.kind],
				     .vcpu = vcpu->index,
				     .number = vcpu->cpu->port.event.vector };

	account(trace, vcpu);
	add_input(trace, &event, sizeof(event));
	trace->inputs = trace_hash_word(trace->inputs, trace->retired);
	note(trace, event);
}

static struct trace_event describe_exit(const struct vcpu *vcpu)
{
	const struct cpu *cpu = vcpu->cpu;
	struct trace_event event = { .kind = TRACE_EXIT, .vcpu = vcpu->index };

	switch (cpu->port.exit.reason) {
	case EXIT_IO:
		event.what = cpu->port.io.in ? TRACE_EXIT_IN : TRACE_EXIT_OUT;
		event.number = cpu->port.io.port;
		break;
	case EXIT_MMIO:
		event.what = TRACE_EXIT_MMIO;
		event.number = cpu->port.mmio.nreads ? cpu->port.mmio.reads[0].gpa
						     : cpu->port.mmio.writes[0].gpa;
		break;
	case EXIT_CPUID:
		event.what = TRACE_EXIT_CPUID;
		event.number = (u32)cpu->regs[RAX];
		break;
	case EXIT_RDMSR:
	case EXIT_WRMSR:
	case EXIT_RDPMC:
		event.what = cpu->port.exit.reason - EXIT_RDMSR + TRACE_EXIT_RDMSR;
		event.number = (u32)cpu->regs[RCX];
		break;
	case EXIT_HLT:
		event.what = TRACE_EXIT_HLT;
		break;
	case EXIT_HYPERCALL:
		event.what = TRACE_EXIT_HYPERCALL;
		event.number = cpu->regs[RAX];
		break;
	default:
		event.what = TRACE_EXIT_OTHER;
		event.number = cpu->port.exit.reason;
	}
	return event;
}

/* Exits for the host's sake say nothing about the guest. */
static bool is_own_exit(enum exit_reason reason)
{
	return reason >= EXIT_IO && reason != EXIT_IRQ_WINDOW && reason != EXIT_NMI_WINDOW;
}

void trace_exit(struct vcpu *vcpu)
{
	if (is_own_exit(vcpu->cpu->port.exit.reason))
		note(vcpu->vm->trace, describe_exit(vcpu));
}

void trace_input(struct vcpu *vcpu, const void *data, u32 size)
{
	add_input(vcpu->vm->trace, data, size);
}

void trace_end(struct vcpu *vcpu)
{
	struct vm_trace *trace = vcpu->vm->trace;

	if (trace->over)
		return;
	account(trace, vcpu);
	put_due(trace, vcpu);
	finish(trace, vcpu, TRACE_END);
	arm(trace, vcpu);
}
