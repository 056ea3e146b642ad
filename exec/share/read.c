// SPDX-License-Identifier: MIT
/*
 * Requests that read: attributes, names, links, file contents and folders. What cannot be changed
 * through the guest is cached by the guest as long as it lives; in folders that it can write, for a
 * second.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/guest_files.h"
#include "exec/share/share.h"

#define CACHED_FOREVER 86400
#define CACHED_BRIEFLY 1

static bool is_fixed(const struct share *share)
{
	return share->virtual_time && share->virtual_time->fixed;
}

/* How long the guest may believe attributes: not at all if they have a second name, by which they
 * may change unnoticed. */
static u64 validity(struct share *share, u64 id, const struct stat *st)
{
	if (share->is_brief)
		return 0;
	if (!share_may_write(share, id))
		return CACHED_FOREVER;
	return S_ISREG(st->st_mode) && st->st_nlink > 1 ? 0 : CACHED_BRIEFLY;
}

/* Inode numbers are unique within a device of the host; the guest sees one device only. */
static u64 inode_number(struct share *share, const struct stat *st)
{
	u32 i = 0;

	while (i < share->device_count && share->device[i] != st->st_dev)
		i++;
	if (i == share->device_count && i < ARRAY_SIZE(share->device))
		share->device[share->device_count++] = st->st_dev;
	return st->st_ino ^ (u64)i << 48;
}

/* What the guest has changed has its time, and all files have numbers of their own. */
static void show_changes(struct share *share, const struct stat *st, struct fuse_attr *attr)
{
	const struct fixed_file *file = fixed_find(share, st);

	if (!file)
		return;
	attr->ino = fixed_number(share, file);
	if (file->changed) {
		attr->ctime = file->changed / 1000000000;
		attr->ctimensec = file->changed % 1000000000;
	}
	if (file->modified) {
		attr->mtime = file->modified / 1000000000;
		attr->mtimensec = file->modified % 1000000000;
	}
}

/*
 * Of a deterministic guest. Times of access are the host's business. Folders such as /tmp change
 * with every file that any process makes there, whether or not the guest knows that file: those
 * that it cannot write look the same in all runs, and throughout a run.
 */
static void fix_attributes(struct share *share, u64 id, const struct stat *st,
			   struct fuse_attr *attr)
{
	if (S_ISDIR(attr->mode) && !share_may_write(share, id)) {
		attr->size = PAGE_SIZE;
		attr->blocks = PAGE_SIZE / 512;
		attr->nlink = 1; /* says nothing about how many folders are in it */
		attr->mtime = attr->ctime = VIRTUAL_DATE;
		attr->mtimensec = attr->ctimensec = 0;
	}
	if (S_ISREG(attr->mode) && share_may_write(share, id))
		attr->blocks =
			(attr->size + 511) / 512; /* when the host allocates is its business */
	show_changes(share, st, attr);
	attr->atime = attr->mtime;
	attr->atimensec = attr->mtimensec;
}

static void fill_attributes(struct share *share, u64 id, const struct stat *st,
			    struct fuse_attr *attr)
{
	*attr = (struct fuse_attr){
		.ino = inode_number(share, st),
		.size = st->st_size,
		.blocks = st->st_blocks,
		.atime = st->st_atim.tv_sec,
		.mtime = st->st_mtim.tv_sec,
		.ctime = st->st_ctim.tv_sec,
		.atimensec = st->st_atim.tv_nsec,
		.mtimensec = st->st_mtim.tv_nsec,
		.ctimensec = st->st_ctim.tv_nsec,
		.mode = st->st_mode,
		.nlink = st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.rdev = makedev(major(st->st_rdev), minor(st->st_rdev)),
		.blksize = st->st_blksize,
	};
	if (is_fixed(share))
		fix_attributes(share, id, st, attr);
}

int fuse_getattr(struct call *call)
{
	const struct fuse_getattr_in *in = (const void *)call->body;
	bool open = in->getattr_flags & FUSE_GETATTR_FH;
	const struct handle *handle = open ? share_handle(call, in->fh) : NULL;
	int fd = open && !handle ? -EBADF : share_locate_open(call, handle);

	return fd < 0 ? -fd : share_put_attributes(call, fd);
}

int share_put_attributes(struct call *call, int fd)
{
	struct fuse_attr_out *out = call_answer(call, sizeof(*out));
	struct stat st;
	int r = share_stat(fd, &st);

	close(fd);
	if (r)
		return r;
	out->attr_valid = validity(call->share, call->id, &st);
	fill_attributes(call->share, call->id, &st, &out->attr);
	return 0;
}

static u64 entry_validity(struct share *share, u64 id)
{
	if (share->is_brief)
		return 0;
	return share_may_write(share, id) ? CACHED_BRIEFLY : CACHED_FOREVER;
}

/* What a folder, open, served and of this node, has by a name. */
static int fill_entry(struct share *share, u64 node, int folder, const char *name,
		      struct fuse_entry_out *out)
{
	struct stat st;
	int error = share_stat_entry(folder, name, &st);
	u32 id;

