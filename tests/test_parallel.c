/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies as tables: timetables on the clock against closed forms, every stage's steps followed by make-believe
 * processes, meshes of 10,000 ranks, tables that are wrong. No process but this one.
 */
#include "host/parallel/timetable.h"

#include "host/base/memory.h"
#include "host/plugin/interface.h"
#include "tests/component.h"

#include <tenon/layer.h>

static tn_strategies strategy(const char *name, const char *row, const char *value)
{
    tn_strategies all;
    tn_instance *instance = NULL;
    tn_error err = {0};
    const tn_setting setting = {row, value};
    ck_ok(tn_instance_create(test_plugins(), "strategy", name, 32, "strategy", &setting, row ? 1 : 0, &instance, &err),
          err);
    ck_ok(tn_strategies_load(test_plugins(), &instance, 1, &all, &err), err);
    return all;
}

static void free_strategy(tn_strategies *all) { tn_instance_free((tn_instance *)(uintptr_t)all->instance[0]); }

static tn_mesh mesh_of(int32_t data, int32_t tensor, int32_t pipeline)
{
    return (tn_mesh){sizeof(tn_mesh), data, tensor, pipeline};
}

static tn_timetable *timetable_of(const tn_strategies *all, int32_t stages, int32_t micro_batches)
{
    tn_mesh mesh = mesh_of(1, 1, stages);
    tn_timetable *timetable = NULL;
    tn_error err = {0};
    ck_ok(tn_timetable_create(all, &mesh, micro_batches, &timetable, &err), err);
    return timetable;
}

/* ---- the clock ---- */

static const char *const orders[] = {"1f1b", "gpipe"};

START_TEST(bubbles_and_flight)
{
    tn_strategies all = strategy("pipeline-1f1b", "order", orders[_i]);
    for (int32_t d = 1; d <= 9; d++)
        for (int32_t m = 1; m <= 20; m++) {
            tn_timetable *s = timetable_of(&all, d, m);
            double expected = (double)(d - 1) / (double)(m + d - 1);
            ck_assert(s->length == (m + d - 1) * (TN_CLOCK_FORWARD + TN_CLOCK_BACKWARD));
            for (int32_t stage = 0; stage < d; stage++) {
                int32_t most = _i || m < d - stage ? m : d - stage, flight = tn_timetable_in_flight(s, stage);
                expect(flight == most, "stage %d of %d: %d of %d in flight, not %d", stage, d, flight, m, most);
                ck_assert_double_eq_tol(tn_timetable_bubble(s, stage), expected, 1e-15);
            }
            tn_timetable_destroy(s);
        }
    free_strategy(&all);
}
END_TEST

START_TEST(the_table_of_two_stages)
{
    static const char *const expected[] = {"F0 F1 B0 F2 B1 F3 B2 B3 U0 ", "F0 B0 F1 B1 F2 B2 F3 B3 U0 "};
    tn_strategies all = strategy("pipeline-1f1b", NULL, NULL);
    tn_timetable *s = timetable_of(&all, 2, 4);
    for (int stage = 0; stage < 2; stage++) {
        char text[128] = "";
        for (int64_t i = s->first[stage]; i < s->first[stage + 1]; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%c%d ", s->actions[i].what,
                     s->actions[i].micro_batch);
        ck_assert_str_eq(text, expected[stage]);
    }
    tn_timetable_destroy(s);
    free_strategy(&all);
}
END_TEST

/* ---- processes that only follow their steps ---- */

typedef struct {
    tn_pipeline_step *steps;
    int64_t count, at;
    int32_t sets;
    int32_t holds[64]; /* by set: the micro-batch whose activations lie there; -1: none */
    int32_t input[64], output_gradient[64], done[64]; /* by micro-batch: there; 1 after forward, 2 after backward */
} make_believe;

