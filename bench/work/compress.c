// SPDX-License-Identifier: MIT
/*
 * zlib and xz, Debian's libraries, compress this program's own file (machine code, tables, text)
 * and unpack it again.
 */
#include <fcntl.h>
#include <lzma.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "bench/work/work.h"

#define DATA_SIZE  (256u << 10)
#define DATA_START (64u << 10) /* after the headers */
#define XZ_SIZE	   (64u << 10)
#define PACKED_MAX (DATA_SIZE + (16u << 10))
#define XZ_PRESET  1
#define XZ_MEMORY  (64ull << 20)

static uint8_t data[DATA_SIZE], packed[PACKED_MAX], unpacked[DATA_SIZE];

void compress_setup(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || pread(fd, data, DATA_SIZE, DATA_START) != DATA_SIZE)
		die("/proc/self/exe");
	close(fd);
}

uint64_t zlib_unit(void)
{
	uLongf size = sizeof(packed), back = sizeof(unpacked);

	if (compress2(packed, &size, data, DATA_SIZE, 6) != Z_OK ||
	    uncompress(unpacked, &back, packed, size) != Z_OK || back != DATA_SIZE ||
	    memcmp(unpacked, data, DATA_SIZE))
		die("zlib");
	return hash(hash_number(HASH_START, size), packed, size);
}

uint64_t xz_unit(void)
{
	size_t size = 0, from = 0, to = 0;
	uint64_t limit = XZ_MEMORY;

	if (lzma_easy_buffer_encode(XZ_PRESET, LZMA_CHECK_CRC64, NULL, data, XZ_SIZE, packed, &size,
				    sizeof(packed)) != LZMA_OK ||
	    lzma_stream_buffer_decode(&limit, 0, NULL, packed, &from, size, unpacked, &to,
				      sizeof(unpacked)) != LZMA_OK ||
	    to != XZ_SIZE || memcmp(unpacked, data, XZ_SIZE))
		die("xz");
	return hash(hash_number(HASH_START, size), packed, size);
}
