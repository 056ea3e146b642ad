// SPDX-License-Identifier: MIT
/*
 * The translator: guest instructions from one page become a block of host code.
 *
 * A block ends at a control transfer (a hot one may go on after it: scan.c), at an instruction that
 * C code executes, at the end of its page, or when it is long. An instruction that crosses into the
 * next page is a block of its own, which remembers both pages. Each instruction is emitted by the
 * function that its row of insn.def names, some of which are here, or as emit_native.c says. Runs
 * on the vCPU thread; general registers only, since the guest's vector state is live unless an
 * instruction had to be decoded.
 */
#include "base/bytes.h"
#include "cpu/event.h"
#include "engine/translate/kept_fixup.h"
#include "engine/translate/trans.h"

enum step { STEP_GO_ON, STEP_ENDED, STEP_FULL };

/* Counts the executions of a block that a hot block could continue after its last instruction. */
static u8 *emit_heat(struct trans *t)
{
	if (t->block->hot || !scan_could_continue(t))
		return NULL;
	t->block->heats = true;
	/* SUB [RIP + disp32], 1: the counter is beside code memory. */
	emit_u8(&t->e, 0x83);
	emit_u8(&t->e, GROUP_SUB << 3 | 5);
	emit_u32(&t->e, heat_displacement(t->eng, t->e.p));
	emit_fixup(&t->e, t->e.p - 4, FIXUP_HEAT, 0);
	emit_u8(&t->e, 1);
	return emit_jcc(&t->e, CC_S);
}

static void emit_head(struct trans *t, u8 **count, u8 **jumps)
{
	emit_insn(&t->e, &(struct enc){ .w = true,
					.opcode = 0x81,
					.reg = GROUP_ADD,
					.rm = COUNTDOWN,
					.imm_len = 4 });
	*count = t->e.p - 4;
	emit_rm(&t->e, true, OP_CMP, COUNTDOWN, ea_base(RSP, HOT(limit)));
	jumps[0] = emit_jcc(&t->e, CC_GE);
	jumps[1] = emit_heat(t);
	if (t->mode & MODE_SINGLE)
		emit_last_rip(t, t->block->rip);
	emit_count_begin_block(t);
}

static void emit_head_exit(struct trans *t, u8 **jumps)
{
	for (u32 i = 0; i < 2; i++)
		if (jumps[i])
			emit_patch(&t->e, jumps[i], t->e.p);
	emit_block_leave_with(t, t->eng->leave_with[LEAVE_HEAD]);
}

static u32 memory_rw(const struct trans *t, const struct operand *op)
{
	bool locked = (t->insn.prefixes & PREFIX_LOCK) || insn_facts(&t->insn)->locks;

	return (op->written ? DESC_WRITE : 0) | (op->read ? DESC_READ : 0) |
	       (locked ? DESC_LOCK : 0);
}

const struct operand *trans_memory_operand(const struct trans *t)
{
	for (u32 i = 0; i < t->insn.nops; i++)
		if (t->insn.ops[i].kind == OPERAND_MEM)
			return &t->insn.ops[i];
	return NULL;
}

static bool is_x87(const struct trans *t)
{
	return t->decoded->isa_set == ZYDIS_ISA_SET_X87 ||
	       insn_facts(&t->insn)->unit == UNIT_X87; /* FISTTP, which Zydis has among SSE3 */
}

/* Operands that may be misaligned, but that a host of the other vendor wants aligned. */
static bool may_be_realigned(const struct trans *t)
{
	return t->decoded->category == ZYDIS_CATEGORY_SHA &&
	       cpu_follows(t->cpu, RULE_SHA_ANY_ALIGNMENT);
}

/* Which vector operands must be aligned (SDM 1 10.8.3, 14.9; APM4): legacy ones but for the moves
 * that say so. */
static bool must_be_aligned(const struct trans *t, const struct operand *mem)
{
	switch (insn_facts(&t->insn)->alignment) {
	case ALIGNMENT_NONE:
		return false;
	case ALIGNMENT_FULL:
		return true;
	default:
		return mem->size == 16 && t->decoded->legacy && !may_be_realigned(t);
	}
}

