// SPDX-License-Identifier: MIT
/*
 * Accesses across two pages that are apart on the host, while another processor takes the second
 * one away: at moments between the access's check and its end that two processors would seldom
 * meet. The host's memory of the page, or of its table, cannot be accessed then, and the handler of
 * the fault is the other processor. A TLB may keep a translation until it is invalidated (SDM 3A
 * 4.10.4): each row must end as it does undisturbed. And the timing model is shown what it is shown
 * where the pages are neighbours.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <cmocka.h>

#include "base/must.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "cpu/private.h"
#include "engine/engine.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define BORDER	    0x200000
#define TABLE	    0x180000 /* of what begins there */
#define ELSEWHERE   0x300000 /* where its first page is */
#define AT	    (BORDER - 6)
#define SINGLE_STEP 0x100    /* EFLAGS */
#define DR7_WRITE   0xd0001u /* four bytes, for writes */

#define ROW(name, text) GUEST_CODE(name, text "\nhlt\n")

ROW(xadd, "xadd %rbx, (%rdi)");
ROW(cmpxchg_eq, "mov %r13, %rax\ncmpxchg %rbx, (%rdi)");
ROW(cmpxchg_ne, "cmpxchg %rbx, (%rdi)");
ROW(adc, "stc\nadc %rsi, (%rdi)");
ROW(rcl, "stc\nrclq $3, (%rdi)");
ROW(shld, "shld $5, %rsi, (%rdi)");
ROW(neg, "negq (%rdi)");
ROW(btc, "btcq $50, (%rdi)");
ROW(mov, "mov %rsi, (%rdi)");
ROW(push, "lea 8(%rdi), %rsp\npush %rsi");
ROW(call, "lea 8(%rdi), %rsp\ncall 1f\n1: nop");
ROW(movups, "movups %xmm1, (%rdi)");
ROW(fstpl, "fld1\nfldpi\nfstpl (%rdi)");
ROW(fstpt, "fld1\nfldpi\nfstpt (%rdi)");
ROW(fistpll, "fld1\nfldpi\nfistpll (%rdi)");
ROW(masked, "vpternlogd $0xff, %zmm4, %zmm4, %zmm4\n"
	    "mov $0x59a5, %eax\n"
	    "kmovw %eax, %k1\n"
	    "vmovdqu32 %zmm4, -18(%rdi){%k1}");

#define R(name)	       { #name, name##_start, name##_end, false }
#define R_AVX512(name) { #name, name##_start, name##_end, true }
/* clang-format off */
static const struct row {
	const char *name;
	const u8 *start, *end;
	bool avx512;
} rows[] = {
	R(xadd), R(cmpxchg_eq), R(cmpxchg_ne), R(adc), R(rcl), R(shld), R(neg), R(btc), R(mov),
	R(push), R(call), R(movups), R(fstpl), R(fstpt), R(fistpll), R_AVX512(masked),
};
/* clang-format on */

enum moment {
	NEVER,
	AFTER_WALK, /* the first one has read the page's entry */
	AT_ACCESS,  /* its bytes are read or, if only written, written */
};

static struct other {
	struct machine *m;
	enum moment moment;
	u32 times; /* that the page was taken away */
} other;

static void protect(u64 page, bool on)
{
	must(mprotect(other.m->ram + page, PAGE_SIZE, on ? PROT_NONE : PROT_READ | PROT_WRITE) ==
	     0);
}

static void take_away(void)
{
	*(u64 *)(other.m->ram + TABLE) = 0;
	other.times++;
}

/* A fault at any other moment happens again, and ends the test. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)sig, (void)info;
	if (other.times)
		signal(SIGSEGV, SIG_DFL);
	else if (other.moment == AFTER_WALK) {
		protect(TABLE, false);
		regs[REG_EFL] |= SINGLE_STEP; /* until the entry is read */
	} else {
		protect(ELSEWHERE, false);
		take_away();
	}
}

static void on_step(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)sig, (void)info;
	regs[REG_EFL] &= ~SINGLE_STEP;
	take_away();
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER };

	must(sigaction(sig, &action, NULL) == 0);
}

/* With its accessed and dirty bits set: else the walk would look at the entry again. */
static void map_apart(u8 *ram)
{
	const u64 flags = PTE_P | PTE_W | PTE_U | PTE_A | PTE_D;

	*(u64 *)(ram + TABLE) = ELSEWHERE | flags;
	((u64 *)(ram + IMAGE_PD))[1] = TABLE | flags;
	*image_pte(ram, BORDER - PAGE_SIZE) |= flags;
}

static void set_state(struct cpu *cpu)
{
	for (u32 i = 0; i < 16; i++)
		cpu->regs[i] = 0x0102030405060708ull * (i + 1);
	cpu->regs[RDI] = AT;
	cpu->regs[RSP] = IMAGE_STACK;
	/* A breakpoint somewhere on the page: the soft TLB keeps no translation of it. */
	cpu->dr[0] = BORDER + 0x800;
	cpu->dr7 = DR7_WRITE;
	cpu_watch_update(cpu);
}

struct outcome {
	enum exit_reason reason;
	u64 regs[16], rip, rflags;
	u8 x87[512], before[64], after[64];
};

