// SPDX-License-Identifier: MIT
/*
 * Instructions that C executes: strings with faults half-way, ports and their permissions, gathers
 * and masked moves, and a sample of the rest. Bytes go through the decoder, so this tests both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/fpu.h"
#include "cpu/mmu/exclusive.h"
#include "cpu/mode.h"
#include "unit/sys_cpu.h"

static void fill_pattern(u8 *to, u32 n)
{
	for (u32 i = 0; i < n; i++)
		to[i] = (u8)(i * 7 + 1);
}

static void a_move_that_faults_stands_at_the_faulting_iteration(void **state)
{
	(void)state;
	fill_pattern(ram(NPAGES - 1, 0), PAGE_SIZE);
	set_string(AT(HOLE, -100), AT(0, 10), 300);
	assert_raised(EXECUTE(REP_MOVSB), VEC_PF);
	assert_int_equal(cpu->port.event.payload, AT(HOLE, 0));
	assert_int_equal(cpu->port.event.error, 0);
	assert_int_equal(cpu->regs[RSI], AT(HOLE, 0));
	assert_int_equal(cpu->regs[RDI], AT(0, 110));
	assert_int_equal(cpu->regs[RCX], 200);
	assert_memory_equal(ram(0, 10), ram(NPAGES - 1, PAGE_SIZE - 100), 100);
	assert_int_equal(*ram(0, 110), 0);
}

static void an_element_across_the_fault_is_not_moved(void **state)
{
	(void)state;
	set_string(AT(0, 0), AT(HOLE, -12), 3);
	memset(ram(0, 0), 0xee, 64);
	assert_raised(EXECUTE(REP_MOVSQ), VEC_PF);
	assert_int_equal(cpu->port.event.payload, AT(HOLE, 0));
	assert_int_equal(cpu->port.event.error, PF_WRITE);
	assert_int_equal(cpu->regs[RCX], 2);
	assert_int_equal(cpu->regs[RDI], AT(HOLE, -4));
	assert_int_equal(*ram(NPAGES - 1, PAGE_SIZE - 4), 0);
}

static void overlapping_moves_repeat_as_the_processor_does(void **state)
{
	static const u64 distances[] = { 1, 2, 7, 8, 9, 16, 100, 4096 };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(distances); i++) {
		u8 expected[3 * PAGE_SIZE];
		void *to = expected + 64 + distances[i], *from = expected + 64;
		u64 count = 500;

		fill_pattern(ram(0, 0), sizeof(expected));
		fill_pattern(expected, sizeof(expected));
		__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
		set_string(AT(0, 64), AT(0, 64 + distances[i]), 500);
		assert_int_equal(EXECUTE(REP_MOVSQ), SYS_NEXT);
		assert_memory_equal(ram(0, 0), expected, sizeof(expected));
		assert_int_equal(cpu->regs[RSI], AT(0, 64 + 4000));
	}
}

static void moves_go_backwards_with_df(void **state)
{
	(void)state;
	fill_pattern(ram(0, 0), 64);
	cpu->rflags |= FL_DF;
	set_string(AT(0, 63), AT(1, 10), 20);
	assert_int_equal(EXECUTE(REP_MOVSB), SYS_NEXT);
	assert_int_equal(cpu->regs[RDI], AT(1, 10) - 20);
	for (u32 i = 0; i < 20; i++)
		assert_int_equal(*ram(0, PAGE_SIZE + 10 - i), *ram(0, 63 - i));
}

static void long_strings_pause_for_interrupts(void **state)
{
	const u32 value = 0x11223344;

	(void)state;
	cpu->regs[RAX] = value;
	set_string(0, AT(0, 2), (NPAGES - 1) * 1024);
	cpu_call_attention(cpu, ATTENTION_OWNER);
	assert_int_equal(EXECUTE(REP_STOSD), SYS_AGAIN);
	assert_in_range(cpu->regs[RCX], 1, (NPAGES - 1) * 1024 - 1);
	WRITE_ONCE(cpu->attention, 0);
	assert_int_equal(EXECUTE(REP_STOSD), SYS_NEXT);
	assert_int_equal(cpu->regs[RDI], AT(NPAGES - 1, 2));
	for (u32 at = 2; at < (NPAGES - 1) * PAGE_SIZE; at += 4)
		assert_memory_equal(ram(0, at), &value, 4);
	assert_int_equal(*ram(NPAGES - 1, 2), 0);
}

static void stores_to_translated_code_are_noticed(void **state)
{
	(void)state;
	code_add(cpu_priv(cpu)->code, GPA)->lines = BIT(3);
	set_string(0, AT(0, 0), 16);
	assert_int_equal(EXECUTE(REP_STOSD), SYS_NEXT);
	assert_int_equal(cpu_priv(cpu)->code->nwritten, 0);
	set_string(0, AT(0, 128), 64);
	assert_int_equal(EXECUTE(REP_STOSD), SYS_NEXT);
	assert_int_equal(cpu_priv(cpu)->code->nwritten, 1);
}

static void short_addresses_wrap_and_clear_the_upper_half(void **state)
{
	(void)state;
	cpu->regs[RAX] = 0x55;
	set_string(0, 0xdead00000000 + AT(0, 4), 0xbeef00000003);
	assert_int_equal(EXECUTE(0x67, 0xf3, 0xaa), SYS_NEXT);
	assert_int_equal(cpu->regs[RDI], AT(0, 7));
	assert_int_equal(cpu->regs[RCX], 0);
	assert_int_equal(*ram(0, 6), 0x55);
}

static void scans_end_at_the_byte_they_look_for(void **state)
{
	(void)state;
	memcpy(ram(0, 0), "hello world", 12);
	cpu->regs[RAX] = 'o';
	set_string(0, AT(0, 0), 100);
	assert_int_equal(EXECUTE(REPNE_SCAS), SYS_NEXT);
	assert_int_equal(cpu->regs[RDI], AT(0, 5));
	assert_int_equal(cpu->regs[RCX], 95);
	assert_true(cpu->rflags & FL_ZF);
}

static void compares_leave_the_flags_of_the_last_pair(void **state)
{
	(void)state;
	memcpy(ram(0, 0), "abcd", 4);
	memcpy(ram(1, 0), "abxd", 4);
	set_string(AT(0, 0), AT(1, 0), 4);
	assert_int_equal(EXECUTE(REPE_CMPSB), SYS_NEXT);
	assert_int_equal(cpu->regs[RCX], 1);
	assert_int_equal(cpu->rflags & FL_ARITH, FL_CF | FL_SF | FL_AF | FL_PF);
}

static void the_trap_flag_stops_after_each_iteration(void **state)
{
	(void)state;
	cpu->rflags |= FL_TF;
	set_string(AT(0, 0), AT(1, 0), 2);
	assert_int_equal(EXECUTE(REP_MOVSB), SYS_AGAIN);
	assert_int_equal(cpu->port.event.kind, EVENT_EXCEPTION);
	assert_int_equal(cpu->port.event.vector, VEC_DB);
	assert_int_equal(cpu->port.event.payload, DR6_BS);
	assert_true(cpu->rflags & FL_RF);
	assert_int_equal(cpu->regs[RCX], 1);
	assert_int_equal(EXECUTE(REP_MOVSB), SYS_NEXT);
	assert_int_equal(cpu->port.event.kind, EVENT_NONE);
}

static void moves_from_devices_ask_once_for_each_element(void **state)
{
	(void)state;
	set_string(AT(DEVICE, 0), AT(0, 0), 3);
	for (u32 i = 0; i < 3; i++) {
		assert_int_equal(EXECUTE(REP_MOVSQ), SYS_EXIT);
		assert_int_equal(cpu->port.exit.reason, EXIT_MMIO);
		assert_int_equal(cpu->port.exit.gpa, MMIO_BASE + 8 * i);
		assert_int_equal(cpu->regs[RCX], 3 - i);
		cpu->port.mmio.reads[0].answered = true;
		memset(cpu->port.mmio.reads[0].data, 0x10 + i, 8);
	}
	assert_int_equal(EXECUTE(REP_MOVSQ), SYS_NEXT);
	assert_int_equal(*ram(0, 8), 0x11);
	assert_int_equal(*ram(0, 16), 0x12);
}

/* A TSS on the last page, its map at 0x68 */
static void set_tss(u32 limit)
{
	cpu->tr.base = AT(NPAGES - 1, 0);
	cpu->tr.limit = limit;
	cpu->tr.attr = 0xb | SEG_P;
	*(u16 *)ram(NPAGES - 1, 0x66) = 0x68;
	memset(ram(NPAGES - 1, 0x68), 0xff, 0x100);
}

