// SPDX-License-Identifier: MIT
/*
 * The code of an ELF file: section .text, a function or a range of addresses. The file is input
 * that may be damaged: every offset is checked against its size.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/cost/cost.h"

struct elf {
	const char *name;
	const u8 *file;
	size_t size;
	Elf64_Ehdr header;
};

static bool inside(const struct elf *elf, u64 offset, u64 size)
{
	return offset <= elf->size && size <= elf->size - offset;
}

static bool read_section(const struct elf *elf, u32 index, Elf64_Shdr *section)
{
	u64 at = elf->header.e_shoff + (u64)index * sizeof(*section);

	if (index >= elf->header.e_shnum || !inside(elf, at, sizeof(*section)))
		return false;
	memcpy(section, elf->file + at, sizeof(*section));
	return section->sh_type == SHT_NOBITS || inside(elf, section->sh_offset, section->sh_size);
}

/* A string of a string table; "" where there is none. */
static const char *string_at(const struct elf *elf, const Elf64_Shdr *table, u32 offset)
{
	const char *text = (const char *)elf->file + table->sh_offset;

	if (table->sh_type != SHT_STRTAB || offset >= table->sh_size ||
	    !memchr(text + offset, 0, table->sh_size - offset))
		return "";
	return text + offset;
}

static bool find_text(const struct elf *elf, Elf64_Shdr *section)
{
	Elf64_Shdr names;

	if (!read_section(elf, elf->header.e_shstrndx, &names))
		return false;
	for (u32 i = 0; i < elf->header.e_shnum; i++)
		if (read_section(elf, i, section) && section->sh_type == SHT_PROGBITS &&
		    !strcmp(string_at(elf, &names, section->sh_name), ".text"))
			return true;
	return false;
}

/* A section of code that has the addresses: in an object, .text. */
static bool find_code(const struct elf *elf, u64 begin, u64 size, Elf64_Shdr *section)
{
	for (u32 i = 0; i < elf->header.e_shnum; i++)
		if (read_section(elf, i, section) && section->sh_type == SHT_PROGBITS &&
		    section->sh_flags & SHF_EXECINSTR && begin >= section->sh_addr &&
		    begin - section->sh_addr <= section->sh_size &&
		    size <= section->sh_size - (begin - section->sh_addr))
			return true;
	return false;
}

static bool find_in_table(const struct elf *elf, const Elf64_Shdr *table, const char *wanted,
			  Elf64_Sym *symbol)
{
	Elf64_Shdr strings;

	if (!read_section(elf, table->sh_link, &strings))
		return false;
	for (u64 at = 0; at + sizeof(*symbol) <= table->sh_size; at += sizeof(*symbol)) {
		memcpy(symbol, elf->file + table->sh_offset + at, sizeof(*symbol));
		if (symbol->st_shndx != SHN_UNDEF &&
		    !strcmp(string_at(elf, &strings, symbol->st_name), wanted))
			return true;
	}
	return false;
}

static bool find_symbol(const struct elf *elf, const char *wanted, Elf64_Sym *symbol)
{
	Elf64_Shdr table;

	for (u32 i = 0; i < elf->header.e_shnum; i++)
		if (read_section(elf, i, &table) &&
		    (table.sh_type == SHT_SYMTAB || table.sh_type == SHT_DYNSYM) &&
		    find_in_table(elf, &table, wanted, symbol))
			return true;
	return false;
}

static int take(const struct elf *elf, const Elf64_Shdr *section, u64 begin, u64 size,
		struct cost_code *code)
{
	if (!size)
		return failure(STATUS_BROKEN, "%s: there is no code there", elf->name);
	*code = (struct cost_code){ malloc(size), size, begin, true };
	if (!code->bytes)
		return out_of_memory();
	memcpy(code->bytes, elf->file + section->sh_offset + (begin - section->sh_addr), size);
	return STATUS_OK;
}

/* In an object symbols are offsets in their section, in other files addresses. */
static int take_symbol(const struct elf *elf, const char *wanted, struct cost_code *code)
{
	Elf64_Shdr section;
	Elf64_Sym symbol;
	u64 begin;

	if (!find_symbol(elf, wanted, &symbol))
		return failure(STATUS_BROKEN, "%s has no symbol '%s'", elf->name, wanted);
	if (!read_section(elf, symbol.st_shndx, &section) || section.sh_type != SHT_PROGBITS)
		return failure(STATUS_BROKEN, "%s: '%s' is not in a section of code", elf->name,
			       wanted);
	begin = symbol.st_value + (elf->header.e_type == ET_REL ? section.sh_addr : 0);
	if (begin < section.sh_addr || begin - section.sh_addr > section.sh_size)
		return failure(STATUS_BROKEN, "%s: '%s' lies outside of its section", elf->name,
			       wanted);
	if (!symbol.st_size || symbol.st_size > section.sh_size - (begin - section.sh_addr))
		symbol.st_size = section.sh_size - (begin - section.sh_addr);
	return take(elf, &section, begin, symbol.st_size, code);
}

static bool parse_range(const char *text, u64 *begin, u64 *end)
{
	char *rest;

	errno = 0;
	*begin = strtoull(text, &rest, 0);
	if (rest == text || *rest != '-')
		return false;
	text = rest + 1;
	*end = strtoull(text, &rest, 0);
	return rest != text && !*rest && !errno && *begin < *end;
}

static int take_range(const struct elf *elf, const char *text, struct cost_code *code)
{
	Elf64_Shdr section;
	u64 begin, end;

	if (!parse_range(text, &begin, &end))
		return failure(STATUS_USAGE, "'%s' is not a range of addresses such as 0x40-0x80",
			       text);
	if (!find_code(elf, begin, end - begin, &section))
		return failure(STATUS_BROKEN, "%s has no code from %#llx to %#llx", elf->name,
			       (unsigned long long)begin, (unsigned long long)end);
	return take(elf, &section, begin, end - begin, code);
}

int cost_read_elf(const struct cost_options *options, const char *name, const u8 *file, size_t size,
		  struct cost_code *code)
{
	struct elf elf = { .name = name, .file = file, .size = size };
	Elf64_Shdr text;

	if (size < sizeof(elf.header))
		return failure(STATUS_BROKEN, "%s is not a whole ELF file", name);
	memcpy(&elf.header, file, sizeof(elf.header));
	if (elf.header.e_ident[EI_CLASS] != ELFCLASS64 || elf.header.e_machine != EM_X86_64 ||
	    elf.header.e_shentsize != sizeof(Elf64_Shdr))
		return failure(STATUS_BROKEN, "%s is not an ELF file for x86-64", name);
	if (options->symbol)
		return take_symbol(&elf, options->symbol, code);
	if (options->range)
		return take_range(&elf, options->range, code);
	if (!find_text(&elf, &text))
		return failure(STATUS_BROKEN, "%s has no section .text", name);
	return take(&elf, &text, text.sh_addr, text.sh_size, code);
}