/* Vector operands of a size that other instructions check for alignment, but these do not. */
static bool never_checked(const struct trans *t)
{
	return insn_facts(&t->insn)->half_precision &&
	       !cpu_follows(t->cpu, RULE_VECTORS_CHECK_ALIGNMENT);
}

/* Instructions that wait report a pending x87 exception before they touch memory (SDM 1 8.6). */
static bool waits(const struct trans *t)
{
	if (insn_facts(&t->insn)->waits_not)
		return false;
	return is_x87(t) || t->insn.ops[0].cls == REG_MMX || t->insn.ops[1].cls == REG_MMX;
}

static void wait_for_x87(struct trans *t)
{
	if (!waits(t))
		return;
	emit_flags_keep(t);
	t->places[t->index].recipe = trans_recipe(t);
	emit_u8(&t->e, 0x9b); /* FWAIT */
}

/* Side effects that a store has before its address is found bad. */
static u32 before_fault(const struct trans *t, const struct operand *mem)
{
	if (!mem->written)
		return 0;
	if (is_x87(t) && waits(t) &&
	    (cpu_follows(t->cpu, RULE_X87_STORE_EXCEPTION_FIRST) ||
	     cpu_follows(t->cpu, RULE_X87_STORE_IN_PARTS)))
		return DESC_COMPUTES;
	if (insn_facts(&t->insn)->half_precision &&
	    cpu_follows(t->cpu, RULE_CVTPS2PH_EXCEPTION_FIRST))
		return DESC_COMPUTES;
	if (t->insn.ops[1].cls == REG_MMX && cpu_follows(t->cpu, RULE_MMX_STORE_CLEARS_TOP))
		return DESC_CLEARS_TOP;
	return 0;
}

static u32 access_rules(const struct trans *t, const struct operand *mem)
{
	return memory_rw(t, mem) | before_fault(t, mem) | (is_x87(t) ? DESC_X87 : 0) |
	       (must_be_aligned(t, mem) ? DESC_ALIGN : 0) |
	       (may_be_realigned(t) ? DESC_REALIGN : 0) | (never_checked(t) ? DESC_UNALIGNED : 0) |
	       (t->decoded->as_native.shape ? DESC_MASKED : 0);
}

/* MOVSXD with 16-bit operands, which the decoder takes for one of 32-bit memory. */
static u32 access_size(const struct trans *t, const struct operand *mem)
{
	if (t->insn.id == INSN_MOVSXD && t->insn.opsize == 2 &&
	    cpu_follows(t->cpu, RULE_MOVSXD_WORD))
		return 2;
	return mem->size;
}

static bool native(struct trans *t)
{
	const struct operand *mem;
	struct native n;

	if (emit_native_bare(t))
		return true;
	mem = trans_memory_operand(t);
	if (!trans_native_build(t, &n))
		return false;
	trans_native_flags(t, &n);
	if (mem) {
		wait_for_x87(t);
		emit_access_operand(t, mem, access_size(t, mem), access_rules(t, mem), &n);
	} else {
		emit_native(t, &n);
	}
	return true;
}

/*
 * BT, BTS, BTR, BTC with a memory operand and a bit offset in a register address a bit string: the
 * operand that is accessed lies offset / bits operands away (SDM 2A 3.1.1.9).
 */
