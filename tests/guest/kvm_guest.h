/* SPDX-License-Identifier: MIT */
/*
 * The same small guest as machine.h's, but through the KVM API: what any program does that opens
 * /dev/kvm. For tests that `vpmu kvm` runs. A call that fails ends the test program with its name
 * and errno.
 */
#ifndef GUEST_KVM_GUEST_H
#define GUEST_KVM_GUEST_H

#include <linux/kvm.h>

#include "guest/image.h"

#define KVM_GUEST_VCPUS 4

struct kvm_guest {
	int kvm, vm, nvcpus;
	int vcpu[KVM_GUEST_VCPUS];
	struct kvm_run *run[KVM_GUEST_VCPUS];
	size_t run_size;
	u8 *ram;  /* IMAGE_RAM bytes at guest physical 0 */
	bool amd; /* what its CPUID says */
};

void kvm_guest_create(struct kvm_guest *g, const void *code, size_t size, int nvcpus);
/* The same with something to do to the VM before it has vCPUs: create an irqchip, say. */
void kvm_guest_create_with(struct kvm_guest *g, const void *code, size_t size, int nvcpus,
			   void (*prepare)(int vm));
void kvm_guest_destroy(struct kvm_guest *g);
/* What is supported, with changes to entries, if any. */
void kvm_guest_set_cpuid(struct kvm_guest *g, int vcpu, void (*edit)(struct kvm_cpuid_entry2 *));

/* ioctl() that must succeed. */
int kvm_call(int fd, unsigned long request, void *arg, const char *name);
#define KVM_CALL(fd, request, arg) kvm_call(fd, request, arg, #request)

/* One KVM_RUN of a vCPU; the exit reason, or -errno. */
int kvm_guest_run(struct kvm_guest *g, int vcpu);
void kvm_guest_set_rip(struct kvm_guest *g, int vcpu, u64 rip);

void kvm_guest_set_msr(struct kvm_guest *g, int vcpu, u32 index, u64 value);
u64 kvm_guest_get_msr(struct kvm_guest *g, int vcpu, u32 index);

/* The first counter and its event select. */
static inline u32 kvm_guest_counter(const struct kvm_guest *g)
{
	return g->amd ? 0xc0010004 : 0xc1;
}

static inline u32 kvm_guest_select(const struct kvm_guest *g)
{
	return g->amd ? 0xc0010000 : 0x186;
}

static inline void *kvm_io_data(struct kvm_run *run)
{
	return (u8 *)run + run->io.data_offset;
}

#endif
