// SPDX-License-Identifier: MIT
/*
 * The command's end of control sockets (cli/base/client.c): any user may take the name of a VM, and
 * let nobody in. That costs the commands that ask VMs next to no time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/base/client.h"
#include "cli/cli.h"
#include "cli/exporter/exporter.h"
#include "unit/canned_vm.h"

#define LIMIT_SECONDS 8 /* less than a blocking connect() would take */
#define NAMES	      20

/* Connects until nobody else can: what is not accepted is in the way also when it is closed. */
static void fill(int pid)
{
	struct sockaddr_un address;
	socklen_t size = canned_name(pid, &address);
	int result;

	do {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		result = connect(fd, (void *)&address, size);
		assert_true(!result || errno == EAGAIN);
		close(fd);
	} while (!result);
}

static void a_name_that_lets_nobody_in_is_left_soon(void **state)
{
	int listener = canned_listen(getpid());
	struct client client;

	(void)state;
	fill(getpid());
	alarm(LIMIT_SECONDS);
	assert_false(client_open(&client, getpid()));
	assert_int_equal(errno, EAGAIN);
	assert_false(client_open_until(&client, getpid(), 0));
	assert_int_equal(errno, EAGAIN);
	alarm(0);
	close(listener);
	assert_false(client_open(&client, getpid()));
	assert_int_equal(errno, ECONNREFUSED);
}

static void note_line(char *line, void *arg)
{
	strcat(arg, line);
}

/* It answers, and until then it is waited for. */
static void one_that_lets_us_in_is_asked(void **state)
{
	int listener = canned_listen(getpid()), fd;
	struct client client;
	char said[64] = "";

	(void)state;
	assert_true(client_open(&client, getpid()));
	assert_false(fcntl(client.fd, F_GETFL) & O_NONBLOCK);
	fd = accept(listener, NULL, NULL);
	assert_int_equal(write(fd, "vm 1\n.\n", 7), 7);
	assert_true(client_ask(&client, note_line, said, "list"));
	assert_string_equal(said, "vm 1");
	client_close(&client);
	close(fd);
	close(listener);
}

static char diverted[256];

/* What is written to it meanwhile is in `diverted`. */
static void divert_stderr(bool begin)
{
	static int saved, fds[2];

	if (begin) {
		saved = dup(2);
		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
		dup2(fds[1], 2);
		return;
	}
	dup2(saved, 2);
	close(saved);
	close(fds[1]);
	diverted[read(fds[0], diverted, sizeof(diverted) - 1)] = '\0';
	close(fds[0]);
}

/* A QEMU that its guest took over says what it likes, and may be called so. */
static void what_a_vm_says_moves_no_cursor(void **state)
{
	int listener = canned_listen(getpid()), fd;
	struct client client;
	char said[64] = "", before[16], name[16];
	bool refused;
	static const char answer[] = "model \033[2Jx\x9b\nerror: \033]0;x\a\n.\n";

	(void)state;
	assert_true(client_open(&client, getpid()));
	fd = accept(listener, NULL, NULL);
	assert_int_equal(write(fd, answer, strlen(answer)), strlen(answer));
	divert_stderr(true);
	refused = !client_ask(&client, note_line, said, "list");
	divert_stderr(false);
	assert_true(refused);
	assert_string_equal(said, "model ?[2Jx?");
	assert_string_equal(diverted, "vpmu: ?]0;x?\n");
	prctl(PR_GET_NAME, before);
	prctl(PR_SET_NAME, "a\033[2J\xc2\x9b");
	client_process_name(getpid(), name, sizeof(name));
	prctl(PR_SET_NAME, before);
	assert_string_equal(name, "a?[2J?\?");
	client_close(&client);
	close(fd);
	close(listener);
}

/* What client_find() says of a word, which it does not find. */
static const char *find(const char *word)
{
	struct client client;
	int status;

	divert_stderr(true);
	status = client_find(&client, &command_stat, word);
	divert_stderr(false);
	assert_int_not_equal(status, STATUS_OK);
	return diverted;
}

static void a_number_that_is_none_names_no_vm(void **state)
{
	static const char *const words[] = {
		"4294968530", "18446744073709551617", "4194304", "0",	 "-1",	  "+1", " 1", "1.",
		"1.0",	      "1.4294967296",	      "1.+1",	 "1. 1", "1.1.1", ""
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(words); i++)
		if (!strstr(find(words[i]), "names no VM"))
			fail_msg("'%s': %s", words[i], diverted);
	assert_non_null(strstr(find("1"), "there is no VM in process 1:"));
	assert_non_null(strstr(find("1.4294967295"), "there is no VM in process 1:"));
}

static void why_a_vm_cannot_be_asked_is_said(void **state)
{
	int listener = canned_listen(getpid());
	char word[16], *no_vm;

	(void)state;
	fill(getpid());
	snprintf(word, sizeof(word), "%d", getpid());
	no_vm = strstr(find(word), "there is no VM");
	close(listener);
	assert_null(no_vm);
	assert_non_null(strstr(diverted, strerror(EAGAIN)));
}

/* Names of processes of ours, which another user can take as well. */
static void the_exporter_has_time_for_others(void **state)
{
	static struct vm_snapshots look, before;
	int listener[NAMES];
	pid_t child[NAMES];

	(void)state;
	for (u32 i = 0; i < NAMES; i++) {
		child[i] = fork();
		assert_true(child[i] >= 0);
		if (!child[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		listener[i] = canned_listen(child[i]);
		fill(child[i]);
	}
	alarm(LIMIT_SECONDS);
	exporter_collect(&look, &before, 60000);
	alarm(0);
	assert_true(look.silent >= NAMES);
	for (u32 i = 0; i < NAMES; i++) {
		close(listener[i]);
		kill(child[i], SIGKILL);
		assert_int_equal(waitpid(child[i], NULL, 0), child[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_lets_us_in_is_asked),
		cmocka_unit_test(what_a_vm_says_moves_no_cursor),
		cmocka_unit_test(a_name_that_lets_nobody_in_is_left_soon),
		cmocka_unit_test(a_number_that_is_none_names_no_vm),
		cmocka_unit_test(why_a_vm_cannot_be_asked_is_said),
		cmocka_unit_test(the_exporter_has_time_for_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
