// SPDX-License-Identifier: MIT
/*
 * The way from an instruction to the code that executes it, and the checks that many of them share:
 * mode and feature first (#UD), then privilege (#GP), then the availability of the x87 and vector
 * state (#NM), as the exception tables of SDM 2 order them. vCPU thread; general registers only.
 */
#include "engine/sys/sys.h"

#include "engine/insn_table.h"
#include "engine/sys/priv.h"

enum gate {
	GATE_PROT = BIT(0),	/* #UD in real and virtual-8086 mode */
	GATE_64 = BIT(1),	/* #UD outside 64-bit code */
	GATE_FSGSBASE = BIT(2), /* #UD unless CR4.FSGSBASE */
	GATE_OSXSAVE = BIT(3),	/* #UD unless CR4.OSXSAVE */
	GATE_AVX = BIT(4),	/* #UD unless XCR0 enables AVX */
	GATE_SSE = BIT(5),	/* #UD if CR0.EM or not CR4.OSFXSR */
	GATE_EM = BIT(6),	/* #UD if CR0.EM */
	GATE_CPL0 = BIT(7),	/* #GP(0) unless CPL is 0 */
	GATE_UMIP = BIT(8),	/* #GP(0) if CR4.UMIP, unless CPL is 0 */
	GATE_TSD = BIT(9),	/* #GP(0) if CR4.TSD, unless CPL is 0 */
	GATE_TS = BIT(10),	/* #NM if CR0.TS */
	GATE_PKE = BIT(11),	/* #UD unless CR4.PKE */
};

#define FEAT_ANY NFEATURES

struct row {
	sys_fn *handler;
	u16 gates;
	u16 feature;
};

static const struct row rows[NINSNS] = {
#define SYS(handler, gates, feature) sys_##handler, gates, FEAT_##feature
#define INSN(mnemonic, ways, ...)    [INSN_##mnemonic] = { ways },
#include "engine/insn.def"
};

static bool undefined(const struct cpu *cpu, const struct row *row)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	u32 gates = row->gates;

	return (row->feature != FEAT_ANY && !cpu_has(cpu, row->feature)) ||
	       ((gates & GATE_PROT) && !(priv->mode & MODE_PROT)) ||
	       ((gates & GATE_64) && !sys_code64(cpu)) ||
	       ((gates & GATE_FSGSBASE) && !(cpu->cr4 & CR4_FSGSBASE)) ||
	       ((gates & GATE_PKE) && !(cpu->cr4 & CR4_PKE)) ||
	       ((gates & GATE_OSXSAVE) && !(cpu->cr4 & CR4_OSXSAVE)) ||
	       ((gates & GATE_AVX) && !(priv->mode & MODE_AVX)) ||
	       ((gates & GATE_SSE) && ((cpu->cr0 & CR0_EM) || !(cpu->cr4 & CR4_OSFXSR))) ||
	       ((gates & GATE_EM) && (cpu->cr0 & CR0_EM));
}

static bool forbidden(const struct cpu *cpu, u32 gates)
{
	return cpu->cpl && ((gates & GATE_CPL0) || ((gates & GATE_UMIP) && (cpu->cr4 & CR4_UMIP)) ||
			    ((gates & GATE_TSD) && (cpu->cr4 & CR4_TSD)));
}

enum sys_result sys_execute(struct cpu *cpu, const struct insn *insn)
{
	const struct row *row = &rows[insn->id];

	if (!row->handler || undefined(cpu, row))
		return SYS_UNKNOWN;
	if (row->gates && forbidden(cpu, row->gates))
		return sys_done(sys_gp(cpu));
	if ((row->gates & GATE_TS) && (cpu->cr0 & CR0_TS))
		return sys_raise(cpu, VEC_NM);
	return row->handler(cpu, insn);
}
