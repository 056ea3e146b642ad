// SPDX-License-Identifier: MIT
/*
 * String instructions and XLAT (SDM 1 7.3.9; SDM 2B "REP"): an iteration at a time, each complete
 * before the next begins, so that a fault finds the registers at the iteration that met it. On RAM,
 * MOVS and STOS go page by page, SCAS and CMPS upwards in chunks. A long repetition pauses to let
 * interrupts in; its iterations are cpu->port.effort. vCPU thread; general registers only.
 */
#include "base/guarded.h"
#include "cpu/mmu/shared_code.h"
#include "cpu/observe.h"
#include "engine/sys/priv.h"

#define PAUSE_BYTES	  (64 * 1024) /* this much in one go */
#define COST_OF_ITERATION 64	      /* in bytes moved page-wise; about an instruction's */

struct string {
	struct cpu *cpu;
	const struct insn *insn;
	u32 size; /* of an element */
};

typedef enum guest_fault iteration_fn(const struct string *s);
/* Does up to `count` iterations at once; *done may come out as 0. */
typedef enum guest_fault bulk_fn(const struct string *s, u64 count, u64 *done);

/* Bit 0 of a string opcode, the last byte, tells bytes from larger elements. */
static struct string string_of(struct cpu *cpu, const struct insn *insn)
{
	bool bytes = !(insn->bytes[insn->len - 1] & 1);

	return (struct string){ cpu, insn, bytes ? 1 : insn->opsize };
}

static u64 pointer(const struct string *s, enum gpr reg)
{
	return sys_reg(s->cpu, reg, s->insn->addrsize);
}

static bool downwards(const struct string *s)
{
	return s->cpu->rflags & FL_DF;
}

static void advance(const struct string *s, enum gpr reg, u64 count)
{
	u64 bytes = count * s->size;

	if (downwards(s))
		bytes = -bytes;
	sys_set_reg(s->cpu, reg, s->insn->addrsize, s->cpu->regs[reg] + bytes);
}

static enum guest_fault load(const struct string *s, enum seg seg, enum gpr reg, u64 *value)
{
	enum guest_fault fault;
	gva_t gva;

	*value = 0;
	fault = cpu_linear(s->cpu, seg, pointer(s, reg), s->size, ACCESS_READ, &gva);
	return fault ? fault : cpu_read(s->cpu, gva, value, s->size, ACCESS_READ);
}

static enum guest_fault store(const struct string *s, u64 value)
{
	enum guest_fault fault;
	gva_t gva;

	fault = cpu_linear(s->cpu, ES, pointer(s, RDI), s->size, ACCESS_WRITE, &gva);
	return fault ? fault : cpu_write(s->cpu, gva, &value, s->size, ACCESS_WRITE);
}

static enum guest_fault movs_once(const struct string *s)
{
	u64 value;
	enum guest_fault fault = load(s, s->insn->seg, RSI, &value);

	if (!fault)
		fault = store(s, value);
	if (fault)
		return fault;
	advance(s, RSI, 1);
	advance(s, RDI, 1);
	return FAULT_NONE;
}

static enum guest_fault stos_once(const struct string *s)
{
	enum guest_fault fault = store(s, s->cpu->regs[RAX]);

	if (!fault)
		advance(s, RDI, 1);
	return fault;
}

static enum guest_fault lods_once(const struct string *s)
{
	u64 value;
	enum guest_fault fault = load(s, s->insn->seg, RSI, &value);

	if (fault)
		return fault;
	sys_set_reg(s->cpu, RAX, s->size, value);
	advance(s, RSI, 1);
	return FAULT_NONE;
}

/* The flags of a - b. */
static void compare(struct cpu *cpu, u64 a, u64 b, u32 size)
{
	u64 sign = BIT(8 * size - 1), diff;

	a &= sys_mask(size);
	b &= sys_mask(size);
	diff = (a - b) & sys_mask(size);
	cpu->rflags &= ~FL_ARITH;
	sys_set_flag(cpu, FL_CF, a < b);
	sys_set_flag(cpu, FL_PF, !__builtin_parity((u8)diff));
	sys_set_flag(cpu, FL_AF, (a ^ b ^ diff) & 0x10);
	sys_set_flag(cpu, FL_ZF, !diff);
	sys_set_flag(cpu, FL_SF, diff & sign);
	sys_set_flag(cpu, FL_OF, (a ^ b) & (a ^ diff) & sign);
}

