// SPDX-License-Identifier: MIT
/*
 * A small guest through the KVM API: see kvm_guest.h.
 */
#include "guest/kvm_guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define CPUID_ENTRIES 256

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

int kvm_call(int fd, unsigned long request, void *arg, const char *name)
{
	int result = ioctl(fd, request, arg);

	if (result < 0)
		die(name);
	return result;
}

void kvm_guest_set_cpuid(struct kvm_guest *g, int vcpu, void (*edit)(struct kvm_cpuid_entry2 *))
{
	struct kvm_cpuid2 *cpuid =
		calloc(1, sizeof(*cpuid) + CPUID_ENTRIES * sizeof(cpuid->entries[0]));

	if (!cpuid)
		die("calloc");
	cpuid->nent = CPUID_ENTRIES;
	KVM_CALL(g->kvm, KVM_GET_SUPPORTED_CPUID, cpuid);
	for (u32 i = 0; edit && i < cpuid->nent; i++)
		edit(&cpuid->entries[i]);
	KVM_CALL(g->vcpu[vcpu], KVM_SET_CPUID2, cpuid);
	g->amd = cpuid->entries[0].ebx == 0x68747541; /* "Auth" */
	free(cpuid);
}

static struct kvm_segment segment(u16 selector, u8 type, bool code)
{
	return (struct kvm_segment){ .selector = selector,
				     .limit = 0xffffffff,
				     .type = type,
				     .present = 1,
				     .s = 1,
				     .g = 1,
				     .l = code,
				     .db = !code };
}

static void set_sregs(int vcpu)
{
	struct kvm_sregs sregs;

	KVM_CALL(vcpu, KVM_GET_SREGS, &sregs);
	sregs.cs = segment(IMAGE_CS, 11, true);
	sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = segment(IMAGE_DS, 3, false);
	sregs.tr = (struct kvm_segment){
		.base = IMAGE_TSS, .limit = 0x67, .selector = IMAGE_TR, .type = 11, .present = 1
	};
	sregs.gdt = (struct kvm_dtable){ .base = IMAGE_GDT, .limit = IMAGE_NGDT * 8 - 1 };
	sregs.idt = (struct kvm_dtable){ .base = IMAGE_IDT, .limit = IMAGE_NGATES * 16 - 1 };
	sregs.cr0 = 0x80010033; /* PG WP NE ET MP PE */
	sregs.cr3 = IMAGE_PML4;
	sregs.cr4 = 0x620;  /* OSXMMEXCPT OSFXSR PAE */
	sregs.efer = 0xd01; /* NX LMA LME SCE */
	KVM_CALL(vcpu, KVM_SET_SREGS, &sregs);
}

void kvm_guest_set_rip(struct kvm_guest *g, int vcpu, u64 rip)
{
	struct kvm_regs regs = { .rip = rip, .rsp = IMAGE_STACK - vcpu * PAGE_SIZE, .rflags = 2 };

	KVM_CALL(g->vcpu[vcpu], KVM_SET_REGS, &regs);
}

static u64 access_msr(int vcpu, unsigned long request, u32 index, u64 value)
{
	struct kvm_msrs *msrs = calloc(1, sizeof(*msrs) + sizeof(msrs->entries[0]));

	if (!msrs)
		die("calloc");
	msrs->nmsrs = 1;
	msrs->entries[0] = (struct kvm_msr_entry){ .index = index, .data = value };
	if (KVM_CALL(vcpu, request, msrs) != 1) {
		fprintf(stderr, "MSR %#x is refused\n", index);
		exit(1);
	}
	value = msrs->entries[0].data;
	free(msrs);
	return value;
}

void kvm_guest_set_msr(struct kvm_guest *g, int vcpu, u32 index, u64 value)
{
	access_msr(g->vcpu[vcpu], KVM_SET_MSRS, index, value);
}

u64 kvm_guest_get_msr(struct kvm_guest *g, int vcpu, u32 index)
{
	return access_msr(g->vcpu[vcpu], KVM_GET_MSRS, index, 0);
}

static void create_vcpu(struct kvm_guest *g, int i)
{
	g->vcpu[i] = KVM_CALL(g->vm, KVM_CREATE_VCPU, (void *)(long)i);
	g->run[i] = mmap(NULL, g->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, g->vcpu[i], 0);
	if (g->run[i] == MAP_FAILED)
		die("mmap of a vCPU");
	kvm_guest_set_cpuid(g, i, NULL);
	set_sregs(g->vcpu[i]);
	kvm_guest_set_rip(g, i, IMAGE_CODE);
}

void kvm_guest_create_with(struct kvm_guest *g, const void *code, size_t size, int nvcpus,
			   void (*prepare)(int vm))
{
	struct kvm_userspace_memory_region region = { .memory_size = IMAGE_RAM };

	memset(g, 0, sizeof(*g));
	g->nvcpus = nvcpus;
	g->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (g->kvm < 0)
		die("/dev/kvm");
	g->vm = KVM_CALL(g->kvm, KVM_CREATE_VM, NULL);
	g->run_size = (size_t)KVM_CALL(g->kvm, KVM_GET_VCPU_MMAP_SIZE, NULL);
	g->ram = mmap(NULL, IMAGE_RAM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (g->ram == MAP_FAILED)
		die("mmap of guest memory");
	image_build(g->ram, code, size);
	region.userspace_addr = (u64)g->ram;
	KVM_CALL(g->vm, KVM_SET_USER_MEMORY_REGION, &region);
	if (prepare)
		prepare(g->vm);
	for (int i = 0; i < nvcpus; i++)
		create_vcpu(g, i);
}

void kvm_guest_create(struct kvm_guest *g, const void *code, size_t size, int nvcpus)
{
	kvm_guest_create_with(g, code, size, nvcpus, NULL);
}

void kvm_guest_destroy(struct kvm_guest *g)
{
	for (int i = 0; i < g->nvcpus; i++) {
		munmap(g->run[i], g->run_size);
		close(g->vcpu[i]);
	}
	close(g->vm);
	close(g->kvm);
	munmap(g->ram, IMAGE_RAM);
}

int kvm_guest_run(struct kvm_guest *g, int vcpu)
{
	return ioctl(g->vcpu[vcpu], KVM_RUN, NULL) < 0 ? -errno : (int)g->run[vcpu]->exit_reason;
}
