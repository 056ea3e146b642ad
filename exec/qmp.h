/* SPDX-License-Identifier: MIT */
/*
 * What is said to QEMU: QMP over a socket. Its machine is saved and resumed, and watched: a machine
 * that cannot go on is stopped, and QEMU waits for ever.
 */
#ifndef EXEC_QMP_H
#define EXEC_QMP_H

#include "base/types.h"

struct monitor {
	int fd;
	bool is_asked;	  /* by monitor_read(), for the machine's state */
	bool has_stopped; /* after that */
	u32 size;	  /* of the line, as far as it has come; 0: all of it has */
	char line[4096];
};

/* Before anything else; waits until QEMU is there. */
bool monitor_open(struct monitor *monitor);
/* Whether the machine is stopped for good: a vCPU or a device has failed. Waits for an answer, a
 * bounded time. */
bool monitor_has_failed(struct monitor *monitor);
/* Reads what QEMU has to say, when there is something, and asks what that means; waits for nothing.
 * Whether QEMU has said by now that the machine has failed, or reads no questions. */
bool monitor_read(struct monitor *monitor);
/* Whether QEMU has closed it and nothing is left to be read. */
bool monitor_is_closed(const struct monitor *monitor);
/* Stops the machine and writes its state, without memory, to a file. */
bool monitor_save(struct monitor *monitor, int state);
/* Instead of monitor_open(), for a machine that is resumed: sends what comes first, and does not
 * wait for QEMU to start. The state will be read from that file. */
bool monitor_prepare(struct monitor *monitor, int state);
/* After that, and when memory is there: reads the state, plugs the device with the host's files in,
 * and lets the machine go on. */
bool monitor_resume(struct monitor *monitor);

#endif
