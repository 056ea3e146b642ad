// SPDX-License-Identifier: MIT
/*
 * Files of saved machines in the cache of `vpmu exec`: what is read of one that anybody may have
 * damaged. A file is taken or refused; a refused one leaves nothing open once state_close() is
 * called, and what is taken has the sizes of its header.
 *
 * Input: the frequency (4 bytes), a byte (bit 0: another magic, 1: another key, 2: another size of
 * the key, in 4 bytes), the offsets and sizes of the header; then pages, each as its number in a
 * byte and what it is filled with.
 */
#include "exec/saved_machine.c"

#include <stdarg.h>

#include "base/must.h"
#include "fuzz/fuzz.h"

#define KEY "the key of this machine\n"

/* In memory: on a disk most of the time would be waited for it. */
static char path[] = "/dev/shm/vpmu-fuzz-XXXXXX";
static int file;

/* --- what the rest of the command needs of cli/base --- */

u64 monotonic_ms(void)
{
	return 0;
}

int failure(enum exit_code code, const char *fmt, ...)
{
	(void)fmt;
	return code;
}

int out_of_memory(void)
{
	return STATUS_BROKEN;
}

/* --- the file --- */

static void remove_file(void)
{
	unlink(path);
}

void fuzz_set_up(void)
{
	file = mkostemp(path, O_CLOEXEC);
	if (file < 0) {
		strcpy(path, "/tmp/vpmu-fuzz-XXXXXX");
		file = mkostemp(path, O_CLOEXEC);
	}
	must(file >= 0);
	atexit(remove_file);
}

static void write_file(struct fuzz_input *in)
{
	struct header header = { .magic = MAGIC, .key_size = strlen(KEY) };
	u8 page[PAGE_SIZE], other;
	const char *key;

	fuzz_take(in, &header.khz, sizeof(header.khz));
	other = fuzz_u8(in);
	if (other & 4)
		fuzz_take(in, &header.key_size, sizeof(header.key_size));
	fuzz_take(in, &header.device_offset,
		  sizeof(header) - offsetof(struct header, device_offset));
	header.magic[7] ^= other & 1;
	key = other & 2 ? "another key" : KEY;
	must(!ftruncate(file, 0));
	must(pwrite(file, &header, sizeof(header), 0) == sizeof(header));
	must(pwrite(file, key, strlen(key), sizeof(header)) == (ssize_t)strlen(key));
	while (fuzz_left(in)) {
		off_t at = PAGE_SIZE * fuzz_u8(in);

		memset(page, fuzz_u8(in), sizeof(page));
		must(pwrite(file, page, sizeof(page), at) == sizeof(page));
	}
}

static u64 size_of(int fd)
{
	struct stat st;

	must(!fstat(fd, &st));
	return st.st_size;
}

void fuzz_one(struct fuzz_input *in)
{
	struct exec_state state = NO_STATE;
	struct header header;

	write_file(in);
	must(pread(file, &header, sizeof(header), 0) == sizeof(header));
	if (read_state(path, KEY, &state) &&
	    (!state_fill(&state) || size_of(state.ram) != header.ram_size ||
	     size_of(state.device) != header.device_size))
		fuzz_fail("a state was taken that is not as large as it says");
	state_close(&state);
}
