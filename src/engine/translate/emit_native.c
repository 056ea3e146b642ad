// SPDX-License-Identifier: MIT
/*
 * Instructions that the host executes itself: registers renamed, the memory operand replaced by
 * [S0], all else as it was. What may go this way is a row of insn.def with the way HOST, or is of a
 * category on a list; whatever is not ends the block and is executed by C code (engine/sys/sys.h),
 * or is #UD. Also for the other emitters: moving guest registers, wherever they live, to and from
 * host registers.
 */
#include "engine/translate/trans.h"

/* Categories without control transfers, privileged instructions and hidden memory operands;
 * trans_native_build() may still refuse single instructions by their operands. */
static bool category_native(ZydisInstructionCategory category)
{
	switch (category) {
	case ZYDIS_CATEGORY_ADOX_ADCX:
	case ZYDIS_CATEGORY_AES:
	case ZYDIS_CATEGORY_AVX:
	case ZYDIS_CATEGORY_AVX2:
	case ZYDIS_CATEGORY_AVX512:
	case ZYDIS_CATEGORY_AVX512_BITALG:
	case ZYDIS_CATEGORY_AVX512_VBMI:
	case ZYDIS_CATEGORY_BINARY:
	case ZYDIS_CATEGORY_BITBYTE:
	case ZYDIS_CATEGORY_BLEND:
	case ZYDIS_CATEGORY_BMI1:
	case ZYDIS_CATEGORY_BMI2:
	case ZYDIS_CATEGORY_BROADCAST:
	case ZYDIS_CATEGORY_CMOV:
	case ZYDIS_CATEGORY_COMPRESS:
	case ZYDIS_CATEGORY_CONFLICT:
	case ZYDIS_CATEGORY_CONVERT:
	case ZYDIS_CATEGORY_DATAXFER:
	case ZYDIS_CATEGORY_EXPAND:
	case ZYDIS_CATEGORY_FCMOV:
	case ZYDIS_CATEGORY_FLAGOP:
	case ZYDIS_CATEGORY_GFNI:
	case ZYDIS_CATEGORY_IFMA:
	case ZYDIS_CATEGORY_KMASK:
	case ZYDIS_CATEGORY_LOGICAL:
	case ZYDIS_CATEGORY_LOGICAL_FP:
	case ZYDIS_CATEGORY_LZCNT:
	case ZYDIS_CATEGORY_MMX:
	case ZYDIS_CATEGORY_PCLMULQDQ:
	case ZYDIS_CATEGORY_RDRAND:
	case ZYDIS_CATEGORY_RDSEED:
	case ZYDIS_CATEGORY_ROTATE:
	case ZYDIS_CATEGORY_SEMAPHORE:
	case ZYDIS_CATEGORY_SETCC:
	case ZYDIS_CATEGORY_SHA:
	case ZYDIS_CATEGORY_SHIFT:
	case ZYDIS_CATEGORY_SSE:
	case ZYDIS_CATEGORY_STTNI:
	case ZYDIS_CATEGORY_VAES:
	case ZYDIS_CATEGORY_VBMI2:
	case ZYDIS_CATEGORY_VFMA:
	case ZYDIS_CATEGORY_VPCLMULQDQ:
	case ZYDIS_CATEGORY_X87_ALU:
		return true;
	default:
		return false;
	}
}

static bool allowed(const struct trans *t)
{
	const struct insn_facts *facts = insn_facts(&t->insn);
	ZydisInstructionEncoding encoding = t->zi->encoding;

	if (encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY &&
	    encoding != ZYDIS_INSTRUCTION_ENCODING_VEX &&
	    encoding != ZYDIS_INSTRUCTION_ENCODING_EVEX)
		return false;
	if (t->insn.id == INSN_OTHER)
		return category_native(t->zi->meta.category);
	return facts->host && !(t->cpu->port.seeded && facts->random);
}

struct temp trans_temp_guest(u8 guest, u8 host, bool load, bool store)
{
	return (struct temp){ .kind = TEMP_CPU,
			      .host = host,
			      .load = load,
			      .store = store,
			      .offset = CPU(regs) + 8 * guest };
}

