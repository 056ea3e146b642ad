// SPDX-License-Identifier: MIT
/*
 * Legacy protected mode as a hostile kernel sets it up: descriptors, call gates, task gates and
 * task state segments with any bytes in them, also in a device, and code of any bytes that
 * transfers through them, in 32-bit and 16-bit segments and in virtual-8086 mode, at CPL 0 and 3.
 * Each life must end in an exit that a processor can come to, within its budget; nothing may be
 * touched but guest memory, which has no neighbours. Long mode and real mode are those of code.c.
 *
 * Input: 3 bytes (enum flag; what is counted; how many edits), edits of the tables (which one, an
 * offset of 2 bytes, a size, bytes), then the code.
 */
#include "cpu/control.h"
#include "cpu/event.h"
#include "cpu/mode.h"
#include "cpu/transfer/descriptor.h"
#include "engine/engine.h"
#include "fuzz/fuzz.h"
#include "guest/machine.h"
#include "x86/descriptor.h"

enum flag {
	FLAG_PAGING = 1,
	FLAG_USER = 2,
	FLAG_VM86 = 4,
	FLAG_STEP = 8,
	FLAG_CODE16 = 16,
	FLAG_COLD = 32,
	FLAG_FAR_TASK = 64, /* the current task's TSS crosses into a device */
	FLAG_AMD = 128,
};

#define BUDGET	  2000 /* instructions of one input */
#define MAX_EXITS 100
#define MAX_EDITS 15
#define MAX_CODE  2048

/* The guest's memory, besides image.h. */
#define TSS_MAIN   0x20000
#define TSS_WORK   0x21000
#define TSS_OLD	   0x22000 /* a 16-bit one */
#define LDT	   0x23000
/* Where the other task begins, and what the call gate leads to. */
#define WORK_CODE  (IMAGE_CODE + 0x30)
#define INNER_CODE (IMAGE_CODE + 0x40)

#define SEL_CODE      0x08
#define SEL_DATA      0x10
#define SEL_MAIN      0x18
#define SEL_WORK      0x20
#define SEL_OLD	      0x28
#define SEL_LDT	      0x30
#define SEL_USER_CODE 0x3b
#define SEL_USER_DATA 0x43

#define FLAT_CODE	 0x00cf9b000000ffffull
#define FLAT_DATA	 0x00cf93000000ffffull
#define FLAT_CODE16	 0x000f9b000000ffffull
#define FLAT_EXPAND_DOWN 0x0040970000000fffull
#define FLAT_CONFORMING	 0x00cf9f000000ffffull
#define DPL3		 (3ull << 45)

static const char *const models[] = { "icelake", "milan" };
static struct machine machines[ARRAY_SIZE(models)];

void fuzz_set_up(void)
{
	for (u32 i = 0; i < ARRAY_SIZE(models); i++) {
		machine_create_model(&machines[i], models[i]);
		machines[i].exit_limit = MAX_EXITS;
	}
}

/* --- tables --- */

static void put16(u8 *ram, u32 at, u16 value)
{
	memcpy(ram + at, &value, sizeof(value));
}

static void put32(u8 *ram, u32 at, u32 value)
{
	memcpy(ram + at, &value, sizeof(value));
}

static u64 system_segment(u32 base, u32 type, u32 limit)
{
	return (u64)(base & 0xffffff) << 16 | (u64)(base >> 24) << 56 | (u64)(type | SEG_P) << 40 |
	       limit;
}

static u64 gate(u32 type, u16 sel, u32 offset, u32 params)
{
	return (u64)(offset & 0xffff) | (u64)(offset >> 16) << 48 | (u64)sel << 16 |
	       (u64)params << 32 | (u64)(type | SEG_P) << 40 | DPL3;
}

