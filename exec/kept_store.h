/* SPDX-License-Identifier: MIT */
/*
 * The store of kept translations (base/kept.h) as a file in the user's cache folder.
 */
#ifndef EXEC_KEPT_STORE_H
#define EXEC_KEPT_STORE_H

#include "base/kept.h"

#define KEPT_STORE_NAME	 "translations"
#define KEPT_STORE_LIMIT (512ull << 20) /* bytes of a store; beyond that it is cleaned up */

/* To read: a regular file that nobody but this user can write or has another name for; -1: there is
 * none. Its header has been read and is good. */
int kept_store_open(const char *folder, struct kept_header *header);

/*
 * Merges news into the store, which is made if there is none that can be used, and cleaned up if it
 * becomes larger than the limit: what was not used since the last time goes first. Whoever has the
 * old file mapped keeps it. False: it could not be; the store is as good as before.
 */
bool kept_store_merge(const char *folder, const struct kept_news *news, u64 limit);

/* False: errno; there may be none. */
bool kept_store_remove(const char *folder);

#endif
