// SPDX-License-Identifier: MIT
/*
 * Guest memory that is gone: the program has truncated the file behind a slot. Whatever the guest
 * does to it, KVM_RUN ends with EFAULT and the address, as with KVM (KVM_EXIT_MEMORY_FAULT), and
 * goes on when the memory is back. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/must.h"
#include "guest/kvm_guest.h"

#define FILE_AT	  IMAGE_MMIO /* guest physical, and linear */
#define FILE_SIZE 0x10000ull
#define EXIT_PORT 0x20

/*
 * RBX, RDI, RSI: in the file. RBP: not. Each is executed once before its memory goes, and again and
 * again until it is back.
 */
#define ROW(name, text) GUEST_CODE(name, "1: " text "\nout %al, $0x20\njmp 1b\n")

ROW(load, "mov (%rbx), %rax");
ROW(store, "mov %rax, (%rbx)");
ROW(modify, "addl $1, 3(%rbx)");
ROW(group, "mov (%rbx), %rax\nmov 8(%rbx), %rcx\nmov %rcx, 16(%rbx)");
ROW(crossing, "mov 0xffc(%rbx), %rax");
ROW(lock_inc, "lock incq (%rbx)");
ROW(lock_split, "lock incq 0xffe(%rbx)");
ROW(exchange, "xchg %rax, (%rbx)");
ROW(bit, "mov $3000, %eax\nlock btsl %eax, (%rbx)");
ROW(cmpxchg, "lock cmpxchg %rcx, (%rbx)");
ROW(cmpxchg8b, "mov $0, %eax\nmov %rbx, %r8\nmov $0, %edx\nlock cmpxchg8b (%rdi)");
ROW(cmpxchg16b, "lock cmpxchg16b (%rdi)");
ROW(cmpxchg16b_equal, "mov (%rdi), %rax\nmov 8(%rdi), %rdx\nlock cmpxchg16b (%rdi)");
ROW(vector_load, "movups (%rbx), %xmm0");
ROW(vector_store, "movups %xmm0, 0xff8(%rbx)");
ROW(masked, "pcmpeqb %xmm1, %xmm1\nmov %rbx, %rdi\nmaskmovdqu %xmm1, %xmm0");
ROW(x87, "fldt (%rbx)\nfstpt 16(%rbx)");
ROW(fxsave, "fxsave (%rbx)");
ROW(fxrstor, "fxsave (%rbp)\nfxsave (%rbx)\nfxrstor (%rbx)");
ROW(fnsave, "fnsave (%rbx)");
ROW(push, "mov %rbx, %rsp\nadd $64, %rsp\npush %rax\npop %rax");
ROW(call, "mov %rbx, %rsp\nadd $64, %rsp\ncall 2f\n2: add $8, %rsp");
ROW(enter,
    "mov %rbx, %rsp\nadd $64, %rsp\npushq $5\nenter $16, $0\nmov %rbp, %r9\nleave\nmov $0x110000, %ebp");
ROW(jump_through, "lea 2f(%rip), %rax\nmov %rax, (%rbx)\njmp *(%rbx)\n2:");
ROW(stos, "mov %rbx, %rdi\nmov $100, %ecx\nrep stosb");
ROW(stos_pages, "mov %rbx, %rdi\nmov $0x3000, %ecx\nrep stosb");
ROW(movs_from, "mov %rbx, %rsi\nmov %rbp, %rdi\nmov $100, %ecx\nrep movsb");
ROW(movs_to, "mov %rbp, %rsi\nmov %rbx, %rdi\nmov $100, %ecx\nrep movsq");
ROW(lods, "mov %rbx, %rsi\nlodsq");
ROW(scas, "mov %rbx, %rdi\nmov $100, %ecx\nrepne scasb");
ROW(cmps, "mov %rbx, %rdi\nmov %rbp, %rsi\nmov $100, %ecx\nrepe cmpsb");
ROW(table, "sgdt (%rbp)\nlidt (%rbx)\nlidt 32(%rbp)");
ROW(after_pause, "mov %rbp, %rdi\nmov $0x80000, %ecx\nrep stosb\nmov (%rbx), %rax");

