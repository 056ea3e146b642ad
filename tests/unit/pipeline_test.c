// SPDX-License-Identifier: MIT
/*
 * The pipeline model: single rules, each shown by a block whose cycles are known; bytes that are no
 * code; and the error of whole models against the blocks that were measured on silicon
 * (tests/blocks/README.md).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cost/cost.h"

static struct pipe_work *work;
static struct cost_block block;

static int set_up(void **state)
{
	(void)state;
	work = malloc(pipe_work_size());
	return !work;
}

static int tear_down(void **state)
{
	(void)state;
	free(work);
	return 0;
}

static const struct pipe_core *core_of(const char *name)
{
	return pipe_core_of(model_find(name)->set);
}

enum how { SIMULATED, DECODED, STATIC };

/* Cycles of a block; below 0: it has something that the model does not know. */
static double cycles_of(const struct pipe_core *core, const char *hex, enum how how)
{
	struct cost_code code = { .bytes = NULL };
	struct pipe_result result = { .ticks = 0 };
	bool whole = cost_parse_hex(hex, strcspn(hex, ","), &code) &&
		     cost_describe(core, &code, &block) && !block.problems;

	if (whole && how == STATIC)
		whole = cost_price(core, &code, &block, work);
	else if (whole)
		pipe_simulate(core, &block.block, how == DECODED, work, &result);
	free(code.bytes);
	if (!whole)
		return -1;
	return (double)(how == STATIC ? block.repeated_ticks : result.ticks) / PIPE_TICKS;
}

/* --- rules --- */

