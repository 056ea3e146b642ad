// SPDX-License-Identifier: MIT
/*
 * The commands of the control socket (docs/control.md): a row each in the table at the end. Every
 * line is hostile. Any thread; what belongs to vCPUs is asked of them (vm/ask.h), counters that
 * anyone may read are read.
 */
#include "vm/control.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vm/ask.h"
#include "vm/pmu_config.h"
#include "vm/pmu_host.h"
#include "vm/vm.h"

#define WORDS 320 /* a filter has 300 events */

struct command {
	struct vm *vm;
	u32 session;
	u32 nwords;
	char *word[WORDS];
	char *out;
	size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void say(struct command *c, const char *fmt, ...)
{
	size_t room = c->size - c->used;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(c->out + c->used, room, fmt, args);
	va_end(args);
	/* A line that does not fit is left out. */
	if (n < 0 || (size_t)n >= room)
		c->out[c->used] = '\0';
	else
		c->used += n;
}

static bool number(const char *word, u64 *value)
{
	char *end;

	errno = 0;
	*value = strtoull(word, &end, 0);
	return *word && *word != '-' && !*end && !errno;
}

static u32 nvcpus(const struct vm *vm)
{
	return __atomic_load_n(&vm->nvcpus, __ATOMIC_ACQUIRE);
}

/* --- list --- */

static u64 executed(const struct vcpu *vcpu)
{
	const struct retire_tally *tally = &vcpu->cpu->tally;
	const u64 *charged = vcpu->pmu.host.charged;

	return READ_ONCE(tally->instructions[RETIRE_OS]) - READ_ONCE(charged[RETIRE_OS]) +
	       READ_ONCE(tally->instructions[RETIRE_USR]) - READ_ONCE(charged[RETIRE_USR]);
}

static void list(struct command *c)
{
	const struct vm *vm = c->vm;
	u64 instructions = 0, starved = 0;

	for (u32 i = 0; i < nvcpus(vm); i++) {
		instructions += executed(vm->vcpus[i]);
		starved += __builtin_popcountll(READ_ONCE(vm->vcpus[i]->pmu.starved));
	}
	say(c,
	    "vm %u model %s pmu %s accounting %s vcpus %u uptime_ns %llu instructions %llu starved "
	    "%llu\n",
	    vm->serial, vm->model->name, pmu_config_mode(vm), pmu_config_accounting(vm), nvcpus(vm),
	    (unsigned long long)(clock_ns() - vm->created_ns), (unsigned long long)instructions,
	    (unsigned long long)starved);
}

/* --- stat --- */

/* Accesses of an MSR, of all vCPUs. */
static void add_counts(struct intercept_count *sum, const struct intercept_count *count)
{
	for (u32 access = INTERCEPT_READ; access <= INTERCEPT_WRITE; access++) {
		sum->exits[access] += READ_ONCE(count->exits[access]);
		sum->passed[access] += READ_ONCE(count->passed[access]);
	}
}

static void say_counts(struct command *c, const char *name, const struct intercept_count *sum)
{
	say(c, "%s exits %llu %llu passed %llu %llu\n", name,
	    (unsigned long long)sum->exits[INTERCEPT_READ],
	    (unsigned long long)sum->exits[INTERCEPT_WRITE],
	    (unsigned long long)sum->passed[INTERCEPT_READ],
	    (unsigned long long)sum->passed[INTERCEPT_WRITE]);
}

static void say_msr(struct command *c, u32 index)
{
	struct intercept_count sum = { 0 };
	char name[80];
	const char *known;
	u32 i;

	for (u32 v = 0; v < nvcpus(c->vm); v++) {
		const struct intercept_count *count =
			intercept_counted(&c->vm->vcpus[v]->pmu.intercepts, index);

		if (count)
			add_counts(&sum, count);
	}
	known = pmu_msr_name(pmu_model_of(c->vm->model->set), index, &i);
	if (known)
		snprintf(name, sizeof(name), "msr %#x pmu %s%u", index, known, i);
	else
		snprintf(name, sizeof(name), "msr %#x other -", index);
	say_counts(c, name, &sum);
}

static bool said_before(const struct vm *vm, u32 v, u32 index)
{
	for (u32 before = 0; before < v; before++)
		if (intercept_counted(&vm->vcpus[before]->pmu.intercepts, index))
			return true;
	return false;
}

/* Each MSR with the first vCPU that has it. */
static void say_msrs(struct command *c)
{
	struct intercept_count rdpmc = { 0 }, other = { 0 };

	for (u32 v = 0; v < nvcpus(c->vm); v++) {
		const struct intercepts *set = &c->vm->vcpus[v]->pmu.intercepts;

		for (u32 i = 0; i < INTERCEPT_COUNTS; i++)
			if (__atomic_load_n(&set->count[i].used, __ATOMIC_ACQUIRE) &&
			    !said_before(c->vm, v, set->count[i].index))
				say_msr(c, set->count[i].index);
		add_counts(&rdpmc, &set->rdpmc);
		add_counts(&other, &set->other);
	}
	say_counts(c, "rdpmc", &rdpmc);
	say_counts(c, "msrs besides", &other);
}

static void say_stats(struct command *c)
{
	static const struct {
		const char *name;
		size_t offset;
	} rows[] = {
#define VM_STAT(stat, type, unit)
#define VCPU_STAT(stat, type, unit) { #stat, offsetof(struct vcpu_stats, stat) },
#include "vm/stat.def"
#undef VM_STAT
#undef VCPU_STAT
	};

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		u64 sum = 0;

		for (u32 v = 0; v < nvcpus(c->vm); v++) {
			struct vcpu_stats stats;

			vcpu_stats_get(c->vm->vcpus[v], &stats);
			sum += *(const u64 *)((const u8 *)&stats + rows[i].offset);
		}
		say(c, "stat %s %llu\n", rows[i].name, (unsigned long long)sum);
	}
}