static enum guest_fault scas_once(const struct string *s)
{
	u64 value;
	enum guest_fault fault = load(s, ES, RDI, &value);

	if (fault)
		return fault;
	compare(s->cpu, s->cpu->regs[RAX], value, s->size);
	advance(s, RDI, 1);
	return FAULT_NONE;
}

/* Which operand of CMPS may fault first is the processor's choice. */
static bool source_first(const struct string *s)
{
	return s->size == 1 && (s->insn->prefixes & PREFIX_REP) &&
	       cpu_follows(s->cpu, RULE_REP_CMPSB_SOURCE_FIRST);
}

static enum guest_fault cmps_once(const struct string *s)
{
	u64 first, second;
	enum guest_fault fault = FAULT_NONE;

	if (source_first(s))
		fault = load(s, s->insn->seg, RSI, &first);
	if (!fault)
		fault = load(s, ES, RDI, &second);
	if (!fault && !source_first(s))
		fault = load(s, s->insn->seg, RSI, &first);
	if (fault)
		return fault;
	compare(s->cpu, first, second, s->size);
	advance(s, RSI, 1);
	advance(s, RDI, 1);
	return FAULT_NONE;
}

/* Elements from an offset to where the segment or the address size ends; 0: look closer. */
static u64 segment_room(const struct string *s, enum seg seg, u64 offset)
{
	const struct segment *segment = &s->cpu->seg[seg];
	u64 wrap = sys_mask(s->insn->addrsize) - offset, limit;

	if (!sys_code64(s->cpu) && (segment->attr & 0xc) == 4) /* expand-down data */
		return 0;
	if (downwards(s))
		return offset / s->size + 1;
	if (sys_code64(s->cpu))
		return wrap / s->size;
	limit = segment->limit - offset;
	return ((wrap < limit ? wrap : limit) + 1) / s->size;
}

/* Elements to the end of the page; 0: the first one crosses it. */
static u64 page_room(const struct string *s, gva_t gva)
{
	u64 at = gva & ~PAGE_MASK;

	if (at + s->size > PAGE_SIZE)
		return 0;
	return downwards(s) ? at / s->size + 1 : (PAGE_SIZE - at) / s->size;
}

/* Guest memory that can be accessed in place: where its first element is. */
struct window {
	hva_t host; /* NULL: it cannot */
	gva_t gva;
	gpa_t gpa;
	u8 shift; /* of the guest's page */
	bool global;
	bool noticed; /* writes must be noticed: dirty log, translated code or breakpoints */
	u64 count;    /* elements */
};

static enum guest_fault window_find(struct cpu *cpu, gva_t gva, u32 access, struct window *w)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	enum tlb_set set = cpu_tlb_set(priv->mode);
	u32 index = (gva >> PAGE_SHIFT) % TLB_SIZE;
	const struct tlb_entry *entry = &priv->tlb[set][index];
	struct translation where;
	enum guest_fault fault;

	w->noticed = (access & ACCESS_WRITE ? entry->write : entry->read) != (gva & PAGE_MASK);
	w->host = (hva_t)entry->host + (gva & ~PAGE_MASK);
	w->gva = gva;
	w->gpa = entry->gpa + (gva & ~PAGE_MASK);
	w->shift = priv->tlb_shift[set][index];
	w->global = tlb_global(cpu, set, index);
	if (!w->noticed)
		return FAULT_NONE;
	if ((access & ACCESS_WRITE) && tlb_writes_code(cpu, gva, access, &w->gpa, &w->host))
		return FAULT_NONE;
	fault = mmu_fill(cpu, gva, access, &where);
	if (fault)
		return fault;
	w->host = where.host;
	w->gpa = where.gpa;
	w->shift = where.shift;
	w->global = where.global;
	return FAULT_NONE;
}

/* The elements from where a pointer points to the end of its page, segment or address size. A fault
 * is that of the first element. */
static enum guest_fault window_open(const struct string *s, enum seg seg, enum gpr reg, u32 access,
				    u64 count, struct window *w)
{
	u64 offset = pointer(s, reg), room, on_page;
	enum guest_fault fault;
	gva_t gva;

	fault = cpu_linear(s->cpu, seg, offset, s->size, access, &gva);
	if (!fault)
		fault = window_find(s->cpu, gva, access, w);
	if (fault)
		return fault;
	room = segment_room(s, seg, offset);
	on_page = page_room(s, gva);
	if (room > on_page)
		room = on_page;
	w->count = !w->host ? 0 : count < room ? count : room;
	return FAULT_NONE;
}

