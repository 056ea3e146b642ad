// SPDX-License-Identifier: MIT
/*
 * Save and restore at random instructions, while the guest counts and samples: the guest goes on in
 * a new VM each time, and at its end has counted, computed and recorded what it does when it is not
 * saved, to the last bit that its program determines. Run by `vpmu kvm`.
 *
 * A moment to save is where a signal ends KVM_RUN, and up to a few single steps later; or the end
 * of an access to a device.
 *
 * usage: api_restore_test [CYCLES [SEED]]
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#include "diff/diff.h"
#include "guest/kvm_state.h"
#include "guest/restore.h"
#include "x86/lbr.h"
#include "x86/pebs.h"
#include "x86/pmu_models.h"
#include "x86/pmu_regs.h"
#include "vm/msr/priv.h"

#define MSR_EILVT	  (MSR_HIDDEN + HIDDEN_EILVT)
#define PERF_CAPABILITIES 0x345

#define ROUNDS	 8000
#define VARIANTS 2
#define REP	 0xf3  /* the prefix */
#define RUNS_MAX 10000 /* until a guest must have been saved as often as it should */

static u32 cycles = 10;
static u64 seed = 1;

/* What a run leaves. */
struct result {
	u8 ram[IMAGE_RAM];
	struct kvm_state state;
	struct restore_reads reads;
};

static struct test {
	struct kvm_guest g;
	struct rng r;
	bool saving;
	u32 steps; /* to take before the next save */
	u32 saves, wanted;
	u32 answers, nmis;
	struct result plain, moved;
} t;

static void with_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

/* --- when to save --- */

static void on_signal(int sig)
{
	(void)sig;
}

static void signal_soon(void)
{
	u32 us = 20 + rng_below(&t.r, 1000);
	struct itimerval timer = { .it_value.tv_usec = us };

	if (t.saving)
		setitimer(ITIMER_REAL, &timer, NULL);
}

static void single_step(bool on)
{
	struct kvm_guest_debug debug = {
		.control = on ? KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP : 0
	};

	KVM_CALL(t.g.vcpu[0], KVM_SET_GUEST_DEBUG, &debug);
}

static void move(void)
{
	kvm_state_move(&t.g, with_irqchip);
	t.saving = ++t.saves < t.wanted;
	signal_soon();
}

/* A step of a repeated string instruction is one repetition, and a sample of the last one would
 * tell of that alone: steps end in front of it. */
static bool at_string(void)
{
	struct kvm_regs regs;

	KVM_CALL(t.g.vcpu[0], KVM_GET_REGS, &regs);
	assert_true(regs.rip < IMAGE_RAM);
	return t.g.ram[regs.rip] == REP;
}

static void interrupted(void)
{
	if (t.steps)
		return; /* another signal, while it steps */
	t.steps = at_string() ? 0 : rng_below(&t.r, 100);
	if (t.steps)
		single_step(true);
	else
		move();
}

static void stepped(void)
{
	assert_true(t.steps > 0);
	if (--t.steps && !at_string())
		return;
	t.steps = 0;
	single_step(false);
	move();
}

/* --- the device --- */

/* What was answered is taken over by the next KVM_RUN; immediate_exit has it end there. */
static void maybe_move_now(void)
{
	if (!t.saving || t.steps || !rng_one_in(&t.r, 40))
		return;
	t.g.run[0]->immediate_exit = 1;
	assert_int_equal(kvm_guest_run(&t.g, 0), -EINTR);
	move();
}

static u8 answer(void)
{
	return ++t.answers * 37;
}

static void answer_port(struct kvm_run *run)
{
	u8 *data = kvm_io_data(run);

	assert_int_equal(run->io.port, RESTORE_DEVICE);
	assert_int_equal(run->io.direction, KVM_EXIT_IO_IN);
	for (u32 i = 0; i < run->io.count; i++)
		data[i] = answer();
	maybe_move_now();
}

static void answer_mmio(struct kvm_run *run)
{
	assert_false(run->mmio.is_write);
	for (u32 i = 0; i < run->mmio.len; i++)
		run->mmio.data[i] = answer();
	maybe_move_now();
}

/* --- a run --- */

static bool is_done(const struct kvm_run *run)
{
	return run->io.port == IMAGE_DONE_PORT && run->io.direction == KVM_EXIT_IO_OUT;
}