static void stat(struct command *c)
{
	list(c);
	say_stats(c);
	say_msrs(c);
	for (u32 v = 0; v < nvcpus(c->vm); v++) {
		const struct vcpu *vcpu = c->vm->vcpus[v];

		say(c, "vcpu %u instructions %llu starved %#llx starvations %llu\n", vcpu->id,
		    (unsigned long long)executed(vcpu),
		    (unsigned long long)READ_ONCE(vcpu->pmu.starved),
		    (unsigned long long)READ_ONCE(vcpu->pmu.starvations));
	}
}

/* --- sample --- */

struct sample {
	u64 rip, cr3;
	u8 cpl;
};

static void do_sample(struct vcpu *vcpu, void *arg)
{
	const struct cpu *cpu = vcpu->cpu;

	*(struct sample *)arg = (struct sample){ cpu->rip, cpu->cr3, cpu->cpl };
}

/* R, S and so on, as /proc has it: a thread that waits is no sample. */
static char thread_state(const struct vcpu *vcpu)
{
	char path[64], text[512], *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)READ_ONCE(vcpu->tid));
	f = fopen(path, "re");
	if (!f || !fgets(text, sizeof(text), f))
		text[0] = '\0';
	if (f)
		fclose(f);
	end = strrchr(text, ')');
	return end && end[1] ? end[2] : '?';
}

static void sample_vmm(struct command *c, const struct vcpu *vcpu)
{
	const struct kvm_run *run = vcpu->run;
	u32 reason = READ_ONCE(run->exit_reason);
	u64 at = 0;

	if (reason == KVM_EXIT_IO)
		at = READ_ONCE(run->io.port);
	else if (reason == KVM_EXIT_MMIO)
		at = READ_ONCE(run->mmio.phys_addr);
	say(c, "sample %u vmm %c exit %u at %#llx\n", vcpu->id, thread_state(vcpu), reason,
	    (unsigned long long)at);
}

static const char *exit_name(enum exit_reason reason)
{
	static const char *const names[] = {
		[EXIT_NONE] = "none",
		[EXIT_BUDGET] = "timer",
		[EXIT_ATTENTION] = "kick",
		[EXIT_IO] = "io",
		[EXIT_MMIO] = "mmio",
		[EXIT_HLT] = "hlt",
		[EXIT_CPUID] = "cpuid",
		[EXIT_RDMSR] = "rdmsr",
		[EXIT_WRMSR] = "wrmsr",
		[EXIT_RDPMC] = "rdpmc",
		[EXIT_HYPERCALL] = "hypercall",
		[EXIT_IRQ_WINDOW] = "irq-window",
		[EXIT_NMI_WINDOW] = "nmi-window",
	};

	return reason < ARRAY_SIZE(names) && names[reason] ? names[reason] : "other";
}

