/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch-size rule: the base was found with batches of `reference` samples, and is scaled to those of this run, with
 * accumulation and all processes. Linear: Goyal et al. 2017, arXiv:1706.02677, section 2.1 (for SGD); square root:
 * Krizhevsky 2014, arXiv:1404.5997, and Malladi et al. 2022, arXiv:2205.10287 (for Adam). Meant as a factor:
 * {product: [{use: batch-rule, reference: 256}, {use: warmup, steps: 500}, cosine]}.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(integer, reference, 256, "[1, inf) samples", "batch that the base is meant for")                                 \
    X(choice, rule, linear, "linear | sqrt", "how it grows with the batch")                                            \
    TN_STEPS_ROW(X)
TN_DECLARE(batch_rule, HYPER)

static double batch_rule_value(const batch_rule *h, const tn_position *at)
{
    double ratio = at->batch > 0 ? at->batch / (double)h->reference : 1;
    return at->base * (h->rule == 0 ? ratio : sqrt(ratio));
}

TN_SCHEDULE(batch_rule, HYPER, "The base for another batch size",
            TN_PAPER("arXiv:1706.02677, arXiv:1404.5997")
                TN_FORMULA("base batch/reference, or base (batch/reference)^1/2"))
TN_PLUGIN("org.tenon.batch-rule", "0.1.0", "Apache-2.0", batch_rule)
