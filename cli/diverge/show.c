// SPDX-License-Identifier: MIT
/*
 * What vpmu diverge says of a difference: the instruction, the registers, the events.
 */
#include <Zydis/Zydis.h>
#include <stddef.h>
#include <string.h>

#include "cli/diverge/diverge.h"

typedef unsigned long long ull;

/* --- inputs --- */

static bool same_list(char **a, char **b)
{
	for (; *a && *b && !strcmp(*a, *b); a++, b++)
		;
	return !*a && !*b;
}

/* Names and values come from a file: nothing of them may be an escape sequence. */
static void print_safely(const char *text, size_t most)
{
	for (size_t i = 0; text[i] && i < most; i++)
		putchar(text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?');
}

static bool is_among(const char *variable, char **list)
{
	for (; *list; list++)
		if (!strcmp(variable, *list))
			return true;
	return false;
}

static bool has_name(const char *variable, char **list)
{
	size_t length = strcspn(variable, "=") + 1;

	for (; *list; list++)
		if (!strncmp(variable, *list, length))
			return true;
	return false;
}

/* Names of variables, and no values: they may be secrets. */
static void show_variables(const struct trace_file *of, const struct trace_file *other,
			   bool unless_named)
{
	for (char **variable = of->variables; *variable; variable++) {
		if (is_among(*variable, other->variables) ||
		    (unless_named && has_name(*variable, other->variables)))
			continue;
		putchar(' ');
		print_safely(*variable, strcspn(*variable, "="));
	}
}

static void show_words(const char *name, const struct trace_file *file)
{
	printf("  %s: vpmu exec", name);
	for (char **word = file->words; *word; word++) {
		putchar(' ');
		print_safely(*word, 200);
	}
	putchar('\n');
}

static u32 show_command(const struct pair *pair)
{
	if (same_list(pair->a->words, pair->b->words))
		return 0;
	puts("The command lines differ:");
	show_words(pair->name_a, pair->a);
	show_words(pair->name_b, pair->b);
	return 1;
}

static u32 show_environment(const struct pair *pair)
{
	if (same_list(pair->a->variables, pair->b->variables))
		return 0;
	printf("The environments differ:");
	show_variables(pair->a, pair->b, false);
	show_variables(pair->b, pair->a, true);
	putchar('\n');
	return 1;
}

u32 show_inputs(const struct pair *pair)
{
	const struct trace_header *a = &pair->a->header, *b = &pair->b->header;
	const struct {
		bool differs;
		const char *what;
	} inputs[] = {
		{ strcmp(pair->a->folder, pair->b->folder), "working directories" },
		{ a->input_size != b->input_size || a->input_hash != b->input_hash,
		  "standard inputs" },
		{ strcmp(a->model, b->model), "CPU models" },
		{ strcmp(a->vpmu, b->vpmu) || a->build != b->build, "builds of vpmu" },
	};
	u32 count = show_command(pair) + show_environment(pair);

	for (u32 i = 0; i < ARRAY_SIZE(inputs); i++) {
		if (inputs[i].differs)
			printf("The %s differ.\n", inputs[i].what);
		count += inputs[i].differs;
	}
	return count;
}

/* --- registers --- */

#define REG(name, field)	       { name, offsetof(struct trace_state, field), 1, 0, 0 }
#define REGS(name, field, count, from) { name, offsetof(struct trace_state, field), count, 0, from }
/* Of `lanes` 64-bit words each. */
#define VECTORS(name, field, count, lanes) \
	{ name, offsetof(struct trace_state, field), count, lanes, 0 }
#define SEGMENT(name, field)                                                         \
	{ name, offsetof(struct trace_state, field.sel), 1, 0, 0 },                  \
		{ name ".base", offsetof(struct trace_state, field.base), 1, 0, 0 }, \
		{ name ".attr:limit", offsetof(struct trace_state, field.limit), 1, 0, 0 }

static const struct row {
	const char *name; /* of one register; a prefix of several */
	u32 offset, count, lanes, first;
} rows[] = {
	REG("rax", regs[0]),
	REG("rcx", regs[1]),
	REG("rdx", regs[2]),
	REG("rbx", regs[3]),
	REG("rsp", regs[4]),
	REG("rbp", regs[5]),
	REG("rsi", regs[6]),
	REG("rdi", regs[7]),
	REGS("r", regs[8], 8, 8),
	REG("rip", rip),
	REG("rflags", rflags),
	SEGMENT("es", seg[0]),
	SEGMENT("cs", seg[1]),
	SEGMENT("ss", seg[2]),
	SEGMENT("ds", seg[3]),
	SEGMENT("fs", seg[4]),
	SEGMENT("gs", seg[5]),
	SEGMENT("ldtr", ldtr),
	SEGMENT("tr", tr),
	SEGMENT("gdtr", gdtr),
	SEGMENT("idtr", idtr),
	REG("cr0", cr0),
	REG("cr2", cr2),
	REG("cr3", cr3),
	REG("cr4", cr4),
	REG("cr8", cr8),
	REG("efer", efer),
	REG("xcr0", xcr0),
	REG("xss", xss),
	REG("pkru", pkru),
	REGS("dr", dr[0], 4, 0),
	REG("dr6", dr6),
	REG("dr7", dr7),
	REG("star", star),
	REG("lstar", lstar),
	REG("cstar", cstar),
	REG("sfmask", sfmask),
	REG("kernel_gs_base", kernel_gs_base),
	REG("sysenter_cs", sysenter_cs),
	REG("sysenter_esp", sysenter_esp),
	REG("sysenter_eip", sysenter_eip),
	REG("pat", pat),
	REG("tsc_aux", tsc_aux),
	REG("debugctl", debugctl),
	REG("tsc", tsc),
	REG("interrupt shadow, NMI mask", blocked),
	REG("fcw", fcw),
	REG("fsw", fsw),
	REG("ftw", ftw),
	REG("mxcsr", mxcsr),
	VECTORS("st", st, 8, 2),
	REGS("k", opmask[0], 8, 0),
	VECTORS("zmm", zmm, 32, 8),
};

static u64 word_at(const struct trace_state *state, u32 offset)
{
	u64 word;

	memcpy(&word, (const u8 *)state + offset, sizeof(word));
	return word;
}

static void name_register(char name[48], const struct row *row, u32 i)
{
	if (row->lanes)
		snprintf(name, 48, "%s%u bits %u:%u", row->name, i / row->lanes,
			 i % row->lanes * 64 + 63, i % row->lanes * 64);
	else if (row->count > 1)
		snprintf(name, 48, "%s%u", row->name, row->first + i);
	else
		snprintf(name, 48, "%s", row->name);
}

/* How many words of a row differ: each is shown. */
static u32 show_row(const struct row *row, const struct trace_state *a, const struct trace_state *b)
{
	u32 differ = 0;

	for (u32 i = 0; i < row->count * (row->lanes ?: 1); i++) {
		u64 in_a = word_at(a, row->offset + 8 * i), in_b = word_at(b, row->offset + 8 * i);
		char name[48];

		if (in_a == in_b)
			continue;
		name_register(name, row, i);
		printf("  %-26s 0x%-20llx 0x%llx\n", name, (ull)in_a, (ull)in_b);
		differ++;
	}
	return differ;
}

static void show_registers(const struct pair *pair, const struct trace_state *a,
			   const struct trace_state *b)
{
	u32 differ = 0;

	printf("Registers that differ then:\n  %-26s %-22s %s\n", "", pair->name_a, pair->name_b);
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		differ += show_row(&rows[i], a, b);
	if (!differ)
		puts("  none");
}

/* --- events --- */

static void show_exit(const struct trace_event *event)
{
	static const char *const formats[] = {
		[TRACE_EXIT_OTHER] = "an exit of kind %llu",
		[TRACE_EXIT_IN] = "IN from port 0x%llx, answered by the VMM",
		[TRACE_EXIT_OUT] = "OUT to port 0x%llx",
		[TRACE_EXIT_MMIO] = "an access to the device at 0x%llx, answered by the VMM",
		[TRACE_EXIT_CPUID] = "CPUID leaf 0x%llx, answered by the hypervisor",
		[TRACE_EXIT_RDMSR] = "RDMSR 0x%llx, answered by the hypervisor",
		[TRACE_EXIT_WRMSR] = "WRMSR 0x%llx, done by the hypervisor",
		[TRACE_EXIT_RDPMC] = "RDPMC 0x%llx, answered by the hypervisor",
		[TRACE_EXIT_HLT] = "HLT",
		[TRACE_EXIT_HYPERCALL] = "hypercall %llu",
	};

	if (event->what >= ARRAY_SIZE(formats))
		printf("an exit");
	else
		printf(formats[event->what], (ull)event->number);
}

static void show_event(const struct trace_event *event)
{
	printf("vCPU %u: ", event->vcpu);
	switch (event->kind) {
	case TRACE_INTERRUPT:
		printf("interrupt with vector 0x%llx", (ull)event->number);
		break;
	case TRACE_NMI:
		printf("NMI");
		break;
	case TRACE_EXIT:
		show_exit(event);
		break;
	case TRACE_TURN:
		printf("its turn begins");
		break;
	default:
		printf("unknown");
	}
}

static void show_events_of(const char *name, const struct trace_detail *detail)
{
	printf("  %s: ", name);
	if (!detail->nevents)
		printf("nothing");
	for (u32 i = 0; i < detail->nevents && i < TRACE_EVENTS; i++) {
		if (i)
			printf(", ");
		show_event(&detail->event[i]);
	}
	if (detail->nevents > TRACE_EVENTS)
		printf(", and %u more", detail->nevents - TRACE_EVENTS);
	putchar('\n');
}

static void show_events(const struct pair *pair, const struct trace_detail *a,
			const struct trace_detail *b)
{
	puts("What came in with it:");
	show_events_of(pair->name_a, a);
	show_events_of(pair->name_b, b);
}

/* --- the instruction --- */

static ZydisMachineMode machine_mode(u32 bits)
{
	return bits == 64   ? ZYDIS_MACHINE_MODE_LONG_64
	       : bits == 32 ? ZYDIS_MACHINE_MODE_LEGACY_32
			    : ZYDIS_MACHINE_MODE_LEGACY_16;
}

static void show_instruction(const struct trace_detail *detail)
{
	ZydisDisassembledInstruction insn;
	bool known =
		ZYAN_SUCCESS(ZydisDisassembleIntel(machine_mode(detail->bits), detail->state.rip,
						   detail->code, detail->code_size, &insn));
	u32 size = known ? insn.info.length : detail->code_size;

	printf("\n  0x%llx: ", (ull)detail->state.rip);
	for (u32 i = 0; i < size; i++)
		printf(" %02x", detail->code[i]);
	printf("   %s\n\n", known ? insn.text : detail->code_size ? "(bad)" : "(not in memory)");
}

static void show_place(u64 instruction, const struct trace_detail *detail, u32 vcpu)
{
	printf("The first difference is made by instruction %llu, on vCPU %u, in %s mode (CR3 "
	       "0x%llx):\n",
	       (ull)instruction, vcpu, detail->cpl ? "user" : "kernel", (ull)detail->state.cr3);
	show_instruction(detail);
}

static bool is_end(const struct trace_file *file, u32 index)
{
	return trace_at(file, index).kind == TRACE_END;
}

static void show_after(const struct pair *pair, u32 index)
{
	struct trace_detail a, b;
	bool in_a = trace_detail_at(pair->a, index, &a), in_b = trace_detail_at(pair->b, index, &b);

	if (in_a && in_b) {
		show_registers(pair, &a.state, &b.state);
		show_events(pair, &a, &b);
	} else if (is_end(pair->a, index) || is_end(pair->b, index)) {
		printf("%s ends before it, %s does not.\n",
		       is_end(pair->a, index) ? pair->name_a : pair->name_b,
		       is_end(pair->a, index) ? pair->name_b : pair->name_a);
	}
}

void show_difference(const struct pair *pair, u32 index)
{
	struct trace_record record = trace_at(pair->a, index);
	struct trace_detail before;

	if (!index) {
		puts("The guests differ before their first instruction: they were resumed from "
		     "different states.");
		show_after(pair, index);
		return;
	}
	if (trace_detail_at(pair->a, index - 1, &before))
		show_place(trace_at(pair->a, index - 1).instruction + 1, &before, record.vcpu);
	puts("Before it, all registers are the same in both.");
	show_after(pair, index);
}
