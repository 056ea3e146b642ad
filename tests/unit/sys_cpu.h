/* SPDX-License-Identifier: MIT */
/*
 * A processor at CPL 0 in 64-bit code that executes single instructions by sys_execute(), from
 * their bytes, for tests of engine/sys. One of them, made again for each test.
 */
#ifndef UNIT_SYS_CPU_H
#define UNIT_SYS_CPU_H

#include "engine/sys/sys.h"
#include "unit/paged_cpu.h"

#define GVA 0x40000000ull
#define GPA 0x400000ull /* of GVA */
#define RIP 0x1000

/* Sixteen pages of RAM at GVA; after them nothing, and a device after that. */
#define NPAGES		 16
#define HOLE		 NPAGES
#define DEVICE		 (NPAGES + 1)
#define AT(page, offset) (GVA + (page) * PAGE_SIZE + (offset))

extern struct cpu *cpu;

int sys_cpu_setup(void **state);
int sys_cpu_teardown(void **state);

u8 *ram(u32 page, u32 offset); /* the host's view of AT(page, offset) */
void set_string(u64 rsi, u64 rdi, u64 rcx);
void set_ymm(u32 reg, u64 low, u64 high); /* the lowest 64 bits of both halves */
void to_user_mode(void);

/* Executes an instruction at RIP; the vector state is in cpu->xsave afterwards. */
enum sys_result execute(const u8 *bytes, u32 n);
void assert_raised(enum sys_result result, enum vector vector);

#define EXECUTE(...) execute((const u8[]){ __VA_ARGS__ }, sizeof((const u8[]){ __VA_ARGS__ }))

#define REP_MOVSB  0xf3, 0xa4
#define REP_MOVSQ  0xf3, 0x48, 0xa5
#define REP_STOSD  0xf3, 0xab
#define REPE_CMPSB 0xf3, 0xa6
#define REPNE_SCAS 0xf2, 0xae
#define REP_INSB   0xf3, 0x6c
#define REP_OUTSW  0xf3, 0x66, 0x6f

#endif
