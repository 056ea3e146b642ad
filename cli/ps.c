// SPDX-License-Identifier: MIT
/*
 * vpmu ps: the VMs of this user that run on vpmu.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/base/client.h"
#include "cli/base/monotonic.h"
#include "cli/cli.h"

#define MOST	     256
/* Of names of guests that stay; others are shown as far as they have these. */
#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
#define SAMPLE_NS    250000000
#define PATIENCE_MS  2000 /* for one process */

struct vm_row {
	int pid;
	u32 vm, vcpus;
	char model[32], mode[16], accounting[16], timing[16], command[20], name[40];
	u64 uptime_ns, instructions, starved;
	u64 before_ns, before;
	bool silent; /* the process does not answer, and is shown as this row */
};

struct table {
	int pid;	 /* being asked */
	bool has_waited; /* for a process to let us in, which it did not */
	u32 n;
	struct vm_row row[MOST];
};

static struct vm_row *find(struct table *table, int pid, u32 vm)
{
	for (u32 i = 0; i < table->n; i++)
		if (table->row[i].pid == pid && table->row[i].vm == vm)
			return &table->row[i];
	if (table->n == MOST)
		return NULL;
	table->row[table->n] = (struct vm_row){ .pid = pid, .vm = vm };
	return &table->row[table->n++];
}

/* libvirt's word is "guest=NAME,debug-threads=on"; in a NAME two commas are one. */
static void read_name(const char *word, char *out, size_t size)
{
	size_t n = 0;

	if (!strncmp(word, "guest=", 6))
		word += 6;
	for (; *word && n + 1 < size; word++) {
		if (*word == ',' ? *++word != ',' : !strchr(NAME_LETTERS, *word))
			break;
		out[n++] = *word;
	}
	out[n] = '\0';
}

/* What QEMU was told that its guest is called: the word after -name, or nothing. */
static void find_name(int pid, char *out, size_t size)
{
	char path[64], words[8192];
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	f = fopen(path, "re");
	if (f) {
		n = fread(words, 1, sizeof(words) - 1, f);
		fclose(f);
	}
	words[n] = '\0';
	*out = '\0';
	for (size_t at = 0; at < n; at += strlen(words + at) + 1) {
		const char *value = words + at + sizeof("-name");

		if (!strcmp(words + at, "-name") && value < words + n)
			read_name(value, out, size);
	}
}

static void note(char *line, void *arg)
{
	struct table *table = arg;
	struct vm_row *row = find(table, table->pid, client_number(line, "vm"));

	if (!row)
		return;
	row->before_ns = row->uptime_ns;
	row->before = row->instructions;
	client_word(line, "model", row->model, sizeof(row->model));
	client_word(line, "pmu", row->mode, sizeof(row->mode));
	client_word(line, "accounting", row->accounting, sizeof(row->accounting));
	client_word(line, "timing", row->timing, sizeof(row->timing));
	row->vcpus = client_number(line, "vcpus");
	row->uptime_ns = client_number(line, "uptime_ns");
	row->instructions = client_number(line, "instructions");
	row->starved = client_number(line, "starved");
	client_process_name(row->pid, row->command, sizeof(row->command));
	find_name(row->pid, row->name, sizeof(row->name));
}

/* Other users may take any number of names and let nobody in: one of them is waited for. */
static bool open_client(struct table *table, struct client *client, int pid)
{
	bool ok = table->has_waited ? client_open_until(client, pid, 0) : client_open(client, pid);

	table->has_waited |= !ok && errno == EAGAIN;
	return ok;
}

static bool is_silent(const struct table *table, int pid)
{
	for (u32 i = 0; i < table->n; i++)
		if (table->row[i].pid == pid && table->row[i].silent)
			return true;
	return false;
}

static void note_silent(struct table *table, int pid)
{
	struct vm_row *row = find(table, pid, 0);

	if (!row)
		return;
	row->silent = true;
	client_process_name(pid, row->command, sizeof(row->command));
}

/* One that has ended meanwhile is not listed; one that is stopped is, and not asked again. */
static void ask(int pid, void *arg)
{
	struct table *table = arg;
	struct client client;

	if (is_silent(table, pid) || !open_client(table, &client, pid))
		return;
	client.deadline = monotonic_ms() + PATIENCE_MS;
	table->pid = pid;
	if (!client_ask(&client, note, table, "list") && !client.refused &&
	    (errno == EAGAIN || errno == ETIMEDOUT))
		note_silent(table, pid);
	client_close(&client);
}

static void print(const struct vm_row *row)
{
	u64 ns = row->uptime_ns - row->before_ns, s = row->uptime_ns / 1000000000;
	char name[32];

	if (row->silent) {
		printf("%-12d %-16s does not answer\n", row->pid, row->command);
		return;
	}
	snprintf(name, sizeof(name), "%d.%u", row->pid, row->vm);
	printf("%-12s %-16s %-15s %-9s %-10s %-7s %5u %3llu:%02llu:%02llu %7llu", name,
	       row->command, row->model, row->mode, row->accounting, row->timing, row->vcpus,
	       (unsigned long long)(s / 3600), (unsigned long long)(s / 60 % 60),
	       (unsigned long long)(s % 60),
	       ns ? (unsigned long long)((row->instructions - row->before) * 1000 / ns) : 0);
	if (*row->name)
		printf("  %s", row->name);
	if (row->starved)
		printf("  %llu counters of the guest starve", (unsigned long long)row->starved);
	puts("");
}

static int run(int argc, char **argv)
{
	static struct table table;
	struct timespec pause = { .tv_nsec = SAMPLE_NS };

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		command_help(&command_ps);
		return STATUS_OK;
	}
	if (argc > 1)
		return usage_error(&command_ps, "cannot make sense of '%s'", argv[1]);
	client_each(ask, &table);
	if (table.n) {
		nanosleep(&pause, NULL); /* speed is what happens between two looks */
		client_each(ask, &table);
	}
	printf("%-12s %-16s %-15s %-9s %-10s %-7s %5s %9s %7s  %s\n", "VM", "COMMAND", "MODEL",
	       "PMU", "ACCOUNTING", "TIMING", "VCPUS", "UPTIME", "MIPS", "NAME");
	for (u32 i = 0; i < table.n; i++)
		print(&table.row[i]);
	return STATUS_OK;
}

static void describe(void)
{
	puts("VM is what other commands take: the process, and which of its VMs. MIPS is how many\n"
	     "million guest instructions a second retire now. NAME is that of a guest that stays (vpmu\n"
	     "help up), or what QEMU was told with -name. A process that says nothing for two seconds\n"
	     "does not answer: it may be stopped.");
}

const struct command command_ps = {
	.name = "ps",
	.synopsis = "",
	.summary = "List the VMs that run on vpmu",
	.run = run,
	.describe = describe,
	.second = &command_stat,
	.both = "List the VMs that run on vpmu; show what one exits for",
};
