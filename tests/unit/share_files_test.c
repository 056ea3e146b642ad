// SPDX-License-Identifier: MIT
/*
 * The server of the host's files, request by request: it serves files and not the kernel's
 * interfaces, opens regular files only, neither shows nor sets set-id bits, and keeps an open file
 * whose name is gone. The guest that asks is a hostile kernel: it sends what no Linux would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/share.h"

/* --- a guest --- */

static struct share share;
static u8 in[8192], out[128 << 10] __attribute__((aligned(8)));
static const struct fuse_out_header *const answer = (void *)out;
static const void *const body = out + sizeof(struct fuse_out_header);

/* Sends a request with a fixed part and a name, and returns its errno. */
static int ask(u32 opcode, u64 node, const void *fixed, u32 size, const char *name)
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
	header.uid = getuid();
	header.gid = getgid();
	memcpy(in, &header, sizeof(header));
	request.out[0] = (struct iovec){ out, sizeof(out) };
	memset(out, 0, sizeof(struct fuse_out_header) + sizeof(struct fuse_entry_out));
	assert_true(fuse_serve(&share, &request) >= sizeof(*answer));
	return -answer->error;
}

/* The node of a name, 0 where there is none. */
static u64 look_up(u64 parent, const char *name)
{
	return ask(FUSE_LOOKUP, parent, NULL, 0, name)
		       ? 0
		       : ((const struct fuse_entry_out *)body)->nodeid;
}

static u64 walk(const char *path)
{
	char copy[PATH_MAX], *rest = copy, *word;
	u64 node = FUSE_ROOT_ID;

	snprintf(copy, sizeof(copy), "%s", path);
	while (node && (word = strsep(&rest, "/")))
		if (*word)
			node = look_up(node, word);
	return node;
}

static int open_node(u64 node, u32 flags, u64 *handle)
{
	struct fuse_open_in open = { .flags = flags };
	int error = ask(FUSE_OPEN, node, &open, sizeof(open), NULL);

	*handle = ((const struct fuse_open_out *)body)->fh;
	return error;
}

static int release(u64 node, u64 handle)
{
	struct fuse_release_in release = { .fh = handle };

	return ask(FUSE_RELEASE, node, &release, sizeof(release), NULL);
}

static int read_node(u64 node, u64 handle, u32 size)
{
	struct fuse_read_in read = { .fh = handle, .size = size };

	return ask(FUSE_READ, node, &read, sizeof(read), NULL);
}

static int write_node(u64 node, u64 handle, const char *text)
{
	struct fuse_write_in write = { .fh = handle, .size = strlen(text) + 1 };

	return ask(FUSE_WRITE, node, &write, sizeof(write), text);
}

/* The mode that a GETATTR answers with, by a handle unless it is -1; minus an errno. */
static int mode_of(u64 node, s64 handle)
{
	struct fuse_getattr_in get = { handle >= 0 ? FUSE_GETATTR_FH : 0, 0,
				       handle >= 0 ? handle : 0 };
	int error = ask(FUSE_GETATTR, node, &get, sizeof(get), NULL);

	return error ? -error : (int)((const struct fuse_attr_out *)body)->attr.mode;
}

static u64 size_of(u64 node)
{
	assert_true(mode_of(node, -1) > 0);
	return ((const struct fuse_attr_out *)body)->attr.size;
}

static int set(u64 node, struct fuse_setattr_in set)
{
	return ask(FUSE_SETATTR, node, &set, sizeof(set), NULL);
}

/* How many entries a folder lists, but itself and its parent. */
static u32 entries(u64 node, u32 opcode)
{
	const u32 fixed = opcode == FUSE_READDIR ? FUSE_NAME_OFFSET : FUSE_NAME_OFFSET_DIRENTPLUS;
	struct fuse_open_in open = { 0 };
	struct fuse_read_in read = { .size = 32 << 10 };
	u32 count = 0, size, at = 0;

	assert_int_equal(ask(FUSE_OPENDIR, node, &open, sizeof(open), NULL), 0);
	read.fh = ((const struct fuse_open_out *)body)->fh;
	assert_int_equal(ask(opcode, node, &read, sizeof(read), NULL), 0);
	size = answer->len - sizeof(*answer);
	while (at < size) {
		const u8 *entry = (const u8 *)body + at;
		u32 length;

		memcpy(&length, entry + fixed - 8, sizeof(length));
		count += entry[fixed] != '.';
		at += FUSE_DIRENT_ALIGN(fixed + length);
	}
	assert_int_equal(release(node, read.fh), 0);
	return count;
}

