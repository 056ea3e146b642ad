// SPDX-License-Identifier: MIT
/*
 * Blocks that lead to other blocks without a look-up: links to other pages, returns, loops that a
 * block takes in. Each program is executed until it is hot, in slices of different lengths, and
 * must leave what it leaves when its instructions are executed one at a time, counts included.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/mode.h"
#include "cpu/private.h"
#include "engine/priv.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define ALL	  10000000
#define SEEN	  IMAGE_DATA /* what programs leave in memory */
#define SEEN_SIZE (3 * PAGE_SIZE)

/* Functions on other pages, called directly and not, of one level and of many; returns that pop. */
GUEST_CODE(calls, "mov $300, %ecx\n"
		  "1: call calls_start + 0x1000\n"
		  "add %rax, %rbx\n"
		  "lea calls_start + 0x1100(%rip), %rdx\n"
		  "push %rcx\n"
		  "push $5\n"
		  "call *%rdx\n"
		  "adc %rax, %rbp\n"
		  "mov $6, %edi\n"
		  "call 3f\n"
		  "pop %rcx\n"
		  "cmp $100, %ecx\n"
		  "jmp calls_start + 0x2000\n"
		  "2: dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n"
		  "3: dec %edi\n" /* recursion */
		  "jz 4f\n"
		  "sub $40, %rsp\n"
		  "call 3b\n"
		  "add $40, %rsp\n"
		  "4: add %edi, %esi\n"
		  "ret\n"
		  ".org calls_start + 0x1000\n"
		  "lea 7(%rcx), %rax\n"
		  "call calls_start + 0x2100\n"
		  "ret\n"
		  ".org calls_start + 0x1100\n"
		  "mov 8(%rsp), %rax\n"
		  "imul %rcx, %rax\n"
		  "ret $8\n"
		  ".org calls_start + 0x2000\n"
		  "adc $0, %r8\n"
		  "jmp 2b\n"
		  ".org calls_start + 0x2100\n"
		  "inc %r9\n"
		  "ret\n");

/* Returns to where no call was, and calls that are never returned from. */
GUEST_CODE(unpaired, "mov $300, %ecx\n"
		     "1: lea 2f(%rip), %rax\n"
		     "push %rax\n"
		     "ret\n"
		     "ud2\n"
		     "2: call 3f\n"
		     "ud2\n"
		     "3: pop %rax\n" /* the address of a UD2 */
		     "sub %rsp, %rbx\n"
		     "call 4f\n"
		     "add $3, %r8\n"
		     "jmp 5f\n"
		     "4: testb $1, %cl\n"
		     "jz 6f\n"
		     "addq $4, (%rsp)\n" /* after the ADD */
		     "6: ret\n"
		     "5: dec %ecx\n"
		     "jnz 1b\n"
		     "out %al, $0xf4\n");

/* The function called changes what it returns to. */
GUEST_CODE(patched, "mov $300, %ecx\n"
		    "1: call 9f\n"
		    "mov $0x11223344, %eax\n"
		    "add %rax, %rbx\n"
		    "dec %ecx\n"
		    "jnz 1b\n"
		    "out %al, $0xf4\n"
		    "9: testb $7, %cl\n"
		    "jnz 2f\n"
		    "mov %ecx, patched_start + 11(%rip)\n"
		    "2: ret\n");

/* Loops: up and down, by base and by index, over borders of pages, with branches inside, of few
 * turns and of many; flags that are read after them. */
GUEST_CODE(loops, "mov $0x100ff0, %esi\n"
		  "mov $60, %r8d\n"
		  "1: xor %ecx, %ecx\n"
		  "2: mov (%rsi,%rcx,8), %rax\n"
		  "add %rcx, %rax\n"
		  "mov %rax, 8(%rsi,%rcx,8)\n"
		  "inc %rcx\n"
		  "cmp $100, %rcx\n"
		  "jne 2b\n"
		  "sbb %rax, %rbx\n"
		  "lea 0x200(%rsi), %rdi\n"
		  "3: movzbl (%rdi), %eax\n"
		  "add $3, %al\n"
		  "test $4, %al\n"
		  "jz 4f\n"
		  "xor %edi, %eax\n"
		  "4: mov %al, -1(%rdi)\n"
		  "sub $1, %rdi\n"
		  "cmp %rsi, %rdi\n"
		  "ja 3b\n"
		  "adc %rdi, %rbp\n"
		  "mov $3, %edx\n"
		  "5: addw $77, (%rsi,%rdx,2)\n"
		  "lea -1(%rdx), %rdx\n"
		  "add %edx, %ebx\n"
		  "test %edx, %edx\n"
		  "jnz 5b\n"
		  "add $0x31, %rsi\n"
		  "dec %r8d\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n");