static void ports_need_iopl_or_a_clear_bit_in_the_map(void **state)
{
	(void)state;
	set_tss(0x167);
	to_user_mode();
	cpu->regs[RDX] = 0x80;
	assert_raised(EXECUTE(0xec), VEC_GP); /* in al, dx */
	ram(NPAGES - 1, 0x68)[0x80 / 8] = 0xfe;
	assert_int_equal(EXECUTE(0xec), SYS_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_IO);
	assert_raised(EXECUTE(0x66, 0xed), VEC_GP); /* in ax, dx: two bits */
	cpu->rflags |= FL_IOPL;
	assert_int_equal(EXECUTE(0x66, 0xed), SYS_EXIT);
}

static void ports_beyond_the_map_are_denied(void **state)
{
	(void)state;
	set_tss(0x68 + 0x80 / 8);
	memset(ram(NPAGES - 1, 0x68), 0, 0x100);
	to_user_mode();
	cpu->regs[RDX] = 0x78;
	assert_int_equal(EXECUTE(0xec), SYS_EXIT);
	cpu->regs[RDX] = 0x80; /* its second byte is beyond the limit */
	assert_raised(EXECUTE(0xec), VEC_GP);
}

static void in_takes_the_answer_of_its_own_request(void **state)
{
	(void)state;
	cpu->regs[RAX] = -1ull;
	assert_int_equal(EXECUTE(0xe5, 0x70), SYS_EXIT); /* in eax, 0x70 */
	assert_true(cpu->port.io.in);
	assert_int_equal(cpu->port.io.port, 0x70);
	assert_int_equal(cpu->port.io.size, 4);
	assert_int_equal(cpu->port.io.count, 1);
	*(u32 *)cpu->port.io.data = 0x12345678;
	cpu->port.io.state = IO_DONE;
	assert_int_equal(EXECUTE(0xe5, 0x70), SYS_NEXT);
	assert_int_equal(cpu->regs[RAX], 0x12345678);
	cpu->port.io.state = IO_DONE;
	cpu->rip++;
	assert_int_equal(EXECUTE(0xe5, 0x70), SYS_EXIT); /* not an answer for this one */
}

