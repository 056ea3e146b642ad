// SPDX-License-Identifier: MIT
/*
 * What the guest has looked up: a tree of names. A node lives as long as the guest remembers it or
 * one of its children, or has it open; paths are put together from the names when they are needed.
 *
 * Invariants, which nodes_check() looks at:
 *  1. A node is free, or has a name. Free nodes are in the free list and in no hash chain.
 *  2. A node with a name that is not gone is in the chain of its parent and name, once, as the only
 *     one of that name. The root is in none.
 *  3. A node that is gone is in no chain, whatever it is still needed for.
 *  4. The parent of a node has a name, and counts the node among its children.
 */
#include <errno.h>
#include <limits.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

#include "base/must.h"
#include "exec/share/share.h"

static u32 bucket_of(u32 parent, const char *name)
{
	u32 hash = parent * 2654435761u;

	for (; *name; name++)
		hash = (hash ^ (u8)*name) * 16777619u;
	return (hash ^ hash >> 15) % NODE_BUCKETS;
}

static bool grow(struct nodes *nodes)
{
	u32 count = nodes->count ? 2 * nodes->count : 1024;
	struct node *node;

	if (count > MAX_NODES)
		return false;
	node = realloc(nodes->node, count * sizeof(*node));
	if (!node)
		return false;
	for (u32 i = count - 1; i >= nodes->count && i > FUSE_ROOT_ID; i--) {
		node[i] = (struct node){ .next = nodes->free };
		nodes->free = i;
	}
	nodes->node = node;
	nodes->count = count;
	return true;
}

bool nodes_start(struct nodes *nodes)
{
	if (!grow(nodes))
		return false;
	nodes->node[0] = (struct node){ 0 };
	nodes->node[FUSE_ROOT_ID] = (struct node){ .lookups = 1, .name = "" };
	return true;
}

struct node *node_get(struct nodes *nodes, u64 id)
{
	return id && id < nodes->count && nodes->node[id].name ? &nodes->node[id] : NULL;
}

/* Where the id of the node with this name is, or the 0 at the end of the chain. */
static u32 *find(struct nodes *nodes, u32 parent, const char *name)
{
	u32 *link = &nodes->bucket[bucket_of(parent, name)];

	for (; *link; link = &nodes->node[*link].next) {
		const struct node *node = &nodes->node[*link];

		if (node->parent == parent && !strcmp(node->name, name))
			break;
	}
	return link;
}

static u32 create(struct nodes *nodes, u32 parent, const char *name)
{
	u32 id, *link;
	char *copy;

	if (!nodes->free && !grow(nodes))
		return 0;
	copy = strdup(name);
	if (!copy)
		return 0;
	id = nodes->free;
	nodes->free = nodes->node[id].next;
	nodes->node[id] = (struct node){ .parent = parent, .name = copy };
	nodes->node[parent].children++;
	link = find(nodes, parent, name);
	*link = id;
	return id;
}

u32 node_lookup(struct nodes *nodes, u32 parent, const char *name)
{
	u32 id = *find(nodes, parent, name);

	if (!id)
		id = create(nodes, parent, name);
	if (id)
		nodes->node[id].lookups++;
	return id;
}

static void unlink_name(struct nodes *nodes, u32 id)
{
	struct node *node = &nodes->node[id];
	u32 *link;

	if (node->gone)
		return;
	link = find(nodes, node->parent, node->name);
	must(*link == id); /* invariant 2 */
	*link = node->next;
	node->next = 0;
}

/* Frees nodes that neither the guest nor a child refers to, upwards. */
static void release(struct nodes *nodes, u32 id)
{
	while (id > FUSE_ROOT_ID) {
		struct node *node = &nodes->node[id];
		u32 parent = node->parent;

		if (node->lookups || node->children || node->opens)
			return;
		unlink_name(nodes, id);
		free(node->name);
		*node = (struct node){ .next = nodes->free };
		nodes->free = id;
		nodes->node[parent].children--;
		id = parent;
	}
}

