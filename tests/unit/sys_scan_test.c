// SPDX-License-Identifier: MIT
/*
 * Repeated SCAS and CMPS against the host's: counts, pointers and flags, wherever the strings
 * differ and pages end; and faults in the middle of a chunk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "unit/sys_cpu.h"

struct strings {
	u64 rsi, rdi, rcx, flags;
};

/* The prefix and size of an instruction, and the host's own. */
struct form {
	u8 bytes[4];
	u32 len, size;
	void (*native)(struct strings *s, u64 rax);
};

/* LEA leaves the flags alone, and PUSHF this function's red zone. */
#define NATIVE(name, text)                                                                         \
	static void name(struct strings *s, u64 rax)                                               \
	{                                                                                          \
		__asm__ volatile(text                                                              \
				 "; lea -128(%%rsp), %%rsp; pushfq; pop %3; lea 128(%%rsp), %%rsp" \
				 : "+S"(s->rsi), "+D"(s->rdi), "+c"(s->rcx), "=r"(s->flags)        \
				 : "a"(rax)                                                        \
				 : "memory", "cc");                                                \
	}

NATIVE(repe_cmpsb, "repe cmpsb")
NATIVE(repne_cmpsb, "repne cmpsb")
NATIVE(repe_cmpsw, "repe cmpsw")
NATIVE(repne_cmpsd, "repne cmpsl")
NATIVE(repe_cmpsq, "repe cmpsq")
NATIVE(repe_scasb, "repe scasb")
NATIVE(repne_scasb, "repne scasb")
NATIVE(repe_scasw, "repe scasw")
NATIVE(repne_scasd, "repne scasl")
NATIVE(repne_scasq, "repne scasq")

static const struct form forms[] = {
	{ { 0xf3, 0xa6 }, 2, 1, repe_cmpsb },	    { { 0xf2, 0xa6 }, 2, 1, repne_cmpsb },
	{ { 0xf3, 0x66, 0xa7 }, 3, 2, repe_cmpsw }, { { 0xf2, 0xa7 }, 2, 4, repne_cmpsd },
	{ { 0xf3, 0x48, 0xa7 }, 3, 8, repe_cmpsq }, { { 0xf3, 0xae }, 2, 1, repe_scasb },
	{ { 0xf2, 0xae }, 2, 1, repne_scasb },	    { { 0xf3, 0x66, 0xaf }, 3, 2, repe_scasw },
	{ { 0xf2, 0xaf }, 2, 4, repne_scasd },	    { { 0xf2, 0x48, 0xaf }, 3, 8, repne_scasq },
};

/* Guest strings begin `before` bytes before the ends of pages 0 and 2, the host's copies
 * likewise. */
static u8 copy[4 * PAGE_SIZE];

static void assert_same(const struct form *form, u32 before, u64 count)
{
	struct strings s = { (u64)copy + PAGE_SIZE - before, (u64)copy + 3 * PAGE_SIZE - before,
			     count, 0 };
	const u64 moved = AT(0, 0) - (u64)copy;

	memcpy(copy, ram(0, 0), sizeof(copy));
	set_string(s.rsi + moved, s.rdi + moved, count);
	form->native(&s, cpu->regs[RAX]);
	assert_int_equal(execute(form->bytes, form->len), SYS_NEXT);
	assert_int_equal(cpu->regs[RSI], s.rsi + moved);
	assert_int_equal(cpu->regs[RDI], s.rdi + moved);
	assert_int_equal(cpu->regs[RCX], s.rcx);
	assert_int_equal(cpu->rflags & FL_ARITH, s.flags & FL_ARITH);
}

/* Equal strings of one byte's value, or never equal ones, with one element that ends it. */
static void prepare(const struct form *form, u32 before, u32 odd)
{
	bool scan_equal = form->bytes[0] == 0xf3;
	u32 at = odd * form->size;

	memset(ram(0, 0), 0x5a, 2 * PAGE_SIZE);
	memset(ram(2, 0), scan_equal ? 0x5a : 0x5b, 2 * PAGE_SIZE);
	memset(ram(3, 0) - before + at, scan_equal ? 0x77 : 0x5a, form->size);
	memset(&cpu->regs[RAX], 0x5a, 8);
}

static void scans_and_compares_are_those_of_the_processor(void **state)
{
	static const u32 odds[] = { 0, 1, 2, 15, 16, 31, 63, 64, 127, 128, 129, 200 };

	(void)state;
	for (u32 f = 0; f < ARRAY_SIZE(forms); f++)
		for (u32 before = 0; before < 300; before += 37)
			for (u32 i = 0; i < ARRAY_SIZE(odds); i++) {
				prepare(&forms[f], before, odds[i]);
				assert_same(&forms[f], before, 150);
			}
}

static void nothing_changes_with_a_count_of_zero(void **state)
{
	(void)state;
	for (u32 f = 0; f < ARRAY_SIZE(forms); f++) {
		cpu->rflags |= FL_ARITH;
		set_string(AT(HOLE, 0), AT(HOLE, 0), 0);
		assert_int_equal(execute(forms[f].bytes, forms[f].len), SYS_NEXT);
		assert_int_equal(cpu->rflags & FL_ARITH, FL_ARITH);
	}
}

static void a_scan_that_faults_has_compared_all_before(void **state)
{
	(void)state;
	memset(&cpu->regs[RAX], 0x5a, 8);
	memset(ram(NPAGES - 1, PAGE_SIZE - 200), 0x5a, 200);
	for (u32 amd = 0; amd < 2; amd++) { /* whose flags show it */
		cpu->is_amd = amd;
		cpu->rflags &= ~(u64)FL_ZF;
		set_string(0, AT(HOLE, -200), 500);
		assert_raised(EXECUTE(0xf3, 0xae), VEC_PF);
		assert_int_equal(cpu->port.event.payload, AT(HOLE, 0));
		assert_int_equal(cpu->regs[RCX], 300);
		assert_int_equal(cpu->rflags & FL_ZF, amd ? FL_ZF : 0);
	}
}

static void a_device_is_asked_for_one_element_at_a_time(void **state)
{
	(void)state;
	set_string(AT(0, 0), AT(DEVICE, 0), 2);
	assert_int_equal(EXECUTE(REPE_CMPSB), SYS_EXIT);
	assert_int_equal(cpu->port.mmio.reads[0].len, 1);
	cpu->port.mmio.reads[0].answered = true;
	cpu->port.mmio.reads[0].data[0] = 0;
	assert_int_equal(EXECUTE(REPE_CMPSB), SYS_EXIT);
	assert_int_equal(cpu->regs[RCX], 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, sys_cpu_setup, sys_cpu_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(scans_and_compares_are_those_of_the_processor),
		T(nothing_changes_with_a_count_of_zero),
		T(a_scan_that_faults_has_compared_all_before),
		T(a_device_is_asked_for_one_element_at_a_time),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
