// SPDX-License-Identifier: MIT
/*
 * vpmu set and vpmu filter: change a VM while it runs.
 */
#include <stdio.h>
#include <string.h>

#include "cli/base/client.h"
#include "cli/cli.h"

static bool wants_help(int argc, char **argv)
{
	return argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
}

static int run_set(int argc, char **argv)
{
	struct client client;
	int status;

	if (wants_help(argc, argv)) {
		command_help(&command_set);
		return STATUS_OK;
	}
	if (argc < 3)
		return usage_error(&command_set, "a VM and KEY=VALUE are needed");
	status = client_find(&client, &command_set, argv[1]);
	for (int i = 2; !status && i < argc; i++)
		status = client_tell(&client, "set %s", argv[i]);
	return status;
}

static void describe_set(void)
{
	puts("settings:\n"
	     "  pmu=mediated|event     who owns the physical counters while the guest runs\n"
	     "  accounting=guest|vcpu  what is counted as the guest's\n"
	     "  host-view=on|off       a second set of counters for events of the host\n"
	     "  watchdog=on|off        the host's watchdog: a pinned event of cycles, as Linux "
	     "has\n\n"
	     "vCPUs follow before they enter the guest again. No count is lost.\n\n"
	     "examples:\n"
	     "  vpmu set 1234 pmu=event accounting=vcpu");
}

const struct command command_set = {
	.name = "set",
	.synopsis = "VM KEY=VALUE…",
	.summary = "Change settings of a running VM",
	.run = run_set,
	.describe = describe_set,
	.second = &command_filter,
	.both = "Change settings of a running VM; choose what its guest may count",
};

/* EVENT as perf writes it, or a fixed counter. */
static int add_event(const struct client *client, const char *name, struct event_list *list)
{
	struct event_wanted event;

	if (event_list_add_fixed(list, name))
		return STATUS_OK;
	if (!event_parse(name, client->model, &event))
		return usage_error(
			&command_filter,
			"there is no event '%s' on %s: vpmu events lists them, rUUEE is a raw one",
			name, client->model);
	return event_list_add(list, event.select)
		       ? STATUS_OK
		       : usage_error(&command_filter, "these are more than %u events",
				     PMU_FILTER_EVENTS);
}

static int run_filter(int argc, char **argv)
{
	struct event_list list = { .count = 0 };
	struct client client;
	int status;

	if (wants_help(argc, argv)) {
		command_help(&command_filter);
		return STATUS_OK;
	}
	if (argc < 3 ||
	    (strcmp(argv[2], "off") && strcmp(argv[2], "allow") && strcmp(argv[2], "deny")))
		return usage_error(&command_filter, "a VM and off, allow or deny are needed");
	status = client_find(&client, &command_filter, argv[1]);
	for (int i = 3; !status && i < argc; i++)
		status = add_event(&client, argv[i], &list);
	if (status)
		return status;
	if (!strcmp(argv[2], "off"))
		return client_tell(&client, "filter off");
	return client_tell(&client, "filter %s %#x%s", argv[2], list.fixed, list.text);
}

static void describe_filter(void)
{
	puts("The guest may count the listed events only (allow), all but them (deny), or all "
	     "(off).\n"
	     "fixed0 to fixed3 are the fixed counters; an event stands for its fixed counter too.\n"
	     "The filter is that of KVM_SET_PMU_EVENT_FILTER and replaces what the program has "
	     "set;\n"
	     "counters that run obey it at once.\n\n"
	     "examples:\n"
	     "  vpmu filter 1234 allow instructions cycles\n"
	     "  vpmu filter 1234 off");
}

const struct command command_filter = {
	.name = "filter",
	.synopsis = "VM off|allow|deny [EVENT…]",
	.summary = "Choose what a running guest may count",
	.run = run_filter,
	.describe = describe_filter,
};
