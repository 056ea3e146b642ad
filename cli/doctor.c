// SPDX-License-Identifier: MIT
/*
 * vpmu doctor: what this host has, what vpmu makes of it, and the command that fixes what is
 * missing. Ends with a guest that counts a loop whose length is known.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/version.h"
#include "cli/base/monotonic.h"
#include "cli/cli.h"
#include "engine/code_memory.h"
#include "exec/exec.h"
#include "exec/sandbox.h"
#include "vm/cpuid/cpuid.h"
#include "x86/models.h"

#define IN_GUEST "--in-guest"

/* --- lines of the report --- */

static u32 problems;

__attribute__((format(printf, 2, 3))) static void good(const char *what, const char *fmt, ...)
{
	va_list args;

	printf("  ok    %-14s ", what);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
}

/* needed: vpmu does not work without it. */
static void missing(bool needed, const char *what, const char *why, const char *fix)
{
	printf("  %-5s %-14s %s\n%*s%s\n", needed ? "FIX" : "note", what, why, 24, "", fix);
	problems += needed;
}

#define QUOTED_MAX (4 * PATH_MAX + 3)

/* A word for the shell: between ', in which a ' is '\\''. */
static const char *quote(const char *word, char quoted[QUOTED_MAX])
{
	char *to = quoted;

	*to++ = '\'';
	for (; *word; word++)
		if (*word == '\'')
			to = stpcpy(to, "'\\''");
		else
			*to++ = *word;
	strcpy(to, "'");
	return quoted;
}

/* The first line that a command says, or false. */
static bool first_line(const char *command, char *line, u32 room)
{
	FILE *in = popen(command, "re");
	bool ok = in && fgets(line, room, in);

	if (in)
		pclose(in);
	if (ok)
		line[strcspn(line, "\n")] = '\0';
	return ok;
}

/* --- counting --- */

