// SPDX-License-Identifier: MIT
/*
 * The file of vpmu exec --trace-hash (base/trace.h): a header with what is needed to run the
 * command again, and the records that the process of the VM sends. That process has a socket and
 * not the file: a guest that gets hold of it cannot change which command vpmu diverge will run. Nor
 * does the file server let it change the file by its name (own_places.c).
 *
 * Two identical runs make identical files: nothing of the file's own name is in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/inherited.h"
#include "base/version.h"
#include "exec/exec.h"
#include "vm/cpuid/cpuid.h"

/* --- the header --- */

/* 0 if it cannot be read. */
static u64 hash_file(int fd, u64 *size)
{
	struct stat st;
	void *map;
	u64 hash;

	*size = 0;
	if (fstat(fd, &st) || !st.st_size)
		return 0;
	map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return 0;
	*size = st.st_size;
	hash = trace_hash(TRACE_SEED, map, st.st_size);
	munmap(map, st.st_size);
	return hash;
}

static u64 hash_library(void)
{
	char path[PATH_MAX];
	int fd = find_part("libvpmu-kvm.so", path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	u64 size, hash = fd < 0 ? 0 : hash_file(fd, &size);

	if (fd >= 0)
		close(fd);
	return hash;
}

/* How many words an option of ours takes on the command line; 0: it is none. */
static u32 trace_words(const char *word)
{
	static const char *const ours[] = { "--trace-hash", "--trace-every" };

	for (u32 i = 0; i < ARRAY_SIZE(ours); i++) {
		size_t length = strlen(ours[i]);

		if (!strncmp(word, ours[i], length) && (!word[length] || word[length] == '='))
			return word[length] ? 1 : 2;
	}
	return 0;
}

static void put_string(FILE *out, const char *string)
{
	fwrite(string, 1, strlen(string) + 1, out);
}

/* The command line without our own options: returns how many words it has. */
static u32 put_words(FILE *out, const struct exec_options *options)
{
	u32 count = 0;

	for (u32 i = 0; options->words[i];) {
		u32 skip = i < options->option_words ? trace_words(options->words[i]) : 0;

		if (!skip) {
			put_string(out, options->words[i]);
			count++;
		}
		i += skip ?: 1;
	}
	return count;
}

static u32 put_environment(FILE *out)
{
	u32 count = 0;

	for (; environ && environ[count]; count++)
		put_string(out, environ[count]);
	return count;
}

static void fill_header(struct trace_header *header, const struct exec_options *options,
			const struct server_files *files)
{
	const struct model *model = cpuid_model(options->cpu ?: getenv("VPMU_CPU"));

	*header = (struct trace_header){
		.magic = TRACE_MAGIC,
		.version = TRACE_VERSION,
		.every = options->trace_every ?: TRACE_EVERY,
		.build = hash_library(),
		.vpmu = VPMU_VERSION,
	};
	header->input_hash = hash_file(files->input, &header->input_size);
	snprintf(header->model, sizeof(header->model), "%s", model ? model->name : "");
}

static int write_header(const struct exec_options *options, const struct server_files *files,
			FILE *to)
{
	struct trace_header header;
	char folder[PATH_MAX], *strings = NULL;
	size_t size = 0;
	bool is_written;
	FILE *out;

	if (!getcwd(folder, sizeof(folder)))
		return failure(STATUS_BROKEN, "the working directory has no path: %s",
			       strerror(errno));
	out = open_memstream(&strings, &size);
	if (!out)
		return out_of_memory();
	fill_header(&header, options, files);
	put_string(out, folder);
	header.words = put_words(out, options);
	header.variables = put_environment(out);
	if (fclose(out)) {
		free(strings);
		return out_of_memory();
	}
	header.strings = size;
	is_written = fwrite(&header, sizeof(header), 1, to) == 1 &&
		     fwrite(strings, 1, size, to) == size && !fflush(to);
	free(strings);
	if (!is_written)
		return failure(STATUS_BROKEN, "cannot write '%s': %s", options->trace_hash,
			       strerror(errno));
	return size > TRACE_STRINGS_MAX ? failure(STATUS_BROKEN, "the environment is too long for "
								 "a trace")
					: STATUS_OK;
}

/* --- the plan --- */

/* vpmu diverge says which part it wants to see more of; the command is not to see that. */
static struct trace_plan make_plan(const struct exec_options *options)
{
	const char *window = getenv("VPMU_TRACE_WINDOW");
	struct trace_plan plan = { .every = options->trace_every ?: TRACE_EVERY };
	unsigned long long from, to, step;

	if (window && sscanf(window, "%llu,%llu,%llu", &from, &to, &step) == 3)
		plan = (struct trace_plan){ plan.every, from, to, step };
	unsetenv("VPMU_TRACE_WINDOW");
	return plan;
}

/* By another name the guest may be able to write to it. */
static bool has_other_names(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink > 1;
}

static int open_file(const struct exec_options *options, struct exec_trace *trace)
{
	/* It holds the environment, which is the user's own. */
	int pair[2], fd = open(options->trace_hash,
			       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);

	if (fd < 0)
		return failure(STATUS_BROKEN, "cannot write '%s': %s", options->trace_hash,
			       strerror(errno));
	if (has_other_names(fd)) {
		close(fd);
		return failure(STATUS_USAGE, "the trace '%s' has other names (hard links)",
			       options->trace_hash);
	}
	trace->out = fdopen(fd, "w");
	if (!trace->out) {
		close(fd);
		return out_of_memory();
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return failure(STATUS_BROKEN, "cannot prepare a guest: %s", strerror(errno));
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	trace->socket = pair[0];
	trace->end = pair[1];
	return STATUS_OK;
}

int trace_prepare(const struct exec_options *options, const struct server_files *files,
		  struct exec_trace *trace)
{
	int status;

	*trace = (struct exec_trace){ .socket = -1, .end = -1, .plan = make_plan(options) };
	if (!options->trace_hash || options->dry_run)
		return STATUS_OK;
	status = open_file(options, trace);
	if (!status)
		status = write_header(options, files, trace->out);
	if (status && trace->out) {
		fclose(trace->out); /* why has been said */
		trace->out = NULL;
	}
	return status;
}

void trace_export(const struct exec_trace *trace)
{
	const struct trace_plan *plan = &trace->plan;
	char text[128];

	snprintf(text, sizeof(text), "%llu,%llu,%llu,%llu", (unsigned long long)plan->every,
		 (unsigned long long)plan->from, (unsigned long long)plan->to,
		 (unsigned long long)plan->step);
	setenv("VPMU_TRACE", text, 1);
	inherited_export("VPMU_TRACE_SOCKET", &trace->end, 1);
}

/* --- the records --- */

bool trace_is_open(const struct exec_trace *trace)
{
	return trace->out && !trace->is_over && !trace->fault;
}

/* A record has come. */
static void take_record(struct exec_trace *trace)
{
	struct trace_record record;

	memcpy(&record, trace->part, sizeof(record));
	trace->part_size = 0;
	if (record.kind < TRACE_HASH || record.kind > TRACE_STOP) {
		trace->fault = "the process of the guest has sent no record";
		return;
	}
	trace->detail_left = record.kind == TRACE_STATE ? sizeof(struct trace_detail) : 0;
	trace->is_over = record.kind == TRACE_END || record.kind == TRACE_STOP;
	trace->is_stopped = record.kind == TRACE_STOP;
}

/* The first of n bytes that belong together: how many these are. */
static u32 take_bytes(struct exec_trace *trace, const u8 *bytes, u32 n)
{
	u32 left = trace->detail_left ?: sizeof(trace->part) - trace->part_size;

	n = n < left ? n : left;
	if (fwrite(bytes, 1, n, trace->out) != n) {
		trace->fault = strerror(errno);
	} else if (trace->detail_left) {
		trace->detail_left -= n;
	} else {
		memcpy(trace->part + trace->part_size, bytes, n);
		trace->part_size += n;
		if (trace->part_size == sizeof(trace->part))
			take_record(trace);
	}
	return n;
}

void trace_read(struct exec_trace *trace)
{
	static u8 bytes[64 << 10];
	ssize_t n = recv(trace->socket, bytes, sizeof(bytes), 0);

	if (!n)
		trace->fault = "the guest has ended before it";
	for (ssize_t done = 0; done < n && trace_is_open(trace);)
		done += take_bytes(trace, bytes + done, n - done);
}

int trace_close(const struct exec_options *options, struct exec_trace *trace)
{
	if (!trace->out)
		return STATUS_OK;
	if (ferror(trace->out) && !trace->fault)
		trace->fault = "it could not be written";
	if (fclose(trace->out) && !trace->fault)
		trace->fault = strerror(errno);
	if (trace->is_over && !trace->fault)
		return STATUS_OK;
	return failure(STATUS_BROKEN, "the trace in '%s' is not complete%s%s", options->trace_hash,
		       trace->fault ? ": " : "", trace->fault ?: "");
}
