// SPDX-License-Identifier: MIT
/*
 * See lbr_machine.h.
 */
#include "unit/lbr_machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct pmu_machine m;

int on_skylake(void **state)
{
	(void)state;
	pmu_machine_create_either(&m, MODEL_SKYLAKE);
	return 0;
}

int on_sapphirerapids(void **state)
{
	(void)state;
	pmu_machine_create_either(&m, MODEL_SAPPHIRERAPIDS);
	return 0;
}

int on_genoa(void **state)
{
	(void)state;
	pmu_machine_create_either(&m, MODEL_GENOA);
	return 0;
}

void debugctl(u64 value)
{
	assert_int_equal(value & ~pmu_debugctl_legal(&m.pmu), 0);
	pmu_set_debugctl(&m.pmu, value);
	pmu_enter(&m.pmu);
}

void expect(u32 index, u64 value)
{
	u64 is = host_rdmsr(&m, index);

	if (is != value)
		fail_msg("MSR %#x is %#llx and not %#llx", index, (unsigned long long)is,
			 (unsigned long long)value);
}