static void sample_vcpu(struct command *c, struct vcpu *vcpu)
{
	struct sample sample;

	switch (READ_ONCE(vcpu->where)) {
	case WHERE_VMM:
		sample_vmm(c, vcpu);
		break;
	case WHERE_HYPERVISOR:
		say(c, "sample %u hypervisor %c exit %s\n", vcpu->id, thread_state(vcpu),
		    exit_name(READ_ONCE(vcpu->last_exit)));
		break;
	case WHERE_GUEST:
		if (vcpu_ask(vcpu, do_sample, &sample))
			say(c, "sample %u guest rip %#llx cr3 %#llx cpl %u\n", vcpu->id,
			    (unsigned long long)sample.rip, (unsigned long long)sample.cr3,
			    sample.cpl);
		break;
	case WHERE_IDLE:
		say(c, "sample %u idle\n", vcpu->id);
		break;
	}
}

/* Where every vCPU's thread is now. */
static void sample_all(struct command *c)
{
	for (u32 v = 0; v < nvcpus(c->vm); v++)
		sample_vcpu(c, c->vm->vcpus[v]);
}

/* --- settings --- */

static const char *set_watchdog(struct vm *vm, const char *value);

static const char *set_one(struct vm *vm, const char *key, const char *value)
{
	return strcmp(key, "watchdog") ? pmu_config_set(vm, key, value) : set_watchdog(vm, value);
}

static void set(struct command *c)
{
	for (u32 i = 0; i < c->nwords; i++) {
		char *value = strchr(c->word[i], '=');
		const char *wrong;

		if (!value) {
			say(c, "error: '%.40s' is not KEY=VALUE\n", c->word[i]);
			return;
		}
		*value++ = '\0';
		wrong = set_one(c->vm, c->word[i], value);
		if (wrong) {
			say(c, "error: %s\n", wrong);
			return;
		}
	}
	say(c, "ok\n");
}

/* filter off, filter allow|deny FIXED EVENT…: as KVM_SET_PMU_EVENT_FILTER has them. */
static void filter(struct command *c)
{
	struct pmu_filter_args args = { 0 };
	u64 events[PMU_FILTER_EVENTS], fixed;

	args.events = events;
	if (c->nwords == 1 && !strcmp(c->word[0], "off")) {
		args.action = PMU_FILTER_DENY; /* nothing */
	} else if (c->nwords >= 2 && number(c->word[1], &fixed)) {
		args.action = strcmp(c->word[0], "deny") ? PMU_FILTER_ALLOW : PMU_FILTER_DENY;
		args.fixed_bitmap = fixed;
		args.nevents = c->nwords - 2;
	}
	if (c->nwords < 1 || (args.action == PMU_FILTER_ALLOW && strcmp(c->word[0], "allow")) ||
	    args.nevents > PMU_FILTER_EVENTS) {
		say(c, "error: filter off, or filter allow|deny FIXED EVENT…\n");
		return;
	}
	for (u32 i = 0; i < args.nevents; i++)
		if (!number(c->word[i + 2], &events[i])) {
			say(c, "error: '%.40s' is not an event\n", c->word[i + 2]);
			return;
		}
	if (vm_set_pmu_filter(c->vm, &args))
		say(c, "error: KVM would refuse this filter\n");
	else
		say(c, "ok\n");
}

/* --- events of the host --- */

struct host_question {
	u32 session, id;
	struct host_event event;
	int result;
	bool found;
};

static void do_open(struct vcpu *vcpu, void *arg)
{
	struct host_question *q = arg;

	q->result = vcpu_host_open(vcpu, q->session, q->id, &q->event);
}

static void do_close(struct vcpu *vcpu, void *arg)
{
	struct host_question *q = arg;

	vcpu_host_close(vcpu, q->session);
}

static void do_read(struct vcpu *vcpu, void *arg)
{
	struct host_question *q = arg;

	q->found = vcpu_host_read(vcpu, q->session, q->id, &q->event);
}

static const char *open_error(int error)
{
	switch (error) {
	case -EOPNOTSUPP:
		return "a mediated guest owns its counters, and no event of the host counts it: "
		       "exclude the guest (:H), or set host-view=on";
	case -ENOSPC:
		return "there are too many events";
	default:
		return "a vCPU does not answer";
	}
}

/* open ID SELECT FLAGS GROUP, numbers all: on every vCPU. */
static void open_event(struct command *c)
{
	struct host_question q = { .session = c->session };
	u64 id, select, flags, group;

	if (c->nwords != 4 || !number(c->word[0], &id) || !number(c->word[1], &select) ||
	    !number(c->word[2], &flags) || !number(c->word[3], &group) || id > 1000 ||
	    (flags & ~(u64)(HOST_PINNED | HOST_EXCLUDE_HOST | HOST_EXCLUDE_GUEST))) {
		say(c, "error: open ID SELECT FLAGS GROUP\n");
		return;
	}
	for (u32 v = 0; v < nvcpus(c->vm); v++) {
		q.id = id;
		q.result = -ETIMEDOUT;
		q.event = (struct host_event){ .select = select & ~(u64)EVENTSEL_INT,
					       .flags = flags,
					       .group = group ? c->session << 8 | (group & 0xff)
							      : 0 };
		if (!vcpu_ask(c->vm->vcpus[v], do_open, &q) || q.result) {
			say(c, "error: %s\n", open_error(q.result));
			return;
		}
	}
	say(c, "ok\n");
}

