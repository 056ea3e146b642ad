// SPDX-License-Identifier: MIT
/*
 * Debug exceptions (SDM 3B 17.3.1, 3A 6.8.3): where each #DB comes and what DR6 says of it, with
 * MOV SS and POP SS before, in the kernel and in user code, with DR7.GD set. Each row is run with
 * the blocks that the engine makes by itself and one instruction at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "cpu/mmu/mmu.h"
#include "guest/machine.h"

#define ALL 10000

#define WATCHED	 (IMAGE_DATA + 0x200) /* holds a selector for SS */
#define LOG	 IMAGE_DATA	      /* how many #DBs, then RIP, DR6, DR7 of each */
#define LOG_MOST 8
#define CS32	 0x38 /* 32-bit code of CPL 0: the last of the GDT */

/* Notes the #DB, clears DR6 and returns with RF set. */
GUEST_CODE(db_handler, "push %rax; push %rbx\n"
		       "mov 0x100000, %rbx\n"
		       "incq 0x100000\n"
		       "and $7, %ebx\n"
		       "imul $24, %rbx, %rbx\n"
		       "mov 16(%rsp), %rax; mov %rax, 0x100008(%rbx)\n"
		       "mov %dr6, %rax; mov %rax, 0x100010(%rbx)\n"
		       "mov %dr7, %rax; mov %rax, 0x100018(%rbx)\n"
		       "xor %eax, %eax; mov %rax, %dr6\n"
		       "orl $0x10000, 32(%rsp)\n"
		       "pop %rbx; pop %rax; iretq\n");

#define HANDLER (IMAGE_CODE + 0x1000)

struct hit {
	u64 rip, dr6;
};

struct logged {
	struct hit hit;
	u64 dr7;
};

struct row {
	const char *name;
	const char *code;
	u8 size; /* without the 0 after it */
	bool user, bits32, amd;
	bool single_step; /* RFLAGS.TF from the start */
	u64 dr7;
	u64 dr0; /* an offset into the code, or WATCHED */
	u32 nhits;
	struct hit hit[4]; /* RIP as an offset into the code; DR6 without its fixed bits */
};

#define BYTES(s)   s, sizeof(s) - 1
#define FETCH_0	   0x1ull				/* DR7: DR0 is an instruction */
#define ACCESS_0   (0x1ull | 0x3ull << 16 | 1ull << 18) /* two bytes of data */
#define NOP	   "\x90"
#define MOV_SS_MEM "\x8e\x13" /* mov (%rbx), %ss */
#define MOV_SS_REG "\x8e\xd0" /* mov %eax, %ss */
#define POP_SS	   "\x17"
#define CPUID	   "\x0f\xa2"
#define OUT	   "\xe6\x80"
#define INT1	   "\xf1"
#define STI	   "\xfb"
#define HLT	   "\xf4"
#define INT_30	   "\xcd\x30"
#define SET_TF	   "\x9c\x80\x4c\x24\x01\x01\x9d" /* pushf; orb $1, 1(%rsp); popf */
/* mov %esp, %eax; push $IMAGE_UDS; push %rax; pushf; orb $1, 1(%rsp); push $IMAGE_UCS;
 * lea 3(%rip), %rcx; push %rcx; iretq */
#define IRET_TO_STEP                                                                       \
	"\x89\xe0\x6a\x23\x50\x9c\x80\x4c\x24\x01\x01\x6a\x2b\x48\x8d\x0d\x03\x00\x00\x00" \
	"\x51\x48\xcf"
#define READ_DR6 "\x0f\x21\xf2" /* mov %dr6, %rdx */
#define INC_EDX	 "\xff\xc2"