/* --- its host --- */

static char folder[] = "/tmp/vpmu-files-XXXXXX";

static const char *in_folder(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void put_file(const char *name, mode_t mode)
{
	int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_int_equal(write(fd, "content", 7), 7);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static mode_t host_mode(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(in_folder(name), &st), 0);
	return st.st_mode & 07777;
}

/* Of all files, with one folder to write: rw. */
static int make(void **unused)
{
	static char shared[sizeof(folder) + 3];
	static const char *const writable[] = { shared };

	(void)unused;
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(shared, sizeof(shared), "%s/rw", folder + 1);
	assert_int_equal(mkdir(in_folder("rw"), 0755), 0);
	umask(0);
	share = (struct share){ .root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC),
				.writable = writable,
				.writable_count = 1 };
	return nodes_start(&share.nodes) ? 0 : -1;
}

static int take_down(void **unused)
{
	char line[128];
	u32 open_files = 0;

	(void)unused;
	close(share.root);
	for (u32 i = 0; i < share.handle_count; i++)
		open_files += share.handle[i].fd >= 0;
	free(share.handle);
	for (u32 i = 2; i < share.nodes.count; i++)
		free(share.nodes.node[i].name);
	free(share.nodes.node);
	umount2(in_folder("rw/there"), MNT_DETACH); /* of a test that failed */
	umount2(in_folder("rw/file"), MNT_DETACH);
	snprintf(line, sizeof(line), "rm -rf --one-file-system '%s'", folder);
	assert_int_equal(system(line), 0);
	assert_int_equal(open_files, 0); /* each test closes what it opens */
	return 0;
}

/* --- file systems --- */

static void assert_sealed(const char *path, const char *inside)
{
	u64 node = walk(path);

	assert_true(node);
	assert_int_equal(mode_of(node, -1), S_IFDIR | 0555);
	assert_int_equal(look_up(node, inside), 0);
	assert_int_equal(entries(node, FUSE_READDIR), 0);
	assert_int_equal(entries(node, FUSE_READDIRPLUS), 0);
}

static void interfaces_of_the_kernel_are_empty_folders(void **unused)
{
	char path[64];
	u64 handle;

	(void)unused;
	assert_sealed("/proc", "self");
	assert_sealed("/proc", "version");
	assert_sealed("/sys", "kernel");
	snprintf(path, sizeof(path), "/proc/%d/mem", getpid());
	assert_int_equal(walk(path), 0);
	assert_int_equal(open_node(walk("/etc/passwd"), O_RDONLY, &handle), 0);
	assert_int_equal(release(walk("/etc/passwd"), handle), 0);
	assert_true(entries(walk("/etc"), FUSE_READDIRPLUS) > 3);
}

/* Mounts are made in a namespace of our own; that takes privileges. */
static void want_mounts(void)
{
	if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		print_message("skipped: mounting takes privileges: %s\n", strerror(errno));
		skip();
	}
	close(share.root); /* it is one of the namespace before */
	share.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void they_are_so_wherever_they_are_mounted(void **unused)
{
	static const char *const types[] = { "proc",	 "sysfs",    "devpts",	 "mqueue",
					     "cgroup2",	 "tracefs",  "debugfs",	 "securityfs",
					     "configfs", "bpf",	     "fusectl",	 "binfmt_misc",
					     "pstore",	 "efivarfs", "selinuxfs" };
	u32 mounted = 0;
	u64 handle;

	(void)unused;
	want_mounts();
	assert_int_equal(mkdir(in_folder("rw/there"), 0755), 0);
	for (u32 i = 0; i < ARRAY_SIZE(types); i++) {
		const char *path = in_folder("rw/there");

		if (mount(types[i], path, types[i], 0, NULL))
			continue; /* not in this kernel */
		mounted++;
		assert_sealed(path, "self");
		assert_int_equal(ask(FUSE_MKDIR, walk(in_folder("rw/there")),
				     &(struct fuse_mkdir_in){ .mode = 0755 },
				     sizeof(struct fuse_mkdir_in), "new"),
				 ENOENT);
		assert_int_equal(umount2(in_folder("rw/there"), MNT_DETACH), 0);
	}
	assert_true(mounted >= 2);
	/* One file of them, over one that could be written. */
	put_file("rw/file", 0644);
	assert_int_equal(
		mount("/proc/sys/kernel/hostname", in_folder("rw/file"), NULL, MS_BIND, NULL), 0);
	assert_int_equal(mode_of(walk(in_folder("rw/file")), -1), S_IFREG);
	assert_int_equal(open_node(walk(in_folder("rw/file")), O_RDONLY, &handle), EACCES);
	assert_int_equal(open_node(walk(in_folder("rw/file")), O_WRONLY, &handle), EACCES);
	assert_int_equal(
		set(walk(in_folder("rw/file")), (struct fuse_setattr_in){ .valid = FATTR_SIZE }),
		EPERM);
	assert_int_equal(umount2(in_folder("rw/file"), MNT_DETACH), 0);
	/* What stores files is served wherever it is. */
	assert_int_equal(mount("t", in_folder("rw/there"), "tmpfs", 0, NULL), 0);
	put_file("rw/there/file", 0644);
	assert_int_equal(open_node(walk(in_folder("rw/there/file")), O_RDWR, &handle), 0);
	assert_int_equal(release(walk(in_folder("rw/there/file")), handle), 0);
	assert_int_equal(umount2(in_folder("rw/there"), MNT_DETACH), 0);
}

