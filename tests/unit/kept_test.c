// SPDX-License-Identifier: MIT
/*
 * The store of kept translations (base/kept.h, exec/kept_store.c): whatever has happened to the
 * file, an entry is found as it was added, or not at all, and the next merge leaves a good store.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/kept_store.h"
#include "unit/paged_cpu.h"

#define ENTRIES 5
#define LIMIT	KEPT_STORE_LIMIT

static char folder[64], path[96];
static struct kept_news *news;

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/vpmu-kept-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/" KEPT_STORE_NAME, folder);
	news = mmap(NULL, KEPT_NEWS_SIZE, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return news == MAP_FAILED ? -1 : 0;
}

static int remove_folder(void **state)
{
	(void)state;
	munmap(news, KEPT_NEWS_SIZE);
	unlink(path);
	return rmdir(folder);
}

/* Keys and bodies follow from a number. */
static void key_of(u32 number, u64 key[2])
{
	u64 words[2] = { number, 0x6b6579 };

	kept_hash(words, sizeof(words), key);
}

static u32 size_of(u32 number)
{
	return 1 + number * 37 % 300;
}

static void fill_body(u32 number, u8 *body)
{
	for (u32 i = 0; i < size_of(number); i++)
		body[i] = number * 7 + i * 13;
}

static void add(struct kept_news *to, u32 number)
{
	static struct kept_buffer buffer;
	struct kept kept = { .news = to };
	u64 key[2];

	key_of(number, key);
	fill_body(number, buffer.body);
	kept_add(&kept, key, &buffer, size_of(number));
}

static void forget_news(struct kept_news *which)
{
	assert_int_equal(madvise(which, KEPT_NEWS_SIZE, MADV_REMOVE), 0);
}

static void merge_numbers(u32 first, u32 n)
{
	forget_news(news);
	for (u32 i = 0; i < n; i++)
		add(news, first + i);
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, 0, LIMIT));
}

static void map_store(struct kept *kept)
{
	struct kept_header header;
	int fd = kept_store_open(folder, KEPT_CONFINED, &header);
	struct stat st;

	*kept = (struct kept){ 0 };
	if (fd < 0)
		return;
	assert_int_equal(fstat(fd, &st), 0);
	kept->store = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	assert_true(kept->store != MAP_FAILED);
	kept->store_size = st.st_size;
	close(fd);
}

static void unmap_store(struct kept *kept)
{
	if (kept->store)
		munmap((void *)kept->store, kept->store_size);
}

/* If it is found it is as it was. */
static bool finds(const struct kept *kept, u32 number)
{
	static struct kept_buffer buffer, right;
	u64 key[2];

	key_of(number, key);
	if (!kept_find(kept, key, &buffer))
		return false;
	fill_body(number, right.body);
	assert_int_equal(buffer.entry.size, size_of(number));
	assert_memory_equal(buffer.body, right.body, size_of(number));
	return true;
}

static u32 found(const struct kept *kept, u32 first, u32 n)
{
	u32 count = 0;

	for (u32 i = 0; i < n; i++)
		count += finds(kept, first + i);
	return count;
}

static u32 found_in_file(u32 first, u32 n)
{
	struct kept kept;
	u32 count;

	map_store(&kept);
	count = found(&kept, first, n);
	unmap_store(&kept);
	return count;
}

static void what_is_added_is_found_by_the_next_process(void **state)
{
	(void)state;
	merge_numbers(0, ENTRIES);
	assert_int_equal(found_in_file(0, 2 * ENTRIES), ENTRIES);
	merge_numbers(ENTRIES, ENTRIES);
	assert_int_equal(found_in_file(0, 2 * ENTRIES), 2 * ENTRIES);
	merge_numbers(0, 0);
	assert_int_equal(found_in_file(0, 2 * ENTRIES), 2 * ENTRIES);
}

/* Every byte of the range, each bit of it in turn. */
static u32 flip_all(struct kept *kept, u64 from, u64 to, u32 least)
{
	u8 *bytes = (u8 *)kept->store;
	u32 fewest = ENTRIES;

	for (u64 at = from; at < to; at++) {
		u32 n;

		bytes[at] ^= 1u << at % 8;
		n = found(kept, 0, ENTRIES);
		fewest = n < fewest ? n : fewest;
		assert_true(n >= least);
		bytes[at] ^= 1u << at % 8;
	}
	return fewest;
}

