// SPDX-License-Identifier: MIT
/*
 * Random kernel-mode code: templates of system instructions and of accesses that paging may refuse,
 * with ordinary instructions between. Registers that templates use: RAX, RCX, RDX, RSI, RDI; the
 * others take part in arithmetic only. See kernel.h.
 */
#include "diff/kernel.h"

#include <string.h>

#include "cpu/control.h"
#include "cpu/mode.h"
#include "x86/paging.h"

struct emitter {
	struct kernel_item *item;
	struct rng *r;
	bool la57;
	u32 address; /* used last */
};

static void bytes(struct emitter *e, const void *from, u32 n)
{
	if (e->item->n + n <= KERNEL_ITEM_BYTES) {
		memcpy(e->item->bytes + e->item->n, from, n);
		e->item->n += n;
	}
}

#define CODE(e, text) bytes(e, text, sizeof(text) - 1)

static void imm32(struct emitter *e, u32 value)
{
	bytes(e, &value, 4);
}

static u32 below(struct emitter *e, u32 n)
{
	return rng_below(e->r, n);
}

/* MOV imm64 to a register below R8. */
static void mov_reg(struct emitter *e, u8 reg, u64 value)
{
	const u8 opcode[] = { 0x48, 0xb8 + reg };

	bytes(e, opcode, 2);
	bytes(e, &value, 8);
}

/* An opcode with a register below R8 and an absolute address. */
static void absolute(struct emitter *e, const char *opcode, u32 n, u8 reg, u32 address)
{
	const u8 modrm[] = { (u8)(reg << 3 | 4), 0x25 };

	bytes(e, opcode, n);
	bytes(e, modrm, 2);
	imm32(e, address);
}

#define ABSOLUTE(e, opcode, reg, address) absolute(e, opcode, sizeof(opcode) - 1, reg, address)

/* On any page, at times across the end of one; every other time where the last access was. */
static u32 any_address(struct emitter *e)
{
	u32 page = KERNEL_PAGE(below(e, KPAGES));

	if (!e->address || rng_one_in(e->r, 2))
		e->address = rng_one_in(e->r, 6) ? page + PAGE_SIZE - below(e, 8)
						 : page + 8 * below(e, 512);
	return e->address;
}

/* --- templates --- */

static void arithmetic(struct emitter *e)
{
	static const char ops[] = "\x01\x29\x31\x21\x09\x11\x19\x39\x85";
	const u8 insn[] = { 0x4d, (u8)ops[below(e, sizeof(ops) - 1)],
			    (u8)(0xc0 | below(e, 64)) }; /* R8 to R15 */

	bytes(e, insn, sizeof(insn));
	if (rng_one_in(e->r, 3))
		CODE(e, "\x75\x03\x4d\xff\xc3"); /* jnz +3; inc r11 */
}

static void access_page(struct emitter *e)
{
	u32 address = any_address(e);

	switch (below(e, 9)) {
	case 0:
		return ABSOLUTE(e, "\x48\x8b", RAX, address);
	case 1:
		return ABSOLUTE(e, "\x48\x89", RCX, address);
	case 2:
		return ABSOLUTE(e, "\x48\x01", RDX, address);
	case 3:
		return ABSOLUTE(e, "\xff", 6, address); /* push */
	case 4:
		return ABSOLUTE(e, "\x8f", 0, address); /* pop */
	case 5:
		return ABSOLUTE(e, "\x48\x87", RCX, address); /* xchg */
	case 6:
		return ABSOLUTE(e, "\xf0\x48\x0f\xb1", RDX, address); /* lock cmpxchg */
	case 7:
		return ABSOLUTE(e, "\xf0\xfe", 0, address); /* lock inc */
	default:
		return ABSOLUTE(e, "\x0f\x28", 1, address); /* movaps */
	}
}

static void string(struct emitter *e)
{
	mov_reg(e, RSI, any_address(e));
	mov_reg(e, RDI, any_address(e));
	mov_reg(e, RCX, below(e, 40));
	if (rng_one_in(e->r, 2))
		CODE(e, "\xf3\xa4");
	else
		CODE(e, "\xf3\x48\xab");
}

static void smap(struct emitter *e)
{
	for (u32 n = 1 + below(e, 3); n; n--) {
		if (rng_one_in(e->r, 2))
			CODE(e, "\x0f\x01\xcb"); /* stac */
		else
			CODE(e, "\x0f\x01\xca"); /* clac */
		access_page(e);
	}
}

static void execute_page(struct emitter *e)
{
	mov_reg(e, RDX, KERNEL_PAGE(below(e, KPAGES)) + KERNEL_PAGE_CODE + below(e, 16));
	CODE(e, "\xff\xe2");
}

