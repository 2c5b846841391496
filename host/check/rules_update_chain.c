/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_update_chain.c: a link or minimizer in the host's own chain, with sgd as the rule where it is none itself, on a
 * loss whose gradient and products with the Hessian are known.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/check/motion.h"
#include "host/check/rules_update.h"
#include "host/update/chain.h"

#define TENSORS 6
#define STEPS   4
#define SAMPLES 8

typedef struct {
    int32_t ndim;
    int64_t shape[4];
    const char *layer;
} shape_row;

static const shape_row all[] = {{.ndim = 0, .layer = "a"},
                                {.ndim = 1, .shape = {17}, .layer = "b"},
                                {.ndim = 1, .shape = {4097}, .layer = "c"},
                                {.ndim = 2, .shape = {30, 500}, .layer = "d"},
                                {.ndim = 4, .shape = {6, 3, 5, 5}, .layer = "e"}};
static const shape_row matrices[] = {{.ndim = 2, .shape = {24, 17}, .layer = "a"},
                                     {.ndim = 2, .shape = {5, 40}, .layer = "b"}};
static const shape_row layers[] = {{.ndim = 2, .shape = {12, 7}, .layer = "a"},
                                   {.ndim = 1, .shape = {12}, .layer = "a"},
                                   {.ndim = 2, .shape = {5, 9}, .layer = "b"}};

typedef struct {
    tn_parameters parameters;
    tn_parameter list[TENSORS];
    char names[TENSORS][16];
    int64_t at[TENSORS];
    uint8_t present[TENSORS];
    tn_instance *links[2];
    size_t link_count;
    tn_pool *pool;
    tn_compute_host compute;
    tn_backend backend;
    tn_signals signals;
    tn_chain *chain;
    uint32_t real;
    int32_t skipped;
} world;

/* ---- the loss: a sum of a (p - b)^2 / 2 ---- */

static double weight(int64_t element) { return 1 + 0.5 * tn_motion_noise(1, element, 1); }

static double gradient_into(const world *w, void *g)
{
    double loss = 0;
    for (int64_t i = 0; i < w->parameters.elements; i++) {
        double away = tn_motion_get(w->real, w->parameters.p, i) - tn_motion_noise(2, i, 2);
        tn_motion_set(w->real, g, i, weight(i) * away);
        loss += 0.5 * weight(i) * away * away;
    }
    return loss;
}

static int32_t give_gradient(void *user, double *ret_loss, tn_error *err)
{
    world *w = user;
    (void)err;
    *ret_loss = gradient_into(w, w->parameters.g);
    return TN_OK;
}

static int32_t give_product(void *user, const void *v, void *ret, tn_error *err)
{
    const world *w = user;
    (void)err;
    for (int64_t i = 0; i < w->parameters.elements; i++)
        tn_motion_set(w->real, ret, i, weight(i) * tn_motion_get(w->real, v, i));
    return TN_OK;
}

/* ---- parameters ---- */

static void add_tensor(world *w, const shape_row *row)
{
    int64_t i = w->parameters.count++, n = 1;
    tn_parameter *p = &w->list[i];
    for (int32_t a = 0; a < row->ndim; a++)
        n *= row->shape[a];
    snprintf(w->names[i], sizeof *w->names, "p%d", (int)i);
    *p = (tn_parameter){.struct_size = sizeof *p,
                        .role = row->ndim >= 2 ? TN_ROLE_WEIGHT : TN_ROLE_BIAS,
                        .name = w->names[i],
                        .layer = row->layer,
                        .ndim = row->ndim,
                        .n = n,
                        .fan_in_axis = row->ndim >= 2 ? 1 : -1,
                        .fan_out_axis = row->ndim >= 2 ? 0 : -1,
                        .tied = -1,
                        .tensor_axis = -1,
                        .replicas = 1,
                        .dtype = {TN_FLOAT, (uint8_t)w->real, 1}};
    memcpy(p->shape, row->shape, sizeof row->shape);
    w->present[i] = 1;
    w->at[i] = w->parameters.elements;
    w->parameters.elements += (n + TN_ALIGN_ELEMENTS - 1) / TN_ALIGN_ELEMENTS * TN_ALIGN_ELEMENTS;
}

static int32_t make_parameters(world *w, const shape_row *rows, size_t count, tn_error *err)
{
    w->parameters = (tn_parameters){.real = w->real, .list = w->list, .at = w->at, .present = w->present};
    for (size_t i = 0; i < count; i++)
        add_tensor(w, &rows[i]);
    size_t bytes = (size_t)w->parameters.elements * (w->real / 8);
    w->parameters.p = tn_alloc_aligned(bytes);
    w->parameters.g = tn_alloc_aligned(bytes);
    if (!w->parameters.p || !w->parameters.g)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a chain");
    for (int64_t i = 0; i < w->parameters.elements; i++)
        tn_motion_set(w->real, w->parameters.p, i, tn_motion_noise(0, i, 0));
    return TN_OK;
}

