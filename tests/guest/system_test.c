// SPDX-License-Identifier: MIT
/*
 * System instructions that translated code has in line leave the state that C leaves, which
 * executes them when one instruction is stepped at a time; and STI opens its window after the next
 * instruction, neither before nor never.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define ALL 1000000

/* Every flag that PUSHF can see, after instructions that leave them in different places. */
GUEST_CODE(flags, "mov $50, %ecx\n"
		  "1: mov %ecx, %eax\n"
		  "imul $0x1234567, %eax\n"
		  "pushfq\n"
		  "pop %rbx\n"
		  "add %rbx, %r8\n"
		  "sti\n"
		  "sub %eax, %edx\n"
		  "pushfq\n"
		  "add %r9, (%rsp)\n"
		  "pop %r9\n"
		  "adc %r9, %r10\n"
		  "std\n"
		  "cli\n"
		  "rol $3, %rdx\n"
		  "pushfq\n"
		  "cld\n"
		  "xor (%rsp), %r11\n"
		  "pop %r12\n"
		  "sti\n"
		  "sti\n"
		  "sbb %r12, %r13\n"
		  "pushfq\n"
		  "pop %r14\n"
		  "dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n");

/* AC by STAC and CLAC, in one block and across two. */
GUEST_CODE(access, "mov $50, %ecx\n"
		   "1: stac\n"
		   "mov (%rsp), %rax\n"
		   "pushfq\n"
		   "pop %rbx\n"
		   "clac\n"
		   "mov %rax, -64(%rsp)\n"
		   "add %rbx, %r8\n"
		   "stac\n"
		   "test $1, %cl\n"
		   "jz 2f\n"
		   "addq $3, -64(%rsp)\n"
		   "2: clac\n"
		   "pushfq\n"
		   "pop %rbx\n"
		   "xor %rbx, %r9\n"
		   "dec %ecx\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n");

GUEST_CODE(segments, "mov $50, %ecx\n"
		     "1: cmp $7, %ecx\n"
		     "mov %cs, %eax\n"
		     "mov %ss, %bx\n"
		     "mov %ds, %rdx\n"
		     "adc %rax, %r8\n"
		     "swapgs\n"
		     "adc %gs:0x100, %r9\n"
		     "swapgs\n"
		     "sbb %gs:0x100, %r10\n"
		     "mov %gs, %r14\n"
		     "dec %ecx\n"
		     "jnz 1b\n"
		     "out %al, $0xf4\n");

/* Control registers that are read, the bases of FS and GS, and CLAC with nothing to end. */
GUEST_CODE(controls, "mov %cr4, %rax\n"
		     "or $0x10000, %eax\n" /* FSGSBASE */
		     "mov %rax, %cr4\n"
		     "mov $0x1234567, %eax\n"
		     "mov %rax, %cr2\n"
		     "mov $50, %ecx\n"
		     "1: cmp $9, %ecx\n"
		     "mov %cr0, %rax\n"
		     "adc %rax, %r8\n"
		     "mov %cr2, %r15\n"
		     "mov %cr3, %rbx\n"
		     "sbb %rbx, %r9\n"
		     "mov %cr4, %r12\n"
		     "clac\n"
		     "adc %r12, %r9\n"
		     "lea 0x20000(,%rcx,8), %rdx\n"
		     "wrgsbase %rdx\n"
		     "adc %gs:0x100, %r10\n"
		     "rdgsbase %r13\n"
		     "wrfsbase %ecx\n"
		     "adc %fs:0x20000, %r10\n"
		     "rdfsbase %eax\n"
		     "sbb %rax, %r11\n"
		     "rdfsbase %r14\n"
		     "dec %ecx\n"
		     "jnz 1b\n"
		     "out %al, $0xf4\n");