static void a_flipped_byte_is_never_believed(void **state)
{
	struct kept kept;

	(void)state;
	unlink(path);
	merge_numbers(0, ENTRIES);
	map_store(&kept);
	assert_int_equal(flip_all(&kept, KEPT_DATA_AT, kept.store_size, ENTRIES - 1), ENTRIES - 1);
	for (u32 i = 0; i < ENTRIES; i++) {
		u64 key[2], page;

		key_of(i, key);
		page = (KEPT_INDEX_AT + kept_first_slot(key) * 8ull) & PAGE_MASK;
		assert_int_equal(flip_all(&kept, page, page + PAGE_SIZE, ENTRIES - 1), ENTRIES - 1);
	}
	assert_int_equal(found(&kept, 0, ENTRIES), ENTRIES);
	unmap_store(&kept);
}

static void write_byte(u64 at, u8 flip)
{
	int fd = open(path, O_RDWR);
	u8 byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= flip;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void a_store_with_another_header_is_replaced(void **state)
{
	struct kept_header header;

	(void)state;
	for (u64 at = 0; at < sizeof(header); at++) {
		merge_numbers(0, ENTRIES);
		write_byte(at, 1u << at % 8);
		assert_int_equal(kept_store_open(folder, KEPT_CONFINED, &header), -1);
		merge_numbers(ENTRIES, 1);
		assert_int_equal(found_in_file(ENTRIES, 1), 1);
		assert_int_equal(found_in_file(0, ENTRIES), 0);
		unlink(path);
	}
}

static void a_store_that_was_cut_is_replaced(void **state)
{
	struct kept_header header;
	struct stat st;

	(void)state;
	merge_numbers(0, ENTRIES);
	assert_int_equal(stat(path, &st), 0);
	for (u64 size = st.st_size; size-- > KEPT_DATA_AT;) {
		assert_int_equal(truncate(path, size), 0);
		assert_int_equal(kept_store_open(folder, KEPT_CONFINED, &header), -1);
	}
	assert_int_equal(truncate(path, 10), 0);
	merge_numbers(ENTRIES, 2);
	assert_int_equal(found_in_file(ENTRIES, 2), 2);
}

static void one_that_is_cut_while_it_is_used_is_missed(void **state)
{
	struct kept kept = { 0 };
	struct stat st;
	u32 last = ENTRIES;
	int fd;

	(void)state;
	paged_cpu_catch_faults(); /* in place of cmocka's handlers, as engines do */
	unlink(path);
	merge_numbers(0, ENTRIES);
	fd = open(path, O_RDWR);
	assert_int_equal(fstat(fd, &st), 0);
	kept.store_size = st.st_size;
	kept.store = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(kept.store != MAP_FAILED);
	for (u64 size = st.st_size; size > KEPT_DATA_AT; size -= 16) {
		u32 n;

		assert_int_equal(ftruncate(fd, size), 0);
		n = found(&kept, 0, ENTRIES);
		assert_true(n <= last);
		last = n;
	}
	for (u64 size = KEPT_DATA_AT; size > 0; size = size > 1 << 20 ? size - (1 << 20) : 0) {
		assert_int_equal(ftruncate(fd, size), 0);
		assert_int_equal(found(&kept, 0, ENTRIES), 0);
	}
	close(fd);
	munmap((void *)kept.store, kept.store_size);
}

static void what_others_could_have_written_is_replaced(void **state)
{
	static const mode_t modes[] = { 0644, 0660, 0602, 0640 };
	struct kept_header header;
	char other[128];

	(void)state;
	snprintf(other, sizeof(other), "%s/other", folder);
	for (u32 i = 0; i < ARRAY_SIZE(modes); i++) {
		merge_numbers(0, ENTRIES);
		assert_int_equal(chmod(path, modes[i]), 0);
		assert_int_equal(kept_store_open(folder, KEPT_CONFINED, &header), -1);
		merge_numbers(ENTRIES, 1);
		assert_int_equal(found_in_file(0, ENTRIES + 1), 1);
		unlink(path);
	}
	merge_numbers(0, ENTRIES);
	assert_int_equal(link(path, other), 0);
	assert_int_equal(kept_store_open(folder, KEPT_CONFINED, &header), -1);
	merge_numbers(ENTRIES, 1);
	assert_int_equal(found_in_file(0, ENTRIES + 1), 1);
	unlink(path);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(kept_store_open(folder, KEPT_CONFINED, &header), -1);
	merge_numbers(ENTRIES, 1);
	assert_int_equal(found_in_file(0, ENTRIES + 1), 1);
	unlink(other);
	if (chown(path, 65534, 65534)) { /* for root, where there is such a user */
		print_message("a store of another user: not tested, cannot make one\n");
		return;
	}
	assert_int_equal(kept_store_open(folder, KEPT_CONFINED, &header), -1);
	merge_numbers(0, 1);
	assert_int_equal(found_in_file(0, ENTRIES + 1), 1);
}

static void a_store_is_for_its_user_alone(void **state)
{
	struct stat st;

	(void)state;
	umask(0);
	unlink(path);
	merge_numbers(0, 1);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	umask(022);
}

/* As a guest that is killed while two vCPUs add. */
static void an_entry_that_is_not_complete_hides_no_other(void **state)
{
	u64 first;

	(void)state;
	unlink(path);
	forget_news(news);
	add(news, 0);
	first = news->next;
	add(news, 1);
	memset(news->data + first, 0, 64);
	add(news, 2);
	news->next += 1000; /* given out, and not written */
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, 0, LIMIT));
	assert_int_equal(found_in_file(0, 3), 2);
	news->next = ~0ull;
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, 0, LIMIT));
	assert_int_equal(found_in_file(0, 3), 2);
}

