/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.h: a rule of grain matrix, optimizer/bad, for plugins that are wrong in one way: the gradient times -lr,
 * divided by its largest magnitude. A file has `apply`, which calls `scale_items`.
 */
#ifndef TENON_TESTS_BAD_MATRIX_H
#define TENON_TESTS_BAD_MATRIX_H

#include <tenon/matrix_rule.h>

#define HYPER(X) X(real, lr, 0.01, "[0, inf)", "step size")
#define SLOTS(S) S(m, like, zero, signed, "sum") S(mean, item, zero, signed, "mean of the steps")
TN_DECLARE_RULE(bad, HYPER, SLOTS)

typedef struct {
    tn_real momentum;
} bad_constants;

static void bad_begin(const bad *h, double t, bad_constants *k)
{
    (void)h, (void)t;
    k->momentum = (tn_real)0.9;
}

TN_BOTH tn_real bad_element(bad_constants k, tn_real p, tn_real g, tn_real *m, tn_real *mean)
{
    (void)p, (void)mean;
    return *m = k.momentum * *m + g;
}

static int64_t bad_workspace(const void *hyper, int64_t rows, int64_t columns)
{
    (void)hyper, (void)rows, (void)columns;
    return 64;
}

static TN_UNUSED void scale_items(const tn_matrix_call *call)
{
    int64_t each = call->rows * call->columns;
    for (int64_t item = 0; item < call->count; item++) {
        tn_real *d = (tn_real *)call->d + item * each, *mean = (tn_real *)call->slot[1] + item * each, most = 0;
        for (int64_t i = 0; i < each; i++)
            most = tn_abs(d[i]) > most || d[i] != d[i] ? tn_abs(d[i]) : most;
        for (int64_t i = 0; i < each; i++) {
            mean[i] = (tn_real)0.9 * mean[i] + d[i] / (most + 1);
            d[i] = (tn_real) - ((const bad *)call->hyper)->lr * mean[i];
        }
    }
}

#define BAD_MATRIX(id)                                                                                                 \
    TN_MATRIX_RULE(bad, HYPER, SLOTS, "a test", "", NULL, 0)                                                           \
    TN_PLUGIN("org.tenon.test." id, "0.1.0", "Apache-2.0", bad)

#endif
