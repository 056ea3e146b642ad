/* SPDX-License-Identifier: MIT */
/*
 * vpmu cost: code to analyze, where it comes from, and what the pipeline model says of it.
 */
#ifndef CLI_COST_COST_H
#define CLI_COST_COST_H

#include <stdio.h>

#include "pipeline/pipeline.h"

struct cost_options {
	const struct model *model;
	const struct pipe_core *core;
	bool decoded;		    /* as if the uop cache held nothing */
	const char *csv;	    /* a file of blocks, or NULL */
	const char *symbol, *range; /* which part of an ELF file, or NULL */
	const char *input;
};

/* Bytes of code. */
struct cost_code {
	u8 *bytes; /* to be freed */
	size_t size;
	u64 at;	      /* address of the first */
	bool in_file; /* of an ELF file: RIP-relative operands mean what they say */
};

/* Reads what the options name. An exit code; it has said what is wrong. */
int cost_read(const struct cost_options *options, struct cost_code *code);
/* Digits in pairs, blanks allowed. False: it is something else, or none. */
bool cost_parse_hex(const char *text, size_t length, struct cost_code *code);
/* The code of an ELF file that was read whole. */
int cost_read_elf(const struct cost_options *options, const char *name, const u8 *file, size_t size,
		  struct cost_code *code);
/* Assembler text, by the system's as(1); `file` and `size` become those of the object. */
int cost_assemble(const char *name, u8 **file, size_t *size);

enum cost_status { COST_OK, COST_GARBAGE, COST_TRUNCATED, COST_UNSUPPORTED };

struct cost_insn {
	u32 offset;
	u8 length;
	u8 status;     /* enum cost_status */
	u16 row;       /* in the block, if COST_OK */
	u32 ticks;     /* cost_price(): under static timing */
	char text[96]; /* as an assembler would write it, or its bytes */
};

struct cost_block {
	struct pipe_block block; /* of the instructions that are COST_OK */
	u32 count, problems;
	u32 ticks;	    /* cost_price(): the sum of all */
	u32 repeated_ticks; /* and if it were an iteration of a loop */
	struct cost_insn insn[PIPE_INSNS];
};

/* False: more than PIPE_INSNS instructions. */
bool cost_describe(const struct pipe_core *core, const struct cost_code *code,
		   struct cost_block *out);
/* Fills in the ticks; `work` has pipe_work_size() bytes. False: no memory. */
bool cost_price(const struct pipe_core *core, const struct cost_code *code,
		struct cost_block *block, struct pipe_work *work);
/* "unsupported instruction 'cpuid' at byte 3" */
void cost_name_problem(const struct cost_insn *insn, char *text, size_t size);

void cost_print(const struct cost_options *options, const struct cost_block *block,
		const struct pipe_result *result);
int cost_csv(const struct cost_options *options);

#endif
