/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that a process hands down by a variable of the environment. Programs between the two
 * may close them and keep the variable, as Python's subprocess and closefrom() do, and a number is
 * then that of another file. So the variable says which file each one is: "FD:DEV:INO", with commas
 * between them, and "-" for one that there is not. Numbers are decimal. No other form is taken.
 *
 * DEV:INO is that file as long as it exists: the process that hands it down holds it open while it
 * is used. Files in memory and sockets get numbers that count up, so theirs are not another's soon
 * after that; those of a disk may be.
 */
#ifndef BASE_INHERITED_H
#define BASE_INHERITED_H

#include "base/types.h"

/* Names n descriptors, -1 for one that there is not, in a variable of this process. False: the
 * variable is not set then. */
bool inherited_export(const char *variable, const int *fds, u32 n);
/* The n descriptors that a variable names. False: there is no such variable, or one of them has
 * another form or stands for another file. */
bool inherited_take(const char *variable, int *fds, u32 n);

#endif
