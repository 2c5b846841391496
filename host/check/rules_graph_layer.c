/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_layer.c: what layers do with the memory that they are lent, and what must not change a bit of it.
 */
#include <math.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/check/count.h"
#include "host/check/lone.h"
#include "host/check/rules_graph.h"

#define BACK (TN_WANT_DX | TN_WANT_DW)

static const uint32_t modes[] = {TN_TRAIN, 0};

static void both_ways(tn_lone *lone, uint32_t flags, int64_t extent)
{
    tn_lone_forward(lone, flags, extent);
    tn_lone_backward(lone, flags | BACK, extent);
}

static void tour(const tn_check_subject *subject, tn_check_finding *finding, void (*visit)(tn_lone *))
{
    tn_lone_each(subject, finding, &(tn_lone_use){.visit = visit, .all = true});
}

/* ---- the plan ---- */

static bool same_shape(const tn_lone_tensor *a, const tn_lone_tensor *b)
{
    return a->view.ndim == b->view.ndim && memcmp(a->shape, b->shape, (size_t)a->view.ndim * sizeof *a->shape) == 0;
}

static bool same_plan(const tn_lone *a, const tn_lone *b)
{
    bool same = a->parameters == b->parameters && a->buffers == b->buffers && a->saveds == b->saveds &&
                a->workspace_bytes == b->workspace_bytes && same_shape(&a->y, &b->y);
    for (int32_t i = 0; same && i < a->parameters; i++)
        same = same_shape(&a->parameter[i], &b->parameter[i]) && !strcmp(a->parameter_name[i], b->parameter_name[i]);
    for (int32_t i = 0; same && i < a->buffers; i++)
        same = same_shape(&a->buffer[i], &b->buffer[i]) && !strcmp(a->buffer_name[i], b->buffer_name[i]) &&
               a->initial[i] == b->initial[i];
    for (int32_t i = 0; same && i < a->saveds; i++)
        same = same_shape(&a->saved[i], &b->saved[i]);
    return same;
}

static void visit_plan(tn_lone *lone)
{
    static tn_lone again;
    tn_error err = {0};
    if (*lone->fault) {
        tn_lone_fail(lone, "%s", lone->fault);
        return;
    }
    int32_t status = tn_lone_open(lone->table, lone->instance, &(tn_lone_use){0}, lone->inputs, lone->x[0].view.ndim,
                                  lone->x[0].shape, &again, &err);
    if (status != TN_OK || !same_plan(lone, &again))
        tn_lone_fail(lone, "asked again, infer plans something else; it must depend on its arguments alone");
    if (status == TN_OK)
        tn_lone_close(&again);
}

/* A refusal without words, or that can not do without a tn_error. */
static void refused(const tn_check_subject *subject, tn_check_finding *finding, const tn_tensor *x, int32_t inputs,
                    const char *words)
{
    (void)subject;
    if (!*words)
        tn_check_fail(finding,
                      "infer refuses %d input%s of %d extents, of which the first is %lld, and gives no reason; fill "
                      "the tn_error with the shape and what is needed",
                      inputs, inputs == 1 ? "" : "s", x->ndim, (long long)x->shape[0]);
}

void tn_check_layer_plan(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_lone_each(subject, finding,
                 &(tn_lone_use){.visit = visit_plan, .all = true, .takes_faults = true, .refused = refused});
}

/* ---- memory ---- */

static void touch_tangents(tn_lone *lone, uint32_t flags)
{
    if (!lone->tangents.forward || !lone->tangents.backward)
        return;
    for (int zero = 0; zero <= 1 && !tn_lone_is_done(lone); zero++) {
        tn_lone_tangent(lone, flags | TN_FREEZE, 0, zero);
        tn_lone_back_tangent(lone, flags | TN_FREEZE | BACK, 0, zero);
    }
}