static void act(make_believe *p, const tn_pipeline_step *step, int32_t stage, int32_t stages)
{
    int32_t m = step->micro_batch;
    if (step->what == 'U') {
        ck_assert_int_eq(p->at, p->count - 1);
        return;
    }
    if (step->what == 'F') {
        ck_assert(stage == 0 || p->input[m]);
        ck_assert_int_eq(p->done[m], 0);
        ck_assert(p->holds[step->set] == m || (stage == 0 && p->holds[step->set] == -1));
        p->holds[step->set] = m;
    } else {
        ck_assert(stage == stages - 1 || p->output_gradient[m]);
        ck_assert_int_eq(p->done[m], 1);
        ck_assert_int_eq(p->holds[step->set], m);
        if (stage == 0)
            p->holds[step->set] = -1;
    }
    p->done[m]++;
}

static void transfer(make_believe *from, make_believe *to, const tn_pipeline_step *send, const tn_pipeline_step *got)
{
    int32_t m = send->micro_batch;
    ck_assert_int_eq(from->holds[send->set], m);
    ck_assert_int_eq(from->done[m], send->what == 'F' ? 1 : 2);
    if (send->what == 'F') {
        ck_assert_int_eq(to->holds[got->set], -1);
        to->holds[got->set] = m;
        to->input[m] = 1;
    } else {
        ck_assert_int_eq(to->holds[got->set], m);
        to->output_gradient[m] = 1;
        from->holds[send->set] = -1;
    }
}

/* One step of one stage, if it can be done now. */
static int follow(make_believe *all, int32_t stages, int32_t stage)
{
    make_believe *p = &all[stage];
    if (p->at == p->count)
        return 0;
    const tn_pipeline_step *step = &p->steps[p->at];
    if (step->what_kind == TN_DO_ACTION) {
        act(p, step, stage, stages);
        p->at++;
        return 1;
    }
    make_believe *peer = &all[step->peer];
    const tn_pipeline_step *other = peer->at < peer->count ? &peer->steps[peer->at] : NULL;
    if (step->what_kind != TN_DO_SEND || !other || other->what_kind != TN_DO_RECEIVE || other->peer != stage)
        return 0;
    ck_assert_int_eq(other->what, step->what); /* both sides have one order */
    ck_assert_int_eq(other->micro_batch, step->micro_batch);
    transfer(p, peer, step, other);
    p->at++;
    peer->at++;
    return 1;
}

static void follow_all(const tn_timetable *s)
{
    static make_believe all[9];
    tn_error err = {0};
    int moved = 1;
    memset(all, 0, sizeof all);
    for (int32_t stage = 0; stage < s->stages; stage++) {
        make_believe *p = &all[stage];
        ck_ok(tn_timetable_steps(s, stage, &p->steps, &p->count, &p->sets, &err), err);
        ck_assert_int_eq(p->sets, tn_timetable_in_flight(s, stage)); /* no set waits for a transfer */
        memset(p->holds, -1, sizeof p->holds);
    }
    while (moved) {
        moved = 0;
        for (int32_t stage = 0; stage < s->stages; stage++)
            moved |= follow(all, s->stages, stage);
    }
    for (int32_t stage = 0; stage < s->stages; stage++) {
        expect(all[stage].at == all[stage].count, "%d stages, %d micro-batches: stage %d waits for ever at step %d",
               s->stages, s->micro_batches, stage, (int)all[stage].at);
        for (int32_t m = 0; m < s->micro_batches; m++)
            ck_assert_int_eq(all[stage].done[m], 2);
        tn_free(all[stage].steps);
    }
}

START_TEST(steps_end)
{
    tn_strategies all = strategy("pipeline-1f1b", "order", orders[_i]);
    for (int32_t d = 1; d <= 9; d++)
        for (int32_t m = 1; m <= 20; m += d < 4 ? 1 : 3) {
            tn_timetable *s = timetable_of(&all, d, m);
            follow_all(s);
            tn_timetable_destroy(s);
        }
    free_strategy(&all);
}
END_TEST

/* ---- a large mesh ---- */

