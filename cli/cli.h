/* SPDX-License-Identifier: MIT */
/*
 * The vpmu command: one file per subcommand, a row each in main.c.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "cli/base/command.h"

#include "base/version.h"

extern const struct command command_exec, command_up, command_down, command_perf, command_rr,
	command_flame, command_doctor, command_kvm, command_qemu, command_events, command_ps,
	command_stat, command_set, command_filter, command_record, command_report, command_exporter,
	command_lab, command_cost, command_check, command_history, command_diverge, command_cache;

/* The model of --baseline without --cpu: the nearest one depends on the host. */
#define BASELINE_MODEL "icelake"
/* An exit code: can a VM of this model and timing have so much of its last level, and so long? Each
 * is as the user wrote it, or NULL. */
int check_last_level(const struct command *command, const char *cpu, const char *size,
		     const char *life, const char *timing);
int check_baseline(void); /* an exit code: what it has the host must have */

/* Of vCPUs on virtual time, in cycles. */
#define QUANTUM_MIN    1000u
#define QUANTUM_MAX    1000000000u
#define QUANTUM_WANTED "--quantum wants a number of cycles from 1000 to 1000000000, not '%s'"

/* Becomes a command with libvpmu-kvm.so preloaded, found as execvp() finds it. */
int kvm_start(char **argv);

#endif
