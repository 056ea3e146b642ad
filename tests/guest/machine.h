/* SPDX-License-Identifier: MIT */
/*
 * A processor and its memory without a hypervisor: drives struct cpu by engine_run() and answers
 * the exits itself. For tests that look at what no KVM API shows: tallies, budgets, the engine's
 * own exits. One thread.
 */
#ifndef GUEST_MACHINE_H
#define GUEST_MACHINE_H

#include "cpu/cpu.h"
#include "guest/image.h"

#define MACHINE_HEAT 48 /* executions until a block is hot */

struct machine {
	struct cpu *cpu;
	u8 *ram; /* IMAGE_RAM bytes at guest physical 0 */
	struct mem_map *map;
	u64 exit_limit; /* machine_run() returns after so many exits that it answered; 0: none */
	u64 port_reads, port_writes, mmio_reads, mmio_writes, cpuids, msrs; /* exits answered */
};

void machine_create_model(struct machine *m, const char *model);
void machine_create(struct machine *m); /* icelake; ends the test program when memory is short */
void machine_destroy(struct machine *m);

/* The same for a group of cmocka tests: *state is the machine. */
int machine_set_up(void **state);
int machine_tear_down(void **state);

/* Empties the caches, TLBs and predictors of the timing model, which is icelake's. */
void machine_cold(struct machine *m);

/* A fresh guest: memory as image_build() makes it, and a processor as machine_start() leaves it. */
void machine_load(struct machine *m, const void *code, size_t size);
/* Only the processor: 64-bit mode, CPL 0, RIP at the code, tallies 0. Memory and translations
 * stay. */
void machine_start(struct machine *m);

/*
 * Runs until IMAGE_DONE_PORT (EXIT_IO), HLT, a triple fault or anything else that is not answered
 * here, or until exactly `budget` instructions have retired (EXIT_BUDGET). IN reads ~port, MMIO
 * reads all bytes 0x5a, CPUID gives four zeros, RDMSR 0; WRMSR is ignored.
 */
enum exit_reason machine_run(struct machine *m, u64 budget);

/* Of a struct hwpmu_store whose owner is the struct cpu. */
bool machine_store_read(void *cpu, u64 linear, void *to, u32 size);
bool machine_store_write(void *cpu, u64 linear, const void *from, u32 size);

u64 machine_retired(const struct machine *m); /* instructions of both privileges */

#endif
