/* SPDX-License-Identifier: MIT */
/*
 * Kept translations of a VM (base/kept.h). VPMU_KEPT is the numbers of two descriptors with a comma
 * between them, -1 for one that there is not: the store, to read, and the news, a file of
 * KEPT_NEWS_SIZE bytes.
 */
#ifndef VM_KEPT_H
#define VM_KEPT_H

#include "base/types.h"

struct kept;
struct vm;

void kept_environment(struct vm *vm); /* sets vm->kept; before the VM has vCPUs */
void kept_destroy(struct vm *vm);
/* Says which build this is, by the number that the linker gave it. False: it gave it none. */
bool kept_build(struct kept *kept);

#endif
