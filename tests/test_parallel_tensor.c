/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor parallelism: pairs of linear layers on two processes against the whole model on one, how many all-reduces
 * follow, tensor and pipeline together on four, models that can not be split, the same tables for 10,000 ranks.
 */
#include <math.h>

#include "host/graph/divide.h"
#include "tests/mesh.h"

static const tn_setting plain[] = {{"widths", "[12, 10, 8]"}, {"activation", "gelu"}};
static const tn_setting normal[] = {{"widths", "[12, 10, 8]"}, {"activation", "gelu"}, {"normalizer", "layernorm"}};
static const tn_setting odd[] = {{"widths", "[13, 10, 8]"}, {"activation", "gelu"}};
static const tn_setting noisy[] = {
    {"widths", "[600, 10, 8]"}, {"activation", "relu"}, {"regularizer", "{use: dropout, p: 0.5}"}};

#define PARTS(tensor, pipeline)                                                                                        \
    {                                                                                                                  \
        sizeof(tn_mesh), 1, tensor, pipeline                                                                           \
    }

/* ---- the pair ---- */

typedef struct {
    mesh_case c;
    int64_t forward, backward; /* all-reduces of a micro-batch */
    int64_t split;             /* parameters of which each has a part */
    double tolerance;
} pair_case;

/* The mlp has four linear layers. A first pair reads the batch, whose gradient nobody wants. */
static const pair_case pairs[] = {
    {{PARTS(2, 1), 64, 3, NULL, NULL, plain, 2, NULL}, 2, 1, 6, 1e-12},
    {{PARTS(2, 1), 64, 3, NULL, "1", plain, 2, NULL}, 1, 1, 3, 1e-12},
    {{PARTS(2, 1), 64, 3, NULL, "2", plain, 2, NULL}, 1, 1, 3, 1e-12},
    {{PARTS(2, 1), 64, 3, NULL, "3", plain, 2, NULL}, 0, 0, 0, 0},
    {{PARTS(2, 1), 32, 3, NULL, NULL, plain, 2, "every"}, 3, 1, 6, 1e-5}, /* a replay sums again */
};

static void descriptors(const mesh_fixture *f, const mesh_case *c, int64_t split)
{
    const tn_parameters *all = tn_graph_parameters(f->graph);
    int64_t parts = 0;
    for (int64_t i = 0; i < all->count; i++) {
        const tn_parameter *p = &all->list[i];
        parts += p->tensor_count > 0;
        if (p->n > 0 && p->tensor_count > 0) {
            ck_assert_int_eq(p->tensor_count, c->mesh.tensor);
            ck_assert_int_eq(p->tensor_index, f->parallel->place[TN_MESH_TENSOR]);
            ck_assert_int_eq(p->replicas, 1);
            ck_assert(p->tensor_axis == 0 || (p->ndim == 2 && p->tensor_axis == 1));
        } else if (p->n > 0) {
            ck_assert_int_eq(p->tensor_axis, -1);
            ck_assert_int_eq(p->replicas, c->mesh.tensor);
        }
    }
    ck_assert_int_eq(parts, split);
}

static void same_loss(tn_exact *sums, tn_exact *expected, double tolerance)
{
    double loss = tn_exact_value(&sums[TN_SUM_LOSS]), whole = tn_exact_value(&expected[TN_SUM_LOSS]);
    ck_assert(whole > 1);
    ck_assert_msg(fabs(loss - whole) <= tolerance * whole, "%.17g, not %.17g", loss, whole);
    ck_assert(tn_exact_value(&sums[TN_SUM_COUNT]) == tn_exact_value(&expected[TN_SUM_COUNT]));
}

