// SPDX-License-Identifier: MIT
/*
 * Where vpmu cost has its code from: hexadecimal digits on the command line or in a file, an ELF
 * file, or assembler text, which the system's as(1) turns into an ELF file.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cost/cost.h"

#define FILE_MAX (256u << 20)

/* The whole of a file, followed by a byte of 0. NULL: with errno. */
static u8 *read_all(int fd, size_t *size)
{
	size_t capacity = 65536;
	u8 *file = malloc(capacity + 1), *larger;
	ssize_t n;

	*size = 0;
	while (file && (n = read(fd, file + *size, capacity - *size)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		*size += n < 0 ? 0 : n;
		if (*size < capacity && n > 0)
			continue;
		capacity *= 2;
		larger = n < 0		       ? NULL
			 : capacity > FILE_MAX ? (errno = EFBIG, NULL)
					       : realloc(file, capacity + 1);
		if (!larger) {
			free(file);
			return NULL;
		}
		file = larger;
	}
	if (file)
		file[*size] = 0;
	return file;
}

static bool is_elf(const u8 *file, size_t size)
{
	return size >= SELFMAG && !memcmp(file, ELFMAG, SELFMAG);
}

/* --- assembler text --- */

static int run_assembler(const char *source, const char *object)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		execlp("as", "as", "--64", "-o", object, source, (char *)NULL);
		_exit(errno == ENOENT ? STATUS_MISSING : STATUS_CANNOT);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : STATUS_CANNOT;
}

static bool write_file(int fd, const u8 *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n < 0 && errno != EINTR)
			return false;
		bytes += n < 0 ? 0 : n;
		size -= n < 0 ? 0 : n;
	}
	return true;
}

static int read_object(const char *object, u8 **file, size_t *size)
{
	int fd = open(object, O_RDONLY | O_CLOEXEC);

	free(*file);
	*file = fd < 0 ? NULL : read_all(fd, size);
	if (fd >= 0)
		close(fd);
	return *file ? STATUS_OK
		     : failure(STATUS_BROKEN, "cannot read what as(1) wrote: %s", strerror(errno));
}

static int assemble_in(const char *name, const char *folder, u8 **file, size_t *size)
{
	char source[64], object[64];
	int status, fd;

	snprintf(source, sizeof(source), "%s/code.s", folder);
	snprintf(object, sizeof(object), "%s/code.o", folder);
	fd = open(source, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || !write_file(fd, *file, *size)) {
		status = failure(STATUS_BROKEN, "cannot write %s: %s", source, strerror(errno));
	} else {
		status = run_assembler(source, object);
		if (status == STATUS_MISSING)
			status = failure(STATUS_BROKEN,
					 "%s is assembler text, and as(1) is not installed: "
					 "install binutils",
					 name);
		else if (status)
			status = failure(STATUS_BROKEN,
					 "%s is neither hexadecimal digits nor ELF, and as(1) "
					 "refused it",
					 name);
		else
			status = read_object(object, file, size);
	}
	if (fd >= 0)
		close(fd);
	unlink(source);
	unlink(object);
	return status;
}

int cost_assemble(const char *name, u8 **file, size_t *size)
{
	char folder[] = "/tmp/vpmu-cost-XXXXXX";
	int status;

	if (!mkdtemp(folder))
		return failure(STATUS_BROKEN, "cannot make a folder in /tmp: %s", strerror(errno));
	status = assemble_in(name, folder, file, size);
	rmdir(folder);
	return status;
}

/* --- what the command line names --- */

static int read_content(const struct cost_options *options, const char *name, u8 **file,
			size_t size, struct cost_code *code)
{
	int status = STATUS_OK;

	if (cost_parse_hex((const char *)*file, size, code))
		return STATUS_OK;
	if (!is_elf(*file, size))
		status = cost_assemble(name, file, &size);
	return status ? status : cost_read_elf(options, name, *file, size, code);
}

int cost_read(const struct cost_options *options, struct cost_code *code)
{
	bool from_stdin = !strcmp(options->input, "-");
	const char *name = from_stdin ? "standard input" : options->input;
	int fd = from_stdin ? STDIN_FILENO : open(options->input, O_RDONLY | O_CLOEXEC), status;
	size_t size;
	u8 *file;

	if (fd < 0 && cost_parse_hex(options->input, strlen(options->input), code))
		return STATUS_OK;
	if (fd < 0)
		return failure(STATUS_BROKEN, "'%s' is neither a file (%s) nor hexadecimal digits",
			       options->input, strerror(errno));
	file = read_all(fd, &size);
	if (!from_stdin)
		close(fd);
	if (!file)
		return failure(STATUS_BROKEN, "cannot read %s: %s", name, strerror(errno));
	status = size ? read_content(options, name, &file, size, code)
		      : failure(STATUS_BROKEN, "%s is empty", name);
	free(file);
	return status;
}