/* The last instruction of each row is HLT; what is stepped to up to it, but not after it. */
static const struct row rows[] = {
	/* Data breakpoints. */
	{ "mov (%rax), %dx", BYTES("\x66\x8b\x13" NOP HLT), .dr7 = ACCESS_0, .dr0 = WATCHED,
	  .nhits = 1, .hit = { { 3, 1 } } },
	{ "mov (%rbx), %ss", BYTES(MOV_SS_MEM NOP NOP HLT), .dr7 = ACCESS_0, .dr0 = WATCHED,
	  .nhits = 1, .hit = { { 3, 1 } } },
	{ "mov (%rbx), %ss; cpuid", BYTES(MOV_SS_MEM CPUID NOP HLT), .dr7 = ACCESS_0,
	  .dr0 = WATCHED, .nhits = 1, .hit = { { 4, 1 } } },
	{ "mov (%rbx), %ss; out", BYTES(MOV_SS_MEM OUT NOP HLT), .dr7 = ACCESS_0, .dr0 = WATCHED,
	  .nhits = 1, .hit = { { 4, 1 } } },
	{ "mov (%rbx), %ss; jmp", BYTES(MOV_SS_MEM "\xeb\x01" NOP NOP HLT), .dr7 = ACCESS_0,
	  .dr0 = WATCHED, .nhits = 1, .hit = { { 5, 1 } } },
	{ "mov (%rbx), %ss; int1", BYTES(MOV_SS_MEM INT1 NOP HLT), .dr7 = ACCESS_0, .dr0 = WATCHED,
	  .nhits = 1, .hit = { { 3, 1 } } }, /* one #DB of two causes */
	{ "mov (%rbx), %ss; int $1", BYTES(MOV_SS_MEM "\xcd\x01" NOP HLT), .dr7 = ACCESS_0,
	  .dr0 = WATCHED, .nhits = 2, .hit = { { HANDLER - IMAGE_CODE, 1 }, { 4, 0 } } },
	{ "user mov (%rbx), %ss; int1", BYTES(MOV_SS_MEM INT1 NOP INT_30), .user = true,
	  .dr7 = ACCESS_0, .dr0 = WATCHED, .nhits = 1, .hit = { { 3, 1 } } },
	{ "user mov (%rbx), %ss", BYTES(MOV_SS_MEM NOP NOP INT_30), .user = true, .dr7 = ACCESS_0,
	  .dr0 = WATCHED, .nhits = 1, .hit = { { 3, 1 } } },
	{ "32-bit pop %ss", BYTES(POP_SS NOP NOP HLT), .bits32 = true, .dr7 = ACCESS_0,
	  .dr0 = IMAGE_STACK - 64, .nhits = 1, .hit = { { 2, 1 } } },
	/* Single steps. */
	{ "step", BYTES(NOP NOP HLT), .single_step = true, .nhits = 2,
	  .hit = { { 1, DR6_BS }, { 2, DR6_BS } } },
	{ "step mov %eax, %ss", BYTES(MOV_SS_REG NOP NOP HLT), .single_step = true, .nhits = 2,
	  .hit = { { 3, DR6_BS }, { 4, DR6_BS } } },
	{ "step mov (%rbx), %ss", BYTES(MOV_SS_MEM NOP HLT), .single_step = true, .dr7 = ACCESS_0,
	  .dr0 = WATCHED, .nhits = 1, .hit = { { 3, DR6_BS | 1 } } },
	{ "step mov %eax, %ss; int1", BYTES(MOV_SS_REG INT1 NOP HLT), .single_step = true,
	  .nhits = 2, .hit = { { 3, 0 }, { 4, DR6_BS } } },
	{ "user step mov %eax, %ss; int1", BYTES(MOV_SS_REG INT1 NOP INT_30), .user = true,
	  .single_step = true, .nhits = 2, .hit = { { 3, 0 }, { 4, DR6_BS } } },
	{ "user step sti; nop", BYTES(STI NOP INT_30), .user = true, .single_step = true,
	  .nhits = 2, .hit = { { 1, DR6_BS }, { 2, DR6_BS } } },
	{ "step 32-bit pop %ss", BYTES(POP_SS NOP NOP HLT), .bits32 = true, .single_step = true,
	  .nhits = 2, .hit = { { 2, DR6_BS }, { 3, DR6_BS } } },
	{ "popf; mov %eax, %ss", BYTES(SET_TF MOV_SS_REG NOP HLT), .nhits = 1,
	  .hit = { { 10, DR6_BS } } },
	{ "user popf; mov %eax, %ss, gd", BYTES(SET_TF MOV_SS_REG NOP INT_30), .user = true,
	  .dr7 = DR7_GD, .nhits = 1, .hit = { { 10, DR6_BS } } },
	{ "iret to user step, gd", BYTES(IRET_TO_STEP NOP CPUID INT_30), .dr7 = DR7_GD, .nhits = 2,
	  .hit = { { 24, DR6_BS }, { 26, DR6_BS } } },
	{ "step sti", BYTES(STI NOP HLT), .single_step = true, .nhits = 2,
	  .hit = { { 1, DR6_BS }, { 2, DR6_BS } } },
	/* Instruction breakpoints. */
	{ "break", BYTES(NOP NOP HLT), .dr7 = FETCH_0, .dr0 = 1, .nhits = 1, .hit = { { 1, 1 } } },
	{ "break behind mov %eax, %ss", BYTES(MOV_SS_REG NOP NOP HLT), .dr7 = FETCH_0, .dr0 = 2 },
	{ "break two behind mov %eax, %ss", BYTES(MOV_SS_REG NOP NOP HLT), .dr7 = FETCH_0, .dr0 = 3,
	  .nhits = 1, .hit = { { 3, 1 } } },
	{ "break behind 32-bit pop %ss", BYTES(POP_SS NOP NOP HLT), .bits32 = true, .dr7 = FETCH_0,
	  .dr0 = 1 },
	{ "AMD: break behind mov %eax, %ss", BYTES(MOV_SS_REG NOP NOP HLT), .amd = true,
	  .dr7 = FETCH_0, .dr0 = 2, .nhits = 1, .hit = { { 2, 1 } } },
	{ "AMD: break behind 32-bit pop %ss", BYTES(POP_SS NOP NOP HLT), .bits32 = true,
	  .amd = true, .dr7 = FETCH_0, .dr0 = 1, .nhits = 1, .hit = { { 1, 1 } } },
	{ "AMD: step mov %eax, %ss", BYTES(MOV_SS_REG NOP NOP HLT), .amd = true,
	  .single_step = true, .nhits = 2, .hit = { { 3, DR6_BS }, { 4, DR6_BS } } },
	{ "break behind sti", BYTES(STI NOP HLT), .dr7 = FETCH_0, .dr0 = 1, .nhits = 1,
	  .hit = { { 1, 1 } } },
	{ "step, break behind mov %eax, %ss", BYTES(MOV_SS_REG NOP NOP HLT), .single_step = true,
	  .dr7 = FETCH_0, .dr0 = 2, .nhits = 2, .hit = { { 3, DR6_BS }, { 4, DR6_BS } } },
	/* DR7.GD: a fault of MOV DR in the kernel; a #DB of any kind clears it. */
	{ "gd", BYTES(READ_DR6 NOP HLT), .dr7 = DR7_GD, .nhits = 1, .hit = { { 0, DR6_BD } } },
	{ "step mov %eax, %ss; gd", BYTES(MOV_SS_REG READ_DR6 HLT), .single_step = true,
	  .dr7 = DR7_GD, .nhits = 2, .hit = { { 2, DR6_BD }, { 5, DR6_BS } } },
	{ "step, gd", BYTES(NOP READ_DR6 HLT), .single_step = true, .dr7 = DR7_GD, .nhits = 2,
	  .hit = { { 1, DR6_BS }, { 4, DR6_BS } } },
	{ "user step, gd", BYTES(NOP INC_EDX CPUID INT_30), .user = true, .single_step = true,
	  .dr7 = DR7_GD, .nhits = 3, .hit = { { 1, DR6_BS }, { 3, DR6_BS }, { 5, DR6_BS } } },
	{ "user step mov %eax, %ss, gd", BYTES(MOV_SS_REG NOP NOP INT_30), .user = true,
	  .single_step = true, .dr7 = DR7_GD, .nhits = 2, .hit = { { 3, DR6_BS }, { 4, DR6_BS } } },
	{ "int1, gd", BYTES(INT1 NOP HLT), .dr7 = DR7_GD, .nhits = 1, .hit = { { 1, 0 } } },
	{ "user int1, gd", BYTES(INT1 NOP INT_30), .user = true, .dr7 = DR7_GD, .nhits = 1,
	  .hit = { { 1, 0 } } },
	{ "user step int1, gd", BYTES(INT1 NOP INT_30), .user = true, .single_step = true,
	  .dr7 = DR7_GD, .nhits = 2, .hit = { { 1, 0 }, { 2, DR6_BS } } },
	{ "user mov (%rbx), %ss, gd", BYTES(MOV_SS_MEM NOP NOP INT_30), .user = true,
	  .dr7 = DR7_GD | ACCESS_0, .dr0 = WATCHED, .nhits = 1, .hit = { { 3, 1 } } },
	{ "user break, gd", BYTES(NOP NOP INT_30), .user = true, .dr7 = DR7_GD | FETCH_0, .dr0 = 1,
	  .nhits = 1, .hit = { { 1, 1 } } },
};

