// SPDX-License-Identifier: MIT
/*
 * The functions of libc that open and close streams: libc opens and closes their descriptors by
 * itself, past open() and close(). Any thread.
 */
#undef _FORTIFY_SOURCE /* it turns some of the functions below into inlines */

#include <errno.h>
#include <string.h>

#include "kvm/kvm.h"
#include "preload/fdtab.h"
#include "preload/preload.h"
#include "preload/real_libc.h"

static bool is_ours(const char *path)
{
	const char *text;

	return path_lookup(path, &text) != PATH_OTHER;
}

/* The descriptor of a path that is ours, as fopen() would open it; only reading makes sense. */
static int open_ours(const char *path, const char *mode)
{
	int flags = mode[0] == 'r' && !strchr(mode, '+') ? O_RDONLY : O_RDWR;

	return open(path, flags | (strchr(mode, 'e') ? O_CLOEXEC : 0));
}

static FILE *open_stream(const char *path, const char *mode)
{
	FILE *f;
	int fd;

	if (!is_ours(path))
		return real()->fopen(path, mode);
	fd = open_ours(path, mode);
	if (fd < 0)
		return NULL;
	f = fdopen(fd, mode);
	if (!f)
		close(fd);
	return f;
}

LIBC FILE *fopen(const char *path, const char *mode)
{
	return open_stream(path, mode);
}

LIBC FILE *fopen64(const char *path, const char *mode)
{
	return open_stream(path, mode);
}

/* What a stream's descriptor stands for, pinned. NULL: nothing of ours, or the stream has none. */
static struct kvm_file *pin_stream(FILE *f, int *fd)
{
	int saved_errno = errno;

	*fd = fileno(f);
	errno = saved_errno;
	return fdtab_pin(*fd);
}

/* The entry goes first, as in close(). */
static void drop_entry(int fd)
{
	if (!preload_is_vforked())
		fdtab_set(fd, NULL);
}

LIBC int fclose(FILE *f)
{
	struct kvm_file *file;
	struct held held;
	int fd, result;

	file = pin_stream(f, &fd);
	if (!file)
		return real()->fclose(f);
	preload_hold(&held);
	drop_entry(fd);
	result = real()->fclose(f);
	fdtab_unpin(fd, file);
	preload_release(&held);
	return result;
}

/* To a path that is not ours; NULL: the same file in another mode. A failure closes the stream. */
static FILE *reopen(const char *path, const char *mode, FILE *f)
{
	struct kvm_file *file;
	struct held held;
	int fd;

	file = pin_stream(f, &fd);
	if (!file)
		return real()->freopen(path, mode, f);
	preload_hold(&held);
	drop_entry(fd);
	f = real()->freopen(path, mode, f);
	if (f && !path && !preload_is_vforked()) {
		kvm_get(file, 1);
		if (fdtab_set(fileno(f), file))
			kvm_put(file, 1);
	}
	fdtab_unpin(fd, file);
	preload_release(&held);
	return f;
}

/* To a path that is ours: libc opens something else, whose number becomes a copy of ours. An empty
 * path is what it cannot open. */
static FILE *reopen_ours(const char *path, const char *mode, FILE *f)
{
	int fd = open_ours(path, mode), saved_errno = errno;

	f = reopen(fd < 0 ? "" : "/dev/null", mode, f);
	if (fd < 0)
		errno = saved_errno;
	else if (f && dup3(fd, fileno(f), strchr(mode, 'e') ? O_CLOEXEC : 0) < 0)
		f = NULL;
	if (fd >= 0)
		close(fd);
	return f;
}

LIBC FILE *freopen(const char *path, const char *mode, FILE *f)
{
	return path && is_ours(path) ? reopen_ours(path, mode, f) : reopen(path, mode, f);
}

LIBC FILE *freopen64(const char *path, const char *mode, FILE *f)
{
	return freopen(path, mode, f);
}
