/* SPDX-License-Identifier: Apache-2.0
 *
 * host/base/memory: zeroed, aligned, overflow-checked; each allocation can be made to fail.
 */
#include <pthread.h>
#include <string.h>

#include "host/base/memory.h"
#include "tests/support.h"

static int all_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return 0;
    return 1;
}

START_TEST(blocks_are_zeroed_also_when_reused)
{
    for (size_t size = 1; size < 5000; size = 2 * size + 1) {
        for (int again = 0; again < 2; again++) {
            unsigned char *block = tn_alloc(size, 3), *aligned = tn_alloc_aligned(size);
            ck_assert(all_zero(block, 3 * size));
            ck_assert(all_zero(aligned, size));
            ck_assert_uint_eq((uintptr_t)aligned % 64, 0);
            memset(block, 0xFF, 3 * size);
            memset(aligned, 0xFF, size);
            tn_free(block);
            tn_free(aligned);
        }
    }
}
END_TEST

START_TEST(large_blocks_are_aligned_to_huge_pages)
{
    size_t size = ((size_t)5 << 20) + 123;
    unsigned char *block = tn_alloc_aligned(size);
    ck_assert_ptr_nonnull(block);
    ck_assert_uint_eq((uintptr_t)block % ((size_t)2 << 20), 0);
    ck_assert(all_zero(block, size));
    tn_free(block);
}
END_TEST

START_TEST(products_that_overflow_are_refused)
{
    ck_assert_ptr_null(tn_alloc(SIZE_MAX / 2, 3));
    ck_assert_ptr_null(tn_alloc((size_t)1 << 32, (size_t)1 << 32));
    ck_assert_ptr_null(tn_alloc_aligned(SIZE_MAX));
    char *block = tn_alloc(4, 1);
    strcpy(block, "abc");
    ck_assert_ptr_null(tn_realloc(block, SIZE_MAX / 2, 3));
    ck_assert_str_eq(block, "abc");
    tn_free(block);
}
END_TEST

START_TEST(nothing_is_still_a_block)
{
    void *none = tn_alloc(0, 8), *aligned = tn_alloc_aligned(0), *grown = tn_realloc(NULL, 0, 1);
    ck_assert_ptr_nonnull(none);
    ck_assert_ptr_nonnull(aligned);
    ck_assert_ptr_nonnull(grown);
    tn_free(none);
    tn_free(aligned);
    tn_free(grown);
    tn_free(NULL);
}
END_TEST

START_TEST(realloc_keeps_what_was_there)
{
    int32_t *block = NULL;
    for (int32_t n = 1; n <= 1000; n++) {
        block = tn_realloc(block, (size_t)n, sizeof *block);
        block[n - 1] = n;
    }
    for (int32_t n = 1; n <= 1000; n++)
        ck_assert_int_eq(block[n - 1], n);
    tn_free(block);
}
END_TEST

START_TEST(arrays_grow_by_doubling)
{
    int32_t *array = NULL;
    size_t capacity = 0, count = 0;
    int64_t before = tn_memory_count();
    for (; count < 1000; count++) {
        ck_assert_int_eq(tn_grow(&array, &capacity, count, sizeof *array), TN_OK);
        ck_assert_uint_gt(capacity, count);
        ck_assert(all_zero((unsigned char *)&array[count], (capacity - count) * sizeof *array));
        array[count] = (int32_t)count;
    }
    ck_assert_int_eq(tn_memory_count() - before, 8); /* 8, 16, ... 1024 */
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(array[i], (int32_t)i);
    tn_free(array);
}
END_TEST

