// SPDX-License-Identifier: MIT
/*
 * Guest memory accesses by C code: page-crossing, devices and their replay, read-only slots, memory
 * the host cannot access, breakpoints, and notes for the translator.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/guarded.h"
#include "cpu/mode.h"
#include "unit/paged_cpu.h"

#define GVA  0x40000000ull
#define GPA  0x400000ull
#define FULL (PTE_P | PTE_W | PTE_U)
#define SET  TLB_KERNEL_AC

/* Pages at GVA: RAM at GPA, RAM elsewhere, a device, ROM, nothing. */
enum { RAM0, RAM1, DEVICE, ROM, HOLE };
#define AT(page, offset) (GVA + (page) * PAGE_SIZE + (offset))
#define RAM1_GPA	 (GPA + 8 * PAGE_SIZE)

static int setup(void **state)
{
	static struct paged_cpu p;

	paged_cpu_init(&p, FORMAT_4LEVEL);
	paged_cpu_map(&p, AT(RAM0, 0), GPA, 1, FULL, FULL);
	paged_cpu_map(&p, AT(RAM1, 0), RAM1_GPA, 1, FULL, FULL);
	paged_cpu_map(&p, AT(DEVICE, 0), MMIO_BASE, 1, FULL, FULL);
	paged_cpu_map(&p, AT(ROM, 0), ROM_BASE, 1, FULL, FULL);
	p.cpu->rip = 0x1000;
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	paged_cpu_free(*state);
	return 0;
}

static void a_crossing_access_joins_two_pages(void **state)
{
	struct paged_cpu *p = *state;
	u64 value = 0x1122334455667788, back = 0;

	for (u32 offset = 4089; offset < 4096; offset++) {
		u32 first = 4096 - offset;

		assert_int_equal(cpu_write(p->cpu, AT(RAM0, offset), &value, 8, 0), FAULT_NONE);
		assert_memory_equal(p->ram + GPA + offset, &value, first);
		assert_memory_equal(p->ram + RAM1_GPA, (u8 *)&value + first, 8 - first);
		assert_int_equal(cpu_read(p->cpu, AT(RAM0, offset), &back, 8, 0), FAULT_NONE);
		assert_int_equal(back, value);
	}
}

static void a_crossing_write_that_faults_changes_nothing(void **state)
{
	struct paged_cpu *p = *state;
	u64 value = -1;

	assert_int_equal(cpu_write(p->cpu, AT(HOLE, -4), &value, 8, 0), FAULT_RAISED);
	assert_int_equal(p->cpu->port.event.vector, VEC_PF);
	assert_int_equal(p->cpu->port.event.payload, AT(HOLE, 0));
	assert_int_equal(p->cpu->port.event.error, PF_WRITE);
	assert_int_equal(p->cpu->port.mmio.nwrites, 0);
	paged_cpu_map(p, AT(RAM1, 0), 0, 1, 0, FULL);
	assert_int_equal(cpu_write(p->cpu, AT(RAM0, 4092), &value, 8, 0), FAULT_RAISED);
	assert_int_equal(*(u32 *)(p->ram + GPA + 4092), 0);
}

static void addresses_wrap_at_4g_outside_64_bit_mode(void **state)
{
	struct paged_cpu *p = *state;
	u64 value = 0x1122334455667788;

	p->cpu->seg[CS].attr &= ~SEG_L;
	paged_cpu_map(p, 0xfffff000, GPA, 1, FULL, FULL);
	paged_cpu_map(p, 0, RAM1_GPA, 1, FULL, FULL);
	assert_int_equal(cpu_write(p->cpu, 0xfffffffc, &value, 8, 0), FAULT_NONE);
	assert_int_equal(*(u32 *)(p->ram + GPA + 4092), 0x55667788);
	assert_int_equal(*(u32 *)(p->ram + RAM1_GPA), 0x11223344);
}

static void answer(struct cpu *cpu, u64 data)
{
	struct mmio_fragment *f = &cpu->port.mmio.reads[cpu->port.mmio.nreads - 1];

	assert_false(f->answered);
	memcpy(f->data, &data, f->len);
	f->answered = true;
}

