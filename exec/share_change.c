// SPDX-License-Identifier: MIT
/*
 * Requests that change files. Each first asks whether its folder was shared for writing; what a
 * guest makes belongs to the guest's user, if whoever runs this may give files away.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "exec/share.h"

static int result(int r)
{
	return r < 0 ? errno : 0;
}

/* Opens the folder of a name that is about to change. */
static int changeable_parent(struct call *call, u64 id, const char *name, int *parent)
{
	*parent = share_locate_parent(call->share, id, name);
	if (*parent < 0)
		return -*parent;
	if (share_may_write(call->share, id))
		return 0;
	close(*parent);
	return EROFS;
}

static void give_away(const struct call *call, int parent, const char *name)
{
	if (geteuid() == 0 && fchownat(parent, name, call->uid, call->gid, AT_SYMLINK_NOFOLLOW))
		return; /* no reason to fail: it stays ours */
}

/* Ends a request that made a name: answers with what is there now. */
static int made(struct call *call, int parent, const char *name, int error)
{
	if (!error) {
		give_away(call, parent, name);
		error = share_put_entry(call, parent, name);
	}
	close(parent);
	return error;
}

int fuse_create(struct call *call)
{
	const struct fuse_create_in *in = (const void *)call->body;
	const char *name = (const char *)(in + 1);
	int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | (in->flags & (O_EXCL | O_TRUNC));
	struct fuse_entry_out entry;
	struct fuse_open_out *out;
	int parent, fd, error;
	s64 number;

	error = changeable_parent(call, call->id, name, &parent);
	if (error)
		return error;
	fd = openat(parent, name, flags | O_NONBLOCK | O_NOCTTY, in->mode & 07777);
	error = made(call, parent, name, fd < 0 ? errno : 0);
	if (error) {
		if (fd >= 0)
			close(fd);
		return error;
	}
	memcpy(&entry, call->answer, sizeof(entry));
	number = share_add_handle(call->share, entry.nodeid, fd, true);
	if (number < 0) {
		node_forget(&call->share->nodes, entry.nodeid, 1);
		return -number;
	}
	out = (void *)(call->answer + sizeof(entry));
	*out = (struct fuse_open_out){ .fh = number };
	call->answer_size = sizeof(entry) + sizeof(*out);
	return 0;
}

/* Regular files, pipes and sockets; device nodes are refused by the host as to any user. */
int fuse_mknod(struct call *call)
{
	const struct fuse_mknod_in *in = (const void *)call->body;
	const char *name = (const char *)(in + 1);
	int parent, error = changeable_parent(call, call->id, name, &parent);

	if (error)
		return error;
	if (S_ISCHR(in->mode) || S_ISBLK(in->mode))
		error = EPERM;
	else
		error = result(mknodat(parent, name, in->mode, 0));
	return made(call, parent, name, error);
}

int fuse_mkdir(struct call *call)
{
	const struct fuse_mkdir_in *in = (const void *)call->body;
	const char *name = (const char *)(in + 1);
	int parent, error = changeable_parent(call, call->id, name, &parent);

	return error ? error
		     : made(call, parent, name, result(mkdirat(parent, name, in->mode & 07777)));
}

/* The second of two names that follow one another. NULL: the request has only one. */
static const char *second_name(const struct call *call, const char *first)
{
	const char *second = first + strlen(first) + 1;

	return (const u8 *)second < call->body + call->size ? second : NULL;
}

int fuse_symlink(struct call *call)
{
	const char *name = (const char *)call->body, *target = second_name(call, name);
	int parent, error = target ? changeable_parent(call, call->id, name, &parent) : EINVAL;

	return error ? error : made(call, parent, name, result(symlinkat(target, parent, name)));
}

