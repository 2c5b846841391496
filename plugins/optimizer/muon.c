/* SPDX-License-Identifier: Apache-2.0
 *
 * Muon: momentum, orthogonalized. Jordan et al. 2024, https://kellerjordan.github.io/posts/muon. The momentum is the
 * mean b <- momentum b + (1 - momentum) g, as torch.optim.Muon computes it; Jordan's sum b <- momentum b + g differs by
 * a factor that the norm takes out again. Newton-Schulz runs in the real type, the original in bf16.
 * Scale: moonshot .2 sqrt(max(r, c)), the size of AdamW's steps (Liu et al. 2025, arXiv:2502.16982); keller
 * sqrt(max(1, r / c)). The matrix of a convolution is [out, the rest].
 */
#include <tenon/matrix_rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    X(real, momentum, 0.95, "[0, 1)", "decay of the mean of the gradient")                                             \
    X(flag, nesterov, true, "", "step from where the momentum leads")                                                  \
    X(real, weight_decay, 0.1, "[0, inf)", "decoupled decay, multiplied by lr")                                        \
    X(choice, scale, moonshot, "moonshot | keller", "how the step grows with the shape")                               \
    X(integer, steps, 5, "[1, 100]", "of Newton-Schulz")                                                               \
    X(flag, split, true, "", "the parts of a fused weight (q, k, v, heads) are matrices of their own")
#define SLOTS(S) S(b, like, zero, signed, "mean of the gradient")
TN_DECLARE_RULE(muon, HYPER, SLOTS)

typedef struct {
    tn_real momentum, rest, ahead, now;
    double keep;
} muon_constants;

static void muon_begin(const muon *h, double t, muon_constants *k)
{
    (void)t;
    k->momentum = (tn_real)h->momentum;
    k->rest = (tn_real)(1 - h->momentum);
    k->ahead = h->nesterov ? k->momentum : 1;
    k->now = h->nesterov ? k->rest : 0;
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real muon_element(muon_constants k, tn_real p, tn_real g, tn_real *b)
{
    (void)p;
    *b = k.momentum * *b + k.rest * g;
    return k.ahead * *b + k.now * g;
}
static double muon_keep(const void *k) { return ((const muon_constants *)k)->keep; }

static int64_t muon_workspace(const void *hyper, int64_t r, int64_t c)
{
    (void)hyper;
    return (int64_t)sizeof(tn_real) * (r * c + (r < c ? 2 * r * r : 2 * c * c));
}

static void muon_apply(const tn_matrix_call *call)
{
    const muon *h = (const muon *)call->hyper;
    int64_t r = call->rows, c = call->columns, n = r < c ? r : c, count = call->count, all = count * r * c;
    tn_dense x = tn_dense_real(call->d, r, c), other = tn_dense_real(call->workspace, r, c), swap;
    tn_dense a = tn_dense_real((tn_real *)call->workspace + all, n, n), b = a;
    b.data = (tn_real *)a.data + count * n * n;
    for (tn_real *at = (tn_real *)call->d, *end = at + all; at < end; at += r * c)
        tn_dense_scale(at, r * c, 1 / (tn_dense_norm(at, r * c) + 1e-7));
    for (int64_t step = 0; step < h->steps; step++, swap = x, x = other, other = swap) {
        /* x' = 3.4445 x + (-4.775 a + 2.0315 a a) x with a = x x^T; of tall x from the other side */
        tn_dense_multiply(call->compute, count, 1, r > c ? tn_dense_t(x) : x, r > c ? x : tn_dense_t(x), 0, a);
        memcpy(b.data, a.data, (size_t)(count * n * n) * sizeof(tn_real));
        tn_dense_multiply(call->compute, count, 2.0315, a, a, -4.7750, b);
        memcpy(other.data, x.data, (size_t)all * sizeof(tn_real));
        tn_dense_multiply(call->compute, count, 1, r > c ? x : b, r > c ? b : x, 3.4445, other);
    }
    if (x.data != call->d)
        memcpy(call->d, x.data, (size_t)all * sizeof(tn_real));
    tn_dense_scale((tn_real *)call->d, all,
                   -h->lr * (h->scale ? sqrt(r > c ? (double)r / (double)c : 1) : .2 * sqrt((double)(r > c ? r : c))));
}

TN_MATRIX_RULE(muon, HYPER, SLOTS, "Orthogonalized momentum for matrices",
               TN_PAPER("https://kellerjordan.github.io/posts/muon")
                   TN_FORMULA("b = mu b + (1 - mu) g; p = (1 - lr wd) p - lr s NS(b)"),
               muon_keep, h->split)
TN_PLUGIN("org.tenon.muon", "0.1.0", "Apache-2.0", muon)