START_TEST(arrays_that_can_not_grow_stay)
{
    int32_t *array = NULL;
    size_t capacity = 0, huge = SIZE_MAX / 2 + 1;
    ck_assert_int_eq(tn_grow(&array, &capacity, 0, sizeof *array), TN_OK);
    int32_t *same = array;
    tn_memory_fail_at(0);
    ck_assert_int_eq(tn_grow(&array, &capacity, 8, sizeof *array), TN_E_MEMORY);
    ck_assert_ptr_eq(array, same);
    ck_assert_uint_eq(capacity, 8);
    ck_assert_int_eq(tn_grow(&array, &capacity, 8, SIZE_MAX / 8), TN_E_MEMORY); /* the bytes overflow */
    ck_assert_int_eq(tn_grow(&array, &huge, huge, 1), TN_E_MEMORY);             /* the count does */
    ck_assert_ptr_eq(array, same);
    tn_free(array);
}
END_TEST

START_TEST(text_is_copied)
{
    char *copy = tn_strdup("abc"), *part = tn_strndup("abcdef", 2), *whole = tn_strndup("ab", 9);
    char *formatted = tn_format("%s-%03d", "x", 7);
    ck_assert_str_eq(copy, "abc");
    ck_assert_str_eq(part, "ab");
    ck_assert_str_eq(whole, "ab");
    ck_assert_str_eq(formatted, "x-007");
    ck_assert_ptr_null(tn_strdup(NULL));
    ck_assert_ptr_null(tn_strndup(NULL, 3));
    tn_free(copy);
    tn_free(part);
    tn_free(whole);
    tn_free(formatted);
}
END_TEST

static void *call(int which)
{
    switch (which) {
    case 0:
        return tn_alloc(1, 8);
    case 1:
        return tn_realloc(NULL, 1, 8);
    case 2:
        return tn_alloc_aligned(8);
    case 3:
        return tn_strdup("abc");
    case 4:
        return tn_strndup("abc", 2);
    default:
        return tn_format("%d", 1);
    }
}

START_TEST(the_nth_allocation_fails_once)
{
    void *block[6];
    for (int nth = 0; nth < 6; nth++) {
        int64_t before = tn_memory_count();
        tn_memory_fail_at(nth);
        for (int i = 0; i < 6; i++) {
            block[i] = call(i);
            ck_assert_int_eq(block[i] == NULL, i == nth);
        }
        ck_assert_int_eq(tn_memory_count() - before, 6);
        for (int i = 0; i < 6; i++)
            tn_free(block[i]);
    }
}
END_TEST

START_TEST(failing_can_be_called_off)
{
    tn_memory_fail_at(1);
    tn_free(tn_alloc(1, 1));
    tn_memory_fail_at(-1);
    for (int i = 0; i < 3; i++) {
        void *block = tn_alloc(1, 1);
        ck_assert_ptr_nonnull(block);
        tn_free(block);
    }
}
END_TEST

static void *allocate_many(void *failures)
{
    for (int i = 0; i < 10000; i++) {
        void *block = tn_alloc(1, 16);
        *(int *)failures += !block;
        tn_free(block);
    }
    return NULL;
}

START_TEST(one_failure_among_threads)
{
    pthread_t thread[4];
    int failures[4] = {0};
    int64_t before = tn_memory_count();
    tn_memory_fail_at(20000);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, allocate_many, &failures[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    ck_assert_int_eq(failures[0] + failures[1] + failures[2] + failures[3], 1);
    ck_assert_int_eq(tn_memory_count() - before, 40000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tests = tcase_create("memory");
    tcase_add_test(tests, blocks_are_zeroed_also_when_reused);
    tcase_add_test(tests, large_blocks_are_aligned_to_huge_pages);
    tcase_add_test(tests, products_that_overflow_are_refused);
    tcase_add_test(tests, nothing_is_still_a_block);
    tcase_add_test(tests, realloc_keeps_what_was_there);
    tcase_add_test(tests, arrays_grow_by_doubling);
    tcase_add_test(tests, arrays_that_can_not_grow_stay);
    tcase_add_test(tests, text_is_copied);
    tcase_add_test(tests, the_nth_allocation_fails_once);
    tcase_add_test(tests, failing_can_be_called_off);
    tcase_add_test(tests, one_failure_among_threads);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
