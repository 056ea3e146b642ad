// SPDX-License-Identifier: MIT
/*
 * A guest on virtual time that is to be the same in every run (docs/clock.md): nothing reaches it
 * when it happens to come. While it waits for the host its time stands still, and what it is given
 * and what it has to say are files of the share.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/guest/guest.h"
#include "exec/guest_files.h"

/* The kernel makes what it does not know of its command line our environment. */
bool fetch_is_wanted(void)
{
	const char *link = getenv("vpmu_link");

	return link && !strcmp(link, "files");
}

static void use_cpus(u32 number)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (u32 i = 0; i < number; i++)
		CPU_SET(i, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

void fetch_settle(void)
{
	use_cpus(1);
}

void fetch_begin(const struct wire *wire)
{
	fsync(wire->fd);
}

void fetch_wait(void)
{
	static bool permitted;

	if (!permitted && ioperm(LINK_PORT, 1, 1))
		exit(1); /* the kernel says so, and stops */
	permitted = true;
	outb(0, LINK_PORT);
}

static bool read_all(int fd, u8 *bytes, u32 size)
{
	ssize_t n = 1;

	for (u32 done = 0; done < size && n > 0; done += n)
		n = read(fd, bytes + done, size - done);
	return n > 0;
}

const char *fetch_order(struct wire *wire, struct order *order, u8 **body, u32 *size)
{
	int fd = root_open(LINK_ORDER, O_RDONLY), frames = root_open(LINK_FRAMES, O_WRONLY);
	struct stat st;

	order->input = root_open(LINK_INPUT, O_RDONLY);
	if (fd < 0 || frames < 0 || order->input < 0 || fstat(fd, &st))
		return "cannot open the files of the host's process";
	*size = st.st_size;
	*body = st.st_size <= WIRE_MAX_FRAME ? malloc(st.st_size) : NULL;
	if (!*body || !read_all(fd, *body, *size))
		return "cannot read the order";
	close(fd);
	use_cpus(CPU_SETSIZE);
	wire->fd = frames;
	wire->way = WIRE_OUT;
	return NULL;
}
