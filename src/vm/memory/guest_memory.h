/* SPDX-License-Identifier: MIT */
/*
 * Guest physical memory as the hypervisor itself reads and writes it: clock pages, steal time,
 * hypercall buffers. RAM only; pages may be crossed. False: no (writable) RAM there, or the
 * program's memory for it is not mapped. The caller is in a section, or keeps the map from being
 * freed otherwise. A write may hit translated code, of this vCPU and of others: it is noted as the
 * processor's own.
 */
#ifndef VM_MEMORY_GUEST_MEMORY_H
#define VM_MEMORY_GUEST_MEMORY_H

#include "cpu/cpu.h"

bool guest_read(const struct mem_map *map, gpa_t gpa, void *buf, u32 size);
bool guest_write(struct cpu *cpu, gpa_t gpa, const void *buf, u32 size);

#endif