static void temp_load(struct trans *t, const struct temp *temp)
{
	struct ea slot = ea_base(RSP, SPILL(SPILL_HIGH8));

	if (!temp->load)
		return;
	switch (temp->kind) {
	case TEMP_CPU:
		emit_rm(&t->e, true, OP_MOV_LOAD, temp->host, ea_base(RSP, temp->offset));
		break;
	case TEMP_IMM:
		emit_mov_imm(&t->e, temp->host, temp->imm);
		break;
	case TEMP_HIGH8:
		emit_rm(&t->e, true, OP_MOV_STORE, temp->home, slot);
		slot.disp++;
		emit_load_byte(&t->e, temp->host, slot);
		break;
	}
}

static void temp_store(struct trans *t, const struct temp *temp)
{
	struct ea slot = ea_base(RSP, SPILL(SPILL_HIGH8)), second = slot;

	if (!temp->store)
		return;
	if (temp->kind == TEMP_CPU) {
		emit_rm(&t->e, true, OP_MOV_STORE, temp->host, ea_base(RSP, temp->offset));
		return;
	}
	second.disp++;
	emit_rm(&t->e, true, OP_MOV_STORE, temp->home, slot);
	emit_insn(&t->e, &(struct enc){ .opcode = 0x88,
					.reg = temp->host,
					.force_rex = true,
					.is_mem = true,
					.ea = second });
	emit_rm(&t->e, true, OP_MOV_LOAD, temp->home, slot);
}

/* For a fault of the instruction itself, which comes by signal. */
static void note_place(struct trans *t, const struct native *n)
{
	struct place *place = &t->places[t->index];

	if (t->flags == FLAGS_IN_HOST)
		place->flags |= PLACE_FLAGS_IN_HOST;
	if (n->spill_countdown)
		place->flags |= PLACE_SPILLED;
	place->recipe = trans_recipe(t);
}

/* The instruction at hand left its flags in the host's. */
static void flags_left(struct trans *t)
{
	t->flags = FLAGS_IN_HOST;
	t->recipe = t->scan[t->at].recipe;
	t->recipe_at = t->at;
}

/* Nothing between the loads and the stores but the instruction itself may touch flags or temps. */
void emit_native(struct trans *t, const struct native *n)
{
	struct ea countdown = ea_base(RSP, SPILL(SPILL_COUNTDOWN));

	if (n->needs_flags)
		emit_flags_restore(t);
	if (n->spill_countdown)
		emit_rm(&t->e, true, OP_MOV_STORE, COUNTDOWN, countdown);
	for (u32 i = 0; i < n->ntemps; i++)
		temp_load(t, &n->temp[i]);
	if (n->wrap_rax)
		emit_rr(&t->e, true, OP_MOV_LOAD, RAX, HOST_GUEST_RAX);
	note_place(t, n);
	emit_insn(&t->e, &n->x);
	if (n->wrap_store)
		emit_rr(&t->e, true, OP_MOV_LOAD, HOST_GUEST_RAX, RAX);
	for (u32 i = 0; i < n->ntemps; i++)
		temp_store(t, &n->temp[i]);
	if (n->spill_countdown)
		emit_rm(&t->e, true, OP_MOV_LOAD, COUNTDOWN, countdown);
	if (n->rsp_delta)
		emit_stack_move(t, n->rsp_delta);
	if (n->writes_flags)
		flags_left(t);
}

/* A scratch register for one more operand. */
static u8 take_temp(struct native *n)
{
	bool s0 = n->x.is_mem, s1 = n->wrap_rax;

	for (u32 i = 0; i < n->ntemps; i++) {
		s0 |= n->temp[i].host == S0;
		s1 |= n->temp[i].host == S1;
	}
	if (!s0)
		return S0;
	if (!s1)
		return S1;
	n->spill_countdown = true;
	return COUNTDOWN;
}

