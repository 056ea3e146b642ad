// SPDX-License-Identifier: MIT
/*
 * Bad input: every ioctl of kvm/ioctl.def with bad pointers, wrong sizes, absurd contents, on files
 * of the wrong kind and on closed ones. Each must return what KVM returns, and leave as many
 * descriptors open as there were. The border with libc is linked into this program, so that `make
 * test` can run all of it under AddressSanitizer, which also looks for leaks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "diff/diff.h"
#include "fuzz/isolate.h"
#include "guest/kvm_guest.h"

#define SEED	      0xbad
#define RANDOM_ROUNDS 40

enum kind { KIND_SYSTEM, KIND_VM, KIND_VCPU, NKINDS };
enum travel { TRAVEL_ZERO, TRAVEL_VALUE, TRAVEL_IN, TRAVEL_OUT, TRAVEL_INOUT, TRAVEL_PTR };

struct request {
	const char *name;
	u32 number;
	enum kind kind;
	enum travel travel;
};

static const struct request requests[] = {
#define IOCTL(kind, name, travel, handler) { #name, name, KIND_##kind, TRAVEL_##travel },
#include "kvm/ioctl.def"
#undef IOCTL
};

/* What a request that a file does not know gets (KVM: kvm_arch_dev_ioctl, kvm_arch_vm_ioctl,
 * kvm_arch_vcpu_ioctl). */
static const int unknown_errno[NKINDS] = { EINVAL, ENOTTY, EINVAL };

struct world {
	struct kvm_guest guest;
	int fd[NKINDS];
	u8 *page, *hole; /* two pages; the second cannot be accessed */
	u32 failures;
	const char *request; /* at hand, for messages */
};

static void complain(struct world *w, const char *what, long result)
{
	fprintf(stderr, "%s: %s: returned %ld, errno %d (%s)\n", w->request, what, result, errno,
		strerror(errno));
	w->failures++;
}

static u32 count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	u32 n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* ioctl(); a descriptor that it makes is closed again. */
static long call(int fd, u32 request, const void *arg)
{
	u32 before = count_fds();
	long result = ioctl(fd, request, arg);
	int saved = errno;

	if (result > 2 && count_fds() > before)
		close((int)result);
	errno = saved;
	return result;
}

static void expect_error(struct world *w, const char *what, int fd, u32 request, const void *arg,
			 int expected)
{
	long result = call(fd, request, arg);

	if (result != -1 || errno != expected)
		complain(w, what, result);
}

/* A number that no ioctl has, of the same ordinal: the size is part of the request. */
static u32 with_size(u32 request, u32 size)
{
	return _IOC(_IOC_DIR(request), _IOC_TYPE(request), _IOC_NR(request), size);
}

static bool is_known(enum kind kind, u32 request)
{
	for (u32 i = 0; i < ARRAY_SIZE(requests); i++)
		if (requests[i].number == request && requests[i].kind == kind)
			return true;
	return false;
}

static void wrong_kind(struct world *w, u32 request)
{
	for (u32 kind = 0; kind < NKINDS; kind++)
		if (!is_known(kind, request))
			expect_error(w, "wrong kind of file", w->fd[kind], request, w->page,
				     unknown_errno[kind]);
}

static void wrong_size(struct world *w, u32 request)
{
	const u32 sizes[] = { 0, 1, _IOC_SIZE(request) + 8, 0x3fff };

	for (u32 i = 0; i < ARRAY_SIZE(sizes); i++)
		for (u32 kind = 0; kind < NKINDS; kind++)
			if (!is_known(kind, with_size(request, sizes[i])))
				expect_error(w, "wrong size", w->fd[kind],
					     with_size(request, sizes[i]), w->page,
					     unknown_errno[kind]);
}

static void closed_and_foreign(struct world *w, u32 request)
{
	int closed = dup(w->fd[KIND_VM]), foreign = open("/dev/null", O_RDWR | O_CLOEXEC);

	close(closed);
	expect_error(w, "closed descriptor", closed, request, w->page, EBADF);
	expect_error(w, "no descriptor", -1, request, w->page, EBADF);
	expect_error(w, "absurd descriptor", 1 << 30, request, w->page, EBADF);
	expect_error(w, "somebody else's descriptor", foreign, request, w->page, ENOTTY);
	close(foreign);
}

/*
 * With a pointer that cannot be accessed, nothing succeeds that has something to read or write.
 * What is read before anything else is looked at fails with EFAULT.
 */