bool emit_insn_bit_string(struct trans *t)
{
	struct operand *mem = &t->insn.ops[0];
	const struct operand *offset = &t->insn.ops[1];
	u8 size = mem->size;
	u8 shift = size == 2 ? 4 : size == 4 ? 5 : 6;
	struct ea slot = ea_base(RSP, SPILL(SPILL_BIT));
	struct native n;

	if (mem->kind != OPERAND_MEM || offset->kind != OPERAND_REG || !trans_native_build(t, &n))
		return false;
	trans_native_flags(t, &n);
	n.temp[0] =
		(struct temp){ .kind = TEMP_CPU, .host = S1, .load = true, .offset = slot.disp };
	n.ntemps = 1;
	n.spill_countdown = false;
	n.x.reg = S1;
	n.x.nready = 0;
	emit_flags_keep(t);
	emit_address(t, mem, S0);
	emit_guest_get(t, offset->reg, S1);
	if (size == 2) /* sign-extend to 64 bits */
		emit_insn(&t->e,
			  &(struct enc){
				  .w = true, .map = MAP_0F, .opcode = 0xbf, .reg = S1, .rm = S1 });
	else if (size == 4)
		emit_rr(&t->e, true, 0x63, S1, S1);
	emit_rm(&t->e, true, OP_MOV_STORE, S1, slot);
	emit_group1_mem(&t->e, true, GROUP_AND, slot, size * 8 - 1);
	emit_shift(&t->e, true, SHIFT_SAR, S1, shift);
	emit_rm(&t->e, t->insn.addrsize == 8, OP_LEA, S0,
		(struct ea){ .base = S0, .index = S1, .scale = size });
	if (t->insn.addrsize == 2)
		emit_insn(&t->e,
			  &(struct enc){ .map = MAP_0F, .opcode = 0xb7, .reg = S0, .rm = S0 });
	emit_access_begin(t, size, mem->seg, memory_rw(t, mem), &n);
	return true;
}

static bool resident(u8 guest)
{
	return guest == NO_REG || host_reg(guest) != IN_MEMORY;
}

bool emit_insn_lea(struct trans *t)
{
	const struct operand *dest = &t->insn.ops[0], *src = &t->insn.ops[1];

	if (t->insn.addrsize == 8 && dest->size >= 4 && resident(dest->reg) &&
	    resident(src->base) && resident(src->index)) {
		emit_address_sized(t, src, host_reg(dest->reg), dest->size == 8);
		return true;
	}
	emit_address(t, src, S0);
	emit_guest_set(t, dest->reg, S0, dest->size);
	return true;
}

bool trans_does_nothing(const struct trans *t)
{
	switch (t->zi->meta.category) {
	case ZYDIS_CATEGORY_NOP:
	case ZYDIS_CATEGORY_WIDENOP:
	case ZYDIS_CATEGORY_PREFETCH:
		return true;
	default:
		return insn_facts(&t->insn)->quiet;
	}
}

/* F3 90 with REX.B may be XCHG r8, rAX; Zydis has it as PAUSE. */
bool emit_insn_pause(struct trans *t)
{
	if (t->decoded->rex_b && !cpu_follows(t->cpu, RULE_PAUSE_IGNORES_REX))
		emit_insn(&t->e, &(struct enc){ .p66 = t->insn.opsize == 2,
						.w = t->decoded->rex_w,
						.opcode = 0x87,
						.reg = R8,
						.rm = HOST_GUEST_RAX });
	else
		emit_u8(&t->e, 0xf3), emit_u8(&t->e, 0x90);
	return true;
}

static bool direction_flag(struct trans *t, bool set)
{
	emit_flags_keep(t);
	emit_group1_mem(&t->e, false, set ? 1 : GROUP_AND, ea_base(RSP, CPU(rflags)),
			set ? (s32)FL_DF : ~(s32)FL_DF);
	return true;
}

bool emit_insn_cld(struct trans *t)
{
	return direction_flag(t, false);
}

bool emit_insn_std(struct trans *t)
{
	return direction_flag(t, true);
}

/* The block ends after the instructions that it has so far, without a branch of the guest. */
static void end_way(struct trans *t)
{
	emit_lbr_leave(t, t->block->ninsns);
}

static enum step raise_here(struct trans *t, u32 vector)
{
	emit_flags_save(t);
	end_way(t);
	emit_block_leave(t, LEAVE_RAISE, vector, t->rip);
	return STEP_ENDED;
}

struct insn *trans_copy_insn(struct trans *t)
{
	struct insn *copy = cache_alloc(t->eng, sizeof(*copy));

	if (copy) {
		*copy = (struct insn){ 0 };
		insn_copy(copy, &t->insn);
		t->copies[t->ncopies++] = copy;
	}
	return copy;
}