/* ---- the chain ---- */

static int32_t add_link(const tn_check_subject *subject, world *w, const char *kind, const char *name,
                        const tn_setting *rows, size_t count, tn_error *err)
{
    char path[128];
    snprintf(path, sizeof path, "update.%.100s", name);
    int32_t status =
        tn_instance_create(subject->registry, kind, name, w->real, path, rows, count, &w->links[w->link_count], err);
    w->link_count += status == TN_OK;
    return status;
}

static int32_t add_links(const tn_check_subject *subject, const tn_variant *variant, world *w, tn_error *err)
{
    static const tn_setting slow = {"lr", "0.01"};
    const char *stage = tn_fact_text(subject->info->facts, "stage", "");
    bool is_rule = strcmp(stage, "rule") == 0,
         is_before = strcmp(stage, "source") == 0 || strcmp(stage, "gradient") == 0;
    int32_t status = TN_OK;
    if (!is_rule && !is_before)
        status = add_link(subject, w, "optimizer", "sgd", &slow, 1, err);
    if (status == TN_OK)
        status = add_link(subject, w, subject->entry->kind, subject->entry->name, variant->rows, variant->count, err);
    if (status == TN_OK && is_before)
        status = add_link(subject, w, "optimizer", "sgd", &slow, 1, err);
    return status;
}

static int32_t load_backend(const tn_check_subject *subject, world *w, tn_error *err)
{
    const tn_entry_info *entry;
    int32_t status = tn_registry_find(subject->registry, "backend", "reference", "cpu", 0, &entry, err);
    if (status == TN_OK)
        status = tn_registry_load(subject->registry, entry, &w->backend, sizeof w->backend, err);
    w->compute = (tn_compute_host){.backend = &w->backend, .pool = w->pool};
    return status;
}

static int32_t make_chain(const tn_check_subject *subject, world *w, tn_error *err)
{
    static const tn_services services = {.struct_size = sizeof services};
    const char *grain = tn_fact_text(subject->info->facts, "grain", "");
    bool is_matrix = strcmp(grain, "matrix") == 0 || strcmp(grain, "layer") == 0;
    int32_t status = is_matrix ? load_backend(subject, w, err) : TN_OK;
    w->signals = (tn_signals){w, give_gradient, give_product, 1};
    const tn_chain_options options = {.registry = subject->registry,
                                      .links = w->links,
                                      .link_count = w->link_count,
                                      .parameters = &w->parameters,
                                      .pool = w->pool,
                                      .services = &services,
                                      .seed = 1,
                                      .compute = is_matrix ? &w->compute : NULL,
                                      .signals = &w->signals};
    return status ? status : tn_chain_create(&options, &w->chain, err);
}

static int32_t open_world(const tn_check_subject *subject, const tn_variant *variant, const shape_row *rows,
                          size_t count, int32_t threads, world *w, tn_error *err)
{
    *w = (world){.real = subject->entry->real ? subject->entry->real : 32};
    int32_t status = tn_pool_create(threads, &w->pool, err);
    if (status == TN_OK)
        status = make_parameters(w, rows, count, err);
    if (status == TN_OK)
        status = add_links(subject, variant, w, err);
    return status ? status : make_chain(subject, w, err);
}

static void close_world(world *w)
{
    tn_chain_destroy(w->chain);
    for (size_t i = 0; i < w->link_count; i++)
        tn_instance_free(w->links[i]);
    tn_free(w->parameters.p);
    tn_free(w->parameters.g);
    tn_pool_destroy(w->pool);
}

/* ---- steps ---- */

/* Numbers that differ by step in [samples, columns]. */
static void fill_tap(const world *w, void *x, int64_t columns, int64_t use)
{
    for (int64_t i = 0; i < SAMPLES * columns; i++)
        tn_motion_set(w->real, x, i, tn_motion_noise(3, i, use));
}

static void tap(const world *w, int64_t step)
{
    double x[SAMPLES * 64], dy[SAMPLES * 64];
    for (int64_t i = 0; i < w->parameters.count; i++) {
        const tn_parameter *p = &w->list[i];
        int64_t of_x[] = {SAMPLES, p->shape[1]}, of_dy[] = {SAMPLES, p->shape[0]};
        int64_t x_strides[] = {p->shape[1], 1}, dy_strides[] = {p->shape[0], 1};
        const tn_dtype dtype = {TN_FLOAT, (uint8_t)w->real, 1};
        if (p->ndim != 2)
            continue;
        fill_tap(w, x, p->shape[1], 2 * step);
        fill_tap(w, dy, p->shape[0], 2 * step + 1);
        const tn_tensor tx = {x, {TN_CPU, 0}, 2, dtype, of_x, x_strides, 0};
        const tn_tensor ty = {dy, {TN_CPU, 0}, 2, dtype, of_dy, dy_strides, 0};
        tn_chain_tap(w->chain, i, &tx, &ty, 0.125);
    }
}

