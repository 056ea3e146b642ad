// SPDX-License-Identifier: MIT
/*
 * The run: worker processes go through numbered cases, each of which follows from the seed and its
 * number alone. A case is one sequence and a few inputs.
 */
#include "diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/must.h"

#define INPUTS	       12
#define PROGRAM_INPUTS (GUEST_HOT_AFTER + 24)
#define DATA_CASES     64 /* so many cases in a row start with the same data pages */
#define REPORT_MAX     100

struct worker {
	const struct diff_options *opt;
	struct progress *progress;
	struct mode modes[NMODES];
	struct form_table tables[NMODES];
	u64 data_block; /* which data c.data holds */
	struct test_case c;
};

static void fill_data(struct worker *w, u64 index)
{
	struct rng r = rng_for(w->opt->seed ^ 0xda7a, index / DATA_CASES);

	if (w->data_block == index / DATA_CASES)
		return;
	w->data_block = index / DATA_CASES;
	for (u32 i = 0; i < DATA_SIZE; i += 256)
		if (rng_one_in(&r, 2))
			rng_floats(&r, w->c.data + i, 256);
		else
			rng_fill(&r, w->c.data + i, 256);
}

static void count_families(struct worker *w, u64 executed)
{
	const struct sequence *seq = &w->c.seq;

	for (u32 i = 0; i < seq->n && i < executed; i++)
		w->progress->per_family[seq->items[i].family]++;
}

static void print_repeat(const struct worker *w, u64 index)
{
	const struct diff_options *opt = w->opt;

	printf("  repeat: build/tests/diff/diff_test --seed %llu --case %llu",
	       (unsigned long long)opt->seed, (unsigned long long)index);
	if (opt->family >= 0)
		printf(" --family %s", family_names[opt->family]);
	if (opt->mode >= 0)
		printf(" --mode %u", 64u >> opt->mode);
	if (opt->is_amd != host_is_amd())
		printf(" --vendor other");
	if (opt->kept)
		printf(" --kept");
	if (opt->observed)
		printf(" --observed");
	printf("\n");
	fflush(stdout);
}

/* Is it a translation that should have been dropped? Such a mismatch is not to be had from its case
 * alone. */
static void print_history(const struct worker *w)
{
	static struct verdict again;

	guest_forget();
	case_run(&w->c, w->opt->plant, &again);
	if (!again.differs)
		printf("  but not once all translations are forgotten: repeat with --first some "
		       "cases earlier\n");
}

/* Something that only a first execution shows: there is nothing to shrink. */
static bool goes_away(struct worker *w, u64 index, const struct verdict *first)
{
	static struct verdict again;

	case_run(&w->c, w->opt->plant, &again);
	if (again.differs)
		return false;
	printf("mismatch in case %llu, not repeated by a second run:\n", (unsigned long long)index);
	case_print(&w->c, first);
	print_repeat(w, index);
	return true;
}

static void shrink_and_print(struct worker *w, u64 index, struct verdict *v)
{
	const struct sequence *seq = &w->c.seq;

	case_shrink(&w->c, w->opt->plant, v);
	w->progress->caught = seq->n ? seq->items[seq->n - 1].mnemonic : 0;
	w->progress->caught_length = seq->n;
	if (w->opt->plant != PLANT_NONE)
		return;
	printf("mismatch in case %llu:\n", (unsigned long long)index);
	case_print(&w->c, v);
	print_history(w);
	print_repeat(w, index);
}

static void report(struct worker *w, u64 index, struct verdict *v)
{
	static struct test_case kept;

	w->progress->mismatches++;
	if (w->progress->mismatches > REPORT_MAX || goes_away(w, index, v))
		return;
	kept = w->c;
	shrink_and_print(w, index, v);
	w->c = kept;
	case_load(&w->c);
}

/* On a guest of the other vendor a difference may be one of theirs. */
static void differs(struct worker *w, u64 index, struct verdict *v)
{
	u64 rules = guest_is_foreign() ? case_explain(&w->c, w->opt->plant) : 0;

	if (!rules)
		report(w, index, v);
	for (; rules; rules &= rules - 1)
		w->progress->per_rule[__builtin_ctzll(rules)]++;
}

static u64 pick_budget(struct rng *r)
{
	return rng_one_in(r, 5) ? 1 + rng_below(r, 4) : ~0ull >> 1;
}

