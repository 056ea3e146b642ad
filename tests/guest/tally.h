/* SPDX-License-Identifier: MIT */
/*
 * Workloads whose counts are known, of tally_code.S, which says what each counts.
 */
#ifndef GUEST_TALLY_H
#define GUEST_TALLY_H

/* Of tally_workload.vector. */
#define NO_GATE	     0x1ff
#define SYSCALL_GATE 0x100 /* the handler is IA32_LSTAR's */

#ifndef __ASSEMBLER__

#include "guest/machine.h"

/* As the macro WORKLOAD lays it out. */
struct tally_workload {
	const char *name;
	const u8 *start, *end;
	u64 os, os_branches, usr, usr_branches;
	u64 rbx;
	u64 vector, handler;
};

extern const struct tally_workload tally_workloads[] __attribute__((visibility("hidden")));
extern const struct tally_workload tally_workloads_end[] __attribute__((visibility("hidden")));

static inline void tally_load(struct machine *m, const struct tally_workload *w)
{
	machine_load(m, w->start, (size_t)(w->end - w->start));
	*image_pte(m->ram, IMAGE_HOLE) &= ~1ull;
	if (w->vector == SYSCALL_GATE)
		m->cpu->lstar = IMAGE_CODE + w->handler;
	else if (w->vector != NO_GATE)
		image_gate(m->ram, (u32)w->vector, IMAGE_CODE + w->handler, 3);
}

#endif /* __ASSEMBLER__ */

#endif
