// SPDX-License-Identifier: MIT
/*
 * One case on both sides, and what differs. Not compared: flags that the manual leaves undefined,
 * and the x87 instruction and data pointers.
 */
#include "diff.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FLAGS_COMPARED (FL_ARITH | FL_TF | FL_DF | FL_NT | FL_RF | FL_AC | FL_ID)

static const char *const gpr_names[16] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
					   "r8",  "r9",	 "r10", "r11", "r12", "r13", "r14", "r15" };
static const char *const seg_names[NSEGS] = { "es", "cs", "ss", "ds", "fs", "gs" };

__attribute__((format(printf, 2, 3))) static void differ(struct verdict *v, const char *fmt, ...)
{
	va_list ap;

	v->differs = true;
	if (v->nlines == ARRAY_SIZE(v->lines))
		return;
	va_start(ap, fmt);
	vsnprintf(v->lines[v->nlines++], sizeof(v->lines[0]), fmt, ap);
	va_end(ap);
}

static void check(struct verdict *v, const char *what, u64 native, u64 engine)
{
	if (native != engine)
		differ(v, "%-8s native %016llx engine %016llx", what, (unsigned long long)native,
		       (unsigned long long)engine);
}

static void check_bytes(struct verdict *v, const char *what, u32 number, const u8 *native,
			const u8 *engine, u32 size)
{
	char hex[2][40];

	if (memcmp(native, engine, size) == 0)
		return;
	for (u32 i = 0; i < size; i++) {
		sprintf(hex[0] + 2 * i, "%02x", native[size - 1 - i]);
		sprintf(hex[1] + 2 * i, "%02x", engine[size - 1 - i]);
	}
	differ(v, "%s%-3u native %s engine %s", what, number, hex[0], hex[1]);
}

/* Jumps to absolute addresses lead to the lower alias. */
static bool same_place(u64 a, u64 b)
{
	return !((a ^ b) & ~HIGH_ALIAS);
}

static const struct item *item_at(const struct sequence *seq, u64 rip)
{
	u8 bytes[SEQUENCE_MAX * 15 + 2];
	u64 addr[SEQUENCE_MAX + 1];

	sequence_bytes(seq, bytes, addr);
	for (u32 i = 0; i < seq->n; i++)
		if (same_place(addr[i], rip))
			return &seq->items[i];
	return NULL;
}

static u16 mnemonic_at(const struct sequence *seq, u64 rip)
{
	const struct item *item = item_at(seq, rip);

	return item ? item->mnemonic : ZYDIS_MNEMONIC_INVALID;
}

static enum family family_at(const struct sequence *seq, u64 rip)
{
	const struct item *item = item_at(seq, rip);

	return item ? item->family : NFAMILIES;
}

/* Which flags may be undefined where this outcome stopped. */
static u32 undefined_at(const struct sequence *seq, const struct outcome *out)
{
	u8 bytes[SEQUENCE_MAX * 15 + 2];
	u64 addr[SEQUENCE_MAX + 1];
	u32 all = seq->undefined;

	sequence_bytes(seq, bytes, addr);
	for (u32 i = 0; i < seq->n; i++) {
		if (same_place(addr[i], out->state.rip))
			return seq->items[i].undefined;
		all |= seq->items[i].undefined;
	}
	return same_place(addr[seq->n], out->state.rip) ? seq->undefined : all;
}

/* IRET clears the RPL of null selectors on its way to an outer ring (SDM 2A IRET), and that is
 * Linux' way here. */
static u16 plain_selector(u16 sel)
{
	return sel & ~3 ? sel : 0;
}

/*
 * The image of the flags that a fault pushes has RF (SDM 3B 17.3.1.1). Under a hypervisor a native
 * fault was once seen without, in some hundred million: the likely reason is one that was called
 * while the fault was delivered, for a page that it had taken away, and delivered it once more.
 */
static bool lost_rf(const struct outcome *n, const struct outcome *e)
{
	bool fault = n->vector != VEC_DB && n->vector != VEC_BP && n->vector != VEC_OF;

	return fault && !(n->state.rflags & FL_RF) && (e->state.rflags & FL_RF);
}

