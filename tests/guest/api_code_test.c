// SPDX-License-Identifier: MIT
/*
 * Code that is changed from elsewhere: by the program through its mapping of guest memory, and by
 * another vCPU. The new bytes must be executed once the architecture says so: after an exit, and
 * after a serializing instruction (SDM 3A 8.1.3). Run by `vpmu kvm`.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/control_client.h"
#include "guest/kvm_guest.h"

#define CODE(name) name##_start, (size_t)(name##_end - name##_start)
#define ROUNDS	   2000
#define PATCHED	   (IMAGE_CODE + 0x800)

/* Calls the function at PATCHED (RDI) for ever and sends what it returns to a port. */
GUEST_CODE(caller, "mov $0x10800, %edi\n"
		   "1: call *%rdi\n"
		   "out %eax, $0x20\n"
		   "jmp 1b\n");

/* mov $value, %eax; ret */
static void write_function(u8 *ram, u32 value)
{
	u8 code[6] = { 0xb8 };

	memcpy(code + 1, &value, 4);
	code[5] = 0xc3;
	memcpy(ram + PATCHED, code, sizeof(code));
}

static void the_program_may_change_code_between_runs(void **state)
{
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(caller), 1);
	for (u32 i = 0; i < ROUNDS; i++) {
		write_function(g.ram, i * 7);
		assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
		assert_int_equal(*(u32 *)kvm_io_data(g.run[0]), i * 7);
	}
	kvm_guest_destroy(&g);
}

/*
 * vCPU 0 writes a new immediate into the function, then the same number into the mailbox. vCPU 1
 * waits for a new number, serializes, calls the function and compares. R8: rounds; R9: mailbox;
 * RDI: the function. Ends with HLT; EBX counts what went wrong.
 */
GUEST_CODE(writer, "mov $0x10800, %edi\n"
		   "mov $0x100000, %r9d\n"
		   "mov $1, %r8d\n"
		   "1: mov %r8d, 1(%rdi)\n"
		   "mov %r8d, (%r9)\n"
		   "2: pause\n"
		   "cmp %r8d, 64(%r9)\n"
		   "jne 2b\n"
		   "inc %r8d\n"
		   "cmp $2000, %r8d\n"
		   "jbe 1b\n"
		   "hlt\n"
		   ".org writer_start + 0x400\n"
		   "mov $0x10800, %edi\n"
		   "mov $0x100000, %r9d\n"
		   "mov $1, %r8d\n"
		   "xor %esi, %esi\n"
		   "3: pause\n"
		   "cmp %r8d, (%r9)\n"
		   "jne 3b\n"
		   "xor %eax, %eax\n"
		   "cpuid\n"
		   "call *%rdi\n"
		   "cmp %r8d, %eax\n"
		   "je 4f\n"
		   "inc %esi\n"
		   "4: mov %r8d, 64(%r9)\n"
		   "inc %r8d\n"
		   "cmp $2000, %r8d\n"
		   "jbe 3b\n"
		   "mov %esi, %ebx\n"
		   "hlt\n");

struct runner {
	struct kvm_guest *g;
	int vcpu, reason;
};

static void *run(void *arg)
{
	struct runner *runner = arg;

	runner->reason = kvm_guest_run(runner->g, runner->vcpu);
	return NULL;
}

static void run_both(struct kvm_guest *g)
{
	struct runner runners[2] = { { g, 0, -1 }, { g, 1, -1 } };
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, run, &runners[i]);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(runners[i].reason, KVM_EXIT_HLT);
	}
}

static void another_vcpu_may_change_code(void **state)
{
	struct kvm_guest g;
	struct kvm_regs regs;

	(void)state;
	kvm_guest_create(&g, CODE(writer), 2);
	kvm_guest_set_rip(&g, 1, IMAGE_CODE + 0x400);
	write_function(g.ram, 0);
	run_both(&g);
	KVM_CALL(g.vcpu[1], KVM_GET_REGS, &regs);
	assert_int_equal(regs.r8, ROUNDS + 1);
	assert_int_equal(regs.rbx, 0);
	kvm_guest_destroy(&g);
}

