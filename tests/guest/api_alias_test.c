// SPDX-License-Identifier: MIT
/*
 * Host memory that several memory slots show: code that is executed at one guest physical address
 * and written at another one of the same bytes. It is executed as written: at once after stores of
 * the same vCPU, after a serializing instruction for those of another one (SDM 3A 8.1.3). Run by
 * `vpmu kvm`.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define CODE(name) name##_start, (size_t)(name##_end - name##_start)
#define ROUNDS	   500

/* Three addresses of one byte: in the first slot, in the second, and from page 1 on in the third.
 * The other slots begin at different pages. */
#define LOW	0x120000
#define SECOND	(IMAGE_MMIO + 0x1000)
#define THIRD	(IMAGE_MMIO + 0x11000)
#define CROSSES (PAGE_SIZE - 3) /* the first instruction of a function here */

static void set_slot(struct kvm_guest *g, u32 slot, u64 gpa, u64 ram, u64 size)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot,
		.guest_phys_addr = gpa,
		.memory_size = size,
		.userspace_addr = (u64)g->ram + ram,
	};

	KVM_CALL(g->vm, KVM_SET_USER_MEMORY_REGION, &region);
}

static void set_second(struct kvm_guest *g)
{
	set_slot(g, 1, SECOND - PAGE_SIZE, LOW - PAGE_SIZE, 4 * PAGE_SIZE);
}

static void set_third(struct kvm_guest *g)
{
	set_slot(g, 2, THIRD + PAGE_SIZE, LOW + PAGE_SIZE, 4 * PAGE_SIZE);
}

static void drop_slot(struct kvm_guest *g, u32 slot)
{
	set_slot(g, slot, 0, 0, 0);
}

/* mov $0, %eax; ret */
static void write_function(struct kvm_guest *g, u64 offset)
{
	static const u8 code[] = { 0xb8, 0, 0, 0, 0, 0xc3 };

	memcpy(g->ram + LOW + offset, code, sizeof(code));
}

/* Where a function is executed, and where it is written. */
static const struct row {
	u64 executed, written;
} rows[] = {
	{ LOW, SECOND },
	{ SECOND, LOW },
	{ LOW + CROSSES, SECOND + CROSSES },
	{ SECOND + CROSSES, LOW + CROSSES },
	{ LOW + PAGE_SIZE, THIRD + PAGE_SIZE },
	{ SECOND + PAGE_SIZE, THIRD + PAGE_SIZE },
	{ THIRD + PAGE_SIZE, SECOND + PAGE_SIZE },
	{ THIRD + PAGE_SIZE + CROSSES, SECOND + PAGE_SIZE + CROSSES },
	{ THIRD + 3 * PAGE_SIZE, LOW + 3 * PAGE_SIZE },
};

static u64 offset_of(u64 gpa)
{
	return gpa - (gpa >= THIRD ? THIRD : gpa >= IMAGE_MMIO ? SECOND : LOW);
}

/* The vCPU starts at `rip` with a row's addresses in RDI and RSI. */
static void start_at(struct kvm_guest *g, int vcpu, u64 rip, const struct row *row)
{
	struct kvm_regs regs = { .rip = rip,
				 .rsp = IMAGE_STACK - vcpu * PAGE_SIZE,
				 .rflags = 2,
				 .rdi = row->executed,
				 .rsi = row->written,
				 .r8 = 1 };

	KVM_CALL(g->vcpu[vcpu], KVM_SET_REGS, &regs);
}

static struct kvm_regs regs_of(struct kvm_guest *g, int vcpu)
{
	struct kvm_regs regs;

	KVM_CALL(g->vcpu[vcpu], KVM_GET_REGS, &regs);
	return regs;
}

/* It has been through all rounds, and no call returned an old number. */
static void assert_seen(struct kvm_guest *g, int vcpu, const struct row *row)
{
	struct kvm_regs regs = regs_of(g, vcpu);

	if (regs.rbx)
		print_error("executed at %#llx, written at %#llx\n",
			    (unsigned long long)row->executed, (unsigned long long)row->written);
	assert_int_equal(regs.r8, ROUNDS + 1);
	assert_int_equal(regs.rbx, 0);
}