void trans_note_pointer(struct trans *t, u64 pointer)
{
	u64 in_block = pointer - (u64)(uintptr_t)t->block;

	/* Shorter immediates are for shorter numbers. */
	if (!(pointer >> 32))
		return;
	if (in_block < sizeof(*t->block))
		emit_fixup(&t->e, t->e.p - 8, FIXUP_BLOCK64, 0);
	for (u32 i = 0; i < t->ncopies; i++)
		if (pointer == (u64)(uintptr_t)t->copies[i])
			emit_fixup(&t->e, t->e.p - 8, FIXUP_INSN64, i);
}

/* C executes it: the block ends, and counts the instruction as its own. */
static enum step complex(struct trans *t, bool shadow)
{
	struct insn *copy = trans_copy_insn(t);

	if (!copy)
		return STEP_FULL;
	t->block->complex = copy;
	emit_stack_settle(t);
	emit_flags_save(t);
	end_way(t);
	if (!shadow)
		emit_passthrough(t, copy);
	emit_block_leave(t, LEAVE_COMPLEX, (u64)(uintptr_t)copy, t->rip);
	return STEP_ENDED;
}

static void begin_place(struct trans *t)
{
	const struct scan *s = &t->scan[t->at];
	s32 next = s->continues ? (s32)(s->next - t->block->rip) : t->offset + t->insn.len;

	t->index = t->block->ninsns;
	t->places[t->nplaces++] = (struct place){ .host = t->e.p - t->block->code,
						  .guest = t->offset,
						  .next = next,
						  .len = t->insn.len,
						  .rsp_pending = t->rsp_pending / 8,
						  .index = t->index,
						  .calls = s->continues && t->insn.id == INSN_CALL,
						  .flags = t->insn.is_branch ? PLACE_BRANCH : 0 };
}

static const struct {
	emit_fn *emit;
} emitters[NINSNS] = {
#define EMIT(name)		  emit_insn_##name
#define INSN(mnemonic, ways, ...) [INSN_##mnemonic] = { ways },
#include "engine/insn.def"
};

/* By the function that its row names. */
static bool emitted(struct trans *t)
{
	const struct insn_facts *facts = insn_facts(&t->insn);

	if (!facts->emitted || (facts->system && !trans_system_candidate(t, t->decoded)))
		return false;
	return emitters[t->insn.id].emit(t);
}

static enum step translate_insn(struct trans *t)
{
	int vector = t->scan[t->at].vector;
	bool shadow = t->shadow;

	t->rsp_lazy = vector < 0 && trans_stack_lazy(t);
	if (!t->rsp_lazy)
		emit_stack_settle(t);
	if (vector >= 0)
		return raise_here(t, vector);
	t->shadow = false;
	begin_place(t);
	emit_observe_insn(t);
	if (t->weighs)
		t->weights[t->index] = trans_count_weight(&t->scan[t->at]);
	t->block->ninsns++;
	t->block->nbranches += t->insn.is_branch;
	t->last = t->insn.is_branch && !t->scan[t->at].continues;
	if (shadow && t->last)
		emit_system_shadow_ends(t);
	if (!(t->decoded->quiet || emitted(t) || native(t)))
		return complex(t, shadow);
	if (t->insn.is_branch)
		return t->scan[t->at].continues ? STEP_GO_ON : STEP_ENDED;
	if (shadow)
		emit_system_shadow_ends(t);
	return STEP_GO_ON;
}

bool trans_translatable(const struct trans *t)
{
	const struct insn_facts *facts = insn_facts(&t->insn);

	if (trans_does_nothing(t) || t->decoded->native)
		return true;
	return facts->emitted && !facts->system && !t->insn.is_branch &&
	       (facts->stack == STACK_NONE || trans_stack_known(t));
}

static enum step translate_insns(struct trans *t)
{
	enum step step = STEP_GO_ON;

	for (u32 i = 0; i < t->nscan && step == STEP_GO_ON; i++) {
		scan_select(t, i);
		step = translate_insn(t);
		t->rip = t->scan[i].continues ? t->scan[i].next : trans_next_rip(t);
	}
	if (step == STEP_GO_ON) {
		emit_stack_settle(t);
		emit_flags_save(t);
		end_way(t);
		if (t->shadow) /* the next visit executes the instruction by itself */
			emit_block_leave(t, LEAVE_LOOKUP, (u64)(uintptr_t)t->block, t->rip);
		else
			emit_block_end_direct(t, t->rip);
		step = STEP_ENDED;
	}
	return step;
}

