// SPDX-License-Identifier: MIT
/*
 * Guest memory accesses by C code: through the soft TLB where it serves, else page by page: RAM
 * with notice to the dirty log, the translator, the debug registers and the timing model, devices
 * by the protocol of struct cpu_mmio. vCPU thread; general registers only.
 */
#include "cpu/mmu/priv.h"

#include "base/guarded.h"
#include "base/must.h"
#include "cpu/event.h"
#include "cpu/mmu/shared_code.h"
#include "cpu/observe.h"

/* The part of an access that lies on one page. */
struct part {
	u32 size;
	bool unnoticed; /* found in the TLB: a write need not be noted */
	struct translation t;
};

struct parts {
	u32 n;
	struct part part[2];
};

/* System structures of long mode lie across 4G. */
static gva_t next_page(const struct cpu *cpu, gva_t gva, u32 access)
{
	gva_t next = (gva & PAGE_MASK) + PAGE_SIZE;

	return cpu_long_mode(cpu) && (access & ACCESS_SYSTEM) ? next : cpu_wrap(cpu, next);
}

static bool tlb_lookup(struct cpu *cpu, gva_t gva, u32 access, struct translation *out)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	enum tlb_set set = tlb_set_of(cpu, access);
	u32 index = (gva >> PAGE_SHIFT) % TLB_SIZE;
	const struct tlb_entry *entry = &priv->tlb[set][index];
	u64 tag = access & ACCESS_WRITE ? entry->write : entry->read;

	if (tag != (gva & PAGE_MASK) || (access & ACCESS_FETCH))
		return false;
	out->gpa = entry->gpa | (gva & ~PAGE_MASK);
	out->host = (hva_t)entry->host + (gva & ~PAGE_MASK);
	out->shift = priv->tlb_shift[set][index];
	out->global = tlb_global(cpu, set, index);
	return true;
}

static enum guest_fault translate_part(struct cpu *cpu, gva_t gva, u32 access, struct part *part)
{
	part->unnoticed = tlb_lookup(cpu, gva, access, &part->t);
	return part->unnoticed ? FAULT_NONE : mmu_fill(cpu, gva, access, &part->t);
}

/* Translates all of an access before any of it happens. */
static enum guest_fault split(struct cpu *cpu, gva_t gva, u32 size, u32 access, struct parts *parts)
{
	if (!(access & (ACCESS_SYSTEM | ACCESS_UNALIGNED)) && cpu_misaligned(cpu, gva, size))
		return cpu_raise_error(cpu, VEC_AC, 0);
	must(size <= PAGE_SIZE);
	for (parts->n = 0; size; parts->n++) {
		struct part *part = &parts->part[parts->n];
		u32 room = PAGE_SIZE - (gva & ~PAGE_MASK);
		enum guest_fault fault;

		part->size = size < room ? size : room;
		fault = translate_part(cpu, gva, access, part);
		if (fault)
			return fault;
		gva = next_page(cpu, gva, access);
		size -= part->size;
	}
	return FAULT_NONE;
}

static void watch(struct cpu *cpu, gva_t gva, u32 size, u32 access)
{
	if (unlikely(cpu_priv(cpu)->watch_active) && !(access & (ACCESS_SYSTEM | ACCESS_FETCH)))
		cpu_watch(cpu, gva, size, access);
}

/* What the processor reads and writes on its own account is not observed. */
static void observe(struct cpu *cpu, gva_t gva, const struct parts *parts, u32 access)
{
	if (!cpu_observes(cpu) || (access & (ACCESS_SYSTEM | ACCESS_FETCH | ACCESS_UNSHOWN)))
		return;
	for (u32 i = 0; i < parts->n; i++) {
		const struct part *part = &parts->part[i];

		if (part->t.host)
			cpu_observe_at(cpu, gva, &part->t, part->size, access);
		gva = next_page(cpu, gva, access);
	}
}

static enum guest_fault unemulated(struct cpu *cpu, gpa_t gpa)
{
	cpu->port.exit.reason = EXIT_UNEMULATED;
	cpu->port.exit.gpa = gpa;
	return FAULT_EXIT;
}

