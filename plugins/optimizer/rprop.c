/* SPDX-License-Identifier: Apache-2.0
 *
 * Rprop: steps by the gradient's sign, each element with a step size of its own. Riedmiller and Braun, ICNN 1993, in
 * the form without weight backtracking of Igel and Huesken (2000) as torch.optim.Rprop has it: where the sign turned,
 * the size shrinks, nothing moves and the next step takes the turn for none. For gradients of the whole set.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(fixed, lr, 1e-2, "(0, inf)", "size of the first step")                                                           \
    X(real, shrink, 0.5, "(0, 1)", "what a size is multiplied by where the sign turned")                               \
    X(real, grow, 1.2, "(1, inf)", "and where it stayed")                                                              \
    X(real, least, 1e-6, "(0, inf)", "smallest size")                                                                  \
    X(real, most, 50, "(0, inf)", "largest size")
#define SLOTS(S)                                                                                                       \
    S(last, like, zero, signed, "last gradient; 0 where its sign turned")                                              \
    S(size, like, zero, nonnegative, "size of the step; 0 before the first")
TN_DECLARE_RULE(rprop, HYPER, SLOTS)

typedef struct {
    tn_real lr, shrink, grow, least, most;
} rprop_constants;

static void rprop_begin(const rprop *h, double t, rprop_constants *k)
{
    (void)t;
    k->lr = (tn_real)h->lr;
    k->shrink = (tn_real)h->shrink;
    k->grow = (tn_real)h->grow;
    k->least = (tn_real)h->least;
    k->most = (tn_real)h->most;
}

TN_BOTH tn_real rprop_element(rprop_constants k, tn_real p, tn_real g, tn_real *last, tn_real *size)
{
    tn_real turn = tn_sign(*last) * tn_sign(g), factor = turn > 0 ? k.grow : turn < 0 ? k.shrink : 1;
    tn_real wanted = (*size > 0 ? *size : k.lr) * factor;
    (void)p;
    *size = wanted < k.least ? k.least : wanted > k.most ? k.most : wanted;
    *last = turn < 0 ? 0 : g;
    return -(*size * tn_sign(*last)) + 0 * g; /* a NaN of g stays */
}

TN_ELEMENT_RULE(rprop, HYPER, SLOTS, "Sizes that grow while the sign stays",
                TN_PAPER("Riedmiller and Braun, ICNN 1993")
                    TN_FORMULA("size *= grow where the sign of g stayed, shrink where it turned; p -= size sign(g), "
                               "where it turned nothing"))
TN_PLUGIN("org.tenon.rprop", "0.1.0", "Apache-2.0", rprop)
