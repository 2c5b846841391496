/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient descent with Nesterov's momentum, in the form that looks at the gradient where the parameters are
 * (Sutskever, Martens, Dahl and Hinton, ICML 2013; Nesterov 1983):
 *   velocity = momentum velocity + g,  p = p - lr (g + momentum velocity)
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-2, "[0, inf)", "step size")                                                                         \
    X(real, momentum, 0.9, "[0, 1)", "what the velocity keeps at an update")
#define SLOTS(S) S(velocity, like, zero, signed, "decaying sum of gradients")
TN_DECLARE_RULE(my_thing, HYPER, SLOTS)

typedef struct {
    tn_real lr, momentum;
} my_thing_constants;

/* Once a step: what is the same for all elements. t is 1 at a parameter's first update. */
static void my_thing_begin(const my_thing *h, double t, my_thing_constants *k)
{
    (void)t;
    k->lr = (tn_real)h->lr;
    k->momentum = (tn_real)h->momentum;
}

/* One element: returns what is added to p. */
TN_BOTH tn_real my_thing_element(my_thing_constants k, tn_real p, tn_real g, tn_real *velocity)
{
    (void)p;
    *velocity = k.momentum * *velocity + g;
    return -k.lr * (g + k.momentum * *velocity);
}

TN_ELEMENT_RULE(my_thing, HYPER, SLOTS, "Gradient descent with Nesterov's momentum",
                TN_PAPER("Sutskever et al., ICML 2013")
                    TN_FORMULA("velocity = momentum velocity + g, p = p - lr (g + momentum velocity)"))
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
