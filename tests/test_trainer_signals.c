/* SPDX-License-Identifier: Apache-2.0
 *
 * Links that look at the window again: a second gradient, taps. Windows of three
 * micro-batches of 40, 40 and 21 samples; what links get is compared with what the graph gives when driven by hand.
 */
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/train/internal.h"
#include "tests/small_run.h"

#define WINDOW "data.batch=40", "train.accumulate=3"
#define SEED   (1.0 / 128)
#define N      101

/* 1: the parameters' elements, without padding, have the same bits. */
static int same(const void *a, const void *b, const tn_parameters *all)
{
    size_t real = all->real / 8;
    for (int64_t i = 0; i < all->count; i++)
        if (memcmp((const char *)a + (size_t)all->at[i] * real, (const char *)b + (size_t)all->at[i] * real,
                   (size_t)all->list[i].n * real))
            return 0;
    return 1;
}

/* ---- by hand ---- */

/* Samples [lo, lo + n) of the first epoch into the graph; their indices, if asked for. */
static void gather(const outcome *o, int64_t lo, int64_t n)
{
    uint32_t order[N];
    int64_t index[N];
    tn_trainer *t = o->trainer;
    tn_random_permutation(tn_hash_key(4, "data", "order"), 0, N, order);
    for (int64_t i = 0; i < n; i++)
        index[i] = order[lo + i];
    tn_dataset_gather(&t->train, t->pool, &t->services, 0, 0, index, n, 1, tn_graph_input(t->graph),
                      tn_graph_target(t->graph));
}

/* The gradient of the first window at p, into g. */
static void gradient(const outcome *o, const void *p, uint32_t flags)
{
    tn_exact sums[TN_SUMS_MAX] = {0};
    tn_error err = {0};
    for (int64_t micro = 0; micro < 3; micro++) {
        int64_t n = micro < 2 ? 40 : 21;
        gather(o, 40 * micro, n);
        tn_graph_run run = {
            .n = n, .flags = TN_TRAIN | flags | (micro ? TN_ACCUMULATE : 0), .micro = micro, .seed = SEED, .p = p};
        ck_ok(tn_graph_run_batch(tn_trainer_graph(o->trainer), &run, sums, &err), err);
    }
}

static double squares(const float *g, const tn_parameters *all)
{
    double sum = 0;
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = all->at[i]; j < all->at[i] + all->list[i].n; j++)
            sum += (double)g[j] * g[j];
    return sum;
}

/* ---- the second gradient ---- */

#define SAM "update=[{use: sam, rho: 0.5}, {use: adamw, as: rule, lr: 0.01, weight_decay: 0}]"

/* p + rho g / |g|, the gradient there under the same masks, and Adam's first step, lr g / (|g| + eps), from p. */
START_TEST(sam_sees_the_same_window_again)
{
    const char *overrides[] = {WINDOW, SAM, "model.regularizer={use: dropout, p: 0.4}"};
    outcome hand, o;
    tn_log log;
    open_small(&hand, &log, overrides, 4);
    open_small(&o, &log, overrides, 4);
    const tn_parameters *all = parameters(&o), *own = parameters(&hand);
    float *uphill = copy(own->p, own), *start = copy(own->p, own);
    gradient(&hand, NULL, 0);
    double norm = sqrt(squares(own->g, own)) / (SEED * N);
    ck_assert_double_gt(norm, 0.01);
    for (int64_t j = 0; j < own->elements; j++)
        uphill[j] += (float)(0.5 / norm / (SEED * N) * (double)((float *)own->g)[j]);
    gradient(&hand, uphill, TN_FREEZE);
    step(&o);
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = all->at[i]; j < all->at[i] + all->list[i].n; j++) {
            double g = ((float *)own->g)[j] / (SEED * N), p = start[j] - 0.01 * g / (fabs(g) + 1e-8);
            expect(fabs(((float *)all->g)[j] - ((float *)own->g)[j]) <= 1e-7, "%s: gradient %g, by hand %g",
                   all->list[i].name, ((float *)all->g)[j], ((float *)own->g)[j]);
            expect(fabs(g) < 1e-5 || fabs(((float *)all->p)[j] - p) <= 1e-5, "%s: %g, by hand %g", all->list[i].name,
                   ((float *)all->p)[j], p);
        }
    tn_free(uphill);
    tn_free(start);
    close_run(&o);
    close_run(&hand);
}
END_TEST

/* Masks by the bit: where the way uphill is 0, the second gradient is the first. */
START_TEST(a_second_look_has_the_bits_of_the_first)
{
    outcome o;
    tn_log log;
    double loss, first;
    tn_error err = {0};
    open_small(&o, &log,
               (const char *[]){WINDOW, "model.regularizer={use: dropout, p: 0.4}", "model.normalizer=batchnorm",
                                "update.rule={use: sgd, lr: 0}"},
               5);
    const tn_parameters *all = parameters(&o);
    step(&o);
    first = o.loss;
    float *g = copy(all->g, all);
    memset(all->g, 0, (size_t)all->elements * sizeof *g);
    o.trainer->attempt = 0; /* as a link sees it, within the step */
    ck_ok(o.trainer->signals.gradient(o.trainer, &loss, &err), err);
    ck_assert(same(g, all->g, all));
    ck_assert(loss == first);
    tn_free(g);
    close_run(&o);
}
END_TEST

