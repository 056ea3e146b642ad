/* SPDX-License-Identifier: MIT */
/*
 * The differential test: random instructions run on the native CPU and on the engine, and
 * everything architectural is compared. One worker process is single-threaded; nothing here is
 * shared between processes but struct progress.
 *
 * A form is one encodable instruction shape, found by asking the decoder about every opcode. A
 * sequence is a handful of instructions made of forms, ending in UD2; a program is a longer one
 * with many branches, run often enough for the engine to chain and reorder its blocks. An input is
 * the state a sequence starts with. An outcome is the state and the exception it ends with.
 */
#ifndef TESTS_DIFF_DIFF_H
#define TESTS_DIFF_DIFF_H

#include <Zydis/Zydis.h>

#include "base/types.h"
#include "x86/features.h"
#include "x86/regs.h"
#include "x86/vendor.h"

/* The sandbox: the same addresses on both sides, below 2 GB so that absolute and 32-bit addresses
 * reach. */
#define CODE_BASE     0x10000000ull
#define CODE_PAGES    2	   /* executable; nothing before and after */
#define CODE_FILL     0xcc /* INT3, where no sequence is */
#define DATA_BASE     0x20000000ull
#define DATA_PAGES    7 /* nothing before and after */
#define DATA_READONLY 4 /* the page of these that cannot be written */
#define DATA_SIZE     (DATA_PAGES * PAGE_SIZE)

/* For 64-bit code all of it is there a second time, this much higher. */
#define HIGH_ALIAS 0x600000000000ull

#define SEL_USER32  0x23 /* Linux' selectors, used on both sides */
#define SEL_USER_DS 0x2b
#define SEL_USER64  0x33

/* --- random numbers: rng.c
 * ---------------------------------------------------------------------------------- */

struct rng {
	u64 s;
};

struct rng rng_for(u64 seed, u64 stream); /* independent streams for independent cases */
u64 rng_next(struct rng *r);
u32 rng_below(struct rng *r, u32 n);
bool rng_one_in(struct rng *r, u32 n);
u64 rng_value(struct rng *r); /* a 64-bit value of the kind that finds bugs */
void rng_fill(struct rng *r, void *buf, size_t size); /* the same, as bytes */
/* The same, leaning towards floating point. */
void rng_floats(struct rng *r, void *buf, size_t size);

/* --- forms: forms.c
 * ------------------------------------------------------------------------------------------ */

enum family {
#define FAMILY(name, ...) FAMILY_##name,
#include "families.def"
	NFAMILIES
};

extern const char *const family_names[NFAMILIES];

enum encoding_map { MAP_1, MAP_0F, MAP_0F38, MAP_0F3A, NMAPS };

struct form {
	u16 mnemonic;
	u8 family;
	u8 map, opcode;
	u8 pp; /* 0, 0x66, 0xf3, 0xf2 */
	u8 modrm;
	bool has_modrm, is_vex, w;
	u8 l; /* vector length; of EVEX also the rounding mode */
	bool is_evex;
	bool b; /* EVEX.b */
};

struct mode {
	bool is32; /* not 64-bit code */
	bool is16; /* besides, operands and addresses of 16 bits where no prefix says otherwise */
	ZydisDecoder decoder;
};

enum { MODE_64, MODE_32, MODE_16, NMODES };

/* The forms of one mnemonic are adjacent, and so are the mnemonics of one family. */
struct form_table {
	struct form *forms;
	u32 nforms;
	u32 *mnemonic_start; /* index into forms, one more than nmnemonics */
	u32 nmnemonics;
	u32 family_start[NFAMILIES + 1]; /* index into mnemonic_start */
};

void mode_init(struct mode *mode, u32 which);
void forms_find(struct form_table *table, const struct mode *mode);
const struct form *form_pick(const struct form_table *table, enum family family, struct rng *r);
/* The family of a decoded instruction; NFAMILIES if the test keeps away from it. */
enum family form_family(const ZydisDecodedInstruction *insn);
bool host_has(enum feature f);
bool family_offered(enum family family); /* by the host's CPUID */

/* --- sequences: generate.c, encode.c, template.c
 * ------------------------------------------------------------------------ */

enum fix_kind {
	FIX_NONE,
	FIX_RIP,  /* 4 bytes: the address `target`, relative to the end of the instruction */
	FIX_REL8, /* the start of item `target`, relative */
	FIX_REL32,
	FIX_ABS32, /* the start of item `target`, absolute */
};

struct item {
	u8 bytes[15];
	u8 len;
	u8 fix, fix_at;
	u8 fix_add;	    /* so many bytes after the target */
	bool ends_with_end; /* besides, the last 4 bytes are the address of the terminator */
	u8 family;
	/* Without it a loop would not end, or XSAVE do something else: never left out. */
	bool pinned;
	bool vsib;   /* a gather or scatter */
	bool evex;   /* or begins with its prefix */
	bool string; /* a string instruction */
	u16 mnemonic;
	u32 undefined; /* flags that may be undefined when it starts */
	u64 target;
};

