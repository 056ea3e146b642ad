// SPDX-License-Identifier: MIT
/*
 * The files of kept translations: see vm/kept.h. The thread that makes the VM.
 */
#include "vm/kept.h"

#include <Zydis/Zydis.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/inherited.h"
#include "base/kept.h"
#include "base/log.h"
#include "base/memfile.h"
#include "vm/vm.h"

/* --- which build --- */

static u64 padded(u64 n)
{
	return (n + 3) & ~3ull;
}

/* NT_GNU_BUILD_ID among the notes of a segment. */
static bool read_notes(const u8 *notes, u64 size, u64 build[2])
{
	while (size >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const void *)notes;
		const u8 *name = notes + sizeof(*note), *id = name + padded(note->n_namesz);
		u64 length = sizeof(*note) + padded(note->n_namesz) + padded(note->n_descsz);

		if (length > size)
			return false;
		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
		    !memcmp(name, "GNU", 4) && note->n_descsz >= 16) {
			memcpy(build, id, 16);
			return true;
		}
		notes += length;
		size -= length;
	}
	return false;
}

/* Of the object that this code is in. */
static int read_object(struct dl_phdr_info *info, size_t size, void *data)
{
	uintptr_t own = (uintptr_t)&read_object - info->dlpi_addr;
	bool is_ours = false, found = false;
	struct kept *kept = data;

	(void)size;
	for (u32 i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		is_ours |= p->p_type == PT_LOAD && own - p->p_vaddr < p->p_memsz;
	}
	for (u32 i = 0; is_ours && !found && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		found = p->p_type == PT_NOTE && read_notes((const u8 *)info->dlpi_addr + p->p_vaddr,
							   p->p_memsz, kept->build);
	}
	return found;
}

bool kept_build(struct kept *kept)
{
	bool found = dl_iterate_phdr(read_object, kept);

	kept->build[1] ^= ZydisGetVersion(); /* an object of its own */
	return found;
}

/* --- the files --- */

static void map_store(struct kept *kept, int fd)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (u64)st.st_size < KEPT_DATA_AT ||
	    (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY)
		return;
	map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return;
	kept->store = map;
	kept->store_size = st.st_size;
}

/*
 * VPMU_KEPT names both files as base/inherited.h says. A harness may have closed them and started
 * the program that makes this VM, whose disk image then has a number of theirs: a guest that writes
 * to it must not write host code. The files exist while their names are used: vpmu exec holds them
 * open until it has killed QEMU, and vpmu kvm leaves a process that does so until the program has
 * ended. A VMM that outlives both, without the descriptors, has names whose files may be gone. The
 * store's may be another file's then, of the same disk: one that is open to write is not taken.
 */
void kept_environment(struct vm *vm)
{
	int fds[2]; /* the store, the news */
	struct kept *kept = inherited_take("VPMU_KEPT", fds, 2) ? calloc(1, sizeof(*kept)) : NULL;

	if (!kept || !kept_build(kept)) {
		free(kept);
		return;
	}
	vm->kept = kept;
	if (fds[0] >= 0)
		map_store(kept, fds[0]);
	kept->news = fds[1] < 0 ? NULL : memfile_map(fds[1], KEPT_NEWS_SIZE);
	if (fds[1] >= 0 && !kept->news)
		log_warn("VPMU_KEPT: the file for new translations cannot be mapped");
}

void kept_destroy(struct vm *vm)
{
	struct kept *kept = vm->kept;

	if (!kept)
		return;
	if (kept->store)
		munmap((void *)kept->store, kept->store_size);
	if (kept->news)
		munmap(kept->news, KEPT_NEWS_SIZE);
	free(kept);
}
