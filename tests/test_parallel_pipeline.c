/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines of two and three processes against one process that runs the same micro-batches: the same bits. What was
 * executed is what was planned; processes that disagree are told so.
 */
#include "tests/mesh.h"

static const tn_setting plain[] = {{"widths", "[12, 10, 8]"}, {"activation", "gelu"}, {"normalizer", "layernorm"}};
static const tn_setting full[] = {
    {"widths", "[16, 8, 12, 8]"}, {"activation", "gelu"}, {"normalizer", "batchnorm"}, {"regularizer", "dropout"}};

static const tn_setting joint[] = {
    {"widths", "[16, 8, 12, 8]"}, {"activation", "gelu"}, {"normalizer", "{use: batchnorm, sync: true}"}};

#define STAGES(n)                                                                                                      \
    {                                                                                                                  \
        sizeof(tn_mesh), 1, 1, n                                                                                       \
    }

static const mesh_case cases[] = {
    {STAGES(2), 64, 5, "1f1b", NULL, plain, 3, NULL},
    {STAGES(2), 32, 8, "1f1b", NULL, plain, 3, NULL},
    {STAGES(2), 32, 5, "gpipe", NULL, plain, 3, NULL},
    {STAGES(2), 64, 1, "1f1b", NULL, plain, 3, NULL},
    {STAGES(3), 64, 7, "1f1b", NULL, plain, 3, NULL},
    {STAGES(3), 32, 4, "gpipe", NULL, plain, 3, NULL},
    {STAGES(2), 32, 5, "1f1b", NULL, full, 4, "sqrt"},
    {STAGES(3), 64, 5, "1f1b", NULL, full, 4, NULL},
    {STAGES(2), 64, 5, "1f1b", NULL, full, 4, "every"},
    {STAGES(3), 64, 5, "gpipe", NULL, full, 4, "every"},
    {{sizeof(tn_mesh), 2, 1, 2}, 64, 5, "1f1b", NULL, joint, 3, "every"},
};
static const size_t case_count = sizeof cases / sizeof *cases;

typedef struct {
    const mesh_case *c;
    int32_t place; /* on the data axis */
    int32_t updates, loads;
} window;

static int32_t load(void *user, int32_t micro_batch, void *x, void *target, tn_error *err)
{
    window *w = user;
    (void)err;
    w->loads++;
    mesh_fill(w->c->real, w->place, micro_batch, x, target);
    return TN_OK;
}

static int32_t update(void *user, tn_error *err)
{
    (void)err;
    ((window *)user)->updates++;
    return TN_OK;
}

static void executed_is_planned(const tn_pipeline *pipeline, const mesh_fixture *f)
{
    const tn_timetable *t = f->parallel->timetable;
    const int32_t stage = f->parallel->place[TN_MESH_PIPELINE];
    const tn_action *rows;
    int64_t count = tn_pipeline_executed(pipeline, &rows), first = t->first[stage];
    ck_assert_int_eq(count, t->first[stage + 1] - first);
    ck_assert_mem_eq(rows, t->actions + first, (size_t)count * sizeof *rows);
}

static void one_window(tn_pipeline *pipeline, tn_exact sums[TN_SUMS_MAX])
{
    tn_graph_run run = mesh_run_options();
    tn_error err = {0};
    memset(sums, 0, TN_SUMS_MAX * sizeof *sums);
    ck_ok(tn_pipeline_run(pipeline, &run, mesh_samples, sums, &err), err);
}

static void same_sums(tn_exact *sums, tn_exact *expected)
{
    for (int i = 0; i < TN_SUMS_MAX; i++) {
        double a = tn_exact_value(&sums[i]), b = tn_exact_value(&expected[i]);
        expect(a == b, "sum %d is %.17g, not %.17g", i, a, b);
    }
    ck_assert(tn_exact_value(&sums[TN_SUM_LOSS]) > 0);
}

/* Over the stages. */
static double sum_of(const mesh_fixture *f, double mine)
{
    tn_error err = {0};
    ck_ok(tn_comm_all_reduce(f->parallel->group[TN_MESH_PIPELINE], (tn_dtype){TN_FLOAT, 64, 1}, &mine, 1, TN_REDUCE_SUM,
                             &err),
          err);
    return mine;
}