/* A node that was looked up before something was mounted over it. */
static void a_node_is_judged_when_it_is_used(void **unused)
{
	u64 node, handle;

	(void)unused;
	assert_int_equal(mkdir(in_folder("rw/there"), 0755), 0);
	put_file("rw/there/version", 0644);
	node = walk(in_folder("rw/there/version"));
	assert_int_equal(open_node(node, O_RDONLY, &handle), 0);
	assert_int_equal(release(node, handle), 0);
	want_mounts();
	assert_int_equal(mount("proc", in_folder("rw/there"), "proc", 0, NULL), 0);
	assert_int_equal(open_node(node, O_RDONLY, &handle), EACCES);
	assert_int_equal(umount2(in_folder("rw/there"), MNT_DETACH), 0);
}

/* --- types of files --- */

static int create(const char *parent, const char *name, u32 flags, u32 mode, u64 *handle)
{
	struct fuse_create_in in = { .flags = flags, .mode = mode };
	int error = ask(FUSE_CREATE, walk(in_folder(parent)), &in, sizeof(in), name);

	*handle = ((const struct fuse_open_out *)((const u8 *)body + sizeof(struct fuse_entry_out)))
			  ->fh;
	return error;
}

static void pipes_sockets_and_devices_are_listed_but_not_opened(void **unused)
{
	static const char *const names[] = { "pipe", "socket" };
	struct fuse_mknod_in device = { .mode = S_IFCHR | 0666, .rdev = 0x103 };
	char path[64];
	u64 handle;

	(void)unused;
	assert_int_equal(mkfifo(in_folder("rw/pipe"), 0666), 0);
	assert_int_equal(mknod(in_folder("rw/socket"), S_IFSOCK | 0666, 0), 0);
	for (u32 i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "rw/%s", names[i]);
		assert_true(walk(in_folder(path)));
		assert_int_equal(open_node(walk(in_folder(path)), O_RDONLY, &handle), EACCES);
		assert_int_equal(open_node(walk(in_folder(path)), O_RDWR, &handle), EACCES);
		assert_int_equal(create("rw", names[i], O_RDWR, 0644, &handle), EACCES);
	}
	assert_int_equal(open_node(walk("/dev/null"), O_RDONLY, &handle), EACCES);
	assert_int_equal(open_node(walk("/dev/zero"), O_RDONLY, &handle), EACCES);
	assert_int_equal(ask(FUSE_MKNOD, walk(in_folder("rw")), &device, sizeof(device), "null"),
			 EPERM);
	assert_int_equal(entries(walk(in_folder("rw")), FUSE_READDIR), 2);
}

static void a_file_that_exists_is_opened_by_create_as_it_is(void **unused)
{
	u64 node, handle;

	(void)unused;
	put_file("rw/file", 0640);
	node = walk(in_folder("rw/file"));
	assert_int_equal(create("rw", "file", O_RDWR | O_EXCL, 0666, &handle), EEXIST);
	assert_int_equal(create("rw", "file", O_RDWR, 0666, &handle), 0);
	assert_int_equal(read_node(node, handle, 100), 0);
	assert_int_equal(answer->len - sizeof(*answer), 7);
	assert_int_equal(host_mode("rw/file"), 0640);
	assert_int_equal(release(node, handle), 0);
	assert_int_equal(create("rw", "file", O_RDWR | O_TRUNC, 0666, &handle), 0);
	assert_int_equal(size_of(node), 0);
	assert_int_equal(release(node, handle), 0);
}

