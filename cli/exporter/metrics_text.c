// SPDX-License-Identifier: MIT
/*
 * The metrics as text: OpenMetrics 1.0.0, and Prometheus's older format for clients that do not
 * accept it. They differ in the name of a counter's family, which in OpenMetrics lacks "_total",
 * and in the end.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/exporter/exporter.h"

enum series_kind { COUNTER, GAUGE, SECONDS_COUNTER, SECONDS_GAUGE }; /* seconds are kept as ns */

/* Series of one family stand together. */
static const struct series {
	const char *family;
	enum series_kind kind;
	enum vm_value value;
	const char *labels; /* beside vm and command */
	const char *help;
} table[] = {
	{ "vpmu_instructions", COUNTER, VM_INSTRUCTIONS, "",
	  "Guest instructions that retired, exact." },
	{ "vpmu_user_instructions", COUNTER, VM_USER_INSTRUCTIONS, "",
	  "Those of them that ran in user mode." },
	{ "vpmu_branches", COUNTER, VM_BRANCHES, "",
	  "Guest branch instructions that retired, exact." },
	{ "vpmu_cycles", COUNTER, VM_CYCLES, "",
	  "Guest core cycles, modelled; they grow while an event counts cycles." },
	{ "vpmu_all_exits", COUNTER, VM_EXITS, "", "Exits of the guest, for any reason." },
	{ "vpmu_exits", COUNTER, VM_EXITS_IO, ",reason=\"io\"", "Exits of the guest by reason." },
	{ "vpmu_exits", COUNTER, VM_EXITS_MMIO, ",reason=\"mmio\"", NULL },
	{ "vpmu_exits", COUNTER, VM_EXITS_SIGNAL, ",reason=\"signal\"", NULL },
	{ "vpmu_exits", COUNTER, VM_EXITS_IRQ_WINDOW, ",reason=\"irq_window\"", NULL },
	{ "vpmu_exits", COUNTER, VM_EXITS_NMI_WINDOW, ",reason=\"nmi_window\"", NULL },
	{ "vpmu_exits", COUNTER, VM_EXITS_REQUEST_IRQ, ",reason=\"request_irq\"", NULL },
	{ "vpmu_exits", COUNTER, VM_EXITS_HALT, ",reason=\"halt\"", NULL },
	{ "vpmu_exits", COUNTER, VM_EXITS_HYPERCALL, ",reason=\"hypercall\"", NULL },
	{ "vpmu_exits", COUNTER, VM_EXITS_CPUID, ",reason=\"cpuid\"", NULL },
	{ "vpmu_exits", COUNTER, VM_EXITS_MSR, ",reason=\"msr\"", NULL },
	{ "vpmu_halted_seconds", SECONDS_COUNTER, VM_HALTED_NS, "",
	  "Time that vCPUs were halted." },
	{ "vpmu_injections", COUNTER, VM_IRQS, ",kind=\"irq\"", "Interrupts that were injected." },
	{ "vpmu_injections", COUNTER, VM_NMIS, ",kind=\"nmi\"", NULL },
	{ "vpmu_pmu_accesses", COUNTER, VM_PMU_READS_EXITED, ",access=\"read\",outcome=\"exited\"",
	  "Accesses of the guest to its PMU: those that exited and those that passed through." },
	{ "vpmu_pmu_accesses", COUNTER, VM_PMU_WRITES_EXITED,
	  ",access=\"write\",outcome=\"exited\"", NULL },
	{ "vpmu_pmu_accesses", COUNTER, VM_PMU_READS_PASSED, ",access=\"read\",outcome=\"passed\"",
	  NULL },
	{ "vpmu_pmu_accesses", COUNTER, VM_PMU_WRITES_PASSED,
	  ",access=\"write\",outcome=\"passed\"", NULL },
	{ "vpmu_pmu_starved_counters", GAUGE, VM_STARVED, "",
	  "Counters of the guest that have no physical counter now." },
	{ "vpmu_pmu_starvations", COUNTER, VM_STARVATIONS, "",
	  "Times that a guest's counter starved." },
	{ "vpmu_code_cache_bytes", GAUGE, VM_CODE_CACHE_BYTES, "",
	  "Memory that translated code takes, with its tables, of all vCPUs." },
	{ "vpmu_code_cache_flushes", COUNTER, VM_CODE_CACHE_FLUSHES, "",
	  "Times that all translated code of a vCPU was dropped." },
	{ "vpmu_translated_blocks", COUNTER, VM_TRANSLATED_BLOCKS, "",
	  "Blocks of guest code that were translated." },
	{ "vpmu_vcpus", GAUGE, VM_VCPUS, "", "vCPUs of the VM." },
	{ "vpmu_uptime_seconds", SECONDS_GAUGE, VM_UPTIME_NS, "",
	  "Time since the VM was created." },
	{ "vpmu_mips", GAUGE, VM_MIPS, "",
	  "Million guest instructions a second, between the last looks." },
};

