// SPDX-License-Identifier: MIT
/*
 * Requests that change files. Each first asks whether its folder was shared for writing; what a
 * guest makes belongs to the guest's user, if the user who runs vpmu may give files away.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "exec/share/share.h"

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
	if (share_may_write(call->share, id) && !share_leads_to_own(call->share, id, name))
		return 0;
	close(*parent);
	return EROFS;
}

/*
 * A name that is about to be made: its folder, and its node, which is there before the name is. So
 * a request that finds no memory has made nothing.
 */
struct making {
	int parent;
	u32 node;
};

static int begin_making(struct call *call, const char *name, struct making *making)
{
	int error = changeable_parent(call, call->id, name, &making->parent);

	if (error)
		return error;
	making->node = node_lookup(&call->share->nodes, call->id, name);
	if (making->node)
		return 0;
	close(making->parent);
	return ENOMEM;
}

static void end_making(struct call *call, const struct making *making)
{
	close(making->parent);
	node_forget(&call->share->nodes, making->node,
		    1); /* the guest has its own, if it was made */
}

static void give_away(const struct call *call, int fd)
{
	if (geteuid() == 0 && fchownat(fd, "", call->uid, call->gid, AT_EMPTY_PATH))
		return; /* no reason to fail: it stays ours */
}

/* A new file has one name and belongs to us. Another one may have taken its place since: a link to
 * a file that is not the guest's. */
static void give_away_new(const struct call *call, int parent, const char *name, mode_t type)
{
	int fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && !fstatat(fd, "", &st, AT_EMPTY_PATH) && (st.st_mode & S_IFMT) == type &&
	    (S_ISDIR(type) || st.st_nlink == 1) && st.st_uid == geteuid())
		give_away(call, fd);
	if (fd >= 0)
		close(fd);
}

static void made_name(const struct call *call, int parent, const char *name)
{
	fixed_changed(call->share, parent, name, FIXED_CONTENT);
	fixed_changed(call->share, parent, "", FIXED_CONTENT);
}

/* Ends a request that made a name: answers with what is there now. */
static int made(struct call *call, const struct making *making, const char *name, mode_t type,
		int error)
{
	if (!error) {
		give_away_new(call, making->parent, name, type);
		made_name(call, making->parent, name);
		error = share_put_entry(call, making->parent, name);
	}
	end_making(call, making);
	return error;
}

/* Makes a file, or opens a regular one that has the name already: to open anything else may have an
 * effect on the host, and pipes and devices are the guest's own. A descriptor or minus an errno. */
static int create_file(const struct call *call, int parent, const char *name)
{
	const struct fuse_create_in *in = (const void *)call->body;
	int fd = openat(parent, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
			in->mode & 07777 & ~SET_ID);

	if (fd >= 0) {
		give_away(call, fd);
		made_name(call, parent, name);
	}
	if (fd >= 0 || errno != EEXIST || in->flags & O_EXCL)
		return fd < 0 ? -errno : fd;
	fd = share_open_regular(openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC),
				O_RDWR | (in->flags & O_TRUNC));
	if (fd >= 0 && in->flags & O_TRUNC)
		fixed_changed(call->share, fd, "", FIXED_CONTENT);
	return fd;
}

/* Answers with the entry and a handle, for which there is room. */
static int put_created(struct call *call, const struct making *making, const char *name, int fd)
{
	int error = share_put_entry(call, making->parent, name);
	struct fuse_open_out *out = (void *)(call->answer + sizeof(struct fuse_entry_out));
	s64 number;

	if (error) {
		close(fd);
		return error;
	}
	number = share_add_handle(
		call->share, (struct handle){ .fd = fd, .node = making->node, .writable = true });
	*out = (struct fuse_open_out){ .fh = number };
	call->answer_size = sizeof(struct fuse_entry_out) + sizeof(*out);
	return 0;
}

