// SPDX-License-Identifier: MIT
/*
 * A bytecode interpreter: a stack machine with locals and an array, dispatched by one switch, as
 * small language runtimes have it. Its program counts primes by a sieve and adds up the lengths of
 * Collatz sequences.
 */
#include <string.h>

#include "bench/work/work.h"

enum opcode {
	PUSH, /* arg */
	LOAD, /* local arg */
	STORE,
	GET, /* index → array[index] */
	PUT, /* value, index → */
	ADD,
	MULTIPLY,
	HALVE,
	IS_ODD,
	IS_LESS,
	JUMP, /* to label arg */
	JUMP_UNLESS,
	LABEL, /* nothing; where label arg is */
	HALT,
};

struct insn {
	enum opcode op;
	int32_t arg;
};

#define SIEVE	   12000
#define HAILSTONES 700
#define STACK_SIZE 16

enum { I, J, COUNT, LOCALS };
enum { NEXT, STRIKE, COMPOSITE, SECOND, EACH, HAIL, EVEN, ONE, DONE, LABELS };

static const struct insn program[] = {
	/* for (i = 2; i < SIEVE; i++) */
	{ PUSH, 2 }, { STORE, I }, { LABEL, NEXT },
	{ LOAD, I }, { PUSH, SIEVE }, { IS_LESS, 0 }, { JUMP_UNLESS, SECOND },
	/*	if (array[i] < 1) count++, for (j = i + i; j < SIEVE; j += i) array[j] = 1 */
	{ LOAD, I }, { GET, 0 }, { PUSH, 1 }, { IS_LESS, 0 }, { JUMP_UNLESS, COMPOSITE },
	{ LOAD, COUNT }, { PUSH, 1 }, { ADD, 0 }, { STORE, COUNT },
	{ LOAD, I }, { LOAD, I }, { ADD, 0 }, { STORE, J },
	{ LABEL, STRIKE }, { LOAD, J }, { PUSH, SIEVE }, { IS_LESS, 0 }, { JUMP_UNLESS, COMPOSITE },
	{ PUSH, 1 }, { LOAD, J }, { PUT, 0 },
	{ LOAD, J }, { LOAD, I }, { ADD, 0 }, { STORE, J }, { JUMP, STRIKE },
	{ LABEL, COMPOSITE }, { LOAD, I }, { PUSH, 1 }, { ADD, 0 }, { STORE, I }, { JUMP, NEXT },
	/* for (i = 1; i < HAILSTONES; i++) */
	{ LABEL, SECOND }, { PUSH, 1 }, { STORE, I },
	{ LABEL, EACH }, { LOAD, I }, { PUSH, HAILSTONES }, { IS_LESS, 0 }, { JUMP_UNLESS, DONE },
	/*	for (j = i; 1 < j; j = j odd ? 3 j + 1 : j / 2) count++ */
	{ LOAD, I }, { STORE, J }, { LABEL, HAIL },
	{ PUSH, 1 }, { LOAD, J }, { IS_LESS, 0 }, { JUMP_UNLESS, ONE },
	{ LOAD, COUNT }, { PUSH, 1 }, { ADD, 0 }, { STORE, COUNT },
	{ LOAD, J }, { IS_ODD, 0 }, { JUMP_UNLESS, EVEN },
	{ LOAD, J }, { PUSH, 3 }, { MULTIPLY, 0 }, { PUSH, 1 }, { ADD, 0 }, { STORE, J }, { JUMP, HAIL },
	{ LABEL, EVEN }, { LOAD, J }, { HALVE, 0 }, { STORE, J }, { JUMP, HAIL },
	{ LABEL, ONE }, { LOAD, I }, { PUSH, 1 }, { ADD, 0 }, { STORE, I }, { JUMP, EACH },
	{ LABEL, DONE }, { HALT, 0 },
};

static int64_t array[SIEVE];

static int64_t interpret(const struct insn *const label[LABELS])
{
	int64_t locals[LOCALS] = { 0 }, stack[STACK_SIZE], *top = stack;

	for (const struct insn *pc = program;; pc++) {
		switch (pc->op) {
		case PUSH:
			*top++ = pc->arg;
			break;
		case LOAD:
			*top++ = locals[pc->arg];
			break;
		case STORE:
			locals[pc->arg] = *--top;
			break;
		case GET:
			top[-1] = array[top[-1]];
			break;
		case PUT:
			top -= 2;
			array[top[1]] = top[0];
			break;
		case ADD:
			top--;
			top[-1] += top[0];
			break;
		case MULTIPLY:
			top--;
			top[-1] *= top[0];
			break;
		case HALVE:
			top[-1] >>= 1;
			break;
		case IS_ODD:
			top[-1] &= 1;
			break;
		case IS_LESS:
			top--;
			top[-1] = top[-1] < top[0];
			break;
		case JUMP:
			pc = label[pc->arg];
			break;
		case JUMP_UNLESS:
			if (!*--top)
				pc = label[pc->arg];
			break;
		case LABEL:
			break;
		case HALT:
			return locals[COUNT];
		}
	}
}

uint64_t interp_unit(void)
{
	const struct insn *label[LABELS] = { NULL };

	for (const struct insn *p = program; p->op != HALT; p++)
		if (p->op == LABEL)
			label[p->arg] = p;
	memset(array, 0, sizeof(array));
	return (uint64_t)interpret(label);
}
