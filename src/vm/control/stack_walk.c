// SPDX-License-Identifier: MIT
/*
 * The guest's stack by its frame pointers (System V ABI 3.2.2): RBP points to the caller's RBP, and
 * the return address is above it. Most code has something else in RBP, and guest memory holds what
 * the guest likes: a frame lies above the one before it and not far from RSP, and its return
 * address follows a CALL, or there is no frame. Pages are walked with the guest's rights, as the
 * processor does it: accessed bits are set. vCPU thread, inside a section.
 */
#include "vm/control/stack_walk.h"

#include <string.h>

#include "base/guarded.h"
#include "cpu/control.h"
#include "cpu/mmu/mmu.h"

#define STACK_MAX (16ull << 20)
#define CALL_MAX  7 /* FF /2 with SIB and disp32; prefixes are in front of that */

/* With the rights of the code that was interrupted; what the walk raises is not for the guest. */
static bool translate(struct cpu *cpu, gva_t gva, struct translation *t)
{
	struct cpu_event event = cpu->port.event;
	struct cpu_exit exit = cpu->port.exit;
	bool ok = cpu_canonical(cpu, gva) && mmu_translate(cpu, gva, ACCESS_READ, t) == FAULT_NONE;

	cpu->port.event = event;
	cpu->port.exit = exit;
	return ok && t->host;
}

static bool peek(struct cpu *cpu, gva_t gva, void *buf, u32 size)
{
	for (u32 done = 0, part; done < size; done += part) {
		u32 room = PAGE_SIZE - ((gva + done) & ~PAGE_MASK);
		struct translation t;

		part = size - done < room ? size - done : room;
		if (!translate(cpu, gva + done, &t) ||
		    !guarded_read((u8 *)buf + done, t.host, part))
			return false;
	}
	return true;
}

/* The length of FF /2 with these bytes after the opcode (SDM 2A 2.1.5), or 0. */
static u32 indirect_call(const u8 *bytes)
{
	u32 mod = bytes[0] >> 6, rm = bytes[0] & 7;
	bool sib = mod != 3 && rm == 4;
	bool based = mod || (sib ? bytes[1] & 7 : rm) != 5;

	if ((bytes[0] >> 3 & 7) != 2)
		return 0;
	return 2 + sib + (mod == 1 ? 1 : mod == 2 || !based ? 4 : 0);
}

static bool follows_call(struct cpu *cpu, u64 address)
{
	u8 bytes[CALL_MAX + 1] = { 0 }; /* [CALL_MAX] is at the address itself */

	if (!peek(cpu, address - CALL_MAX, bytes, CALL_MAX))
		return false;
	if (bytes[CALL_MAX - 5] == 0xe8)
		return true;
	for (u32 len = 2; len <= CALL_MAX; len++)
		if (bytes[CALL_MAX - len] == 0xff &&
		    indirect_call(&bytes[CALL_MAX - len + 1]) == len)
			return true;
	return false;
}

/*
 * At the start and the end of a function the innermost frame is still, or again, that of its
 * caller: the return address is at RSP, or above the RBP that was just pushed.
 */
static bool before_frame(struct cpu *cpu, const struct engine_where *code, u64 *address)
{
	static const struct {
		u8 size, bytes[4], depth;
	} rows[] = {
		{ 4, { 0xf3, 0x0f, 0x1e, 0xfa }, 0 }, /* ENDBR64 */
		{ 1, { 0x55 }, 0 },		      /* PUSH RBP */
		{ 3, { 0x48, 0x89, 0xe5 }, 8 },	      /* MOV RBP, RSP */
		{ 3, { 0x48, 0x8b, 0xec }, 8 },	      /* the same */
		{ 1, { 0xc3 }, 0 },		      /* RET */
	};

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		u8 bytes[4];

		if (peek(cpu, code->rip, bytes, rows[i].size) &&
		    !memcmp(bytes, rows[i].bytes, rows[i].size))
			return peek(cpu, code->rsp + rows[i].depth, address, sizeof(*address)) &&
			       follows_call(cpu, *address);
	}
	return false;
}

u32 vcpu_frames(struct vcpu *vcpu, const struct engine_where *code, u64 *out, u32 most)
{
	struct cpu *cpu = vcpu->cpu;
	u64 frame = code->rbp, least = code->rsp;
	struct {
		u64 next, address;
	} at;
	u32 n = 0;

	if (!cpu_code64(cpu))
		return 0;
	if (before_frame(cpu, code, &out[0]))
		n++;
	while (n < most && frame % 8 == 0 && frame >= least && frame - code->rsp < STACK_MAX &&
	       peek(cpu, frame, &at, sizeof(at)) && follows_call(cpu, at.address)) {
		out[n++] = at.address;
		least = frame + sizeof(at);
		frame = at.next;
	}
	return n;
}
