// SPDX-License-Identifier: MIT
/*
 * Port I/O and MMIO exits: answered here if a chip, a zone or an ioeventfd takes them, else shown
 * to the program in struct kvm_run. The program's answer is taken over when it comes back, and the
 * engine executes the instruction again with it (struct cpu_io, struct cpu_mmio). vCPU thread,
 * inside a section.
 *
 * The program may write to struct kvm_run at any time: sizes come from a private copy.
 */
#include "vm/io.h"

#include <string.h>

#include "vm/irq/apic.h"
#include "vm/irq/irqchip.h"
#include "vm/time/trace.h"
#include "vm/vm.h"

static bool port_write(struct vcpu *vcpu, const struct cpu_io *io)
{
	for (u32 i = 0; i < io->count; i++) {
		const u8 *data = io->data + i * io->size;

		if (!irqchip_port_write(vcpu->vm, io->port, io->size, data) &&
		    !outside_port_write(vcpu->vm, io->port) &&
		    !zones_write(vcpu->vm, true, io->port, io->size, data))
			return i > 0; /* KVM: what a zone began it is made to finish */
	}
	return true;
}

static bool port_read(struct vcpu *vcpu, struct cpu_io *io)
{
	for (u32 i = 0; i < io->count; i++)
		if (!irqchip_port_read(vcpu->vm, io->port, io->size, io->data + i * io->size))
			return false;
	return true;
}

int io_port_exit(struct vcpu *vcpu)
{
	struct cpu_io *io = &vcpu->cpu->port.io;
	struct kvm_run *run = vcpu->run;

	if (io->in ? port_read(vcpu, io) : port_write(vcpu, io)) {
		io->state = IO_DONE;
		return 1;
	}
	if (vcpu->vm->outside.must_wait) {
		/* It was called once, and has done what it was called for. */
		if (unlikely(vcpu->vm->trace) && vcpu->vm->outside.calls_seen)
			trace_end(vcpu);
		return 1; /* executed again */
	}
	vcpu->stats.io_exits++;
	run->exit_reason = KVM_EXIT_IO;
	run->io.direction = io->in ? KVM_EXIT_IO_IN : KVM_EXIT_IO_OUT;
	run->io.size = io->size;
	run->io.port = io->port;
	run->io.count = io->count;
	run->io.data_offset = KVM_PIO_PAGE_OFFSET * PAGE_SIZE;
	if (!io->in)
		memcpy(vcpu->pio_data, io->data, (u64)io->size * io->count);
	vcpu->pending = PENDING_IO;
	return 0;
}

int io_port_complete(struct vcpu *vcpu)
{
	struct cpu_io *io = &vcpu->cpu->port.io;

	if (io->in)
		memcpy(io->data, vcpu->pio_data, (u64)io->size * io->count);
	if (unlikely(vcpu->vm->trace) && io->in)
		trace_input(vcpu, io->data, io->size * io->count);
	io->state = IO_DONE;
	return 1;
}

static int ask(struct vcpu *vcpu, const struct mmio_fragment *f, bool write)
{
	struct kvm_run *run = vcpu->run;

	vcpu->stats.mmio_exits++;
	run->exit_reason = KVM_EXIT_MMIO;
	run->mmio.phys_addr = f->gpa;
	run->mmio.len = f->len;
	run->mmio.is_write = write;
	if (write)
		memcpy(run->mmio.data, f->data, f->len);
	vcpu->pending = PENDING_MMIO;
	return 0;
}

static struct mmio_fragment *next_read(struct cpu_mmio *m)
{
	struct mmio_fragment *last = m->nreads ? &m->reads[m->nreads - 1] : NULL;

	return last && !last->answered ? last : NULL;
}

static bool mmio_read(struct vcpu *vcpu, struct mmio_fragment *f)
{
	return apic_mmio_read(vcpu, f->gpa, f->len, f->data) ||
	       irqchip_mmio_read(vcpu->vm, f->gpa, f->len, f->data);
}

static bool mmio_write(struct vcpu *vcpu, const struct mmio_fragment *f)
{
	return apic_mmio_write(vcpu, f->gpa, f->len, f->data) ||
	       irqchip_mmio_write(vcpu->vm, f->gpa, f->len, f->data) ||
	       zones_write(vcpu->vm, false, f->gpa, f->len, f->data);
}

int io_mmio_exit(struct vcpu *vcpu)
{
	struct cpu_mmio *m = &vcpu->cpu->port.mmio;
	struct mmio_fragment *f;

	for (; m->write_pos < m->nwrites; m->write_pos++)
		if (!mmio_write(vcpu, &m->writes[m->write_pos]))
			return ask(vcpu, &m->writes[m->write_pos], true);
	f = next_read(m);
	if (f && !mmio_read(vcpu, f))
		return ask(vcpu, f, false);
	if (f)
		f->answered = true;
	return 1;
}

int io_mmio_complete(struct vcpu *vcpu)
{
	struct cpu_mmio *m = &vcpu->cpu->port.mmio;
	struct mmio_fragment *f = next_read(m);

	if (m->write_pos < m->nwrites) {
		m->write_pos++;
		return io_mmio_exit(vcpu);
	}
	if (f) {
		memcpy(f->data, vcpu->run->mmio.data, f->len);
		f->answered = true;
		if (unlikely(vcpu->vm->trace))
			trace_input(vcpu, f->data, f->len);
	}
	return 1;
}
