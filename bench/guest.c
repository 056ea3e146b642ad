// SPDX-License-Identifier: MIT
/*
 * The loops of loops.h in a virtual machine of /dev/kvm, which under `vpmu kvm` is ours. Time is
 * taken between the exits for the guest's markers. Prints a line "name MIPS" each.
 */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "image.h"
#include "x86/regs.h"

#define RAM_SIZE    (4u << 20)
#define CPUID_COUNT 256

static int check(int result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
	return result;
}

static void set_long_mode(int vcpu)
{
	const struct kvm_segment code = {
		.selector = 8, .limit = ~0u, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1
	};
	const struct kvm_segment data = {
		.selector = 16, .limit = ~0u, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1
	};
	struct kvm_regs regs = { .rip = BLOB_ADDRESS + (u64)(blob_main - blob_start),
				 .rflags = FL_FIX1 };
	struct kvm_sregs sregs;

	check(ioctl(vcpu, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
	sregs.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_PG;
	sregs.cr3 = IMAGE_PML4;
	sregs.cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT;
	sregs.efer = EFER_LME | EFER_LMA;
	sregs.cs = code;
	sregs.ds = sregs.es = sregs.ss = data;
	check(ioctl(vcpu, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
	check(ioctl(vcpu, KVM_SET_REGS, &regs), "KVM_SET_REGS");
}

static void set_cpuid(int kvm, int vcpu)
{
	struct kvm_cpuid2 *cpuid =
		calloc(1, sizeof(*cpuid) + CPUID_COUNT * sizeof(cpuid->entries[0]));

	if (!cpuid)
		exit(1);
	cpuid->nent = CPUID_COUNT;
	check(ioctl(kvm, KVM_GET_SUPPORTED_CPUID, cpuid), "KVM_GET_SUPPORTED_CPUID");
	check(ioctl(vcpu, KVM_SET_CPUID2, cpuid), "KVM_SET_CPUID2");
	free(cpuid);
}

static struct kvm_run *create(int kvm, int *vcpu)
{
	int vm = check(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
	u8 *ram = mmap(NULL, RAM_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region slot = { .memory_size = RAM_SIZE,
						    .userspace_addr = (u64)(uintptr_t)ram };
	struct kvm_run *run;

	if (ram == MAP_FAILED)
		exit(1);
	image_build(ram + IMAGE_ADDRESS, 1);
	check(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot), "KVM_SET_USER_MEMORY_REGION");
	*vcpu = check(ioctl(vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
	run = mmap(NULL, check(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE"),
		   PROT_READ | PROT_WRITE, MAP_SHARED, *vcpu, 0);
	if (run == MAP_FAILED)
		exit(1);
	return run;
}

/* One marker; false: the guest is done. */
static bool take_marker(const struct kvm_run *run, double *start)
{
	u8 marker = *((const u8 *)run + run->io.data_offset);

	if (run->exit_reason != KVM_EXIT_IO) {
		fprintf(stderr, "unexpected exit %u\n", run->exit_reason);
		exit(1);
	}
	if (run->io.port != MARKER_PORT)
		return false;
	if (marker < NLOOPS)
		*start = seconds();
	else
		printf("%s %.1f\n", loops[marker % NLOOPS].name,
		       mips(marker % NLOOPS, 1, seconds() - *start));
	return true;
}

int main(void)
{
	int kvm = check(open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm"), vcpu;
	struct kvm_run *run = create(kvm, &vcpu);
	double start = 0;

	set_cpuid(kvm, vcpu);
	set_long_mode(vcpu);
	do
		check(ioctl(vcpu, KVM_RUN, 0), "KVM_RUN");
	while (take_marker(run, &start));
	return 0;
}
