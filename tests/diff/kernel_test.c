// SPDX-License-Identifier: MIT
/*
 * The engine against itself at CPL 0: random kernel-mode code one instruction at a time, in
 * ordinary blocks and in hot blocks must leave the same registers, segments, control and debug
 * registers, memory with its page tables and logged exceptions, and the same exact tallies. A
 * mismatch is shrunk and printed with the command that repeats it.
 *
 * usage: kernel_test [--seed N] [--count N] [--case N] [--keep-going]
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff/kernel.h"

#define COUNT_DEFAULT 300000   /* instructions, of one way */
#define COMPARED      0x200000 /* bytes of memory */

static const char *const ways[NWAYS] = { "stepped", "in blocks", "in hot blocks" };

static struct options {
	u64 seed, count;
	s64 one; /* this case alone, or -1 */
	bool keep_going;
} opt = { .seed = 1, .count = COUNT_DEFAULT, .one = -1 };

/* --- comparing --- */

struct field {
	const char *name;
	size_t offset, size;
};

/* clang-format off */
#define FIELD(f) { #f, offsetof(struct cpu, f), sizeof(((struct cpu *)NULL)->f) }
/* clang-format on */
#define SEGMENT(s) FIELD(s.base), FIELD(s.limit), FIELD(s.attr), FIELD(s.sel)
#define TABLE(t)   FIELD(t.base), FIELD(t.limit)

static const struct field fields[] = {
	FIELD(regs),	   FIELD(rip),	     FIELD(rflags),
	FIELD(cpl),	   SEGMENT(seg[ES]), SEGMENT(seg[CS]),
	SEGMENT(seg[SS]),  SEGMENT(seg[DS]), SEGMENT(seg[FS]),
	SEGMENT(seg[GS]),  SEGMENT(ldtr),    SEGMENT(tr),
	TABLE(gdtr),	   TABLE(idtr),	     FIELD(cr0),
	FIELD(cr2),	   FIELD(cr3),	     FIELD(cr4),
	FIELD(efer),	   FIELD(dr),	     FIELD(dr6),
	FIELD(dr7),	   FIELD(xcr0),	     FIELD(lstar),
	FIELD(shadow),	   FIELD(xsave),     FIELD(kernel_gs_base),
	FIELD(nmi_masked),
};

static bool same_memory(const u8 *a, const u8 *b, u64 *where)
{
	*where = 0;
	if (!memcmp(a, b, COMPARED))
		return true;
	while (a[*where] == b[*where])
		++*where;
	return false;
}

/* Where: the class. Classes that are not wanted may have grown or not. */
static bool same_tallies(const struct retire_tally *a, const struct retire_tally *b,
			 retire_wanted wanted, u64 *where)
{
	wanted |= RETIRE_BIT(RETIRE_INSTRUCTIONS) | RETIRE_BIT(RETIRE_BRANCHES);
	for (*where = 0; *where < NRETIRE; ++*where)
		if ((wanted & RETIRE_BIT(*where)) &&
		    (retire_count(a, *where, RETIRE_OS) != retire_count(b, *where, RETIRE_OS) ||
		     retire_count(a, *where, RETIRE_USR) != retire_count(b, *where, RETIRE_USR)))
			return false;
	return true;
}

/* What differs first, or NULL. */
static const char *difference(const struct kernel_outcome *a, const struct kernel_outcome *b,
			      u64 *where)
{
	*where = 0;
	if (a->reason != b->reason)
		return "the exit";
	if (!same_memory(a->ram, b->ram, where))
		return "memory";
	for (u32 i = 0; i < ARRAY_SIZE(fields); i++) {
		const u8 *x = (u8 *)a->cpu + fields[i].offset, *y = (u8 *)b->cpu + fields[i].offset;

		for (*where = 0; *where < fields[i].size; ++*where)
			if (x[*where] != y[*where])
				return fields[i].name;
	}
	if (!same_tallies(&a->cpu->port.tally, &b->cpu->port.tally, a->cpu->port.wanted, where))
		return "the tally of class";
	return NULL;
}

struct finding {
	const char *what;
	u64 where;
	enum kernel_way way;
	u64 instructions, faults;
	u32 vectors; /* a bit for each exception that was logged */
};

static u32 logged_vectors(const struct kernel_outcome *out)
{
	u32 vectors = 0;
	u64 vector;

	for (u64 i = 0; i < out->faults; i++) {
		memcpy(&vector, out->ram + KERNEL_LOG + KERNEL_LOG_ENTRY * i, sizeof(vector));
		if (vector < 32)
			vectors |= BIT(vector);
	}
	return vectors;
}

