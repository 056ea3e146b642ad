// SPDX-License-Identifier: MIT
/*
 * REP MOVS and REP STOS, which go page by page, write what one element after the other would have
 * written: in both directions, of all sizes, whatever overlaps; and a fault finds the registers at
 * the element that met it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "guest/machine.h"

#define ALL    1000000
#define FROM   0x108000 /* the middle of what is moved */
#define SIZE   0x10000	/* of what is compared, from IMAGE_DATA on */
#define ROUNDS 400

GUEST_CODE(movsb, "rep movsb\nout %al, $0xf4\n");
GUEST_CODE(movsw, "rep movsw\nout %al, $0xf4\n");
GUEST_CODE(movsd, "rep movsl\nout %al, $0xf4\n");
GUEST_CODE(movsq, "rep movsq\nout %al, $0xf4\n");
GUEST_CODE(stosb, "rep stosb\nout %al, $0xf4\n");
GUEST_CODE(stosw, "rep stosw\nout %al, $0xf4\n");
GUEST_CODE(stosd, "rep stosl\nout %al, $0xf4\n");
GUEST_CODE(stosq, "rep stosq\nout %al, $0xf4\n");

static const struct kind {
	const u8 *start, *end;
	u32 size;
	bool moves;
} kinds[] = {
	{ movsb_start, movsb_end, 1, true },  { movsw_start, movsw_end, 2, true },
	{ movsd_start, movsd_end, 4, true },  { movsq_start, movsq_end, 8, true },
	{ stosb_start, stosb_end, 1, false }, { stosw_start, stosw_end, 2, false },
	{ stosd_start, stosd_end, 4, false }, { stosq_start, stosq_end, 8, false },
};

struct what {
	u64 from, to, count, value;
	bool down;
};

static u64 next_random(u64 *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

/* Near and far, below and above, often so that both overlap. */
static struct what choose(u64 *seed)
{
	u64 spans[] = { 16, 300, 5000, 12000 };
	u64 span = spans[next_random(seed) % ARRAY_SIZE(spans)];

	return (struct what){
		.from = FROM + next_random(seed) % 64,
		.to = FROM - span + next_random(seed) % (2 * span),
		.count = next_random(seed) % 1500,
		.value = next_random(seed) << 32 | next_random(seed),
		.down = next_random(seed) & 1,
	};
}

static void start(struct machine *m, const struct kind *kind, const struct what *what)
{
	machine_load(m, kind->start, (size_t)(kind->end - kind->start));
	m->cpu->regs[RSI] = what->from;
	m->cpu->regs[RDI] = what->to;
	m->cpu->regs[RCX] = what->count;
	m->cpu->regs[RAX] = what->value;
	m->cpu->rflags = what->down ? m->cpu->rflags | FL_DF : m->cpu->rflags & ~FL_DF;
}

static void fill(u8 *ram, u64 *seed)
{
	for (u32 i = 0; i < SIZE; i++)
		ram[IMAGE_DATA + i] = next_random(seed);
}

/* One element after the other. */
static void expect(u8 *ram, const struct kind *kind, const struct what *what)
{
	u64 from = what->from, to = what->to, step = what->down ? -(u64)kind->size : kind->size;

	for (u64 i = 0; i < what->count; i++, from += step, to += step)
		memmove(ram + to, kind->moves ? (const void *)(ram + from) : &what->value,
			kind->size);
}

static void strings_write_what_their_elements_would(void **state)
{
	static u8 wanted[IMAGE_DATA + SIZE];
	struct machine *m = *state;
	u64 seed = 1;

	for (u32 i = 0; i < ROUNDS * ARRAY_SIZE(kinds); i++) {
		const struct kind *kind = &kinds[i % ARRAY_SIZE(kinds)];
		struct what what = choose(&seed);
		u64 moved = what.count * kind->size * (what.down ? -1 : 1);

		start(m, kind, &what);
		fill(m->ram, &seed);
		memcpy(wanted + IMAGE_DATA, m->ram + IMAGE_DATA, SIZE);
		expect(wanted, kind, &what);
		assert_int_equal(machine_run(m, ALL), EXIT_IO);
		assert_int_equal(m->cpu->regs[RCX], 0);
		assert_int_equal(m->cpu->regs[RDI], what.to + moved);
		assert_int_equal(m->cpu->regs[RSI], what.from + (kind->moves ? moved : 0));
		assert_memory_equal(m->ram + IMAGE_DATA, wanted + IMAGE_DATA, SIZE);
	}
}

/* From above, or from below, into a page that is not there. */
static void a_fault_finds_the_element_that_met_it(void **state)
{
	struct machine *m = *state;

	for (u32 i = 0; i < 2 * ARRAY_SIZE(kinds); i++) {
		const struct kind *kind = &kinds[i / 2];
		bool down = i & 1;
		u64 done = 700, met = down ? IMAGE_HOLE + PAGE_SIZE - kind->size : IMAGE_HOLE;
		u64 back = done * kind->size * (down ? -1 : 1);
		struct what what = { .from = FROM, .to = met - back, .count = 1000, .down = down };

		start(m, kind, &what);
		*image_pte(m->ram, IMAGE_HOLE) = 0;
		assert_int_equal(machine_run(m, ALL), EXIT_HLT);
		assert_int_equal(m->cpu->cr2, met);
		assert_int_equal(m->cpu->regs[RDI], met);
		assert_int_equal(m->cpu->regs[RSI], FROM + (kind->moves ? back : 0));
		assert_int_equal(m->cpu->regs[RCX], what.count - done);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_write_what_their_elements_would),
		cmocka_unit_test(a_fault_finds_the_element_that_met_it),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
