/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the gradient noise scale: on drawn gradients, whose noise scale is known, and on runs, against gradients
 * that are taken one by one.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "host/train/internal.h"
#include "tests/small_run.h"

/* ---- drawn gradients ---- */

static double uniform(void) { return ((double)(random_bits() >> 11) + 0.5) * 0x1p-53; }
static double normal(void) { return sqrt(-2 * log(uniform())) * cos(2 * M_PI * uniform()); }

#define DIMENSIONS 200

/* Batches of `parts` parts of n gradients each, N(mu, sigma^2 I): what an update would see. */
static tn_noise drawn(double mu, double sigma, int parts, int n)
{
    double whole[DIMENSIONS] = {0}, small = 0, big = 0;
    for (int j = 0; j < parts; j++)
        for (int d = 0; d < DIMENSIONS; d++) {
            double mean = mu + sigma / sqrt(n) * normal();
            small += mean * mean / parts;
            whole[d] += mean / parts;
        }
    for (int d = 0; d < DIMENSIONS; d++)
        big += whole[d] * whole[d];
    return tn_noise_estimate(small, big, (double)parts * n, parts);
}

START_TEST(drawn_gradients_have_their_noise_scale)
{
    static const struct {
        double mu, sigma;
        int parts, n;
    } cases[] = {{0.1, 1, 2, 32}, {0.1, 1, 8, 8}, {0.3, 2, 4, 16}, {1, 0.5, 2, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double gradient = 0, noise = 0, mu = cases[i].mu, sigma = cases[i].sigma;
        tn_noise means = {0, 0};
        double scale = 0;
        for (int k = 0; k < 4000; k++) {
            tn_noise e = drawn(mu, sigma, cases[i].parts, cases[i].n);
            gradient += e.gradient / 4000;
            noise += e.noise / 4000;
            tn_noise_add(&means, &e);
            scale += k >= 1000 ? tn_noise_scale(&means) / 3000 : 0;
        }
        double g2 = DIMENSIONS * mu * mu, s = DIMENSIONS * sigma * sigma;
        expect(fabs(gradient / g2 - 1) < 0.05, "%zu: |G|^2 is %g, wanted %g", i, gradient, g2);
        expect(fabs(noise / s - 1) < 0.05, "%zu: S is %g, wanted %g", i, noise, s);
        expect(fabs(scale / (s / g2) - 1) < 0.05, "%zu: the noise scale is %g, wanted %g", i, scale, s / g2);
    }
}
END_TEST

/* The formulas of the paper for two batch sizes, by hand: B_small 8, B_big 32. */
START_TEST(estimates_by_hand)
{
    tn_noise e = tn_noise_estimate(3, 1.5, 32, 4);
    ck_assert_double_eq_tol(e.gradient, (32 * 1.5 - 8 * 3) / (32 - 8), 1e-15);
    ck_assert_double_eq_tol(e.noise, (3 - 1.5) / (1.0 / 8 - 1.0 / 32), 1e-13);
    e = tn_noise_estimate(3, 1.5, 32, 1);
    ck_assert(isnan(e.gradient) && isnan(e.noise));
}
END_TEST

START_TEST(estimates_below_0_leave_no_artefact)
{
    tn_noise means = {0, 0};
    ck_assert(isnan(tn_noise_scale(&means)));
    tn_noise_add(&means, &(tn_noise){-1, 5}); /* the gradient drowns in noise */
    ck_assert(isnan(tn_noise_scale(&means)));
    ck_assert_double_lt(means.gradient, 0);
    tn_noise_add(&means, &(tn_noise){3, -1});
    ck_assert_double_eq_tol(tn_noise_scale(&means), (0.99 * 0.05 - 0.01) / (0.99 * -0.01 + 0.03), 1e-14);
    tn_noise before = means;
    const tn_noise bad[] = {{NAN, 1}, {1, NAN}, {INFINITY, 1}, {1, -INFINITY}, {NAN, NAN}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        tn_noise_add(&means, &bad[i]);
    ck_assert_mem_eq(&means, &before, sizeof means);
    ck_assert(isnan(tn_noise_scale(&(tn_noise){1e-320, 1e300})));
    ck_assert(isnan(tn_noise_scale(&(tn_noise){1, -1})));
}
END_TEST

/* ---- runs ---- */

#define WITH(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* The squared norm of the gradient that a step has left, in the mean over `samples`; added to `sum` if not NULL. */
static double squared_gradient(const outcome *o, double samples, double *sum)
{
    const tn_parameters *all = parameters(o);
    double squares = 0;
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = all->at[i]; j < all->at[i] + all->list[i].n; j++) {
            double g = (all->real == 64 ? ((double *)all->g)[j] : ((float *)all->g)[j]) / (o->trainer->seed * samples);
            squares += g * g;
            if (sum)
                sum[j] += g * samples;
        }
    return squares;
}

/* Batches of 16 of 101 samples, three a window: the windows of an epoch have 48, 48 and 5 samples. */
START_TEST(a_window_has_that_of_its_batches)
{
    const char *real = _i ? "precision=f64" : "precision=f32";
    outcome o, single;
    tn_log log;
    open_small(&single, &log, WITH(real, "update={use: sgd, as: rule, lr: 0}"));
    open_small(&o, &log,
               WITH(real, "train.noise_scale=true", "train.accumulate=3", "train.threads=3",
                    "update={use: sgd, as: rule, lr: 0}"));
    double *sum = tn_alloc((size_t)parameters(&o)->elements, sizeof *sum);
    tn_noise means = {0, 0};
    for (int window = 0; window < 6; window++) {
        int parts = window % 3 == 2 ? 1 : 3;
        double samples = parts == 1 ? 5 : 48, small = 0, big = 0;
        memset(sum, 0, (size_t)parameters(&o)->elements * sizeof *sum);
        for (int i = 0; i < parts; i++) {
            step(&single);
            small += squared_gradient(&single, parts == 1 ? 5 : 16, sum) / parts;
        }
        for (int64_t i = 0; i < parameters(&o)->elements; i++)
            big += sum[i] * sum[i] / (samples * samples);
        step(&o);
        tn_noise wanted = {(48 * big - 16 * small) / 32, (small - big) / (1.0 / 16 - 1.0 / 48)},
                 now = o.trainer->noise.now;
        if (parts == 1) {
            ck_assert(isnan(now.gradient) && isnan(now.noise));
            continue;
        }
        double tolerance = (_i ? 1e-12 : 1e-5) * small;
        ck_assert_double_eq_tol(now.gradient, wanted.gradient, tolerance);
        ck_assert_double_eq_tol(now.noise, wanted.noise, 48 * tolerance);
        tn_noise_add(&means, &now);
        ck_assert_mem_eq(&means, &o.trainer->noise.means, sizeof means);
    }
    tn_free(sum);
    close_run(&o);
    close_run(&single);
}
END_TEST

START_TEST(it_changes_no_bit_and_threads_change_none_of_it)
{
    outcome plain, one, three;
    run(&plain, WITH("train.accumulate=2"));
    run(&one, WITH("train.accumulate=2", "train.noise_scale=true"));
    run(&three, WITH("train.accumulate=2", "train.noise_scale=true", "train.threads=3"));
    assert_same_bits(&plain, &one);
    ck_assert_mem_eq(&one.trainer->noise.means, &three.trainer->noise.means, sizeof(tn_noise));
    ck_assert_double_ne(one.trainer->noise.means.noise, 0);
    close_run(&plain);
    close_run(&one);
    close_run(&three);
}
END_TEST

START_TEST(a_resumed_run_goes_on_bit_for_bit)
{
    outcome whole, half, rest;
    tn_log log;
    tn_error err = {0};
    run(&whole, WITH("train.accumulate=2", "train.noise_scale=true"));
    open_small(&half, &log, WITH("train.accumulate=2", "train.noise_scale=true"));
    for (int i = 0; i < 3; i++)
        step(&half);
    ck_ok(tn_trainer_save(half.trainer, in_test("half.safetensors"), &err), err);
    open_small(&rest, &log, WITH("train.accumulate=2", "train.noise_scale=true"));
    ck_ok(tn_trainer_restore(rest.trainer, in_test("half.safetensors"), &err), err);
    ck_ok(tn_trainer_run(rest.trainer, &err), err);
    assert_same_bits(&whole, &rest);
    ck_assert_mem_eq(&whole.trainer->noise.means, &rest.trainer->noise.means, sizeof(tn_noise));
    close_run(&whole);
    close_run(&half);
    close_run(&rest);
}
END_TEST

/* A loss scale that is too large at first: gradients that are not finite count for nothing, and the scale is out. */
START_TEST(a_loss_scale_is_taken_out_and_skips_leave_no_trace)
{
    static const char scaled[] = "precision={use: f32, storage: fp16, loss_scale: {use: dynamic, initial: 16777216}}",
                      low[] = "precision={use: f32, storage: fp16, loss_scale: {use: constant, value: 1024}}";
    outcome o, plain;
    tn_log log;
    open_small(&o, &log, WITH(scaled, "train.accumulate=2", "train.noise_scale=true", "update={use: sgd, lr: 0}"));
    open_small(&plain, &log, WITH(low, "train.accumulate=2", "train.noise_scale=true", "update={use: sgd, lr: 0}"));
    for (int skipped = 0; !o.updates; skipped++) {
        step(&plain);
        step(&o);
        expect(o.updates || o.trainer->noise.means.noise == 0, "a skipped attempt counts");
        ck_assert_int_lt(skipped, 50);
    }
    ck_assert_int_gt(o.skips, 0);
    tn_noise a = o.trainer->noise.now, b = plain.trainer->noise.now;
    ck_assert_double_eq_tol(a.gradient, b.gradient, 1e-2 * fabs(b.gradient));
    ck_assert_double_eq_tol(a.noise, b.noise, 1e-2 * fabs(b.noise));
    tn_noise before = o.trainer->noise.means;
    o.trainer->noise.now = (tn_noise){1, 1}; /* a finite one counts only with its update, too */
    tn_noise_keep(o.trainer, 0);
    ck_assert_mem_eq(&o.trainer->noise.means, &before, sizeof before);
    tn_noise_keep(o.trainer, 1);
    ck_assert_mem_ne(&o.trainer->noise.means, &before, sizeof before);
    close_run(&o);
    close_run(&plain);
}
END_TEST

START_TEST(one_gradient_is_not_enough)
{
    tn_error err = {0};
    outcome o;
    tn_log log;
    ck_assert_refused(open_run(&o, &log, WITH("train.noise_scale=true"), &err), TN_E_INVALID, err, "train.noise_scale",
                      "set train.accumulate=2");
    close_run(&o);
    ck_assert_refused(open_run(&o, &log, WITH("train.noise_scale=true", "train.accumulate=2", "data.batch=101"), &err),
                      TN_E_INVALID, err, "train.noise_scale", "make data.batch smaller");
    close_run(&o);
}
END_TEST

/* ---- processes ---- */

#define UPDATES 5

static void rank_main(int rank, tn_noise *ret)
{
    char collective[160];
    outcome o;
    tn_log log;
    snprintf(collective, sizeof collective, "parallel.collective={use: shm, name: noise-%ld, ranks: 2, rank: %d}",
             (long)getppid(), rank);
    open_small(&o, &log, WITH(collective, "data.batch=2", "train.noise_scale=true", "precision=f64"));
    for (int i = 0; i < UPDATES; i++) {
        step(&o);
        ret[i] = o.trainer->noise.now;
    }
    close_run(&o);
    exit(0);
}

/* Two processes that have a sample each are one process with two batches of one sample. */
START_TEST(processes_have_that_of_their_shares)
{
    tn_noise *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    outcome o;
    tn_log log;
    pid_t pids[2];
    for (int rank = 0; rank < 2; rank++)
        if ((pids[rank] = fork()) == 0)
            rank_main(rank, seen + rank * UPDATES);
    for (int rank = 0, status; rank < 2; rank++) {
        ck_assert_int_eq(waitpid(pids[rank], &status, 0), pids[rank]);
        ck_assert_int_eq(status, 0);
    }
    open_small(&o, &log, WITH("data.batch=1", "train.accumulate=2", "train.noise_scale=true", "precision=f64"));
    for (int i = 0; i < UPDATES; i++) {
        step(&o);
        tn_noise now = o.trainer->noise.now;
        ck_assert_mem_eq(&seen[i], &seen[UPDATES + i], sizeof now);
        ck_assert_double_eq_tol(seen[i].gradient, now.gradient, 1e-9 * fabs(now.noise));
        ck_assert_double_eq_tol(seen[i].noise, now.noise, 1e-9 * fabs(now.noise));
    }
    close_run(&o);
    munmap(seen, 4096);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("noise");
    TCase *estimates = tcase_create("estimates"), *runs = tcase_create("runs");
    tcase_add_test(estimates, drawn_gradients_have_their_noise_scale);
    tcase_add_test(estimates, estimates_by_hand);
    tcase_add_test(estimates, estimates_below_0_leave_no_artefact);
    tcase_add_checked_fixture(runs, setup, teardown);
    tcase_add_loop_test(runs, a_window_has_that_of_its_batches, 0, 2);
    tcase_add_test(runs, it_changes_no_bit_and_threads_change_none_of_it);
    tcase_add_test(runs, a_resumed_run_goes_on_bit_for_bit);
    tcase_add_test(runs, a_loss_scale_is_taken_out_and_skips_leave_no_trace);
    tcase_add_test(runs, one_gradient_is_not_enough);
    tcase_add_test(runs, processes_have_that_of_their_shares);
    suite_add_tcase(suite, estimates);
    suite_add_tcase(suite, runs);
    return test_main(suite);
}
