// SPDX-License-Identifier: MIT
/*
 * The system calls of the file server, as a seccomp filter. A call that is not in the table ends
 * the process: it is either taken over, or runs on a libc whose calls are not in the table, and
 * the message names the one.
 */
#include "exec/sandbox_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum kind {
	ALWAYS,
	TO_CHANGE, /* only if a folder is shared for writing */
};

/* With some, one argument is looked at: it must have none of these bits, or be this number. */
enum check { ANY, NO_BITS, EQUALS };

static const struct rule {
	u32 call;
	enum kind kind;
	enum check check;
	u32 argument, value;
} rules[] = {
	/* the device: messages, guest memory, event descriptors */
	{ SYS_poll, ALWAYS, ANY, 0, 0 },
	{ SYS_ppoll, ALWAYS, ANY, 0, 0 },
	{ SYS_sched_yield, ALWAYS, ANY, 0, 0 },
	{ SYS_clock_gettime, ALWAYS, ANY, 0, 0 }, /* where the vDSO cannot tell */
	{ SYS_restart_syscall, ALWAYS, ANY, 0, 0 },
	{ SYS_recvmsg, ALWAYS, ANY, 0, 0 },
	{ SYS_recvfrom, ALWAYS, ANY, 0, 0 },
	{ SYS_sendto, ALWAYS, ANY, 0, 0 },
	{ SYS_read, ALWAYS, ANY, 0, 0 },
	{ SYS_write, ALWAYS, ANY, 0, 0 },
	{ SYS_futex, ALWAYS, EQUALS, 1, FUTEX_WAKE },
	{ SYS_mmap, ALWAYS, NO_BITS, 2, PROT_EXEC },
	{ SYS_munmap, ALWAYS, ANY, 0, 0 },
	/* libc: memory, the end */
	{ SYS_brk, ALWAYS, ANY, 0, 0 },
	{ SYS_mremap, ALWAYS, ANY, 0, 0 },
	{ SYS_madvise, ALWAYS, ANY, 0, 0 },
	{ SYS_getrandom, ALWAYS, ANY, 0, 0 },
	{ SYS_exit_group, ALWAYS, ANY, 0, 0 },
	/* reading */
	{ SYS_openat, ALWAYS, ANY, 0, 0 },
	{ SYS_openat2, ALWAYS, ANY, 0, 0 },
	{ SYS_close, ALWAYS, ANY, 0, 0 },
	{ SYS_fcntl, ALWAYS, EQUALS, 1, F_DUPFD_CLOEXEC },
	{ SYS_fstat, ALWAYS, ANY, 0, 0 },
	{ SYS_newfstatat, ALWAYS, ANY, 0, 0 },
	{ SYS_statx, ALWAYS, ANY, 0, 0 },
	{ SYS_fstatfs, ALWAYS, ANY, 0, 0 },
	{ SYS_readlinkat, ALWAYS, ANY, 0, 0 },
	{ SYS_lseek, ALWAYS, ANY, 0, 0 },
	{ SYS_preadv, ALWAYS, ANY, 0, 0 },
	{ SYS_getdents64, ALWAYS, ANY, 0, 0 },
	{ SYS_fsync, ALWAYS, ANY, 0, 0 },
	{ SYS_fdatasync, ALWAYS, ANY, 0, 0 },
	{ SYS_geteuid, ALWAYS, ANY, 0, 0 },
	/* changing */
	{ SYS_pwrite64, TO_CHANGE, ANY, 0, 0 },
	{ SYS_fallocate, TO_CHANGE, ANY, 0, 0 },
	{ SYS_truncate, TO_CHANGE, ANY, 0, 0 },
	{ SYS_chmod, TO_CHANGE, ANY, 0, 0 },
	{ SYS_fchmodat, TO_CHANGE, ANY, 0, 0 },
	{ SYS_fchownat, TO_CHANGE, ANY, 0, 0 },
	{ SYS_utimensat, TO_CHANGE, ANY, 0, 0 },
	{ SYS_mknodat, TO_CHANGE, ANY, 0, 0 },
	{ SYS_mkdirat, TO_CHANGE, ANY, 0, 0 },
	{ SYS_symlinkat, TO_CHANGE, ANY, 0, 0 },
	{ SYS_linkat, TO_CHANGE, ANY, 0, 0 },
	{ SYS_unlinkat, TO_CHANGE, ANY, 0, 0 },
	{ SYS_renameat, TO_CHANGE, ANY, 0, 0 }, /* glibc's renameat2() without flags */
	{ SYS_renameat2, TO_CHANGE, ANY, 0, 0 },
};

/* --- the program --- */

#define X32	    0x40000000u /* calls of the x32 ABI have this bit */
#define MAX_PROGRAM (8 + 5 * ARRAY_SIZE(rules))

struct program {
	struct sock_filter code[MAX_PROGRAM];
	u32 size;
};

static void put(struct program *program, struct sock_filter one)
{
	program->code[program->size++] = one;
}

#define LOAD(offset)	(struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)
#define RETURN(verdict) (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, verdict)
#define JUMP(how, value, yes, no) \
	(struct sock_filter) BPF_JUMP(BPF_JMP | BPF_##how | BPF_K, value, yes, no)

/* The number of the call is loaded, and still is if the rule is not about it. */
static void put_rule(struct program *program, const struct rule *rule)
{
	u32 argument =
		offsetof(struct seccomp_data, args) + 8 * rule->argument; /* its lower half */

	put(program, JUMP(JEQ, rule->call, 0, rule->check == ANY ? 1 : 4));
	if (rule->check == NO_BITS) {
		put(program, LOAD(argument));
		put(program, JUMP(JSET, rule->value, 0, 1));
		put(program, RETURN(SECCOMP_RET_TRAP));
	} else if (rule->check == EQUALS) {
		put(program, LOAD(argument));
		put(program, JUMP(JEQ, rule->value, 1, 0));
		put(program, RETURN(SECCOMP_RET_TRAP));
	}
	put(program, RETURN(SECCOMP_RET_ALLOW));
}

static void make_program(struct program *program, bool changes)
{
	put(program, LOAD(offsetof(struct seccomp_data, arch)));
	put(program, JUMP(JEQ, AUDIT_ARCH_X86_64, 1, 0));
	put(program, RETURN(SECCOMP_RET_KILL_PROCESS));
	put(program, LOAD(offsetof(struct seccomp_data, nr)));
	put(program, JUMP(JGE, X32, 0, 1));
	put(program, RETURN(SECCOMP_RET_KILL_PROCESS));
	for (u32 i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].kind == ALWAYS || changes)
			put_rule(program, &rules[i]);
	put(program, RETURN(SECCOMP_RET_TRAP));
}

static void refused(int signal, siginfo_t *info, void *context)
{
	char line[128];
	int n = snprintf(line, sizeof(line),
			 "vpmu: the file server was ended: it made system call %d, which is none "
			 "of a file server's\n",
			 info->si_syscall);

	(void)signal;
	(void)context;
	_exit(write(2, line, n) == n ? 1 : 2);
}

int sandbox_restrict_calls(bool changes)
{
	struct program program = { .size = 0 };
	struct sigaction action = { .sa_sigaction = refused, .sa_flags = SA_SIGINFO };
	struct sock_fprog filter = { .filter = program.code };

	make_program(&program, changes);
	filter.len = program.size;
	if (sigaction(SIGSYS, &action, NULL) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter))
		return errno;
	return 0;
}