/* What is merged while a guest runs ends where an entry is being written. */
static void what_has_come_is_merged_before_the_end(void **state)
{
	u64 merged = 0, second, head;

	(void)state;
	unlink(path);
	forget_news(news);
	add(news, 0);
	second = news->next;
	add(news, 1);
	add(news, 2);
	memcpy(&head, news->data + second, sizeof(head));
	memset(news->data + second, 0, sizeof(head));
	assert_true(kept_store_merge_early(folder, KEPT_CONFINED, news, &merged, LIMIT));
	assert_int_equal(merged, second);
	assert_int_equal(found_in_file(0, 3), 1);
	memcpy(news->data + second, &head, sizeof(head));
	assert_true(kept_store_merge_early(folder, KEPT_CONFINED, news, &merged, LIMIT));
	assert_int_equal(merged, news->next);
	assert_int_equal(found_in_file(0, 3), 3);
	add(news, 3);
	memset(news->data, 0, merged); /* is not merged once more */
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, merged, LIMIT));
	assert_int_equal(found_in_file(0, 4), 4);
}

/* Where the store has to be cleaned up that is left to the end, and loses nothing of the news. */
static void what_does_not_fit_is_merged_at_the_end(void **state)
{
	u64 limit = KEPT_DATA_AT + 300000, merged = 0;

	(void)state;
	unlink(path);
	forget_news(news);
	for (u32 i = 0; i < 1000; i++)
		add(news, i);
	assert_true(kept_store_merge_early(folder, KEPT_CONFINED, news, &merged, limit));
	for (u32 i = 1000; i < 2000; i++)
		add(news, i);
	assert_false(kept_store_merge_early(folder, KEPT_CONFINED, news, &merged, limit));
	assert_int_equal(found_in_file(0, 2000), 1000);
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, merged, limit));
	assert_int_equal(found_in_file(0, 2000), 2000);
}

#define VCPUS 1024

/* What looks like the head of an entry, of the largest size, in the second line of KEPT_ALIGN bytes
 * after it. */
static void claim_entry(u64 at)
{
	const u32 claim[KEPT_ALIGN / 4] = { KEPT_BODY, KEPT_MARK };

	memcpy(news->data + at, claim, sizeof(claim));
}

/* As a guest that is killed while each of its vCPUs adds. */
static void an_incomplete_entry_of_each_vcpu_hides_no_other(void **state)
{
	(void)state;
	unlink(path);
	forget_news(news);
	for (u32 i = 0; i < VCPUS; i++) {
		claim_entry(news->next + offsetof(struct kept_entry, size));
		news->next += kept_length(KEPT_BODY);
	}
	add(news, 0);
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, 0, LIMIT));
	assert_int_equal(found_in_file(0, 1), 1);
}

