// SPDX-License-Identifier: MIT
/*
 * Gathers and scatters of AVX-512 (SDM 2C VPGATHERDD, VPSCATTERDD). Elements are accessed one by
 * one from the lowest, and the bit of each in the opmask register is cleared when it is done: a
 * fault leaves what came before it done, and the rest in the mask. A scatter pauses after each
 * element that goes to a device. They work on the image of the state in cpu->xsave. vCPU thread;
 * general registers only, after fpu_save().
 */
#include "base/bytes.h"
#include "engine/insn_table.h"
#include "engine/sys/fpu_image.h"
#include "engine/sys/priv.h"

#define ELEMENT_READ  (ACCESS_READ | ACCESS_UNALIGNED)
#define ELEMENT_WRITE (ACCESS_WRITE | ACCESS_UNALIGNED)

struct vsib {
	struct cpu *cpu;
	const struct insn *insn;
	const struct operand *memory;
	u32 vector;		     /* the register that is loaded or stored */
	u32 count, index_size, size; /* elements; of each, in bytes */
	u64 mask;		     /* elements that are left */
	u64 unused; /* bits of the opmask register beyond these: they go with the last element */
	u8 index[VECTOR_MAX], data[VECTOR_MAX];
};

u32 sys_vsib_index_size(const struct insn *insn)
{
	return insn_facts(insn)->index_size;
}

u64 sys_vsib_offset(const struct cpu *cpu, const struct insn *insn, const struct operand *op,
		    const u8 *index)
{
	u64 value = sys_vsib_index_size(insn) == 4 ? (u64)(s64) * (const s32_unaligned *)index
						   : *(const u64_unaligned *)index;

	return (sys_offset(cpu, insn, op) + value * op->scale) & sys_mask(insn->addrsize);
}

static void vsib_start(struct vsib *v, struct cpu *cpu, const struct insn *insn, u32 memory)
{
	u32 larger;

	v->cpu = cpu;
	v->insn = insn;
	v->memory = &insn->ops[memory];
	v->vector = insn->ops[!memory].reg;
	v->index_size = sys_vsib_index_size(insn);
	v->size = v->memory->size;
	larger = v->size > v->index_size ? v->size : v->index_size;
	v->count = insn->vector / larger;
	v->unused = sys_opmask_read(cpu, insn->mask);
	v->mask = v->unused & (BIT(v->count) - 1);
	v->unused -= v->mask;
	sys_vector_read(cpu, v->memory->index, v->index);
	sys_vector_read(cpu, v->vector, v->data);
}

static enum guest_fault vsib_element(struct vsib *v, u32 i, bool store)
{
	u64 offset = sys_vsib_offset(v->cpu, v->insn, v->memory, v->index + i * v->index_size);
	u8 *element = v->data + i * v->size;
	enum guest_fault fault;
	gva_t gva;

	fault = cpu_linear(v->cpu, v->memory->seg, offset, v->size,
			   store ? ACCESS_WRITE : ACCESS_READ, &gva);
	if (fault)
		return fault;
	return store ? cpu_write(v->cpu, gva, element, v->size, ELEMENT_WRITE)
		     : cpu_read(v->cpu, gva, element, v->size, ELEMENT_READ);
}

/* complete: nothing is left to be done. */
static void vsib_end(struct vsib *v, bool complete)
{
	sys_opmask_write(v->cpu, v->insn->mask, complete ? 0 : v->mask | v->unused);
}

static bool device_waits(const struct cpu *cpu)
{
	return cpu->port.mmio.nwrites != cpu->port.mmio.write_pos;
}

/* Up to a fault, the end, or an element that went to a device: it must leave before the next one
 * can fault. */
static enum guest_fault vsib_elements(struct vsib *v, bool store)
{
	enum guest_fault fault = FAULT_NONE;

	while (v->mask && !fault && !device_waits(v->cpu)) {
		fault = vsib_element(v, __builtin_ctzll(v->mask), store);
		if (!fault)
			v->mask &= v->mask - 1;
	}
	return fault;
}

/* An exit leaves nothing: the instruction starts again, with the answers to its earlier reads. */
enum sys_result sys_gather_masked(struct cpu *cpu, const struct insn *insn)
{
	enum guest_fault fault;
	struct vsib v;
	u64 mask;

	sys_fpu_image(cpu);
	vsib_start(&v, cpu, insn, 1);
	mask = v.mask;
	fault = vsib_elements(&v, false);
	if (fault == FAULT_EXIT)
		return SYS_EXIT;
	if (fault == FAULT_NONE)
		bytes_fill(v.data + v.count * v.size, 0, VECTOR_MAX - v.count * v.size);
	else if (v.mask != mask && cpu_follows(cpu, RULE_GATHER_WIDENS_MASK))
		bytes_fill(v.data + insn->vector, 0, VECTOR_MAX - insn->vector);
	sys_vector_write(cpu, v.vector, v.data);
	vsib_end(&v, !fault);
	return sys_done(fault);
}

/*
 * What is left in the mask comes when the device has what was written to it. Traps of elements that
 * are done are taken before it, and whatever is delivered now pushes RF (SDM 2C VPSCATTERDD). It is
 * no end of an instruction: no single step.
 */
static enum sys_result scatter_pauses(struct cpu *cpu)
{
	u32 traps = cpu->pending_db;

	cpu->rflags |= FL_RF;
	cpu->pending_db = 0;
	if (traps)
		cpu_raise_db(cpu, traps);
	return SYS_AGAIN;
}

enum sys_result sys_scatter(struct cpu *cpu, const struct insn *insn)
{
	enum guest_fault fault;
	struct vsib v;

	sys_fpu_image(cpu);
	vsib_start(&v, cpu, insn, 0);
	fault = vsib_elements(&v, true);
	if (fault == FAULT_EXIT)
		return SYS_EXIT;
	vsib_end(&v, !fault && !v.mask);
	return !fault && v.mask ? scatter_pauses(cpu) : sys_done(fault);
}
