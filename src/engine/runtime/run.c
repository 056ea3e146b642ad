// SPDX-License-Identifier: MIT
/*
 * The processor's main loop: deliver what is pending, find the block at RIP, enter it, act on why
 * it was left. One turn of engine_run() is one visit to translated code; chains of blocks make that
 * rare. Between two visits exits, interrupt windows, single steps, breakpoints, links and hot
 * blocks are decided, and the code cache is brought up to date. vCPU thread. Guest vector state is
 * live throughout, but where decoding saved it; general registers only.
 */
#include "base/bytes.h"
#include "base/trace.h"
#include "cpu/event.h"
#include "cpu/mmu/exclusive.h"
#include "cpu/fpu.h"
#include "cpu/mmu/tlb.h"
#include "cpu/observe.h"
#include "engine/code_check.h"
#include "engine/jump_cache.h"
#include "engine/runtime/count.h"
#include "engine/slow.h"
#include "engine/sys/passthrough.h"
#include "engine/runtime/pmu.h"
#include "engine/priv.h"
#include "engine/runtime/profile.h"
#include "engine/runtime/serialize.h"
#include "engine/sys/sys.h"

/* Whether the loop goes on or engine_run() returns. */
enum turn { TURN_AGAIN, TURN_RETURN };

/* Before entry: exits, events and windows that come before guest code. */

static enum turn exit_with(struct cpu *cpu, enum exit_reason reason)
{
	cpu->port.exit.reason = reason;
	return TURN_RETURN;
}

static bool mmio_waiting(const struct cpu *cpu)
{
	return cpu->port.mmio.write_pos < cpu->port.mmio.nwrites;
}

/* A far branch, an interrupt or an exception has come from there to here. */
static void record_far(struct cpu *cpu, u64 from, enum retire_privilege before)
{
	struct branch branch = { .kind = BRANCH_FAR,
				 .from = from,
				 .to = cpu->rip,
				 .before = before,
				 .after = cpu_privilege(cpu) };

	if (branch_wanted(&cpu->branches))
		branch_record(&cpu->branches, &cpu->port.tally, &branch);
}

/* An exception takes about as long as this many instructions. */
#define DELIVERY_EFFORT 64

static enum turn deliver(struct cpu *cpu)
{
	enum retire_privilege privilege = cpu_privilege(cpu);
	u64 from = cpu->rip;
	bool interrupt = cpu->port.event.kind == EVENT_INTR;
	/* Exceptions retire no instruction, and neither does their delivery. */
	bool exception =
		cpu->port.event.kind == EVENT_EXCEPTION && !mode_observes(cpu_priv(cpu)->mode);
	/* A device or another processor may have written memory before it. */
	bool foreign = (interrupt || cpu->port.event.kind == EVENT_NMI) && !cpu->port.event.own;
	enum guest_fault fault;

	if (cpu->port.event.kind == EVENT_NONE)
		return TURN_AGAIN;
	cpu->port.effort += DELIVERY_EFFORT;
	if (exception) {
		fault = cpu_deliver(cpu);
		count_flush_keeping_slice(cpu, privilege);
	} else {
		count_flush(cpu, privilege);
		fault = cpu_deliver(cpu);
	}
	if (interrupt && fault == FAULT_NONE)
		cpu->port.tally.interrupts[privilege]++;
	if (fault == FAULT_NONE)
		record_far(cpu, from, privilege);
	cpu_update_mode(cpu);
	if (foreign)
		epoch_check(cpu);
	return fault == FAULT_EXIT ? TURN_RETURN : TURN_AGAIN;
}

static enum turn windows(struct cpu *cpu)
{
	if (cpu->shadow || cpu->port.debug.block_irq || cpu_holds_answer(cpu))
		return TURN_AGAIN;
	if (cpu->port.want_nmi_window && !cpu->nmi_masked)
		return exit_with(cpu, EXIT_NMI_WINDOW);
	if (cpu->port.want_irq_window && (cpu->rflags & FL_IF))
		return exit_with(cpu, EXIT_IRQ_WINDOW);
	return TURN_AGAIN;
}

/* No further instruction may retire: the budget is used up, or a counter overflows. */
static enum turn at_end(struct cpu *cpu)
{
	if (count_exhausted(cpu) || !cpu->pmu.model)
		return exit_with(cpu, EXIT_BUDGET);
	count_flush(cpu, cpu_privilege(cpu));
	if (!count_trip_reached(cpu))
		return exit_with(cpu, EXIT_BUDGET);
	cpu->engine->single_step = false;
	if (!pmu_assist(cpu))
		return exit_with(cpu, EXIT_PMI);
	return count_may_run(cpu) ? TURN_AGAIN : exit_with(cpu, EXIT_BUDGET);
}

