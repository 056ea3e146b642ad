/* SPDX-License-Identifier: MIT */
/*
 * Port I/O and MMIO between the guest and the program: what is answered inside (interrupt
 * controllers, coalescing zones, ioeventfds, the port of vm/time/device_wait.h) and what exits. See
 * io.c.
 */
#ifndef VM_IO_H
#define VM_IO_H

#include <linux/kvm.h>

#include "base/types.h"

struct vcpu;
struct vm;

/* EXIT_IO, EXIT_MMIO: 1 answered, go on; 0 vcpu->run tells the program. vCPU thread, inside a
 * section. */
int io_port_exit(struct vcpu *vcpu);
int io_mmio_exit(struct vcpu *vcpu);
/* The program is back from such an exit: takes its answer over. 1, or 0 if there is more to tell
 * it. */
int io_port_complete(struct vcpu *vcpu);
int io_mmio_complete(struct vcpu *vcpu);

/* memory/io_zones.c: coalescing zones and ioeventfds. Any thread. */
int vm_register_coalesced(struct vm *vm, const struct kvm_coalesced_mmio_zone *zone);
int vm_unregister_coalesced(struct vm *vm, const struct kvm_coalesced_mmio_zone *zone);
int vm_ioeventfd(struct vm *vm, const struct kvm_ioeventfd *args);
int io_eventfd_sane(int fd); /* 0, -EBADF, or -EINVAL if it is no eventfd */
/* A guest write: true if a zone took it. vCPU thread, inside a section. */
bool zones_write(struct vm *vm, bool pio, u64 addr, u32 len, const void *data);
/* Does an ioeventfd wait to be read? Takes vm->slots_lock: not inside a section. */
bool zones_unread(struct vm *vm);
void io_zones_destroy(struct vm *vm);

#endif
