// SPDX-License-Identifier: MIT
/*
 * Zones of port and memory space whose writes do not exit: coalesced into a ring that the program
 * empties later (api.rst 4.116), or turned into a tick of an eventfd (api.rst 4.59), of which
 * vm/time/device_wait.h is told. The table is an immutable snapshot: any thread replaces it under
 * vm->slots_lock, vCPU threads read it inside a section.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/event_file.h"
#include "base/log.h"
#include "vm/io.h"
#include "vm/vm.h"

#define MAX_ZONES 1000 /* coalescing ones of a bus (KVM: NR_IOBUS_DEVS) */
#define RING_ENTRIES \
	((PAGE_SIZE - sizeof(struct kvm_coalesced_mmio_ring)) / sizeof(struct kvm_coalesced_mmio))

struct io_zone {
	bool pio;
	u64 addr;
	u64 len; /* 0: an ioeventfd for a write of any size */
	bool eventfd, match_data;
	u64 data;
	int fd; /* one of vm->zone_files: the program may close its own */
	int user_fd;
	bool blocks; /* the program opened it without EFD_NONBLOCK */
};

/* ioeventfds come first, in the order of event_order(): a device may have thousands. Coalescing
 * zones follow in the order of their creation. */
struct io_zones {
	u32 n, nevents;
	struct io_zone zone[];
};

static u32 count(const struct vm *vm)
{
	return vm->zones ? vm->zones->n : 0;
}

static int compare(u64 a, u64 b)
{
	return a < b ? -1 : a > b;
}

/* By what a write is: of those at one address, the ones that match no data come first. */
static int event_order(const struct io_zone *a, const struct io_zone *b)
{
	int r = compare(a->pio, b->pio);

	r = r ? r : compare(a->addr, b->addr);
	r = r ? r : compare(a->match_data, b->match_data);
	return r ? r : compare(a->data, b->data);
}

