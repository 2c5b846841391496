/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_model.c: models, with their defaults, for batches of features and of images.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/check/gemm.h"
#include "host/check/rules_graph.h"
#include "host/graph/graph.h"

#define NODES_MOST 4096
#define BATCH      6

bool tn_check_is_model(const tn_check_subject *subject)
{
    return subject->entry && strcmp(subject->entry->interface, TN_MODEL) == 0;
}

/* ---- what data sets offer ---- */

static const struct {
    int32_t ndim;
    int64_t shape[4];        /* with the batch */
    int64_t classes, target; /* numbers of a real target */
} offers[] = {{2, {BATCH, 20}, 10, 0},
              {2, {BATCH, 20}, 0, 3},
              {4, {BATCH, 1, 28, 28}, 10, 0},
              {4, {BATCH, 3, 32, 32}, 10, 0},
              {3, {BATCH, 12, 16}, 10, 0}};
#define OFFERS (sizeof offers / sizeof *offers)

static tn_model_input input_of(size_t offer)
{
    return (tn_model_input){.struct_size = sizeof(tn_model_input),
                            .ndim = offers[offer].ndim,
                            .shape = offers[offer].shape,
                            .classes = offers[offer].classes,
                            .target_ndim = offers[offer].classes ? 0 : 1,
                            .target_shape = offers[offer].classes ? NULL : &offers[offer].target};
}

/* ---- a builder that follows the shapes ---- */

typedef struct {
    char name[128];
    int32_t ndim;
    int64_t shape[TN_MAX_DIMS];
    int32_t is_read;
} station;

typedef struct {
    const tn_check_subject *subject;
    tn_instance *model;
    tn_model table;
    station *nodes;
    int64_t count, calls, fails_at; /* the call that is refused; -1: none */
    int32_t failed;                 /* of the first call that failed */
    char fault[400];                /* what is wrong with the calls; "": nothing */
    tn_error err;
    tn_text notes; /* one line a call */
} site;

static int64_t settle(site *s, int32_t status)
{
    s->failed = s->failed ? s->failed : status;
    return -status;
}

static int64_t blame(site *s, const char *format, ...) TN_PRINTF(2, 3);
static int64_t blame(site *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!*s->fault)
        vsnprintf(s->fault, sizeof s->fault, format, arguments);
    va_end(arguments);
    return settle(s, TN_E_INVALID);
}

static int32_t keep_output(void *host, int32_t ndim, const int64_t *shape)
{
    station *node = host;
    if (ndim < 1 || ndim > TN_MAX_DIMS)
        return TN_E_INVALID;
    node->ndim = ndim;
    memcpy(node->shape, shape, (size_t)ndim * sizeof *shape);
    return TN_OK;
}

static int32_t pass_weight(void *host, const tn_weight *weight)
{
    (void)host, (void)weight;
    return TN_OK;
}

static int32_t pass_buffer(void *host, const char *name, int32_t ndim, const int64_t *shape, double initial)
{
    (void)host, (void)name, (void)ndim, (void)shape, (void)initial;
    return TN_OK;
}

static int32_t pass_saved(void *host, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    (void)host, (void)dtype, (void)ndim, (void)shape;
    return TN_OK;
}

static int32_t pass_workspace(void *host, int64_t bytes)
{
    (void)host, (void)bytes;
    return TN_OK;
}

static int32_t infer(site *s, const tn_instance *layer, station *node, const int64_t *inputs, int64_t count)
{
    tn_tensor x[8];
    tn_layer table = {.struct_size = sizeof table};
    tn_layer_planner planner = {sizeof planner, 0,           node,       keep_output,
                                pass_weight,    pass_buffer, pass_saved, pass_workspace};
    int32_t status = tn_registry_load(s->subject->registry, layer->entry, &table, sizeof table, &s->err);
    if (status != TN_OK)
        return status;
    for (int64_t i = 0; i < count; i++)
        x[i] = (tn_tensor){.device = {TN_CPU, 0},
                           .ndim = s->nodes[inputs[i]].ndim,
                           .dtype = {TN_FLOAT, 32, 1},
                           .shape = s->nodes[inputs[i]].shape};
    return table.infer(layer->hyper, x, (int32_t)count, &planner, &s->err);
}

static bool is_taken(const site *s, const char *name)
{
    for (int64_t i = 1; i < s->count; i++)
        if (strcmp(s->nodes[i].name, name) == 0)
            return true;
    return false;
}