void *trans_keep(struct trans *t, const void *data, u32 size)
{
	void *copy = cache_alloc(t->eng, size);

	if (copy)
		bytes_copy_short(copy, data, size);
	return copy;
}

static bool finish(struct trans *t, u8 *count)
{
	struct block *b = t->block;

	if (!emit_count_end_block(t))
		return false;
	emit_side_exits(t);
	emit_stubs(t);
	emit_lbr_end_block(t);
	if (!emit_links(t))
		return false;
	emit_misses(t);
	b->places = trans_keep(t, t->places, t->nplaces * sizeof(*b->places));
	b->recipes = trans_keep(t, t->recipes, t->nrecipes * sizeof(*b->recipes));
	if (t->e.full || !b->places || !b->recipes)
		return false;
	b->nplaces = t->nplaces;
	b->nrecipes = t->nrecipes;
	b->lines = t->source.used[0];
	b->lines2 = t->source.used[1];
	*(u32_unaligned *)count = (u32)b->ninsns << COUNT_SHIFT | b->nbranches;
	if (t->keeps)
		kept_block_add(t);
	t->eng->code_next = t->e.p;
	t->eng->blocks_made++;
	t->eng->insns_translated += b->ninsns;
	cache_insert(t->cpu, b);
	return true;
}

void trans_begin_block(struct trans *t, u64 rip, gpa_t gpa)
{
	struct block *b = t->block;

	bytes_clear_words(b, sizeof(*b));
	b->rip = rip;
	b->gpa = gpa;
	b->gpa2 = NO_GPA;
	b->mode = t->mode;
	b->limit = code_limit(t->cpu, t->mode);
	b->code = t->eng->code_next;
}

struct block *translate(struct cpu *cpu, u32 mode, gpa_t gpa, const u8 *host,
			enum guest_fault *fault)
{
	struct engine *eng = cpu->engine;
	struct block *block = cache_alloc_block(eng);
	struct trans t;
	u8 *count, *jumps[2];

	*fault = FAULT_NONE;
	if (!block || !cache_room(eng))
		return NULL;
	t.cpu = cpu;
	t.eng = eng;
	t.block = block;
	t.mode = mode;
	trans_begin_block(&t, cpu->rip, gpa);
	block->hot = eng->translating_hot;
	t.e = (struct emitter){ .p = eng->code_next,
				.limit = eng->code_limit,
				.start = eng->code_next };
	t.flags = FLAGS_IN_CPU;
	t.rip = cpu->rip;
	t.linear_base = mode & MODE_CODE64 ? 0 : cpu->seg[CS].base;
	t.offset = t.index = 0;
	t.nstubs = t.nplaces = t.nobserve_stubs = t.nrecipes = 0;
	t.nlinks = t.nside_exits = t.njump_lookups = t.at = 0;
	t.observed_line = NO_GPA;
	t.counts = cpu_counts(cpu, mode);
	t.weighs = t.counts || (mode & (MODE_LBR | MODE_OBSERVE_MEMORY | MODE_OBSERVE_BRANCHES));
	t.shadow = t.rsp_lazy = false;
	t.rsp_pending = 0;
	source_begin(&t.source);
	t.ncopies = 0;
	t.ahead_from = t.ahead_to = 0;
	t.decode_mode = trans_decode_mode(&t);
	decoder_expect_none(eng->decoder);
	if (!source_open(&t, 0, gpa, host))
		return NULL;
	if (kept_block_recall(&t))
		return block;
	if (scan_block(&t, fault) != SCAN_OK)
		return NULL;
	if (mode & MODE_COUNT_CYCLES)
		trans_price_block(&t);
	trans_flags_analyse(&t);
	trans_share_analyse(&t);
	emit_lbr_begin_block(&t);
	emit_head(&t, &count, jumps);
	if (translate_insns(&t) != STEP_ENDED)
		return NULL;
	emit_head_exit(&t, jumps);
	return finish(&t, count) ? block : NULL;
}
