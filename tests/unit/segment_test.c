// SPDX-License-Identifier: MIT
/*
 * Segment registers in long mode: every check of a load with its error code, accessed and busy
 * bits, system segments, and the instructions that only look.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/transfer/segment.h"
#include "unit/guest_tables.h"

struct load {
	enum where where;
	enum seg seg;
	u16 sel;
	struct outcome outcome;
};

static const struct load loads[] = {
	{ KERNEL64, DS, SEL_KDATA, { -1, 0 } },
	{ KERNEL64, DS, SEL_KCODE64, { -1, 0 } }, /* readable code */
	{ KERNEL64, FS, SEL_IN_LDT, { -1, 0 } },
	{ KERNEL64, GS, SEL_UDATA | 3, { -1, 0 } },
	{ KERNEL64, DS, 0, { -1, 0 } },
	{ USER64, DS, 3, { -1, 0 } },
	{ USER64, ES, SEL_UDATA, { -1, 0 } }, /* RPL below CPL */
	{ USER64, ES, SEL_CONFORMING | 3, { -1, 0 } },
	{ KERNEL64, ES, SEL_BEYOND, { VEC_GP, SEL_BEYOND } },
	{ KERNEL64, ES, (LDT_LIMIT + 1) | SEL_TI, { VEC_GP, (LDT_LIMIT + 1) | SEL_TI } },
	{ KERNEL64, ES, SEL_TSS, { VEC_GP, SEL_TSS } },
	{ KERNEL64, ES, SEL_EXECONLY, { VEC_GP, SEL_EXECONLY } },
	{ KERNEL64, ES, SEL_KDATA | 3, { VEC_GP, SEL_KDATA } },
	{ USER64, ES, SEL_KDATA, { VEC_GP, SEL_KDATA } },
	{ USER64, ES, SEL_KCODE64, { VEC_GP, SEL_KCODE64 } },
	{ KERNEL64, ES, SEL_ABSENT_DATA, { VEC_NP, SEL_ABSENT_DATA } },
	{ USER64, ES, SEL_ABSENT_DATA, { VEC_GP, SEL_ABSENT_DATA } }, /* privilege comes first */
	{ KERNEL64, SS, SEL_KDATA, { -1, 0 } },
	{ USER64, SS, SEL_UDATA | 3, { -1, 0 } },
	{ KERNEL64, SS, 0, { -1, 0 } },
	{ RING1, SS, 1, { -1, 0 } },
	{ KERNEL64, SS, 1, { VEC_GP, 0 } },
	{ KERNEL32, SS, 0, { VEC_GP, 0 } },
	{ USER64, SS, 3, { VEC_GP, 0 } },
	{ KERNEL64, SS, SEL_BEYOND, { VEC_GP, SEL_BEYOND } },
	{ KERNEL64, SS, SEL_KDATA | 3, { VEC_GP, SEL_KDATA } },
	{ KERNEL64, SS, SEL_UDATA, { VEC_GP, SEL_UDATA } },
	{ KERNEL64, SS, SEL_READONLY, { VEC_GP, SEL_READONLY } },
	{ KERNEL64, SS, SEL_KCODE64, { VEC_GP, SEL_KCODE64 } },
	{ KERNEL64, SS, SEL_ABSENT_DATA, { VEC_SS, SEL_ABSENT_DATA } },
};

static void assert_same_segment(const struct segment *a, const struct segment *b)
{
	assert_int_equal(a->sel, b->sel);
	assert_int_equal(a->base, b->base);
	assert_int_equal(a->limit, b->limit);
	assert_int_equal(a->attr, b->attr);
}

static void loads_raise_what_the_manual_says(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(loads); i++) {
		const struct load *row = &loads[i];
		struct segment before;
		struct outcome got;

		print_message("row %u: selector %x\n", i, row->sel);
		tables_enter(p, row->where);
		before = cpu->seg[row->seg];
		got = outcome_of(cpu, cpu_load_seg(cpu, row->seg, row->sel));
		assert_int_equal(got.vector, row->outcome.vector);
		assert_int_equal(got.error, row->outcome.error);
		if (got.vector < 0)
			assert_int_equal(cpu->seg[row->seg].sel, row->sel);
		else
			assert_same_segment(&cpu->seg[row->seg], &before);
	}
}

