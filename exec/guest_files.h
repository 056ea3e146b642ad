/* SPDX-License-Identifier: MIT */
/*
 * What `vpmu exec` and the first process of a guest on virtual time have agreed on (docs/clock.md):
 * files of the share beside the host's, and the port by which the guest waits
 * (vm/time/device_wait.h).
 */
#ifndef EXEC_GUEST_FILES_H
#define EXEC_GUEST_FILES_H

#define LINK_ORDER  ".vpmu-order"  /* a frame: FRAME_START */
#define LINK_INPUT  ".vpmu-input"  /* the command's standard input */
#define LINK_FRAMES ".vpmu-frames" /* what the guest writes are frames to the host */
#define LINK_PORT   0x5650	   /* OUTSIDE_PORT */

/* Of deterministic guests, and of their folders: 2020-01-01. */
#define VIRTUAL_DATE 1577836800ull

#endif