static void device_reads_are_replayed(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	u64 value;
	u32 second;

	assert_int_equal(cpu_read(cpu, AT(DEVICE, 0x10), &value, 8, 0), FAULT_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_MMIO);
	assert_int_equal(cpu->port.mmio.reads[0].gpa, MMIO_BASE + 0x10);
	assert_int_equal(cpu->port.mmio.reads[0].len, 8);
	answer(cpu, 0x123456789);
	/* Executed again, the instruction gets further: to its second read. */
	assert_int_equal(cpu_read(cpu, AT(DEVICE, 0x10), &value, 8, 0), FAULT_NONE);
	assert_int_equal(value, 0x123456789);
	assert_int_equal(cpu_read(cpu, AT(DEVICE, 0x10), &second, 4, 0), FAULT_EXIT);
	answer(cpu, 42);
	assert_int_equal(cpu_read(cpu, AT(DEVICE, 0x10), &value, 8, 0), FAULT_NONE);
	assert_int_equal(cpu_read(cpu, AT(DEVICE, 0x10), &second, 4, 0), FAULT_NONE);
	assert_int_equal(value, 0x123456789);
	assert_int_equal(second, 42);
	/* The next execution asks again. */
	mmio_completed(cpu);
	assert_int_equal(cpu_read(cpu, AT(DEVICE, 0x10), &value, 8, 0), FAULT_EXIT);
}

static void a_read_of_something_else_gets_no_old_answer(void **state)
{
	struct cpu *cpu = ((struct paged_cpu *)*state)->cpu;
	u64 value;

	assert_int_equal(cpu_read(cpu, AT(DEVICE, 0), &value, 8, 0), FAULT_EXIT);
	answer(cpu, 1);
	assert_int_equal(cpu_read(cpu, AT(DEVICE, 8), &value, 8, 0), FAULT_EXIT);
	assert_int_equal(cpu->port.mmio.nreads, 1);
	assert_int_equal(cpu->port.mmio.reads[0].gpa, MMIO_BASE + 8);
}

static void device_accesses_split_at_8_byte_lines(void **state)
{
	struct cpu *cpu = ((struct paged_cpu *)*state)->cpu;
	u8 data[20];

	for (u32 i = 0; i < sizeof(data); i++)
		data[i] = i;
	assert_int_equal(cpu_write(cpu, AT(DEVICE, 6), data, sizeof(data), 0), FAULT_NONE);
	assert_int_equal(cpu->port.mmio.nwrites, 4);
	assert_int_equal(cpu->port.mmio.writes[0].len, 2);
	assert_int_equal(cpu->port.mmio.writes[1].len, 8);
	assert_int_equal(cpu->port.mmio.writes[1].gpa, MMIO_BASE + 8);
	assert_memory_equal(cpu->port.mmio.writes[2].data, data + 10, 8);
	assert_int_equal(cpu->port.mmio.writes[3].len, 2);
}

static void too_much_device_data_is_not_emulated(void **state)
{
	struct cpu *cpu = ((struct paged_cpu *)*state)->cpu;
	u8 data[512] = { 0 };

	assert_int_equal(cpu_write(cpu, AT(DEVICE, 0), data, 512, 0), FAULT_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_UNEMULATED);
	assert_int_equal(cpu->port.mmio.nwrites, 0);
	assert_int_equal(cpu_read(cpu, AT(DEVICE, 0), data, 512, 0), FAULT_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_UNEMULATED);
	assert_int_equal(cpu_write(cpu, AT(DEVICE, 0), data, 128, 0), FAULT_NONE);
	assert_int_equal(cpu_write(cpu, AT(DEVICE, 0), data, 1, 0), FAULT_EXIT);
	cpu->port.mmio.write_pos = cpu->port.mmio.nwrites; /* delivered */
	assert_int_equal(cpu_write(cpu, AT(DEVICE, 0), data, 1, 0), FAULT_NONE);
	assert_int_equal(cpu->port.mmio.nwrites, 1);
}

