// SPDX-License-Identifier: MIT
/*
 * Reading ELF files: see elf.h. Every offset and size is checked against the file's, and what
 * is read is read once.
 */
#include "cli/check/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/profile.h"

#define SECTION_MOST (512u << 20) /* bytes that are read of a section */
#define NOTE_MOST    4096

struct reader {
	struct check_elf *elf;
	u64 size;
	u64 *left; /* of what may be read; 0: too much was asked for */
	Elf64_Ehdr header;
};

static bool charge(const struct reader *r, u64 size)
{
	*r->left = size < *r->left ? *r->left - size : 0;
	return *r->left;
}

static bool read_at(const struct reader *r, u64 offset, void *to, u64 size)
{
	return offset <= r->size && size <= r->size - offset && charge(r, size) &&
	       pread(r->elf->fd, to, size, offset) == (ssize_t)size;
}

/* NULL: there is no such part, or no memory. A NUL follows it. */
static void *load(const struct reader *r, u64 offset, u64 size)
{
	u8 *bytes = size && size <= SECTION_MOST ? calloc(1, size + 1) : NULL;

	if (bytes && !read_at(r, offset, bytes, size)) {
		free(bytes);
		bytes = NULL;
	}
	return bytes;
}

/* --- segments and the build id --- */

static void take_note(struct check_elf *elf, const u8 *id, u32 size)
{
	char *to = elf->id;

	for (u32 i = 0; i < size && to + 2 < elf->id + ELF_ID_SIZE; i++, to += 2)
		snprintf(to, 3, "%02x", id[i]);
}

static u64 padded(u32 size)
{
	return ((u64)size + 3) & ~3ull;
}

static void find_id(struct check_elf *elf, const u8 *notes, u64 size)
{
	Elf64_Nhdr note;

	for (u64 at = 0; at + sizeof(note) <= size;) {
		u64 name = at + sizeof(note), id, end;

		memcpy(&note, notes + at, sizeof(note));
		id = name + padded(note.n_namesz);
		end = id + padded(note.n_descsz);
		if (end > size)
			return;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    !memcmp(notes + name, "GNU", 4))
			take_note(elf, notes + id, note.n_descsz);
		at = end;
	}
}

static void take_segment(struct reader *r, const Elf64_Phdr *segment)
{
	struct check_elf *elf = r->elf;
	u8 *notes;

	if (segment->p_type == PT_NOTE && segment->p_filesz <= NOTE_MOST && !*elf->id) {
		notes = load(r, segment->p_offset, segment->p_filesz);
		if (notes)
			find_id(elf, notes, segment->p_filesz);
		free(notes);
	}
	if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) &&
	    segment->p_offset < r->size && segment->p_filesz <= r->size - segment->p_offset &&
	    elf->segments < ELF_SEGMENTS && charge(r, segment->p_filesz))
		elf->segment[elf->segments++] =
			(struct check_segment){ segment->p_offset, segment->p_filesz,
						segment->p_vaddr };
}

static bool take_segments(struct reader *r)
{
	Elf64_Phdr segment;

	for (u32 i = 0; i < r->header.e_phnum; i++) {
		if (!read_at(r, r->header.e_phoff + i * sizeof(segment), &segment, sizeof(segment)))
			return false;
		take_segment(r, &segment);
	}
	return r->elf->segments;
}

/* For a file without a build id: of the code. */
static void hash_code(struct check_elf *elf)
{
	u64 hash = PROFILE_SEED;
	u8 bytes[PAGE_SIZE];

	for (u32 i = 0; i < elf->segments; i++) {
		const struct check_segment *s = &elf->segment[i];

		for (u64 at = 0; at < s->size; at += sizeof(bytes)) {
			u64 left = s->size - at;

			memset(bytes, 0, sizeof(bytes));
			if (pread(elf->fd, bytes, left < sizeof(bytes) ? left : sizeof(bytes),
				  s->offset + at) < 0)
				return;
			hash = profile_hash(hash, bytes, sizeof(bytes));
		}
	}
	snprintf(elf->id, sizeof(elf->id), "hash %016llx", (unsigned long long)hash);
}

/* --- symbols --- */

static bool read_section(const struct reader *r, u32 index, Elf64_Shdr *section)
{
	return index < r->header.e_shnum &&
	       read_at(r, r->header.e_shoff + (u64)index * sizeof(*section), section,
		       sizeof(*section));
}

static bool is_code(const struct check_elf *elf, u64 address)
{
	for (u32 i = 0; i < elf->segments; i++)
		if (address - elf->segment[i].address < elf->segment[i].size)
			return true;
	return false;
}

/* Functions before labels, global names before weak and local ones. */
static u32 rank_of(const Elf64_Sym *symbol)
{
	static const u32 binding[] = { [STB_LOCAL] = 2, [STB_GLOBAL] = 0, [STB_WEAK] = 1 };
	u32 bind = ELF64_ST_BIND(symbol->st_info), type = ELF64_ST_TYPE(symbol->st_info);

	return (type == STT_NOTYPE ? 4 : 0) + (bind <= STB_WEAK ? binding[bind] : 3);
}

