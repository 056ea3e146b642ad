// SPDX-License-Identifier: MIT
/*
 * The machines of the kernel-mode differential test: one for each way of executing, with the same
 * memory. Handlers have a stack of their own (IST 1), log what happened, and go on at the address
 * that the code left in KERNEL_RESUME, at CPL 0 with plain flags.
 */
#include "diff/kernel.h"

#include <string.h>

#include "base/must.h"
#include "cpu/control.h"
#include "cpu/event.h"
#include "engine/engine.h"
#include "x86/paging.h"

#define HANDLERS   0x20000
#define STUB_SIZE  16
#define COMMON	   (HANDLERS + 256 * STUB_SIZE)
#define SECOND	   0x30000 /* page tables, and above them those of 57-bit addresses */
#define TOP_57	   0x34000
#define IST_STACK  0x90000
#define BUDGET	   20000
#define NEVER_HOT  0x7fffffff
#define ALIAS_PAGE 0x119000 /* what the second tables map KPAGE_ALIAS to */

static struct machine machines[NWAYS];

/* Saves RAX and RBX below the frame; the vector is at 16(%rsp), then the error code, then the
 * frame. */
GUEST_CODE(kernel_common, "push %rax; push %rbx\n"
			  "mov 0x100008, %rbx\n"
			  "mov 16(%rsp), %rax; mov %rax, (%rbx)\n"
			  "mov 24(%rsp), %rax; mov %rax, 8(%rbx)\n"
			  "mov 32(%rsp), %rax; mov %rax, 16(%rbx)\n"
			  "mov 40(%rsp), %rax; mov %rax, 24(%rbx)\n"
			  "mov 48(%rsp), %rax; mov %rax, 32(%rbx)\n"
			  "mov 56(%rsp), %rax; mov %rax, 40(%rbx)\n"
			  "mov 64(%rsp), %rax; mov %rax, 48(%rbx)\n"
			  "mov %cr2, %rax; mov %rax, 56(%rbx)\n"
			  "add $64, %rbx; mov %rbx, 0x100008\n"
			  "mov 0x100000, %rax; mov %rax, 32(%rsp)\n"
			  "movq $0x08, 40(%rsp); movq $2, 48(%rsp)\n"
			  "movq $0x80000, 56(%rsp); movq $0x10, 64(%rsp)\n"
			  "pop %rbx; pop %rax; add $16, %rsp; iretq\n");

/* At CPL 3: accesses that may fault, then back to the kernel in one of two ways. */
GUEST_CODE(kernel_user, "mov 0x112000, %rax; add %rax, %rbx; mov %rbx, 0x116008\n"
			"mov %rcx, 0x113000\n"
			"syscall\n"
			".balign 32\n"
			"incl 0x112010; mov 0x110000, %rdx; syscall\n"
			".balign 32\n"
			"push %rbx; pop %rsi; xor %esi, 0x112020; int $0x80\n"
			".balign 32\n"
			"pushf; pop %rax; stac; mov %cr0, %rax\n");

/* Where SYSCALL goes: on with the next item. */
GUEST_CODE(kernel_syscall, "mov $0x80000, %esp; jmp *0x100000\n");

static bool has_error(u32 vector)
{
	return vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21;
}

/* PUSH of a 0 where the processor pushes no error code, PUSH of the vector, JMP. */
static void put_stub(u8 *ram, u32 vector)
{
	u64 address = HANDLERS + vector * STUB_SIZE;
	u8 *p = ram + address;
	s32 distance;

	if (!has_error(vector))
		*p++ = 0x6a, *p++ = 0;
	*p++ = 0x68;
	memcpy(p, &vector, 4);
	p += 4;
	*p++ = 0xe9;
	distance = COMMON - (s32)(p + 4 - ram);
	memcpy(p, &distance, 4);
	image_gate(ram, vector, address, vector == 0x80 || vector == 3 ? 3 : 0);
	ram[IMAGE_IDT + vector * 16 + 4] = 1; /* IST 1 */
}

static u64 pte_bits(enum kernel_page page)
{
	static const u64 bits[KPAGES] = {
		[KPAGE_PLAIN] = PTE_P | PTE_W,
		[KPAGE_READONLY] = PTE_P,
		[KPAGE_USER] = PTE_P | PTE_W | PTE_U,
		[KPAGE_USER_READONLY] = PTE_P | PTE_U,
		[KPAGE_GLOBAL] = PTE_P | PTE_W | PTE_G | PTE_NX,
		[KPAGE_ABSENT] = 0,
		[KPAGE_USER_NX] = PTE_P | PTE_W | PTE_U | PTE_NX,
		[KPAGE_ALIAS] = PTE_P | PTE_W,
	};

	return bits[page];
}

static u64 *table(u8 *ram, u64 address)
{
	return (u64 *)(ram + address);
}