static void pair_process(tn_comm *world, void *arg)
{
    const pair_case *pair = arg;
    mesh_fixture f, whole;
    tn_exact sums[TN_SUMS_MAX], expected[TN_SUMS_MAX];
    int64_t forward, backward;
    mesh_place(&pair->c, world, &f);
    mesh_whole(&pair->c, NULL, &whole);
    descriptors(&f, &pair->c, pair->split);
    mesh_run(&pair->c, &f, sums);
    mesh_run(&pair->c, &whole, expected);
    same_loss(sums, expected, pair->tolerance);
    ck_assert_int_eq(mesh_compare(&f, &whole, pair->tolerance), tn_graph_parameters(f.graph)->count);
    tn_graph_reductions(f.graph, &forward, &backward);
    ck_assert_int_eq(forward, pair->forward * pair->c.micro_batches);
    ck_assert_int_eq(backward, pair->backward * pair->c.micro_batches);
    int64_t before = tn_memory_count();
    mesh_run(&pair->c, &f, sums);
    ck_assert_int_eq(tn_memory_count(), before);
    mesh_end(&f);
    mesh_end(&whole);
}

START_TEST(a_pair_is_the_whole) { processes_run(2, pair_process, (void *)(uintptr_t)&pairs[_i]); }
END_TEST

/* ---- with a pipeline ---- */

static int32_t load(void *user, int32_t micro_batch, void *x, void *target, tn_error *err)
{
    (void)err;
    mesh_fill(*(uint32_t *)user, 0, micro_batch, x, target);
    return TN_OK;
}

static void both_process(tn_comm *world, void *arg)
{
    mesh_case c = {PARTS(2, 2), 64, 4, NULL, "0", plain, 2, NULL};
    mesh_fixture f, whole;
    tn_exact sums[TN_SUMS_MAX], expected[TN_SUMS_MAX];
    tn_pipeline *pipeline = NULL;
    tn_error err = {0};
    double counts[2] = {0};
    (void)arg;
    mesh_place(&c, world, &f);
    mesh_whole(&c, NULL, &whole);
    const tn_pipeline_options options = {f.graph, f.parallel, &c.real, load, NULL};
    const tn_graph_run run = mesh_run_options();
    memset(sums, 0, sizeof sums);
    ck_ok(tn_pipeline_create(&options, &pipeline, &err), err);
    ck_ok(tn_pipeline_run(pipeline, &run, mesh_samples, sums, &err), err);
    mesh_run(&c, &whole, expected);
    same_loss(sums, expected, 1e-12);
    counts[0] = (double)mesh_compare(&f, &whole, 1e-12);
    for (int64_t i = 0; i < tn_graph_parameters(f.graph)->count; i++)
        counts[1] += (double)tn_graph_parameters(f.graph)->list[i].n;
    ck_ok(tn_comm_all_reduce(world, (tn_dtype){TN_FLOAT, 64, 1}, counts, 2, TN_REDUCE_SUM, &err), err);
    ck_assert(counts[0] == 2 * 8);
    /* weights and column biases once, row biases on both */
    ck_assert(counts[1] == 7 * 12 + 12 + 12 * 10 + 2 * 10 + 10 * 8 + 8 + 8 * 4 + 2 * 4);
    tn_pipeline_destroy(pipeline);
    mesh_end(&f);
    mesh_end(&whole);
}

START_TEST(parts_of_stages) { processes_run(4, both_process, NULL); }
END_TEST

/* ---- random numbers ---- */

/* Two parts of one tensor are not dropped alike: relu(0.1 > 0) and p 0.5 leave 0 or 0.2 in each of 600 features. */
static void noise_process(tn_comm *world, void *arg)
{
    mesh_case c = {PARTS(2, 1), 32, 1, NULL, NULL, noisy, 3, NULL};
    mesh_fixture f;
    tn_exact sums[TN_SUMS_MAX];
    tn_error err = {0};
    float gradients[600];
    (void)arg;
    mesh_place(&c, world, &f);
    tn_parameters *all = tn_graph_parameters(f.graph);
    for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < all->list[i].n; j++)
            ((float *)all->p)[all->at[i] + j] = i ? 0.1f : 0;
    for (int64_t j = 0; j < all->list[2].n; j++)
        ((float *)all->p)[all->at[2] + j] = 0.01f;
    mesh_run(&c, &f, sums);
    ck_assert_int_eq(all->list[1].n, 300);
    ck_ok(tn_comm_all_gather(world, (float *)all->g + all->at[1], gradients, 300 * sizeof(float), &err), err);
    int different = 0, dropped = 0;
    for (int j = 0; j < 300; j++)
        different += (gradients[j] == 0) != (gradients[300 + j] == 0);
    for (int j = 0; j < 600; j++)
        dropped += gradients[j] == 0;
    ck_assert_int_ge(dropped, 1);
    ck_assert_int_ge(different, 1);
    mesh_end(&f);
}