/* What is in the file at RBX + 0x3000 and on: the PML4, the GDT, the IDT, a RET. Once gone, it does
 * not come back. */
ROW(paging, "lea 0x3000(%rbx), %rax\nmov %rax, %cr3\nmov (%rbp), %rcx");
ROW(descriptors, "movw $0x3f, (%rbp)\nlea 0x4000(%rbx), %rax\nmov %rax, 2(%rbp)\nlgdt (%rbp)\n"
		 "mov $0x10, %eax\nmov %eax, %ds");
ROW(gates, "movw $0xfff, (%rbp)\nlea 0x5000(%rbx), %rax\nmov %rax, 2(%rbp)\nlidt (%rbp)\nint3");
ROW(frames, "mov %rbx, %rsp\nadd $64, %rsp\nint3");
ROW(code, "lea 0x6000(%rbx), %rax\ncall *%rax");

#define R(name) { #name, name##_start, name##_end }
/* clang-format off */
static const struct row {
	const char *name;
	const u8 *start, *end;
} rows[] = {
	R(load), R(store), R(modify), R(group), R(crossing), R(lock_inc), R(lock_split), R(exchange),
	R(bit), R(cmpxchg), R(cmpxchg8b), R(cmpxchg16b), R(cmpxchg16b_equal), R(vector_load),
	R(vector_store), R(masked), R(x87), R(fxsave), R(fxrstor), R(fnsave), R(push), R(call),
	R(enter), R(jump_through), R(stos), R(stos_pages), R(movs_from), R(movs_to), R(lods), R(scas),
	R(cmps), R(table), R(after_pause),
};
/* clang-format on */

static const struct row final_rows[] = { R(paging), R(descriptors), R(gates), R(frames), R(code) };

struct file {
	int fd;
	u8 *at;
};

static void resize(const struct file *f, u64 size)
{
	must(ftruncate(f->fd, size) == 0);
}

static void open_guest(struct kvm_guest *g, struct file *f, const u8 *start, const u8 *end)
{
	struct kvm_userspace_memory_region region = { .slot = 1,
						      .guest_phys_addr = FILE_AT,
						      .memory_size = FILE_SIZE };
	struct kvm_regs regs = { .rip = IMAGE_CODE,
				 .rsp = IMAGE_STACK,
				 .rflags = 2,
				 .rbx = FILE_AT + 0x2000,
				 .rdi = FILE_AT + 0x3000,
				 .rsi = FILE_AT + 0x4000,
				 .rbp = 0x110000 };

	kvm_guest_create(g, start, end - start, 1);
	f->fd = memfd_create("memory", MFD_CLOEXEC);
	must(f->fd >= 0);
	resize(f, FILE_SIZE);
	f->at = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	must(f->at != MAP_FAILED);
	region.userspace_addr = (u64)f->at;
	KVM_CALL(g->vm, KVM_SET_USER_MEMORY_REGION, &region);
	KVM_CALL(g->vcpu[0], KVM_SET_REGS, &regs);
}

static void close_guest(struct kvm_guest *g, struct file *f)
{
	kvm_guest_destroy(g);
	munmap(f->at, FILE_SIZE);
	close(f->fd);
}

/* Of a page of the file. */
static bool tells_address(const struct kvm_run *run)
{
	return run->exit_reason == KVM_EXIT_MEMORY_FAULT && run->memory_fault.flags == 0 &&
	       run->memory_fault.gpa - FILE_AT < FILE_SIZE && run->memory_fault.size == PAGE_SIZE;
}

static bool fails_well(struct kvm_guest *g)
{
	memset(&g->run[0]->memory_fault, 0xff, sizeof(g->run[0]->memory_fault));
	return kvm_guest_run(g, 0) == -EFAULT && tells_address(g->run[0]);
}

