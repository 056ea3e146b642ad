// SPDX-License-Identifier: MIT
/*
 * Looks at all VMs of this user through their control sockets (docs/control.md): one request to
 * each process, "stat", which reads counters and stops no vCPU. A process that is stopped, or is no
 * vpmu at all, costs its part of the time and no more.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/client.h"
#include "cli/base/monotonic.h"
#include "cli/exporter/exporter.h"

#define PART_MS	  1000	     /* for one process */
#define SECOND_NS 1000000000 /* speed is not taken over less */

/* Rows of src/vm/stat.def; more than one may add up. */
static const struct {
	const char *name;
	enum vm_value value;
} stats[] = {
	{ "branches_os", VM_BRANCHES },
	{ "branches_user", VM_BRANCHES },
	{ "code_cache_bytes", VM_CODE_CACHE_BYTES },
	{ "code_cache_flushes", VM_CODE_CACHE_FLUSHES },
	{ "cpuid_exits", VM_EXITS_CPUID },
	{ "cycles_os", VM_CYCLES },
	{ "cycles_user", VM_CYCLES },
	{ "exits", VM_EXITS },
	{ "halt_exits", VM_EXITS_HALT },
	{ "halt_poll_fail_ns", VM_HALTED_NS },
	{ "halt_poll_success_ns", VM_HALTED_NS },
	{ "halt_wait_ns", VM_HALTED_NS },
	{ "hypercalls", VM_EXITS_HYPERCALL },
	{ "instructions_os", VM_INSTRUCTIONS },
	{ "instructions_user", VM_INSTRUCTIONS },
	{ "instructions_user", VM_USER_INSTRUCTIONS },
	{ "io_exits", VM_EXITS_IO },
	{ "irq_injections", VM_IRQS },
	{ "irq_window_exits", VM_EXITS_IRQ_WINDOW },
	{ "mmio_exits", VM_EXITS_MMIO },
	{ "msr_exits", VM_EXITS_MSR },
	{ "nmi_injections", VM_NMIS },
	{ "nmi_window_exits", VM_EXITS_NMI_WINDOW },
	{ "request_irq_exits", VM_EXITS_REQUEST_IRQ },
	{ "signal_exits", VM_EXITS_SIGNAL },
	{ "translated_blocks", VM_TRANSLATED_BLOCKS },
};

struct asking {
	struct vm_snapshots *look;
	struct vm_snapshot *vm; /* that the lines are about; NULL: one that is left out */
	int pid;
	u32 first;    /* snapshot of this process */
	u64 deadline; /* monotonic ms */
};

static void add_stat(struct vm_snapshot *vm, const char *line)
{
	unsigned long long value;
	char name[40];

	if (sscanf(line, "stat %39s %llu", name, &value) != 2)
		return;
	for (u32 i = 0; i < ARRAY_SIZE(stats); i++)
		if (!strcmp(stats[i].name, name))
			vm->value[stats[i].value] += value;
}

/* "msr INDEX pmu NAME exits R W passed R W", or the same of RDPMC. */
static void add_accesses(struct vm_snapshot *vm, const char *line)
{
	const char *counts = strstr(line, "exits ");
	unsigned long long n[4];

	if (!counts ||
	    sscanf(counts, "exits %llu %llu passed %llu %llu", &n[0], &n[1], &n[2], &n[3]) != 4)
		return;
	for (u32 i = 0; i < ARRAY_SIZE(n); i++)
		vm->value[VM_PMU_READS_EXITED + i] += n[i];
}

static void add_vcpu(struct vm_snapshot *vm, const char *line)
{
	vm->value[VM_STARVED] += __builtin_popcountll(client_number(line, "starved"));
	vm->value[VM_STARVATIONS] += client_number(line, "starvations");
}

/* A guest may have taken over the process. A series that is there twice would spoil the metrics of
 * all VMs. */
static bool is_told_again(const struct asking *asking, u32 number)
{
	const struct vm_snapshots *look = asking->look;
	bool found = false;

	for (u32 i = asking->first; i < look->count; i++)
		found = found || look->vm[i].vm == number;
	return found;
}