START_TEST(parts_draw_their_own) { processes_run(2, noise_process, NULL); }
END_TEST

/* ---- refusals ---- */

static void refuse(tn_comm *world, void *arg)
{
    static const struct {
        const tn_setting *settings;
        size_t count;
        int32_t status;
        const char *reason, *part;
    } cases[] = {
        {normal, 3, TN_E_UNSUPPORTED, "hidden.0.norm behind hidden.0.linear needs an all-gather", "not drive yet"},
        {odd, 2, TN_E_INVALID, "strategy tensor-pair: hidden.0.linear has 13 features", "multiple of 2"},
    };
    tn_error err = {0};
    (void)arg;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mesh_case c = {PARTS(2, 1), 64, 1, NULL, NULL, cases[i].settings, cases[i].count, NULL};
        mesh_fixture f;
        mesh_begin(&c, &f);
        ck_ok(mesh_open(&c, world, &f, &err), err);
        ck_assert_refused(mesh_graph(&c, &f, &err), cases[i].status, err, cases[i].reason, cases[i].part);
        mesh_end(&f);
    }
    mesh_case c = {PARTS(2, 1), 64, 1, NULL, NULL, plain, 2, NULL};
    mesh_fixture f;
    mesh_place(&c, world, &f);
    ck_assert_refused(tn_graph_offers_tangents(f.graph, &err), TN_E_UNSUPPORTED, err, "products with the Hessian",
                      "`tensor` is 2");
    mesh_end(&f);
}

START_TEST(refusals) { processes_run(2, refuse, NULL); }
END_TEST

/* Each allocation of the tables fails in turn; both processes are told, and nobody waits. */
static void scarce(tn_comm *world, void *arg)
{
    mesh_case c = {PARTS(2, 1), 64, 1, NULL, NULL, plain, 2, NULL};
    mesh_fixture f;
    int32_t status = TN_E_MEMORY, failed = 0;
    (void)arg;
    mesh_begin(&c, &f);
    tn_error err = {0};
    ck_ok(mesh_open(&c, world, &f, &err), err);
    for (int64_t nth = 0; status != TN_OK; nth++) {
        tn_memory_fail_at(nth);
        status = mesh_graph(&c, &f, &err);
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_OK || status == TN_E_MEMORY, "%d: %s", status, err.msg);
        failed += status != TN_OK;
    }
    ck_assert_int_gt(failed, 40);
    mesh_end(&f);
}

START_TEST(without_memory) { processes_run(2, scarce, NULL); }
END_TEST

/* ---- flows ---- */

#define R TN_PLACE_REPLICATE
#define S TN_PLACE_SHARD
#define P TN_PLACE_PARTIAL

static tn_flow_node layer(int32_t input, int32_t x, int32_t y)
{
    return (tn_flow_node){.inputs = 1, .input = {input}, .needs_gradient = 1, .split = {.split = 1, .x = x, .y = y}};
}

