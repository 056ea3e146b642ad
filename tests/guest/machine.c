// SPDX-License-Identifier: MIT
/*
 * A processor and its memory without a hypervisor: see machine.h.
 */
#include "cpu/private.h"
#include "guest/machine.h"

#include <cpuid.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/must.h"
#include "cpu/control.h"
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "engine/engine.h"
#include "guest/kept_tests.h"

#define GUARD (1ull << 20)

static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
static struct sigaction before[ARRAY_SIZE(signals)]; /* a test's, a sanitizer's or the default */

/* A fault that is not the guest's comes again when its instruction does, and goes to the handler
 * that was there before. A trap does not come again. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
	if (engine_signal(sig, info, context))
		return;
	if (sig == SIGTRAP)
		abort();
	for (u32 i = 0; i < ARRAY_SIZE(signals); i++)
		if (signals[i] == sig)
			sigaction(sig, &before[i], NULL);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_sigaction = on_signal,
				    .sa_flags = SA_SIGINFO | SA_NODEFER };

	for (u32 i = 0; i < ARRAY_SIZE(signals); i++) {
		struct sigaction old;

		must(sigaction(signals[i], &action, &old) == 0);
		if (old.sa_sigaction != on_signal)
			before[i] = old;
	}
}

/* Guest memory with nothing beside it: an access that misses it is found. */
static u8 *map_between_guards(void)
{
	u8 *at = mmap(NULL, IMAGE_RAM + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(at != MAP_FAILED);
	must(mprotect(at + GUARD, IMAGE_RAM, PROT_READ | PROT_WRITE) == 0);
	return at + GUARD;
}

void machine_create_model(struct machine *m, const char *model)
{
	struct mem_slot slot = { .npages = IMAGE_RAM / PAGE_SIZE };

	memset(m, 0, sizeof(*m));
	m->ram = map_between_guards();
	slot.hva = m->ram;

	struct mem_map *empty = mem_map_empty();

	m->map = mem_map_with(empty, &slot);
	free(empty);
	m->cpu = cpu_create();
	must(m->map && m->cpu);
	m->cpu->port.model = model_find(model);
	m->cpu->port.kept = kept_in_folder();
	must(engine_create(m->cpu) == 0);
	engine_set_hot_after(m->cpu, MACHINE_HEAT);
	m->cpu->port.mem = m->map;
}

void machine_create(struct machine *m)
{
	machine_create_model(m, "icelake");
}

void machine_cold(struct machine *m)
{
	struct timing *t = &cpu_priv(m->cpu)->timing;
	void *tags = t->l1d.tags;

	memset(tags, 0, timing_memory(m->cpu->port.model));
	memset(t, 0, sizeof(*t));
	timing_init(t, m->cpu->port.model, tags, (u64 *)cpu_priv(m->cpu)->live);
}

void machine_destroy(struct machine *m)
{
	engine_destroy(m->cpu);
	cpu_destroy(m->cpu);
	free(m->map);
	munmap(m->ram - GUARD, IMAGE_RAM + 2 * GUARD);
}

/* Everything the host's CPUID has, without what the engine does not offer. */
static void read_features(u64 *features)
{
	for (u32 i = 0; i < NFEATURES; i++) {
		const struct feature_row *row = &feature_rows[i];
		u32 regs[4] = { 0 };

		if (i == FEAT_VMX || i == FEAT_SVM || i == FEAT_XSAVES || i == FEAT_LA57)
			continue;
		__get_cpuid_count(row->leaf, row->subleaf, &regs[0], &regs[1], &regs[2], &regs[3]);
		if (regs[row->reg] >> row->bit & 1)
			features[i / 64] |= BIT(i % 64);
	}
}

static void set_features(struct cpu *cpu)
{
	static u64 host[ARRAY_SIZE(cpu->features)];
	static bool known; /* CPUID takes long where it is trapped */

	if (!known)
		read_features(host);
	known = true;
	memcpy(cpu->features, host, sizeof(host));
	cpu->phys_bits = 46;
	cpu->xcr0_allowed =
		XCR0_X87 | XCR0_SSE | XCR0_AVX | (cpu_priv(cpu)->host_fpu.features & XCR0_AVX512);
	cpu->efer_allowed = EFER_SCE | EFER_LME | EFER_LMA | EFER_NX;
	cpu->cr4_allowed = CR4_TSD | CR4_DE | CR4_PSE | CR4_PAE | CR4_MCE | CR4_PGE | CR4_PCE |
			   CR4_OSFXSR | CR4_OSXMMEXCPT | CR4_UMIP | CR4_FSGSBASE | CR4_PCIDE |
			   CR4_OSXSAVE | CR4_SMEP | CR4_SMAP;
}

static void set_segments(struct cpu *cpu)
{
	const struct segment data = { .sel = IMAGE_DS,
				      .limit = 0xffffffff,
				      .attr = 3 | SEG_S | SEG_P | SEG_DB | SEG_G };
	const struct segment code = { .sel = IMAGE_CS,
				      .limit = 0xffffffff,
				      .attr = 11 | SEG_S | SEG_P | SEG_L | SEG_G };

	for (u32 i = 0; i < NSEGS; i++)
		cpu->seg[i] = i == CS ? code : data;
	cpu->tr = (struct segment){
		.base = IMAGE_TSS, .limit = 0x67, .sel = IMAGE_TR, .attr = 11 | SEG_P
	};
	cpu->ldtr = (struct segment){ .attr = SEG_UNUSABLE };
	cpu->gdtr = (struct descriptor_table){ IMAGE_GDT, IMAGE_NGDT * 8 - 1 };
	cpu->idtr = (struct descriptor_table){ IMAGE_IDT, IMAGE_NGATES * 16 - 1 };
	cpu->cpl = 0;
}

int machine_set_up(void **state)
{
	static struct machine machine;

	machine_create(&machine);
	*state = &machine;
	return 0;
}

int machine_tear_down(void **state)
{
	machine_destroy(*state);
	return 0;
}

void machine_load(struct machine *m, const void *code, size_t size)
{
	must(madvise(m->ram, IMAGE_RAM, MADV_DONTNEED) == 0); /* zeros, faster than writing them */
	image_build(m->ram, code, size);
	engine_forget(m->cpu);
	machine_start(m);
}

void machine_start(struct machine *m)
{
	struct cpu *cpu = m->cpu;

	cpu_reset(cpu);
	cpu->port.mem = m->map;
	set_features(cpu);
	set_segments(cpu);
	cpu->cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
	cpu->cr3 = IMAGE_PML4;
	cpu->cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT | CR4_OSXSAVE;
	cpu->efer = EFER_SCE | EFER_LME | EFER_LMA | EFER_NX;
	cpu->xcr0 = cpu->xcr0_allowed;
	cpu->star = IMAGE_STAR;
	cpu->rip = IMAGE_CODE;
	cpu->rflags = FL_FIX1;
	memset(cpu->regs, 0, sizeof(cpu->regs));
	cpu->regs[RSP] = IMAGE_STACK;
	memset(&cpu->port.tally, 0, sizeof(cpu->port.tally));
	cpu_state_changed(cpu);
	m->port_reads = m->port_writes = m->mmio_reads = m->mmio_writes = m->cpuids = m->msrs = 0;
}

static void answer_io(struct machine *m)
{
	struct cpu_io *io = &m->cpu->port.io;

	if (io->in) {
		memset(io->data, (u8)~io->port, (size_t)io->size * io->count);
		m->port_reads++;
	} else {
		m->port_writes++;
	}
	io->state = IO_DONE;
}

static void answer_mmio(struct machine *m)
{
	struct cpu_mmio *mmio = &m->cpu->port.mmio;

	if (mmio->write_pos < mmio->nwrites) {
		mmio->write_pos++;
		m->mmio_writes++;
		return;
	}
	for (u32 i = 0; i < mmio->nreads; i++) {
		if (mmio->reads[i].answered)
			continue;
		memset(mmio->reads[i].data, 0x5a, sizeof(mmio->reads[i].data));
		mmio->reads[i].answered = true;
		m->mmio_reads++;
	}
}

static void answer_cpuid(struct machine *m)
{
	u64 *regs = m->cpu->regs;

	regs[RAX] = regs[RBX] = regs[RCX] = regs[RDX] = 0;
	m->cpuids++;
	cpu_complete(m->cpu);
}

static void answer_rdmsr(struct machine *m)
{
	m->cpu->regs[RAX] = m->cpu->regs[RDX] = 0;
	m->msrs++;
	cpu_complete(m->cpu);
}

static void answer_wrmsr(struct machine *m)
{
	m->msrs++;
	cpu_complete(m->cpu);
}

/* True: go on. */
static bool answer(struct machine *m, enum exit_reason reason)
{
	switch (reason) {
	case EXIT_IO:
		if (m->cpu->port.io.port == IMAGE_DONE_PORT)
			return false;
		answer_io(m);
		return true;
	case EXIT_MMIO:
		answer_mmio(m);
		return true;
	case EXIT_CPUID:
		answer_cpuid(m);
		return true;
	case EXIT_RDMSR:
		answer_rdmsr(m);
		return true;
	case EXIT_WRMSR:
		answer_wrmsr(m);
		return true;
	default:
		return false;
	}
}

u64 machine_retired(const struct machine *m)
{
	return m->cpu->port.tally.instructions[RETIRE_OS] +
	       m->cpu->port.tally.instructions[RETIRE_USR];
}

enum exit_reason machine_run(struct machine *m, u64 budget)
{
	catch_signals(); /* cmocka sets its own before each test */
	u64 end = machine_retired(m) + budget, exits = 0;

	for (;;) {
		u64 left = end - machine_retired(m);
		enum exit_reason reason;

		if (left == 0)
			return EXIT_BUDGET;
		reason = engine_run(m->cpu, left);
		if (!answer(m, reason) || ++exits == m->exit_limit)
			return reason;
	}
}

bool machine_store_read(void *cpu, u64 linear, void *to, u32 size)
{
	return cpu_access_quietly(cpu, linear, to, size, ACCESS_READ);
}

bool machine_store_write(void *cpu, u64 linear, const void *from, u32 size)
{
	return cpu_access_quietly(cpu, linear, (void *)(uintptr_t)from, size, ACCESS_WRITE);
}
