// SPDX-License-Identifier: MIT
/*
 * Every call that the library makes for a program fails once: opening /dev/kvm, a VM, a vCPU with
 * and without interrupt controllers and everything that a VM has tables of, a run whose code cache
 * is full, the control socket. The border with libc is linked into this program.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/must.h"
#include "engine/priv.h"
#include "failing/every.h"
#include "failing/fail.h"
#include "kvm/priv.h"
#include "preload/fdtab.h"

#define RAM	      (1u << 20)
#define CODE	      0x1000
#define CPUID_ENTRIES 256 /* 40 bytes each */
#define HOPS	      2000
#define FULL_CACHE    (80u << 10) /* the engine wants 64 KB for each translation */
#define ANSWER_MS     10000

static u8 ram[RAM] __attribute__((aligned(4096)));
static int event, resample; /* eventfds of the program */

struct guest {
	int kvm, vm, vcpu;
};

#define NO_GUEST { -1, -1, -1 }

/* One step: 0 or errno. */
static int call(int fd, unsigned long request, const void *arg)
{
	return ioctl(fd, request, arg) < 0 ? errno : 0;
}

/* A step that makes a descriptor. */
static int make(int fd, unsigned long request, long arg, int *made)
{
	*made = ioctl(fd, request, arg);
	return *made < 0 ? errno : 0;
}

/* Zeros, for one list that a call takes. */
static void *list_buffer(void)
{
	static u64 buffer[2048];

	memset(buffer, 0, sizeof(buffer));
	return buffer;
}

