// SPDX-License-Identifier: MIT
/*
 * Statistics files (Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD): a header, an id, descriptors
 * and data, made again for each read so that the data are current. Any thread.
 */
#include "vm/stats.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/guarded.h"
#include "vm/vm.h"

#define STAT_NAME_SIZE 48

#define STAT_UNIT_NONE	  (KVM_STATS_UNIT_NONE | KVM_STATS_BASE_POW10)
#define STAT_UNIT_BOOLEAN (KVM_STATS_UNIT_BOOLEAN | KVM_STATS_BASE_POW10)
#define STAT_UNIT_NS	  (KVM_STATS_UNIT_SECONDS | KVM_STATS_BASE_POW10)
#define STAT_EXP_NONE	  0
#define STAT_EXP_BOOLEAN  0
#define STAT_EXP_NS	  -9

/* struct kvm_stats_desc with its name. */
struct stat_desc {
	u32 flags;
	s16 exponent;
	u16 size;
	u32 offset, bucket_size;
	char name[STAT_NAME_SIZE];
};

static const struct stat_desc vm_descs[] = {
#define VM_STAT(stat, type, unit)                   \
	{ KVM_STATS_TYPE_##type | STAT_UNIT_##unit, \
	  STAT_EXP_##unit,                          \
	  1,                                        \
	  offsetof(struct vm_stats, stat),          \
	  0,                                        \
	  #stat },
#define VCPU_STAT(stat, type, unit)
#include "vm/stat.def"
#undef VM_STAT
#undef VCPU_STAT
};

static const struct stat_desc vcpu_descs[] = {
#define VM_STAT(stat, type, unit)
#define VCPU_STAT(stat, type, unit)                 \
	{ KVM_STATS_TYPE_##type | STAT_UNIT_##unit, \
	  STAT_EXP_##unit,                          \
	  1,                                        \
	  offsetof(struct vcpu_stats, stat),        \
	  0,                                        \
	  #stat },
#include "vm/stat.def"
#undef VM_STAT
#undef VCPU_STAT
};

struct stat_file {
	struct kvm_stats_header header;
	char id[STAT_NAME_SIZE];
	struct stat_desc descs[ARRAY_SIZE(vcpu_descs) > ARRAY_SIZE(vm_descs)
				       ? ARRAY_SIZE(vcpu_descs)
				       : ARRAY_SIZE(vm_descs)];
	u64 data[ARRAY_SIZE(vcpu_descs) > ARRAY_SIZE(vm_descs) ? ARRAY_SIZE(vcpu_descs)
							       : ARRAY_SIZE(vm_descs)];
};

static void fill(struct stat_file *file, const struct stat_desc *descs, u32 n, const void *data)
{
	file->header = (struct kvm_stats_header){
		.name_size = STAT_NAME_SIZE,
		.num_desc = n,
		.id_offset = offsetof(struct stat_file, id),
		.desc_offset = offsetof(struct stat_file, descs),
		.data_offset = offsetof(struct stat_file, data),
	};
	memcpy(file->descs, descs, n * sizeof(*descs));
	memcpy(file->data, data, n * sizeof(u64));
}

static long copy_out(const struct stat_file *file, void *user, size_t n, u64 offset)
{
	u64 end = file->header.data_offset + file->header.num_desc * sizeof(u64);

	if (offset >= end)
		return 0;
	if (n > end - offset)
		n = end - offset;
	return guarded_write(user, (const u8 *)file + offset, n) ? (long)n : -EFAULT;
}

long vm_stats_read(struct vm *vm, void *user, size_t n, u64 offset)
{
	struct stat_file file = { 0 };
	struct vm_stats stats = vm->stats;

	stats.slots = __atomic_load_n(&vm->nslots, __ATOMIC_RELAXED);
	snprintf(file.id, sizeof(file.id), "kvm-%d-%u", (int)vm->owner, vm->serial);
	fill(&file, vm_descs, ARRAY_SIZE(vm_descs), &stats);
	return copy_out(&file, user, n, offset);
}

u64 vcpu_executed(const struct vcpu *vcpu, enum retire_privilege privilege)
{
	return READ_ONCE(vcpu->cpu->port.tally.instructions[privilege]) -
	       READ_ONCE(vcpu->pmu.host.charged[privilege]);
}

void vcpu_stats_get(const struct vcpu *vcpu, struct vcpu_stats *out)
{
	const struct retire_tally *tally = &vcpu->cpu->port.tally;

	*out = vcpu->stats;
	out->instructions_os = vcpu_executed(vcpu, RETIRE_OS);
	out->instructions_user = vcpu_executed(vcpu, RETIRE_USR);
	out->branches_os = READ_ONCE(tally->branches[RETIRE_OS]);
	out->branches_user = READ_ONCE(tally->branches[RETIRE_USR]);
	out->cycles_os = READ_ONCE(tally->cycles[RETIRE_OS]) / TICKS_PER_CYCLE;
	out->cycles_user = READ_ONCE(tally->cycles[RETIRE_USR]) / TICKS_PER_CYCLE;
	out->blocking = READ_ONCE(vcpu->sleeping);
}

long vcpu_stats_read(struct vcpu *vcpu, void *user, size_t n, u64 offset)
{
	struct stat_file file = { 0 };
	struct vcpu_stats stats;

	vcpu_stats_get(vcpu, &stats);
	snprintf(file.id, sizeof(file.id), "kvm-%d-%u/vcpu-%u", (int)vcpu->vm->owner,
		 vcpu->vm->serial, vcpu->id);
	fill(&file, vcpu_descs, ARRAY_SIZE(vcpu_descs), &stats);
	return copy_out(&file, user, n, offset);
}
