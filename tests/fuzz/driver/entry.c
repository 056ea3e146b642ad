// SPDX-License-Identifier: MIT
/*
 * Between a target and what makes its inputs: libFuzzer's two functions, and the copy of the input
 * at hand. Guest code that got out may end the process by a system call of its own, of which
 * libFuzzer learns nothing: the copy is in a file (FUZZ_CURRENT) and outlives it.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/must.h"
#include "fuzz/fuzz.h"

#define CURRENT_SIZE (1u << 20)

static struct current {
	u64 size;
	u8 bytes[CURRENT_SIZE - sizeof(u64)];
} *current;

static void map_current(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	must(fd >= 0 && ftruncate(fd, sizeof(*current)) == 0);
	current = mmap(NULL, sizeof(*current), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(current != MAP_FAILED);
	close(fd);
}

static void keep(const u8 *data, size_t size)
{
	if (!current || size > sizeof(current->bytes))
		return;
	memcpy(current->bytes, data, size);
	__atomic_store_n(&current->size, size, __ATOMIC_RELEASE);
}

void fuzz_run(const u8 *data, size_t size)
{
	struct fuzz_input in = { data, data + size };

	keep(data, size);
	fuzz_one(&in);
}

void fuzz_fail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("finding: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	abort();
}

__attribute__((visibility("default"))) int LLVMFuzzerInitialize(int *argc, char ***argv);
__attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *path = getenv("FUZZ_CURRENT");

	(void)argc;
	(void)argv;
	if (path)
		map_current(path);
	fuzz_set_up();
	return 0;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	fuzz_run(data, size);
	return 0;
}