/*
 * A WRMSR that no hypervisor sees serializes, too. Each of 200 pages holds a function that begins
 * with one; what follows it counts EBX up. vCPU 1 writes to the page before vCPU 0 translates it,
 * so that it holds the right to, and then turns INC into DEC: the next WRMSR of vCPU 0 is to notice
 * that, without the code that it is a part of being executed in the old form or left half dropped.
 * The code that follows WRMSR has run nearly often enough to be made again by then. Mailboxes at
 * 0xf0000: page k is ready, has been translated, has been changed; 0xf3000 is the MSR's number.
 */
#define PAGES	       200
#define FUNCTIONS      0x100000
#define MAILBOX_MSR    0xf3000
#define CALLS_AT_LEAST 490

GUEST_CODE(passing,
	   "mov $0x100000, %r8d\n"
	   "xor %r9d, %r9d\n"
	   "mov $0xf0000, %r10d\n"
	   "xor %ebx, %ebx\n"
	   "1: pause\n"
	   "cmpl $0, (%r10,%r9,4)\n"
	   "je 1b\n"
	   "mov %r9d, %eax\n"
	   "and $31, %eax\n"
	   "lea 490(%rax), %r11d\n" /* CALLS_AT_LEAST */
	   "2: lea 0x22(%r8), %rax\n"
	   "call *%rax\n"
	   "dec %r11d\n"
	   "jnz 2b\n"
	   "mov $5, %r11d\n"
	   "lea 0x20(%r8), %rsi\n"
	   "mov 0x3000(%r10), %ecx\n"
	   "xor %edx, %edx\n"
	   "xor %eax, %eax\n"
	   "3: call *%rsi\n"
	   "dec %r11d\n"
	   "jnz 3b\n"
	   "movl $1, 0x1000(%r10,%r9,4)\n"
	   "4: pause\n"
	   "cmpl $0, 0x2000(%r10,%r9,4)\n"
	   "je 4b\n"
	   "call *%rsi\n"
	   "add $0x1000, %r8\n"
	   "inc %r9d\n"
	   "cmp $200, %r9d\n"
	   "jb 1b\n"
	   "hlt\n"
	   ".org passing_start + 0x2000\n"
	   "mov $0x100000, %r8d\n"
	   "xor %r9d, %r9d\n"
	   "mov $0xf0000, %r10d\n"
	   "1: movb $1, 0x800(%r8)\n"
	   "movl $1, (%r10,%r9,4)\n"
	   "2: cmpl $0, 0x1000(%r10,%r9,4)\n"
	   "je 2b\n"
	   "movb $0xcb, 0x23(%r8)\n" /* ModRM of DEC EBX */
	   "movl $1, 0x2000(%r10,%r9,4)\n"
	   "add $0x1000, %r8\n"
	   "inc %r9d\n"
	   "cmp $200, %r9d\n"
	   "jb 1b\n"
	   "hlt\n");

static void a_wrmsr_that_passes_notices_changed_code(void **state)
{
	/* wrmsr; inc %ebx; jmp .+4; nop; nop; ret */
	static const u8 code[] = { 0x0f, 0x30, 0xff, 0xc3, 0xeb, 0x02, 0x90, 0x90, 0xc3 };
	struct kvm_guest g;
	struct kvm_regs regs;
	u32 expected = 0;
	int fd;

	(void)state;
	kvm_guest_create(&g, CODE(passing), 2);
	kvm_guest_set_rip(&g, 1, IMAGE_CODE + 0x2000);
	for (u32 k = 0; k < PAGES; k++) {
		memcpy(g.ram + FUNCTIONS + k * PAGE_SIZE + 0x20, code, sizeof(code));
		expected += CALLS_AT_LEAST + k % 32 + 5 - 1;
	}
	*(u32 *)(g.ram + MAILBOX_MSR) = kvm_guest_counter(&g);
	run_both(&g);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	assert_int_equal((u32)regs.rbx, expected);
	fd = control_dial();
	control_find(fd, "0 stat\n", "stat msr_exits 0"); /* all have passed */
	close(fd);
	kvm_guest_destroy(&g);
}