static void visit_memory(tn_lone *lone)
{
    int64_t planned = lone->planned, batches[] = {planned, (planned + 1) / 2, 1};
    int64_t extent = lone->axis == TN_LONE_ELEMENTS ? 64 : 2;
    for (int b = 0; b < 3; b++) {
        if (b)
            tn_lone_batch(lone, batches[b]);
        for (int m = 0; m < 2 && !tn_lone_is_done(lone); m++) {
            if (!tn_lone_may(lone, modes[m]))
                continue;
            both_ways(lone, modes[m], 0);
            touch_tangents(lone, modes[m]);
            tn_lone_forward(lone, modes[m] | TN_FREEZE, extent);
            tn_lone_backward(lone, modes[m] | TN_WANT_DX, extent);
            tn_lone_backward(lone, modes[m] | TN_WANT_DW | TN_ACCUMULATE, extent);
        }
    }
}

void tn_check_layer_memory(const tn_check_subject *subject, tn_check_finding *finding)
{
    for (int32_t place = TN_GUARD_START; place <= TN_GUARD_END; place++)
        if (finding->verdict == TN_CHECK_PASSED)
            tn_lone_each(subject, finding,
                         &(tn_lone_use){.visit = visit_memory, .all = true, .is_strict = true, .place = place});
}

/* ---- results depend on arguments alone ---- */

/* Memory that is to be set held NaN, then large numbers. */
static void visit_outputs(tn_lone *lone)
{
    for (int m = 0; m < 2 && !tn_lone_is_done(lone); m++) {
        if (!tn_lone_may(lone, modes[m]))
            continue;
        lone->fill = TN_LONE_NAN;
        both_ways(lone, modes[m] | TN_FREEZE, 0);
        tn_lone_copy copy = tn_lone_take(lone, TN_LONE_RESULTS, NULL);
        lone->fill = TN_LONE_LARGE;
        both_ways(lone, modes[m] | TN_FREEZE, 0);
        tn_lone_same(lone, &copy, "it depends on what memory that the call has to set held before, or is not set");
        tn_lone_drop(&copy);
    }
}

void tn_check_layer_outputs(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_outputs);
}

/* The gradients are `times` those of the copy; `why` tells what is wrong else. */
static void check_near(tn_lone *lone, const tn_lone_copy *right, double times, const char *why)
{
    tn_lone_copy now = tn_lone_take(lone, TN_LONE_GRADIENT, NULL);
    double unit = lone->instance->info->real == 64 ? 1e-11 : 3e-5;
    for (int32_t i = 0; i < lone->parameters && !tn_lone_is_done(lone); i++) {
        int64_t n = tn_lone_count(&lone->gradient[i]);
        double *got = tn_lone_values(&lone->gradient[i]), largest = 1;
        tn_lone_put(lone, right);
        for (int64_t j = 0; j < n; j++)
            largest = fmax(largest, fabs(tn_lone_get(&lone->gradient[i], j)));
        for (int64_t j = 0; got && j < n && !tn_lone_is_done(lone); j++) {
            double wanted = times * tn_lone_get(&lone->gradient[i], j);
            if (!(fabs(got[j] - wanted) <= unit * largest))
                tn_lone_fail(lone, "the gradient of %s[%lld] is %.9g, needed %.9g: %s", lone->parameter_name[i],
                             (long long)j, got[j], wanted, why);
        }
        tn_lone_put(lone, &now);
        tn_free(got);
    }
    tn_lone_drop(&now);
}

