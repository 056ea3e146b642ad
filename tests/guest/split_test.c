// SPDX-License-Identifier: MIT
/*
 * Split locks on a host that kills programs for them (Linux: split_lock_detect=fatal). Such a host
 * raises SIGBUS with BUS_ADRALN: before the instruction, by #AC, or after it, by the #DB of bus
 * lock detection (SDM 3A 8.1.2.3). Here the operand's memory cannot be accessed, and the handler
 * makes of the page fault what that host would have sent. Each row must end as it does with an
 * operand within one line.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <cmocka.h>

#include "base/guarded.h"
#include "base/must.h"
#include "engine/engine.h"
#include "guest/machine.h"

#define WITHIN (IMAGE_DATA + 0x10) /* a line */
#define LINES  (IMAGE_DATA + 0x7e) /* across two, and two pages */
#define PAGES  (IMAGE_DATA + 0x0ffe)
#define SPAN   (2 * PAGE_SIZE)

/* With flags that matter before and after, and neighbours that may share its check. */
#define BEFORE		"mov 24(%rdi), %r11\nadd %r11, %r11\nstc\n"
#define AFTER		"\nmov 16(%rdi), %r10\npushf\npop %r9\nhlt\n"
#define ROW(name, text) GUEST_CODE(name, BEFORE text AFTER)

ROW(inc, "lock incq (%rdi)");
ROW(dec, "lock decl (%rdi)");
ROW(add, "lock addq %rsi, (%rdi)");
ROW(add_disp, "lock addq $5, (%rdi)");
ROW(adc, "lock adcq %r14, (%rdi)");
ROW(sbb, "lock sbbq $3, (%rdi)");
ROW(neg, "lock negq (%rdi)");
ROW(not, "lock notq (%rdi)");
ROW(xor, "lock xorq %rax, (%rdi)");
ROW(xadd, "lock xaddq %rbx, (%rdi)");
ROW(xadd_high, "lock xaddq %r12, (%rdi)");
ROW(bts, "lock btsq $9, (%rdi)");
ROW(btr, "mov $9, %edx\nlock btrq %rdx, (%rdi)");
ROW(btc, "lock btcl $1, (%rdi)");
ROW(xchg, "xchg %rax, (%rdi)");
ROW(xchg_high, "xchg %r15, (%rdi)");
ROW(cmpxchg_ne, "lock cmpxchgq %rbx, (%rdi)");
ROW(cmpxchg_eq, "mov (%rdi), %rax\nlock cmpxchgq %r13, (%rdi)");
ROW(cmpxchg8b_ne, "lock cmpxchg8b (%rdi)");
ROW(cmpxchg8b_eq, "mov (%rdi), %eax\nmov 4(%rdi), %edx\nlock cmpxchg8b (%rdi)");

#define R(name) { #name, name##_start, name##_end }
/* clang-format off */
static const struct row {
	const char *name;
	const u8 *start, *end;
} rows[] = {
	R(inc), R(dec), R(add), R(add_disp), R(adc), R(sbb), R(neg), R(not), R(xor), R(xadd),
	R(xadd_high), R(bts), R(btr), R(btc), R(xchg), R(xchg_high), R(cmpxchg_ne), R(cmpxchg_eq),
	R(cmpxchg8b_ne), R(cmpxchg8b_eq),
};
/* clang-format on */

/* What the host does. */
static struct host {
	struct machine *m;
	bool before;	 /* the instruction, or after it */
	u32 split_locks; /* that were noticed */
	bool refused;	 /* the engine did not want the signal */
	bool protected;	 /* the operand's pages */
} host;

static void protect(bool on)
{
	host.protected = on;
	must(mprotect(host.m->ram + IMAGE_DATA, SPAN, on ? PROT_NONE : PROT_READ | PROT_WRITE) ==
	     0);
}

static void send(siginfo_t *info, void *context, u32 trap)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	host.split_locks++;
	info->si_signo = SIGBUS;
	info->si_code = BUS_ADRALN;
	info->si_addr = NULL;
	regs[REG_TRAPNO] = trap;
	regs[REG_ERR] = 0;
	host.refused |= !engine_signal(SIGBUS, info, context);
}