static void a_load_fills_the_hidden_part_and_marks_the_descriptor(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	const u64 accessed = BIT(40);

	assert_false(tables_word(p, LDT + 8) & accessed);
	assert_int_equal(cpu_load_seg(cpu, FS, SEL_IN_LDT | 3), FAULT_NONE);
	assert_true(tables_word(p, LDT + 8) & accessed);
	assert_int_equal(cpu->seg[FS].base, 0x12345000);
	assert_int_equal(cpu->seg[FS].limit, 0xffffffff);
	assert_true(cpu->seg[FS].attr & TYPE_ACCESSED);
	assert_int_equal(cpu_load_seg(cpu, FS, 0), FAULT_NONE);
	assert_int_equal(cpu->seg[FS].base, 0);
	assert_true(cpu->seg[FS].attr & SEG_UNUSABLE);
}

static void without_an_ldt_its_selectors_fault(void **state)
{
	struct paged_cpu *p = *state;
	struct outcome got;

	assert_int_equal(cpu_load_ldtr(p->cpu, 0), FAULT_NONE);
	got = outcome_of(p->cpu, cpu_load_seg(p->cpu, DS, SEL_IN_LDT));
	assert_int_equal(got.vector, VEC_GP);
	assert_int_equal(got.error, SEL_IN_LDT);
}

static void a_table_that_is_not_mapped_gives_a_system_page_fault(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	tables_enter(p, USER64);
	cpu->gdtr.base = UNMAPPED;
	assert_int_equal(cpu_load_seg(cpu, DS, SEL_UDATA | 3), FAULT_RAISED);
	assert_int_equal(cpu->port.event.vector, VEC_PF);
	assert_int_equal(cpu->port.event.error, 0); /* a supervisor access, though at CPL 3 */
	assert_int_equal(cpu->port.event.payload, UNMAPPED + SEL_UDATA);
}

struct system_load {
	bool task;
	u16 sel;
	struct outcome outcome;
};

static const struct system_load system_loads[] = {
	{ false, SEL_LDT, { -1, 0 } },
	{ false, 3, { -1, 0 } },
	{ false, SEL_BEYOND, { VEC_GP, SEL_BEYOND } },
	{ false, SEL_IN_LDT, { VEC_GP, SEL_IN_LDT } },
	{ false, SEL_TSS, { VEC_GP, SEL_TSS } },
	{ false, SEL_KDATA, { VEC_GP, SEL_KDATA } },
	{ false, SEL_LDT_ABSENT, { VEC_NP, SEL_LDT_ABSENT } },
	{ true, SEL_TSS, { -1, 0 } },
	{ true, SEL_TSS, { VEC_GP, SEL_TSS } }, /* which is busy now */
	{ true, 0, { VEC_GP, 0 } },
	{ true, SEL_LDT, { VEC_GP, SEL_LDT } },
	{ true, SEL_TSS_BUSY, { VEC_GP, SEL_TSS_BUSY } },
	{ true, SEL_TSS_FAR, { VEC_GP, SEL_TSS_FAR } },
	{ true, SEL_BEYOND, { VEC_GP, SEL_BEYOND } },
	{ true, SEL_IN_LDT, { VEC_GP, SEL_IN_LDT } },
};

static void system_loads_raise_what_the_manual_says(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(system_loads); i++) {
		const struct system_load *row = &system_loads[i];
		struct outcome got;

		print_message("row %u: selector %x\n", i, row->sel);
		got = outcome_of(cpu, row->task ? cpu_load_tr(cpu, row->sel)
						: cpu_load_ldtr(cpu, row->sel));
		assert_int_equal(got.vector, row->outcome.vector);
		assert_int_equal(got.error, row->outcome.error);
	}
	assert_int_equal(cpu->tr.attr & SEG_TYPE, TYPE_TSS_BUSY);
	assert_int_equal(cpu->tr.base, TSS);
	assert_int_equal(tables_word(p, GDT + SEL_TSS) >> 40 & 0xf, TYPE_TSS_BUSY);
}

