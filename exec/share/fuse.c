// SPDX-License-Identifier: MIT
/*
 * The file system: which FUSE request is served by which function, and what these share. A request
 * without a row is answered with ENOSYS, which makes Linux do without it (extended attributes,
 * locks and ioctls; permissions it checks itself).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/share/share.h"

static int fuse_init(struct call *call);

static int nothing_to_do(struct call *call)
{
	(void)call;
	return 0;
}

static const struct row {
	int (*serve)(struct call *call);
	u32 size; /* of its fixed part */
} rows[] = {
	[FUSE_INIT] = { fuse_init, FUSE_COMPAT_INIT_OUT_SIZE },
	[FUSE_DESTROY] = { nothing_to_do, 0 },
	[FUSE_GETATTR] = { fuse_getattr, sizeof(struct fuse_getattr_in) },
	[FUSE_LOOKUP] = { fuse_lookup, 1 },
	[FUSE_READLINK] = { fuse_readlink, 0 },
	[FUSE_OPEN] = { fuse_open, sizeof(struct fuse_open_in) },
	[FUSE_OPENDIR] = { fuse_opendir, sizeof(struct fuse_open_in) },
	[FUSE_READ] = { fuse_read, sizeof(struct fuse_read_in) },
	[FUSE_READDIR] = { fuse_readdir, sizeof(struct fuse_read_in) },
	[FUSE_READDIRPLUS] = { fuse_readdirplus, sizeof(struct fuse_read_in) },
	[FUSE_RELEASE] = { fuse_release, sizeof(struct fuse_release_in) },
	[FUSE_RELEASEDIR] = { fuse_release, sizeof(struct fuse_release_in) },
	[FUSE_STATFS] = { fuse_statfs, 0 },
	[FUSE_CREATE] = { fuse_create, sizeof(struct fuse_create_in) + 1 },
	[FUSE_MKNOD] = { fuse_mknod, sizeof(struct fuse_mknod_in) + 1 },
	[FUSE_MKDIR] = { fuse_mkdir, sizeof(struct fuse_mkdir_in) + 1 },
	[FUSE_SYMLINK] = { fuse_symlink, 2 },
	[FUSE_LINK] = { fuse_link, sizeof(struct fuse_link_in) + 1 },
	[FUSE_UNLINK] = { fuse_unlink, 1 },
	[FUSE_RMDIR] = { fuse_rmdir, 1 },
	[FUSE_RENAME] = { fuse_rename, sizeof(struct fuse_rename_in) + 2 },
	[FUSE_RENAME2] = { fuse_rename2, sizeof(struct fuse_rename2_in) + 2 },
	[FUSE_SETATTR] = { fuse_setattr, sizeof(struct fuse_setattr_in) },
	[FUSE_WRITE] = { fuse_write, sizeof(struct fuse_write_in) },
	[FUSE_FSYNC] = { fuse_fsync, sizeof(struct fuse_fsync_in) },
	[FUSE_FSYNCDIR] = { fuse_fsync, sizeof(struct fuse_fsync_in) },
	[FUSE_FALLOCATE] = { fuse_fallocate, sizeof(struct fuse_fallocate_in) },
};

void *call_answer(struct call *call, u32 size)
{
	call->answer_size = size;
	return memset(call->answer, 0, size);
}

static int fuse_init(struct call *call)
{
	const struct fuse_init_in *in = (const void *)call->body;
	struct fuse_init_out *out = call_answer(call, sizeof(*out));
	const u32 wanted = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ATOMIC_O_TRUNC |
			   FUSE_AUTO_INVAL_DATA | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
			   FUSE_CACHE_SYMLINKS | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO;

	if (in->major != FUSE_KERNEL_VERSION)
		return EPROTO;
	out->major = FUSE_KERNEL_VERSION;
	out->minor = FUSE_KERNEL_MINOR_VERSION;
	out->max_readahead = in->max_readahead;
	out->flags = in->flags & wanted;
	out->max_background = 64;
	out->congestion_threshold = 48;
	out->max_write = MAX_BODY;
	out->max_pages = MAX_BODY / PAGE_SIZE;
	out->time_gran = 1;
	return 0;
}

