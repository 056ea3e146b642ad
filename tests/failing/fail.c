// SPDX-License-Identifier: MIT
/*
 * The calls that fail: see fail.h. __wrap_NAME is what our objects call, __real_NAME what they
 * would have called without.
 */
#include "failing/fail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/must.h"

#define MAX_BLOCKS 65536

extern const char __executable_start[];

const char *const fail_names[NFAIL_CALLS] = {
#define CALL(name, error) #name,
#include "failing/calls.def"
#undef CALL
};

static const int errors[NFAIL_CALLS] = {
#define CALL(name, error) error,
#include "failing/calls.def"
#undef CALL
};

static bool armed;
static u32 wanted;
static struct fail_report own_report, *report = &own_report;
static enum fail_kernel kernel;

void fail_arm(u32 n)
{
	wanted = n;
	*report = (struct fail_report){ .failure = { .call = NFAIL_CALLS } };
	__atomic_store_n(&armed, true, __ATOMIC_SEQ_CST);
}

struct fail_report fail_disarm(void)
{
	__atomic_store_n(&armed, false, __ATOMIC_SEQ_CST);
	return *report;
}

void fail_report_to(struct fail_report *place)
{
	report = place;
}

void fail_kernel(enum fail_kernel which)
{
	kernel = which;
}

/* Does this call fail? `optional`: the caller is allowed to go on without its result. */
static bool fails(enum fail_call call, const void *caller, bool optional)
{
	if (!__atomic_load_n(&armed, __ATOMIC_SEQ_CST) ||
	    __atomic_add_fetch(&report->calls, 1, __ATOMIC_SEQ_CST) != wanted)
		return false;
	report->failure =
		(struct failure){ .call = call,
				  .error = errors[call],
				  .is_optional = optional,
				  .caller = (const char *)caller - __executable_start - 1 };
	errno = errors[call];
	return true;
}

#define FAILS(call)	     fails(FAIL_##call, __builtin_return_address(0), false)
#define FAILS_OPTIONAL(call) fails(FAIL_##call, __builtin_return_address(0), true)

void fail_describe(const struct failure *failure, char *text, u32 room)
{
	char command[128], place[512] = "?";
	FILE *in;

	snprintf(command, sizeof(command), "addr2line -fpse /proc/%d/exe %#llx", (int)getpid(),
		 (unsigned long long)failure->caller);
	in = popen(command, "re");
	if (in && fgets(place, sizeof(place), in))
		place[strcspn(place, "\n")] = '\0';
	if (in)
		pclose(in);
	snprintf(text, room, "%s in %s", fail_names[failure->call], place);
}

/* --- what is held --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *blocks[MAX_BLOCKS]; /* no order; the first `nblocks` are in use */
static u32 nblocks;
static u64 mapped;

static void *hold(void *block)
{
	if (!block)
		return NULL;
	pthread_mutex_lock(&lock);
	must(nblocks < MAX_BLOCKS);
	blocks[nblocks++] = block;
	pthread_mutex_unlock(&lock);
	return block;
}

/* What libc allocated for us, as a stream's buffer, is not known here and is no mistake. */
static void let_go(const void *block)
{
	pthread_mutex_lock(&lock);
	for (u32 i = nblocks; block && i-- > 0;)
		if (blocks[i] == block) {
			blocks[i] = blocks[--nblocks];
			break;
		}
	pthread_mutex_unlock(&lock);
}

