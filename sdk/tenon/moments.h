/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/moments.h: Adam's two moments, for the rules built on them. Kingma and Ba, arXiv:1412.6980, Algorithm 1:
 * decaying means of the gradient and of its square, corrected for their start at 0; eps is added after the correction.
 *
 *   #define HYPER(X) X(real, lr, 1e-3, "[0, inf)", "step size") TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-8)
 *   #define SLOTS(S) TN_MOMENT_SLOTS(S)
 *   typedef struct { tn_moments at; tn_real step; } my_constants;
 *   k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);  k->step = (tn_real)(h->lr / tn_correction(h->beta1, t));
 *   tn_moments_add(k.at, g, m, v);  return -(k.step * *m) / tn_moments_root(k.at, *v);
 */
#ifndef TENON_MOMENTS_H
#define TENON_MOMENTS_H

#include <tenon/rule.h>

#define TN_MOMENT_ROWS(X, beta1, beta2, eps)                                                                           \
    TN_MOMENT_ROW_1(X, beta1)                                                                                          \
    TN_MOMENT_ROW_2(X, beta2)                                                                                          \
    TN_MOMENT_ROW_EPS(X, eps)
#define TN_MOMENT_ROW_1(X, value)   X(real, beta1, value, "[0, 1)", "decay of the mean of the gradient")
#define TN_MOMENT_ROW_2(X, value)   X(real, beta2, value, "[0, 1)", "decay of the mean of its square")
#define TN_MOMENT_ROW_EPS(X, value) X(real, eps, value, "(0, inf)", "added to the root of the corrected second moment")
#define TN_DECAY_ROW(X, value)      X(real, weight_decay, value, "[0, inf)", "decoupled decay, multiplied by lr")

#define TN_MOMENT_SLOTS(S)                                                                                             \
    S(m, like, zero, signed, "mean of the gradient")                                                                   \
    S(v, like, zero, nonnegative, "mean of its square")

/* What is the same for all elements in step t. */
typedef struct tn_moments {
    tn_real beta1, rest1, beta2, rest2; /* rest: 1 - beta */
    tn_real unbias;                     /* 1 / sqrt(1 - beta2^t) */
    tn_real eps;
} tn_moments;

/* What a mean that began at 0 is too small by after t steps: 1 - beta^t. */
static inline TN_UNUSED double tn_correction(double beta, double t) { return 1 - pow(beta, t); }

static inline TN_UNUSED tn_moments tn_moments_at(double beta1, double beta2, double eps, double t)
{
    tn_moments k = {(tn_real)beta1,
                    (tn_real)(1 - beta1),
                    (tn_real)beta2,
                    (tn_real)(1 - beta2),
                    (tn_real)(1 / sqrt(tn_correction(beta2, t))),
                    (tn_real)eps};
    return k;
}

TN_BOTH TN_UNUSED void tn_moments_add(tn_moments k, tn_real g, tn_real *m, tn_real *v)
{
    *m = k.beta1 * *m + k.rest1 * g;
    *v = k.beta2 * *v + k.rest2 * g * g;
}

/* sqrt(v / (1 - beta2^t)) + eps */
TN_BOTH TN_UNUSED tn_real tn_moments_root(tn_moments k, tn_real v) { return tn_sqrt(v) * k.unbias + k.eps; }

#endif