START_TEST(collectives_follow)
{
    /* 1 column, 2 elementwise, 3 row, 4 column, 5 whole, 6 row, 7 adds 5 and 6, 8 column, then the loss */
    tn_flow_node nodes[] = {{0},
                            layer(0, R, S),
                            {.inputs = 1, .input = {1}, .elementwise = 1, .needs_gradient = 1},
                            layer(2, S, P),
                            layer(3, R, S),
                            {.inputs = 1, .input = {4}, .needs_gradient = 1},
                            layer(5, S, P),
                            {.inputs = 2, .input = {5, 6}, .elementwise = 1, .needs_gradient = 1},
                            layer(7, R, S)};
    tn_flow flows[10];
    const int32_t none = TN_FLOW_NONE;
    tn_flow_derive(nodes, 9, 8, flows);
    const struct {
        int32_t y, before, after, gradient;
    } expected[] = {{R, none, none, none},
                    {S, none, none, none}, /* the batch wants no gradient */
                    {S, none, none, none},
                    {R, none, TN_ALL_REDUCE, none},
                    {S, none, none, TN_ALL_REDUCE},
                    {R, TN_ALL_GATHER, none, TN_FLOW_SLICE},
                    {R, TN_FLOW_SLICE, TN_ALL_REDUCE, TN_ALL_GATHER},
                    {R, none, none, none},
                    {S, none, none, TN_ALL_REDUCE},
                    {R, TN_ALL_GATHER, none, TN_FLOW_SLICE}};
    for (int i = 0; i < 10; i++) {
        expect(flows[i].y == expected[i].y && flows[i].before[0] == expected[i].before &&
                   flows[i].after == expected[i].after && flows[i].gradient[0] == expected[i].gradient,
               "node %d: leaves %d, before %s, after %s, gradient %s", i, flows[i].y, tn_flow_name(flows[i].before[0]),
               tn_flow_name(flows[i].after), tn_flow_name(flows[i].gradient[0]));
        expect(flows[i].before[1] == none && flows[i].gradient[1] == none, "node %d, its second input", i);
    }
    nodes[8] = layer(4, R, S); /* a part into a layer that wants it whole and is split again */
    tn_flow_derive(nodes, 9, 8, flows);
    ck_assert_int_eq(flows[8].before[0], TN_ALL_GATHER);
    ck_assert_int_eq(flows[8].gradient[0], TN_REDUCE_SCATTER);
}
END_TEST

/* ---- tables that are wrong ---- */

static int32_t wrong_stage[7];
static tn_placement wrong_row[2];
static int64_t wrong_count;

static int32_t wrong_stages(const void *hyper, const tn_mesh *mesh, const tn_plan_graph *graph, int32_t *stage_of_node,
                            tn_error *err)
{
    (void)hyper, (void)mesh, (void)err;
    ck_assert_int_eq(graph->nodes, 7);
    memcpy(stage_of_node, wrong_stage, sizeof wrong_stage);
    return TN_OK;
}

static int64_t wrong_placements(const void *hyper, const tn_mesh *mesh, const tn_plan_graph *graph, tn_placement *rows,
                                int64_t room, tn_error *err)
{
    (void)hyper, (void)mesh, (void)graph, (void)err;
    for (int64_t i = 0; i < wrong_count && i < room && i < 2; i++)
        rows[i] = wrong_row[i];
    return wrong_count;
}

static void wrong_stage_tables(tn_graph_view *view, const tn_strategies *all)
{
    static const struct {
        const char *stages, *said;
    } cases[] = {{"0001112", "3 stages, the mesh has 2"},
                 {"0000000", "1 stages, the mesh has 2"},
                 {"0002222", "stage 2 of hidden.1.activation"},
                 {"1111111", "stage 1 of hidden.0.linear follows stage 0"},
                 {"0001011", "stage 0 of hidden.2.linear follows stage 1"}};
    const tn_mesh mesh = {sizeof mesh, 1, 1, 2};
    int32_t stage[7];
    tn_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int n = 0; n < 7; n++)
            wrong_stage[n] = cases[i].stages[n] - '0';
        ck_assert_refused(tn_view_stages(view, all, &mesh, stage, &err), TN_E_PLUGIN, err,
                          "strategy pipeline-1f1b: ", cases[i].said);
    }
    for (int n = 0; n < 7; n++)
        wrong_stage[n] = n > 2;
    ck_ok(tn_view_stages(view, all, &mesh, stage, &err), err);
    view->nodes[2].cut = 0;
    ck_assert_refused(tn_view_stages(view, all, &mesh, stage, &err), TN_E_PLUGIN, err,
                      "strategy pipeline-1f1b: ", "a stage ends behind hidden.1.linear");
}

