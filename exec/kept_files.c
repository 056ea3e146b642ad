// SPDX-License-Identifier: MIT
/*
 * Kept translations of one machine: QEMU inherits the store to read, and a file in memory for what it
 * adds, which is merged into the store when QEMU has ended. QEMU itself opens nothing, and it makes no
 * difference to the news what ended it. Nothing here is worth a message: a machine that has no kept
 * translations is slower.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memfile.h"
#include "exec/exec.h"
#include "exec/kept_store.h"

void kept_files_open(const struct exec_options *options, struct exec_kept *kept)
{
	struct kept_header header;
	char folder[PATH_MAX];

	*kept = (struct exec_kept){ false, -1, -1 };
	if (options->no_cache || options->dry_run || !kernel_cache(folder))
		return;
	kept->news = memfile_fixed("translations", KEPT_NEWS_SIZE);
	if (kept->news < 0)
		return;
	kept->store = kept_store_open(folder, &header);
	kept->is_open = true;
}

void kept_files_export(const struct exec_kept *kept)
{
	char text[32];

	unsetenv("VPMU_KEPT");
	if (!kept || !kept->is_open)
		return;
	snprintf(text, sizeof(text), "%d,%d", kept->store, kept->news);
	fcntl(kept->news, F_SETFD, 0);
	if (kept->store >= 0)
		fcntl(kept->store, F_SETFD, 0);
	setenv("VPMU_KEPT", text, 1);
}

void kept_files_close(struct exec_kept *kept)
{
	const struct kept_news *news;
	char folder[PATH_MAX];

	if (!kept->is_open)
		return;
	kept->is_open = false;
	news = mmap(NULL, KEPT_NEWS_SIZE, PROT_READ, MAP_SHARED, kept->news, 0);
	if (news != MAP_FAILED) {
		if (news->lookups && kernel_cache(folder))
			kept_store_merge(folder, news, KEPT_STORE_LIMIT);
		munmap((void *)news, KEPT_NEWS_SIZE);
	}
	close(kept->news);
	if (kept->store >= 0)
		close(kept->store);
}