static void run_to_the_end(void)
{
	for (;;) {
		int reason = kvm_guest_run(&t.g, 0);
		struct kvm_run *run = t.g.run[0];

		if (reason == KVM_EXIT_IO && is_done(run))
			return;
		if (reason == KVM_EXIT_IO)
			answer_port(run);
		else if (reason == KVM_EXIT_MMIO)
			answer_mmio(run);
		else if (reason == KVM_EXIT_DEBUG)
			stepped();
		else if (reason == -EINTR)
			interrupted();
		else
			fail_msg("exit %d", reason);
	}
}

static void run(u32 variant, bool saving, struct result *out)
{
	kvm_guest_create_with(&t.g, restore_start, restore_end - restore_start, 1, with_irqchip);
	restore_setup(&t.g, variant, ROUNDS, &out->reads);
	t.saving = saving;
	t.steps = t.answers = 0;
	signal_soon();
	run_to_the_end();
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	kvm_state_save(&t.g, &out->state);
	memcpy(out->ram, t.g.ram, IMAGE_RAM);
	kvm_guest_destroy(&t.g);
}

/* --- comparing --- */

static u64 word(const u8 *ram, u64 address)
{
	u64 value;

	memcpy(&value, ram + address, sizeof(value));
	return value;
}

static void same_word(u64 address, u64 exact, const char *what, u64 which)
{
	u64 plain = word(t.plain.ram, address) & exact, moved = word(t.moved.ram, address) & exact;

	if (plain != moved)
		fail_msg("%s %#llx: %#llx, but %#llx after %u saves", what,
			 (unsigned long long)which, (unsigned long long)plain,
			 (unsigned long long)moved, t.saves);
}

static void same_log(void)
{
	const struct restore_reads *reads = &t.plain.reads;
	u64 end = word(t.plain.ram, RESTORE_LOG_AT), at = RESTORE_LOG;

	for (; at < end; at += 8 * (reads->n + 1)) {
		same_word(at, ~0ull, "interrupted RIP of NMI at", at);
		for (u32 i = 0; i < reads->n; i++)
			same_word(at + 8 + 8 * i, reads->row[i].exact, "logged MSR",
				  reads->row[i].msr);
	}
	same_word(RESTORE_LOG_AT, ~0ull, "end of the log", at);
}

/* A record of format 3: its source, latency and time depend on more than the program. */
static u64 same_old_record(u64 at)
{
	const u32 size = 200, source = 160, latency = 168, tsc = 192;

	for (u32 i = 0; i < size; i += 8)
		if (i != source && i != latency && i != tsc)
			same_word(at + i, ~0ull, "PEBS record at", at + i);
	return size;
}

/* All groups: basic with the time, memory with source and latency, registers, vectors, branches. */
static u64 same_adaptive_record(u64 at)
{
	const u32 tsc = 24, source = 40, latency = 48, branches = 32 + 32 + 144 + 256;
	u64 size = word(t.plain.ram, at) >> 48;

	for (u32 i = 0; i < size; i += 8) {
		bool info = i >= branches && (i - branches) % 24 == 16;

		if (i != tsc && i != source && i != latency)
			same_word(at + i, info ? ~LBR_INFO_MISPREDICTED : ~0ull, "PEBS record at",
				  at + i);
	}
	assert_true(size >= 32);
	return size;
}

static u32 same_records(bool adaptive)
{
	u64 end = word(t.plain.ram, RESTORE_DS + DS_PEBS_INDEX), at = RESTORE_RECORDS;
	u32 n = 0;

	for (; at < end; n++)
		at += adaptive ? same_adaptive_record(at) : same_old_record(at);
	same_word(RESTORE_DS + DS_PEBS_INDEX, ~0ull, "end of the records", at);
	return n;
}

static void same_memory(u64 from, u64 to)
{
	for (; from < to; from += 8)
		same_word(from, ~0ull, "memory at", from);
}

static u32 logged(void)
{
	u64 bytes = word(t.plain.ram, RESTORE_LOG_AT) - RESTORE_LOG;

	return bytes / (8 * (t.plain.reads.n + 1));
}

/* The extended local vectors of AMD, which no other call shows. */
static void same_vectors(void)
{
	const struct kvm_msr_entry *plain = t.plain.state.msrs.entry,
				   *moved = t.moved.state.msrs.entry;

	for (u32 i = 0; i < t.plain.state.msrs.nmsrs; i++)
		if (plain[i].index - MSR_EILVT < LAPIC_EILVTS)
			assert_int_equal(plain[i].data, moved[i].data);
}

