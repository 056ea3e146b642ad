// SPDX-License-Identifier: MIT
/*
 * The device with the host's files, in a machine that is saved. QEMU saves no machine with a device
 * that another process serves. So the machine is saved without it, and nobody but this process
 * knows: Linux has found the device, its driver has set it up and its file system is mounted. Then
 * the registers that the driver has written are read, and the device's slot is switched off, upon
 * which QEMU unplugs the device. When the machine has been resumed, with a new device in the slot,
 * the slot is switched on and the registers are written back, in the order of virtio 1.2, section
 * 3.1. The rings are in memory, which is saved; the server of the files goes on where the used ring
 * ends (exec/share/vhost_user.c). To set a device up again as Linux does takes a hundred times as
 * much code, all of which a guest that has just been resumed executes for the first time.
 *
 * Invariants: no request is under way while the device is away, and Linux knows no node of the file
 * system but the root, of which it believes nothing without asking: the server that answers after
 * the machine was resumed is not the one that answered before.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/guest/guest.h"

#define DEVICES	   "/sys/bus/pci/devices"
#define BRIDGE	   0x060400
#define MAX_QUEUES 8
#define MAX_VECTOR 16
#define BARS	   6
#define NAME_ROOM  64 /* for names in DEVICES */

struct queue_registers {
	u16 size, vector, enabled;
	u32 address[6]; /* of descriptors, driver's and device's ring: lower halves first */
};

static struct {
	bool is_known;	      /* all below is valid */
	int port, device;     /* configuration space, -1: there is none */
	char name[NAME_ROOM]; /* of the device's folder in sysfs */
	u32 bar[BARS];
	u16 command, message_control;
	u32 slot, messages;  /* offsets in the configuration spaces: slot control, MSI-X */
	volatile u32 *table; /* of MSI-X, four words a vector */
	u32 vector[MAX_VECTOR][4], vectors;
	volatile struct virtio_pci_common_cfg *common;
	u32 feature[2];
	u16 config_vector;
	u8 status;
	struct queue_registers queue[MAX_QUEUES];
	u32 queues;
} parked = { .port = -1, .device = -1 };

/* The kernel makes what it does not know of its command line our environment. */
bool parked_is_wanted(void)
{
	return getenv("vpmu_park");
}

/* --- configuration space --- */

static u32 read_config(int fd, u32 offset, u32 size)
{
	u32 value = 0;

	return pread(fd, &value, size, offset) == (ssize_t)size ? value : 0;
}

static bool write_config(int fd, u32 offset, u32 value, u32 size)
{
	return pwrite(fd, &value, size, offset) == (ssize_t)size;
}

/* The next capability of a kind after another one; 0: there is none. */
static u32 find_capability(int fd, u32 kind, u32 after)
{
	u32 at = read_config(fd, after ? after + PCI_CAP_LIST_NEXT : PCI_CAPABILITY_LIST, 1);

	for (u32 steps = 0; at && steps < 48; steps++) {
		if (read_config(fd, at, 1) == kind)
			return at;
		at = read_config(fd, at + PCI_CAP_LIST_NEXT, 1);
	}
	return 0;
}

static u32 find_virtio(int fd, u32 kind)
{
	u32 at = 0;

	do
		at = find_capability(fd, PCI_CAP_ID_VNDR, at);
	while (at && read_config(fd, at + offsetof(struct virtio_pci_cap, cfg_type), 1) != kind);
	return at;
}

/* --- where the device is --- */

static int is_address(const struct dirent *entry)
{
	return strlen(entry->d_name) == 12 && entry->d_name[4] == ':';
}

static u32 read_number(const char *folder, const char *file)
{
	char path[2 * NAME_ROOM];
	unsigned number = 0;
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	in = fopen(path, "re");
	if (in && fscanf(in, "%x", &number) != 1)
		number = 0;
	if (in)
		fclose(in);
	return number;
}

static int open_config(const char *folder)
{
	char path[2 * NAME_ROOM];

	snprintf(path, sizeof(path), "%s/config", folder);
	return open(path, O_RDWR | O_CLOEXEC);
}

static void put_name(char name[NAME_ROOM], const struct dirent *entry)
{
	snprintf(name, NAME_ROOM, DEVICES "/%.12s", entry->d_name);
}

/* The machine has one port, and one device in it. */
static bool find_device(void)
{
	struct dirent **entry;
	int count = scandir(DEVICES, &entry, is_address, alphasort);
	char port[NAME_ROOM] = "";

	for (int i = 0; i < count && !*port; i++) {
		put_name(port, entry[i]);
		if (read_number(port, "class") != BRIDGE)
			*port = '\0';
	}
	parked.port = *port ? open_config(port) : -1;
	if (parked.port < 0)
		return false;
	parked.slot = find_capability(parked.port, PCI_CAP_ID_EXP, 0) + PCI_EXP_SLTCTL;
	if (scandir(port, &entry, is_address, alphasort) < 1)
		return false;
	put_name(parked.name, entry[0]);
	parked.device = open_config(parked.name);
	return parked.device >= 0;
}

/* Bytes of the device's memory, NULL if they cannot be mapped. */
static volatile void *map_bar(u32 bar, u32 offset, u32 size)
{
	char path[2 * NAME_ROOM];
	void *map = MAP_FAILED;
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/resource%u", parked.name, bar);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st) && (u64)offset + size <= (u64)st.st_size)
		map = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return map == MAP_FAILED ? NULL : (volatile u8 *)map + offset;
}