static const struct rule {
	const char *what, *model, *hex;
	double cycles;
} rules[] = {
	{ "a chain of ADD", "icelake", "4801d8", 1 },
	{ "a chain of IMUL", "icelake", "480fafc3", 3 },
	{ "a chain of IMUL, Zen", "milan", "480fafc3", 3 },
	{ "a zero idiom breaks the chain: only port 1 is left", "icelake", "480fafc0480fafc031c0",
	  2 },
	{ "XOR of 16 bits is no idiom", "icelake", "480fafc06631c0", 4 },
	{ "zero idioms need no port: 5 a cycle", "icelake", "31c031db31c931d231f6", 1 },
	{ "the same, 6 a cycle", "sapphirerapids", "31c031db31c931d231f631ff", 1 },
	{ "ones idioms do: 2 ports", "icelake", "660f76c0660f76c9660f76d2660f76db", 2 },
	{ "moves are eliminated", "sapphirerapids", "4889c34801cb4889d8", 1 },
	{ "small additions are folded", "sapphirerapids", "488b004883c008", 5 },
	{ "and are not on icelake", "icelake", "488b004883c008", 6 },
	{ "large ones are not", "sapphirerapids", "4869c06d4ec6414805393000 00", 4 },
	{ "shifts have 2 ports", "icelake", "48c1e00348c1e30348c1e10348c1e203", 2 },
	{ "IMUL has one", "icelake", "490fafc7490fafdf490fafcf490fafd7", 4 },
	{ "MUL: RAX comes before RDX", "icelake", "48f7e0", 3 },
	{ "a pointer chase", "icelake", "488b00", 5 },
	{ "a pointer chase, Zen", "genoa", "488b00", 4 },
	{ "loads: 2 a cycle", "icelake", "488b03488b4b08488b5310", 1.5 },
	{ "loads: 3 a cycle", "sapphirerapids", "488b03488b4b08488b5310", 1 },
	{ "stores: 2 a cycle to one line", "icelake", "48890348894b08", 1 },
	{ "a store across lines takes 2", "icelake", "4889433c", 2 },
	{ "store forwarding", "icelake", "488903488b03", 5 },
	{ "of a part", "icelake", "4889038b4304", 5 },
	{ "which fails when bytes come from elsewhere", "icelake", "488903488b4304", 19 },
	{ "POP does not wait for POP", "icelake", "5b5d415c415d", 2 },
	{ "but for RSP when it was computed", "icelake", "488d65f05d", 6 },
	{ "DIV r32, a chain", "icelake", "31d2f7f109d8", 12 },
	{ "DIV r64 keeps the divider for 10 cycles", "icelake",
	  "48b8640000000000000031d248b90700000000000000 48f7f1", 10 },
	{ "independent divisions overlap", "icelake", "c4c17b5ec0c4c1735ec8", 14 },
	{ "FP addition", "icelake", "f20f58c1", 4 },
	{ "FP addition after FP addition", "sapphirerapids", "f20f58c1", 2 },
	{ "from the integer to the FP side", "icelake", "660ffec10f58c2", 6 },
	{ "a conversion waits for the rest of its register late", "icelake", "f2480f2ac0f20f58c8",
	  4 },
	{ "writing AL needs the rest of RAX", "icelake", "b00101c8", 2 },
	{ "INC leaves the carry alone", "icelake", "48ffc04811cb", 1 },
	{ "CMOVBE: the flags pass two uops", "icelake", "39d50f47ea85ed", 3 },
	{ "CMOVBE: the register passes one", "icelake", "480f46c3", 1 },
	{ "a length-changing prefix stops the decoders", "icelake",
	  "488b54241089d66681e6ff7f6681feff7f", 7 },
	{ "a line of the uop cache has 8 uops of 32 bytes", "sapphirerapids",
	  "4989c749c1ef030f1f00", 0.63 },
	{ "of denser code there are two that are not full", "sapphirerapids", "4839fe0f1f000f1f00",
	  0.55 },
	{ "SETcc has one port", "sapphirerapids", "0f9ec00f9ec30f9ec10f9ec2", 4 },
	{ "MOVZX of a byte is eliminated", "sapphirerapids", "0fb6c80fb6c1", 0.38 },
	{ "a folded addition makes a shift slow", "sapphirerapids", "4883c00848c1e003", 3 },
	{ "AH comes late", "sapphirerapids", "fec4", 3 },
	{ "the same 4 bytes of lines are read twice a cycle", "sapphirerapids",
	  "488b06488b0f488b5500", 1.5 },
	{ "a load takes the stored register", "sapphirerapids", "488b034801c8488903", 1 },
	{ "but not with an index", "sapphirerapids", "488b040b4801d04889040b", 7 },
	{ "LOCK", "icelake", "f0480103", 21 },
	{ "XCHG with memory locks", "sapphirerapids", "488703", 17.5 },
	{ "PAUSE", "icelake", "f390", 37 },
	{ "the stack engine's offset is folded", "sapphirerapids", "504889e1524889e3", 1 },
	{ "DEC and JNZ are one uop, one a cycle", "icelake", "48ffc975fb", 1 },
	{ "VZEROUPPER begins a cycle", "icelake", "c5f877c5f9efc0c5f1efc9", 2 },
	{ "a register moved to itself is renamed", "milan", "4889c04801d8", 1 },
	{ "XCHG is renamed, in two slots", "milan", "4893", 0.34 },
	{ "SBB of a register with itself needs the carry alone", "milan", "4839c84819d2480fafd3",
	  1 },
	{ "TZCNT is two uops", "milan", "f3480fbcc0", 2 },
	{ "so is BLSR", "milan", "c4e2f8f3c8", 2 },
	{ "and BTS", "milan", "480fbae803", 2 },
	{ "BSF is six", "milan", "490fbcc0490fbcd8", 6 },
	{ "LEA with a scale", "milan", "488d0483", 1 },
	{ "LEA with two registers and a displacement", "milan", "488d441808", 2 },
	{ "a load with an index", "milan", "8b040383e000", 5 },
	{ "with a scaled one", "milan", "8b048383e000", 6 },
	{ "an ALU extends the sign of a load", "milan", "486300", 5 },
	{ "PUSH moves RSP before ADD does", "milan", "504883c408", 2 },
	{ "a load from [RSP + 8] takes the stored register", "milan",
	  "4889442408488b4424084883c001", 1 },
	{ "from another register it does not", "milan", "488943084801c8488b43084801c8", 7 },
	{ "two stores are not forwarded to one load", "milan", "8903894304488b03", 18 },
	{ "vectors are forwarded late", "milan", "0f29030f2803", 9 },
	{ "two stores a cycle to the same 32 bytes", "milan", "48890348894318", 1 },
	{ "one to others", "milan", "48890348894320", 2 },
	{ "a store across 32 bytes", "milan", "4889431c", 2 },
	{ "a byte waits until its word was written", "milan", "880348894340", 5 },
	{ "unless that was long ago", "milan",
	  "88034889434048898380000000488983c000000048898300010000", 5 },
	{ "two halves of a word leave together", "milan", "6689036689430248894340", 2 },
	{ "one store of a vector a cycle", "milan", "0f29030f294310", 2 },
	{ "which leave as MOVD does", "milan", "0f2903660f7ec8", 2 },
	{ "MOVD to a general register stops the ALUs", "milan",
	  "660f7ec0498d4808498d5008498d7008498d7808", 2 },
	{ "PMINUB has four units", "milan", "66410fdac066410fdac866410fdad066410fdad8", 1 },
	{ "between integers and floating point, Zen", "milan", "660ffec10f58c2", 6 },
	{ "SHUFPS is of integers", "milan", "0fc6c0030f58c2", 6 },
	{ "ANDPS is of floating point", "milan", "0f54c10f58c2", 4 },
	{ "LOCK, Zen", "milan", "f0480103", 7 },
	{ "MUL r32", "milan", "f7e3", 3 },
	{ "a store with base and index has two slots, of one cycle", "milan",
	  "4e8924360f1f000f1f000f1f00", 1 },
	{ "a load with both has one", "milan", "488b043e0f1f000f1f000f1f000f1f000f1f00", 1 },
	{ "SHLD has its slots in a cycle of its own", "milan",
	  "480fa4d8030f1f000f1f000f1f000f1f000f1f000f1f000f1f000f1f00"
	  "0f1f000f1f000f1f000f1f000f1f000f1f000f1f000f1f00",
	  4 },
	{ "TZCNT, BSF and BLSR are one uop", "genoa", "f3480fbcc0480fbcc0c4e2f8f3c8", 3 },
	{ "a load takes the register that was stored, whatever its base", "genoa",
	  "48894308488b43084801c8", 1 },
	{ "so does RMW", "genoa", "48010413", 1 },
	{ "and CMOV", "genoa", "48894308480f444308", 1 },
	{ "but not an addition", "genoa", "4889430848034308", 7 },
	{ "nor by another register", "genoa", "488943084889de488b46084801c8", 7 },
	{ "nor after the base was written", "genoa", "498b1e48015308498b1e488b4b08", 7 },
	{ "a byte does not wait for its word", "genoa", "880348894340", 2 },
	{ "stores to 32 bytes leave together", "genoa", "488903488943084889434048894310", 2 },
	{ "a NOP shares the slot before it", "genoa",
	  "4c89f8904c89fb904c89f9904c89fa904c89fe904c89ff90", 1 },
	{ "LEA of three parts adds the index last", "genoa", "488d440308", 1 },
	{ "no delay between integers and floating point", "genoa", "660ffec10f58c2", 4 },
	{ "PSHUFB has two cycles", "genoa", "660f3800c1", 2 },
	{ "PSHUFD has three units", "genoa",
	  "c4c17970c703c4c17970cf03c4c17970d703c4c17970df03c4c17970e703c4c17970ef03", 2 },
	{ "512 bits are one uop, for two cycles", "genoa",
	  "62d10d48fec762d10d48fecf62d10d48fed762d10d48fedf", 2 },
	{ "with the latency of 256", "genoa", "62f17c4858c1", 3 },
	{ "a load of 512 bits a cycle", "genoa", "62f1fe486f0662f1fe486f4e01", 2 },
	{ "a compare to a mask has two units", "genoa",
	  "62d10d2874cf62d10d2874d762d10d2874df62d10d2874e7", 2 },
	{ "VZEROUPPER begins a cycle, Zen", "genoa",
	  "c5f8774c89f84c89fb4c89f94c89fa4c89fe4c89ff4d89f8", 2 },
};