/* Each stage moved its own and no other. */
static void same_buffers(const mesh_fixture *f, const mesh_fixture *whole)
{
    const tn_graph_buffer *buffers, *expected;
    size_t count = tn_graph_buffers(f->graph, &buffers);
    double same = 0;
    ck_assert_uint_eq(count, tn_graph_buffers(whole->graph, &expected));
    for (size_t i = 0; i < count; i++) {
        size_t bytes = (size_t)buffers[i].tensor.shape[0] * buffers[i].tensor.dtype.bits / 8;
        same += !memcmp(buffers[i].tensor.data, expected[i].tensor.data, bytes);
    }
    ck_assert(sum_of(f, same) == (double)count);
}

static void stage_process(tn_comm *world, void *arg)
{
    const mesh_case *c = arg;
    mesh_fixture f, whole;
    tn_exact sums[TN_SUMS_MAX], expected[TN_SUMS_MAX];
    tn_pipeline *pipeline = NULL;
    tn_error err = {0};
    mesh_place(c, world, &f);
    mesh_whole(c, f.parallel->group[TN_MESH_DATA], &whole);
    window w = {.c = c, .place = f.parallel->place[TN_MESH_DATA]};
    const int32_t stage = f.parallel->place[TN_MESH_PIPELINE], stages = c->mesh.pipeline;
    const tn_pipeline_options options = {f.graph, f.parallel, &w, load, update};
    ck_ok(tn_pipeline_create(&options, &pipeline, &err), err);
    ck_assert_int_le(tn_timetable_in_flight(f.parallel->timetable, stage),
                     strcmp(c->order, "gpipe") ? stages - stage : c->micro_batches);
    ck_assert_int_eq(f.parallel->sets, tn_timetable_in_flight(f.parallel->timetable, stage));
    mesh_run(c, &whole, expected);
    one_window(pipeline, sums);
    executed_is_planned(pipeline, &f);
    same_sums(sums, expected);
    same_buffers(&f, &whole);
    int64_t here = mesh_compare(&f, &whole, 0), before = tn_memory_count();
    ck_assert_int_gt(here, 0);
    ck_assert_int_lt(here, tn_graph_parameters(f.graph)->count);
    ck_assert_int_lt(tn_graph_memory_of(f.graph).parameters, tn_graph_memory_of(whole.graph).parameters);
    one_window(pipeline, sums);
    ck_assert_int_eq(tn_memory_count(), before);
    mesh_run(c, &whole, expected);
    same_sums(sums, expected);
    mesh_compare(&f, &whole, 0);
    ck_assert_int_eq(w.updates, 2);
    ck_assert_int_eq(w.loads, stage == 0 || stage == stages - 1 ? 2 * c->micro_batches : 0);
    ck_assert(sum_of(&f, (double)here) == (double)tn_graph_parameters(f.graph)->count); /* each in one stage */
    tn_pipeline_destroy(pipeline);
    mesh_end(&f);
    mesh_end(&whole);
}

START_TEST(the_bits_of_one_process)
{
    processes_run(tn_mesh_size(&cases[_i].mesh), stage_process, (void *)(uintptr_t)&cases[_i]);
}
END_TEST

/* ---- processes that disagree, or fail ---- */

static void disagree_in_tables(tn_comm *world, void *arg)
{
    const int32_t kind = *(int32_t *)arg, rank = tn_comm_rank(world);
    mesh_case c = cases[0];
    mesh_fixture f;
    tn_error err = {0};
    if (rank == 1 && kind == 0)
        c.micro_batches = 4;
    if (rank == 1 && kind == 1)
        c.order = "gpipe";
    mesh_begin(&c, &f);
    ck_assert_refused(mesh_open(&c, world, &f, &err), TN_E_INVALID, err, "ranks 0 and 1 differ in the mesh",
                      "same experiment");
    mesh_end(&f);
}

START_TEST(tables_differ) { processes_run(2, disagree_in_tables, &(int32_t){_i}); }
END_TEST

