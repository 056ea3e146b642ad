// SPDX-License-Identifier: MIT
/*
 * From bytes to a block that the pipeline model can simulate. What cannot be decoded, is cut off or
 * has no row in the model is kept as a problem with its name; the rest is described.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cost/cost.h"

static int digit(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

bool cost_parse_hex(const char *text, size_t length, struct cost_code *code)
{
	u8 *bytes = malloc(length / 2 + 1);
	size_t n = 0;

	for (size_t i = 0; bytes && i < length; i++) {
		if (isspace((unsigned char)text[i]))
			continue;
		if (!isxdigit((unsigned char)text[i]))
			goto no_hex;
		bytes[n / 2] = n % 2 ? bytes[n / 2] | digit(text[i]) : digit(text[i]) << 4;
		n++;
	}
	if (!bytes || !n || n % 2)
		goto no_hex;
	*code = (struct cost_code){ .bytes = bytes, .size = n / 2 };
	return true;

no_hex:
	free(bytes);
	return false;
}

static void write_bytes(const u8 *bytes, u32 n, char *text, size_t size)
{
	text[0] = '\0';
	for (u32 i = 0; i < n && 2 * i + 3 <= size; i++)
		snprintf(text + 2 * i, size - 2 * i, "%02x", bytes[i]);
}

static void write_insn(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops, u64 at,
		       char *text, size_t size)
{
	static ZydisFormatter formatter;
	static bool ready;

	if (!ready)
		ready = ZYAN_SUCCESS(ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_INTEL));
	if (!ready ||
	    !ZYAN_SUCCESS(ZydisFormatterFormatInstruction(
		    &formatter, in, ops, in->operand_count_visible, text, size, at, NULL)))
		snprintf(text, size, "%s", ZydisMnemonicGetString(in->mnemonic));
}

static bool is_jump(const ZydisDecodedInstruction *in)
{
	return in->meta.category == ZYDIS_CATEGORY_COND_BR ||
	       in->meta.category == ZYDIS_CATEGORY_UNCOND_BR;
}

/* A jump ends a block, and the block is a loop; a conditional one may also be passed. */
static bool may_follow(const ZydisDecodedInstruction *in, bool is_last)
{
	return is_last || in->meta.category != ZYDIS_CATEGORY_UNCOND_BR;
}

static void describe_one(const struct pipe_core *core, const struct cost_code *code,
			 const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops,
			 struct cost_insn *insn, struct cost_block *out)
{
	struct pipe_insn *row = &out->block.insn[out->block.count];
	u32 end = insn->offset + in->length;

	insn->length = in->length;
	write_insn(in, ops, code->at + insn->offset, insn->text, sizeof(insn->text));
	if (!may_follow(in, end == code->size) || !pipe_describe(core, in, ops, row)) {
		insn->status = COST_UNSUPPORTED;
		return;
	}
	if (code->in_file && row->mem.rip)
		row->mem.disp += (s64)(code->at + end);
	out->block.loops = is_jump(in) && end == code->size;
	insn->row = out->block.count++;
}

/* An instruction that the bytes break off, or one byte that begins none. */
static void describe_rest(const struct cost_code *code, ZyanStatus status, struct cost_insn *insn)
{
	size_t left = code->size - insn->offset;

	insn->status = status == ZYDIS_STATUS_NO_MORE_DATA ? COST_TRUNCATED : COST_GARBAGE;
	insn->length = insn->status == COST_TRUNCATED ? left : 1;
	write_bytes(code->bytes + insn->offset, insn->length, insn->text, sizeof(insn->text));
}

bool cost_describe(const struct pipe_core *core, const struct cost_code *code,
		   struct cost_block *out)
{
	ZydisDecoder decoder;
	ZydisDecodedInstruction in;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	out->block.at = code->at;
	out->block.count = out->count = out->problems = 0;
	out->block.loops = false;
	for (size_t at = 0; at < code->size; at += out->insn[out->count++].length) {
		struct cost_insn *insn = &out->insn[out->count];
		ZyanStatus status;

		if (out->count == PIPE_INSNS)
			return false;
		*insn = (struct cost_insn){ .offset = at, .status = COST_OK };
		status = ZydisDecoderDecodeFull(&decoder, code->bytes + at, code->size - at, &in,
						ops);
		if (ZYAN_SUCCESS(status))
			describe_one(core, code, &in, ops, insn, out);
		else
			describe_rest(code, status, insn);
		out->problems += insn->status != COST_OK;
	}
	pipe_fuse(core, &out->block);
	return true;
}

void cost_name_problem(const struct cost_insn *insn, char *text, size_t size)
{
	static const char *const what[] = {
		[COST_OK] = "instruction",
		[COST_GARBAGE] = "no instruction begins with",
		[COST_TRUNCATED] = "truncated instruction",
		[COST_UNSUPPORTED] = "unsupported instruction",
	};

	snprintf(text, size, "%s '%s' at byte %u", what[insn->status], insn->text, insn->offset);
}
