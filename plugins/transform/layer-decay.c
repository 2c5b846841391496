/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer-wise learning rates: the step of a parameter is multiplied by decay for each layer that lies above it. Howard
 * and Ruder, ACL 2018, arXiv:1801.06146, section 3.2; Bao et al., ICLR 2022, arXiv:2106.08254, whose counting is this:
 * embeddings are 0, block i of `layers` is i + 1, all else (the head, a last norm) is layers + 1.
 *
 * A block's number is the first one that stands between the points of the parameter's name: hidden.3.linear.weight. It
 * multiplies the whole step, as a learning rate does, except decoupled decay, which keeps the rule's own.
 */
#include <stdlib.h>

#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, decay, 0.75, "(0, 1]", "what each layer above takes from the step")                                        \
    X(integer, layers, 12, "[1, inf)", "numbered layers of the model")
TN_DECLARE(layer_decay, HYPER)

/* The first part of a name that is a number; -1: none. */
static int64_t layer_decay_number(const char *name)
{
    while (name) {
        size_t digits = strspn(name, "0123456789");
        if (digits > 0 && digits < 10 && (name[digits] == '.' || name[digits] == '\0'))
            return atol(name);
        name = strchr(name, '.');
        name += name != NULL;
    }
    return -1;
}

/* What is neither an embedding nor numbered stands above all layers, however many. */
#define LAYER_DECAY_TOP INT64_MAX
static int64_t layer_decay_depth(const tn_parameter *parameter)
{
    int64_t number = layer_decay_number(parameter->name);
    if (parameter->role == TN_ROLE_EMBEDDING)
        return 0;
    return parameter->role == TN_ROLE_HEAD || number < 0 ? LAYER_DECAY_TOP : number + 1;
}

static int32_t layer_decay_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                                tn_error *err)
{
    int64_t layers = ((const layer_decay *)hyper)->layers, depth = layer_decay_depth(parameter);
    (void)planner;
    if (depth <= layers || depth == LAYER_DECAY_TOP)
        return TN_OK;
    return tn_fail(err, TN_E_INVALID,
                   "its layer is %lld, counted from 0, but 'layers' is %lld; give the number of layers",
                   (long long)depth - 1, (long long)layers);
}

TN_CLONES static void layer_decay_loop(int64_t n, tn_real factor, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] *= factor;
}

static void layer_decay_update(const tn_piece *piece)
{
    const layer_decay *h = (const layer_decay *)piece->hyper;
    int64_t depth = layer_decay_depth(piece->parameter), above = depth <= h->layers ? h->layers + 1 - depth : 0;
    if (above > 0 && h->decay < 1)
        layer_decay_loop(piece->n, (tn_real)pow(h->decay, (double)above), (tn_real *)piece->d);
}

static const tn_optimizer layer_decay_table = {
    .struct_size = sizeof(tn_optimizer), .plan = layer_decay_plan, .update = layer_decay_update};
TN_LINK(layer_decay, "transform", HYPER, TN_NO_SLOTS, "Smaller steps for lower layers",
        TN_STAGE("update") TN_GRAIN("element") TN_PAPER("arXiv:2106.08254")
            TN_FORMULA("d = decay^(layers + 1 - layer) d"),
        layer_decay_table)
TN_PLUGIN("org.tenon.layer-decay", "0.1.0", "Apache-2.0", layer_decay)
