// SPDX-License-Identifier: MIT
/*
 * Memory ordering between vCPUs (SDM 3A 8.2; APM2 7.2): the shapes known from the literature, each
 * with and without fences and locks, on one line, across lines of a page and across pages. No
 * outcome that processors never show may be seen. And code that one vCPU changes while another
 * executes it, by the rules for that (SDM 3A 8.1.3), and MOVDIR64B, of which no part is seen. Run
 * by `vpmu kvm`.
 *
 * usage: api_litmus_test [--runs N [TEST]]
 *
 * So many runs of each row; then what processors do show must be seen.
 *
 * A run has locations of its own, x and y. Between two barriers each vCPU goes through a batch of
 * runs, so that some of them meet. In round i a location is written with i, or with 2i and 2i + 1:
 * so nothing has to be reset. vCPU 0 counts the outcomes.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/must.h"
#include "guest/kvm_guest.h"

#define BARRIER	  IMAGE_DATA
#define BATCH	  (IMAGE_DATA + 0x200)	/* runs between two barriers; the next word: vCPUs */
#define PARTS	  (IMAGE_DATA + 0x240)	/* where each vCPU's part begins */
#define HISTOGRAM (IMAGE_DATA + 0x1000) /* 256 of 8 bytes */
#define RESULTS	  (IMAGE_DATA + 0x2000) /* 0x400 bytes a vCPU: 4 a run */
#define X	  (IMAGE_DATA + 0x10000)
#define EXIT_SKIP 4 /* of tests/run */

/* clang-format off */

/*
 * ESI: vCPU; R8: round; R9: rounds; R10: BARRIER; R11: what it will be; R12, R13: x and y of the
 * first run; RDI: own results; R15: random. In a part: RBX, RBP: x and y; RDX: where the result, which
 * is in EAX, goes; ECX: runs left; R14, RSP: scratch. A vCPU that waits for long gives its turn away
 * by an exit.
 */
#define WAIT                     \
	"add 0x100204, %r11d\n"  \
	"lock incl (%r10)\n"     \
	"mov $300, %eax\n"      \
	"8: cmp %r11d, (%r10)\n" \
	"jge 9f\n"               \
	"pause\n"                \
	"dec %eax\n"             \
	"jnz 8b\n"               \
	"out %al, $0x20\n"       \
	"mov $300, %eax\n"      \
	"jmp 8b\n"               \
	"9:\n"

#define FIRST_RUN          \
	"mov %r12, %rbx\n" \
	"mov %r13, %rbp\n" \
	"mov %rdi, %rdx\n" \
	"mov 0x100200, %ecx\n"

#define NEXT_RUN           \
	"add $256, %rbx\n" \
	"add $256, %rbp\n" \
	"add $4, %rdx\n"   \
	"dec %ecx\n"

/* They leave the barrier some time apart. */
#define BEGIN                              \
	"1: inc %r8d\n" WAIT               \
	"imul $1103515245, %r15d, %r15d\n" \
	"add $12345, %r15d\n"              \
	"mov %r15d, %eax\n"                \
	"shr $25, %eax\n"                  \
	"inc %eax\n"                       \
	"2: dec %eax\n"                    \
	"jnz 2b\n" FIRST_RUN               \
	"jmp *0x100240(, %rsi, 8)\n"

#define PART_SIZE 0x100 /* from 0x100 on */
#define PART(name, number, body)                         \
	".org " #name "_start + 0x" #number "00\n"       \
	"3: " body "mov %eax, (%rdx)\n" NEXT_RUN "jnz 3b\n" \
	"jmp 5f\n"

/* Two bits of each vCPU. */
#define OUTCOME_OF_RESULTS        \
	"mov 0xc00(%rdx), %eax\n" \
	"shl $2, %eax\n"          \
	"or 0x800(%rdx), %eax\n"  \
	"shl $2, %eax\n"          \
	"or 0x400(%rdx), %eax\n"  \
	"shl $2, %eax\n"          \
	"or (%rdx), %eax\n"

#define END(outcome)                         \
	"5: " WAIT                           \
	"test %esi, %esi\n"                  \
	"jnz 7f\n" FIRST_RUN                 \
	"6: " outcome                        \
	"incq 0x101000(, %rax, 8)\n" NEXT_RUN \
	"jnz 6b\n"                           \
	"7: cmp %r9d, %r8d\n"                \
	"jb 1b\n"                            \
	"hlt\n"

