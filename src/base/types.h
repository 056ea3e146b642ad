/* SPDX-License-Identifier: MIT */
/*
 * The integer types and the few macros that every folder uses.
 */
#ifndef BASE_TYPES_H
#define BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

/* For fields at any address, whatever they lie in. */
typedef s32 s32_unaligned __attribute__((aligned(1), may_alias));
typedef u32 u32_unaligned __attribute__((aligned(1), may_alias));
typedef u64 u64_unaligned __attribute__((aligned(1), may_alias));

typedef u64 gpa_t; /* guest physical address */
typedef u64 gva_t; /* guest linear address */
typedef u8 *hva_t; /* where the program has mapped guest memory */

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define BIT(n)	      (1ull << (n))
#define MASK(hi, lo)  ((~0ull >> (63 - (hi))) & (~0ull << (lo)))

#define PAGE_SHIFT 12
#define PAGE_SIZE  4096ull
#define PAGE_MASK  (~(PAGE_SIZE - 1))

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define READ_ONCE(x)	 (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile __typeof__(x) *)&(x) = (v))

#endif