static void string_input_comes_in_batches_up_to_the_page(void **state)
{
	(void)state;
	set_string(0, AT(0, PAGE_SIZE - 3), 8);
	cpu->regs[RDX] = 0x80;
	assert_int_equal(EXECUTE(REP_INSB), SYS_EXIT);
	assert_int_equal(cpu->port.io.count, 3);
	memset(cpu->port.io.data, 0xaa, 3);
	cpu->port.io.state = IO_DONE;
	assert_int_equal(EXECUTE(REP_INSB), SYS_AGAIN);
	assert_int_equal(cpu->regs[RCX], 5);
	assert_int_equal(cpu->regs[RDI], AT(1, 0));
	assert_int_equal(EXECUTE(REP_INSB), SYS_EXIT);
	assert_int_equal(cpu->port.io.count, 5);
	cpu->regs[RCX] = 1; /* the program changes its mind */
	cpu->port.io.state = IO_DONE;
	assert_int_equal(EXECUTE(REP_INSB), SYS_NEXT);
	assert_int_equal(cpu->regs[RDI], AT(1, 1));
}

static void string_input_asks_no_device_for_what_it_cannot_store(void **state)
{
	(void)state;
	set_string(0, AT(HOLE, 0), 8);
	assert_raised(EXECUTE(REP_INSB), VEC_PF);
	assert_int_equal(cpu->port.io.state, IO_IDLE);
}

static void string_output_sends_what_it_could_read(void **state)
{
	(void)state;
	memcpy(ram(NPAGES - 1, PAGE_SIZE - 4), "abcd", 4);
	set_string(AT(HOLE, -4), 0, 5);
	assert_int_equal(EXECUTE(REP_OUTSW), SYS_EXIT);
	assert_int_equal(cpu->port.io.count, 2);
	assert_memory_equal(cpu->port.io.data, "abcd", 4);
	assert_int_equal(cpu->regs[RCX], 5);
	cpu->port.io.state = IO_DONE;
	assert_int_equal(EXECUTE(REP_OUTSW), SYS_AGAIN);
	assert_int_equal(cpu->regs[RCX], 3);
	assert_raised(EXECUTE(REP_OUTSW), VEC_PF);
}

static void rdpid_reads_tsc_aux(void **state)
{
	(void)state;
	cpu->tsc_aux = 0xffffffff80000007;
	cpu->regs[RBX] = ~0ull;
	assert_int_equal(EXECUTE(0xf3, 0x0f, 0xc7, 0xfb), SYS_NEXT); /* rdpid rbx */
	assert_int_equal(cpu->regs[RBX], 0x80000007);
}

