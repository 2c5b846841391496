/* SPDX-License-Identifier: Apache-2.0
 *
 * test_failure.c: what calls that return nothing tell the host: the first one counts, whoever else fails.
 */
#include <pthread.h>

#include "host/base/failure.h"
#include "tests/support.h"

START_TEST(the_first_one_is_kept)
{
    tn_failures failures = {0};
    tn_error err = {0};
    ck_assert_int_eq(tn_failures_take(&failures, &err), TN_OK);
    tn_failures_keep(&failures, TN_E_DATA, "the first");
    tn_failures_keep(&failures, TN_E_IO, "the second");
    ck_assert_refused(tn_failures_take(&failures, &err), TN_E_DATA, err, "the first", "");
    ck_assert_int_eq(tn_failures_take(&failures, &err), TN_OK);
    tn_failures_keep(&failures, TN_E_IO, "the next");
    ck_assert_refused(tn_failures_take(&failures, NULL), TN_E_IO, ((tn_error){TN_E_IO, "the next"}), "the next", "");
}
END_TEST

START_TEST(what_is_no_error_is_a_bug)
{
    const int32_t codes[] = {TN_OK, -1, TN_E_NOT_FOUND + 1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        tn_failures failures = {0};
        tn_error err;
        tn_failures_keep(&failures, codes[i], i ? "words" : NULL);
        ck_assert_refused(tn_failures_take(&failures, &err), TN_E_INTERNAL, err, i ? "words" : "a component failed",
                          "");
    }
}
END_TEST

enum { THREADS = 8, ROUNDS = 2000 };

typedef struct {
    tn_failures failures;
    pthread_barrier_t barrier;
} shared;

static void *fail_often(void *arg)
{
    shared *s = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char text[64];
        snprintf(text, sizeof text, "round %d of a thread", i);
        pthread_barrier_wait(&s->barrier);
        tn_failures_keep(&s->failures, TN_E_IO, text);
        pthread_barrier_wait(&s->barrier);
    }
    return NULL;
}

/* Each time one failure of that round, whole. */
START_TEST(threads_fail_at_once)
{
    static shared s;
    pthread_t threads[THREADS];
    pthread_barrier_init(&s.barrier, NULL, THREADS + 1);
    for (int t = 0; t < THREADS; t++)
        ck_assert_int_eq(pthread_create(&threads[t], NULL, fail_often, &s), 0);
    for (int i = 0; i < ROUNDS; i++) {
        char wanted[64];
        tn_error err;
        pthread_barrier_wait(&s.barrier);
        pthread_barrier_wait(&s.barrier);
        snprintf(wanted, sizeof wanted, "round %d of a thread", i);
        ck_assert_int_eq(tn_failures_take(&s.failures, &err), TN_E_IO);
        ck_assert_str_eq(err.msg, wanted);
        ck_assert_int_eq(tn_failures_take(&s.failures, &err), TN_OK);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("failure");
    TCase *tests = tcase_create("failure");
    tcase_add_test(tests, the_first_one_is_kept);
    tcase_add_test(tests, what_is_no_error_is_a_bug);
    tcase_add_test(tests, threads_fail_at_once);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
