/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSprop. Tieleman and Hinton, lecture 6.5 of Neural Networks for Machine Learning, 2012; `centered` after Graves,
 * arXiv:1308.0850, equations 38 to 45, takes the variance for the square. `momentum` keeps a buffer of normalized
 * gradients, as in torch.optim.RMSprop. Two conventions of eps are in use: added to the root (PyTorch), or under it
 * (TensorFlow, and Graves).
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-2, "[0, inf)", "step size")                                                                         \
    X(real, alpha, 0.99, "[0, 1)", "decay of the means")                                                               \
    X(real, eps, 1e-8, "(0, inf)", "keeps the divisor off 0")                                                          \
    X(choice, eps_at, root, "root | square", "added to the root, or to the square under it")                           \
    X(flag, centered, false, "", "divide by the root of the variance")                                                 \
    X(real, momentum, 0, "[0, 1)", "decay of a buffer of steps; 0: none")                                              \
    X(real, l2, 0, "[0, inf)", "added to the gradient as l2 * p")                                                      \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by lr")
#define SQUARE(S) S(square, like, zero, nonnegative, "mean of the gradient's square")
#define MEAN(S)   S(mean, like, zero, signed, "mean of the gradient; only if centered")
#define BUFFER(S) S(buffer, like, zero, signed, "the sum of decayed steps; only if momentum is not 0")
#define SLOTS(S)  SQUARE(S) MEAN(S) BUFFER(S)
TN_DECLARE_RULE(rmsprop, HYPER, SLOTS)
SLOTS(TN_SLOT_RECORD)

typedef struct {
    tn_real lr, alpha, rest, outside, inside, momentum, l2;
    double keep;
} rmsprop_constants;

static int32_t rmsprop_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                            tn_error *err)
{
    const rmsprop *h = (const rmsprop *)hyper;
    int32_t status = planner->slot(planner->host, &slot_square);
    (void)parameter;
    (void)err;
    if (!status && h->centered)
        status = planner->slot(planner->host, &slot_mean);
    if (!status && h->momentum > 0)
        status = planner->slot(planner->host, &slot_buffer);
    return status;
}

static void rmsprop_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const rmsprop *h = (const rmsprop *)hyper;
    rmsprop_constants *k = (rmsprop_constants *)constants;
    (void)clock;
    k->lr = (tn_real)h->lr;
    k->alpha = (tn_real)h->alpha;
    k->rest = (tn_real)(1 - h->alpha);
    k->outside = (tn_real)(h->eps_at == 0 ? h->eps : 0);
    k->inside = (tn_real)(h->eps_at == 0 ? 0 : h->eps);
    k->momentum = (tn_real)h->momentum;
    k->l2 = (tn_real)h->l2;
    k->keep = 1 - h->lr * h->weight_decay;
}

/* Rounding may leave the variance a little below 0. */
TN_BOTH tn_real rmsprop_step(rmsprop_constants k, tn_real g, tn_real square, tn_real mean)
{
    tn_real variance = square - mean * mean;
    return g / (tn_sqrt((variance < 0 ? 0 : variance) + k.inside) + k.outside);
}

TN_BOTH void rmsprop_add(rmsprop_constants k, tn_real *mean, tn_real x) { *mean = k.alpha * *mean + k.rest * x; }

TN_BOTH tn_real rmsprop_bare_element(rmsprop_constants k, tn_real p, tn_real g, tn_real *square)
{
    g += k.l2 * p;
    rmsprop_add(k, square, g * g);
    return -k.lr * rmsprop_step(k, g, *square, 0);
}

TN_BOTH tn_real rmsprop_centered_element(rmsprop_constants k, tn_real p, tn_real g, tn_real *square, tn_real *mean)
{
    g += k.l2 * p;
    rmsprop_add(k, square, g * g);
    rmsprop_add(k, mean, g);
    return -k.lr * rmsprop_step(k, g, *square, *mean);
}

TN_BOTH tn_real rmsprop_buffered_element(rmsprop_constants k, tn_real p, tn_real g, tn_real *square, tn_real *buffer)
{
    g += k.l2 * p;
    rmsprop_add(k, square, g * g);
    *buffer = k.momentum * *buffer + rmsprop_step(k, g, *square, 0);
    return -k.lr * *buffer;
}

TN_BOTH tn_real rmsprop_whole_element(rmsprop_constants k, tn_real p, tn_real g, tn_real *square, tn_real *mean,
                                      tn_real *buffer)
{
    g += k.l2 * p;
    rmsprop_add(k, square, g * g);
    rmsprop_add(k, mean, g);
    *buffer = k.momentum * *buffer + rmsprop_step(k, g, *square, *mean);
    return -k.lr * *buffer;
}

/* The slots of each, in the order in which they are planned. */
#define CENTERED(S) SQUARE(S) MEAN(S)
#define BUFFERED(S) SQUARE(S) BUFFER(S)
#define RMSPROP_FORM(form, SLOTS)                                                                                      \
    typedef struct {                                                                                                   \
        SLOTS(TN_SLOT_FIELD)                                                                                           \
    } rmsprop_##form##_slots;                                                                                          \
    TN_ELEMENT_UPDATE(rmsprop_##form, rmsprop_##form##_element, rmsprop_constants, rmsprop_##form##_slots, SLOTS)
RMSPROP_FORM(bare, SQUARE)
RMSPROP_FORM(centered, CENTERED)
RMSPROP_FORM(buffered, BUFFERED)
RMSPROP_FORM(whole, SLOTS)

static void rmsprop_update(const tn_piece *piece)
{
    const rmsprop *h = (const rmsprop *)piece->hyper;
    if (h->momentum > 0)
        (h->centered ? rmsprop_whole_update : rmsprop_buffered_update)(piece);
    else
        (h->centered ? rmsprop_centered_update : rmsprop_bare_update)(piece);
}

static double rmsprop_keep(const void *k) { return ((const rmsprop_constants *)k)->keep; }

static const tn_optimizer rmsprop_table = {.struct_size = sizeof(tn_optimizer),
                                           .constants_bytes = (uint32_t)sizeof(rmsprop_constants),
                                           .plan = rmsprop_plan,
                                           .begin = rmsprop_begin,
                                           .update = rmsprop_update,
                                           .keep = rmsprop_keep};
TN_LINK(rmsprop, "optimizer", HYPER, SLOTS, "Steps over the root of the mean square",
        TN_STAGE("rule") TN_GRAIN("element") TN_PAPER("Tieleman and Hinton, 2012")
            TN_FORMULA("g += l2 p; s = alpha s + (1 - alpha) g^2, centered: less m^2; b = momentum b + "
                       "g / (sqrt(s) + eps); p = (1 - lr wd) p - lr b"),
        rmsprop_table)
TN_PLUGIN("org.tenon.rmsprop", "0.1.0", "Apache-2.0", rmsprop)