#define MOVDIR64B 0x66, 0x0f, 0x38, 0xf8, 0x3e /* movdir64b rdi, [rsi] */

static void sixty_four_bytes_are_stored_at_once(void **state)
{
	static struct exclusive machine;

	(void)state;
	fill_pattern(ram(1, 1), 64);
	set_string(AT(1, 1), AT(0, 64), 0);
	cpu_priv(cpu)->exclusive = &machine; /* there are other processors */
	assert_int_equal(EXECUTE(MOVDIR64B), SYS_ALONE);
	assert_int_equal(*ram(0, 64), 0);
	cpu_priv(cpu)->others_stopped = true;
	assert_int_equal(EXECUTE(MOVDIR64B), SYS_NEXT);
	assert_memory_equal(ram(0, 64), ram(1, 1), 64);
	cpu->regs[RDI] += 8;
	assert_raised(EXECUTE(MOVDIR64B), VEC_GP);
	cpu->regs[RSI] = AT(HOLE, 0); /* the source is read first */
	assert_raised(EXECUTE(MOVDIR64B), VEC_PF);
}

static u32 *lanes(u32 reg, bool high)
{
	return (u32 *)(cpu->xsave + (high ? XSAVE_YMM0_HIGH : XSAVE_XMM0) + 16 * reg);
}

/* vpgatherdd ymm0, [rdi + ymm1 * 4], ymm2 */
#define VPGATHERDD 0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x8f

static void set_gather(s32 index5)
{
	set_ymm(0, 0, 0);
	for (u32 i = 0; i < 8; i++) {
		lanes(0, i > 3)[i & 3] = 0xdddd0000 + i;
		lanes(1, i > 3)[i & 3] = i == 5 ? (u32)index5 : 2 * i;
		lanes(2, i > 3)[i & 3] = i == 1 ? 0x7fffffff : 0x80000000;
		*(u32 *)ram(0, 8 * i) = 100 + i;
	}
	cpu->regs[RDI] = AT(0, 0);
}

static void gathers_load_what_the_mask_selects(void **state)
{
	(void)state;
	set_gather(10);
	assert_int_equal(EXECUTE(VPGATHERDD), SYS_NEXT);
	for (u32 i = 0; i < 8; i++) {
		assert_int_equal(lanes(0, i > 3)[i & 3], i == 1 ? 0xdddd0001 : 100 + i);
		assert_int_equal(lanes(2, i > 3)[i & 3], 0);
	}
}

static void gathers_that_fault_keep_what_they_have(void **state)
{
	(void)state;
	set_gather(-1024); /* the page below is not mapped */
	assert_raised(EXECUTE(VPGATHERDD), VEC_PF);
	assert_int_equal(cpu->port.event.payload, GVA - 4096);
	for (u32 i = 0; i < 8; i++) {
		bool done = i < 5 && i != 1;

		assert_int_equal(lanes(0, i > 3)[i & 3], done ? 100 + i : 0xdddd0000 + i);
		assert_int_equal(lanes(2, i > 3)[i & 3], i < 5 ? 0 : 0xffffffff);
	}
	lanes(1, true)[1] = 10;
	assert_int_equal(EXECUTE(VPGATHERDD), SYS_NEXT);
	assert_int_equal(lanes(0, true)[1], 105);
}

/* Intel's processors make each element of the mask all ones or zero, even after a fault. */
static void a_gathers_mask_behind_a_fault_depends_on_the_vendor(void **state)
{
	(void)state;
	cpu->is_amd = true;
	set_gather(-1024);
	assert_raised(EXECUTE(VPGATHERDD), VEC_PF);
	for (u32 i = 0; i < 8; i++)
		assert_int_equal(lanes(2, i > 3)[i & 3], i < 5 ? 0 : 0x80000000);
}

static void gathers_from_devices_read_each_element_once(void **state)
{
	(void)state;
	set_gather(10);
	cpu->regs[RDI] = AT(DEVICE, 0);
	for (u32 i = 0; i < 7; i++) {
		assert_int_equal(EXECUTE(VPGATHERDD), SYS_EXIT);
		assert_int_equal(cpu->port.mmio.nreads, i + 1);
		cpu->port.mmio.reads[i].answered = true;
		memset(cpu->port.mmio.reads[i].data, (int)i, 8);
	}
	assert_int_equal(EXECUTE(VPGATHERDD), SYS_NEXT);
	assert_int_equal(lanes(0, true)[3], 0x06060606);
}

