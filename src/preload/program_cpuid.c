// SPDX-License-Identifier: MIT
/*
 * The program's own CPUID. Programs that use KVM execute CPUID natively to learn the vendor, and
 * would see the host's although another model was asked for. There is no way to intercept it
 * everywhere (CPUID faulting is rarely there inside a VM), so that it is replaced in the main
 * executable, at load time, before the executable's first instruction: each CPUID becomes a UD2,
 * answered in the SIGILL handler with the model's values.
 *
 * Which bytes are instructions is found by decoding functions from their start; the starts and
 * lengths are those of the unwind table (.eh_frame_hdr, LSB 5.0 10.6.2), which stripped executables
 * have too. A function that does not decode from start to end is left alone from the failure on:
 * data is never changed.
 *
 * QEMU has one function, host_cpuid(), which is replaced as a whole.
 *
 * Code is patched in the library's constructor, before there are other threads; answers are given
 * in a signal handler on any of them.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <Zydis/Zydis.h>

#include "base/log.h"
#include "base/memfile.h"
#include "preload/preload.h"
#include "preload/real_libc.h"
#include "vm/cpuid/cpuid.h"

#define MAX_SITES 1024

/* Written once at load time, before other threads. */
static struct native {
	const struct model *model;
	u32 nsites;
	u8 *sites[MAX_SITES]; /* sorted by nothing: SIGILL is rare */
} native;

static const u8 cpuid_bytes[2] = { 0x0f, 0xa2 }, ud2_bytes[2] = { 0x0f, 0x0b };

/* The executable's code and the table of its functions. */
struct image {
	u64 base;
	u8 *code_start, *code_end; /* of all executable segments */
	const u8 *functions;	   /* .eh_frame_hdr */
};

static int first_image(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct image *image = arg;

	(void)size;
	image->base = info->dlpi_addr;
	for (u32 i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		u8 *start = (u8 *)info->dlpi_addr + ph->p_vaddr, *end = start + ph->p_memsz;

		if (ph->p_type == PT_GNU_EH_FRAME)
			image->functions = start;
		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X))
			continue;
		if (!image->code_start || start < image->code_start)
			image->code_start = start;
		if (end > image->code_end)
			image->code_end = end;
	}
	return 1; /* the executable comes first; the libraries are not looked at */
}

/* A file with a copy of memory, and n bytes written over it; -1: none could be made. */
static int copy_of(const u8 *start, size_t size, size_t at, const void *bytes, size_t n)
{
	int fd = memfile_create("vpmu-program", MFD_CLOEXEC);

	if (fd >= 0 && (pwrite(fd, start, size, 0) != (ssize_t)size ||
			pwrite(fd, bytes, n, at) != (ssize_t)n)) {
		real()->close(fd);
		return -1;
	}
	return fd;
}