static void close_made(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_guest(struct guest *g)
{
	close_made(g->vcpu);
	close_made(g->vm);
	close_made(g->kvm);
}

/* --- /dev/kvm --- */

static int open_kvm(struct guest *g)
{
	g->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	return g->kvm < 0 ? errno : 0;
}

static int scenario_open(void)
{
	struct guest g = NO_GUEST;
	int r = open_kvm(&g);

	close_guest(&g);
	return r;
}

/* --- a VM --- */

static int open_vm(struct guest *g)
{
	int r = open_kvm(g);

	return r ? r : make(g->kvm, KVM_CREATE_VM, 0, &g->vm);
}

static int scenario_vm(void)
{
	struct guest g = NO_GUEST;
	int stats = -1, r = open_vm(&g);

	if (!r)
		r = make(g.vm, KVM_GET_STATS_FD, 0, &stats);
	close_made(stats);
	close_guest(&g);
	return r;
}

/* --- its tables --- */

static int set_slot(const struct guest *g, u64 size, u32 flags)
{
	struct kvm_userspace_memory_region region = { .memory_size = size,
						      .flags = flags,
						      .userspace_addr = (u64)(uintptr_t)ram };

	return call(g->vm, KVM_SET_USER_MEMORY_REGION, &region);
}

static int use_dirty_log(const struct guest *g)
{
	static u64 bitmap[RAM / 4096 / 64];
	struct kvm_dirty_log log = { .dirty_bitmap = bitmap };
	struct kvm_clear_dirty_log clear = { .num_pages = RAM / 4096, .dirty_bitmap = bitmap };
	int r = call(g->vm, KVM_GET_DIRTY_LOG, &log);

	return r ? r : call(g->vm, KVM_CLEAR_DIRTY_LOG, &clear);
}

static int use_slots(const struct guest *g)
{
	int r = set_slot(g, RAM, 0);

	if (!r)
		r = set_slot(g, RAM, KVM_MEM_LOG_DIRTY_PAGES);
	if (!r)
		r = use_dirty_log(g);
	return r ? r : set_slot(g, 0, 0);
}

static int use_filters(const struct guest *g)
{
	static u8 bits[8];
	struct kvm_msr_filter msrs = {
		.ranges = { { KVM_MSR_FILTER_READ, 64, 0x10, bits },
			    { KVM_MSR_FILTER_WRITE, 64, 0x100, bits } },
	};
	struct kvm_pmu_event_filter *events = list_buffer();
	int r = call(g->vm, KVM_X86_SET_MSR_FILTER, &msrs);

	events->action = KVM_PMU_EVENT_ALLOW;
	events->nevents = 1;
	events->events[0] = 0xc0;
	if (!r)
		r = call(g->vm, KVM_X86_SET_MSR_FILTER, &msrs); /* in place of the first */
	return r ? r : call(g->vm, KVM_SET_PMU_EVENT_FILTER, events);
}

static int use_zones(const struct guest *g)
{
	struct kvm_coalesced_mmio_zone zone = { .addr = 0xe0000000, .size = 4096 };
	struct kvm_ioeventfd notify = { .addr = 0xe0002000, .len = 4, .fd = event };
	int r = call(g->vm, KVM_REGISTER_COALESCED_MMIO, &zone);

	if (!r)
		r = call(g->vm, KVM_IOEVENTFD, &notify);
	notify.flags = KVM_IOEVENTFD_FLAG_DEASSIGN;
	if (!r)
		r = call(g->vm, KVM_IOEVENTFD, &notify);
	return r ? r : call(g->vm, KVM_UNREGISTER_COALESCED_MMIO, &zone);
}

static int scenario_tables(void)
{
	struct guest g = NO_GUEST;
	int r = open_vm(&g);

	if (!r)
		r = use_slots(&g);
	if (!r)
		r = use_filters(&g);
	if (!r)
		r = use_zones(&g);
	close_guest(&g);
	return r;
}

/* --- a vCPU, and a run --- */

static int set_cpuid(const struct guest *g)
{
	struct kvm_cpuid2 *list = list_buffer();
	struct kvm_cpuid *old;
	int r;

	list->nent = CPUID_ENTRIES;
	r = call(g->kvm, KVM_GET_SUPPORTED_CPUID, list);
	if (!r)
		r = call(g->vcpu, KVM_SET_CPUID2, list);
	old = list_buffer();
	old->nent = 2;
	return r ? r : call(g->vcpu, KVM_SET_CPUID, old);
}

/* Real mode, at CODE. */
static int set_start(const struct guest *g)
{
	struct kvm_regs regs = { .rip = CODE, .rflags = 2 };
	struct kvm_sregs sregs;
	int r = call(g->vcpu, KVM_GET_SREGS, &sregs);

	sregs.cs.base = sregs.cs.selector = 0;
	if (!r)
		r = call(g->vcpu, KVM_SET_SREGS, &sregs);
	return r ? r : call(g->vcpu, KVM_SET_REGS, &regs);
}

/* INC AX and a jump to the next, HOPS times: as many blocks. Then OUT, which ends the run. */
static void write_code(void)
{
	static const u8 hop[] = { 0x40, 0xeb, 0x00 }, out[] = { 0xe6, 0xf4 };

	for (u32 i = 0; i < HOPS; i++)
		memcpy(ram + CODE + i * sizeof(hop), hop, sizeof(hop));
	memcpy(ram + CODE + HOPS * sizeof(hop), out, sizeof(out));
}

static int run_hops(const struct guest *g)
{
	struct kvm_regs regs;
	int r = set_start(g);

	if (!r)
		r = call(g->vcpu, KVM_RUN, NULL);
	if (!r)
		r = call(g->vcpu, KVM_GET_REGS, &regs);
	return r ? r : regs.rax == HOPS ? 0 : EVERY_WRONG;
}

static int run_vcpu(struct guest *g)
{
	int r = set_slot(g, RAM, 0);

	if (!r)
		r = make(g->vm, KVM_CREATE_VCPU, 0, &g->vcpu);
	if (!r)
		r = set_cpuid(g);
	return r ? r : run_hops(g);
}

static int scenario_vcpu(void)
{
	struct guest g = NO_GUEST;
	int r = open_vm(&g);

	if (!r)
		r = run_vcpu(&g);
	close_guest(&g);
	return r;
}

/* Code memory of the other kind. */
static int scenario_no_memfd(void)
{
	int r;

	fail_kernel(KERNEL_NO_MEMFD);
	r = scenario_vcpu();
	fail_kernel(KERNEL_PLAIN);
	return r;
}

/* --- with interrupt controllers --- */

static int use_routes(const struct guest *g)
{
	struct kvm_irq_routing *routes = list_buffer();

	routes->nr = 1;
	routes->entries[0] =
		(struct kvm_irq_routing_entry){ .gsi = 5, .type = KVM_IRQ_ROUTING_MSI };
	return call(g->vm, KVM_SET_GSI_ROUTING, routes);
}

/* flags: KVM_IRQFD_FLAG_RESAMPLE or 0. */
static int use_irqfds(const struct guest *g, u32 flags)
{
	struct kvm_irqfd irqfd = { .fd = event, .gsi = 5, .flags = flags, .resamplefd = resample };
	int r = call(g->vm, KVM_IRQFD, &irqfd);

	irqfd.flags = KVM_IRQFD_FLAG_DEASSIGN;
	return r ? r : call(g->vm, KVM_IRQFD, &irqfd);
}

static int with_controllers(int (*create)(const struct guest *g), u32 flags)
{
	struct guest g = NO_GUEST;
	int r = open_vm(&g);

	if (!r)
		r = create(&g);
	if (!r)
		r = use_irqfds(&g, flags);
	if (!r)
		r = use_routes(&g);
	if (!r)
		r = run_vcpu(&g);
	close_guest(&g);
	return r;
}

static int create_all(const struct guest *g)
{
	struct kvm_pit_config pit = { 0 };
	int r = call(g->vm, KVM_CREATE_IRQCHIP, NULL);

	return r ? r : call(g->vm, KVM_CREATE_PIT2, &pit);
}

static int create_split(const struct guest *g)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_SPLIT_IRQCHIP, .args = { 24 } };

	return call(g->vm, KVM_ENABLE_CAP, &cap);
}