static void system_descriptors_have_16_bytes(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	struct outcome got;

	tables_descriptor(p, SEL_LDT, 0xffff812345678000, LDT_LIMIT, TYPE_LDT | SEG_P);
	assert_int_equal(cpu_load_ldtr(cpu, SEL_LDT), FAULT_NONE);
	assert_int_equal(cpu->ldtr.base, 0xffff812345678000);
	tables_set_word(p, GDT + SEL_LDT + 8, BIT(40));
	got = outcome_of(cpu, cpu_load_ldtr(cpu, SEL_LDT));
	assert_int_equal(got.vector, VEC_GP);
	cpu->gdtr.limit = SEL_LDT + 14;
	tables_set_word(p, GDT + SEL_LDT + 8, 0);
	got = outcome_of(cpu, cpu_load_ldtr(cpu, SEL_LDT));
	assert_int_equal(got.vector, VEC_GP);
	assert_int_equal(got.error, SEL_LDT);
}

struct look {
	enum where where;
	u16 sel;
	bool lar, lsl, verr, verw;
};

static const struct look looks[] = {
	{ KERNEL64, 0, false, false, false, false },
	{ KERNEL64, SEL_BEYOND, false, false, false, false },
	{ KERNEL64, SEL_KDATA, true, true, true, true },
	{ KERNEL64, SEL_READONLY, true, true, true, false },
	{ KERNEL64, SEL_KCODE64, true, true, true, false },
	{ KERNEL64, SEL_EXECONLY, true, true, false, false },
	{ KERNEL64, SEL_ABSENT_DATA, true, true, true, true },
	{ KERNEL64, SEL_LDT, true, true, false, false },
	{ KERNEL64, SEL_TSS, true, true, false, false },
	{ KERNEL64, SEL_GATE, true, false, false, false },
	{ USER64, SEL_KDATA, false, false, false, false },
	{ USER64, SEL_UDATA | 3, true, true, true, true },
	{ USER64, SEL_CONFORMING | 3, true, true, true, false },
	{ KERNEL64, SEL_KDATA | 3, false, false, false, false },
};

static void looking_at_descriptors_never_faults(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	u32 value;
	bool ok;

	for (u32 i = 0; i < ARRAY_SIZE(looks); i++) {
		const struct look *row = &looks[i];

		print_message("row %u: selector %x\n", i, row->sel);
		tables_enter(p, row->where);
		assert_int_equal(cpu_lar(cpu, row->sel, &ok, &value), FAULT_NONE);
		assert_int_equal(ok, row->lar);
		assert_int_equal(cpu_lsl(cpu, row->sel, &ok, &value), FAULT_NONE);
		assert_int_equal(ok, row->lsl);
		assert_int_equal(cpu_verify(cpu, row->sel, false, &ok), FAULT_NONE);
		assert_int_equal(ok, row->verr);
		assert_int_equal(cpu_verify(cpu, row->sel, true, &ok), FAULT_NONE);
		assert_int_equal(ok, row->verw);
	}
	tables_enter(p, KERNEL64);
	assert_int_equal(cpu_lar(cpu, SEL_UCODE64, &ok, &value), FAULT_NONE);
	assert_int_equal(value, 0xaffa00);
	assert_int_equal(cpu_lsl(cpu, SEL_TSS, &ok, &value), FAULT_NONE);
	assert_int_equal(value, 0x67);
}

static void real_mode_keeps_limits_and_virtual_8086_mode_sets_them(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu->efer = 0;
	cpu->cr0 = CR0_ET;
	assert_int_equal(cpu_load_seg(cpu, DS, 0xb800), FAULT_NONE);
	assert_int_equal(cpu->seg[DS].base, 0xb8000);
	assert_int_equal(cpu->seg[DS].limit, 0xffffffff);
	cpu->cr0 |= CR0_PE;
	cpu->rflags |= FL_VM;
	assert_int_equal(cpu_load_seg(cpu, DS, 0x1234), FAULT_NONE);
	assert_int_equal(cpu->seg[DS].base, 0x12340);
	assert_int_equal(cpu->seg[DS].limit, 0xffff);
	assert_int_equal(cpu->seg[DS].attr, 0xf3);
}

/* What another processor does to a descriptor while this one loads it. */
struct other {
	u8 *rights; /* byte 5 */
	u32 begun, stop, lost;
	u32 met;   /* loads of this one that came between what the other does */
	u32 owner; /* of the task: 0, nobody */
};

#define RACES 300000

/* On a busy machine, or with one CPU, they do not meet at every turn. */
static bool race_goes_on(const struct other *o, u32 i)
{
	return i < RACES || (i < 20 * RACES && __atomic_load_n(&o->met, __ATOMIC_RELAXED) < 10000);
}