static int open_counter(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_HW_INSTRUCTIONS,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

/* Two instructions a turn. */
static void loop(u64 turns)
{
	asm volatile("1: dec %0\n\tjnz 1b" : "+r"(turns) : : "cc");
}

static u64 count_loop(int fd, u64 turns)
{
	u64 before = 0, after = 0;

	if (read(fd, &before, sizeof(before)) != sizeof(before))
		return 0;
	loop(turns);
	return read(fd, &after, sizeof(after)) == sizeof(after) ? after - before : 0;
}

#define TURNS 1000000ull

/* What two loops differ by is known exactly, whatever is counted around them. */
static int count_in_guest(void)
{
	int fd = open_counter();
	u64 once, twice;

	if (fd < 0)
		return failure(STATUS_BROKEN, "the guest has no counter: %s", strerror(errno));
	count_loop(fd, 1); /* so that nothing is done for the first time below */
	once = count_loop(fd, TURNS);
	twice = count_loop(fd, 2 * TURNS);
	printf("%llu\n", (unsigned long long)(twice - once));
	return STATUS_OK;
}

/* A line that is a number is the count; if there is none, the last message of vpmu is
 * the reason. */
static u64 hear_count(const char *command, char *reason, u32 room)
{
	FILE *in = popen(command, "re");
	u64 count = 0, number;
	char line[256], *end;

	while (in && fgets(line, sizeof(line), in)) {
		line[strcspn(line, "\n")] = '\0';
		number = strtoull(line, &end, 10);
		if (end > line && !*end)
			count = number;
		else if (!*reason || !strncmp(line, "vpmu: ", 6))
			snprintf(reason, room, "%s", line);
	}
	if (in)
		pclose(in);
	return count;
}

static void self_test(void)
{
	char self[PATH_MAX] = "", quoted[QUOTED_MAX], command[2 * QUOTED_MAX + 64];
	char reason[256] = "";
	u64 begun = monotonic_ms(), count;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return;
	quote(self, quoted);
	snprintf(command, sizeof(command), "%s exec --timeout 120 -- %s doctor " IN_GUEST " 2>&1",
		 quoted, quoted);
	if (isatty(1))
		printf("  ...   %-14s a guest counts a loop (the first one boots)\r", "self-test");
	fflush(stdout);
	count = hear_count(command, reason, sizeof(reason));
	if (count && count != 2 * TURNS)
		snprintf(reason, sizeof(reason), "a guest counted %llu instructions of %llu",
			 (unsigned long long)count, 2 * TURNS);
	if (count == 2 * TURNS)
		good("self-test", "a guest counted %llu instructions of %llu, in %.1f s",
		     (unsigned long long)count, 2 * TURNS, (monotonic_ms() - begun) / 1000.0);
	else
		missing(true, "self-test", *reason ? reason : "nothing was said",
			"vpmu exec -v -- true shows more");
}

/* --- what there is --- */

static void check_system(void)
{
	char script[PATH_MAX], quoted[QUOTED_MAX], command[QUOTED_MAX + 64], line[256];

	if (!find_part("vpmu-release", script))
		return; /* check_parts() says so */
	snprintf(command, sizeof(command), "%s --describe", quote(script, quoted));
	if (first_line(command, line, sizeof(line)))
		good("system", "%s", line);
}

static void check_processor(void)
{
	char name[256] = "";

	first_line("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo", name, sizeof(name));
	if (__builtin_cpu_supports("avx2"))
		good("processor", "%s", name);
	else
		missing(true, "processor", name, "AVX2 is needed; there is no way around that");
	good("models", "skylake icelake sapphirerapids milan genoa; nearest: %s",
	     cpuid_model(NULL)->name);
}

/* Translated code lies in a file in memory, which some policies do not let be executed. */
static void check_code_memory(void)
{
	static const char how[] = "look at vm.memfd_noexec and the security module's policy";
	struct code_memory memory;
	int r = code_memory_map(&memory, PAGE_SIZE, PAGE_SIZE);

	if (r)
		missing(true, "code memory", strerror(-r), how);
	else if (memory.is_anonymous)
		missing(false, "code memory",
			"no file in memory may be executed; vpmu works without", how);
	else
		good("code memory", "files in memory may be executed");
	code_memory_unmap(&memory);
}

static void check_host_pmu(void)
{
	int fd = open_counter();

	if (fd >= 0)
		good("host's PMU", "counts; guests of vpmu have one of their own");
	else
		good("host's PMU", "none for us (%s); guests of vpmu have one", strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void check_host_kvm(void)
{
	if (access("/dev/kvm", F_OK))
		good("/dev/kvm", "none, and none is needed");
	else
		good("/dev/kvm", "the kernel's%s; vpmu does not use it",
		     access("/dev/kvm", R_OK | W_OK) ? ", not for us" : "");
}

static void check_qemu(void)
{
	char line[256];

	if (!first_line("qemu-system-x86_64 --version 2>/dev/null", line, sizeof(line)))
		missing(true, "QEMU", "there is no qemu-system-x86_64",
			"apt install qemu-system-x86");
	else if (!first_line("qemu-system-x86_64 -sandbox " QEMU_SANDBOX " --version 2>/dev/null",
			     line, sizeof(line)))
		missing(true, "QEMU", "it has no -sandbox: it was built without seccomp",
			"apt install qemu-system-x86");
	else
		good("QEMU", "%s", line);
}

/* How the file server confines itself, tried in a process of its own: an errno. */
static int try_sandbox(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(sandbox_serve_files(NULL, 0));
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

static void check_sandbox(void)
{
	int error = try_sandbox(), abi = sandbox_landlock();
	char why[256];

	snprintf(why, sizeof(why), "it cannot confine itself: %s", strerror(error));
	if (error)
		missing(true, "file server", why,
			"a kernel with CONFIG_SECCOMP_FILTER; in a container, one that allows "
			"seccomp(2)");
	else if (abi)
		good("file server", "confined by no_new_privs, seccomp and Landlock (ABI %d)", abi);
	else
		good("file server",
		     "confined by no_new_privs and seccomp; Landlock is not in this kernel");
}

static void check_parts(void)
{
	static const char *const parts[] = { "libvpmu-kvm.so", "vpmu-init", "vpmu-kernel",
					     "vpmu-release" };
	char path[PATH_MAX];

	for (u32 i = 0; i < ARRAY_SIZE(parts); i++)
		if (find_part(parts[i], path))
			good(parts[i], "%s", path);
		else
			missing(true, parts[i], "not beside vpmu or in ../lib/vpmu",
				"make, or make install");
}

/* Whether apt knows the kernel's package; line: what is missing if not. */
static bool apt_knows_kernel(char *line, u32 room)
{
	char script[PATH_MAX], quoted[QUOTED_MAX], command[QUOTED_MAX + 64];
	char package[128], answer[256];

	snprintf(line, room, "its package in this release is unknown");
	if (!find_part("vpmu-release", script))
		return false;
	snprintf(command, sizeof(command), "%s kernel 6.12-cloud", quote(script, quoted));
	if (!first_line(command, package, sizeof(package)))
		return false;
	snprintf(line, room, "apt knows no %s", package);
	snprintf(command, sizeof(command), "apt-cache depends %s 2>/dev/null", package);
	return first_line(command, answer, sizeof(answer));
}

static void check_kernel(void)
{
	char folder[PATH_MAX], line[256];
	struct distrust distrust;
	struct statvfs st;

	if (kernel_is_kept("cloud", folder)) {
		if (trust_kernel(folder, &distrust))
			good("guest kernel", "%s", folder);
		else
			missing(true, "guest kernel", distrust.why, distrust.fix);
		return;
	}
	if (!apt_knows_kernel(line, sizeof(line)))
		missing(true, "guest kernel", line, "apt-get update, as root");
	else if (!first_line("command -v zstd >/dev/null && command -v xz >/dev/null && "
			     "command -v /sbin/depmod",
			     line, sizeof(line)))
		missing(true, "guest kernel", "cannot be unpacked",
			"apt install zstd xz-utils kmod");
	else if (!kernel_cache(folder) || statvfs(folder, &st))
		missing(true, "guest kernel", "there is no folder to keep it in",
			"export XDG_CACHE_HOME=FOLDER");
	else if (st.f_bavail * st.f_frsize < 500ull << 20)
		missing(true, "guest kernel", "less than 500 MB are free to keep it",
			"export XDG_CACHE_HOME=FOLDER, on another disk");
	else
		good("guest kernel", "will be fetched to %s on first use", folder);
}

/* Before the self-test, so that the user sees the progress and the self-test does not. */
static void fetch_kernel(void)
{
	char folder[PATH_MAX];
	struct exec_kernel kernel;

	fflush(stdout);
	if (!kernel_is_kept("cloud", folder) && kernel_find("cloud", &kernel))
		missing(true, "guest kernel", "it cannot be fetched; the reason is above",
			"vpmu exec -- true tries again");
}

static void check_perf(void)
{
	char line[256];

	if (first_line("perf --version 2>/dev/null", line, sizeof(line)))
		good("perf", "%s; guests run the host's", line);
	else
		missing(false, "perf", "there is none for guests to run", "apt install linux-perf");
}

/* Only where there is a libvirt: vpmu needs none. */
static void check_libvirt(void)
{
	char version[64], self[PATH_MAX] = "", launcher[PATH_MAX + 8];

	if (!first_line("virsh --version 2>/dev/null", version, sizeof(version)) ||
	    readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return;
	snprintf(launcher, sizeof(launcher), "%s-qemu", self);
	if (access(launcher, X_OK))
		missing(false, "libvirt", "there is no vpmu-qemu beside vpmu",
			"make, or make install");
	else
		good("libvirt", "%s; domains: <emulator>%s</emulator>", version, launcher);
}

static int run(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], IN_GUEST))
		return count_in_guest();
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		command_help(&command_doctor);
		return STATUS_OK;
	}
	if (argc > 1)
		return usage_error(&command_doctor, "cannot make sense of '%s'", argv[1]);
	puts("vpmu " VPMU_VERSION);
	check_system();
	check_processor();
	check_code_memory();
	check_host_pmu();
	check_host_kvm();
	check_parts();
	check_qemu();
	check_sandbox();
	check_kernel();
	check_perf();
	check_libvirt();
	if (!problems)
		fetch_kernel();
	if (!problems)
		self_test();
	puts(problems ? "Fix what is marked, then run vpmu doctor again."
		      : "Everything works. Try: vpmu exec -- perf stat -e instructions:u ls");
	return problems ? STATUS_BROKEN : STATUS_OK;
}

static void describe(void)
{
	puts("Says what the host has and what vpmu offers on it, names the command that fixes "
	     "what\n"
	     "is missing, and lets a guest count a loop whose length is known. Exit code 1 means\n"
	     "that something is to be fixed.");
}

const struct command command_doctor = {
	.name = "doctor",
	.synopsis = "",
	.summary = "Check what vpmu needs, and that guests count",
	.run = run,
	.describe = describe,
};
