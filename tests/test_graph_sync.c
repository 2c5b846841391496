/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of layers: batch-norm over the processes that share a batch equals batch-norm on the joint batch: outputs,
 * gradients, running statistics.
 */
#include "tests/graph.h"
#include "tests/processes.h"

#define JOINT 8

typedef struct {
    uint32_t real;
    int64_t rows[3];       /* of each process; JOINT in all */
    const char *recompute; /* of the first process only */
    int32_t refresh;
} split;

static void open_norms(graph_fixture *f, uint32_t real, int sync, tn_comm *data, const char *recompute)
{
    /* The second is wide enough for several pieces, the first for more than one block in a piece. */
    const tn_setting settings[] = {
        {"widths", "[130, 600]"},
        {"normalizer", sync ? "{use: batchnorm, sync: true}" : "batchnorm"},
        {"activation", "gelu"},
    };
    const graph_choice choice = {.model = "mlp",
                                 .settings = settings,
                                 .count = 3,
                                 .real = real,
                                 .threads = 2,
                                 .data = data,
                                 .recompute = recompute};
    graph_open(f, &choice);
}

/* Where the samples of both runs come from: around 2, so that a mean carries weight. */
static void fill(graph_fixture *f, int64_t lo, int64_t n)
{
    graph_fill_from(f, 21, lo, n);
    for (int64_t i = 0; i < n * SAMPLE; i++)
        if (f->choice.real == 64)
            ((double *)tn_graph_input(f->graph))[i] += 2;
        else
            ((float *)tn_graph_input(f->graph))[i] += 2;
}

static void train(graph_fixture *f, int64_t lo, int64_t n, int32_t refresh)
{
    fill(f, lo, n);
    const tn_graph_run run = {.n = n, .flags = TN_TRAIN, .seed = 1.0 / JOINT, .refresh = refresh};
    graph_run(f, &run);
}

/* Everything within `tolerance` of the largest number of its kind. */
static void check_near(const graph_fixture *f, const void *got, const void *wanted, int64_t n, double tolerance,
                       const char *what)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(graph_number(f, wanted, i)));
    ck_assert_double_gt(largest, 1e-8);
    for (int64_t i = 0; i < n; i++) {
        double a = graph_number(f, got, i), b = graph_number(f, wanted, i);
        expect(fabs(a - b) <= tolerance * largest, "%s[%lld]: %.17g, of the joint batch %.17g", what, (long long)i, a,
               b);
    }
}

static void check_gradients(const graph_fixture *f, const graph_fixture *whole, double tolerance)
{
    int64_t bytes = f->choice.real / 8;
    for (int64_t i = 0; i < f->all->count; i++) {
        const tn_parameter *p = &f->all->list[i];
        /* What goes through batch-norm's dx has no mean: a bias before it has gradient 0 but for rounding. */
        if (strstr(p->name, "linear.bias"))
            continue;
        check_near(f, (char *)f->all->g + f->all->at[i] * bytes, (char *)whole->all->g + f->all->at[i] * bytes, p->n,
                   tolerance, p->name);
    }
}

static void check_buffers(const graph_fixture *f, const graph_fixture *whole, double tolerance)
{
    const tn_graph_buffer *mine, *theirs;
    size_t count = tn_graph_buffers(f->graph, &mine);
    ck_assert_uint_eq(count, tn_graph_buffers(whole->graph, &theirs));
    ck_assert_uint_eq(count, 4);
    for (size_t i = 0; i < count; i++)
        check_near(f, mine[i].tensor.data, theirs[i].tensor.data, mine[i].tensor.shape[0], tolerance, mine[i].name);
}

/* Running statistics are the same number everywhere, to the bit. */
static void check_agreement(const graph_fixture *f, tn_comm *world)
{
    const tn_graph_buffer *buffers;
    tn_error err = {0};
    size_t count = tn_graph_buffers(f->graph, &buffers);
    for (size_t i = 0; i < count; i++) {
        int64_t bytes = buffers[i].tensor.shape[0] * f->choice.real / 8;
        char *all = tn_alloc((size_t)(bytes * tn_comm_size(world)), 1);
        ck_ok(tn_comm_all_gather(world, buffers[i].tensor.data, all, bytes, &err), err);
        for (int32_t r = 1; r < tn_comm_size(world); r++)
            ck_assert_mem_eq(all, all + r * bytes, (size_t)bytes);
        tn_free(all);
    }
}

static void part(tn_comm *world, void *arg)
{
    const split *s = arg;
    graph_fixture joint, plain;
    int32_t rank = tn_comm_rank(world);
    int64_t lo = 0, n = s->rows[rank], bytes = s->real / 8;
    double tolerance = s->real == 64 ? 1e-12 : 1e-6;
    tn_error err = {0};
    for (int32_t r = 0; r < rank; r++)
        lo += s->rows[r];
    open_norms(&joint, s->real, 1, world, rank == 0 ? s->recompute : NULL);
    open_norms(&plain, s->real, 0, NULL, NULL);
    train(&joint, lo, n, s->refresh);
    train(&plain, 0, JOINT, s->refresh);
    check_near(&joint, tn_graph_output(joint.graph)->data,
               (char *)tn_graph_output(plain.graph)->data + lo * CLASSES * bytes, n * CLASSES, tolerance, "output");
    const tn_dtype dtype = {TN_FLOAT, (uint8_t)s->real, 1};
    ck_ok(tn_comm_all_reduce(world, dtype, joint.all->g, joint.all->elements, TN_REDUCE_SUM, &err), err);
    check_gradients(&joint, &plain, tolerance);
    check_buffers(&joint, &plain, tolerance);
    check_agreement(&joint, world);
    graph_close(&joint);
    graph_close(&plain);
}