/* The program changes code while the guest runs it; the guest sees it once it serializes. It counts
 * its calls at CALLS. */
#define CALLS IMAGE_DATA
#define CALL_UNTIL_CHANGED            \
	"1: xor %eax, %eax\n"         \
	"cpuid\n"                     \
	"call *%rdi\n"                \
	"incl 0x100000\n" /* CALLS */ \
	"cmp $77, %eax\n"             \
	"jne 1b\n"                    \
	"hlt\n"

GUEST_CODE(poller, "mov $0x10800, %edi\n" CALL_UNTIL_CHANGED);

/* Once the guest has been seen to run, or twenty seconds have passed. */
static void *change_soon(void *ram)
{
	const u32 *calls = (const u32 *)((u8 *)ram + CALLS);

	for (u32 ms = 0; ms < 20000 && __atomic_load_n(calls, __ATOMIC_ACQUIRE) < 1000; ms++)
		usleep(1000);
	*(volatile u32 *)((u8 *)ram + PATCHED + 1) = 77;
	return NULL;
}

/* The same at CPL 3, where HLT faults, and the handler has one. */
#define GP 13
GUEST_CODE(user_poller, "push $0x23\n"
			"push $0xa0000\n"
			"push $2\n"
			"push $0x2b\n"
			"lea 1f(%rip), %rax\n"
			"push %rax\n"
			"mov $0x10800, %edi\n"
			"iretq\n" CALL_UNTIL_CHANGED);

/* Ends after this HLT. */
static void change_while_it_runs(const void *code, size_t size, u64 end)
{
	struct kvm_guest g;
	struct kvm_regs regs;
	pthread_t thread;

	kvm_guest_create(&g, code, size, 1);
	write_function(g.ram, 1);
	assert_int_equal(pthread_create(&thread, NULL, change_soon, g.ram), 0);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	pthread_join(thread, NULL);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	assert_int_equal(regs.rip, end);
	assert_true(*(u32 *)(g.ram + CALLS) >= 1000);
	kvm_guest_destroy(&g);
}

static void the_program_may_change_code_while_it_runs(void **state)
{
	(void)state;
	change_while_it_runs(CODE(poller), IMAGE_CODE + (poller_end - poller_start));
}

static void the_program_may_change_user_code_while_it_runs(void **state)
{
	(void)state;
	change_while_it_runs(CODE(user_poller), IMAGE_STUBS + GP * IMAGE_STUB_SIZE + 1);
}

/*
 * Two address spaces that PCIDs keep apart and that are the same but for that. User code at 20000
 * calls the function at 21000 in both, in both again, `change` makes it another one, and in both it
 * must be the new one. The kernel is at KERNEL_BASE, where kernels are, and its page is global.
 * R12, R13: CR3 of one and the other, with bit 63; R15: where the gate returns to. EBX adds up what
 * the function returned.
 */
#define USER_CODE     0x20000
#define USER_FUNCTION 0x21000
#define KERNEL_BASE   0xffffff8000000000 /* physical address 0 once more */
#define SPACES_GATE   (KERNEL_BASE + IMAGE_CODE + 0x200)
#define PTE_GLOBAL    BIT(8)