static void wrong_rows(tn_graph_view *view, const tn_strategies *all)
{
    static const struct {
        tn_placement row;
        int32_t status;
        const char *said;
    } cases[] = {
        {{TN_TENSOR_STATE, 0, TN_MESH_TENSOR, TN_PLACE_SHARD, 0, 0}, TN_E_UNSUPPORTED, "tensors of kind 2"},
        {{TN_TENSOR_PARAMETER, 0, TN_MESH_DATA, TN_PLACE_SHARD, 0, 0}, TN_E_UNSUPPORTED, "along mesh axis 0"},
        {{TN_TENSOR_PARAMETER, 8, TN_MESH_TENSOR, TN_PLACE_SHARD, 0, 0}, TN_E_PLUGIN, "parameter 8 of 8"},
        {{TN_TENSOR_PARAMETER, 1, TN_MESH_TENSOR, TN_PLACE_SHARD, 1, 0}, TN_E_INVALID, "linear.bias along axis 1"},
        {{TN_TENSOR_PARAMETER, 0, TN_MESH_TENSOR, TN_PLACE_SHARD, 1, 0}, TN_E_INVALID, "axis 1, of 7, into 2"}};
    const tn_mesh mesh = {sizeof mesh, 1, 2, 1};
    tn_placement *rows = NULL;
    int64_t count;
    tn_error err = {0};
    wrong_count = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wrong_row[0] = cases[i].row;
        ck_assert_refused(tn_view_placements(view, all, &mesh, &rows, &count, &err), cases[i].status, err,
                          "strategy pipeline-1f1b: ", cases[i].said);
    }
    wrong_count = 1000;
    wrong_row[0] = wrong_row[1] = (tn_placement){TN_TENSOR_PARAMETER, 0, TN_MESH_TENSOR, TN_PLACE_REPLICATE, 0, 0};
    ck_assert_refused(tn_view_placements(view, all, &mesh, &rows, &count, &err), TN_E_PLUGIN, err,
                      "strategy pipeline-1f1b: ", "1000 rows for 8 parameters");
    wrong_count = -TN_E_INVALID;
    ck_assert_refused(tn_view_placements(view, all, &mesh, &rows, &count, &err), TN_E_INVALID, err,
                      "strategy pipeline-1f1b: ", "no rows");
}

static void forms_that_are_none(tn_graph_view *view, const tn_strategies *all)
{
    const tn_mesh mesh = {sizeof mesh, 1, 2, 1};
    tn_placement *rows = NULL;
    tn_split splits[8];
    tn_flow flows[9];
    int64_t count;
    tn_error err = {0};
    wrong_count = 1; /* the weight's columns without the bias */
    wrong_row[0] = (tn_placement){TN_TENSOR_PARAMETER, 0, TN_MESH_TENSOR, TN_PLACE_SHARD, 0, 0};
    ck_ok(tn_view_placements(view, all, &mesh, &rows, &count, &err), err);
    ck_assert_refused(tn_view_flows(view, rows, count, splits, flows, &err), TN_E_UNSUPPORTED, err,
                      "hidden.0.linear: its parameters are to be split along axes 0, -1", "none of the forms");
    tn_free(rows);
}

START_TEST(wrong_tables)
{
    mesh_case c = {PARTS(1, 1), 64, 1, NULL, NULL, plain, 2, NULL};
    mesh_fixture f;
    tn_graph_view *view = NULL;
    tn_strategies all, none = {0};
    tn_placement *rows = NULL;
    int64_t count;
    int32_t stage[7];
    tn_error err = {0};
    mesh_whole(&c, NULL, &f);
    ck_ok(tn_strategies_load(test_plugins(), f.strategies, 1, &all, &err), err);
    all.table[0].stages = wrong_stages;
    all.table[0].placements = wrong_placements;
    ck_ok(tn_graph_view_create(f.graph, &view, &err), err);
    wrong_stage_tables(view, &all);
    wrong_rows(view, &all);
    forms_that_are_none(view, &all);
    ck_assert_refused(tn_view_stages(view, &none, &(tn_mesh){sizeof(tn_mesh), 1, 1, 2}, stage, &err), TN_E_INVALID, err,
                      "the mesh's `pipeline` is 2", "no strategy");
    ck_assert_refused(tn_view_placements(view, &none, &(tn_mesh){sizeof(tn_mesh), 1, 2, 1}, &rows, &count, &err),
                      TN_E_INVALID, err, "the mesh's `tensor` is 2", "no strategy");
    tn_graph_view_destroy(view);
    mesh_end(&f);
}
END_TEST

