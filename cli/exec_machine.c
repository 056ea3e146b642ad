// SPDX-License-Identifier: MIT
/*
 * The machine: QEMU under `vpmu kvm`, and the server of the host's files, a process of its own.
 * Nothing of it has a name in the file system: sockets and files are inherited descriptors, and
 * both processes die with this one, whatever ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec.h"
#include "exec/share.h"

#define QEMU "qemu-system-x86_64"

#define MAX_WORDS 80

struct line {
	char *word[MAX_WORDS + 1];
	u32 count;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	if (line->count < MAX_WORDS && vasprintf(&line->word[line->count], fmt, args) >= 0)
		line->count++;
	va_end(args);
}

static void add_words(struct line *line, const char *const *words)
{
	for (; *words; words++)
		add(line, "%s", *words);
}

/* What of a machine type is its own: options of -M, the names of its virtio devices, and what Linux
 * need not look for on it. */
static const struct machine_type {
	const char *name, *options, *suffix, *append;
} types[] = {
	{ "microvm", "microvm,pit=off,pic=off,rtc=off,x-option-roms=off", "device", "" },
	{ "q35", "q35,smm=off,vmport=off", "pci", "" },
};

static const struct machine_type *find_type(const char *name)
{
	for (u32 i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

/* Descriptors of ours that QEMU inherits. */
struct inherited {
	int link, share, initramfs, console;
};

static void add_machine(struct line *line, const struct exec_options *options)
{
	const struct machine_type *type = find_type(options->machine);
	static const char *const plain[] = { "-nodefaults", "-no-user-config",
					     "-no-reboot",  "-display",
					     "none",	    NULL };

	add_words(line, plain);
	add(line, "-M");
	add(line, "%s,accel=kvm,memory-backend=ram", type->options);
	add(line, "-cpu");
	add(line, "host,migratable=off");
	add(line, "-smp");
	add(line, "%u", options->cpus);
	add(line, "-m");
	add(line, "%u", options->memory);
	add(line, "-object");
	add(line, "memory-backend-memfd,id=ram,size=%uM,share=on", options->memory);
	add(line, "-global");
	add(line, "virtio-mmio.force-legacy=false");
}

static void add_devices(struct line *line, const struct exec_options *options,
			const struct inherited *fds)
{
	const char *suffix = find_type(options->machine)->suffix;

	add(line, "-chardev");
	add(line, "socket,id=link,fd=%d", fds->link);
	add(line, "-device");
	add(line, "virtio-serial-%s,max_ports=2", suffix);
	add(line, "-device");
	add(line, "virtserialport,chardev=link,name=vpmu");
	add(line, "-chardev");
	add(line, "socket,id=files,fd=%d", fds->share);
	add(line, "-device");
	add(line, "vhost-user-fs-%s,chardev=files,tag=root", suffix);
	add(line, "-chardev");
	add(line, "file,id=console,path=/dev/fd/%d,append=on", options->verbose ? 2 : fds->console);
	add(line, "-serial");
	add(line, "chardev:console");
	if (options->network) {
		add(line, "-netdev");
		add(line, "user,id=net");
		add(line, "-device");
		add(line, "virtio-net-%s,netdev=net", suffix);
	}
}

static void add_kernel(struct line *line, const struct exec_options *options, const char *image,
		       const struct inherited *fds)
{
	add(line, "-kernel");
	add(line, "%s", image);
	add(line, "-initrd");
	add(line, "/dev/fd/%d", fds->initramfs);
	add(line, "-append");
	add(line,
	    "console=ttyS0 %s panic=-1 nowatchdog nokaslr mitigations=off cryptomgr.notests "
	    "random.trust_cpu=on rcupdate.rcu_expedited=1 audit=0 selinux=0 apparmor=0%s",
	    options->verbose ? "ignore_loglevel" : "quiet", find_type(options->machine)->append);
}

static void print_line(FILE *out, const struct line *line)
{
	for (u32 i = 0; i < line->count; i++) {
		bool quote = strpbrk(line->word[i], " '\"\\$&;()<>|*?") || !line->word[i][0];

		fprintf(out, "%s%s%s%s", i ? " " : "", quote ? "'" : "", line->word[i],
			quote ? "'" : "");
	}
	fputc('\n', out);
}

/* In a child: it goes when we go, and the keyboard's signals are not for it. */
static void attach_to_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	setsid();
}

static void keep_open(int fd)
{
	fcntl(fd, F_SETFD, 0);
}

static pid_t start_qemu(const struct line *line, const struct inherited *fds, bool verbose)
{
	pid_t parent = getpid(), pid = fork();
	int null;

	if (pid)
		return pid;
	attach_to_parent(parent);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, 0);
	dup2(null, 1);
	if (!verbose)
		dup2(fds->console, 2);
	keep_open(fds->link);
	keep_open(fds->share);
	keep_open(fds->initramfs);
	keep_open(fds->console);
	execv("/proc/self/exe", line->word);
	_exit(STATUS_BROKEN);
}

