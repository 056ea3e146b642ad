/* SPDX-License-Identifier: MIT */
/*
 * The stores of kept translations (base/kept.h) as files in the user's cache folder.
 *
 * There are two. A guest that has taken its VMM's process over can put host code into the news, and
 * later processes execute what is in the store: so processes that are confined share translations
 * with each other alone, or such a guest would have left its confinement.
 */
#ifndef EXEC_KEPT_STORE_H
#define EXEC_KEPT_STORE_H

#include "base/kept.h"

#define KEPT_STORE_NAME	     "translations"
#define KEPT_UNCONFINED_NAME KEPT_STORE_NAME ".unconfined"
#define KEPT_STORE_LIMIT     (512ull << 20) /* bytes of a store; beyond that it is cleaned up */

enum kept_kind {
	KEPT_CONFINED,	 /* QEMU as vpmu exec confines it */
	KEPT_UNCONFINED, /* any other process */
};

/* To read: a regular file that nobody but this user can write or has another name for; -1: there is
 * none. Its header has been read and is good. */
int kept_store_open(const char *folder, enum kept_kind kind, struct kept_header *header);

/*
 * Merges news into the store, which is made if there is none that can be used, and cleaned up if it
 * becomes larger than the limit: what was not used since the last time goes first. Whoever has the
 * old file mapped keeps it. The first `merged` bytes of the news are there already. False: it could
 * not be; the store is as good as before.
 */
bool kept_store_merge(const char *folder, enum kept_kind kind, const struct kept_news *news,
		      u64 merged, u64 limit);

/*
 * Likewise for what there is of news that still grow, from *merged on, which it moves: so that less
 * is left to be done when the guest has ended. False: nothing changed, and no more of them will
 * fit.
 */
bool kept_store_merge_early(const char *folder, enum kept_kind kind, const struct kept_news *news,
			    u64 *merged, u64 limit);

#endif
