/* SPDX-License-Identifier: Apache-2.0
 *
 * The chain's rounds: rows and columns, slots that fold writes, and dry runs of the links before.
 */
#include "host/plugin/interface.h"
#include "host/update/internal.h"
#include "tests/malloc_count.h"
#include "tests/update.h"

static world *new_world(uint32_t real, int32_t threads)
{
    static int added;
    static const char *const files[] = {"links.so", "links-f64.so", "links-rounds.so", "links-rounds-f64.so",
                                        "links-refused.so"};
    tn_error err;
    for (size_t i = 0; i < 5 && !added; i++)
        ck_ok(tn_registry_add_file(test_plugins(), test_path("TENON_TEST_PLUGINS", files[i]), &err), err);
    added = 1;
    return world_new(real, threads);
}

static void fill(world *w)
{
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
}

/* ---- rows and columns ---- */

#define VIEWS 9
static const int64_t views[VIEWS][4] = {{2, 131, 700},  {2, 5, 20000}, {2, 1, 9001}, {2, 9001, 1}, {3, 37, 3, 5},
                                        {2, 2000, 100}, {2, 3, 0},     {2, 0, 4},    {1, 5000}};

static world *views_world(uint32_t real, int32_t threads)
{
    world *w = new_world(real, threads);
    for (size_t i = 0; i < VIEWS; i++)
        world_slice(w, (int32_t)views[i][0], views[i] + 1, 0, -1);
    fill(w);
    world_link(w, "lines");
    world_chain(w);
    return w;
}

static void check_view(world *w, int64_t i, double scale)
{
    int64_t rows, columns;
    tn_layout_view(&w->list[i], &rows, &columns);
    double *sums = calloc((size_t)columns + 1, sizeof *sums), product = 0;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < columns; c++) {
            double g = scale * world_get(w, w->parameters.g, i, r * columns + c);
            sum += g;
            squares += g * g;
            sums[c] += g;
        }
        expect(fabs(world_state(w, "lines", "row", i, r) - sum - squares) < 1e-10, "parameter %d, row %d", (int)i,
               (int)r);
    }
    for (int64_t c = 0; c < columns; c++)
        expect(fabs(world_state(w, "lines", "column", i, c) - 1 - sums[c]) < 1e-10, "parameter %d, column %d", (int)i,
               (int)c);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            product += world_state(w, "lines", "row", i, r) * world_state(w, "lines", "column", i, c);
    const double *count = world_slot(w, "lines", "count", i).data;
    ck_assert_double_eq(count[0], (double)w->list[i].n);
    ck_assert_double_eq(count[1], 1);
    ck_assert_double_eq_tol(count[2], product, 1e-12 * (1 + fabs(product)));
    free(sums);
}

START_TEST(rows_and_columns_are_summed_over_the_matrix_view)
{
    world *w = views_world(64, 2);
    world_step(w, 0.5);
    for (int64_t i = 0; i < VIEWS - 1; i++)
        check_view(w, i, 0.5);
    const double *count = world_slot(w, "lines", "count", VIEWS - 1).data;
    ck_assert(count[0] == 5000 && count[1] == 1);
    for (int64_t j = 0; j < 700; j++) /* update sees the slots whole */
        expect(fabs(world_p(w, 0, 130 * 700 + j) - world_noise(0, 130 * 700 + j, 1) -
                    world_state(w, "lines", "row", 0, 130)) < 1e-12,
               "element %d", (int)j);
    world_free(w);
}
END_TEST

START_TEST(rows_and_columns_do_not_depend_on_threads)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        uint64_t hash[3];
        for (int32_t threads = 1; threads <= 3; threads++) {
            world *w = views_world(real, threads);
            world_step(w, 0.5);
            world_step(w, 0.25);
            hash[threads - 1] = world_hash(w);
            world_free(w);
        }
        ck_assert(hash[0] == hash[1] && hash[0] == hash[2]);
    }
}
END_TEST

/* ---- maxima ---- */

static world *peaks_world(uint32_t real, int32_t threads)
{
    world *w = new_world(real, threads);
    for (size_t i = 0; i < VIEWS; i++)
        world_slice(w, (int32_t)views[i][0], views[i] + 1, 0, -1);
    fill(w);
    for (int64_t j = 0; j < w->list[3].n; j++) /* a tensor without a positive number */
        world_put(w, w->parameters.g, 3, j, -1 - fabs(world_get(w, w->parameters.g, 3, j)));
    world_link(w, "peaks");
    world_link(w, "peak");
    world_link(w, "sgd");
    world_chain(w);
    return w;
}