static void toggle(struct emitter *e, u8 cr, u8 bit)
{
	const u8 insns[] = { 0x0f, 0x20, (u8)(0xc0 | cr << 3), /* mov %cr, %rax */
			     0x48, 0x0f, 0xba,
			     0xf8, bit, /* btc */
			     0x0f, 0x22, (u8)(0xc0 | cr << 3) };

	bytes(e, insns, sizeof(insns));
}

static void write_cr0(struct emitter *e)
{
	static const u8 bits[] = { 16, 16, 16, 3, 1, 18, 2, 5, 29 };

	toggle(e, 0, bits[below(e, sizeof(bits))]);
	if (rng_one_in(e->r, 3))
		CODE(e, "\x0f\x06"); /* clts */
	access_page(e);
}

static void write_cr4(struct emitter *e)
{
	static const u8 bits[] = { 21, 21, 20, 20, 17, 17, 7, 7, 16, 2, 8, 11, 12, 9, 5 };

	toggle(e, 4, bits[below(e, sizeof(bits))]);
	access_page(e);
}

static void write_cr3(struct emitter *e)
{
	u64 cr3 = kernel_cr3(e->la57, below(e, KERNEL_TABLES));

	if (rng_one_in(e->r, 2))
		cr3 |= below(e, 4); /* a PCID; else caching bits, which change nothing */
	if (rng_one_in(e->r, 3))
		cr3 |= BIT(63);
	if (rng_one_in(e->r, 20))
		cr3 |= BIT(55); /* reserved */
	mov_reg(e, RAX, cr3);
	CODE(e, "\x0f\x22\xd8");
	ABSOLUTE(e, "\x48\x8b", RCX, KERNEL_PAGE(KPAGE_ALIAS));
	ABSOLUTE(e, "\x48\xff", 0, KERNEL_PAGE(KPAGE_ALIAS)); /* inc */
}

static void invalidate(struct emitter *e)
{
	u32 address = any_address(e);

	if (rng_one_in(e->r, 2)) {
		ABSOLUTE(e, "\x0f\x01", 7, address); /* invlpg */
		return;
	}
	mov_reg(e, RAX, below(e, 5)); /* the last type does not exist */
	mov_reg(e, RDX, below(e, 4) | (rng_one_in(e->r, 10) ? BIT(20) : 0));
	ABSOLUTE(e, "\x48\x89", RDX, KERNEL_OPERANDS + 64);
	mov_reg(e, RDX, address);
	ABSOLUTE(e, "\x48\x89", RDX, KERNEL_OPERANDS + 72);
	ABSOLUTE(e, "\x66\x0f\x38\x82", RAX, KERNEL_OPERANDS + 64);
}

/* In the first tables. All that is cached is dropped by CR4.PGE, twice, so that the outcome is
 * defined. */
static void change_pte(struct emitter *e)
{
	static const u64 bits[] = { PTE_W, PTE_U, PTE_NX, PTE_P, PTE_G, PTE_A, PTE_D };
	u32 page = KERNEL_PAGE(below(e, KPAGES)), pte = IMAGE_PT + (page >> PAGE_SHIFT) * 8;

	mov_reg(e, RAX, bits[below(e, ARRAY_SIZE(bits))]);
	ABSOLUTE(e, "\x48\x31", RAX, pte);
	toggle(e, 4, 7);
	toggle(e, 4, 7);
	access_page(e);
}

static void tables(struct emitter *e)
{
	switch (below(e, 8)) {
	case 0:
		return ABSOLUTE(e, "\x0f\x01", 2, KERNEL_OPERANDS); /* lgdt */
	case 1:
		return ABSOLUTE(e, "\x0f\x01", 3, KERNEL_OPERANDS + 16); /* lidt */
	case 2:
		return ABSOLUTE(e, "\x0f\x01", below(e, 2), any_address(e)); /* sgdt, sidt */
	case 3: /* an available TSS, then LTR; without the first #GP */
		if (rng_one_in(e->r, 2))
			ABSOLUTE(e, "\x80", 4, IMAGE_GDT + IMAGE_TR + 5), CODE(e, "\xfd");
		mov_reg(e, RAX, IMAGE_TR);
		return CODE(e, "\x0f\x00\xd8");
	case 4:
		mov_reg(e, RAX, below(e, 0x48));
		return CODE(e, "\x0f\x00\xd0"); /* lldt */
	case 5:
		CODE(e, "\x0f\x00\xc9\x0f\x01\xe2"); /* str ecx; smsw edx */
		return CODE(e, "\x0f\x00\xc6");	     /* sldt esi */
	case 6:
		mov_reg(e, RAX, below(e, 0x48));
		CODE(e, "\x0f\x02\xc8\x0f\x03\xd0"); /* lar ecx, eax; lsl edx, eax */
		return CODE(e, "\x0f\x00\xe0");	     /* verr */
	default:
		return ABSOLUTE(e, "\x0f\x01", 6, any_address(e)); /* lmsw */
	}
}

