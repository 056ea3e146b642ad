// SPDX-License-Identifier: MIT
/*
 * Which function the code of a profile (base/profile.h) is: pages are looked for in the ELF files
 * that the guest opened, by their contents, then addresses among the files' symbols. Nothing in the
 * profile or in a file is trusted; each offset is checked, and no file is mapped, since it may
 * shrink.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/profile.h"
#include "cli/check/check.h"
#include "cli/check/elf.h"

#define OTHER_CODE "[other code]" /* made by the program itself, or the kernel's for programs */
#define NO_SYMBOL  "[no symbol]"
#define FILES_MOST                                                                    \
	(2ull << 30) /* bytes of code, symbols and headers that are read of all files \
		      */

/* --- pages of files --- */

struct page {
	u64 hash; /* 0: unused */
	u32 file;
	u64 offset;
};

struct code {
	const struct check_suite *suite;
	struct check_elf *file;
	char **name; /* as results have it; NULL: not to be told of */
	u64 *count;  /* instructions */
	u32 files;
	u64 left;	   /* of FILES_MOST; 0: some file was not read */
	struct page *page; /* a hash table */
	u64 pages, room;   /* room is a power of two */
};

/* The slot of a page, or the free one that it would have. */
static struct page *slot_of(const struct code *code, u64 hash)
{
	u64 i = hash;

	while (code->page[i & (code->room - 1)].hash &&
	       code->page[i & (code->room - 1)].hash != hash)
		i++;
	return &code->page[i & (code->room - 1)];
}

static bool grow(struct code *code)
{
	struct code more = { .room = code->room ? 2 * code->room : 4096 };

	more.page = calloc(more.room, sizeof(*more.page));
	if (!more.page)
		return false;
	for (u64 i = 0; i < code->room; i++)
		if (code->page[i].hash)
			*slot_of(&more, code->page[i].hash) = code->page[i];
	free(code->page);
	code->page = more.page;
	code->room = more.room;
	return true;
}

/* Of pages with the same contents the first file's counts. */
static bool add_page(struct code *code, u32 file, u64 offset, const u8 *bytes)
{
	u64 hash = profile_page(profile_hash(PROFILE_SEED, bytes, PAGE_SIZE));
	struct page *slot;

	if (2 * code->pages >= code->room && !grow(code))
		return false;
	slot = slot_of(code, hash);
	if (slot->hash)
		return true;
	*slot = (struct page){ hash, file, offset };
	code->pages++;
	return true;
}

/* As the guest's page cache has them: zeros past the end of the file. */
static bool add_segment(struct code *code, u32 file, const struct check_segment *segment)
{
	u8 bytes[PAGE_SIZE];

	for (u64 at = segment->offset & PAGE_MASK; at < segment->offset + segment->size;
	     at += PAGE_SIZE) {
		ssize_t n = pread(code->file[file].fd, bytes, sizeof(bytes), at);

		if (n <= 0)
			return true; /* it ends here */
		memset(bytes + n, 0, sizeof(bytes) - n);
		if (!add_page(code, file, at, bytes))
			return false;
	}
	return true;
}

/* --- files --- */

/* Relative to the suite, so that a baseline holds wherever its repository is. */
static char *name_file(const struct check_suite *suite, const char *path)
{
	size_t n = strlen(suite->folder);

	char *name;

	if (!strncmp(path, suite->folder, n) && path[n] == '/')
		path += n + 1;
	name = strdup(path);
	if (name)
		make_printable(name);
	return name;
}

static bool make_room(struct code *code)
{
	u32 n = code->files;

	if (n & (n - 1)) /* there is room up to a power of two */
		return true;
	n = n ? 2 * n : 1;
	code->file = reallocarray(code->file, n, sizeof(*code->file));
	code->name = reallocarray(code->name, n, sizeof(*code->name));
	code->count = reallocarray(code->count, n, sizeof(*code->count));
	return code->file && code->name && code->count;
}

/* Under another name, or under the same one again: a guest that has forgotten a file opens it as
 * a new one. */
static bool is_known(const struct code *code, const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return false;
	for (u32 i = 0; i < code->files; i++)
		if (code->file[i].inode == st.st_ino && code->file[i].device == st.st_dev)
			return true;
	return false;
}

/* A file that is no ELF file, or is gone, is passed over. */
static bool add_file(struct code *code, const char *path, bool is_told)
{
	struct check_elf elf;
	u32 i = code->files;

	if (is_known(code, path) || !elf_open(&elf, path, &code->left))
		return true;
	if (!make_room(code)) {
		elf_close(&elf);
		return false;
	}
	code->file[i] = elf;
	code->count[i] = 0;
	code->name[i] = is_told ? name_file(code->suite, path) : NULL;
	code->files++;
	for (u32 s = 0; s < elf.segments; s++)
		if (!add_segment(code, i, &elf.segment[s]))
			return false;
	elf_close_file(&code->file[i]);
	return code->name[i] || !is_told;
}

