/* SPDX-License-Identifier: MIT */
/*
 * A guest of the file server, for tests that need no machine: each function sends one FUSE request
 * and returns its errno, unless it says otherwise.
 */
#ifndef UNIT_SHARE_GUEST_H
#define UNIT_SHARE_GUEST_H

#include <linux/fuse.h>

#include "exec/share/share.h"

extern struct share guest_share;
/* Of the last request: its header, and what followed. */
extern const struct fuse_out_header *const guest_answer;
extern const void *const guest_body;

/* Serves all files of the host; with folders to write, named without a leading slash. */
bool guest_start(const char *const *writable, u32 count);
/* Frees what it had; returns how many handles were still open. */
u32 guest_stop(void);

/* A folder of the test's own on the host, and paths in it, of which two are valid at a time. */
#define HOST_FOLDER "/tmp/vpmu-share-XXXXXX"
extern char host_folder[sizeof(HOST_FOLDER)];
void host_make_folder(void);
bool host_remove_folder(void); /* but nothing that is mounted there */
const char *in_folder(const char *name);
/* Makes the folder, with rw in it, and serves all files, with rw to write. */
bool guest_start_in_folder(void);

/* Can processes be confined? Sanitizers make system calls of their own: then it says so. */
bool guest_can_confine(void);
/* Skips the test where they cannot. */
void guest_want_confinement(void);

/* Any request, of a fixed part and a name (or NULL). -1: it was not answered. */
int guest_ask(u32 opcode, u64 node, const void *fixed, u32 size, const char *name);
/* The node of a name, or of a path from the root; 0 where there is none. */
u64 guest_look_up(u64 parent, const char *name);
u64 guest_walk(const char *path);
int guest_open(u64 node, u32 flags, u64 *handle);
int guest_create(u64 parent, const char *name, u32 flags, u32 mode, u64 *handle);
int guest_release(u64 node, u64 handle);
int guest_read(u64 node, u64 handle, u32 size);
int guest_write(u64 node, u64 handle, const char *text);
/* FUSE_RENAME, or FUSE_RENAME2 where there are flags. */
int guest_rename(u64 from, const char *name, u64 to, const char *new_name, u32 flags);
int guest_set_attributes(u64 node, struct fuse_setattr_in set);
/* The mode or size that a GETATTR answers with, by a handle unless it is -1; minus an errno. */
s64 guest_mode(u64 node, s64 handle);
s64 guest_size(u64 node);
/* How many entries a folder lists (FUSE_READDIR or FUSE_READDIRPLUS) whose name begins with no
 * dot; minus an errno. */
s64 guest_entries(u64 node, u32 opcode);

#endif