static void masked_moves_touch_only_what_is_selected(void **state)
{
	(void)state;
	set_gather(0);
	for (u32 i = 0; i < 4; i++)
		lanes(2, false)[i] = i < 2 ? 0x80000000 : 0;
	memset(lanes(2, true), 0, 16);
	cpu->regs[RDI] = AT(HOLE, -8);
	/* vpmaskmovd [rdi], ymm2, ymm0; then back, into ymm3 */
	assert_int_equal(EXECUTE(0xc4, 0xe2, 0x6d, 0x8e, 0x07), SYS_NEXT);
	assert_int_equal(*(u32 *)ram(NPAGES - 1, PAGE_SIZE - 4), 0xdddd0001);
	assert_int_equal(EXECUTE(0xc4, 0xe2, 0x6d, 0x8c, 0x1f), SYS_NEXT);
	assert_int_equal(lanes(3, false)[1], 0xdddd0001);
	assert_int_equal(lanes(3, false)[2], 0);
	lanes(2, false)[2] = 0x80000000;
	memset(ram(NPAGES - 1, PAGE_SIZE - 8), 0, 8);
	assert_raised(EXECUTE(0xc4, 0xe2, 0x6d, 0x8e, 0x07), VEC_PF);
	assert_int_equal(*(u32 *)ram(NPAGES - 1, PAGE_SIZE - 8), 0);
}

static void maskmovq_enters_mmx_state(void **state)
{
	(void)state;
	*(u64 *)(cpu->xsave + XSAVE_XSTATE_BV) |= XCR0_X87;
	*(u16 *)(cpu->xsave + 2) = 3 << 11; /* TOP is 3: MM1 is ST6, MM2 is ST7 */
	memcpy(cpu->xsave + XSAVE_ST0 + 16 * 6, "abcdefgh", 8);
	memset(cpu->xsave + XSAVE_ST0 + 16 * 7, 0, 16);
	cpu->xsave[XSAVE_ST0 + 16 * 7 + 2] = 0x80;
	cpu->regs[RDI] = AT(0, 0);
	assert_int_equal(EXECUTE(0x0f, 0xf7, 0xca), SYS_NEXT); /* maskmovq mm1, mm2 */
	assert_memory_equal(ram(0, 0), "\0\0c\0", 4);
	assert_int_equal(*(u16 *)(cpu->xsave + 2), 0);
	assert_int_equal(cpu->xsave[4], 0xff);
	assert_memory_equal(cpu->xsave + XSAVE_ST0 + 16, "abcdefgh", 8);
}

static void privileged_instructions_fault_in_user_mode(void **state)
{
	(void)state;
	assert_int_equal(EXECUTE(0xf4), SYS_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_HLT);
	to_user_mode();
	assert_raised(EXECUTE(0xf4), VEC_GP);			  /* hlt */
	assert_raised(EXECUTE(0x0f, 0x20, 0xc0), VEC_GP);	  /* mov rax, cr0 */
	assert_raised(EXECUTE(0x0f, 0x30), VEC_GP);		  /* wrmsr */
	assert_raised(EXECUTE(0xfa), VEC_GP);			  /* cli */
	assert_int_equal(EXECUTE(0x0f, 0x01, 0xcb), SYS_UNKNOWN); /* stac */
	cpu->regs[RDI] = AT(0, 0);
	assert_int_equal(EXECUTE(0x0f, 0x01, 0x0f), SYS_NEXT); /* sidt [rdi] */
	cpu->cr4 |= CR4_UMIP;
	assert_raised(EXECUTE(0x0f, 0x01, 0x0f), VEC_GP);
}

static void sti_casts_a_shadow_only_when_it_sets_the_flag(void **state)
{
	(void)state;
	cpu->rflags &= ~FL_IF;
	assert_int_equal(EXECUTE(0xfb), SYS_NEXT);
	assert_int_equal(cpu->shadow, SHADOW_STI);
	cpu->shadow = 0;
	assert_int_equal(EXECUTE(0xfb), SYS_NEXT);
	assert_int_equal(cpu->shadow, 0);
}