#define SPACES(name, change) \
	GUEST_CODE(name, "mov 0x4000, %rax\n"                                           \
		   "mov %rax, 0x4ff8\n"                                                 \
		   "mov %rax, 0xb000\n"                                                 \
		   "mov %rax, 0xbff8\n"                                                 \
		   "mov $0xffffff8000000000, %rcx\n" /* KERNEL_BASE */                  \
		   "lea 9f(%rip), %rax\n"                                               \
		   "add %rcx, %rax\n"                                                   \
		   "jmp *%rax\n"                                                        \
		   "9: mov %cr4, %rax\n"                                                \
		   "or $0x20080, %eax\n" /* PCIDE, PGE */                               \
		   "mov %rax, %cr4\n"                                                   \
		   "mov $0x4001, %r12d\n"                                               \
		   "bts $63, %r12\n"                                                    \
		   "mov $0xb002, %r13d\n"                                               \
		   "bts $63, %r13\n"                                                    \
		   "mov $0x21000, %edi\n"                                               \
		   "xor %ebx, %ebx\n"                                                   \
		   "mov $2, %ebp\n"                                                     \
		   "1: mov $3, %esi\n" /* rounds: to know it, to know it again, once more */ \
		   "2: mov %r12, %cr3\n"                                                \
		   "lea 3f(%rip), %r15\n"                                               \
		   "jmp 5f\n"                                                           \
		   "3: mov %r13, %cr3\n"                                                \
		   "lea 4f(%rip), %r15\n"                                               \
		   "jmp 5f\n"                                                           \
		   "4: dec %esi\n"                                                      \
		   "jnz 2b\n"                                                           \
		   change                                                               \
		   "dec %ebp\n"                                                         \
		   "jnz 1b\n"                                                           \
		   "hlt\n"                                                              \
		   "5: push $0x23\n"                                                    \
		   "push $0xa0000\n"                                                    \
		   "push $2\n"                                                          \
		   "push $0x2b\n"                                                       \
		   "push $0x20000\n"                                                    \
		   "iretq\n"                                                            \
		   ".org " #name "_start + 0x200\n"                                     \
		   "add $40, %rsp\n"                                                    \
		   "add %eax, %ebx\n"                                                   \
		   "jmp *%r15\n")

SPACES(spaces, "movl $100, 0x21001\n");

static void make_spaces(struct kvm_guest *g, const void *code, size_t size, u64 function_pte)
{
	static const u8 user[] = { 0xff, 0xd7, 0xcd, 0x80 };	    /* call *%rdi; int $0x80 */
	static const u8 function[] = { 0xb8, 1, 0, 0, 0, 0xc3 };    /* mov $1, %eax; ret */
	static const u8 function2[] = { 0xb8, 100, 0, 0, 0, 0xc3 }; /* mov $100, %eax; ret */

	kvm_guest_create(g, code, size, 1);
	memcpy(g->ram + USER_CODE, user, sizeof(user));
	memcpy(g->ram + USER_FUNCTION, function, sizeof(function));
	memcpy(g->ram + USER_FUNCTION + PAGE_SIZE, function2, sizeof(function2));
	image_gate(g->ram, 0x80, SPACES_GATE, 3);
	*image_pte(g->ram, IMAGE_CODE) |= PTE_GLOBAL;
	*image_pte(g->ram, USER_FUNCTION) |= function_pte;
}

static void run_spaces_to_end(struct kvm_guest *g)
{
	struct kvm_regs regs;

	assert_int_equal(kvm_guest_run(g, 0), KVM_EXIT_HLT);
	KVM_CALL(g->vcpu[0], KVM_GET_REGS, &regs);
	assert_int_equal(regs.rbx, 6 * 1 + 6 * 100);
	kvm_guest_destroy(g);
}

static void change_in_all_spaces(const void *code, size_t size, u64 function_pte)
{
	struct kvm_guest g;

	make_spaces(&g, code, size, function_pte);
	run_spaces_to_end(&g);
}

static void code_changes_in_all_address_spaces(void **state)
{
	(void)state;
	change_in_all_spaces(CODE(spaces), 0);
}

/* The kernel tells the program, which changes the function. */
SPACES(told, "out %al, $0xf4\n");

static void the_program_may_change_user_code_while_the_kernel_runs(void **state)
{
	struct kvm_guest g;

	(void)state;
	make_spaces(&g, CODE(told), 0);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	g.ram[USER_FUNCTION + 1] = 100;
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	run_spaces_to_end(&g);
}