/* The rule starts where the parameters were, by the bit; statistics of layers moved once. */
START_TEST(sam_leaves_no_trace_but_the_gradient)
{
    const char *rest = "model.normalizer=batchnorm", *still = "update=[{use: sam, rho: 0.5}, {use: sgd, lr: 0}]";
    const tn_graph_buffer *with, *without;
    outcome o, plain;
    tn_log log;
    open_small(&o, &log, (const char *[]){WINDOW, rest, still}, 4);
    open_small(&plain, &log, (const char *[]){WINDOW, rest, "update={use: sgd, lr: 0}"}, 4);
    float *start = copy(parameters(&o)->p, parameters(&o));
    step(&o);
    step(&plain);
    ck_assert_int_eq(o.updates, 1);
    ck_assert(same(start, parameters(&o)->p, parameters(&o)));
    ck_assert(!same(parameters(&plain)->g, parameters(&o)->g, parameters(&o)));
    ck_assert_uint_eq(tn_graph_buffers(tn_trainer_graph(o.trainer), &with), 4);
    tn_graph_buffers(tn_trainer_graph(plain.trainer), &without);
    for (int i = 0; i < 4; i++)
        ck_assert_mem_eq(with[i].tensor.data, without[i].tensor.data, (size_t)with[i].tensor.shape[0] * sizeof(float));
    tn_free(start);
    close_run(&o);
    close_run(&plain);
}
END_TEST

/* An overflow in either look skips the step: parameters come back by the bit, and the scale halves. */
START_TEST(sam_comes_back_from_an_overflow)
{
    outcome o;
    tn_log log;
    open_small(&o, &log,
               (const char *[]){WINDOW, SAM, "precision={storage: fp16, loss_scale: {use: dynamic, initial: 0x1p30}}"},
               4);
    float *start = copy(parameters(&o)->p, parameters(&o));
    for (int i = 0; i < 3; i++) {
        step(&o);
        ck_assert_int_eq(o.skips, i + 1);
        ck_assert(same(start, parameters(&o)->p, parameters(&o)));
    }
    ck_assert_double_eq(o.scale[2], 0x1p28);
    tn_free(start);
    close_run(&o);
}
END_TEST

/* ---- taps ---- */

#define KFAC(fisher)                                                                                                   \
    "update={use: kfac, lr: 0.05, damping: 0.03, fisher: " fisher ", factor_every: 1, inverse_every: 1}"
#define PLAIN "model.normalizer=none"

static const float *slot(const outcome *o, const char *name, const char *parameter)
{
    const tn_chain *chain = tn_trainer_chain(o->trainer);
    for (size_t i = 0; i < tn_chain_slot_count(chain); i++) {
        tn_chain_slot s;
        tn_chain_slot_at(chain, i, &s);
        if (!strcmp(s.slot, name) && s.parameter >= 0 && !strcmp(parameters(o)->list[s.parameter].name, parameter))
            return s.data;
    }
    ck_abort_msg("no slot %s of %s", name, parameter);
    return NULL;
}

/* After one update A is the mean of x x^T over the window, a 1 appended, and G that of dy dy^T, dy = softmax - target:
 * each sample of each ragged micro-batch once. */
START_TEST(taps_cover_the_window_once)
{
    const char *overrides[] = {WINDOW, PLAIN, KFAC("empirical")};
    outcome hand, o;
    tn_log log;
    static double a[65][65], g[4][4];
    tn_exact sums[TN_SUMS_MAX] = {0};
    tn_error err = {0};
    memset(a, 0, sizeof a);
    memset(g, 0, sizeof g);
    open_small(&hand, &log, overrides, 4);
    open_small(&o, &log, overrides, 4);
    step(&o);
    for (int64_t lo = 0; lo < N; lo += 40) {
        int64_t n = lo < 80 ? 40 : 21;
        gather(&hand, lo, n);
        tn_graph_run run = {.n = n, .seed = 1};
        ck_ok(tn_graph_run_batch(tn_trainer_graph(hand.trainer), &run, sums, &err), err);
        const float *x = tn_graph_input(tn_trainer_graph(hand.trainer)),
                    *y = tn_graph_output(tn_trainer_graph(hand.trainer))->data;
        const int32_t *target = tn_graph_target(tn_trainer_graph(hand.trainer));
        for (int64_t i = 0; i < n; i++) {
            double dy[4], sum = 0;
            for (int c = 0; c < 4; c++)
                sum += exp(y[4 * i + c]);
            for (int c = 0; c < 4; c++)
                dy[c] = exp(y[4 * i + c]) / sum - (target[i] == c);
            for (int r = 0; r < 4; r++)
                for (int c = 0; c < 4; c++)
                    g[r][c] += dy[r] * dy[c] / N;
            for (int r = 0; r < 65; r++)
                for (int c = 0; c < 65; c++)
                    a[r][c] += (r < 64 ? x[64 * i + r] : 1.0) * (c < 64 ? x[64 * i + c] : 1.0) / N;
        }
    }
    const float *own_a = slot(&o, "a", "hidden.0.linear.weight"), *own_g = slot(&o, "g", "head.weight");
    for (int i = 0; i < 65 * 65; i++)
        expect(fabs(own_a[i] - a[i / 65][i % 65]) <= 2e-5, "a[%d] is %g, by hand %g", i, own_a[i], a[i / 65][i % 65]);
    for (int i = 0; i < 16; i++)
        expect(fabs(own_g[i] - g[i / 4][i % 4]) <= 2e-6, "g[%d] is %g, by hand %g", i, own_g[i], g[i / 4][i % 4]);
    close_run(&o);
    close_run(&hand);
}
END_TEST

