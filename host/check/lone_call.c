/* SPDX-License-Identifier: Apache-2.0
 *
 * lone_call.c: the calls of one layer, cut into pieces.
 */
#include <string.h>

#include "host/base/memory.h"
#include "host/check/gemm.h"
#include "host/check/lone.h"

#define SUMS_MOST 65536 /* of a round */

typedef struct call_run {
    tn_lone *lone;
    tn_layer_call call;
    tn_tangent_call along; /* call NULL: none */
    tn_tensor x[TN_LONE_PORTS], dx[TN_LONE_PORTS], parameter[TN_LONE_PORTS], gradient[TN_LONE_PORTS];
    tn_tensor buffer[TN_LONE_PORTS], saved[TN_LONE_PORTS], y, dy;
    tn_tensor along_x[TN_LONE_PORTS], along_dx[TN_LONE_PORTS], along_parameter[TN_LONE_PORTS];
    tn_tensor along_gradient[TN_LONE_PORTS];
    int64_t total, extent;
    bool has_partials;
    int32_t round; /* of sums */
    double *sums;
    void (*visit)(struct call_run *run, const tn_layer_call *call, const tn_tensor *partial);
} call_run;

/* ---- what is lent ---- */

static void spoil(const tn_lone *lone, tn_lone_tensor *t) { memset(t->view.data, lone->fill, t->bytes); }

static void copy_views(tn_tensor *to, const tn_lone_tensor *from, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        to[i] = from[i].view;
}

static void cut_pieces(const tn_lone *lone, int64_t extent, call_run *run)
{
    const tn_lone_tensor *y = &lone->y;
    run->total = lone->axis == TN_LONE_COLUMNS    ? y->shape[y->view.ndim - 1]
                 : lone->axis == TN_LONE_ELEMENTS ? tn_lone_count(y)
                                                  : y->shape[0];
    run->extent = extent && lone->axis != TN_LONE_WHOLE ? extent : run->total;
    while (run->extent * TN_LONE_PIECES < run->total)
        run->extent *= 2;
    run->call.pieces = run->total ? (int32_t)((run->total + run->extent - 1) / run->extent) : 1;
}

static void prepare(tn_lone *lone, uint32_t flags, int64_t extent, call_run *run)
{
    *run = (call_run){.lone = lone, .y = lone->y.view, .dy = lone->dy.view};
    copy_views(run->x, lone->x, lone->inputs);
    copy_views(run->dx, lone->dx, lone->inputs);
    copy_views(run->parameter, lone->parameter, lone->parameters);
    copy_views(run->gradient, lone->gradient, lone->parameters);
    copy_views(run->buffer, lone->buffer, lone->buffers);
    copy_views(run->saved, lone->saved, lone->saveds);
    run->call = (tn_layer_call){.struct_size = sizeof run->call,
                                .flags = flags,
                                .hyper = lone->hyper.data,
                                .context = &lone->context,
                                .compute = lone->axis == TN_LONE_WHOLE ? &tn_plain_compute : NULL,
                                .refresh = flags & TN_TRAIN ? lone->refresh : 0,
                                .x = run->x,
                                .y = &run->y,
                                .parameter = run->parameter,
                                .buffer = run->buffer,
                                .saved = run->saved};
    cut_pieces(lone, extent, run);
}

static void lock_list(tn_lone_tensor *list, int32_t count, int32_t locked)
{
    for (int32_t i = 0; i < count; i++)
        if (list[i].guard.map && list[i].guard.is_read_only != locked)
            tn_guard_read_only(&list[i].guard, locked);
}

/* What may be written: y, saved and buffers in forward; dx and gradients in backward. */
static void lock_for(tn_lone *lone, uint32_t flags, bool backward, bool along)
{
    int32_t moves = (flags & TN_TRAIN) && !(flags & TN_FREEZE);
    if (!lone->is_strict)
        return;
    lock_list(lone->x, lone->inputs, 1);
    lock_list(lone->parameter, lone->parameters, 1);
    lock_list(&lone->dy, 1, 1);
    lock_list(&lone->y, 1, backward || along);
    lock_list(lone->saved, lone->saveds, backward || along);
    lock_list(lone->buffer, lone->buffers, backward || along || !moves);
    lock_list(lone->dx, lone->inputs, along || !backward || !(flags & TN_WANT_DX));
    lock_list(lone->gradient, lone->parameters, along || !backward || !(flags & TN_WANT_DW));
    if (!along)
        return;
    lock_list(lone->along_x, lone->inputs, 1);
    lock_list(lone->along_parameter, lone->parameters, 1);
    lock_list(&lone->along_dy, 1, 1);
    lock_list(&lone->along_y, 1, backward);
}