/* How much of a device access goes into one fragment. */
static u32 fragment_len(gpa_t gpa, u32 size)
{
	u32 room = 8 - (gpa & 7);

	return size < room ? size : room;
}

static u32 fragment_count(gpa_t gpa, u32 size)
{
	return size ? ((gpa & 7) + size + 7) / 8 : 0;
}

/* The instruction will be executed from its start again, so writes that it queued are undone. */
static enum guest_fault ask(struct cpu *cpu, gpa_t gpa, u32 len)
{
	struct cpu_mmio *m = &cpu->port.mmio;
	struct mmio_fragment *f = &m->reads[m->nreads];

	if (m->nreads == MMIO_FRAGMENTS)
		return unemulated(cpu, gpa);
	f->gpa = gpa;
	f->len = len;
	f->answered = false;
	m->nreads++;
	m->read_pos = 0;
	m->nwrites = m->write_pos = 0;
	cpu->port.exit.reason = EXIT_MMIO;
	cpu->port.exit.gpa = gpa;
	return FAULT_EXIT;
}

static enum guest_fault read_fragment(struct cpu *cpu, gpa_t gpa, void *buf, u32 len)
{
	struct cpu_mmio *m = &cpu->port.mmio;
	const struct mmio_fragment *f = &m->reads[m->read_pos];

	if (m->read_pos < m->nreads && f->answered && f->gpa == gpa && f->len == len) {
		bytes_copy(buf, f->data, len);
		m->read_pos++;
		return FAULT_NONE;
	}
	m->nreads = m->read_pos; /* the instruction reads something else this time */
	return ask(cpu, gpa, len);
}

enum guest_fault mmio_read(struct cpu *cpu, gpa_t gpa, void *buf, u32 size)
{
	u8 *to = buf;

	if (fragment_count(gpa, size) > MMIO_FRAGMENTS)
		return unemulated(cpu, gpa);
	while (size) {
		u32 len = fragment_len(gpa, size);
		enum guest_fault fault = read_fragment(cpu, gpa, to, len);

		if (fault)
			return fault;
		gpa += len;
		to += len;
		size -= len;
	}
	return FAULT_NONE;
}

static u32 queue_room(struct cpu_mmio *m)
{
	if (m->write_pos == m->nwrites)
		m->write_pos = m->nwrites = 0;
	return MMIO_FRAGMENTS - m->nwrites;
}

enum guest_fault mmio_write(struct cpu *cpu, gpa_t gpa, const void *buf, u32 size)
{
	struct cpu_mmio *m = &cpu->port.mmio;
	const u8 *from = buf;

	if (fragment_count(gpa, size) > queue_room(m))
		return unemulated(cpu, gpa);
	while (size) {
		struct mmio_fragment *f = &m->writes[m->nwrites++];

		f->gpa = gpa;
		f->len = fragment_len(gpa, size);
		bytes_copy(f->data, from, f->len);
		gpa += f->len;
		from += f->len;
		size -= f->len;
	}
	return FAULT_NONE;
}

static enum guest_fault read_part(struct cpu *cpu, const struct part *part, void *buf)
{
	if (!part->t.host)
		return mmio_read(cpu, part->t.gpa, buf, part->size);
	if (!guarded_read(buf, part->t.host, part->size))
		return mmu_host_fault(cpu, part->t.gpa);
	return FAULT_NONE;
}

/* Translated for a write as well, a read-only slot is a device: for the read it is RAM. */
static void find_readonly(struct cpu *cpu, struct parts *parts)
{
	for (u32 i = 0; i < parts->n; i++) {
		struct translation *t = &parts->part[i].t;

		if (t->host)
			continue;
		t->slot = cpu_slot(cpu, t->gpa);
		t->host = t->slot ? mem_hva(t->slot, t->gpa) : NULL;
	}
}

static enum guest_fault read_parts(struct cpu *cpu, gva_t gva, struct parts *parts, void *buf,
				   u32 size, u32 access)
{
	enum guest_fault fault = FAULT_NONE;
	u8 *to = buf;

	find_readonly(cpu, parts);
	for (u32 i = 0; !fault && i < parts->n; i++) {
		fault = read_part(cpu, &parts->part[i], to);
		to += parts->part[i].size;
	}
	if (fault)
		return fault;
	watch(cpu, gva, size, access);
	observe(cpu, gva, parts, access);
	return FAULT_NONE;
}