static void visit_wishes(tn_lone *lone)
{
    if (!tn_lone_may(lone, TN_TRAIN))
        return;
    both_ways(lone, TN_TRAIN, 0);
    tn_lone_copy dx = tn_lone_take(lone, TN_LONE_DX, NULL), dw = tn_lone_take(lone, TN_LONE_GRADIENT, NULL);
    for (int32_t i = 0; i < lone->parameters; i++)
        tn_lone_random(&lone->gradient[i], 7, 1, 2);
    tn_lone_copy before = tn_lone_take(lone, TN_LONE_GRADIENT, NULL);
    tn_lone_backward(lone, TN_TRAIN | TN_WANT_DX, 0);
    if (tn_lone_same(lone, &dx, "it depends on whether TN_WANT_DW is set") && lone->axis != TN_LONE_ROWS)
        tn_lone_same(lone, &before, "backward without TN_WANT_DW must leave it alone");
    tn_lone_backward(lone, TN_TRAIN | TN_WANT_DW, 0);
    if (!tn_lone_is_done(lone))
        tn_lone_same(lone, &dw, "it depends on whether TN_WANT_DX is set");
    if (!tn_lone_is_done(lone)) {
        tn_lone_backward(lone, TN_TRAIN | BACK | TN_ACCUMULATE, 0);
        check_near(lone, &dw, 2, "TN_ACCUMULATE adds to what is there, here that of the same call");
    }
    tn_lone_drop(&dx);
    tn_lone_drop(&dw);
    tn_lone_drop(&before);
}

void tn_check_layer_wishes(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_wishes);
}

/* Forward of a batch, then of another one, then backward of the first with what its forward left. */
static void visit_repeat(tn_lone *lone)
{
    if (!tn_lone_may(lone, TN_TRAIN))
        return;
    uint32_t flags = TN_TRAIN | TN_FREEZE;
    both_ways(lone, flags, 0);
    tn_lone_copy all = tn_lone_take(lone, TN_LONE_RESULTS, NULL),
                 kept = tn_lone_take(lone, TN_LONE_Y | TN_LONE_SAVED, NULL);
    for (int32_t i = 0; i < lone->inputs; i++)
        tn_lone_random(&lone->x[i], 31 + (uint64_t)i, 3, 4);
    lone->context.attempt++;
    both_ways(lone, flags, 0);
    lone->context.attempt--;
    for (int32_t i = 0; i < lone->inputs; i++)
        tn_lone_random(&lone->x[i], 1 + (uint64_t)i, -2, 2);
    tn_lone_put(lone, &kept);
    tn_lone_backward(lone, flags | BACK, 0);
    if (tn_lone_same(lone, &all,
                     "after a call with another batch, backward of the first gives something else; what "
                     "backward needs goes into saved tensors")) {
        tn_lone_forward(lone, flags, 0);
        tn_lone_backward(lone, flags | BACK, 0);
        tn_lone_same(lone, &all,
                     "the same call once more gives something else; a plugin keeps no memory between "
                     "calls");
    }
    tn_lone_drop(&all);
    tn_lone_drop(&kept);
}

void tn_check_layer_repeat(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_repeat);
}

/* ---- pieces ---- */

static void check_cut(tn_lone *lone, uint32_t flags, int64_t cut, const tn_lone_copy *results,
                      const tn_lone_copy *gradients)
{
    both_ways(lone, flags, cut);
    if (!tn_lone_same(lone, results, "results must not depend on how the pieces fall"))
        return;
    if (lone->axis == TN_LONE_ROWS)
        check_near(lone, gradients, 1, "partial gradients add up to those of one piece; each is its own rows' share");
    else
        tn_lone_same(lone, gradients, "results must not depend on how the pieces fall");
}

static void visit_pieces(tn_lone *lone)
{
    static const int64_t element_cuts[] = {64, 192, 640}, other_cuts[] = {1, 2, 48};
    for (int m = 0; m < 2 && lone->axis != TN_LONE_WHOLE && !tn_lone_is_done(lone); m++) {
        uint32_t flags = modes[m] | TN_FREEZE;
        if (!tn_lone_may(lone, modes[m]))
            continue;
        both_ways(lone, flags, 0);
        tn_lone_copy results = tn_lone_take(lone, TN_LONE_Y | TN_LONE_DX, NULL),
                     gradients = tn_lone_take(lone, TN_LONE_GRADIENT, NULL);
        for (int k = 0; k < 3 && !tn_lone_is_done(lone); k++)
            check_cut(lone, flags, lone->axis == TN_LONE_ELEMENTS ? element_cuts[k] : other_cuts[k], &results,
                      &gradients);
        tn_lone_drop(&results);
        tn_lone_drop(&gradients);
    }
}

