// SPDX-License-Identifier: MIT
/*
 * Guests on virtual time (docs/clock.md): the page by which the file server says that it works, and
 * with --deterministic the files that replace the serial port, and the seed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/inherited.h"
#include "base/memfile.h"
#include "base/splitmix.h"
#include "base/turns.h"
#include "cli/base/monotonic.h"
#include "exec/exec.h"
#include "exec/guest_files.h"

#define INPUT_LIMIT (1ull << 30)

int virtual_turns(const struct exec_options *options)
{
	int fd = memfile_create("turns", MFD_CLOEXEC);
	struct turns turns = { .endless = options->deterministic };

	if (fd < 0 ||
	    (!ftruncate(fd, PAGE_SIZE) && pwrite(fd, &turns, sizeof(turns), 0) == sizeof(turns)))
		return fd;
	close(fd);
	return -1;
}

static bool write_all(int fd, const u8 *bytes, ssize_t n)
{
	while (n > 0) {
		ssize_t written = write(fd, bytes, n);

		if (written < 0)
			return false;
		bytes += written;
		n -= written;
	}
	return true;
}

/* What can be read by then: 0 at its end, -1: errno. A descriptor that is not only ours may be
 * non-blocking. */
static ssize_t read_input(u8 *bytes, size_t size, u64 deadline)
{
	ssize_t n;

	do {
		struct pollfd input = { 0, POLLIN, 0 };
		u64 at = monotonic_ms();
		bool is_late = deadline && at >= deadline;

		n = is_late ? 0 : poll(&input, 1, deadline ? (int)(deadline - at) : -1);
		if (!n) {
			errno = ETIME;
			return -1;
		}
		n = n < 0 ? n : read(0, bytes, size);
	} while (n < 0 && (errno == EAGAIN || errno == EINTR));
	return n;
}

/* Up to its end: how fast it arrives must not show. */
static int copy_input(const struct exec_options *options, u64 deadline, int to)
{
	static u8 bytes[64 << 10];
	u64 size = 0;
	ssize_t n;

	while ((n = read_input(bytes, sizeof(bytes), deadline)) > 0) {
		size += n;
		if (size > INPUT_LIMIT)
			return failure(STATUS_BROKEN,
				       "standard input is longer than 1 GiB, and a deterministic "
				       "guest has it in memory: let it read a file");
		if (!write_all(to, bytes, n))
			return failure(STATUS_BROKEN, "cannot keep standard input in memory: %s",
				       strerror(errno));
	}
	if (n && errno == ETIME)
		return failure(STATUS_TIMEOUT, TIMED_OUT, options->timeout);
	return n ? failure(STATUS_BROKEN, "cannot read standard input: %s", strerror(errno))
		 : STATUS_OK;
}

static bool open_files(struct server_files *files)
{
	int frames[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, frames))
		return false;
	files->frames = frames[0];
	files->frames_end = frames[1];
	fcntl(files->frames, F_SETFL, O_NONBLOCK);
	files->order = memfile_create("order", MFD_CLOEXEC);
	files->input = memfile_create("input", MFD_CLOEXEC);
	return files->order >= 0 && files->input >= 0;
}

/* vpmu check has opened it for the guest's processor and for the file server; the command is not to
 * see that. */
static int take_profile(void)
{
	int fd;

	if (!inherited_take("VPMU_PROFILE", &fd, 1))
		fd = -1;
	unsetenv("VPMU_PROFILE");
	return fd;
}

int virtual_prepare(const struct exec_options *options, u64 deadline, struct server_files *files)
{
	*files = (struct server_files)NO_SERVER_FILES;
	files->profile = take_profile();
	if (!options->virtual_clock || options->dry_run)
		return STATUS_OK;
	files->turns = virtual_turns(options);
	if (files->turns < 0 || (options->deterministic && !open_files(files)))
		return failure(STATUS_BROKEN, "cannot prepare a guest: %s", strerror(errno));
	return options->deterministic ? copy_input(options, deadline, files->input) : STATUS_OK;
}

int virtual_order(const struct server_files *files, const void *body, u32 size)
{
	struct turns *page;

	if (write(files->order, body, size) != (ssize_t)size)
		return failure(STATUS_BROKEN, "cannot write the order: %s", strerror(errno));
	page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, files->turns, 0);
	if (page == MAP_FAILED)
		return failure(STATUS_BROKEN, "cannot map a file: %s", strerror(errno));
	turns_call(page);
	munmap(page, PAGE_SIZE);
	return STATUS_OK;
}

static void name(const char *variable, int fd)
{
	if (fd >= 0)
		inherited_export(variable, &fd, 1);
}

void virtual_environment(const struct exec_options *options, const struct wiring *wiring)
{
	static const char *const ours[] = { "VPMU_CLOCK", "VPMU_TURNS",	       "VPMU_SEED",
					    "VPMU_DATE",  "VPMU_QUANTUM",      "VPMU_SHADOW",
					    "VPMU_TRACE", "VPMU_TRACE_SOCKET", "VPMU_WRITTEN" };
	char text[32];

	for (u32 i = 0; i < ARRAY_SIZE(ours); i++)
		unsetenv(ours[i]); /* the options decide */
	name("VPMU_WRITTEN", wiring->written);
	if (wiring->turns < 0)
		return;
	name("VPMU_TURNS", wiring->turns);
	if (!options->deterministic)
		return;
	name("VPMU_PROFILE", wiring->profile);
	name("VPMU_SHADOW", wiring->shadow);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)options->seed);
	setenv("VPMU_SEED", text, 1);
	snprintf(text, sizeof(text), "%llu", VIRTUAL_DATE);
	setenv("VPMU_DATE", text, 1);
}

void virtual_seed(u64 seed, u8 *bytes, u32 size)
{
	for (u32 i = 0; i < size; i++)
		bytes[i] = splitmix(&seed);
}