static void unlock(tn_lone *lone)
{
    tn_lone_tensor *lists[] = {lone->x,        lone->parameter,     lone->saved,    lone->buffer,
                               lone->dx,       lone->along_x,       lone->gradient, lone->along_parameter,
                               lone->along_dx, lone->along_gradient};
    if (!lone->is_strict)
        return;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        lock_list(lists[i], TN_LONE_PORTS, 0);
    lock_list(&lone->y, 1, 0);
    lock_list(&lone->dy, 1, 0);
    lock_list(&lone->along_y, 1, 0);
    lock_list(&lone->along_dy, 1, 0);
}

/* ---- damage beside tensors ---- */

static void look_at(tn_lone *lone, const tn_lone_tensor *list, int32_t count, const char *name, const char *doing)
{
    for (int32_t i = 0; i < count; i++) {
        size_t damage = list[i].guard.map ? tn_guard_damage(&list[i].guard) : 0;
        if (damage)
            tn_lone_fail(lone, "%s writes %zu bytes beside '%s', which is lent %zu bytes", doing, damage, name,
                         list[i].bytes);
    }
}

static void look_for_damage(tn_lone *lone, int32_t pieces, const char *doing)
{
    if (!lone->is_strict)
        return;
    look_at(lone, lone->x, lone->inputs, "x", doing);
    look_at(lone, lone->dx, lone->inputs, "dx", doing);
    look_at(lone, &lone->y, 1, "y", doing);
    look_at(lone, &lone->dy, 1, "dy", doing);
    look_at(lone, lone->parameter, lone->parameters, "a parameter", doing);
    look_at(lone, lone->gradient, lone->parameters, "a gradient", doing);
    look_at(lone, lone->buffer, lone->buffers, "a buffer", doing);
    look_at(lone, lone->saved, lone->saveds, "a saved tensor", doing);
    look_at(lone, lone->workspace, TN_LONE_THREADS, "the scratch", doing);
    look_at(lone, &lone->along_y, 1, "y~", doing);
    look_at(lone, lone->along_dx, lone->inputs, "dx~", doing);
    look_at(lone, lone->along_gradient, lone->parameters, "gradient~", doing);
    for (int32_t i = 0; lone->axis == TN_LONE_ROWS && i < lone->parameters; i++)
        look_at(lone, lone->partial[i], pieces, "a partial gradient", doing);
}

/* ---- pieces ---- */

static void one_piece(void *arg, int64_t index, int32_t thread)
{
    call_run *run = arg;
    tn_lone *lone = run->lone;
    tn_layer_call call = run->call;
    tn_tensor partial[TN_LONE_PORTS];
    call.piece = call.pieces - 1 - (int32_t)index;
    call.lo = call.piece * run->extent;
    call.n = run->total - call.lo < run->extent ? run->total - call.lo : run->extent;
    call.workspace = lone->workspace[thread].view.data;
    spoil(lone, &lone->workspace[thread]);
    for (int32_t i = 0; run->has_partials && i < lone->parameters; i++) {
        partial[i] = lone->partial[i][call.piece].view;
        spoil(lone, &lone->partial[i][call.piece]);
    }
    if (run->has_partials)
        call.flags &= ~TN_ACCUMULATE;
    run->visit(run, &call, run->has_partials ? partial : NULL);
}

static void run_pieces(call_run *run)
{
    if (tn_pool_threads(run->lone->pool) > 1)
        tn_pool_run(run->lone->pool, one_piece, run, run->call.pieces);
    else
        for (int64_t i = 0; i < run->call.pieces; i++)
            one_piece(run, i, 0);
}

static void add_partials(call_run *run, tn_lone_tensor *gradient)
{
    tn_lone *lone = run->lone;
    for (int32_t i = 0; i < lone->parameters; i++) {
        int64_t n = tn_lone_count(&gradient[i]);
        for (int32_t p = 0; p < run->call.pieces; p++)
            for (int64_t j = 0; j < n; j++) {
                bool first = p == 0 && !(run->call.flags & TN_ACCUMULATE);
                double before = first ? 0 : tn_lone_get(&gradient[i], j);
                tn_lone_set(&gradient[i], j, before + tn_lone_get(&lone->partial[i][p], j));
            }
    }
}

/* ---- rounds ---- */

static void visit_partial(call_run *run, const tn_layer_call *call, const tn_tensor *partial)
{
    (void)partial;
    run->lone->rounds.partial(call, run->round, run->sums);
}

