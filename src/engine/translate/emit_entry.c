// SPDX-License-Identifier: MIT
/*
 * The generated run-time code at the start of code memory (thunks): entry to translated code, exits
 * from it, and calls from it to the slow paths in C. Generated rather than written in assembly so
 * that code memory reaches it with 32-bit displacements wherever it is mapped. Runs once, when an
 * engine is created, unlike the rest of this room: libc is allowed.
 */
#include "engine/code_check.h"
#include "engine/slow.h"
#include "engine/translate/trans.h"

/* Guest registers and where they live; guest R12-R15 never leave memory. */
static const struct {
	u8 guest, host;
} resident[] = {
	{ RAX, HOST_GUEST_RAX },
	{ RSP, HOST_GUEST_RSP },
	{ RCX, RCX },
	{ RDX, RDX },
	{ RBX, RBX },
	{ RBP, RBP },
	{ RSI, RSI },
	{ RDI, RDI },
	{ R8, R8 },
	{ R9, R9 },
	{ R10, R10 },
	{ R11, R11 },
};

static const u8 callee_saved[] = { RBX, RBP, R12, R13, R14, R15 };

/* Moves all resident registers; `shift` is how far RSP is below the struct cpu. */
static void move_registers(struct emitter *e, u8 opcode, s32 shift)
{
	for (u32 i = 0; i < ARRAY_SIZE(resident); i++)
		emit_rm(e, true, opcode, resident[i].host,
			ea_base(RSP, shift + CPU(regs) + 8 * resident[i].guest));
	emit_rm(e, true, opcode, COUNTDOWN, ea_base(RSP, shift + SPILL(SPILL_R14)));
}

static void emit_push(struct emitter *e, u8 reg)
{
	emit_insn(e, &(struct enc){ .opcode = 0x50, .no_modrm = true, .rm = reg });
}

static void emit_pop(struct emitter *e, u8 reg)
{
	emit_insn(e, &(struct enc){ .opcode = 0x58, .no_modrm = true, .rm = reg });
}

static void emit_ret(struct emitter *e)
{
	emit_u8(e, 0xc3);
}

/*
 * Hardened: on every way from C to translated code. C may speculate past its own checks, and past
 * the fault of an access: then the host address that translated code finds is an older one, or what
 * a guest chose (slow_share()). LFENCE waits until C's branches are decided. Not where C only
 * observes: it answers nothing.
 */
static void emit_fence(struct emitter *e, const struct engine *eng)
{
	if (eng->fences)
		emit_insn(e, &(struct enc){ .map = MAP_0F, .opcode = 0xae, .reg = 5 });
}

/* u64 enter(struct cpu *cpu (RDI), const void *code (RSI)) */
static void make_enter(struct emitter *e, const struct engine *eng)
{
	emit_fence(e, eng);
	for (u32 i = 0; i < ARRAY_SIZE(callee_saved); i++)
		emit_push(e, callee_saved[i]);
	emit_rm(e, true, OP_MOV_STORE, RSP, ea_base(RDI, PRIV(host_rsp)));
	emit_rr(e, true, OP_MOV_LOAD, RSP, RDI);
	emit_rm(e, true, OP_MOV_STORE, RSI, ea_base(RSP, SPILL(SPILL_ARG)));
	move_registers(e, OP_MOV_LOAD, 0);
	emit_insn(e, &(struct enc){ .opcode = 0xff,
				    .reg = 4,
				    .is_mem = true,
				    .ea = ea_base(RSP, SPILL(SPILL_ARG)) });
}

/* Jumped to with RSP at the struct cpu, all registers stored, and the result of enter() in EAX. */
static void make_return(struct emitter *e)
{
	emit_rm(e, true, OP_MOV_LOAD, RSP, ea_base(RSP, PRIV(host_rsp)));
	for (u32 i = ARRAY_SIZE(callee_saved); i-- > 0;)
		emit_pop(e, callee_saved[i]);
	emit_ret(e);
}

/*
 * Called with the address in S0 and a DESC_* word in EAX. Stores the registers, so that a fault
 * finds them, and calls C. Returns with the host address in S0 and ZF set for SLOW_DIRECT, or
 * leaves.
 */
