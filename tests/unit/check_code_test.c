// SPDX-License-Identifier: MIT
/*
 * From the pages of a profile to functions: this program's own code is found in its file, and no
 * damaged file harms.
 */
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/profile.h"
#include "cli/check/check.h"
#include "cli/check/elf.h"

#define UNTOLD "/no/such/file"

/* The functions that are looked for. Not inlined, and not merged with one another. */
static __attribute__((noinline)) int first_of_two(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

static __attribute__((noinline)) int second_of_two(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x * 3;
}

static void add_code(struct profile *profile, u32 i, const void *code, u64 count)
{
	const u8 *page = (const u8 *)((uintptr_t)code & PAGE_MASK);

	profile->entry[i] =
		(struct profile_entry){ profile_page(profile_hash(PROFILE_SEED, page, PAGE_SIZE)),
					(uintptr_t)code & ~PAGE_MASK, count };
}

static void name_self(struct profile *profile, char self[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);

	assert_true(n > 0);
	self[n] = '\0';
	memcpy(profile->names, self + 1, n); /* with its NUL */
	profile->names_used = n;
}

static u64 count_of(const struct check_result *result, const char *file, const char *function)
{
	char name[2 * PATH_MAX];
	const struct check_count *count;

	snprintf(name, sizeof(name), "%s%s%s", file, *file ? ":" : "", function);
	count = counts_find(&result->functions, name);
	return count ? count->value : 0;
}

static void code_is_found_by_its_contents(void **state)
{
	struct profile *profile = calloc(1, sizeof(*profile));
	struct check_suite suite = { .folder = "/nowhere" };
	struct check_result result = { 0 };
	char self[PATH_MAX];

	(void)state;
	assert_non_null(profile);
	assert_int_equal(first_of_two(1) + second_of_two(1), 5);
	name_self(profile, self);
	add_code(profile, 7, (const void *)first_of_two, 100);
	add_code(profile, 8, (const void *)second_of_two, 20);
	add_code(profile, 9, (const u8 *)second_of_two + 1, 3); /* another block of it */
	profile->entry[10] = (struct profile_entry){ 12345, 0, 9 };
	assert_true(code_resolve(&suite, profile, UNTOLD, &result));
	assert_true(result.has_functions);
	assert_int_equal(count_of(&result, self, "first_of_two"), 100);
	assert_int_equal(count_of(&result, self, "second_of_two"), 23);
	assert_int_equal(count_of(&result, "", "[other code]"), 9);
	assert_int_equal(result.files.count, 1);
	assert_string_equal(result.files.item[0].name, self);
	code_free(&result);
	free(profile);
}

static void names_in_the_suites_folder_are_relative(void **state)
{
	struct profile *profile = calloc(1, sizeof(*profile));
	struct check_suite suite = { 0 };
	struct check_result result = { 0 };
	char self[PATH_MAX], *slash;

	(void)state;
	name_self(profile, self);
	add_code(profile, 0, (const void *)first_of_two, 1);
	slash = strrchr(self, '/');
	snprintf(suite.folder, sizeof(suite.folder), "%.*s", (int)(slash - self), self);
	assert_true(code_resolve(&suite, profile, UNTOLD, &result));
	assert_string_equal(result.files.item[0].name, slash + 1);
	code_free(&result);
	free(profile);
}

/* A part of the counts would be taken for all of them. */
static void a_profile_that_was_full_has_no_functions(void **state)
{
	struct profile *profile = calloc(1, sizeof(*profile));
	struct check_suite suite = { .folder = "/nowhere" };
	struct check_result result = { 0 };
	char self[PATH_MAX];

	(void)state;
	name_self(profile, self);
	add_code(profile, 0, (const void *)first_of_two, 1);
	profile->lost = 1;
	assert_true(code_resolve(&suite, profile, UNTOLD, &result));
	assert_false(result.has_functions);
	assert_int_equal(result.functions.count, 0);
	code_free(&result);
	free(profile);
}

/* What the guest's side wrote is not trusted. */
static void names_without_an_end_are_taken_with_care(void **state)
{
	struct profile *profile = calloc(1, sizeof(*profile));
	struct check_suite suite = { .folder = "/nowhere" };
	struct check_result result = { 0 };

	(void)state;
	memset(profile->names, 'x', sizeof(profile->names));
	profile->names_used = ~0u;
	profile->entry[0] = (struct profile_entry){ 1, ~0ull, 5 };
	assert_true(code_resolve(&suite, profile, UNTOLD, &result));
	assert_int_equal(count_of(&result, "", "[other code]"), 5);
	code_free(&result);
	free(profile);
}

/* --- many and large files --- */

/* A sparse file, with so many bytes of code. */
static void make_large(char *path, u64 size)
{
	const Elf64_Ehdr header = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64 },
				    .e_machine = EM_X86_64,
				    .e_phoff = sizeof(header),
				    .e_phentsize = sizeof(Elf64_Phdr),
				    .e_phnum = 1 };
	const Elf64_Phdr code = { .p_type = PT_LOAD, .p_flags = PF_X, .p_filesz = size };
	int fd = mkstemp(path);

	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(pwrite(fd, &code, sizeof(code), sizeof(header)), sizeof(code));
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

