// SPDX-License-Identifier: MIT
/*
 * The commands of the control socket with which `vpmu record` finds out what the guest's kernel
 * calls its processes (docs/control.md): a few registers of each vCPU, and guest memory. Any
 * thread; no vCPU is disturbed.
 */
#include <stdlib.h>

#include "vm/control_priv.h"
#include "vm/peek.h"

#define PIECE_MAX (32 * 1024)

void control_registers(struct control_request *c)
{
	for (u32 v = 0; v < control_nvcpus(c->vm); v++) {
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

/* One line for each piece. The lock of those who edit slots keeps the map from being replaced. */
static void peek_pieces(struct control_request *c, u64 cr3, u8 *buf)
{
	u32 levels = peek_levels(READ_ONCE(c->vm->vcpus[0]->cpu->cr4));

	for (u32 i = 1; i + 1 < c->nwords; i += 2) {
		u64 address, size;
		bool ok;

		if (!parse_piece(c, i, &address, &size)) {
			control_say(c, "error: peek CR3 ADDRESS SIZE…\n");
			return;
		}
		pthread_mutex_lock(&c->vm->slots_lock);
		ok = peek_linear(c->vm->mem, cr3, levels, address, buf, size);
		pthread_mutex_unlock(&c->vm->slots_lock);
		if (ok)
			say_bytes(c, buf, size);
		else
			control_say(c, "-\n");
	}
}

/* peek CR3 ADDRESS SIZE…: guest memory by linear address, through the page tables at CR3. */
void control_peek(struct control_request *c)
{
	u64 cr3;
	u8 *buf;

	if (c->nwords < 3 || c->nwords % 2 == 0 || !control_number(c->word[0], &cr3)) {
		control_say(c, "error: peek CR3 ADDRESS SIZE…\n");
		return;
	}
	buf = control_nvcpus(c->vm) ? malloc(PIECE_MAX) : NULL;
	if (!buf) {
		control_say(c, "error: there is no vCPU, or no memory\n");
		return;
	}
	peek_pieces(c, cr3, buf);
	free(buf);
}