/* As one that has taken QEMU over: an entry begins every KEPT_ALIGN bytes, and to see that it is
 * none costs as much as a large one. Together they would cost a thousand times the news. */
static void entries_that_are_none_are_not_looked_at_without_end(void **state)
{
	u32 claims = 2 * KEPT_NEWS_SIZE / KEPT_BODY;
	u64 vain = 0;

	(void)state;
	unlink(path);
	forget_news(news);
	add(news, 0);
	for (u32 i = 0; i < claims; i++, news->next += KEPT_ALIGN)
		claim_entry(news->next);
	add(news, 1);
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, 0, LIMIT));
	assert_int_equal(found_in_file(0, 2), 1);
	assert_int_equal(found_in_file(0, 1), 1);
	assert_int_equal(kept_check(news->data, news->next, &vain), kept_length(size_of(0)));
	assert_int_equal(vain, 0);
	assert_int_equal(kept_check(news->data + kept_length(size_of(0)), news->next, &vain), 0);
	assert_true(vain >= KEPT_BODY);
}

#define PROCESSES 10
#define EACH	  200

static void merge_in_child(u32 number)
{
	struct kept_news *own = mmap(NULL, KEPT_NEWS_SIZE, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	for (u32 i = 0; i < EACH; i++)
		add(own, number * EACH / 2 + i);
	_exit(!kept_store_merge(folder, KEPT_CONFINED, own, 0, LIMIT));
}

static void ten_processes_at_once_make_one_store(void **state)
{
	u32 all = (PROCESSES + 1) * EACH / 2;
	int status;

	(void)state;
	unlink(path);
	for (u32 i = 0; i < PROCESSES; i++)
		if (!fork())
			merge_in_child(i);
	for (u32 i = 0; i < PROCESSES; i++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	assert_int_equal(found_in_file(0, all), all);
}

/* A file that may not grow stands for a disk that is full. */
static void a_full_disk_leaves_the_store_as_it_was(void **state)
{
	struct rlimit limit;
	u64 merged = 0;
	int status;

	(void)state;
	unlink(path);
	merge_numbers(0, ENTRIES);
	forget_news(news);
	for (u32 i = 0; i < 1000; i++)
		add(news, 100 + i);
	if (!fork()) {
		signal(SIGXFSZ, SIG_IGN);
		limit.rlim_cur = limit.rlim_max = KEPT_DATA_AT + 4096;
		_exit(setrlimit(RLIMIT_FSIZE, &limit) ||
		      kept_store_merge_early(folder, KEPT_CONFINED, news, &merged, LIMIT) ||
		      merged || kept_store_merge(folder, KEPT_CONFINED, news, merged, LIMIT));
	}
	assert_true(wait(&status) > 0);
	assert_int_equal(status, 0);
	assert_int_equal(found_in_file(0, ENTRIES), ENTRIES);
	assert_int_equal(found_in_file(100, 1000), 0);
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, 0, LIMIT));
	assert_int_equal(found_in_file(100, 1000), 1000);
	assert_int_equal(found_in_file(0, ENTRIES), ENTRIES);
}

/* The limit is for what is in the file; the index is there in any case. */
static void what_is_not_used_is_forgotten_when_the_store_is_full(void **state)
{
	u64 limit = KEPT_DATA_AT + 300000;
	struct kept kept;
	struct stat st;

	(void)state;
	unlink(path);
	merge_numbers(0, 400);
	map_store(&kept);
	forget_news(news);
	kept.news = news;
	assert_int_equal(found(&kept, 0, 50), 50);
	unmap_store(&kept);
	for (u32 i = 0; i < 1200; i++)
		add(news, 1000 + i);
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, 0, limit));
	assert_int_equal(found_in_file(0, 50), 50);
	assert_int_equal(found_in_file(50, 350), 0);
	assert_int_equal(found_in_file(1000, 1200), 1200);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

/* Confined processes execute nothing that others have kept, and others nothing of theirs, also
 * after one of the stores was cleaned up. */
