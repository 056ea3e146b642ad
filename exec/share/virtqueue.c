// SPDX-License-Identifier: MIT
/*
 * The split virtqueue, virtio 1.2 section 2.7, seen from the device: with indirect descriptors,
 * without the event index.
 */
#include <linux/virtio_ring.h>
#include <string.h>
#include <unistd.h>

#include "base/written.h"
#include "exec/share/share.h"

static void *find_memory(const struct share *share, u64 address, u64 size, bool of_qemu)
{
	for (u32 i = 0; i < share->region_count; i++) {
		const struct region *region = &share->region[i];
		u64 offset = address - (of_qemu ? region->qemu_address : region->gpa);

		if (offset < region->size && size <= region->size - offset)
			return region->map + offset;
	}
	return NULL;
}

void *share_guest(const struct share *share, gpa_t address, u64 size)
{
	return find_memory(share, address, size, false);
}

void *share_qemu(const struct share *share, u64 address, u64 size)
{
	return find_memory(share, address, size, true);
}

/* A table of descriptors: the queue's, or an indirect one. */
struct table {
	const struct vring_desc *desc;
	u32 size;
};

static bool add_in(struct request *request, const void *bytes, u32 size)
{
	if (size > MAX_BODY + PAGE_SIZE - request->in_size)
		return false;
	memcpy(request->in + request->in_size, bytes, size);
	request->in_size += size;
	return true;
}

static bool add_out(struct request *request, void *bytes, u32 size)
{
	if (request->out_count == MAX_PIECES)
		return false;
	request->out[request->out_count++] = (struct iovec){ bytes, size };
	request->out_size += size;
	return true;
}

static bool add_piece(const struct share *share, struct request *request,
		      const struct vring_desc *piece)
{
	void *bytes = share_guest(share, piece->addr, piece->len);

	if (!bytes)
		return false;
	if (piece->flags & VRING_DESC_F_WRITE)
		return add_out(request, bytes, piece->len);
	return !request->out_count && add_in(request, bytes, piece->len);
}

/* Follows a chain; an indirect table may only be at its start, and not within itself (2.7.5.3). */
static bool add_chain(const struct share *share, struct request *request, struct table table,
		      u32 index, bool may_be_indirect)
{
	for (u32 steps = 0; steps < table.size; steps++) {
		struct vring_desc piece;

		if (index >= table.size)
			return false;
		memcpy(&piece, &table.desc[index], sizeof(piece));
		if (piece.flags & VRING_DESC_F_INDIRECT) {
			table.desc = share_guest(share, piece.addr, piece.len);
			table.size = piece.len / sizeof(piece);
			return may_be_indirect && !steps && table.desc &&
			       add_chain(share, request, table, 0, false);
		}
		if (!add_piece(share, request, &piece))
			return false;
		if (!(piece.flags & VRING_DESC_F_NEXT))
			return true;
		index = piece.next;
	}
	return false;
}

bool queue_has_next(const struct queue *queue)
{
	return __atomic_load_n(&queue->avail->idx, __ATOMIC_ACQUIRE) != queue->next;
}

void queue_want_kicks(struct queue *queue, bool wanted)
{
	WRITE_ONCE(queue->used->flags, wanted ? 0 : VRING_USED_F_NO_NOTIFY);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* before the index is read again (2.7.10) */
}

bool queue_next(const struct share *share, struct queue *queue, struct request *request)
{
	struct table table = { queue->desc, queue->size };

	if (!queue_has_next(queue))
		return false;
	request->head = READ_ONCE(queue->avail->ring[queue->next++ % queue->size]);
	request->in_size = request->out_count = request->out_size = 0;
	if (!add_chain(share, request, table, request->head, true))
		request->in_size = request->out_count = request->out_size = 0;
	return true;
}

void queue_done(struct queue *queue, const struct request *request, u32 written)
{
	u16 index = queue->used->idx;
	struct vring_used_elem *element = &queue->used->ring[index % queue->size];

	WRITE_ONCE(element->id, request->head);
	WRITE_ONCE(element->len, written);
	__atomic_store_n(&queue->used->idx, index + 1, __ATOMIC_RELEASE);
}

static void note(const struct share *share, const void *bytes, u64 size)
{
	for (u32 i = 0; i < share->region_count; i++) {
		const struct region *region = &share->region[i];
		u64 offset = (const u8 *)bytes - region->map;

		if (offset < region->size)
			written_add(share->written, region->gpa + offset, size);
	}
}

void queue_note(const struct share *share, const struct request *request)
{
	for (u32 i = 0; share->written && i < request->out_count; i++)
		note(share, request->out[i].iov_base, request->out[i].iov_len);
}

void queue_notify(const struct share *share, const struct queue *queue)
{
	u64 one = share->written ? WRITTEN_SIGNAL : 1;

	if (share->written)
		note(share, queue->used,
		     sizeof(*queue->used) + queue->size * sizeof(queue->used->ring[0]));

	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* the index before the flag (2.7.7.2) */
	if (READ_ONCE(queue->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT || queue->call < 0)
		return;
	if (write(queue->call, &one, sizeof(one)) < 0)
		return; /* full: an interrupt is on its way */
}

u32 request_put(struct request *request, u32 offset, const void *bytes, u32 size)
{
	u32 done = 0;

	for (u32 i = 0; i < request->out_count && done < size; i++) {
		const struct iovec *piece = &request->out[i];
		u32 n;

		if (offset >= piece->iov_len) {
			offset -= piece->iov_len;
			continue;
		}
		n = piece->iov_len - offset < size - done ? piece->iov_len - offset : size - done;
		memcpy((u8 *)piece->iov_base + offset, (const u8 *)bytes + done, n);
		done += n;
		offset = 0;
	}
	return done;
}
