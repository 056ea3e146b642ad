// SPDX-License-Identifier: MIT
/*
 * See share_guest.h.
 */
#include "unit/share_guest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static u8 in[8192], out[128 << 10] __attribute__((aligned(8)));

struct share guest_share;
const struct fuse_out_header *const guest_answer = (void *)out;
const void *const guest_body = out + sizeof(struct fuse_out_header);

char host_folder[sizeof(HOST_FOLDER)];

void host_make_folder(void)
{
	strcpy(host_folder, HOST_FOLDER);
	assert_non_null(mkdtemp(host_folder));
}

bool host_remove_folder(void)
{
	char line[128];

	snprintf(line, sizeof(line), "rm -rf --one-file-system '%s'", host_folder);
	return !system(line);
}

const char *in_folder(const char *name)
{
	static char path[2][PATH_MAX];
	static u32 turn;

	turn = !turn;
	snprintf(path[turn], PATH_MAX, "%s/%s", host_folder, name);
	return path[turn];
}

bool guest_start_in_folder(void)
{
	static char shared[sizeof(host_folder) + 3];
	static const char *const writable[] = { shared };

	host_make_folder();
	snprintf(shared, sizeof(shared), "%s/rw", host_folder + 1);
	assert_int_equal(mkdir(in_folder("rw"), 0755), 0);
	umask(0);
	return guest_start(writable, 1);
}

bool guest_start(const char *const *writable, u32 count)
{
	guest_share = (struct share){ .root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC),
				      .writable = writable,
				      .writable_count = count };
	return nodes_start(&guest_share.nodes);
}

u32 guest_stop(void)
{
	u32 open_files = 0;

	close(guest_share.root);
	for (u32 i = 0; i < guest_share.handle_count; i++)
		open_files += guest_share.handle[i].fd >= 0;
	free(guest_share.handle);
	for (u32 i = FUSE_ROOT_ID + 1; i < guest_share.nodes.count; i++)
		free(guest_share.nodes.node[i].name);
	free(guest_share.nodes.node);
	free(guest_share.fixed.file);
	free(guest_share.opened.known);
	return open_files;
}

bool guest_can_confine(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("SKIP: the sanitizer's system calls are none of a file server's\n");
	return false;
#else
	return true;
#endif
}

void guest_want_confinement(void)
{
	if (!guest_can_confine())
		skip();
}

int guest_ask(u32 opcode, u64 node, const void *fixed, u32 size, const char *name)
{
	struct request request = { .in = in, .out_count = 1, .out_size = sizeof(out) };
	struct fuse_in_header header = { .opcode = opcode, .nodeid = node, .unique = 1 };
	u8 *at = in + sizeof(header);

	if (size)
		memcpy(at, fixed, size);
	at += size;
	if (name)
		at += sprintf((char *)at, "%s", name) + 1;
	header.len = request.in_size = at - in;
	header.uid = geteuid();
	memcpy(in, &header, sizeof(header));
	request.out[0] = (struct iovec){ out, sizeof(out) };
	memset(out, 0, sizeof(struct fuse_out_header) + sizeof(struct fuse_entry_out));
	return fuse_serve(&guest_share, &request) ? -guest_answer->error : -1;
}

u64 guest_look_up(u64 parent, const char *name)
{
	const struct fuse_entry_out *entry = guest_body;

	return guest_ask(FUSE_LOOKUP, parent, NULL, 0, name) ? 0 : entry->nodeid;
}

u64 guest_walk(const char *path)
{
	char copy[PATH_MAX], *rest = copy, *word;
	u64 node = FUSE_ROOT_ID;

	snprintf(copy, sizeof(copy), "%s", path);
	while (node && (word = strsep(&rest, "/")))
		if (*word)
			node = guest_look_up(node, word);
	return node;
}

int guest_open(u64 node, u32 flags, u64 *handle)
{
	struct fuse_open_in open = { .flags = flags };
	int error = guest_ask(FUSE_OPEN, node, &open, sizeof(open), NULL);

	*handle = ((const struct fuse_open_out *)guest_body)->fh;
	return error;
}