static u32 pick_mode(const struct worker *w, struct rng *r)
{
	u32 any = rng_below(r, 8);

	if (w->opt->mode >= 0)
		return w->opt->mode;
	if (any == 0 && native_has_ldt())
		return MODE_16;
	return any < 3 ? MODE_32 : MODE_64;
}

static void run_case(struct worker *w, u64 index)
{
	static struct verdict v;
	struct rng r = rng_for(w->opt->seed, index);
	u32 mode = pick_mode(w, &r);
	bool ldt = mode == MODE_16 || (mode == MODE_32 && native_has_ldt() && rng_one_in(&r, 2));
	bool program = w->opt->family < 0 && rng_one_in(&r, 8);

	if (w->opt->observed)
		guest_count(index);
	fill_data(w, index);
	generate(&w->c.seq, &r, &w->modes[mode], &w->tables[mode], w->opt->family, program, ldt);
	case_load(&w->c);
	for (u32 i = 0; i < (program ? PROGRAM_INPUTS : INPUTS); i++) {
		input_random(&w->c.in, &w->c.seq, &r);
		w->c.budget = pick_budget(&r);
		w->c.recount = program && rng_one_in(&r, 8);
		if (w->opt->show) {
			v.nlines = 0;
			case_print(&w->c, &v);
			fflush(stdout);
		}
		case_run(&w->c, w->opt->plant, &v);
		w->progress->executed += v.executed;
		if (!v.skipped)
			count_families(w, v.executed + 1);
		if (v.differs)
			differs(w, index, &v);
		if (v.differs || v.endless)
			break;
	}
	w->progress->cases++;
}

static void work(struct worker *w, u32 number)
{
	const struct diff_options *opt = w->opt;
	struct progress *p = w->progress;

	native_init();
	guest_init(opt->is_amd);
	if (opt->kept)
		guest_keep();
	w->data_block = ~0ull;
	w->c.self = opt->self;
	for (u32 i = 0; i < NMODES; i++) {
		mode_init(&w->modes[i], i);
		forms_find(&w->tables[i], &w->modes[i]);
	}
	for (u64 i = opt->first + number; p->executed < opt->count / opt->workers;
	     i += opt->workers) {
		if (p->cases > 1000 && p->executed < p->cases / 100)
			break; /* the family has nothing to run in this mode */
		p->index = opt->one >= 0 ? (u64)opt->one : i;
		run_case(w, p->index);
		if (opt->one >= 0 || (p->mismatches && !opt->keep_going))
			break;
	}
	must(!opt->kept || opt->one >= 0 || guest_recalled() > p->cases);
}

static void add_up(struct progress *sum, const struct progress *p)
{
	sum->executed += p->executed;
	sum->cases += p->cases;
	sum->mismatches += p->mismatches;
	for (u32 i = 0; i < NFAMILIES; i++)
		sum->per_family[i] += p->per_family[i];
	for (u32 i = 0; i < NRULES; i++)
		sum->per_rule[i] += p->per_rule[i];
	if (p->mismatches) {
		sum->caught = p->caught;
		sum->caught_length = p->caught_length;
	}
}

static pid_t start_worker(struct worker *w, u32 number)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	must(pid >= 0);
	if (pid)
		return pid;
	work(w, number);
	fflush(stdout);
	_exit(0);
}

bool diff_run(const struct diff_options *opt, struct progress *sum)
{
	struct progress *all = mmap(NULL, opt->workers * sizeof(*all), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct worker *w = aligned_alloc(_Alignof(struct worker), sizeof(*w));
	pid_t pids[WORKERS_MAX];
	bool fine = true;

	must(all != MAP_FAILED && w && opt->workers <= WORKERS_MAX);
	memset(w, 0, sizeof(*w));
	w->opt = opt;
	for (int i = 0; i < opt->workers; i++) {
		w->progress = &all[i];
		pids[i] = start_worker(w, i);
	}
	memset(sum, 0, sizeof(*sum));
	for (int i = 0; i < opt->workers; i++) {
		int status;

		must(waitpid(pids[i], &status, 0) == pids[i]);
		add_up(sum, &all[i]);
		if (status == 0)
			continue;
		fine = false;
		printf("worker %d died (%s %d) in case %llu\n", i,
		       WIFSIGNALED(status) ? "signal" : "exit",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
		       (unsigned long long)all[i].index);
		w->progress = &all[i];
		print_repeat(w, all[i].index);
	}
	munmap(all, opt->workers * sizeof(*all));
	free(w);
	return fine;
}