/* The page table entry of the function's page, which is global, names another frame. INVLPG drops
 * global translations whatever their PCID (SDM 3A 4.10.4.1). */
SPACES(remapped, "movq $0x22107, 0x7108\n"
		 "invlpg 0x21000\n");

static void a_global_page_of_code_is_remapped_in_all_address_spaces(void **state)
{
	(void)state;
	change_in_all_spaces(CODE(remapped), PTE_GLOBAL);
}

/*
 * Code in the steal-time record that the hypervisor writes: "mov $version, %eax; ret" from its
 * eighth byte on, of which only the version changes. The MSR is 64-byte aligned, bit 0 enables.
 */
#define STEAL_TIME     0x21000
#define STEAL_FUNCTION (STEAL_TIME + 7)

GUEST_CODE(stealing, "mov $0x21007, %edi\n"
		     "call *%rdi\n"
		     "mov %eax, %esi\n"
		     "mov $0x4b564d03, %ecx\n" /* MSR_KVM_STEAL_TIME */
		     "mov $0x21001, %eax\n"
		     "xor %edx, %edx\n"
		     "wrmsr\n"
		     "call *%rdi\n"
		     "sub %esi, %eax\n"
		     "hlt\n");

static void what_the_hypervisor_writes_may_be_code(void **state)
{
	static const u8 function[] = { 0xb8, 2, 0, 0, 0, 0xc3 };
	struct kvm_guest g;
	struct kvm_regs regs;

	(void)state;
	kvm_guest_create(&g, CODE(stealing), 1);
	memcpy(g.ram + STEAL_FUNCTION, function, sizeof(function));
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	assert_int_equal(regs.rax, *(u32 *)(g.ram + STEAL_FUNCTION + 1) - 2);
	assert_int_not_equal(regs.rax, 0);
	kvm_guest_destroy(&g);
}

/* A function whose first instruction goes on in the next page, which is the same page again. */
#define DOUBLE 0x30000

GUEST_CODE(crossing, "mov $0x30ffd, %edi\n"
		     "mov $3, %ecx\n"
		     "xor %ebx, %ebx\n"
		     "1: call *%rdi\n"
		     "add %eax, %ebx\n"
		     "movb $10, 1(%rdi)\n"
		     "call *%rdi\n"
		     "add %eax, %ebx\n"
		     "movb $1, 1(%rdi)\n"
		     "dec %ecx\n"
		     "jnz 1b\n"
		     "hlt\n");

static void a_page_may_follow_itself(void **state)
{
	static const u8 head[] = { 0xb8, 1, 0 }, tail[] = { 0, 0, 0xc3 }; /* mov $1, %eax; ret */
	struct kvm_guest g;
	struct kvm_regs regs;

	(void)state;
	kvm_guest_create(&g, CODE(crossing), 1);
	memcpy(g.ram + DOUBLE + PAGE_SIZE - sizeof(head), head, sizeof(head));
	memcpy(g.ram + DOUBLE, tail, sizeof(tail));
	*image_pte(g.ram, DOUBLE + PAGE_SIZE) = *image_pte(g.ram, DOUBLE);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	assert_int_equal(regs.rbx, 3 * (1 + 10));
	kvm_guest_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_program_may_change_code_between_runs),
		cmocka_unit_test(another_vcpu_may_change_code),
		cmocka_unit_test(a_wrmsr_that_passes_notices_changed_code),
		cmocka_unit_test(the_program_may_change_code_while_it_runs),
		cmocka_unit_test(the_program_may_change_user_code_while_it_runs),
		cmocka_unit_test(code_changes_in_all_address_spaces),
		cmocka_unit_test(the_program_may_change_user_code_while_the_kernel_runs),
		cmocka_unit_test(a_global_page_of_code_is_remapped_in_all_address_spaces),
		cmocka_unit_test(what_the_hypervisor_writes_may_be_code),
		cmocka_unit_test(a_page_may_follow_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
