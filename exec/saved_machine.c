// SPDX-License-Identifier: MIT
/*
 * Machines that have booted, kept for the next start. A state is one file in the user's cache
 * folder: QEMU's migration stream without memory, and the memory, with holes where it is zero. Its
 * key is everything that the state depends on (files, options, the host's processor), in lines that
 * begin with a name; a machine with another key has another file. A state that cannot be made or
 * read is no error: the machine boots. One that is there and is not what its name says is not used,
 * and the reason is said; so is why one that was made cannot be kept.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memfile.h"
#include "base/turns.h"
#include "base/version.h"
#include "cli/base/monotonic.h"
#include "exec/exec.h"
#include "exec/qmp.h"
#include "exec/wire.h"

#define MAGIC	       "vpmu-st3"
#define BOOT_SECONDS   120
#define SETTLE_SECONDS 30
#define WAIT_NS	       20000000

struct header {
	char magic[8];
	u32 khz, key_size;
	u64 device_offset, device_size, ram_offset, ram_size; /* whole pages */
};

/* --- the key --- */

static void put_file(FILE *out, const char *name, const char *path)
{
	struct stat st = { 0 };

	stat(path, &st);
	fprintf(out, "%s: %s %ju %ju %ju.%09ld\n", name, path, (uintmax_t)st.st_ino,
		(uintmax_t)st.st_size, (uintmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

/* What the host's processor is: a state has seen its features. */
static void put_processor(FILE *out)
{
	FILE *in = fopen("/proc/cpuinfo", "re");
	char line[8192];

	while (in && fgets(line, sizeof(line), in) && line[0] != '\n')
		if (!strncmp(line, "model name", 10) || !strncmp(line, "flags", 5) ||
		    !strncmp(line, "microcode", 9))
			fprintf(out, "host's processor: %s", line);
	if (in)
		fclose(in);
}

/* The server of the host's files: a saved guest has agreed with it on what FUSE has to offer. */
static void put_server(FILE *out)
{
	char path[PATH_MAX] = "";

	if (readlink("/proc/self/exe", path, sizeof(path) - 1) > 0)
		put_file(out, "file server", path);
}

static void put_modules(FILE *out, const char *folder)
{
	char path[PATH_MAX + 300];
	struct dirent **entries;
	int count = scandir(folder, &entries, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.')
			put_file(out, "module", path);
	}
}

/* What the library reads of the environment and a guest can see. Modes of the PMU may change while
 * a machine runs, but not whether it has one. */
static void put_environment(FILE *out, const struct exec_options *options)
{
	const char *timing = options->timing ?: getenv("VPMU_TIMING") ?: "static";

	fprintf(out, "CPU model: %s\n",
		options->cpu ?: getenv("VPMU_CPU") ?: "the nearest to the host");
	fprintf(out, "CPUID: %s\n", getenv("VPMU_STRICT_CPUID") ? "strict" : "completed");
	fprintf(out, "timing: %s\n", timing);
	/* Without full timing nothing that a machine has when it is saved depends on it. */
	if (!strcmp(timing, "full"))
		fprintf(out, "last level: %s for %s\n", options->llc ?: getenv("VPMU_LLC") ?: "all",
			options->llc_life ?: getenv("VPMU_LLC_LIFE") ?: "ever");
	fprintf(out, "PMU: %s\n", strcmp(getenv("VPMU_PMU") ?: "", "off") ? "on" : "off");
}

static char *make_key(const struct exec_options *options, const struct exec_kernel *kernel,
		      const char *init)
{
	struct wiring wiring = {
		.is_resumable = true
	}; /* all there: both that saves and that resumes are like it */
	struct exec_options known = *options;
	struct line line = { .count = 0 };
	char *key = NULL, library[PATH_MAX] = "", qemu[PATH_MAX];
	size_t size;
	FILE *out = open_memstream(&key, &size);

	if (!out)
		return NULL;
	fprintf(out, "version of vpmu: " VPMU_VERSION "\n");
	put_environment(out, options);
	known.llc = known.llc_life = NULL; /* put_environment() has it */
	known.name = NULL;		   /* one state for all of them */
	line_make(&line, &known, kernel->image, 0, &wiring);
	fputs("command: ", out);
	line_print(out, &line);
	find_part("libvpmu-kvm.so", library);
	put_file(out, "library", library);
	put_file(out, "first process", init);
	put_server(out);
	put_file(out, "kernel", kernel->image);
	if (machine_find_qemu(qemu))
		put_file(out, "QEMU", qemu);
	put_modules(out, kernel->modules);
	put_processor(out);
	if (!fclose(out) && !line.is_broken && !line.is_short)
		return key;
	free(key); /* without a word of it, it may be another machine's */
	return NULL;
}

static void name_state(const char *key, const char *cache, char path[PATH_MAX])
{
	u64 hash = 14695981039346656037ull; /* FNV-1a */

	for (; *key; key++)
		hash = (hash ^ (u8)*key) * 1099511628211ull;
	snprintf(path, PATH_MAX, "%.*s/%016llx.state", PATH_MAX - 64, cache,
		 (unsigned long long)hash);
}

/* --- reading --- */

/* Copies what is no hole; the target is new and all hole. */
static bool copy_data(int from, u64 offset, u64 size, int to)
{
	u64 end = offset + size, at = offset;

	if (ftruncate(to, size))
		return false;
	while (at < end) {
		off_t data = lseek(from, at, SEEK_DATA), hole, n = 0;

		if (data < 0)
			return errno == ENXIO;
		if ((u64)data >= end)
			return true;
		hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return false;
		if ((u64)hole > end)
			hole = end;
		void *map =
			mmap(NULL, hole - data, PROT_READ, MAP_PRIVATE | MAP_POPULATE, from, data);

		if (map == MAP_FAILED)
			return false;
		for (off_t done = 0; n >= 0 && done < hole - data; done += n)
			n = pwrite(to, (u8 *)map + done, hole - data - done, data - offset + done);
		munmap(map, hole - data);
		if (n < 0)
			return false;
		at = hole;
	}
	return true;
}

/* Why a state is not used: at most one line. */
struct reason {
	char text[PATH_MAX + 512];
};

__attribute__((format(printf, 2, 3))) static bool refuse(struct reason *reason, const char *fmt,
							 ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(reason->text, sizeof(reason->text), fmt, args);
	va_end(args);
	return false;
}

/* Names the first line in which two keys differ, and its values unless they are long. */
static bool refuse_key(struct reason *reason, const char *found, const char *wanted)
{
	const char *line = wanted;
	int name, is, be;

	for (size_t i = 0; found[i] == wanted[i]; i++)
		if (wanted[i] == '\n')
			line = wanted + i + 1;
	found += line - wanted;
	name = strcspn(line, ":\n");
	be = strcspn(line, "\n");
	is = strcspn(found, "\n");
	if (is > 64 || be > 64 || is < name + 2 || be < name + 2)
		return refuse(reason, "its %.*s is another one", name, line);
	return refuse(reason, "its %.*s is '%.*s', not '%.*s'", name, line, is - name - 2,
		      found + name + 2, be - name - 2, line + name + 2);
}

#define MAX_KEY (1u << 20)

static bool check_key(int fd, const struct header *header, const char *key, struct reason *reason)
{
	size_t size = header->key_size;
	char *found = size < MAX_KEY ? calloc(1, size + 1) : NULL;
	bool ok;

	if (!found || pread(fd, found, size, sizeof(*header)) != (ssize_t)size)
		ok = refuse(reason, "it is damaged");
	else
		ok = !strcmp(found, key) || refuse_key(reason, found, key);
	free(found);
	return ok;
}

static u64 whole_pages(u64 size)
{
	return (size + PAGE_SIZE - 1) & PAGE_MASK;
}

/* One part after the other, and the memory to the end of the file. */
static bool is_whole(const struct header *header, u64 size)
{
	return header->device_offset == whole_pages(sizeof(*header) + header->key_size) &&
	       header->device_size <= size && header->ram_size <= size &&
	       header->ram_offset == header->device_offset + header->device_size &&
	       header->ram_offset == size - header->ram_size;
}

static bool check_state(int fd, const char *path, const char *key, struct header *header,
			struct reason *reason)
{
	struct distrust distrust;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return refuse(reason, "it is no file");
	if (!trust_attributes(path, &st, &distrust))
		return refuse(reason, "%s", distrust.why);
	if (pread(fd, header, sizeof(*header), 0) != sizeof(*header))
		return refuse(reason, "it is damaged");
	if (memcmp(header->magic, MAGIC, sizeof(header->magic)))
		return refuse(reason, "it was made by another version of vpmu");
	return check_key(fd, header, key, reason) &&
	       (is_whole(header, st.st_size) || refuse(reason, "it is damaged"));
}

static bool read_state(const char *path, const char *key, struct exec_state *state)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct reason reason;
	struct header header;
	bool ok;

	if (fd < 0)
		return false;
	ok = check_state(fd, path, key, &header, &reason);
	if (!ok)
		fprintf(stderr, "vpmu: a saved machine is not used, and made again: %s\n",
			reason.text);
	if (ok) {
		state->khz = header.khz;
		state->kept = fd;
		state->kept_offset = header.ram_offset;
		state->ram = memfile_create("ram", MFD_CLOEXEC);
		state->device = memfile_create("device", MFD_CLOEXEC);
		ok = !ftruncate(state->ram, header.ram_size) &&
		     copy_data(fd, header.device_offset, header.device_size, state->device);
	}
	if (ok)
		futimens(fd, NULL); /* for what is least recently used; may be read-only */
	else if (state->kept < 0)
		close(fd);
	return ok;
}

bool state_fill(const struct exec_state *state)
{
	struct stat st;

	if (state->kept < 0)
		return true; /* it was made a moment ago: all of it is there */
	return !fstat(state->ram, &st) &&
	       copy_data(state->kept, state->kept_offset, st.st_size, state->ram);
}

/* --- making --- */

static bool is_zero(const u8 *page)
{
	return !page[0] && !memcmp(page, page + 1, PAGE_SIZE - 1);
}

/* A disk that becomes full takes a part first, and says why when it is to take the rest. */
static bool write_all(int to, const void *bytes, u64 size, u64 offset)
{
	ssize_t n = 1;

	for (u64 done = 0; n > 0 && done < size; done += n)
		n = pwrite(to, (const u8 *)bytes + done, size - done, offset + done);
	return n > 0;
}

/* Writes the pages of a file in memory that are not zero. */
static bool write_pages(int from, int to, u64 offset, u64 size)
{
	u8 *map = mmap(NULL, size, PROT_READ, MAP_SHARED, from, 0);
	bool ok = map != MAP_FAILED;

	for (u64 at = 0, end; ok && at < size; at = end) {
		off_t data = lseek(from, at, SEEK_DATA);

		if (data < 0 || (u64)data >= size)
			break;
		at = data & PAGE_MASK;
		for (end = at; end < size && end - at < 1 << 20 && !is_zero(map + end);)
			end += PAGE_SIZE;
		if (end == at)
			end += PAGE_SIZE;
		else
			ok = write_all(to, map + at, end - at, offset + at);
	}
	if (map != MAP_FAILED)
		munmap(map, size);
	return ok && !ftruncate(to, offset + size);
}

static bool write_state(int fd, const char *key, const struct exec_state *state)
{
	struct stat device, ram;
	struct header header = { .magic = MAGIC, .khz = state->khz, .key_size = strlen(key) };

	if (fstat(state->device, &device) || fstat(state->ram, &ram))
		return false;
	header.device_offset = whole_pages(sizeof(header) + header.key_size);
	header.device_size = whole_pages(device.st_size);
	header.ram_offset = header.device_offset + header.device_size;
	header.ram_size = ram.st_size;
	return !ftruncate(state->device, header.device_size) &&
	       write_all(fd, &header, sizeof(header), 0) &&
	       write_all(fd, key, header.key_size, sizeof(header)) &&
	       write_pages(state->device, fd, header.device_offset, header.device_size) &&
	       write_pages(state->ram, fd, header.ram_offset, header.ram_size);
}

/* False: errno. */
static bool keep_state(const char *cache, const char *path, const char *key,
		       const struct exec_state *state)
{
	struct state_file file;
	int fd = state_file_open(cache, path, &file);

	return fd >= 0 && state_file_close(&file, write_state(fd, key, state), path);
}

/* The guest's first process says when it waits for its order; QEMU says if the machine fails
 * before. */
static bool wait_ready(int link, struct monitor *monitor, u32 seconds)
{
	u64 deadline = monotonic_ms() + seconds * 1000ull, at;
	struct pollfd wait[] = { { link, POLLIN, 0 }, { monitor->fd, POLLIN, 0 } };
	/* For a frame that does not come as a whole. */
	struct timeval limit = { .tv_sec = seconds };
	struct frame frame;

	while ((at = monotonic_ms()) < deadline && !wait[0].revents) {
		if (poll(wait, ARRAY_SIZE(wait), deadline - at) <= 0 ||
		    (wait[1].revents && (wait[1].revents != POLLIN || monitor_read(monitor))))
			return false;
	}
	return wait[0].revents &&
	       !setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) &&
	       recv(link, &frame, sizeof(frame), MSG_WAITALL) == sizeof(frame) &&
	       frame.type == FRAME_READY;
}

/*
 * A deterministic guest goes on after that, to the instruction that waits for its order: a machine
 * that is saved before has another state each time.
 */
static bool wait_settled(int file, u32 seconds)
{
	struct turns *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	u64 deadline = monotonic_ms() + seconds * 1000ull;
	bool settled = false;

	if (page == MAP_FAILED)
		return false;
	while (!(settled = turns_read(&page->waits)) && monotonic_ms() < deadline)
		turns_wait(&page->waits, 0, WAIT_NS);
	munmap(page, PAGE_SIZE);
	return settled;
}

static void close_all(const int *fds, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* The files of a machine that is to be saved. False: errno; `failed` as initramfs_make() has it. */
static bool make_files(const struct exec_options *options, const struct initramfs *initramfs,
		       struct wiring *wiring, struct exec_state *state, char failed[PATH_MAX])
{
	wiring->turns = options->virtual_clock ? virtual_turns(options) : -1;
	if (options->virtual_clock && wiring->turns < 0)
		return false;
	wiring->initramfs = initramfs_make(initramfs, failed);
	if (wiring->initramfs < 0)
		return false;
	wiring->ram = state->ram = memfile_create("ram", MFD_CLOEXEC);
	if (state->ram < 0)
		return false;
	state->device = memfile_create("device", MFD_CLOEXEC);
	return state->device >= 0;
}

/* A guest that is not deterministic boots without, and says it then. */
static void say_unprepared(const struct exec_options *options, const char *failed)
{
	if (options->deterministic || options->verbose)
		failure(STATUS_BROKEN, "cannot prepare a guest to be saved: %s%s%s", failed,
			*failed ? ": " : "", strerror(errno));
}

static bool boot_and_save(const struct exec_options *chosen, const struct exec_kernel *kernel,
			  const char *init, struct exec_state *state)
{
	struct exec_options seedless = *chosen, *options = &seedless; /* one state for all seeds */
	struct initramfs initramfs = { init, kernel->modules, options->network };
	int link[2] = { -1, -1 }, monitor[2] = { -1, -1 }, files[2] = { -1, -1 }, console = -1;
	struct server_files served = NO_SERVER_FILES;
	struct monitor ours;
	struct wiring wiring = NO_WIRING;
	struct line line = { .count = 0 };
	char failed[PATH_MAX] = "";
	struct exec_machine machine = { .qemu = -1, .share = -1 };
	bool ok;

	state->khz = machine_khz(options);
	seedless.seed = 0;
	seedless.shared_count = 0; /* and for all folders */
	ok = console_open(options->verbose, &wiring.console, &console) &&
	     !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) &&
	     !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, monitor) &&
	     !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files) &&
	     make_files(options, &initramfs, &wiring, state, failed);
	if (!ok)
		say_unprepared(options, failed);
	wiring.link = link[1];
	wiring.monitor = monitor[1];
	wiring.files = files[1];
	wiring.is_resumable = true;
	wiring.kept = &machine.kept;
	served.turns = wiring.turns;
	kept_files_open(options, machine_is_confined(options), &machine.kept);
	line_make(&line, options, kernel->image, state->khz, &wiring);
	if (ok && !line.is_broken)
		machine.share = machine_start_share(files[0], options, &served, true);
	if (machine.share > 0)
		machine.qemu = machine_start_qemu(&line, &wiring, options);
	close_all((const int[]){ link[1], monitor[1], files[0], files[1], wiring.console,
				 wiring.initramfs },
		  6);
	ours = (struct monitor){ .fd = monitor[0] };
	ok = machine.qemu > 0 && monitor_open(&ours) && !monitor_has_failed(&ours) &&
	     wait_ready(link[0], &ours, BOOT_SECONDS) &&
	     (!options->deterministic || wait_settled(wiring.turns, SETTLE_SECONDS)) &&
	     monitor_save(&ours, state->device);
	machine_stop(&machine);
	close_all((const int[]){ link[0], monitor[0], console, wiring.turns }, 4);
	return ok;
}