int fuse_create(struct call *call)
{
	const struct fuse_create_in *in = (const void *)call->body;
	const char *name = (const char *)(in + 1);
	struct making making;
	int fd, error = begin_making(call, name, &making);

	if (error)
		return error;
	fd = share_has_handle(call->share) ? create_file(call, making.parent, name) : -ENOMEM;
	error = fd < 0 ? -fd : put_created(call, &making, name, fd);
	end_making(call, &making);
	return error;
}

/* Regular files, pipes and sockets, which are names to the host: it never opens the latter two. */
int fuse_mknod(struct call *call)
{
	const struct fuse_mknod_in *in = (const void *)call->body;
	const char *name = (const char *)(in + 1);
	struct making making;
	int error = begin_making(call, name, &making);

	if (error)
		return error;
	if (S_ISREG(in->mode) || S_ISFIFO(in->mode) || S_ISSOCK(in->mode))
		error = result(mknodat(making.parent, name, in->mode & ~SET_ID, 0));
	else
		error = EPERM;
	return made(call, &making, name, in->mode & S_IFMT, error);
}

int fuse_mkdir(struct call *call)
{
	const struct fuse_mkdir_in *in = (const void *)call->body;
	const char *name = (const char *)(in + 1);
	struct making making;
	int error = begin_making(call, name, &making);

	return error ? error
		     : made(call, &making, name, S_IFDIR,
			    result(mkdirat(making.parent, name, in->mode & 07777 & ~SET_ID)));
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
	struct making making;
	int error = target ? begin_making(call, name, &making) : EINVAL;

	return error ? error
		     : made(call, &making, name, S_IFLNK,
			    result(symlinkat(target, making.parent, name)));
}

int fuse_link(struct call *call)
{
	const struct fuse_link_in *in = (const void *)call->body;
	const char *name = (const char *)(in + 1);
	struct making making;
	int error = begin_making(call, name, &making), old;
	char path[64];

	if (error)
		return error;
	old = share_locate_writable(call->share, in->oldnodeid);
	if (old < 0 || !share_serves(old)) {
		end_making(call, &making);
		if (old >= 0)
			close(old);
		/* What may not be written could be by its new name. */
		return old < 0 && old != -EROFS ? -old : EXDEV;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", old);
	error = result(linkat(AT_FDCWD, path, making.parent, name, AT_SYMLINK_FOLLOW));
	close(old);
	if (!error) {
		fixed_changed(call->share, making.parent, name, FIXED_ATTRIBUTES);
		fixed_changed(call->share, making.parent, "", FIXED_CONTENT);
		error = share_put_entry(call, making.parent, name);
	}
	end_making(call, &making);
	return error;
}

static int remove_name(struct call *call, int flags)
{
	const char *name = (const char *)call->body;
	int parent, error = changeable_parent(call, call->id, name, &parent);
	struct stat st;

	if (error)
		return error;
	error = result(fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW))
			?: result(unlinkat(parent, name, flags));
	if (!error) {
		fixed_removed(call->share, &st);
		fixed_changed(call->share, parent, "", FIXED_CONTENT);
	}
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

/* rename(2) does nothing if both names are of one file; they may be the same name. */
static bool is_one_file(int from, const char *name, const struct stat *replaced)
{
	struct stat st;

	return !fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) && st.st_dev == replaced->st_dev &&
	       st.st_ino == replaced->st_ino;
}

