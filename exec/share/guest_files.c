// SPDX-License-Identifier: MIT
/*
 * Three files in the root that are not the host's, for the first process of a guest on virtual time
 * (docs/clock.md): its order, the command's standard input, and what it has to say. A serial port
 * would bring and take these at any time; requests to this device are served while the guest's time
 * stands still. They cannot be listed, and belong to the guest's root.
 */
#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "exec/guest_files.h"
#include "exec/share/share.h"

static const char *const names[] = { LINK_ORDER, LINK_INPUT, LINK_FRAMES };

/* After all nodes of the tree. */
#define FIRST_NODE ((u64)MAX_NODES)

static int file_of(const struct share_terms *terms, u64 id)
{
	const int files[] = { terms->order, terms->input, terms->frames };

	return files[id - FIRST_NODE];
}

/* The node that a request names or is about, or 0. */
static u64 node_of(const struct call *call, u32 opcode)
{
	if (call->id >= FIRST_NODE && call->id < FIRST_NODE + ARRAY_SIZE(names))
		return call->id;
	if (opcode != FUSE_LOOKUP || call->id != FUSE_ROOT_ID)
		return 0;
	for (u32 i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp((const char *)call->body, names[i]))
			return FIRST_NODE + i;
	return 0;
}

bool link_is_ours(const struct call *call, u32 opcode)
{
	const struct share_terms *terms = call->share->virtual_time;
	u64 id = terms ? node_of(call, opcode) : 0;

	return id && file_of(terms, id) >= 0;
}

static void put_attributes(const struct call *call, u64 id, struct fuse_attr *attr)
{
	bool frames = id == FIRST_NODE + 2;
	struct stat st;

	attr->ino = id;
	attr->mode = S_IFREG | (frames ? 0200 : 0400);
	attr->nlink = 1;
	attr->blksize = PAGE_SIZE;
	if (!frames && !fstat(file_of(call->share->virtual_time, id), &st))
		attr->size = st.st_size;
}

static int look_up(struct call *call)
{
	struct fuse_entry_out *out = call_answer(call, sizeof(*out));

	out->nodeid = node_of(call, FUSE_LOOKUP);
	put_attributes(call, out->nodeid, &out->attr);
	return 0;
}

static int get_attributes(struct call *call)
{
	struct fuse_attr_out *out = call_answer(call, sizeof(*out));

	put_attributes(call, call->id, &out->attr);
	return 0;
}

static int open_file(struct call *call)
{
	struct fuse_open_out *out = call_answer(call, sizeof(*out));

	out->open_flags = FOPEN_DIRECT_IO;
	return 0;
}

/* All of it, however long the reader takes: the guest waits. */
static int write_frames(struct call *call)
{
	const struct fuse_write_in *in = (const void *)call->body;
	struct fuse_write_out *out = call_answer(call, sizeof(*out));
	int fd = file_of(call->share->virtual_time, call->id);

	if (call->id != FIRST_NODE + 2)
		return EBADF;
	if (in->size > call->size - sizeof(*in))
		return EINVAL;
	while (out->size < in->size) {
		ssize_t n = send(fd, (const u8 *)(in + 1) + out->size, in->size - out->size,
				 MSG_NOSIGNAL);

		if (n < 0)
			return errno;
		out->size += n;
	}
	return 0;
}

int link_serve(struct call *call, u32 opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
		return look_up(call);
	case FUSE_GETATTR:
		return get_attributes(call);
	case FUSE_OPEN:
		return open_file(call);
	case FUSE_READ:
		if (call->id == FIRST_NODE + 2)
			return EBADF;
		return share_read(call, file_of(call->share->virtual_time, call->id));
	case FUSE_WRITE:
		return write_frames(call);
	case FUSE_FSYNC: /* of its first process, when it has set its clock */
		fixed_begin(call->share);
		return 0;
	case FUSE_RELEASE:
		return 0;
	default:
		return ENOSYS;
	}
}
