// SPDX-License-Identifier: MIT
/*
 * The fd table alone, with files that only count their references.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* The unit under test, on files of our own: the real ones are behind the same names. */
#define kvm_get test_get
#define kvm_put test_put
#include "preload/fdtab.c"
#undef kvm_get
#undef kvm_put

struct kvm_file {
	s64 refs;
} __attribute__((aligned(16)));

void test_get(struct kvm_file *file, u64 n)
{
	must(__atomic_fetch_add(&file->refs, n, __ATOMIC_RELAXED) > 0);
}

void test_put(struct kvm_file *file, u64 n)
{
	must(__atomic_fetch_sub(&file->refs, n, __ATOMIC_ACQ_REL) >= (s64)n);
}

static void a_file_is_found_until_it_is_dropped(void **state)
{
	struct kvm_file a = { 1 };

	(void)state;
	assert_null(fdtab_pin(7));
	assert_int_equal(fdtab_set(7, &a), 0);
	assert_ptr_equal(fdtab_pin(7), &a);
	fdtab_unpin(7, &a);
	assert_null(fdtab_pin(6));
	assert_null(fdtab_pin(-1));
	assert_int_equal(fdtab_set(7, NULL), 0);
	assert_null(fdtab_pin(7));
	assert_int_equal(a.refs, 0);
}

static void a_pin_outlives_a_close(void **state)
{
	struct kvm_file a = { 1 };

	(void)state;
	fdtab_set(7, &a);
	assert_ptr_equal(fdtab_pin(7), &a);
	assert_ptr_equal(fdtab_pin(7), &a);
	fdtab_set(7, NULL);
	assert_int_equal(a.refs, 2);
	fdtab_unpin(7, &a);
	fdtab_unpin(7, &a);
	assert_int_equal(a.refs, 0);
}

static void a_pin_survives_another_file_and_the_same_file_in_its_place(void **state)
{
	struct kvm_file a = { 2 }, b = { 1 };

	(void)state;
	fdtab_set(7, &a);
	fdtab_pin(7);
	fdtab_set(7, &b);
	fdtab_set(7, &a);
	assert_int_equal(b.refs, 0);
	fdtab_unpin(7, &a);
	assert_int_equal(a.refs, LENDABLE);
	fdtab_set(7, NULL);
	assert_int_equal(a.refs, 0);
}

static void a_number_too_large_is_refused(void **state)
{
	struct kvm_file a = { 1 };

	(void)state;
	assert_int_equal(fdtab_set(1 << 20, &a), -EMFILE);
	assert_int_equal(fdtab_set((1 << 20) - 1, &a), 0);
	assert_int_equal(fdtab_set(1 << 20, NULL), 0);
	fdtab_drop_range(0, ~0u);
	assert_int_equal(a.refs, 0);
}

static void a_range_is_dropped_and_its_neighbours_stay(void **state)
{
	struct kvm_file a = { 4 };

	(void)state;
	fdtab_set(9, &a);
	fdtab_set(10, &a);
	fdtab_set(5000, &a);
	fdtab_set(5001, &a);
	fdtab_drop_range(10, 5000);
	assert_int_equal(a.refs, 2 * LENDABLE);
	fdtab_drop_range(0, ~0u);
	assert_int_equal(a.refs, 0);
}

static void a_child_frees_nothing_of_its_parent(void **state)
{
	struct kvm_file a = { 1 };

	(void)state;
	fdtab_set(7, &a);
	fdtab_pin(7); /* by a thread that the child does not have */
	fdtab_forked();
	assert_ptr_equal(fdtab_pin(7), &a);
	fdtab_set(7, NULL);
	fdtab_unpin(7, &a);
	assert_int_equal(a.refs, LENDABLE);
}

#define ROUNDS 200000

/* Each is in the table once, which has its only reference. */
static struct kvm_file passing[2][ROUNDS];

static void *look_up(void *arg)
{
	for (u32 i = 0; i < ROUNDS; i++) {
		struct kvm_file *file = fdtab_pin(3);

		if (file) {
			must(__atomic_load_n(&file->refs, __ATOMIC_RELAXED) > 0);
			fdtab_unpin(3, file);
		}
	}
	return arg;
}

static void *replace(void *arg)
{
	struct kvm_file *files = arg;

	for (u32 i = 0; i < ROUNDS; i++) {
		files[i].refs = 1;
		fdtab_set(3, &files[i]);
		if (i % 3 == 0)
			fdtab_set(3, NULL);
	}
	return NULL;
}

static void races_lose_no_reference(void **state)
{
	pthread_t threads[4];

	(void)state;
	for (u32 i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, i < 2 ? look_up : replace, passing[i % 2]);
	for (u32 i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	fdtab_set(3, NULL);
	for (u32 i = 0; i < ROUNDS; i++)
		assert_true(!passing[0][i].refs && !passing[1][i].refs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_found_until_it_is_dropped),
		cmocka_unit_test(a_pin_outlives_a_close),
		cmocka_unit_test(a_pin_survives_another_file_and_the_same_file_in_its_place),
		cmocka_unit_test(a_number_too_large_is_refused),
		cmocka_unit_test(a_range_is_dropped_and_its_neighbours_stay),
		cmocka_unit_test(a_child_frees_nothing_of_its_parent),
		cmocka_unit_test(races_lose_no_reference),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