/* ---- a large mesh, on paper ---- */

START_TEST(ten_thousand_ranks)
{
    const tn_setting settings[] = {{"widths", "[64, 32, 64, 32, 64, 32, 64, 32, 64, 32, 64]"}, {"activation", "gelu"}};
    mesh_case c = {{sizeof(tn_mesh), 125, 4, 20}, 64, 1, NULL, NULL, settings, 2, NULL};
    enum { NODES = 23, RANKS = 10000 };
    mesh_fixture f;
    tn_graph_view *view = NULL;
    tn_strategies all;
    tn_placement *rows = NULL;
    tn_split splits[NODES + 1];
    tn_flow flows[NODES + 2];
    tn_error err = {0};
    int64_t count, held = 0, elements = 0, replicated = 0, reductions = 0;
    int32_t stage[NODES], place[3];
    mesh_whole(&c, NULL, &f);
    ck_ok(tn_strategies_load(test_plugins(), f.strategies, 2, &all, &err), err);
    ck_ok(tn_graph_view_create(f.graph, &view, &err), err);
    ck_assert_int_eq(view->plan.nodes, NODES);
    ck_ok(tn_view_stages(view, &all, &c.mesh, stage, &err), err);
    ck_ok(tn_view_placements(view, &all, &c.mesh, &rows, &count, &err), err);
    ck_assert_int_eq(count, 6 * 3);
    ck_ok(tn_view_flows(view, rows, count, splits, flows, &err), err);
    ck_assert_int_eq(flows[NODES + 1].before[0], TN_FLOW_NONE);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        tn_mesh_place(&c.mesh, rank, place);
        for (int32_t n = 0; n < NODES; n++) {
            const tn_plan_node *node = &view->plan.node[n];
            if (stage[n] != place[TN_MESH_PIPELINE])
                continue;
            reductions += (flows[n + 1].after == TN_ALL_REDUCE) + (flows[n + 1].gradient[0] == TN_ALL_REDUCE);
            for (int32_t k = 0; k < node->parameters; k++)
                held += view->plan.parameter[node->parameter + k].n /
                        (splits[n + 1].split && splits[n + 1].axis[k] >= 0 ? c.mesh.tensor : 1);
        }
    }
    for (int32_t n = 0; n < NODES; n++)
        for (int32_t k = 0; k < view->plan.node[n].parameters; k++) {
            int64_t size = view->plan.parameter[view->plan.node[n].parameter + k].n;
            elements += size;
            replicated += splits[n + 1].axis[k] < 0 ? size : 0;
        }
    ck_assert_int_eq(replicated, 5 * 32 + 4); /* the biases of the row layers */
    ck_assert_int_eq(held, 125 * (elements - replicated) + 125 * 4 * replicated);
    ck_assert_int_eq(reductions, 125 * 4 * (6 + 5));
    tn_free(rows);
    tn_graph_view_destroy(view);
    mesh_end(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("parallel tensor");
    TCase *tcase = tcase_create("tensor");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_pair_is_the_whole, 0, (int)(sizeof pairs / sizeof *pairs));
    tcase_add_test(tcase, parts_of_stages);
    tcase_add_test(tcase, parts_draw_their_own);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, without_memory);
    tcase_add_test(tcase, collectives_follow);
    tcase_add_test(tcase, wrong_tables);
    tcase_add_test(tcase, ten_thousand_ranks);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
