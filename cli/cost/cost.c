// SPDX-License-Identifier: MIT
/*
 * vpmu cost: what the pipeline model says of a block of code, as llvm-mca does.
 */
#include "cli/cost/cost.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define DEFAULT_MODEL "icelake"

static int take_model(struct cost_options *options, const char *name)
{
	options->model = model_find(name);
	if (!options->model)
		return usage_error(&command_cost, "there is no CPU model '%s'", name);
	options->core = pipe_core_of(options->model->set);
	return STATUS_OK;
}

/* NULL: it is another option. An option's value is the rest of its word, or the next word. */
static const char *value_of(const char *option, int argc, char **argv, int *at)
{
	size_t n = strlen(option);

	if (!strncmp(argv[*at], option, n) && argv[*at][n] == '=')
		return argv[*at] + n + 1;
	if (strcmp(argv[*at], option))
		return NULL;
	return *at + 1 < argc ? argv[++*at] : "";
}

static int take_word(struct cost_options *options, int argc, char **argv, int *at)
{
	const char *word = argv[*at], *model = value_of("--cpu", argc, argv, at);
	const struct {
		const char *name, **where;
	} values[] = {
		{ "--csv", &options->csv },
		{ "--symbol", &options->symbol },
		{ "--range", &options->range },
	};

	if (model)
		return *model ? take_model(options, model)
			      : usage_error(&command_cost, "--cpu needs the name of a model");
	for (u32 i = 0; i < ARRAY_SIZE(values); i++) {
		const char *value = value_of(values[i].name, argc, argv, at);

		if (value)
			*values[i].where = value;
		if (value && !*value)
			return usage_error(&command_cost, "%s needs a value", values[i].name);
		if (value)
			return STATUS_OK;
	}
	if (!strcmp(word, "--decoded"))
		options->decoded = true;
	else if ((word[0] == '-' && word[1]) || options->input)
		return usage_error(&command_cost, "cannot make sense of '%s'", word);
	else
		options->input = word;
	return STATUS_OK;
}

static int take_line(struct cost_options *options, int argc, char **argv)
{
	const char *model = getenv("VPMU_CPU");
	int status = take_model(options, model && *model ? model : DEFAULT_MODEL);

	for (int i = 1; i < argc && !status; i++)
		status = take_word(options, argc, argv, &i);
	if (status)
		return status;
	if (!options->input == !options->csv)
		return usage_error(&command_cost, options->csv ? "either --csv or a block"
							       : "there is no code to look at");
	if ((options->symbol && options->range) ||
	    (options->csv && (options->symbol || options->range)))
		return usage_error(&command_cost,
				   "--symbol, --range and --csv exclude one another");
	return STATUS_OK;
}

static int report_problems(const struct cost_block *block)
{
	char text[160];

	for (u32 i = 0; i < block->count; i++)
		if (block->insn[i].status != COST_OK) {
			cost_name_problem(&block->insn[i], text, sizeof(text));
			failure(STATUS_BROKEN, "%s", text);
		}
	return block->problems ? STATUS_BROKEN : STATUS_OK;
}

static int analyze(const struct cost_options *options, const struct cost_code *code)
{
	struct cost_block *block = malloc(sizeof(*block));
	struct pipe_work *work = malloc(pipe_work_size());
	struct pipe_result result;
	int status;

	if (!block || !work) {
		status = out_of_memory();
	} else if (!cost_describe(options->core, code, block)) {
		status = failure(STATUS_BROKEN,
				 "more than %d instructions: choose some with --symbol or "
				 "--range",
				 PIPE_INSNS);
	} else if (!cost_price(options->core, code, block, work)) {
		status = out_of_memory();
	} else {
		status = report_problems(block);
		if (block->block.count) {
			pipe_simulate(options->core, &block->block, options->decoded, work,
				      &result);
			cost_print(options, block, &result);
		}
	}
	free(block);
	free(work);
	return status;
}

static int run(int argc, char **argv)
{
	struct cost_options options = { .model = NULL };
	struct cost_code code = { .bytes = NULL };
	int status;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		command_help(&command_cost);
		return STATUS_OK;
	}
	status = take_line(&options, argc, argv);
	if (status)
		return status;
	if (options.csv)
		return cost_csv(&options);
	status = cost_read(&options, &code);
	if (!status)
		status = analyze(&options, &code);
	free(code.bytes);
	return status;
}

static void describe(void)
{
	puts("Cycles per iteration of a block whose iterations follow one another, or of a loop\n"
	     "if it ends with a jump, on a core of a CPU model: all loads hit L1, all branches\n"
	     "are predicted. Names the bottleneck and shows ports and instructions.\n\n"
	     "input:\n"
	     "  HEX          the bytes of the block in hexadecimal digits\n"
	     "  FILE         an ELF file, whose section .text is taken; hexadecimal digits; or\n"
	     "               assembler text, for which as(1) is needed\n"
	     "  -            the same from standard input\n\n"
	     "options:\n"
	     "  --cpu MODEL  skylake, icelake, sapphirerapids, milan or genoa; by default "
	     "$VPMU_CPU,\n"
	     "               or icelake. docs/model.md says which were compared with silicon\n"
	     "  --symbol NAME  a function of an ELF file instead of its section .text\n"
	     "  --range BEGIN-END  a range of addresses of an ELF file; of an object, offsets\n"
	     "  --decoded    as if the uop cache held nothing: every instruction is decoded again\n"
	     "  --csv FILE   blocks in hexadecimal digits, one a line or as the first column; a "
	     "header\n"
	     "               is allowed. Prints 'hex,cycles' for each\n\n"
	     "exit codes: 0 everything was answered, 1 something was not (it is named, the rest "
	     "is\n"
	     "answered) or could not be read, 2 wrong usage.\n\n"
	     "examples:\n"
	     "  vpmu cost 4801d8480fafc3\n"
	     "  vpmu cost --cpu genoa --symbol memchr memchr.o\n"
	     "  echo 'add (%rsi), %rax; add $8, %rsi; cmp %rdi, %rsi; jne .-10' | vpmu cost -\n"
	     "  vpmu cost --csv blocks.csv > cycles.csv");
}

const struct command command_cost = {
	.name = "cost",
	.synopsis = "[--cpu MODEL] [--decoded] [--symbol NAME | --range BEGIN-END] FILE|HEX|- | "
		    "--csv FILE",
	.summary = "Estimate the cycles of a block of code",
	.run = run,
	.describe = describe,
};
