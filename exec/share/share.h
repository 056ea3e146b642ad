/* SPDX-License-Identifier: MIT */
/*
 * A virtio-fs device served over vhost-user: shows the host's file system to a guest with nothing
 * but the rights of the user who runs it. All of it can be read, the folders that were named can be
 * written. QEMU's own daemon cannot run without root or user namespaces; this one needs neither.
 *
 *   vhost_user.c   the vhost-user messages, one turn of the device
 *   virtqueue.c    the virtqueue: requests out of guest memory, answers into it
 *   node.c         what the guest has looked up, and where it is
 *   file_type.c    which file systems are served, and attributes as the guest sees them
 *   fuse.c         the table of FUSE requests, and what their functions share
 *   read.c         requests that read
 *   change.c       requests that write
 *   opened.c       names of files that were opened, for a profile
 *   guest_files.c  files for the first process of a guest on virtual time
 *
 * The guest is not trusted: everything that is read from its memory is copied once and then
 * checked. One thread serves everything.
 */
#ifndef EXEC_SHARE_SHARE_H
#define EXEC_SHARE_SHARE_H

#include <limits.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/types.h"

/* --- guest memory and the queue --- */

#define MAX_REGIONS 8
#define MAX_QUEUES  2	       /* one for FORGET, one for requests */
#define MAX_PIECES  512	       /* of a request: 1 MiB in pages, and headers */
#define MAX_BODY    (1u << 20) /* of a READ or WRITE */

struct region {
	gpa_t gpa;
	u64 size, qemu_address; /* where QEMU has mapped it: vrings are named by that */
	u8 *map;
	u64 map_size;
};

struct queue {
	u32 size; /* in descriptors */
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	u64 desc_address, avail_address, used_address;
	u16 next;	/* in avail */
	int kick, call; /* event descriptors, -1 until set */
	bool enabled;
};

/* A request: what the guest wrote, and where the answer belongs. */
struct request {
	u16 head;
	u8 *in; /* copied */
	u32 in_size;
	struct iovec out[MAX_PIECES];
	u32 out_count;
	u64 out_size;
};

struct share;

/* Guest memory as ours, NULL unless all of [address, address + size) is RAM. */
void *share_guest(const struct share *share, gpa_t address, u64 size);
/* As share_guest(), for an address of QEMU's. */
void *share_qemu(const struct share *share, u64 address, u64 size);

/* Takes the next request off a queue. False: there is none. A chain that makes no sense comes as a
 * request without any bytes. */
bool queue_next(const struct share *share, struct queue *queue, struct request *request);
bool queue_has_next(const struct queue *queue);
/* Whether the driver is to kick when it has made a request available. Ask queue_has_next() after
 * kicks are wanted again: one may have come without. */
void queue_want_kicks(struct queue *queue, bool wanted);
/* Hands the answer, `written` bytes of it, back to the guest. */
void queue_done(struct queue *queue, const struct request *request, u32 written);
/* The answer has been written: notes where, for the guest's processors. */
void queue_note(const struct share *share, const struct request *request);
/* Interrupts the guest, if it wants that. */
void queue_notify(const struct share *share, const struct queue *queue);
/* Puts bytes at an offset of the answer; returns how many fitted. */
u32 request_put(struct request *request, u32 offset, const void *bytes, u32 size);

/* --- what the guest knows --- */

/* A name that the guest has looked up. It is known by its place in the tree and not by an open
 * descriptor, so that the number of files that a guest looks at is not limited by ours. */
struct node {
	u32 parent, next; /* in its hash chain; 0: none */
	u32 children;
	u32 opens;   /* handles of it */
	u64 lookups; /* that the guest has not forgotten */
	bool gone;   /* unlinked or replaced */
	bool named;  /* given to opened_add() */
	char *name;
};

#define NODE_BUCKETS 4096
#define MAX_NODES    (4u << 20) /* Linux forgets some when its memory is short; a liar does not */

struct nodes {
	struct node *node; /* by id; 0 is unused, 1 the root */
	u32 count, free;   /* free: first of the unused ones, by `next` */
	u32 bucket[NODE_BUCKETS];
};

bool nodes_start(struct nodes *nodes);
/* The node of an id that the guest sent, or NULL. */
struct node *node_get(struct nodes *nodes, u64 id);
/* Finds or makes the node of a name, and counts a look-up. 0: out of memory. */
u32 node_lookup(struct nodes *nodes, u32 parent, const char *name);
void node_forget(struct nodes *nodes, u64 id, u64 lookups);
/* A handle of it was closed. */
void node_close(struct nodes *nodes, u32 id);
/* The name was removed, or now is another one's. */
void node_drop_name(struct nodes *nodes, u32 parent, const char *name);
/* Not for a rename that changed nothing because both names are of one file. */
void node_rename(struct nodes *nodes, u32 parent, const char *name, u32 new_parent,
		 const char *new_name);