static void make_slow(struct emitter *e, const struct engine *eng, const u8 *finish,
		      u64 (*function)(struct cpu *, u64, u32, const u8 *))
{
	u8 *stay, *go;

	move_registers(e, OP_MOV_STORE, 8);
	emit_rm(e, true, OP_LEA, RDI, ea_base(RSP, 8));
	emit_rr(e, true, OP_MOV_LOAD, RSI, S0);
	emit_rr(e, false, OP_MOV_LOAD, RDX, RAX);
	emit_rm(e, true, OP_MOV_LOAD, RCX, ea_base(RSP, 0));
	emit_group1(e, true, GROUP_SUB, RSP, 8); /* the ABI's alignment */
	emit_mov_imm(e, RAX, (u64)(uintptr_t)function);
	emit_insn(e, &(struct enc){ .opcode = 0xff, .reg = 2, .rm = RAX });
	emit_group1(e, true, GROUP_ADD, RSP, 8);
	emit_group1(e, false, GROUP_CMP, RAX, SLOW_LEAVE);
	stay = emit_jcc(e, CC_NE);
	emit_group1(e, true, GROUP_ADD, RSP, 8); /* the return address */
	emit_mov_imm(e, RAX, LEAVE_FAULT);
	go = emit_jmp(e);
	emit_patch(e, go, finish);
	emit_patch(e, stay, e->p);
	emit_fence(e, eng);
	move_registers(e, OP_MOV_LOAD, 8);
	emit_rm(e, true, OP_MOV_LOAD, S0, ea_base(RSP, 8 + SPILL(SPILL_HOST)));
	emit_rr(e, false, 0x85, RAX, RAX); /* TEST */
	emit_ret(e);
}

static bool is_callee_saved(u8 reg)
{
	for (u32 i = 0; i < ARRAY_SIZE(callee_saved); i++)
		if (callee_saved[i] == reg)
			return true;
	return false;
}

/* Moves the resident registers that C may change. */
static void move_caller_saved(struct emitter *e, u8 opcode, s32 shift)
{
	for (u32 i = 0; i < ARRAY_SIZE(resident); i++)
		if (!is_callee_saved(resident[i].host))
			emit_rm(e, true, opcode, resident[i].host,
				ea_base(RSP, shift + CPU(regs) + 8 * resident[i].guest));
}

/*
 * As make_slow(), for C that neither faults nor leaves: that of observe.c, which is called for
 * every branch that is not sure and every line that is in no buffer. It finds the countdown in
 * memory, but not all registers. If it returns anything but 0, jumps to `then` with that in EAX.
 */
static u8 *make_quick(struct emitter *e, u64 (*function)(struct cpu *, u64, u32), const u8 *then)
{
	u8 *entry = e->p;

	move_caller_saved(e, OP_MOV_STORE, 8);
	emit_rm(e, true, OP_MOV_STORE, COUNTDOWN, ea_base(RSP, 8 + SPILL(SPILL_R14)));
	emit_rm(e, true, OP_LEA, RDI, ea_base(RSP, 8));
	emit_rr(e, true, OP_MOV_LOAD, RSI, S0);
	emit_rr(e, false, OP_MOV_LOAD, RDX, RAX);
	emit_group1(e, true, GROUP_SUB, RSP, 8); /* the ABI's alignment */
	emit_mov_imm(e, RAX, (u64)(uintptr_t)function);
	emit_insn(e, &(struct enc){ .opcode = 0xff, .reg = 2, .rm = RAX });
	emit_group1(e, true, GROUP_ADD, RSP, 8);
	move_caller_saved(e, OP_MOV_LOAD, 8);
	emit_rr(e, false, 0x85, RAX, RAX); /* TEST */
	emit_patch(e, emit_jcc(e, CC_NE), then);
	emit_ret(e);
	return entry;
}

static void make_observe(struct emitter *e, struct engine *eng, const u8 *finish)
{
	u8 *trip = e->p, *missed;

	make_slow(e, eng, finish, observe_trip);
	missed = e->p;
	make_slow(e, eng, finish, observe_missed);
	eng->observe_access = make_quick(e, observe_access, trip);
	eng->observe_fetch = make_quick(e, observe_fetch, trip);
	eng->observe_taken = make_quick(e, observe_taken, missed);
	eng->observe_not_taken = make_quick(e, observe_not_taken, missed);
	eng->observe_indirect = make_quick(e, observe_indirect, missed);
	eng->observe_return = make_quick(e, observe_return, missed);
	eng->log_full = e->p;
	make_slow(e, eng, finish, observe_log_full);
}

static void emit_leave(struct emitter *e, enum leave why, const u8 *leave)
{
	emit_mov_imm(e, RAX, why);
	emit_patch(e, emit_jmp(e), leave);
}

static void set_rip(struct emitter *e)
{
	emit_rm(e, true, OP_MOV_STORE, S0, ea_base(RSP, CPU(rip)));
}

/* Target of empty return slots: the guest's return address is in S0. */
static void make_jump_lookup(struct emitter *e, const struct engine *eng)
{
	struct jump_lookup jump_lookup = emit_jump_lookup(e, eng);

	emit_jump_lookup_missed(e, &jump_lookup, 1);
	emit_jump_renew(e, eng);
	set_rip(e);
	emit_leave(e, LEAVE_RETURN, eng->leave);
}