static int64_t check_call(site *s, const char *instance, const int64_t *inputs, int64_t count)
{
    if (!instance || !*instance || strlen(instance) >= sizeof s->nodes->name)
        return blame(s, "a layer has no name, or one of 128 bytes and more");
    if (is_taken(s, instance))
        return blame(s, "two layers have the name %s; checkpoints name parameters by it", instance);
    if (count < 1 || count > 8 || s->count == NODES_MOST)
        return blame(s, "layer %s, number %lld, has %lld inputs; 1 to 8 are allowed", instance, (long long)s->count,
                     (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (inputs[i] < 0 || inputs[i] >= s->count)
            return blame(s, "input %lld of layer %s is node %lld, which is no earlier one", (long long)i, instance,
                         (long long)inputs[i]);
    return TN_OK;
}

static int64_t add(site *s, const tn_instance *layer, const char *instance, const int64_t *inputs, int64_t count)
{
    station *node = &s->nodes[s->count];
    int64_t status = check_call(s, instance, inputs, count);
    if (status != TN_OK)
        return status;
    if (strcmp(layer->entry->interface, TN_LAYER) != 0)
        return blame(s, "layer %s is %s/%s, which is no layer", instance, layer->info->kind, layer->info->name);
    memset(node, 0, sizeof *node);
    strcpy(node->name, instance);
    int32_t inferred = infer(s, layer, node, inputs, count);
    if (inferred != TN_OK || node->ndim == 0)
        return settle(s, inferred ? inferred : TN_E_PLUGIN);
    for (int64_t i = 0; i < count; i++) {
        s->nodes[inputs[i]].is_read = 1;
        tn_text_addf(&s->notes, " <- %lld", (long long)inputs[i]);
    }
    tn_text_add(&s->notes, "\n");
    return s->count++;
}

static bool is_refused(site *s)
{
    bool refused = s->calls == s->fails_at;
    s->calls++;
    return refused || s->failed;
}

static int64_t on_layer(void *host, const char *kind, const char *name, const char *instance,
                        const tn_setting *settings, int64_t setting_count, const int64_t *inputs, int64_t input_count)
{
    site *s = host;
    tn_instance *layer = NULL;
    if (is_refused(s))
        return settle(s, tn_error_set(&s->err, TN_E_MEMORY, "refused on trial"));
    tn_text_addf(&s->notes, "%s/%s %s", kind, name, instance ? instance : "");
    for (int64_t i = 0; i < setting_count; i++)
        tn_text_addf(&s->notes, " %s=%s", settings[i].name, settings[i].value);
    int32_t status = tn_instance_create(s->subject->registry, kind, name, 32, "check", settings, (size_t)setting_count,
                                        &layer, &s->err);
    if (status != TN_OK)
        return settle(s, status);
    int64_t node = add(s, layer, instance, inputs, input_count);
    tn_instance_free(layer);
    return node;
}

static int64_t on_child(void *host, int64_t handle, const char *instance, const int64_t *inputs, int64_t input_count)
{
    site *s = host;
    if (is_refused(s))
        return settle(s, tn_error_set(&s->err, TN_E_MEMORY, "refused on trial"));
    if (handle < 0 || handle >= (int64_t)s->model->child_count)
        return blame(s, "child %lld of layer %s is none of the model's", (long long)handle, instance ? instance : "");
    tn_text_addf(&s->notes, "child %lld %s", (long long)handle, instance ? instance : "");
    return add(s, s->model->children[handle], instance, inputs, input_count);
}

static int64_t on_shape(void *host, int64_t node, int64_t *ret)
{
    site *s = host;
    if (node < 0 || node >= s->count)
        return blame(s, "it asks for the shape of node %lld, which is not there", (long long)node);
    memcpy(ret, s->nodes[node].shape, (size_t)s->nodes[node].ndim * sizeof *ret);
    return s->nodes[node].ndim;
}

/* ---- building ---- */

static bool open_site(const tn_check_subject *subject, tn_check_finding *finding, site *s)
{
    tn_error err = {0};
    const tn_entry_info *entry = subject->entry;
    *s = (site){.subject = subject, .table = {.struct_size = sizeof s->table}, .fails_at = -1};
    if (!tn_check_load(subject, &s->table, sizeof s->table, finding))
        return false;
    s->nodes = tn_alloc(NODES_MOST, sizeof *s->nodes);
    if (!s->table.build)
        tn_check_fail(finding, "its table lacks build");
    else if (!s->nodes ||
             tn_instance_create(subject->registry, entry->kind, entry->name, entry->real ? entry->real : 32,
                                entry->name, NULL, 0, &s->model, &err) != TN_OK)
        tn_check_skip(finding, "no instance with its defaults: %s", err.msg);
    return finding->verdict == TN_CHECK_PASSED;
}

/* The output node, or a negative status; words in *words. */
static int64_t build(site *s, const tn_model_input *input, tn_error *words)
{
    const tn_builder builder = {sizeof builder, 0, s, on_layer, on_child, on_shape};
    s->count = 1;
    s->calls = 0;
    s->failed = TN_OK;
    *s->fault = '\0';
    tn_text_free(&s->notes);
    s->nodes[0] = (station){.name = "the batch", .ndim = input->ndim};
    memcpy(s->nodes[0].shape, input->shape, (size_t)input->ndim * sizeof *input->shape);
    if (words)
        *words = (tn_error){0};
    tn_check_stage(s->subject, "build%s", s->fails_at >= 0 ? ", a layer being refused" : "");
    int64_t node = s->table.build(s->model->hyper, input, &builder, words);
    tn_check_stage(s->subject, NULL);
    return node;
}

/* The first offer that it takes; -1 after a skip or a failure. */
static int find_offer(site *s, tn_check_finding *finding)
{
    tn_error words = {0};
    for (size_t i = 0; i < OFFERS; i++) {
        const tn_model_input input = input_of(i);
        int64_t node = build(s, &input, &words);
        if (*s->fault || (node >= 0 && s->failed))
            tn_check_skip(finding, "what it asks of the builder is wrong, see model-builds and model-failure");
        if (finding->verdict != TN_CHECK_PASSED)
            return -1;
        if (node >= 0)
            return (int)i;
    }
    tn_check_skip(finding, "with its defaults it takes none of the batches that were tried; it said: %s",
                  *words.msg ? words.msg : s->err.msg);
    return -1;
}

/* ---- rules ---- */

static void check_output(site *s, int64_t output, const tn_model_input *input, tn_check_finding *finding)
{
    const station *last = &s->nodes[output];
    int64_t numbers = input->classes ? input->classes : input->target_shape[0];
    for (int64_t i = 1; i < s->count; i++)
        if (i != output && !s->nodes[i].is_read)
            tn_check_fail(finding, "nothing reads layer %s, which is not the output", s->nodes[i].name);
    if (output != s->count - 1)
        tn_check_fail(finding, "its output is node %lld, needed the last one, %lld", (long long)output,
                      (long long)s->count - 1);
    else if (last->shape[0] != BATCH || last->shape[last->ndim - 1] != numbers)
        tn_check_fail(finding, "its output, %s, has a last extent of %lld, needed %lld, a number for each %s",
                      last->name, (long long)last->shape[last->ndim - 1], (long long)numbers,
                      input->classes ? "class" : "one of a target");
}

void tn_check_model_builds(const tn_check_subject *subject, tn_check_finding *finding)
{
    static site s;
    if (!open_site(subject, finding, &s))
        return;
    int64_t taken = 0;
    tn_error words = {0};
    for (size_t i = 0; i < OFFERS && finding->verdict == TN_CHECK_PASSED; i++) {
        const tn_model_input input = input_of(i);
        int64_t node = build(&s, &input, &words);
        if (*s.fault)
            tn_check_fail(finding, "%s", s.fault);
        else if (node >= s.count)
            tn_check_fail(finding, "its output is node %lld of %lld", (long long)node, (long long)s.count);
        else if (node >= 0)
            check_output(&s, node, &input, finding);
        else if (!s.failed && !*words.msg)
            tn_check_fail(finding, "it refuses a batch of %d axes with %lld classes and does not say why", input.ndim,
                          (long long)input.classes);
        taken += node >= 0;
        if (node < 0)
            build(&s, &input, NULL);
    }
    if (!taken)
        tn_check_skip(finding, "with its defaults it takes none of the batches that were tried; it said: %s",
                      *words.msg ? words.msg : s.err.msg);
}

void tn_check_model_repeat(const tn_check_subject *subject, tn_check_finding *finding)
{
    static site s;
    if (!open_site(subject, finding, &s))
        return;
    int offer = find_offer(&s, finding);
    if (offer < 0)
        return;
    const tn_model_input input = input_of((size_t)offer);
    build(&s, &input, NULL);
    tn_text first = s.notes;
    s.notes = (tn_text){0};
    build(&s, &input, NULL);
    if (strcmp(tn_text_string(&first), tn_text_string(&s.notes)) != 0)
        tn_check_fail(finding,
                      "built again with the same arguments it is another graph: a run could not go on from its "
                      "checkpoint");
}

void tn_check_model_failure(const tn_check_subject *subject, tn_check_finding *finding)
{
    static site s;
    if (!open_site(subject, finding, &s))
        return;
    int offer = find_offer(&s, finding);
    int64_t calls = s.calls;
    for (int64_t k = 0; offer >= 0 && k < calls && finding->verdict == TN_CHECK_PASSED; k++) {
        const tn_model_input input = input_of((size_t)offer);
        s.fails_at = k;
        if (build(&s, &input, NULL) >= 0)
            tn_check_fail(finding,
                          "the builder refuses call %lld of %lld, and build returns a node; hand the negative "
                          "status on",
                          (long long)k + 1, (long long)calls);
        else if (*s.fault)
            tn_check_fail(finding, "the builder refuses call %lld of %lld, after which %s", (long long)k + 1,
                          (long long)calls, s.fault);
    }
}

/* ---- in the host's own graph ---- */

static int32_t plain_gemm(const tn_gemm *gemm, tn_error *err)
{
    (void)err;
    tn_plain_gemm(gemm);
    return TN_OK;
}

static const tn_backend plain_backend = {.struct_size = sizeof(tn_backend), .device = TN_CPU, .gemm = plain_gemm};

static void fill_batch(tn_graph *graph, size_t offer)
{
    int64_t n = BATCH;
    for (int32_t i = 1; i < offers[offer].ndim; i++)
        n *= offers[offer].shape[i];
    tn_random_uniform(1, 0, 0, n, -2, 2, 32, tn_graph_input(graph));
    if (!offers[offer].classes)
        tn_random_uniform(2, 0, 0, BATCH * offers[offer].target, -1, 1, 32, tn_graph_target(graph));
    for (int64_t i = 0; offers[offer].classes && i < BATCH; i++)
        ((int32_t *)tn_graph_target(graph))[i] = (int32_t)(i * 7 % offers[offer].classes);
}

/* Off the values at which parameters start, some of which may be 0. */
static void shake(const tn_parameters *p)
{
    for (int64_t i = 0; i < p->elements; i++) {
        float noise;
        tn_random_uniform(3, 0, i, 1, -0.02, 0.02, 32, &noise);
        ((float *)p->p)[i] += noise;
    }
}

static void check_training(tn_graph *graph, size_t offer, tn_check_finding *finding)
{
    tn_exact sums[TN_SUMS_MAX];
    tn_error err = {0};
    const tn_graph_run run = {.n = BATCH, .flags = TN_TRAIN, .attempt = 1, .seed = 1};
    memset(sums, 0, sizeof sums);
    fill_batch(graph, offer);
    shake(tn_graph_parameters(graph));
    if (tn_graph_run_batch(graph, &run, sums, &err) != TN_OK) {
        tn_check_fail(finding, "a batch of %d samples can not be run: %s", BATCH, err.msg);
        return;
    }
    double loss = tn_exact_value(&sums[TN_SUM_LOSS]);
    if (!isfinite(loss))
        tn_check_fail(finding, "near where it begins, the loss of random samples is %g", loss);
    const tn_parameters *p = tn_graph_parameters(graph);
    for (int64_t i = 0; i < p->count; i++) {
        const float *g = (const float *)p->g + p->at[i];
        int64_t zeros = 0;
        for (int64_t k = 0; k < p->list[i].n; k++) {
            zeros += g[k] == 0;
            if (!isfinite(g[k]))
                tn_check_fail(finding, "near where it begins, the gradient of %s is %g", p->list[i].name, (double)g[k]);
        }
        if (zeros == p->list[i].n && p->list[i].n > 0)
            tn_check_fail(finding,
                          "near where it begins, all of the gradient of %s is 0: the loss does not depend on it",
                          p->list[i].name);
    }
}

void tn_check_model_trains(const tn_check_subject *subject, tn_check_finding *finding)
{
    static site s;
    tn_instance *loss = NULL;
    tn_graph *graph = NULL;
    tn_error err = {0};
    static const tn_services services = {.struct_size = sizeof services};
    if (!open_site(subject, finding, &s))
        return;
    int offer = find_offer(&s, finding);
    if (offer < 0)
        return;
    const char *name = offers[offer].classes ? "cross-entropy" : "mse";
    if (tn_instance_create(subject->registry, "loss", name, 32, "loss", NULL, 0, &loss, &err) != TN_OK) {
        tn_check_skip(finding, "%s", err.msg);
        return;
    }
    const tn_graph_options options = {.registry = subject->registry,
                                      .model = s.model,
                                      .loss = loss,
                                      .real = 32,
                                      .batch = BATCH,
                                      .ndim = offers[offer].ndim - 1,
                                      .shape = offers[offer].shape + 1,
                                      .classes = offers[offer].classes,
                                      .target_ndim = offers[offer].classes ? 0 : 1,
                                      .target_shape = &offers[offer].target,
                                      .backend = &plain_backend,
                                      .services = &services,
                                      .seed = 1};
    tn_check_stage(subject, "making the graph");
    if (tn_graph_create(&options, &graph, &err) != TN_OK) {
        tn_check_fail(finding, "the host can not make its graph: %s", err.msg);
        return;
    }
    tn_check_stage(subject, "running a batch");
    check_training(graph, (size_t)offer, finding);
    tn_graph_destroy(graph);
}
