// SPDX-License-Identifier: MIT
/*
 * One instruction while all other processors stand still: see cpu/exclusive.h.
 */
#include "cpu/exclusive.h"

#include "base/futex.h"

#define SPINS	1000	/* looks at a word before the thread sleeps */
#define WAIT_NS 1000000 /* and then between two looks at cpu->attention */

/*
 * Waits until a word that is `seen` is something else. False: attention was called for first.
 * Whoever changes the word wakes us; who calls for attention does not know that we sleep.
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
	return &cpu->exclusive->cpus[cpu->exclusive_index];
}

void exclusive_join(struct cpu *cpu, struct exclusive *machine, u32 index)
{
	cpu->exclusive = machine;
	cpu->exclusive_index = index;
	machine->cpus[index].cpu = cpu;
	__atomic_store_n(&machine->ncpus, index + 1, __ATOMIC_SEQ_CST);
}

bool exclusive_enter(struct cpu *cpu)
{
	struct exclusive *x = cpu->exclusive;
	u32 owner;

	if (!x)
		return true;
	for (;;) {
		__atomic_store_n(&slot_of(cpu)->running, 1, __ATOMIC_SEQ_CST);
		owner = __atomic_load_n(&x->owner, __ATOMIC_SEQ_CST);
		if (likely(!owner))
			return true;
		if (owner == cpu->exclusive_index + 1) { /* of a run that a handler jumped out of */
			exclusive_end(cpu);
			continue;
		}
		exclusive_leave(cpu);
		if (!await_change(cpu, &x->owner, owner))
			return false;
	}
}

/* An owner sleeps only on processors that were running when it looked. */
void exclusive_leave(struct cpu *cpu)
{
	struct exclusive *x = cpu->exclusive;

	if (!x)
		return;
	__atomic_store_n(&slot_of(cpu)->running, 0, __ATOMIC_SEQ_CST);
	if (unlikely(__atomic_load_n(&x->owner, __ATOMIC_SEQ_CST)))
		futex_wake_all(&slot_of(cpu)->running);
}

static bool become_owner(struct cpu *cpu)
{
	struct exclusive *x = cpu->exclusive;
	u32 none = 0;

	while (!__atomic_compare_exchange_n(&x->owner, &none, cpu->exclusive_index + 1, false,
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
			__atomic_fetch_or(&x->cpus[i].cpu->attention, ATTENTION_ENGINE,
					  __ATOMIC_SEQ_CST);
}

bool exclusive_begin(struct cpu *cpu)
{
	struct exclusive *x = cpu->exclusive;
	u32 n;

	if (x && !become_owner(cpu))
		return false;
	n = x ? __atomic_load_n(&x->ncpus, __ATOMIC_SEQ_CST) : 0;
	if (x)
		call_for_attention(x, n, cpu->exclusive_index);
	for (u32 i = 0; i < n; i++) {
		if (i == cpu->exclusive_index || await_change(cpu, &x->cpus[i].running, 1))
			continue;
		exclusive_end(cpu);
		return false;
	}
	cpu->alone = true;
	return true;
}

void exclusive_end(struct cpu *cpu)
{
	cpu->alone = false;
	if (!cpu->exclusive)
		return;
	__atomic_store_n(&cpu->exclusive->owner, 0, __ATOMIC_SEQ_CST);
	futex_wake_all(&cpu->exclusive->owner);
}
