// SPDX-License-Identifier: MIT
/*
 * Ports (SDM 1 18; SDM 2A IN, INS, OUT, OUTS): permission by IOPL or by the bitmap in the TSS, then
 * the protocol of struct cpu_io. The string forms ask for as many elements at once as fit the
 * request and the page (KVM: the same batches). vCPU thread; general registers only.
 */
#include "base/bytes.h"
#include "cpu/control.h"
#include "engine/sys/priv.h"

#define TSS_IO_MAP  0x66
#define TSS_TYPE_32 0x9 /* bit 1 on top of it: busy */

static bool free_access(const struct cpu *cpu)
{
	if (!(cpu->cr0 & CR0_PE))
		return true;
	return !sys_virtual_8086(cpu) && cpu->cpl <= sys_iopl(cpu);
}

static bool tss_has_map(const struct cpu *cpu)
{
	u32 type = cpu->tr.attr & SEG_TYPE & ~2u;

	return !(cpu->tr.attr & SEG_UNUSABLE) && type == TSS_TYPE_32 &&
	       cpu->tr.limit >= TSS_IO_MAP + 1;
}

/* Two bytes of the map are always read, so that every size and alignment fits (SDM 1 18.5.2). */
static enum guest_fault check_map(struct cpu *cpu, u16 port, u32 size)
{
	u16 map, bits;
	u32 at;
	enum guest_fault fault;

	if (!tss_has_map(cpu))
		return sys_gp(cpu);
	fault = cpu_read(cpu, cpu->tr.base + TSS_IO_MAP, &map, 2, ACCESS_SYSTEM);
	if (fault)
		return fault;
	at = map + port / 8;
	if (at + 1 > cpu->tr.limit)
		return sys_gp(cpu);
	fault = cpu_read(cpu, cpu->tr.base + at, &bits, 2, ACCESS_SYSTEM);
	if (fault)
		return fault;
	return bits >> (port & 7) & (BIT(size) - 1) ? sys_gp(cpu) : FAULT_NONE;
}

static enum guest_fault check_port(struct cpu *cpu, u16 port, u32 size)
{
	return free_access(cpu) ? FAULT_NONE : check_map(cpu, port, size);
}

/* The answer to what this very instruction asked before, used up by looking. KVM: the program may
 * have changed DX meanwhile (QEMU's vmport). */
static bool answered(struct cpu *cpu, bool in, u32 size)
{
	struct cpu_io *io = &cpu->port.io;
	bool done = io->state == IO_DONE && io->rip == cpu->rip && io->in == in && io->size == size;

	io->state = IO_IDLE;
	return done;
}

static enum sys_result ask(struct cpu *cpu, bool in, u16 port, u32 size, u32 count)
{
	struct cpu_io *io = &cpu->port.io;

	io->state = IO_WANTED;
	io->in = in;
	io->port = port;
	io->size = size;
	io->count = count;
	io->rip = cpu->rip;
	return sys_exit(cpu, EXIT_IO);
}

static u16 port_of(struct cpu *cpu, const struct operand *op)
{
	return op->kind == OPERAND_IMM ? (u16)op->imm : (u16)cpu->regs[RDX];
}

enum sys_result sys_in(struct cpu *cpu, const struct insn *insn)
{
	u16 port = port_of(cpu, &insn->ops[1]);
	u32 size = insn->ops[0].size;
	enum guest_fault fault;
	u64 value = 0;

	if (answered(cpu, true, size)) {
		bytes_copy(&value, cpu->port.io.data, size);
		sys_set_reg(cpu, RAX, size, value);
		cpu_watch_io(cpu, cpu->port.io.port, size);
		return SYS_NEXT;
	}
	fault = check_port(cpu, port, size);
	return fault ? sys_done(fault) : ask(cpu, true, port, size, 1);
}

enum sys_result sys_out(struct cpu *cpu, const struct insn *insn)
{
	u16 port = port_of(cpu, &insn->ops[0]);
	u32 size = insn->ops[1].size;
	enum guest_fault fault;

	if (answered(cpu, false, size)) {
		cpu_watch_io(cpu, cpu->port.io.port, size);
		return SYS_NEXT;
	}
	fault = check_port(cpu, port, size);
	if (fault)
		return sys_done(fault);
	bytes_copy(cpu->port.io.data, &cpu->regs[RAX], size);
	return ask(cpu, false, port, size, 1);
}

/* INS and OUTS. */
struct transfer {
	struct cpu *cpu;
	const struct insn *insn;
	bool in;
	enum seg seg;
	enum gpr pointer;
	u32 size;
	u16 port;
};

static struct transfer transfer_of(struct cpu *cpu, const struct insn *insn, bool in)
{
	bool bytes = !(insn->bytes[insn->len - 1] & 1);
	u32 size = bytes ? 1 : insn->opsize == 2 ? 2 : 4;

	return (struct transfer){
		cpu, insn, in, in ? ES : insn->seg, in ? RDI : RSI, size, (u16)cpu->regs[RDX]
	};
}

static bool repeats(const struct transfer *t)
{
	return t->insn->prefixes & (PREFIX_REP | PREFIX_REPNE);
}

static u64 elements_left(const struct transfer *t)
{
	return repeats(t) ? sys_reg(t->cpu, RCX, t->insn->addrsize) : 1;
}