/* Where the first ioeventfd is that does not come before `key`. */
static u32 first_event(const struct io_zones *zones, const struct io_zone *key)
{
	u32 low = 0, high = zones ? zones->nevents : 0;

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (event_order(&zones->zone[middle], key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void append(struct io_zones *zones, const struct io_zone *zone)
{
	zones->zone[zones->n++] = *zone;
	zones->nevents += zone->eventfd;
}

/* Publishes a table with `skip` (if any) left out and `add` (if any) put in. Slots lock held. */
static int replace(struct vm *vm, const struct io_zone *skip, const struct io_zone *add)
{
	const struct io_zones *old = vm->zones;
	u32 n = count(vm), place = add && add->eventfd ? first_event(old, add) : n;
	struct io_zones *new = malloc(sizeof(*new) + (n + 1) * sizeof(new->zone[0]));

	if (!new)
		return -ENOMEM;
	new->n = new->nevents = 0;
	for (u32 i = 0; i <= n; i++) {
		if (add && i == place)
			append(new, add);
		if (i < n && &old->zone[i] != skip)
			append(new, &old->zone[i]);
	}
	__atomic_store_n(&vm->zones, new, __ATOMIC_SEQ_CST);
	vm_synchronize(vm);
	free((void *)old);
	return 0;
}

/* KVM: ioeventfds do not count, and each bus counts by itself. A full one takes neither kind. */
static bool is_full(const struct vm *vm, bool pio)
{
	u32 n = 0;

	for (u32 i = vm->zones ? vm->zones->nevents : 0; i < count(vm); i++)
		n += vm->zones->zone[i].pio == pio;
	return n >= MAX_ZONES;
}

static bool contains(const struct io_zone *z, u64 addr, u64 len)
{
	return addr >= z->addr && addr + len >= addr && addr + len <= z->addr + z->len;
}

int vm_register_coalesced(struct vm *vm, const struct kvm_coalesced_mmio_zone *zone)
{
	struct io_zone add = { .pio = zone->pio, .addr = zone->addr, .len = zone->size, .fd = -1 };
	int r = -ENOSPC;

	if (zone->pio > 1)
		return -EINVAL;
	pthread_mutex_lock(&vm->slots_lock);
	if (!is_full(vm, add.pio))
		r = replace(vm, NULL, &add);
	pthread_mutex_unlock(&vm->slots_lock);
	return r;
}

static const struct io_zone *find_coalesced(struct vm *vm,
					    const struct kvm_coalesced_mmio_zone *zone)
{
	for (u32 i = 0; i < count(vm); i++) {
		const struct io_zone *z = &vm->zones->zone[i];

		if (!z->eventfd && z->pio == zone->pio && contains(z, zone->addr, zone->size))
			return z;
	}
	return NULL;
}

int vm_unregister_coalesced(struct vm *vm, const struct kvm_coalesced_mmio_zone *zone)
{
	const struct io_zone *z;
	int r = 0;

	if (zone->pio > 1)
		return -EINVAL;
	pthread_mutex_lock(&vm->slots_lock);
	while (!r && (z = find_coalesced(vm, zone)))
		r = replace(vm, z, NULL);
	pthread_mutex_unlock(&vm->slots_lock);
	return r;
}

/*
 * Without /proc: in a chroot, say. An eventfd is an anonymous inode, which has no type, and one
 * that can be written to: for a buffer of nobody that is EFAULT, for timers, epoll sets and others
 * EINVAL. (Files of BPF and fanotify look the same. Linux asks for nothing else.)
 */
static bool looks_like_eventfd(int fd)
{
	void *nowhere = (void *)-PAGE_SIZE;
	struct stat st;

	if (fstat(fd, &st) || (st.st_mode & S_IFMT))
		return false;
	return syscall(SYS_write, fd, nowhere, sizeof(u64)) < 0 && errno == EFAULT;
}

static bool is_eventfd(int fd)
{
	static const char wanted[] = "anon_inode:[eventfd]";
	char path[32], target[sizeof(wanted)];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target));
	if (n < 0)
		return looks_like_eventfd(fd);
	return n == (ssize_t)sizeof(wanted) - 1 && !memcmp(target, wanted, sizeof(wanted) - 1);
}

int io_eventfd_sane(int fd)
{
	if (fcntl(fd, F_GETFD) < 0)
		return -EBADF;
	return is_eventfd(fd) ? 0 : -EINVAL;
}

/* KVM: kvm_assign_ioeventfd(). */
static int eventfd_sane(const struct kvm_ioeventfd *args)
{
	u32 known =
		KVM_IOEVENTFD_FLAG_DATAMATCH | KVM_IOEVENTFD_FLAG_PIO | KVM_IOEVENTFD_FLAG_DEASSIGN;

	if (args->flags & ~known)
		return -EINVAL;
	if (args->len > 8 || (args->len & (args->len - 1)))
		return -EINVAL;
	if (args->addr + args->len < args->addr)
		return -EINVAL;
	if (!args->len && args->flags & KVM_IOEVENTFD_FLAG_DATAMATCH)
		return -EINVAL;
	return io_eventfd_sane(args->fd);
}

static bool same_place(const struct io_zone *z, const struct kvm_ioeventfd *args)
{
	bool match = args->flags & KVM_IOEVENTFD_FLAG_DATAMATCH;

	return z->eventfd && z->pio == !!(args->flags & KVM_IOEVENTFD_FLAG_PIO) &&
	       z->addr == args->addr && z->len == args->len && z->match_data == match &&
	       (!match || z->data == args->datamatch);
}

/* Two eventfds on one write are refused unless both look at its data. */
static bool collides(const struct io_zone *z, const struct kvm_ioeventfd *args)
{
	bool match = args->flags & KVM_IOEVENTFD_FLAG_DATAMATCH;

	if (!z->eventfd || z->pio != !!(args->flags & KVM_IOEVENTFD_FLAG_PIO) ||
	    z->addr != args->addr)
		return false;
	if (z->len && args->len && z->len != args->len)
		return false;
	return !z->match_data || !match || z->data == args->datamatch;
}

static bool is_signalled(int fd)
{
	struct pollfd wait = { fd, POLLIN, 0 };

	return poll(&wait, 1, 0) > 0;
}

static int eventfd_assign(struct vm *vm, const struct kvm_ioeventfd *args)
{
	struct io_zone add = {
		.pio = args->flags & KVM_IOEVENTFD_FLAG_PIO,
		.addr = args->addr,
		.len = args->len,
		.eventfd = true,
		.match_data = args->flags & KVM_IOEVENTFD_FLAG_DATAMATCH,
		.data = args->flags & KVM_IOEVENTFD_FLAG_DATAMATCH ? args->datamatch : 0,
		.user_fd = args->fd,
	};
	int r;

	for (u32 i = 0; i < count(vm); i++)
		if (collides(&vm->zones->zone[i], args))
			return -EEXIST;
	if (is_full(vm, add.pio))
		return -ENOSPC;
	add.fd = fcntl(args->fd, F_DUPFD_CLOEXEC, 0);
	if (add.fd < 0)
		return -errno;
	add.blocks = event_file_blocks(add.fd);
	r = own_files_add(&vm->zone_files, add.fd);
	if (r) {
		close(add.fd);
		return r;
	}
	r = replace(vm, NULL, &add);
	if (r)
		own_files_close(&vm->zone_files, add.fd);
	else if (is_signalled(add.fd))
		outside_kicked(vm);
	return r;
}

static int eventfd_deassign(struct vm *vm, const struct kvm_ioeventfd *args)
{
	for (u32 i = 0; i < count(vm); i++) {
		const struct io_zone *z = &vm->zones->zone[i];
		int fd = z->fd, r;

		if (!same_place(z, args) || !event_file_same(fd, args->fd, z->user_fd == args->fd))
			continue;
		r = replace(vm, z, NULL);
		if (!r)
			own_files_close(&vm->zone_files, fd);
		return r;
	}
	return -ENOENT;
}

int vm_ioeventfd(struct vm *vm, const struct kvm_ioeventfd *args)
{
	int r = eventfd_sane(args);

	if (r)
		return r;
	pthread_mutex_lock(&vm->slots_lock);
	r = args->flags & KVM_IOEVENTFD_FLAG_DEASSIGN ? eventfd_deassign(vm, args)
						      : eventfd_assign(vm, args);
	pthread_mutex_unlock(&vm->slots_lock);
	return r;
}

void io_zones_destroy(struct vm *vm)
{
	for (u32 i = 0; i < count(vm); i++)
		if (vm->zones->zone[i].eventfd)
			own_files_close(&vm->zone_files, vm->zones->zone[i].fd);
	free((void *)vm->zones);
}

/* The ioeventfd of a write, or NULL: there is one at most (collides()). */
static const struct io_zone *find_event(const struct io_zones *zones, bool pio, u64 addr, u32 len,
					u64 data)
{
	struct io_zone key = { .pio = pio, .addr = addr };

	for (u32 match = 0; match < 2; match++) {
		key.match_data = match;
		key.data = match ? data : 0;
		for (u32 i = first_event(zones, &key); i < zones->nevents; i++) {
			const struct io_zone *z = &zones->zone[i];

			if (event_order(z, &key))
				break;
			if (!z->len || z->len == len)
				return z;
		}
	}
	return NULL;
}

static void tick(struct vm *vm, const struct io_zone *z)
{
	outside_show_date(vm);
	if (own_files_has(&vm->zone_files, z->fd))
		event_file_signal(z->fd, z->blocks);
	else
		log_once(LOG_ERROR, "the program has closed descriptors of its VM: ioeventfds are "
				    "no longer signalled");
	outside_kicked(vm);
}

bool zones_unread(struct vm *vm)
{
	bool unread = false;

	pthread_mutex_lock(&vm->slots_lock);
	for (u32 i = 0; i < count(vm) && !unread; i++)
		unread = vm->zones->zone[i].eventfd && is_signalled(vm->zones->zone[i].fd);
	pthread_mutex_unlock(&vm->slots_lock);
	return unread;
}

/*
 * The ring is one per VM. The kernel maps one page into every vCPU's file; here each file has its
 * own, and the ring is the one of the vCPU that was created first, which is the one programs read.
 */
static bool coalesce(struct vm *vm, const struct io_zone *z, u64 addr, u32 len, const void *data)
{
	struct kvm_coalesced_mmio_ring *ring = vm->vcpus[0]->ring;
	struct kvm_coalesced_mmio *entry;
	u32 last, next;
	bool room;

	if (!contains(z, addr, len))
		return false;
	pthread_mutex_lock(&vm->ring_lock);
	last = READ_ONCE(ring->last);
	next = (last + 1) % RING_ENTRIES;
	room = last < RING_ENTRIES && next != READ_ONCE(ring->first);
	if (room) {
		entry = &ring->coalesced_mmio[last];
		entry->phys_addr = addr;
		entry->len = len;
		memcpy(entry->data, data, len);
		entry->pio = z->pio;
		__atomic_store_n(&ring->last, next, __ATOMIC_RELEASE);
		vm->stats.coalesced_writes++;
	}
	pthread_mutex_unlock(&vm->ring_lock);
	return room;
}

bool zones_write(struct vm *vm, bool pio, u64 addr, u32 len, const void *data)
{
	const struct io_zones *zones = __atomic_load_n(&vm->zones, __ATOMIC_SEQ_CST);
	const struct io_zone *z;
	u64 value = 0;

	if (!zones)
		return false;
	memcpy(&value, data, len < sizeof(value) ? len : sizeof(value));
	z = find_event(zones, pio, addr, len, value);
	if (z) {
		tick(vm, z);
		return true;
	}
	for (u32 i = zones->nevents; i < zones->n; i++)
		if (zones->zone[i].pio == pio && coalesce(vm, &zones->zone[i], addr, len, data))
			return true;
	return false;
}
