// SPDX-License-Identifier: MIT
/*
 * The functions of libc that take a descriptor: ioctl() goes to the KVM API, close() and the dup()
 * family keep the table, read() serves statistics files. A descriptor that is not ours costs one
 * look-up. What is done to one that is ours is done with the program's signals and cancellation
 * held back (struct held), and an ioctl on a stack of its own. Any thread; ioctl() and close() also
 * in signal handlers, as with the kernel, but for handlers that interrupt malloc(): requests that
 * create something allocate, and the last close() of a file frees it, and maybe its VM.
 */
#undef _FORTIFY_SOURCE /* it turns some of the functions below into inlines */

#include <asm/ioctls.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>

#include "kvm/kvm.h"
#include "preload/fdtab.h"
#include "preload/preload.h"
#include "preload/real_libc.h"

/* glibc's fortified reads, for programs built with _FORTIFY_SOURCE; no header shows them. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t size);
ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t size);
ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t offset, size_t size);

/* Requests that the kernel serves for every kind of file before it asks the file. */
static bool is_generic(u32 request)
{
	return request == FIOCLEX || request == FIONCLEX || request == FIONBIO ||
	       request == FIOASYNC;
}

/* Files the descriptor that a request made; it is the request's result. */
static long adopt(long result, const struct kvm_newfd *made)
{
	bool is_vm = made->fd >= 0 && kvm_vm_number(made->file);
	int r;

	if (made->fd < 0)
		return result;
	r = fdtab_set(made->fd, made->file);
	if (!r) {
		if (is_vm)
			control_start();
		return made->fd;
	}
	real()->close(made->fd);
	kvm_put(made->file, 1);
	return r;
}

struct call {
	struct kvm_file *file;
	u32 request; /* 32 bits: QEMU passes a signed int */
	unsigned long arg;
};

static long serve(void *arg)
{
	const struct call *call = arg;
	struct kvm_newfd made = { .fd = -1 };

	return adopt(kvm_ioctl(call->file, call->request, call->arg, &made), &made);
}

/*
 * A thread is not cancelled in the middle of a request, with our locks held: see pthread_cancel().
 * The order matters: glibc 2.36 forgets PTHREAD_CANCELED as the thread's result when enabling, not
 * when changing the type, finds that the thread is cancelled.
 */
void preload_hold(struct held *held)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &held->cancel_state);
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &held->cancel_type);
	held->outer = signals_hold();
}

static void release_cancelled(void *held)
{
	signals_release(((const struct held *)held)->outer);
}

/* The thread may end in here. Signals that were postponed would end with it, although others could
 * have taken those sent to the process: their handlers run before. */
static void release_cancellation(const struct held *held)
{
	pthread_cleanup_push(release_cancelled, (void *)held);
	pthread_setcancelstate(held->cancel_state, NULL);
	pthread_setcanceltype(held->cancel_type, NULL);
	pthread_cleanup_pop(0);
}

void preload_release(const struct held *held)
{
	int saved_errno = errno;

	if (held->cancel_type == PTHREAD_CANCEL_ASYNCHRONOUS)
		release_cancellation(held);
	else
		pthread_setcancelstate(held->cancel_state, NULL);
	errno = saved_errno;
	signals_release(held->outer); /* last: a handler may leave */
}

/* What a thread had, and gets back, while it serves a request. */
struct border {
	struct held held;
	void *stack; /* stack_take() */
};

static void border_enter(struct border *border)
{
	signals_unblock_faults();
	threads_enter();
	preload_hold(&border->held);
	border->stack = stack_take();
}

static void border_leave(const struct border *border)
{
	stack_give_back(border->stack);
	preload_release(&border->held);
}

LIBC int ioctl(int fd, unsigned long request, ...)
{
	struct call call = { .file = fdtab_pin(fd), .request = request };
	struct border border;
	va_list args;
	long result;

	va_start(args, request);
	call.arg = va_arg(args, unsigned long);
	va_end(args);
	if (!call.file)
		return real()->ioctl(fd, request, call.arg);
	if (is_generic(request)) {
		fdtab_unpin(fd, call.file);
		return real()->ioctl(fd, request, call.arg);
	}
	border_enter(&border);
	result = stack_call(border.stack, serve, &call);
	fdtab_unpin(fd, call.file);
	border_leave(&border);
	return preload_result(result);
}

/* The entry goes first: another thread's open() may get the number as soon as it is free. */
LIBC int close(int fd)
{
	struct kvm_file *file = fdtab_pin(fd);
	struct held held;
	int result;

	if (!file)
		return real()->close(fd);
	preload_hold(&held);
	if (!preload_is_vforked())
		fdtab_set(fd, NULL);
	result = real()->close(fd);
	fdtab_unpin(fd, file);
	preload_release(&held);
	return result;
}

