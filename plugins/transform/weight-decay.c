/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoupled weight decay of its own, for any rule and with any schedule: p <- (1 - rate) p in each update, whatever the
 * step size is. Loshchilov and Hutter, arXiv:1711.05101; a rule's own weight_decay is multiplied by its lr.
 */
#include <tenon/rule.h>

#define HYPER(X) X(real, rate, 1e-5, "[0, 1]", "what a parameter loses in an update; not multiplied by lr")
TN_DECLARE(weight_decay, HYPER)

typedef struct {
    double keep;
} weight_decay_constants;

static void weight_decay_begin(const void *hyper, const tn_clock *clock, void *k)
{
    (void)clock;
    ((weight_decay_constants *)k)->keep = 1 - ((const weight_decay *)hyper)->rate;
}

static double weight_decay_keep(const void *k) { return ((const weight_decay_constants *)k)->keep; }

static const tn_optimizer weight_decay_table = {.struct_size = sizeof(tn_optimizer),
                                                .constants_bytes = (uint32_t)sizeof(weight_decay_constants),
                                                .begin = weight_decay_begin,
                                                .keep = weight_decay_keep};
TN_LINK(weight_decay, "transform", HYPER, TN_NO_SLOTS, "Decoupled weight decay at a rate of its own",
        TN_STAGE("update") TN_GRAIN("element") TN_PAPER("arXiv:1711.05101") TN_FORMULA("p = (1 - rate) p + d"),
        weight_decay_table)
TN_PLUGIN("org.tenon.weight-decay", "0.1.0", "Apache-2.0", weight_decay)