static void check_peaks(world *w, int64_t i, double scale, double *model)
{
    int64_t rows, columns;
    tn_layout_view(&w->list[i], &rows, &columns);
    double *column = calloc((size_t)columns + 1, sizeof *column), most = 0, least = 0;
    for (int64_t r = 0; r < rows; r++) {
        double up = 0, down = 0;
        for (int64_t c = 0; c < columns; c++) {
            double g = scale * world_get(w, w->parameters.g, i, r * columns + c);
            up = fmax(up, g);
            down = fmax(down, -g);
            column[c] = fmax(column[c], g);
        }
        ck_assert_double_eq(world_state(w, "peaks", "row", i, r), up - down);
        most = fmax(most, up);
        least = fmax(least, down);
    }
    for (int64_t c = 0; c < columns; c++)
        ck_assert_double_eq(world_state(w, "peaks", "column", i, c), column[c]);
    const double *all = world_slot(w, "peaks", "all", i).data;
    ck_assert_double_eq(all[0], most);
    ck_assert_double_eq(all[1], least);
    *model = fmax(*model, fmax(most, least));
    free(column);
}

START_TEST(maxima_of_tensors_rows_columns_and_the_model)
{
    for (int32_t threads = 1; threads <= 3; threads++)
        for (double scale = 0.5; scale > 0.2; scale /= 2) {
            double model = 0;
            world *w = peaks_world(64, threads);
            world_step(w, 1); /* a larger step before leaves nothing */
            world_step(w, scale);
            for (int64_t i = 0; i < VIEWS - 1; i++)
                check_peaks(w, i, scale, &model);
            ck_assert_double_eq(world_report(w, "peak.largest"), model);
            ck_assert_double_eq(world_report(w, "peak.below"), 0);
            world_free(w);
        }
}
END_TEST

START_TEST(a_maximum_that_is_not_finite_skips)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int links = 0; links < 3; links++) { /* each alone must find it */
        static const char *const name[] = {"peak", "peaks", "sm3"};
        world *w = new_world(64, 2);
        world_slice(w, 2, (int64_t[]){131, 700}, 0, -1);
        world_vector(w, 9000);
        fill(w);
        world_link(w, name[links]);
        if (links < 2)
            world_link(w, "sgd");
        world_chain(w);
        world_step(w, 1);
        for (int64_t at = 0; at < 9; at++) {
            int64_t i = at / 3 % 2, j = at / 6 ? 0 : w->list[i].n - 2; /* others come behind it */
            world_put(w, w->parameters.g, i, j, bad[at % 3]);
            uint64_t before = world_hash(w);
            world_try_step(w, 1);
            ck_assert_msg(!w->result.committed && w->result.bad_parameter == i, "%s, %d", name[links], (int)at);
            ck_assert(world_hash(w) == before);
            world_put(w, w->parameters.g, i, j, 0);
        }
        world_step(w, 1);
        world_free(w);
    }
}
END_TEST

static const struct {
    const char *text, *word;
} rounds_refused[] = {
    {"[{\"scope\":\"tensor\",\"scalars\":1,\"reduce\":\"min\"}]", "reduce is 'min'"},
    {"[{\"scope\":\"tensor\",\"scalars\":1,\"reduce\":\"sum max\"}]", "reduce is 'sum max'"},
    {"[{\"scope\":\"tensor\",\"scalars\":1,\"reduce\":1}]", "reduce is '(not a text)'"},
    {"[{\"scope\":\"group\",\"scalars\":1}]", "scope is 'group', this host knows: tensor model"},
    {"[{\"scalars\":1}]", "needs a scope"},
    {"[null,{\"scope\":\"tensor\",\"scalars\":1}]", "needs a scope"},
    {"[{\"scope\":\"tensor\",\"scalars\":1,\"colums\":1}]", "a round's 'colums'"},
    {"[{\"scope\":\"tensor\",\"scalars\":0,\"rows\":0}]", "needs scalars, rows or columns"},
    {"[{\"scope\":\"tensor\"}]", "needs scalars, rows or columns"},
    {"[{\"scope\":\"tensor\",\"scalars\":1025}]", "scalars must be a whole number from 0 to 1024"},
    {"[{\"scope\":\"tensor\",\"scalars\":1,\"rows\":-1}]", "rows must be"},
    {"[{\"scope\":\"tensor\",\"columns\":1.5}]", "columns must be"},
    {"[{\"scope\":\"model\",\"scalars\":1,\"rows\":1}]", "needs the scope tensor"},
    {"[{\"scope\":\"model\",\"columns\":1,\"reduce\":\"max\"}]", "needs the scope tensor"},
};

