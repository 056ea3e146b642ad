// SPDX-License-Identifier: MIT
/*
 * A 32-bit program for a 64-bit guest kernel, without a C library: system calls by INT 0x80 and
 * through the vDSO (SYSENTER or SYSCALL), thread-local storage through GS, a signal handler, 32-bit
 * string and x87 instructions, and a fault at a bad address. Prints what failed; exits 0 when
 * nothing did.
 */
typedef unsigned int u32;
typedef unsigned long long u64;

enum {
	SYS_exit = 1,
	SYS_write = 4,
	SYS_getpid = 20,
	SYS_rt_sigaction = 174,
	SYS_set_thread_area = 243
};
enum { SIGUSR1 = 10, SIGSEGV = 11, SYS_kill = 37 };
enum { AT_NULL = 0, AT_SYSINFO = 32 };

static u32 vsyscall;
static volatile u32 signals;
static u32 failures;

static int call(int number, u32 a, u32 b, u32 c, u32 d)
{
	int result;

	asm volatile("int $0x80"
		     : "=a"(result)
		     : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d)
		     : "memory");
	return result;
}

/* The fast way, as the C library does it: the kernel's code at AT_SYSINFO knows which instruction
 * to use. */
static int fast_call(int number)
{
	int result;

	asm volatile("call *%2"
		     : "=a"(result)
		     : "a"(number), "m"(vsyscall)
		     : "memory", "ecx", "edx");
	return result;
}

static void say(const char *text)
{
	u32 length = 0;

	while (text[length])
		length++;
	call(SYS_write, 1, (u32)text, length, 0);
}

static void expect(int holds, const char *what)
{
	if (holds)
		return;
	failures++;
	say("user32: wrong: ");
	say(what);
	say("\n");
}

static void on_signal(int number)
{
	signals |= 1u << number;
}

/* Steps over the two-byte instruction that faulted; the frame is the kernel's sigcontext after the
 * argument. */
static void on_fault(int number, void *info, void *context)
{
	u32 *gregs = (u32 *)((char *)context + 20);

	(void)info;
	gregs[14] += 2; /* REG_EIP */
	on_signal(number);
}

asm("restorer: movl $173, %eax\n\tint $0x80\n");
extern char restorer[];

static void handle(int number, void *handler)
{
	/* struct sigaction of the kernel: handler, flags (SA_RESTORER | SA_SIGINFO), restorer,
	 * mask */
	struct {
		u32 handler, flags, restorer, mask[2];
	} action = { (u32)handler, 0x04000004, (u32)restorer, { 0, 0 } };

	expect(!call(SYS_rt_sigaction, number, (u32)&action, 0, 8), "rt_sigaction");
}

static void check_signals(void)
{
	handle(SIGUSR1, on_signal);
	call(SYS_kill, call(SYS_getpid, 0, 0, 0, 0), SIGUSR1, 0, 0);
	expect(signals & 1u << SIGUSR1, "a signal is delivered");
	handle(SIGSEGV, on_fault);
	asm volatile("movl %%eax, (%%ecx)" ::"c"(16), "a"(1) : "memory");
	expect(signals & 1u << SIGSEGV, "a bad address faults");
}

static void check_thread_area(void)
{
	static u32 storage[2] = { 0x12345678, 0x9abcdef0 };
	/* struct user_desc: a 32-bit, page-granular data segment at storage */
	u32 descriptor[4] = { -1u, (u32)storage, 0xfffff, 0x51 };
	u32 value;

	expect(!call(SYS_set_thread_area, (u32)descriptor, 0, 0, 0), "set_thread_area");
	asm volatile("movw %w1, %%gs\n\tmovl %%gs:4, %0"
		     : "=r"(value)
		     : "r"(descriptor[0] * 8 + 3));
	expect(value == storage[1], "GS addresses the thread area");
}

static void check_instructions(void)
{
	static char from[] = "thirty-two bits of string", to[sizeof(from)];
	const char *source = from;
	char *target = to;
	u32 count = sizeof(from), low, high;
	int same = 1;
	double root = 0, two = 2;

	asm volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(count)::"memory");
	for (u32 i = 0; i < sizeof(from); i++)
		same &= from[i] == to[i];
	expect(same && !count, "REP MOVSB");
	asm volatile("mull %3" : "=a"(low), "=d"(high) : "a"(0xfedcba98), "r"(0x87654321) : "cc");
	expect(((u64)high << 32 | low) == 0xfedcba98ull * 0x87654321ull, "MUL");
	asm volatile("fldl %1\n\tfsqrt\n\tfstpl %0" : "=m"(root) : "m"(two));
	expect(root > 1.41421356 && root < 1.41421357, "FSQRT");
	asm volatile("movl $1, %0\n\tpushal\n\tmovl $7, %%eax\n\tpopal\n\t" : "=a"(low));
	expect(low == 1, "PUSHA and POPA");
}

__attribute__((used)) static void run(u32 *stack)
{
	u32 *aux = stack + 1 + stack[0] + 1;

	while (*aux++) /* the environment lies between the arguments and the auxiliary vector */
		;
	for (; aux[0] != AT_NULL; aux += 2)
		if (aux[0] == AT_SYSINFO)
			vsyscall = aux[1];
	check_instructions();
	check_signals();
	check_thread_area();
	if (vsyscall)
		expect(fast_call(SYS_getpid) == call(SYS_getpid, 0, 0, 0, 0),
		       "a system call through the vDSO");
	say(failures ? "user32: failed\n" : "user32: fine\n");
	call(SYS_exit, failures, 0, 0, 0);
}

asm(".globl _start\n_start: movl %esp, %eax\n\tpushl %eax\n\tcall run\n");