/* Zeros; kept from call to call, so that calls can be watched for what they allocate. */
static bool make_sums(tn_lone *lone, int64_t count)
{
    if (count > lone->sums_room) {
        tn_free(lone->sums);
        lone->sums = tn_alloc((size_t)count, sizeof *lone->sums);
        lone->sums_room = lone->sums ? count : 0;
    }
    if (lone->sums)
        memset(lone->sums, 0, (size_t)count * sizeof *lone->sums);
    return lone->sums != NULL;
}

static void lend_backward(tn_lone *lone, uint32_t flags, call_run *run);

static void add_share(call_run *run, int32_t round, double *sums)
{
    run->visit = visit_partial;
    run->has_partials = false;
    run->round = round;
    run->sums = sums;
    run_pieces(run);
}

/* What another process would add. Its dx and gradients, in backward, are lost. */
static void add_partner(const call_run *own, int32_t round, int64_t count, double *sums)
{
    call_run run;
    double *share = tn_alloc((size_t)count, sizeof *share);
    if (!share)
        return;
    prepare(own->lone->partner, own->call.flags, 0, &run);
    if (own->call.dy)
        lend_backward(own->lone->partner, own->call.flags, &run);
    run.call.sums = own->lone->sums;
    add_share(&run, round, share);
    for (int64_t i = 0; i < count; i++)
        sums[i] += share[i];
    tn_free(share);
}

static void run_rounds(call_run *run, int32_t rounds)
{
    tn_lone *lone = run->lone;
    const call_run own = *run;
    int64_t count = lone->rounds.count ? lone->rounds.count(lone->hyper.data, run->x, run->call.flags & TN_TRAIN) : 0;
    if (count <= 0 || count > SUMS_MOST || rounds <= 0 || !lone->rounds.partial || !make_sums(lone, count * rounds))
        return;
    run->call.sums = lone->sums;
    for (int32_t round = 0; round < rounds; round++) {
        add_share(run, round, lone->sums + round * count);
        if (lone->partner)
            add_partner(run, round, count, lone->sums + round * count);
    }
    run->visit = own.visit;
    run->has_partials = own.has_partials;
}

/* ---- forward and backward ---- */

static void visit_forward(call_run *run, const tn_layer_call *call, const tn_tensor *partial)
{
    (void)partial;
    run->lone->table->forward(call);
}

static void visit_backward(call_run *run, const tn_layer_call *call, const tn_tensor *partial)
{
    tn_layer_call own = *call;
    own.gradient = partial ? partial : run->gradient;
    run->lone->table->backward(&own);
}

static const char *mode(uint32_t flags)
{
    return flags & TN_FREEZE ? "in frozen training" : flags & TN_TRAIN ? "in training" : "in evaluation";
}

static void tell_stage(const tn_lone *lone, const char *what, uint32_t flags)
{
    tn_check_stage(lone->subject, "%s %s%s%s, batch of %lld", what, mode(flags), *lone->variant ? ", " : "",
                   lone->variant, (long long)lone->x[0].shape[0]);
}

static void forward(tn_lone *lone, uint32_t flags, int64_t extent, bool in_place)
{
    call_run run;
    prepare(lone, flags, extent, &run);
    if (in_place) {
        memcpy(lone->y.view.data, lone->x[0].view.data, lone->x[0].bytes);
        run.x[0].data = lone->y.view.data;
    } else {
        spoil(lone, &lone->y);
    }
    for (int32_t i = 0; i < lone->saveds; i++)
        spoil(lone, &lone->saved[i]);
    run.visit = visit_forward;
    tell_stage(lone, in_place ? "forward in place" : "forward", flags);
    lock_for(lone, flags, false, false);
    run_rounds(&run, lone->rounds.forward);
    run_pieces(&run);
    unlock(lone);
    look_for_damage(lone, run.call.pieces, "forward");
    tn_check_stage(lone->subject, NULL);
}

void tn_lone_forward(tn_lone *lone, uint32_t flags, int64_t extent) { forward(lone, flags, extent, false); }
void tn_lone_in_place(tn_lone *lone, uint32_t flags, int64_t extent) { forward(lone, flags, extent, true); }

static void lend_backward(tn_lone *lone, uint32_t flags, call_run *run)
{
    for (int32_t i = 0; i < lone->inputs; i++) {
        run->x[i].data = lone->keeps_input ? run->x[i].data : NULL;
        run->dx[i].data = flags & TN_WANT_DX ? run->dx[i].data : NULL;
        if (flags & TN_WANT_DX)
            spoil(lone, &lone->dx[i]);
    }
    run->y.data = lone->keeps_output ? run->y.data : NULL;
    for (int32_t i = 0; i < lone->parameters; i++)
        if ((flags & (TN_WANT_DW | TN_ACCUMULATE)) == TN_WANT_DW)
            spoil(lone, &lone->gradient[i]);
    run->call.dy = &run->dy;
    run->call.dx = run->dx;
    run->has_partials = lone->axis == TN_LONE_ROWS;
    run->visit = visit_backward;
}