START_TEST(the_words_of_rounds_are_checked)
{
    tn_error err;
    json_t *good = json_loads("[{\"scope\":\"tensor\",\"scalars\":0,\"rows\":1024,\"reduce\":\"max\"},"
                              "{\"scope\":\"model\",\"scalars\":1,\"reduce\":\"sum\"}]",
                              0, NULL);
    json_t *wrong = json_loads(rounds_refused[_i].text, 0, NULL);
    ck_ok(tn_fact_check("x.so", "rounds", TN_OPTIMIZER, "rounds", good, &err), err);
    ck_assert_refused(tn_fact_check("x.so", "rounds", TN_OPTIMIZER, "rounds", wrong, &err), TN_E_PLUGIN, err, "NOTE_",
                      rounds_refused[_i].word);
    json_decref(good);
    json_decref(wrong);
}
END_TEST

/* A link whose only round has rows and no scalars: vectors take part, with nothing. */
START_TEST(a_round_may_have_rows_alone)
{
    world *w = new_world(32, 2);
    world_slice(w, 2, (int64_t[]){60, 100}, 0, -1);
    world_vector(w, 100);
    fill(w);
    world_link(w, "centralize");
    world_link(w, "sgd");
    world_chain(w);
    world_put(w, w->parameters.g, 1, 5, NAN); /* nothing of it reaches the round */
    world_step(w, 1);
    world_put(w, w->parameters.g, 0, 5, NAN);
    world_try_step(w, 1);
    ck_assert(!w->result.committed && w->result.bad_parameter == 0);
    world_free(w);
}
END_TEST

/* ---- slots that fold writes ---- */

START_TEST(the_slots_that_fold_writes_are_listed)
{
    world *w = views_world(32, 1);
    tn_chain_slot row = world_slot(w, "lines", "row", 0), column = world_slot(w, "lines", "column", 0),
                  count = world_slot(w, "lines", "count", 8);
    ck_assert_str_eq(row.shape, "rows");
    ck_assert_str_eq(column.shape, "columns");
    ck_assert_str_eq(count.shape, "scalar");
    ck_assert(row.elements == 131 && row.bytes == 131 * 4 && row.bits == 32 && row.replicated);
    ck_assert(column.elements == 700 && column.bytes == 2800 && ((float *)column.data)[699] == 1);
    ck_assert(count.elements == 3 && count.bytes == 24 && count.bits == 64);
    ck_assert_uint_eq(tn_chain_slot_count(w->chain), 3 * (VIEWS - 1) + 1);
    world_free(w);
}
END_TEST

/* Parameter 1 misses the step before, so two clocks are in use. */
START_TEST(fold_of_the_model_runs_once_a_clock_on_equal_copies)
{
    world *w = new_world(64, 2);
    world_vector(w, 5000);
    world_vector(w, 10);
    world_arenas(w);
    world_set_p(w, 0, 0);
    world_set_p(w, 1, 0);
    world_set_g(w, 0, 0.001);
    world_set_g(w, 1, 1);
    world_link(w, "counter");
    world_link(w, "sgd");
    world_chain(w);
    tn_chain_slot slot = world_slot(w, "counter", "seen", -1);
    const double *seen = slot.data;
    ck_assert(slot.elements == 2 && slot.bits == 64 && seen[0] == 1 && seen[1] == 1);
    ck_assert_uint_eq(tn_chain_slot_count(w->chain), 1);
    w->present[1] = 0;
    world_step(w, 1);
    ck_assert_double_eq(seen[0], 2);
    w->present[1] = 1;
    world_step(w, 1);
    ck_assert_double_eq(seen[0], 3);
    ck_assert_double_eq_tol(seen[1], 1 + 5 + 5 + 10, 1e-9);
    ck_assert_double_eq(world_report(w, "counter.seen"), 3);
    world_free(w);
}
END_TEST

static void assert_skipped(world *w)
{
    uint64_t before = world_hash(w);
    world_try_step(w, 1);
    ck_assert_int_eq(w->result.committed, 0);
    ck_assert_msg(world_hash(w) == before, "a skipped step changed bits");
}