static void set_up(struct machine *m, const struct row *row)
{
	struct cpu *cpu = m->cpu;
	u16 ss = row->user ? IMAGE_UDS : IMAGE_DS;

	cpu->is_amd = row->amd;
	machine_load(m, row->code, row->size);
	memcpy(m->ram + HANDLER, db_handler_start, db_handler_end - db_handler_start);
	image_gate(m->ram, VEC_DB, HANDLER, 0);
	image_gate(m->ram, 0x30, IMAGE_STUBS + 0x30 * IMAGE_STUB_SIZE, 3);
	*(u64 *)(m->ram + IMAGE_GDT + CS32) = 0x00cf9b000000ffffull;
	*(u16 *)(m->ram + WATCHED) = *(u16 *)(m->ram + IMAGE_STACK - 64) = ss;
	cpu->regs[RAX] = ss;
	cpu->regs[RBX] = WATCHED;
	cpu->regs[RSP] = IMAGE_STACK - 64;
	cpu->rflags |= FL_IOPL | (row->single_step ? FL_TF : 0);
	cpu->dr[0] = row->dr0 < IMAGE_CODE ? IMAGE_CODE + row->dr0 : row->dr0;
	cpu->dr7 = row->dr7;
	if (row->user) {
		cpu->cpl = 3;
		cpu->seg[CS].sel = IMAGE_UCS;
		cpu->seg[SS].sel = IMAGE_UDS;
		cpu->seg[CS].attr |= SEG_DPL;
		cpu->seg[SS].attr |= SEG_DPL;
	}
	if (row->bits32) {
		cpu->seg[CS].sel = CS32;
		cpu->seg[CS].attr = (cpu->seg[CS].attr & ~SEG_L) | SEG_DB;
	}
	cpu_watch_update(cpu);
	cpu_state_changed(cpu);
}

