// SPDX-License-Identifier: MIT
/*
 * Integer code of the kinds that CoreMark made customary: a linked list that is searched, reversed
 * and sorted, a matrix of small integers, a state machine that reads numbers from text, and a CRC
 * that ties the results together.
 */
#include <string.h>

#include "bench/work/work.h"

#define ITEMS  200
#define SIDE   16
#define ROUNDS 60

struct item {
	struct item *next;
	int16_t key, value;
};

static struct item items[ITEMS];
static int16_t left[SIDE][SIDE], right[SIDE][SIDE];
static int32_t product[SIDE][SIDE];

static uint16_t crc16(uint16_t crc, uint32_t value)
{
	for (int i = 0; i < 32; i++, value >>= 1)
		crc = (crc >> 1) ^ (((crc ^ value) & 1) ? 0xa001 : 0);
	return crc;
}

/* --- the list --- */

static struct item *list_build(uint64_t *seed)
{
	for (int i = 0; i < ITEMS; i++) {
		items[i].key = (int16_t)random_next(seed);
		items[i].value = (int16_t)i;
		items[i].next = i + 1 < ITEMS ? &items[i + 1] : NULL;
	}
	return items;
}

static struct item *list_reverse(struct item *head)
{
	struct item *done = NULL;

	while (head) {
		struct item *next = head->next;

		head->next = done;
		done = head;
		head = next;
	}
	return done;
}

static const struct item *list_find(const struct item *head, int16_t value)
{
	while (head && head->value != value)
		head = head->next;
	return head;
}

static int by_key(const struct item *a, const struct item *b)
{
	return a->key - b->key;
}

static int by_value(const struct item *a, const struct item *b)
{
	return a->value - b->value;
}

static struct item *list_merge(struct item *a, struct item *b,
			       int (*compare)(const struct item *, const struct item *))
{
	struct item *head = NULL, **tail = &head;

	while (a && b) {
		struct item **smaller = compare(a, b) <= 0 ? &a : &b;

		*tail = *smaller;
		tail = &(*smaller)->next;
		*smaller = (*smaller)->next;
	}
	*tail = a ? a : b;
	return head;
}

static struct item *list_sort(struct item *head,
			      int (*compare)(const struct item *, const struct item *))
{
	struct item *slow = head, *fast, *rest;

	if (!head || !head->next)
		return head;
	for (fast = head->next; fast && fast->next; fast = fast->next->next)
		slow = slow->next;
	rest = slow->next;
	slow->next = NULL;
	return list_merge(list_sort(head, compare), list_sort(rest, compare), compare);
}

static uint16_t run_list(uint16_t crc, uint64_t *seed)
{
	struct item *head = list_build(seed);

	for (int16_t i = 0; i < ITEMS; i += 7)
		crc = crc16(crc, (uint16_t)list_find(head, i)->key);
	head = list_sort(list_reverse(head), by_key);
	for (const struct item *p = head; p; p = p->next)
		crc = crc16(crc, (uint16_t)p->value);
	head = list_sort(head, by_value);
	return crc16(crc, (uint16_t)head->key);
}

/* --- the matrix --- */

static uint16_t run_matrix(uint16_t crc, uint64_t *seed)
{
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			left[i][j] = (int16_t)random_next(seed);
			right[i][j] = (int16_t)(random_next(seed) & 0xff);
		}
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			int32_t sum = 0;

			for (int k = 0; k < SIDE; k++) {
				int32_t term = left[i][k] * right[k][j];

				sum += ((term >> 2) & 0xf) * ((term >> 5) & 0x7f);
			}
			product[i][j] = sum;
		}
	for (int i = 0; i < SIDE; i++)
		crc = crc16(crc, (uint32_t)product[i][SIDE - 1 - i]);
	return crc;
}

/* --- the state machine: which fields of a line are integers, fractions, powers of ten, nothing? --- */

enum state { START, SIGN, INTEGER, POINT, FRACTION, EXPONENT, EXPONENT_SIGN, POWER, INVALID, STATES };

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static enum state step(enum state s, char c)
{
	switch (s) {
	case START:
		return is_digit(c) ? INTEGER : c == '+' || c == '-' ? SIGN : c == '.' ? POINT : INVALID;
	case SIGN:
		return is_digit(c) ? INTEGER : c == '.' ? POINT : INVALID;
	case INTEGER:
		return is_digit(c) ? INTEGER : c == '.' ? POINT : c == 'e' ? EXPONENT : INVALID;
	case POINT:
	case FRACTION:
		return is_digit(c) ? FRACTION : c == 'e' ? EXPONENT : INVALID;
	case EXPONENT:
		return c == '+' || c == '-' ? EXPONENT_SIGN : is_digit(c) ? POWER : INVALID;
	case EXPONENT_SIGN:
	case POWER:
		return is_digit(c) ? POWER : INVALID;
	default:
		return INVALID;
	}
}

static uint16_t run_states(uint16_t crc, uint64_t *seed)
{
	static const char *const fields[] = { "5012", "-874", "+122", "35.54400", ".1234500",
					      "-110.700", "5.500e+3", "-.123e-2", "-87e+832",
					      "T0.3e-1F", "1T3.4e4z", "34.0e-T^" };
	uint32_t ends[STATES] = { 0 };

	for (int i = 0; i < 60; i++) {
		enum state s = START;

		for (const char *p = fields[random_next(seed) % 12]; *p; p++)
			s = step(s, *p);
		ends[s]++;
	}
	for (int s = 0; s < STATES; s++)
		crc = crc16(crc, ends[s]);
	return crc;
}

uint64_t coremark_unit(void)
{
	uint64_t seed = 1;
	uint16_t crc = 0;

	for (int i = 0; i < ROUNDS; i++) {
		crc = run_list(crc, &seed);
		crc = run_matrix(crc, &seed);
		crc = run_states(crc, &seed);
	}
	return crc;
}
