// SPDX-License-Identifier: MIT
/*
 * Hardware task switches (SDM 3A 7.2 to 7.4; 16-bit TSS: 7.6): see cpu/transfer/task_switch.h. The
 * order is that of SDM 3A 7.3: all checks of the two TSSs and all writes to memory come first; once
 * TR is loaded the new task is the current one, and what its segments raise is raised there. A
 * switch also sets CR0.TS, clears the local breakpoints of DR7, and may load CR3. vCPU thread;
 * general registers only.
 */
#include "cpu/transfer/task_switch.h"

#include "base/bytes.h"
#include "cpu/control.h"
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "cpu/transfer/deliver.h"
#include "cpu/transfer/stack.h"

#define FL_LOADED                                                                              \
	(FL_ARITH | FL_TF | FL_IF | FL_DF | FL_IOPL | FL_NT | FL_RF | FL_VM | FL_AC | FL_VIF | \
	 FL_VIP | FL_ID)
#define DR7_LOCAL 0x155u /* L0 to L3, LE */

/* What a TSS holds of a task, element by element; the LDT's selector follows the last segment. */
enum { WORD_IP, WORD_FLAGS, WORD_REGS, WORD_SEGS = WORD_REGS + 8, NWORDS = WORD_SEGS + NSEGS };

#define TSS_LINK   0x00
#define TSS32_CR3  0x1c
#define TSS32_TRAP 0x64 /* bit 0: T */
#define TSS_MAX	   0x68

static const struct tss_layout {
	u8 size;  /* limit + 1, at least */
	u8 width; /* of an element */
	u8 state; /* offset of WORD_IP */
	u8 nsegs; /* a 16-bit TSS has neither FS nor GS */
} layouts[2] = {
	{ .size = 0x2c, .width = 2, .state = 0x0e, .nsegs = 4 },
	{ .size = TSS_MAX, .width = 4, .state = 0x20, .nsegs = NSEGS },
};

/* The task to enter, as its TSS describes it. */
struct task {
	struct descriptor tss;
	const struct tss_layout *layout;
	u32 word[NWORDS];
	u16 ldt;
	u32 cr3; /* 32-bit TSS only */
	bool trap;
};

/* How the current task is left. */
struct departure {
	u64 rip, flags; /* as they are saved */
	u32 ext;	/* of error codes */
	bool nests;	/* CALL and events: the new task links back */
};

static const struct tss_layout *layout_of(u32 attr)
{
	return &layouts[(attr & SEG_TYPE) >= TYPE_TSS];
}

static u32 field(const u8 *raw, u32 offset, u32 width)
{
	u32 value = 0;

	bytes_copy(&value, raw + offset, width);
	return value;
}

/* A TSS is in the GDT, and available or, for IRET, busy: else `vector`. */
static enum guest_fault read_tss(struct cpu *cpu, u16 sel, u32 types, enum vector vector, u32 ext,
				 struct descriptor *tss)
{
	enum guest_fault fault;

	if (sel & SEL_TI)
		return descriptor_fault(cpu, vector, sel, ext);
	fault = descriptor_read(cpu, sel, vector, ext, tss);
	if (fault)
		return fault;
	if ((tss->attr & SEG_S) || !(types >> descriptor_type(tss) & 1))
		return descriptor_fault(cpu, vector, sel, ext);
	if (!(tss->attr & SEG_P))
		return descriptor_fault(cpu, VEC_NP, sel, ext);
	return FAULT_NONE;
}

static enum guest_fault read_available(struct cpu *cpu, u16 sel, u32 ext, struct descriptor *tss)
{
	return read_tss(cpu, sel, 1u << TYPE_TSS | 1u << TYPE_TSS16, VEC_GP, ext, tss);
}

static enum guest_fault read_task(struct cpu *cpu, const struct departure *from, struct task *to)
{
	u8 raw[TSS_MAX];
	enum guest_fault fault;
	u32 width, n;

