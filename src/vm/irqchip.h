/* SPDX-License-Identifier: MIT */
/*
 * The VM's interrupt controllers besides the local APICs: see irqchip.c.
 */
#ifndef VM_IRQCHIP_H
#define VM_IRQCHIP_H

struct vm;

void irqchip_destroy(struct vm *vm);

#endif