static bool has_adaptive_records(void)
{
	const struct kvm_state_msrs *msrs = &t.plain.state.msrs;

	for (u32 i = 0; i < msrs->nmsrs; i++)
		if (msrs->entry[i].index == PERF_CAPABILITIES)
			return msrs->entry[i].data & PERF_CAP_BASELINE;
	fail_msg("no IA32_PERF_CAPABILITIES");
	return false;
}

/* What the kernel pushed has been compared where it was logged. */
static void same_result(void)
{
	const struct kvm_regs *plain = &t.plain.state.regs, *moved = &t.moved.state.regs;
	bool intel = !t.g.amd;
	u32 records;

	same_log();
	records = intel ? same_records(has_adaptive_records()) : 0;
	same_memory(IMAGE_DATA, RESTORE_LOG);
	same_vectors();
	assert_memory_equal(plain, moved, sizeof(*plain));
	assert_int_equal(word(t.plain.ram, RESTORE_DROPPED), 0);
	assert_true(logged() > 100);
	assert_true(!intel || records > 100);
}

static void nothing_is_lost_or_doubled(void **state)
{
	u32 runs = 0;

	(void)state;
	signal(SIGALRM, on_signal);
	t.r = rng_for(seed, 0);
	for (u32 variant = 0; variant < VARIANTS; variant++) {
		run(variant, false, &t.plain);
		t.wanted = cycles * (variant + 1) / VARIANTS;
		for (; t.saves < t.wanted && runs < RUNS_MAX; runs++) {
			run(variant, true, &t.moved);
			same_result();
		}
		t.nmis += logged();
	}
	assert_int_equal(t.saves, cycles);
	print_message("%u saves in %u runs, NMIs of both ways: %u\n", t.saves, runs, t.nmis);
}

/* --- single pieces of state --- */

/* Each round asks a device and counts itself, in RBX. */
GUEST_CODE(asking, "asking_port: in $0xf5, %al; inc %rbx\n"
		   "asking_memory: mov 0x400000, %al; inc %rbx; jmp asking_port\n");

/* A counter overflows while LVTPC is masked; the guest unmasks it when it is told to go on. */
GUEST_CODE(holding, "mov $0x105000, %esi\n"
		    "1: mov (%rsi), %ecx; jrcxz 2f; mov 8(%rsi), %eax; mov 12(%rsi), %edx\n"
		    "wrmsr; add $16, %rsi; jmp 1b\n"
		    "2: mov $100, %ecx; 3: loop 3b\n"
		    "out %al, $0xf5\n"
		    "mov $0x834, %ecx; mov $0x400, %eax; xor %edx, %edx; wrmsr\n"
		    "mov $100, %ecx; 4: loop 4b\n"
		    "mov $1, %al; out %al, $0xf4\n"
		    "holding_nmi: mov $2, %al; out %al, $0xf4\n");

extern const u8 asking_port[], asking_memory[], holding_nmi[];

#define ASKING_RUNS 200000

static u64 in_code(const u8 *start, const u8 *label)
{
	return IMAGE_CODE + (label - start);
}

