// SPDX-License-Identifier: MIT
/*
 * The commands of the control socket with which `vpmu record` finds out what the guest's kernel
 * calls its processes (docs/control.md): a few registers of each vCPU, and guest memory, under the
 * lock of the memory slots. Any thread; no vCPU is disturbed, so that registers may be a little
 * old.
 */
#include <stdlib.h>
#include <string.h>

#include "vm/control/peek.h"
#include "vm/control/priv.h"
#include "vm/memory/guest_memory.h"

#define PIECE_MAX (32 * 1024)
#define USAGE	  "peek CR3|physical ADDRESS SIZE…"

void control_registers(struct control_request *c)
{
	for (u32 v = 0; v < vm_nvcpus(c->vm); v++) {
		const struct cpu *cpu = c->vm->vcpus[v]->cpu;

		control_say(c, "vcpu %u cr3 %#llx cr4 %#llx efer %#llx lstar %#llx\n",
			    c->vm->vcpus[v]->id, (unsigned long long)READ_ONCE(cpu->cr3),
			    (unsigned long long)READ_ONCE(cpu->cr4),
			    (unsigned long long)READ_ONCE(cpu->efer),
			    (unsigned long long)READ_ONCE(cpu->lstar));
	}
}

static void say_bytes(struct control_request *c, const u8 *bytes, u64 n)
{
	static const char digits[] = "0123456789abcdef";

	if (c->size - c->used < 2 * n + 2)
		return; /* as a line that does not fit */
	for (u64 i = 0; i < n; i++) {
		c->out[c->used++] = digits[bytes[i] >> 4];
		c->out[c->used++] = digits[bytes[i] & 15];
	}
	control_say(c, "\n");
}

static bool parse_piece(const struct control_request *c, u32 i, u64 *address, u64 *size)
{
	return control_number(c->word[i], address) && control_number(c->word[i + 1], size) &&
	       *size && *size <= PIECE_MAX;
}

/* Where a request reads: linear addresses through page tables, or physical ones. */
struct peek_space {
	bool physical;
	u64 cr3;
	u32 levels;
};

static bool parse_space(const struct control_request *c, struct peek_space *space)
{
	space->physical = !strcmp(c->word[0], "physical");
	space->levels = peek_levels(READ_ONCE(c->vm->vcpus[0]->cpu->cr4));
	return space->physical || control_number(c->word[0], &space->cr3);
}

/* The lock of those who edit slots keeps the map from being replaced. */
static bool read_piece(struct vm *vm, const struct peek_space *space, u64 address, u8 *buf,
		       u32 size)
{
	bool ok;

	pthread_mutex_lock(&vm->slots_lock);
	ok = space->physical ? guest_read(vm->mem, address, buf, size)
			     : peek_linear(vm->mem, space->cr3, space->levels, address, buf, size);
	pthread_mutex_unlock(&vm->slots_lock);
	return ok;
}

/* One line for each piece. */
static void peek_pieces(struct control_request *c, const struct peek_space *space, u8 *buf)
{
	for (u32 i = 1; i + 1 < c->nwords; i += 2) {
		u64 address, size;

		if (!parse_piece(c, i, &address, &size)) {
			control_say(c, "error: " USAGE "\n");
			return;
		}
		if (read_piece(c->vm, space, address, buf, size))
			say_bytes(c, buf, size);
		else
			control_say(c, "-\n");
	}
}

void control_peek(struct control_request *c)
{
	struct peek_space space = { 0 };
	u8 *buf;

	if (!vm_nvcpus(c->vm) || c->nwords < 3 || c->nwords % 2 == 0 || !parse_space(c, &space)) {
		control_say(c, "error: " USAGE "\n");
		return;
	}
	buf = malloc(PIECE_MAX);
	if (!buf) {
		control_say(c, "error: there is no memory\n");
		return;
	}
	peek_pieces(c, &space, buf);
	free(buf);
}