	if (error)
		return error;
	id = node_lookup(&share->nodes, node, name);
	if (!id)
		return ENOMEM;
	out->nodeid = id;
	out->attr_valid = validity(share, id, &st);
	out->entry_valid = entry_validity(share, id);
	fill_attributes(share, id, &st, &out->attr);
	return 0;
}

int share_put_entry(struct call *call, int parent, const char *name)
{
	return fill_entry(call->share, call->id, parent, name,
			  call_answer(call, sizeof(struct fuse_entry_out)));
}

/* A name that does not exist is worth remembering too: an entry without a node. */
static int put_absence(struct call *call)
{
	struct fuse_entry_out *out = call_answer(call, sizeof(*out));

	if (!call->share->is_brief && !share_may_write(call->share, call->id))
		out->entry_valid = CACHED_FOREVER;
	return 0;
}

int fuse_lookup(struct call *call)
{
	const char *name = (const char *)call->body;
	int parent = share_locate_parent(call->share, call->id, name), r;

	if (parent < 0)
		return -parent;
	r = fixed_hides(call->share, call->id, name) ? ENOENT : 0;
	if (!r)
		r = share_put_entry(call, parent, name);
	close(parent);
	return r == ENOENT ? put_absence(call) : r;
}

int fuse_readlink(struct call *call)
{
	int fd = share_locate(call->share, call->id);
	ssize_t n;

	if (fd < 0)
		return -fd;
	errno = EACCES;
	n = share_serves(fd) ? readlinkat(fd, "", (char *)call->answer, PATH_MAX) : -1;
	close(fd);
	if (n < 0)
		return errno;
	call->answer_size = n;
	return 0;
}

int fuse_read(struct call *call)
{
	const struct fuse_read_in *in = (const void *)call->body;
	const struct handle *handle = share_handle(call, in->fh);

	return handle ? share_read(call, handle->fd) : EBADF;
}

static int open_file(struct call *call, int flags, int *fd)
{
	int path = flags == O_RDONLY ? share_locate(call->share, call->id)
				     : share_locate_writable(call->share, call->id);

	if (path < 0)
		return -path;
	*fd = share_open_regular(path, flags); /* devices and pipes are the guest's own */
	return *fd < 0 ? -*fd : 0;
}

static int put_handle(struct call *call, struct handle handle, u32 flags)
{
	s64 number = share_add_handle(call->share, handle);
	struct fuse_open_out *out = call_answer(call, sizeof(*out));

	if (number < 0)
		return -number;
	out->fh = number;
	out->open_flags = flags;
	return 0;
}

int fuse_open(struct call *call)
{
	const struct fuse_open_in *in = (const void *)call->body;
	bool may_write = share_may_write(call->share, call->id);
	bool write = (in->flags & O_ACCMODE) != O_RDONLY || in->flags & O_TRUNC;
	/* A guest that writes parts of pages reads them first, also through this handle. */
	int fd, r, mode = write ? O_RDWR | (in->flags & O_TRUNC) : O_RDONLY;

	r = open_file(call, mode, &fd);
	if (r == EACCES && write)
		r = open_file(call, O_WRONLY | (in->flags & O_TRUNC), &fd);
	if (!r)
		opened_add(call->share, call->id);
	if (!r && in->flags & O_TRUNC)
		fixed_changed(call->share, fd, "", FIXED_CONTENT);
	return r ? r
		 : put_handle(call,
			      (struct handle){ .fd = fd, .node = call->id, .writable = write },
			      may_write ? 0 : FOPEN_KEEP_CACHE);
}

int fuse_opendir(struct call *call)
{
	int path = share_locate(call->share, call->id), fd;
	u32 flags = share_may_write(call->share, call->id) ? 0 : FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE;

	if (path < 0)
		return -path;
	if (!share_serves(path))
		return put_handle(
			call, (struct handle){ .fd = path, .node = call->id, .sealed = true }, 0);
	fd = share_reopen(path, O_RDONLY | O_DIRECTORY);
	close(path);
	return fd < 0 ? -fd
		      : put_handle(call, (struct handle){ .fd = fd, .node = call->id }, flags);
}

/* Straight into the guest's memory, after the header. */
int share_read(struct call *call, int fd)
{
	const struct fuse_read_in *in = (const void *)call->body;
	struct request *request = call->request;
	u64 skip = sizeof(struct fuse_out_header), left = in->size;
	struct iovec piece[MAX_PIECES];
	u32 count = 0;
	ssize_t n;

	for (u32 i = 0; i < request->out_count && left; i++) {
		struct iovec out = request->out[i];
		u64 cut = skip < out.iov_len ? skip : out.iov_len;

		skip -= cut;
		out.iov_base = (u8 *)out.iov_base + cut;
		out.iov_len -= cut;
		if (out.iov_len > left)
			out.iov_len = left;
		left -= out.iov_len;
		if (out.iov_len)
			piece[count++] = out;
	}
	n = preadv(fd, piece, count, in->offset);
	if (n < 0)
		return errno;
	call->answer = NULL; /* it is in place */
	call->answer_size = n;
	return 0;
}