/* The timing model sees the lines of a window one after the other. */
static void window_observe(const struct string *s, const struct window *w, u64 count, bool store)
{
	const struct translation where = {
		.gpa = w->gpa, .host = w->host, .shift = w->shift, .global = w->global
	};

	if (cpu_observes(s->cpu))
		cpu_observe_at(s->cpu, w->gva, &where, count * s->size,
			       store ? ACCESS_WRITE : ACCESS_READ);
}

/* How far the lowest of so many elements lies below the first. */
static u64 depth(const struct string *s, u64 count)
{
	return downwards(s) ? (count - 1) * s->size : 0;
}

static void window_written(const struct string *s, const struct window *w, u64 count)
{
	if (w->noticed)
		shared_written(s->cpu, w->gpa - depth(s, count), count * s->size);
}

/*
 * Overlapping moves to higher addresses repeat what they have written: as many elements are moved
 * at once as lie between source and destination. Downwards it is those to lower addresses, and
 * those to higher ones are not for a copy that goes upwards.
 */
static u64 movs_count(const struct string *s, const struct window *from, const struct window *to)
{
	u64 count = from->count < to->count ? from->count : to->count;
	bool higher = to->host > from->host;
	u64 distance = higher ? to->host - from->host : from->host - to->host;

	if ((higher || downwards(s)) && distance < count * s->size)
		count = distance / s->size;
	return count;
}

static enum guest_fault movs_bulk(const struct string *s, u64 count, u64 *done)
{
	struct window from, to;
	enum guest_fault fault = window_open(s, s->insn->seg, RSI, ACCESS_READ, count, &from);

	if (fault || !from.count)
		return fault;
	fault = window_open(s, ES, RDI, ACCESS_WRITE, from.count, &to);
	if (fault || !to.count)
		return fault;
	count = movs_count(s, &from, &to);
	if (!count ||
	    !guarded_read(to.host - depth(s, count), from.host - depth(s, count), count * s->size))
		return FAULT_NONE;
	window_observe(s, &from, count, false);
	window_observe(s, &to, count, true);
	window_written(s, &to, count);
	advance(s, RSI, count);
	advance(s, RDI, count);
	*done = count;
	return FAULT_NONE;
}

static u64 repeat_pattern(u64 value, u32 size)
{
	value &= sys_mask(size);
	for (u32 bits = 8 * size; bits < 64; bits *= 2)
		value |= value << bits;
	return value;
}

static enum guest_fault stos_bulk(const struct string *s, u64 count, u64 *done)
{
	u64 pattern = repeat_pattern(s->cpu->regs[RAX], s->size);
	struct window to;
	enum guest_fault fault = window_open(s, ES, RDI, ACCESS_WRITE, count, &to);

	if (fault || !to.count ||
	    !guarded_fill(to.host - depth(s, to.count), pattern, to.count * s->size))
		return fault;
	window_observe(s, &to, to.count, true);
	window_written(s, &to, to.count);
	advance(s, RDI, to.count);
	*done = to.count;
	return FAULT_NONE;
}

/*
 * Traps are taken (SDM 3B 17.3.1.4), and whatever is delivered now pushes RF (SDM 3B 17.3.1.1), on
 * some processors not the trap itself. An interrupt shadow ends with the first iteration: else MOV
 * SS and a long REP would keep interrupts out for seconds.
 */
enum sys_result sys_between_iterations(struct cpu *cpu)
{
	u32 traps = cpu->pending_db | (sys_steps(cpu) ? DR6_BS : 0);

	if (!traps || !cpu_follows(cpu, RULE_REP_STEP_CLEARS_RF))
		cpu->rflags |= FL_RF;
	cpu->shadow = 0;
	cpu->pending_db = 0;
	if (traps)
		cpu_raise_db(cpu, traps);
	return SYS_AGAIN;
}

#define CHUNK 128 /* bytes compared at once */

/* Elements copied from where a pointer points: memory may change, or go away. 0 of them: look
 * closer. */
