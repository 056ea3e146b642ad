// SPDX-License-Identifier: MIT
/*
 * The functions of libc that take a path. An open of /dev/kvm gives a memfd that stands for it, and
 * from the first one on the faults are ours (signals.c); an open of a module parameter gives a
 * memfd with its text. Nothing can stand for a folder, so the modules' can be searched and not
 * opened. stat() and access() describe what the kernel's KVM would have there. All other paths are
 * libc's. Any thread.
 */
#undef _FORTIFY_SOURCE /* it turns some of the functions below into inlines */

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "base/memfile.h"
#include "preload/fdtab.h"
#include "preload/preload.h"
#include "preload/real_libc.h"

/* glibc's fortified open() and its like, for programs built with _FORTIFY_SOURCE; no header shows
 * them. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat(int version, const char *path, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);

static int open_kvm(int flags)
{
	int fd = memfile_create("vpmu-kvm", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	struct kvm_file *file;
	int r;

	if (fd < 0)
		return -errno;
	signals_take_faults();
	r = -ENODEV;
	if (!preload_model())
		goto close_fd;
	r = -ENOMEM;
	file = kvm_open();
	if (!file)
		goto close_fd;
	r = fdtab_set(fd, file);
	if (r)
		goto put_file;
	return fd;
put_file:
	kvm_put(file, 1);
close_fd:
	real()->close(fd);
	return r;
}

static int open_kvm_held(int flags)
{
	struct held held;
	int result;

	preload_hold(&held);
	result = open_kvm(flags);
	preload_release(&held);
	return result;
}

static int open_text(const char *text, int flags)
{
	size_t n = strlen(text);
	int fd;

	if ((flags & O_ACCMODE) != O_RDONLY)
		return -EACCES;
	fd = memfile_create("vpmu-param", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -errno;
	if (pwrite(fd, text, n, 0) != (ssize_t)n) {
		real()->close(fd);
		return -ENOMEM;
	}
	return fd;
}

static int open_path(int dir, const char *path, int flags, mode_t mode)
{
	const char *text;

	switch (path_lookup(path, &text)) {
	case PATH_KVM:
		return preload_result(open_kvm_held(flags));
	case PATH_PARAM:
		return preload_result(open_text(text, flags));
	case PATH_FOLDER:
		return preload_result(-EACCES);
	case PATH_ABSENT:
		return preload_result(-ENOENT);
	default:
		return real()->openat(dir, path, flags, mode);
	}
}

/* The mode argument, which is there only with flags that can create a file. */
#define MODE_OF(flags)                                                  \
	({                                                              \
		mode_t mode_ = 0;                                       \
		if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
			va_list args_;                                  \
			va_start(args_, flags);                         \
			mode_ = va_arg(args_, mode_t);                  \
			va_end(args_);                                  \
		}                                                       \
		mode_;                                                  \
	})

LIBC int open(const char *path, int flags, ...)
{
	return open_path(AT_FDCWD, path, flags, MODE_OF(flags));
}

LIBC int open64(const char *path, int flags, ...)
{
	return open_path(AT_FDCWD, path, flags | O_LARGEFILE, MODE_OF(flags));
}

LIBC int openat(int dir, const char *path, int flags, ...)
{
	return open_path(dir, path, flags, MODE_OF(flags));
}

LIBC int openat64(int dir, const char *path, int flags, ...)
{
	return open_path(dir, path, flags | O_LARGEFILE, MODE_OF(flags));
}

LIBC int __open_2(const char *path, int flags)
{
	return open_path(AT_FDCWD, path, flags, 0);
}

LIBC int __open64_2(const char *path, int flags)
{
	return open_path(AT_FDCWD, path, flags, 0);
}

LIBC int __openat_2(int dir, const char *path, int flags)
{
	return open_path(dir, path, flags, 0);
}

LIBC int __openat64_2(int dir, const char *path, int flags)
{
	return open_path(dir, path, flags, 0);
}