/* The same guest register twice in one instruction is one temp. */
static struct temp *find_temp(struct native *n, u8 kind, s32 offset, u8 home)
{
	for (u32 i = 0; i < n->ntemps; i++) {
		struct temp *t = &n->temp[i];

		if (t->kind == kind && t->offset == offset && t->home == home)
			return t;
	}
	return NULL;
}

/* Host register for a general register operand. */
static u8 rename(struct native *n, const struct operand *op, bool must_load)
{
	u8 host = host_reg(op->reg);
	bool high = op->high8;
	u8 kind = high ? TEMP_HIGH8 : TEMP_CPU, home = high ? host : 0;
	s32 offset = high ? 0 : CPU(regs) + 8 * op->reg;
	struct temp *temp;

	if (op->reg == RAX && !high && n->wrap_rax) { /* named twice: CMPXCHG AL, BL */
		n->wrap_store |= op->written;
		return RAX;
	}
	if (host != IN_MEMORY && !high)
		return host;
	temp = find_temp(n, kind, offset, home);
	if (!temp) {
		u8 scratch = take_temp(n);

		temp = &n->temp[n->ntemps++];
		*temp = (struct temp){
			.kind = kind, .host = scratch, .offset = offset, .home = home
		};
	}
	temp->load |= op->read || must_load || op->size < 4;
	temp->store |= op->written;
	return temp->host;
}

/* Hidden operands; false: only C code can execute it. */
static bool implicit_operands(const struct trans *t, struct native *n)
{
	for (u32 i = 0; i < t->zi->operand_count; i++) {
		const ZydisDecodedOperand *op = &t->zops[i];
		bool implied = op->encoding == ZYDIS_OPERAND_ENCODING_NONE;
		ZydisRegister reg = op->reg.value;

		if (!implied)
			continue;
		if (op->type == ZYDIS_OPERAND_TYPE_MEMORY)
			return false;
		if (op->type != ZYDIS_OPERAND_TYPE_REGISTER)
			continue;
		reg = decode_whole_register(reg);
		if (reg == ZYDIS_REGISTER_RSP)
			return false;
		if (reg != ZYDIS_REGISTER_RAX)
			continue;
		n->wrap_rax = true;
		n->wrap_store |= !!(op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE);
	}
	return true;
}

static bool has_vector_operand(const struct trans *t)
{
	for (u32 i = 0; i < t->insn.nops; i++)
		if (t->insn.ops[i].kind == OPERAND_REG && t->insn.ops[i].cls != REG_GPR)
			return true;
	return false;
}

/* Instructions that a prefix 66 would turn into others. */
static bool has_no_operand_size(const struct trans *t)
{
	switch (t->zi->meta.isa_ext) {
	case ZYDIS_ISA_EXT_MMX:
	case ZYDIS_ISA_EXT_SSE:
	case ZYDIS_ISA_EXT_SSE2:
	case ZYDIS_ISA_EXT_CLFSH:
		return true;
	default:
		return has_vector_operand(t);
	}
}

/* The prefix 66: part of the opcode, or the operand size, whose default is the host's but in 16-bit
 * code. */
static bool operand_prefix(const struct trans *t, bool selects)
{
	if (selects || (t->mode & (MODE_CODE32 | MODE_CODE64)))
		return selects || (t->insn.prefixes & PREFIX_66);
	return t->zi->operand_width == 16 && !has_no_operand_size(t);
}

static void legacy_fields(const struct trans *t, struct enc *x)
{
	bool selects_66 = false;

	for (u32 i = 0; i < t->zi->raw.prefix_count; i++) {
		u8 value = t->zi->raw.prefixes[i].value;
		bool selects = t->zi->raw.prefixes[i].type == ZYDIS_PREFIX_TYPE_MANDATORY;

		selects_66 |= selects && value == 0x66;
		if (selects && (value == 0xf2 || value == 0xf3))
			x->rep = value;
	}
	x->p66 = operand_prefix(t, selects_66);
	x->lock = !!(t->zi->attributes & ZYDIS_ATTRIB_HAS_LOCK);
	x->w = (t->mode & MODE_CODE64) && t->zi->raw.rex.W;
	x->map = t->zi->opcode_map;
}