static void put_dirent(struct fuse_dirent *to, const struct host_entry *from, u64 ino, u32 length)
{
	*to = (struct fuse_dirent){ ino, from->offset, length, from->type };
	memcpy(to->name, from->name, length);
}

/* The number of an entry that the guest sees: of files on the folder's own file system. */
static u64 entry_number(struct share *share, const struct handle *folder,
			const struct host_entry *entry)
{
	const struct fixed_file *file;
	struct stat st;

	if (!is_fixed(share) || fstat(folder->fd, &st))
		return entry->ino;
	st.st_ino = entry->ino;
	file = fixed_find(share, &st);
	return file ? fixed_number(share, file) : entry->ino;
}

/* The guest looks nothing up for itself and its parent, nor for an entry without a node. */
static void put_direntplus(struct share *share, const struct handle *folder,
			   struct fuse_direntplus *to, const struct host_entry *from, u32 length)
{
	if (strcmp(from->name, ".") && strcmp(from->name, ".."))
		fill_entry(share, folder->node, folder->fd, from->name, &to->entry_out);
	put_dirent(&to->dirent, from, entry_number(share, folder, from), length);
}

/* False: there is no room for it. */
static bool put_name(struct call *call, const struct handle *handle, const struct host_entry *from,
		     bool plus)
{
	const struct fuse_read_in *in = (const void *)call->body;
	u32 head = plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
	u32 room = in->size < MAX_ANSWER ? in->size : MAX_ANSWER;
	u32 length = strlen(from->name), size = FUSE_DIRENT_ALIGN(head + length);
	u8 *to = call->answer + call->answer_size;

	if (size > room - call->answer_size)
		return false;
	memset(to, 0, size);
	if (plus)
		put_direntplus(call->share, handle, (void *)to, from, length);
	else
		put_dirent((void *)to, from, entry_number(call->share, handle, from), length);
	call->answer_size += size;
	return true;
}

static int list_sorted(struct call *call, struct handle *handle, bool plus)
{
	const struct fuse_read_in *in = (const void *)call->body;
	const struct listing *listing = &handle->listing;
	int error = in->offset ? 0 : listing_read(call->share, &handle->listing, handle->fd);

	for (u64 i = in->offset; !error && i < listing->count; i++)
		if (!fixed_hides(call->share, handle->node, listing->entry[i]->name) &&
		    !put_name(call, handle, listing->entry[i], plus))
			break;
	return error;
}

/* As many as fit; the guest asks again from the offset after the last one. */
static int list(struct call *call, bool plus)
{
	const struct fuse_read_in *in = (const void *)call->body;
	struct handle *handle = share_handle(call, in->fh);
	u8 buffer[16 << 10] __attribute__((aligned(8)));
	long n;

	if (!handle || handle->sealed)
		return handle ? 0 : EBADF;
	if (is_fixed(call->share))
		return list_sorted(call, handle, plus);
	if (lseek(handle->fd, in->offset, SEEK_SET) < 0)
		return errno;
	n = syscall(SYS_getdents64, handle->fd, buffer, sizeof(buffer));
	if (n < 0)
		return errno;
	for (long at = 0; at < n;) {
		const struct host_entry *from = (const void *)(buffer + at);

		if (!put_name(call, handle, from, plus))
			break;
		at += from->size;
	}
	return 0;
}

int fuse_readdir(struct call *call)
{
	return list(call, false);
}

/* With what a look-up of each name would answer: one request instead of thousands. */
int fuse_readdirplus(struct call *call)
{
	return list(call, true);
}

int fuse_release(struct call *call)
{
	const struct fuse_release_in *in = (const void *)call->body;
	struct handle *handle = share_handle(call, in->fh);

	if (!handle)
		return EBADF;
	fixed_closed(call->share, handle->fd);
	close(handle->fd);
	listing_free(call->share, &handle->listing);
	handle->fd = -1;
	node_close(&call->share->nodes, handle->node);
	return 0;
}

int fuse_statfs(struct call *call)
{
	struct fuse_statfs_out *out = call_answer(call, sizeof(*out));
	int fd = share_locate(call->share, call->id), r;
	struct statvfs st;

	if (fd < 0)
		return -fd;
	r = fstatvfs(fd, &st) ? errno : 0;
	close(fd);
	out->st = (struct fuse_kstatfs){
		.blocks = st.f_blocks,
		.bfree = st.f_bfree,
		.bavail = st.f_bavail,
		.files = st.f_files,
		.ffree = st.f_ffree,
		.bsize = st.f_bsize,
		.namelen = st.f_namemax,
		.frsize = st.f_frsize,
	};
	if (is_fixed(call->share)) {
		out->st.bfree = out->st.bavail = out->st.blocks / 2;
		out->st.ffree = out->st.files / 2;
	}
	return r;
}
