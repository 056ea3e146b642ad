/* SPDX-License-Identifier: MIT */
/*
 * What is said to a QEMU whose machine is to be saved: QMP over a socket, and its console.
 */
#ifndef CLI_EXEC_MONITOR_H
#define CLI_EXEC_MONITOR_H

#include "base/types.h"

/* Stops the machine and writes its state, without memory, to a file. */
bool monitor_save(int fd, int state);
/* Reads it from there, plugs the device with the host's files in, and lets the machine go on. */
bool monitor_resume(int fd, int state);

#endif