static void memory_that_is_gone_ends_the_run(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kvm_guest g;
		struct file f;

		open_guest(&g, &f, rows[i].start, rows[i].end);
		for (u32 round = 0; round < 3; round++) {
			if (kvm_guest_run(&g, 0) != KVM_EXIT_IO)
				fail_msg("%s: exit %u", rows[i].name, g.run[0]->exit_reason);
			resize(&f, 0);
			if (!fails_well(&g) || !fails_well(&g))
				fail_msg("%s: exit %u", rows[i].name, g.run[0]->exit_reason);
			resize(&f, FILE_SIZE);
		}
		close_guest(&g, &f);
	}
}

#define HANDLER 0x118000

static void fill(struct kvm_guest *g, struct file *f)
{
	u8 *at = f->at + 0x2000;

	g->ram[HANDLER] = 0x48; /* IRETQ */
	g->ram[HANDLER + 1] = 0xcf;
	image_gate(g->ram, 3, HANDLER, 0);
	memcpy(at + 0x3000, g->ram + IMAGE_PML4, PAGE_SIZE);
	memcpy(at + 0x4000, g->ram + IMAGE_GDT, PAGE_SIZE);
	memcpy(at + 0x5000, g->ram + IMAGE_IDT, PAGE_SIZE);
	at[0x6000] = 0xc3;
}

static void what_the_processor_needs_may_be_gone(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(final_rows); i++) {
		struct kvm_guest g;
		struct file f;

		open_guest(&g, &f, final_rows[i].start, final_rows[i].end);
		fill(&g, &f);
		if (kvm_guest_run(&g, 0) != KVM_EXIT_IO)
			fail_msg("%s: exit %u", final_rows[i].name, g.run[0]->exit_reason);
		resize(&f, 0);
		if (!fails_well(&g) || !fails_well(&g))
			fail_msg("%s: exit %u", final_rows[i].name, g.run[0]->exit_reason);
		close_guest(&g, &f);
	}
}

/* The memory goes while instructions are under way: somewhere between their parts. */
GUEST_CODE(hammer, "1: lock cmpxchg16b (%rdi)\n"
		   "lock cmpxchg16b (%rbx)\n"
		   "mov %rdi, %r8\n"
		   "mov %rbx, %rdi\n"
		   "mov %rsi, %r9\n"
		   "mov $0x400, %ecx\n"
		   "rep movsb\n"
		   "fxsave (%rbx)\n"
		   "mov %r8, %rdi\n"
		   "mov %r9, %rsi\n"
		   "jmp 1b\n");

struct hammered {
	struct kvm_guest *g;
	bool stop;
	u32 faults;
	int wrong; /* what ended it otherwise, or 0 */
};

static void *run_on(void *arg)
{
	struct hammered *h = arg;

	while (!READ_ONCE(h->stop) && !h->wrong) {
		int reason = kvm_guest_run(h->g, 0);

		if (reason == -EFAULT && tells_address(h->g->run[0]))
			__atomic_add_fetch(&h->faults, 1, __ATOMIC_RELAXED);
		else if (reason != -EINTR)
			h->wrong = reason ? reason : -1;
	}
	return NULL;
}

static void memory_may_go_at_any_time(void **state)
{
	struct kvm_guest g;
	struct hammered h = { .g = &g };
	struct file f;
	pthread_t thread;

	(void)state;
	open_guest(&g, &f, hammer_start, hammer_end);
	must(pthread_create(&thread, NULL, run_on, &h) == 0);
	for (u32 i = 0; i < 300 && !READ_ONCE(h.wrong); i++) {
		u32 before = __atomic_load_n(&h.faults, __ATOMIC_RELAXED);

		resize(&f, 0);
		while (__atomic_load_n(&h.faults, __ATOMIC_RELAXED) == before &&
		       !READ_ONCE(h.wrong))
			sched_yield();
		resize(&f, FILE_SIZE);
	}
	WRITE_ONCE(h.stop, true);
	resize(&f, 0);
	pthread_join(thread, NULL);
	assert_int_equal(h.wrong, 0);
	close_guest(&g, &f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_is_gone_ends_the_run),
		cmocka_unit_test(what_the_processor_needs_may_be_gone),
		cmocka_unit_test(memory_may_go_at_any_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
