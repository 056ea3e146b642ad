// SPDX-License-Identifier: MIT
/*
 * The trace of a VM on virtual time (vm/time/trace.h): records lie at exact instructions, whatever
 * ends KVM_RUN in between, and what came in is in them. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/inherited.h"
#include "base/trace.h"
#include "guest/kvm_guest.h"

/* RBX counts pairs of instructions: after instruction 2n it is n. */
GUEST_CODE(counting, "1: inc %rbx; jmp 1b\n");

/* Asks the program for a byte, forgets it, and counts. */
GUEST_CODE(asking, "in $0xf4, %al; xor %eax, %eax\n"
		   "1: inc %rbx; jmp 1b\n");

/* Stops with exits in between: each is one instruction. */
GUEST_CODE(leaving, "1: xor %eax, %eax; cpuid; inc %r8; jmp 1b\n");

static struct kvm_guest g;
static int ours, theirs;

static void begin(const char *plan)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	ours = pair[0];
	theirs = pair[1];
	setenv("VPMU_TRACE", plan, 1); /* the library reads both when a VM is made */
	assert_true(inherited_export("VPMU_TRACE_SOCKET", &theirs, 1));
}

static void end(void)
{
	kvm_guest_destroy(&g);
	unsetenv("VPMU_TRACE");
	unsetenv("VPMU_TRACE_SOCKET");
	close(ours);
	close(theirs);
}

#define START(name) kvm_guest_create(&g, name##_start, name##_end - name##_start, 1)

static void read_all(void *to, size_t size)
{
	assert_int_equal(recv(ours, to, size, MSG_WAITALL), size);
}

static struct trace_record next_record(void)
{
	struct trace_record record;

	read_all(&record, sizeof(record));
	return record;
}

/* Runs the guest until the trace has stopped by itself: the thread that reads it ends KVM_RUN. */
struct reader {
	pthread_t runner;
	u32 count;
	struct trace_record record[1024];
	struct trace_detail detail;
	bool disturbs; /* interrupts the runner with each record */
	bool over;
};

static void *read_records(void *arg)
{
	struct reader *reader = arg;
	struct trace_record record;

	do {
		record = next_record();
		if (record.kind == TRACE_STATE)
			read_all(&reader->detail, sizeof(reader->detail));
		if (reader->count < ARRAY_SIZE(reader->record))
			reader->record[reader->count++] = record;
		if (reader->disturbs)
			pthread_kill(reader->runner, SIGUSR1);
	} while (record.kind != TRACE_STOP);
	__atomic_store_n(&reader->over, true, __ATOMIC_SEQ_CST);
	g.run[0]->immediate_exit = 1;
	pthread_kill(reader->runner, SIGUSR1);
	return NULL;
}

static void interrupted(int sig)
{
	(void)sig;
}

/* `answer` is what the guest reads from a port. */
static struct reader *run_traced(u8 answer, bool disturbed)
{
	static struct reader reader;
	pthread_t thread;

	reader = (struct reader){ .runner = pthread_self(), .disturbs = disturbed };
	assert_int_equal(pthread_create(&thread, NULL, read_records, &reader), 0);
	while (!__atomic_load_n(&reader.over, __ATOMIC_SEQ_CST)) {
		int reason = kvm_guest_run(&g, 0);

		assert_true(reason == -EINTR || reason == KVM_EXIT_IO);
		if (reason == KVM_EXIT_IO)
			*((u8 *)g.run[0] + g.run[0]->io.data_offset) = answer;
	}
	pthread_join(thread, NULL);
	g.run[0]->immediate_exit = 0;
	return &reader;
}

static void records_lie_at_exact_instructions(void **state)
{
	struct reader *reader;

	(void)state;
	begin("1000,0,20000,0");
	START(counting);
	reader = run_traced(0, false);
	assert_int_equal(reader->count, 22); /* 0, 1000 … 20000, and the stop */
	for (u32 i = 0; i < 21; i++)
		assert_int_equal(reader->record[i].instruction, 1000 * i);
	assert_int_equal(reader->record[21].kind, TRACE_STOP);
	assert_int_not_equal(reader->record[1].state, reader->record[2].state);
	end();
}

static void a_state_is_that_after_its_instruction(void **state)
{
	struct reader *reader;

	(void)state;
	begin("1000000,4097,4099,1");
	START(counting);
	reader = run_traced(0, false);
	assert_int_equal(reader->count, 5); /* 0, three states, the stop */
	assert_int_equal(reader->record[3].instruction, 4099);
	assert_int_equal(reader->detail.state.regs[3], 2050);
	assert_int_equal(reader->detail.cpl, 0);
	assert_int_equal(reader->detail.bits, 64);
	assert_int_equal(reader->detail.code[0], 0xeb); /* JMP is next */
	end();
}

static void signals_change_no_record(void **state)
{
	static struct trace_record first[1024];
	struct reader *reader;
	u32 count;

	(void)state;
	begin("1000,0,300000,0");
	START(leaving);
	reader = run_traced(0, false);
	count = reader->count;
	memcpy(first, reader->record, sizeof(first));
	end();
	begin("1000,0,300000,0");
	START(leaving);
	reader = run_traced(0, true);
	assert_int_equal(count, 302);
	assert_int_equal(reader->count, count);
	assert_memory_equal(reader->record, first, count * sizeof(first[0]));
	end();
}

/* The answer is not in a register any more when the next record is written. */
static void an_answer_of_the_program_is_in_later_records(void **state)
{
	struct trace_record record[3];

	(void)state;
	for (u32 i = 0; i < 3; i++) {
		begin("1000,0,1000,0");
		START(asking);
		record[i] = run_traced(i / 2, false)->record[1];
		assert_int_equal(record[i].instruction, 1000);
		end();
	}
	assert_memory_equal(&record[0], &record[1], sizeof(record[0]));
	assert_int_equal(record[0].state, record[2].state);
	assert_int_not_equal(record[0].inputs, record[2].inputs);
}

/* The program has closed what it was given, and got the number for its own. */
static void a_socket_of_the_program_gets_no_record(void **state)
{
	int own[2];
	u8 byte;

	(void)state;
	begin("1000,0,1000,0");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, own), 0);
	assert_int_equal(dup2(own[1], theirs), theirs);
	START(asking);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	assert_int_equal(recv(own[0], &byte, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	end();
	close(own[0]);
	close(own[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_lie_at_exact_instructions),
		cmocka_unit_test(a_state_is_that_after_its_instruction),
		cmocka_unit_test(signals_change_no_record),
		cmocka_unit_test(an_answer_of_the_program_is_in_later_records),
		cmocka_unit_test(a_socket_of_the_program_gets_no_record),
	};
	struct sigaction action = { .sa_handler = interrupted };

	sigaction(SIGUSR1, &action, NULL);
	setenv("VPMU_CLOCK", "virtual", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
