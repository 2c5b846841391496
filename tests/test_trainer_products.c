/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules that ask for products with the Hessian: what they get is compared with differences of gradients, over windows
 * of three micro-batches of 40, 40 and 21 samples.
 */
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/train/internal.h"
#include "tests/small_run.h"

#define WINDOW "data.batch=40", "train.accumulate=3"
#define SEED   (1.0 / 128)
#define N      101

#define NEWTON "update={use: newton-cg, damping: 0.1, iterations: 8}"
#define SMOOTH "model={use: mlp, widths: [6], activation: tanh}"

/* H v is what gradients differ by, along v, over the whole window and with one mask. */
START_TEST(products_are_differences_of_gradients)
{
    outcome o;
    tn_log log;
    tn_error err = {0};
    double loss, worst = 0, largest = 0;
    open_small(&o, &log, (const char *[]){WINDOW, SMOOTH, NEWTON, "precision=f64", "model.regularizer=dropout"}, 6);
    step(&o);
    tn_parameters *all = tn_graph_parameters(tn_trainer_graph(o.trainer));
    double *p = copy(all->p, all), *v = copy(all->p, all), *product = copy(all->p, all), *one;
    o.trainer->attempt = 0;
    o.trainer->held = -1;
    for (int64_t j = 0; j < all->elements; j++)
        v[j] = tn_philox(9, 0, (uint64_t)j).v[0] / 0x1p31 - 1;
    ck_ok(o.trainer->signals.product(o.trainer, v, product, &err), err);
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int64_t j = 0; j < all->elements; j++)
            ((double *)all->p)[j] = p[j] + sign * 1e-5 * v[j];
        ck_ok(o.trainer->signals.gradient(o.trainer, &loss, &err), err);
        one = sign < 0 ? copy(all->g, all) : one;
    }
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = all->at[i]; j < all->at[i] + all->list[i].n; j++) {
            double difference = (((double *)all->g)[j] - one[j]) / (SEED * N) / 2e-5;
            worst = fmax(worst, fabs(difference - product[j]));
            largest = fmax(largest, fabs(product[j]));
        }
    ck_assert_double_gt(largest, 0.1);
    ck_assert_double_le(worst, 1e-6 * largest);
    tn_free(p), tn_free(v), tn_free(product), tn_free(one);
    close_run(&o);
}
END_TEST

START_TEST(newton_cg_learns_by_products)
{
    outcome o;
    run(&o, (const char *[]){WINDOW, SMOOTH, NEWTON, "precision=f64", "train.epochs=12"}, 6);
    ck_assert_int_eq(o.updates + o.skips, 12);
    ck_assert_double_ge(o.accuracy, 0.9);
    close_run(&o);
}
END_TEST

START_TEST(layers_without_tangents_are_refused)
{
    outcome o;
    tn_log log;
    tn_error err = {0};
    const char *overrides[] = {SMOOTH, NEWTON, "model.normalizer=batchnorm"};
    ck_assert_int_eq(open_run(&o, &log, overrides, 3, &err), TN_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, "update.newton-cg asks for products with the Hessian") &&
                      strstr(err.msg, "hidden.0.norm"),
                  "%s", err.msg);
    close_run(&o);
}
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Suite *suite = suite_create("trainer_products");
    TCase *tests = tcase_create("trainer_products");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, products_are_differences_of_gradients);
    tcase_add_test(tests, newton_cg_learns_by_products);
    tcase_add_test(tests, layers_without_tangents_are_refused);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