static bool is_function(const struct check_elf *elf, const Elf64_Sym *symbol)
{
	u32 type = ELF64_ST_TYPE(symbol->st_info);

	return (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
	       symbol->st_shndx != SHN_UNDEF && is_code(elf, symbol->st_value);
}

/* A function without a size, as assembler has them, goes on to the next one or the end of its
 * section. */
static u64 size_of(const struct reader *r, const Elf64_Sym *symbol)
{
	Elf64_Shdr section;

	if (symbol->st_size || !read_section(r, symbol->st_shndx, &section))
		return symbol->st_size;
	return section.sh_addr + section.sh_size - symbol->st_value;
}

static int by_address(const void *a, const void *b)
{
	const struct check_symbol *left = a, *right = b;

	if (left->address != right->address)
		return left->address < right->address ? -1 : 1;
	if (left->rank != right->rank)
		return left->rank < right->rank ? -1 : 1;
	return strcmp(left->name, right->name);
}

static void keep_one_an_address(struct check_elf *elf)
{
	u32 n = 0;

	for (u32 i = 0; i < elf->symbols; i++)
		if (!n || elf->symbol[n - 1].address != elf->symbol[i].address)
			elf->symbol[n++] = elf->symbol[i];
	elf->symbols = n;
}

static bool take_symbols(struct reader *r, const Elf64_Shdr *table, const Elf64_Shdr *strings)
{
	struct check_elf *elf = r->elf;
	u64 most = table->sh_size / sizeof(Elf64_Sym);
	Elf64_Sym *from = load(r, table->sh_offset, table->sh_size);

	elf->strings = load(r, strings->sh_offset, strings->sh_size);
	elf->symbol = from && elf->strings ? calloc(most + 1, sizeof(*elf->symbol)) : NULL;
	for (u64 i = 0; elf->symbol && i < most; i++)
		if (from[i].st_name < strings->sh_size && elf->strings[from[i].st_name] &&
		    is_function(elf, &from[i]))
			elf->symbol[elf->symbols++] =
				(struct check_symbol){ from[i].st_value, size_of(r, &from[i]),
						       elf->strings + from[i].st_name,
						       rank_of(&from[i]) };
	free(from);
	if (!elf->symbols) {
		free(elf->symbol);
		free(elf->strings);
		elf->symbol = NULL;
		elf->strings = NULL;
		return false;
	}
	qsort(elf->symbol, elf->symbols, sizeof(*elf->symbol), by_address);
	keep_one_an_address(elf);
	return true;
}

/* The symbols of this kind of table; false: it has none. */
static bool find_symbols(struct reader *r, u32 type)
{
	Elf64_Shdr table, strings;

	for (u32 i = 0; i < r->header.e_shnum; i++)
		if (read_section(r, i, &table) && table.sh_type == type &&
		    read_section(r, table.sh_link, &strings) && strings.sh_type == SHT_STRTAB)
			return take_symbols(r, &table, &strings);
	return false;
}

/* --- files --- */

static bool is_elf(const Elf64_Ehdr *header)
{
	return !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
	       header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_machine == EM_X86_64 &&
	       header->e_phentsize == sizeof(Elf64_Phdr);
}

static bool read_elf(struct reader *r)
{
	if (!read_at(r, 0, &r->header, sizeof(r->header)) || !is_elf(&r->header) ||
	    !take_segments(r))
		return false;
	if (r->header.e_shentsize == sizeof(Elf64_Shdr) && !find_symbols(r, SHT_SYMTAB))
		find_symbols(r, SHT_DYNSYM); /* a stripped file has no others */
	if (*r->left && !*r->elf->id)
		hash_code(r->elf);
	return *r->left;
}

/* A profile can name any path, and to open a device may have effects: its type is known first. */
static int open_regular(const char *path, struct stat *st)
{
	int named = open(path, O_PATH | O_CLOEXEC), fd = -1;
	char link[32];

	if (named < 0)
		return -1;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", named);
	if (!fstat(named, st) && S_ISREG(st->st_mode))
		fd = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	close(named);
	return fd;
}

bool elf_open(struct check_elf *elf, const char *path, u64 *left)
{
	struct reader r = { .elf = elf, .left = left };
	struct stat st;

	*elf = (struct check_elf){ .fd = open_regular(path, &st) };
	if (elf->fd < 0)
		return false;
	elf->device = st.st_dev;
	elf->inode = st.st_ino;
	r.size = st.st_size;
	if (read_elf(&r))
		return true;
	elf_close(elf);
	return false;
}

void elf_close_file(struct check_elf *elf)
{
	if (elf->fd >= 0)
		close(elf->fd);
	elf->fd = -1;
}

void elf_close(struct check_elf *elf)
{
	elf_close_file(elf);
	free(elf->symbol);
	free(elf->strings);
	*elf = (struct check_elf){ .fd = -1 };
}

static bool address_of(const struct check_elf *elf, u64 offset, u64 *address)
{
	for (u32 i = 0; i < elf->segments; i++) {
		const struct check_segment *s = &elf->segment[i];

		if (offset - s->offset < s->size) {
			*address = s->address + (offset - s->offset);
			return true;
		}
	}
	return false;
}

const char *elf_symbol(const struct check_elf *elf, u64 offset)
{
	u32 low = 0, high = elf->symbols;
	const struct check_symbol *symbol;
	u64 address;

	if (!address_of(elf, offset, &address))
		return NULL;
	while (low < high) { /* to the first that begins later */
		u32 middle = low + (high - low) / 2;

		if (elf->symbol[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return NULL;
	symbol = &elf->symbol[low - 1];
	return address - symbol->address < symbol->size ? symbol->name : NULL;
}