static void popf_changes_what_the_privilege_allows(void **state)
{
	(void)state;
	*(u64 *)ram(0, 0) = 0x3f7fd7;
	cpu->rflags = FL_FIX1;
	cpu->regs[RSP] = AT(0, 0);
	assert_int_equal(EXECUTE(0x9d), SYS_NEXT);
	assert_int_equal(cpu->rflags, 0x247fd7); /* not RF, VM, VIF, VIP */
	assert_int_equal(cpu->regs[RSP], AT(0, 8));
	cpu->rflags = FL_FIX1 | FL_IF;
	to_user_mode();
	*(u64 *)ram(0, 0) = FL_IOPL | FL_DF;
	cpu->regs[RSP] = AT(0, 0);
	assert_int_equal(EXECUTE(0x9d), SYS_NEXT);
	assert_int_equal(cpu->rflags, FL_FIX1 | FL_IF | FL_DF);
}

static void enter_copies_the_display(void **state)
{
	(void)state;
	*(u64 *)ram(1, 0xff8) = 0xaaaa;
	cpu->regs[RBP] = AT(2, 0);
	cpu->regs[RSP] = AT(1, 0x800);
	assert_int_equal(EXECUTE(0xc8, 0x20, 0x00, 0x02), SYS_NEXT); /* enter 32, 2 */
	assert_int_equal(*(u64 *)ram(1, 0x7f8), AT(2, 0));
	assert_int_equal(*(u64 *)ram(1, 0x7f0), 0xaaaa);
	assert_int_equal(*(u64 *)ram(1, 0x7e8), AT(1, 0x7f8));
	assert_int_equal(cpu->regs[RBP], AT(1, 0x7f8));
	assert_int_equal(cpu->regs[RSP], AT(1, 0x7e8 - 32));
}

static void debug_registers_are_guarded_by_general_detect(void **state)
{
	(void)state;
	cpu->dr7 |= DR7_GD;
	assert_raised(EXECUTE(0x0f, 0x21, 0xc0), VEC_DB); /* mov rax, dr0 */
	assert_int_equal(cpu->port.event.payload, DR6_BD);
}

static void cr8_writes_are_the_hypervisors(void **state)
{
	(void)state;
	cpu->regs[RAX] = 5;
	assert_int_equal(EXECUTE(0x44, 0x0f, 0x22, 0xc0), SYS_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_CR8_WRITE);
	assert_int_equal(cpu->port.exit.value, 5);
	cpu->regs[RAX] = 0x10;
	assert_raised(EXECUTE(0x44, 0x0f, 0x22, 0xc0), VEC_GP);
	cpu->cr8 = 7;
	assert_int_equal(EXECUTE(0x44, 0x0f, 0x20, 0xc0), SYS_NEXT);
	assert_int_equal(cpu->regs[RAX], 7);
}

#define T(name) cmocka_unit_test_setup_teardown(name, sys_cpu_setup, sys_cpu_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_move_that_faults_stands_at_the_faulting_iteration),
		T(an_element_across_the_fault_is_not_moved),
		T(overlapping_moves_repeat_as_the_processor_does),
		T(moves_go_backwards_with_df),
		T(long_strings_pause_for_interrupts),
		T(stores_to_translated_code_are_noticed),
		T(short_addresses_wrap_and_clear_the_upper_half),
		T(scans_end_at_the_byte_they_look_for),
		T(compares_leave_the_flags_of_the_last_pair),
		T(the_trap_flag_stops_after_each_iteration),
		T(moves_from_devices_ask_once_for_each_element),
		T(ports_need_iopl_or_a_clear_bit_in_the_map),
		T(ports_beyond_the_map_are_denied),
		T(in_takes_the_answer_of_its_own_request),
		T(string_input_comes_in_batches_up_to_the_page),
		T(string_input_asks_no_device_for_what_it_cannot_store),
		T(string_output_sends_what_it_could_read),
		T(rdpid_reads_tsc_aux),
		T(sixty_four_bytes_are_stored_at_once),
		T(gathers_load_what_the_mask_selects),
		T(gathers_that_fault_keep_what_they_have),
		T(a_gathers_mask_behind_a_fault_depends_on_the_vendor),
		T(gathers_from_devices_read_each_element_once),
		T(masked_moves_touch_only_what_is_selected),
		T(maskmovq_enters_mmx_state),
		T(privileged_instructions_fault_in_user_mode),
		T(sti_casts_a_shadow_only_when_it_sets_the_flag),
		T(popf_changes_what_the_privilege_allows),
		T(enter_copies_the_display),
		T(debug_registers_are_guarded_by_general_detect),
		T(cr8_writes_are_the_hypervisors),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
