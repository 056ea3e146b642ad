// SPDX-License-Identifier: MIT
/*
 * A workload of the shape that the Intel talk of 2019 describes: main calls foo, bar and qux, which
 * branch on random bits, so that each has its share of mispredictions. One turn is the same work for
 * everybody; the argument is how many thousand turns. ftest_counted.c is this program with its
 * mispredictions counted where control leaves a function.
 */
#include <stdint.h>
#include <stdlib.h>

#ifndef LEAVE
#define LEAVE(function) ((void)0)
#define BEGIN() 	((void)0)
#define END() 		((void)0)
#endif

#define APART __attribute__((noinline, noclone))

static volatile uint32_t sink;

static uint32_t state = 1;

APART static uint32_t next(void)
{
	state ^= state << 13;
	state ^= state >> 17;
	return state ^= state << 5;
}

#define BRANCH(bits, n) \
	if ((bits) >> (n) & 1) \
		sink += n; \
	else \
		sink ^= n

APART static void qux(uint32_t bits)
{
	BRANCH(bits, 3);
	LEAVE(QUX);
}

APART static void bar(uint32_t bits)
{
	BRANCH(bits, 5);
	BRANCH(bits, 6);
	LEAVE(BAR);
	qux(bits >> 4);
}

APART static void foo(uint32_t bits)
{
	BRANCH(bits, 8);
	BRANCH(bits, 9);
	LEAVE(FOO);
	bar(bits >> 8);
}

int main(int argc, char **argv)
{
	long turns = (argc > 1 ? atol(argv[1]) : 100) * 1000;

	BEGIN();
	while (turns--) {
		uint32_t bits = next();

		BRANCH(bits, 1);
		BRANCH(bits, 2);
		BRANCH(bits, 20);
		BRANCH(bits, 21);
		LEAVE(MAIN);
		foo(bits);
		qux(bits >> 12);
	}
	LEAVE(MAIN);
	END();
	return 0;
}