static void put_paging(u8 *ram)
{
	const u32 tables = 4 * PAGE_SIZE; /* one after the other, from IMAGE_PML4 on */

	for (u64 page = PAGE_SIZE; page < 0x200000; page += PAGE_SIZE)
		*image_pte(ram, page) &= ~(u64)PTE_U;
	*image_pte(ram, KERNEL_USER_CODE) = KERNEL_USER_CODE | PTE_P | PTE_U;
	*image_pte(ram, IMAGE_USER_STACK - PAGE_SIZE) |= PTE_U;
	for (u32 i = 0; i < KPAGES; i++)
		*image_pte(ram, KERNEL_PAGE(i)) = KERNEL_PAGE(i) | pte_bits(i);
	memcpy(ram + SECOND, ram + IMAGE_PML4, tables);
	table(ram, SECOND)[0] += SECOND - IMAGE_PML4;
	table(ram, SECOND + PAGE_SIZE)[0] += SECOND - IMAGE_PML4;
	table(ram, SECOND + 2 * PAGE_SIZE)[0] += SECOND - IMAGE_PML4;
	table(ram, SECOND + 3 * PAGE_SIZE)[KERNEL_PAGE(KPAGE_ALIAS) >> PAGE_SHIFT] =
		ALIAS_PAGE | pte_bits(KPAGE_ALIAS);
	table(ram, TOP_57)[0] = IMAGE_PML4 | PTE_P | PTE_W | PTE_U;
	table(ram, TOP_57 + PAGE_SIZE)[0] = SECOND | PTE_P | PTE_W | PTE_U;
}

u64 kernel_cr3(bool la57, u32 which)
{
	if (la57)
		return TOP_57 + which * PAGE_SIZE;
	return which ? SECOND : IMAGE_PML4;
}

/* What LGDT, LIDT, LTR and far branches read. */
static void put_operands(u8 *ram)
{
	const u16 gdt = IMAGE_NGDT * 8 - 1, idt = IMAGE_NGATES * 16 - 1;
	const u64 gdt_base = IMAGE_GDT, idt_base = IMAGE_IDT, ist = IST_STACK;

	memcpy(ram + KERNEL_OPERANDS, &gdt, 2);
	memcpy(ram + KERNEL_OPERANDS + 2, &gdt_base, 8);
	memcpy(ram + KERNEL_OPERANDS + 16, &idt, 2);
	memcpy(ram + KERNEL_OPERANDS + 18, &idt_base, 8);
	memcpy(ram + IMAGE_TSS + 36, &ist, 8); /* IST 1 */
}

/* What is executed at the end of a data page, or after the last one: INT3. */
static void put_ends(u8 *ram)
{
	for (u32 i = 0; i < KPAGES; i++)
		memset(ram + KERNEL_PAGE(i) + KERNEL_PAGE_CODE, 0xcc, PAGE_SIZE - KERNEL_PAGE_CODE);
	memset(ram + KERNEL_PAGE(KPAGES), 0xcc, 16);
	memset(ram + ALIAS_PAGE + KERNEL_PAGE_CODE, 0xcc, PAGE_SIZE - KERNEL_PAGE_CODE);
}

static void load(struct machine *m, const struct kernel_case *c)
{
	u8 code[KERNEL_ITEMS * (KERNEL_ITEM_BYTES + 32) + 64];
	const u64 log = KERNEL_LOG, rounds = c->rounds;

	machine_load(m, code, kernel_assemble(c, code));
	for (u32 vector = 0; vector < 256; vector++)
		put_stub(m->ram, vector);
	memcpy(m->ram + COMMON, kernel_common_start, kernel_common_end - kernel_common_start);
	memcpy(m->ram + KERNEL_USER_CODE, kernel_user_start, kernel_user_end - kernel_user_start);
	memcpy(m->ram + IMAGE_STUBS, kernel_syscall_start,
	       kernel_syscall_end - kernel_syscall_start);
	memcpy(m->ram + KERNEL_LOG_AT, &log, 8);
	memcpy(m->ram + KERNEL_ROUNDS, &rounds, 8);
	put_paging(m->ram);
	put_operands(m->ram);
	put_ends(m->ram);
}

static void start(struct machine *m, const struct kernel_case *c)
{
	struct cpu *cpu = m->cpu;

	memcpy(cpu->regs, c->regs, sizeof(cpu->regs));
	cpu->regs[RSP] = IMAGE_STACK;
	cpu->cr4 |= CR4_PGE | CR4_FSGSBASE | c->cr4 | (c->la57 ? CR4_LA57 : 0);
	cpu->cr4_allowed |= CR4_LA57;
	cpu->features[FEAT_LA57 / 64] |= BIT(FEAT_LA57 % 64);
	cpu->cr3 = kernel_cr3(c->la57, 0);
	cpu->lstar = IMAGE_STUBS;
	cpu->port.wanted = c->counted;
	cpu_state_changed(cpu);
}

void kernel_machines_create(void)
{
	for (u32 way = 0; way < NWAYS; way++) {
		machine_create(&machines[way]);
		engine_set_hot_after(machines[way].cpu, way == WAY_HOT ? 1 : NEVER_HOT);
	}
}

void kernel_machines_destroy(void)
{
	for (u32 way = 0; way < NWAYS; way++)
		machine_destroy(&machines[way]);
}

static enum exit_reason run_stepped(struct machine *m)
{
	enum exit_reason reason;

	do
		reason = machine_run(m, 1);
	while (reason == EXIT_BUDGET && machine_retired(m) < BUDGET);
	return reason;
}

void kernel_run(const struct kernel_case *c, enum kernel_way way, struct kernel_outcome *out)
{
	struct machine *m = &machines[way];
	u64 log;

	load(m, c);
	start(m, c);
	out->reason = way == WAY_STEPPED ? run_stepped(m) : machine_run(m, BUDGET);
	memcpy(&log, m->ram + KERNEL_LOG_AT, 8);
	out->faults = (log - KERNEL_LOG) / KERNEL_LOG_ENTRY;
	out->cpu = m->cpu;
	out->ram = m->ram;
}
