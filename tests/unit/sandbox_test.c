// SPDX-License-Identifier: MIT
/*
 * What a confined file server can still do, and what ends it. Each case is a process of its own: a
 * sandbox is for good.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/sandbox.h"
#include "unit/share_guest.h"

#define EXIT_SKIP 4 /* of tests/run */

static char folder[] = "/tmp/vpmu-sandbox-XXXXXX";
static gid_t group; /* asking for it is no call of a file server */

/* --- processes --- */

/* Runs a case in a process whose stderr goes to `said`; returns its status. A case returns 0, or
 * the line at which something was not as it should be. */
static int run(int (*confine)(void), int (*attempt)(void), char said[256])
{
	int ends[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (!pid) {
		dup2(ends[1], 2);
		alarm(20);
		_exit(confine() ? 99 : attempt());
	}
	close(ends[1]);
	n = read(ends[0], said, 255);
	said[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int serve_nothing_to_write(void)
{
	umask(0);
	return chdir(folder) || !guest_start(NULL, 0) || sandbox_serve_files(NULL, 0);
}

static int serve_with_rw(void)
{
	static char path[sizeof(folder) + 3];
	static const char *const writable[] = { path };

	snprintf(path, sizeof(path), "%s/rw", folder + 1);
	umask(0);
	return chdir(folder) || !guest_start(writable, 1) || sandbox_serve_files(writable, 1);
}

static int read_only(void)
{
	return chdir(folder) || sandbox_read_only();
}

/* In a case: its line, if an expression is false. */
#define EXPECT(expression)                         \
	do {                                       \
		if (!(expression))                 \
			return __LINE__ & 63 ?: 1; \
	} while (0)

static void assert_fine(int (*confine)(void), int (*attempt)(void))
{
	char said[256];

	assert_int_equal(run(confine, attempt, said), 0);
	assert_string_equal(said, "");
}

/* --- what is left --- */

static int can_read(void)
{
	char byte;
	int fd = open("file", O_RDONLY);

	EXPECT(fd >= 0 && read(fd, &byte, 1) == 1);
	EXPECT(open("/etc/passwd", O_RDONLY) >= 0);
	EXPECT(open("/", O_RDONLY | O_DIRECTORY) >= 0);
	return 0;
}

static int cannot_write_at_all(void)
{
	EXPECT(open("file", O_WRONLY) < 0 && errno == EACCES);
	EXPECT(open("rw/file", O_RDWR) < 0 && errno == EACCES);
	EXPECT(open("rw/file", O_RDONLY | O_TRUNC) < 0 && errno == EACCES);
	EXPECT(open("rw/new", O_RDWR | O_CREAT, 0600) < 0 && errno == EACCES);
	return 0;
}

static int can_write_in_rw_only(void)
{
	EXPECT(open("rw/file", O_RDWR) >= 0);
	EXPECT(open("rw/new", O_RDWR | O_CREAT | O_EXCL, 0600) >= 0);
	EXPECT(!mkdirat(AT_FDCWD, "rw/folder", 0700));
	EXPECT(!renameat2(AT_FDCWD, "rw/new", AT_FDCWD, "rw/folder/moved", 0));
	EXPECT(!linkat(AT_FDCWD, "rw/folder/moved", AT_FDCWD, "rw/second", 0));
	EXPECT(!unlinkat(AT_FDCWD, "rw/second", 0));
	EXPECT(!truncate("rw/folder/moved", 10));
	EXPECT(!unlinkat(AT_FDCWD, "rw/folder/moved", 0));
	EXPECT(!unlinkat(AT_FDCWD, "rw/folder", AT_REMOVEDIR));
	EXPECT(open("file", O_WRONLY) < 0 && errno == EACCES);
	EXPECT(open("new", O_RDWR | O_CREAT, 0600) < 0 && errno == EACCES);
	EXPECT(unlinkat(AT_FDCWD, "file", 0) < 0 && errno == EACCES);
	EXPECT(linkat(AT_FDCWD, "file", AT_FDCWD, "rw/link", 0) < 0);
	EXPECT(renameat2(AT_FDCWD, "rw/file", AT_FDCWD, "out", 0) < 0);
	return 0;
}

static void want_landlock(void)
{
	if (!sandbox_landlock()) {
		print_message("skipped: Landlock is not in this kernel\n");
		skip();
	}
}

static void a_server_reads_everywhere(void **unused)
{
	(void)unused;
	assert_fine(serve_nothing_to_write, can_read);
	assert_fine(serve_with_rw, can_read);
	assert_fine(read_only, can_read);
}

static void a_server_opens_for_writing_what_is_shared(void **unused)
{
	(void)unused;
	want_landlock();
	assert_fine(serve_nothing_to_write, cannot_write_at_all);
	assert_fine(serve_with_rw, can_write_in_rw_only);
}

static int can_write_what_has_no_name(void)
{
	int fd = memfd_create("ram", MFD_CLOEXEC);
	char path[32];

	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	EXPECT(open(path, O_RDWR) >= 0);
	EXPECT(open("/dev/null", O_RDWR) >= 0);
	EXPECT(!fcntl(open("/dev/null", O_RDONLY), F_SETFL, O_NONBLOCK)); /* any system call */
	return cannot_write_at_all();
}

static void qemu_opens_for_writing_what_has_no_name(void **unused)
{
	(void)unused;
	want_landlock();
	assert_fine(read_only, can_write_what_has_no_name);
}

/* --- requests --- */

static int serves_requests_that_read(void)
{
	const struct fuse_init_in init = { .major = FUSE_KERNEL_VERSION };
	u64 file = guest_walk("/etc/passwd"), link = guest_walk("/proc"), handle;

	EXPECT(!guest_ask(FUSE_INIT, FUSE_ROOT_ID, &init, sizeof(init), NULL));
	EXPECT(!guest_ask(FUSE_STATFS, FUSE_ROOT_ID, NULL, 0, NULL));
	EXPECT(guest_mode(link, -1) == (S_IFDIR | 0555));
	EXPECT(!guest_open(file, O_RDONLY, &handle));
	EXPECT(!guest_read(file, handle, 100));
	EXPECT(S_ISREG(guest_mode(file, handle)));
	EXPECT(!guest_release(file, handle));
	EXPECT(guest_entries(FUSE_ROOT_ID, FUSE_READDIR) > 3);
	EXPECT(guest_entries(FUSE_ROOT_ID, FUSE_READDIRPLUS) > 3);
	return 0;
}

/* All of a SETATTR at once. */
static int sets_everything(u64 node, u64 handle)
{
	return guest_set_attributes(
		node,
		(struct fuse_setattr_in){ .valid = FATTR_MODE | FATTR_UID | FATTR_GID | FATTR_SIZE |
						   FATTR_ATIME | FATTR_MTIME | FATTR_FH,
					  .fh = handle,
					  .mode = 0640,
					  .uid = geteuid(),
					  .gid = group,
					  .size = 3 });
}

static int serves_requests_that_change(void)
{
	const struct fuse_mknod_in pipe = { .mode = S_IFIFO | 0600 };
	const struct fuse_mkdir_in made = { .mode = 0700 };
	char path[sizeof(folder) + 3];
	struct fuse_fallocate_in reserve = { .length = 4096 };
	struct fuse_fsync_in sync = { 0 }, sync_data = { .fsync_flags = FUSE_FSYNC_FDATASYNC };
	struct fuse_link_in link = { 0 };
	u64 rw, file, handle;

	snprintf(path, sizeof(path), "%s/rw", folder);
	rw = guest_walk(path);
	EXPECT(!guest_create(rw, "one", O_RDWR | O_EXCL, 0600, &handle));
	file = guest_look_up(rw, "one");
	EXPECT(!guest_write(file, handle, "words"));
	EXPECT(!sets_everything(file, handle));
	reserve.fh = sync.fh = sync_data.fh = handle;
	EXPECT(!guest_ask(FUSE_FALLOCATE, file, &reserve, sizeof(reserve), NULL));
	EXPECT(!guest_ask(FUSE_FSYNC, file, &sync, sizeof(sync), NULL));
	EXPECT(!guest_ask(FUSE_FSYNC, file, &sync_data, sizeof(sync_data), NULL));
	link.oldnodeid = file;
	EXPECT(!guest_ask(FUSE_LINK, rw, &link, sizeof(link), "two"));
	EXPECT(!guest_rename(rw, "one", rw, "three", 0));
	EXPECT(!guest_rename(rw, "three", rw, "four", RENAME_NOREPLACE));
	EXPECT(!guest_ask(FUSE_UNLINK, rw, NULL, 0, "two"));
	EXPECT(!guest_ask(FUSE_UNLINK, rw, NULL, 0, "four"));
	EXPECT(!sets_everything(file, handle)); /* it has no name now */
	EXPECT(!guest_release(file, handle));
	EXPECT(!guest_ask(FUSE_MKNOD, rw, &pipe, sizeof(pipe), "pipe"));
	EXPECT(!guest_ask(FUSE_UNLINK, rw, NULL, 0, "pipe"));
	EXPECT(!guest_ask(FUSE_SYMLINK, rw, "link", 5, "target"));
	EXPECT(!guest_ask(FUSE_READLINK, guest_look_up(rw, "link"), NULL, 0, NULL));
	EXPECT(!guest_ask(FUSE_UNLINK, rw, NULL, 0, "link"));
	EXPECT(!guest_ask(FUSE_MKDIR, rw, &made, sizeof(made), "folder"));
	EXPECT(!guest_ask(FUSE_RMDIR, rw, NULL, 0, "folder"));
	return 0;
}

static void a_confined_server_serves_every_request(void **unused)
{
	(void)unused;
	assert_fine(serve_nothing_to_write, serves_requests_that_read);
	assert_fine(serve_with_rw, serves_requests_that_read);
	assert_fine(serve_with_rw, serves_requests_that_change);
}

/* --- what is gone --- */

static int make_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}

static int run_program(void)
{
	return execl("/bin/true", "true", NULL);
}

/* Not fork(): in newer versions of glibc it begins with another call, rt_sigprocmask(). */
static int make_process(void)
{
	return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0) < 0;
}

static int trace(void)
{
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0;
}

static int signal_parent(void)
{
	return kill(getppid(), 0);
}

static int execute_data(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
	       MAP_FAILED;
}

static int change_descriptor(void)
{
	return fcntl(2, F_SETFL, O_NONBLOCK);
}

static int mount_call(void)
{
	return syscall(SYS_mount, "none", folder, "tmpfs", 0, NULL) != 0;
}

static int remove_file(void)
{
	return unlinkat(AT_FDCWD, "rw/file", 0);
}

/* And it says which call it was. */
static void assert_ended(int (*confine)(void), int (*attempt)(void), int call)
{
	char said[256], expected[256];

	assert_int_equal(run(confine, attempt, said), 1 << 8);
	snprintf(expected, sizeof(expected),
		 "vpmu: the file server was ended: it made system call %d, which is none of a file "
		 "server's\n",
		 call);
	assert_string_equal(said, expected);
}

static void any_other_call_ends_a_server_with_a_message(void **unused)
{
	static const struct {
		int (*attempt)(void);
		int call;
	} cases[] = {
		{ make_socket, SYS_socket },	{ run_program, SYS_execve },
		{ make_process, SYS_clone },	{ trace, SYS_ptrace },
		{ signal_parent, SYS_getppid }, { execute_data, SYS_mmap },
		{ mount_call, SYS_mount },	{ change_descriptor, SYS_fcntl },
	};

	(void)unused;
	for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_ended(serve_nothing_to_write, cases[i].attempt, cases[i].call);
		assert_ended(serve_with_rw, cases[i].attempt, cases[i].call);
	}
}

