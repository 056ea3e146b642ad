// SPDX-License-Identifier: MIT
/*
 * Sequences of ioctls on a VM with a guest that runs: requests with any contents on the system, the
 * VM and its vCPUs, changes of guest memory and of struct kvm_run, and KVM_RUNs. No request may
 *take the process down, touch what is after its contents or leave a descriptor open.
 *
 * Input: flags (enum busy_flag), then steps: a byte, of which
 *      0 to 199        the request of that number in kvm/ioctl.def: vCPU, then its contents, or
 *their size in a byte and contents if the request does not say their size 200 to 219	KVM_RUN:
 *vCPU 220 to 239	bytes of guest memory: address (3 bytes), size, bytes
 *      240 to 255      bytes of struct kvm_run: offset (2 bytes), size, bytes
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/must.h"
#include "fuzz/busy_guest.h"
#include "fuzz/fuzz.h"

#define MAX_STEPS 64
#define MAX_RUNS  8
#define NPAGES	  8 /* of the program, for contents and what they point to */

enum kind { KIND_SYSTEM, KIND_VM, KIND_VCPU };
enum travel { TRAVEL_ZERO, TRAVEL_VALUE, TRAVEL_IN, TRAVEL_OUT, TRAVEL_INOUT, TRAVEL_PTR };

static const struct request {
	u32 number;
	enum kind kind;
	enum travel travel;
} requests[] = {
#define IOCTL(kind, name, travel, handler) { name, KIND_##kind, TRAVEL_##travel },
#include "kvm/ioctl.def"
#undef IOCTL
};

static u8 *pages; /* NPAGES, then pages that cannot be accessed */
static struct kvm_guest guest;
static u32 runs;

void fuzz_set_up(void)
{
	busy_set_up();
	pages = mmap(NULL, 2 * NPAGES * PAGE_SIZE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(pages != MAP_FAILED &&
	     !mprotect(pages + NPAGES * PAGE_SIZE, NPAGES * PAGE_SIZE, PROT_NONE));
}

static int file_of(enum kind kind, u8 which)
{
	switch (kind) {
	case KIND_SYSTEM:
		return guest.kvm;
	case KIND_VM:
		return guest.vm;
	default:
		return guest.vcpu[which % guest.nvcpus];
	}
}

/* --- contents: what they point to is the program's to choose, and here never more than its pages
 * --- */

static void point_memory(u8 *arg)
{
	struct kvm_userspace_memory_region *region = (void *)arg;
	u64 page = region->userspace_addr % NPAGES;

	region->userspace_addr = (u64)(uintptr_t)(pages + page * PAGE_SIZE);
	region->memory_size = region->memory_size % (NPAGES - page + 1) * PAGE_SIZE;
}

static void point_filter(u8 *arg)
{
	struct kvm_msr_filter *filter = (void *)arg;

	for (u32 i = 0; i < ARRAY_SIZE(filter->ranges); i++)
		filter->ranges[i].bitmap = pages;
}

static void point_attr(u8 *arg)
{
	((struct kvm_device_attr *)arg)->addr = (u64)(uintptr_t)pages;
}

static void point_log(u8 *arg)
{
	((struct kvm_dirty_log *)arg)->dirty_bitmap = pages;
}

static void point_clear(u8 *arg)
{
	((struct kvm_clear_dirty_log *)arg)->dirty_bitmap = pages;
}

static int event_fd = -1;

static void point_irqfd(u8 *arg)
{
	((struct kvm_irqfd *)arg)->fd = event_fd;
}

static void point_ioeventfd(u8 *arg)
{
	((struct kvm_ioeventfd *)arg)->fd = event_fd;
}

/* KVM_RUN must end. */
static void unmask(u8 *arg)
{
	struct kvm_signal_mask *mask = (void *)arg;

	mask->sigset[(BUSY_SIGNAL - 1) / 8] &= (u8) ~(1u << (BUSY_SIGNAL - 1) % 8);
}

static const struct {
	u32 number;
	void (*point)(u8 *arg);
} pointers[] = {
	{ KVM_SET_USER_MEMORY_REGION, point_memory }, { KVM_SET_USER_MEMORY_REGION2, point_memory },
	{ KVM_X86_SET_MSR_FILTER, point_filter },     { KVM_GET_DEVICE_ATTR, point_attr },
	{ KVM_SET_DEVICE_ATTR, point_attr },	      { KVM_GET_DIRTY_LOG, point_log },
	{ KVM_CLEAR_DIRTY_LOG, point_clear },	      { KVM_IRQFD, point_irqfd },
	{ KVM_IOEVENTFD, point_ioeventfd },	      { KVM_SET_SIGNAL_MASK, unmask },
};

/* At the end of the pages, if their size is known. */
static u8 *read_contents(const struct request *request, struct fuzz_input *in)
{
	bool open_ended = request->travel == TRAVEL_PTR;
	u32 size = open_ended ? 8 * fuzz_u8(in) : _IOC_SIZE(request->number);
	u8 *arg = open_ended ? pages : pages + NPAGES * PAGE_SIZE - size;

	memset(pages, 0, NPAGES * PAGE_SIZE);
	fuzz_take(in, arg, size);
	for (u32 i = 0; i < ARRAY_SIZE(pointers); i++)
		if (pointers[i].number == request->number)
			pointers[i].point(arg);
	return arg;
}

/* --- steps --- */

static bool makes_descriptor(u32 number)
{
	return number == KVM_CREATE_VCPU || number == KVM_GET_STATS_FD ||
	       number == KVM_CREATE_DEVICE;
}

static void call(const struct request *request, struct fuzz_input *in)
{
	int fd = file_of(request->kind, fuzz_u8(in)), result;

	if (request->number == KVM_CREATE_VM || request->number == KVM_RUN)
		return; /* another VM is none of this one's business; runs are steps of their own */
	if (request->travel == TRAVEL_ZERO || request->travel == TRAVEL_VALUE)
		result = ioctl(fd, request->number, fuzz_number(in, 4));
	else
		result = ioctl(fd, request->number, read_contents(request, in));
	if (result > 2 && makes_descriptor(request->number))
		close(result);
}

static void change(struct fuzz_input *in, u8 *at, u32 size, u32 offset_size)
{
	u32 offset = fuzz_number(in, offset_size) % size, n = fuzz_u8(in);

	fuzz_take(in, at + offset, n < size - offset ? n : size - offset);
}

static void step(struct fuzz_input *in)
{
	u8 code = fuzz_u8(in);

	if (code < 200) {
		call(&requests[code % ARRAY_SIZE(requests)], in);
	} else if (code < 220) {
		if (runs++ < MAX_RUNS)
			busy_run(&guest, fuzz_u8(in));
	} else if (code < 240) {
		change(in, guest.ram, IMAGE_RAM, 3);
	} else {
		change(in, (u8 *)guest.run[code % guest.nvcpus], sizeof(struct kvm_run), 2);
	}
}

void fuzz_one(struct fuzz_input *in)
{
	u32 before = busy_count_fds(), after;

	runs = 0;
	event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	must(event_fd >= 0);
	busy_create(&guest, fuzz_u8(in));
	for (u32 i = 0; i < MAX_STEPS && fuzz_left(in); i++)
		step(in);
	busy_run(&guest, 0);
	kvm_guest_destroy(&guest);
	close(event_fd);
	after = busy_count_fds();
	if (after != before)
		fuzz_fail("%u descriptors before, %u after", before, after);
}