/* What a path that is ours looks like: 0 or -errno, or 1 for a path that is not. */
static int describe(const char *path, struct stat *st)
{
	const char *text;
	enum path_kind kind = path_lookup(path, &text);

	memset(st, 0, sizeof(*st));
	st->st_nlink = 1;
	st->st_blksize = PAGE_SIZE;
	switch (kind) {
	case PATH_KVM:
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = makedev(10, 232); /* Documentation/admin-guide/devices.txt */
		return 0;
	case PATH_PARAM:
		st->st_mode = S_IFREG | 0444;
		st->st_size = PAGE_SIZE;
		return 0;
	case PATH_FOLDER:
		st->st_mode = S_IFDIR | 0111;
		return 0;
	case PATH_ABSENT:
		return -ENOENT;
	default:
		return 1;
	}
}

static int stat_path(int dir, const char *path, struct stat *st, int flags)
{
	struct stat ours;
	int r = describe(path, &ours);

	if (r == 1)
		return real()->fstatat(dir, path, st, flags);
	if (!r)
		*st = ours;
	return preload_result(r);
}

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout on x86-64");

LIBC int stat(const char *path, struct stat *st)
{
	return stat_path(AT_FDCWD, path, st, 0);
}

LIBC int stat64(const char *path, struct stat64 *st)
{
	return stat_path(AT_FDCWD, path, (struct stat *)st, 0);
}

LIBC int lstat(const char *path, struct stat *st)
{
	return stat_path(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

LIBC int lstat64(const char *path, struct stat64 *st)
{
	return stat_path(AT_FDCWD, path, (struct stat *)st, AT_SYMLINK_NOFOLLOW);
}

LIBC int fstatat(int dir, const char *path, struct stat *st, int flags)
{
	return stat_path(dir, path, st, flags);
}

LIBC int fstatat64(int dir, const char *path, struct stat64 *st, int flags)
{
	return stat_path(dir, path, (struct stat *)st, flags);
}

/* The stat family of programs linked against glibc before 2.33. */

LIBC int __xstat(int version, const char *path, struct stat *st)
{
	(void)version;
	return stat_path(AT_FDCWD, path, st, 0);
}

LIBC int __xstat64(int version, const char *path, struct stat64 *st)
{
	(void)version;
	return stat_path(AT_FDCWD, path, (struct stat *)st, 0);
}

LIBC int __lxstat(int version, const char *path, struct stat *st)
{
	(void)version;
	return stat_path(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

LIBC int __lxstat64(int version, const char *path, struct stat64 *st)
{
	(void)version;
	return stat_path(AT_FDCWD, path, (struct stat *)st, AT_SYMLINK_NOFOLLOW);
}

LIBC int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags)
{
	(void)version;
	return stat_path(dir, path, st, flags);
}

LIBC int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags)
{
	(void)version;
	return stat_path(dir, path, (struct stat *)st, flags);
}

LIBC int statx(int dir, const char *restrict path, int flags, unsigned mask,
	       struct statx *restrict out)
{
	struct stat st;
	int r = describe(path, &st);

	if (r == 1)
		return real()->statx(dir, path, flags, mask, out);
	if (!r)
		*out = (struct statx){
			.stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_SIZE,
			.stx_mode = st.st_mode,
			.stx_nlink = st.st_nlink,
			.stx_size = st.st_size,
			.stx_blksize = st.st_blksize,
			.stx_rdev_major = major(st.st_rdev),
			.stx_rdev_minor = minor(st.st_rdev),
		};
	return preload_result(r);
}

static bool mode_allows(mode_t mode, int wanted)
{
	return !((wanted & R_OK && !(mode & 0444)) || (wanted & W_OK && !(mode & 0222)) ||
		 (wanted & X_OK && !(mode & 0111)));
}

static int access_path(int dir, const char *path, int mode, int flags)
{
	struct stat st;
	int r = describe(path, &st);

	if (r == 1)
		return real()->faccessat(dir, path, mode, flags);
	if (!r && !mode_allows(st.st_mode, mode))
		r = -EACCES;
	return preload_result(r);
}

LIBC int access(const char *path, int mode)
{
	return access_path(AT_FDCWD, path, mode, 0);
}

LIBC int eaccess(const char *path, int mode)
{
	return access_path(AT_FDCWD, path, mode, AT_EACCESS);
}

LIBC int euidaccess(const char *path, int mode)
{
	return access_path(AT_FDCWD, path, mode, AT_EACCESS);
}

LIBC int faccessat(int dir, const char *path, int mode, int flags)
{
	return access_path(dir, path, mode, flags);
}