/* A label's value: printable ASCII, quotes and backslashes escaped. */
static void put_value(FILE *out, const char *text)
{
	for (; *text; text++) {
		unsigned char c = *text;

		if (c == '"' || c == '\\')
			fputc('\\', out);
		fputc(c < 0x20 || c > 0x7e ? '?' : c, out);
	}
}

static void put_labels(FILE *out, const struct vm_snapshot *vm)
{
	fprintf(out, "vm=\"%d.%u\",command=\"", vm->pid, vm->vm);
	put_value(out, vm->command);
	fputc('"', out);
}

static bool is_counter(enum series_kind kind)
{
	return kind == COUNTER || kind == SECONDS_COUNTER;
}

static void put_head(FILE *out, const char *family, bool counter, const char *help,
		     enum metrics_format format)
{
	const char *total = counter && format == METRICS_PROMETHEUS ? "_total" : "";

	fprintf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", family, total, help, family, total,
		counter ? "counter" : "gauge");
}

static void put_series(FILE *out, const struct series *series, const struct vm_snapshot *vm)
{
	u64 value = vm->value[series->value];

	fprintf(out, "%s%s{", series->family, is_counter(series->kind) ? "_total" : "");
	put_labels(out, vm);
	if (series->kind == SECONDS_COUNTER || series->kind == SECONDS_GAUGE)
		fprintf(out, "%s} %llu.%09llu\n", series->labels,
			(unsigned long long)(value / 1000000000),
			(unsigned long long)(value % 1000000000));
	else
		fprintf(out, "%s} %llu\n", series->labels, (unsigned long long)value);
}

/* All series of the family that begins at `i`, VM by VM; returns where the next one begins. */
static u32 put_family(FILE *out, u32 i, const struct vm_snapshots *look, enum metrics_format format)
{
	u32 end = i + 1;

	while (end < ARRAY_SIZE(table) && !table[end].help)
		end++;
	put_head(out, table[i].family, is_counter(table[i].kind), table[i].help, format);
	for (u32 v = 0; v < look->count; v++)
		for (u32 s = i; s < end; s++)
			put_series(out, &table[s], &look->vm[v]);
	return end;
}

static void put_info(FILE *out, const struct vm_snapshots *look, enum metrics_format format)
{
	put_head(out, "vpmu_vm", false, "1 for each VM, with its CPU model and PMU.", format);
	for (u32 v = 0; v < look->count; v++) {
		const struct vm_snapshot *vm = &look->vm[v];

		fputs("vpmu_vm{", out);
		put_labels(out, vm);
		fputs(",model=\"", out);
		put_value(out, vm->model);
		fputs("\",pmu=\"", out);
		put_value(out, vm->mode);
		fputs("\",accounting=\"", out);
		put_value(out, vm->accounting);
		fputs("\"} 1\n", out);
	}
}

static void put_own(FILE *out, const struct vm_snapshots *look, const struct exporter_state *state,
		    enum metrics_format format)
{
	put_head(out, "vpmu_exporter_scrapes", true, "Requests for metrics so far.", format);
	fprintf(out, "vpmu_exporter_scrapes_total %llu\n", (unsigned long long)state->scrapes);
	put_head(out, "vpmu_exporter_silent_processes", false,
		 "Processes with VMs that have not answered in time.", format);
	fprintf(out, "vpmu_exporter_silent_processes %u\n", look->silent);
	put_head(out, "vpmu_exporter_left_out_vms", false, "VMs beyond those that are shown.",
		 format);
	fprintf(out, "vpmu_exporter_left_out_vms %u\n", look->left_out);
}

char *exporter_text(const struct vm_snapshots *look, const struct exporter_state *state,
		    enum metrics_format format, size_t *size)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, size);

	if (!out)
		return NULL;
	for (u32 i = 0; i < ARRAY_SIZE(table);)
		i = put_family(out, i, look, format);
	put_info(out, look, format);
	put_own(out, look, state, format);
	if (format == METRICS_OPEN)
		fputs("# EOF\n", out);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}