int fuse_link(struct call *call)
{
	const struct fuse_link_in *in = (const void *)call->body;
	const char *name = (const char *)(in + 1);
	int parent, error = changeable_parent(call, call->id, name, &parent), old;
	char path[64];

	if (error)
		return error;
	old = share_locate(call->share, in->oldnodeid);
	if (old < 0 || !share_may_write(call->share, in->oldnodeid)) {
		close(parent);
		if (old >= 0)
			close(old);
		return old < 0 ? -old : EXDEV; /* else it could be written by its new name */
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", old);
	error = result(linkat(AT_FDCWD, path, parent, name, AT_SYMLINK_FOLLOW));
	close(old);
	if (!error)
		error = share_put_entry(call, parent, name);
	close(parent);
	return error;
}

static int remove_name(struct call *call, int flags)
{
	const char *name = (const char *)call->body;
	int parent, error = changeable_parent(call, call->id, name, &parent);

	if (error)
		return error;
	error = result(unlinkat(parent, name, flags));
	close(parent);
	if (!error)
		node_drop_name(&call->share->nodes, call->id, name);
	return error;
}

int fuse_unlink(struct call *call)
{
	return remove_name(call, 0);
}

int fuse_rmdir(struct call *call)
{
	return remove_name(call, AT_REMOVEDIR);
}

static int rename_to(struct call *call, u64 new_id, u32 flags, const char *name)
{
	const char *new_name = second_name(call, name);
	int from, to, error;

	if (!new_name || flags & ~RENAME_NOREPLACE)
		return EINVAL;
	error = changeable_parent(call, call->id, name, &from);
	if (error)
		return error;
	error = changeable_parent(call, new_id, new_name, &to);
	if (error) {
		close(from);
		return error;
	}
	error = result(renameat2(from, name, to, new_name, flags));
	close(from);
	close(to);
	if (!error)
		node_rename(&call->share->nodes, call->id, name, new_id, new_name);
	return error;
}

int fuse_rename(struct call *call)
{
	const struct fuse_rename_in *in = (const void *)call->body;

	return rename_to(call, in->newdir, 0, (const char *)(in + 1));
}

int fuse_rename2(struct call *call)
{
	const struct fuse_rename2_in *in = (const void *)call->body;

	return rename_to(call, in->newdir, in->flags, (const char *)(in + 1));
}

static struct timespec new_time(u32 valid, u32 set, u32 now, u64 seconds, u32 nanoseconds)
{
	if (!(valid & set))
		return (struct timespec){ .tv_nsec = UTIME_OMIT };
	if (valid & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	return (struct timespec){ seconds, nanoseconds };
}

/* By way of /proc: the descriptor stands for the file itself, whatever its name leads to. */
static int set_attributes(int fd, const struct fuse_setattr_in *in)
{
	const struct timespec times[2] = {
		new_time(in->valid, FATTR_ATIME, FATTR_ATIME_NOW, in->atime, in->atimensec),
		new_time(in->valid, FATTR_MTIME, FATTR_MTIME_NOW, in->mtime, in->mtimensec),
	};
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (in->valid & FATTR_MODE && chmod(path, in->mode & 07777))
		return errno;
	if (in->valid & (FATTR_UID | FATTR_GID) &&
	    fchownat(fd, "", in->valid & FATTR_UID ? in->uid : (uid_t)-1,
		     in->valid & FATTR_GID ? in->gid : (gid_t)-1, AT_EMPTY_PATH))
		return errno;
	if (in->valid & FATTR_SIZE && truncate(path, in->size))
		return errno;
	if (in->valid & (FATTR_ATIME | FATTR_MTIME) && utimensat(fd, "", times, AT_EMPTY_PATH))
		return errno;
	return 0;
}

int fuse_setattr(struct call *call)
{
	const struct fuse_setattr_in *in = (const void *)call->body;
	const struct handle *handle = share_handle(call->share, in->fh);
	bool open = in->valid & FATTR_FH && handle && handle->writable;
	int fd, error;

	if (!open && !share_may_write(call->share, call->id))
		return EROFS;
	fd = open ? fcntl(handle->fd, F_DUPFD_CLOEXEC, 0) : share_locate(call->share, call->id);
	if (fd < 0)
		return open ? errno : -fd;
	error = set_attributes(fd, in);
	close(fd);
	return error ? error : fuse_getattr(call);
}

int fuse_write(struct call *call)
{
	const struct fuse_write_in *in = (const void *)call->body;
	const struct handle *handle = share_handle(call->share, in->fh);
	struct fuse_write_out *out = call_answer(call, sizeof(*out));
	ssize_t n;

	if (!handle || !handle->writable)
		return EBADF;
	if (in->size > call->size - sizeof(*in))
		return EINVAL;
	n = pwrite(handle->fd, in + 1, in->size, in->offset);
	if (n < 0)
		return errno;
	out->size = n;
	return 0;
}

int fuse_fsync(struct call *call)
{
	const struct fuse_fsync_in *in = (const void *)call->body;
	const struct handle *handle = share_handle(call->share, in->fh);

	if (!handle)
		return EBADF;
	return result(in->fsync_flags & FUSE_FSYNC_FDATASYNC ? fdatasync(handle->fd)
							     : fsync(handle->fd));
}

int fuse_fallocate(struct call *call)
{
	const struct fuse_fallocate_in *in = (const void *)call->body;
	const struct handle *handle = share_handle(call->share, in->fh);

	if (!handle || !handle->writable)
		return EBADF;
	return result(fallocate(handle->fd, in->mode, in->offset, in->length));
}
