// SPDX-License-Identifier: MIT
/*
 * The server of the host's files against guests that lie: random requests, many of them nearly
 * right, never change anything outside of the folder shared for writing; random rings never make it
 * read or write outside of guest memory (AddressSanitizer watches in its own build).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/share/share.h"

#define REQUESTS 60000
#define RINGS	 20000

static u64 state = 0x9e3779b97f4a7c15;

static u32 any(u32 below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 16) % below;
}

/* --- a small tree: inside/ may be written, outside/ may not --- */

static char folder[] = "/tmp/vpmu-share-XXXXXX";

static void shell(const char *command)
{
	char line[512];

	snprintf(line, sizeof(line), "cd %s && %s", folder, command);
	assert_int_equal(system(line), 0);
}

/* What an attack would change: names, contents, modes, times. */
static void describe_outside(char text[4096])
{
	char line[512];
	FILE *in;
	size_t n;

	snprintf(line, sizeof(line),
		 "cd %s && ls -lnR --time-style=full-iso outside && ls && cat outside/secret",
		 folder);
	in = popen(line, "r");
	assert_non_null(in);
	n = fread(text, 1, 4095, in);
	text[n] = '\0';
	assert_int_equal(pclose(in), 0);
}

static struct share *make_share(void)
{
	static const char *const writable[] = { "inside" };
	static struct share share; /* lives as long as its process, as in vpmu exec */

	assert_non_null(mkdtemp(folder));
	shell("mkdir -p inside/b outside/d && echo kept >outside/secret && echo x >inside/a && "
	      "ln -s ../outside inside/l && ln -s ../../outside/secret inside/b/s && mkfifo "
	      "inside/f");
	share.root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	share.writable = writable;
	share.writable_count = 1;
	assert_true(nodes_start(&share.nodes));
	return &share;
}

/* --- requests --- */

static const char *const names[] = { "inside", "outside", "a",	      "b", "c",	   "l",	      "s",
				     "f",      "secret",  "d",	      ".", "..",   "",	      "x/y",
				     "new",    "../a",	  "l/secret", "/", "/etc", "inside/a" };

static u32 put_name(u8 *at)
{
	const char *name = names[any(ARRAY_SIZE(names))];

	strcpy((char *)at, name);
	return strlen(name) + any(8) / 7 /* now and then without its end */;
}

/* Of the size that the request needs, with numbers that may mean something. */
static u32 fill(u8 *at)
{
	u32 size = 8 * any(14);

	for (u32 i = 0; i < size; i += 4) {
		u32 value = any(4) ? any(64) : any(~0u);

		memcpy(at + i, &value, 4);
	}
	return size;
}

/* Of a name to another one, or to itself, in folders that may be some. */
static u32 make_rename(u8 *in)
{
	struct fuse_in_header header = { .opcode = FUSE_RENAME, .nodeid = any(40) };
	struct fuse_rename_in rename = { .newdir = any(2) ? header.nodeid : any(40) };
	u32 name = sizeof(header) + sizeof(rename), size = name;

	memcpy(in, &header, sizeof(header));
	memcpy(in + sizeof(header), &rename, sizeof(rename));
	size += put_name(in + size) + 1;
	in[size - 1] = '\0';
	if (any(2))
		return size + put_name(in + size) + 1;
	memcpy(in + size, in + name, size - name);
	return 2 * size - name;
}

static u32 make_request(u8 *in)
{
	struct fuse_in_header header = { .opcode = any(56),
					 .unique = any(1000),
					 .nodeid = any(40) };
	u32 size = sizeof(header);

	if (!any(10))
		return make_rename(in);
	if (!any(3)) { /* so that there are nodes to play with */
		header.opcode = FUSE_LOOKUP;
	} else {
		size += fill(in + size);
	}
	for (u32 n = any(3) + (header.opcode == FUSE_LOOKUP); n; n--) {
		size += put_name(in + size);
		in[size++] = '\0';
	}
	memcpy(in, &header, sizeof(header));
	return any(50) ? size : any(size + 1);
}