static enum guest_fault chunk_read(const struct string *s, enum seg seg, enum gpr reg, u64 count,
				   u8 to[CHUNK + 8], u64 *n)
{
	u64 most = CHUNK / s->size;
	enum guest_fault fault;
	struct window from;

	*n = 0;
	if (cpu_observes(s->cpu) || downwards(s)) /* only what is compared is accessed */
		return FAULT_NONE;
	fault = window_open(s, seg, reg, ACCESS_READ, count < most ? count : most, &from);
	if (!fault && from.count && guarded_read(to, from.host, from.count * s->size))
		*n = from.count;
	return fault;
}

static u64 element(const struct string *s, const u8 *chunk, u64 i)
{
	return *(const bytes_word *)(chunk + i * s->size) & sys_mask(s->size);
}

/* Does a repetition end after elements that are equal, or that are not? */
static bool ends_at(const struct string *s, bool equal)
{
	return equal == !!(s->insn->prefixes & PREFIX_REPNE);
}

static enum guest_fault scas_bulk(const struct string *s, u64 count, u64 *done)
{
	u64 key = sys_reg(s->cpu, RAX, s->size), n, i = 0;
	u8 chunk[CHUNK + 8];
	enum guest_fault fault = chunk_read(s, ES, RDI, count, chunk, &n);

	if (fault || !n)
		return fault;
	while (i < n - 1 && !ends_at(s, element(s, chunk, i) == key))
		i++;
	compare(s->cpu, key, element(s, chunk, i), s->size);
	advance(s, RDI, i + 1);
	*done = i + 1;
	return FAULT_NONE;
}

/* Both chunks, in the order in which their elements may fault. */
static enum guest_fault cmps_read(const struct string *s, u64 count, u8 *source, u8 *dest, u64 *n)
{
	bool first = source_first(s);
	enum guest_fault fault;

	fault = first ? chunk_read(s, s->insn->seg, RSI, count, source, n)
		      : chunk_read(s, ES, RDI, count, dest, n);
	if (fault || !*n)
		return fault;
	return first ? chunk_read(s, ES, RDI, *n, dest, n)
		     : chunk_read(s, s->insn->seg, RSI, *n, source, n);
}

static enum guest_fault cmps_bulk(const struct string *s, u64 count, u64 *done)
{
	u8 source[CHUNK + 8], dest[CHUNK + 8];
	u64 n, i = 0;
	enum guest_fault fault = cmps_read(s, count, source, dest, &n);

	if (fault || !n)
		return fault;
	while (i < n - 1 && !ends_at(s, element(s, source, i) == element(s, dest, i)))
		i++;
	compare(s->cpu, element(s, source, i), element(s, dest, i), s->size);
	advance(s, RSI, i + 1);
	advance(s, RDI, i + 1);
	*done = i + 1;
	return FAULT_NONE;
}

/* The timing model sees a window from its lowest line up. */
static bool bulk_possible(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);

	return !((cpu->rflags & FL_DF) && cpu_observes(cpu)) && !priv->watch_active &&
	       !sys_steps(cpu) && !(priv->mode & MODE_ALIGN);
}

struct string_op {
	iteration_fn *once;
	bulk_fn *bulk; /* or NULL */
	bool scan;     /* flags may end a repetition */
	u16 truncated; /* by a repetition, besides RCX: RULE_REP_TRUNCATES */
};

static enum guest_fault iterate(const struct string *s, const struct string_op *op, u64 count,
				u64 *done)
{
	enum guest_fault fault = FAULT_NONE;

	*done = 0;
	if (op->bulk && bulk_possible(s->cpu))
		fault = op->bulk(s, count, done);
	if (fault || *done)
		return fault;
	*done = 1;
	return op->once(s);
}

/* An iteration is complete: the answers it got from devices are used up. */
static u64 count_down(const struct string *s, u64 count, u64 done)
{
	s->cpu->port.mmio.nreads = s->cpu->port.mmio.read_pos = 0;
	sys_set_reg(s->cpu, RCX, s->insn->addrsize, count - done);
	return count - done;
}

static u64 cost(const struct string *s, u64 done)
{
	return done * s->size + COST_OF_ITERATION;
}

/* What goes to a device is delivered before anything can fault. */
static bool should_pause(const struct cpu *cpu, u64 spent)
{
	return cpu->port.mmio.nwrites != cpu->port.mmio.write_pos || sys_steps(cpu) ||
	       cpu->pending_db || spent >= PAUSE_BYTES || READ_ONCE(cpu->attention);
}