void tn_check_layer_pieces(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_pieces);
}

/* ---- batches ---- */

static bool is_filled(const tn_lone *lone, const tn_lone_tensor *t, size_t whole)
{
    const unsigned char *bytes = t->view.data;
    for (size_t i = t->bytes; i < whole; i++)
        if (bytes[i] != (unsigned char)lone->fill)
            return false;
    return true;
}

static void check_behind(tn_lone *lone, size_t y, const size_t *dx)
{
    if (!is_filled(lone, &lone->y, y))
        tn_lone_fail(lone, "forward writes y behind the batch, which is smaller than the planned one");
    for (int32_t i = 0; i < lone->inputs; i++)
        if (!is_filled(lone, &lone->dx[i], dx[i]))
            tn_lone_fail(lone, "backward writes dx behind the batch, which is smaller than the planned one");
}

/* Of no rows the sums are 0. */
static void check_empty(tn_lone *lone)
{
    for (int32_t i = 0; i < lone->parameters; i++)
        for (int64_t j = 0; j < tn_lone_count(&lone->gradient[i]); j++)
            if (tn_lone_get(&lone->gradient[i], j) != 0) {
                tn_lone_fail(lone, "of a batch of no rows the gradient of %s[%lld] is %.9g, needed 0",
                             lone->parameter_name[i], (long long)j, tn_lone_get(&lone->gradient[i], j));
                return;
            }
}

static void visit_batch(tn_lone *lone)
{
    int64_t batches[] = {(lone->planned + 1) / 2, 1, 0};
    size_t y = lone->y.bytes, dx[TN_LONE_PORTS];
    for (int32_t i = 0; i < lone->inputs; i++)
        dx[i] = lone->dx[i].bytes;
    for (int b = 0; b < 3; b++)
        for (int m = 0; m < 2 && !tn_lone_is_done(lone); m++) {
            tn_lone_batch(lone, lone->planned);
            tn_lone_batch(lone, batches[b]);
            if (!tn_lone_may(lone, modes[m]))
                continue;
            both_ways(lone, modes[m] | TN_FREEZE, 0);
            if (batches[b] < lone->planned)
                check_behind(lone, y, dx);
            if (batches[b] == 0)
                check_empty(lone);
        }
}

void tn_check_layer_batch(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_batch);
}

/* ---- in place ---- */

static void visit_in_place(tn_lone *lone)
{
    if (!lone->in_place)
        return;
    if (lone->inputs != 1 || lone->y.bytes != lone->x[0].bytes) {
        tn_lone_fail(lone, "it says in_place, but the output has not the shape of the input");
        return;
    }
    for (int m = 0; m < 2 && !tn_lone_is_done(lone); m++) {
        if (!tn_lone_may(lone, modes[m]))
            continue;
        both_ways(lone, modes[m] | TN_FREEZE, 0);
        tn_lone_copy y = tn_lone_take(lone, TN_LONE_Y, NULL), dx = tn_lone_take(lone, TN_LONE_DX, NULL);
        tn_lone_in_place(lone, modes[m] | TN_FREEZE, 128);
        if (tn_lone_same(lone, &y, "it says in_place, and y differs where it takes the place of x")) {
            tn_lone_back_in_place(lone, modes[m] | BACK, 128);
            tn_lone_same(lone, &dx, "it says in_place, and dx differs where it takes the place of dy");
        }
        tn_lone_drop(&y);
        tn_lone_drop(&dx);
    }
}

void tn_check_layer_in_place(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_in_place);
}

/* ---- threads ---- */

static tn_pool *pool;

