/* SPDX-License-Identifier: Apache-2.0
 *
 * host/parallel/comm: operations over two to four processes against serial results, groups, exact sums, one process,
 * members that disagree.
 */
#include "host/parallel/comm.h"

#include <math.h>
#include <time.h>

#include "host/base/memory.h"
#include "tests/processes.h"

static const tn_dtype f64 = {TN_FLOAT, 64, 1};

static double value_of(int32_t rank, int64_t i) { return 1.0 / (double)(1 + rank) + (double)i * 0.1; }

static void everything(tn_comm *world, void *arg)
{
    enum { N = 1001 };
    const int32_t rank = tn_comm_rank(world), size = tn_comm_size(world), expected = *(int32_t *)arg;
    double data[N], all[4 * N];
    int32_t any = -1;
    tn_error err = {0};
    ck_assert_int_eq(size, expected);
    for (int64_t i = 0; i < N; i++)
        data[i] = value_of(rank, i);
    ck_ok(tn_comm_all_gather(world, data, all, sizeof data, &err), err);
    ck_ok(tn_comm_all_reduce(world, f64, data, N, TN_REDUCE_SUM, &err), err);
    for (int64_t i = 0; i < N; i++) {
        double sum = value_of(0, i);
        for (int32_t r = 0; r < size; r++) {
            expect(all[r * N + i] == value_of(r, i), "gathered [%d][%d]", r, (int)i);
            sum = r ? sum + value_of(r, i) : sum;
        }
        expect(data[i] == sum, "the sum of %d is %.17g, not %.17g", (int)i, data[i], sum);
    }
    data[0] = rank == size - 1 ? 17 : 4;
    ck_ok(tn_comm_broadcast(world, data, sizeof *data, size - 1, &err), err);
    ck_assert(data[0] == 17);
    ck_ok(tn_comm_any(world, rank == 0 ? 8 : 0, &any, &err), err);
    ck_assert_int_eq(any, 1);
    ck_ok(tn_comm_any(world, 0, &any, &err), err);
    ck_assert_int_eq(any, 0);
    ck_ok(tn_comm_barrier(world, &err), err);
}

START_TEST(operations)
{
    int32_t size = _i;
    processes_run(size, everything, &size);
}
END_TEST

/* A token goes round: each process sends to the next, through groups of two that open when they first meet. */
static void ring(tn_comm *world, void *arg)
{
    const int32_t rank = tn_comm_rank(world), size = tn_comm_size(world), next = (rank + 1) % size;
    tn_error err = {0};
    int64_t token = 1, before = 0;
    (void)arg;
    for (int round = 0; round < 3; round++) {
        if (round == 2)
            before = tn_memory_count();
        if (rank > 0)
            ck_ok(tn_comm_receive(world, &token, sizeof token, rank - 1, &err), err);
        token = token * 3 + rank;
        ck_ok(tn_comm_send(world, &token, sizeof token, next, &err), err);
        if (rank == 0)
            ck_ok(tn_comm_receive(world, &token, sizeof token, size - 1, &err), err);
        ck_ok(tn_comm_barrier(world, &err), err); /* the world's own count was not touched */
    }
    ck_assert_int_eq(tn_memory_count(), before);
    int64_t expected = 1;
    for (int i = 0; i < 3 * size; i++)
        expected = expected * 3 + i % size;
    ck_assert(rank > 0 || token == expected);
    ck_assert_refused(tn_comm_send(world, &token, 8, rank, &err), TN_E_INVALID, err, "rank", "another");
    ck_assert_refused(tn_comm_receive(world, &token, 8, size, &err), TN_E_INVALID, err, "rank", "another");
}

START_TEST(sends) { processes_run(_i, ring, NULL); }
END_TEST

static void halves(tn_comm *world, void *arg)
{
    const int32_t rank = tn_comm_rank(world), pair[] = {rank / 2 * 2 + 1, rank / 2 * 2}, outer[] = {0, 3};
    tn_comm *group = NULL, *ends = NULL, *alone = world;
    double sum = rank;
    tn_error err = {0};
    (void)arg;
    ck_ok(tn_comm_split(world, pair, 2, &group, &err), err);
    ck_assert_int_eq(tn_comm_size(group), 2);
    ck_assert_int_eq(tn_comm_rank(group), 1 - rank % 2); /* in the order of `members` */
    ck_ok(tn_comm_all_reduce(group, f64, &sum, 1, TN_REDUCE_SUM, &err), err);
    ck_assert(sum == (rank < 2 ? 1 : 5));
    if (rank == 0 || rank == 3) {
        ck_ok(tn_comm_split(world, outer, 2, &ends, &err), err);
        ck_ok(tn_comm_all_reduce(ends, f64, &sum, 1, TN_REDUCE_MAX, &err), err);
        ck_assert(sum == 5);
    }
    ck_ok(tn_comm_split(world, &rank, 1, &alone, &err), err);
    ck_assert_ptr_null(alone);
    ck_ok(tn_comm_barrier(world, &err), err);
    const int32_t twice[] = {rank, rank}, strange[] = {rank, 4}, others[] = {(rank + 1) % 4};
    ck_assert_refused(tn_comm_split(world, twice, 2, &alone, &err), TN_E_INVALID, err, "rank", "twice");
    ck_assert_refused(tn_comm_split(world, strange, 2, &alone, &err), TN_E_INVALID, err, "member 1", "world of 4");
    ck_assert_refused(tn_comm_split(world, others, 1, &alone, &err), TN_E_INVALID, err, "rank", "no member");
    tn_comm_close(ends);
    tn_comm_close(group);
}

