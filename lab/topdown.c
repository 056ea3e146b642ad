// SPDX-License-Identifier: MIT
/*
 * Programs that are bound by one part of the processor each, for the experiment topdown and
 * tests/exec/topdown:
 *
 *   topdown front|branches|memory|core
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CODE  (3u << 20) /* more than a second level holds */
#define LINES (1u << 17) /* of data: 8 MB */

static uint32_t seed = 1;

static uint32_t chance(void)
{
	return seed = seed * 1103515245 + 12345;
}

/* A function of lines of code, of which each jumps to another one far away. */
static int front(void)
{
	uint32_t count = CODE / 64, at = 0;
	uint8_t *code = mmap(NULL, CODE, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (code == MAP_FAILED)
		return 1;
	memset(code, 0x90, CODE);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t next = (at + 64 * 677) % CODE; /* 677 is prime to the number of lines */
		int32_t jump = (int32_t)next - (int32_t)(at + 64);

		code[at + 59] = 0xe9;
		memcpy(code + at + 60, &jump, sizeof(jump));
		if (i == count - 1)
			code[at + 59] = 0xc3;
		at = next;
	}
	for (int i = 0; i < 6; i++)
		((void (*)(void))(uintptr_t)code)();
	return 0;
}

static int branches(void)
{
	volatile uint32_t sum = 0;

	for (int i = 0; i < 200000; i++) {
		if (chance() >> 30 & 1)
			sum += 3;
		if (chance() >> 29 & 1)
			sum ^= 5;
	}
	return sum == 1;
}

static int memory(void)
{
	static void *ring[LINES][8];
	static uint32_t order[LINES];
	void **p;

	for (uint32_t i = 0; i < LINES; i++)
		order[i] = i;
	for (uint32_t i = LINES - 1; i; i--) {
		uint32_t j = (chance() >> 8) % (i + 1), other = order[i];

		order[i] = order[j];
		order[j] = other;
	}
	for (uint32_t i = 0; i < LINES; i++)
		ring[order[i]][0] = &ring[order[(i + 1) % LINES]][0];
	p = &ring[0][0];
	for (uint32_t i = 0; i < 400000; i++)
		p = *p;
	return p == NULL;
}

static int core(void)
{
	volatile uint32_t start = 3;
	uint32_t n = start;

	for (int i = 0; i < 300000; i++)
		n = 1000000007u % n + 3;
	return n == 1;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} rows[] = {
		{ "front", front }, { "branches", branches }, { "memory", memory }, { "core", core }
	};

	for (size_t i = 0; argc == 2 && i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(argv[1], rows[i].name))
			return rows[i].run();
	return 2;
}