/* Stores the number of the round (R8) into the function, calls it and compares. EBX counts what
 * went wrong. */
#define PATCHER(name, store) \
	GUEST_CODE(name, "1:\n" store    \
			 "call *%rdi\n"  \
			 "cmp %r8d, %eax\n" \
			 "je 2f\n"       \
			 "inc %ebx\n"    \
			 "2: inc %r8d\n" \
			 "cmp $500, %r8d\n" \
			 "jbe 1b\n"      \
			 "hlt\n")

PATCHER(storing, "mov %r8d, 1(%rsi)\n");
PATCHER(exchanging, "mov %r8d, %eax; xchg %eax, 1(%rsi)\n");
PATCHER(filling, "mov %rdi, %r9; lea 1(%rsi), %rdi; mov %r8d, %eax; mov $1, %ecx; rep stosl\n"
		 "mov %r9, %rdi\n");
PATCHER(moving, "mov %rdi, %r9; mov %rsi, %r10; mov %r8d, 0x100000; mov $0x100000, %esi\n"
		"lea 1(%r10), %rdi; mov $4, %ecx; rep movsb; mov %r9, %rdi; mov %r10, %rsi\n");

static void patch_rows(const void *code, size_t size)
{
	struct kvm_guest g;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		kvm_guest_create(&g, code, size, 1);
		set_second(&g);
		set_third(&g);
		write_function(&g, offset_of(rows[i].executed));
		start_at(&g, 0, IMAGE_CODE, &rows[i]);
		assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
		assert_seen(&g, 0, &rows[i]);
		kvm_guest_destroy(&g);
	}
}

static void code_is_executed_as_stored_through_another_slot(void **state)
{
	(void)state;
	patch_rows(CODE(storing));
	patch_rows(CODE(exchanging));
}

static void code_is_executed_as_string_instructions_write_it(void **state)
{
	(void)state;
	patch_rows(CODE(filling));
	patch_rows(CODE(moving));
}

/*
 * The frame of an exception is the function: RSP as it was, "mov $imm, %eax; ret". The #UD handler
 * calls it where it is executed. RSI: the frame's end, IST 1; R9: RSP of the rest.
 */
#define FRAME_END 0x810

GUEST_CODE(framing, "mov %rsp, %r9\n"
		    "1: mov %r8, %rsp\n"
		    "shl $8, %rsp\n"
		    "mov $0xc300000000b8, %rax\n"
		    "or %rax, %rsp\n"
		    "ud2\n"
		    ".org framing_start + 0x100\n"
		    "mov %r9, %rsp\n"
		    "call *%rdi\n"
		    "cmp %r8d, %eax\n"
		    "je 2f\n"
		    "inc %ebx\n"
		    "2: inc %r8d\n"
		    "cmp $500, %r8d\n"
		    "jbe 1b\n"
		    "hlt\n");

static void code_is_executed_as_exceptions_write_it(void **state)
{
	const struct row row = { LOW + FRAME_END - 16, SECOND + FRAME_END };
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(framing), 1);
	set_second(&g);
	image_gate(g.ram, 6, IMAGE_CODE + 0x100, 0);
	image_ist(g.ram, 6, row.written);
	start_at(&g, 0, IMAGE_CODE, &row);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	assert_seen(&g, 0, &row);
	kvm_guest_destroy(&g);
}

/* The version in a steal-time record is the number that the function returns, which is executed
 * before and after the hypervisor has written it. RSI: the record. */
GUEST_CODE(stealing, "call *%rdi\n"
		     "mov %eax, %ebx\n"
		     "mov $0x4b564d03, %ecx\n" /* MSR_KVM_STEAL_TIME */
		     "lea 1(%rsi), %eax\n"
		     "xor %edx, %edx\n"
		     "wrmsr\n"
		     "call *%rdi\n"
		     "sub %ebx, %eax\n"
		     "hlt\n");