static void an_exit_for_a_read_undoes_queued_writes(void **state)
{
	struct cpu *cpu = ((struct paged_cpu *)*state)->cpu;
	u32 value = 7;

	assert_int_equal(cpu_write(cpu, AT(DEVICE, 0), &value, 4, 0), FAULT_NONE);
	assert_int_equal(cpu_read(cpu, AT(DEVICE, 4), &value, 4, 0), FAULT_EXIT);
	assert_int_equal(cpu->port.mmio.nwrites, 0);
}

static void writes_to_rom_are_device_writes(void **state)
{
	struct paged_cpu *p = *state;
	u32 value = 7, back = 1;

	p->rom[8] = 99;
	assert_int_equal(cpu_read(p->cpu, AT(ROM, 8), &back, 4, ACCESS_WRITE | ACCESS_RMW),
			 FAULT_NONE);
	assert_int_equal(back, 99);
	assert_int_equal(cpu_write(p->cpu, AT(ROM, 8), &value, 4, 0), FAULT_NONE);
	assert_int_equal(p->rom[8], 99);
	assert_int_equal(p->cpu->port.mmio.nwrites, 1);
	assert_int_equal(p->cpu->port.mmio.writes[0].gpa, ROM_BASE + 8);
}

static void translate(struct cpu *cpu, struct span *span, gva_t gva, u32 size)
{
	u32 room = PAGE_SIZE - (gva & ~PAGE_MASK), access = ACCESS_WRITE | ACCESS_RMW;

	*span = (struct span){ .gva = gva, .size = size, .first = size < room ? size : room };
	assert_int_equal(mmu_translate(cpu, gva, access, &span->t[0]), FAULT_NONE);
	if (span->first < size)
		assert_int_equal(mmu_translate(cpu, gva + room, access, &span->t[1]), FAULT_NONE);
}

static void what_was_translated_is_accessed_without_page_tables(void **state)
{
	struct paged_cpu *p = *state;
	u8 data[16], back[16];
	struct span span;

	translate(p->cpu, &span, AT(RAM0, 4088), sizeof(data));
	paged_cpu_map(p, AT(RAM0, 0), 0, 1, 0, FULL);
	paged_cpu_map(p, AT(RAM1, 0), 0, 1, 0, FULL);
	tlb_flush(p->cpu);
	for (u32 from = 0; from < sizeof(data); from++) {
		for (u32 end = from + 1; end <= sizeof(data); end++) {
			u8 whole[sizeof(data)];

			memset(p->ram + GPA + 4088, 0, 8);
			memset(p->ram + RAM1_GPA, 0, 8);
			memset(data, 0, sizeof(data));
			memset(data + from, (int)(from + end), end - from);
			assert_int_equal(cpu_write_at(p->cpu, &span, from, data + from, end - from,
						      ACCESS_UNALIGNED),
					 FAULT_NONE);
			memcpy(whole, p->ram + GPA + 4088, 8);
			memcpy(whole + 8, p->ram + RAM1_GPA, 8);
			assert_memory_equal(whole, data, sizeof(data));
			assert_int_equal(cpu_read_at(p->cpu, &span, from, back, end - from,
						     ACCESS_UNALIGNED | ACCESS_RMW),
					 FAULT_NONE);
			assert_memory_equal(back, data + from, end - from);
		}
	}
}

static void a_part_of_it_may_be_a_device_or_rom(void **state)
{
	struct paged_cpu *p = *state;
	u64 value = 0x1122334455667788, back;
	struct span span;

	translate(p->cpu, &span, AT(DEVICE, -4), 8);
	assert_int_equal(cpu_write_at(p->cpu, &span, 0, &value, 8, 0), FAULT_NONE);
	assert_int_equal(*(u32 *)(p->ram + RAM1_GPA + 4092), 0x55667788);
	assert_int_equal(p->cpu->port.mmio.nwrites, 1);
	assert_int_equal(p->cpu->port.mmio.writes[0].gpa, MMIO_BASE);
	assert_int_equal(p->cpu->port.mmio.writes[0].len, 4);
	translate(p->cpu, &span, AT(ROM, 8), 8);
	p->rom[8] = 99;
	assert_int_equal(cpu_read_at(p->cpu, &span, 0, &back, 8, ACCESS_RMW), FAULT_NONE);
	assert_int_equal(back, 99);
	assert_int_equal(cpu_write_at(p->cpu, &span, 4, &value, 4, 0), FAULT_NONE);
	assert_int_equal(p->cpu->port.mmio.nwrites, 2);
	assert_int_equal(p->cpu->port.mmio.writes[1].gpa, ROM_BASE + 12);
}