static enum turn before_entry(struct cpu *cpu)
{
	u8 attention;

	if (mmio_waiting(cpu))
		return exit_with(cpu, EXIT_MMIO);
	if (cpu->engine->finish_insn) {
		cpu->engine->finish_insn = false;
		cpu->engine->single_step = true;
		return TURN_AGAIN;
	}
	if (deliver(cpu) == TURN_RETURN)
		return TURN_RETURN;
	attention = __atomic_load_n(&cpu->attention, __ATOMIC_ACQUIRE);
	if (attention & ATTENTION_ENGINE) {
		attention = cpu_attention_answered(cpu, ATTENTION_ENGINE);
		if (exclusive_wanted(cpu))
			count_end_timed(cpu);
		if (!exclusive_pause(cpu))
			attention = ATTENTION_OWNER;
	}
	if (attention)
		return exit_with(cpu, EXIT_ATTENTION);
	if (windows(cpu) == TURN_RETURN)
		return TURN_RETURN;
	return count_may_run(cpu) && !count_exhausted(cpu) ? TURN_AGAIN : at_end(cpu);
}

static bool ss_blocks_breakpoint(const struct cpu *cpu)
{
	return (cpu->shadow & SHADOW_SS) && cpu_follows(cpu, RULE_SS_BLOCKS_BREAKPOINTS);
}

/* Instruction breakpoints: a fault before the instruction, unless RF, or MOV SS or POP SS was the
 * last one (SDM 3B 17.3.1.1). */
static bool breakpoint_here(struct cpu *cpu)
{
	u32 hit;

	if (!(cpu_priv(cpu)->mode & MODE_STEP) || (cpu->rflags & FL_RF) ||
	    ss_blocks_breakpoint(cpu))
		return false;
	hit = cpu_watch_fetch(cpu, linear_rip(cpu));
	if (hit)
		cpu_raise_db(cpu, hit);
	return hit;
}

/*
 * One instruction at a time: the guest or a debugger steps, an interrupt shadow or RF ends with the
 * next instruction, MMIO answers belong to it alone, or a run ends with it.
 */
static bool must_step(const struct cpu *cpu)
{
	return (cpu_priv(cpu)->mode & MODE_STEP) || cpu->shadow || (cpu->rflags & FL_RF) ||
	       cpu->port.mmio.nreads || cpu->engine->single_step;
}

static void retired_step(struct cpu *cpu, bool trap_flag)
{
	mmio_completed(cpu);
	cpu_finish_instruction(cpu, trap_flag);
}

/* The instruction faulted: drops what it noted and queued. */
static void abandoned(struct cpu *cpu)
{
	mmio_abandoned(cpu);
	cpu->pending_db = 0;
}

static u64 next_rip(const struct cpu *cpu, const struct insn *insn)
{
	u64 next = cpu->rip + insn->len;

	return cpu_priv(cpu)->mode & MODE_CODE64 ? next : (u32)next;
}

/* An instruction that the hypervisor intercepts, unless it passes that access through. */
static enum turn leave_or_pass(struct cpu *cpu)
{
	switch (passthrough_access(cpu)) {
	case PASS_EXIT:
		return TURN_RETURN;
	case PASS_FAULT:
		abandoned(cpu);
		break;
	case PASS_DONE:
		break;
	}
	cpu->port.exit.reason = EXIT_NONE;
	return TURN_AGAIN;
}

/* After a CPUID of user code only user code is compared: each program that starts executes some
 * forty of them. */
static void serialized(struct cpu *cpu, const struct insn *insn, enum space space)
{
	enum insn_serializing how = serializing(insn);

	if (how != SERIALIZING_NOT)
		epoch_check(cpu);
	if (how == SERIALIZING_RARELY)
		epoch_begin(cpu, SPACE_USR);
	if (how == SERIALIZING_RARELY && space == SPACE_OS)
		epoch_begin(cpu, SPACE_OS);
}

/* Is it executed here whenever it retires, whatever blocks and modes there are? Clocks and random
 * numbers are, where they follow from the owner's settings. */
static bool always_complex(const struct insn_facts *facts)
{
	return facts->outside || !(facts->host || facts->emitted);
}

static void digest(struct cpu *cpu, const struct insn *insn)
{
	if (likely(!cpu->port.digest) || !always_complex(insn_facts(insn)))
		return;
	cpu->port.digest = trace_hash(cpu->port.digest, cpu->regs, sizeof(cpu->regs)) ?: 1;
}