static pid_t start_share(int socket, const struct exec_options *options)
{
	const char *writable[MAX_SHARED];
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid;
	attach_to_parent(parent);
	for (u32 i = 0; i < options->shared_count; i++)
		writable[i] = options->shared[i] + 1; /* without its slash */
	_exit(share_serve(socket, writable, options->shared_count) ? 1 : 0);
}

static bool is_in_path(const char *name)
{
	char *list = strdup(getenv("PATH") ?: "/usr/bin:/bin"), *rest = list, *folder;
	char path[PATH_MAX];
	bool found = false;

	while (!found && (folder = strsep(&rest, ":"))) {
		snprintf(path, sizeof(path), "%s/%s", folder, name);
		found = !access(path, X_OK);
	}
	free(list);
	return found;
}

static void make_line(struct line *line, const struct exec_options *options, const char *image,
		      const struct inherited *fds)
{
	add(line, "vpmu");
	add(line, "kvm");
	if (options->cpu) {
		add(line, "--cpu");
		add(line, "%s", options->cpu);
	}
	add(line, QEMU);
	add_machine(line, options);
	add_devices(line, options, fds);
	add_kernel(line, options, image, fds);
}

static bool make_descriptors(const struct exec_options *options, const struct exec_kernel *kernel,
			     const char *init, struct inherited *fds, int ours[2])
{
	int link[2], share[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, share))
		return false;
	fcntl(link[0], F_SETFL, O_NONBLOCK);
	ours[0] = link[0];
	ours[1] = share[0];
	fds->link = link[1];
	fds->share = share[1];
	fds->console = memfd_create("console", MFD_CLOEXEC);
	fds->initramfs = initramfs_make(init, kernel->modules, options->network);
	return fds->console >= 0 && fds->initramfs >= 0;
}

int machine_start(const struct exec_options *options, struct exec_machine *machine)
{
	struct exec_kernel kernel;
	struct inherited fds;
	struct line line = { .count = 0 };
	char init[PATH_MAX];
	int status, ours[2];

	if (!find_type(options->machine))
		return failure(STATUS_USAGE, "there is no machine '%s': microvm or q35",
			       options->machine);
	if (!find_part("vpmu-init", init))
		return failure(STATUS_BROKEN,
			       "vpmu-init is not where it belongs, beside vpmu or in "
			       "../lib/vpmu: run 'make' or 'make install'");
	if (!is_in_path(QEMU))
		return failure(STATUS_BROKEN,
			       "there is no " QEMU ": run 'apt install qemu-system-x86'");
	status = kernel_find(options->kernel, &kernel);
	if (status)
		return status;
	if (!make_descriptors(options, &kernel, init, &fds, ours))
		return failure(STATUS_BROKEN, "cannot prepare a guest: %s", strerror(errno));
	make_line(&line, options, kernel.image, &fds);
	if (options->dry_run) {
		print_line(stdout, &line);
		return STATUS_OK;
	}
	if (options->verbose)
		print_line(stderr, &line);
	machine->share = start_share(ours[1], options);
	machine->qemu = start_qemu(&line, &fds, options->verbose);
	machine->link = ours[0];
	machine->console = fds.console;
	close(ours[1]);
	close(fds.link);
	close(fds.share);
	close(fds.initramfs);
	return machine->qemu > 0 && machine->share > 0
		       ? STATUS_OK
		       : failure(STATUS_BROKEN, "%s", strerror(errno));
}

static void stop(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void machine_stop(struct exec_machine *machine)
{
	stop(machine->qemu);
	stop(machine->share);
}

void machine_explain(const struct exec_machine *machine)
{
	char text[4096];
	off_t end = lseek(machine->console, 0, SEEK_END), from = end > 4096 ? end - 4096 : 0;
	ssize_t n = pread(machine->console, text, sizeof(text), from);

	if (n > 0)
		fwrite(text, 1, n, stderr);
}