static void check(const struct machine *m, const struct row *row)
{
	u64 n = *(u64 *)(m->ram + LOG);
	const struct logged *found = (const void *)(m->ram + LOG + 8);

	for (u32 i = 0; i < n && i < LOG_MOST; i++)
		if (n != row->nhits || found[i].hit.rip != IMAGE_CODE + row->hit[i].rip ||
		    (found[i].hit.dr6 ^ DR6_FIXED1) != row->hit[i].dr6)
			print_error("%s: #DB %u of %lu at %#lx, DR6 %#lx\n", row->name, i, n,
				    found[i].hit.rip, found[i].hit.dr6);
	if (n != row->nhits)
		fail_msg("%s: %lu #DBs, not %u", row->name, n, row->nhits);
	for (u32 i = 0; i < n; i++) {
		assert_int_equal(found[i].hit.rip, IMAGE_CODE + row->hit[i].rip);
		assert_int_equal(found[i].hit.dr6 ^ DR6_FIXED1, row->hit[i].dr6);
		assert_int_equal(found[i].dr7 & DR7_GD, 0);
	}
}

/* In the kernel rows end at their own HLT, in user code at that of INT 0x30. */
static void ends_well(const struct machine *m, const struct row *row, enum exit_reason reason)
{
	bool own = !strcmp(row->code + row->size - 1, HLT);
	u64 end = own ? IMAGE_CODE + row->size : IMAGE_STUBS + 0x30 * IMAGE_STUB_SIZE + 1;

	if (reason != EXIT_HLT || m->cpu->rip != end)
		fail_msg("%s: exit %d at %#lx", row->name, reason, m->cpu->rip);
}

static void debug_exceptions_come_where_the_manual_says(void **state)
{
	struct machine *m = *state;

	for (const struct row *row = rows; row < rows + ARRAY_SIZE(rows); row++) {
		set_up(m, row);
		ends_well(m, row, machine_run(m, ALL));
		check(m, row);
	}
}

static void runs_of_one_instruction_change_nothing(void **state)
{
	struct machine *m = *state;

	for (const struct row *row = rows; row < rows + ARRAY_SIZE(rows); row++) {
		enum exit_reason reason = EXIT_BUDGET;

		set_up(m, row);
		for (u32 i = 0; i < ALL && reason == EXIT_BUDGET; i++)
			reason = machine_run(m, 1);
		ends_well(m, row, reason);
		check(m, row);
	}
}

/* SDM 2B MOV DR: privilege comes before DR7.GD, whatever else traps. */
static void mov_dr_of_user_code_is_a_general_protection(void **state)
{
	struct machine *m = *state;

	for (u32 step = 0; step < 2; step++) {
		const struct row row = { "user mov dr", BYTES(READ_DR6 NOP INT_30), .user = true,
					 .single_step = step, .dr7 = DR7_GD };

		set_up(m, &row);
		assert_int_equal(machine_run(m, ALL), EXIT_HLT);
		assert_int_equal(m->cpu->rip, IMAGE_STUBS + VEC_GP * IMAGE_STUB_SIZE + 1);
		assert_int_equal(*(u64 *)(m->ram + LOG), 0);
		assert_int_equal(m->cpu->dr7 & DR7_GD, DR7_GD);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(debug_exceptions_come_where_the_manual_says),
		cmocka_unit_test(mov_dr_of_user_code_is_a_general_protection),
		cmocka_unit_test(runs_of_one_instruction_change_nothing),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
