// SPDX-License-Identifier: MIT
/*
 * Kept translations of one machine: QEMU inherits the store to read, and a file in memory for what
 * it adds, which is merged into the store when QEMU has ended. QEMU itself opens nothing, and it
 * makes no difference to the news what ended it. Nothing here is worth a message: a machine that
 * has no kept translations is slower.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/inherited.h"
#include "base/memfile.h"
#include "exec/exec.h"
#include "exec/kept_store.h"

/* Where address space is limited, guests need all of it. */
static bool may_map(void)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur == RLIM_INFINITY;
}

/* Files in memory are limited as others are, and one that becomes too large ends the process by
 * SIGXFSZ: here for the news, or later, in their merge, for the store. */
static bool may_write(void)
{
	struct rlimit limit;

	_Static_assert(KEPT_NEWS_SIZE <= KEPT_STORE_LIMIT, "the news are the smaller file");
	return !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur >= KEPT_STORE_LIMIT;
}

static enum kept_kind kind_of(const struct exec_kept *kept)
{
	return kept->is_confined ? KEPT_CONFINED : KEPT_UNCONFINED;
}

void kept_files_open(const struct exec_options *options, bool is_confined, struct exec_kept *kept)
{
	struct kept_header header;
	char folder[PATH_MAX];

	*kept = (struct exec_kept){ .is_confined = is_confined, .store = -1, .file = -1 };
	if (options->no_cache || options->dry_run || !may_map() || !may_write() ||
	    !kernel_cache(folder))
		return;
	kept->file = memfile_fixed("translations", KEPT_NEWS_SIZE);
	if (kept->file < 0)
		return;
	kept->store = kept_store_open(folder, kind_of(kept), &header);
	kept->is_open = true;
}

void kept_files_export(const struct exec_kept *kept)
{
	unsetenv("VPMU_KEPT");
	if (!kept || !kept->is_open)
		return;
	fcntl(kept->file, F_SETFD, 0);
	if (kept->store >= 0)
		fcntl(kept->store, F_SETFD, 0);
	inherited_export("VPMU_KEPT", (int[]){ kept->store, kept->file }, 2);
}

/* False: they cannot be. */
static bool map_news(struct exec_kept *kept)
{
	void *map;

	if (kept->news)
		return true;
	map = mmap(NULL, KEPT_NEWS_SIZE, PROT_READ, MAP_SHARED, kept->file, 0);
	if (map != MAP_FAILED)
		kept->news = map;
	return kept->news;
}

void kept_files_close(struct exec_kept *kept)
{
	char folder[PATH_MAX];

	if (!kept->is_open)
		return;
	kept->is_open = false;
	if (map_news(kept)) {
		if (kept->news->lookups && kernel_cache(folder))
			kept_store_merge(folder, kind_of(kept), kept->news, kept->merged,
					 KEPT_STORE_LIMIT);
		munmap((void *)kept->news, KEPT_NEWS_SIZE);
	}
	close(kept->file);
	if (kept->store >= 0)
		close(kept->store);
}

/* --- while the guest runs --- */

/* So much is worth a merge of its own, which writes most of the index once more. */
#define EARLY_BYTES (32u << 20)

bool kept_files_merge_early(struct exec_kept *kept)
{
	char folder[PATH_MAX];
	u64 next, grown;

	if (!kept->is_open || kept->is_late || !map_news(kept))
		return false;
	next = READ_ONCE(kept->news->next);
	grown = next - kept->seen;
	kept->seen = next;
	if (next >= kept->merged + EARLY_BYTES)
		kept->is_late = !kernel_cache(folder) ||
				!kept_store_merge_early(folder, kind_of(kept), kept->news,
							&kept->merged, KEPT_STORE_LIMIT);
	return grown;
}

/* It holds nothing of the process that it waits for: neither its terminal nor a pipe whose end may
 * be waited for. */
static void hold_only(int *fds[], u32 n)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	u32 first = 3 + n;

	for (u32 i = 0; i < n; i++) /* out of the way */
		*fds[i] = *fds[i] < 0 ? -1 : fcntl(*fds[i], F_DUPFD_CLOEXEC, first);
	for (u32 i = 0; i < n; i++)
		if (*fds[i] >= 0)
			*fds[i] = dup2(*fds[i], 3 + i);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	close_range(first, ~0u, 0);
}

static void watch(struct exec_kept *kept, int process)
{
	int *fds[] = { &kept->store, &kept->file, &process };
	struct pollfd end;

	setsid();
	hold_only(fds, ARRAY_SIZE(fds));
	end = (struct pollfd){ process, POLLIN, 0 };
	while (poll(&end, 1, -1) < 0)
		;
	kept_files_close(kept);
}

/* A child of a child, so that the program has no child that it does not know of. */
bool kept_files_watch(struct exec_kept *kept)
{
	int process = syscall(SYS_pidfd_open, getpid(), 0), status;
	pid_t pid = process < 0 ? -1 : fork();

	if (!pid) {
		pid = fork();
		if (!pid)
			watch(kept, process);
		_exit(pid < 0);
	}
	if (process >= 0)
		close(process);
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}
