// SPDX-License-Identifier: MIT
/*
 * A guest that counts its branches: see counting_guest.h.
 */
#include "guest/counting_guest.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

struct kvm_guest counting_guest;

/*
 * Until the byte at IMAGE_DATA is set: rounds in RBX, each with one branch, and a look at counter
 * 0, which must not go back. Then OUT 0, or 1 if it did.
 */
GUEST_CODE(counting, "xor %ebx, %ebx; xor %ecx, %ecx; xor %esi, %esi\n"
		     "1: mov 0x100010, %rbp; inc %rbx; mov %rbx, 0x100008\n"
		     "rdpmc; shl $32, %rdx; or %rdx, %rax\n"
		     "cmp %rsi, %rax; mov %rax, %rsi; setb %dil; or %dil, 0x100001\n"
		     "cmpb $0, 0x100000; je 1b\n"
		     "mov 0x100001, %al; out %al, $0xf4\n");

static pthread_t thread;
static volatile pid_t tid;

static void *run_guest(void *g)
{
	tid = gettid();
	return (void *)(long)kvm_guest_run(g, 0);
}

int counting_guest_start(void **state)
{
	struct kvm_guest *g = &counting_guest;

	(void)state;
	kvm_guest_create(g, counting_start, counting_end - counting_start, 1);
	kvm_guest_set_msr(g, 0, kvm_guest_counter(g), 0);
	kvm_guest_set_msr(g, 0, kvm_guest_select(g), (g->amd ? 0xc2 : 0xc4) | COUNT_OS);
	assert_int_equal(pthread_create(&thread, NULL, run_guest, g), 0);
	return 0;
}

bool counting_guest_runs(void)
{
	const u64 *rounds = (const u64 *)&counting_guest.ram[IMAGE_DATA + 8];
	u64 enough = __atomic_load_n(rounds, __ATOMIC_SEQ_CST) + 1000;

	for (u32 ms = 0; __atomic_load_n(rounds, __ATOMIC_SEQ_CST) <= enough; ms++) {
		if (ms == COUNTING_PATIENCE_MS)
			return false;
		usleep(1000);
	}
	return true;
}

pid_t counting_guest_thread(void)
{
	return tid;
}

int counting_guest_finish(void **state)
{
	struct kvm_guest *g = &counting_guest;
	struct kvm_regs regs;
	void *reason;

	(void)state;
	assert_true(counting_guest_runs());
	__atomic_store_n(&g->ram[IMAGE_DATA], 1, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_join(thread, &reason), 0);
	assert_int_equal((long)reason, KVM_EXIT_IO);
	assert_int_equal(*(u8 *)kvm_io_data(g->run[0]), 0);
	KVM_CALL(g->vcpu[0], KVM_GET_REGS, &regs);
	assert_true(regs.rbx > 0); /* how many depends on how busy the machine is */
	assert_int_equal(kvm_guest_get_msr(g, 0, kvm_guest_counter(g)), regs.rbx);
	kvm_guest_destroy(g);
	return 0;
}