/* A loop into a page that is not there. The handler lets it go on, and takes the page away
 * again. */
GUEST_CODE(faults, "mov $200, %ebp\n"
		   "1: mov $0x14ffc0, %esi\n"
		   "invlpg 0x150000\n"
		   "xor %eax, %eax\n"
		   "2: add (%rsi), %rax\n"
		   "adc %rax, %rbx\n"
		   "mov %rbx, 8(%rsi)\n"
		   "add $8, %rsi\n"
		   "cmp $0x150040, %rsi\n"
		   "jb 2b\n"
		   "movq $0, 0x7a80\n" /* its entry */
		   "dec %ebp\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n"
		   ".org faults_start + 0x800\n"
		   "pop %r8\n" /* error code */
		   "add (%rsp), %r9\n"
		   "xor %rsi, %r10\n"
		   "mov 16(%rsp), %r8\n" /* flags */
		   "add %r8, %r11\n"
		   "movq $0x150007, 0x7a80\n"
		   "iretq\n");

/* A stack in the midst of code, and frames that reach over it: each push is left
 * behind, or none. */
GUEST_CODE(pushes, "mov $300, %ecx\n"
		   "mov %rsp, %r15\n"
		   "1: lea 3f(%rip), %rsp\n"
		   "mov %rsp, %rbp\n"
		   "push %rcx\n"
		   "push %rbx\n"
		   "add 8(%rsp), %rbx\n"
		   "push $7\n"
		   "lea 16(%rsp), %rdi\n"
		   "call 4f\n"
		   "pop %rax\n"
		   "add %rax, %rbx\n"
		   "pop %rdx\n"
		   "pop %rsi\n"
		   "testb $3, %cl\n"
		   "jz 2f\n"
		   "push %rbp\n"
		   "sub %rsp, %rbp\n"
		   "add %rbp, %rbx\n"
		   "pop %rbp\n"
		   "2: add %rsi, %r9\n"
		   "add %rdi, %r10\n"
		   "cmp %rbp, %rsp\n"
		   "jne 5f\n"
		   "dec %ecx\n"
		   "jnz 1b\n"
		   "5: mov %r15, %rsp\n"
		   "out %al, $0xf4\n"
		   "4: push %rdi\n"
		   "pop %r8\n"
		   "add %rsp, %r11\n"
		   "ret\n"
		   ".fill 48, 1, 0xcc\n"
		   "3: ud2\n");

/* Two pages that are executed together, and write to each other and to themselves. */
GUEST_CODE(pages, "mov $400, %ecx\n"
		  "1: call pages_start + 0x1000\n"
		  "2: mov $0x11223344, %eax\n"
		  "add %rax, %rbx\n"
		  "jmp pages_start + 0x1080\n"
		  "3: dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n"
		  ".org pages_start + 0x1000\n"
		  "4: mov $0x55667788, %edx\n"
		  "add %rdx, %rbp\n"
		  "ret\n"
		  ".org pages_start + 0x1080\n"
		  "mov %ecx, %eax\n"
		  "and $63, %eax\n"
		  "cmp $21, %eax\n"
		  "cmove %ecx, %esi\n"
		  "jne 5f\n"
		  "mov %ecx, 2b + 1(%rip)\n"
		  "5: cmp $42, %eax\n"
		  "jne 6f\n"
		  "mov %ecx, 4b + 1(%rip)\n"
		  "6: jmp 3b\n");

/* A function that is not there each sixteenth time; the handler brings it back. */
GUEST_CODE(gone, "mov $400, %ecx\n"
		 "1: stc\n"
		 "call gone_start + 0x1000\n"
		 "adc %rax, %rbx\n"
		 "testb $15, %cl\n"
		 "jnz 2f\n"
		 "movq $0, 0x7088\n"
		 "invlpg 0x11000\n"
		 "2: mov %ds, %edx\n" /* a block that continues after no branch */
		 "dec %ecx\n"
		 "jnz 1b\n"
		 "out %al, $0xf4\n"
		 ".org gone_start + 0x800\n"
		 "pop %r8\n" /* error code */
		 "add (%rsp), %r9\n"
		 "add 16(%rsp), %r11\n" /* flags */
		 "movq $0x11007, 0x7088\n"
		 "iretq\n"
		 ".org gone_start + 0x1000\n"
		 "lea 3(%rcx), %rax\n"
		 "ret\n");