START_TEST(groups) { processes_run(4, halves, NULL); }
END_TEST

/* More sums than go through the buffer at once, of numbers whose plain sum depends on the order. */
static void exact(tn_comm *world, void *arg)
{
    enum { SUMS = 150 };
    const int32_t rank = tn_comm_rank(world), size = tn_comm_size(world);
    static tn_exact sums[SUMS], expected[SUMS];
    tn_error err = {0};
    (void)arg;
    for (int i = 0; i < SUMS; i++)
        for (int32_t r = 0; r < size; r++) {
            double value = ldexp(1 + i * 0.37, 60 * (r % 2)) * (r == 2 ? -1 : 1);
            tn_exact_add(&expected[i], value);
            if (r == rank)
                tn_exact_add(&sums[i], value);
        }
    if (rank == 1)
        tn_exact_add(&sums[7], (double)NAN);
    int64_t before = tn_memory_count();
    ck_ok(tn_comm_sum_exact(world, sums, SUMS, &err), err);
    ck_assert_int_eq(tn_memory_count(), before);
    for (int i = 0; i < SUMS; i++) {
        tn_exact_settle(&sums[i]);
        tn_exact_settle(&expected[i]);
        if (i == 7)
            ck_assert(!tn_exact_finite(&sums[i]));
        else
            expect(!memcmp(&sums[i], &expected[i], sizeof *sums), "sum %d: %g, not %g", i, tn_exact_value(&sums[i]),
                   tn_exact_value(&expected[i]));
    }
}

START_TEST(exact_sums) { processes_run(_i, exact, NULL); }
END_TEST

START_TEST(one_process)
{
    tn_exact sum;
    tn_error err = {0};
    double from[] = {1, 2}, to[2] = {0};
    int32_t any = -1, zero = 0;
    tn_comm *group = (tn_comm *)&sum;
    ck_assert_int_eq(tn_comm_rank(NULL), 0);
    ck_assert_int_eq(tn_comm_size(NULL), 1);
    ck_ok(tn_comm_all_gather(NULL, from, to, sizeof from, &err), err);
    ck_assert_mem_eq(from, to, sizeof from);
    ck_ok(tn_comm_all_reduce(NULL, f64, to, 2, TN_REDUCE_SUM, &err), err);
    ck_assert_mem_eq(from, to, sizeof from);
    ck_ok(tn_comm_broadcast(NULL, to, sizeof to, 0, &err), err);
    ck_ok(tn_comm_barrier(NULL, &err), err);
    ck_ok(tn_comm_any(NULL, 5, &any, &err), err);
    ck_assert_int_eq(any, 1);
    tn_exact_clear(&sum);
    tn_exact_add(&sum, 3);
    ck_ok(tn_comm_sum_exact(NULL, &sum, 1, &err), err);
    ck_assert(tn_exact_value(&sum) == 3);
    ck_ok(tn_comm_split(NULL, &zero, 1, &group, &err), err);
    ck_assert_ptr_null(group);
    ck_assert_refused(tn_comm_send(NULL, to, 8, 0, &err), TN_E_INVALID, err, "rank 0 of 1", "another");
    tn_comm_close(NULL);
    processes_run(1, everything, (int32_t[]){1});
}
END_TEST

/* One process calls something else, or nothing: all get an error that names both, and get it again. */
static void disagree(tn_comm *world, void *arg)
{
    const int32_t rank = tn_comm_rank(world), kind = *(int32_t *)arg;
    double data[8] = {0}, all[16], seconds;
    struct timespec from, to;
    tn_error err = {0}, again = {0};
    int32_t status;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (rank == 1 && kind == 0)
        status = tn_comm_all_reduce(world, f64, data, 7, TN_REDUCE_SUM, &err);
    else if (rank == 1 && kind == 1)
        status = tn_comm_all_gather(world, data, all, sizeof data, &err);
    else if (rank == 1)
        status = (usleep(1500000), tn_comm_barrier(world, &err));
    else
        status = tn_comm_all_reduce(world, f64, data, 8, TN_REDUCE_SUM, &err);
    clock_gettime(CLOCK_MONOTONIC, &to);
    seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
    ck_assert_int_eq(status, kind == 2 ? TN_E_IO : TN_E_INVALID);
    ck_assert_msg(strstr(err.msg, "rank 0") && strstr(err.msg, "rank 1"), "%s", err.msg);
    ck_assert_msg(seconds < 8, "%g s", seconds);
    ck_assert_int_eq(tn_comm_barrier(world, &again), status);
    ck_assert_str_eq(again.msg, err.msg);
}

START_TEST(disagreements) { processes_run_within("1", 2, disagree, &(int32_t){_i}); }
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm");
    TCase *tcase = tcase_create("comm");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, operations, 2, 5);
    tcase_add_loop_test(tcase, sends, 2, 5);
    tcase_add_test(tcase, groups);
    tcase_add_loop_test(tcase, exact_sums, 2, 5);
    tcase_add_test(tcase, one_process);
    tcase_add_loop_test(tcase, disagreements, 0, 3);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