static void a_server_without_a_shared_folder_has_no_calls_that_change_files(void **unused)
{
	(void)unused;
	assert_ended(serve_nothing_to_write, remove_file, SYS_unlinkat);
}

/* The 32-bit entry would number calls otherwise. */
static int old_entry(void)
{
	int result;

	asm volatile("int $0x80"
		     : "=a"(result)
		     : "a"(20 /* getpid */)
		     : "memory", "r8", "r9", "r10", "r11");
	return result < 0;
}

static int confine_nothing(void)
{
	return 0;
}

static void calls_of_another_abi_end_it_too(void **unused)
{
	char said[256];
	int status;

	(void)unused;
	if (run(confine_nothing, old_entry, said)) {
		print_message("skipped: this kernel has no 32-bit system calls\n");
		skip();
	}
	status = run(serve_nothing_to_write, old_entry, said);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

/* --- privileges --- */

/* All bits where there is none. */
static u64 number_in_status(const char *name, const char *status)
{
	const char *found = strstr(status, name);

	return found ? strtoull(found + strlen(name), NULL, 16) : ~0ull;
}

/* These and no others, also of those beyond the 32nd. */
static int has_privileges(u64 capabilities)
{
	static char status[8192];
	int fd = open("/proc/self/status", O_RDONLY);

	EXPECT(fd >= 0 && read(fd, status, sizeof(status) - 1) > 0);
	EXPECT(number_in_status("NoNewPrivs:", status) == 1);
	EXPECT(number_in_status("\nSeccomp:", status) == 2);
	EXPECT(!(number_in_status("CapEff:", status) & ~capabilities));
	EXPECT(!(number_in_status("CapPrm:", status) & ~capabilities));
	EXPECT(number_in_status("CapInh:", status) == 0);
	return 0;
}

static int has_those_to_read(void)
{
	return has_privileges(1u << CAP_DAC_READ_SEARCH);
}

static int has_those_to_write(void)
{
	return has_privileges(1u << CAP_DAC_READ_SEARCH | 1u << CAP_DAC_OVERRIDE | 1u << CAP_CHOWN |
			      1u << CAP_FOWNER);
}

static void a_server_keeps_the_capabilities_that_reach_files(void **unused)
{
	(void)unused;
	assert_fine(serve_nothing_to_write, has_those_to_read);
	assert_fine(serve_with_rw, has_those_to_write);
}

static int reads_files_of_others(void)
{
	char byte;
	int fd = open("others", O_RDONLY);

	EXPECT(fd >= 0 && read(fd, &byte, 1) == 1);
	return 0;
}

static void root_still_serves_files_of_all_users(void **unused)
{
	(void)unused;
	if (geteuid()) {
		print_message("skipped: only root has files of others\n");
		skip();
	}
	assert_fine(serve_nothing_to_write, reads_files_of_others);
	assert_fine(serve_with_rw, reads_files_of_others);
}

/* --- the host --- */

static int make_folder(void **unused)
{
	char line[256];

	(void)unused;
	group = getegid();
	if (!mkdtemp(folder))
		return -1;
	snprintf(
		line, sizeof(line),
		"cd %s && mkdir rw && echo x >file && echo y >rw/file && echo z >others && chmod 0 "
		"others && { [ \"$(id -u)\" != 0 ] || chown 65534 others; }",
		folder);
	return system(line);
}

static int remove_folder(void **unused)
{
	char line[64];

	(void)unused;
	snprintf(line, sizeof(line), "rm -rf %s", folder);
	return system(line);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_confined_server_serves_every_request),
		cmocka_unit_test(a_server_reads_everywhere),
		cmocka_unit_test(a_server_opens_for_writing_what_is_shared),
		cmocka_unit_test(qemu_opens_for_writing_what_has_no_name),
		cmocka_unit_test(any_other_call_ends_a_server_with_a_message),
		cmocka_unit_test(a_server_without_a_shared_folder_has_no_calls_that_change_files),
		cmocka_unit_test(calls_of_another_abi_end_it_too),
		cmocka_unit_test(a_server_keeps_the_capabilities_that_reach_files),
		cmocka_unit_test(root_still_serves_files_of_all_users),
	};

	if (!guest_can_confine())
		return EXIT_SKIP;
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