/* --- set-id bits --- */

static void set_id_bits_are_not_shown(void **unused)
{
	(void)unused;
	put_file("both", 06755);
	put_file("rw/user", 04711);
	assert_int_equal(mode_of(walk(in_folder("both")), -1), S_IFREG | 0755);
	assert_int_equal(mode_of(walk(in_folder("rw/user")), -1), S_IFREG | 0711);
	walk(in_folder("both"));
	assert_int_equal(((const struct fuse_entry_out *)body)->attr.mode, S_IFREG | 0755);
}

static void set_id_bits_are_not_made(void **unused)
{
	struct fuse_mknod_in node = { .mode = S_IFREG | 06755 };
	struct fuse_mkdir_in made = { .mode = 07777 };
	u64 handle, rw = walk(in_folder("rw"));

	(void)unused;
	assert_int_equal(create("rw", "created", O_RDWR, S_IFREG | 06755, &handle), 0);
	assert_int_equal(host_mode("rw/created"), 0755);
	assert_int_equal(release(walk(in_folder("rw/created")), handle), 0);
	assert_int_equal(ask(FUSE_MKNOD, rw, &node, sizeof(node), "node"), 0);
	assert_int_equal(host_mode("rw/node"), 0755);
	assert_int_equal(ask(FUSE_MKDIR, rw, &made, sizeof(made), "folder"), 0);
	assert_int_equal(host_mode("rw/folder"), 01777);
	assert_int_equal(set(walk(in_folder("rw/node")),
			     (struct fuse_setattr_in){ .valid = FATTR_MODE, .mode = 06711 }),
			 0);
	assert_int_equal(host_mode("rw/node"), 0711);
}

/* The guest does not see that a folder hands its group on, and so cannot ask to keep it. */
static void a_folder_keeps_its_group_bit(void **unused)
{
	(void)unused;
	assert_int_equal(mkdir(in_folder("rw/team"), 0755), 0);
	assert_int_equal(chmod(in_folder("rw/team"), 02755), 0);
	assert_int_equal(set(walk(in_folder("rw/team")),
			     (struct fuse_setattr_in){ .valid = FATTR_MODE, .mode = 04700 }),
			 0);
	assert_int_equal(host_mode("rw/team"), 02700);
}

/* --- files without a name --- */

/* Everything that can be done with an open file, by a handle and by its node alone. */
static void assert_works(u64 node, u64 handle)
{
	assert_true(S_ISREG(mode_of(node, handle)));
	assert_true(S_ISREG(mode_of(node, -1)));
	assert_int_equal(set(node, (struct fuse_setattr_in){ .valid = FATTR_SIZE | FATTR_FH,
							     .fh = handle,
							     .size = 5 }),
			 0);
	assert_int_equal(size_of(node), 5);
	assert_int_equal(set(node, (struct fuse_setattr_in){ .valid = FATTR_MODE, .mode = 0600 }),
			 0);
	assert_int_equal(mode_of(node, -1), S_IFREG | 0600);
	assert_int_equal(write_node(node, handle, "words"), 0);
	assert_int_equal(read_node(node, handle, 100), 0);
	assert_string_equal(body, "words");
}

static void an_unlinked_file_lives_as_long_as_any_handle(void **unused)
{
	enum { HANDLES = 5 };
	u64 node, handle[HANDLES], again;

	(void)unused;
	for (u32 last = 0; last < HANDLES; last++) {
		put_file("rw/file", 0644);
		node = walk(in_folder("rw/file"));
		for (u32 i = 0; i < HANDLES; i++)
			assert_int_equal(open_node(node, O_RDWR, &handle[i]), 0);
		assert_int_equal(ask(FUSE_UNLINK, walk(in_folder("rw")), NULL, 0, "file"), 0);
		for (u32 i = 0; i < HANDLES; i++)
			if (i != last) {
				assert_works(node, handle[i]);
				assert_int_equal(release(node, handle[i]), 0);
				assert_works(node, handle[last]);
			}
		assert_int_equal(open_node(node, O_RDWR, &again), 0); /* /proc/self/fd/N there */
		assert_int_equal(release(node, handle[last]), 0);
		assert_works(node, again);
		assert_int_equal(release(node, again), 0);
		assert_int_equal(mode_of(node, -1), -ESTALE);
	}
}

