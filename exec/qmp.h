/* SPDX-License-Identifier: MIT */
/*
 * What is said to QEMU: QMP over a socket. Its machine is saved and resumed, and watched: a machine
 * that cannot go on is stopped, and QEMU waits for ever.
 */
#ifndef EXEC_QMP_H
#define EXEC_QMP_H

#include "base/types.h"

/* Before anything else; waits until QEMU is there. */
bool monitor_open(int fd);
/* Whether the machine is stopped for good: a vCPU or a device has failed. */
bool monitor_has_failed(int fd);
/* Reads what QEMU has to say, when there is something. Whether that is that the machine
 * has failed. */
bool monitor_read(int fd);
/* Whether QEMU has closed it and nothing is left to be read. */
bool monitor_is_closed(int fd);
/* Stops the machine and writes its state, without memory, to a file. */
bool monitor_save(int fd, int state);
/* Instead of monitor_open(), for a machine that is resumed: sends what comes first, and does not
 * wait for QEMU to start. The state will be read from that file. */
bool monitor_prepare(int fd, int state);
/* After that, and when memory is there: reads the state, plugs the device with the host's files in,
 * and lets the machine go on. */
bool monitor_resume(int fd);

#endif