	to->layout = layout_of(to->tss.attr);
	width = to->layout->width;
	n = WORD_SEGS + to->layout->nsegs;
	if (descriptor_limit(to->tss.lo) < to->layout->size - 1u)
		return descriptor_fault(cpu, VEC_TS, to->tss.sel, from->ext);
	fault = cpu_read(cpu, descriptor_base(to->tss.lo), raw, to->layout->size, ACCESS_SYSTEM);
	if (fault)
		return fault;
	for (u32 i = 0; i < NWORDS; i++)
		to->word[i] = i < n ? field(raw, to->layout->state + i * width, width) : 0;
	to->ldt = field(raw, to->layout->state + n * width, 2);
	to->cr3 = width == 4 ? field(raw, TSS32_CR3, 4) : 0;
	to->trap = width == 4 && (raw[TSS32_TRAP] & 1);
	return FAULT_NONE;
}

/* The current task's state, into its TSS. */
static enum guest_fault save(struct cpu *cpu, const struct departure *from)
{
	const struct tss_layout *layout = layout_of(cpu->tr.attr);
	const u32 n = WORD_SEGS + layout->nsegs;
	u8 raw[NWORDS * 4];
	u32 word[NWORDS];

	word[WORD_IP] = from->rip;
	word[WORD_FLAGS] = from->flags;
	for (u32 i = 0; i < 8; i++)
		word[WORD_REGS + i] = cpu->regs[i];
	for (u32 i = 0; i < layout->nsegs; i++)
		word[WORD_SEGS + i] = cpu->seg[i].sel;
	for (u32 i = 0; i < n; i++)
		bytes_copy(raw + i * layout->width, &word[i], layout->width);
	return cpu_write(cpu, (u32)(cpu->tr.base + layout->state), raw, n * layout->width,
			 ACCESS_WRITE | ACCESS_SYSTEM);
}

static enum guest_fault write_link(struct cpu *cpu, const struct task *to)
{
	return cpu_write(cpu, descriptor_base(to->tss.lo) + TSS_LINK, &cpu->tr.sel, 2,
			 ACCESS_WRITE | ACCESS_SYSTEM);
}

/* A task that is left for good, or returned from, can be entered again. */
static enum guest_fault release_current(struct cpu *cpu)
{
	enum guest_fault fault;
	struct descriptor d;
	bool found;

	fault = descriptor_find(cpu, cpu->tr.sel, &d, &found);
	return fault || !found ? fault : descriptor_mark_available(cpu, &d);
}

/* All that is written to memory. */
static enum guest_fault leave(struct cpu *cpu, const struct departure *from, struct task *to)
{
	enum guest_fault fault = save(cpu, from);

	if (!fault && from->nests)
		fault = write_link(cpu, to);
	if (!fault && !from->nests)
		fault = release_current(cpu);
	if (!fault)
		fault = descriptor_mark_busy(cpu, &to->tss, from->ext);
	return fault;
}

/* The registers that are loaded without a check; segments have their selectors alone so far. */
static void load_registers(struct cpu *cpu, const struct departure *from, const struct task *to)
{
	cpu->tr = descriptor_segment(&to->tss);
	cpu->cr0 |= CR0_TS;
	cpu->dr7 &= ~(u64)DR7_LOCAL;
	cpu->rip = to->word[WORD_IP];
	cpu->rflags = (to->word[WORD_FLAGS] & FL_LOADED) | FL_FIX1 | (from->nests ? FL_NT : 0);
	cpu_priv(cpu)->begun |= BEGUN_RF;
	for (u32 i = 0; i < 8; i++)
		cpu->regs[i] = to->word[WORD_REGS + i];
	for (u32 i = 0; i < NSEGS; i++)
		cpu->seg[i] = segment_null(to->word[WORD_SEGS + i]);
	cpu->ldtr = segment_null(to->ldt);
	cpu->cpl = cpu->rflags & FL_VM ? 3 : cpu->seg[CS].sel & SEL_RPL;
	cpu_watch_update(cpu);
}