static void check_integer(struct verdict *v, const struct sequence *seq, const struct outcome *n,
			  const struct outcome *e)
{
	u64 flags = FLAGS_COMPARED & ~(u64)undefined_at(seq, n) & ~(lost_rf(n, e) ? FL_RF : 0);
	/* Outside 64-bit code the upper halves are undefined (SDM 1 3.4.1.1). */
	u64 mask = n->state.sel[CS] == SEL_USER64 && !seq->ldt ? ~0ull : 0xffffffff;

	for (u32 i = 0; i < (seq->is32 ? 8 : 16); i++)
		check(v, gpr_names[i], n->state.gpr[i] & mask, e->state.gpr[i] & mask);
	check(v, "rip", n->state.rip, e->state.rip);
	check(v, "rflags", n->state.rflags & flags, e->state.rflags & flags);
	for (u32 i = 0; i < NSEGS; i++)
		check(v, seg_names[i], plain_selector(n->state.sel[i]),
		      plain_selector(e->state.sel[i]));
	if (seq->is32)
		return;
	check(v, "fs.base", n->state.fs_base, e->state.fs_base);
	check(v, "gs.base", n->state.gs_base, e->state.gs_base);
}

static void check_vector(struct verdict *v, const struct sequence *seq, const u8 *n, const u8 *e)
{
	check_bytes(v, "fcw", 0, n, e, 2);
	check_bytes(v, "fsw", 0, n + 2, e + 2, 2);
	check_bytes(v, "ftw", 0, n + 4, e + 4, 1);
	check_bytes(v, "mxcsr", 0, n + 24, e + 24, 4);
	for (u32 i = 0; i < 8; i++)
		check_bytes(v, "st", i, n + 32 + 16 * i, e + 32 + 16 * i, 10);
	for (u32 i = 0; i < (seq->is32 ? 8 : 16); i++) {
		check_bytes(v, "xmm", i, n + 160 + 16 * i, e + 160 + 16 * i, 16);
		check_bytes(v, "ymmh", i, n + XSAVE_YMM + 16 * i, e + XSAVE_YMM + 16 * i, 16);
	}
}

/* In pieces of 16 bytes, which fit a line. */
static void check_zmm(struct verdict *v, u32 number, u32 first, const u8 *n, const u8 *e, u32 size)
{
	static const char *const pieces[] = { "zmm.0 ", "zmm.1 ", "zmm.2 ", "zmm.3 " };

	for (u32 i = 0; i < size; i += 16)
		check_bytes(v, pieces[(first + i) / 16], number, n + i, e + i, 16);
}

static void check_avx512(struct verdict *v, const struct sequence *seq, const struct state *n,
			 const struct state *e)
{
	for (u32 i = 0; i < 8; i++)
		check_bytes(v, "k", i, (const u8 *)&n->mask[i], (const u8 *)&e->mask[i], 8);
	for (u32 i = 0; i < (seq->is32 ? 8 : 16); i++)
		check_zmm(v, i, 32, n->zmm_high[i], e->zmm_high[i], 32);
	for (u32 i = 0; i < 16 && !seq->is32; i++)
		check_zmm(v, 16 + i, 0, n->zmm16[i], e->zmm16[i], 64);
}

static void check_page(struct verdict *v, u64 address, const u8 *n, const u8 *e)
{
	if (memcmp(n, e, PAGE_SIZE) == 0)
		return;
	for (u32 i = 0; i < PAGE_SIZE; i += 8)
		if (memcmp(n + i, e + i, 8)) {
			char what[20];

			sprintf(what, "[%llx]", (unsigned long long)address + i);
			check_bytes(v, what, 0, n + i, e + i, 8);
		}
}

static void check_memory(struct verdict *v)
{
	for (u32 i = 0; i < DATA_PAGES; i++)
		check_page(v, DATA_BASE + i * PAGE_SIZE, native_data() + i * PAGE_SIZE,
			   guest_data_page(i));
	for (u32 i = 0; i < CODE_PAGES; i++)
		check_page(v, CODE_BASE + i * PAGE_SIZE, native_code() + i * PAGE_SIZE,
			   guest_code_page(i));
}