START_TEST(a_skipped_step_leaves_what_fold_wrote)
{
    const int64_t shape[] = {60, 100};
    world *w = new_world(32, 2);
    world_slice(w, 2, shape, 0, -1);
    world_vector(w, 100);
    fill(w);
    world_link(w, "counter");
    world_link(w, "heavy-ball");
    world_link(w, "lines");
    world_link(w, "unit-step");
    world_link(w, "ema");
    world_chain(w);
    world_step(w, 1);
    world_put(w, w->parameters.g, 0, 5000, INFINITY);
    assert_skipped(w);
    ck_assert_int_eq(w->result.bad_parameter, 0);
    ck_assert(isnan(world_report(w, "counter.seen")));
    world_put(w, w->parameters.g, 0, 5000, 3e38f); /* a finite gradient, but an infinite row: the step's sum says so */
    assert_skipped(w);
    ck_assert_int_eq(w->result.bad_parameter, -1);
    world_put(w, w->parameters.g, 0, 5000, 1);
    world_step(w, 1);
    ck_assert_double_eq(((const double *)world_slot(w, "lines", "count", 0).data)[1], 2);
    world_free(w);
}
END_TEST

/* ---- dry runs ---- */

/* What a round behind the links measures is what they do in the end. */
START_TEST(a_round_sees_the_gradient_as_the_links_before_leave_it)
{
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        world *w = new_world(64, threads);
        world_vector(w, 70001);
        world_vector(w, 3);
        fill(w);
        world_link(w, "fixed-scale", "factor", "-2");
        world_link(w, "heavy-ball");
        world_link(w, "center");
        world_link(w, "clip-norm", "max_norm", "inf");
        world_link(w, "sgd", "lr", "1");
        world_chain(w);
        for (int step = 0; step < 3; step++) {
            double squares = 0, *before = malloc(70001 * sizeof *before);
            memcpy(before, w->parameters.p, 70001 * sizeof *before);
            double last[3] = {world_p(w, 1, 0), world_p(w, 1, 1), world_p(w, 1, 2)};
            world_step(w, 0.5);
            for (int64_t j = 0; j < 70001; j++)
                squares += pow(world_p(w, 0, j) - before[j], 2);
            for (int64_t j = 0; j < 3; j++)
                squares += pow(world_p(w, 1, j) - last[j], 2);
            ck_assert_double_eq_tol(world_report(w, "clip-norm.norm"), sqrt(squares), 1e-8);
            free(before);
        }
        /* The memory went on once a step: g' = -g (1 + 1/2 + 1/4). */
        ck_assert_double_eq_tol(world_state(w, "heavy-ball", "ball", 0, 70000),
                                -world_get(w, w->parameters.g, 0, 70000) * 1.75, 1e-12);
        world_free(w);
    }
}
END_TEST

static world *stepped(int32_t unit, int32_t threads)
{
    world *w = new_world(32, threads);
    world_vector(w, 70001);
    world_vector(w, 0);
    world_vector(w, 4097);
    fill(w);
    world_link(w, "heavy-ball");
    world_link(w, "adamw", "weight_decay", "0");
    if (unit) {
        world_link(w, "double-step");
        world_link(w, "unit-step");
    }
    world_chain(w);
    return w;
}

START_TEST(a_round_behind_the_rule_sees_the_step)
{
    world *plain = stepped(0, 1), *w = stepped(1, 2);
    for (int step = 0; step < 3; step++) {
        double squares = 0, length = 0;
        float *old = malloc((size_t)w->parameters.elements * sizeof *old);
        memcpy(old, plain->parameters.p, (size_t)w->parameters.elements * sizeof *old);
        memcpy(w->parameters.p, old, (size_t)w->parameters.elements * sizeof *old);
        world_step(plain, 1);
        world_step(w, 1);
        for (int64_t i = 0; i < 3; i++)
            for (int64_t j = 0; j < w->list[i].n; j++) {
                squares += pow(2 * (world_p(plain, i, j) - old[w->at[i] + j]), 2);
                length += pow(world_p(w, i, j) - 0.5 * old[w->at[i] + j], 2); /* double-step halves p */
            }
        ck_assert_double_eq_tol(world_report(w, "unit-step.length"), sqrt(squares), 1e-3 * sqrt(squares));
        ck_assert_double_eq_tol(length, 1, 1e-3);
        ck_assert_mem_eq(world_slot(w, "adamw", "v", 0).data, world_slot(plain, "adamw", "v", 0).data,
                         70001 * sizeof(float));
        ck_assert_double_eq(world_state(w, "double-step", "calls", 2, 4096), 2 + step);
        free(old);
    }
    world_free(plain);
    world_free(w);
}
END_TEST