#define NORMED "model.normalizer=batchnorm", "+update={use: sgd, as: rest}"
#define LINEAR "update.kfac.on={name: ['*.linear.*', 'head.*']}"

/* Drawn targets: another G, the same A; gradient, loss and statistics are those of the true ones. */
START_TEST(drawn_targets_touch_only_the_taps)
{
    const tn_graph_buffer *x, *y;
    outcome drawn, true_ones;
    tn_log log;
    open_small(&drawn, &log, (const char *[]){WINDOW, KFAC("sampled"), LINEAR, NORMED}, 6);
    open_small(&true_ones, &log, (const char *[]){WINDOW, KFAC("empirical"), LINEAR, NORMED}, 6);
    step(&drawn);
    step(&true_ones);
    ck_assert(same(parameters(&drawn)->g, parameters(&true_ones)->g, parameters(&drawn)));
    ck_assert(drawn.loss == true_ones.loss);
    ck_assert_mem_eq(slot(&drawn, "a", "head.weight"), slot(&true_ones, "a", "head.weight"), 13 * 13 * sizeof(float));
    ck_assert_mem_ne(slot(&drawn, "g", "head.weight"), slot(&true_ones, "g", "head.weight"), 16 * sizeof(float));
    ck_assert_uint_eq(tn_graph_buffers(tn_trainer_graph(drawn.trainer), &x), 4);
    tn_graph_buffers(tn_trainer_graph(true_ones.trainer), &y);
    for (int i = 0; i < 4; i++)
        ck_assert_mem_eq(x[i].tensor.data, y[i].tensor.data, (size_t)x[i].tensor.shape[0] * sizeof(float));
    close_run(&drawn);
    close_run(&true_ones);
}
END_TEST

/* The same bits with activations computed again, and with other threads. */
START_TEST(kfac_learns_with_the_same_bits)
{
    static const char *const changes[] = {"recompute=sqrt", "recompute={use: every, nodes: 2}", "train.threads=3"};
    outcome kept, o;
    run(&kept, (const char *[]){PLAIN, KFAC("sampled"), "train.epochs=4", "model.regularizer=dropout"}, 4);
    ck_assert_double_ge(kept.accuracy, 0.9);
    ck_assert_int_eq(kept.skips, 0);
    for (size_t i = 0; i < 3; i++) {
        run(&o, (const char *[]){PLAIN, KFAC("sampled"), "train.epochs=4", "model.regularizer=dropout", changes[i]}, 5);
        assert_same_bits(&kept, &o);
        ck_assert(o.eval_loss == kept.eval_loss);
        close_run(&o);
    }
    close_run(&kept);
}
END_TEST

START_TEST(a_loss_that_draws_nothing_is_refused)
{
    outcome o;
    tn_log log;
    tn_error err = {0};
    tn_registry_close(registry);
    registry = test_registry("TENON_TEST_PLUGINS");
    const char *overrides[] = {PLAIN, "loss=first-class", KFAC("sampled")};
    ck_assert_int_eq(open_run(&o, &log, overrides, 3, &err), TN_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, "targets drawn from the model") && strstr(err.msg, "first-class"), "%s", err.msg);
    close_run(&o);
    overrides[2] = KFAC("empirical");
    open_small(&o, &log, overrides, 3);
    step(&o);
    close_run(&o);
}
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Suite *suite = suite_create("trainer_signals");
    TCase *tests = tcase_create("trainer_signals");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, sam_sees_the_same_window_again);
    tcase_add_test(tests, a_second_look_has_the_bits_of_the_first);
    tcase_add_test(tests, sam_leaves_no_trace_but_the_gradient);
    tcase_add_test(tests, sam_comes_back_from_an_overflow);
    tcase_add_test(tests, taps_cover_the_window_once);
    tcase_add_test(tests, drawn_targets_touch_only_the_taps);
    tcase_add_test(tests, kfac_learns_with_the_same_bits);
    tcase_add_test(tests, a_loss_that_draws_nothing_is_refused);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