static bool is_locked(const u8 *pc)
{
	if (*pc == 0xf0)
		return true;
	return pc[0] >= 0x40 && pc[0] <= 0x4f && pc[1] == 0x87; /* XCHG */
}

/* Of an access to the protected pages. Others than split locks, the engine's own among
 * them, pass. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	u64 pc = regs[REG_RIP], copy = pc;

	(void)sig;
	if (!host.protected) { /* the test itself is wrong: it happens again, and ends it */
		signal(SIGSEGV, SIG_DFL);
		return;
	}
	if (guarded_fixup(&copy) || host.refused || host.split_locks > 2) {
		protect(false);
	} else if (!is_locked((const u8 *)pc)) {
		protect(false);
		regs[REG_EFL] |= 0x100; /* TF: to be protected again after it */
	} else if (host.before) {
		send(info, context, 17);
	} else {
		protect(false);
		regs[REG_EFL] |= 0x100;
		host.split_locks |= BIT(31); /* under way */
	}
}

static void on_step(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)sig;
	regs[REG_EFL] &= ~0x100;
	if (host.split_locks & BIT(31)) {
		host.split_locks &= ~(u32)BIT(31);
		send(info, context, 14); /* Linux leaves there what the last fault was */
	} else {
		protect(true);
	}
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER };

	must(sigaction(sig, &action, NULL) == 0);
}

struct outcome {
	enum exit_reason reason;
	u64 regs[16], rip;
	u8 bytes[16];
};

static void set_registers(struct cpu *cpu, u64 at)
{
	for (u32 i = 0; i < 16; i++)
		cpu->regs[i] = 0x0102030405060708ull * (i + 1);
	cpu->regs[RDI] = at;
	cpu->regs[RSP] = IMAGE_STACK;
}

static void run_row(struct machine *m, const struct row *row, u64 at, struct outcome *out)
{
	bool split = at != WITHIN;

	memset(out, 0, sizeof(*out));
	machine_load(m, row->start, row->end - row->start);
	for (u32 i = 0; i < 64; i++)
		m->ram[at - 16 + i] = 3 * i;
	set_registers(m->cpu, at);
	handle(SIGSEGV, on_fault);
	handle(SIGTRAP, on_step);
	protect(split);
	out->reason = engine_run(m->cpu, 1000);
	protect(false);
	m->cpu->regs[RDI] -= at;
	memcpy(out->regs, m->cpu->regs, sizeof(out->regs));
	out->rip = m->cpu->rip;
	memcpy(out->bytes, m->ram + at, sizeof(out->bytes));
}

static void rows_end_the_same(struct machine *m, u64 at, bool before)
{
	struct outcome expected, got;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		host = (struct host){ .m = m, .before = before };
		run_row(m, &rows[i], WITHIN, &expected);
		run_row(m, &rows[i], at, &got);
		if (host.refused || host.split_locks != 1)
			fail_msg("%s: %u split locks%s", rows[i].name, host.split_locks,
				 host.refused ? ", refused" : "");
		assert_int_equal(expected.reason, EXIT_HLT);
		assert_int_equal(expected.rip, IMAGE_CODE + (rows[i].end - rows[i].start));
		if (memcmp(&expected, &got, sizeof(got)))
			fail_msg("%s: exit %d at %#lx", rows[i].name, got.reason, got.rip);
	}
}

static void a_split_lock_that_the_host_forbids_is_executed(void **state)
{
	rows_end_the_same(*state, LINES, true);
}

static void one_across_pages_too(void **state)
{
	rows_end_the_same(*state, PAGES, true);
}

static void one_that_the_host_reports_afterwards_is_executed_once(void **state)
{
	rows_end_the_same(*state, LINES, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_split_lock_that_the_host_forbids_is_executed),
		cmocka_unit_test(one_across_pages_too),
		cmocka_unit_test(one_that_the_host_reports_afterwards_is_executed_once),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