#define REPEATS 8 /* of calls that run beside others */

static void check_shared(tn_lone *lone, uint32_t flags)
{
    int64_t extent = lone->axis == TN_LONE_ELEMENTS ? 64 : 2;
    both_ways(lone, flags, extent);
    tn_lone_copy all = tn_lone_take(lone, TN_LONE_RESULTS, NULL);
    lone->pool = pool;
    for (int k = 0; k < REPEATS && !tn_lone_is_done(lone); k++) {
        both_ways(lone, flags, extent);
        tn_lone_same(lone, &all, "pieces on 4 threads give something else than on one; keep nothing in static memory");
    }
    lone->pool = NULL;
    tn_lone_drop(&all);
}

/* Layers of one plan side by side, each with its own numbers. */
typedef struct {
    tn_lone lone;
    tn_check_subject subject;
    tn_check_finding finding;
    char stage[256];
    uint32_t flags;
} neighbour;

static neighbour neighbours[TN_LONE_THREADS];

static void run_neighbour(void *arg, int64_t index, int32_t thread)
{
    neighbour *own = &neighbours[index];
    (void)arg, (void)thread;
    both_ways(&own->lone, own->flags, 0);
    tn_lone_copy all = tn_lone_take(&own->lone, TN_LONE_RESULTS, NULL);
    for (int k = 0; k < REPEATS && !tn_lone_is_done(&own->lone); k++) {
        both_ways(&own->lone, own->flags, 0);
        tn_lone_same(&own->lone, &all,
                     "calls of 4 threads at a time, each with its own tensors, change each other's "
                     "results; keep nothing in static memory");
    }
    tn_lone_drop(&all);
}

static bool open_neighbour(const tn_lone *lone, uint32_t flags, int i)
{
    neighbour *own = &neighbours[i];
    tn_error err = {0};
    own->subject = *lone->subject;
    own->subject.stage = own->stage;
    own->finding = *lone->finding;
    own->flags = flags;
    if (tn_lone_open(lone->table, lone->instance, &(tn_lone_use){0}, lone->inputs, lone->x[0].view.ndim,
                     lone->x[0].shape, &own->lone, &err) != TN_OK)
        return false;
    own->lone.subject = &own->subject;
    own->lone.finding = &own->finding;
    for (int32_t k = 0; k < lone->inputs; k++)
        tn_lone_random(&own->lone.x[k], 300 + 10 * (uint64_t)i + (uint64_t)k, -2, 2);
    return true;
}

static void check_beside(tn_lone *lone, uint32_t flags)
{
    int count = 0;
    while (count < TN_LONE_THREADS && open_neighbour(lone, flags, count))
        count++;
    tn_check_stage(lone->subject, "forward and backward on %d threads", count);
    tn_pool_run(pool, run_neighbour, NULL, count);
    for (int i = 0; i < count; i++) {
        if (neighbours[i].finding.verdict != TN_CHECK_PASSED)
            *lone->finding = neighbours[i].finding;
        tn_lone_close(&neighbours[i].lone);
    }
}

static void visit_threads(tn_lone *lone)
{
    for (int m = 0; m < 2 && !tn_lone_is_done(lone); m++) {
        if (!tn_lone_may(lone, modes[m]))
            continue;
        if (lone->axis != TN_LONE_WHOLE)
            check_shared(lone, modes[m] | TN_FREEZE);
        if (!tn_lone_is_done(lone))
            check_beside(lone, modes[m] | TN_FREEZE);
    }
}

void tn_check_layer_threads(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_error err = {0};
    if (tn_pool_create(TN_LONE_THREADS, &pool, &err) != TN_OK) {
        tn_check_skip(finding, "%s", err.msg);
        return;
    }
    tour(subject, finding, visit_threads);
    tn_pool_destroy(pool);
}

/* ---- the heap ---- */

static bool has_counted;