/* True: the three ways disagree. */
static bool run_case(const struct kernel_case *c, struct finding *f)
{
	struct kernel_outcome outcome[NWAYS];
	const u64 *retired;

	for (u32 way = 0; way < NWAYS; way++)
		kernel_run(c, way, &outcome[way]);
	retired = outcome[0].cpu->port.tally.instructions;
	f->instructions = retired[RETIRE_OS] + retired[RETIRE_USR];
	f->faults = outcome[0].faults;
	f->vectors = logged_vectors(&outcome[0]);
	for (f->way = WAY_BLOCKS; f->way < NWAYS; f->way++) {
		f->what = difference(&outcome[0], &outcome[f->way], &f->where);
		if (f->what)
			return true;
	}
	return false;
}

/* --- a mismatch --- */

static void drop_item(struct kernel_case *c, u32 i)
{
	memmove(&c->item[i], &c->item[i + 1], (c->nitems - i - 1) * sizeof(c->item[0]));
	c->nitems--;
}

/* Leaves out what is not needed, one item at a time, the last first. */
static void shrink(struct kernel_case *c)
{
	struct finding f;

	for (u32 i = c->nitems; i-- > 0 && c->nitems > 1;) {
		struct kernel_case shorter = *c;

		drop_item(&shorter, i);
		if (run_case(&shorter, &f))
			*c = shorter;
	}
	while (c->rounds > 1) {
		struct kernel_case shorter = *c;

		shorter.rounds--;
		if (!run_case(&shorter, &f))
			break;
		*c = shorter;
	}
}

static void print_case(const struct kernel_case *c)
{
	struct finding f;

	run_case(c, &f);
	printf("stepped and %s differ in %s, %#llx; %u rounds%s of\n", ways[f.way], f.what,
	       (unsigned long long)f.where, c->rounds, c->la57 ? " with 57-bit addresses" : "");
	for (u32 i = 0; i < c->nitems; i++) {
		printf("%12s ", c->item[i].name);
		for (u32 k = 0; k < c->item[i].n; k++)
			printf(" %02x", c->item[i].bytes[k]);
		printf("\n");
	}
}

static void report(struct kernel_case *c, u64 index)
{
	printf("FAIL  case %llu\n", (unsigned long long)index);
	shrink(c);
	print_case(c);
	printf("repeat: kernel_test --seed %llu --case %llu\n", (unsigned long long)opt.seed,
	       (unsigned long long)index);
}

/* --- the run --- */

struct sums {
	u64 cases, instructions, faults, mismatches;
	u32 vectors;
};

/* What a run of everything must have met. */
#define VECTORS_EXPECTED                                                                     \
	(BIT(VEC_DB) | BIT(VEC_BP) | BIT(VEC_UD) | BIT(VEC_NM) | BIT(VEC_SS) | BIT(VEC_GP) | \
	 BIT(VEC_PF))

static bool one_case(u64 index, struct sums *sums)
{
	struct rng r = rng_for(opt.seed, index);
	struct kernel_case c = { 0 };
	struct finding f;
	bool differs;

	kernel_generate(&c, &r);
	differs = run_case(&c, &f);
	sums->cases++;
	sums->instructions += f.instructions;
	sums->faults += f.faults;
	sums->vectors |= f.vectors;
	sums->mismatches += differs;
	if (differs)
		report(&c, index);
	return !differs;
}

static void run_all(struct sums *sums)
{
	for (u64 i = 0; sums->instructions < opt.count; i++)
		if (!one_case(i, sums) && !opt.keep_going)
			return;
}

static void usage(int code)
{
	fputs("usage: kernel_test [--seed N] [--count N] [--case N] [--keep-going]\n", stderr);
	exit(code);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = { { "seed", required_argument, NULL, 's' },
						 { "count", required_argument, NULL, 'n' },
						 { "case", required_argument, NULL, 'c' },
						 { "keep-going", no_argument, NULL, 'k' },
						 { 0 } };
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 's':
			opt.seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			opt.count = strtoull(optarg, NULL, 0);
			break;
		case 'c':
			opt.one = strtoll(optarg, NULL, 0);
			break;
		case 'k':
			opt.keep_going = true;
			break;
		default:
			usage(2);
		}
	if (optind != argc)
		usage(2);
}

int main(int argc, char **argv)
{
	struct sums sums = { 0 };

	parse(argc, argv);
	kernel_machines_create();
	if (opt.one >= 0)
		one_case(opt.one, &sums);
	else
		run_all(&sums);
	kernel_machines_destroy();
	printf("seed %llu: %llu instructions in %llu cases, three ways, %llu exceptions, %llu "
	       "mismatches\n",
	       (unsigned long long)opt.seed, (unsigned long long)sums.instructions,
	       (unsigned long long)sums.cases, (unsigned long long)sums.faults,
	       (unsigned long long)sums.mismatches);
	if (!sums.mismatches && opt.one < 0 && opt.count >= COUNT_DEFAULT &&
	    (sums.vectors & VECTORS_EXPECTED) != VECTORS_EXPECTED) {
		printf("exceptions that never came: %#x\n", (u32)VECTORS_EXPECTED & ~sums.vectors);
		return 1;
	}
	return sums.mismatches ? 1 : 0;
}