/*
 * Ways out of a block. They are jumped to with a block or link in RAX, as its offset in meta: so an
 * exit takes ten bytes of the block.
 */

static void set_arg(struct emitter *e, const struct engine *eng)
{
	emit_mov_imm(e, S0, (u64)(uintptr_t)eng->meta);
	emit_rr(e, true, OP_ADD, S0, RAX);
	emit_rm(e, true, OP_MOV_STORE, S0, ea_base(RSP, SPILL(SPILL_ARG)));
}

/* rip: offset, in the block or link, of the guest address to continue at. */
static void make_leave_with(struct emitter *e, struct engine *eng, enum leave why, s32 rip)
{
	eng->leave_with[why] = e->p;
	set_arg(e, eng);
	emit_rm(e, true, OP_MOV_LOAD, S0, ea_base(S0, rip));
	set_rip(e);
	emit_leave(e, why, eng->leave);
}

/* The jump cache misses: S0 is the target, RAX the block that ends with the jump. */
static void make_jump_missed(struct emitter *e, struct engine *eng)
{
	struct ea arg = ea_base(RSP, SPILL(SPILL_ARG));

	eng->jump_missed = e->p;
	emit_rm(e, true, OP_MOV_STORE, RAX, arg);
	emit_jump_renew(e, eng);
	set_rip(e);
	emit_rm(e, true, OP_MOV_LOAD, RAX, arg);
	set_arg(e, eng);
	emit_leave(e, LEAVE_LOOKUP, eng->leave);
}

/* A link's guard failed: the target's page is not known to be mapped as it was. The target is in S0
 * as well. The link is not looked at if the jump cache knows the target. */
static void make_guard_failed(struct emitter *e, struct engine *eng)
{
	struct ea arg = ea_base(RSP, SPILL(SPILL_ARG));
	struct jump_lookup jump_lookup;
	u8 *enough;

	eng->guard_failed = e->p;
	emit_rm(e, true, OP_MOV_STORE, RAX, arg);
	emit_shift(e, false, SHIFT_SHR, RAX, LINK_SHIFT);
	emit_rm(e, true, OP_ADD, RAX, ea_base(RSP, PRIV(guard_misses)));
	emit_insn(e, &(struct enc){ .opcode = 0x80, /* SUB of a byte */
				    .reg = GROUP_SUB,
				    .is_mem = true,
				    .ea = ea_base(RAX, 0),
				    .imm = 1,
				    .imm_len = 1 });
	enough = emit_jcc(e, CC_S);
	jump_lookup = emit_jump_lookup(e, eng);
	emit_jump_lookup_missed(e, &jump_lookup, 1);
	emit_jump_renew(e, eng);
	emit_patch(e, enough, e->p);
	set_rip(e);
	emit_rm(e, true, OP_MOV_LOAD, RAX, arg);
	set_arg(e, eng);
	emit_leave(e, LEAVE_LINK, eng->leave);
}

static void make_ways_out(struct emitter *e, struct engine *eng)
{
	make_leave_with(e, eng, LEAVE_HEAD, offsetof(struct block, rip));
	make_leave_with(e, eng, LEAVE_TRIP, offsetof(struct block, rip));
	make_leave_with(e, eng, LEAVE_LINK, offsetof(struct link, rip));
	make_jump_missed(e, eng);
	make_guard_failed(e, eng);
}

bool emit_thunks(struct engine *eng)
{
	struct emitter e = { .p = eng->code_next, .limit = eng->code_limit };
	u8 *entry = e.p;
	u8 *finish;

	eng->has_rorx = __builtin_cpu_supports("bmi2");
	make_enter(&e, eng);
	eng->leave = e.p;
	move_registers(&e, OP_MOV_STORE, 0);
	finish = e.p;
	make_return(&e);
	eng->check_jump = e.p;
	make_slow(&e, eng, finish, check_jump);
	eng->check_return = e.p;
	make_slow(&e, eng, finish, check_return);
	eng->jump_lookup = e.p;
	make_jump_lookup(&e, eng);
	make_ways_out(&e, eng);
	eng->slow = e.p;
	make_slow(&e, eng, finish, slow_access);
	eng->share = e.p;
	make_slow(&e, eng, finish, slow_share);
	eng->commit = e.p;
	make_slow(&e, eng, finish, slow_commit);
	eng->call = e.p;
	make_slow(&e, eng, finish, call_insn);
	eng->pass = e.p;
	make_slow(&e, eng, finish, passthrough_insn);
	make_observe(&e, eng, finish);
	eng->beyond_limit = e.p;
	make_slow(&e, eng, finish, slow_beyond);
	eng->enter = (u64(*)(struct cpu *, const void *))(uintptr_t)exec_view(eng, entry);
	eng->code_next = e.p;
	return !e.full;
}
