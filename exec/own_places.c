// SPDX-License-Identifier: MIT
/*
 * What is vpmu's own in the file system: every place that kernels, saved machines and translations
 * are taken from, not only the one that is the cache of this run. What is there is booted or
 * executed for the user's next guests, so that no guest may change it, whatever folders it may
 * write. So is the file of --trace-hash, whose command vpmu diverge runs on the host.
 *
 * A guest that makes a place which does not exist yet, or replaces a symbolic link on the way to
 * one, has put another one there. So places are resolved as far as they exist, and links belong to
 * them.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"

/* The path of a place while it is resolved. */
struct walk {
	char done[PATH_MAX]; /* without links; "": the root */
	char left[PATH_MAX]; /* what follows, with or without slashes at its ends */
	u32 links;
};

static bool add(struct own_places *own, const char *path)
{
	char *copy = strdup(*path ? path + 1 : path);

	if (!copy)
		return false;
	own->path[own->count++] = copy;
	own->path[own->count] = NULL;
	return true;
}

static void strip_name(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
}

/* Moves the next name over. False: there is none, or no path is as long. */
static bool step(struct walk *walk)
{
	char *name = walk->left + strspn(walk->left, "/");
	u32 length = strcspn(name, "/"), done = strlen(walk->done);

	if (!length || done + length + 1 >= sizeof(walk->done))
		return false;
	if (length == 2 && !strncmp(name, "..", 2)) {
		strip_name(walk->done);
	} else if (length != 1 || *name != '.') {
		walk->done[done] = '/';
		memcpy(walk->done + done + 1, name, length);
		walk->done[done + 1 + length] = '\0';
	}
	memmove(walk->left, name + length, strlen(name + length) + 1);
	return true;
}

/* Goes on where a link leads. False: no path is as long. */
static bool follow(struct walk *walk, const char *target)
{
	char left[PATH_MAX];
	int size = snprintf(left, sizeof(left), "%s/%s", target, walk->left);

	if (size >= (int)sizeof(left))
		return false;
	memcpy(walk->left, left, size + 1);
	if (*target == '/')
		*walk->done = '\0';
	else
		strip_name(walk->done);
	return true;
}

/* False: no memory. A path that Linux does not resolve, because it has too many links or is too
 * long, leads nowhere; the links that make it so are added. */
static bool add_place(struct own_places *own, struct walk *walk)
{
	char target[PATH_MAX];

	while (step(walk)) {
		ssize_t n = *walk->done ? readlink(walk->done, target, sizeof(target) - 1) : -1;

		if (n < 0)
			continue;
		target[n] = '\0';
		if (!add(own, walk->done))
			return false;
		if (walk->links++ == MAX_OWN_LINKS || !follow(walk, target))
			return true;
	}
	return add(own, walk->done);
}

static bool begin(struct walk *walk, const char *place)
{
	*walk = (struct walk){ .links = 0 };
	if (*place != '/' && !getcwd(walk->done, sizeof(walk->done)))
		return false;
	if (!strcmp(walk->done, "/"))
		*walk->done = '\0';
	strcpy(walk->left, place);
	return true;
}

bool own_find(struct own_places *own, const char *trace)
{
	char place[PATH_MAX];
	struct walk walk;

	own->count = 0;
	own->path[0] = NULL;
	for (u32 i = 0; i < KERNEL_PLACES; i++)
		if (kernel_place(i, place) && begin(&walk, place) && !add_place(own, &walk))
			return false;
	/* A name that is too long cannot be opened either. */
	if (!trace || strlen(trace) >= PATH_MAX || !begin(&walk, trace))
		return true;
	return add_place(own, &walk);
}

void own_free(struct own_places *own)
{
	while (own->count)
		free(own->path[--own->count]);
}