/* The new pages are mapped elsewhere first: if that is refused the code stays as it is. */
static bool replace_pages(u8 *page, size_t len, size_t at, const void *bytes, size_t n)
{
	int fd = copy_of(page, len, at, bytes, n);
	void *fresh;

	if (fd < 0)
		return false;
	fresh = mmap(NULL, len, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	real()->close(fd);
	if (fresh == MAP_FAILED)
		return false;
	if (mremap(fresh, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, page) != MAP_FAILED)
		return true;
	munmap(fresh, len);
	return false;
}

/* Tried on a page that nobody needs. */
static bool can_become_executable(void)
{
	void *page =
		mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool ok = page != MAP_FAILED && !mprotect(page, PAGE_SIZE, PROT_READ | PROT_EXEC);

	if (page != MAP_FAILED)
		munmap(page, PAGE_SIZE);
	return ok;
}

static bool write_in_place(u8 *page, size_t len, size_t at, const void *bytes, size_t n)
{
	if (!can_become_executable() || mprotect(page, len, PROT_READ | PROT_WRITE))
		return false;
	memcpy(page + at, bytes, n);
	return !mprotect(page, len, PROT_READ | PROT_EXEC);
}

/*
 * Writes to code, by a file that takes the place of its pages: where W^X is enforced (PR_SET_MDWE,
 * systemd's MemoryDenyWriteExecute) pages that have been writable never become executable. Where
 * files in memory cannot be executed (vm.memfd_noexec), in place.
 */
static bool write_code(u8 *at, const void *bytes, size_t n)
{
	u8 *page = (u8 *)((u64)at & PAGE_MASK);
	size_t len = ((u64)at + n - (u64)page + PAGE_SIZE - 1) & PAGE_MASK;

	return replace_pages(page, len, at - page, bytes, n) ||
	       write_in_place(page, len, at - page, bytes, n);
}

static void patch_site(u8 *at)
{
	if (native.nsites == MAX_SITES)
		return;
	if (!write_code(at, ud2_bytes, sizeof(ud2_bytes))) {
		log_once(LOG_WARN, "the program's code cannot be replaced: its own CPUID shows the "
				   "host, not the model");
		return;
	}
	native.sites[native.nsites++] = at;
}

static void patch_function(const ZydisDecoder *decoder, u8 *start, size_t n)
{
	ZydisDecodedInstruction insn;

	if (!memmem(start, n, cpuid_bytes, sizeof(cpuid_bytes)))
		return;
	for (size_t at = 0; at < n; at += insn.length) {
		if (ZYAN_FAILED(ZydisDecoderDecodeInstruction(decoder, NULL, start + at, n - at,
							      &insn)))
			return;
		if (insn.mnemonic == ZYDIS_MNEMONIC_CPUID && insn.length == sizeof(cpuid_bytes))
			patch_site(start + at);
	}
}

/* The layout that GNU ld and lld write: pointer forms 0x1b, 0x03 and 0x3b. */
struct function_table {
	u8 version, frame_form, count_form, entry_form;
	s32 frame;
	u32 count;
	struct {
		s32 start, unwind; /* relative to the table */
	} entry[];
};

/* An unwind record (FDE) whose pointers are 32 bits, relative to where they stand: start,
 * length. */
struct unwind_record {
	u32 length, cie;
	s32 start;
	u32 size;
};

static size_t function_size(const struct function_table *table, u32 i)
{
	const struct unwind_record *record =
		(const void *)((const u8 *)table + table->entry[i].unwind);
	const u8 *start = (const u8 *)table + table->entry[i].start;

	return (const u8 *)&record->start + record->start == start ? record->size : 0;
}

static void patch_executable(const struct image *image)
{
	const struct function_table *table = (const void *)image->functions;
	ZydisDecoder decoder;

	if (!table || table->version != 1 || table->count_form != 0x03 ||
	    table->entry_form != 0x3b) {
		log_warn("the program has no unwind table: its own CPUID shows the host, not the "
			 "model");
		return;
	}
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (u32 i = 0; i < table->count; i++) {
		u8 *start = (u8 *)table + table->entry[i].start;
		size_t n = function_size(table, i);

		if (start >= image->code_start && start + n <= image->code_end)
			patch_function(&decoder, start, n);
	}
}

/* QEMU's host_cpuid(), with its parameters. */
static void qemu_host_cpuid(u32 leaf, u32 subleaf, u32 *eax, u32 *ebx, u32 *ecx, u32 *edx)
{
	u32 *const out[4] = { eax, ebx, ecx, edx };
	u32 regs[4];

	cpuid_native(native.model, leaf, subleaf, regs);
	for (u32 i = 0; i < 4; i++)
		if (out[i])
			*out[i] = regs[i];
}

static bool replace_function(const struct image *image, const char *name, void *with)
{
	u8 *at = dlsym(RTLD_DEFAULT, name);
	u8 jump[14] = { 0xff, 0x25, 0, 0, 0, 0 }; /* jmp [rip + 0], and the address */

	if (!at || at < image->code_start || at >= image->code_end)
		return false;
	memcpy(jump + 6, &with, sizeof(with));
	return write_code(at, jump, sizeof(jump));
}

void program_cpuid_patch(const struct model *model)
{
	struct image image = { 0 };

	dl_iterate_phdr(first_image, &image);
	native.model = model;
	if (replace_function(&image, "host_cpuid", (void *)qemu_host_cpuid))
		return;
	patch_executable(&image);
	if (native.nsites)
		signals_open_sigill();
	log_debug("%u CPUID instructions of the program answer as %s", native.nsites, model->name);
}

static bool is_site(const u8 *at)
{
	for (u32 i = 0; i < native.nsites; i++)
		if (native.sites[i] == at)
			return true;
	return false;
}

bool program_cpuid_signal(int sig, void *ucontext)
{
	greg_t *gregs = ((ucontext_t *)ucontext)->uc_mcontext.gregs;
	u32 regs[4];

	if (sig != SIGILL || !is_site((const u8 *)gregs[REG_RIP]))
		return false;
	cpuid_native(native.model, gregs[REG_RAX], gregs[REG_RCX], regs);
	gregs[REG_RAX] = regs[0];
	gregs[REG_RBX] = regs[1];
	gregs[REG_RCX] = regs[2];
	gregs[REG_RDX] = regs[3];
	gregs[REG_RIP] += sizeof(cpuid_bytes);
	return true;
}