/* Its path from the root without a leading slash ("." for the root), or an errno. */
int node_path(struct nodes *nodes, u64 id, char path[PATH_MAX]);
/* Whether the invariants of node.c hold, for tests: between requests. */
bool nodes_check(const struct nodes *nodes);

/* --- the file system --- */

struct host_entry { /* getdents64(2) */
	u64 ino, offset;
	u16 size;
	u8 type;
	char name[];
};

/* listing.c: the names of a folder, sorted. All zero: none. */
struct listing {
	u8 *bytes;
	u32 size, room, count; /* bytes, and names */
	struct host_entry **entry;
};

struct handle {
	int fd; /* -1: unused */
	u32 node;
	bool writable;
	bool sealed; /* a folder of a file system that is not served: it has no entries */
	struct listing listing; /* of a folder that a deterministic guest lists */
};

/* For a guest on virtual time: docs/clock.md. */
struct share_terms {
	struct turns *page; /* base/turns.h */
	bool fixed;	    /* what follows from the host alone is not shown: fixed.c */
	int order, input;   /* files for the guest's first process, -1: none */
	int frames;	    /* a socket, for what that process writes; -1: none */
	/* See base/profile.h, for the names of files that are opened; NULL: none. */
	struct profile *profile;
};

/* fixed.c: files of a deterministic guest, by the number that it sees. */
struct fixed_file {
	dev_t device;
	ino_t inode;
	/* By the guest, on its clock, in ns since 1970; 0: not in this run. */
	u64 changed, modified;
	u32 opens; /* handles of it: its inode is no other file's while there are any */
	u32 next;  /* in its hash chain, or of those not in use; 0: none */
};

struct fixed {
	struct fixed_file *file; /* 0 is unused */
	u32 count, room, unused;
	u32 bucket[NODE_BUCKETS];
	u64 begun; /* turns.date when the guest's clock was set */
};

/* opened.c: which names terms->profile has, which QEMU can write too. */
struct opened {
	u64 *known; /* a table of their hashes; NULL: none yet */
	u32 bytes;  /* of names */
};

struct share {
	int socket;
	struct written *written;		/* base/written.h; NULL: none */
	const struct share_terms *virtual_time; /* NULL: none */
	int root;				/* descriptor of / */
	const char *const *writable; /* paths without a leading slash, "" for everything */
	u32 writable_count;
	/* As those, and NULL after the last: vpmu's own, which guests only read. NULL: none */
	const char *const *own;
	bool is_brief; /* what the guest is told is not cached: share_serve() */
	struct region region[MAX_REGIONS];
	u32 region_count;
	struct queue queue[MAX_QUEUES];
	struct nodes nodes;
	struct handle *handle;
	u32 handle_count;
	dev_t device[64]; /* host devices seen; a file's is part of its inode number */
	u32 device_count;
	struct opened opened;
	struct fixed fixed;
	u64 listed; /* bytes of all listings */
	u8 *in;	    /* the request being served */
	int error;  /* why it ended before QEMU did, 0: it did not */
};

/* A request as the functions of the file system see it. */
struct call {
	struct share *share;
	struct request *request;
	u64 id; /* of the node it is about */
	u32 uid, gid;
	const u8 *body; /* of the request, followed by a NUL */
	u32 size;
	u8 *answer; /* MAX_ANSWER bytes */
	u32 answer_size;
};

#define MAX_ANSWER (64u << 10) /* but READs, which go straight to the guest */

/* read.c: requests that only read, or are about open files. Each returns 0 or an errno. */
int fuse_getattr(struct call *call);
int fuse_lookup(struct call *call);
int fuse_readlink(struct call *call);
int fuse_open(struct call *call);
int fuse_opendir(struct call *call);
int fuse_read(struct call *call);
int fuse_readdir(struct call *call);
int fuse_readdirplus(struct call *call);
int fuse_release(struct call *call);
int fuse_statfs(struct call *call);
/* Answers with bytes of a file, as much as the request asks for. */
int share_read(struct call *call, int fd);
/* guest_files.c: whether a request is about one of its files, and serves it: 0 or an errno. */
bool link_is_ours(const struct call *call, u32 opcode);
int link_serve(struct call *call, u32 opcode);
/* change.c: requests that change files. */
int fuse_create(struct call *call);
int fuse_mknod(struct call *call);
int fuse_mkdir(struct call *call);
int fuse_symlink(struct call *call);
int fuse_link(struct call *call);
int fuse_unlink(struct call *call);
int fuse_rmdir(struct call *call);
int fuse_rename(struct call *call);
int fuse_rename2(struct call *call);
int fuse_setattr(struct call *call);
int fuse_write(struct call *call);
int fuse_fsync(struct call *call);
int fuse_fallocate(struct call *call);

