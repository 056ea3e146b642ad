// SPDX-License-Identifier: MIT
/*
 * Linked into a vpmu-init of the tests, with --wrap: one system call fails in the guest that works
 * everywhere else. Which one is said in the environment of vpmu exec, so that one machine that was
 * saved serves all: VPMU_FAULT=CALL, or VPMU_FAULT=CALL:ARGUMENT.
 */
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "exec/wire.h"

static const char *fault = "";

const struct frame *__real_wire_next(struct wire *wire, const u8 **body);

/* The order is the first frame that comes. */
const struct frame *__wrap_wire_next(struct wire *wire, const u8 **body)
{
	static const char variable[] = "VPMU_FAULT=";
	static char name[64];
	const struct frame *frame = __real_wire_next(wire, body);
	const char *found;

	if (frame && frame->type == FRAME_START) {
		found = memmem(*body, frame->size, variable, sizeof(variable) - 1);
		if (found)
			snprintf(name, sizeof(name), "%s", found + sizeof(variable) - 1);
		fault = name;
	}
	return frame;
}

void __real_wire_send(struct wire *wire, enum frame_type type, enum stream stream, const void *body,
		      u32 size);

/* A guest that lies, once its command has started. */
void __wrap_wire_send(struct wire *wire, enum frame_type type, enum stream stream, const void *body,
		      u32 size)
{
	static u8 much[WIRE_WINDOW + 1];
	u32 credit = 1u << 31;

	__real_wire_send(wire, type, stream, body, size);
	if (type != FRAME_STARTED)
		return;
	if (!strcmp(fault, "credit"))
		__real_wire_send(wire, FRAME_CREDIT, STREAM_IN, &credit, sizeof(credit));
	else if (!strcmp(fault, "one-credit"))
		__real_wire_send(wire, FRAME_CREDIT, STREAM_IN, &(u32){ 1 }, sizeof(credit));
	else if (!strcmp(fault, "other-credit"))
		__real_wire_send(wire, FRAME_CREDIT, STREAM_ERR, &(u32){ 1 }, sizeof(credit));
	else if (!strcmp(fault, "data"))
		__real_wire_send(wire, FRAME_DATA, STREAM_OUT, much, sizeof(much));
	else if (!strcmp(fault, "stream"))
		__real_wire_send(wire, FRAME_DATA, STREAMS, much, 1);
}

static bool fails(const char *call, const char *argument)
{
	size_t n = strlen(call);

	if (strncmp(fault, call, n) || (fault[n] && strcmp(fault + n + 1, argument)))
		return false;
	errno = EIO;
	return true;
}

int __real_mount(const char *from, const char *to, const char *type, unsigned long flags,
		 const void *data);
int __wrap_mount(const char *from, const char *to, const char *type, unsigned long flags,
		 const void *data)
{
	return fails("mount", to) ? -1 : __real_mount(from, to, type, flags, data);
}

int __real_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags)
{
	static char number[] = "0";

	number[0]++;
	return fails("pipe2", number) ? -1 : __real_pipe2(ends, flags);
}

pid_t __real_fork(void);
pid_t __wrap_fork(void)
{
	return fails("fork", "") ? -1 : __real_fork();
}

int __real_setgroups(size_t count, const gid_t *groups);
int __wrap_setgroups(size_t count, const gid_t *groups)
{
	return fails("setgroups", "") ? -1 : __real_setgroups(count, groups);
}

int __real_signalfd(int fd, const sigset_t *set, int flags);
int __wrap_signalfd(int fd, const sigset_t *set, int flags)
{
	return fails("signalfd", "") ? -1 : __real_signalfd(fd, set, flags);
}

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
	return request == TIOCGPTPEER && fails("ioctl", "TIOCGPTPEER")
		       ? -1
		       : __real_ioctl(fd, request, argument);
}
