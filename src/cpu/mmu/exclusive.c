// SPDX-License-Identifier: MIT
/*
 * Stopping all other processors for one instruction: see cpu/mmu/exclusive.h for the protocol. vCPU
 * threads; general registers only.
 */
#include "cpu/mmu/exclusive.h"

#include "base/futex.h"
#include "cpu/private.h"

#define SPINS	1000	/* polls of a word before the thread sleeps */
#define WAIT_NS 1000000 /* then time between two reads of cpu->attention */

/*
 * Waits until a word that is `seen` is something else. False: attention was called for first. A
 * thread that changes the word wakes this one; a thread that calls for attention does not know that
 * it sleeps.
 */
static bool await_change(const struct cpu *cpu, u32 *word, u32 seen)
{
	for (u32 i = 0; __atomic_load_n(word, __ATOMIC_SEQ_CST) == seen; i++) {
		if (READ_ONCE(cpu->attention) & ATTENTION_OWNER)
			return false;
		if (i < SPINS)
			__builtin_ia32_pause();
		else
			futex_wait(word, seen, WAIT_NS);
	}
	return true;
}

static struct exclusive_cpu *slot_of(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);

	return &priv->exclusive->cpus[priv->exclusive_index];
}

void exclusive_join(struct cpu *cpu, struct exclusive *machine, u32 index)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	priv->exclusive = machine;
	priv->exclusive_index = index;
	machine->cpus[index].cpu = cpu;
	__atomic_store_n(&machine->ncpus, index + 1, __ATOMIC_SEQ_CST);
}

bool exclusive_enter(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct exclusive *x = priv->exclusive;
	u32 holder;

	if (!x)
		return true;
	for (;;) {
		__atomic_store_n(&slot_of(cpu)->running, 1, __ATOMIC_SEQ_CST);
		holder = __atomic_load_n(&x->holder, __ATOMIC_SEQ_CST);
		if (likely(!holder))
			return true;
		if (holder == priv->exclusive_index + 1) {
			/* Left from a run that a signal handler jumped out of (siglongjmp). */
			exclusive_end(cpu);
			continue;
		}
		exclusive_leave(cpu);
		if (!await_change(cpu, &x->holder, holder))
			return false;
	}
}

/* A holder sleeps only on processors that were running when it looked. */
void exclusive_leave(struct cpu *cpu)
{
	struct exclusive *x = cpu_priv(cpu)->exclusive;

	if (!x)
		return;
	__atomic_store_n(&slot_of(cpu)->running, 0, __ATOMIC_SEQ_CST);
	if (unlikely(__atomic_load_n(&x->holder, __ATOMIC_SEQ_CST)))
		futex_wake_all(&slot_of(cpu)->running);
}

bool exclusive_wanted(const struct cpu *cpu)
{
	const struct exclusive *x = cpu_priv(cpu)->exclusive;

	return x && READ_ONCE(x->holder);
}

bool exclusive_pause(struct cpu *cpu)
{
	if (!exclusive_wanted(cpu))
		return true;
	exclusive_leave(cpu);
	return exclusive_enter(cpu);
}

static bool become_holder(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct exclusive *x = priv->exclusive;
	u32 none = 0;

	while (!__atomic_compare_exchange_n(&x->holder, &none, priv->exclusive_index + 1, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		if (!exclusive_pause(cpu))
			return false;
		none = 0;
	}
	return true;
}

static void call_for_attention(const struct exclusive *x, u32 n, u32 self)
{
	for (u32 i = 0; i < n; i++)
		if (i != self && __atomic_load_n(&x->cpus[i].running, __ATOMIC_SEQ_CST))
			cpu_call_attention(x->cpus[i].cpu, ATTENTION_ENGINE);
}

static bool stop_others(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct exclusive *x = priv->exclusive;
	u32 n = __atomic_load_n(&x->ncpus, __ATOMIC_SEQ_CST);

	call_for_attention(x, n, priv->exclusive_index);
	for (u32 i = 0; i < n; i++)
		if (i != priv->exclusive_index && !await_change(cpu, &x->cpus[i].running, 1))
			return false;
	return true;
}

static void release(struct exclusive *x)
{
	__atomic_store_n(&x->holder, 0, __ATOMIC_SEQ_CST);
	futex_wake_all(&x->holder);
}

bool exclusive_begin(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct exclusive *x = priv->exclusive;

	if (x && !become_holder(cpu))
		return false;
	if (x && !stop_others(cpu)) {
		release(x);
		return false;
	}
	priv->others_stopped = true;
	return true;
}

void exclusive_end(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	priv->others_stopped = false;
	if (priv->exclusive)
		release(priv->exclusive);
}