static bool goes_on(struct other *o)
{
	__atomic_store_n(&o->begun, 1, __ATOMIC_RELAXED);
	return !__atomic_load_n(&o->stop, __ATOMIC_RELAXED);
}

static void lose(struct other *o, bool lost)
{
	__atomic_fetch_add(&o->lost, lost, __ATOMIC_RELAXED);
}

static void begin(struct other *o, pthread_t *thread, void *(*what)(void *))
{
	assert_int_equal(pthread_create(thread, NULL, what, o), 0);
	while (!__atomic_load_n(&o->begun, __ATOMIC_RELAXED))
		sched_yield();
}

static void end(struct other *o, pthread_t thread)
{
	__atomic_store_n(&o->stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	assert_int_equal(o->lost, 0);
	assert_true(o->met);
}

/* Changes DPL for ever, and takes the accessed bit away. */
static void *change_rights(void *data)
{
	struct other *o = data;
	u8 expected = *o->rights & ~TYPE_ACCESSED, was;

	while (goes_on(o)) {
		was = __atomic_fetch_xor(o->rights, (u8)SEG_DPL, __ATOMIC_SEQ_CST);
		lose(o, (was & ~TYPE_ACCESSED) != expected);
		expected = (was ^ SEG_DPL) & ~TYPE_ACCESSED;
		was = __atomic_fetch_and(o->rights, (u8)~TYPE_ACCESSED, __ATOMIC_SEQ_CST);
		lose(o, (was & ~TYPE_ACCESSED) != expected);
		__atomic_fetch_add(&o->met, was & TYPE_ACCESSED, __ATOMIC_RELAXED);
		expected = was & ~TYPE_ACCESSED;
	}
	return NULL;
}

/* SDM 3A 8.1.2.1: the accessed flag is set by a locked operation. */
static void a_load_undoes_no_change_by_another_processor(void **state)
{
	struct paged_cpu *p = *state;
	struct other o = { .rights = p->ram + GDT + SEL_UDATA + 5 };
	pthread_t thread;

	begin(&o, &thread, change_rights);
	for (u32 i = 0; race_goes_on(&o, i); i++)
		lose(&o, cpu_load_seg(p->cpu, FS, SEL_UDATA) != FAULT_NONE);
	end(&o, thread);
}

static void wait_a_while(void)
{
	for (u32 i = 0; i < 20; i++)
		__builtin_ia32_pause();
}

static void own_for_a_while(struct other *o, u32 who)
{
	lose(o, __atomic_exchange_n(&o->owner, who, __ATOMIC_SEQ_CST) != 0);
	wait_a_while();
	lose(o, __atomic_exchange_n(&o->owner, 0, __ATOMIC_SEQ_CST) != who);
	__atomic_fetch_and(o->rights, (u8)~TSS_BUSY, __ATOMIC_SEQ_CST);
}

static void *load_task(void *data)
{
	struct other *o = data;

	while (goes_on(o)) {
		if (!(__atomic_fetch_or(o->rights, TSS_BUSY, __ATOMIC_SEQ_CST) & TSS_BUSY))
			own_for_a_while(o, 1);
		wait_a_while(); /* else it is always this one's */
	}
	return NULL;
}

/* The same for the busy flag. */
static void a_task_is_loaded_by_one_processor_only(void **state)
{
	struct paged_cpu *p = *state;
	struct other o = { .rights = p->ram + GDT + SEL_TSS + 5 };
	pthread_t thread;

	begin(&o, &thread, load_task);
	for (u32 i = 0; race_goes_on(&o, i); i++)
		if (cpu_load_tr(p->cpu, SEL_TSS) == FAULT_NONE) {
			o.met++;
			own_for_a_while(&o, 2);
		}
	end(&o, thread);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tables_setup, tables_teardown)
	const struct CMUnitTest tests[] = {
		TEST(loads_raise_what_the_manual_says),
		TEST(a_load_fills_the_hidden_part_and_marks_the_descriptor),
		TEST(without_an_ldt_its_selectors_fault),
		TEST(a_table_that_is_not_mapped_gives_a_system_page_fault),
		TEST(system_loads_raise_what_the_manual_says),
		TEST(system_descriptors_have_16_bytes),
		TEST(looking_at_descriptors_never_faults),
		TEST(real_mode_keeps_limits_and_virtual_8086_mode_sets_them),
		TEST(a_load_undoes_no_change_by_another_processor),
		TEST(a_task_is_loaded_by_one_processor_only),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
