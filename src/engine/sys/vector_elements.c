// SPDX-License-Identifier: MIT
/*
 * Vector instructions that touch memory element by element: gathers and masked moves (SDM 2C
 * VGATHER, VMASKMOV; SDM 2B MASKMOVDQU); those with an opmask are in avx512_gather.c and
 * emit_mask.c. Elements outside the mask touch nothing and never fault, but for MASKMOVDQU and
 * MASKMOVQ, whose whole operand is checked. They work on the image of the state in cpu->xsave. vCPU
 * thread; general registers only, after fpu_save().
 */
#include "base/bytes.h"
#include "engine/sys/fpu_image.h"
#include "engine/sys/priv.h"

#define ELEMENT_READ  (ACCESS_READ | ACCESS_UNALIGNED)
#define ELEMENT_WRITE (ACCESS_WRITE | ACCESS_UNALIGNED)

/* The most significant bit of an element is its mask. */
static bool selected(const u8 *mask, u32 i, u32 size)
{
	return mask[(i + 1) * size - 1] & 0x80;
}

struct gather {
	struct cpu *cpu;
	const struct insn *insn;
	u32 length, count, index_size, size; /* of a vector; elements; of each, in bytes */
	u8 index[VECTOR_MAX], to[VECTOR_MAX], mask[VECTOR_MAX];
};

static void gather_start(struct gather *g, struct cpu *cpu, const struct insn *insn)
{
	g->cpu = cpu;
	g->insn = insn;
	g->index_size = sys_vsib_index_size(insn);
	g->size = insn->ops[1].size;
	g->length = insn->vector;
	g->count = g->length / (g->size > g->index_size ? g->size : g->index_size);
	sys_vector_read(cpu, insn->ops[1].index, g->index);
	sys_vector_read(cpu, insn->ops[0].reg, g->to);
	sys_vector_read(cpu, insn->ops[2].reg, g->mask);
}

/* Those after the last one that is used become all ones or zero as well. */
static void gather_widen_mask(struct gather *g)
{
	for (u32 i = 0; i < g->length / g->size; i++)
		bytes_fill(g->mask + i * g->size, selected(g->mask, i, g->size) ? 0xff : 0,
			   g->size);
	bytes_fill(g->mask + g->length, 0, VECTOR_MAX - g->length);
}

static enum guest_fault gather_element(struct gather *g, u32 i)
{
	const struct operand *op = &g->insn->ops[1];
	u64 offset = sys_vsib_offset(g->cpu, g->insn, op, g->index + i * g->index_size);
	enum guest_fault fault;
	gva_t gva;

	fault = cpu_linear(g->cpu, op->seg, offset, g->size, ACCESS_READ, &gva);
	return fault ? fault : cpu_read(g->cpu, gva, g->to + i * g->size, g->size, ELEMENT_READ);
}

static enum guest_fault gather_elements(struct gather *g)
{
	bool widens = cpu_follows(g->cpu, RULE_GATHER_WIDENS_MASK);

	if (widens)
		gather_widen_mask(g);
	for (u32 i = 0; i < g->count; i++) {
		if (selected(g->mask, i, g->size)) {
			enum guest_fault fault = gather_element(g, i);

			if (fault)
				return fault;
			if (widens)
				bytes_fill(g->to + g->length, 0, VECTOR_MAX - g->length);
		}
		bytes_fill(g->mask + i * g->size, 0, g->size);
	}
	bytes_fill(g->to + g->count * g->size, 0, VECTOR_MAX - g->count * g->size);
	bytes_fill(g->mask + g->count * g->size, 0, VECTOR_MAX - g->count * g->size);
	return FAULT_NONE;
}

/* A fault leaves what was gathered before it, and only the rest in the mask. An exit leaves
 * nothing: the instruction starts again, with the answers to its earlier reads. */
enum sys_result sys_gather(struct cpu *cpu, const struct insn *insn)
{
	enum guest_fault fault;
	struct gather g;