/* In the third step the first parameter has no gradient, where that is allowed: it is left alone. */
static int32_t take_steps(world *w, bool may_lack, tn_error *err)
{
    int32_t status = TN_OK;
    for (int64_t step = 0; step < STEPS && status == TN_OK; step++) {
        tn_step_result result;
        w->present[0] = !(may_lack && step == 2);
        if (tn_chain_tapping(w->chain) != TN_TAP_NONE)
            tap(w, step);
        const tn_step call = {.scale = 1, .loss = gradient_into(w, w->parameters.g), .attempt = step};
        status = tn_chain_step(w->chain, &call, &result, err);
        w->skipped += status == TN_OK && !result.committed && !result.rejected;
    }
    return status;
}

/* ---- comparing ---- */

static void compare(const world *a, const world *b, tn_check_finding *finding, const tn_motion_options *options)
{
    tn_chain_slot x, y;
    for (int64_t i = 0; i < a->parameters.count; i++) {
        size_t at = (size_t)a->at[i] * (a->real / 8), bytes = (size_t)a->list[i].n * (a->real / 8);
        if (memcmp((char *)a->parameters.p + at, (char *)b->parameters.p + at, bytes) != 0)
            tn_motion_fail(options, finding, "%s differs between one thread and four", a->list[i].name);
        for (int64_t j = 0; j < a->list[i].n && finding->verdict == TN_CHECK_PASSED; j++)
            if (!isfinite(tn_motion_get(a->real, a->parameters.p, a->at[i] + j)))
                tn_motion_fail(options, finding, "element %lld of %s is %g after %d steps on a quadratic loss",
                               (long long)j, a->list[i].name, tn_motion_get(a->real, a->parameters.p, a->at[i] + j),
                               STEPS);
    }
    for (size_t s = 0; s < tn_chain_slot_count(a->chain); s++) {
        tn_chain_slot_at(a->chain, s, &x);
        tn_chain_slot_at(b->chain, s, &y);
        if (x.persistent && memcmp(x.data, y.data, (size_t)x.bytes) != 0)
            tn_motion_fail(options, finding, "slot '%s' differs between one thread and four", x.slot);
    }
    if (a->skipped)
        tn_motion_fail(options, finding, "%d of %d steps are skipped though all gradients are finite", a->skipped,
                       STEPS);
}

/* ---- the rule ---- */

static int32_t drive(const tn_check_subject *subject, const tn_variant *variant, const shape_row *rows, size_t count,
                     tn_check_finding *finding, tn_error *err)
{
    const tn_motion_options options = {.variant = variant};
    bool may_lack = tn_motion_kind_of(subject) != &tn_motion_minimizer;
    world one, four;
    int32_t status = open_world(subject, variant, rows, count, 1, &one, err);
    if (status == TN_OK) {
        status = open_world(subject, variant, rows, count, TN_MOTION_THREADS, &four, err);
        if (status == TN_OK)
            status = take_steps(&one, may_lack, err);
        if (status == TN_OK)
            status = take_steps(&four, may_lack, err);
        if (status == TN_OK)
            compare(&one, &four, finding, &options);
        close_world(&four);
    }
    close_world(&one);
    return status;
}

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

static bool is_refusal(int32_t status)
{
    return status == TN_E_INVALID || status == TN_E_UNSUPPORTED || status == TN_E_NOT_FOUND;
}

static void chain_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    const char *grain = tn_fact_text(subject->info->facts, "grain", "");
    tn_error err = {0};
    bool is_layer = strcmp(grain, "layer") == 0, is_matrix = strcmp(grain, "matrix") == 0;
    const shape_row *rows = is_layer ? layers : is_matrix ? matrices : all;
    size_t count = is_layer ? COUNT(layers) : is_matrix ? COUNT(matrices) : COUNT(all);
    int32_t status = drive(subject, variant, rows, count, finding, &err);
    if (is_refusal(status) && rows == all) /* it may be for matrices only */
        status = drive(subject, variant, matrices, COUNT(matrices), finding, &err);
    if (status != TN_OK && !(is_refusal(status) && variant->count > 0))
        tn_motion_fail(&options, finding, "%s", err.msg);
}

void tn_check_update_chain(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_error err = {0};
    const tn_entry_info *sgd;
    if (strcmp(tn_fact_text(subject->info->facts, "stage", ""), "rule") != 0 &&
        tn_registry_find(subject->registry, "optimizer", "sgd", "cpu", subject->entry->real, &sgd, &err) != TN_OK) {
        tn_check_skip(finding, "a chain needs a rule beside it: %s", err.msg);
        return;
    }
    static const tn_variant defaults;
    tn_check_stage(subject, "stepping in a chain");
    chain_one(subject, &defaults, finding);
    if (finding->verdict == TN_CHECK_PASSED)
        tn_motion_variants(subject, finding, chain_one);
}