static int rename_to(struct call *call, u64 new_id, u32 flags, const char *name)
{
	const char *new_name = second_name(call, name);
	int from, to, error;
	struct stat replaced;
	bool replaces, moves;

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
	replaces = !fstatat(to, new_name, &replaced, AT_SYMLINK_NOFOLLOW);
	moves = !replaces || !is_one_file(from, name, &replaced);
	error = result(renameat2(from, name, to, new_name, flags));
	if (!error && moves) {
		if (replaces)
			fixed_removed(call->share, &replaced);
		fixed_changed(call->share, to, new_name, FIXED_ATTRIBUTES);
		fixed_changed(call->share, from, "", FIXED_CONTENT);
		fixed_changed(call->share, to, "", FIXED_CONTENT);
	}
	close(from);
	close(to);
	if (!error && moves)
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

/* A folder that hands its group on keeps doing so; the guest did not see that bit. */
static mode_t new_mode(const struct fuse_setattr_in *in, const struct stat *st)
{
	return (in->mode & 07777 & ~SET_ID) | (S_ISDIR(st->st_mode) ? st->st_mode & S_ISGID : 0);
}

/* By way of /proc: the descriptor stands for the file itself, whatever its name leads to. */
static int set_attributes(int fd, const struct fuse_setattr_in *in)
{
	const struct timespec times[2] = {
		new_time(in->valid, FATTR_ATIME, FATTR_ATIME_NOW, in->atime, in->atimensec),
		new_time(in->valid, FATTR_MTIME, FATTR_MTIME_NOW, in->mtime, in->mtimensec),
	};
	char path[64];
	struct stat st;

	if (fstatat(fd, "", &st, AT_EMPTY_PATH))
		return errno;
	if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) || !share_serves(fd))
		return EPERM;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (in->valid & FATTR_MODE && chmod(path, new_mode(in, &st)))
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

static void show_set(const struct call *call, int fd, const struct fuse_setattr_in *in)
{
	bool now = in->valid & (FATTR_SIZE | FATTR_MTIME_NOW);

	fixed_changed(call->share, fd, "", now ? FIXED_CONTENT : FIXED_ATTRIBUTES);
	if (in->valid & FATTR_MTIME && !(in->valid & FATTR_MTIME_NOW))
		fixed_set_time(call->share, fd, in->mtime, in->mtimensec);
}

int fuse_setattr(struct call *call)
{
	const struct fuse_setattr_in *in = (const void *)call->body;
	bool open = in->valid & FATTR_FH;
	const struct handle *handle = open ? share_handle(call, in->fh) : NULL;
	int fd, error;

	if (open && !handle)
		return EBADF;
	/* A user who may write to a folder on the way to vpmu's own can replace the next one. */
	if (in->valid & (FATTR_MODE | FATTR_UID | FATTR_GID) &&
	    share_leads_to_own(call->share, call->id, NULL))
		return EROFS;
	fd = handle && handle->writable ? share_locate_open(call, handle)
					: share_locate_writable(call->share, call->id);
	if (fd < 0)
		return -fd;
	error = set_attributes(fd, in);
	if (!error) {
		show_set(call, fd, in);
		return share_put_attributes(call, fd);
	}
	close(fd);
	return error;
}

int fuse_write(struct call *call)
{
	const struct fuse_write_in *in = (const void *)call->body;
	const struct handle *handle = share_handle(call, in->fh);
	struct fuse_write_out *out = call_answer(call, sizeof(*out));
	ssize_t n;

	if (!handle || !handle->writable)
		return EBADF;
	if (in->size > call->size - sizeof(*in))
		return EINVAL;
	n = pwrite(handle->fd, in + 1, in->size, in->offset);
	if (n < 0)
		return errno;
	fixed_changed(call->share, handle->fd, "", FIXED_CONTENT);
	out->size = n;
	return 0;
}

int fuse_fsync(struct call *call)
{
	const struct fuse_fsync_in *in = (const void *)call->body;
	const struct handle *handle = share_handle(call, in->fh);

	if (!handle)
		return EBADF;
	return result(in->fsync_flags & FUSE_FSYNC_FDATASYNC ? fdatasync(handle->fd)
							     : fsync(handle->fd));
}

int fuse_fallocate(struct call *call)
{
	const struct fuse_fallocate_in *in = (const void *)call->body;
	const struct handle *handle = share_handle(call, in->fh);

	if (!handle || !handle->writable)
		return EBADF;
	if (fallocate(handle->fd, in->mode, in->offset, in->length))
		return errno;
	fixed_changed(call->share, handle->fd, "", FIXED_CONTENT);
	return 0;
}