/* Returns that go elsewhere now and then, by no branch: functions in functions, on three pages. */
GUEST_CODE(elsewhere, "mov $500, %ecx\n"
		      "1: call elsewhere_start + 0x1000\n"
		      "add $5, %rbx\n" /* 4 bytes */
		      "add %rax, %rbp\n"
		      "dec %ecx\n"
		      "jnz 1b\n"
		      "out %al, $0xf4\n"
		      ".org elsewhere_start + 0x1000\n"
		      "push %rcx\n"
		      "call elsewhere_start + 0x2000\n"
		      "inc %r9\n" /* 3 bytes */
		      "pop %rdx\n"
		      "xor %eax, %eax\n"
		      "test $31, %edx\n"
		      "setz %al\n"
		      "shl $2, %eax\n"
		      "add %rax, (%rsp)\n"
		      "cmp $250, %edx\n"
		      "ret\n"
		      ".org elsewhere_start + 0x2000\n"
		      "xor %eax, %eax\n"
		      "test $15, %ecx\n"
		      "setz %al\n"
		      "lea (%rax,%rax,2), %rax\n"
		      "add %rax, (%rsp)\n"
		      "ret\n");

static const u64 slices[] = { 2, 3, 7, 31, 48, 49, 333, ALL };

struct outcome {
	u64 regs[16], rip, rflags;
	struct retire_tally tally;
	u8 memory[SEEN_SIZE];
};

static void run(struct machine *m, const u8 *start, const u8 *end, retire_wanted wanted, u64 slice,
		struct outcome *o)
{
	machine_load(m, start, (size_t)(end - start));
	m->cpu->port.wanted = wanted;
	image_gate(m->ram, VEC_PF, IMAGE_CODE + 0x800, 0);
	*image_pte(m->ram, IMAGE_HOLE) = 0;
	while (machine_run(m, slice) == EXIT_BUDGET)
		assert_true(machine_retired(m) < ALL);
	assert_int_equal(m->cpu->port.exit.reason, EXIT_IO);
	memset(o, 0, sizeof(*o));
	memcpy(o->regs, m->cpu->regs, sizeof(o->regs));
	o->rip = m->cpu->rip;
	o->rflags = m->cpu->rflags;
	o->tally = m->cpu->port.tally;
	memcpy(o->memory, m->ram + SEEN, sizeof(o->memory));
	m->cpu->port.wanted = 0;
}

static void same_in_all_slices(struct machine *m, const u8 *start, const u8 *end)
{
	static const retire_wanted wanted[] = { 0, COUNT_MEMORY | COUNT_CYCLES, COUNT_BRANCHES };
	static struct outcome stepped, o;

	for (u32 k = 0; k < ARRAY_SIZE(wanted); k++) {
		run(m, start, end, wanted[k], 1, &stepped);
		for (u32 i = 0; i < ARRAY_SIZE(slices); i++) {
			run(m, start, end, wanted[k], slices[i], &o);
			assert_memory_equal(&o, &stepped, sizeof(o));
		}
	}
}