static bool map_registers(void)
{
	u32 at = find_virtio(parked.device, VIRTIO_PCI_CAP_COMMON_CFG), table;

	parked.messages = find_capability(parked.device, PCI_CAP_ID_MSIX, 0);
	if (!at || !parked.messages)
		return false;
	parked.common =
		map_bar(read_config(parked.device, at + offsetof(struct virtio_pci_cap, bar), 1),
			read_config(parked.device, at + offsetof(struct virtio_pci_cap, offset), 4),
			sizeof(*parked.common));
	parked.message_control = read_config(parked.device, parked.messages + PCI_MSIX_FLAGS, 2);
	parked.vectors = (parked.message_control & PCI_MSIX_FLAGS_QSIZE) + 1;
	if (parked.vectors > MAX_VECTOR)
		return false;
	table = read_config(parked.device, parked.messages + PCI_MSIX_TABLE, 4);
	parked.table = map_bar(table & PCI_MSIX_TABLE_BIR, table & PCI_MSIX_TABLE_OFFSET,
			       parked.vectors * sizeof(parked.vector[0]));
	return parked.common && parked.table;
}

/* --- before the machine is saved --- */

static void read_queue(u32 index, struct queue_registers *queue)
{
	volatile struct virtio_pci_common_cfg *common = parked.common;
	volatile u32 *address = &common->queue_desc_lo;

	common->queue_select = index;
	queue->size = common->queue_size;
	queue->vector = common->queue_msix_vector;
	queue->enabled = common->queue_enable;
	for (u32 i = 0; i < ARRAY_SIZE(queue->address); i++)
		queue->address[i] = address[i];
}

static bool read_device(void)
{
	volatile struct virtio_pci_common_cfg *common = parked.common;

	parked.status = common->device_status;
	parked.queues = common->num_queues;
	if (!(parked.status & VIRTIO_CONFIG_S_DRIVER_OK) || parked.queues > MAX_QUEUES)
		return false;
	for (u32 i = 0; i < ARRAY_SIZE(parked.feature); i++) {
		common->guest_feature_select = i;
		parked.feature[i] = common->guest_feature;
	}
	parked.config_vector = common->msix_config;
	for (u32 i = 0; i < parked.queues; i++)
		read_queue(i, &parked.queue[i]);
	for (u32 i = 0; i < parked.vectors * 4; i++)
		parked.vector[i / 4][i % 4] = parked.table[i];
	for (u32 i = 0; i < BARS; i++)
		parked.bar[i] = read_config(parked.device, PCI_BASE_ADDRESS_0 + 4 * i, 4);
	parked.command = read_config(parked.device, PCI_COMMAND, 2);
	return true;
}

bool parked_read(void)
{
	parked.is_known = find_device() && map_registers() && read_device();
	return parked.is_known;
}

/* Linux forgets a device whose registers will not be written back. */
static void remove_device(void)
{
	char path[2 * NAME_ROOM];
	int fd;

	snprintf(path, sizeof(path), "%s/remove", parked.name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "1", 1) == 1)
		close(fd);
}

void parked_leave(bool returns)
{
	parked.is_known &= returns;
	if (parked.device >= 0 && !parked.is_known)
		remove_device();
	if (parked.port >= 0)
		write_config(parked.port, parked.slot,
			     PCI_EXP_SLTCTL_PWR_OFF | PCI_EXP_SLTCTL_PWR_IND_OFF, 2);
}

/* --- after it was resumed --- */

static void write_queue(u32 index, const struct queue_registers *queue)
{
	volatile struct virtio_pci_common_cfg *common = parked.common;
	volatile u32 *address = &common->queue_desc_lo;

	if (!queue->enabled)
		return;
	common->queue_select = index;
	common->queue_size = queue->size;
	common->queue_msix_vector = queue->vector;
	for (u32 i = 0; i < ARRAY_SIZE(queue->address); i++)
		address[i] = queue->address[i];
	common->queue_enable = queue->enabled;
}

static void write_function(void)
{
	for (u32 i = 0; i < BARS; i++)
		write_config(parked.device, PCI_BASE_ADDRESS_0 + 4 * i, parked.bar[i], 4);
	write_config(parked.device, PCI_COMMAND, parked.command, 2);
	for (u32 i = 0; i < parked.vectors * 4; i++)
		parked.table[i] = parked.vector[i / 4][i % 4];
	write_config(parked.device, parked.messages + PCI_MSIX_FLAGS, parked.message_control, 2);
}

static void write_device(void)
{
	volatile struct virtio_pci_common_cfg *common = parked.common;
	const u8 known = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER;

	common->device_status = known;
	for (u32 i = 0; i < ARRAY_SIZE(parked.feature); i++) {
		common->guest_feature_select = i;
		common->guest_feature = parked.feature[i];
	}
	common->device_status = known | VIRTIO_CONFIG_S_FEATURES_OK;
	common->msix_config = parked.config_vector;
	for (u32 i = 0; i < parked.queues; i++)
		write_queue(i, &parked.queue[i]);
	common->device_status = parked.status;
}

bool parked_return(void)
{
	if (parked.port >= 0)
		write_config(parked.port, parked.slot,
			     PCI_EXP_SLTCTL_PWR_ON | PCI_EXP_SLTCTL_PWR_IND_ON, 2);
	if (!parked.is_known)
		return false;
	write_function();
	write_device();
	return true;
}
