// SPDX-License-Identifier: MIT
/*
 * QEMU's command line: the machine, its memory and devices, the kernel. QEMU neither saves nor
 * resumes a machine that has a device served by another process, as the host's files are. Machines
 * that are saved have an empty PCI Express port instead, into which it is plugged when they are
 * resumed; others need no PCI.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	if (line->count == MAX_WORDS)
		line->is_short = true;
	else if (vasprintf(&line->word[line->count], fmt, args) < 0)
		line->is_broken = true;
	else
		line->count++;
	va_end(args);
}

/* An option and its value. */
#define add_option(line, option, ...)   \
	do {                            \
		add(line, option);      \
		add(line, __VA_ARGS__); \
	} while (0)

static const struct machine_type {
	const char *name, *options;
	const char *resumable; /* further options of machines that are saved; NULL: it cannot be */
	const char *suffix;    /* of its virtio devices */
	const char *firmware;  /* NULL: QEMU's default */
} types[] = {
	/*
	 * qboot by name: the default is bios-microvm.bin, which is a link to qboot in Debian 12 and
	 * SeaBIOS in Debian 13 and upstream. Without option ROMs SeaBIOS does not find the kernel.
	 */
	{ "microvm", "microvm,pit=off,pic=off,rtc=off,ioapic2=off,x-option-roms=off", ",pcie=on",
	  "device", "qboot.rom" },
	{ "q35", "q35,smm=off,vmport=off", NULL, "pci", NULL },
};

