// SPDX-License-Identifier: MIT
/*
 * Ten workloads with fixed input, for counting: `work N`. No libc and nothing that depends on the
 * processor, the environment or an address, so that every run of the program executes the same
 * instructions from its first one on. A workload returns a checksum of what it computed; the exit
 * code is 0 if it is the known one.
 *
 * Up to 60,000 instructions each: tests/linux/step.c executes them one at a time.
 */
#include <stddef.h>
#include <stdint.h>

#define SYS_read	 0
#define SYS_mmap	 9
#define SYS_rt_sigaction 13
#define SYS_getpid	 39
#define SYS_exit	 60
#define SYS_kill	 62

static long call(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;

	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return number;
}

static uint32_t next(uint32_t *seed)
{
	return *seed = *seed * 1664525 + 1013904223;
}

/* gcc may call it. Kept as it is written: no vectors, whose number would be the compiler's. */
void *memset(void *to, int byte, size_t n)
{
	void *end = to;

	__asm__ volatile("rep stosb" : "+D"(end), "+c"(n) : "a"(byte) : "memory");
	return to;
}

static uint64_t primes(void)
{
	static uint8_t composite[2500];
	uint64_t sum = 0;

	for (unsigned i = 2; i < sizeof(composite); i++) {
		if (composite[i])
			continue;
		sum += i;
		for (unsigned j = 2 * i; j < sizeof(composite); j += i)
			composite[j] = 1;
	}
	return sum;
}

static uint32_t numbers[400];

static void quicksort(int low, int high)
{
	uint32_t pivot = numbers[(low + high) / 2];
	int i = low, j = high;

	while (i <= j) {
		while (numbers[i] < pivot)
			i++;
		while (numbers[j] > pivot)
			j--;
		if (i <= j) {
			uint32_t t = numbers[i];

			numbers[i++] = numbers[j];
			numbers[j--] = t;
		}
	}
	if (low < j)
		quicksort(low, j);
	if (i < high)
		quicksort(i, high);
}

static uint64_t sorting(void)
{
	uint32_t seed = 1;
	uint64_t sum = 0;

	for (int i = 0; i < 400; i++)
		numbers[i] = next(&seed);
	quicksort(0, 399);
	for (int i = 1; i < 400; i++)
		sum += numbers[i] / (i + 1) + (numbers[i] < numbers[i - 1]);
	return sum;
}

static __attribute__((noinline)) uint64_t ackermann(uint64_t m, uint64_t n)
{
	if (!m)
		return n + 1;
	return ackermann(m - 1, n ? ackermann(m, n - 1) : 1);
}

static uint64_t calls(void)
{
	return ackermann(2, 40) + ackermann(3, 2);
}

static uint64_t checksum(void)
{
	uint32_t crc = ~0u, seed = 3;

	for (int i = 0; i < 700; i++) {
		crc ^= next(&seed) >> 24;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

static uint64_t matrices(void)
{
	static double a[13][13], b[13][13];
	double trace = 0;

	for (int i = 0; i < 13; i++)
		for (int j = 0; j < 13; j++) {
			a[i][j] = i - j + 0.5;
			b[i][j] = i * j % 7 - 1.25;
		}
	for (int i = 0; i < 13; i++)
		for (int j = 0; j < 13; j++) {
			double sum = 0;

			for (int k = 0; k < 13; k++)
				sum += a[i][k] * b[k][j];
			if (i == j)
				trace += sum;
		}
	return (uint64_t)(int64_t)(trace * 16);
}

/* Repeated string instructions: each is one instruction, however often it repeats. */
static uint64_t strings(void)
{
	static char from[120], to[120];
	uint64_t sum = 0;

	for (int i = 0; i < 119; i++)
		from[i] = 'a' + i % 23;
	for (int round = 0; round < 50; round++) {
		void *di = to, *si = from, *end = to;
		uint64_t n = 60 + round, left = 120;

		__asm__ volatile("rep movsb" : "+D"(di), "+S"(si), "+c"(n) : : "memory");
		__asm__ volatile("repne scasb" : "+D"(end), "+c"(left) : "a"(0) : "memory", "cc");
		sum += 2 * (uint64_t)((char *)end - to) + left;
		memset(to, 0, sizeof(to));
	}
	return sum;
}

/* A machine of four instructions, dispatched by a table of labels. */
static uint64_t interpreter(void)
{
	static const uint8_t code[] = { 0, 1, 2, 0, 3, 1, 2, 2, 0, 1, 3, 3, 0 };
	static void *const table[] = { &&add, &&rotate, &&twist, &&drop };
	uint64_t value = 1;
	unsigned pc = 0, steps = 0;

next:
	if (++steps > 3000)
		return value;
	pc = pc + 1 < sizeof(code) ? pc + 1 : 0;
	goto *table[code[pc]];
add:
	value += steps;
	goto next;
rotate:
	value = value << 7 | value >> 57;
	goto next;
twist:
	value ^= value >> 13;
	goto next;
drop:
	value -= pc;
	goto next;
}

/* System calls and pages touched for the first time: the kernel comes and goes. */
static uint64_t kernel(void)
{
	volatile char *pages = (char *)call(SYS_mmap, 0, 1 << 20, 3, 0x22);
	uint64_t sum = 0;

	for (int i = 0; i < 1000; i++)
		sum += call(SYS_getpid, 0, 0, 0, 0) > 0;
	for (int i = 0; i < 256; i++)
		sum += ++pages[i * 4096];
	return sum + (call(SYS_read, -1, 0, 0, 0) == -9);
}

static uint64_t divisions(void)
{
	uint64_t sum = 0;
	long double x = 1;

	for (uint32_t a = 1; a < 60; a++)
		for (uint32_t b = 1; b < 30; b++) {
			uint32_t m = a, n = b;

			while (n) {
				uint32_t t = m % n;

				m = n;
				n = t;
			}
			sum += m;
		}
	for (int i = 1; i < 300; i++)
		x += 1 / (x * i);
	return sum + (uint64_t)(x * 1000);
}

static volatile uint64_t handled;

static void handler(int sig)
{
	handled += sig;
}

__attribute__((naked)) static void restorer(void)
{
	__asm__("mov $15, %eax\n\tsyscall");
}

static uint64_t signals(void)
{
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} action = { handler, 0x04000000, restorer, 0 };
	long self = call(SYS_getpid, 0, 0, 0, 0);

	call(SYS_rt_sigaction, 10, (long)&action, 0, 8);
	for (int i = 0; i < 500; i++)
		call(SYS_kill, self, 10, 0, 0);
	return handled;
}

static const struct {
	uint64_t (*run)(void);
	uint64_t result;
} works[] = {
	{ primes, 420812 },
	{ sorting, 4471913192 },
	{ calls, 112 },
	{ checksum, 4154144786 },
	{ matrices, 1678 },
	{ strings, 10275 },
	{ interpreter, 18069657269654620819ull },
	{ kernel, 1257 },
	{ divisions, 7946 },
	{ signals, 5000 },
};

__attribute__((used)) static void begin(const long *stack)
{
	const char *argument = stack[0] > 1 ? (const char *)stack[2] : "";
	unsigned which = (unsigned)*argument - '0';
	uint64_t result;

	if (which > 9)
		call(SYS_exit, 2, 0, 0, 0);
	result = works[which].run();
	call(SYS_exit, result != works[which].result, 0, 0, 0);
}

__attribute__((naked)) void _start(void)
{
	__asm__("mov %rsp, %rdi\n\tcall begin");
}
