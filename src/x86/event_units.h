/* SPDX-License-Identifier: MIT */
/*
 * The unit column of events.def, for the files that read its rows.
 */
#ifndef X86_EVENT_UNITS_H
#define X86_EVENT_UNITS_H

/* TIME: slots as whole cycles. OFFCORE: the class is in a register. From NAMED_CMASK on: the
 * vendor's event is the one with that CMASK. */
enum event_unit { ONE, SLOTS, TIME, OFFCORE_0, OFFCORE_1, NAMED_CMASK };

#define CMASK(n) (NAMED_CMASK + (n))

#endif