static const struct machine_type *find_type(const char *name)
{
	for (u32 i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

bool line_has_machine(const char *name)
{
	return find_type(name);
}

bool line_can_resume(const char *machine)
{
	return find_type(machine)->resumable;
}

/* Of descriptors (-add-fd): QEMU opens no file for writing by a name of the file system. */
#define CONSOLE_SET 1

static void add_machine(struct line *line, const struct exec_options *options, u32 khz,
			const struct wiring *wiring)
{
	const struct machine_type *type = find_type(options->machine);
	static const char *const plain[] = { "-nodefaults", "-no-user-config", "-no-reboot",
					     "-display", "none" };

	for (u32 i = 0; i < ARRAY_SIZE(plain); i++)
		add(line, "%s", plain[i]);
	if (options->name)
		add_option(line, "-name", "%s", options->name);
	if (!options->qemu || !strstr(options->qemu, "-sandbox"))
		add_option(line, "-sandbox", QEMU_SANDBOX);
	add_option(line, "-M", "%s%s,accel=%s,memory-backend=ram", type->options,
		   wiring->is_resumable ? type->resumable : "", options->tcg ? "tcg" : "kvm");
	/* The frequency is said so that QEMU lets a machine with an invariant TSC be saved. */
	if (options->tcg)
		add_option(line, "-cpu", "max");
	else
		add_option(line, "-cpu", "host,migratable=off,tsc-frequency=%llu", khz * 1000ull);
	add_option(line, "-smp", "%u", options->cpus);
	add_option(line, "-m", "%u", options->memory);
	add_option(line, "-object",
		   "memory-backend-file,id=ram,size=%uM,share=on,mem-path=/dev/fd/%d",
		   options->memory, wiring->ram);
	add_option(line, "-global", "virtio-mmio.force-legacy=false");
	/* A kick of the serial port is served within the exit, and not when QEMU's main loop comes
	 * to it: machines that are saved are the same, too. */
	if (options->deterministic)
		add_option(line, "-global", "virtio-mmio.ioeventfd=off");
	if (type->firmware)
		add_option(line, "-bios", "%s", type->firmware);
}

/* A machine that is saved has the device in its port until then: exec/guest/parked.c. */
static void add_port(struct line *line, const struct wiring *wiring)
{
	add_option(line, "-device", "pcie-root-port,id=socket");
	if (wiring->initramfs >= 0)
		add_option(line, "-device", "vhost-user-fs-pci,bus=socket,chardev=files,tag=root");
}

static void add_devices(struct line *line, const struct exec_options *options,
			const struct wiring *wiring)
{
	const char *suffix = find_type(options->machine)->suffix;

	add_option(line, "-add-fd", "fd=%d,set=%u", wiring->console, CONSOLE_SET);
	add_option(line, "-chardev", "file,id=console,path=/dev/fdset/%u,append=on", CONSOLE_SET);
	add_option(line, "-serial", "chardev:console");
	add_option(line, "-chardev", "socket,id=link,fd=%d", wiring->link);
	add_option(line, "-device", "virtio-serial-%s,max_ports=2", suffix);
	add_option(line, "-device", "virtserialport,chardev=link,name=vpmu");
	if (options->network) {
		add_option(line, "-netdev", "user,id=net");
		add_option(line, "-device", "virtio-net-%s,netdev=net", suffix);
	}
	if (wiring->files >= 0)
		add_option(line, "-chardev", "socket,id=files,fd=%d", wiring->files);
	if (wiring->is_resumable)
		add_port(line, wiring);
	else
		add_option(line, "-device", "vhost-user-fs-%s,chardev=files,tag=root", suffix);
	add_option(line, "-chardev", "socket,id=monitor,fd=%d", wiring->monitor);
	add_option(line, "-mon", "chardev=monitor,mode=control");
}

/* Linux lets the guest's first process map registers of a device that has a driver if iomem is
 * relaxed: exec/guest/parked.c. */
static void add_kernel(struct line *line, const struct exec_options *options, const char *image,
		       const struct wiring *wiring)
{
	add_option(line, "-kernel", "%s", image);
	add_option(line, "-initrd", "/dev/fd/%d", wiring->initramfs);
	add_option(line, "-append",
		   "console=ttyS0 %s panic=-1 nowatchdog nokaslr mitigations=off init_on_alloc=0 "
		   "cryptomgr.notests random.trust_cpu=on rcupdate.rcu_expedited=1 audit=0 "
		   "pcie_ports=compat%s%s",
		   options->verbose ? "ignore_loglevel" : "quiet",
		   options->deterministic ? " vpmu_link=files" : " norandmaps",
		   wiring->is_resumable ? " iomem=relaxed vpmu_park=1" : "");
}

static void add_own_words(struct line *line, const char *words)
{
	char *list = words ? strdup(words) : NULL, *rest = list, *word;

	if (words && !list)
		line->is_broken = true;
	while (list && (word = strsep(&rest, " ")))
		if (*word)
			add(line, "%s", word);
	free(list);
}

void line_make(struct line *line, const struct exec_options *options, const char *image, u32 khz,
	       const struct wiring *wiring)
{
	add(line, "vpmu");
	add(line, "kvm");
	if (options->cpu)
		add_option(line, "--cpu", "%s", options->cpu);
	if (options->baseline)
		add(line, "--baseline");
	if (options->pmu)
		add_option(line, "--pmu", "%s", options->pmu);
	if (options->accounting)
		add_option(line, "--accounting", "%s", options->accounting);
	if (options->timing)
		add_option(line, "--timing", "%s", options->timing);
	if (options->llc)
		add_option(line, "--llc", "%s", options->llc);
	if (options->llc_life)
		add_option(line, "--llc-life", "%s", options->llc_life);
	if (options->virtual_clock)
		add_option(line, "--clock", "virtual");
	if (options->quantum)
		add_option(line, "--quantum", "%u", options->quantum);
	if (options->harden)
		add(line, "--harden");
	add(line, "qemu-system-x86_64");
	add_machine(line, options, khz, wiring);
	add_devices(line, options, wiring);
	if (wiring->initramfs < 0)
		add_option(line, "-incoming", "defer");
	else
		add_kernel(line, options, image, wiring);
	add_own_words(line, options->qemu);
}

void line_print(FILE *out, const struct line *line)
{
	for (u32 i = 0; i < line->count; i++) {
		bool quote = strpbrk(line->word[i], " '\"\\$&;()<>|*?") || !line->word[i][0];

		fprintf(out, "%s%s%s%s", i ? " " : "", quote ? "'" : "", line->word[i],
			quote ? "'" : "");
	}
	fputc('\n', out);
}