/* VEX.W widens general registers, and memory in their place, in 64-bit code only. */
static bool vex_w_ignored(const struct trans *t)
{
	return insn_facts(&t->insn)->vex_w_widens && !(t->mode & MODE_CODE64);
}

static void vex_fields(const struct trans *t, struct enc *x)
{
	x->vex = true;
	x->w = t->zi->raw.vex.W && !vex_w_ignored(t);
	x->vex_l = t->zi->raw.vex.L;
	x->vex_pp = t->zi->raw.vex.pp;
	x->map = t->zi->raw.vex.m_mmmm;
}

/* Registers follow in place_register(); those that are named by no operand are 0. */
static void evex_fields(const struct trans *t, struct enc *x)
{
	x->evex = true;
	x->w = t->zi->raw.evex.W && !vex_w_ignored(t);
	x->vex_l = t->zi->raw.evex.L2 << 1 | t->zi->raw.evex.L;
	x->vex_pp = t->zi->raw.evex.pp;
	x->map = t->zi->raw.evex.mmm;
	x->mask = t->zi->raw.evex.aaa;
	x->zeroing = t->zi->raw.evex.z;
	x->evex_b = t->zi->raw.evex.b;
}

static void opcode_fields(const struct trans *t, struct enc *x)
{
	switch (t->zi->encoding) {
	case ZYDIS_INSTRUCTION_ENCODING_EVEX:
		evex_fields(t, x);
		break;
	case ZYDIS_INSTRUCTION_ENCODING_VEX:
		vex_fields(t, x);
		break;
	default:
		legacy_fields(t, x);
	}
}

static bool has_is4(const struct trans *t)
{
	for (u32 i = 0; i < t->zi->operand_count; i++)
		if (t->zops[i].encoding == ZYDIS_OPERAND_ENCODING_IS4)
			return true;
	return false;
}

/* They end the instruction. */
static u64 immediate_of(const struct trans *t, u32 len)
{
	u64 word = *(const bytes_word *)&t->insn.bytes[t->insn.len - len];

	_Static_assert(offsetof(struct insn, bytes) + INSN_MAX + 8 <= sizeof(struct insn), "read");
	return word & (len < 8 ? BIT(8 * len) - 1 : ~0ull);
}

static void immediate_fields(const struct trans *t, struct enc *x)
{
	bool is4 = has_is4(t);

	x->imm_len = is4 ? 1 : t->zi->raw.imm[0].size / 8 + t->zi->raw.imm[1].size / 8;
	x->imm = immediate_of(t, x->imm_len);
	if (is4 && !(t->mode & MODE_CODE64)) /* a register: one of eight */
		x->imm &= 0x7f;
}

/* Instruction forms that name the accumulator or a register in the opcode byte, turned into ModRM
 * forms. */
static void short_forms(const struct trans *t, struct native *n)
{
	struct enc *x = &n->x;
	u8 op = t->zi->opcode;

	if (x->vex || x->evex || x->map != MAP_ONE)
		return;
	if ((op & 0xc6) == 0x04) { /* ALU AL/eAX, imm */
		*x = (struct enc){ .p66 = x->p66,
				   .w = x->w,
				   .imm = x->imm,
				   .imm_len = x->imm_len,
				   .opcode = 0x80 | (op & 1),
				   .reg = op >> 3,
				   .rm = HOST_GUEST_RAX };
	} else if ((op & 0xfe) == 0xa8) { /* TEST AL/eAX, imm */
		x->opcode = 0xf6 | (op & 1);
		x->rm = HOST_GUEST_RAX;
		x->no_modrm = false;
	} else if ((op & 0xf8) == 0x90 && t->insn.id == INSN_XCHG) { /* XCHG eAX, r */
		x->opcode = 0x87;
		x->reg = HOST_GUEST_RAX;
		x->no_modrm = false;
	} else if ((op & 0xfc) == 0xa0) { /* MOV between AL/eAX and [offset] */
		x->opcode = op == 0xa0 ? 0x8a : op == 0xa1 ? 0x8b : op == 0xa2 ? 0x88 : 0x89;
		x->reg = HOST_GUEST_RAX;
		x->imm_len = 0;
		x->no_modrm = false;
	} else if (op == 0x82) { /* an alias that 64-bit code lost */
		x->opcode = 0x80;
	} else if ((op & 0xf0) == 0x40) { /* INC r, DEC r outside 64-bit code */
		x->opcode = 0xff;
		x->reg = op >> 3 & 1;
		x->no_modrm = false;
	} else {
		return;
	}
	n->wrap_rax = n->wrap_store = false;
}