/* As many as there is room for. */
static void add_names(struct profile *profile, const char *path)
{
	u32 size = strlen(path); /* its NUL in place of its first slash */

	for (; size <= PROFILE_NAMES - profile->names_used; profile->names_used += size)
		memcpy(profile->names + profile->names_used, path + 1, size);
}

static struct check_result resolve_with(const char *path)
{
	struct profile *profile = calloc(1, sizeof(*profile));
	struct check_suite suite = { .folder = "/nowhere" };
	struct check_result result = { 0 };
	char self[PATH_MAX];

	assert_non_null(profile);
	name_self(profile, self);
	add_names(profile, path);
	add_code(profile, 0, (const void *)first_of_two, 1);
	assert_true(code_resolve(&suite, profile, UNTOLD, &result));
	free(profile);
	return result;
}

static void a_file_with_many_names_is_read_once(void **state)
{
	char path[] = "/tmp/vpmu-check-code-XXXXXX";
	struct check_result result;

	(void)state;
	make_large(path, 1 << 20);
	result = resolve_with(path);
	unlink(path);
	assert_true(result.has_functions);
	assert_int_equal(result.functions.count, 1);
	code_free(&result);
}

/* Without all files, counts would be of other code. */
static void a_file_too_large_to_read_leaves_no_functions(void **state)
{
	char path[] = "/tmp/vpmu-check-code-XXXXXX";
	struct check_result result;

	(void)state;
	make_large(path, 1ull << 40);
	result = resolve_with(path);
	unlink(path);
	assert_false(result.has_functions);
	code_free(&result);
}

/* --- damaged files --- */

#define MOST (4u << 20) /* more than this program has in any build: its symbols are at its end */

static u32 random_number(u64 *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

/* Asks for whatever the file has, if it still is an ELF file: how many symbols. */
static u32 look_into(const char *path)
{
	struct check_elf elf;
	u64 left = 1ull << 30;
	u32 symbols;

	if (!elf_open(&elf, path, &left))
		return 0;
	symbols = elf.symbols;
	for (u64 offset = 0; offset < 64 << 10; offset += 64)
		elf_symbol(&elf, offset);
	elf_symbol(&elf, ~0ull);
	elf_close(&elf);
	return symbols;
}

static void damaged_files_do_no_harm(void **state)
{
	static u8 bytes[MOST], copy[MOST];
	char path[] = "/tmp/vpmu-check-code-XXXXXX";
	int self = open("/proc/self/exe", O_RDONLY), fd = mkstemp(path);
	ssize_t size = read(self, bytes, sizeof(bytes));
	u32 with_symbols = 0;
	u64 seed = 1;

	(void)state;
	assert_true(size > 0 && size < MOST && fd >= 0);
	for (u32 turn = 0; turn < 400; turn++) {
		u32 length = turn & 1 ? random_number(&seed) % size : size;

		memcpy(copy, bytes, size);
		for (u32 i = 0; i < 8; i++) /* headers are worth most */
			copy[random_number(&seed) % (turn & 2 ? 1024 : size)] =
				random_number(&seed);
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, copy, length, 0), length);
		with_symbols += look_into(path) > 0;
	}
	close(fd);
	close(self);
	unlink(path);
	assert_true(with_symbols >= 50); /* half are cut, others have lost their headers */
}

static void what_is_no_file_is_no_elf_file(void **state)
{
	struct check_elf elf;
	u64 left = 1ull << 30;

	(void)state;
	assert_false(elf_open(&elf, "/", &left));
	assert_false(elf_open(&elf, "/dev/zero", &left));
	assert_false(elf_open(&elf, "/no/such/file", &left));
}

/* 0: elf_open() of a terminal has not made it the controlling terminal. */
static int open_terminal(const char *terminal)
{
	struct check_elf elf;
	u64 left = 1ull << 30;

	return setsid() < 0 || elf_open(&elf, terminal, &left) ||
	       open("/dev/tty", O_RDONLY | O_NOCTTY) >= 0;
}

/* What is no regular file is not even opened, which has effects of its own: here, those of a
 * session that opens its first terminal. */
static void a_device_is_not_opened(void **state)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), status;
	char terminal[64];
	pid_t child;

	(void)state;
	assert_true(master >= 0 && !grantpt(master) && !unlockpt(master));
	assert_int_equal(ptsname_r(master, terminal, sizeof(terminal)), 0);
	child = fork();
	if (!child)
		_exit(open_terminal(terminal));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(master);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_is_found_by_its_contents),
		cmocka_unit_test(names_in_the_suites_folder_are_relative),
		cmocka_unit_test(a_profile_that_was_full_has_no_functions),
		cmocka_unit_test(names_without_an_end_are_taken_with_care),
		cmocka_unit_test(a_file_with_many_names_is_read_once),
		cmocka_unit_test(a_file_too_large_to_read_leaves_no_functions),
		cmocka_unit_test(damaged_files_do_no_harm),
		cmocka_unit_test(what_is_no_file_is_no_elf_file),
		cmocka_unit_test(a_device_is_not_opened),
	};

	return cmocka_run_group_tests_name("check_code", tests, NULL, NULL);
}