static void every_rule_has_its_cycles(void **state)
{
	u32 wrong = 0;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rules); i++) {
		double cycles = cycles_of(core_of(rules[i].model), rules[i].hex, SIMULATED);

		if (fabs(cycles - rules[i].cycles) <= 0.03 * rules[i].cycles)
			continue;
		print_error("%s: %s (%s): %.2f cycles, not %.2f\n", rules[i].model, rules[i].what,
			    rules[i].hex, cycles, rules[i].cycles);
		wrong++;
	}
	assert_int_equal(wrong, 0);
}

/* Compare and branch are one slot; a store and its address are; RMW is two. */
static void slots_are_those_after_fusion(void **state)
{
	static const struct {
		const char *hex;
		u32 slots;
	} rows[] = {
		{ "4839c87400", 1 },   /* CMP RAX, RCX; JZ */
		{ "4883380074fa", 2 }, /* CMP [RAX], imm8; JZ: memory and immediate do not fuse */
		{ "48ffc073fb", 2 },   /* INC and JNB: the carry is not INC's */
		{ "480306", 1 },       /* ADD RAX, [RSI] */
		{ "c5f5fe0406", 2 },   /* VPADDD YMM0, YMM1, [RSI+RAX]: un-laminated */
		{ "488906", 1 },       /* MOV [RSI], RAX */
		{ "480106", 2 },       /* ADD [RSI], RAX */
		{ "505a488b0424",
		  4 }, /* PUSH, POP, and [RSP], which needs the stack engine's offset */
	};
	const struct pipe_core *core = core_of("icelake");

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		struct cost_code code;
		struct pipe_result result;

		assert_true(cost_parse_hex(rows[i].hex, strlen(rows[i].hex), &code));
		assert_true(cost_describe(core, &code, &block) && !block.problems);
		pipe_simulate(core, &block.block, false, work, &result);
		free(code.bytes);
		if (result.slots != rows[i].slots * PIPE_TICKS)
			fail_msg("%s: %u slots, not %u", rows[i].hex, result.slots / PIPE_TICKS,
				 rows[i].slots);
	}
}

