// SPDX-License-Identifier: MIT
/*
 * KVM_X86_SET_MSR_FILTER: ranges of MSRs with a bitmap each, of which the first that covers an
 * access decides. The ranges are the program's, and hostile. Filters are immutable; any thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/guarded.h"
#include "vm/msr/msr.h"

#define RANGE_FLAGS (KVM_MSR_FILTER_READ | KVM_MSR_FILTER_WRITE)

static u32 bitmap_bytes(const struct kvm_msr_filter_range *range)
{
	return (range->nmsrs / 64 + !!(range->nmsrs % 64)) * 8;
}

static int add_range(struct msr_filter *filter, const struct kvm_msr_filter_range *range)
{
	u32 size = bitmap_bytes(range);
	u8 *bitmap;

	if (!range->flags || (range->flags & ~RANGE_FLAGS) || size > KVM_MSR_FILTER_MAX_BITMAP_SIZE)
		return -EINVAL;
	bitmap = malloc(size);
	if (!bitmap)
		return -ENOMEM;
	if (!guarded_read(bitmap, range->bitmap, size)) {
		free(bitmap);
		return -EFAULT;
	}
	filter->range[filter->nranges] = *range;
	filter->range[filter->nranges++].bitmap = bitmap;
	return 0;
}

static bool has_ranges(const struct kvm_msr_filter *user)
{
	for (u32 i = 0; i < KVM_MSR_FILTER_MAX_RANGES; i++)
		if (user->ranges[i].nmsrs)
			return true;
	return false;
}

int msr_filter_create(const struct kvm_msr_filter *user, struct msr_filter **out)
{
	struct msr_filter *filter;
	int r = 0;

	*out = NULL;
	if (user->flags & ~KVM_MSR_FILTER_DEFAULT_DENY)
		return -EINVAL;
	if (!has_ranges(user))
		return user->flags & KVM_MSR_FILTER_DEFAULT_DENY ? -EINVAL : 0;
	filter = calloc(1, sizeof(*filter));
	if (!filter)
		return -ENOMEM;
	filter->deny_default = user->flags & KVM_MSR_FILTER_DEFAULT_DENY;
	for (u32 i = 0; !r && i < KVM_MSR_FILTER_MAX_RANGES; i++)
		if (user->ranges[i].nmsrs)
			r = add_range(filter, &user->ranges[i]);
	if (r)
		msr_filter_destroy(filter);
	else
		*out = filter;
	return r;
}

void msr_filter_destroy(struct msr_filter *filter)
{
	if (!filter)
		return;
	for (u32 i = 0; i < filter->nranges; i++)
		free(filter->range[i].bitmap);
	free(filter);
}

bool msr_filter_allows(const struct msr_filter *filter, u32 index, bool write)
{
	u32 kind = write ? KVM_MSR_FILTER_WRITE : KVM_MSR_FILTER_READ;

	/* KVM: x2APIC registers cannot be filtered. */
	if (!filter || (index >= 0x800 && index <= 0x8ff))
		return true;
	for (u32 i = 0; i < filter->nranges; i++) {
		const struct kvm_msr_filter_range *range = &filter->range[i];
		u32 bit = index - range->base;

		if ((range->flags & kind) && index >= range->base && bit < range->nmsrs)
			return range->bitmap[bit / 8] >> (bit % 8) & 1;
	}
	return !filter->deny_default;
}
