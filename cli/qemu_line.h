/* SPDX-License-Identifier: MIT */
/*
 * QEMU's command line as libvirt writes it for TCG or for KVM, made one for vpmu: cli/qemu_line.c.
 */
#ifndef CLI_QEMU_LINE_H
#define CLI_QEMU_LINE_H

#include <stdbool.h>

#include "base/types.h"

/* Of the processor that -cpu names. */
enum qemu_vendor { VENDOR_ANY, VENDOR_INTEL, VENDOR_AMD };

struct qemu_line {
	char **word; /* for execvp(), allocated as each of them is */
	u32 count;
	const char *model; /* that -cpu names, of vpmu's; NULL: none of them */
	enum qemu_vendor vendor;
	char *refusal;	/* the option that vpmu cannot honour, and what to do; NULL: none */
	bool is_broken; /* words are missing: memory was out */
};

/* argv: QEMU's own arguments, from argv[1] on; argv[0] is replaced by the program's name. has_kvm:
 * libvirt finds a /dev/kvm that it can use. */
void qemu_line_make(struct qemu_line *line, const char *program, char *const *argv, bool has_kvm);
void qemu_line_free(struct qemu_line *line);

#endif
