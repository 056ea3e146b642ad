// SPDX-License-Identifier: MIT
/*
 * FUSE requests of a hostile guest kernel to the server of the host's files. An input is a sequence
 * of requests; the server's nodes and handles live as long as it does. Nothing may change outside
 * of the folder shared for writing, and no file that is opened may be one of the host's kernel
 * interfaces: half of the inputs have /proc as their root, with nothing to write.
 *
 * Input: a byte (bit 0: the root is /proc; else bit 1: the guest is deterministic, and has the
 * files of exec/guest_files.h), then requests: opcode, node, size of the body (3 bytes), body.
 * Nodes from 0xf8 on are those files. 0xff as an opcode: the raw header of 40 bytes follows
 * instead.
 */
#include <fcntl.h>
#include <ftw.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/must.h"
#include "base/turns.h"
#include "exec/share/share.h"
#include "fuzz/fuzz.h"

#define MAX_REQUESTS 64
#define MAX_FILE     (16u << 20)
#define LINK_NODES   0xf8

/* Answers are in two pieces, as Linux has headers and data in pages of their own. */
#define OUT_HEADER sizeof(struct fuse_out_header)
#define OUT_FIRST  64 /* of the data */

static char folder[] = "/tmp/vpmu-fuzz-XXXXXX";
static int tree, proc;
static struct turns page;
static struct share_terms terms = { .page = &page, .fixed = true };
static int frames; /* the other end of terms.frames */
static u8 in_buffer[MAX_BODY + PAGE_SIZE + 1] __attribute__((aligned(8)));
static u8 out_buffer[128 << 10] __attribute__((aligned(8)));

/* --- the tree: inside/ may be written, outside/ may not --- */

static const char *const outside[] = { ".", "outside", "outside/secret", "outside/d" };
static struct stat before[ARRAY_SIZE(outside)];

static void put_file(const char *name, const char *text)
{
	int fd = openat(tree, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void fill_inside(void)
{
	must(!mkdirat(tree, "inside/b", 0755));
	put_file("inside/a", "x\n");
	must(!symlinkat("../outside", tree, "inside/l"));
	must(!symlinkat("../../outside/secret", tree, "inside/b/s"));
	must(!mkfifoat(tree, "inside/f", 0644));
}

/* A folder that its owner may not list keeps its files: it may after this, and the caller tries
 * again. */
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	if (type == FTW_DNR && !chmod(path, 0755))
		return 1;
	return at->level ? remove(path) : 0;
}

static void empty(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	must(!chmod(path, 0755));
	for (u32 i = 0; i < MAX_REQUESTS; i++)
		if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) <= 0)
			return;
}

static void remove_tree(void)
{
	empty(".");
	rmdir(folder);
}

static void look_outside(struct stat *st)
{
	for (u32 i = 0; i < ARRAY_SIZE(outside); i++)
		must(!fstatat(tree, outside[i], &st[i], AT_SYMLINK_NOFOLLOW));
}

static void check_outside(void)
{
	struct stat now[ARRAY_SIZE(outside)];

	look_outside(now);
	for (u32 i = 0; i < ARRAY_SIZE(outside); i++)
		if (now[i].st_mode != before[i].st_mode || now[i].st_uid != before[i].st_uid ||
		    now[i].st_nlink != before[i].st_nlink || now[i].st_size != before[i].st_size ||
		    now[i].st_ctim.tv_sec != before[i].st_ctim.tv_sec ||
		    now[i].st_ctim.tv_nsec != before[i].st_ctim.tv_nsec)
			fuzz_fail("%s has changed, which is not shared for writing", outside[i]);
}

static void make_link(void)
{
	int ends[2];

	terms.order = memfd_create("order", MFD_CLOEXEC);
	terms.input = memfd_create("input", MFD_CLOEXEC);
	must(terms.order >= 0 && terms.input >= 0 && write(terms.order, "order", 5) == 5);
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	terms.frames = ends[0];
	frames = ends[1];
}

/* What one input writes fits into the socket. */
static void drop_frames(void)
{
	while (recv(frames, out_buffer, sizeof(out_buffer), MSG_DONTWAIT) > 0)
		;
}

void fuzz_set_up(void)
{
	const struct rlimit limit = { MAX_FILE, MAX_FILE };

	must(mkdtemp(folder) != NULL);
	signal(SIGXFSZ, SIG_IGN);
	must(!setrlimit(RLIMIT_FSIZE, &limit)); /* FALLOCATE fills no disk */
	atexit(remove_tree);
	umask(0);
	tree = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	must(tree >= 0 && proc >= 0);
	must(!mkdirat(tree, "inside", 0755) && !mkdirat(tree, "outside", 0755) &&
	     !mkdirat(tree, "outside/d", 0755));
	put_file("outside/secret", "kept\n");
	fill_inside();
	look_outside(before);
	make_link();
}

