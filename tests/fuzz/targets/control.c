// SPDX-License-Identifier: MIT
/*
 * A hostile client of the control socket. The process has two VMs: the vCPUs of one are idle, that
 * of the other sleeps in KVM_RUN, so that questions are answered by the asking thread and by the
 * vCPU's. Every line must be answered, however it ends, and the next client served.
 *
 * Input: the bytes that the client sends.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/must.h"
#include "fuzz/fuzz.h"
#include "guest/kvm_guest.h"

#define MAX_LINE 8191 /* control.c's REQUEST, without the newline */
#define MAX_SENT 32768
#define SECONDS	 15 /* for an answer */

/* As every input finds them. */
static const char settings[] =
	"0 set pmu=mediated accounting=guest host-view=off watchdog=off\n0 filter off\n";
#define SETTINGS_LINES 2

static struct kvm_guest idle, asleep;

GUEST_CODE(sleep, "1: hlt\n jmp 1b\n");

static void create_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static void *run_asleep(void *unused)
{
	sigset_t timer;

	(void)unused;
	sigemptyset(&timer);
	sigaddset(&timer, SIGALRM);
	must(!pthread_sigmask(SIG_BLOCK, &timer, NULL));
	kvm_guest_run(&asleep, 0);
	fuzz_fail("KVM_RUN has returned");
}

void fuzz_set_up(void)
{
	size_t size = (size_t)(sleep_end - sleep_start);
	pthread_t thread;

	unsetenv("VPMU_CONTROL");
	kvm_guest_create(&idle, sleep_start, size, 2);
	kvm_guest_create_with(&asleep, sleep_start, size, 1, create_irqchip);
	close(idle.kvm); /* the VMs live as long as the process */
	close(asleep.kvm);
	must(!pthread_create(&thread, NULL, run_asleep, NULL));
}

static int connect_client(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int n = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "vpmu/%u/%d",
			 (unsigned)geteuid(), (int)getpid());
	struct timeval patience = { .tv_sec = SECONDS };

	must(fd >= 0);
	must(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	if (connect(fd, (void *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + n))
		fuzz_fail("the control socket takes no client");
	return fd;
}

/* Counts the lines with a dot until the server hangs up. */
static u32 count_answers(int fd)
{
	static char text[64 << 10];
	u32 answers = 0;
	char last = '\n', before = 0; /* the two bytes ahead */
	ssize_t n;

	do {
		n = recv(fd, text, sizeof(text), 0);
		for (ssize_t i = 0; i < n; i++) {
			answers += before == '\n' && last == '.' && text[i] == '\n';
			before = last;
			last = text[i];
		}
	} while (n > 0 || (n < 0 && errno == EINTR)); /* libFuzzer has a timer */
	if (n < 0 && errno != ECONNRESET) /* which says that it had not read everything */
		fuzz_fail("an answer is missing: %s", strerror(errno));
	return answers;
}

/* Lines that are whole; a longer one than the server takes ends the session. */
static u32 count_lines(const u8 *data, size_t size)
{
	u32 lines = 0;
	const u8 *end;

	for (; (end = memchr(data, '\n', size)) && end - data <= MAX_LINE; lines++) {
		size -= (size_t)(end + 1 - data);
		data = end + 1;
	}
	return lines;
}

void fuzz_one(struct fuzz_input *in)
{
	size_t size = fuzz_left(in) < MAX_SENT ? fuzz_left(in) : MAX_SENT;
	u32 lines = SETTINGS_LINES + count_lines(in->at, size), answers;
	int fd = connect_client();

	must(send(fd, settings, sizeof(settings) - 1, MSG_NOSIGNAL) == sizeof(settings) - 1);
	/* The server may hang up on a line that is too long before it has all. */
	if (send(fd, in->at, size, MSG_NOSIGNAL) == (ssize_t)size)
		shutdown(fd, SHUT_WR);
	answers = count_answers(fd);
	close(fd);
	if (answers != lines)
		fuzz_fail("%u lines, %u answers", lines, answers);
}