static u32 open_files(void)
{
	u32 count = 0;
	DIR *dir = opendir("/proc/self/fd");

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void no_request_changes_what_is_not_shared(void **unused)
{
	struct share *share = make_share();
	char before[4096], after[4096];
	static u8 in[MAX_BODY + PAGE_SIZE + 1], out[64 << 10];
	u32 served = 0, files = open_files(), handles = 0;

	(void)unused;
	describe_outside(before);
	umask(0);
	for (u32 i = 0; i < REQUESTS; i++) {
		struct request request = { .in = in, .out_count = 1 };

		request.out[0] = (struct iovec){ out, any(10) ? sizeof(out) : any(200) };
		request.out_size = request.out[0].iov_len;
		request.in_size = make_request(in);
		if (fuse_serve(share, &request) >= sizeof(struct fuse_out_header))
			served += !((struct fuse_out_header *)out)->error;
		assert_true(nodes_check(&share->nodes));
		if (i % 1000 == 0) /* what was removed comes back */
			shell("rm -rf inside/a inside/b inside/l; mkdir inside/b; "
			      "echo x >inside/a; ln -s ../outside inside/l");
	}
	describe_outside(after);
	assert_string_equal(before, after);
	assert_true(served > REQUESTS / 100); /* they were not all nonsense */
	for (u32 i = 0; i < share->handle_count; i++)
		handles += share->handle[i].fd >= 0;
	assert_int_equal(open_files(), files + handles);
	shell("rm -rf inside outside && rmdir \"$PWD\"");
}

/* --- rings --- */

#define RAM	  (64u << 10)
#define GUEST_RAM 0x10000u
#define ENTRIES	  16u

static void make_ring(u8 *ram, struct queue *queue)
{
	for (u32 i = 0; i < ENTRIES; i++)
		queue->desc[i] = (struct vring_desc){
			.addr = any(4) ? GUEST_RAM + any(RAM) : any(~0u) * (u64)any(~0u),
			.len = any(4) ? any(4096) : any(~0u),
			.flags = any(8),
			.next = any(ENTRIES + 2),
		};
	for (u32 i = 0; i < ENTRIES; i++)
		queue->avail->ring[i] = any(ENTRIES + 2);
	queue->avail->idx = queue->next + 1 + any(3);
	for (u32 i = RAM / 2; i < RAM; i += 1 + any(64)) /* indirect tables */
		ram[i] = any(256);
}

static void no_ring_leads_out_of_guest_memory(void **unused)
{
	u8 *ram = calloc(1, RAM);
	struct share share = { .region_count = 1 };
	struct queue queue = { .size = ENTRIES, .kick = -1, .call = -1 };
	static u8 in[MAX_BODY + PAGE_SIZE + 1];
	u32 whole = 0;

	(void)unused;
	share.region[0] = (struct region){ .gpa = GUEST_RAM, .size = RAM, .map = ram };
	queue.desc = (void *)ram;
	queue.avail = (void *)(ram + ENTRIES * sizeof(*queue.desc));
	queue.used = (void *)(ram + 1024);
	for (u32 i = 0; i < RINGS; i++) {
		struct request request = { .in = in };

		make_ring(ram, &queue);
		while (queue_next(&share, &queue, &request)) {
			for (u32 p = 0; p < request.out_count; p++) {
				u8 *piece = request.out[p].iov_base;

				assert_true(piece >= ram && piece <= ram + RAM &&
					    request.out[p].iov_len <= (size_t)(ram + RAM - piece));
			}
			assert_true(request.in_size <= MAX_BODY + PAGE_SIZE);
			whole += request.in_size || request.out_count;
			queue_done(&queue, &request, 0);
		}
	}
	assert_true(whole > RINGS / 10);
	free(ram);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_request_changes_what_is_not_shared),
		cmocka_unit_test(no_ring_leads_out_of_guest_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