/* --- requests --- */

static u32 make_request(struct fuzz_input *in)
{
	struct fuse_in_header header = { .opcode = fuzz_u8(in), .unique = 1 };
	u32 size = sizeof(header);

	if (header.opcode == 0xff) {
		fuzz_take(in, &header, sizeof(header));
	} else {
		header.nodeid = fuzz_u8(in);
		if (header.nodeid >= LINK_NODES)
			header.nodeid += MAX_NODES - LINK_NODES;
		header.uid = geteuid();
		header.gid = getegid();
	}
	size += fuzz_take(in, in_buffer + size, fuzz_u8(in));
	header.len = size;
	memcpy(in_buffer, &header, sizeof(header));
	return size;
}

/* Answers that hold something of the root's file system: a node, a byte, an entry. */
static bool tells(u32 opcode, u32 size)
{
	const struct fuse_entry_out *entry = (const void *)(out_buffer + OUT_FIRST);

	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_CREATE:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_LINK:
	case FUSE_SYMLINK:
		return size && entry->nodeid;
	case FUSE_READ:
	case FUSE_READLINK:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		return size;
	default:
		return false;
	}
}

static void check_handles(const struct share *share)
{
	struct stat st;

	for (u32 i = 0; i < share->handle_count; i++) {
		int fd = share->handle[i].fd;

		if (fd < 0)
			continue;
		if (fstat(fd, &st) || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
			fuzz_fail("handle %u is no file and no folder", i);
		if (share->root == proc && S_ISREG(st.st_mode))
			fuzz_fail("handle %u is a file of the host's kernel", i);
	}
}

static bool may_change(u32 opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_GETATTR:
	case FUSE_READLINK:
	case FUSE_READ:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_OPENDIR:
	case FUSE_STATFS:
	case FUSE_RELEASE:
		return false;
	default:
		return true;
	}
}

/* True: the files are no longer as they were. */
static bool serve(struct share *share, u32 size)
{
	const struct fuse_in_header *header = (const void *)in_buffer;
	const struct fuse_out_header *result = (const void *)out_buffer;
	struct request request = { .in = in_buffer, .in_size = size, .out_count = 2 };
	u32 room = sizeof(out_buffer) / 2, opcode = header->opcode, answer;

	request.out[0] = (struct iovec){ out_buffer, OUT_HEADER };
	request.out[1] = (struct iovec){ out_buffer + OUT_FIRST, room };
	request.out_size = OUT_HEADER + room;
	answer = fuse_serve(share, &request);
	if (answer > request.out_size)
		fuzz_fail("an answer of %u bytes in a request with room for %llu", answer,
			  (unsigned long long)request.out_size);
	check_handles(share);
	if (!nodes_check(&share->nodes))
		fuzz_fail("request %u has broken the table of nodes", opcode);
	if (answer < OUT_HEADER || result->error)
		return false;
	if (share->root == proc && tells(opcode, answer - OUT_HEADER))
		fuzz_fail("request %u tells of the host's kernel", opcode);
	return may_change(opcode);
}

static void end_share(struct share *share)
{
	for (u32 i = 0; i < share->handle_count; i++) {
		if (share->handle[i].fd < 0)
			continue;
		close(share->handle[i].fd);
		listing_free(share, &share->handle[i].listing);
	}
	free(share->fixed.file);
	for (u32 i = FUSE_ROOT_ID + 1; i < share->nodes.count; i++)
		free(share->nodes.node[i].name);
	free(share->nodes.node);
	free(share->handle);
}

void fuzz_one(struct fuzz_input *in)
{
	static const char *const writable[] = { "inside" };
	struct share *share = calloc(1, sizeof(*share));
	u8 how = fuzz_u8(in);
	bool in_proc = how & 1, changed = false;

	must(share && nodes_start(&share->nodes));
	share->root = in_proc ? proc : tree;
	share->writable = writable;
	share->writable_count = !in_proc;
	share->virtual_time = !in_proc && (how & 2) ? &terms : NULL;
	for (u32 i = 0; i < MAX_REQUESTS && fuzz_left(in); i++)
		changed |= serve(share, make_request(in));
	end_share(share);
	free(share);
	drop_frames();
	check_outside();
	if (changed) {
		empty("inside");
		fill_inside();
	}
}