static void the_bottleneck_is_the_largest_bound(void **state)
{
	static const struct {
		const char *hex;
		enum pipe_bound bound;
		u32 ticks;
	} rows[] = {
		{ "480fafc3", BOUND_LATENCY, 3 * PIPE_TICKS },
		{ "490fafc7490fafdf490fafcf490fafd7", BOUND_PORTS, 4 * PIPE_TICKS },
		{ "31c031db31c931d231f6", BOUND_ISSUE, PIPE_TICKS },
		{ "9090909090909090", BOUND_FRONT_END, 2 * PIPE_TICKS },
		{ "31d2b864000000b907000000f7f1", BOUND_DIVIDER, 6 * PIPE_TICKS },
	};
	const struct pipe_core *core = core_of("icelake");

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		struct cost_code code;
		struct pipe_result result;

		assert_true(cost_parse_hex(rows[i].hex, strlen(rows[i].hex), &code));
		assert_true(cost_describe(core, &code, &block) && !block.problems);
		pipe_simulate(core, &block.block, false, work, &result);
		free(code.bytes);
		assert_int_equal(result.bound[rows[i].bound], rows[i].ticks);
		for (u32 b = 0; b < PIPE_BOUNDS; b++)
			assert_true(result.bound[b] <= rows[i].ticks);
	}
}

/* --- bytes that are no code --- */

