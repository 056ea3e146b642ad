// SPDX-License-Identifier: MIT
/*
 * The guest's first file system: /init and the modules that it loads, as a cpio archive
 * (Documentation/driver-api/early-userspace/buffer-format.rst in Linux) that exists in memory only.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfile.h"
#include "exec/exec.h"

static bool pad(FILE *out, u32 unit)
{
	while (ftell(out) % unit)
		if (fputc(0, out) == EOF)
			return false;
	return true;
}

static bool add_entry(FILE *out, const char *name, u32 mode, const void *bytes, u32 size)
{
	static u32 inode;

	fprintf(out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", ++inode, mode, 0,
		0, 1, 0, size, 0, 0, 0, 0, (u32)strlen(name) + 1, 0);
	return fwrite(name, 1, strlen(name) + 1, out) && pad(out, 4) &&
	       fwrite(bytes, 1, size, out) == size && pad(out, 4);
}

/* What a file has, or MAP_FAILED. */
static void *map_file(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *bytes = MAP_FAILED;
	struct stat st;

	if (fd < 0)
		return MAP_FAILED;
	if (!fstat(fd, &st)) {
		*size = st.st_size;
		errno = ENODATA;
		if (*size)
			bytes = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	close(fd);
	return bytes;
}

static bool add_file(FILE *out, const char *name, const char *path, char failed[PATH_MAX])
{
	size_t size;
	void *bytes = map_file(path, &size);
	bool ok;

	if (bytes == MAP_FAILED) {
		snprintf(failed, PATH_MAX, "%s", path);
		return false;
	}
	ok = add_entry(out, name, S_IFREG | 0755, bytes, size);
	munmap(bytes, size);
	return ok;
}

/* Modules whose name says "net" are for machines with a network only. */
static bool add_modules(FILE *out, const char *folder, bool network, char failed[PATH_MAX])
{
	struct dirent **entries;
	int count = scandir(folder, &entries, NULL, alphasort);
	char path[PATH_MAX + 256], name[256 + 16];
	bool ok = count >= 0 || errno == ENOENT; /* kernels may need none */

	if (!ok)
		snprintf(failed, PATH_MAX, "%s", folder);
	for (int i = 0; ok && i < count; i++) {
		const char *entry = entries[i]->d_name;

		if (entry[0] == '.' || (strstr(entry, "-net-") && !network))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry);
		snprintf(name, sizeof(name), "modules/%s", entry);
		ok = add_file(out, name, path, failed);
	}
	return ok;
}

static bool add_folder(FILE *out, const char *name)
{
	return add_entry(out, name, S_IFDIR | 0755, "", 0);
}

/* A stream that can be closed while the file stays open; NULL with errno. */
static FILE *open_copy(int fd)
{
	int copy = dup(fd);
	FILE *out = copy < 0 ? NULL : fdopen(copy, "w");

	if (copy >= 0 && !out)
		close(copy);
	return out;
}

/* Whole pages: QEMU 10 puts an archive to the end of a microvm's memory, where the last page has
 * the ACPI tables. It begins on a page, so that one of whole pages ends before that. */
int initramfs_make(const struct initramfs *initramfs, char failed[PATH_MAX])
{
	int fd = memfile_create("initramfs", MFD_CLOEXEC);
	FILE *out = fd < 0 ? NULL : open_copy(fd);
	bool ok = out && add_file(out, "init", initramfs->init, failed) &&
		  add_folder(out, "modules") &&
		  add_modules(out, initramfs->modules, initramfs->network, failed) &&
		  add_entry(out, "TRAILER!!!", 0, "", 0) && pad(out, PAGE_SIZE);

	int error = errno;

	if (out && fclose(out) && ok) {
		error = errno;
		ok = false;
	}
	if (ok)
		return fd;
	if (fd >= 0)
		close(fd);
	errno = error;
	return -1;
}