START_TEST(ten_thousand_ranks)
{
    enum { RANKS = 10000 };
    const tn_mesh mesh = mesh_of(125, 8, 10);
    static const int32_t extents[] = {125, 8, 10};
    static unsigned char seen[RANKS];
    tn_strategies all = strategy("pipeline-1f1b", NULL, NULL);
    tn_timetable *s = NULL;
    tn_error err = {0};
    int64_t forwards = 0;
    ck_ok(tn_mesh_check(&mesh, &err), err);
    ck_assert_int_eq(tn_mesh_size(&mesh), RANKS);
    ck_ok(tn_timetable_create(&all, &mesh, 32, &s, &err), err);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        int32_t place[3], group[125];
        tn_mesh_place(&mesh, rank, place);
        expect(tn_mesh_rank(&mesh, place) == rank, "rank %d comes back as %d", rank, tn_mesh_rank(&mesh, place));
        for (int32_t axis = 0; axis < 3; axis++) {
            int32_t size = tn_mesh_group(&mesh, rank, axis, group);
            expect(size == extents[axis] && group[place[axis]] == rank, "rank %d, axis %d", rank, axis);
            seen[rank] += group[0] == rank;
        }
        for (int64_t i = s->first[place[TN_MESH_PIPELINE]]; i < s->first[place[TN_MESH_PIPELINE] + 1]; i++)
            forwards += s->actions[i].what == 'F';
    }
    ck_assert_int_eq(forwards, (int64_t)RANKS * 32);
    ck_assert_int_eq(seen[0], 3);
    ck_assert_int_eq(seen[RANKS - 1], 0);
    ck_assert_double_eq_tol(tn_timetable_bubble(s, 9), 9.0 / 41, 1e-15);
    tn_timetable_destroy(s);
    free_strategy(&all);
}
END_TEST

START_TEST(meshes_that_are_none)
{
    tn_error err = {0};
    tn_mesh none = mesh_of(1, 0, 1), many = mesh_of(65536, 65536, 2);
    ck_assert_refused(tn_mesh_check(&none, &err), TN_E_INVALID, err, "the mesh's `tensor` is 0", "at least 1");
    ck_assert_refused(tn_mesh_check(&many, &err), TN_E_INVALID, err, "a mesh of data 65536", "too many");
}
END_TEST

/* ---- stages ---- */

static int32_t stages_of(const tn_strategies *all, int32_t stages, int64_t nodes, const double *cost, const char *cuts,
                         int32_t *ret, tn_error *err)
{
    tn_plan_node node[16];
    tn_mesh mesh = mesh_of(1, 1, stages);
    for (int64_t i = 0; i < nodes; i++)
        node[i] = (tn_plan_node){.name = "n", .splits = "", .cost = cost[i], .cut = cuts[i] == 'c'};
    tn_plan_graph graph = {sizeof graph, 0, nodes, 0, node, NULL};
    return all->table[0].stages(all->instance[0]->hyper, &mesh, &graph, ret, err);
}

START_TEST(stages_are_balanced)
{
    static const struct {
        int32_t stages;
        int64_t nodes;
        double cost[8];
        const char *cuts, *expected;
    } cases[] = {{2, 6, {1, 1, 1, 1, 1, 1}, "cccccc", "000111"},
                 {2, 4, {9, 1, 1, 1}, "cccc", "0111"},
                 {2, 4, {1, 1, 1, 9}, "cccc", "0001"},
                 {3, 5, {4, 3, 3, 1, 1}, "ccccc", "01222"},
                 {2, 6, {1, 1, 1, 1, 1, 1}, "c...cc", "000001"},
                 {3, 3, {0, 0, 5}, "ccc", "012"},
                 {1, 3, {1, 2, 3}, "ccc", "000"},
                 {4, 8, {5, 1, 1, 1, 5, 1, 1, 5}, "cccccccc", "00112233"}};
    tn_strategies all = strategy("pipeline-1f1b", NULL, NULL);
    tn_error err = {0};
    int32_t stage[16];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[16] = "";
        ck_ok(stages_of(&all, cases[i].stages, cases[i].nodes, cases[i].cost, cases[i].cuts, stage, &err), err);
        for (int64_t n = 0; n < cases[i].nodes; n++)
            text[n] = (char)('0' + stage[n]);
        ck_assert_str_eq(text, cases[i].expected);
    }
    ck_assert_refused(stages_of(&all, 3, 4, cases[1].cost, "..c.", stage, &err), TN_E_INVALID, err,
                      "strategy pipeline-1f1b: 3 stages", "2 parts");
    free_strategy(&all);
}
END_TEST