static bool add_files(struct code *code, const struct profile *profile, const char *untold)
{
	u32 used = profile->names_used < PROFILE_NAMES ? profile->names_used : PROFILE_NAMES;
	char path[PATH_MAX];

	if (!add_file(code, untold, false))
		return false;
	for (u32 at = 0; at < used;) {
		u32 n = strnlen(profile->names + at, used - at);

		snprintf(path, sizeof(path), "/%.*s", (int)n, profile->names + at);
		if (n + 1 < sizeof(path) && !add_file(code, path, true))
			return false;
		at += n + 1;
	}
	return true;
}

/* --- functions --- */

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct check_count *)a)->name, ((const struct check_count *)b)->name);
}

/* Names are written to files as text of one line. */
static char *name_function(const char *file, const char *symbol)
{
	char *name = NULL;

	if (asprintf(&name, "%s%s%s", file, *file ? ":" : "", symbol) < 0)
		return NULL;
	make_printable(name);
	return name;
}

static bool add_function(struct check_counts *functions, char *name, u64 count)
{
	u32 n = functions->count;

	if (!name)
		return false;
	if (!(n & (n - 1)))
		functions->item =
			reallocarray(functions->item, n ? 2 * n : 1, sizeof(*functions->item));
	if (!functions->item) {
		functions->count = 0;
		free(name);
		return false;
	}
	functions->item[functions->count++] = (struct check_count){ name, count };
	return true;
}

static bool add_entry(struct code *code, const struct profile_entry *entry,
		      struct check_counts *functions)
{
	const struct page *page = slot_of(code, entry->page);
	const char *symbol;

	if (!page->hash)
		return add_function(functions, name_function("", OTHER_CODE), entry->count);
	if (!code->name[page->file])
		return true;
	code->count[page->file] += entry->count;
	symbol = elf_symbol(&code->file[page->file], page->offset + (entry->offset & ~PAGE_MASK));
	return add_function(functions, name_function(code->name[page->file], symbol ?: NO_SYMBOL),
			    entry->count);
}

/* One row for each name. */
static void sum_up(struct check_counts *functions)
{
	u32 n = 0;

	if (!functions->count)
		return;
	qsort(functions->item, functions->count, sizeof(*functions->item), by_name);
	for (u32 i = 1; i < functions->count; i++) {
		struct check_count *one = &functions->item[i];

		if (strcmp(one->name, functions->item[n].name)) {
			functions->item[++n] = *one;
			continue;
		}
		functions->item[n].value += one->value;
		free((char *)one->name);
	}
	functions->count = n + 1;
}

static void drop_functions(struct check_counts *functions)
{
	for (u32 i = 0; i < functions->count; i++)
		free((char *)functions->item[i].name);
	free(functions->item);
	*functions = (struct check_counts){ 0 };
}

static bool list_files(const struct code *code, struct check_facts *files)
{
	files->item = calloc(code->files + 1ull, sizeof(*files->item));
	for (u32 i = 0; files->item && i < code->files; i++) {
		struct check_fact fact;

		if (!code->name[i] || !code->count[i])
			continue;
		fact = (struct check_fact){ strdup(code->name[i]), strdup(code->file[i].id) };
		files->item[files->count++] = fact;
		if (!fact.name || !fact.value)
			return false;
	}
	return files->item;
}

static void free_code(struct code *code)
{
	for (u32 i = 0; i < code->files; i++) {
		elf_close(&code->file[i]);
		free(code->name[i]);
	}
	free(code->file);
	free(code->name);
	free(code->count);
	free(code->page);
}

static bool resolve(struct code *code, const struct profile *profile, const char *untold,
		    struct check_result *result)
{
	if (!grow(code) || !add_files(code, profile, untold))
		return false;
	for (u32 i = 0; i < PROFILE_ENTRIES; i++)
		if (profile->entry[i].page && profile->entry[i].count &&
		    !add_entry(code, &profile->entry[i], &result->functions))
			return false;
	sum_up(&result->functions);
	/* A part of them would be taken for all. */
	result->has_functions = !profile->lost && !profile->names_lost && code->left;
	if (!result->has_functions)
		drop_functions(&result->functions);
	return list_files(code, &result->files);
}

bool code_resolve(const struct check_suite *suite, const struct profile *profile,
		  const char *untold, struct check_result *result)
{
	struct code code = { .suite = suite, .left = FILES_MOST };
	bool ok = resolve(&code, profile, untold, result);

	free_code(&code);
	return ok;
}

void code_free(struct check_result *result)
{
	drop_functions(&result->functions);
	for (u32 i = 0; i < result->files.count; i++) {
		free((char *)result->files.item[i].name);
		free((char *)result->files.item[i].value);
	}
	free(result->files.item);
	result->files = (struct check_facts){ 0 };
}
