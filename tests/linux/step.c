// SPDX-License-Identifier: MIT
/*
 * Counts what a program retires in user mode, by letting the host's processor execute it one
 * instruction at a time (ptrace): a counter that shares nothing with vpmu but the decoder that
 * tells branches. Prints instructions, branches, far branches.
 *
 * The trap comes after each repetition of a string instruction, which is one instruction. A signal
 * is reported before the instruction that it finds, and once more when its handler is about to
 * begin.
 *
 * usage: step PROGRAM [ARGUMENTS]
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <Zydis/Zydis.h>

#define SEEN 65536

/* What an instruction is, by its address: the program does not change itself. */
static struct kind {
	uint64_t rip;
	bool branch, far, repeats;
} seen[SEEN];

static ZydisDecoder decoder;

static bool is_branch(const ZydisDecodedInstruction *insn)
{
	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_RET:
		return true;
	default:
		return false;
	}
}

static struct kind decode(pid_t child, uint64_t rip)
{
	uint8_t bytes[ZYDIS_MAX_INSTRUCTION_LENGTH];
	struct iovec to = { bytes, sizeof(bytes) }, from = { (void *)rip, sizeof(bytes) };
	struct kind kind = { .rip = rip };
	ZydisDecodedInstruction insn;
	ssize_t n = process_vm_readv(child, &to, 1, &from, 1, 0);

	if (n <= 0) { /* up to the end of the page */
		from.iov_len = 4096 - rip % 4096;
		n = process_vm_readv(child, &to, 1, &from, 1, 0);
	}
	if (n <= 0 ||
	    !ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, NULL, bytes, n, &insn))) {
		fprintf(stderr, "step: no instruction at %#lx\n", rip);
		exit(1);
	}
	kind.branch = is_branch(&insn);
	kind.far = insn.meta.category == ZYDIS_CATEGORY_SYSCALL;
	kind.repeats = insn.meta.category == ZYDIS_CATEGORY_STRINGOP &&
		       (insn.attributes &
			(ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE));
	return kind;
}

static const struct kind *kind_at(pid_t child, uint64_t rip)
{
	struct kind *kind = &seen[rip % SEEN];

	if (kind->rip != rip)
		*kind = decode(child, rip);
	return kind;
}

static uint64_t rip_of(pid_t child)
{
	struct user_regs_struct regs;

	if (ptrace(PTRACE_GETREGS, child, NULL, &regs)) {
		perror("step: registers");
		exit(1);
	}
	return regs.rip;
}

static void count(pid_t child)
{
	uint64_t instructions = 0, branches = 0, far = 0, rip = rip_of(child);
	int status, pending = 0;

	for (;;) {
		const struct kind *kind = kind_at(child, rip);
		/* Delivering a signal stops before the handler's first instruction. */
		bool executed = !pending;
		uint64_t now;

		if (ptrace(PTRACE_SINGLESTEP, child, NULL, pending) ||
		    waitpid(child, &status, 0) < 0)
			break;
		now = WIFSTOPPED(status) ? rip_of(child) : 0;
		pending = WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
		if (executed && !pending && !(kind->repeats && now == rip)) {
			instructions++;
			branches += kind->branch || kind->far;
			far += kind->far;
		}
		if (!WIFSTOPPED(status))
			break;
		rip = now;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "step: the program ended with status %#x\n", status);
		exit(1);
	}
	printf("%lu %lu %lu\n", instructions, branches, far);
}

int main(int argc, char **argv)
{
	pid_t child;
	int status;

	if (argc < 2)
		return 2;
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		execv(argv[1], argv + 1);
		_exit(127);
	}
	if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status)) {
		fprintf(stderr, "step: cannot trace %s\n", argv[1]);
		return 1;
	}
	count(child);
	return 0;
}