static u64 next_random(u64 *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* Every byte belongs to one instruction or one problem, and the same bytes cost the same twice.
 * False: there are no instructions among them. */
static bool check_bytes(const struct pipe_core *core, struct cost_code *code)
{
	struct pipe_result first, second;
	u32 bytes = 0;

	assert_true(cost_describe(core, code, &block));
	for (u32 i = 0; i < block.count; i++)
		bytes += block.insn[i].length;
	assert_int_equal(bytes, code->size);
	assert_int_equal(block.block.count + block.problems, block.count);
	if (!block.block.count)
		return false;
	pipe_simulate(core, &block.block, false, work, &first);
	pipe_simulate(core, &block.block, false, work, &second);
	assert_int_equal(first.ticks, second.ticks);
	return true;
}

static void random_bytes_are_answered(void **state)
{
	u64 seed = 88172645463325252ull;
	u32 simulated = 0;
	u8 bytes[64];

	(void)state;
	for (u32 n = 0; n < 2000; n++) {
		struct cost_code code = { .bytes = bytes,
					  .size = 1 + next_random(&seed) % sizeof(bytes) };

		for (u32 i = 0; i < code.size; i++)
			bytes[i] = next_random(&seed) >> 24;
		simulated += check_bytes(pipe_core_of(model_at(n % 5)->set), &code);
	}
	assert_true(simulated > 1500);
}

/* --- static timing --- */

/* At an address, in hundredths of a cycle. Segments end with a line: the slots of 64 bytes hide
 * the wait for a port, those of the rest of a line do not; some slack does, more of it where the
 * code goes on. */
static void prices_are_slots_and_waits(void **state)
{
	static const struct {
		const char *hex;
		u64 at;
		u32 hundredths[4];
	} rows[] = {
		{ "909090", 0, { 20, 20, 20 } },
		{ "480fafc3480fafc3", 0, { 100, 62 } },		     /* IMUL: port 1 */
		{ "480fafc3480fafc3", 0x3c, { 62, 62 } },	     /* in two lines */
		{ "480fafc3909090", 0, { 20, 20, 20, 20 } },	     /* IMUL before three NOPs */
		{ "480fafc3909090", 0x3c, { 62, 20, 20, 20 } },	     /* which are in another line */
		{ "4839c875fb", 0, { 0, 100 } },		     /* CMP, JNZ: fused; a turn */
		{ "480fafc375fa", 0, { 50, 250 } },		     /* a chain of IMUL */
		{ "480fafc3741075f8", 0, { 50, 43, 206 } },	     /* and a way out of its loop */
		{ "480fafc374030f1f0075f5", 0, { 50, 43, 20, 96 } }, /* or around a part of it */
		{ "0fa29090", 0, { 100, 20, 20 } },		     /* CPUID: fixed */
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		struct cost_code code;

		assert_true(cost_parse_hex(rows[i].hex, strlen(rows[i].hex), &code));
		code.at = rows[i].at;
		assert_true(cost_describe(core_of("icelake"), &code, &block));
		assert_true(cost_price(core_of("icelake"), &code, &block, work));
		free(code.bytes);
		for (u32 n = 0; n < block.count; n++)
			if (block.insn[n].ticks * 100 / PIPE_TICKS != rows[i].hundredths[n])
				fail_msg("%s: instruction %u has %u of 100", rows[i].hex, n,
					 block.insn[n].ticks * 100 / PIPE_TICKS);
	}
}

#define IMUL "480fafc3" /* imul %rbx, %rax */
#define LOAD "488b00"	/* mov (%rax), %rax */

static u32 priced(u32 n, const char *insn, const char *end, u32 *first)
{
	char hex[2048] = "";
	struct cost_code code;

	for (u32 i = 0; i < n; i++)
		strcat(hex, insn);
	strcat(hex, end);
	assert_true(cost_parse_hex(hex, strlen(hex), &code));
	assert_true(cost_describe(core_of("icelake"), &code, &block));
	assert_true(cost_price(core_of("icelake"), &code, &block, work));
	free(code.bytes);
	*first = block.insn[0].ticks;
	return block.ticks;
}

/* Straight-line code whose chain takes 3 cycles an instruction and its port one: seven lines, of
 * which three have four lines after them; and a loop of more instructions than are simulated. */
static void long_chains_are_priced(void **state)
{
	u32 first, ticks;

	(void)state;
	ticks = priced(7 * 16, IMUL, "ff e0", &first); /* jmp *%rax */
	assert_int_equal(first, 3 * PIPE_TICKS);
	assert_in_range(ticks, (3 * 3 + 4) * 16 * PIPE_TICKS - 4 * PIPE_TICKS,
			(3 * 3 + 4) * 16 * PIPE_TICKS + PIPE_TICKS);
	ticks = priced(4 * 16, IMUL, "ff e0", &first);
	assert_in_range(first, 0, PIPE_TICKS);
	ticks = priced(100, IMUL, "75 00", &first); /* jnz to the next */
	assert_in_range(ticks, 90 * PIPE_TICKS, 250 * PIPE_TICKS);
	ticks = priced(100, IMUL, "0f 85 6a fe ff ff", &first); /* jnz to the first */
	assert_in_range(ticks, 300 * PIPE_TICKS, 301 * PIPE_TICKS);
	/* Loads, each of which waits five cycles for the one before: 149 in lines that have four
	 * after them, and 106 that wait for their ports alone. */
	ticks = priced(255, LOAD, "ff e0", &first);
	assert_in_range(ticks, 149 * 5 * PIPE_TICKS, (151 * 5 + 106) * PIPE_TICKS);
}

static struct pipe_need need_of(const struct pipe_core *core, const u8 *bytes, u32 size)
{
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction in;
	ZydisDecoder decoder;
	struct pipe_need need;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	assert_true(ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes, size, &in, ops)));
	memset(&need, 0, sizeof(need));
	pipe_need(core, &in, ops, &need);
	return need;
}