static u32 count_entries(const char *folder)
{
	DIR *dir = opendir(folder);
	u32 n = 0;

	must(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

void fail_holdings(struct holdings *out)
{
	pthread_mutex_lock(&lock);
	*out = (struct holdings){ .blocks = nblocks, .mapped = mapped };
	pthread_mutex_unlock(&lock);
	out->descriptors = count_entries("/proc/self/fd");
	out->threads = count_entries("/proc/self/task");
}

/* --- memory --- */

#define WRAP(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

WRAP(void *, malloc, size_t size)
{
	return FAILS(malloc) ? NULL : hold(__real_malloc(size));
}

WRAP(void *, calloc, size_t count, size_t size)
{
	return FAILS(calloc) ? NULL : hold(__real_calloc(count, size));
}

WRAP(void *, aligned_alloc, size_t alignment, size_t size)
{
	return FAILS(aligned_alloc) ? NULL : hold(__real_aligned_alloc(alignment, size));
}

WRAP(void *, realloc, void *old, size_t size)
{
	if (FAILS(realloc))
		return NULL;
	let_go(old);
	return hold(__real_realloc(old, size));
}

WRAP(void, free, void *block)
{
	let_go(block);
	__real_free(block);
}

WRAP(char *, strdup, const char *text)
{
	return FAILS(strdup) ? NULL : hold(__real_strdup(text));
}

WRAP(int, vasprintf, char **out, const char *format, va_list args)
{
	int n = FAILS(vasprintf) ? -1 : __real_vasprintf(out, format, args);

	if (n >= 0)
		hold(*out);
	return n;
}

WRAP(int, asprintf, char **out, const char *format, ...)
{
	va_list args;
	int n;

	if (FAILS(asprintf))
		return -1;
	va_start(args, format);
	n = __real_vasprintf(out, format, args);
	va_end(args);
	if (n >= 0)
		hold(*out);
	return n;
}

WRAP(int, setenv, const char *name, const char *value, int overwrite)
{
	return FAILS(setenv) ? -1 : __real_setenv(name, value, overwrite);
}

WRAP(char *, realpath, const char *path, char *resolved)
{
	return FAILS(realpath) ? NULL : __real_realpath(path, resolved);
}

WRAP(int, scandir, const char *folder, struct dirent ***list, int (*filter)(const struct dirent *),
     int (*compare)(const struct dirent **, const struct dirent **))
{
	return FAILS(scandir) ? -1 : __real_scandir(folder, list, filter, compare);
}

/* --- mappings --- */

static bool is_memfd(int fd)
{
	char path[32], target[16] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, target, sizeof(target)) > 0 && !memcmp(target, "/memfd:", 7);
}

static bool refuses_code(int fd)
{
	return kernel == KERNEL_NO_CODE || (kernel == KERNEL_NO_MEMFD && is_memfd(fd));
}

/* A thread that gets no stack for requests serves them on the program's. */
WRAP(void *, mmap, void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	void *map;

	if (fails(FAIL_mmap, __builtin_return_address(0), flags & MAP_STACK))
		return MAP_FAILED;
	if (prot & PROT_EXEC && refuses_code(fd)) {
		errno = EACCES;
		return MAP_FAILED;
	}
	map = __real_mmap(at, size, prot, flags, fd, offset);
	/* One at a fixed place is in address space that is counted already. */
	if (map != MAP_FAILED && !(flags & MAP_FIXED))
		__atomic_add_fetch(&mapped, size, __ATOMIC_SEQ_CST);
	return map;
}

WRAP(int, munmap, void *at, size_t size)
{
	__atomic_sub_fetch(&mapped, size, __ATOMIC_SEQ_CST);
	return __real_munmap(at, size);
}

void *__real_mremap(void *at, size_t old, size_t size, int flags, ...);
void *__wrap_mremap(void *at, size_t old, size_t size, int flags, ...);

void *__wrap_mremap(void *at, size_t old, size_t size, int flags, ...)
{
	void *map = FAILS(mremap) ? MAP_FAILED : __real_mremap(at, old, size, flags);

	if (map != MAP_FAILED)
		__atomic_add_fetch(&mapped, size - old, __ATOMIC_SEQ_CST);
	return map;
}

WRAP(int, mprotect, void *at, size_t size, int prot)
{
	return fails(FAIL_mprotect, __builtin_return_address(0), prot == PROT_NONE)
		       ? -1
		       : __real_mprotect(at, size, prot);
}

WRAP(int, madvise, void *at, size_t size, int advice)
{
	return FAILS_OPTIONAL(madvise) ? -1 : __real_madvise(at, size, advice);
}

/* --- descriptors --- */

WRAP(int, memfd_create, const char *name, unsigned flags)
{
	bool sealed = flags & MFD_NOEXEC_SEAL;

	if (FAILS(memfd_create))
		return -1;
	if (kernel == KERNEL_OLD && sealed)
		errno = EINVAL;
	else if (kernel == KERNEL_ENFORCES && !sealed)
		errno = EACCES;
	else
		return __real_memfd_create(name, flags);
	return -1;
}

WRAP(int, ftruncate, int fd, off_t size)
{
	return FAILS(ftruncate) ? -1 : __real_ftruncate(fd, size);
}

/* The program's own open of /dev/kvm is none of ours. Of files in /proc and /sys
 * nothing depends. */
WRAP(int, open, const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (strcmp(path, "/dev/kvm") &&
	    fails(FAIL_open, __builtin_return_address(0), !strncmp(path, "/proc/", 6)))
		return -1;
	return __real_open(path, flags, mode);
}

WRAP(FILE *, fopen, const char *path, const char *mode)
{
	return fails(FAIL_fopen, __builtin_return_address(0), path[0] == '/')
		       ? NULL
		       : __real_fopen(path, mode);
}

WRAP(FILE *, fdopen, int fd, const char *mode)
{
	return FAILS(fdopen) ? NULL : __real_fdopen(fd, mode);
}

WRAP(FILE *, open_memstream, char **bytes, size_t *size)
{
	return FAILS(open_memstream) ? NULL : __real_open_memstream(bytes, size);
}

WRAP(int, dup, int fd)
{
	return FAILS(dup) ? -1 : __real_dup(fd);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);

int __wrap_fcntl(int fd, int command, ...)
{
	va_list args;
	long arg;

	va_start(args, command);
	arg = va_arg(args, long);
	va_end(args);
	if (command == F_DUPFD_CLOEXEC && FAILS(fcntl))
		return -1;
	return __real_fcntl(fd, command, arg);
}

WRAP(int, eventfd, unsigned value, int flags)
{
	return FAILS(eventfd) ? -1 : __real_eventfd(value, flags);
}

WRAP(int, signalfd, int fd, const sigset_t *set, int flags)
{
	return FAILS(signalfd) ? -1 : __real_signalfd(fd, set, flags);
}

WRAP(int, timerfd_create, int clock, int flags)
{
	return FAILS(timerfd_create) ? -1 : __real_timerfd_create(clock, flags);
}

WRAP(int, epoll_create1, int flags)
{
	return FAILS(epoll_create1) ? -1 : __real_epoll_create1(flags);
}

WRAP(int, epoll_ctl, int epoll, int how, int fd, struct epoll_event *event)
{
	if (how == EPOLL_CTL_ADD && FAILS(epoll_ctl))
		return -1;
	return __real_epoll_ctl(epoll, how, fd, event);
}

WRAP(int, socket, int domain, int type, int protocol)
{
	return FAILS(socket) ? -1 : __real_socket(domain, type, protocol);
}

WRAP(int, socketpair, int domain, int type, int protocol, int pair[2])
{
	return FAILS(socketpair) ? -1 : __real_socketpair(domain, type, protocol, pair);
}

WRAP(int, accept4, int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	return FAILS(accept4) ? -1 : __real_accept4(fd, address, size, flags);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	va_list args;
	long arg[6];

	va_start(args, number);
	for (u32 i = 0; i < ARRAY_SIZE(arg); i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	if ((number == SYS_openat2 && FAILS(syscall)) ||
	    (number == SYS_pidfd_open && FAILS_OPTIONAL(syscall)))
		return -1;
	return __real_syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

/* --- processes and threads --- */

WRAP(pid_t, fork, void)
{
	return FAILS(fork) ? -1 : __real_fork();
}

/* Threads that the library can do without have small stacks, and so attributes. */
WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
     void *arg)
{
	return fails(FAIL_pthread_create, __builtin_return_address(0), attr)
		       ? EAGAIN
		       : __real_pthread_create(thread, attr, start, arg);
}