static void bad_pointers(struct world *w, const struct request *request)
{
	const u8 *pointers[] = { w->hole,    w->hole - 1, (u8 *)1, (u8 *)0xffff800000000000,
				 (u8 *)-8ul, NULL };
	u32 n = ARRAY_SIZE(pointers);

	if (request->travel == TRAVEL_ZERO || request->travel == TRAVEL_VALUE)
		return;
	if (request->number == KVM_SET_SIGNAL_MASK)
		n--; /* NULL: no mask */
	for (u32 i = 0; i < n; i++) {
		long result = call(w->fd[request->kind], request->number, pointers[i]);
		bool faults = request->travel == TRAVEL_IN || request->travel == TRAVEL_INOUT;

		if (result != -1 || (faults && errno != EFAULT))
			complain(w, "bad pointer", result);
	}
}

/* An argument that ends where memory does: nothing behind it may be touched. */
static void fill_and_call(struct world *w, u32 request, struct rng *r, int fill)
{
	u32 size = _IOC_SIZE(request) ? _IOC_SIZE(request) : 8;
	u8 *arg = w->hole - size;

	for (u32 kind = 0; kind < NKINDS; kind++) {
		if (fill < 0)
			rng_fill(r, arg, size);
		else
			memset(arg, fill, size);
		call(w->fd[kind], request, _IOC_SIZE(request) ? arg : (void *)rng_value(r));
	}
}

static void absurd_contents(struct world *w, u32 request, struct rng *r)
{
	fill_and_call(w, request, r, 0);
	fill_and_call(w, request, r, 0xff);
	for (u32 i = 0; i < RANDOM_ROUNDS; i++)
		fill_and_call(w, request, r, -1);
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* After all that the guest may be anything, but running it must come back. */
static void run_what_is_left(struct world *w)
{
	struct itimerval timer = { { 0, 1000 }, { 0, 1000 } };

	setitimer(ITIMER_VIRTUAL, &timer, NULL);
	for (u32 i = 0; i < 20; i++)
		kvm_guest_run(&w->guest, 0);
	memset(&timer, 0, sizeof(timer));
	setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

/* Spins: KVM_RUN in the rounds above finds a guest that goes on. */
GUEST_CODE(spin, "1: jmp 1b\n");

static void world_create(struct world *w, const char *request)
{
	memset(w, 0, sizeof(*w));
	w->request = request;
	kvm_guest_create(&w->guest, spin_start, (size_t)(spin_end - spin_start), 1);
	w->guest.run[0]->immediate_exit = 1;
	w->fd[KIND_SYSTEM] = w->guest.kvm;
	w->fd[KIND_VM] = w->guest.vm;
	w->fd[KIND_VCPU] = w->guest.vcpu[0];
	w->page = mmap(NULL, 16 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	w->hole = w->page + 8 * PAGE_SIZE;
	mprotect(w->hole, 8 * PAGE_SIZE, PROT_NONE);
}

static void world_destroy(struct world *w)
{
	munmap(w->page, 16 * PAGE_SIZE);
	kvm_guest_destroy(&w->guest);
}

static bool run(u64 seed, u32 number)
{
	const struct request *request = &requests[number];
	struct rng r = rng_for(seed, number);
	struct world w;
	u32 before = count_fds(), after;

	world_create(&w, request->name);
	wrong_kind(&w, request->number);
	wrong_size(&w, request->number);
	closed_and_foreign(&w, request->number);
	bad_pointers(&w, request);
	absurd_contents(&w, request->number, &r);
	w.guest.run[0]->immediate_exit = 0;
	run_what_is_left(&w);
	world_destroy(&w);
	after = count_fds();
	if (after != before) {
		fprintf(stderr, "%s: %u descriptors before, %u after\n", request->name, before,
			after);
		w.failures++;
	}
	return w.failures == 0;
}

static void set_up(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct world w;

	sigaction(SIGVTALRM, &action, NULL);
	/* The first VM brings the control socket, which stays. */
	world_create(&w, "none");
	world_destroy(&w);
}

int main(int argc, char **argv)
{
	struct isolate isolate = { .set_up = set_up, .run = run };
	u32 failures;

	isolate_parse(&isolate, argc, argv, SEED, ARRAY_SIZE(requests));
	failures = isolate_run(&isolate);
	printf("%u of %u ioctls handled bad input wrongly\n", failures,
	       isolate.end - isolate.first);
	return failures ? 1 : 0;
}
