/* SPDX-License-Identifier: MIT */
/*
 * What `vpmu check` wants to know of an ELF file: where its code is, the names of functions, its
 * build id. Files may be damaged or hostile.
 */
#ifndef CLI_CHECK_ELF_H
#define CLI_CHECK_ELF_H

#include "base/types.h"

#define ELF_SEGMENTS 16
#define ELF_ID_SIZE  72

struct check_segment {
	u64 offset, size, address;
};

struct check_symbol {
	u64 address, size;
	const char *name;
	u32 rank; /* of those at one address the lowest is the one to name */
};

struct check_elf {
	int fd;
	u64 device, inode;			    /* which file it is, whatever its name */
	struct check_segment segment[ELF_SEGMENTS]; /* with code */
	u32 segments;
	struct check_symbol *symbol; /* by address, one at each */
	u32 symbols;
	char *strings;
	char id[ELF_ID_SIZE]; /* the build id; of a file without one "hash " and one of its code */
};

/* False: it is no ELF file for x86-64 with code, and there is nothing to close. `left` is how many
 * bytes of files may be read: it is reduced by this file's code, symbols and headers, and becomes 0
 * if they are more than that, of which a sparse file can have any number. */
bool elf_open(struct check_elf *elf, const char *path, u64 *left);
void elf_close_file(struct check_elf *elf); /* what was read of it stays */
void elf_close(struct check_elf *elf);
/* The function at an offset of the file. NULL: none. */
const char *elf_symbol(const struct check_elf *elf, u64 offset);

#endif