static void open_count(tn_lone *lone)
{
    tn_error err = {0};
    if (!has_counted && tn_count_open(&err) != TN_OK)
        tn_check_skip(lone->finding, "%s", err.msg);
    has_counted = true;
}

static void visit_heap(tn_lone *lone)
{
    open_count(lone);
    for (int m = 0; m < 2 && lone->finding->verdict == TN_CHECK_PASSED; m++) {
        if (!tn_lone_may(lone, modes[m]))
            continue;
        both_ways(lone, modes[m], 0);
        int64_t before = tn_count_allocations();
        tn_lone_forward(lone, modes[m], 0);
        int64_t middle = tn_count_allocations();
        tn_lone_backward(lone, modes[m] | BACK, 0);
        int64_t after = tn_count_allocations();
        if (after != before)
            tn_lone_fail(lone, "%s allocates (%s, %lld times a call); plan a workspace instead",
                         middle != before ? "forward" : "backward", tn_count_last(),
                         (long long)(middle != before ? middle - before : after - middle));
    }
}

void tn_check_layer_heap(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_heap);
}

/* What stays behind of 10,000 calls, and of a thousand plans. */
#define CALLS 10000
#define PLANS 1000
#define MOST  ((int64_t)1 << 20) /* bytes that a process may grow by meanwhile, for reasons of its own */

static int32_t ignore_shape(void *host, int32_t ndim, const int64_t *shape)
{
    (void)host, (void)ndim, (void)shape;
    return TN_OK;
}

static int32_t ignore_weight(void *host, const tn_weight *weight)
{
    (void)host, (void)weight;
    return TN_OK;
}

static int32_t ignore_buffer(void *host, const char *name, int32_t ndim, const int64_t *shape, double initial)
{
    (void)name, (void)initial;
    return ignore_shape(host, ndim, shape);
}

static int32_t ignore_saved(void *host, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    (void)dtype;
    return ignore_shape(host, ndim, shape);
}

static int32_t ignore_workspace(void *host, int64_t bytes)
{
    (void)host, (void)bytes;
    return TN_OK;
}

static void plan_often(const tn_lone *lone)
{
    static const tn_layer_planner planner = {
        sizeof planner, 0, NULL, ignore_shape, ignore_weight, ignore_buffer, ignore_saved, ignore_workspace};
    tn_tensor x[TN_LONE_PORTS];
    tn_error err = {0};
    for (int32_t i = 0; i < lone->inputs; i++) {
        x[i] = lone->x[i].view;
        x[i].data = NULL;
    }
    for (int k = 0; k < PLANS; k++) {
        lone->table->infer(lone->hyper.data, x, lone->inputs, &planner, &err);
        tn_lone_may(lone, TN_TRAIN);
    }
}

static void visit_leak(tn_lone *lone)
{
    if (has_counted || !tn_lone_may(lone, TN_TRAIN))
        return; /* one shape will do */
    open_count(lone);
    both_ways(lone, TN_TRAIN, 0);
    int64_t held = tn_count_held(), mapped = tn_count_mapped(), files = tn_count_files();
    for (int k = 0; k < CALLS / 2; k++)
        both_ways(lone, TN_TRAIN, 0);
    plan_often(lone);
    if (tn_count_held() > held)
        tn_lone_fail(lone, "%lld blocks are not freed after %d calls and %d plans", (long long)(tn_count_held() - held),
                     CALLS, PLANS);
    else if (tn_count_files() > files)
        tn_lone_fail(lone, "%lld files are left open after %d calls and %d plans",
                     (long long)(tn_count_files() - files), CALLS, PLANS);
    else if (tn_count_mapped() > mapped + MOST)
        tn_lone_fail(lone, "the process has grown by %lld bytes after %d calls and %d plans",
                     (long long)(tn_count_mapped() - mapped), CALLS, PLANS);
}

void tn_check_layer_leak(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_lone_each(subject, finding, &(tn_lone_use){.visit = visit_leak});
}