	if (insn->evex)
		return sys_gather_masked(cpu, insn);
	sys_fpu_image(cpu);
	gather_start(&g, cpu, insn);
	fault = gather_elements(&g);
	if (fault == FAULT_EXIT)
		return SYS_EXIT;
	sys_vector_write(cpu, insn->ops[0].reg, g.to);
	sys_vector_write(cpu, insn->ops[2].reg, g.mask);
	return sys_done(fault);
}

/* A masked move of `count` elements at an offset in a segment. */
struct masked {
	struct cpu *cpu;
	enum seg seg;
	u64 offset, wrap;
	u32 count, size;
	const u8 *mask;
};

static enum guest_fault element_address(const struct masked *m, u32 i, u32 access, gva_t *gva)
{
	u64 offset = m->offset + i * m->size;

	if (!cpu_follows(m->cpu, RULE_VMASKMOV_AS_ONE))
		offset &= m->wrap;
	return cpu_linear(m->cpu, m->seg, offset, m->size, access, gva);
}

/* From the first to the last selected element, as one access; *size is 0 without any. */
static enum guest_fault span_address(const struct masked *m, u32 access, gva_t *gva, u32 *size)
{
	u32 first = 0, end = m->count;

	while (first < end && !selected(m->mask, first, m->size))
		first++;
	while (end > first && !selected(m->mask, end - 1, m->size))
		end--;
	*size = (end - first) * m->size;
	if (!*size)
		return FAULT_NONE;
	return cpu_linear(m->cpu, m->seg, m->offset + first * m->size, *size, access, gva);
}

static enum guest_fault masked_load(const struct masked *m, u8 *to)
{
	enum guest_fault fault = FAULT_NONE;
	gva_t gva;
	u32 size;

	if (cpu_follows(m->cpu, RULE_VMASKMOV_AS_ONE))
		fault = span_address(m, ACCESS_READ, &gva, &size);
	for (u32 i = 0; !fault && i < m->count; i++) {
		if (!selected(m->mask, i, m->size))
			continue;
		fault = element_address(m, i, ACCESS_READ, &gva);
		if (!fault)
			fault = cpu_read(m->cpu, gva, to + i * m->size, m->size, ELEMENT_READ);
	}
	return fault;
}

static enum guest_fault masked_store(const struct masked *m, const u8 *from, bool probe)
{
	enum guest_fault fault = FAULT_NONE;
	gva_t gva;

	for (u32 i = 0; !fault && i < m->count; i++) {
		if (!selected(m->mask, i, m->size))
			continue;
		fault = element_address(m, i, ACCESS_WRITE, &gva);
		if (!fault && probe)
			fault = sys_probe(m->cpu, gva, m->size, ACCESS_WRITE);
		else if (!fault)
			fault = cpu_write(m->cpu, gva, from + i * m->size, m->size, ELEMENT_WRITE);
	}
	return fault;
}

/* Of a second page it is the last byte that is looked for. */
static enum guest_fault probe_span(const struct masked *m)
{
	struct translation where;
	gva_t gva, last;
	u32 size;
	enum guest_fault fault = span_address(m, ACCESS_WRITE, &gva, &size);

	if (fault || !size)
		return fault;
	last = cpu_wrap(m->cpu, gva + size - 1);
	fault = mmu_translate(m->cpu, gva, ACCESS_WRITE, &where);
	if (fault || (gva ^ last) < PAGE_SIZE)
		return fault;
	return mmu_translate(m->cpu, last, ACCESS_WRITE, &where);
}

/* All selected elements are found writable before the first is written. */
static enum guest_fault masked_store_all(const struct masked *m, const u8 *from)
{
	enum guest_fault fault = cpu_follows(m->cpu, RULE_VMASKMOV_AS_ONE)
					 ? probe_span(m)
					 : masked_store(m, from, true);

	return fault ? fault : masked_store(m, from, false);
}