static void drop_range(unsigned first, unsigned last)
{
	struct held held;

	if (preload_is_vforked())
		return;
	preload_hold(&held);
	fdtab_drop_range(first, last);
	preload_release(&held);
}

/*
 * With any flag the descriptors stay open, or those of other threads do (CLOSE_RANGE_UNSHARE), or
 * it is an error. So is a kernel, or a filter, that has no such call: it is asked about a
 * descriptor that cannot be before the entries go.
 */
LIBC int close_range(unsigned first, unsigned last, int flags)
{
	if (!flags && first <= last) {
		if (real()->close_range(UINT_MAX, UINT_MAX, 0))
			return -1;
		drop_range(first, last);
	}
	return real()->close_range(first, last, flags);
}

LIBC void closefrom(int first)
{
	drop_range(first < 0 ? 0 : first, UINT_MAX);
	real()->closefrom(first);
}

/* After newfd became a copy of fd, which stood for `file` (pinned; NULL: not ours). */
static int copied(int fd, struct kvm_file *file, int newfd)
{
	struct held held;
	int r = 0;

	preload_hold(&held);
	if (newfd >= 0 && newfd != fd && !preload_is_vforked()) {
		if (file)
			kvm_get(file, 1);
		r = fdtab_set(newfd, file);
		if (r) {
			kvm_put(file, 1);
			real()->close(newfd);
		}
	}
	if (file)
		fdtab_unpin(fd, file);
	preload_release(&held);
	return r ? preload_result(r) : newfd;
}

LIBC int dup(int fd)
{
	struct kvm_file *file = fdtab_pin(fd);

	return copied(fd, file, real()->dup(fd));
}

LIBC int dup3(int fd, int newfd, int flags)
{
	struct kvm_file *file = fdtab_pin(fd);

	return copied(fd, file, real()->dup3(fd, newfd, flags));
}

LIBC int dup2(int fd, int newfd)
{
	if (fd == newfd) /* a no-op on a valid fd; dup3() refuses it */
		return real()->fcntl(fd, F_GETFD) < 0 ? -1 : newfd;
	return dup3(fd, newfd, 0);
}

static int control(int fd, int cmd, unsigned long arg)
{
	struct kvm_file *file;

	if (cmd != F_DUPFD && cmd != F_DUPFD_CLOEXEC)
		return real()->fcntl(fd, cmd, arg);
	file = fdtab_pin(fd);
	return copied(fd, file, real()->fcntl(fd, cmd, arg));
}

LIBC int fcntl(int fd, int cmd, ...)
{
	unsigned long arg;
	va_list args;

	va_start(args, cmd);
	arg = va_arg(args, unsigned long);
	va_end(args);
	return control(fd, cmd, arg);
}

LIBC int fcntl64(int fd, int cmd, ...) __attribute__((alias("fcntl")));

/* A file of ours, pinned, is read at an offset; offset < 0: where the descriptor stands, which then
 * moves. */
static ssize_t read_file(int fd, struct kvm_file *file, void *buf, size_t n, off_t offset)
{
	off_t at = offset < 0 ? lseek(fd, 0, SEEK_CUR) : offset;
	long result = -EINVAL;
	struct held held;

	signals_unblock_faults(); /* buf is the program's */
	preload_hold(&held);
	if (kvm_readable(file) && at >= 0)
		result = kvm_read(file, buf, n, at);
	if (offset < 0 && result > 0)
		lseek(fd, result, SEEK_CUR);
	fdtab_unpin(fd, file);
	preload_release(&held);
	return preload_result(result);
}

LIBC ssize_t read(int fd, void *buf, size_t n)
{
	struct kvm_file *file = fdtab_pin(fd);

	return file ? read_file(fd, file, buf, n, -1) : real()->read(fd, buf, n);
}

LIBC ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
	struct kvm_file *file = offset < 0 ? NULL : fdtab_pin(fd);

	return file ? read_file(fd, file, buf, n, offset) : real()->pread(fd, buf, n, offset);
}

LIBC ssize_t pread64(int fd, void *buf, size_t n, off64_t offset)
{
	return pread(fd, buf, n, offset);
}

/* The check is the compiler's, of what it knows of buf's size: too small ends the process, as in
 * glibc. */
#define CHECK(n, size) ((n) > (size) ? __builtin_trap() : (void)0)

LIBC ssize_t __read_chk(int fd, void *buf, size_t n, size_t size)
{
	CHECK(n, size);
	return read(fd, buf, n);
}

LIBC ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t size)
{
	CHECK(n, size);
	return pread(fd, buf, n, offset);
}

LIBC ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t offset, size_t size)
{
	CHECK(n, size);
	return pread(fd, buf, n, offset);
}