static void memory_the_host_lost_is_an_exit(void **state)
{
	struct paged_cpu *p = *state;
	u64 value = 1, expected = 0;
	u8 buf[64];
	bool done;

	paged_cpu_catch_faults();
	mprotect(p->ram + GPA, PAGE_SIZE, PROT_NONE);
	for (u32 size = 1; size <= sizeof(buf); size++) {
		assert_int_equal(cpu_read(p->cpu, AT(RAM0, 64), buf, size, 0), FAULT_EXIT);
		assert_int_equal(p->cpu->port.exit.reason, EXIT_HOST_FAULT);
		assert_int_equal(p->cpu->port.exit.gpa, GPA + 64);
		assert_int_equal(cpu_write(p->cpu, AT(RAM0, 64), buf, size, 0), FAULT_EXIT);
	}
	assert_false(guarded_fill(p->ram + GPA, value, 13));
	assert_false(guarded_cmpxchg64((u64 *)(p->ram + GPA), &expected, value, &done));
	assert_false(guarded_cmpxchg32((u32 *)(p->ram + GPA), (u32 *)&expected, value, &done));
	mprotect(p->ram + GPA, PAGE_SIZE, PROT_READ | PROT_WRITE);
	assert_true(guarded_cmpxchg64((u64 *)(p->ram + GPA), &expected, 5, &done) && done);
	assert_true(guarded_cmpxchg64((u64 *)(p->ram + GPA), &expected, 6, &done) && !done);
	assert_int_equal(expected, 5);
	assert_int_equal(*(u64 *)(p->ram + GPA), 5);
	assert_true(guarded_fill(p->ram + GPA, 0x0807060504030201, 13));
	assert_memory_equal(p->ram + GPA, "\1\2\3\4\5\6\7\10\1\2\3\4\5\0", 14);
}

/* --- breakpoints --- */

static const struct watch_row {
	u64 dr7;
	gva_t addr; /* in DR0 */
	gva_t at;
	u32 size;
	bool write;
	bool hit;
} watch_rows[] = {
	/* R/W 1: writes; LEN 3: 4 bytes */
	{ 0xd0001, AT(RAM0, 8), AT(RAM0, 8), 1, true, true },
	{ 0xd0001, AT(RAM0, 8), AT(RAM0, 8), 1, false, false },
	{ 0xd0001, AT(RAM0, 8), AT(RAM0, 11), 1, true, true },
	{ 0xd0001, AT(RAM0, 8), AT(RAM0, 12), 4, true, false },
	{ 0xd0001, AT(RAM0, 8), AT(RAM0, 4), 8, true, true },
	{ 0xd0001, AT(RAM0, 8), AT(RAM0, 4), 4, true, false },
	{ 0xd0001, AT(RAM0, 10), AT(RAM0, 8), 1, true, true }, /* low address bits do not count */
	{ 0xd0002, AT(RAM0, 8), AT(RAM0, 8), 1, true, true },  /* G0 */
	{ 0xd0004, AT(RAM0, 8), AT(RAM0, 8), 1, true, false }, /* that is L1 */
	/* R/W 3: both; LEN 0, 1, 2: 1, 2, 8 bytes */
	{ 0x30001, AT(RAM0, 8), AT(RAM0, 8), 4, false, true },
	{ 0x30001, AT(RAM0, 8), AT(RAM0, 9), 4, false, false },
	{ 0x70001, AT(RAM0, 8), AT(RAM0, 9), 4, true, true },
	{ 0xb0001, AT(RAM0, 8), AT(RAM0, 15), 1, true, true },
	{ 0xb0001, AT(RAM0, 8), AT(RAM0, 16), 1, true, false },
	{ 0x30001, AT(RAM1, 0), AT(RAM0, 4094), 4, false, true }, /* across pages */
	/* R/W 0 and 2: instructions and ports */
	{ 0x00001, AT(RAM0, 8), AT(RAM0, 8), 4, false, false },
	{ 0x20001, AT(RAM0, 8), AT(RAM0, 8), 4, false, false },
};