/* Which of EAX and R14D is the value: bits 0 and 1 of EAX. */
#define COMPARE(value)                   \
	"cmp " value ", %eax\n"          \
	"sete %al\n"                     \
	"cmp " value ", %r14d\n"         \
	"sete %r14b\n"                   \
	"movzbl %al, %eax\n"             \
	"movzbl %r14b, %r14d\n"          \
	"lea (%rax, %r14, 2), %eax\n"

#define WRITE(store, to)	  "mov %r8d, %r14d\n" store " %r14d, " to "\n"
#define READ(from)		  "mov " from ", %eax\n"
#define SEEN			  "xor %r14d, %r14d\n" COMPARE("%r8d")
#define READ_BOTH(one, fence, two) "mov " one ", %eax\n" fence "mov " two ", %r14d\n" COMPARE("%r8d")
#define WRITE_BOTH(store, one, fence, two)     \
	"lea (%r8, %r8), %eax\n"               \
	"lea 1(%rax), %r14d\n"                 \
	store " %eax, " one "\n" fence         \
	store " %r14d, " two "\n"

/* Store buffering: neither sees the other's store. Only with nothing in between. */
#define SB(name, store, fence, x, y)                                   \
	PART(name, 1, WRITE(store, x) fence READ(y) SEEN)              \
	PART(name, 2, WRITE(store, y) fence READ(x) SEEN)              \
	END(OUTCOME_OF_RESULTS)

/* Message passing: the flag y is seen, the data x is not. */
#define MP(name, store, fence, x, y)                                   \
	PART(name, 1, WRITE(store, x) fence WRITE(store, y))           \
	PART(name, 2, READ_BOTH(y, fence, x))                          \
	END("mov $0, %eax\nmov %eax, (%rdx)\n" OUTCOME_OF_RESULTS)

/* Load buffering: each reads what the other writes afterwards. */
#define LB(name, store, fence, x, y)                                   \
	PART(name, 1, READ(x) fence WRITE(store, y) SEEN)              \
	PART(name, 2, READ(y) fence WRITE(store, x) SEEN)              \
	END(OUTCOME_OF_RESULTS)

/* 2+2W: both first stores are last. */
#define WW(name, store, fence, x, y)                                   \
	PART(name, 1, WRITE_BOTH(store, x, fence, y))                  \
	PART(name, 2, WRITE_BOTH(store, y, fence, x))                  \
	END("mov " x ", %eax\nmov " y ", %r14d\nlea (%r8, %r8), %esp\n" COMPARE("%esp"))

/* Independent reads of independent writes: two readers see them in different orders. */
#define IRIW(name, store, fence, x, y)                                 \
	PART(name, 1, WRITE(store, x))                                 \
	PART(name, 2, WRITE(store, y))                                 \
	PART(name, 3, READ_BOTH(x, fence, y))                          \
	PART(name, 4, READ_BOTH(y, fence, x))                          \
	END("mov $0, %eax\nmov %eax, (%rdx)\nmov %eax, 0x400(%rdx)\n" OUTCOME_OF_RESULTS)

#define LOCKED_OR "lock orl $0, (%rdx)\n"

