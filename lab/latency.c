// SPDX-License-Identifier: MIT
/*
 * What an access to the PMU and a PMI cost: a guest of a few instructions in real mode, on an AMD
 * model with PerfMonV2, that does nothing else. Four of its counters are set up. Prints a line for
 * each: ns of CPU time of the vCPU's thread, the same in cycles of the guest's TSC, and its name;
 * the loop around it is taken off.
 *
 * usage: vpmu kvm --cpu genoa --pmu MODE latency
 */
#include <err.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#define RAM	      0x10000
#define PMIS	      0x500 /* the handler counts here */
#define CODE	      0x1000
#define STACK	      0x8000
#define NMI	      2
#define CPUID_ENTRIES 256
#define TURNS	      100000
#define ROUNDS	      5

/* --- the guest: parts that end in an OUT; ESI has the turns of a loop --- */

#define PART(name, code)                                                                 \
	extern const char name[];                                                        \
	__asm__(".pushsection guest, \"a\"\n.code16\n" #name ":\n" code "\n.code64\n.popsection")

#define WRMSR(index, low, high) \
	"mov $" #index ", %ecx\nmov $" #low ", %eax\nmov $" #high ", %edx\nwrmsr\n"
#define STOP  WRMSR(0xc0000301, 0, 0)
#define START WRMSR(0xc0000301, 0x3f, 0)
#define CLEAR WRMSR(0xc0000302, 1, 0)
/* Counter 0 overflows with the 1000th instruction from here. */
#define PERIOD	   WRMSR(0xc0010201, -1000, -1)
#define TURN(body) "1: " body "\ndec %esi\njnz 1b\nout %al, $0x10\n"
#define EIGHT_NOPS "nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop"

/* x2APIC, PMIs as NMIs; instructions, cycles, branches and instructions again. */
PART(setup, "mov $0x1b, %ecx\nrdmsr\nor $0xc00, %eax\nwrmsr\n"
	    WRMSR(0x80f, 0x1ff, 0) WRMSR(0x834, 0x400, 0)
	    WRMSR(0xc0010200, 0x4300c0, 0) WRMSR(0xc0010202, 0x430076, 0)
	    WRMSR(0xc0010204, 0x4300c2, 0) WRMSR(0xc0010206, 0x4300c0, 0) "out %al, $0x10");

PART(nothing, START TURN(""));
PART(reading, START "mov $1, %ecx\n" TURN("rdpmc"));
PART(status, START "mov $0xc0000300, %ecx\n" TURN("rdmsr"));
PART(control, STOP TURN("xor %eax, %eax\nwrmsr\nmov $0x3f, %al\nwrmsr"));
PART(clearing, STOP CLEAR TURN("wrmsr"));
PART(counter, STOP WRMSR(0xc0010203, 0, 0) TURN("wrmsr"));
PART(event, STOP WRMSR(0xc0010202, 0x430076, 0) TURN("wrmsr"));

PART(work, START TURN(EIGHT_NOPS));
PART(sampled, STOP PERIOD WRMSR(0xc0010200, 0x5300c0, 0) START TURN(EIGHT_NOPS));
/* What Linux does to the registers of a PMU in such a handler, and nothing else. */
PART(handler, "push %eax\npush %ecx\npush %edx\nincl 0x500\n" STOP CLEAR PERIOD START
	      "pop %edx\npop %ecx\npop %eax\niretw");

extern const char __start_guest[], __stop_guest[];

enum access { RDPMC, STATUS, CONTROL, CLEARING, COUNTER, SELECT, NACCESSES };

static const struct {
	const char *name, *code;
	int accesses; /* in a turn */
} accesses[NACCESSES] = {
	[RDPMC] = { "RDPMC, counters run", reading, 1 },
	[STATUS] = { "RDMSR global status, counters run", status, 1 },
	[CONTROL] = { "WRMSR global control", control, 2 },
	[CLEARING] = { "WRMSR global status clear", clearing, 1 },
	[COUNTER] = { "WRMSR counter", counter, 1 },
	[SELECT] = { "WRMSR event select", event, 1 },
};

/* --- the machine --- */

static int vcpu;
static struct kvm_run *run;
static uint8_t *ram;

static int call(int fd, unsigned long request, void *arg, const char *name)
{
	int result = ioctl(fd, request, arg);

	if (result < 0)
		err(1, "%s", name);
	return result;
}
#define CALL(fd, request, arg) call(fd, request, (void *)(long)(arg), #request)

static void set_cpuid(int kvm)
{
	struct kvm_cpuid2 *cpuid =
		calloc(1, sizeof(*cpuid) + CPUID_ENTRIES * sizeof(cpuid->entries[0]));

	if (!cpuid)
		err(1, "calloc");
	cpuid->nent = CPUID_ENTRIES;
	CALL(kvm, KVM_GET_SUPPORTED_CPUID, cpuid);
	CALL(vcpu, KVM_SET_CPUID2, cpuid);
	free(cpuid);
}

static void load_guest(void)
{
	uint16_t vector[2] = { CODE + (handler - __start_guest), 0 };
	struct kvm_sregs sregs;

	memcpy(ram + CODE, __start_guest, __stop_guest - __start_guest);
	memcpy(ram + 4 * NMI, vector, sizeof(vector));
	CALL(vcpu, KVM_GET_SREGS, &sregs);
	sregs.cs.base = sregs.cs.selector = 0;
	CALL(vcpu, KVM_SET_SREGS, &sregs);
}

static void create(void)
{
	struct kvm_userspace_memory_region region = { .memory_size = RAM };
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm;

	if (kvm < 0)
		err(1, "/dev/kvm");
	vm = CALL(kvm, KVM_CREATE_VM, 0);
	ram = mmap(NULL, RAM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ram == MAP_FAILED)
		err(1, "mmap");
	region.userspace_addr = (uintptr_t)ram;
	CALL(vm, KVM_SET_USER_MEMORY_REGION, &region);
	CALL(vm, KVM_CREATE_IRQCHIP, 0);
	vcpu = CALL(vm, KVM_CREATE_VCPU, 0);
	run = mmap(NULL, CALL(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE, MAP_SHARED,
		   vcpu, 0);
	if (run == MAP_FAILED)
		err(1, "mmap of the vCPU");
	set_cpuid(kvm);
	load_guest();
}

static double thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return 1e9 * ts.tv_sec + ts.tv_nsec;
}

/* CPU time of a part of the guest, in ns. */
static double execute(const char *code)
{
	struct kvm_regs regs = {
		.rip = CODE + (code - __start_guest), .rsp = STACK, .rsi = TURNS, .rflags = 2
	};
	double begun = thread_ns();

	CALL(vcpu, KVM_SET_REGS, &regs);
	CALL(vcpu, KVM_RUN, 0);
	if (run->exit_reason != KVM_EXIT_IO)
		errx(1, "the guest left with exit %u", run->exit_reason);
	return thread_ns() - begun;
}

static double best(const char *code)
{
	double least = execute(code); /* once, to have it translated */

	for (int i = 0; i < ROUNDS; i++) {
		double ns = execute(code);

		least = ns < least ? ns : least;
	}
	return least;
}

static void say(const char *name, double ns)
{
	printf("%.1f %.0f %s\n", ns, ns * CALL(vcpu, KVM_GET_TSC_KHZ, 0) / 1e6, name);
}

int main(void)
{
	double loop_ns, work_ns, sampled_ns, ns[NACCESSES];
	uint32_t pmis;

	create();
	execute(setup);
	loop_ns = best(nothing);
	for (int i = 0; i < NACCESSES; i++) {
		ns[i] = (best(accesses[i].code) - loop_ns) / TURNS / accesses[i].accesses;
		say(accesses[i].name, ns[i]);
	}
	work_ns = best(work);
	sampled_ns = best(sampled);
	memcpy(&pmis, ram + PMIS, sizeof(pmis));
	if (!pmis)
		errx(1, "there was no PMI");
	say("PMI, without the handler's accesses",
	    (sampled_ns - work_ns) * (ROUNDS + 1) / pmis - 2 * ns[CONTROL] - ns[CLEARING] -
		    ns[COUNTER]);
	return 0;
}