static void put_descriptors(u8 *ram)
{
	const u64 gdt[] = {
		0,
		FLAT_CODE,
		FLAT_DATA,
		system_segment(TSS_MAIN, TYPE_TSS_BUSY, 0x67),
		system_segment(TSS_WORK, TYPE_TSS, 0x67) | DPL3,
		system_segment(TSS_OLD, TYPE_TSS16, 0x2b) | DPL3,
		system_segment(LDT, TYPE_LDT, 0xff),
		FLAT_CODE | DPL3,
		FLAT_DATA | DPL3,
		gate(TYPE_CALL_GATE, SEL_CODE, INNER_CODE, 2),
		gate(TYPE_CALL_GATE16, SEL_CODE, 0x100, 3),
		gate(TYPE_TASK_GATE, SEL_WORK, 0, 0),
		FLAT_CODE16,
		FLAT_EXPAND_DOWN,
		FLAT_CONFORMING,
		FLAT_DATA & ~((u64)SEG_P << 40), /* not present */
		system_segment(IMAGE_MMIO + 0xff0, TYPE_TSS, 0x67) | DPL3,
	};

	memcpy(ram + IMAGE_GDT, gdt, sizeof(gdt));
	memcpy(ram + LDT, gdt, sizeof(gdt));
	for (u32 vector = 0; vector < IMAGE_NGATES; vector++) {
		u64 entry =
			gate(TYPE_INT_GATE, SEL_CODE, IMAGE_STUBS + vector * IMAGE_STUB_SIZE, 0);

		if (vector == VEC_DF || vector == 0x50)
			entry = gate(TYPE_TASK_GATE, SEL_WORK, 0, 0);
		if (vector == VEC_TS || vector == 0x51)
			entry = gate(TYPE_TASK_GATE, SEL_OLD, 0, 0);
		memcpy(ram + IMAGE_IDT + 8 * vector, &entry, sizeof(entry));
	}
}

static void put_tss(u8 *ram, u32 base, u32 eip)
{
	static const u16 sels[] = { SEL_DATA, SEL_CODE, SEL_DATA, SEL_DATA, SEL_DATA, SEL_DATA };

	for (u32 level = 0; level < 3; level++) {
		put32(ram, base + 4 + 8 * level, IMAGE_INT_STACK - 0x1000 * level);
		put32(ram, base + 8 + 8 * level, SEL_DATA | level);
	}
	put32(ram, base + 0x1c, IMAGE_PML4);
	put32(ram, base + 0x20, eip);
	put32(ram, base + 0x24, FL_FIX1);
	put32(ram, base + 0x38, IMAGE_STACK);
	for (u32 i = 0; i < ARRAY_SIZE(sels); i++)
		put32(ram, base + 0x48 + 4 * i, sels[i]);
	put32(ram, base + 0x60, SEL_LDT);
}

/* SDM 3A 7.6: a 16-bit TSS. */
static void put_old_tss(u8 *ram)
{
	static const u16 sels[] = { SEL_DATA, SEL_CODE, SEL_DATA, SEL_DATA };

	for (u32 level = 0; level < 3; level++) {
		put16(ram, TSS_OLD + 2 + 4 * level, 0xf000 - 0x1000 * level);
		put16(ram, TSS_OLD + 4 + 4 * level, SEL_DATA | level);
	}
	put16(ram, TSS_OLD + 0x0e, 0x200); /* IP */
	put16(ram, TSS_OLD + 0x10, FL_FIX1);
	put16(ram, TSS_OLD + 0x1a, 0xff00); /* SP */
	for (u32 i = 0; i < ARRAY_SIZE(sels); i++)
		put16(ram, TSS_OLD + 0x22 + 2 * i, sels[i]);
	put16(ram, TSS_OLD + 0x2a, SEL_LDT);
}

/* Memory at its own address, and the device after it, in pages of 4 MB. */
static void put_pages(u8 *ram)
{
	put32(ram, IMAGE_PML4, 0x87);
	put32(ram, IMAGE_PML4 + 4, IMAGE_MMIO | 0x87);
}

static void edit_tables(u8 *ram, u32 edits, struct fuzz_input *in)
{
	static const u32 tables[] = { IMAGE_GDT, IMAGE_IDT, TSS_MAIN,	TSS_WORK,
				      TSS_OLD,	 LDT,	    IMAGE_PML4, IMAGE_STUBS };

	for (u32 i = 0; i < edits; i++) {
		u32 table = tables[fuzz_u8(in) % ARRAY_SIZE(tables)];
		u32 offset = fuzz_number(in, 2) % 0xfc0, size = fuzz_u8(in) % 64;

		fuzz_take(in, ram + table + offset, size);
	}
}

/* --- the processor --- */