/* ---- tables that are no timetable ---- */

static const char *wrong_rows[2];

static int64_t wrong_actions(const void *hyper, const tn_mesh *mesh, int32_t stage, int32_t micro_batches,
                             tn_action *rows, int64_t room, tn_error *err)
{
    int64_t count = 0;
    (void)hyper, (void)mesh, (void)micro_batches, (void)err;
    for (const char *c = wrong_rows[stage]; *c; c += 2, count++)
        if (count < room)
            rows[count] = (tn_action){stage, c[0], c[1] - '0', 0};
    return count;
}

START_TEST(wrong_tables)
{
    static const struct {
        const char *rows[2], *said;
    } cases[] = {{{"F0F1B0B1", "F0B0F0B1"}, "stage 1, row 2: action 'F' of micro-batch 0 comes twice"},
                 {{"F0F1B0B1", "F0B0B1F1"}, "stage 1, row 2: action 'B' of micro-batch 1 does not follow"},
                 {{"F0F1B0", "F0B0F1B1"}, "stage 0 has 2 forward and 1 backward"},
                 {{"F0U0F1B0", "F0B0F1B1"}, "action 'U' of micro-batch 0 is not the last"},
                 {{"F0F2B0B1", "F0B0F1B1"}, "micro-batch 2 is none of this stage"},
                 {{"F0F1B0X1", "F0B0F1B1"}, "action 'X' of micro-batch 1 is none"},
                 {{"F0F1B0B1F0F0F0F0F0F0F0", "F0B0F1B1"}, "11 actions for stage 0"},
                 {{"F0B0F1B1", "F0F1B0B1"}, "wait for each other: stage 0 at action 'B' of micro-batch 0"}};
    tn_strategies all = strategy("pipeline-1f1b", NULL, NULL);
    tn_mesh mesh = mesh_of(1, 1, 2);
    tn_timetable *s = NULL;
    tn_error err = {0};
    all.table[0].actions = wrong_actions;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wrong_rows[0] = cases[i].rows[0];
        wrong_rows[1] = cases[i].rows[1];
        ck_assert_refused(tn_timetable_create(&all, &mesh, 2, &s, &err), TN_E_PLUGIN, err,
                          "strategy pipeline-1f1b: ", cases[i].said);
    }
    wrong_rows[0] = "F0B0W0";
    ck_assert_refused(tn_timetable_create(&all, &mesh, 2, &s, &err), TN_E_UNSUPPORTED, err, "strategy", "action W");
    all.table[0].actions = NULL;
    ck_assert_refused(tn_timetable_create(&all, &mesh, 2, &s, &err), TN_E_INVALID, err, "the mesh's `pipeline` is 2",
                      "no strategy offers");
    ck_assert_refused(tn_timetable_create(&all, &mesh, 0, &s, &err), TN_E_INVALID, err, "0 micro-batches", "1");
    free_strategy(&all);
}
END_TEST

/* An order that is no 1f1b, whose gradients wait for their receiver: more sets than are in flight. */
START_TEST(late_receivers_cost_sets)
{
    tn_strategies all = strategy("pipeline-1f1b", NULL, NULL);
    tn_mesh mesh = mesh_of(1, 1, 2);
    tn_timetable *s = NULL;
    tn_pipeline_step *steps = NULL;
    int64_t count;
    int32_t sets;
    tn_error err = {0};
    all.table[0].actions = wrong_actions;
    wrong_rows[0] = "F0F1F2B0B1B2";
    wrong_rows[1] = "F0B0F1B1F2B2";
    ck_ok(tn_timetable_create(&all, &mesh, 3, &s, &err), err);
    ck_assert_int_eq(tn_timetable_in_flight(s, 1), 1);
    ck_ok(tn_timetable_steps(s, 1, &steps, &count, &sets, &err), err);
    ck_assert_int_eq(count, 12);
    ck_assert_int_eq(sets, 1); /* stage 0 is idle when stage 1 ends a backward */
    tn_free(steps);
    tn_timetable_destroy(s);
    wrong_rows[0] = "F0F1F2F3F4B0B1B2B3B4";
    wrong_rows[1] = "F0B0F1B1F2B2F3B3F4B4";
    ck_ok(tn_timetable_create(&all, &mesh, 5, &s, &err), err);
    ck_assert_int_eq(tn_timetable_in_flight(s, 1), 1);
    ck_ok(tn_timetable_steps(s, 1, &steps, &count, &sets, &err), err);
    ck_assert_int_eq(sets, 2); /* B0 ends at 4, stage 0 goes forward until 5 */
    tn_free(steps);
    tn_timetable_destroy(s);
    free_strategy(&all);
}
END_TEST