/* Short and long strings in the middle of blocks, with flags alive around them. */
GUEST_CODE(strings, "mov $40, %ebp\n"
		    "mov $0x20000, %esi\n"
		    "1: lea 0x20000(%rbp,%rbp), %rdi\n"
		    "mov %ebp, %ecx\n"
		    "mov %ebp, %eax\n"
		    "cmp $20, %ebp\n"
		    "rep stosq\n"
		    "adc %rcx, %r8\n"
		    "mov $777, %ecx\n"
		    "rep movsb\n"
		    "sbb %rdi, %r9\n"
		    "lea -5(%rdi), %rsi\n"
		    "mov $13, %ecx\n"
		    "rep movsw\n"
		    "xor %rdi, %r10\n"
		    "mov $0x20000, %esi\n"
		    "lea 0x20ff8(%rbp), %rdi\n"
		    "mov $6, %ecx\n"
		    "repe cmpsb\n"
		    "setz %r11b\n"
		    "add %rcx, %r12\n"
		    "lodsq\n"
		    "add %rax, %r13\n"
		    "xor %ecx, %ecx\n"
		    "rep stosb\n"
		    "dec %ebp\n"
		    "jnz 1b\n"
		    "out %al, $0xf4\n");

struct outcome {
	u64 regs[16], rip, rflags, kernel_gs_base;
	u8 shadow;
	struct retire_tally tally;
	u8 page[2 * PAGE_SIZE];
};

/* With SMAP, and so with pages that are the kernel's alone. */
static void prepare(struct machine *m)
{
	struct cpu *cpu = m->cpu;

	for (u64 page = 0; page < 512 * PAGE_SIZE; page += PAGE_SIZE)
		*image_pte(m->ram, page) &= ~(u64)PTE_U;
	cpu->features[FEAT_SMAP / 64] |= BIT(FEAT_SMAP % 64);
	cpu->cr4 |= CR4_SMAP;
	cpu->seg[GS].base = 0x20000;
	cpu->kernel_gs_base = 0x20100;
	cpu_state_changed(cpu);
}

static struct outcome run(struct machine *m, const u8 *start, const u8 *end, u64 slice)
{
	struct outcome o = { 0 };

	machine_load(m, start, (size_t)(end - start));
	prepare(m);
	while (machine_run(m, slice) == EXIT_BUDGET)
		assert_true(machine_retired(m) < ALL);
	assert_int_equal(m->cpu->port.exit.reason, EXIT_IO);
	memcpy(o.regs, m->cpu->regs, sizeof(o.regs));
	o.rip = m->cpu->rip;
	o.rflags = m->cpu->rflags;
	o.kernel_gs_base = m->cpu->kernel_gs_base;
	o.shadow = m->cpu->shadow;
	o.tally = m->cpu->port.tally;
	memcpy(o.page, m->ram + 0x20000, sizeof(o.page));
	return o;
}

/* Stepped, C executes them all. */
static void same_in_all_slices(struct machine *m, const u8 *start, const u8 *end)
{
	static const u64 slices[] = { 2, 3, 5, 7, 31, ALL };
	struct outcome stepped = run(m, start, end, 1);

	for (u32 i = 0; i < ARRAY_SIZE(slices); i++) {
		struct outcome o = run(m, start, end, slices[i]);

		assert_memory_equal(&o, &stepped, sizeof(o));
	}
}