int guest_create(u64 parent, const char *name, u32 flags, u32 mode, u64 *handle)
{
	struct fuse_create_in create = { .flags = flags, .mode = mode };
	const struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} *made = guest_body;
	int error = guest_ask(FUSE_CREATE, parent, &create, sizeof(create), name);

	*handle = made->open.fh;
	return error;
}

int guest_release(u64 node, u64 handle)
{
	struct fuse_release_in release = { .fh = handle };

	return guest_ask(FUSE_RELEASE, node, &release, sizeof(release), NULL);
}

int guest_read(u64 node, u64 handle, u32 size)
{
	struct fuse_read_in read = { .fh = handle, .size = size };

	return guest_ask(FUSE_READ, node, &read, sizeof(read), NULL);
}

int guest_write(u64 node, u64 handle, const char *text)
{
	struct fuse_write_in write = { .fh = handle, .size = strlen(text) + 1 };

	return guest_ask(FUSE_WRITE, node, &write, sizeof(write), text);
}

int guest_rename(u64 from, const char *name, u64 to, const char *new_name, u32 flags)
{
	const struct fuse_rename_in plain = { .newdir = to };
	const struct fuse_rename2_in flagged = { .newdir = to, .flags = flags };
	u32 size = flags ? sizeof(flagged) : sizeof(plain);
	u8 fixed[sizeof(flagged) + NAME_MAX + 1];

	memcpy(fixed, flags ? (const void *)&flagged : &plain, size);
	size += snprintf((char *)fixed + size, NAME_MAX + 1, "%s", name) + 1;
	return guest_ask(flags ? FUSE_RENAME2 : FUSE_RENAME, from, fixed, size, new_name);
}

int guest_set_attributes(u64 node, struct fuse_setattr_in set)
{
	return guest_ask(FUSE_SETATTR, node, &set, sizeof(set), NULL);
}

static const struct fuse_attr *const attributes =
	(void *)(out + sizeof(struct fuse_out_header) + offsetof(struct fuse_attr_out, attr));

s64 guest_mode(u64 node, s64 handle)
{
	struct fuse_getattr_in get = { .getattr_flags = handle >= 0 ? FUSE_GETATTR_FH : 0,
				       .fh = handle >= 0 ? handle : 0 };
	int error = guest_ask(FUSE_GETATTR, node, &get, sizeof(get), NULL);

	return error ? -error : (s64)attributes->mode;
}

s64 guest_size(u64 node)
{
	s64 mode = guest_mode(node, -1);

	return mode < 0 ? mode : (s64)attributes->size;
}

static u32 count_entries(u32 opcode)
{
	const u32 fixed = opcode == FUSE_READDIR ? FUSE_NAME_OFFSET : FUSE_NAME_OFFSET_DIRENTPLUS;
	u32 count = 0, at = 0, size = guest_answer->len - sizeof(*guest_answer);

	while (at < size) {
		const u8 *entry = (const u8 *)guest_body + at;
		u32 length;

		memcpy(&length, entry + fixed - 8, sizeof(length)); /* namelen and type end it */
		count += entry[fixed] != '.';
		at += FUSE_DIRENT_ALIGN(fixed + length);
	}
	return count;
}

s64 guest_entries(u64 node, u32 opcode)
{
	struct fuse_open_in open = { 0 };
	struct fuse_read_in read = { .size = 32 << 10 };
	int error = guest_ask(FUSE_OPENDIR, node, &open, sizeof(open), NULL);
	u32 count = 0;

	if (error)
		return -error;
	read.fh = ((const struct fuse_open_out *)guest_body)->fh;
	error = guest_ask(opcode, node, &read, sizeof(read), NULL);
	if (!error)
		count = count_entries(opcode);
	guest_release(node, read.fh);
	return error ? -error : (s64)count;
}
