// SPDX-License-Identifier: MIT
/*
 * Linked into a vpmu-init of the tests, with --wrap: the registers of the device with the host's
 * files cannot be read, so that Linux has to find it again when the machine was resumed.
 */
#include "exec/guest/guest.h"

bool __real_parked_read(void);
bool __wrap_parked_read(void)
{
	__real_parked_read();
	return false;
}
