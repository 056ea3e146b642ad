// SPDX-License-Identifier: MIT
/*
 * vpmu exporter: metrics of all VMs of this user, for Prometheus and its like.
 */
#include "cli/exporter/exporter.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define DEFAULT_ADDRESS "127.0.0.1:9763"

static int run(int argc, char **argv)
{
	const char *address = DEFAULT_ADDRESS;
	bool allow_remote = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			command_help(&command_exporter);
			return STATUS_OK;
		}
		if (!strcmp(argv[i], "--allow-remote"))
			allow_remote = true;
		else if (!strncmp(argv[i], "--listen=", 9))
			address = argv[i] + 9;
		else if (!strcmp(argv[i], "--listen") && argv[i + 1])
			address = argv[++i];
		else if (!strcmp(argv[i], "--listen"))
			return usage_error(&command_exporter, "--listen needs an address");
		else
			return usage_error(&command_exporter, "cannot make sense of '%s'", argv[i]);
	}
	return exporter_serve(address, allow_remote);
}

static void describe(void)
{
	puts("options:\n"
	     "  --listen ADDRESS  HOST:PORT, [HOST]:PORT or PORT (" DEFAULT_ADDRESS ")\n"
	     "  --allow-remote    ADDRESS may be one that other machines reach\n\n"
	     "Serves OpenMetrics over HTTP at /metrics: instructions, branches, cycles, exits by\n"
	     "reason, accesses to the PMU, starvation and speed of each VM, labelled by VM and\n"
	     "command. Runs until SIGINT or SIGTERM. Guests are not stopped for it.");
}

const struct command command_exporter = {
	.name = "exporter",
	.synopsis = "[--listen ADDRESS] [--allow-remote]",
	.summary = "Serve metrics of all VMs to Prometheus",
	.run = run,
	.describe = describe,
};