static void disagree_in_model(tn_comm *world, void *arg)
{
    const tn_setting other[] = {{"widths", "[12, 10, 9]"}, {"activation", "gelu"}, {"normalizer", "layernorm"}};
    mesh_case c = cases[0];
    mesh_fixture f;
    tn_error err = {0};
    (void)arg;
    if (tn_comm_rank(world) == 1)
        c.settings = other;
    mesh_begin(&c, &f);
    ck_ok(mesh_open(&c, world, &f, &err), err);
    ck_assert_refused(mesh_graph(&c, &f, &err), TN_E_INVALID, err, "ranks 0 and 1 differ in the model", "same");
    mesh_end(&f);
}

START_TEST(models_differ) { processes_run(2, disagree_in_model, NULL); }
END_TEST

static int32_t load_fails(void *user, int32_t micro_batch, void *x, void *target, tn_error *err)
{
    if (target && micro_batch == 2)
        return tn_error_set(err, TN_E_DATA, "no more data");
    return load(user, micro_batch, x, target, err);
}

/* 0: the sizes of a micro-batch differ; 1: a stage fails in the middle and leaves. */
static void fail_while_running(tn_comm *world, void *arg)
{
    const int32_t kind = *(int32_t *)arg, rank = tn_comm_rank(world);
    int64_t n[MESH_MICRO];
    mesh_fixture f;
    tn_exact sums[TN_SUMS_MAX];
    tn_pipeline *pipeline = NULL;
    tn_error err = {0};
    memcpy(n, mesh_samples, sizeof n);
    n[1] -= kind == 0 && rank == 1;
    memset(sums, 0, sizeof sums);
    mesh_place(&cases[0], world, &f);
    window w = {.c = &cases[0]};
    const tn_pipeline_options options = {f.graph, f.parallel, &w, kind ? load_fails : load, NULL};
    ck_ok(tn_pipeline_create(&options, &pipeline, &err), err);
    const tn_graph_run run = mesh_run_options();
    int32_t status = tn_pipeline_run(pipeline, &run, n, sums, &err);
    if (kind == 0)
        ck_assert_msg(status == TN_E_INVALID && strstr(err.msg, "activations of micro-batch 1") &&
                          strstr(err.msg, "send of") && strstr(err.msg, "receive of"),
                      "%d: %s", status, err.msg);
    else if (rank == 1)
        ck_assert_msg(status == TN_E_DATA && strstr(err.msg, "stage 1, action F of micro-batch 2: no more data"), "%s",
                      err.msg);
    else
        ck_assert_msg(status == TN_E_IO && strstr(err.msg, "rank 1") && strstr(err.msg, "left"), "%s", err.msg);
    ck_assert(tn_exact_value(&sums[TN_SUM_LOSS]) == 0);
    tn_pipeline_destroy(pipeline);
    mesh_end(&f);
}

START_TEST(failures_reach_all) { processes_run_within("5", 2, fail_while_running, &(int32_t){_i}); }
END_TEST

static void refuse(tn_comm *world, void *arg)
{
    mesh_case c = cases[0];
    mesh_fixture f;
    tn_error err = {0};
    (void)arg;
    c.mesh.pipeline = 3;
    mesh_begin(&c, &f);
    ck_assert_refused(mesh_open(&c, world, &f, &err), TN_E_INVALID, err, "a mesh of data 1 x tensor 1 x pipeline 3",
                      "2 were started");
    mesh_end(&f);
    c.mesh.pipeline = 2;
    c.settings = (tn_setting[]){{"widths", "[]"}};
    c.count = 1;
    mesh_begin(&c, &f);
    ck_ok(mesh_open(&c, world, &f, &err), err);
    ck_assert_refused(mesh_graph(&c, &f, &err), TN_E_INVALID, err, "strategy pipeline-1f1b: 2 stages", "1 parts");
    mesh_end(&f);
}

START_TEST(refusals) { processes_run(2, refuse, NULL); }
END_TEST

int main(void)
{
    Suite *suite = suite_create("parallel pipeline");
    TCase *tcase = tcase_create("pipeline");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, the_bits_of_one_process, 0, (int)case_count);
    tcase_add_loop_test(tcase, tables_differ, 0, 2);
    tcase_add_test(tcase, models_differ);
    tcase_add_loop_test(tcase, failures_reach_all, 0, 2);
    tcase_add_test(tcase, refusals);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
