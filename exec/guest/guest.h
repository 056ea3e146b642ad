/* SPDX-License-Identifier: MIT */
/*
 * The first process of a guest of `vpmu exec`: makes a root of the host's files, runs commands in
 * it and stands between them and the host. Statically linked; the only file of its initramfs but
 * for kernel modules.
 */
#ifndef EXEC_GUEST_GUEST_H
#define EXEC_GUEST_GUEST_H

#include "exec/wire.h"

/* What the host asked for; the strings lie in its frame's body. */
struct order {
	u8 *body;
	struct start start;
	const u32 *groups;
	const char *host, *folder;
	char **names, **arguments, **variables, **shared; /* names: the two above */
	int input; /* the command's standard input as a file, or -1: it comes by the wire */
};

/* Says what went wrong (errno) to the host, and waits for the end. */
_Noreturn void give_up(struct wire *wire, enum failed_step step, const char *what);

/* order.c */
/* Takes a body apart; false if it is not whole. */
bool order_read(struct order *order, const u8 *body, u32 size);
void order_free(struct order *order);
/* Tells the host what went wrong (errno) with a session. */
void send_failed(struct wire *wire, u32 session, enum failed_step step, const char *what);

/* fetch.c: of a guest on virtual time that waits for the host (docs/clock.md) */
bool fetch_is_wanted(void); /* the host wants that of this guest */
/* It waits on the CPU that has the first turn when the machine is resumed: no other runs before the
 * host has called. Undone when the order has been fetched. */
void fetch_settle(void);
/* The clock has been set: the host's server reckons the times of files from now. */
void fetch_begin(const struct wire *wire);
void fetch_wait(void); /* until the host calls; time stands still */
/* When the root has been built: opens what the host has put there, in the place of the wire, and
 * reads the order. NULL, or what could not be done (errno). */
const char *fetch_order(struct wire *wire, struct order *order, u8 **body, u32 *size);

/* parked.c: the device with the host's files, while the machine is saved */
bool parked_is_wanted(void); /* this machine is to be saved with its root */
/* Reads the registers of the device, which Linux has set up; false: it cannot be saved so. */
bool parked_read(void);
/* Has QEMU unplug it. Returns: it comes back as it was; otherwise Linux forgets it. */
void parked_leave(bool returns);
/* A new device is in its slot, and is set up as the one was that left; false: Linux has to look for
 * it, and the root is to be built. */
bool parked_return(void);

/* root.c */
void root_mount_early(void);
void root_add_extras(void); /* of /dev and /sys, when drivers have been loaded */
/* devices.c */
void devices_load(void);
int devices_open_port(void); /* -1: the kernel has no driver for it */
void devices_look_again(void);
const char *root_build(void);		    /* NULL, or what could not be done (errno) */
int root_open(const char *name, int flags); /* a file of the host's root, before root_enter() */
const char *root_enter(const struct order *order);

/* settings.c: clock, random numbers, names, limits, network */
void settings_prepare(void); /* what does not depend on the order */
void settings_apply(const struct order *order);

/* commands.c: runs the command of the first order, if it has one, and those of all that follow. */
_Noreturn void commands_run(struct wire *wire, struct order *order);

#endif