static int locate_path(struct share *share, const char *path, u64 flags)
{
	struct open_how how = { .flags = flags | O_PATH | O_NOFOLLOW | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	int fd = syscall(SYS_openat2, share->root, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

static int duplicate(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return copy < 0 ? -errno : copy;
}

/* One of the handles of a node. */
static const struct handle *find_handle(struct share *share, u64 id, bool writable)
{
	const struct node *node = node_get(&share->nodes, id);

	for (u32 i = 0; node && node->opens && i < share->handle_count; i++) {
		const struct handle *handle = &share->handle[i];

		if (handle->fd >= 0 && handle->node == id && (handle->writable || !writable))
			return handle;
	}
	return NULL;
}

int share_locate(struct share *share, u64 id)
{
	char path[PATH_MAX];
	int error = node_path(&share->nodes, id, path);
	int fd = error ? -error : locate_path(share, path, 0);
	const struct handle *handle =
		fd == -ESTALE || fd == -ENOENT ? find_handle(share, id, false) : NULL;

	return handle ? duplicate(handle->fd) : fd;
}

int share_locate_open(const struct call *call, const struct handle *handle)
{
	return handle ? duplicate(handle->fd) : share_locate(call->share, call->id);
}

int share_locate_parent(struct share *share, u64 id, const char *name)
{
	char path[PATH_MAX];
	int error = node_path(&share->nodes, id, path), fd;

	if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	fd = error ? -error : locate_path(share, path, O_DIRECTORY);
	if (fd < 0 || share_serves(fd))
		return fd;
	close(fd);
	return -ENOENT;
}

/* Is it the folder itself, or in it? */
static bool lies_in(const char *path, const char *folder)
{
	u32 length = strlen(folder);

	return !length ||
	       (!strncmp(path, folder, length) && (!path[length] || path[length] == '/'));
}

static bool may_write_path(const struct share *share, const char *path)
{
	for (const char *const *own = share->own; own && *own; own++)
		if (lies_in(path, *own))
			return false;
	for (u32 i = 0; i < share->writable_count; i++)
		if (lies_in(path, share->writable[i]))
			return true;
	return false;
}

bool share_may_write(struct share *share, u64 id)
{
	char path[PATH_MAX];

	if (node_path(&share->nodes, id, path))
		return find_handle(share, id, true);
	return may_write_path(share, path);
}

int share_locate_writable(struct share *share, u64 id)
{
	char path[PATH_MAX];
	bool has_path = !node_path(&share->nodes, id, path);
	const struct handle *handle;
	int fd = -EROFS;

	if (has_path && may_write_path(share, path))
		fd = locate_path(share, path, 0);
	if (has_path && fd != -ENOENT)
		return fd;
	handle = find_handle(share, id, true);
	return handle ? duplicate(handle->fd) : fd;
}

static bool path_leads_to_own(const struct share *share, const char *path)
{
	for (const char *const *own = share->own; own && *own; own++)
		if (lies_in(*own, path))
			return true;
	return false;
}

bool share_leads_to_own(struct share *share, u64 id, const char *name)
{
	char path[PATH_MAX];
	size_t length;

	if (node_path(&share->nodes, id, path))
		return false;
	length = strcmp(path, ".") ? strlen(path) : 0;
	path[length] = '\0';
	if (!name)
		return path_leads_to_own(share, path);
	if (length)
		path[length++] = '/';
	if (length + strlen(name) >= PATH_MAX)
		return false;
	strcpy(path + length, name);
	return path_leads_to_own(share, path);
}

int share_reopen(int path, int flags)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", path);
	fd = open(name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

struct handle *share_handle(const struct call *call, u64 number)
{
	const struct share *share = call->share;
	struct handle *handle = number < share->handle_count ? &share->handle[number] : NULL;

	return handle && handle->fd >= 0 && handle->node == call->id ? handle : NULL;
}

static bool more_handles(struct share *share)
{
	u32 count = share->handle_count ? 2 * share->handle_count : 64;
	struct handle *handle = realloc(share->handle, count * sizeof(*handle));

	if (!handle)
		return false;
	for (u32 i = share->handle_count; i < count; i++)
		handle[i].fd = -1;
	share->handle = handle;
	share->handle_count = count;
	return true;
}

/* The first that is free, or handle_count. */
static u32 free_handle(const struct share *share)
{
	u32 i = 0;

	while (i < share->handle_count && share->handle[i].fd >= 0)
		i++;
	return i;
}

bool share_has_handle(struct share *share)
{
	return free_handle(share) < share->handle_count || more_handles(share);
}

s64 share_add_handle(struct share *share, struct handle handle)
{
	struct node *node = node_get(&share->nodes, handle.node);
	u32 i;

	if (!node || !share_has_handle(share)) {
		close(handle.fd);
		return node ? -ENOMEM : -ESTALE;
	}
	i = free_handle(share);
	share->handle[i] = handle;
	node->opens++;
	fixed_opened(share, handle.fd);
	return i;
}

/* Finishes the answer: its header goes before whatever the function produced. */
static u32 answer(struct call *call, const struct fuse_in_header *in, int error)
{
	struct request *request = call->request;
	struct fuse_out_header header = { .error = -error, .unique = in->unique };

	if (error)
		call->answer_size = 0;
	header.len = sizeof(header) + call->answer_size;
	if (header.len > request->out_size)
		return 0; /* a guest that leaves no room for the answer gets none */
	request_put(request, 0, &header, sizeof(header));
	if (call->answer)
		request_put(request, sizeof(header), call->answer, call->answer_size);
	return header.len;
}

static void forget(struct share *share, const struct call *call, u32 opcode)
{
	const struct fuse_batch_forget_in *batch = (const void *)call->body;
	const struct fuse_forget_one *one = (const void *)(batch + 1);
	const struct fuse_forget_in *single = (const void *)call->body;

	if (opcode == FUSE_FORGET) {
		if (call->size >= sizeof(*single))
			node_forget(&share->nodes, call->id, single->nlookup);
		return;
	}
	if (call->size < sizeof(*batch) ||
	    batch->count > (call->size - sizeof(*batch)) / sizeof(*one))
		return;
	for (u32 i = 0; i < batch->count; i++)
		node_forget(&share->nodes, one[i].nodeid, one[i].nlookup);
}

u32 fuse_serve(struct share *share, struct request *request)
{
	static u8 buffer[MAX_ANSWER] __attribute__((aligned(8)));
	struct fuse_in_header in;
	struct call call = { .share = share, .request = request, .answer = buffer };
	const struct row *row;

	if (request->in_size < sizeof(in))
		return 0;
	memcpy(&in, request->in, sizeof(in));
	request->in[request->in_size] = '\0'; /* so that names in the body always end */
	call.id = in.nodeid;
	call.uid = in.uid;
	call.gid = in.gid;
	call.body = request->in + sizeof(in);
	call.size = request->in_size - sizeof(in);
	if (in.opcode == FUSE_FORGET || in.opcode == FUSE_BATCH_FORGET) {
		forget(share, &call, in.opcode);
		return 0;
	}
	row = in.opcode < ARRAY_SIZE(rows) && rows[in.opcode].serve ? &rows[in.opcode] : NULL;
	if (!row)
		return answer(&call, &in, ENOSYS);
	if (call.size < row->size)
		return answer(&call, &in, EINVAL);
	if (link_is_ours(&call, in.opcode))
		return answer(&call, &in, link_serve(&call, in.opcode));
	return answer(&call, &in, row->serve(&call));
}