static void set_segments(struct cpu *cpu, u8 flags)
{
	u64 privilege = flags & FLAG_USER ? DPL3 : 0;

	for (u32 i = 0; i < NSEGS; i++)
		cpu->seg[i] = (struct segment){ .sel = privilege ? SEL_USER_DATA : SEL_DATA,
						.limit = 0xffffffff,
						.attr = descriptor_attr(FLAT_DATA | privilege) };
	cpu->seg[CS].sel = privilege ? SEL_USER_CODE : SEL_CODE;
	cpu->seg[CS].attr = descriptor_attr(FLAT_CODE | privilege);
	if (flags & FLAG_CODE16)
		cpu->seg[CS].attr &= (u32)~SEG_DB;
	cpu->cpl = privilege ? 3 : 0;
}

static void set_vm86(struct cpu *cpu)
{
	for (u32 i = 0; i < NSEGS; i++)
		cpu->seg[i] = segment_vm86(i == CS ? IMAGE_CODE >> 4 : 0x7000);
	cpu->rflags |= FL_VM;
	cpu->rip = 0;
	cpu->cpl = 3;
}

static void set_processor(struct cpu *cpu, u8 flags)
{
	u32 task = flags & FLAG_FAR_TASK ? IMAGE_MMIO - 0x40 : TSS_MAIN;

	cpu->efer = cpu->xcr0 = 0;
	cpu->cr4 = CR4_PSE;
	if (!(flags & FLAG_PAGING))
		cpu->cr0 &= ~(u64)CR0_PG;
	cpu->idtr.limit = 8 * IMAGE_NGATES - 1;
	cpu->gdtr.limit = 0xff;
	cpu->tr = (struct segment){ task, 0x67, TYPE_TSS_BUSY | SEG_P, SEL_MAIN };
	cpu->ldtr = (struct segment){ LDT, 0xff, TYPE_LDT | SEG_P, SEL_LDT };
	cpu->rflags = FL_FIX1 | (flags & FLAG_STEP ? FL_TF : 0);
	cpu->regs[RSP] = flags & FLAG_VM86 ? 0xfff0 : IMAGE_STACK - 64;
	set_segments(cpu, flags);
	if (flags & FLAG_VM86)
		set_vm86(cpu);
	cpu_state_changed(cpu);
}

static bool is_right_end(enum exit_reason reason)
{
	switch (reason) {
	case EXIT_BUDGET:
	case EXIT_IO:
	case EXIT_MMIO:
	case EXIT_HLT:
	case EXIT_CPUID:
	case EXIT_RDMSR:
	case EXIT_WRMSR:
	case EXIT_RDPMC:
	case EXIT_HYPERCALL:
	case EXIT_MONITOR:
	case EXIT_MWAIT:
	case EXIT_XSETBV:
	case EXIT_TRIPLE_FAULT:
	case EXIT_UNEMULATED:
		return true;
	default:
		return false;
	}
}

void fuzz_one(struct fuzz_input *in)
{
	u8 flags = fuzz_u8(in), counted = fuzz_u8(in), edits = fuzz_u8(in);
	struct machine *m = &machines[flags & FLAG_AMD ? 1 : 0];
	enum exit_reason reason;

	machine_load(m, "", 0);
	put_descriptors(m->ram);
	put_tss(m->ram, TSS_MAIN, IMAGE_CODE);
	put_tss(m->ram, TSS_WORK, WORK_CODE);
	put_old_tss(m->ram);
	put_pages(m->ram);
	edit_tables(m->ram, edits & MAX_EDITS, in);
	fuzz_take(in, m->ram + IMAGE_CODE, MAX_CODE);
	m->cpu->port.wanted = counted & 1 ? COUNT_BRANCHES | COUNT_CYCLES : 0;
	engine_set_hot_after(m->cpu, flags & FLAG_COLD ? ENGINE_HOT_AFTER : 4);
	set_processor(m->cpu, flags);
	reason = machine_run(m, BUDGET);
	if (!is_right_end(reason))
		fuzz_fail("exit %d at %#llx", reason, (unsigned long long)m->cpu->rip);
	if (machine_retired(m) > BUDGET)
		fuzz_fail("more instructions than the budget");
	if (m->cpu->cpl > 3 || (m->cpu->rflags & FL_VM && m->cpu->cpl != 3))
		fuzz_fail("CPL %u", m->cpu->cpl);
}