static void begin_vm(struct asking *asking, const char *line)
{
	struct vm_snapshots *look = asking->look;
	bool has_room = look->count < MAX_VMS && look->count - asking->first < MAX_PROCESS_VMS;
	u32 number = client_number(line, "vm");
	struct vm_snapshot *vm;

	asking->vm = NULL;
	if (is_told_again(asking, number))
		return;
	if (!has_room) {
		look->left_out++;
		return;
	}
	asking->vm = vm = &look->vm[look->count++];
	*vm = (struct vm_snapshot){ .pid = asking->pid, .vm = number };
	client_word(line, "model", vm->model, sizeof(vm->model));
	client_word(line, "pmu", vm->mode, sizeof(vm->mode));
	client_word(line, "accounting", vm->accounting, sizeof(vm->accounting));
	vm->value[VM_VCPUS] = client_number(line, "vcpus");
	vm->value[VM_UPTIME_NS] = client_number(line, "uptime_ns");
	client_process_name(asking->pid, vm->command, sizeof(vm->command));
}

static void note(char *line, void *arg)
{
	struct asking *asking = arg;

	if (!strncmp(line, "vm ", 3))
		begin_vm(asking, line);
	else if (!asking->vm)
		return;
	else if (!strncmp(line, "stat ", 5))
		add_stat(asking->vm, line);
	else if (!strncmp(line, "vcpu ", 5))
		add_vcpu(asking->vm, line);
	else if (!strncmp(line, "rdpmc ", 6) ||
		 (!strncmp(line, "msr ", 4) && strstr(line, " pmu ")))
		add_accesses(asking->vm, line);
}

/* False: it is there, and has not answered in time, or could not be asked. */
static bool ask_until(struct asking *asking, u64 deadline)
{
	struct client client;
	bool ok;

	if (!client_open_until(&client, asking->pid, deadline))
		return errno == ECONNREFUSED || errno == EACCES;
	ok = client_ask(&client, note, asking, "stat");
	client_close(&client);
	return ok;
}

/* What a process has said that then fell silent is not shown: counters would seem to go back. */
static void ask(int pid, void *arg)
{
	struct asking *asking = arg;
	struct vm_snapshots *look = asking->look;
	u64 deadline = monotonic_ms() + PART_MS;
	u32 count = look->count, left_out = look->left_out;

	asking->pid = pid;
	asking->vm = NULL;
	asking->first = count;
	if (deadline > asking->deadline)
		deadline = asking->deadline;
	if (ask_until(asking, deadline))
		return;
	look->count = count;
	look->left_out = left_out;
	look->silent++;
}

/* --- speed --- */

static const struct vm_snapshot *find(const struct vm_snapshots *look, const struct vm_snapshot *vm)
{
	for (u32 i = 0; i < look->count; i++)
		if (look->vm[i].pid == vm->pid && look->vm[i].vm == vm->vm &&
		    look->vm[i].value[VM_UPTIME_NS] <= vm->value[VM_UPTIME_NS])
			return &look->vm[i];
	return NULL;
}

/* Between looks that are at least a second apart: scrapers may come at any rate. */
static void add_speed(struct vm_snapshot *vm, const struct vm_snapshot *before)
{
	u64 ns;

	if (before) {
		vm->from_ns = before->from_ns;
		vm->from = before->from;
		vm->value[VM_MIPS] = before->value[VM_MIPS];
	}
	ns = vm->value[VM_UPTIME_NS] - vm->from_ns;
	if (ns < SECOND_NS)
		return;
	vm->value[VM_MIPS] = (vm->value[VM_INSTRUCTIONS] - vm->from) * 1000 / ns;
	vm->from_ns = vm->value[VM_UPTIME_NS];
	vm->from = vm->value[VM_INSTRUCTIONS];
}

void exporter_collect(struct vm_snapshots *look, const struct vm_snapshots *before, u32 patience_ms)
{
	struct asking asking = { .look = look, .deadline = monotonic_ms() + patience_ms };

	look->count = look->silent = look->left_out = 0;
	client_each(ask, &asking);
	for (u32 i = 0; i < look->count; i++)
		add_speed(&look->vm[i], find(before, &look->vm[i]));
}