/* Host address of an access that the TLB serves without notice; NULL: take the slow path. */
static hva_t direct(struct cpu *cpu, gva_t gva, u32 size, u32 access)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct tlb_entry *entry = tlb_entry_of(cpu, gva, access);
	u64 tag = access & ACCESS_WRITE ? entry->write : entry->read;

	if ((gva ^ tag) > PAGE_SIZE - size || (access & ACCESS_FETCH) ||
	    unlikely((priv->mode & (MODE_ALIGN | MODE_OBSERVE_MEMORY)) || priv->watch_active))
		return NULL;
	return (hva_t)entry->host + (gva & ~PAGE_MASK);
}

enum guest_fault cpu_read(struct cpu *cpu, gva_t gva, void *buf, u32 size, u32 access)
{
	hva_t host = direct(cpu, gva, size, access);
	struct parts parts;
	enum guest_fault fault;

	if (likely(host) && guarded_read(buf, host, size))
		return FAULT_NONE;
	fault = split(cpu, gva, size, access, &parts);
	return fault ? fault : read_parts(cpu, gva, &parts, buf, size, access);
}

static enum guest_fault write_part(struct cpu *cpu, const struct part *part, const void *buf)
{
	if (!part->t.host)
		return mmio_write(cpu, part->t.gpa, buf, part->size);
	if (!guarded_write(part->t.host, buf, part->size))
		return mmu_host_fault(cpu, part->t.gpa);
	if (!part->unnoticed)
		shared_written(cpu, part->t.gpa, part->size);
	return FAULT_NONE;
}

static bool queue_takes(struct cpu *cpu, const struct parts *parts)
{
	u32 needed = 0;

	for (u32 i = 0; i < parts->n; i++)
		if (!parts->part[i].t.host)
			needed += fragment_count(parts->part[i].t.gpa, parts->part[i].size);
	return !needed || needed <= queue_room(&cpu->port.mmio);
}

static enum guest_fault write_parts(struct cpu *cpu, gva_t gva, const struct parts *parts,
				    const void *buf, u32 size, u32 access)
{
	enum guest_fault fault = FAULT_NONE;
	const u8 *from = buf;

	if (!queue_takes(cpu, parts))
		return unemulated(cpu, parts->part[0].t.gpa);
	for (u32 i = 0; !fault && i < parts->n; i++) {
		fault = write_part(cpu, &parts->part[i], from);
		from += parts->part[i].size;
	}
	if (fault)
		return fault;
	watch(cpu, gva, size, access);
	observe(cpu, gva, parts, access);
	return FAULT_NONE;
}

enum guest_fault cpu_write(struct cpu *cpu, gva_t gva, const void *buf, u32 size, u32 access)
{
	hva_t host = direct(cpu, gva, size, access | ACCESS_WRITE);
	struct parts parts;
	enum guest_fault fault;

	if (likely(host) && guarded_write(host, buf, size))
		return FAULT_NONE;
	fault = split(cpu, gva, size, access | ACCESS_WRITE, &parts);
	return fault ? fault : write_parts(cpu, gva, &parts, buf, size, access | ACCESS_WRITE);
}

/* Those of the bytes from `from` to `end` of a span that lie on one of its pages, which has those
 * from `begin` on. */
static void add_part(struct parts *parts, const struct translation *t, u32 begin, u32 from, u32 end)
{
	struct part *part = &parts->part[parts->n];

	if (from >= end)
		return;
	*part = (struct part){ .size = end - from, .t = *t };
	part->t.gpa += from - begin;
	if (part->t.host)
		part->t.host += from - begin;
	parts->n++;
}

static void parts_of(const struct span *span, u32 offset, u32 size, struct parts *parts)
{
	u32 end = offset + size, first = span->first;

	parts->n = 0;
	add_part(parts, &span->t[0], 0, offset, end < first ? end : first);
	add_part(parts, &span->t[1], first, offset > first ? offset : first, end);
}

enum guest_fault cpu_read_at(struct cpu *cpu, const struct span *span, u32 offset, void *buf,
			     u32 size, u32 access)
{
	struct parts parts;

	parts_of(span, offset, size, &parts);
	return read_parts(cpu, cpu_wrap(cpu, span->gva + offset), &parts, buf, size, access);
}