static void data_breakpoints_match_by_the_table(void **state)
{
	struct cpu *cpu = ((struct paged_cpu *)*state)->cpu;

	for (u32 debugger = 0; debugger < 2; debugger++)
		for (u32 i = 0; i < ARRAY_SIZE(watch_rows); i++) {
			const struct watch_row *row = &watch_rows[i];
			u64 buf = 0;

			cpu->port.debug.hardware_bp = debugger;
			cpu->dr7 = debugger ? 0 : row->dr7;
			cpu->port.debug.dr7 = debugger ? row->dr7 : 0;
			cpu->dr[0] = cpu->port.debug.dr[0] = row->addr;
			cpu_watch_update(cpu);
			cpu->pending_db = 0;
			if (row->write)
				cpu_write(cpu, row->at, &buf, row->size, 0);
			else
				cpu_read(cpu, row->at, &buf, row->size, 0);
			if (cpu->pending_db != row->hit)
				print_error("row %u\n", i);
			assert_int_equal(cpu->pending_db, row->hit);
		}
}

static void watched_pages_stay_out_of_the_tlb(void **state)
{
	struct cpu *cpu = ((struct paged_cpu *)*state)->cpu;
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct tlb_entry *ram0 = &priv->tlb[SET][(AT(RAM0, 0) >> PAGE_SHIFT) % TLB_SIZE];
	const struct tlb_entry *ram1 = &priv->tlb[SET][(AT(RAM1, 0) >> PAGE_SHIFT) % TLB_SIZE];
	u64 value = 0;

	cpu_write(cpu, AT(RAM0, 0), &value, 8, 0);
	assert_int_equal(ram0->write, AT(RAM0, 0));
	cpu->dr[2] = AT(RAM0, 0x100);
	cpu->dr7 = 0x1000010 | DR7_FIXED1; /* L2, writes */
	cpu_watch_update(cpu);
	for (u32 i = 0; i < 2; i++) {
		cpu_write(cpu, AT(RAM0, 0), &value, 8, 0);
		cpu_write(cpu, AT(RAM1, 0), &value, 8, 0);
		assert_int_not_equal(ram0->read, AT(RAM0, 0));
		assert_int_not_equal(ram0->write, AT(RAM0, 0));
		assert_int_equal(ram1->write, AT(RAM1, 0));
	}
	assert_int_equal(cpu->pending_db, 0);
	cpu_write(cpu, AT(RAM0, 0x100), &value, 8, ACCESS_SYSTEM);
	assert_int_equal(cpu->pending_db, 0);
	cpu_write(cpu, AT(RAM0, 0x100), &value, 8, 0);
	assert_int_equal(cpu->pending_db, 4);
}

static void instruction_breakpoints_match_exactly(void **state)
{
	struct cpu *cpu = ((struct paged_cpu *)*state)->cpu;
	struct cpu_priv *priv = cpu_priv(cpu);

	cpu->dr[1] = 0x401000;
	cpu->dr[3] = 0x401000;
	cpu->dr7 = 0x84; /* L1 and G3, instructions */
	cpu_watch_update(cpu);
	assert_false(priv->watch_active);
	assert_true(priv->mode & MODE_STEP);
	assert_int_equal(cpu_watch_fetch(cpu, 0x401000), 0xa);
	assert_int_equal(cpu_watch_fetch(cpu, 0x401001), 0);
	cpu->port.debug.hardware_bp = true;
	cpu_watch_update(cpu);
	assert_false(priv->mode & MODE_STEP);
}