static void code_is_executed_as_the_hypervisor_writes_it(void **state)
{
	const struct row row = { LOW + 7, SECOND };
	struct kvm_guest g;
	u32 version;

	(void)state;
	kvm_guest_create(&g, CODE(stealing), 1);
	set_second(&g);
	write_function(&g, 7);
	start_at(&g, 0, IMAGE_CODE, &row);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	memcpy(&version, g.ram + LOW + 8, sizeof(version));
	assert_int_not_equal(version, 0);
	assert_int_equal(regs_of(&g, 0).rax, version);
	kvm_guest_destroy(&g);
}

/*
 * vCPU 0 stores the number of the round into the function and then into the mailbox. vCPU 1 waits
 * for it, serializes, calls the function and compares. New code is compared with memory until all
 * vCPUs know that it is code: vCPU 0 serializes while it waits, and vCPU 1 calls the function some
 * more times. They serialize by INVLPG of a page without code; after CPUID all code is compared,
 * whoever wrote. R9: mailbox.
 */
#define READER (IMAGE_CODE + 0x400)

GUEST_CODE(writer, "mov $0x100000, %r9d\n"
		   "1: mov %r8d, 1(%rsi)\n"
		   "mov %r8d, (%r9)\n"
		   "2: invlpg 0x150000\n"
		   "cmp %r8d, 64(%r9)\n"
		   "jne 2b\n"
		   "inc %r8d\n"
		   "cmp $500, %r8d\n"
		   "jbe 1b\n"
		   "hlt\n"
		   ".org writer_start + 0x400\n"
		   "mov $0x100000, %r9d\n"
		   "3: pause\n"
		   "cmp %r8d, (%r9)\n"
		   "jne 3b\n"
		   "mov $50, %ecx\n"
		   "4: invlpg 0x150000\n"
		   "call *%rdi\n"
		   "cmp %r8d, %eax\n"
		   "je 5f\n"
		   "inc %ebx\n"
		   "5: dec %ecx\n"
		   "jnz 4b\n"
		   "mov %r8d, 64(%r9)\n"
		   "inc %r8d\n"
		   "cmp $500, %r8d\n"
		   "jbe 3b\n"
		   "hlt\n");

static void *run_writer(void *g)
{
	return kvm_guest_run(g, 0) == KVM_EXIT_HLT ? g : NULL;
}

static void another_vcpu_may_store_through_another_slot(void **state)
{
	struct kvm_guest g;
	pthread_t thread;
	void *done;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		kvm_guest_create(&g, CODE(writer), 2);
		set_second(&g);
		set_third(&g);
		write_function(&g, offset_of(rows[i].executed));
		start_at(&g, 0, IMAGE_CODE, &rows[i]);
		start_at(&g, 1, READER, &rows[i]);
		assert_int_equal(pthread_create(&thread, NULL, run_writer, &g), 0);
		assert_int_equal(kvm_guest_run(&g, 1), KVM_EXIT_HLT);
		pthread_join(thread, &done);
		assert_non_null(done);
		assert_seen(&g, 1, &rows[i]);
		kvm_guest_destroy(&g);
	}
}

/* Code that was translated before its memory was to be seen elsewhere, and after it has been. */
static void slots_may_come_and_go(void **state)
{
	const struct row apart = { LOW, LOW }, both = { LOW, SECOND }, other = { SECOND, LOW };
	const struct row *runs[] = { &apart, &both, &other, &apart, &other, &both };
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(storing), 1);
	write_function(&g, 0);
	for (u32 i = 0; i < ARRAY_SIZE(runs); i++) {
		if (runs[i] != &apart)
			set_second(&g);
		start_at(&g, 0, IMAGE_CODE, runs[i]);
		assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
		assert_seen(&g, 0, runs[i]);
		if (runs[i] != &apart)
			drop_slot(&g, 1);
	}
	kvm_guest_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_is_executed_as_stored_through_another_slot),
		cmocka_unit_test(code_is_executed_as_string_instructions_write_it),
		cmocka_unit_test(code_is_executed_as_exceptions_write_it),
		cmocka_unit_test(code_is_executed_as_the_hypervisor_writes_it),
		cmocka_unit_test(another_vcpu_may_store_through_another_slot),
		cmocka_unit_test(slots_may_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
