// SPDX-License-Identifier: MIT
/*
 * How fast guest code runs: the loops of loops.S natively, on vpmu (this program is run by `vpmu
 * kvm`) and on QEMU's TCG, by turns, so that what else the machine does hits all three. Prints
 * millions of instructions a second (the median of the turns) and how many times slower than native
 * each is.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/must.h"
#include "bench/loops.h"
#include "guest/kvm_guest.h"

#define TURNS	    5
#define TURN_SECS   0.15 /* how long a turn should take */
#define ROM_SIZE    0x10000
#define LOOP_OFFSET 0x100 /* of the copied loop in the guest's code */

extern const u8 rom_start[], rom_rounds[], rom_loop[] __attribute__((visibility("hidden")));

enum side { NATIVE, VPMU, TCG, NSIDES };

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double run_native(const struct loop *loop, u64 rounds)
{
	static u8 memory[LOOP_MEMORY] __attribute__((aligned(4096)));
	double start = seconds();

	((void (*)(u64, void *))(uintptr_t)loop->start)(rounds, memory);
	return seconds() - start;
}

/* RDI and RSI are set from outside. */
GUEST_CODE(caller, "out %al, $0x80\n"
		   "lea 0xf7(%rip), %rax\n"
		   "call *%rax\n"
		   "out %al, $0xf4\n"
		   ".org caller_start + 0x100\n");

static double run_vpmu(const struct loop *loop, u64 rounds)
{
	struct kvm_guest guest;
	struct kvm_regs regs;
	double start;

	kvm_guest_create(&guest, caller_start, (size_t)(caller_end - caller_start), 1);
	memcpy(guest.ram + IMAGE_CODE + LOOP_OFFSET, loop->start,
	       (size_t)(loop->end - loop->start));
	KVM_CALL(guest.vcpu[0], KVM_GET_REGS, &regs);
	regs.rdi = rounds;
	regs.rsi = IMAGE_DATA;
	KVM_CALL(guest.vcpu[0], KVM_SET_REGS, &regs);
	must(kvm_guest_run(&guest, 0) == KVM_EXIT_IO);
	start = seconds();
	must(kvm_guest_run(&guest, 0) == KVM_EXIT_IO);
	must(guest.run[0]->io.port == IMAGE_DONE_PORT);
	start = seconds() - start;
	kvm_guest_destroy(&guest);
	return start;
}

/* A firmware image with the loop in it; the name of the file. */
static void write_rom(const struct loop *loop, u64 rounds, char *path)
{
	static u8 rom[ROM_SIZE];
	int fd = mkstemp(path);

	memcpy(rom, rom_start, ROM_SIZE);
	memcpy(rom + (rom_rounds - rom_start), &rounds, sizeof(rounds));
	memcpy(rom + (rom_loop - rom_start), loop->start, (size_t)(loop->end - loop->start));
	must(fd >= 0 && write(fd, rom, ROM_SIZE) == ROM_SIZE);
	close(fd);
}

static pid_t start_qemu(char *rom, int output)
{
	char *argv[] = { "qemu-system-x86_64",
			 "-accel",
			 "tcg",
			 "-cpu",
			 "max",
			 "-m",
			 "64",
			 "-nodefaults",
			 "-display",
			 "none",
			 "-bios",
			 rom,
			 "-chardev",
			 "stdio,id=d",
			 "-device",
			 "isa-debugcon,iobase=0x402,chardev=d",
			 NULL };
	pid_t pid = fork();

	if (pid)
		return pid;
	dup2(output, 1);
	dup2(open("/dev/null", O_RDWR), 0);
	unsetenv("LD_PRELOAD");
	execvp(argv[0], argv);
	_exit(127);
}

/* Negative: QEMU is not there or did not run it. */
static double run_tcg(const struct loop *loop, u64 rounds)
{
	char rom[] = "/tmp/vpmu-bench-XXXXXX", mark[2] = "";
	double start = 0, end = -1;
	int pipes[2];
	pid_t pid;

	write_rom(loop, rounds, rom);
	must(pipe2(pipes, O_CLOEXEC) == 0);
	pid = start_qemu(rom, pipes[1]);
	close(pipes[1]);
	if (read(pipes[0], &mark[0], 1) == 1) {
		start = seconds();
		if (read(pipes[0], &mark[1], 1) == 1)
			end = seconds();
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(pipes[0]);
	unlink(rom);
	return mark[0] == 'S' && mark[1] == 'E' ? end - start : -1;
}

static double (*const run[NSIDES])(const struct loop *, u64) = { run_native, run_vpmu, run_tcg };

/* How many rounds fill a turn. */
static u64 calibrate(const struct loop *loop, enum side side)
{
	u64 rounds = 100000;
	double time;

	while ((time = run[side](loop, rounds)) >= 0 && time < TURN_SECS / 4)
		rounds *= 2;
	return time < 0 ? 0 : (u64)((double)rounds * TURN_SECS / time) + 1;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const struct loop *loop, double mips[NSIDES])
{
	double turn[NSIDES][TURNS];
	u64 rounds[NSIDES];

	for (int side = 0; side < NSIDES; side++)
		rounds[side] = calibrate(loop, side);
	for (int i = 0; i < TURNS; i++)
		for (int side = 0; side < NSIDES; side++) {
			double time = rounds[side] ? run[side](loop, rounds[side]) : -1;

			turn[side][i] =
				time > 0 ? (double)(rounds[side] * loop->per_round) / time / 1e6
					 : 0;
		}
	for (int side = 0; side < NSIDES; side++) {
		qsort(turn[side], TURNS, sizeof(double), by_value);
		mips[side] = turn[side][TURNS / 2];
	}
}

int main(void)
{
	printf("%-20s %10s %10s %10s %14s %13s\n", "MIPS", "native", "vpmu", "tcg", "native/vpmu",
	       "native/tcg");
	for (const struct loop *loop = loops; loop < loops_end; loop++) {
		double mips[NSIDES];

		measure(loop, mips);
		printf("%-20s %10.0f %10.0f %10.0f %14.2f %13.2f\n", loop->name, mips[NATIVE],
		       mips[VPMU], mips[TCG], mips[NATIVE] / mips[VPMU], mips[NATIVE] / mips[TCG]);
		fflush(stdout);
	}
	return 0;
}