enum register_class { CLASS_ANY, CLASS_POINTER, CLASS_SMALL };

#define SEQUENCE_MAX 40
#define PROGRAM_MIN  12 /* items of a program at least */

struct sequence {
	bool is32, is16;
	bool ldt;      /* segments are those of ldt.c: addresses are offsets from their bases */
	bool modifies; /* its own code, which is writable then */
	bool straight; /* no branches: the number of retired instructions is known from the end */
	u32 n;
	struct item items[SEQUENCE_MAX];
	u32 undefined; /* flags that may be undefined at the end */
	u64 start;     /* address of the first instruction */
	u8 gpr_class[16], vec_class[32];
};

/* What the generator knows while it appends. */
struct generator {
	struct rng *r;
	const struct mode *mode;
	const struct form_table *table;
	struct sequence *seq;
	bool written[16], vec_written[32]; /* no longer of the class it started with */
	u32 branch_end;	   /* items before this may be skipped: they define nothing */
	bool no_undefined; /* in a loop: nothing may leave flags undefined */
	bool no_stack;	   /* a return follows: nothing may change where it goes */
	bool done;	   /* nothing can follow */
};

struct candidate {
	u8 bytes[40]; /* with random bytes after, for the immediate */
	u32 rip_at;   /* 0: not RIP-relative */
	u64 target;
};

/* Where code and data begin for the sequence, as its segments have it. */
u64 code_origin(const struct sequence *seq);
u64 data_origin(const struct sequence *seq);
u64 pick_target(struct generator *g, u32 align); /* an address in the data pages */
void encode_form(struct generator *g, const struct form *f, struct candidate *c);
void generate(struct sequence *seq, struct rng *r, const struct mode *mode,
	      const struct form_table *table, int only, bool program, bool ldt);
bool append_random(struct generator *g, enum family family); /* false: nothing fitted */
bool append_template(struct generator *g, enum family family);
bool want_gpr(struct generator *g, u32 reg, enum register_class cls);
/* Appends an instruction as it is, with its effect on what is known; NULL: it does not decode or
 * fit. */
u32 template_prefixes(const struct generator *g); /* how many are put in front of it */
struct item *append_item(struct generator *g, enum family family, const u8 *bytes, u32 len);
bool put_item(struct generator *g, enum family family, const u8 *bytes, u32 len, enum fix_kind fix,
	      u32 fix_at, u64 target);
/* opcode /reg at an absolute address, with an immediate of 4 bytes unless that is -1. */
bool put_absolute(struct generator *g, enum family family, const u8 *opcode, u32 n, u8 reg,
		  u64 target, s64 imm);
bool append_segment(struct generator *g);
bool append_pointer(struct generator *g);
bool append_state(struct generator *g);
bool append_modify(struct generator *g);
/* Lays the sequence out at seq->start; returns its size, terminator included. addr: n + 1 entries
 * or NULL. */
u32 sequence_bytes(const struct sequence *seq, u8 *out, u64 *addr);
void sequence_place(struct sequence *seq, struct rng *r);

/* --- segments: ldt.c
 * ------------------------------------------------------------------------------------------ */

enum ldt_entry {
	LDT_DATA,
	LDT_DATA16,
	LDT_SHORT,
	LDT_DOWN,
	LDT_DOWN16,
	LDT_PAGES,
	LDT_READONLY,
	LDT_ABSENT,
	LDT_CODE32,
	LDT_CODE16,
	LDT_UNREADABLE,
	NLDT
};

#define SEL_LDT(entry) ((entry) << 3 | 7)

/* Where code begins in its segments: no offset of data is one of code, or jumps to it would be. */
#define LDT_CODE_ORIGIN 0x8000u
#define CODE_LIMIT	(LDT_CODE_ORIGIN + CODE_PAGES * PAGE_SIZE - 1)
#define LDT_CODE_BASE	(CODE_BASE - LDT_CODE_ORIGIN)

bool ldt_install(void); /* on the native side; false: this kernel has none for programs */
u64 ldt_descriptor(enum ldt_entry entry);
u16 ldt_pick_data(struct rng *r);
u16 ldt_pick_stack(struct rng *r);
bool ldt_is_stack16(u16 sel);

/* --- inputs: input.c
 * ------------------------------------------------------------------------------------------ */

#define XSAVE_HEADER 512
#define XSAVE_YMM    576
#define STATE_XSAVE  832