START_TEST(dry_runs_do_not_depend_on_threads)
{
    uint64_t hash[3];
    for (int32_t threads = 1; threads <= 3; threads++) {
        world *w = stepped(1, threads);
        world_step(w, 1);
        world_step(w, 0.5);
        hash[threads - 1] = world_hash(w);
        world_free(w);
    }
    ck_assert(hash[0] == hash[1] && hash[0] == hash[2]);
}
END_TEST

START_TEST(a_step_that_is_not_finite_is_skipped_behind_the_rule)
{
    world *w = stepped(1, 2);
    world_step(w, 1);
    world_put(w, w->parameters.g, 2, 4096, NAN);
    assert_skipped(w);
    ck_assert_int_eq(w->result.bad_parameter, 2);
    world_put(w, w->parameters.g, 2, 4096, 0);
    world_step(w, 1);
    world_free(w);
}
END_TEST

START_TEST(steps_with_rounds_allocate_nothing)
{
    world *w = views_world(32, 2), *dry = stepped(1, 2), *peaks = peaks_world(32, 2);
    world_step(w, 1);
    world_step(dry, 1);
    world_step(peaks, 1);
    int32_t status = TN_OK;
    int64_t ours = tn_memory_count(), all = malloc_count();
    for (int i = 1; i < 4; i++) {
        status |= tn_chain_step(w->chain, &(tn_step){.scale = 1, .attempt = i}, &w->result, &w->err);
        status |= tn_chain_step(dry->chain, &(tn_step){.scale = 1, .attempt = i}, &dry->result, &dry->err);
        status |= tn_chain_step(peaks->chain, &(tn_step){.scale = 1, .attempt = i}, &peaks->result, &peaks->err);
    }
    all = malloc_count() - all;
    ck_assert(status == TN_OK && tn_memory_count() == ours && all == 0);
    world_free(w);
    world_free(dry);
    world_free(peaks);
}
END_TEST

START_TEST(every_failing_allocation_is_reported)
{
    int32_t status = TN_E_MEMORY, failures = 0;
    const int64_t shape[] = {60, 100};
    world *w = new_world(32, 2);
    world_slice(w, 2, shape, 0, -1);
    world_vector(w, 7);
    fill(w);
    world_link(w, "counter");
    world_link(w, "lines");
    world_link(w, "unit-step");
    world_chain(w);
    tn_chain_destroy(w->chain);
    for (; status; failures++) {
        w->chain = NULL;
        tn_memory_fail_at(failures);
        status = world_try_chain(w);
        tn_memory_fail_at(-1);
        ck_assert_msg(!status || status == TN_E_MEMORY, "%s", w->err.msg);
        ck_assert(status == TN_OK || w->chain == NULL);
    }
    ck_assert_int_gt(failures, 40);
    world_step(w, 1);
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chain rounds");
    TCase *tests = tcase_create("chain rounds");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, rows_and_columns_are_summed_over_the_matrix_view);
    tcase_add_test(tests, rows_and_columns_do_not_depend_on_threads);
    tcase_add_test(tests, maxima_of_tensors_rows_columns_and_the_model);
    tcase_add_test(tests, a_maximum_that_is_not_finite_skips);
    tcase_add_loop_test(tests, the_words_of_rounds_are_checked, 0, sizeof rounds_refused / sizeof *rounds_refused);
    tcase_add_test(tests, a_round_may_have_rows_alone);
    tcase_add_test(tests, the_slots_that_fold_writes_are_listed);
    tcase_add_test(tests, fold_of_the_model_runs_once_a_clock_on_equal_copies);
    tcase_add_test(tests, a_skipped_step_leaves_what_fold_wrote);
    tcase_add_test(tests, a_round_sees_the_gradient_as_the_links_before_leave_it);
    tcase_add_test(tests, a_round_behind_the_rule_sees_the_step);
    tcase_add_test(tests, dry_runs_do_not_depend_on_threads);
    tcase_add_test(tests, a_step_that_is_not_finite_is_skipped_behind_the_rule);
    tcase_add_test(tests, steps_with_rounds_allocate_nothing);
    tcase_add_test(tests, every_failing_allocation_is_reported);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