#define SAME(code)                                                    \
	static void code##_in_line_are_as_c_has_them(void **state)    \
	{                                                             \
		same_in_all_slices(*state, code##_start, code##_end); \
	}

SAME(flags)
SAME(access)
SAME(segments)
SAME(strings)
SAME(controls)

/* In the middle of a block; its handler, in place of the stub, tells where. */
GUEST_CODE(bad_base, "mov %cr4, %rax\n"
		     "or $0x10000, %eax\n"
		     "mov %rax, %cr4\n"
		     "mov $1, %eax\n"
		     "shl $63, %rax\n"
		     "nop\n"
		     "wrgsbase %rax\n"
		     "inc %ebx\n"
		     "out %al, $0xf4\n");

static void a_base_that_is_no_address_faults_in_its_place(void **state)
{
	struct machine *m = *state;
	u64 *frame;

	machine_load(m, bad_base_start, (size_t)(bad_base_end - bad_base_start));
	m->cpu->regs[RBX] = 0;
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	frame = (u64 *)(m->ram + m->cpu->regs[RSP]);
	assert_int_equal(m->cpu->rip & ~0xfull, IMAGE_STUBS + VEC_GP * IMAGE_STUB_SIZE);
	assert_int_equal(frame[0], 0);
	assert_memory_equal(m->ram + frame[1], "\xf3\x48\x0f\xae\xd8", 5); /* WRGSBASE */
	assert_int_equal(m->cpu->regs[RBX], 0);
	assert_int_equal(machine_retired(m), 7); /* six of them, and HLT */
}

/* Where is the first chance for an interrupt that waits? */
GUEST_CODE(window, "cli\n"
		   "nop\n"
		   "sti\n"
		   "nop\n"
		   "cli\n"
		   "mov $1, %eax\n"
		   "out %al, $0xf4\n");
#define WINDOW_FIRST 4 /* offset of the CLI after STI and its shadow */

/* Instructions that follow in the same block have to wait. */
GUEST_CODE(long_window, "cli\n"
			"nop\n"
			"sti\n"
			"nop\n"
			"mov $1, %eax\n"
			"mov %eax, -8(%rsp)\n"
			"out %al, $0xf4\n");

static void opens_at_first_chance(struct machine *m, const u8 *code, size_t size)
{
	machine_load(m, code, size);
	m->cpu->port.want_irq_window = true;
	m->cpu->rflags &= ~FL_IF;
	assert_int_equal(machine_run(m, ALL), EXIT_IRQ_WINDOW);
	assert_int_equal(m->cpu->rip, IMAGE_CODE + WINDOW_FIRST);
	assert_true(m->cpu->rflags & FL_IF);
	assert_int_equal(m->cpu->shadow, 0);
	m->cpu->port.want_irq_window = false;
}

static void an_open_window_is_not_missed(void **state)
{
	opens_at_first_chance(*state, window_start, (size_t)(window_end - window_start));
	opens_at_first_chance(*state, long_window_start,
			      (size_t)(long_window_end - long_window_start));
}

/* SDM 2B STI: CLI after STI leaves no chance for an interrupt. */
GUEST_CODE(no_window, "cli\n"
		      "sti\n"
		      "cli\n"
		      "mov $1, %eax\n"
		      "out %al, $0xf4\n");

static void cli_behind_sti_opens_no_window(void **state)
{
	struct machine *m = *state;

	machine_load(m, no_window_start, (size_t)(no_window_end - no_window_start));
	m->cpu->port.want_irq_window = true;
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	m->cpu->port.want_irq_window = false;
}

/* A budget that ends after STI finds the shadow, and so would an exit. */
static void the_shadow_of_sti_is_seen(void **state)
{
	struct machine *m = *state;

	machine_load(m, window_start, (size_t)(window_end - window_start));
	m->cpu->rflags &= ~FL_IF;
	assert_int_equal(machine_run(m, 3), EXIT_BUDGET);
	assert_int_equal(m->cpu->shadow, SHADOW_STI);
	assert_int_equal(machine_run(m, 1), EXIT_BUDGET);
	assert_int_equal(m->cpu->shadow, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags_in_line_are_as_c_has_them),
		cmocka_unit_test(access_in_line_are_as_c_has_them),
		cmocka_unit_test(segments_in_line_are_as_c_has_them),
		cmocka_unit_test(strings_in_line_are_as_c_has_them),
		cmocka_unit_test(controls_in_line_are_as_c_has_them),
		cmocka_unit_test(a_base_that_is_no_address_faults_in_its_place),
		cmocka_unit_test(an_open_window_is_not_missed),
		cmocka_unit_test(cli_behind_sti_opens_no_window),
		cmocka_unit_test(the_shadow_of_sti_is_seen),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