/* The block's head has counted the instruction; it is refunded if it does not retire. */
static enum turn execute_complex(struct cpu *cpu, const struct insn *insn, u32 mode)
{
	enum retire_privilege privilege = cpu_privilege(cpu);
	bool trap_flag = cpu->rflags & FL_TF;
	enum space space = space_of(cpu);
	u64 from = cpu->rip;
	enum sys_result result;

	cpu->port.last_rip = from;
	cpu->engine->executed = insn_summarize(insn);
	cpu->port.exit.insn_len = insn->len;
	cpu->port.exit.reason = EXIT_NONE;
	cpu->engine->executing = true;
	cpu_effort(cpu, EFFORT_INSN);
	observe_at_end(cpu);
	result = sys_execute(cpu, insn);
	cpu->engine->executing = false;
	if (cpu->port.exit.reason != EXIT_NONE)
		bytes_copy(cpu->port.exit.insn_bytes, insn->bytes,
			   sizeof(cpu->port.exit.insn_bytes));
	if (result == SYS_EXIT && cpu->port.exit.reason == EXIT_HLT)
		result = SYS_NEXT; /* it retires, then sleeps */
	if (result == SYS_NEXT)
		cpu->rip = next_rip(cpu, insn);
	if (result == SYS_NEXT || result == SYS_JUMP) {
		count_flush_keeping_slice(cpu, privilege);
		digest(cpu, insn);
	} else {
		count_refund(cpu, mode, insn->is_branch, &insn->weight);
		count_flush(cpu, privilege);
	}
	if (result == SYS_JUMP)
		record_far(cpu, from, privilege);
	cpu_update_mode(cpu);
	serialized(cpu, insn, space);
	switch (result) {
	case SYS_NEXT:
	case SYS_JUMP:
		retired_step(cpu, trap_flag);
		return cpu->port.exit.reason == EXIT_NONE ? TURN_AGAIN : TURN_RETURN;
	case SYS_EXIT:
		return leave_or_pass(cpu);
	case SYS_UNKNOWN:
		cpu_raise(cpu, VEC_UD);
		abandoned(cpu);
		return TURN_AGAIN;
	case SYS_FAULT:
		abandoned(cpu);
		return TURN_AGAIN;
	case SYS_ALONE:
		cpu->engine->run_exclusive = true;
		return TURN_AGAIN;
	case SYS_AGAIN:
		return TURN_AGAIN;
	}
	return TURN_AGAIN;
}

/* Undoes the branch that ends a block: state as before it. */
static void take_back(struct cpu *cpu, const struct block *block)
{
	struct weight weight = { 0 };

	if (block->weights)
		weight = block->weights[block->ninsns - 1];
	cpu->rip = block->rip + block->places[block->ninsns - 1].guest;
	cpu->regs[RSP] -= block->rsp_moved;
	count_refund(cpu, block->mode, true, &weight);
}

/* A near branch to a non-canonical address is #GP(0) on the branch itself (SDM 2A JMP, CALL; 2B
 * RET). */
static void bad_target(struct cpu *cpu, const struct block *block)
{
	take_back(cpu, block);
	cpu_raise_error(cpu, VEC_GP, 0);
}

static enum turn bad_call(struct cpu *cpu, const struct block *block)
{
	enum guest_fault fault;

	take_back(cpu, block);
	fault = slow_try_push(cpu, 8, block->rip + block->places[block->ninsns - 1].next);
	if (fault == FAULT_NONE)
		cpu_raise_error(cpu, VEC_GP, 0);
	return fault == FAULT_EXIT ? TURN_RETURN : TURN_AGAIN;
}

static void link_to(struct cpu *cpu, struct link *link, u32 mode)
{
	u64 deaths = cpu->engine->blocks_dropped;
	bool single_step = cpu->engine->single_step;
	enum guest_fault fault;
	struct block *to;

	/* If no block is found the next visit would end here again: execute it by itself. */
	if (link->unshared)
		cpu->engine->single_step = true;
	if (unlikely(cpu->engine->profile) || count_stops_here(cpu))
		return;
	/* Without a guard, the target is in the same page as the block just left, which is still
	 * valid. */
	if (cpu_priv(cpu)->code->nwritten || (link->to && !link->guard))
		return;
	to = block_find(cpu, link->unshared ? mode | MODE_UNSHARED : mode, &fault);
	if (!to || (to->gpa2 != NO_GPA && !link->guard) || cpu->engine->blocks_dropped != deaths)
		return;
	if (!link->guard)
		link_set(cpu->engine, link, to);
	if (link->unshared) {
		cpu->engine->single_step = single_step;
		cpu->engine->unshared_next = cpu->rip;
		return;
	}
	if (!jump_usable(mode))
		return;
	jump_update_key(cpu, mode);
	if (link->guard && jump_pages_current(cpu))
		link_renew(cpu, link, to);
	jump_insert(cpu, to); /* the next visit finds it */
}