void node_forget(struct nodes *nodes, u64 id, u64 lookups)
{
	struct node *node = node_get(nodes, id);

	if (!node || id == FUSE_ROOT_ID)
		return;
	node->lookups -= lookups < node->lookups ? lookups : node->lookups;
	release(nodes, id);
}

void node_close(struct nodes *nodes, u32 id)
{
	nodes->node[id].opens--;
	release(nodes, id);
}

void node_drop_name(struct nodes *nodes, u32 parent, const char *name)
{
	u32 id = *find(nodes, parent, name);

	if (!id)
		return;
	unlink_name(nodes, id);
	nodes->node[id].gone = true;
}

void node_rename(struct nodes *nodes, u32 parent, const char *name, u32 new_parent,
		 const char *new_name)
{
	u32 id = *find(nodes, parent, name), *link;
	struct node *node;
	char *copy;

	if (parent == new_parent && !strcmp(name, new_name))
		return;
	node_drop_name(nodes, new_parent, new_name);
	if (!id)
		return;
	unlink_name(nodes, id);
	node = &nodes->node[id];
	copy = strdup(new_name);
	if (!copy) { /* known by what is open of it, until the guest looks it up again */
		node->gone = true;
		return;
	}
	free(node->name);
	node->name = copy;
	node->parent = new_parent;
	nodes->node[new_parent].children++;
	nodes->node[parent].children--;
	link = find(nodes, new_parent, new_name);
	*link = id;
	release(nodes, parent);
}

int node_path(struct nodes *nodes, u64 id, char path[PATH_MAX])
{
	char reversed[PATH_MAX];
	u32 at = sizeof(reversed) - 1;
	const struct node *node = node_get(nodes, id);

	reversed[at] = '\0';
	for (; node && id != FUSE_ROOT_ID; id = node->parent, node = node_get(nodes, id)) {
		u32 length = strlen(node->name);

		if (node->gone)
			return ESTALE;
		if (length + 1 > at)
			return ENAMETOOLONG;
		at -= length + 1;
		memcpy(reversed + at + 1, node->name, length);
		reversed[at] = '/';
	}
	if (!node)
		return ESTALE;
	strcpy(path, reversed[at] ? reversed + at + 1 : ".");
	return 0;
}

/* How many nodes are in a chain, each where it belongs; nodes->count: one is not. */
static u32 count_chain(const struct nodes *nodes, u32 bucket)
{
	u32 count = 0;

	for (u32 id = nodes->bucket[bucket]; id; id = nodes->node[id].next) {
		const struct node *node = id < nodes->count ? &nodes->node[id] : NULL;

		if (!node || !node->name || node->gone || ++count == nodes->count ||
		    bucket_of(node->parent, node->name) != bucket)
			return nodes->count;
	}
	return count;
}

/* How many nodes are in the free list, none of which has a name; nodes->count: one has. */
static u32 count_free(const struct nodes *nodes)
{
	u32 count = 0;

	for (u32 id = nodes->free; id; id = nodes->node[id].next)
		if (id >= nodes->count || nodes->node[id].name || ++count == nodes->count)
			return nodes->count;
	return count;
}

bool nodes_check(const struct nodes *nodes)
{
	u32 chained = 0, named = 0, gone = 0, children = nodes->node[FUSE_ROOT_ID].children;

	for (u32 i = 0; i < NODE_BUCKETS && chained < nodes->count; i++)
		chained += count_chain(nodes, i);
	for (u32 i = FUSE_ROOT_ID + 1; i < nodes->count; i++) {
		const struct node *node = &nodes->node[i];

		if (!node->name)
			continue;
		if (node->parent >= nodes->count || !nodes->node[node->parent].name)
			return false;
		named++;
		gone += node->gone;
		children += node->children;
	}
	return chained == named - gone && children == named &&
	       named + count_free(nodes) == nodes->count - FUSE_ROOT_ID - 1;
}
