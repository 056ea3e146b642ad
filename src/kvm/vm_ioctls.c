// SPDX-License-Identifier: MIT
/*
 * ioctls of a VM: each copies what ioctl.c has not, checks it and calls vm/, which takes the locks.
 * KVM_CREATE_VCPU also makes the pages that the program maps. Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/guarded.h"
#include "kvm/priv.h"
#include "vm/io.h"

#define MIN_MMU_PAGES 64

/* The pages that the program will map, in a memfd that it cannot shrink under us. */
static int run_pages(void **out)
{
	int fd = kvm_new_fd(KVM_FILE_VCPU);
	void *run;

	if (fd < 0)
		return fd;
	if (ftruncate(fd, VCPU_MMAP_SIZE) < 0)
		goto close_fd;
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	run = mmap(NULL, VCPU_MMAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (run == MAP_FAILED)
		goto close_fd;
	*out = run;
	return fd;
close_fd:
	close(fd);
	return -ENOMEM;
}

long ioctl_create_vcpu(struct kvm_call *call)
{
	struct kvm_file *file;
	void *run;
	int fd, r;

	if (call->arg >= VM_MAX_VCPU_IDS)
		return -EINVAL;
	file = kvm_file_alloc(KVM_FILE_VCPU, call->model);
	if (!file)
		return -ENOMEM;
	fd = run_pages(&run);
	if (fd < 0) {
		r = fd;
		goto free_file;
	}
	r = vcpu_create(call->vm, call->arg, run, &file->vcpu);
	if (r)
		goto unmap;
	vm_get(call->vm);
	file->vm = call->vm;
	*call->newfd = (struct kvm_newfd){ fd, file };
	return fd;
unmap:
	munmap(run, VCPU_MMAP_SIZE);
	close(fd);
free_file:
	free(file);
	return r;
}

long ioctl_check_vm_extension(struct kvm_call *call)
{
	return kvm_capability(call->vm, call->arg);
}

long ioctl_enable_vm_cap(struct kvm_call *call)
{
	return vm_enable_cap(call->vm, call->data);
}

long ioctl_set_user_memory_region(struct kvm_call *call)
{
	const struct kvm_userspace_memory_region *in = call->data;
	struct kvm_userspace_memory_region2 region = {
		.slot = in->slot,
		.flags = in->flags,
		.guest_phys_addr = in->guest_phys_addr,
		.memory_size = in->memory_size,
		.userspace_addr = in->userspace_addr,
	};

	return vm_set_memory_region(call->vm, &region);
}

long ioctl_set_user_memory_region2(struct kvm_call *call)
{
	return vm_set_memory_region(call->vm, call->data);
}

long ioctl_get_dirty_log(struct kvm_call *call)
{
	return vm_get_dirty_log(call->vm, call->data);
}

long ioctl_clear_dirty_log(struct kvm_call *call)
{
	return vm_clear_dirty_log(call->vm, call->data);
}

long ioctl_reset_dirty_rings(struct kvm_call *call)
{
	(void)call;
	return -EINVAL; /* KVM: no ring was enabled */
}

long ioctl_register_coalesced(struct kvm_call *call)
{
	return vm_register_coalesced(call->vm, call->data);
}

long ioctl_unregister_coalesced(struct kvm_call *call)
{
	return vm_unregister_coalesced(call->vm, call->data);
}

long ioctl_ioeventfd(struct kvm_call *call)
{
	return vm_ioeventfd(call->vm, call->data);
}

long ioctl_signal_msi(struct kvm_call *call)
{
	return vm_signal_msi(call->vm, call->data);
}

long ioctl_irqfd(struct kvm_call *call)
{
	return vm_irqfd(call->vm, call->data);
}

long ioctl_irq_line(struct kvm_call *call)
{
	return vm_irq_line(call->vm, call->data, call->request == KVM_IRQ_LINE_STATUS);
}

long ioctl_set_gsi_routing(struct kvm_call *call)
{
	const struct kvm_irq_routing *user = user_ptr(call->arg);
	struct kvm_irq_routing head;
	void *entries;
	long r;

	if (!guarded_read(&head, user, sizeof(head)))
		return -EFAULT;
	if (!vm_has_lapic(call->vm) || head.nr > VM_MAX_ROUTES || head.flags)
		return -EINVAL;
	r = kvm_copy_in(user->entries, head.nr * sizeof(user->entries[0]), &entries);
	if (r)
		return r;
	r = vm_set_routes(call->vm, entries, head.nr);
	free(entries);
	return r;
}

long ioctl_create_device(struct kvm_call *call)
{
	(void)call;
	return -ENODEV; /* VFIO and the like: x86 has no other devices */
}

long ioctl_get_vm_stats_fd(struct kvm_call *call)
{
	return kvm_new_file(call, KVM_FILE_VM_STATS, call->vm, NULL);
}

/* Where VMX keeps its real-mode TSS and page table: only checked, as nothing needs them here. */
long ioctl_set_tss_addr(struct kvm_call *call)
{
	return call->arg > 0xffffffffu - 3 * PAGE_SIZE + 1 ? -EINVAL : 0;
}

long ioctl_set_identity_map_addr(struct kvm_call *call)
{
	u64 address;

	if (call->vm->created_vcpus)
		return -EINVAL;
	return guarded_read(&address, user_ptr(call->arg), sizeof(address)) ? 0 : -EFAULT;
}

long ioctl_set_nr_mmu_pages(struct kvm_call *call)
{
	return call->arg < MIN_MMU_PAGES ? -EINVAL : 0;
}

long ioctl_create_irqchip(struct kvm_call *call)
{
	return vm_create_irqchip(call->vm);
}

long ioctl_create_pit(struct kvm_call *call)
{
	return vm_create_pit(call->vm, KVM_PIT_SPEAKER_DUMMY);
}

long ioctl_create_pit2(struct kvm_call *call)
{
	const struct kvm_pit_config *config = call->data;

	return vm_create_pit(call->vm, config->flags);
}

long ioctl_get_irqchip(struct kvm_call *call)
{
	return vm_get_irqchip(call->vm, call->data);
}

long ioctl_set_irqchip(struct kvm_call *call)
{
	return vm_set_irqchip(call->vm, call->data);
}

/* The older pair lacks the flags. */
long ioctl_get_pit(struct kvm_call *call)
{
	struct kvm_pit_state *out = call->data;
	struct kvm_pit_state2 pit;
	int r = vm_get_pit(call->vm, &pit);

	for (u32 i = 0; !r && i < ARRAY_SIZE(pit.channels); i++)
		out->channels[i] = pit.channels[i];
	return r;
}

long ioctl_set_pit(struct kvm_call *call)
{
	const struct kvm_pit_state *in = call->data;
	struct kvm_pit_state2 pit;
	int r = vm_get_pit(call->vm, &pit);

	if (r)
		return r;
	for (u32 i = 0; i < ARRAY_SIZE(pit.channels); i++)
		pit.channels[i] = in->channels[i];
	return vm_set_pit(call->vm, &pit);
}

long ioctl_get_pit2(struct kvm_call *call)
{
	return vm_get_pit(call->vm, call->data);
}

long ioctl_set_pit2(struct kvm_call *call)
{
	return vm_set_pit(call->vm, call->data);
}

long ioctl_reinject_control(struct kvm_call *call)
{
	struct kvm_reinject_control control; /* KVM: an _IO, so that the request has no size */

	if (!guarded_read(&control, user_ptr(call->arg), sizeof(control)))
		return -EFAULT;
	return vm_reinject_control(call->vm, control.pit_reinject);
}

long ioctl_set_boot_cpu_id(struct kvm_call *call)
{
	return vm_set_boot_cpu(call->vm, call->arg);
}

long ioctl_get_clock(struct kvm_call *call)
{
	vm_clock_get(call->vm, call->data);
	return 0;
}

long ioctl_set_clock(struct kvm_call *call)
{
	return vm_clock_set(call->vm, call->data);
}

long ioctl_get_vm_tsc_khz(struct kvm_call *call)
{
	return call->vm->clock.default_khz;
}

long ioctl_set_vm_tsc_khz(struct kvm_call *call)
{
	return vm_clock_set_khz(call->vm, call->arg);
}

long ioctl_set_msr_filter(struct kvm_call *call)
{
	return vm_set_msr_filter(call->vm, call->data);
}

long ioctl_set_pmu_event_filter(struct kvm_call *call)
{
	const struct kvm_pmu_event_filter *user = user_ptr(call->arg);
	struct kvm_pmu_event_filter head;
	struct pmu_filter_args args;
	void *events;
	long r;

	if (!guarded_read(&head, user, sizeof(head)))
		return -EFAULT;
	args = (struct pmu_filter_args){
		.action = head.action,
		.nevents = head.nevents,
		.fixed_bitmap = head.fixed_counter_bitmap,
		.flags = head.flags,
	};
	r = vm_check_pmu_filter(&args);
	if (r)
		return r;
	r = kvm_copy_in(user->events, head.nevents * sizeof(user->events[0]), &events);
	if (r)
		return r;
	args.events = events;
	r = vm_set_pmu_filter(call->vm, &args);
	free(events);
	return r;
}