/* Instructions of many accesses: which of them faults first is the processor's choice. */
static bool accesses_many(const struct sequence *seq, u64 rip)
{
	switch (mnemonic_at(seq, rip)) {
	case ZYDIS_MNEMONIC_FXRSTOR:
	case ZYDIS_MNEMONIC_FXRSTOR64:
	case ZYDIS_MNEMONIC_FXSAVE:
	case ZYDIS_MNEMONIC_FXSAVE64:
	case ZYDIS_MNEMONIC_XSAVE:
	case ZYDIS_MNEMONIC_XSAVEC:
	case ZYDIS_MNEMONIC_XSAVEOPT:
	case ZYDIS_MNEMONIC_XRSTOR:
	case ZYDIS_MNEMONIC_FNSAVE:
	case ZYDIS_MNEMONIC_FRSTOR:
	case ZYDIS_MNEMONIC_FNSTENV:
	case ZYDIS_MNEMONIC_FLDENV:
	case ZYDIS_MNEMONIC_PUSHA:
	case ZYDIS_MNEMONIC_PUSHAD:
	case ZYDIS_MNEMONIC_POPA:
	case ZYDIS_MNEMONIC_POPAD:
		return true;
	case ZYDIS_MNEMONIC_CALL: /* far: two pushes */
		return family_at(seq, rip) == FAMILY_segment;
	default:
		return false;
	}
}

/* Zen's far call makes its pushes one by one; the engine makes all or none. */
static bool wrote_in_part(const struct sequence *seq, const struct outcome *n)
{
	return n->vector != VEC_UD && mnemonic_at(seq, n->state.rip) == ZYDIS_MNEMONIC_CALL &&
	       family_at(seq, n->state.rip) == FAMILY_segment;
}

static bool is_memory_fault(u32 vector)
{
	return vector == VEC_PF || vector == VEC_GP || vector == VEC_SS || vector == VEC_AC;
}

/* CMPS: a Zen 5 reads [rSI] first in all forms, older ones in REPE CMPSB alone. */
static bool reads_in_own_order(const struct sequence *seq, const struct outcome *n)
{
	const struct item *item = item_at(seq, n->state.rip);

	if (!host_is_zen5() || !item || !item->string)
		return false;
	return item->mnemonic == ZYDIS_MNEMONIC_CMPSB || item->mnemonic == ZYDIS_MNEMONIC_CMPSW ||
	       item->mnemonic == ZYDIS_MNEMONIC_CMPSD || item->mnemonic == ZYDIS_MNEMONIC_CMPSQ;
}

/* An undefined opcode that would have more than 15 bytes: Intel counts them. */
static bool too_long(const struct sequence *seq, const struct outcome *n, const struct outcome *e)
{
	const struct item *item = item_at(seq, n->state.rip);

	return item && item->mnemonic == ZYDIS_MNEMONIC_INVALID && n->vector == VEC_GP &&
	       e->vector == VEC_UD;
}

static void check_fault(struct verdict *v, const struct sequence *seq, const struct outcome *n,
			const struct outcome *e)
{
	bool many = accesses_many(seq, n->state.rip) || reads_in_own_order(seq, n);

	if (many && is_memory_fault(n->vector) && is_memory_fault(e->vector))
		return; /* one may meet a limit or no address, another a page, or be misaligned */
	if (too_long(seq, n, e))
		return;
	check(v, "vector", n->vector, e->vector);
	if (many && n->vector == VEC_PF)
		return;
	check(v, "error", n->error, e->error);
	if (n->vector == VEC_PF)
		check(v, "cr2", n->cr2, e->cr2);
}

/* Without branches, as many retire as lie before the end. */
static void check_tally(struct verdict *v, const struct sequence *seq, const struct outcome *n,
			const struct outcome *e)
{
	u8 bytes[SEQUENCE_MAX * 15 + 2];
	u64 addr[SEQUENCE_MAX + 1];

	if (!seq->straight)
		return;
	sequence_bytes(seq, bytes, addr);
	for (u32 i = 0; i <= seq->n; i++)
		if (addr[i] == n->state.rip)
			check(v, "retired", i, e->retired);
}