static void backward(tn_lone *lone, uint32_t flags, int64_t extent, bool in_place)
{
    call_run run;
    prepare(lone, flags, extent, &run);
    lend_backward(lone, flags, &run);
    if (in_place) {
        memcpy(lone->dx[0].view.data, lone->dy.view.data, lone->dy.bytes);
        run.dy.data = lone->dx[0].view.data;
    }
    tell_stage(lone, in_place ? "backward in place" : "backward", flags);
    lock_for(lone, flags, true, false);
    run_rounds(&run, lone->rounds.backward);
    run_pieces(&run);
    unlock(lone);
    if (run.has_partials && (flags & TN_WANT_DW))
        add_partials(&run, lone->gradient);
    look_for_damage(lone, run.call.pieces, "backward");
    tn_check_stage(lone->subject, NULL);
}

void tn_lone_backward(tn_lone *lone, uint32_t flags, int64_t extent) { backward(lone, flags, extent, false); }
void tn_lone_back_in_place(tn_lone *lone, uint32_t flags, int64_t extent) { backward(lone, flags, extent, true); }

/* ---- along a direction ---- */

static void visit_tangent(call_run *run, const tn_layer_call *call, const tn_tensor *partial)
{
    tn_tangent_call own = run->along;
    own.call = call;
    own.gradient = partial ? partial : run->along_gradient;
    if (own.dy)
        run->lone->tangents.backward(&own);
    else
        run->lone->tangents.forward(&own);
}

static void lend_direction(tn_lone *lone, uint32_t flags, bool zero_x, call_run *run)
{
    copy_views(run->along_x, lone->along_x, lone->inputs);
    copy_views(run->along_dx, lone->along_dx, lone->inputs);
    copy_views(run->along_parameter, lone->along_parameter, lone->parameters);
    copy_views(run->along_gradient, lone->along_gradient, lone->parameters);
    for (int32_t i = 0; i < lone->inputs; i++) {
        run->along_x[i].data = zero_x ? NULL : run->along_x[i].data;
        run->along_dx[i].data = flags & TN_WANT_DX ? run->along_dx[i].data : NULL;
        run->dx[i].data = NULL;
    }
    for (int32_t i = 0; i < lone->parameters; i++)
        run->gradient[i].data = NULL;
    run->along = (tn_tangent_call){.struct_size = sizeof run->along,
                                   .x = run->along_x,
                                   .parameter = run->along_parameter,
                                   .y = &lone->along_y.view,
                                   .gradient = run->along_gradient};
    run->visit = visit_tangent;
}

void tn_lone_tangent(tn_lone *lone, uint32_t flags, int64_t extent, bool zero_x)
{
    call_run run;
    prepare(lone, flags, extent, &run);
    lend_direction(lone, flags, zero_x, &run);
    spoil(lone, &lone->along_y);
    tell_stage(lone, "forward of the tangents", flags);
    lock_for(lone, flags, false, true);
    run_pieces(&run);
    unlock(lone);
    look_for_damage(lone, run.call.pieces, "forward of the tangents");
    tn_check_stage(lone->subject, NULL);
}

void tn_lone_back_tangent(tn_lone *lone, uint32_t flags, int64_t extent, bool zero_x)
{
    call_run run;
    prepare(lone, flags, extent, &run);
    lend_direction(lone, flags, zero_x, &run);
    run.call.dy = &run.dy;
    run.call.dx = run.dx;
    run.call.gradient = run.gradient;
    run.along.dy = &lone->along_dy.view;
    run.along.dx = run.along_dx;
    run.has_partials = lone->axis == TN_LONE_ROWS;
    for (int32_t i = 0; i < lone->inputs && (flags & TN_WANT_DX); i++)
        spoil(lone, &lone->along_dx[i]);
    for (int32_t i = 0; i < lone->parameters && !(flags & TN_ACCUMULATE); i++)
        spoil(lone, &lone->along_gradient[i]);
    tell_stage(lone, "backward of the tangents", flags);
    lock_for(lone, flags, true, true);
    run_pieces(&run);
    unlock(lone);
    if (run.has_partials)
        add_partials(&run, lone->along_gradient);
    look_for_damage(lone, run.call.pieces, "backward of the tangents");
    tn_check_stage(lone->subject, NULL);
}