/* With y in a register of its own, or at a distance that the translator knows: these share a check. */
#define VARIANT(shape, how, store, fence)                                                          \
	GUEST_CODE(shape##_##how, BEGIN shape(shape##_##how, store, fence, "(%rbx)", "(%rbp)"));   \
	GUEST_CODE(shape##_##how##_near,                                                           \
		   BEGIN shape(shape##_##how##_near, store, fence, "(%rbx)", "64(%rbx)"))
#define VARIANTS(shape)                           \
	VARIANT(shape, plain, "mov", "");         \
	VARIANT(shape, mfence, "mov", "mfence\n"); \
	VARIANT(shape, lock, "mov", LOCKED_OR);   \
	VARIANT(shape, xchg, "xchg", "")

/* clang-format on */

VARIANTS(SB);
VARIANTS(MP);
VARIANTS(LB);
VARIANTS(WW);
VARIANTS(IRIW);

struct code {
	const char *name;
	const u8 *start, *end;
	bool fenced;
};

/* An outcome that is forbidden, with fences or always. */
static const struct shape {
	const char *name;
	int nvcpus, batch;
	u32 outcome;
	bool always;
	struct code far[4], near[4];
} shapes[] = {
#define ONE(shape, how, near, fenced) \
	{ #how, shape##_##how##near##_start, shape##_##how##near##_end, fenced }
#define FOUR(shape, near)                                                 \
	{ ONE(shape, plain, near, false), ONE(shape, mfence, near, true), \
	  ONE(shape, lock, near, true), ONE(shape, xchg, near, true) }
#define SHAPE(shape, name, nvcpus, batch, outcome, always) \
	{ name, nvcpus, batch, outcome, always, FOUR(shape, ), FOUR(shape, _near) }
	SHAPE(SB, "SB", 2, 32, 0, false),
	SHAPE(MP, "MP", 2, 32, 1 << 2, true),
	SHAPE(LB, "LB", 2, 32, 1 | 1 << 2, true),
	SHAPE(WW, "2+2W", 2, 32, 3, true),
	SHAPE(IRIW, "IRIW", 4, 64, 1 << 4 | 1 << 6, true),
};

/* Where y is. */
static const struct distance {
	const char *name;
	u32 bytes;
	bool near;
} distances[] = {
	{ "one line", 8, false },
	{ "two lines", 64, false },
	{ "two lines, one check", 64, true },
	{ "two pages", 0x10000 + 128, false },
};

static u64 runs = 20000;
static bool exhaustive, skipped;

struct runner {
	struct kvm_guest *g;
	int vcpu, reason;
};

static void *run_vcpu(void *arg)
{
	struct runner *r = arg;

	while ((r->reason = kvm_guest_run(r->g, r->vcpu)) == KVM_EXIT_IO)
		sched_yield();
	return NULL;
}

static void run_all(struct kvm_guest *g)
{
	struct runner runner[KVM_GUEST_VCPUS];
	pthread_t thread[KVM_GUEST_VCPUS];

	for (int i = 0; i < g->nvcpus; i++) {
		runner[i] = (struct runner){ g, i, 0 };
		must(pthread_create(&thread[i], NULL, run_vcpu, &runner[i]) == 0);
	}
	for (int i = 0; i < g->nvcpus; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(runner[i].reason, KVM_EXIT_HLT);
	}
}

static void start(struct kvm_guest *g, const struct shape *s, const struct distance *d)
{
	*(u32 *)(g->ram + BATCH) = s->batch;
	*(u32 *)(g->ram + BATCH + 4) = s->nvcpus;
	for (int i = 0; i < g->nvcpus; i++) {
		struct kvm_regs regs = { .rip = IMAGE_CODE,
					 .rflags = 2,
					 .rsi = i,
					 .rdi = RESULTS + 0x400 * i,
					 .r9 = (runs + s->batch - 1) / s->batch,
					 .r10 = BARRIER,
					 .r12 = X,
					 .r13 = X + d->bytes,
					 .r15 = 7 * i + 1 };

		((u64 *)(g->ram + PARTS))[i] = IMAGE_CODE + PART_SIZE * (i + 1);
		KVM_CALL(g->vcpu[i], KVM_SET_REGS, &regs);
	}
}

/* How many runs of a row had the outcome that is forbidden, or would be with fences. */
static u64 count(const struct shape *s, const struct code *c, const struct distance *d)
{
	const u64 *histogram;
	struct kvm_guest g;
	u64 seen, all = 0;

	kvm_guest_create(&g, c->start, c->end - c->start, s->nvcpus);
	start(&g, s, d);
	run_all(&g);
	histogram = (const u64 *)(g.ram + HISTOGRAM);
	for (u32 i = 0; i < 256; i++)
		all += histogram[i];
	assert_true(all >= runs);
	seen = histogram[s->outcome];
	kvm_guest_destroy(&g);
	return seen;
}

static void run_shape(const struct shape *s)
{
	u64 relaxed = 0;
	u32 wrong = 0;

	for (u32 i = 0; i < ARRAY_SIZE(distances) * ARRAY_SIZE(s->far); i++) {
		const struct distance *d = &distances[i / ARRAY_SIZE(s->far)];
		const struct code *c = &(d->near ? s->near : s->far)[i % ARRAY_SIZE(s->far)];
		u64 seen = count(s, c, d);
		bool forbidden = s->always || c->fenced;

		relaxed += forbidden ? 0 : seen;
		wrong += forbidden && seen;
		if (seen)
			print_message("%s, %s, %s: %lu of %lu%s\n", s->name, c->name, d->name, seen,
				      runs, forbidden ? ", which is forbidden" : "");
	}
	assert_int_equal(wrong, 0);
	if (exhaustive && !s->always)
		assert_true(relaxed);
}

static void store_buffering(void **state)
{
	(void)state;
	run_shape(&shapes[0]);
}

static void message_passing(void **state)
{
	(void)state;
	run_shape(&shapes[1]);
}

static void load_buffering(void **state)
{
	(void)state;
	run_shape(&shapes[2]);
}

static void two_and_two_writes(void **state)
{
	(void)state;
	run_shape(&shapes[3]);
}

static void independent_reads_of_independent_writes(void **state)
{
	(void)state;
	run_shape(&shapes[4]);
}

/*
 * vCPU 0 puts the round into a function, then into x. vCPU 1 waits for x, serializes, calls the
 * function and adds a wrong answer to the histogram; then it puts the round into y, for which vCPU
 * 0 waits. Both wait as WAIT does. RBX, RBP: x and y; RDI: the function, MOV EAX, imm32 and RET.
 */
/* clang-format off */
#define WAIT_FOR(where)          \
	"mov $300, %ecx\n"      \
	"8: cmp %r8d, " where "\n" \
	"je 9f\n"                \
	"pause\n"                \
	"dec %ecx\n"             \
	"jnz 8b\n"               \
	"out %al, $0x20\n"       \
	"mov $300, %ecx\n"      \
	"jmp 8b\n"               \
	"9:\n"

#define CROSS_MODIFYING(name, serialize)              \
	GUEST_CODE(name, "mov $0x100000, %ebx\n"      \
			 "mov $0x101000, %ebp\n"      \
			 "test %esi, %esi\n"          \
			 "jnz 5f\n"                   \
			 "1: inc %r8d\n"              \
			 "mov %r8d, 1(%rdi)\n"        \
			 "mov %r8d, (%rbx)\n"         \
			 WAIT_FOR("(%rbp)")           \
			 "cmp %r9d, %r8d\n"           \
			 "jb 1b\n"                    \
			 "hlt\n"                      \
			 "5: inc %r8d\n"              \
			 WAIT_FOR("(%rbx)")           \
			 "mov %rbx, %r12\n" serialize \
			 "mov %r12, %rbx\n"           \
			 "call *%rdi\n"               \
			 "cmp %r8d, %eax\n"           \
			 "je 6f\n"                    \
			 "incq 64(%rbp)\n"            \
			 "6: mov %r8d, (%rbp)\n"      \
			 "cmp %r9d, %r8d\n"           \
			 "jb 5b\n"                    \
			 "hlt\n")
/* clang-format on */

CROSS_MODIFYING(by_cpuid, "xor %eax, %eax\ncpuid\n");
CROSS_MODIFYING(by_iret, "mov %rsp, %r13\npush $0x10\npush %r13\npushf\npush $8\n"
			 "lea 7f(%rip), %rax\npush %rax\niretq\n7:\n");
CROSS_MODIFYING(by_cr3, "mov %cr3, %rax\nmov %rax, %cr3\n");
CROSS_MODIFYING(by_invlpg, "invlpg (%rdi)\n");
CROSS_MODIFYING(by_lidt, "sidt -32(%rsp)\nlidt -32(%rsp)\n");

CROSS_MODIFYING(by_serialize, ".byte 0x0f, 0x01, 0xe8\n"); /* sapphirerapids has it */

static const struct code serializers[] = {
	{ "cpuid", by_cpuid_start, by_cpuid_end, true },
	{ "iret", by_iret_start, by_iret_end, true },
	{ "mov cr3", by_cr3_start, by_cr3_end, true },
	{ "invlpg", by_invlpg_start, by_invlpg_end, true },
	{ "lidt", by_lidt_start, by_lidt_end, true },
	{ "serialize", by_serialize_start, by_serialize_end, true }, /* the last */
};

/* The function: on the page of its caller, on another, and with its number across two lines. */
static const u64 functions[] = { IMAGE_CODE + 0x800, IMAGE_CODE + 0x5010, IMAGE_CODE + 0x583d };

#define LEAF7_ECX_MOVDIR64B BIT(28)
#define LEAF7_EDX_SERIALIZE BIT(14)

/* ECX and EDX of leaf 7 as the model has them. */
static void features(u32 *ecx, u32 *edx)
{
	static struct { /* kvm_cpuid2 with room */
		u32 nent, padding;
		struct kvm_cpuid_entry2 entries[256];
	} list;
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	must(kvm >= 0);
	list.nent = ARRAY_SIZE(list.entries);
	KVM_CALL(kvm, KVM_GET_SUPPORTED_CPUID, &list);
	close(kvm);
	*ecx = *edx = 0;
	for (u32 i = 0; i < list.nent; i++)
		if (list.entries[i].function == 7 && list.entries[i].index == 0) {
			*ecx = list.entries[i].ecx;
			*edx = list.entries[i].edx;
		}
}

static u64 count_stale(const struct code *c, u64 function, u64 rounds)
{
	struct kvm_guest g;
	u64 stale;

	kvm_guest_create(&g, c->start, c->end - c->start, 2);
	g.ram[function] = 0xb8;
	g.ram[function + 5] = 0xc3;
	for (int i = 0; i < 2; i++) {
		struct kvm_regs regs = { .rip = IMAGE_CODE,
					 .rsp = IMAGE_STACK,
					 .rflags = 2,
					 .rsi = i,
					 .rdi = function,
					 .r9 = rounds };

		KVM_CALL(g.vcpu[i], KVM_SET_REGS, &regs);
	}
	run_all(&g);
	stale = *(u64 *)(g.ram + HISTOGRAM + 64);
	kvm_guest_destroy(&g);
	return stale;
}

static void cross_modifying_code(void **state)
{
	u64 rounds = exhaustive ? runs : runs / 20;
	u32 n = ARRAY_SIZE(serializers), wrong = 0, ecx, edx;

	(void)state;
	features(&ecx, &edx);
	if (!(edx & LEAF7_EDX_SERIALIZE)) {
		print_message("the model or the host has no SERIALIZE\n");
		n--;
	}
	for (u32 i = 0; i < n * ARRAY_SIZE(functions); i++) {
		const struct code *c = &serializers[i / ARRAY_SIZE(functions)];
		u64 function = functions[i % ARRAY_SIZE(functions)];
		u64 stale = count_stale(c, function, rounds);

		if (!stale)
			continue;
		print_error("%s, %#lx: %lu of %lu executed old code\n", c->name, function, stale,
			    rounds);
		wrong++;
	}
	assert_int_equal(wrong, 0);
}

/*
 * vCPU 0 stores 64 bytes of the round, again and again, then sets the word at 0x101000. vCPU 1
 * reads the first and the last 8 of them in both orders until then: what is read second is never
 * older.
 */
GUEST_CODE(direct, "mov $0x102000, %ebx\n"
		   "test %esi, %esi\n"
		   "jnz 5f\n"
		   "1: inc %r8d\n"
		   "mov %r8, %rax\n"
		   "mov $0x103008, %edi\n"
		   "mov $8, %ecx\n"
		   "rep stosq\n"
		   "mov $0x103008, %edi\n"
		   ".byte 0x66, 0x0f, 0x38, 0xf8, 0x1f\n" /* movdir64b (%rdi), %rbx */
		   "cmp %r9d, %r8d\n"
		   "jb 1b\n"
		   "movl $1, 0x101000\n"
		   "hlt\n"
		   "5: mov (%rbx), %rax\n"
		   "mov 56(%rbx), %rdx\n"
		   "cmp %rax, %rdx\n"
		   "jb 6f\n"
		   "mov 56(%rbx), %rax\n"
		   "mov (%rbx), %rdx\n"
		   "cmp %rax, %rdx\n"
		   "jae 7f\n"
		   "6: incq 0x101040\n"
		   "7: cmpl $0, 0x101000\n"
		   "je 5b\n"
		   "hlt\n");

static void sixty_four_bytes_are_stored_at_once(void **state)
{
	const struct code c = { "movdir64b", direct_start, direct_end, true };
	u32 ecx, edx;

	(void)state;
	features(&ecx, &edx);
	if (!(ecx & LEAF7_ECX_MOVDIR64B)) {
		skipped = true;
		skip();
	}
	assert_int_equal(count_stale(&c, 0x104000, exhaustive ? runs : runs / 20), 0);
}

/* cmocka would run none of another name, and be content. */
static bool is_named(const struct CMUnitTest *tests, size_t n, const char *name)
{
	while (n--)
		if (!strcmp(tests[n].name, name))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(store_buffering),
		cmocka_unit_test(message_passing),
		cmocka_unit_test(load_buffering),
		cmocka_unit_test(two_and_two_writes),
		cmocka_unit_test(independent_reads_of_independent_writes),
		cmocka_unit_test(cross_modifying_code),
		cmocka_unit_test(sixty_four_bytes_are_stored_at_once),
	};
	const char *only = argc == 4 ? argv[3] : NULL;
	int failed;

	if (argc >= 3 && argc <= 4 && !strcmp(argv[1], "--runs") &&
	    (!only || is_named(tests, ARRAY_SIZE(tests), only))) {
		runs = strtoull(argv[2], NULL, 0);
		exhaustive = true;
		cmocka_set_test_filter(only);
	} else if (argc != 1) {
		return fprintf(stderr, "usage: api_litmus_test [--runs N [TEST]]\n"), 2;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (failed || !skipped)
		return failed;
	puts("SKIP: the model or the host has no MOVDIR64B");
	return only ? EXIT_SKIP : 0;
}