static void signals(u32 us)
{
	struct itimerval timer = { .it_interval.tv_usec = us, .it_value.tv_usec = us };

	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Wherever a signal ends KVM_RUN the program may save: an access that it has answered is done. */
static void check_done(u32 asked)
{
	struct kvm_regs regs;

	KVM_CALL(t.g.vcpu[0], KVM_GET_REGS, &regs);
	if (regs.rip == in_code(asking_start, asking_port) ||
	    regs.rip == in_code(asking_start, asking_memory))
		assert_int_equal(regs.rbx, asked);
}

static void what_was_answered_is_done_before_a_signal_ends_a_run(void **state)
{
	u32 asked = 0, interrupts = 0;

	(void)state;
	signal(SIGALRM, on_signal);
	kvm_guest_create_with(&t.g, asking_start, asking_end - asking_start, 1, with_irqchip);
	signals(50);
	for (u32 i = 0; i < ASKING_RUNS; i++) {
		int reason = kvm_guest_run(&t.g, 0);

		if (reason == -EINTR) {
			check_done(asked);
			interrupts++;
		} else {
			assert_true(reason == KVM_EXIT_IO || reason == KVM_EXIT_MMIO);
			asked++;
		}
	}
	signals(0);
	assert_true(asked > 0 && interrupts > 0);
	kvm_guest_destroy(&t.g);
}

static void hold_a_pmi(void)
{
	static const u64 setup[][2] = {
		{ 0x1b, 0xfee00d00 }, { 0x80f, 0x1ff },
		{ 0x834, 0x10400 },   { 0x4c1, -50ull & MASK(47, 0) },
		{ 0x186, 0x5200c0 },  { 0x38f, 1 },
	};

	kvm_guest_create_with(&t.g, holding_start, holding_end - holding_start, 1, with_irqchip);
	image_gate(t.g.ram, 2, in_code(holding_start, holding_nmi), 0);
	memcpy(t.g.ram + RESTORE_SETUP, setup, sizeof(setup));
	assert_int_equal(kvm_guest_run(&t.g, 0), KVM_EXIT_IO);
	t.g.run[0]->immediate_exit = 1;
	assert_int_equal(kvm_guest_run(&t.g, 0), -EINTR);
	t.g.run[0]->immediate_exit = 0;
}

static u8 said(void)
{
	assert_int_equal(kvm_guest_run(&t.g, 0), KVM_EXIT_IO);
	return *(u8 *)kvm_io_data(t.g.run[0]);
}

/* Without saving it comes when LVTPC is unmasked, as long as the status tells of it:
 * vm/pmu/pmu.c. */
static void a_pmi_that_waits_for_lvtpc_is_saved(void **state)
{
	bool amd;

	(void)state;
	kvm_guest_create(&t.g, "", 0, 1);
	amd = t.g.amd;
	kvm_guest_destroy(&t.g);
	if (amd) {
		print_message("on AMD's models a masked PMI is lost\n");
		skip();
	}
	hold_a_pmi();
	assert_int_equal(said(), 2);
	kvm_guest_destroy(&t.g);
	hold_a_pmi();
	kvm_state_move(&t.g, with_irqchip);
	assert_int_equal(said(), 2);
	kvm_guest_destroy(&t.g);
}

/* What the library says to standard error while a program sets XCR0 to something impossible. */
static void refused_xcr0(char *said, size_t size)
{
	struct kvm_xcrs xcrs = { .nr_xcrs = 1, .xcrs[0].value = BIT(62) | 1 };
	int saved = dup(STDERR_FILENO), ends[2];
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	assert_int_equal(ioctl(t.g.vcpu[0], KVM_SET_XCRS, &xcrs), -1);
	dup2(saved, STDERR_FILENO);
	close(ends[1]);
	n = read(ends[0], said, size - 1);
	said[n > 0 ? n : 0] = 0;
	close(ends[0]);
	close(saved);
}

static void state_that_a_vcpu_cannot_have_is_refused_with_the_reason(void **state)
{
	struct kvm_state_msrs one = { .nmsrs = 1, .entry[0].index = MSR_HIDDEN + HIDDEN_MODEL };
	char said[1000];

	(void)state;
	kvm_guest_create(&t.g, "", 0, 1);
	assert_int_equal(ioctl(t.g.vcpu[0], KVM_GET_MSRS, &one), 1);
	assert_int_equal(ioctl(t.g.vcpu[0], KVM_SET_MSRS, &one), 1);
	refused_xcr0(said, sizeof(said));
	assert_non_null(strstr(said, "XCR0 = 0x4000000000000001 is refused"));
	assert_non_null(strstr(said, "needs the model"));
	one.entry[0].data ^= 0x10000; /* another model */
	assert_int_equal(ioctl(t.g.vcpu[0], KVM_SET_MSRS, &one), 0);
	one.entry[0].data ^= 0x10000 ^ BIT(33); /* another version */
	assert_int_equal(ioctl(t.g.vcpu[0], KVM_SET_MSRS, &one), 0);
	kvm_guest_destroy(&t.g);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_lost_or_doubled),
		cmocka_unit_test(what_was_answered_is_done_before_a_signal_ends_a_run),
		cmocka_unit_test(a_pmi_that_waits_for_lvtpc_is_saved),
		cmocka_unit_test(state_that_a_vcpu_cannot_have_is_refused_with_the_reason),
	};

	if (argc > 1)
		cycles = strtoul(argv[1], NULL, 0);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