static void segments(struct emitter *e)
{
	static const u8 movs[] = { 0xd8, 0xc0, 0xe0, 0xe8, 0xd0 }; /* ds, es, fs, gs, ss */
	const u8 insn[] = { 0x8e, movs[below(e, sizeof(movs))] };

	mov_reg(e, RAX, below(e, 0x40));
	bytes(e, insn, 2);
	if (rng_one_in(e->r, 2))
		CODE(e, "\x0f\x01\xf8"); /* swapgs */
	if (rng_one_in(e->r, 2))
		CODE(e, "\xf3\x48\x0f\xae\xd9"); /* wrgsbase rcx */
	CODE(e, "\xf3\x48\x0f\xae\xc2");	 /* rdfsbase rdx */
}

static void msrs(struct emitter *e)
{
	static const u32 harmless[] = { 0x10a, 0x277, 0xc0000102, 0x3a, 0x12345 };

	mov_reg(e, RCX, harmless[below(e, ARRAY_SIZE(harmless))]);
	CODE(e, "\x0f\x30");
	CODE(e, "\x0f\x32");
}

static void debug_registers(struct emitter *e)
{
	static const u64 dr7[] = { 0x400, 0xd0402, 0x10402, 0xf0402, 0x2400, 0x0402 };

	mov_reg(e, RAX, any_address(e) & ~7u);
	CODE(e, "\x0f\x23\xc0"); /* dr0 */
	mov_reg(e, RAX, dr7[below(e, ARRAY_SIZE(dr7))]);
	CODE(e, "\x0f\x23\xf8"); /* dr7 */
	access_page(e);
	CODE(e, "\x0f\x21\xf1"); /* mov %dr6, %rcx */
}

static void interrupts(struct emitter *e)
{
	const u8 insn[] = { 0xcd, (u8)rng_next(e->r) };

	switch (below(e, 5)) {
	case 0:
		return bytes(e, insn, 2);
	case 1:
		return CODE(e, "\xcc");
	case 2:
		return CODE(e, "\x0f\x0b");
	case 3:
		return CODE(e, "\xfb\x90\xfa"); /* sti; nop; cli */
	default:
		return CODE(e, "\x0f\x05"); /* syscall */
	}
}

static void flags(struct emitter *e)
{
	static const u64 values[] = {
		0x40000, 0x100, 0x4000, 0x3000, 0x400, 0x200, 0x8d5, 0x200000
	};

	CODE(e, "\x9c\x58"); /* pushf; pop rax */
	mov_reg(e, RAX, values[below(e, ARRAY_SIZE(values))] | 2);
	CODE(e, "\x50\x9d"); /* push rax; popf */
	access_page(e);
}

/* To CPL 3, which comes back by a fault, SYSCALL or INT. */
static void to_user(struct emitter *e)
{
	u64 rip = KERNEL_USER_CODE + 32 * below(e, 4);

	if (rng_one_in(e->r, 2)) {
		mov_reg(e, RCX, rip);
		CODE(e, "\x41\xbb\x02\x00\x00\x00\xbc"); /* mov $2, %r11d; mov $stack, %esp */
		imm32(e, IMAGE_USER_STACK);
		CODE(e, "\x48\x0f\x07"); /* sysretq */
		return;
	}
	CODE(e, "\x6a\x23\x68"); /* SS, RSP, RFLAGS, CS, RIP */
	imm32(e, IMAGE_USER_STACK);
	CODE(e, "\x6a\x02\x6a");
	CODE(e, "\x2b\x68");
	imm32(e, rip);
	CODE(e, "\x48\xcf");
}

/* Far ways to the end of the item; the selector at times a wrong one. */
static void far_branch(struct emitter *e)
{
	u8 sel = rng_one_in(e->r, 4) ? below(e, 0x40) : IMAGE_CS;
	const u8 push_sel[] = { 0x6a, sel };

	if (rng_one_in(e->r, 2)) {
		bytes(e, push_sel, 2);
		CODE(e, "\x48\x8d\x05\x03\x00\x00\x00\x50\x48\xcb"); /* lea rax, end; push; lretq */
		return;
	}
	CODE(e, "\x6a\x10\x54\x48\x83\x04\x24\x08\x9c"); /* SS, RSP, RFLAGS */
	bytes(e, push_sel, 2);
	CODE(e, "\x48\x8d\x05\x03\x00\x00\x00\x50\x48\xcf");
}