static void port_breakpoints_need_cr4_de(void **state)
{
	struct cpu *cpu = ((struct paged_cpu *)*state)->cpu;

	cpu->dr[0] = 0x3f8;
	cpu->dr7 = 0x20001;
	cpu_watch_io(cpu, 0x3f8, 1);
	assert_int_equal(cpu->pending_db, 0);
	cpu->cr4 |= CR4_DE;
	cpu_watch_io(cpu, 0x3f9, 1);
	assert_int_equal(cpu->pending_db, 0);
	cpu_watch_io(cpu, 0x3f6, 4);
	assert_int_equal(cpu->pending_db, 1);
}

/* --- the table of translated code --- */

static void writes_to_code_are_noted_by_line(void **state)
{
	struct paged_cpu *p = *state;
	struct code_pages *code = cpu_priv(p->cpu)->code;
	u64 value = 0;

	code_add(code, GPA)->lines = BIT(1) | BIT(2);
	cpu_write(p->cpu, AT(RAM0, 0), &value, 8, 0);
	assert_int_equal(code->nwritten, 0);
	cpu_write(p->cpu, AT(RAM0, 0x7c), &value, 8, 0);
	assert_int_equal(code->nwritten, 1);
	assert_int_equal(code->written[0].page, GPA);
	assert_int_equal(code->written[0].lines, BIT(1) | BIT(2));
	cpu_write(p->cpu, AT(RAM0, 0x90), &value, 8, 0);
	assert_int_equal(code->nwritten, 1);
	code_add(code, RAM1_GPA)->lines = BIT(1);
	for (u32 i = 0; i < 40; i++)
		cpu_write(p->cpu, AT(i % 2 ? RAM0 : RAM1, 0x40), &value, 8, 0);
	assert_true(code->nwritten > ARRAY_SIZE(code->written));
}

static void the_code_table_finds_what_was_added(void **state)
{
	struct code_pages *code = cpu_priv(((struct paged_cpu *)*state)->cpu)->code;
	u32 added = 0;

	assert_null(code_find(code, 0));
	for (gpa_t gpa = 0; code_add(code, gpa); gpa += PAGE_SIZE)
		added++;
	assert_true(added >= 1u << (CODE_PAGES_BITS - 1) && added == code->count);
	for (u32 i = 0; i < added; i++)
		assert_int_equal(code_find(code, i * PAGE_SIZE + 5)->gfn_plus_1, i + 1);
	assert_null(code_find(code, added * PAGE_SIZE));
	assert_non_null(code_add(code, 0)); /* known pages are found in a full table */
	assert_false(code_touches(code, 0, PAGE_SIZE));
	code_find(code, 0)->lines = BIT(63);
	assert_true(code_touches(code, 4095, 1) && code_touches(code, 0, PAGE_SIZE));
	assert_false(code_touches(code, 4031, 1) || code_touches(code, 0, 4032));
	code_clear(code);
	assert_null(code_find(code, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_crossing_access_joins_two_pages),
		TEST(a_crossing_write_that_faults_changes_nothing),
		TEST(addresses_wrap_at_4g_outside_64_bit_mode),
		TEST(device_reads_are_replayed),
		TEST(a_read_of_something_else_gets_no_old_answer),
		TEST(device_accesses_split_at_8_byte_lines),
		TEST(too_much_device_data_is_not_emulated),
		TEST(an_exit_for_a_read_undoes_queued_writes),
		TEST(writes_to_rom_are_device_writes),
		TEST(what_was_translated_is_accessed_without_page_tables),
		TEST(a_part_of_it_may_be_a_device_or_rom),
		TEST(memory_the_host_lost_is_an_exit),
		TEST(data_breakpoints_match_by_the_table),
		TEST(watched_pages_stay_out_of_the_tlb),
		TEST(instruction_breakpoints_match_exactly),
		TEST(port_breakpoints_need_cr4_de),
		TEST(writes_to_code_are_noted_by_line),
		TEST(the_code_table_finds_what_was_added),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