START_TEST(two_processes_are_one_batch)
{
    static const int64_t splits[][2] = {{4, 4}, {3, 5}, {7, 1}};
    for (uint32_t real = 32; real <= 64; real += 32)
        for (size_t i = 0; i < 3; i++) {
            split s = {.real = real, .rows = {splits[i][0], splits[i][1]}};
            processes_run(2, part, &s);
        }
}
END_TEST

START_TEST(three_processes_are_one_batch)
{
    split s = {.real = 64, .rows = {3, 1, 4}};
    processes_run(3, part, &s);
}
END_TEST

/* The sums of the forward pass serve its replay: a process that replays stays in step with one that does not. */
START_TEST(replays_sum_nothing_twice)
{
    split s = {.real = 64, .rows = {3, 5}, .recompute = "every"};
    processes_run_within("5", 2, part, &s);
}
END_TEST

START_TEST(refreshing_is_over_the_joint_batch)
{
    split s = {.real = 64, .rows = {3, 5}, .refresh = 1};
    processes_run(2, part, &s);
}
END_TEST

START_TEST(one_process_is_its_own_joint_batch)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        split s = {.real = real, .rows = {JOINT}};
        part(NULL, &s);
    }
}
END_TEST

/* f32 values near 1e4 that differ by 1: their variance must not drown. */
START_TEST(large_means_lose_nothing)
{
    static const tn_setting settings[] = {{"widths", "[1]"}, {"normalizer", "{use: batchnorm, sync: true}"}};
    graph_fixture f;
    const tn_graph_buffer *buffers;
    graph_open(&f, &(graph_choice){.model = "mlp", .settings = settings, .count = 2, .real = 32});
    float *w = (float *)f.all->p + f.all->at[0], *b = (float *)f.all->p + f.all->at[1];
    for (int i = 0; i < SAMPLE; i++)
        w[i] = i == 0;
    b[0] = 0;
    graph_fill(&f, 4);
    for (int i = 0; i < 4; i++)
        ((float *)tn_graph_input(f.graph))[i * SAMPLE] = 40000 + (float)i;
    const tn_graph_run run = {.n = 4, .flags = TN_TRAIN, .seed = 1, .refresh = 1};
    graph_run(&f, &run);
    ck_assert_uint_eq(tn_graph_buffers(f.graph, &buffers), 2);
    ck_assert(((float *)buffers[0].tensor.data)[0] == 40001.5f);
    ck_assert(((float *)buffers[1].tensor.data)[0] == (float)(5.0 / 3));
    graph_close(&f);
}
END_TEST

/* ---- who may bring one sample ---- */

static void bring_one(tn_comm *world, void *arg)
{
    graph_fixture f;
    tn_error err = {0};
    (void)arg;
    open_norms(&f, 64, 1, world, NULL);
    ck_ok(tn_graph_check(f.graph, 1, TN_TRAIN, &err), err);
    graph_close(&f);
    open_norms(&f, 64, 0, world, NULL);
    ck_assert_int_eq(tn_graph_check(f.graph, 1, TN_TRAIN, &err), TN_E_INVALID);
    graph_close(&f);
}

START_TEST(one_value_a_channel_is_enough_of_a_joint_batch)
{
    graph_fixture f;
    tn_error err = {0};
    processes_run(2, bring_one, NULL);
    open_norms(&f, 64, 1, NULL, NULL);
    ck_assert_int_eq(tn_graph_check(f.graph, 1, TN_TRAIN, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "hidden.0.norm"));
    ck_ok(tn_graph_check(f.graph, 1, 0, &err), err);
    graph_close(&f);
}
END_TEST

/* ---- rounds that are wrong ---- */

START_TEST(rounds_that_can_not_be_driven_are_refused)
{
    static const struct {
        const char *layer, *words;
        int32_t status;
    } cases[] = {{"rounds-on-rows", "another axis than columns", TN_E_UNSUPPORTED},
                 {"rounds-without-count", "lacks count or partial", TN_E_PLUGIN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_fixture f;
        tn_error err = {0};
        const tn_setting setting = {"activation", cases[i].layer};
        graph_prepare(&f, &(graph_choice){.model = "mlp", .settings = &setting, .count = 1, .real = 32});
        ck_assert_int_eq(graph_create(&f, &err), cases[i].status);
        ck_assert_msg(strstr(err.msg, cases[i].words) && strstr(err.msg, cases[i].layer), "%s", err.msg);
        graph_close(&f);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph_sync");
    TCase *tests = tcase_create("graph_sync");
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, two_processes_are_one_batch);
    tcase_add_test(tests, three_processes_are_one_batch);
    tcase_add_test(tests, replays_sum_nothing_twice);
    tcase_add_test(tests, refreshing_is_over_the_joint_batch);
    tcase_add_test(tests, one_process_is_its_own_joint_batch);
    tcase_add_test(tests, large_means_lose_nothing);
    tcase_add_test(tests, one_value_a_channel_is_enough_of_a_joint_batch);
    tcase_add_test(tests, rounds_that_can_not_be_driven_are_refused);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