#define SAME(code, name)                                              \
	static void name(void **state)                                \
	{                                                             \
		same_in_all_slices(*state, code##_start, code##_end); \
	}

SAME(calls, calls_return_to_their_callers)
SAME(unpaired, returns_need_no_call)
SAME(patched, a_function_may_change_its_caller)
SAME(loops, loops_are_as_one_turn_at_a_time)
SAME(faults, a_loop_faults_where_it_should)
SAME(pushes, a_stack_may_lie_in_code)
SAME(pages, code_on_two_pages_may_be_written)
SAME(gone, a_page_of_code_may_go)
SAME(elsewhere, returns_may_go_elsewhere)

/*
 * The page of a function changes under its caller, 300 times: by INVLPG, by writing CR3, and with
 * it to an address space where the page is another. Which of the functions it is shows in RBX.
 */
#define OTHER_PML4 0x200000 /* and its tables after it */
#define FUNCTION   (IMAGE_CODE + PAGE_SIZE)
#define FIRST	   0x20000 /* physical pages of the functions */
#define SECOND	   0x21000
/* FUNCTION's place among mapped pages is this page's, too. */
#define ALIAS_PT   0x210000
#define ALIAS	   (FUNCTION + MAPPED_PAGES * PAGE_SIZE)

GUEST_CODE(by_invlpg, "mov $300, %ecx\n"
		      "1: call by_invlpg_start + 0x1000\n"
		      "xorq $0x1000, 0x7088\n"
		      "invlpg 0x11000\n"
		      "dec %ecx\n"
		      "jnz 1b\n"
		      "out %al, $0xf4\n");

GUEST_CODE(by_flush, "mov $300, %ecx\n"
		     "mov %cr3, %rdx\n"
		     "1: call by_flush_start + 0x1000\n"
		     "xorq $0x1000, 0x7088\n"
		     "mov %rdx, %cr3\n"
		     "dec %ecx\n"
		     "jnz 1b\n"
		     "out %al, $0xf4\n");

GUEST_CODE(by_space, "mov $300, %ecx\n"
		     "mov %cr3, %rdx\n"
		     "1: call by_space_start + 0x1000\n"
		     "xor $0x204000, %rdx\n" /* IMAGE_PML4 ^ OTHER_PML4 */
		     "mov %rdx, %cr3\n"
		     "dec %ecx\n"
		     "jnz 1b\n"
		     "out %al, $0xf4\n");

/* The same, but that what is mapped holds for some turns: each sixteenth changes it. */
GUEST_CODE(rarely_invlpg, "mov $512, %ecx\n"
			  "1: call rarely_invlpg_start + 0x1000\n"
			  "testb $15, %cl\n"
			  "jnz 2f\n"
			  "xorq $0x1000, 0x7088\n"
			  "invlpg 0x11000\n"
			  "2: dec %ecx\n"
			  "jnz 1b\n"
			  "out %al, $0xf4\n");

GUEST_CODE(rarely_flush, "mov $512, %ecx\n"
			 "mov %cr3, %rdx\n"
			 "1: call rarely_flush_start + 0x1000\n"
			 "testb $15, %cl\n"
			 "jnz 2f\n"
			 "xorq $0x1000, 0x7088\n"
			 "mov %rdx, %cr3\n"
			 "2: dec %ecx\n"
			 "jnz 1b\n"
			 "out %al, $0xf4\n");

GUEST_CODE(rarely_space, "mov $512, %ecx\n"
			 "mov %cr3, %rdx\n"
			 "1: call rarely_space_start + 0x1000\n"
			 "testb $15, %cl\n"
			 "jnz 2f\n"
			 "xor $0x204000, %rdx\n"
			 "mov %rdx, %cr3\n"
			 "2: dec %ecx\n"
			 "jnz 1b\n"
			 "out %al, $0xf4\n");

/* The same by indirect calls, of which the jump cache tells where they lead. */
#define TO_FUNCTION "mov $0x11000, %esi\n"

GUEST_CODE(jumps_invlpg, "mov $300, %ecx\n" TO_FUNCTION "1: call *%rsi\n"
			 "xorq $0x1000, 0x7088\n"
			 "invlpg 0x11000\n"
			 "dec %ecx\n"
			 "jnz 1b\n"
			 "out %al, $0xf4\n");

GUEST_CODE(jumps_flush, "mov $300, %ecx\n" TO_FUNCTION "mov %cr3, %rdx\n"
			"1: call *%rsi\n"
			"xorq $0x1000, 0x7088\n"
			"mov %rdx, %cr3\n"
			"dec %ecx\n"
			"jnz 1b\n"
			"out %al, $0xf4\n");

GUEST_CODE(jumps_space, "mov $300, %ecx\n" TO_FUNCTION "mov %cr3, %rdx\n"
			"1: call *%rsi\n"
			"xor $0x204000, %rdx\n"
			"mov %rdx, %cr3\n"
			"dec %ecx\n"
			"jnz 1b\n"
			"out %al, $0xf4\n");

static const u8 add_1[] = { 0x48, 0x83, 0xc3, 0x01, 0xc3 }; /* ADD RBX, 1; RET */
static const u8 add_100[] = { 0x48, 0x83, 0xc3, 0x64, 0xc3 };

/* Copies of the tables, where the function's page is the second. */
static void make_other_space(struct machine *m)
{
	u64 *table = (u64 *)(m->ram + OTHER_PML4);

	memcpy(table, m->ram + IMAGE_PML4, 4 * PAGE_SIZE); /* PML4, PDPT, PD, PT */
	for (u32 level = 0; level < 3; level++)
		table[512 * level] += OTHER_PML4 - IMAGE_PML4;
	table[512 * 3 + FUNCTION / PAGE_SIZE] ^= FIRST ^ SECOND;
}

struct program {
	const u8 *start, *end, *first, *second;
	size_t function_size;
};

/* Returns RBX. */
static u64 function_changes(struct machine *m, const struct program *p, u64 slice)
{
	machine_load(m, p->start, (size_t)(p->end - p->start));
	memcpy(m->ram + FIRST, p->first, p->function_size);
	memcpy(m->ram + SECOND, p->second, p->function_size);
	*image_pte(m->ram, FUNCTION) = FIRST | 7;
	((u64 *)(m->ram + IMAGE_PD))[ALIAS >> 21] = ALIAS_PT | 7;
	make_other_space(m);
	while (machine_run(m, slice) == EXIT_BUDGET)
		assert_true(machine_retired(m) < ALL);
	assert_int_equal(m->cpu->port.exit.reason, EXIT_IO);
	return m->cpu->regs[RBX];
}

static void links_follow_the_page_tables(void **state)
{
	static const struct program programs[] = {
		{ by_invlpg_start, by_invlpg_end, add_1, add_100, sizeof(add_1) },
		{ by_flush_start, by_flush_end, add_1, add_100, sizeof(add_1) },
		{ by_space_start, by_space_end, add_1, add_100, sizeof(add_1) },
		{ jumps_invlpg_start, jumps_invlpg_end, add_1, add_100, sizeof(add_1) },
		{ jumps_flush_start, jumps_flush_end, add_1, add_100, sizeof(add_1) },
		{ jumps_space_start, jumps_space_end, add_1, add_100, sizeof(add_1) },
	};

	for (u32 i = 0; i < ARRAY_SIZE(slices); i++)
		for (u32 k = 0; k < ARRAY_SIZE(programs); k++)
			assert_int_equal(function_changes(*state, &programs[k], slices[i]),
					 150 * 101);
}

/* What 512 calls add, if each sixteenth is followed by a change. */
static u64 changing_rarely(void)
{
	u64 sum = 0;

	for (u32 ecx = 512, n = 1; ecx; ecx--) {
		sum += n;
		if (!(ecx & 15))
			n ^= 1 ^ 100;
	}
	return sum;
}

/* Code of both pages becomes hot in between. */
static void hot_code_follows_the_page_tables(void **state)
{
	static const struct program programs[] = {
		{ rarely_invlpg_start, rarely_invlpg_end, add_1, add_100, sizeof(add_1) },
		{ rarely_flush_start, rarely_flush_end, add_1, add_100, sizeof(add_1) },
		{ rarely_space_start, rarely_space_end, add_1, add_100, sizeof(add_1) },
	};
	for (u32 i = 0; i < ARRAY_SIZE(slices); i++)
		for (u32 k = 0; k < ARRAY_SIZE(programs); k++)
			assert_int_equal(function_changes(*state, &programs[k], slices[i]),
					 changing_rarely());
}

/* The function's page goes to another address, with the same place among mapped pages, and is
 * executed there before the function is called again. */
GUEST_CODE(moved, "mov $300, %ecx\n"
		  "1: call moved_start + 0x1000\n"
		  "mov 0x7088, %rdx\n"
		  "mov %rdx, 0x210088\n"
		  "xorq $0x1000, 0x7088\n"
		  "invlpg 0x11000\n"
		  "invlpg 0x2011000\n"
		  "call moved_start + 0x2001000\n"
		  "dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n");

GUEST_CODE(jumps_moved, "mov $300, %ecx\n" TO_FUNCTION "mov $0x2011000, %edi\n"
			"1: call *%rsi\n"
			"mov 0x7088, %rdx\n"
			"mov %rdx, 0x210088\n"
			"xorq $0x1000, 0x7088\n"
			"invlpg 0x11000\n"
			"invlpg 0x2011000\n"
			"call *%rdi\n"
			"dec %ecx\n"
			"jnz 1b\n"
			"out %al, $0xf4\n");

static void a_page_is_known_by_its_address(void **state)
{
	static const struct program programs[] = {
		{ moved_start, moved_end, add_1, add_100, sizeof(add_1) },
		{ jumps_moved_start, jumps_moved_end, add_1, add_100, sizeof(add_1) },
	};

	assert_int_equal(FUNCTION, 0x11000);
	assert_int_equal(ALIAS, 0x2011000);
	for (u32 i = 0; i < ARRAY_SIZE(slices); i++)
		for (u32 k = 0; k < ARRAY_SIZE(programs); k++)
			assert_int_equal(function_changes(*state, &programs[k], slices[i]),
					 2 * 150 * 101);
}

/* Four functions on the page, none of which a link leads to or from; each turn is a new generation.
 * The first of them is looked up, and that the page is mapped as before is then known of all. */
#define PAGE_CALLS(name, first, then) \
	GUEST_CODE(name, "mov $300, %ecx\n"                                                   \
			 "mov %cr3, %rdx\n" TO_FUNCTION "mov $0x11100, %edi\n"                \
			 "mov $0x11200, %ebp\n"                                               \
			 "1: " first "\n" then "mov %rdx, %cr3\n"                                                   \
			 "dec %ecx\n"                                                         \
			 "jnz 1b\n"                                                           \
			 "out %al, $0xf4\n")

PAGE_CALLS(one_of_page, "call *%rsi", "");
PAGE_CALLS(all_of_page, "call *%rsi", "call *%rdi\ncall *%rbp\n");

/* Returns how often blocks were looked up. */
static u64 functions_of_page(struct machine *m, const u8 *start, const u8 *end, u64 sum)
{
	struct engine_cache before, after;

	machine_load(m, start, (size_t)(end - start));
	for (u64 at = FUNCTION; at <= FUNCTION + 0x200; at += 0x100)
		memcpy(m->ram + at, add_1, sizeof(add_1));
	engine_cache(m->cpu, &before);
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	engine_cache(m->cpu, &after);
	assert_int_equal(m->cpu->regs[RBX], sum);
	return after.lookups - before.lookups;
}

static void what_a_page_has_is_looked_up_once(void **state)
{
	u64 one = functions_of_page(*state, one_of_page_start, one_of_page_end, 300);
	u64 all = functions_of_page(*state, all_of_page_start, all_of_page_end, 3 * 300);

	assert_in_range(all, one, one + 50); /* 600 more without */
}

/* The last byte of an instruction is on a page that changes; another block of the first page is
 * executed after each change. */
GUEST_CODE(tail, "mov $512, %ecx\n"
		 "1: call 3f\n"
		 "testb $15, %cl\n"
		 "jnz 4f\n"
		 "xorq $0x1000, 0x7090\n"
		 "invlpg 0x12000\n"
		 "4: call 2f\n"
		 "dec %ecx\n"
		 "jnz 1b\n"
		 "out %al, $0xf4\n"
		 ".org tail_start + 0x1000\n"
		 "2: ret\n"
		 ".org tail_start + 0x1ffd\n"
		 "3: .byte 0x48, 0x83, 0xc3\n"); /* ADD RBX, n; RET */

/* Two functions that have the same entry of the jump cache: the second is beside it. */
#define NEIGHBOUR (FUNCTION + JUMP_SPAN * JUMP_SIZE)

GUEST_CODE(two_of_entry, "mov $300, %ecx\n" TO_FUNCTION "mov $0x111000, %edi\n"
			 "1: call *%rsi\n"
			 "call *%rdi\n"
			 "dec %ecx\n"
			 "jnz 1b\n"
			 "out %al, $0xf4\n");

static void two_addresses_may_have_one_entry(void **state)
{
	struct machine *m = *state;
	struct engine_cache before, after;

	assert_int_equal(NEIGHBOUR, 0x111000);
	machine_load(m, two_of_entry_start, (size_t)(two_of_entry_end - two_of_entry_start));
	memcpy(m->ram + FUNCTION, add_1, sizeof(add_1));
	memcpy(m->ram + NEIGHBOUR, add_100, sizeof(add_100));
	engine_cache(m->cpu, &before);
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	engine_cache(m->cpu, &after);
	assert_int_equal(m->cpu->regs[RBX], 300 * 101);
	assert_in_range(after.lookups - before.lookups, 1, 30); /* 600 if one evicted the other */
	/* And when the code of one goes. */
	memcpy(m->ram + NEIGHBOUR, add_1, sizeof(add_1));
	m->cpu->rip = IMAGE_CODE;
	m->cpu->regs[RBX] = 0;
	m->cpu->port.io.state = IO_IDLE;
	assert_int_equal(machine_run(m, ALL), EXIT_IO);
	assert_int_equal(m->cpu->regs[RBX], 300 * 2);
}

GUEST_CODE(jumps_tail, "mov $512, %ecx\n"
		       "mov $0x11000, %edi\n"
		       "mov $0x11ffd, %esi\n"
		       "1: call *%rsi\n"
		       "testb $15, %cl\n"
		       "jnz 4f\n"
		       "xorq $0x1000, 0x7090\n"
		       "invlpg 0x12000\n"
		       "4: call *%rdi\n"
		       "dec %ecx\n"
		       "jnz 1b\n"
		       "out %al, $0xf4\n"
		       ".org jumps_tail_start + 0x1000\n"
		       "ret\n"
		       ".org jumps_tail_start + 0x1ffd\n"
		       ".byte 0x48, 0x83, 0xc3\n");

static u64 tail_changes(struct machine *m, const u8 *start, const u8 *end, u64 slice)
{
	static const u8 first[] = { 1, 0xc3 }, second[] = { 100, 0xc3 };

	machine_load(m, start, (size_t)(end - start));
	memcpy(m->ram + FIRST, first, sizeof(first));
	memcpy(m->ram + SECOND, second, sizeof(second));
	*image_pte(m->ram, FUNCTION + PAGE_SIZE) = FIRST | 7;
	while (machine_run(m, slice) == EXIT_BUDGET)
		assert_true(machine_retired(m) < ALL);
	assert_int_equal(m->cpu->port.exit.reason, EXIT_IO);
	return m->cpu->regs[RBX];
}

static void the_tail_of_an_instruction_may_change(void **state)
{
	for (u32 i = 0; i < ARRAY_SIZE(slices); i++) {
		assert_int_equal(tail_changes(*state, tail_start, tail_end, slices[i]),
				 changing_rarely());
		assert_int_equal(tail_changes(*state, jumps_tail_start, jumps_tail_end, slices[i]),
				 changing_rarely());
	}
}

/* Here the function calls back, and may have another page when that returns. The order shows in
 * RBX. */
GUEST_CODE(back, "mov $300, %ecx\n"
		 "mov %cr3, %rdx\n"
		 "1: call back_start + 0x1000\n"
		 "dec %ecx\n"
		 "jnz 1b\n"
		 "out %al, $0xf4\n"
		 ".org back_start + 0x800\n"
		 "testb $3, %cl\n"
		 "jz 2f\n"
		 "xor $0x204000, %rdx\n"
		 "mov %rdx, %cr3\n"
		 "2: ret\n");

/* CALL 800h bytes back from its page; LEA RBX, [RBX + 2 * RBX]; ADD RBX, n; RET */
#define CALLS_BACK(n) \
	{ 0xe8, 0xfb, 0xf7, 0xff, 0xff, 0x48, 0x8d, 0x1c, 0x5b, 0x48, 0x83, 0xc3, n, 0xc3 }

static void returns_follow_the_page_tables(void **state)
{
	static const u8 first[] = CALLS_BACK(1), second[] = CALLS_BACK(100);
	static const struct program program = { back_start, back_end, first, second,
						sizeof(first) };
	bool other = false;
	u64 expected = 0;

	for (u32 ecx = 300; ecx; ecx--) {
		other ^= !!(ecx & 3);
		expected = 3 * expected + (other ? 100 : 1);
	}
	for (u32 i = 0; i < ARRAY_SIZE(slices); i++)
		assert_int_equal(function_changes(*state, &program, slices[i]), expected);
}

/* A return to a bad address is a fault of the return: RSP and RIP are what they were (SDM 2B
 * RET). */
GUEST_CODE(bad_return, "mov $100, %ecx\n"
		       "1: call 2f\n"
		       "dec %ecx\n"
		       "jnz 1b\n"
		       "movabs $0x8000000000001000, %rax\n"
		       "call 3f\n"
		       "2: ret\n"
		       "3: mov %rax, (%rsp)\n"
		       "jmp 2b\n");
#define BAD_RETURN_AT 29 /* of the RET */

static void a_bad_return_faults(void **state)
{
	struct machine *m = *state;
	const u64 *frame =
		(const u64 *)(m->ram + IMAGE_STACK) - 8; /* error, RIP, CS, flags, RSP, SS */

	machine_load(m, bad_return_start, (size_t)(bad_return_end - bad_return_start));
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(frame[1], IMAGE_CODE + BAD_RETURN_AT);
	assert_int_equal(frame[4], IMAGE_STACK - 8);
	/* 1, then 4 a turn, the last part but the return, HLT */
	assert_int_equal(machine_retired(m), 1 + 100 * 4 + 4 + 1);
}

/* The same where returns have been good often, and with no branch that tells of it. */
GUEST_CODE(hot_bad_return, "mov $100, %ecx\n"
			   "movabs $0x8000000000001000, %rax\n"
			   "1: call 2f\n"
			   "dec %ecx\n"
			   "jnz 1b\n"
			   "2: mov (%rsp), %rdx\n"
			   "cmp $1, %ecx\n"
			   "cmove %rax, %rdx\n"
			   "mov %rdx, (%rsp)\n"
			   "ret\n");
#define HOT_BAD_RETURN_AT 39 /* of the RET */

static void a_bad_return_faults_in_hot_code(void **state)
{
	struct machine *m = *state;
	const u64 *frame = (const u64 *)(m->ram + IMAGE_STACK) - 8;

	machine_load(m, hot_bad_return_start, (size_t)(hot_bad_return_end - hot_bad_return_start));
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(frame[1], IMAGE_CODE + HOT_BAD_RETURN_AT);
	assert_int_equal(frame[4], IMAGE_STACK - 8);
	/* 2, then 8 a turn, the last but for the return and what follows, HLT */
	assert_int_equal(machine_retired(m), 2 + 99 * 8 + 5 + 1);
}

/* Accesses that would share a check if a page did not end between them. */
GUEST_CODE(apart, "mov $0x100ff8, %esi\n"
		  "mov (%rsi), %rax\n"
		  "mov 8(%rsi), %rbx\n"
		  "mov 16(%rsi), %rdx\n"
		  "out %al, $0xf4\n");

/* One block that shares, and one that does not: none begins in between. */
static void a_check_that_fails_takes_one_more_block(void **state)
{
	struct machine m;

	(void)state;
	machine_create(&m);
	machine_load(&m, apart_start, (size_t)(apart_end - apart_start));
	for (u64 i = 0; i < 3; i++)
		((u64 *)(m.ram + 0x100ff8))[i] = i + 7;
	assert_int_equal(machine_run(&m, 100), EXIT_IO);
	assert_int_equal(m.cpu->regs[RAX], 7);
	assert_int_equal(m.cpu->regs[RBX], 8);
	assert_int_equal(m.cpu->regs[RDX], 9);
	assert_int_equal(m.cpu->engine->blocks_made + m.cpu->engine->blocks_recalled, 2);
	machine_destroy(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_return_to_their_callers),
		cmocka_unit_test(returns_need_no_call),
		cmocka_unit_test(a_function_may_change_its_caller),
		cmocka_unit_test(loops_are_as_one_turn_at_a_time),
		cmocka_unit_test(a_loop_faults_where_it_should),
		cmocka_unit_test(a_stack_may_lie_in_code),
		cmocka_unit_test(code_on_two_pages_may_be_written),
		cmocka_unit_test(a_page_of_code_may_go),
		cmocka_unit_test(returns_may_go_elsewhere),
		cmocka_unit_test(links_follow_the_page_tables),
		cmocka_unit_test(hot_code_follows_the_page_tables),
		cmocka_unit_test(a_page_is_known_by_its_address),
		cmocka_unit_test(what_a_page_has_is_looked_up_once),
		cmocka_unit_test(two_addresses_may_have_one_entry),
		cmocka_unit_test(the_tail_of_an_instruction_may_change),
		cmocka_unit_test(returns_follow_the_page_tables),
		cmocka_unit_test(a_bad_return_faults),
		cmocka_unit_test(a_bad_return_faults_in_hot_code),
		cmocka_unit_test(a_check_that_fails_takes_one_more_block),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