/* May a trap follow an element? */
static bool traps(const struct cpu *cpu)
{
	bool port_breakpoints = (cpu->cr4 & CR4_DE) && (cpu_dr7(cpu) & DR7_ENABLE);

	return sys_steps(cpu) || cpu_priv(cpu)->watch_active || port_breakpoints;
}

/* How many elements go into one request: what is left of the page, backwards if need be. */
static u32 batch(const struct transfer *t, gva_t gva)
{
	u32 before = (gva & ~PAGE_MASK) + t->size;
	u32 room = t->cpu->rflags & FL_DF ? before : PAGE_SIZE - (gva & ~PAGE_MASK);
	u64 left = elements_left(t);

	if (traps(t->cpu))
		return 1;
	if (room > IO_DATA_MAX)
		room = IO_DATA_MAX;
	room = room / t->size ? room / t->size : 1;
	return left < room ? left : room;
}

static void advance(const struct transfer *t)
{
	u64 step = t->cpu->rflags & FL_DF ? -(u64)t->size : t->size;
	u32 width = t->insn->addrsize;

	sys_set_reg(t->cpu, t->pointer, width, t->cpu->regs[t->pointer] + step);
	if (repeats(t))
		sys_set_reg(t->cpu, RCX, width, t->cpu->regs[RCX] - 1);
}

static enum guest_fault element_address(const struct transfer *t, u32 access, gva_t *gva)
{
	u64 offset = sys_reg(t->cpu, t->pointer, t->insn->addrsize);

	return cpu_linear(t->cpu, t->seg, offset, t->size, access, gva);
}

/*
 * Uses up an answer, as far as the count register goes (the program may have changed it). Data that
 * meets a fault on its way to memory is lost: the page was writable when it was asked for.
 */
static enum sys_result take(const struct transfer *t)
{
	const u8 *data = t->cpu->port.io.data;
	enum guest_fault fault = FAULT_NONE;
	gva_t gva;

	for (u32 i = 0; !fault && i < t->cpu->port.io.count && elements_left(t); i++) {
		if (t->in) {
			fault = element_address(t, ACCESS_WRITE, &gva);
			if (!fault)
				fault = cpu_write(t->cpu, gva, data + i * t->size, t->size,
						  ACCESS_WRITE);
		}
		if (!fault)
			advance(t);
		if (!repeats(t))
			break;
	}
	if (fault)
		return sys_done(fault);
	cpu_watch_io(t->cpu, t->port, t->size);
	return repeats(t) && elements_left(t) ? sys_between_iterations(t->cpu) : SYS_NEXT;
}

/* Collects what OUTS sends; after the first element a fault only ends the batch. */
static enum guest_fault collect(const struct transfer *t, u32 *count)
{
	struct cpu *cpu = t->cpu;
	u64 pointer = cpu->regs[t->pointer], left = cpu->regs[RCX];
	enum guest_fault fault;
	gva_t gva;
	u32 i;

	fault = element_address(t, ACCESS_READ, &gva);
	if (fault)
		return fault;
	*count = batch(t, gva);
	for (i = 0; !fault && i < *count; i++) {
		fault = element_address(t, ACCESS_READ, &gva);
		if (!fault)
			fault = cpu_read(cpu, gva, cpu->port.io.data + i * t->size, t->size,
					 ACCESS_READ);
		if (!fault)
			advance(t);
	}
	cpu->regs[t->pointer] = pointer;
	cpu->regs[RCX] = left;
	if (!fault || i == 1)
		return fault;
	cpu->port.event.kind = EVENT_NONE;
	*count = i - 1;
	return FAULT_NONE;
}

/* What INS asks for it must be able to store: writable memory, or one element for a device. */
static enum guest_fault prepare(const struct transfer *t, u32 *count)
{
	struct translation where;
	enum guest_fault fault;
	gva_t gva;

	fault = element_address(t, ACCESS_WRITE, &gva);
	if (!fault)
		fault = sys_probe(t->cpu, gva, t->size, ACCESS_WRITE);
	if (!fault)
		fault = mmu_translate(t->cpu, gva, ACCESS_WRITE, &where);
	if (fault)
		return fault;
	*count = where.host ? batch(t, gva) : 1;
	return FAULT_NONE;
}

static enum sys_result request(const struct transfer *t)
{
	enum guest_fault fault;
	u32 count;

	fault = t->in ? prepare(t, &count) : collect(t, &count);
	if (fault)
		return sys_done(fault);
	return ask(t->cpu, t->in, t->port, t->size, count);
}

/* The port must be allowed even if nothing is to be moved. */
static enum sys_result transfer(struct cpu *cpu, const struct insn *insn, bool in)
{
	struct transfer t = transfer_of(cpu, insn, in);
	enum guest_fault fault = check_port(cpu, t.port, t.size);

	if (fault)
		return sys_done(fault);
	if (!elements_left(&t))
		return SYS_NEXT;
	if (answered(cpu, in, t.size))
		return take(&t);
	return request(&t);
}

enum sys_result sys_ins(struct cpu *cpu, const struct insn *insn)
{
	return transfer(cpu, insn, true);
}

enum sys_result sys_outs(struct cpu *cpu, const struct insn *insn)
{
	return transfer(cpu, insn, false);
}