/* --- the cache --- */

void state_close(struct exec_state *state)
{
	close_all((const int[]){ state->ram, state->device, state->kept }, 3);
	*state = (struct exec_state)NO_STATE;
}

/* Its state is used as it lies in memory, whether or not it can be kept. */
static bool make_state(const struct exec_options *options, const struct exec_kernel *kernel,
		       const char *init, const char *cache, const char *path, const char *key,
		       struct exec_state *state)
{
	machine_say(options, "booting the first guest of this kind; the next one resumes");
	if (!boot_and_save(options, kernel, init, state))
		return false;
	if (!keep_state(cache, path, key, state))
		fprintf(stderr,
			"vpmu: the machine is not kept in %s, and the next guest boots again: %s\n",
			cache, strerror(errno));
	state_files_trim(cache);
	return !lseek(state->device, 0, SEEK_SET); /* QEMU reads it from there */
}

static bool find_state(const struct exec_options *options, const struct exec_kernel *kernel,
		       const char *init, const char *cache, const char *key,
		       struct exec_state *state)
{
	char path[PATH_MAX];
	bool is_refused;

	name_state(key, cache, path);
	if (read_state(path, key, state))
		return true;
	is_refused = !access(path, F_OK);
	state_close(state);
	if (make_state(options, kernel, init, cache, path, key, state))
		return true;
	state_close(state);
	/* Another process may have made one meanwhile. */
	return !is_refused && read_state(path, key, state);
}

bool state_get(const struct exec_options *options, const struct exec_kernel *kernel,
	       const char *init, struct exec_state *state)
{
	char *key = make_key(options, kernel, init), cache[PATH_MAX];
	bool ok =
		key && kernel_cache(cache) && find_state(options, kernel, init, cache, key, state);

	if (!ok)
		state_close(state);
	free(key);
	return ok;
}

void state_forget(const struct exec_options *options, const struct exec_kernel *kernel,
		  const char *init)
{
	char *key = make_key(options, kernel, init), cache[PATH_MAX], path[PATH_MAX];

	if (key && kernel_cache(cache)) {
		name_state(key, cache, path);
		unlink(path);
	}
	free(key);
}