static void run_row(struct machine *m, const struct row *row, enum moment moment,
		    struct outcome *out)
{
	other = (struct other){ .m = m, .moment = moment };
	memset(out, 0, sizeof(*out));
	machine_load(m, row->start, row->end - row->start);
	map_apart(m->ram);
	for (u32 i = 0; i < 64; i++) {
		m->ram[BORDER - 64 + i] = 3 * i;
		m->ram[ELSEWHERE + i] = 5 * i + 7;
	}
	set_state(m->cpu);
	memcpy(&m->cpu->regs[R13], m->ram + AT, 6);
	memcpy((u8 *)&m->cpu->regs[R13] + 6, m->ram + ELSEWHERE, 2);
	handle(SIGSEGV, on_fault);
	handle(SIGTRAP, on_step);
	protect(moment == AFTER_WALK ? TABLE : ELSEWHERE, moment != NEVER);
	out->reason = engine_run(m->cpu, 1000);
	protect(TABLE, false);
	protect(ELSEWHERE, false);
	m->cpu->dr7 = 0;
	cpu_watch_update(m->cpu);
	memcpy(out->regs, m->cpu->regs, sizeof(out->regs));
	out->rip = m->cpu->rip;
	out->rflags = m->cpu->rflags;
	memcpy(out->x87, m->cpu->xsave, sizeof(out->x87));
	memcpy(out->before, m->ram + BORDER - 64, sizeof(out->before));
	memcpy(out->after, m->ram + ELSEWHERE, sizeof(out->after));
}

/* Under an opmask two walks come before the access: after the first one a fault is right. */
static bool expected_of(const struct machine *m, const struct row *row, enum moment moment)
{
	if (row->avx512 && moment == AFTER_WALK)
		return false;
	return !row->avx512 || ((~cpu_priv(m->cpu)->host_fpu.features & XCR0_AVX512) == 0 &&
				cpu_has(m->cpu, FEAT_AVX512F));
}

static void rows_end_undisturbed(struct machine *m, enum moment moment)
{
	static struct outcome expected, got;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		machine_start(m);
		if (!expected_of(m, &rows[i], moment))
			continue;
		run_row(m, &rows[i], NEVER, &expected);
		assert_int_equal(expected.reason, EXIT_HLT);
		assert_int_equal(expected.rip, IMAGE_CODE + (rows[i].end - rows[i].start));
		run_row(m, &rows[i], moment, &got);
		assert_int_equal(other.times, 1);
		if (memcmp(&expected, &got, sizeof(got)))
			fail_msg("%s: exit %d at %#lx, RAX %#lx RBX %#lx flags %#lx", rows[i].name,
				 got.reason, got.rip, got.regs[RAX], got.regs[RBX], got.rflags);
	}
}

static void a_page_that_goes_after_its_walk_is_still_written(void **state)
{
	rows_end_undisturbed(*state, AFTER_WALK);
}

static void a_page_that_goes_after_it_was_read_is_still_written(void **state)
{
	rows_end_undisturbed(*state, AT_ACCESS);
}

/* --- what the timing model sees --- */

struct misses {
	u64 loads, stores, slow_loads, load_walks, store_walks;
	bool store, modify; /* the last access */
};

/* A row whose second page is there on the host. */
static struct misses misses_of(struct machine *m, const struct row *row, u64 page)
{
	const struct retire_tally *tally = &m->cpu->port.tally;
	const struct observed_access *last = &cpu_priv(m->cpu)->timing.seen.access;

	machine_start(m);
	machine_load(m, row->start, row->end - row->start);
	machine_cold(m);
	map_apart(m->ram);
	*(u64 *)(m->ram + TABLE) += page - ELSEWHERE;
	set_state(m->cpu);
	m->cpu->dr7 = 0;
	cpu_watch_update(m->cpu);
	m->cpu->port.wanted = OBSERVED_IN_MEMORY;
	assert_int_equal(engine_run(m->cpu, 1000), EXIT_HLT);
	m->cpu->port.wanted = 0;
	return (struct misses){
		.loads = retire_count(tally, RETIRE_LOAD_L1_MISSES, RETIRE_OS),
		.stores = retire_count(tally, RETIRE_STORE_L1_MISSES, RETIRE_OS),
		.slow_loads = retire_count(tally, RETIRE_SLOW_LOADS, RETIRE_OS),
		.load_walks = retire_count(tally, RETIRE_DTLB_LOAD_MISSES, RETIRE_OS),
		.store_walks = retire_count(tally, RETIRE_DTLB_STORE_MISSES, RETIRE_OS),
		.store = last->store,
		.modify = last->modify,
	};
}

/* docs/model.md: a read-modify-write is a store. */
static void pages_apart_count_as_neighbours(void **state)
{
	struct machine *m = *state;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		struct misses expected, got;

		machine_start(m);
		if (!expected_of(m, &rows[i], NEVER))
			continue;
		expected = misses_of(m, &rows[i], BORDER);
		got = misses_of(m, &rows[i], ELSEWHERE);
		if (got.loads != expected.loads || got.stores != expected.stores ||
		    got.slow_loads != expected.slow_loads ||
		    got.load_walks != expected.load_walks ||
		    got.store_walks != expected.store_walks || got.store != expected.store ||
		    got.modify != expected.modify)
			fail_msg("%s: %lu loads, %lu stores, %lu slow loads", rows[i].name,
				 got.loads, got.stores, got.slow_loads);
		assert_int_equal(expected.loads, 0);
		assert_int_equal(expected.stores, 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_that_goes_after_its_walk_is_still_written),
		cmocka_unit_test(a_page_that_goes_after_it_was_read_is_still_written),
		cmocka_unit_test(pages_apart_count_as_neighbours),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