/* fixed.c. None does anything unless the guest is deterministic. */
enum fixed_change { FIXED_ATTRIBUTES, FIXED_CONTENT };
void fixed_begin(struct share *share); /* the guest's clock has been set */
/* Is this name of a folder not for the guest? */
bool fixed_hides(struct share *share, u64 folder, const char *name);
/* Finds or makes what is kept of a file; NULL: there are too many, or not deterministic. */
struct fixed_file *fixed_find(struct share *share, const struct stat *st);
u64 fixed_number(const struct share *share, const struct fixed_file *file);
/* The guest has changed what a descriptor stands for ("") or a name in it. */
void fixed_changed(struct share *share, int fd, const char *name, enum fixed_change change);
void fixed_set_time(struct share *share, int fd, u64 seconds, u32 nanoseconds);
/* There is a handle more, or one less, of what a descriptor stands for. */
void fixed_opened(struct share *share, int fd);
void fixed_closed(struct share *share, int fd);
/* A name of it has been removed; what it was before that. */
void fixed_removed(struct share *share, const struct stat *st);

/* opened.c: the node's file was opened. Does nothing unless there is a profile. */
void opened_add(struct share *share, u64 id);

/* listing.c: reads all of a folder again, 0 or an errno; forgets it. */
int listing_read(struct share *share, struct listing *listing, int fd);
void listing_free(struct share *share, struct listing *listing);

/* What they share. */
/* A descriptor of a node, which may be a symbolic link, or minus an errno: an O_PATH one, or one of
 * a handle if its name is gone. Nothing on the way to it is a link: names lead where they say. */
int share_locate(struct share *share, u64 id);
/* As share_locate(), of what share_may_write() allows the guest to change, else -EROFS. If that
 * is because of a handle, the descriptor is of that handle: others of the node may be of another
 * file, which had the name before and lies elsewhere now. */
int share_locate_writable(struct share *share, u64 id);
/* A descriptor of the folder that a name of the guest is in; -EINVAL for what is no name, -ENOENT
 * for a folder that is not served. */
int share_locate_parent(struct share *share, u64 id, const char *name);
/* Whether the guest may change what is in this folder, or this file; one whose name is gone if it
 * is open for writing. */
bool share_may_write(struct share *share, u64 id);
/* Is this name in a folder one of vpmu's own, or on the way to one? NULL: is the node itself? */
bool share_leads_to_own(struct share *share, u64 id, const char *name);
/* Opens what an O_PATH descriptor stands for; a descriptor or minus an errno. */
int share_reopen(int path, int flags);
/* The handle with this number, if it is one of the request's node; or NULL. */
struct handle *share_handle(const struct call *call, u64 number);
/* As share_locate() of the request's node, by way of a handle if there is one. */
int share_locate_open(const struct call *call, const struct handle *handle);
/* Is there room for one more handle? False: no memory. */
bool share_has_handle(struct share *share);
/* Takes over a descriptor; the number of its handle, or minus an errno. */
s64 share_add_handle(struct share *share, struct handle handle);
/* Answers with the attributes of what a descriptor stands for, and closes it. */
int share_put_attributes(struct call *call, int fd);
/* Answers with a node for a name that exists. Counts a look-up. */
int share_put_entry(struct call *call, int parent, const char *name);
void *call_answer(struct call *call, u32 size);

/* file_type.c */
#define SET_ID (S_ISUID | S_ISGID) /* neither shown to a guest nor set by one */

/* Whether a descriptor, which may be an O_PATH one, is on a file system that stores files. */
bool share_serves(int fd);
/* Attributes as the guest sees them, of a descriptor or of a name in an open folder that is
 * served. Return 0 or an errno. */
int share_stat(int fd, struct stat *st);
int share_stat_entry(int folder, const char *name, struct stat *st);
/* Opens what an O_PATH descriptor stands for, which is closed, if it is a regular file that is
 * served. -1 for the descriptor: it could not be opened (errno). A descriptor or minus an errno. */
int share_open_regular(int path, int flags);

/* Serves one request; returns the size of the answer, 0 for none. */
u32 fuse_serve(struct share *share, struct request *request);

/* Serves the device whose vhost-user socket is `socket` until QEMU closes it. Writable are the
 * folders named, absolute and free of symbolic links, but for `own` (NULL after the last, or NULL):
 * what is kept there must be of no guest's making. Terms and ring may be NULL. Is_brief: the guest
 * is to be saved, and may believe nothing that it is told after its request. Returns an errno if it
 * could not start or go on. */
int share_serve(int socket, const char *const *writable, u32 count, const char *const *own,
		const struct share_terms *terms, struct written *ring, bool is_brief);

#endif