static void what_is_kept_by_processes_that_are_not_confined_is_apart(void **state)
{
	char other[sizeof(path) + 16];
	struct kept_header header;
	struct stat before, after;

	(void)state;
	snprintf(other, sizeof(other), "%s/" KEPT_UNCONFINED_NAME, folder);
	unlink(path);
	merge_numbers(0, ENTRIES);
	assert_int_equal(kept_store_open(folder, KEPT_UNCONFINED, &header), -1);
	assert_int_equal(stat(path, &before), 0);
	forget_news(news);
	for (u32 i = 0; i < 1200; i++)
		add(news, 1000 + i);
	for (u64 limit = LIMIT; limit; limit = limit == LIMIT ? KEPT_DATA_AT : 0)
		assert_true(kept_store_merge(folder, KEPT_UNCONFINED, news, 0, limit));
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_size, before.st_size);
	assert_int_equal(found_in_file(0, ENTRIES), ENTRIES);
	assert_int_equal(found_in_file(1000, 1200), 0);
	assert_int_equal(rename(other, path), 0);
	assert_int_equal(found_in_file(0, ENTRIES), 0);
	assert_int_equal(found_in_file(1000, 1200), 1200);
}

static void the_header_tells_how_many_were_found(void **state)
{
	struct kept_header header;
	struct kept kept;
	int fd;

	(void)state;
	unlink(path);
	merge_numbers(0, ENTRIES);
	map_store(&kept);
	forget_news(news);
	kept.news = news;
	assert_int_equal(found(&kept, 0, 2 * ENTRIES), ENTRIES);
	unmap_store(&kept);
	assert_true(kept_store_merge(folder, KEPT_CONFINED, news, 0, LIMIT));
	fd = kept_store_open(folder, KEPT_CONFINED, &header);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(header.last_lookups, 2 * ENTRIES);
	assert_int_equal(header.last_hits, ENTRIES);
	assert_int_equal(header.runs, 2);
}

/* What is looked for before it is needed is found as well, and not missed if it is not there. */
static void what_is_not_needed_yet_is_not_missed(void **state)
{
	static struct kept_buffer buffer;
	struct kept_place place;
	struct kept kept;
	u64 key[2];

	(void)state;
	unlink(path);
	merge_numbers(0, ENTRIES);
	map_store(&kept);
	forget_news(news);
	kept.news = news;
	for (u32 i = 0; i < 2 * ENTRIES; i++) {
		key_of(i, key);
		assert_int_equal(kept_expect_entry(&kept, key, &place), i < ENTRIES);
		if (i < ENTRIES)
			assert_true(kept_take(&kept, key, &place, &buffer));
	}
	key_of(0, key);
	assert_false(kept_take(&kept, key, &place, &buffer)); /* that of another entry */
	unmap_store(&kept);
	assert_int_equal(news->lookups, ENTRIES);
	assert_int_equal(news->hits, ENTRIES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_added_is_found_by_the_next_process),
		cmocka_unit_test(a_flipped_byte_is_never_believed),
		cmocka_unit_test(a_store_with_another_header_is_replaced),
		cmocka_unit_test(a_store_that_was_cut_is_replaced),
		cmocka_unit_test(one_that_is_cut_while_it_is_used_is_missed),
		cmocka_unit_test(what_others_could_have_written_is_replaced),
		cmocka_unit_test(a_store_is_for_its_user_alone),
		cmocka_unit_test(an_entry_that_is_not_complete_hides_no_other),
		cmocka_unit_test(what_has_come_is_merged_before_the_end),
		cmocka_unit_test(what_does_not_fit_is_merged_at_the_end),
		cmocka_unit_test(an_incomplete_entry_of_each_vcpu_hides_no_other),
		cmocka_unit_test(entries_that_are_none_are_not_looked_at_without_end),
		cmocka_unit_test(ten_processes_at_once_make_one_store),
		cmocka_unit_test(a_full_disk_leaves_the_store_as_it_was),
		cmocka_unit_test(what_is_not_used_is_forgotten_when_the_store_is_full),
		cmocka_unit_test(what_is_kept_by_processes_that_are_not_confined_is_apart),
		cmocka_unit_test(the_header_tells_how_many_were_found),
		cmocka_unit_test(what_is_not_needed_yet_is_not_missed),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