static enum guest_fault load_ldt(struct cpu *cpu, u16 sel, u32 ext)
{
	struct descriptor d;
	enum guest_fault fault;

	if (selector_null(sel))
		return FAULT_NONE;
	if (sel & SEL_TI)
		return descriptor_fault(cpu, VEC_TS, sel, ext);
	fault = descriptor_read(cpu, sel, VEC_TS, ext, &d);
	if (fault)
		return fault;
	if ((d.attr & (SEG_S | SEG_TYPE | SEG_P)) != (TYPE_LDT | SEG_P))
		return descriptor_fault(cpu, VEC_TS, sel, ext);
	cpu->ldtr = descriptor_segment(&d);
	return FAULT_NONE;
}

static enum guest_fault load_code(struct cpu *cpu, u16 sel, u32 ext)
{
	struct descriptor d;
	enum guest_fault fault;
	u8 dpl;

	if (selector_null(sel))
		return cpu_raise_error(cpu, VEC_TS, ext);
	fault = descriptor_read(cpu, sel, VEC_TS, ext, &d);
	if (fault)
		return fault;
	dpl = descriptor_dpl(&d);
	if (!descriptor_is_code(&d) ||
	    (descriptor_is_conforming(&d) ? dpl > cpu->cpl : dpl != cpu->cpl))
		return descriptor_fault(cpu, VEC_TS, sel, ext);
	if (!(d.attr & SEG_P))
		return descriptor_fault(cpu, VEC_NP, sel, ext);
	fault = descriptor_mark_accessed(cpu, &d);
	if (!fault)
		cpu->seg[CS] = descriptor_segment(&d);
	return fault;
}

static enum guest_fault load_stack(struct cpu *cpu, u16 sel, u32 ext)
{
	struct descriptor d;
	enum guest_fault fault;

	if (selector_null(sel))
		return cpu_raise_error(cpu, VEC_TS, ext);
	fault = descriptor_read_stack(cpu, sel, cpu->cpl, VEC_TS, ext, &d);
	if (!fault)
		cpu->seg[SS] = descriptor_segment(&d);
	return fault;
}

static enum guest_fault load_data(struct cpu *cpu, enum seg seg, u16 sel, u32 ext)
{
	struct descriptor d;
	enum guest_fault fault;

	if (selector_null(sel))
		return FAULT_NONE;
	fault = descriptor_read_data(cpu, sel, VEC_TS, ext, &d);
	if (!fault)
		cpu->seg[seg] = descriptor_segment(&d);
	return fault;
}

static enum guest_fault load_segments(struct cpu *cpu, u32 ext)
{
	static const enum seg data[] = { ES, DS, FS, GS };
	enum guest_fault fault = load_code(cpu, cpu->seg[CS].sel, ext);

	if (!fault)
		fault = load_stack(cpu, cpu->seg[SS].sel, ext);
	for (u32 i = 0; i < ARRAY_SIZE(data) && !fault; i++)
		fault = load_data(cpu, data[i], cpu->seg[data[i]].sel, ext);
	return fault;
}

static void load_vm86_segments(struct cpu *cpu)
{
	for (u32 i = 0; i < NSEGS; i++)
		cpu->seg[i] = segment_vm86(cpu->seg[i].sel);
}

/* CR3 first: the tables of the new task's segments lie in its address space. */
static enum guest_fault load_context(struct cpu *cpu, const struct task *to, u32 ext)
{
	enum guest_fault fault = FAULT_NONE;

	if (to->layout->width == 4 && (cpu->cr0 & CR0_PG))
		fault = cpu_write_cr3(cpu, to->cr3);
	if (!fault)
		fault = load_ldt(cpu, to->ldt, ext);
	if (!fault && (cpu->rflags & FL_VM))
		load_vm86_segments(cpu);
	else if (!fault)
		fault = load_segments(cpu, ext);
	return fault;
}