static enum sys_result iterations(const struct string *s, const struct string_op *op, u64 *spent)
{
	u64 count = pointer(s, RCX), done;

	while (count) {
		enum guest_fault fault = iterate(s, op, count, &done);

		if (fault)
			return sys_done(fault);
		count = count_down(s, count, done);
		*spent += cost(s, done);
		if (!count || (op->scan && ends_at(s, s->cpu->rflags & FL_ZF)))
			break;
		if (should_pause(s->cpu, *spent))
			return sys_between_iterations(s->cpu);
	}
	return SYS_NEXT;
}

/* However many iterations there are, one instruction retires, or none if it pauses: so they are
 * effort. */
static enum sys_result repeat(const struct string *s, const struct string_op *op)
{
	u64 spent = 0;
	enum sys_result result = iterations(s, op, &spent);

	s->cpu->port.effort += spent / COST_OF_ITERATION;
	return result;
}

/* Writing a register of 32 bits clears its upper half. */
static void truncate_registers(const struct string *s, u16 registers)
{
	for (u32 reg = RAX; registers >> reg; reg++)
		if (registers >> reg & 1)
			sys_set_reg(s->cpu, reg, s->insn->addrsize, s->cpu->regs[reg]);
}

static enum sys_result repeat_by_vendor(const struct string *s, const struct string_op *op)
{
	struct cpu *cpu = s->cpu;
	u64 flags = cpu->rflags & FL_ARITH;
	enum sys_result result;

	if (cpu_follows(cpu, RULE_REP_TRUNCATES))
		truncate_registers(s, op->truncated | BIT(RCX));
	result = repeat(s, op);
	if (result != SYS_NEXT && cpu_follows(cpu, RULE_REP_KEEPS_FLAGS))
		cpu->rflags = (cpu->rflags & ~(u64)FL_ARITH) | flags;
	return result;
}

static enum sys_result string_run(struct cpu *cpu, const struct insn *insn,
				  const struct string_op *op)
{
	struct string s = string_of(cpu, insn);

	if (insn->nops) /* MOVSD and CMPSD of SSE2 have the same names */
		return SYS_UNKNOWN;
	if (insn->prefixes & (PREFIX_REP | PREFIX_REPNE))
		return repeat_by_vendor(&s, op);
	return sys_done(op->once(&s));
}

enum sys_result sys_movs(struct cpu *cpu, const struct insn *insn)
{
	static const struct string_op op = { .once = movs_once,
					     .bulk = movs_bulk,
					     .truncated = BIT(RSI) | BIT(RDI) };

	return string_run(cpu, insn, &op);
}

enum sys_result sys_stos(struct cpu *cpu, const struct insn *insn)
{
	static const struct string_op op = { .once = stos_once,
					     .bulk = stos_bulk,
					     .truncated = BIT(RDI) };

	return string_run(cpu, insn, &op);
}

enum sys_result sys_lods(struct cpu *cpu, const struct insn *insn)
{
	static const struct string_op op = { .once = lods_once };

	return string_run(cpu, insn, &op);
}

enum sys_result sys_scas(struct cpu *cpu, const struct insn *insn)
{
	static const struct string_op op = { .once = scas_once, .bulk = scas_bulk, .scan = true };

	return string_run(cpu, insn, &op);
}

enum sys_result sys_cmps(struct cpu *cpu, const struct insn *insn)
{
	static const struct string_op op = { .once = cmps_once, .bulk = cmps_bulk, .scan = true };

	return string_run(cpu, insn, &op);
}

/* AL = [rBX + AL] */
enum sys_result sys_xlat(struct cpu *cpu, const struct insn *insn)
{
	u64 offset = (cpu->regs[RBX] + (u8)cpu->regs[RAX]) & sys_mask(insn->addrsize);
	enum guest_fault fault;
	gva_t gva;
	u8 value;

	fault = cpu_linear(cpu, insn->seg, offset, 1, ACCESS_READ, &gva);
	if (!fault)
		fault = cpu_read(cpu, gva, &value, 1, ACCESS_READ);
	if (!fault)
		sys_set_reg(cpu, RAX, 1, value);
	return sys_done(fault);
}
