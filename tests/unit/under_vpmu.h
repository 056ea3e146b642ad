/* SPDX-License-Identifier: MIT */
/*
 * Tests that start themselves under `vpmu kvm`, once per CPU model: main() calls run_under_vpmu(),
 * and the same program comes back with the arguments `inside` and the model, if any.
 */
#ifndef UNIT_UNDER_VPMU_H
#define UNIT_UNDER_VPMU_H

/* Runs this program under the vpmu of the same build tree; model NULL: the host's. `prepare`, if
 * any, is called in the process that becomes vpmu. Returns its status as waitpid() does. */
int run_under_vpmu(const char *model, void (*prepare)(void));

/* Inside: /dev/kvm, and the version that a descriptor answers. */
int open_kvm(void);
int api(int fd);

#endif