/* ---- the fact `split` ---- */

START_TEST(split_facts)
{
    static const struct {
        const char *json, *said; /* NULL: fine */
    } cases[] = {
        {"[{\"name\":\"a\",\"parameters\":[0,null],\"x\":\"whole\",\"y\":\"last\",\"rows\":[\"out\"]},null]", NULL},
        {"[]", NULL},
        {"[{\"name\":\"a\",\"parameters\":[],\"x\":\"whole\",\"y\":\"last\",\"z\":1}]", "a split's 'z'"},
        {"[{\"name\":\"a\",\"parameters\":[],\"x\":\"partial\",\"y\":\"last\"}]", "from x 'partial'"},
        {"[{\"name\":\"a\",\"parameters\":[],\"x\":\"whole\",\"y\":\"first\"}]", "to y 'first'"},
        {"[{\"name\":\"a\",\"x\":\"whole\",\"y\":\"last\"}]", "needs name, parameters"},
        {"[{\"name\":\"a\",\"parameters\":[],\"x\":\"whole\"}]", "needs name, parameters"},
        {"[\"column\"]", "needs name, parameters"},
        {"{}", "must be a list"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_error err = {0};
        json_t *value = json_loads(cases[i].json, JSON_REJECT_DUPLICATES, NULL);
        ck_assert_ptr_nonnull(value);
        int32_t status = tn_fact_check("x.so", "linear", TN_LAYER, "split", value, &err);
        ck_assert_msg(status == (cases[i].said ? TN_E_PLUGIN : TN_OK), "%s: %d", cases[i].json, status);
        ck_assert_msg(!cases[i].said || strstr(err.msg, cases[i].said), "%s: %s", cases[i].json, err.msg);
        json_decref(value);
    }
}
END_TEST

/* Each allocation fails in turn: an error, nothing leaks, the next attempt succeeds. */
START_TEST(without_memory)
{
    tn_strategies all = strategy("pipeline-1f1b", NULL, NULL);
    tn_mesh mesh = mesh_of(1, 1, 3);
    int32_t status = TN_E_MEMORY, failed = 0;
    for (int64_t nth = 0; status != TN_OK; nth++) {
        tn_timetable *t = NULL;
        tn_pipeline_step *steps = NULL;
        int64_t count;
        int32_t sets;
        tn_error err = {0};
        tn_memory_fail_at(nth);
        status = tn_timetable_create(&all, &mesh, 4, &t, &err);
        if (status == TN_OK)
            status = tn_timetable_steps(t, 1, &steps, &count, &sets, &err);
        tn_memory_fail_at(-1);
        ck_assert(status == TN_OK || (status == TN_E_MEMORY && strstr(err.msg, "no memory")));
        failed += status != TN_OK;
        tn_free(steps);
        tn_timetable_destroy(t);
    }
    ck_assert_int_eq(failed, 12);
    free_strategy(&all);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("parallel");
    TCase *tcase = tcase_create("tables");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, bubbles_and_flight, 0, 2);
    tcase_add_test(tcase, the_table_of_two_stages);
    tcase_add_loop_test(tcase, steps_end, 0, 2);
    tcase_add_test(tcase, ten_thousand_ranks);
    tcase_add_test(tcase, meshes_that_are_none);
    tcase_add_test(tcase, stages_are_balanced);
    tcase_add_test(tcase, wrong_tables);
    tcase_add_test(tcase, late_receivers_cost_sets);
    tcase_add_test(tcase, split_facts);
    tcase_add_test(tcase, without_memory);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