/*
 * The host's NMI watchdog: a pinned event of cycles on every CPU, which takes a counter away from
 * guests in event mode, and which a mediated guest does not tolerate.
 */
#define WATCHDOG_SESSION (~0u)

static const char *set_watchdog(struct vm *vm, const char *value)
{
	struct host_question q = { .session = WATCHDOG_SESSION };

	if (strcmp(value, "on") && strcmp(value, "off"))
		return "watchdog can be on or off";
	control_end(vm, WATCHDOG_SESSION);
	for (u32 v = 0; !strcmp(value, "on") && v < nvcpus(vm); v++) {
		q.result = -ETIMEDOUT;
		q.event = (struct host_event){ .select = (vm->model->is_amd ? 0x76 : 0x3c) |
							 EVENTSEL_OS | EVENTSEL_USR,
					       .flags = HOST_PINNED };
		if (!vcpu_ask(vm->vcpus[v], do_open, &q) || q.result)
			return open_error(q.result);
	}
	return NULL;
}

static const char *state_name(const struct host_event *event)
{
	return event->state == HOST_ERROR ? "error" : event->running ? "counted" : "waiting";
}

/* read ID: the sum of all vCPUs, in the worst state of any. */
static void read_event(struct command *c)
{
	struct host_event sum = { 0 };
	u64 id;

	if (c->nwords != 1 || !number(c->word[0], &id)) {
		say(c, "error: read ID\n");
		return;
	}
	for (u32 v = 0; v < nvcpus(c->vm); v++) {
		struct host_question q = { .session = c->session, .id = id };

		if (!vcpu_ask(c->vm->vcpus[v], do_read, &q)) {
			say(c, "error: %s\n", open_error(-ETIMEDOUT));
			return;
		}
		if (!q.found)
			continue;
		sum.value += q.event.value;
		sum.enabled += q.event.enabled;
		sum.running += q.event.running;
		if (q.event.state == HOST_ERROR)
			sum.state = HOST_ERROR;
	}
	say(c, "event %llu value %llu enabled %llu running %llu state %s\n", (unsigned long long)id,
	    (unsigned long long)sum.value, (unsigned long long)sum.enabled,
	    (unsigned long long)sum.running, state_name(&sum));
}

/* Without asking: a vCPU is not disturbed for sessions that only looked. */
static bool has_events(const struct vcpu *vcpu, u32 session)
{
	for (u32 i = 0; i < VCPU_HOST_EVENTS; i++)
		if (READ_ONCE(vcpu->pmu.host.event[i].session) == session)
			return true;
	return false;
}

void control_end(struct vm *vm, u32 session)
{
	struct host_question q = { .session = session };

	for (u32 v = 0; v < nvcpus(vm); v++)
		if (has_events(vm->vcpus[v], session))
			vcpu_ask(vm->vcpus[v], do_close, &q);
}

static void close_events(struct command *c)
{
	control_end(c->vm, c->session);
	say(c, "ok\n");
}

/* --- the table --- */

static const struct {
	const char *name;
	void (*run)(struct command *c);
} commands[] = {
	{ "list", list },	   { "stat", stat },	     { "set", set },
	{ "filter", filter },	   { "open", open_event },   { "read", read_event },
	{ "close", close_events }, { "sample", sample_all },
};

static void split(struct command *c, char *line)
{
	char *save = NULL;

	for (char *word = strtok_r(line, " \t", &save); word && c->nwords < WORDS;
	     word = strtok_r(NULL, " \t", &save))
		c->word[c->nwords++] = word;
}

size_t control_do(struct vm *vm, u32 session, char *line, char *out, size_t size)
{
	struct command c = { .vm = vm, .session = session, .out = out, .size = size };
	const char *name;

	out[0] = '\0';
	split(&c, line);
	if (!c.nwords)
		return 0;
	name = c.word[0];
	c.nwords--;
	memmove(c.word, c.word + 1, c.nwords * sizeof(c.word[0]));
	for (u32 i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i].name, name)) {
			commands[i].run(&c);
			return c.used;
		}
	say(&c, "error: there is no command '%.40s'\n", name);
	return c.used;
}
