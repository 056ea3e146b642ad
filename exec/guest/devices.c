// SPDX-License-Identifier: MIT
/*
 * Drivers and devices: the kernel modules of the initramfs, the port to the host, and the PCI bus,
 * which is looked at again when a machine was resumed: the device with the host's files has come
 * since it was saved.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "exec/guest/guest.h"

#define MODULES "/modules"

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Their names begin with the order in which they depend on each other. Whether one is missing is
 * seen by what does not work then. */
void devices_load(void)
{
	struct dirent **entries;
	int count = scandir(MODULES, &entries, is_visible, alphasort);

	for (int i = 0; i < count; i++) {
		char path[300];
		int fd;

		snprintf(path, sizeof(path), MODULES "/%s", entries[i]->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		syscall(SYS_finit_module, fd, "", 0);
		close(fd);
	}
}

static int is_device(const struct dirent *entry)
{
	return !strncmp(entry->d_name, "virtio", 6);
}

/* Whether there will be a port: drivers find their devices while they are loaded. */
static bool has_ports(void)
{
	struct dirent **devices;

	return scandir("/sys/bus/virtio/drivers/virtio_console", &devices, is_device, NULL) > 0;
}

static int is_port(const struct dirent *entry)
{
	return !strncmp(entry->d_name, "vport", 5);
}

/* Its number depends on the order in which devices were found; there is only one. It appears some
 * time after its driver, can be opened some time after that, and is connected even later. */
int devices_open_port(void)
{
	const struct timespec pause = { .tv_nsec = 500000 };
	struct pollfd wait = { -1, POLLOUT, 0 };
	struct dirent **ports;
	char path[300];

	if (!has_ports())
		return -1;
	while (scandir("/dev", &ports, is_port, alphasort) < 1)
		nanosleep(&pause, NULL);
	snprintf(path, sizeof(path), "/dev/%s", ports[0]->d_name);
	while ((wait.fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0)
		nanosleep(&pause, NULL);
	while (poll(&wait, 1, -1) < 0 || wait.revents & POLLHUP)
		nanosleep(&pause, NULL);
	return wait.fd;
}

void devices_look_again(void)
{
	int fd = open("/sys/bus/pci/rescan", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "1", 1) == 1)
		close(fd);
}