static void vectors(struct emitter *e)
{
	switch (below(e, 4)) {
	case 0:
		return CODE(e, "\x0f\x58\xc1\xdb\xe3\xd9\xe8"); /* addps; fninit; fld1 */
	case 1:
		CODE(e, "\x31\xc9\x0f\x01\xd0"); /* xgetbv */
		mov_reg(e, RAX, below(e, 9));
		CODE(e, "\x31\xd2");
		return CODE(e, "\x0f\x01\xd1"); /* xsetbv */
	case 2:
		return CODE(e, "\xc5\xfc\x58\xc1"); /* vaddps */
	default:
		return ABSOLUTE(e, "\x0f\xae", 0, KERNEL_PAGE(below(e, KPAGES))); /* fxsave */
	}
}

/* Addresses that are canonical in 57 bits only, or not at all. */
static void far_address(struct emitter *e)
{
	mov_reg(e, RSI, BIT(46 + below(e, 12)) | (rng_one_in(e->r, 2) ? ~MASK(47, 0) : 0));
	CODE(e, "\x48\x8b\x06");
}

static const struct {
	const char *name;
	void (*emit)(struct emitter *e);
} templates[] = {
	{ "arithmetic", arithmetic },
	{ "access", access_page },
	{ "string", string },
	{ "smap", smap },
	{ "execute", execute_page },
	{ "cr0", write_cr0 },
	{ "cr4", write_cr4 },
	{ "cr3", write_cr3 },
	{ "invalidate", invalidate },
	{ "pte", change_pte },
	{ "tables", tables },
	{ "segments", segments },
	{ "msrs", msrs },
	{ "debug", debug_registers },
	{ "interrupts", interrupts },
	{ "flags", flags },
	{ "user", to_user },
	{ "far", far_branch },
	{ "vectors", vectors },
	{ "addresses", far_address },
};

static void generate_item(struct emitter *e)
{
	u32 i = below(e, ARRAY_SIZE(templates));

	e->item->n = 0;
	e->item->name = templates[i].name;
	templates[i].emit(e);
	if (rng_one_in(e->r, 2))
		arithmetic(e);
}

void kernel_generate(struct kernel_case *c, struct rng *r)
{
	static const retire_wanted counted[] = { 0, 0, COUNT_BRANCHES | COUNT_MEMORY, COUNT_CYCLES,
						 ~(retire_wanted)0 };
	struct emitter e = { .r = r };

	c->nitems = 1 + rng_below(r, KERNEL_ITEMS);
	c->rounds = 2 + rng_below(r, 5);
	c->la57 = rng_one_in(r, 3);
	c->cr4 = rng_next(r) & (CR4_SMAP | CR4_SMEP | CR4_PCIDE | CR4_UMIP);
	for (u32 i = 0; i < 16; i++)
		c->regs[i] = rng_value(r);
	c->counted = counted[rng_below(r, ARRAY_SIZE(counted))];
	e.la57 = c->la57;
	for (e.item = c->item; e.item < c->item + c->nitems; e.item++)
		generate_item(&e);
}

/* --- layout --- */

static u32 put(u8 *out, u32 n, const void *from, u32 size)
{
	memcpy(out + n, from, size);
	return n + size;
}

/* MOVQ of the address after the item to KERNEL_RESUME, then the item. */
static u32 lay_out(u8 *out, u32 n, const struct kernel_item *item)
{
	const u32 prologue = 12, resume = IMAGE_CODE + n + prologue + item->n, at = KERNEL_RESUME;

	n = put(out, n, "\x48\xc7\x04\x25", 4);
	n = put(out, n, &at, 4);
	n = put(out, n, &resume, 4);
	return put(out, n, item->bytes, item->n);
}

u32 kernel_assemble(const struct kernel_case *c, u8 *out)
{
	const u32 rounds = KERNEL_ROUNDS, stack = IMAGE_STACK;
	u32 n = put(out, 0, "\xbc", 1); /* mov $stack, %esp */
	s32 back;

	n = put(out, n, &stack, 4);
	for (u32 i = 0; i < c->nitems; i++)
		n = lay_out(out, n, &c->item[i]);
	n = put(out, n, "\xff\x0c\x25", 3); /* decl */
	n = put(out, n, &rounds, 4);
	back = -(s32)(n + 6);
	n = put(out, n, "\x0f\x85", 2);
	n = put(out, n, &back, 4);
	return put(out, n, "\xe6\xf4", 2); /* out %al, $IMAGE_DONE_PORT */
}