/* The engine remembers needs by the bytes before the constants (engine/translate/decoder.c). */
static void needs_do_not_depend_on_constants(void **state)
{
	static const struct {
		const char *hex;
		u32 constants; /* bytes at its end */
	} rows[] = {
		{ "4883c000", 1 },	   /* ADD RAX, imm8 */
		{ "480500000000", 4 },	   /* ADD RAX, imm32 */
		{ "4881e800000000", 4 },   /* SUB RAX, imm32 */
		{ "488d5c0200", 1 },	   /* LEA RBX, [RDX+RAX+disp8] */
		{ "488d9c1000000000", 4 }, /* LEA RBX, [RAX+RDX+disp32] */
		{ "488d9800000000", 4 },   /* LEA RBX, [RAX+disp32] */
		{ "488d5800", 1 },	   /* LEA RBX, [RAX+disp8] */
		{ "48c1c300", 1 },	   /* ROL RBX, imm8 */
		{ "48c1e300", 1 },	   /* SHL RBX, imm8 */
		{ "488b9800000000", 4 },   /* MOV RBX, [RAX+disp32] */
		{ "488b1d00000000", 4 },   /* MOV RBX, [RIP+disp32] */
		{ "48c70000000000", 4 },   /* MOV [RAX], imm32 */
		{ "4883f800", 1 },	   /* CMP RAX, imm8 */
		{ "7500", 1 },		   /* JNZ */
		{ "0f8500000000", 4 },	   /* JNZ */
		{ "660f70c000", 1 },	   /* PSHUFD XMM0, XMM0, imm8 */
		{ "48b80000000000000000", 8 },
	};
	static const u8 fills[] = { 0x00, 0x01, 0x02, 0x7f, 0x80, 0xff };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows) * 5 * ARRAY_SIZE(fills); i++) {
		u32 row = i % ARRAY_SIZE(rows), rest = i / ARRAY_SIZE(rows);
		const struct pipe_core *core = pipe_core_of(model_at(rest % 5)->set);
		struct pipe_need first, other;
		struct cost_code code;

		assert_true(cost_parse_hex(rows[row].hex, strlen(rows[row].hex), &code));
		first = need_of(core, code.bytes, code.size);
		memset(code.bytes + code.size - rows[row].constants, fills[rest / 5],
		       rows[row].constants);
		other = need_of(core, code.bytes, code.size);
		free(code.bytes);
		if (memcmp(&first, &other, sizeof(first)))
			fail_msg("%s: %s needs something else with %#x", model_at(rest % 5)->name,
				 rows[row].hex, fills[rest / 5]);
	}
}

/* --- accuracy --- */

#define BLOCKS_MAX 4000

static double measured[BLOCKS_MAX], predicted[BLOCKS_MAX];

/* hex,source,category,n,cycles,spread */
static u32 predict(const char *path, const struct pipe_core *core, enum how how)
{
	char line[2048];
	FILE *file = fopen(path, "r");
	u32 n = 0;

	if (!file)
		fail_msg("%s is missing: run this from the top folder", path);
	while (fgets(line, sizeof(line), file)) {
		const char *field = line;

		if (!strncmp(line, "hex", 3))
			continue;
		for (u32 i = 0; i < 4; i++)
			field = strchr(field, ',') + 1;
		assert_true(n < BLOCKS_MAX);
		measured[n] = atof(field);
		predicted[n] = cycles_of(core, line, how);
		if (predicted[n] < 0)
			fail_msg("not known: %s", line);
		n++;
	}
	fclose(file);
	return n;
}