static enum sys_result maskmov(struct cpu *cpu, const struct insn *insn, u32 size)
{
	bool is_store = insn->ops[0].kind == OPERAND_MEM;
	const struct operand *memory = &insn->ops[is_store ? 0 : 2];
	const struct operand *vector = &insn->ops[is_store ? 2 : 0];
	u8 mask[VECTOR_MAX], data[VECTOR_MAX];
	struct masked m = { cpu,
			    memory->seg,
			    sys_offset(cpu, insn, memory),
			    sys_mask(insn->addrsize),
			    vector->size / size,
			    size,
			    mask };
	enum guest_fault fault;

	sys_fpu_image(cpu);
	sys_vector_read(cpu, insn->ops[1].reg, mask);
	if (is_store) {
		sys_vector_read(cpu, vector->reg, data);
		return sys_done(masked_store_all(&m, data));
	}
	bytes_fill(data, 0, sizeof(data));
	fault = masked_load(&m, data);
	if (!fault)
		sys_vector_write(cpu, vector->reg, data);
	return sys_done(fault);
}

enum sys_result sys_maskmov32(struct cpu *cpu, const struct insn *insn)
{
	return maskmov(cpu, insn, 4);
}

enum sys_result sys_maskmov64(struct cpu *cpu, const struct insn *insn)
{
	return maskmov(cpu, insn, 8);
}

#define MASKED_PIECE 8

static enum guest_fault check_bytes(const struct masked *m, u32 first, u32 size)
{
	u64 offset = (m->offset + first) & m->wrap;
	enum guest_fault fault;
	gva_t gva;

	fault = cpu_linear(m->cpu, m->seg, offset, size, ACCESS_WRITE, &gva);
	if (!fault && cpu_misaligned(m->cpu, gva, MASKED_PIECE))
		fault = cpu_raise_error(m->cpu, VEC_AC, 0);
	return fault ? fault : sys_probe(m->cpu, gva, size, ACCESS_WRITE);
}

/* The whole operand, which is stored in pieces, is checked whatever the mask. */
static enum guest_fault check_operand(const struct masked *m)
{
	enum guest_fault fault = FAULT_NONE;

	if (!cpu_follows(m->cpu, RULE_MASKMOV_HALVES))
		return check_bytes(m, 0, m->count);
	for (u32 end = m->count; end && !fault; end -= MASKED_PIECE)
		fault = check_bytes(m, end - MASKED_PIECE, MASKED_PIECE);
	return fault;
}

/* MASKMOVDQU, MASKMOVQ: bytes of the first operand to [rDI], as the second one selects. */
static enum sys_result store_bytes(struct cpu *cpu, const struct insn *insn, const u8 *data,
				   const u8 *mask, u32 count)
{
	struct masked m = {
		cpu, insn->seg, sys_reg(cpu, RDI, insn->addrsize), sys_mask(insn->addrsize), count,
		1,   mask
	};
	enum guest_fault fault = check_operand(&m);

	return sys_done(fault ? fault : masked_store_all(&m, data));
}

enum sys_result sys_maskmov_bytes(struct cpu *cpu, const struct insn *insn)
{
	u8 data[VECTOR_MAX], mask[VECTOR_MAX];

	sys_fpu_image(cpu);
	sys_vector_read(cpu, insn->ops[0].reg, data);
	sys_vector_read(cpu, insn->ops[1].reg, mask);
	return store_bytes(cpu, insn, data, mask, 16);
}

/* An MMX instruction sets TOP to 0 and all tags to valid (SDM 1 9.5.1). */
static void enter_mmx(struct cpu *cpu)
{
	sys_x87_set_top(cpu, 0);
	cpu->xsave[XSAVE_FTW] = 0xff;
}

/* Even a fault leaves the x87's registers to MMX: so both vendors. */
enum sys_result sys_maskmov_mmx(struct cpu *cpu, const struct insn *insn)
{
	const u8 *mmx = cpu->xsave + XSAVE_ST0;

	sys_fpu_image(cpu);
	if (*sys_x87_fsw(cpu) & FSW_ES)
		return sys_raise(cpu, VEC_MF);
	enter_mmx(cpu);
	return store_bytes(cpu, insn, mmx + 16 * insn->ops[0].reg, mmx + 16 * insn->ops[1].reg, 8);
}
