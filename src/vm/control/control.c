// SPDX-License-Identifier: MIT
/*
 * The commands of the control socket (docs/control.md): a row each in the table at the end. Every
 * line is hostile. Here are those that change something: settings, the event filter, events of the
 * host; report.c and peek_command.c have the others. Any thread; what belongs to vCPUs is asked of
 * them (vm/control/ask_vcpu.h).
 */
#include "vm/control/control.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vm/control/ask_vcpu.h"
#include "vm/control/priv.h"
#include "vm/pmu/config.h"
#include "vm/pmu/host.h"

__attribute__((format(printf, 2, 3))) void control_say(struct control_request *c, const char *fmt,
						       ...)
{
	size_t room = c->size - c->used;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(c->out + c->used, room, fmt, args);
	va_end(args);
	if (n < 0 || (size_t)n >= room)
		c->out[c->used] = '\0';
	else
		c->used += n;
}

bool control_number(const char *word, u64 *value)
{
	char *end;

	errno = 0;
	*value = strtoull(word, &end, 0);
	return *word && *word != '-' && !*end && !errno;
}

/* --- settings --- */

static const char *set_watchdog(struct vm *vm, const char *value);

static const char *set_one(struct vm *vm, const char *key, const char *value)
{
	return strcmp(key, "watchdog") ? pmu_config_set(vm, key, value) : set_watchdog(vm, value);
}

static void set(struct control_request *c)
{
	for (u32 i = 0; i < c->nwords; i++) {
		char *value = strchr(c->word[i], '=');
		const char *wrong;

		if (!value) {
			control_say(c, "error: '%.40s' is not KEY=VALUE\n", c->word[i]);
			return;
		}
		*value++ = '\0';
		wrong = set_one(c->vm, c->word[i], value);
		if (wrong) {
			control_say(c, "error: %s\n", wrong);
			return;
		}
	}
	control_say(c, "ok\n");
}

static void set_filter(struct control_request *c, const struct pmu_filter_args *args)
{
	if (vm_set_pmu_filter(c->vm, args))
		control_say(c, "error: KVM would refuse this filter\n");
	else
		control_say(c, "ok\n");
}

/* FIXED EVENT…, in the words after the action. */
static void filter_events(struct control_request *c, u32 action)
{
	u64 events[PMU_FILTER_EVENTS], fixed;
	struct pmu_filter_args args = { .action = action,
					.nevents = c->nwords - 2,
					.events = events };

	if (!control_number(c->word[1], &fixed) || fixed > UINT32_MAX) {
		control_say(c, "error: '%.40s' is not a bitmap of fixed counters\n", c->word[1]);
		return;
	}
	args.fixed_bitmap = fixed;
	if (args.nevents > PMU_FILTER_EVENTS) {
		control_say(c, "error: a filter has at most %u events\n", PMU_FILTER_EVENTS);
		return;
	}
	for (u32 i = 0; i < args.nevents; i++)
		if (!control_number(c->word[i + 2], &events[i])) {
			control_say(c, "error: '%.40s' is not an event\n", c->word[i + 2]);
			return;
		}
	set_filter(c, &args);
}

/* filter off, filter allow|deny FIXED EVENT…: as KVM_SET_PMU_EVENT_FILTER has them. */
static void filter(struct control_request *c)
{
	static const struct pmu_filter_args none = { .action = PMU_FILTER_DENY };
	const char *action = c->nwords ? c->word[0] : "";

	if (c->nwords == 1 && !strcmp(action, "off"))
		set_filter(c, &none);
	else if (c->nwords >= 2 && !strcmp(action, "allow"))
		filter_events(c, PMU_FILTER_ALLOW);
	else if (c->nwords >= 2 && !strcmp(action, "deny"))
		filter_events(c, PMU_FILTER_DENY);
	else
		control_say(c, "error: filter off, or filter allow|deny FIXED EVENT…\n");
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
static void open_event(struct control_request *c)
{
	struct host_question q = { .session = c->session };
	u64 id, select, flags, group;

	if (c->nwords != 4 || !control_number(c->word[0], &id) ||
	    !control_number(c->word[1], &select) || !control_number(c->word[2], &flags) ||
	    !control_number(c->word[3], &group) || id > 1000 ||
	    (flags & ~(u64)(HOST_PINNED | HOST_EXCLUDE_HOST | HOST_EXCLUDE_GUEST))) {
		control_say(c, "error: open ID SELECT FLAGS GROUP\n");
		return;
	}
	for (u32 v = 0; v < vm_nvcpus(c->vm); v++) {
		q.id = id;
		q.result = -ETIMEDOUT;
		q.event = (struct host_event){ .select = select & ~(u64)EVENTSEL_INT,
					       .flags = flags,
					       .group = group ? c->session << 8 | (group & 0xff)
							      : 0 };
		if (!vcpu_ask(c->vm->vcpus[v], do_open, &q) || q.result) {
			control_say(c, "error: %s\n", open_error(q.result));
			return;
		}
	}
	control_say(c, "ok\n");
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
	for (u32 v = 0; !strcmp(value, "on") && v < vm_nvcpus(vm); v++) {
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
static void read_event(struct control_request *c)
{
	struct host_event sum = { 0 };
	u64 id;

	if (c->nwords != 1 || !control_number(c->word[0], &id)) {
		control_say(c, "error: read ID\n");
		return;
	}
	for (u32 v = 0; v < vm_nvcpus(c->vm); v++) {
		struct host_question q = { .session = c->session, .id = id };

		if (!vcpu_ask(c->vm->vcpus[v], do_read, &q)) {
			control_say(c, "error: %s\n", open_error(-ETIMEDOUT));
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
	control_say(c, "event %llu value %llu enabled %llu running %llu state %s\n",
		    (unsigned long long)id, (unsigned long long)sum.value,
		    (unsigned long long)sum.enabled, (unsigned long long)sum.running,
		    state_name(&sum));
}

/* Read without asking: a vCPU is not disturbed at the end of sessions without events. */
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

	for (u32 v = 0; v < vm_nvcpus(vm); v++)
		if (has_events(vm->vcpus[v], session))
			vcpu_ask(vm->vcpus[v], do_close, &q);
}

static void close_events(struct control_request *c)
{
	control_end(c->vm, c->session);
	control_say(c, "ok\n");
}

/* --- the table --- */

static const struct {
	const char *name;
	void (*run)(struct control_request *c);
} commands[] = {
	{ "list", control_list },
	{ "stat", control_stat },
	{ "set", set },
	{ "filter", filter },
	{ "open", open_event },
	{ "read", read_event },
	{ "close", close_events },
	{ "sample", control_sample },
	{ "peek", control_peek },
	{ "registers", control_registers },
};

static void split(struct control_request *c, char *line)
{
	char *save = NULL;

	for (char *word = strtok_r(line, " \t", &save); word && c->nwords < CONTROL_WORDS;
	     word = strtok_r(NULL, " \t", &save))
		c->word[c->nwords++] = word;
}

size_t control_do(struct vm *vm, u32 session, char *line, char *out, size_t size)
{
	struct control_request c = { .vm = vm, .session = session, .out = out, .size = size };
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
	control_say(&c, "error: there is no command '%.40s'\n", name);
	return c.used;
}
