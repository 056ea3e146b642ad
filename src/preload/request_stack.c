// SPDX-License-Identifier: MIT
/*
 * Requests run on a stack of their own, as those of the kernel do: the program's stack below its
 * frame is unused, and programs rely on that without knowing. (QEMU 7.2 hands its firmware a
 * kernel header that lies in a frame long gone: hw/i386/x86.c, x86_load_linux().) One stack per
 * thread, made at its first request, freed when the thread ends. A signal handler that makes a
 * request in the middle of another stays on the stack that it is on.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "preload/preload.h"

#define STACK_SIZE (512u << 10)
#define GUARD_SIZE 4096u

static pthread_key_t key;
static bool key_made;
static __thread u8 *stack __attribute__((tls_model("initial-exec")));
static __thread bool busy __attribute__((tls_model("initial-exec")));

static void release(void *memory)
{
	stack = NULL;
	munmap(memory, STACK_SIZE);
}

static void make_key(void)
{
	key_made = pthread_key_create(&key, release) == 0;
}

static u8 *own_stack(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	u8 *memory;

	if (stack)
		return stack;
	pthread_once(&once, make_key);
	memory = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	mprotect(memory, GUARD_SIZE, PROT_NONE);
	if (!key_made || pthread_setspecific(key, memory)) {
		munmap(memory, STACK_SIZE);
		return NULL;
	}
	stack = memory;
	return stack;
}

void *stack_take(void)
{
	u8 *memory = busy ? NULL : own_stack();

	if (!memory)
		return NULL;
	busy = true;
	return memory + STACK_SIZE;
}

void stack_give_back(void *top)
{
	if (top)
		busy = false;
}

/* long stack_call(void *top, long (*function)(void *), void *arg) */
__asm__(".pushsection .text\n"
	".globl stack_call\n"
	".hidden stack_call\n"
	".type stack_call, @function\n"
	"stack_call:\n"
	".cfi_startproc\n"
	"push %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset rbp, -16\n"
	"mov %rsp, %rbp\n"
	".cfi_def_cfa_register rbp\n"
	"test %rdi, %rdi\n"
	"cmovnz %rdi, %rsp\n"
	"mov %rdx, %rdi\n"
	"call *%rsi\n"
	"mov %rbp, %rsp\n"
	"pop %rbp\n"
	".cfi_def_cfa rsp, 8\n"
	"ret\n"
	".cfi_endproc\n"
	".size stack_call, . - stack_call\n"
	".popsection\n");