static bool contains_last(const struct sequence *seq, ZydisMnemonic mnemonic)
{
	return seq->n && seq->items[seq->n - 1].mnemonic == mnemonic;
}

/* A bug put into the engine's results on purpose. */
static void spoil(const struct sequence *seq, enum plant plant, struct outcome *e)
{
	if (plant == PLANT_FLAG && e->vector == VEC_UD && contains_last(seq, ZYDIS_MNEMONIC_SBB))
		e->state.rflags ^= FL_OF;
	if (plant == PLANT_FAULT && e->vector == VEC_DE && contains_last(seq, ZYDIS_MNEMONIC_IDIV))
		e->vector = VEC_GP;
}

static u8 loaded[CODE_PAGES * PAGE_SIZE]; /* what code pages were then */

static void set_writable(bool writable)
{
	static bool is_writable;

	if (writable == is_writable)
		return;
	native_code_writable(writable);
	guest_code_writable(writable);
	is_writable = writable;
}

void case_load(const struct test_case *c)
{
	u8 bytes[SEQUENCE_MAX * 15 + 2];
	u32 size = sequence_bytes(&c->seq, bytes, NULL);
	u64 address = c->seq.start - code_origin(&c->seq) + CODE_BASE;

	native_load(bytes, size, address);
	guest_load(bytes, size, address);
	memcpy(loaded, native_code(), sizeof(loaded));
	set_writable(c->seq.modifies);
}

/* Code may have changed itself. */
static void reset_code(const struct test_case *c)
{
	bool changed = memcmp(loaded, native_code(), sizeof(loaded));

	for (u32 i = 0; i < CODE_PAGES; i++)
		changed |= memcmp(loaded + i * PAGE_SIZE, guest_code_page(i), PAGE_SIZE) != 0;
	if (changed)
		case_load(c);
}

static void reset_guest(const struct test_case *c)
{
	for (u32 i = 0; i < DATA_PAGES; i++)
		memcpy(guest_data_page(i), c->data + i * PAGE_SIZE, PAGE_SIZE);
}

static void reset(const struct test_case *c)
{
	memcpy(native_data(), c->data, DATA_SIZE);
	reset_guest(c);
	reset_code(c);
}

/* Linux has something of its own there. */
static bool in_vsyscall(const struct outcome *n)
{
	return (n->state.rip & PAGE_MASK) == 0xffffffffff600000 ||
	       (n->cr2 & PAGE_MASK) == 0xffffffffff600000;
}

/* A jump into the middle of something met INT1. Hypervisors below us get its RIP wrong. */
static bool met_int1(const struct sequence *seq, const struct outcome *n)
{
	u64 offset = (n->state.rip & ~HIGH_ALIAS) - code_origin(seq);

	return n->vector == VEC_DB && offset < CODE_PAGES * PAGE_SIZE &&
	       *(const u8 *)(CODE_BASE + offset) == 0xf1;
}

static void run_native_twice(const struct test_case *c, struct outcome *n, struct outcome *e)
{
	u8 code[CODE_PAGES * PAGE_SIZE];

	native_run(&c->in, e);
	for (u32 i = 0; i < DATA_PAGES; i++)
		memcpy(guest_data_page(i), native_data() + i * PAGE_SIZE, PAGE_SIZE);
	memcpy(code, native_code(), sizeof(code));
	memcpy(native_data(), c->data, DATA_SIZE);
	case_load(c);
	native_run(&c->in, n);
	for (u32 i = 0; i < CODE_PAGES; i++)
		memcpy(guest_code_page(i), code + i * PAGE_SIZE, PAGE_SIZE);
	e->retired = c->seq.n;
}

/* A repeated string instruction that overwrites itself: how many iterations the processor makes
 * until it notices, if it is through another mapping of the page, is its choice (SDM 3A 8.1.3). */
