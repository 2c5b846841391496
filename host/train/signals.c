/* SPDX-License-Identifier: Apache-2.0
 *
 * signals.c: what links ask for beyond the gradient: a second one, products with the Hessian, taps. Each covers this
 * attempt's window again, with its samples and random numbers; statistics of layers are frozen.
 */
#include <string.h>

#include <tenon/minimizer.h>

#include "host/base/error.h"
#include "host/train/internal.h"

static int32_t look_again(tn_trainer *t, const tn_graph_run *run, void *arg, tn_error *err)
{
    return tn_graph_run_batch(t->graph, run, arg, err);
}

static int32_t gradient(void *user, double *ret_loss, tn_error *err)
{
    tn_trainer *t = user;
    tn_exact sums[TN_SUMS_MAX];
    for (size_t i = 0; i < TN_SUMS_MAX; i++)
        tn_exact_clear(&sums[i]);
    int32_t status = tn_window_visit(t, TN_FREEZE, t->seed, look_again, sums, err);
    if (status == TN_OK)
        status = tn_processes_join_arena(t, tn_graph_parameters(t->graph)->g, err);
    if (status == TN_OK)
        status = tn_processes_join_sums(t, sums, err);
    if (status == TN_OK)
        *ret_loss = tn_exact_value(&sums[TN_SUM_LOSS]) / t->count;
    return status;
}

typedef struct {
    const void *v;
    void *ret;
} product_look;

static int32_t look_along(tn_trainer *t, const tn_graph_run *run, void *arg, tn_error *err)
{
    const product_look *look = arg;
    return tn_graph_product(t->graph, run, look->v, look->ret, err);
}

static int32_t product(void *user, const void *v, void *ret, tn_error *err)
{
    tn_trainer *t = user;
    product_look look = {v, ret};
    int32_t status = tn_window_visit(t, TN_FREEZE, 1 / t->count, look_along, &look, err);
    return status == TN_OK ? tn_processes_join_arena(t, ret, err) : status;
}

/* Whether the link is a rule that asks for products. */
static int32_t asks_for_products(const tn_trainer *t, const tn_instance *link, int32_t *ret, tn_error *err)
{
    tn_minimizer table = {0};
    *ret = 0;
    if (strcmp(link->info->interface, TN_MINIMIZER) != 0)
        return TN_OK;
    int32_t status = tn_registry_load(t->options.registry, link->entry, &table, sizeof table, err);
    *ret = table.products;
    return status;
}

int32_t tn_signals_open(tn_trainer *t, tn_error *err)
{
    int32_t status = TN_OK, asks;
    t->signals = (tn_signals){.user = t, .gradient = gradient, .taps = 1};
    for (size_t i = 0; i < t->e->update_count && status == TN_OK; i++) {
        status = asks_for_products(t, t->e->update[i], &asks, err);
        if (status != TN_OK || !asks)
            continue;
        status = tn_graph_offers_tangents(t->graph, err);
        if (status != TN_OK)
            return tn_error_wrap(err, status, "%s asks for products with the Hessian", t->e->update[i]->path);
        t->signals.product = product;
    }
    return status;
}

int32_t tn_signals_check(tn_trainer *t, tn_error *err)
{
    int32_t status = tn_chain_tapping(t->chain) == TN_TAP_SAMPLED ? tn_graph_offers_samples(t->graph, err) : TN_OK;
    return status == TN_OK ? TN_OK
                           : tn_error_wrap(err, status, "update taps layers under targets drawn from the model");
}