enum guest_fault cpu_write_at(struct cpu *cpu, const struct span *span, u32 offset, const void *buf,
			      u32 size, u32 access)
{
	struct parts parts;

	parts_of(span, offset, size, &parts);
	return write_parts(cpu, cpu_wrap(cpu, span->gva + offset), &parts, buf, size,
			   access | ACCESS_WRITE);
}

static bool change_locked(hva_t host, u8 *byte, u8 set, u8 clear)
{
	u32 shift = ((uintptr_t)host & 3) * 8, seen;
	u32 *word = (u32 *)(host - ((uintptr_t)host & 3));
	bool done = false, ok = guarded_read(&seen, word, sizeof(seen));

	while (ok && !done) {
		*byte = seen >> shift;
		ok = guarded_cmpxchg32(word, &seen,
				       (seen | (u32)set << shift) & ~((u32)clear << shift), &done);
	}
	return ok;
}

enum guest_fault cpu_change_bits(struct cpu *cpu, gva_t gva, u8 *byte, u8 set, u8 clear)
{
	u8 desired = (*byte | set) & ~clear;
	enum guest_fault fault;
	struct parts parts;

	fault = split(cpu, gva, 1, ACCESS_WRITE | ACCESS_SYSTEM, &parts);
	if (fault)
		return fault;
	if (!parts.part[0].t.host)
		return write_part(cpu, &parts.part[0], &desired);
	if (!change_locked(parts.part[0].t.host, byte, set, clear))
		return mmu_host_fault(cpu, parts.part[0].t.gpa);
	if (!parts.part[0].unnoticed)
		shared_written(cpu, parts.part[0].t.gpa, 1);
	return FAULT_NONE;
}

static bool all_memory(const struct parts *parts)
{
	for (u32 i = 0; i < parts->n; i++)
		if (!parts->part[i].t.host)
			return false;
	return true;
}

static bool access_parts(struct cpu *cpu, const struct parts *parts, u8 *buf, u32 access)
{
	for (u32 i = 0; i < parts->n; i++) {
		const struct part *part = &parts->part[i];
		enum guest_fault fault = access & ACCESS_WRITE ? write_part(cpu, part, buf)
							       : read_part(cpu, part, buf);

		if (fault)
			return false;
		buf += part->size;
	}
	return true;
}

static bool access_directly(struct cpu *cpu, gva_t gva, void *buf, u32 size, u32 access)
{
	hva_t host = direct(cpu, gva, size, access);

	if (!host)
		return false;
	return access & ACCESS_WRITE ? guarded_write(host, buf, size)
				     : guarded_read(buf, host, size);
}

static bool access_slowly(struct cpu *cpu, gva_t gva, void *buf, u32 size, u32 access)
{
	struct cpu_event event = cpu->port.event;
	struct cpu_exit exit = cpu->port.exit;
	struct parts parts;
	bool done;

	done = split(cpu, gva, size, access, &parts) == FAULT_NONE && all_memory(&parts) &&
	       access_parts(cpu, &parts, buf, access);
	cpu->port.event = event;
	cpu->port.exit = exit;
	return done;
}

static bool canonical_range(const struct cpu *cpu, gva_t gva, u32 size)
{
	return cpu_canonical(cpu, gva) && cpu_canonical(cpu, gva + size - 1);
}

bool cpu_access_quietly(struct cpu *cpu, gva_t gva, void *buf, u32 size, u32 access)
{
	if (!size || size > PAGE_SIZE)
		return false;
	access |= ACCESS_SYSTEM;
	if (access_directly(cpu, gva, buf, size, access))
		return true; /* the soft TLB has canonical addresses only */
	return canonical_range(cpu, gva, size) && access_slowly(cpu, gva, buf, size, access);
}

bool cpu_fetch_quietly(struct cpu *cpu, gva_t gva, void *buf, u32 size)
{
	return size && size <= PAGE_SIZE && canonical_range(cpu, gva, size) &&
	       access_slowly(cpu, gva, buf, size, ACCESS_FETCH | ACCESS_UNALIGNED);
}