/* Retranslates a block that is executed often as a hot block. */
static void heat_up(struct cpu *cpu, struct block *block, u32 mode)
{
	struct engine *eng = cpu->engine;
	enum guest_fault fault;

	if (cpu_priv(cpu)->code->nwritten)
		return;
	cache_drop(cpu, block);
	eng->translating_hot = !eng->profile;
	block = block_find(cpu, mode, &fault);
	eng->translating_hot = false;
	if (!block)
		return;
	jump_update_key(cpu, mode);
	jump_insert(cpu, block); /* the next visit finds it */
}

static enum turn after(struct cpu *cpu, enum leave why, u32 mode, const struct block *block)
{
	struct engine *eng = cpu->engine;
	void *arg = (void *)(uintptr_t)cpu_priv(cpu)->spill[SPILL_ARG];

	switch (why) {
	case LEAVE_LOOKUP:
		if ((mode & MODE_CODE64) && !cpu_canonical(cpu, cpu->rip))
			bad_target(cpu, arg);
		return TURN_AGAIN;
	case LEAVE_RETURN:
		if ((mode & MODE_CODE64) && !cpu_canonical(cpu, cpu->rip))
			bad_target(cpu, eng->by_address[cpu_hot(cpu)->returned_from]);
		return TURN_AGAIN;
	case LEAVE_BAD_TARGET:
		return bad_call(cpu, arg);
	case LEAVE_LINK:
		link_to(cpu, arg, mode);
		return TURN_AGAIN;
	case LEAVE_COMPLEX:
		return execute_complex(cpu, arg, mode);
	case LEAVE_RAISE:
		if (count_stops_here(cpu))
			return TURN_AGAIN;
		if ((u64)(uintptr_t)arg == VEC_GP)
			cpu_raise_error(cpu, VEC_GP, 0);
		else
			cpu_raise(cpu, (u64)(uintptr_t)arg);
		return TURN_AGAIN;
	case LEAVE_HEAD:
		if (!count_next_slice(cpu, arg) && !READ_ONCE(cpu->attention))
			heat_up(cpu, arg, mode);
		return TURN_AGAIN;
	case LEAVE_TRIP:
		count_refund_block(cpu, arg);
		count_stop_at_trip(cpu, arg);
		return TURN_AGAIN;
	case LEAVE_STEP:
		if ((mode & MODE_CODE64) && !cpu_canonical(cpu, cpu->rip) && block->nbranches)
			bad_target(cpu, block);
		else
			retired_step(cpu, cpu->rflags & FL_TF);
		return TURN_AGAIN;
	case LEAVE_FAULT:
		if (eng->reexecute)
			return TURN_AGAIN;
		if (eng->leave_fault == FAULT_NONE && !eng->finish_insn)
			retired_step(cpu, cpu->rflags & FL_TF);
		if (eng->leave_fault == FAULT_RAISED)
			abandoned(cpu);
		return eng->leave_fault == FAULT_EXIT ? TURN_RETURN : TURN_AGAIN;
	}
	return TURN_AGAIN;
}

static enum turn enter(struct cpu *cpu, u32 mode, const void *code, const struct block *block)
{
	enum leave why;

	check_entry(cpu, code, mode | (block ? block->mode & MODE_UNSHARED : 0));
	fpu_load(cpu);
	flags_to_aflags(cpu);
	cpu->engine->in_translated_code = true;
	why = cpu->engine->enter(cpu, code);
	cpu->engine->in_translated_code = false;
	flags_from_aflags(cpu);
	if (unlikely(branch_noted(&cpu_priv(cpu)->branch_log)))
		observe_settle(cpu);
	return after(cpu, why, mode, block);
}

/* In another code segment a RIP is another linear address: drops the jump cache. */
static void notice_segment(struct cpu *cpu, u32 mode)
{
	struct engine *eng = cpu->engine;
	const struct segment *cs = &cpu->seg[CS];

	if (likely(mode & (MODE_CODE64 | MODE_FLAT)))
		return;
	if (eng->jump_cs_base == cs->base && eng->jump_cs_limit == cs->limit)
		return;
	cpu_drop_jumps(cpu);
	eng->jump_cs_base = cs->base;
	eng->jump_cs_limit = cs->limit;
}