static bool overwrote_itself(const struct sequence *seq)
{
	u8 bytes[SEQUENCE_MAX * 15 + 2];
	u64 addr[SEQUENCE_MAX + 1];

	if (!seq->modifies)
		return false;
	sequence_bytes(seq, bytes, addr);
	for (u32 i = 0; i < seq->n; i++) {
		u64 at = (addr[i] & ~HIGH_ALIAS) - code_origin(seq);

		if (seq->items[i].string && at + seq->items[i].len <= sizeof(loaded) &&
		    memcmp(loaded + at, native_code() + at, seq->items[i].len))
			return true;
	}
	return false;
}

/* Zen takes single-step traps between the elements of a gather, as between those of a repeated
 * string; Intel's processors instead of the fault of a later element (SDM 2C VPSCATTERDD). */
static bool stepped_inside(const struct sequence *seq, const struct outcome *n)
{
	const struct item *item = item_at(seq, n->state.rip);

	return n->vector == VEC_DB && item && item->vsib;
}

/* A Zen 5 reports what is fetched past the limit of the code segment as the fault of a branch that
 * ends there, even while that is still taken. */
static bool ended_at_limit(const struct sequence *seq, const struct outcome *n)
{
	const struct item *item = item_at(seq, n->state.rip);

	return host_is_zen5() && seq->ldt && n->vector == VEC_GP && item &&
	       item->family == FAMILY_branch && n->state.rip + item->len == CODE_LIMIT + 1;
}

/* What EVEX instructions do when they fault was measured on Intel's processors only: which
 * element's fault it is, what a gather has done by then, alignment checks, encodings that are
 * reserved (docs/vendors.md). */
static bool unmeasured(const struct sequence *seq, const struct outcome *out)
{
	const struct item *item = item_at(seq, out->state.rip);

	return host_is_amd() && item && item->evex &&
	       (is_memory_fault(out->vector) || out->vector == VEC_UD);
}

/* The native CPU does not say what retired; but one instruction at a time it is beyond doubt. */
static void check_counts(const struct test_case *c, const struct outcome *e, struct verdict *v)
{
	struct outcome steps;

	reset_guest(c);
	reset_code(c);
	guest_run(&c->in, 1, &steps);
	check(v, "retired", steps.retired, e->retired);
	check(v, "branches", steps.branches, e->branches);
}

static void leave_out(struct verdict *v)
{
	v->skipped = true;
	v->executed = 0;
}

void case_run(const struct test_case *c, enum plant plant, struct verdict *v)
{
	struct outcome n, e;

	v->differs = v->skipped = v->endless = false;
	v->nlines = 0;
	reset(c);
	if (c->self) {
		run_native_twice(c, &n, &e);
	} else {
		native_run(&c->in, &n);
		v->endless = n.vector == NATIVE_TIMEOUT;
		if (v->endless || stepped_inside(&c->seq, &n) || in_vsyscall(&n) ||
		    met_int1(&c->seq, &n) || overwrote_itself(&c->seq) ||
		    ended_at_limit(&c->seq, &n))
			return leave_out(v);
		guest_run(&c->in, c->budget, &e);
		/* The test's own memory is there, or Linux did something and returned. */
		if ((e.vector == VEC_PF && (native_maps(e.cr2) || in_vsyscall(&e))) ||
		    unmeasured(&c->seq, &n) || unmeasured(&c->seq, &e))
			return leave_out(v);
	}
	v->executed = e.retired;
	if (e.ran_away) {
		differ(v, "engine left with exit reason %u; native ended with vector %u at %llx",
		       e.vector, n.vector, (unsigned long long)n.state.rip);
		return;
	}
	spoil(&c->seq, plant, &e);
	check_fault(v, &c->seq, &n, &e);
	check_integer(v, &c->seq, &n, &e);
	check_vector(v, &c->seq, n.state.xsave, e.state.xsave);
	check_avx512(v, &c->seq, &n.state, &e.state);
	if (!wrote_in_part(&c->seq, &n))
		check_memory(v);
	if (!c->self)
		check_tally(v, &c->seq, &n, &e);
	if (!c->self && c->recount)
		check_counts(c, &e, v);
}