static void a_file_that_was_replaced_is_not_the_new_one(void **unused)
{
	struct {
		struct fuse_rename_in in;
		char names[8];
	} rename = { .names = "new\0old" };
	u64 node, first, second;

	(void)unused;
	put_file("rw/old", 0644);
	put_file("rw/new", 0600);
	node = walk(in_folder("rw/old"));
	assert_int_equal(open_node(node, O_RDWR, &first), 0);
	assert_int_equal(open_node(node, O_RDONLY, &second), 0);
	rename.in.newdir = walk(in_folder("rw"));
	assert_int_equal(ask(FUSE_RENAME, rename.in.newdir, &rename, sizeof(rename), NULL), 0);
	assert_int_equal(mode_of(node, -1), S_IFREG | 0644);
	assert_int_equal(mode_of(walk(in_folder("rw/old")), -1), S_IFREG | 0600);
	assert_int_equal(release(node, first), 0);
	assert_int_equal(mode_of(node, second), S_IFREG | 0644);
	/* What is left is a handle for reading. */
	assert_int_equal(set(node, (struct fuse_setattr_in){ .valid = FATTR_SIZE }), EROFS);
	assert_int_equal(write_node(node, second, "words"), EBADF);
	assert_int_equal(release(node, second), 0);
}

/* Linux forgets a node when nothing uses it; this guest forgets one that it has open. */
static void a_node_that_is_open_is_not_forgotten(void **unused)
{
	struct fuse_forget_in forget = { .nlookup = ~0ull };
	struct request request = { .in = in };
	struct fuse_in_header header = { .opcode = FUSE_FORGET };
	u64 node, handle;

	(void)unused;
	put_file("rw/file", 0644);
	node = header.nodeid = walk(in_folder("rw/file"));
	assert_int_equal(open_node(node, O_RDWR, &handle), 0);
	memcpy(in, &header, sizeof(header));
	memcpy(in + sizeof(header), &forget, sizeof(forget));
	request.in_size = sizeof(header) + sizeof(forget);
	assert_int_equal(fuse_serve(&share, &request), 0);
	assert_int_not_equal(look_up(walk(in_folder("rw")), "another"), node);
	assert_works(node, handle);
	assert_int_equal(release(node, handle), 0);
	assert_int_equal(mode_of(node, -1), -ESTALE);
}

static void a_handle_belongs_to_its_node(void **unused)
{
	u64 mine, other, handle;

	(void)unused;
	put_file("rw/mine", 0644);
	put_file("other", 0644);
	mine = walk(in_folder("rw/mine"));
	other = walk(in_folder("other"));
	assert_int_equal(open_node(mine, O_RDWR, &handle), 0);
	assert_int_equal(mode_of(other, handle), -EBADF);
	assert_int_equal(set(other, (struct fuse_setattr_in){ .valid = FATTR_MODE | FATTR_FH,
							      .fh = handle,
							      .mode = 0777 }),
			 EBADF);
	assert_int_equal(release(other, handle), EBADF);
	assert_int_equal(release(mine, handle), 0);
}

#define SHARE_TEST(name) cmocka_unit_test_setup_teardown(name, make, take_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SHARE_TEST(interfaces_of_the_kernel_are_empty_folders),
		SHARE_TEST(they_are_so_wherever_they_are_mounted),
		SHARE_TEST(a_node_is_judged_when_it_is_used),
		SHARE_TEST(pipes_sockets_and_devices_are_listed_but_not_opened),
		SHARE_TEST(a_file_that_exists_is_opened_by_create_as_it_is),
		SHARE_TEST(set_id_bits_are_not_shown),
		SHARE_TEST(set_id_bits_are_not_made),
		SHARE_TEST(a_folder_keeps_its_group_bit),
		SHARE_TEST(an_unlinked_file_lives_as_long_as_any_handle),
		SHARE_TEST(a_file_that_was_replaced_is_not_the_new_one),
		SHARE_TEST(a_node_that_is_open_is_not_forgotten),
		SHARE_TEST(a_handle_belongs_to_its_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