/* Translated code depends on the width of canonical addresses and on whether XCR0 enables AVX-512.
 * A guest changes the first outside long mode only and the second when it boots, so neither is
 * worth a bit of the mode: all blocks are dropped. */
static void notice_rare_modes(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;

	if (likely(eng->linear_bits == cpu_linear_bits(cpu) && eng->avx512 == cpu_avx512(cpu)))
		return;
	cache_flush(cpu);
	eng->linear_bits = cpu_linear_bits(cpu);
	eng->avx512 = cpu_avx512(cpu);
}

/*
 * Does what C that translated code called has deferred: an epoch, and the lines that were written.
 * Last before the look-up, since delivering events and PMU assists write memory, too.
 */
static void update_cache(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;

	if (unlikely(eng->check_pending)) {
		eng->check_pending = false;
		epoch_check(cpu);
	}
	epoch_begin_due(cpu);
	if (cpu_priv(cpu)->code->nwritten)
		cache_written(cpu);
}

static enum turn visit(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;
	u32 mode = cpu_priv(cpu)->mode & ~(u32)MODE_IOPL_OK, unshared = 0;
	const void *known = NULL;
	enum guest_fault fault;
	struct block *block;

	observe_visit(cpu);
	cpu_effort(cpu, EFFORT_VISIT);
	if (must_step(cpu))
		mode |= MODE_STEP;
	else if (eng->single_insns)
		mode |= MODE_SINGLE;
	eng->single_step = false;
	if (breakpoint_here(cpu))
		return TURN_AGAIN;
	notice_segment(cpu, mode);
	notice_rare_modes(cpu);
	update_cache(cpu);
	if (jump_usable(mode) && eng->unshared_next == cpu->rip)
		unshared = MODE_UNSHARED;
	else if (jump_usable(mode))
		known = jump_find(cpu, mode);
	eng->unshared_next = NO_RIP;
	if (known)
		return enter(cpu, mode, known, NULL);
	block = block_find(cpu, mode | unshared, &fault);
	if (!block)
		return fault == FAULT_EXIT ? TURN_RETURN : TURN_AGAIN;
	if (jump_usable(mode))
		jump_update_key(cpu, mode);
	if (jump_usable(mode) && !unshared)
		jump_insert(cpu, block);
	if (unlikely(eng->profile))
		profile_visit(cpu, block);
	return enter(cpu, mode, exec_view(eng, block->code), block);
}

/* Executes one instruction while all other processors are stopped. Their calls for attention have
 * been served. */
static enum turn visit_alone(struct cpu *cpu)
{
	enum turn turn;

	cpu->engine->run_exclusive = false;
	if (!exclusive_begin(cpu))
		return exit_with(cpu, EXIT_ATTENTION);
	cpu_attention_answered(cpu, ATTENTION_ENGINE);
	cpu->engine->single_step = true;
	turn = visit(cpu);
	exclusive_end(cpu);
	count_end_timed(cpu);
	return turn;
}

static void run_turns(struct cpu *cpu)
{
	enum turn turn;

	do {
		turn = before_entry(cpu);
		if (turn == TURN_AGAIN)
			turn = unlikely(cpu->engine->run_exclusive) ? visit_alone(cpu) : visit(cpu);
	} while (turn == TURN_AGAIN);
}

enum exit_reason engine_run(struct cpu *cpu, u64 budget)
{
	cpu->port.exit.reason = EXIT_NONE;
	cpu->port.exit.insn_len = 0;
	pmu_arm(cpu);
	cpu_update_mode(cpu);
	count_renew_sets(cpu);
	observe_begin(cpu);
	count_begin(cpu, budget);
	if (!cpu->port.memory_unchanged)
		epoch_check(cpu);
	cpu->port.memory_unchanged = false;
	cpu->port.mmio.read_pos = 0;
	if (cpu->engine->exit_rip != cpu->rip) { /* the program moved on without that instruction */
		mmio_completed(cpu);
		cpu->port.io.state = IO_IDLE;
	}
	signal_running(cpu);
	if (exclusive_enter(cpu))
		run_turns(cpu);
	else
		cpu->port.exit.reason = EXIT_ATTENTION;
	exclusive_leave(cpu);
	fpu_save(cpu);
	signal_running(NULL);
	count_flush(cpu, cpu_privilege(cpu));
	if (unlikely(cpu->engine->profile))
		profile_settle(cpu);
	cpu->engine->exit_rip = cpu->rip;
	cpu->port.may_end_early = false;
	return cpu->port.exit.reason;
}
