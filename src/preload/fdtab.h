/* SPDX-License-Identifier: MIT */
/*
 * Which descriptors are ours: fd to struct kvm_file. Every ioctl, read and close of the program
 * asks, from any thread and from signal handlers, so that a look-up takes no lock and no loop. The
 * table owns one reference for each entry.
 */
#ifndef PRELOAD_FDTAB_H
#define PRELOAD_FDTAB_H

#include "base/types.h"
#include "kvm/kvm.h"

/*
 * The file of fd, pinned until fdtab_unpin() with the same arguments; NULL: not ours. A close()
 * or dup2() in between does not pull the file away.
 */
struct kvm_file *fdtab_pin(int fd);
void fdtab_unpin(int fd, struct kvm_file *file);

/*
 * Files `file` under fd and drops what was there; takes the caller's reference over. NULL: fd is no
 * longer ours. 0, or -EMFILE or -ENOMEM, and then the reference is still the caller's.
 */
int fdtab_set(int fd, struct kvm_file *file);
void fdtab_drop_range(unsigned first, unsigned last);

/* Calls visit() with the files that there are, each pinned meanwhile, in order of their
 * descriptors, until it returns false. */
void fdtab_each(bool (*visit)(struct kvm_file *file, void *arg), void *arg);

/*
 * In the child of a fork(): all files now belong to the parent; they can be used as KVM lets a
 * child use them, but closing them frees nothing.
 */
void fdtab_forked(void);

#endif