/* Instructions that do the same to a register in memory, named by ModRM.rm, as to one in the
 * host's. */
static bool same_in_memory(const struct trans *t)
{
	switch (t->zi->meta.category) {
	case ZYDIS_CATEGORY_BINARY:
	case ZYDIS_CATEGORY_LOGICAL:
	case ZYDIS_CATEGORY_SHIFT:
	case ZYDIS_CATEGORY_ROTATE:
	case ZYDIS_CATEGORY_CMOV:
	case ZYDIS_CATEGORY_SETCC:
		return t->zi->encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY;
	case ZYDIS_CATEGORY_DATAXFER:
		return insn_facts(&t->insn)->plain_move;
	default:
		return false;
	}
}

/* Uses a guest register that lives in memory as the memory operand; not if 32 bits are written,
 * which must be zero-extended. */
static bool place_in_memory(const struct trans *t, struct native *n, const struct operand *op)
{
	if (op->cls != REG_GPR || op->high8 || host_reg(op->reg) != IN_MEMORY || n->x.is_mem ||
	    n->x.no_modrm || (op->written && op->size == 4) || !same_in_memory(t))
		return false;
	n->x.is_mem = true;
	n->x.ea = ea_base(RSP, CPU(regs) + 8 * op->reg);
	return true;
}

static bool place_register(const struct trans *t, struct native *n, u32 i)
{
	const ZydisDecodedOperand *zop = &t->zops[i];
	const struct operand *op = &t->insn.ops[i];
	bool must_load = insn_facts(&t->insn)->keeps_destination ||
			 (zop->actions & ZYDIS_OPERAND_ACTION_CONDWRITE);
	u8 host;

	if (op->cls == REG_SEG || op->cls == REG_CR || op->cls == REG_DR || op->cls == REG_OTHER)
		return false;
	if (zop->encoding == ZYDIS_OPERAND_ENCODING_MODRM_RM && place_in_memory(t, n, op))
		return true;
	host = op->cls == REG_GPR ? rename(n, op, must_load) : op->reg;
	if (op->cls == REG_GPR && !(t->mode & MODE_CODE64))
		n->x.w = false; /* VEX.W means nothing to general registers there */
	if (op->cls == REG_GPR && op->size == 1 && host >= RSP)
		n->x.force_rex = true;
	switch (zop->encoding) {
	case ZYDIS_OPERAND_ENCODING_MODRM_REG:
		n->x.reg = host;
		return true;
	case ZYDIS_OPERAND_ENCODING_MODRM_RM:
	case ZYDIS_OPERAND_ENCODING_OPCODE:
		n->x.rm = host;
		return true;
	case ZYDIS_OPERAND_ENCODING_NDSNDD:
		n->x.vvvv = host;
		return true;
	default:
		return zop->encoding == ZYDIS_OPERAND_ENCODING_IS4;
	}
}