static double mean_error(u32 n)
{
	double sum = 0;

	for (u32 i = 0; i < n; i++)
		sum += fabs(predicted[i] - measured[i]) / measured[i];
	return sum / n;
}

/* Kendall's tau-b: of all pairs, those in the right order less those in the wrong one. */
static double rank_correlation(u32 n)
{
	double order = 0, distinct_m = 0, distinct_p = 0;

	for (u32 i = 0; i < n; i++)
		for (u32 j = 0; j < i; j++) {
			int m = (measured[i] > measured[j]) - (measured[i] < measured[j]);
			int p = (predicted[i] > predicted[j]) - (predicted[i] < predicted[j]);

			order += m * p;
			distinct_m += m != 0;
			distinct_p += p != 0;
		}
	return order / sqrt(distinct_m * distinct_p);
}

static void check_accuracy(const char *path, const char *model, enum how how, double worst,
			   double least)
{
	u32 n = predict(path, core_of(model), how);
	double error = mean_error(n), tau = rank_correlation(n);

	print_message("%s: %u blocks, mean error %.2f %%, tau %.3f\n", path, n, 100 * error, tau);
	assert_true(n > 2000);
	assert_true(error <= worst);
	assert_true(tau >= least);
}

static void icelake_is_within_10_percent_of_its_silicon(void **state)
{
	(void)state;
	check_accuracy("tests/blocks/icelake.csv", "icelake", SIMULATED, 0.10, 0.86);
}

static void so_it_is_without_the_uop_cache(void **state)
{
	(void)state;
	check_accuracy("tests/blocks/icelake-decoded.csv", "icelake", DECODED, 0.10, 0.86);
}

static void sapphirerapids_is_within_10_percent_of_its_silicon(void **state)
{
	(void)state;
	check_accuracy("tests/blocks/sapphirerapids.csv", "sapphirerapids", SIMULATED, 0.10, 0.86);
}

static void milan_is_within_10_percent_of_its_silicon(void **state)
{
	(void)state;
	check_accuracy("tests/blocks/milan.csv", "milan", SIMULATED, 0.10, 0.86);
}

static void genoa_is_within_10_percent_of_its_silicon(void **state)
{
	(void)state;
	check_accuracy("tests/blocks/genoa.csv", "genoa", SIMULATED, 0.10, 0.86);
}

/* As iterations of a loop: what guests' cycles are worth where nothing is missed. */
static void static_timing_is_near_silicon(void **state)
{
	(void)state;
	check_accuracy("tests/blocks/icelake.csv", "icelake", STATIC, 0.20, 0.80);
	check_accuracy("tests/blocks/sapphirerapids.csv", "sapphirerapids", STATIC, 0.20, 0.80);
	check_accuracy("tests/blocks/milan.csv", "milan", STATIC, 0.20, 0.80);
	check_accuracy("tests/blocks/genoa.csv", "genoa", STATIC, 0.20, 0.80);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_has_its_cycles),
		cmocka_unit_test(slots_are_those_after_fusion),
		cmocka_unit_test(the_bottleneck_is_the_largest_bound),
		cmocka_unit_test(random_bytes_are_answered),
		cmocka_unit_test(prices_are_slots_and_waits),
		cmocka_unit_test(long_chains_are_priced),
		cmocka_unit_test(needs_do_not_depend_on_constants),
		cmocka_unit_test(static_timing_is_near_silicon),
		cmocka_unit_test(icelake_is_within_10_percent_of_its_silicon),
		cmocka_unit_test(so_it_is_without_the_uop_cache),
		cmocka_unit_test(sapphirerapids_is_within_10_percent_of_its_silicon),
		cmocka_unit_test(milan_is_within_10_percent_of_its_silicon),
		cmocka_unit_test(genoa_is_within_10_percent_of_its_silicon),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