/* The error code of an exception goes onto the new task's stack, as wide as its TSS. */
static enum guest_fault push_error(struct cpu *cpu, const struct task *to, u32 error, u32 ext)
{
	struct stack stack = stack_current(cpu);
	u64 value = error;
	enum guest_fault fault;

	stack.error = ext;
	fault = stack_push(cpu, &stack, &value, 1, to->layout->width);
	if (!fault)
		stack_store(cpu, &stack);
	return fault;
}

/* error: to be pushed, or NULL. */
static enum guest_fault enter(struct cpu *cpu, const struct departure *from, const struct task *to,
			      const u32 *error)
{
	enum guest_fault fault;

	load_registers(cpu, from, to);
	fault = load_context(cpu, to, from->ext);
	cpu_update_mode(cpu);
	if (!fault && error)
		fault = push_error(cpu, to, *error, from->ext);
	/* The instruction that switched cannot be executed again to collect a device's answer. */
	if (fault == FAULT_EXIT)
		return cpu_unemulated(cpu);
	if (!fault && to->trap)
		cpu->pending_db |= DR6_BT;
	return fault;
}

static enum guest_fault switch_task(struct cpu *cpu, const struct departure *from, struct task *to,
				    const u32 *error)
{
	enum guest_fault fault = read_task(cpu, from, to);

	if (!fault)
		fault = leave(cpu, from, to);
	return fault ? fault : enter(cpu, from, to, error);
}

/* SDM 3A 7.2.5: the privilege of a task gate counts, not that of the TSS it leads to. */
static enum guest_fault check_target(struct cpu *cpu, const struct descriptor *target)
{
	u8 dpl = descriptor_dpl(target);

	if (dpl < cpu->cpl || dpl < (target->sel & SEL_RPL))
		return descriptor_fault(cpu, VEC_GP, target->sel, 0);
	if (!(target->attr & SEG_P))
		return descriptor_fault(cpu, VEC_NP, target->sel, 0);
	return FAULT_NONE;
}

enum guest_fault task_transfer(struct cpu *cpu, struct descriptor *target, bool call, u64 next_rip)
{
	struct departure from = { .rip = next_rip, .flags = cpu->rflags, .nests = call };
	enum guest_fault fault = check_target(cpu, target);
	u16 sel = target->sel;
	struct task to;

	if (descriptor_type(target) == TYPE_TASK_GATE)
		sel = gate_selector(target->lo);
	if (!fault)
		fault = read_available(cpu, sel, 0, &to.tss);
	return fault ? fault : switch_task(cpu, &from, &to, NULL);
}

enum guest_fault task_return(struct cpu *cpu, u64 next_rip)
{
	const u32 busy = 1u << TYPE_TSS_BUSY | 1u << TYPE_TSS16_BUSY;
	struct departure from = {
		.rip = next_rip,
		.flags = cpu->rflags & ~(u64)FL_NT,
	};
	enum guest_fault fault;
	struct task to;
	u16 link;

	fault = cpu_read(cpu, (u32)(cpu->tr.base + TSS_LINK), &link, 2, ACCESS_SYSTEM);
	if (!fault)
		fault = read_tss(cpu, link, busy, VEC_TS, 0, &to.tss);
	return fault ? fault : switch_task(cpu, &from, &to, NULL);
}

enum guest_fault task_event(struct cpu *cpu, const struct cpu_event *event, u16 selector)
{
	struct departure from = {
		.rip = cpu->rip,
		.flags = deliver_flags_image(cpu, event),
		.ext = deliver_ext(event),
		.nests = true,
	};
	enum guest_fault fault;
	struct task to;

	fault = read_available(cpu, selector, from.ext, &to.tss);
	return fault ? fault
		     : switch_task(cpu, &from, &to, event->has_error ? &event->error : NULL);
}