static int scenario_irqchip(void)
{
	return with_controllers(create_all, KVM_IRQFD_FLAG_RESAMPLE);
}

static int scenario_split(void)
{
	return with_controllers(create_split, 0);
}

/* --- a run whose cache is full --- */

static struct cpu *cpu_of(const struct guest *g)
{
	struct kvm_file *file = fdtab_pin(g->vcpu);
	struct cpu *cpu = file->vcpu->cpu;

	fdtab_unpin(g->vcpu, file);
	return cpu;
}

/* With this little code memory the cache is flushed several times on the way. */
static int run_full(const struct guest *g)
{
	struct cpu *cpu = cpu_of(g);
	struct engine *engine = cpu->engine; /* which the first run has made */
	u64 before;
	int r;

	engine_forget(cpu);
	engine->code_limit = engine->code_first + FULL_CACHE;
	engine->code_ready = engine->code_rw; /* to be mapped again */
	engine->meta_ready = engine->meta;
	before = engine->flushes;
	r = run_hops(g);
	return r ? r : engine->flushes >= before + 2 ? 0 : EVERY_WRONG;
}

static int scenario_full(void)
{
	struct guest g = NO_GUEST;
	int r = open_vm(&g);

	if (!r)
		r = run_vcpu(&g);
	if (!r)
		r = run_full(&g);
	close_guest(&g);
	return r;
}

/* --- the control socket --- */

static int connect_control(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int n = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "vpmu/%u/%d",
			 (unsigned)geteuid(), (int)getpid());

	if (fd >= 0 &&
	    !connect(fd, (void *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + n))
		return fd;
	close_made(fd);
	return -1;
}

/* Reads until the other side hangs up, which it does when it has seen that we have said
 * everything. */
static int read_answer(int fd)
{
	char answer[4096];
	size_t size = 0;
	ssize_t n = 1;

	while (n > 0 && size < sizeof(answer)) {
		struct pollfd wait = { fd, POLLIN, 0 };

		if (poll(&wait, 1, ANSWER_MS) != 1)
			return EVERY_WRONG;
		n = read(fd, answer + size, sizeof(answer) - size);
		size += n > 0 ? n : 0;
	}
	return size > 2 && !memcmp(answer, "vm ", 3) ? 0 : EPIPE;
}

static int ask_control(void)
{
	static const char request[] = "0 list\n";
	int fd = connect_control(), r;

	if (fd < 0)
		return errno;
	r = send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) < 0 ? errno : 0;
	shutdown(fd, SHUT_WR);
	if (!r)
		r = read_answer(fd);
	close(fd);
	return r;
}

static int scenario_control(void)
{
	struct guest g = NO_GUEST;
	int r;

	unsetenv("VPMU_CONTROL");
	r = open_vm(&g);
	if (!r)
		r = ask_control();
	close_guest(&g);
	return r;
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "open", scenario_open, false },
		{ "vm", scenario_vm, false },
		{ "tables", scenario_tables, false },
		{ "vcpu", scenario_vcpu, false },
		{ "vcpu-without-memfd", scenario_no_memfd, false },
		{ "irqchip", scenario_irqchip, false },
		{ "split-irqchip", scenario_split, false },
		{ "full-cache", scenario_full, false },
		{ "control-socket", scenario_control, true },
	};

	event = eventfd(0, EFD_CLOEXEC);
	resample = eventfd(0, EFD_CLOEXEC);
	must(event >= 0 && resample >= 0);
	write_code();
	setenv("VPMU_CONTROL", "off", 1);
	return every_failure(scenarios, ARRAY_SIZE(scenarios), argc, argv);
}