struct state {
	u64 gpr[16], rip, rflags, fs_base, gs_base;
	u16 sel[NSEGS];
	u8 xsave[STATE_XSAVE] __attribute__((aligned(64)));
	/* AVX-512, where the host has it. */
	u64 mask[8];
	u8 zmm_high[16][32]; /* of the first 16 registers */
	u8 zmm16[16][64];    /* the others */
};

void input_random(struct state *in, const struct sequence *seq, struct rng *r);

/* --- the two sides: native.c, guest.c
 * -------------------------------------------------------------------------- */

struct outcome {
	u32 vector;
	u32 error;
	u64 cr2;
	bool ran_away; /* engine only: did not end in an exception; vector is the exit reason */
	u64 retired, branches; /* engine only: of user code */
	struct state state;
};

#define NATIVE_TIMEOUT 0x10000 /* as a vector: a jump went where the code loops */

bool native_supported(void);
bool native_has_avx512(void); /* and the kernel enables it */
void native_init(void);
bool native_has_ldt(void);
void native_load(const u8 *code, u32 size, u64 address);
void native_run(const struct state *in, struct outcome *out);
u8 *native_data(void);
const u8 *native_code(void);
void native_code_writable(bool writable);
bool native_maps(u64 address); /* outside of the sandbox, for the test itself */

#define GUEST_HOT_AFTER 48 /* executions until the engine takes a block for hot */
#define FAMILY_ZEN5	0x1au
bool host_is_amd(void);
bool host_is_zen5(void);
void guest_init(bool is_amd);
bool guest_is_foreign(void); /* of the other vendor than the host */
/* The rules of x86/vendor.def that one of guest and host follows and the other does not, if they
 * are of two vendors. */
u64 guest_rules_unlike_host(void);
/* Of these rules the guest does the contrary of what its model does. */
void guest_turn_rules(u64 rules);
/* What is counted, and shown to the timing model, from this case on: code is made for it. */
void guest_count(u64 index);
void guest_load(const u8 *code, u32 size, u64 address);
void guest_run(const struct state *in, u64 budget, struct outcome *out);
void guest_forget(void);  /* translations */
void guest_keep(void);	  /* from now on most runs are on kept translations */
u64 guest_recalled(void); /* how many of them were found */
u8 *guest_data_page(u32 page);
u8 *guest_code_page(u32 page);
void guest_code_writable(bool writable);
bool guest_signal(int sig, void *info, void *ucontext);

/* --- comparing and reporting: compare.c, shrink.c
 * ---------------------------------------------------------------- */

struct test_case {
	struct sequence seq;
	struct state in;
	u8 data[DATA_SIZE];
	u64 budget;   /* per engine_run(): small ones make the engine stop and go on */
	bool recount; /* what retires, once more one instruction at a time */
	bool self;    /* the native CPU against itself: is the test sound? */
};

enum plant { PLANT_NONE, PLANT_FLAG, PLANT_FAULT };

struct verdict {
	bool differs;
	bool skipped; /* not compared */
	bool endless; /* on the native CPU; not compared either */
	u32 nlines;
	char lines[24][120];
	u64 executed; /* instructions */
};

/* Loads the code on both sides. */
void case_load(const struct test_case *c);
/* Runs both sides (code loaded) and compares. */
void case_run(const struct test_case *c, enum plant plant, struct verdict *v);
void case_shrink(struct test_case *c, enum plant plant, struct verdict *v);
void case_print(const struct test_case *c, const struct verdict *v);

/* --- the other vendor: explain.c
 * ------------------------------------------------------------------------------------ */

/*
 * The case differs on a guest of the other vendor. Is that because of rules by which the vendors
 * differ? If so, those that it takes, and no more; 0: there is no explanation.
 */
u64 case_explain(const struct test_case *c, enum plant plant);

/* --- the run: run.c
 * ---------------------------------------------------------------------------------------------- */

#define WORKERS_MAX 64

struct diff_options {
	u64 seed;
	u64 count;  /* instruction executions */
	u64 first;  /* start with this case */
	s64 one;    /* this case alone, or -1 */
	int family; /* or -1 */
	int workers;
	int mode;    /* MODE_*, or -1 */
	bool is_amd; /* the guest's model; the host's vendor unless told otherwise */
	bool keep_going;
	bool kept;     /* translations are kept and read back */
	bool observed; /* guest code is counted and shown to the timing model */
	bool self;
	bool show; /* print each case before it runs */
	enum plant plant;
};

/* Shared between the workers and their parent; each worker writes its own. */
struct progress {
	u64 index; /* of the case at work */
	u64 executed, cases, mismatches;
	u64 per_family[NFAMILIES];
	u64 per_rule[NRULES]; /* differences that a rule explains */
	u16 caught;	      /* the last mnemonic of the last mismatch, shrunk */
	u32 caught_length;
};

/* Adds up what the workers did; false if one of them died. */
bool diff_run(const struct diff_options *opt, struct progress *sum);

#endif