static void base_fields(const struct trans *t, struct native *n)
{
	struct enc *x = &n->x;

	x->opcode = t->zi->opcode;
	x->no_modrm = !(t->zi->attributes & ZYDIS_ATTRIB_HAS_MODRM);
	x->reg = t->zi->raw.modrm.reg;
	x->rm = x->no_modrm ? 0 : t->zi->raw.modrm.rm;
	for (u32 i = 0; x->no_modrm && i < t->zi->operand_count; i++)
		if (t->zops[i].encoding == ZYDIS_OPERAND_ENCODING_OPCODE)
			x->opcode &= ~7;
	for (u32 i = 0; i < t->insn.nops; i++)
		x->is_mem |= t->insn.ops[i].kind == OPERAND_MEM;
	if (x->is_mem)
		x->ea = ea_base(S0, 0);
}

/* insn.ops[i] and zops[i] are the same operand: both list the visible ones first. */
static bool build(const struct trans *t, struct native *n)
{
	*n = (struct native){ 0 };
	base_fields(t, n);
	opcode_fields(t, &n->x);
	immediate_fields(t, &n->x);
	if (!implicit_operands(t, n))
		return false;
	short_forms(t, n);
	for (u32 i = 0; i < t->insn.nops; i++) {
		const struct operand *op = &t->insn.ops[i];

		if (op->kind == OPERAND_MEM && (op->index_cls == REG_VEC || !op->size))
			return false; /* gathers, scatters; FXSAVE */
		if (op->kind == OPERAND_REG && t->zops[i].encoding != ZYDIS_OPERAND_ENCODING_NONE &&
		    !place_register(t, n, i))
			return false;
	}
	n->shape = trans_mask_shape(t);
	return true;
}

void trans_native_learn(const struct trans *t, struct decoded *d)
{
	struct native *n = &d->as_native;

	d->native = allowed(t) && build(t, n);
	if (!d->native)
		return;
	emit_make_ready(&n->x, S0);
	d->bare = n->x.nready && n->x.ready_whole && !n->ntemps && !n->wrap_rax && !n->rsp_delta;
}

bool trans_native_build(const struct trans *t, struct native *n)
{
	const struct decoded *d = t->decoded;

	*n = d->as_native;
	if (n->x.imm_len && d->head_length)
		n->x.imm = immediate_of(t, n->x.imm_len);
	return d->native;
}

bool emit_native_bare(struct trans *t)
{
	const struct decoded *d = t->decoded;
	const struct scan *s = &t->scan[t->at];
	const struct enc *x = &d->as_native.x;

	if (!d->bare)
		return false;
	if (s->reads || s->merges)
		emit_flags_restore(t);
	note_place(t, &d->as_native);
	if (emit_fits(&t->e)) {
		*(u64_unaligned *)t->e.p = x->ready;
		t->e.p += x->nready;
		*(u64_unaligned *)t->e.p = d->head_length ? immediate_of(t, x->imm_len) : x->imm;
		t->e.p += x->imm_len;
	}
	if (s->writes || s->keeps)
		flags_left(t);
	return true;
}

void trans_native_flags(const struct trans *t, struct native *n)
{
	const struct scan *s = &t->scan[t->at];

	n->needs_flags = s->reads || s->merges;
	n->writes_flags = s->writes || s->keeps;
}

void emit_guest_get(struct trans *t, u8 guest, u8 host)
{
	u8 home = host_reg(guest);

	if (home == IN_MEMORY)
		emit_rm(&t->e, true, OP_MOV_LOAD, host, ea_base(RSP, CPU(regs) + 8 * guest));
	else if (home != host)
		emit_rr(&t->e, true, OP_MOV_LOAD, host, home);
}

void emit_guest_set(struct trans *t, u8 guest, u8 host, u8 size)
{
	u8 home = host_reg(guest);
	bool to_memory = home == IN_MEMORY;
	struct ea slot = ea_base(RSP, CPU(regs) + 8 * guest);

	if (size == 4)
		emit_rr(&t->e, false, OP_MOV_LOAD, host, host); /* zero-extends */
	emit_insn(&t->e, &(struct enc){ .p66 = size == 2,
					.w = size != 2,
					.opcode = to_memory ? OP_MOV_STORE : OP_MOV_LOAD,
					.reg = to_memory ? host : home,
					.rm = host,
					.is_mem = to_memory,
					.ea = slot });
}
